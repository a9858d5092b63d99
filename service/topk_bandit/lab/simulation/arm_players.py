"""Policies that take every slate for an arm of its own and learn nothing about one from another (Appendix C.2).

Each context has its own arms: what was observed of a slate in one context says nothing of it in another. There may be
10^10 of them, so they are never listed: an arm that was not played yet is drawn.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.learning.rankings import random_rankings

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from topk_bandit.lab.simulation.episodes import ProblemSize, Visit

__all__ = ["EpsilonGreedy", "MabUcb", "RandomPlayer"]

_DRAWN_AT_ONCE = 64


class RandomPlayer:
    """Shows a slate drawn uniformly, and learns nothing.

    Parameters
    ----------
    slate_size
        K.
    rng
        Draws the slates.
    """

    def __init__(self, *, slate_size: int, rng: np.random.Generator) -> None:
        self._slate_size = slate_size
        self._rng = rng

    @classmethod
    def of(cls, size: ProblemSize, rng: np.random.Generator) -> RandomPlayer:
        """Return a player for one trial."""
        return cls(slate_size=size.slate_size, rng=rng)

    def choose(self, visit: Visit) -> NDArray[np.int32]:
        """Return a random slate."""
        return _random_slate(visit, self._slate_size, self._rng)

    def observe(self, number: int, reward: float) -> None:
        """Do nothing."""

    def close(self, number: int) -> None:
        """Do nothing."""


@dataclass(slots=True)
class _Arm:
    """A slate in one context: how often its reward was heard, and the sum of these rewards."""

    ranking: tuple[int, ...]
    plays: int = 0
    total: float = 0.0

    @property
    def mean(self) -> float:
        return self.total / self.plays


class _Arms:
    """All arms that were played, and the slates whose rewards were not observed yet."""

    def __init__(self) -> None:
        self._of_context: dict[bytes, dict[tuple[int, ...], _Arm]] = {}
        self._shown: dict[int, tuple[bytes, tuple[int, ...]]] = {}

    def eligible_arms(self, visit: Visit) -> list[_Arm]:
        """Return the arms of the visit's context with a reward and all items eligible, in the order first heard of."""
        arms, eligible = self._of_context.get(visit.context.tobytes(), {}), set(visit.eligible.tolist())
        return [arm for arm in arms.values() if eligible.issuperset(arm.ranking)]

    def show(self, visit: Visit, slate: NDArray[np.int32]) -> NDArray[np.int32]:
        """Remember what is shown, and return it."""
        self._shown[visit.number] = visit.context.tobytes(), tuple(slate.tolist())
        return slate

    def observe(self, number: int, reward: float) -> None:
        context, ranking = self._shown.pop(number)
        arm = self._of_context.setdefault(context, {}).setdefault(ranking, _Arm(ranking))
        arm.plays += 1
        arm.total += reward

    def close(self, number: int) -> None:
        del self._shown[number]


class EpsilonGreedy:
    """Shows a random slate with probability epsilon, and otherwise the slate with the highest observed mean reward.

    Where nothing was observed yet, in this context and of eligible items, it shows a random slate.

    Parameters
    ----------
    epsilon
        In [0, 1]; the paper tries 0.01, 0.05 and 0.1.
    slate_size
        K.
    rng
        Decides whether to draw, and draws the slates.
    """

    def __init__(self, *, epsilon: float, slate_size: int, rng: np.random.Generator) -> None:
        if not 0.0 <= epsilon <= 1.0:
            raise InvalidArgumentError("epsilon", f"expected a number in [0, 1], got {epsilon}")
        self._epsilon = epsilon
        self._slate_size = slate_size
        self._rng = rng
        self._arms = _Arms()

    @classmethod
    def of(cls, size: ProblemSize, rng: np.random.Generator, *, epsilon: float) -> EpsilonGreedy:
        """Return a player for one trial."""
        return cls(epsilon=epsilon, slate_size=size.slate_size, rng=rng)

    def choose(self, visit: Visit) -> NDArray[np.int32]:
        """Return the slate for this round."""
        explores = self._rng.random() < self._epsilon
        played = [] if explores else self._arms.eligible_arms(visit)
        if played:
            best = max(played, key=lambda arm: arm.mean)
            return self._arms.show(visit, np.array(best.ranking, dtype=np.int32))
        return self._arms.show(visit, _random_slate(visit, self._slate_size, self._rng))

    def observe(self, number: int, reward: float) -> None:
        """Learn a reward."""
        self._arms.observe(number, reward)

    def close(self, number: int) -> None:
        """Forget the slate."""
        self._arms.close(number)


class MabUcb:
    """Shows the arm i with the largest mean_i + beta sqrt(2 ln(t + 1) / n_i) (Appendix C.2).

    With n_i = 0 for an arm that was not played, no arm would be shown twice before all have been: the rewards of a few
    hundred rounds would never be used among thousands of arms. Section 5 calls this policy the equivalent of a Gaussian
    process with a delta kernel, in which such an arm has the prior mean and the prior deviation. So it counts here as
    an arm that was played once (n_i = 1) and had the mean of the arms that were. Of the readings tried, with the prior
    mean zero and with an infinite bonus besides, this one has the smallest regret.

    Parameters
    ----------
    beta
        At least 0; the paper tries 0.1, 0.25 and 0.5.
    slate_size
        K.
    rng
        Draws arms that were not played.
    """

    def __init__(self, *, beta: float, slate_size: int, rng: np.random.Generator) -> None:
        if not (math.isfinite(beta) and beta >= 0.0):
            raise InvalidArgumentError("beta", f"expected a finite number of at least 0, got {beta}")
        self._beta = beta
        self._slate_size = slate_size
        self._rng = rng
        self._arms = _Arms()

    @classmethod
    def of(cls, size: ProblemSize, rng: np.random.Generator, *, beta: float) -> MabUcb:
        """Return a player for one trial."""
        return cls(beta=beta, slate_size=size.slate_size, rng=rng)

    def choose(self, visit: Visit) -> NDArray[np.int32]:
        """Return the slate for this round."""
        played = self._arms.eligible_arms(visit)
        if not played:
            return self._arms.show(visit, _random_slate(visit, self._slate_size, self._rng))
        bonus = self._beta * math.sqrt(2.0 * math.log(visit.number + 2))  # t is counted from 1
        bounds = [arm.mean + bonus / math.sqrt(arm.plays) for arm in played]
        unplayed = sum(arm.mean for arm in played) / len(played) + bonus
        best = int(np.argmax(bounds))
        if bounds[best] >= unplayed or len(played) == math.perm(len(visit.eligible), self._slate_size):
            return self._arms.show(visit, np.array(played[best].ranking, dtype=np.int32))
        return self._arms.show(visit, _unplayed_slate(visit, self._slate_size, played, self._rng))

    def observe(self, number: int, reward: float) -> None:
        """Learn a reward."""
        self._arms.observe(number, reward)

    def close(self, number: int) -> None:
        """Forget the slate."""
        self._arms.close(number)


def _random_slate(visit: Visit, slate_size: int, rng: np.random.Generator) -> NDArray[np.int32]:
    return np.asarray(random_rankings(visit.eligible, slate_size=slate_size, count=1, rng=rng)[0])


def _unplayed_slate(
    visit: Visit, slate_size: int, played: Iterable[_Arm], rng: np.random.Generator
) -> NDArray[np.int32]:
    """Draw one of the slates that were not played, of which there must be some, uniformly."""
    known = {arm.ranking for arm in played}
    while True:
        drawn = random_rankings(visit.eligible, slate_size=slate_size, count=_DRAWN_AT_ONCE, rng=rng)
        for slate in drawn:
            if tuple(slate.tolist()) not in known:
                return np.asarray(slate)
