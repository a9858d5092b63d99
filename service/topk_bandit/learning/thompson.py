"""Draws from the posterior at one context, as functions that can be maximised: Thompson sampling by Matheron's rule.

A draw from the prior needs no slates: g(c, pi) = sum_a c_a sum_{i < j} F_ij(pi) Z_a,ij, with standard normal Z_a,ij for
every context coordinate and pair of items, and the pair features F of Claim 3. With the antisymmetric matrix
Z = sum_a c_a Z_a, and the u and D of `kendall`, that is a function of the slate's items and of its pairs::

    g(c, pi) = sum_p u_p r_{pi_p} + sum_{p < q} D_pq Z_{pi_p pi_q}        r_i = sum_j Z_ij

(times the root of the kernel's scale), the constant adds sqrt(kappa) c.z to all slates, and content c.(Z phi_pi), with
standard normal z and Z and the features phi of `content`: a sum over the items as well. Matheron's rule makes a draw
from the posterior of it: with A = K + sigma^2 V of the rows and noise e ~ N(0, sigma^2 V),

    f = mean + g - k_x . A^-1 (g_rows + e)

Pending rows are rows here whose rewards are their means: they add nothing to the mean, and narrow what is drawn. The
sum over rows is a function of the same form, so the draw is one: O(C n^2 + N^2), whatever the slates.

A posterior that keeps parts of items beside its rows (`item_parts`) is not drawn from: no served decision does.

Source: Wilson et al., *Efficiently Sampling Functions from Gaussian Process Posteriors*, ICML 2020, Eq. 12.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.learning.rankings import validated_items
from topk_bandit.learning.slate_functions import SlateFunction

if TYPE_CHECKING:
    from topk_bandit.learning.kendall import KendallKernel
    from topk_bandit.learning.posterior import Posterior
    from topk_bandit.learning.rankings import Rankings

__all__ = ["Normals", "draw_from", "draw_function"]

FloatArray = NDArray[np.float64]


class Normals(NamedTuple):
    """What a draw is a linear function of: independent standard normal numbers.

    Attributes
    ----------
    prior
        For each context coordinate and pair of items i < j, shape (C, n (n - 1) / 2).
    constant
        For each context coordinate, shape (C,).
    content
        For each context coordinate and number of the items' features, shape (C, q); none where content does not count.
    noise
        For the rows, rewarded and then pending, shape (N + P,).
    """

    prior: FloatArray
    constant: FloatArray
    content: FloatArray
    noise: FloatArray

    @classmethod
    def of(cls, posterior: Posterior, rng: np.random.Generator) -> Normals:
        """Draw them for a posterior."""
        n_items, content = posterior.kernel.n_items, posterior.kernel.counted_content
        prior = rng.standard_normal((posterior.context_dim, n_items * (n_items - 1) // 2))
        constant = rng.standard_normal(posterior.context_dim)
        of_content = rng.standard_normal((posterior.context_dim, 0 if content is None else content.features.shape[1]))
        return cls(prior, constant, of_content, rng.standard_normal(posterior.n_rows + posterior.n_pending))


def draw_function(
    posterior: Posterior, context: FloatArray, items: NDArray[np.integer], rng: np.random.Generator
) -> SlateFunction:
    """Draw the expected reward of the slates of some items in one context from the posterior.

    Parameters
    ----------
    posterior
        Of n items.
    context
        Shape (C,).
    items
        Distinct item indices in ascending order, shape (E,); the function's rankings hold places among them.
    rng
        Source of the randomness; it draws as many numbers whatever context and items are.
    """
    return draw_from(posterior, context, items, Normals.of(posterior, rng))


def draw_from(posterior: Posterior, context: FloatArray, items: NDArray[np.integer], normals: Normals) -> SlateFunction:
    """Return the draw that these normal numbers make: an affine function of them."""
    if not posterior.kernel.centred:
        raise InvalidArgumentError("posterior", "there are no draws beside parts of items")
    chosen = validated_items(items, n_items=posterior.kernel.n_items)
    rows, deviation = posterior.all_rows, math.sqrt(posterior.amplitude)
    prior = deviation * math.sqrt(posterior.kernel.scale) * _antisymmetric(normals.prior, posterior.kernel.n_items)
    of_all = deviation * math.sqrt(posterior.kernel.constant) * normals.constant
    noise = deviation * posterior.colour(normals.noise)
    at_rows = _at_rows(posterior, prior) + rows.contexts @ of_all
    content, of_content = posterior.kernel.counted_content, deviation * normals.content
    if content is not None:
        at_rows += ((rows.contexts @ of_content) * content.of_slates(rows.rankings)).sum(axis=1)
    weights = posterior.mean_weights - posterior.solve(at_rows + noise)
    weights *= rows.contexts @ context
    singles, pairs, constant = _sum_of_rows(posterior.kernel, rows.rankings, weights)
    of_context = np.tensordot(context, prior, 1)
    singles += np.outer(posterior.kernel.item_weight, of_context.sum(axis=1))
    if content is not None:
        every = np.arange(posterior.kernel.n_items)
        of_features = context @ of_content + weights @ content.of_slates(rows.rankings)
        singles += np.outer(posterior.kernel.item_weight, content.of_items(every) @ of_features)
    if posterior.prior_mean is not None:
        of_items = posterior.prior_mean.utilities(context, np.arange(posterior.kernel.n_items))
        singles += posterior.slope * np.outer(posterior.prior_mean.position_weights, of_items)
    constant += float(of_all @ context) + posterior.kernel.constant * float(weights.sum())
    pair_weight, offset = posterior.kernel.pair_weight, posterior.offset + constant
    return SlateFunction(singles, pair_weight, pairs + of_context, offset).among(chosen)


def _antisymmetric(above: FloatArray, n_items: int) -> FloatArray:
    """Return antisymmetric matrices (C, n, n) with these numbers (C, n (n - 1) / 2) above the diagonal."""
    matrices = np.zeros((len(above), n_items, n_items))
    first, second = np.triu_indices(n_items, 1)
    matrices[:, first, second] = above
    matrices[:, second, first] = -above
    return matrices


def _at_rows(posterior: Posterior, prior: FloatArray) -> FloatArray:
    """Return the prior's draw at all rows, shape (N + P,), from its pair weights (C, n, n)."""
    kernel, (contexts, rankings) = posterior.kernel, posterior.all_rows
    first, second = np.triu_indices(kernel.slate_size, 1)
    of_slates = prior.sum(axis=2)[:, rankings] @ kernel.item_weight
    of_slates += prior[:, rankings[:, first], rankings[:, second]] @ kernel.pair_weight[first, second]
    return np.asarray((contexts * of_slates.T).sum(axis=1), dtype=np.float64)


def _sum_of_rows(
    kernel: KendallKernel, rankings: Rankings, weights: FloatArray
) -> tuple[FloatArray, FloatArray, float]:
    """Return sum_r w_r k(pi_r, .) as scores of items by position (k, n) and of pairs (n, n), and a constant."""
    n, scaled = kernel.n_items, kernel.scale * weights
    with_u = _per_item(rankings, scaled, n * kernel.item_weight + kernel.divergence, n)
    with_v = _per_item(rankings, scaled, kernel.item_weight, n)
    first, second = np.triu_indices(kernel.slate_size, 1)
    indices = rankings[:, first].astype(np.intp) * n + rankings[:, second]
    values = np.outer(scaled, kernel.pair_weight[first, second])
    pairs = np.bincount(indices.reshape(-1), weights=values.reshape(-1), minlength=n * n).reshape(n, n)
    singles = np.outer(kernel.item_weight, with_u) + np.outer(kernel.divergence, with_v)
    return singles, np.asarray(pairs - pairs.T, dtype=np.float64), -(kernel.total**2) * float(scaled.sum())


def _per_item(rankings: Rankings, weights: FloatArray, of_positions: FloatArray, n_items: int) -> FloatArray:
    values = np.outer(weights, of_positions)
    total = np.bincount(rankings.reshape(-1), weights=values.reshape(-1), minlength=n_items)
    return np.asarray(total, dtype=np.float64)
