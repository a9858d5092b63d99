"""The service's policy with one thing left out or put on, to show what that is worth."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.lab.simulation.policies import Policy, service_player
from topk_bandit.learning.limits import Limits

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

    from topk_bandit.domain.bandits import Exploration
    from topk_bandit.lab.simulation.episodes import Player, ProblemSize, Visit

__all__ = ["Restarting", "ignore_pending", "limit_rows", "restart_every"]


def ignore_pending(exploration: Exploration) -> Policy:
    """Return the policy that knows nothing of slates before their rewards."""
    name = "pending not counted"
    return Policy(name, name, partial(service_player, exploration, count_pending=False))


def limit_rows(exploration: Exploration, *, rows: int) -> Policy:
    """Return the policy that keeps few rewards, those that tell the most that the others do not."""
    name = f"{rows} rows"
    return Policy(name, name, partial(service_player, exploration, limits=Limits(rows=rows)))


def restart_every(exploration: Exploration, *, every: int) -> Policy:
    """Return the policy of a shop that creates its bandit anew from time to time."""
    name = f"anew every {every} rounds"
    return Policy(name, name, partial(_make_restarting, exploration, every))


class Restarting:
    """Players that play one after the other, each as if there had been nothing before.

    Parameters
    ----------
    make
        Returns the next player.
    every
        How many rounds one plays; of what it showed the next hears nothing.
    """

    def __init__(self, make: Callable[[], Player], *, every: int) -> None:
        if every < 1:
            raise InvalidArgumentError("every", f"expected at least 1, got {every}")
        self._make = make
        self._every = every
        self._first = 0
        self._player = make()

    def choose(self, visit: Visit) -> NDArray[np.int32]:
        """Let the player choose whose turn it is."""
        if visit.number >= self._first + self._every:
            self._first = visit.number - visit.number % self._every
            self._player = self._make()
        return self._player.choose(visit)

    def observe(self, number: int, reward: float) -> None:
        """Let the player learn the reward, if the slate was its own."""
        if number >= self._first:
            self._player.observe(number, reward)

    def close(self, number: int) -> None:
        """Let the player learn the reward, if the slate was its own."""
        if number >= self._first:
            self._player.close(number)


def _make_restarting(exploration: Exploration, every: int, size: ProblemSize, rng: np.random.Generator) -> Player:
    return Restarting(partial(service_player, exploration, size, rng), every=every)
