"""Answers as tiers: groups of items, best first, whose members the answer does not order among themselves.

A full ranking has one item in each tier, a choice the chosen item and then all others, a pair two tiers of one. The top
m of a list are m tiers of one and a last one of all others; the best and the worst of a list have all others between
them; a tie is a tier of several. An answer of one tier orders nothing.

Plackett-Luce has a likelihood for tiers of one above a last one of any size: the successive choices. The exact one of a
tier of several is a sum over its orders. Instead such an answer is *broken*: each item of a tier is chosen from itself
and all items of lower tiers. Where every tier but the last has one item this is the likelihood itself. For a tier of
several it has the events "this item comes before all lower ones" as if they were independent, so that the exact
likelihood is at least as large, and at most t! times for a tier of t items.

Sources: rank breaking of Plackett-Luce answers, Azari Soufiani, Chen, Parkes and Xia, Generalized Method-of-Moments for
Rank Aggregation (2013), and Section 3 of DopeWolfe; answers with ties as sets of orders, Allison and Christakis, Logit
Models for Sets of Ranked Items (1994).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain, combinations, product
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.preferences.answers import Orderings

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["TieredAnswers", "Tiers"]

IntArray = NDArray[np.int64]

Tiers: TypeAlias = "Sequence[Sequence[int]]"
"""The items of one answer, tier by tier, best first."""


@dataclass(frozen=True, slots=True, eq=False)
class TieredAnswers:
    """What people said of lists of items.

    Attributes
    ----------
    answers
        Tiers of each answer, A answers.
    n_items
        Items are in [0, n_items).
    """

    answers: Sequence[Tiers]
    n_items: int

    @classmethod
    def of(cls, answers: Sequence[Tiers], *, n_items: int) -> TieredAnswers:
        """Return answers, each of which names at least one item, none twice, and has no empty tier.

        Raises
        ------
        InvalidArgumentError
            Naming ``answers[l]``.
        """
        for number, tiers in enumerate(answers):
            items = list(chain.from_iterable(tiers))
            if not items or not all(map(len, tiers)):
                raise InvalidArgumentError(f"answers[{number}]", "expected tiers of at least one item each")
            if len(set(items)) < len(items):
                raise InvalidArgumentError(f"answers[{number}]", "names an item a second time")
            if not all(0 <= item < n_items for item in items):
                raise InvalidArgumentError(f"answers[{number}]", f"expected items in [0, {n_items})")
        return cls(answers, n_items)

    def __len__(self) -> int:
        return len(self.answers)

    def take(self, numbers: Sequence[int] | IntArray) -> TieredAnswers:
        """Return some of the answers, in this order."""
        return TieredAnswers([self.answers[number] for number in numbers], self.n_items)

    def to_orderings(self) -> tuple[Orderings, IntArray]:
        """Return the answers broken into orderings, and the number of the answer that each comes from, shape (L,)."""
        items: list[int] = []
        lengths, places, owners = [], [], []
        for number, tiers in enumerate(self.answers):
            for order, count in _break_into_orderings(tiers):
                items += order
                lengths.append(len(order))
                places.append(count)
                owners.append(number)
        starts = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(np.array(lengths, dtype=np.int64))])
        made = Orderings(np.array(items, dtype=np.int64), starts, np.array(places, dtype=np.int64))
        return made, np.array(owners, dtype=np.int64)

    def to_pairs(self) -> tuple[IntArray, IntArray]:
        """Return all pairs that the answers order, better item first, shape (P, 2), and each pair's answer, (P,)."""
        pairs, owners = [], []
        for number, tiers in enumerate(self.answers):
            made = [pair for upper, lower in combinations(tiers, 2) for pair in product(upper, lower)]
            pairs += made
            owners += [number] * len(made)
        return np.array(pairs, dtype=np.int64).reshape(-1, 2), np.array(owners, dtype=np.int64)


def _break_into_orderings(tiers: Tiers) -> Iterator[tuple[list[int], int]]:
    """Return the orderings of an answer with the places that each assigns: tiers of one in a row make one of them."""
    below = [list(chain.from_iterable(tiers[number + 1 :])) for number in range(len(tiers))]
    number, last = 0, len(tiers) - 1
    while number < last:
        if len(tiers[number]) > 1:
            for item in tiers[number]:
                yield [item, *below[number]], 1
            number += 1
            continue
        end = number
        while end < last and len(tiers[end]) == 1:
            end += 1
        yield [*tiers[number], *below[number]], end - number
        number = end
