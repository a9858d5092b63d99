"""From a catalogue of items, and queries they are seen for, to questions: what to ask next, and how much is known.

A list is K items of one query. Row q N + i stands for item i under query q, with the features vec(query item'); without
queries row i is item i. Designs are made in the coordinates of `spans`, where every list that can be asked about tells
something of every direction that can be learned at all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from topk_bandit.preferences.design import Feedback, d_optimal_subsets, rating_matrices
from topk_bandit.preferences.spans import Span, crossed, span_of_differences, span_of_values

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from topk_bandit.preferences.design import SubsetDesign, Watch
    from topk_bandit.preferences.inference import Learned
    from topk_bandit.preferences.utilities import FloatArray, Utilities

__all__ = ["Catalogue", "next_lists"]

IntArray = NDArray[np.int64]

_UNKNOWN = 1e-3
"""What is known of every direction beforehand, as a share of one question's information."""


@dataclass(frozen=True, slots=True, eq=False)
class Catalogue:
    """What a study asks about.

    Attributes
    ----------
    span
        Coordinates of the rows, shape (Q N, r).
    groups
        Query of each row, shape (Q N,).
    n_items, n_queries
        N, and Q: 1 without queries.
    feedback
        What people say about a list.
    """

    span: Span
    groups: IntArray
    n_items: int
    n_queries: int
    feedback: Feedback

    @classmethod
    def of(cls, items: FloatArray, queries: FloatArray | None, *, feedback: Feedback) -> Catalogue:
        """Return the catalogue of items with features (N, d_i) and of queries with features (Q, d_q).

        Raises
        ------
        InvalidArgumentError
            Naming ``features``: they are not finite, or all items that can be compared are alike.
        """
        n_queries = 1 if queries is None else len(queries)
        rows = items if queries is None else crossed(queries, items)
        groups = np.repeat(np.arange(n_queries), len(items))
        span = span_of_values(rows) if feedback is Feedback.RATING else span_of_differences(rows, groups=groups)
        return cls(span, groups, len(items), n_queries, feedback)

    def designed(
        self, *, list_size: int, relative_gap: float, rng: np.random.Generator, watch: Watch | None = None
    ) -> SubsetDesign:
        """Return the design over all lists of a size, to a gap of `relative_gap` times r; see `d_optimal_subsets`."""
        return d_optimal_subsets(
            self.span.coordinates,
            subset_size=list_size,
            gap_tolerance=relative_gap * self.span.rank,
            rng=rng,
            feedback=self.feedback,
            groups=self.groups,
            watch=watch,
        )

    def information(self, lists: IntArray, weights: ArrayLike) -> FloatArray:
        """Return sum_i w_i A_i A_i' of lists of rows (L, K), shape (r, r)."""
        matrices = self.matrices(lists)
        weighed = np.asarray(weights, dtype=np.float64)[:, None, None] * matrices
        return np.asarray(np.tensordot(weighed, matrices, axes=([0, 2], [0, 2])), dtype=np.float64)

    def matrices(self, lists: IntArray) -> FloatArray:
        """Return A_i of lists of rows (L, K), shape (L, r, M), with the A_i A_i' of `design` and M at most K."""
        rows = self.span.coordinates[lists]
        if self.feedback is Feedback.RATING:
            return rating_matrices(rows)
        centred = rows - rows.mean(axis=1, keepdims=True)
        # The scatter about the mean, times K, is what the differences of all pairs add up to.
        return np.asarray(np.sqrt(lists.shape[1]) * rating_matrices(centred), dtype=np.float64)

    def gathered(self, answered: FloatArray, design: FloatArray, *, budget: int) -> float:
        """Return how much of the information of a budget of questions was gathered, from 0 to 1.

        It is the D-efficiency (det(V_answered) / det(budget V_design))^(1/r), with a thousandth of a question's
        information added to both; answers to n questions as the design has them gather about n / budget.

        Parameters
        ----------
        answered
            Information of all that was answered.
        design
            Information of one question drawn from the design.
        """
        before = _UNKNOWN * design
        have, want = np.linalg.slogdet(answered + before)[1], np.linalg.slogdet(budget * design + before)[1]
        nothing = np.linalg.slogdet(before)[1]
        share = np.expm1((have - nothing) / self.span.rank) / np.expm1((want - nothing) / self.span.rank)
        return float(np.clip(share, 0.0, 1.0))

    def utilities(self, learned: Learned) -> tuple[Utilities, ...]:
        """Return the utilities of all items for each query."""
        rows = self.span.coordinates.reshape(self.n_queries, self.n_items, -1)
        return tuple(learned.utilities(of_query) for of_query in rows)


def next_lists(catalogue: Catalogue, design: SubsetDesign, *, gathered: FloatArray, count: int) -> IntArray:
    """Return which of the design's lists to ask about next: each time the one that adds most to log det V.

    A design says in what shares to ask when there are many questions; the first few cannot follow shares, and what was
    asked before may not have. Adding to what is there serves both, and after many questions the shares are the
    design's again (Wynn 1970). A list may be asked about more than once.

    Parameters
    ----------
    gathered
        Information of all that was asked, shape (r, r).
    count
        How many lists, at least 0.

    Returns
    -------
    Indices of ``design.subsets``, shape (count,), in the order in which to ask.
    """
    lists = catalogue.matrices(design.subsets)
    known = gathered + _UNKNOWN * catalogue.information(design.subsets, design.weights)
    inverse = np.linalg.inv(np.linalg.cholesky(known))
    # V^-1/2 A_i for each list, kept up to date by steps of rank M: with S S' added to the identity that V is in these
    # coordinates, (I + S S')^-1/2 = I + S Q diag(((1 + l)^-1/2 - 1) / l) Q' S', where S'S = Q diag(l) Q'.
    white = np.ascontiguousarray((inverse @ lists).transpose(0, 2, 1))
    chosen = np.empty(count, dtype=np.int64)
    for number in range(count):
        inner = white @ white.transpose(0, 2, 1)
        gains = np.linalg.slogdet(np.eye(inner.shape[1]) + inner)[1]
        chosen[number] = best = int(np.argmax(gains))
        values, vectors = np.linalg.eigh(inner[best])
        roots = np.sqrt(1.0 + np.maximum(values, 0.0))
        shrinking = (vectors / -(roots * (roots + 1.0))) @ vectors.T
        white += (white @ white[best].T) @ (shrinking @ white[best])
    return chosen
