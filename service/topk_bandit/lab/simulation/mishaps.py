"""Clients that err: they send a wrong context, or a wrong reward.

>>> from topk_bandit.lab.simulation.mishaps import MISHAPS
>>> MISHAPS["first reward"].last
0
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from topk_bandit.lab.simulation.episodes import Player, Visit

__all__ = ["MISHAPS", "ErringClient", "Mishap"]

FloatArray = NDArray[np.float64]
TellReward: TypeAlias = "Callable[[float, int], float | None]"
TellContext: TypeAlias = "Callable[[FloatArray, int], FloatArray]"


def _as_it_is(reward: float, _: int) -> float:
    return reward


def _as_they_are(context: FloatArray, _: int) -> FloatArray:
    return context


@dataclass(frozen=True)
class Mishap:
    """A mistake of a client, and the rounds in which it happens.

    Attributes
    ----------
    title
        Says it in words.
    rounds
        The numbers of the rounds, ascending.
    reward, context
        Return the wrong reward and context of a round, given the right ones and its number; None for no reward.
    is_for_good
        Whether the mistake goes on from the first of the rounds.
    """

    title: str
    rounds: range
    reward: TellReward = _as_it_is
    context: TellContext = _as_they_are
    is_for_good: bool = False

    @property
    def last(self) -> int:
        """The number of the last round in which it happens."""
        return self.rounds[-1]

    def happens_in(self, number: int) -> bool:
        """Return whether it happens in a round."""
        return number in self.rounds or (self.is_for_good and number >= self.rounds.start)


class ErringClient:
    """A player that hears an erring client.

    Parameters
    ----------
    player
        Chooses and learns.
    mishap
        The mistake of the client.
    """

    def __init__(self, player: Player, mishap: Mishap) -> None:
        self.player, self.mishap = player, mishap

    def choose(self, visit: Visit) -> NDArray[np.int32]:
        """Choose a slate for the context that the client sends."""
        if self.mishap.happens_in(visit.number):
            visit = visit._replace(context=self.mishap.context(visit.context, visit.number))
        return self.player.choose(visit)

    def observe(self, number: int, reward: float) -> None:
        """Learn the reward that the client posts."""
        said = self.mishap.reward(reward, number) if self.mishap.happens_in(number) else reward
        if said is None:
            self.player.close(number)
        else:
            self.player.observe(number, said)

    def close(self, number: int) -> None:
        """Learn that there is no reward."""
        self.player.close(number)


def _always(value: float) -> TellReward:
    return lambda _reward, _number: value


def _either_sign(value: float) -> TellReward:
    return lambda _reward, number: value if number % 2 else -value


def _times(factor: float) -> TellReward:
    return lambda reward, _number: factor * reward


def _not_posted(_reward: float, _number: int) -> None:
    return None


def _longer(factor: float) -> TellContext:
    return lambda context, _number: factor * context


def _turned_round(context: FloatArray, _: int) -> FloatArray:
    return context[::-1].copy()


def _for_good(title: str, reward: TellReward) -> Mishap:
    return Mishap(f"{title} for good", range(300, 301), reward, is_for_good=True)


MISHAPS: Mapping[str, Mishap] = {
    "first reward": Mishap("the first reward is 1e6", range(1), _always(1e6)),
    "test orders": Mishap("the second to sixth reward are 100 times as large", range(1, 6), _times(100.0)),
    "first fifty": Mishap("the first fifty rewards are 1e6 or its negative", range(50), _either_sign(1e6)),
    "not posted": Mishap("fifty rewards in a row are not posted", range(100, 150), _not_posted),
    "denormals": Mishap("fifty rewards in a row are 5e-324", range(100, 150), _always(5e-324)),
    "half": Mishap("half of fifty rewards are 1e6 or its negative", range(100, 150, 2), _either_sign(1e6)),
    "tens": Mishap("fifty rewards in a row are 10 times as large", range(100, 150), _times(10.0)),
    "largest": Mishap("fifty rewards in a row are -1e100", range(100, 150), _always(-1e100)),
    "late run": Mishap("fifty rewards in a row are 1e6 or its negative, late", range(500, 550), _either_sign(1e6)),
    "one in ten": Mishap("one reward in ten is 1e6 or its negative", range(100, 400, 10), _either_sign(1e6)),
    "cents": Mishap("fifty rewards are in cents", range(200, 250), _times(100.0)),
    "contexts": Mishap("twenty contexts are 1e5 times as long", range(100, 120), context=_longer(1e5)),
    "first contexts": Mishap("the first twelve contexts are 1e5 times as long", range(12), context=_longer(1e5)),
    "unit of contexts": Mishap("fifty contexts are in another unit", range(200, 250), context=_longer(1000.0)),
    "fields": Mishap("fifty contexts have their numbers in another order", range(200, 250), context=_turned_round),
    "bot": Mishap(
        "a bot sends long contexts and large rewards for fifty rounds",
        range(200, 250),
        _times(1e4),
        _longer(1e3),
    ),
    "prices times 10": _for_good("rewards are 10 times as large", _times(10.0)),
    "prices times 100": _for_good("rewards are 100 times as large", _times(100.0)),
    "prices in hundreds": _for_good("rewards are a hundredth", _times(0.01)),
}
"""By name; in shops whose rewards are of the size of one."""
