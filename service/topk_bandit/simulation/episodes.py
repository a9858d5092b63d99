"""Policies playing rounds in a shop, with rewards that come late."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Protocol

import numpy as np

from topk_bandit.learning.policy import State, decide
from topk_bandit.learning.rankings import random_rankings

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from topk_bandit.simulation.environments import Shop
    from topk_bandit.types import Exploration

__all__ = ["GpTopK", "Player", "RandomPlayer", "play"]


class Player(Protocol):
    """What plays: it chooses a slate for a context, and later hears what an earlier slate earned."""

    def choose(self, round_number: int, context: NDArray[np.float64]) -> NDArray[np.int32]:
        """Return the slate for this round, shape (k,)."""
        ...

    def hear(self, round_number: int, reward: float) -> None:
        """Learn the reward of the slate chosen in `round_number`."""
        ...


class RandomPlayer:
    """Shows a slate drawn uniformly, and learns nothing."""

    def __init__(self, *, n_items: int, slate_size: int, rng: np.random.Generator) -> None:
        self._items = np.arange(n_items)
        self._slate_size = slate_size
        self._rng = rng

    def choose(self, round_number: int, context: NDArray[np.float64]) -> NDArray[np.int32]:  # noqa: ARG002
        """Return a random slate."""
        return np.asarray(random_rankings(self._items, slate_size=self._slate_size, count=1, rng=self._rng)[0])

    def hear(self, round_number: int, reward: float) -> None:
        """Do nothing."""


class GpTopK:
    """The service's policy, without the service.

    Parameters
    ----------
    state
        What it knows at first.
    exploration
        How it tries what it does not know.
    count_pending
        Whether slates that are shown and not yet rewarded count for the variance; False only to show what that is
        worth.
    rng
        Source of the exploration's randomness.
    """

    def __init__(
        self, state: State, exploration: Exploration, *, rng: np.random.Generator, count_pending: bool = True
    ) -> None:
        self.state = state
        self._exploration = exploration
        self._rng = rng
        self._count_pending = count_pending
        self._items = np.arange(state.posterior.kernel.n_items, dtype=np.int32)
        self._slates: dict[int, tuple[NDArray[np.float64], NDArray[np.int32]]] = {}

    def choose(self, round_number: int, context: NDArray[np.float64]) -> NDArray[np.int32]:
        """Decide as the service does."""
        decision = decide(self.state, self._exploration, context=context, eligible=self._items, rng=self._rng)
        self._slates[round_number] = (context, decision.ranking)
        if self._count_pending:
            self.state = self.state.shown(str(round_number), context, decision.ranking)
        return decision.ranking

    def hear(self, round_number: int, reward: float) -> None:
        """Learn as the service does."""
        context, ranking = self._slates.pop(round_number)
        self.state = self.state.rewarded(str(round_number), context, ranking, reward=reward)


def play(shop: Shop, player: Player, *, rounds: int, delay: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Let a player play and return the true regret of each round, shape (rounds,).

    Parameters
    ----------
    delay
        In how many rounds a reward arrives: 0 before the next choice.
    rng
        Source of the customers and of the noise.
    """
    regret = np.empty(rounds)
    late: deque[tuple[int, float]] = deque()
    for t in range(rounds):
        customer = int(rng.integers(len(shop.customers)))
        ranking = player.choose(t, shop.customers[customer])
        regret[t] = shop.best(customer) - float(shop.expected(customer, ranking[None])[0])
        late.append((t, shop.draw(customer, ranking, rng)))
        while late and late[0][0] <= t - delay:
            player.hear(*late.popleft())
    return regret
