"""Answers as tiers: groups of items, best first, whose members the answer does not order among themselves.

A full ranking has one item in each tier, a choice the chosen item and then all others, a pair two tiers of one. The top
m of a list are m tiers of one and a last one of all others; the best and the worst of a list have all others between
them; a tie is a tier of several. An answer of one tier orders nothing.

A tie says that an order is not known, so the likelihood of an answer is the sum of Plackett-Luce over all orders that
fit. It is a product over tiers but the last: with w = exp(utility), all of tier T come before what is below it with the
probability Q(T), where

    Q(S) = sum over i of S: w_i / (w(S) + w(below)) Q(S - i),      Q of nothing = 1.

Models that take whole orders learn from `IMPUTED` data sets, in which each tie is in an order drawn given the answer
and utilities, which are drawn from what the data set before teaches. What they learn is combined as Rubin says: means
are averaged, and the variance is the mean variance and 1 + 1 / `IMPUTED` times that between data sets.

Sources: Allison and Christakis, Logit Models for Sets of Ranked Items (1994), the likelihood with ties; Tanner and
Wong, The Calculation of Posterior Distributions by Data Augmentation (1987); Rubin, Multiple Imputation (1987).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import chain, combinations, product
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar

from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.preferences.answers import Orderings
from topk_bandit.preferences.compiled.tiers import draw_orders, score_tiers

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["MOST_TIED", "TieredAnswers", "Tiers"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

Tiers: TypeAlias = "Sequence[Sequence[int]]"
"""The items of one answer, tier by tier, best first."""

MOST_TIED = 12
"""So many items may share a tier above others: each subset of them has a probability of its own."""


class _Flat(NamedTuple):
    """Items of all answers, (E,); where each tier begins, (T + 1,); the first tier of each answer, (A + 1,)."""

    items: IntArray
    tiers: IntArray
    answers: IntArray


_LARGEST_LOG_UNIT = 5.0
_FARTHEST = 600.0
"""Items that are worse than the best one by more are as improbable as if it were so much."""


@dataclass(frozen=True, eq=False)
class TieredAnswers:
    """What people said of lists of items.

    Attributes
    ----------
    answers
        Tiers of each answer, A answers.
    n_items
        Items are in [0, n_items).
    respondents
        The number of the one that gave each answer, from 0 on, shape (A,); -1 for one that is not named. None: nobody
        is.
    """

    answers: Sequence[Tiers]
    n_items: int
    respondents: IntArray | None = None

    @classmethod
    def of(cls, answers: Sequence[Tiers], *, n_items: int, respondents: IntArray | None = None) -> TieredAnswers:
        """Return answers, each of which names at least one item, none twice, and has no empty tier.

        Raises
        ------
        InvalidArgumentError
            Naming ``answers[l]``; also where more than `MOST_TIED` items are tied above others.
        """
        for number, tiers in enumerate(answers):
            items = list(chain.from_iterable(tiers))
            if not items or not all(map(len, tiers)):
                raise InvalidArgumentError(f"answers[{number}]", "expected tiers of at least one item each")
            if len(set(items)) < len(items):
                raise InvalidArgumentError(f"answers[{number}]", "names an item a second time")
            if not all(0 <= item < n_items for item in items):
                raise InvalidArgumentError(f"answers[{number}]", f"expected items in [0, {n_items})")
            if max(map(len, tiers[:-1]), default=0) > MOST_TIED:
                raise InvalidArgumentError(f"answers[{number}]", f"has more than {MOST_TIED} items tied above others")
        return cls(answers, n_items, respondents)

    def __len__(self) -> int:
        return len(self.answers)

    def take(self, numbers: Sequence[int] | IntArray) -> TieredAnswers:
        """Return some of the answers, in this order."""
        respondents = None if self.respondents is None else self.respondents[numbers]
        return TieredAnswers([self.answers[number] for number in numbers], self.n_items, respondents)

    @property
    def has_ties(self) -> bool:
        """Whether a tier above others has several items."""
        return any(len(tier) > 1 for tiers in self.answers for tier in tiers[:-1])

    def score(self, utilities: FloatArray) -> FloatArray:
        """Return the log-probability of each answer under utilities of the items, shape (A,), in nats."""
        return np.asarray(score_tiers(_bound(utilities), *self._flat, MOST_TIED))

    def find_unit(self, utilities: FloatArray) -> float:
        """Return what utilities have to be multiplied by so that the answers are most probable."""

        def surprise(log_unit: float) -> float:
            return -float(self.score(np.exp(log_unit) * utilities).sum())

        bounds = (-_LARGEST_LOG_UNIT, _LARGEST_LOG_UNIT)
        return float(np.exp(minimize_scalar(surprise, bounds=bounds, method="bounded").x))

    def weigh(self, utilities: FloatArray) -> FloatArray:
        """Return by how many nats each answer is more probable under utilities than at random, shape (A,)."""
        return self.score(utilities) - self.score(np.zeros_like(utilities))

    def complete(self, utilities: FloatArray, rng: np.random.Generator) -> Orderings:
        """Return the answers that order anything, with ties, if there are any, in a drawn order."""
        return self.draw_orderings(utilities, rng) if self.has_ties else self.to_orderings()

    def draw_orderings(self, utilities: FloatArray, rng: np.random.Generator) -> Orderings:
        """Return the answers that order anything, with ties in an order drawn given the answers and utilities."""
        drawn = draw_orders(_bound(utilities), *self._flat, MOST_TIED, rng.random(len(self._flat.items)))
        return self._order(drawn)

    def to_orderings(self) -> Orderings:
        """Return the answers that order anything; ties are in the order in which they are named."""
        return self._order(self._flat.items)

    def to_pairs(self) -> IntArray:
        """Return all pairs that the answers order, the better item first, shape (P, 2)."""
        pairs = [
            pair for tiers in self.answers for one, other in combinations(tiers, 2) for pair in product(one, other)
        ]
        return np.array(pairs, dtype=np.int64).reshape(-1, 2)

    @cached_property
    def _flat(self) -> _Flat:
        tiers = [tier for one in self.answers for tier in one]
        return _Flat(
            np.array(list(chain.from_iterable(tiers)), dtype=np.int64),
            _add_up([len(tier) for tier in tiers]),
            _add_up([len(one) for one in self.answers]),
        )

    def _order(self, items: IntArray) -> Orderings:
        _, tiers, answers = self._flat
        lengths, last = np.diff(tiers[answers]), np.diff(tiers)[answers[1:] - 1]
        places = np.where(last > 1, lengths - last, lengths - 1)
        kept = places > 0
        starts = _add_up(lengths[kept])
        return Orderings(items[np.repeat(kept, lengths)], starts, places[kept])


def _bound(utilities: FloatArray) -> FloatArray:
    """Return utilities of which none is so far below the best that its exponential is zero beside it."""
    return np.asarray(np.maximum(utilities, utilities.max(initial=0.0) - _FARTHEST))


def _add_up(lengths: Sequence[int] | IntArray) -> IntArray:
    return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(np.asarray(lengths, dtype=np.int64))])
