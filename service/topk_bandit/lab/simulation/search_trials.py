"""How often a search finds the ranking that is most similar to a hidden one: the hidden one itself (paper, Figure 4).

k(pi, pi') is 1 for pi = pi' and less for all others, under each of the kernels as soon as a slate has two items: unit
features whose product is 1 are equal, and which of two shown items comes first is the sign of their pair's feature.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.lab.simulation.maximisers import Climbed, Step, breadth_first
from topk_bandit.learning.item_draws import ItemDraws
from topk_bandit.learning.policy import kernel_of
from topk_bandit.learning.posterior import Posterior
from topk_bandit.learning.rankings import random_rankings
from topk_bandit.learning.search import local_search

if TYPE_CHECKING:
    from topk_bandit.domain.bandits import Kernel
    from topk_bandit.learning.context_posterior import ContextPosterior

__all__ = ["N_ITEMS", "SLATE_SIZE", "SearchTrial", "Searcher", "search_of_paper", "search_of_service", "search_trial"]

N_ITEMS, SLATE_SIZE = 50, 6
_NOISE_VARIANCE = 0.1


class Searcher(Protocol):
    """Looks for the ranking with the largest posterior mean."""

    def __call__(self, at_context: ContextPosterior, rng: np.random.Generator, /) -> Climbed:
        """Return where it ended."""
        ...


def search_of_paper(at_context: ContextPosterior, rng: np.random.Generator, /) -> Climbed:
    """Search as the paper does: `breadth_first`."""
    return breadth_first(at_context, beta=0.0, rng=rng)


def search_of_service(at_context: ContextPosterior, rng: np.random.Generator, /) -> Climbed:
    """Search as this service does, from its own random starts; it says where it ended and nothing in between."""
    nowhere = np.zeros((0, at_context.slate_size), dtype=np.int32)
    found = local_search(at_context, ItemDraws(at_context).covariance, beta=0.0, starts=nowhere, rng=rng)
    return Climbed(found.ranking, (Step(found.evaluations, float(at_context.means(found.ranking[None])[0])),))


class SearchTrial(NamedTuple):
    """One search.

    Attributes
    ----------
    found
        Whether it ended at the hidden ranking.
    similarity
        Of the hidden ranking and the one where it ended.
    steps
        Rankings evaluated, and the largest similarity among them, as far as the search tells.
    """

    found: bool
    similarity: float
    steps: tuple[Step, ...]


def search_trial(
    kind: Kernel, search: Searcher, rng: np.random.Generator, *, n_items: int = N_ITEMS, slate_size: int = SLATE_SIZE
) -> SearchTrial:
    """Hide a ranking drawn at random, and look for it.

    Parameters
    ----------
    kind
        The kernel.
    search
        `search_of_paper` or `search_of_service`, or another one.
    rng
        Draws the hidden ranking and whatever the search draws.
    n_items, slate_size
        n and k, 2 <= k < n.
    """
    if not 2 <= slate_size < n_items:
        raise InvalidArgumentError("slate_size", f"expected 2 to n_items - 1 = {n_items - 1}, got {slate_size}")
    kernel, items = kernel_of(kind, n_items, slate_size), np.arange(n_items, dtype=np.int32)
    if kernel.shape is not None:
        kernel = kernel.with_shape(kernel.shape._replace(constant=0.0))
    [hidden] = random_rankings(items, slate_size=slate_size, count=1, rng=rng)
    # After one reward of 1 + sigma^2, at a context of norm 1, the posterior mean of a ranking is its similarity.
    prior = Posterior.prior(kernel, context_dim=1, noise_variance=_NOISE_VARIANCE)
    climbed = search(prior.observe([1.0], hidden, 1.0 + _NOISE_VARIANCE).at([1.0], items), rng)
    similarity = float(kernel.gram(climbed.ranking, hidden)[0, 0])
    return SearchTrial(bool((climbed.ranking == hidden).all()), similarity, climbed.steps)
