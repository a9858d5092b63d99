"""The posterior at one context: the moments of any slate, and of all its neighbours at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from topk_bandit.learning.compiled import contraction
from topk_bandit.learning.compiled.contraction import Contraction

if TYPE_CHECKING:
    from topk_bandit.learning.item_parts import KnownAtContext
    from topk_bandit.learning.kendall import KendallKernel
    from topk_bandit.learning.rankings import Rankings

__all__ = ["ContextPosterior", "Moments", "contract_to_context"]

FloatArray = NDArray[np.float64]


class Moments(NamedTuple):
    """Posterior mean and variance of the expected reward, without the noise: two arrays of one shape."""

    mean: FloatArray
    variance: FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class ContextPosterior:
    """The posterior at one context, over the rankings of some items; rankings hold positions in `items`.

    Variances are computed from float32 numbers: they are right to about a millionth of the prior variance. Features are
    made when they are first needed, so a at_context is for one thread.

    Attributes
    ----------
    items
        Item indices in ascending order, shape (E,).
    kernel
        Kernel of the rankings.
    contraction
        The posterior's arrays at this context, for an offset of zero and an amplitude of one.
    places
        The rankings of all rows as positions in `items`, -1 for others, shape (N + P, k).
    n_rows
        N.
    of_content
        M diag(C c) times the content's features of all rows, turned: shape (q, N + P); no rows where it does not count.
    offset
        As of the posterior.
    amplitude, prior
        Their product is the variance of every slate before any observation, without what content adds.
    """

    items: NDArray[np.int32]
    kernel: KendallKernel
    contraction: Contraction
    places: NDArray[np.int32]
    n_rows: int
    of_content: NDArray[np.float32]
    offset: float
    amplitude: float
    prior: float

    @property
    def slate_size(self) -> int:
        """K."""
        return self.kernel.slate_size

    @property
    def position_weights(self) -> tuple[FloatArray, FloatArray, FloatArray, float]:
        """u, D, v and s of the kernel."""
        kernel = self.kernel
        return kernel.item_weight, kernel.pair_weight, kernel.divergence, kernel.total

    def means(self, rankings: Rankings) -> FloatArray:
        """Return the posterior means of `rankings` (A, k), shape (A,): O(k^2) each."""
        at = self.contraction
        above = contraction.means(at.weights, at.pair_weights, rankings, *self.position_weights)
        return np.asarray(self.offset + above, dtype=np.float64)

    def moments(self, rankings: Rankings) -> Moments:
        """Return the moments of `rankings` (A, k), both (A,): O(k^2 N) each."""
        explained = self.explain(rankings.astype(np.int64), self.contraction.features.shape[1])
        return Moments(self.means(rankings), self._variances(explained))

    def explain(self, rankings: NDArray[np.int64], n_columns: int) -> FloatArray:
        """Return what the first rows, and what content is, change of the variances of `rankings` (A, k), shape (A,)."""
        at = self.contraction
        made = (at.features, at.pairs, at.made, at.starts, at.rows, at.values, at.whitener, at.pending)
        contraction.make_own_pairs(*made, rankings)
        return contraction.slates(  # type: ignore[no-any-return]
            *(at.features, at.content, at.taken, at.of_v, at.pairs, rankings, n_columns), *self.position_weights
        )

    def coordinates(self, first_row: int = 0) -> tuple[FloatArray, FloatArray]:
        """Return what x of a ranking is multiplied with, for those who keep many rankings' x as one sparse matrix.

        The coordinates are u and v of each item, s, and D of each pair of items i < j: 2E + 1 + E (E - 1) / 2 of them.

        Parameters
        ----------
        first_row
            The first row of the posterior that is asked about.

        Returns
        -------
        Weights, whose product with x is the mean at an offset of zero, shape (F,), and M diag(C c) X B of the rows from
        `first_row` on, shape (F, N + P - first_row), whose products with x, squared and added up over all rows, are
        what is taken off `prior`: the variance is `amplitude` times what is left, and where content counts the square
        of the sum of u times the rows of `contraction.content` is added before. A row's numbers do not depend on later
        rows.
        """
        at, n_eligible = self.contraction, len(self.items)
        every, above = np.arange(n_eligible), np.triu_indices(n_eligible, 1)
        self._make_pairs(every, every)
        of_pairs, n_first = at.pairs[above], 2 * n_eligible + 1
        features = np.zeros((n_first + len(of_pairs), at.features.shape[1] - first_row))
        features[:n_first] = at.features[:n_first, first_row:]
        shown = np.flatnonzero(of_pairs >= 0)
        features[n_first + shown] = at.features[of_pairs[shown], first_row:]
        return np.concatenate([at.weights, at.pair_weights[above]]), features

    def replacements(self, rankings: Rankings, position: int) -> Moments:
        """Return the moments of `rankings` (A, k) with each item in turn at `position`, both (A, E).

        A ranking in which the item is shown already, at whatever position, stands for itself.
        """
        at = self.contraction
        self._make_pairs(rankings.reshape(-1), np.arange(len(self.items)))
        above, explained = contraction.neighbourhoods(
            *(at.features, at.content, at.taken, at.of_v, at.weights, at.pair_weights, at.pairs, rankings, position),
            *self.position_weights,
        )
        return Moments(self.offset + above, self._variances(explained))

    def replaced_means(self, rankings: Rankings, position: int) -> FloatArray:
        """Return the means of `rankings` (A, k) with each item in turn at `position`, shape (A, E): O(k) each.

        They are of no use for items that a ranking shows.
        """
        at = self.contraction
        above = contraction.mean_neighbourhoods(at.weights, at.pair_weights, rankings, position, *self.position_weights)
        return np.asarray(self.offset + above, dtype=np.float64)

    def _make_pairs(self, left: NDArray[np.integer], right: NDArray[np.integer]) -> None:
        at = self.contraction
        contraction.make_pairs(
            at.features,
            at.pairs,
            at.made,
            at.starts,
            at.rows,
            at.values,
            at.whitener,
            at.pending,
            left.astype(np.int64),
            right.astype(np.int64),
        )

    def _variances(self, explained: FloatArray) -> FloatArray:
        # Rounding can push an almost certain slate a hair below zero.
        return np.asarray(self.amplitude * np.maximum(self.prior - explained, 0.0), dtype=np.float64)


def contract_to_context(
    kernel: KendallKernel,
    items: NDArray[np.int32],
    *,
    whitener: FloatArray,
    pending: FloatArray,
    rankings: Rankings,
    content_of_rows: FloatArray,
    similarities: FloatArray,
    weights: FloatArray,
    item_values: FloatArray | None,
    known: KnownAtContext | None,
    offset: float,
    amplitude: float,
    prior: float,
) -> ContextPosterior:
    """Return the at_context of a posterior's arrays.

    Parameters
    ----------
    kernel, items
        As in `ContextPosterior`.
    whitener, pending
        M' of the rewarded rows, and of the pending ones, shape (N + P, P).
    rankings, similarities
        Of all rows, rewarded and then pending: shapes (N + P, k) and (N + P,). A row's similarity is the dot product of
        its context with the one asked about, at unit length.
    content_of_rows
        phi of all rows, shape (N + P, q).
    weights
        alpha of the rewarded rows, times the context's length, shape (N,).
    item_values
        What is expected of each item for each unit of n u + v before the rows, shape (E,).
    known
        What is known of single items beside the rows, at unit length.
    offset, amplitude, prior
        As in `ContextPosterior`.
    """
    place = np.full(kernel.n_items, -1, dtype=np.int32)
    place[items] = np.arange(len(items), dtype=np.int32)
    entries, taken = (_NOT_ANY, np.zeros(0)) if known is None else known
    position_weights = kernel.item_weight, kernel.pair_weight, kernel.divergence, kernel.total
    places, features, of_items, pair_weights, pairs, starts, rows, values = contraction.contract(
        *(rankings, kernel.scale * similarities, entries, weights, whitener, pending, place, len(items)),
        float(kernel.n_items),
        *position_weights,
    )
    own, of_content = np.zeros((len(items), 0), np.float32), np.zeros((0, len(rankings)), np.float32)
    if (content := kernel.counted_content) is not None:
        of_rows, of_own = content_of_rows * similarities[:, None], content.of_items(items)
        own, of_content = of_own.astype(np.float32), _whiten(of_rows, whitener, pending)
        features[: len(items)] += own @ of_content
        of_items[: len(items)] += of_own @ (weights @ of_rows[: len(weights)])
    if item_values is not None:
        of_items[: 2 * len(items)] += np.multiply.outer([kernel.n_items, 1.0], item_values).reshape(-1)
    pairs_made = pairs, np.zeros(len(starts) - 1, dtype=np.bool_)
    known_of_items = taken.astype(np.float32), np.float32(1.0 / kernel.n_items)
    at = Contraction(
        *(features, of_items, pair_weights, *pairs_made, starts, rows, values, whitener, pending, own, *known_of_items)
    )
    return ContextPosterior(items, kernel, at, places, len(weights), of_content, offset, amplitude, prior)


_NOT_ANY = np.zeros((0, 0))

_BLOCK = 128
"""Columns of M' at a time: what is below its diagonal is zero, and need not be read."""


def _whiten(of_rows: FloatArray, whitener: FloatArray, pending: FloatArray) -> NDArray[np.float32]:
    """Return M times `of_rows` (N + P, q), turned: shape (q, N + P)."""
    n, turned = len(of_rows) - pending.shape[1], of_rows.T.astype(np.float32)
    out = np.empty(turned.shape, dtype=np.float32)
    for first in range(0, n, _BLOCK):
        last = min(first + _BLOCK, n)
        out[:, first:last] = turned[:, :last] @ whitener[:last, first:last].astype(np.float32)
    out[:, n:] = turned @ pending.astype(np.float32)
    return out
