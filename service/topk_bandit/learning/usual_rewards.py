"""What rewards are usual, so that one wild reward can't undo what all others taught.

A reward much farther from the mean than any before is an outlier: it is learned as the farthest usual one, and widens
what is usual. So a single error of a thousandfold does no harm, and where such rewards are real, they are believed from
about the sixth one on. Rewards are never dropped, and none is an outlier while few are known or all were equal.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["NO_REWARDS", "Admitted", "UsualRewards"]

FEWEST_REWARDS = 20
"""So many rewards are believed, whatever they are: there is no telling yet what is usual."""

FARTHER = 10.0
"""A reward is an outlier if it is so many times farther from the mean than any usual one."""

WIDER = 3.0
"""What is usual becomes so many times wider with each outlier."""

_ROUNDING = 1e-9
"""Rewards that differ by less than this part of their mean are equal, and were rounded."""

_FORGOTTEN = 1e-4
_LONGEST_MEAN = 1000


class Admitted(NamedTuple):
    """A reward as it is learned, and what is usual after it."""

    reward: float
    usual: UsualRewards


class UsualRewards(NamedTuple):
    """The rewards of a bandit so far.

    Attributes
    ----------
    n_rewards
        How many they are.
    mean
        Their mean as they were learned, of the last thousand or so.
    deviation
        Distance from the mean within which rewards are usual: the largest so far, slowly forgotten.
    outliers
        How many rewards were outliers.
    """

    n_rewards: int = 0
    mean: float = 0.0
    deviation: float = 0.0
    outliers: int = 0

    def admit(self, reward: float) -> Admitted:
        """Return the reward as it is to be learned, and what is usual after it."""
        away = reward - self.mean
        varied = self.deviation > _ROUNDING * abs(self.mean)
        if self.n_rewards >= FEWEST_REWARDS and varied and abs(away) > FARTHER * self.deviation:
            learned = self.mean + math.copysign(self.deviation, away)
            wider = self._replace(deviation=WIDER * self.deviation, outliers=self.outliers + 1)
            return Admitted(learned, wider.after(learned))
        # The first reward is its own mean.
        deviation = max((1.0 - _FORGOTTEN) * self.deviation, abs(away)) if self.n_rewards else 0.0
        return Admitted(reward, self._replace(deviation=deviation).after(reward))

    def admit_all(self, rewards: Sequence[float]) -> tuple[list[float], UsualRewards]:
        """Return rewards as they are to be learned, in their order, and what is usual after the last one."""
        learned, usual = list[float](), self
        for reward in rewards:
            admitted, usual = usual.admit(reward)
            learned.append(admitted)
        return learned, usual

    def after(self, learned: float) -> UsualRewards:
        """Return the same with one more reward, as it was learned, in count and mean."""
        n_rewards = self.n_rewards + 1
        mean = self.mean + (learned - self.mean) / min(n_rewards, _LONGEST_MEAN)
        return self._replace(n_rewards=n_rewards, mean=mean)


NO_REWARDS = UsualRewards()
