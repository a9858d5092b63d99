"""What each item and each pair of items of a slate adds to its posterior mean.

The mean is linear in the kernel's features. With the pair weights Z of the posterior mean at a context,
r_i = sum_j Z_ij, and the positions' u and D of `kendall`, it is

    mean = offset + kappa part + sum_p u_p r_{i_p} + sum_{p < q} D_pq Z_{i_p i_q} + content + prior mean

so an item's part depends on its position alone, and a pair's on the order of the two: nothing is shared out by a rule
that could be another one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from topk_bandit.learning.kendall import KendallKernel
    from topk_bandit.learning.posterior import Posterior
    from topk_bandit.learning.rankings import Rankings

__all__ = ["MeanParts", "split_mean"]

FloatArray = NDArray[np.float64]


class MeanParts(NamedTuple):
    """Parts of a slate's posterior mean, in the unit of the rewards; their sum is the mean.

    Attributes
    ----------
    offset
        b: what rewards are centred on.
    context
        What the context does to every slate alike (kappa).
    items
        What each item adds by being shown at its position, shape (k,).
    content
        What its features add, shape (k,): zeros where they count for nothing.
    prior
        What the prior mean adds, shape (k,): zeros without one.
    pairs
        What each pair adds by its order, shape (k, k): zero but above the diagonal.
    """

    offset: float
    context: float
    items: FloatArray
    content: FloatArray
    prior: FloatArray
    pairs: FloatArray

    @property
    def total(self) -> float:
        """The mean."""
        parts = (self.items, self.content, self.prior, self.pairs)
        return self.offset + self.context + sum(float(part.sum()) for part in parts)


def split_mean(posterior: Posterior, context: FloatArray, ranking: NDArray[np.int32]) -> MeanParts:
    """Return the parts of a slate's posterior mean at a context: O(k^2 N).

    Parameters
    ----------
    context
        As the posterior takes it, shape (C,).
    ranking
        Item indices, best first, shape (k,).
    """
    kernel, rows = posterior.kernel, posterior.observations
    weights = posterior.mean_weights[: posterior.n_rows] * (rows.contexts @ context)
    items, pairs = _split_ranking(kernel, rows.rankings, kernel.scale * weights, ranking)
    items = items + posterior.known_item_parts(context, ranking)
    content, prior = np.zeros(len(ranking)), np.zeros(len(ranking))
    if (counted := kernel.counted_content) is not None:
        of_features = weights @ counted.of_slates(rows.rankings)
        content = kernel.item_weight * (counted.of_items(ranking) @ of_features)
    if (believed := posterior.prior_mean) is not None:
        prior = posterior.slope * believed.position_weights * believed.utilities(context, ranking)
    return MeanParts(posterior.offset, posterior.constant_mean(context), items, content, prior, pairs)


def _split_ranking(
    kernel: KendallKernel, rankings: Rankings, weights: FloatArray, ranking: NDArray[np.int32]
) -> tuple[FloatArray, FloatArray]:
    """Return u_p r of the items and D_pq Z of the pairs of a ranking, by `weights` of rows with these rankings."""
    k = kernel.slate_size
    # The position after the last one is that of items that a row does not show.
    shown = rankings[:, :, None] == ranking
    position = np.where(shown.any(axis=1), shown.argmax(axis=1), k)
    u, v = np.append(kernel.item_weight, 0.0)[position], np.append(kernel.divergence, 0.0)[position]
    order = np.zeros((k + 1, k + 1))
    order[:k, :k] = kernel.pair_weight - kernel.pair_weight.T
    of_u = weights @ u
    of_items = weights @ (kernel.n_items * u + v) - kernel.total * weights.sum()
    of_pairs = np.einsum("n,nab->ab", weights, order[position[:, :, None], position[:, None, :]])
    pairs = kernel.pair_weight * (of_pairs + of_u[:, None] - of_u[None, :])
    return kernel.item_weight * of_items, pairs
