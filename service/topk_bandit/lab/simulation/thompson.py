"""Thompson sampling on the service's posterior: each slate is the best one of a function drawn from it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from topk_bandit.domain.bandits import Kernel
from topk_bandit.learning.limits import Limits
from topk_bandit.learning.policy import State, kernel_of
from topk_bandit.learning.slate_functions import maximiser
from topk_bandit.learning.thompson import draw_function

if TYPE_CHECKING:
    from topk_bandit.lab.simulation.episodes import ProblemSize, Visit
    from topk_bandit.learning.posterior import Posterior
    from topk_bandit.learning.rankings import Rankings

__all__ = ["ThompsonSampling"]

FloatArray = NDArray[np.float64]


class ThompsonSampling:
    """Shows the best slate of a draw from the posterior, and learns as the service does.

    Slates that are shown and not yet rewarded narrow what is drawn.

    Parameters
    ----------
    state
        What it knows at first.
    rng
        Draws the functions, and the random starts of climbs on them.
    """

    def __init__(self, state: State, *, rng: np.random.Generator) -> None:
        self.state = state
        self._rng = rng
        self._slates: dict[int, tuple[FloatArray, NDArray[np.int32]]] = {}

    @classmethod
    def of(cls, size: ProblemSize, rng: np.random.Generator, *, kernel: Kernel = Kernel.ADAPTIVE) -> ThompsonSampling:
        """Return a player for one trial."""
        of_rankings = kernel_of(kernel, size.n_items, size.slate_size)
        return cls(State.initial(of_rankings, context_dim=size.context_dim, limits=Limits()), rng=rng)

    def choose(self, visit: Visit) -> NDArray[np.int32]:
        """Return the slate for this round."""
        posterior, eligible = self.state.posterior, visit.eligible
        function = draw_function(posterior, self.state.encode(visit.context), eligible, self._rng)
        best = maximiser(function, starts=_find_slates(posterior, eligible), rng=self._rng)
        ranking = np.asarray(eligible[best], dtype=np.int32)
        self._slates[visit.number] = visit.context, ranking
        self.state = self.state.shown(str(visit.number), visit.context, ranking)
        return ranking

    def observe(self, number: int, reward: float) -> None:
        """Learn as the service does."""
        context, ranking = self._slates.pop(number)
        self.state = self.state.rewarded(str(number), context, ranking, reward=reward)

    def close(self, number: int) -> None:
        """Stop counting the slate, as the service does."""
        del self._slates[number]
        self.state = self.state.closed(str(number))


def _find_slates(posterior: Posterior, eligible: NDArray[np.int32]) -> Rankings:
    """Return the slates of all rows whose items are all eligible, as places among the eligible items."""
    place = np.full(posterior.kernel.n_items, -1, dtype=np.int32)
    place[eligible] = np.arange(len(eligible), dtype=np.int32)
    places = place[posterior.all_rows.rankings]
    return np.unique(places[(places >= 0).all(axis=1)], axis=0)
