"""What can be asked about items, and the queries they are shown for: a design, what to ask next, how much is known.

A list is K items of one query; a study asks about all such lists, or about those that it is given. Row q N + i stands
for item i under query q, with the features vec(query item'); without queries row i is item i. Designs are made in
directions: the coordinates of `spans`, in which what features tell can be learned, and beside them each item's own part
(`designs.own_parts`), unless a design is wanted for features alone.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from topk_bandit.preferences.designs.exact_questions import choose_most_informative, contrasts, ranking_information
from topk_bandit.preferences.designs.given_subsets import connect
from topk_bandit.preferences.designs.optimal import Feedback, d_optimal_subsets, rating_matrices
from topk_bandit.preferences.designs.own_parts import directions_of, questions_worth
from topk_bandit.preferences.designs.spans import (
    Span,
    centre,
    cross_features,
    span_of_differences,
    span_of_values,
)
from topk_bandit.preferences.inference import learn_utilities

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import ArrayLike

    from topk_bandit.preferences.answers import Orderings, Ratings
    from topk_bandit.preferences.designs.optimal import SubsetDesign, Watch
    from topk_bandit.preferences.inference import UtilityPosterior
    from topk_bandit.preferences.utilities import FloatArray, Utilities

__all__ = [
    "MOST_OWN_PARTS",
    "RELATIVE_GAP",
    "GivenLists",
    "QuestionPool",
    "choose_next_lists",
    "count_answers",
    "name_rows",
    "number_rows",
]

IntArray = NDArray[np.int64]

RELATIVE_GAP = 0.01
"""The gap at which a study's design is done, relative to the number of directions that can be learned."""

MOST_OWN_PARTS = 300
"""Designs are for the own parts of so many items: the time that they take grows with more than the square."""

_UNKNOWN = 1e-3
"""What is known of every direction beforehand, as a share of one question's information."""

_TOLD = 1e-8
"""What is left of an item's indicator is rounding below this."""

_LISTS_AT_ONCE = 1000
"""How many lists have their matrices in memory at once: 25 MB with the most directions and the longest lists."""


@dataclass(frozen=True, slots=True, eq=False)
class GivenLists:
    """The lists that a study is given to choose among.

    Attributes
    ----------
    rows
        Of each list, shape (L, K).
    labels
        For each row of the pool, shape (Q N,): those that answers can compare, or rate, have the same.
    feedback
        What people say about a list.
    """

    rows: IntArray
    labels: IntArray
    feedback: Feedback

    @classmethod
    def of(cls, rows: IntArray, n_rows: int, feedback: Feedback) -> GivenLists:
        """Return lists of rows of a pool that has so many."""
        if feedback is Feedback.RANKING:
            return cls(rows, connect(rows, n_rows), feedback)
        labels = np.arange(1, n_rows + 1)
        labels[rows] = 0
        return cls(rows, labels, feedback)

    def compare(self, values: FloatArray) -> FloatArray:
        """Return rows that span what answers can tell of values of all rows, shape (Q N, d)."""
        return values[self.labels == 0] if self.feedback is Feedback.RATING else centre(values, self.labels)


@dataclass(frozen=True, eq=False)
class QuestionPool:
    """The items and queries of a study, in the coordinates that its design is made in.

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
    features_alone
        Whether designs are for what features tell alone, so that many items may never be asked about.
    given
        The lists to choose among. None: all lists.
    """

    span: Span
    groups: IntArray
    n_items: int
    n_queries: int
    feedback: Feedback
    features_alone: bool = False
    given: GivenLists | None = None

    @classmethod
    def of(
        cls,
        items: FloatArray,
        queries: FloatArray | None,
        *,
        feedback: Feedback,
        features_alone: bool = False,
        given: IntArray | None = None,
    ) -> QuestionPool:
        """Return the pool of items with features (N, d_i), queries with features (Q, d_q) and given lists (L, K).

        Raises
        ------
        InvalidArgumentError
            Naming ``features``: they are not finite, or all items that can be compared are alike.
        """
        n_queries = 1 if queries is None else len(queries)
        rows = items if queries is None else cross_features(queries, items)
        groups = np.repeat(np.arange(n_queries), len(items))
        lists = None if given is None else GivenLists.of(given, len(rows), feedback)
        compared = None if lists is None else lists.labels
        if feedback is Feedback.RATING:
            span = span_of_values(rows, compared=compared)
        else:
            span = span_of_differences(rows, groups=groups, compared=compared)
        return cls(span, groups, len(items), n_queries, feedback, features_alone, lists)

    def design(
        self,
        *,
        list_size: int,
        budget: int,
        rng: np.random.Generator,
        relative_gap: float = RELATIVE_GAP,
        watch: Watch | None = None,
    ) -> SubsetDesign:
        """Return the design of a budget of questions over the lists of a size; see `d_optimal_subsets`.

        With own parts it depends on the budget, and log det is that of what is believed before joined with a question's
        information.
        """
        prior = np.eye(self.rank) / (budget * self.information_share(list_size)) if self.asks_for_own_parts else None
        return d_optimal_subsets(
            self.directions,
            subset_size=list_size,
            gap_tolerance=self.target_gap(list_size, budget, relative_gap),
            rng=rng,
            feedback=self.feedback,
            groups=self.given.labels if self.given else self.groups,
            given=self.given.rows if self.given else None,
            prior=prior,
            watch=watch,
        )

    def target_gap(self, list_size: int, budget: int, relative_gap: float = RELATIVE_GAP) -> float:
        """Return the gap that a design aims at: a part of the directions that the budget can find out."""
        known = budget * (list_size if self.feedback is Feedback.RATING else list_size - 1)
        return relative_gap * (min(self.rank, known) if self.asks_for_own_parts else self.rank)

    @property
    def asks_for_own_parts(self) -> bool:
        """Whether designs are for items' own parts, too."""
        return not self.features_alone and self.n_items <= MOST_OWN_PARTS and self.has_own_parts

    @cached_property
    def directions(self) -> FloatArray:
        """What designs tell rows apart by, shape (Q N, d)."""
        rows = self.span.coordinates
        if not self.asks_for_own_parts:
            return rows
        return directions_of(rows, self.items, compare=self.given.compare if self.given else np.asarray)

    @property
    def rank(self) -> int:
        """How many directions there are, d."""
        return int(self.directions.shape[1])

    def information_share(self, list_size: int) -> float:
        """Return c: an answer about a list is expected to have the information c A_i A_i'."""
        return 1.0 if self.feedback is Feedback.RATING else ranking_information(list_size)

    def information(self, lists: IntArray, weights: ArrayLike) -> FloatArray:
        """Return sum_i w_i A_i A_i' of lists of rows (L, K), shape (d, d)."""
        matrices = self.matrices(lists)
        weighed = np.asarray(weights, dtype=np.float64)[:, None, None] * matrices
        return np.asarray(np.tensordot(weighed, matrices, axes=([0, 2], [0, 2])), dtype=np.float64)

    def matrices(self, lists: IntArray) -> FloatArray:
        """Return A_i of lists of rows (L, K), shape (L, d, M), with the A_i A_i' of `design` and M at most K."""
        rows = self.directions[lists]
        return rating_matrices(rows) if self.feedback is Feedback.RATING else contrasts(rows)

    def measure_efficiency(self, answered: FloatArray, design: FloatArray, *, budget: int, list_size: int) -> float:
        """Return the share of the information of a budget of questions that was gathered, from 0 to 1.

        It is the D-efficiency (det(V_answered) / det(budget V_design))^(1/r), with a thousandth of a question's
        information added to both; answers to n questions as the design has them gather about n / budget. With own parts
        it is the share of the budget that would tell as much of all utilities (`questions_worth`).

        Parameters
        ----------
        answered
            Information of all that was answered.
        design
            Information of one question drawn from the design.
        """
        if self.asks_for_own_parts:
            share = self.information_share(list_size)
            return min(questions_worth(share * answered, share * design) / budget, 1.0)
        before = _UNKNOWN * design
        have, want = np.linalg.slogdet(answered + before)[1], np.linalg.slogdet(budget * design + before)[1]
        nothing = np.linalg.slogdet(before)[1]
        share = np.expm1((have - nothing) / self.rank) / np.expm1((want - nothing) / self.rank)
        return float(np.clip(share, 0.0, 1.0))

    @property
    def items(self) -> IntArray:
        """Item of each row, shape (Q N,)."""
        return np.tile(np.arange(self.n_items), self.n_queries)

    @cached_property
    def has_own_parts(self) -> bool:
        """Whether items may have parts that coordinates do not tell: not where these tell each item from all others."""
        rows = self.span.coordinates
        if rows.shape[1] < self.n_items - 1:
            return True
        indicators = np.eye(self.n_items)[self.items] - 1.0 / self.n_items
        explained = rows @ np.linalg.lstsq(rows, indicators)[0]
        return bool(np.abs(indicators - explained).max() > _TOLD)

    def learn(self, answers: Orderings | Ratings) -> UtilityPosterior:
        """Return what answers about lists of rows tell of utilities; errors as those of `learn_utilities`."""
        return learn_utilities(self.span.coordinates, answers, items=self.items, own_parts=self.has_own_parts)

    def predict_utilities(self, learned: UtilityPosterior) -> tuple[Utilities, ...]:
        """Return the utilities of all items for each query."""
        rows = self.span.coordinates.reshape(self.n_queries, self.n_items, -1)
        return tuple(learned.utilities(of_query) for of_query in rows)


def number_rows(lists: IntArray, n_items: int) -> IntArray:
    """Return the rows q N + i of lists that have their query and then their items, shape (L, 1 + K); shape (L, K)."""
    return np.asarray(lists[:, :1] * n_items + lists[:, 1:])


def name_rows(rows: IntArray, n_items: int) -> list[tuple[int, list[int]]]:
    """Return the query and the items of lists of rows, shape (L, K): the other way round."""
    return [(int(one[0]) // n_items, (one % n_items).tolist()) for one in rows]


def count_answers(
    pool: QuestionPool, design: SubsetDesign, lists: Iterable[Sequence[int]]
) -> tuple[IntArray, FloatArray]:
    """Return how many of some lists of rows are each of the design's lists, and the information of all others.

    Parameters
    ----------
    lists
        Rows of the pool, in any order; lists need not be of one length.

    Returns
    -------
    Counts, shape (S,), and information, shape (d, d): what `choose_next_lists` takes as `asked` and `besides`.
    """
    number_of = {tuple(sorted(one)): number for number, one in enumerate(design.subsets.tolist())}
    counts = np.zeros(len(design.weights), dtype=np.int64)
    besides = np.zeros((pool.rank,) * 2)
    others: defaultdict[int, list[tuple[tuple[int, ...], int]]] = defaultdict(list)
    for rows, count in Counter(tuple(sorted(one)) for one in lists).items():
        if rows in number_of:
            counts[number_of[rows]] += count
        else:
            others[len(rows)].append((rows, count))
    for same_length in others.values():
        for start in range(0, len(same_length), _LISTS_AT_ONCE):
            part = same_length[start : start + _LISTS_AT_ONCE]
            besides += pool.information(np.array([rows for rows, _ in part]), [count for _, count in part])
    return counts, besides


def choose_next_lists(
    pool: QuestionPool, design: SubsetDesign, *, asked: IntArray, count: int, besides: FloatArray | None = None
) -> IntArray:
    """Return which of the design's lists to ask about next; a list may be asked about more than once.

    A design says in what shares to ask when there are many questions, and the first few can't follow shares. So before
    as many questions as the design has lists, each is the one after which differences of utilities are known best
    (`exact_questions`), with utilities of spread 1 believed before. After that each is about the list that is furthest
    behind its share.

    Parameters
    ----------
    asked
        How often each of the design's lists was asked about, shape (S,).
    count
        How many lists, at least 0.
    besides
        Information of whatever else was asked, shape (d, d).

    Returns
    -------
    Indices of ``design.subsets``, shape (count,), in the order in which to ask.
    """
    few = int(np.clip(len(asked) - asked.sum(), 0, count))
    gathered = pool.information(design.subsets, asked)
    if besides is not None:
        gathered = gathered + besides
    chosen = _choose_most_informative(pool, design, gathered=gathered, count=few)
    counts = asked + np.bincount(chosen, minlength=len(asked))
    behind = np.empty(count - few, dtype=np.int64)
    for number in range(count - few):
        behind[number] = best = int(np.argmax((counts.sum() + 1) * design.weights - counts))
        counts[best] += 1
    return np.concatenate([chosen, behind])


def _choose_most_informative(pool: QuestionPool, design: SubsetDesign, *, gathered: FloatArray, count: int) -> IntArray:
    share = pool.information_share(design.subsets.shape[1])
    rows = pool.directions.reshape(pool.n_queries, pool.n_items, -1)
    within = (rows - rows.mean(axis=1, keepdims=True)).reshape(-1, pool.rank)
    covariance = np.linalg.inv(np.eye(pool.rank) + share * gathered)
    return choose_most_informative(
        np.sqrt(share) * pool.matrices(design.subsets),
        scatter=within.T @ within / len(within),
        covariance=np.asarray(covariance, dtype=np.float64),
        count=count,
    )
