"""All subsets of a size as candidates for a design."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from topk_bandit.preferences.compiled.combinations import (
    best_pairs,
    best_subset,
    best_triples,
    exchange,
    pair_gradients,
)
from topk_bandit.preferences.designs.ascent import Prices
from topk_bandit.preferences.designs.bounds import gradient_bound, largest_sums
from topk_bandit.preferences.designs.whitening import White, whiten

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topk_bandit.preferences.designs.information import Information

__all__ = ["RankedSubsets", "RatedSubsets", "pair_contrasts"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_JUST_BELOW = 1.0 - 1e-9
_MOST_FOR_ALL_TRIPLES = 150
_MOST_STARTS = 256
_FEWEST_STARTS = 8
_SEARCH_BUDGET = 1e8


@dataclass(frozen=True, slots=True, eq=False)
class _Subsets:
    """Subsets of the items of one group; a subset's key are its items, in order.

    Attributes
    ----------
    items
        In coordinates in which the average item's information is the identity, shape (N, d).
    log_det
        For the average item's information in the coordinates that were given.
    groups
        The items of each group that has enough of them.
    size
        Items of a subset, K.
    prior
        What is known beforehand, R, in these coordinates, shape (d, d). None: nothing is.
    """

    items: FloatArray
    log_det: float
    groups: Sequence[IntArray]
    size: int
    prior: FloatArray | None

    @property
    def dimension(self) -> int:
        """How many features there are, d."""
        return int(self.items.shape[1])

    @property
    def key_length(self) -> int:
        """How many items a subset has, K."""
        return self.size


@dataclass(frozen=True, slots=True, eq=False)
class RatedSubsets(_Subsets):
    """Subsets whose items are rated: A_S holds the features of its items."""

    @classmethod
    def of(
        cls, features: FloatArray, *, groups: Sequence[IntArray], size: int, prior: FloatArray | None = None
    ) -> RatedSubsets:
        """Return the subsets of items with features of shape (N, d), and R of shape (d, d).

        Raises
        ------
        RankError
            The items do not span d dimensions.
        """
        members = np.concatenate(groups)
        items, white = np.zeros_like(features), whiten(features[members], len(members))
        items[members] = white.rows
        return cls(items, white.log_det, groups, size, _turn(prior, white))

    @property
    def work(self) -> float:
        """That of one product with C^-1, and of writing down the subsets."""
        return float(self.items.size) * self.dimension

    def rows(self, keys: IntArray) -> FloatArray:
        """Return the items' features, shape (S, K, d)."""
        return self.items[keys]

    def price(self, information: Information, *, level: float, target: float) -> Prices:  # noqa: ARG002 - always exact
        """Return the best subset with each item, if its g is above the level."""
        norms = np.square(information.whiten(self.items)).sum(axis=1)
        found = [
            self._combine_best_with_each(members[np.argsort(-norms[members], kind="stable")]) for members in self.groups
        ]
        keys = np.concatenate(found)
        values = norms[keys].sum(axis=1)
        kept = values > level
        return Prices(float(values.max()), keys[kept], values[kept])

    def _combine_best_with_each(self, order: IntArray) -> IntArray:
        """Return the first K - 1 of a group's items, the best first, with each of the others, (n - K + 1, K)."""
        others = order[self.size - 1 :]
        first = np.broadcast_to(order[: self.size - 1], (len(others), self.size - 1))
        return np.sort(np.column_stack([first, others]), axis=1)


@dataclass(frozen=True, slots=True, eq=False)
class RankedSubsets(_Subsets):
    """Subsets whose items are ranked: A_S holds the differences of the features of its items.

    A_S A_S' = sum over pairs of (x_j - x_k)(x_j - x_k)' = K sum over items of (x_j - mean)(x_j - mean)', so that K - 1
    contrasts of the items do for the K (K - 1) / 2 differences.

    Attributes
    ----------
    contrasts
        Q with Q'Q = K I - 11', shape (K - 1, K).
    rng
        Draws the subsets that the search for good ones begins with, where it is not exhaustive.
    """

    contrasts: FloatArray
    rng: np.random.Generator

    @classmethod
    def of(
        cls,
        features: FloatArray,
        *,
        groups: Sequence[IntArray],
        size: int,
        rng: np.random.Generator,
        prior: FloatArray | None = None,
    ) -> RankedSubsets:
        """Return the subsets of items with features of shape (N, d), and R of shape (d, d).

        Raises
        ------
        RankError
            The differences of items of one group do not span d dimensions.
        """
        items, members = np.zeros_like(features), np.concatenate(groups)
        for group in groups:
            items[group] = features[group] - features[group].mean(axis=0)
        white = whiten(items[members], len(members))
        items[members] = white.rows
        return cls(items, white.log_det, groups, size, _turn(prior, white), pair_contrasts(size), rng)

    @property
    def work(self) -> float:
        """That of the pair gradients and of the search among them."""
        d = self.dimension
        return float(sum(len(group) ** 2 * (d + min(len(group), _MOST_FOR_ALL_TRIPLES)) for group in self.groups))

    def rows(self, keys: IntArray) -> FloatArray:
        """Return K - 1 contrasts of the items' features, shape (S, K - 1, d)."""
        return np.ascontiguousarray(np.matmul(self.contrasts, self.items[keys]))

    def price(self, information: Information, *, level: float, target: float) -> Prices:
        """Return good subsets, and the largest gradient: exactly for K = 2 and 3, above often a bound."""
        white = information.whiten(self.items)
        near = [_Group(white[members] - white[members].mean(axis=0)) for members in self.groups]
        parts = [self._search_group(one, level) for one in near]
        keys = np.concatenate([group[part.keys] for group, part in zip(self.groups, parts, strict=True)])
        values, bound = np.concatenate([part.values for part in parts]), max(part.bound for part in parts)
        if self.size > 3:
            bound, better = _bound_all(near, self.size, bound, target)
            keys = np.concatenate([keys, *(self.groups[number][subset][None] for number, subset, _ in better)])
            values = np.concatenate([values, [value for _, _, value in better]])
        keys, first = np.unique(np.sort(keys, axis=1), axis=0, return_index=True)
        kept = values[first] > level
        return Prices(bound, keys[kept], values[first][kept])

    def _search_group(self, group: _Group, level: float) -> Prices:
        """Return good subsets of a group, with a bound of the gradients of all, or of these if K > 3."""
        pairs = group.pairs
        if self.size == 2:
            return _price_pairs(pairs)
        if self.size == 3 and len(pairs) <= _MOST_FOR_ALL_TRIPLES:
            return _price_triples(pairs, _JUST_BELOW * level)
        starts = min(len(pairs), max(_MOST_STARTS // len(self.groups), _FEWEST_STARTS))
        tried = _search_by_exchange(pairs, self.size, starts, self.rng)
        return tried.merge(_price_triples(pairs, float(tried.values.max()))) if self.size == 3 else tried


@dataclass(frozen=True, slots=True, eq=False)
class _Group:
    """The items of a group, and their pair gradients.

    Attributes
    ----------
    items
        y, about their mean, shape (n, d).
    pairs
        D, shape (n, n).
    """

    items: FloatArray
    pairs: FloatArray = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "pairs", pair_gradients(self.items @ self.items.T))


def _turn(prior: FloatArray | None, white: White) -> FloatArray | None:
    return None if prior is None else np.asarray(white.basis.T @ prior @ white.basis)


def _price_pairs(pairs: FloatArray) -> Prices:
    keys, values = np.zeros((len(pairs), 2), dtype=np.int64), np.empty(len(pairs))
    best_pairs(pairs, keys, values)
    return Prices(float(values.max()), keys, values)


def _price_triples(pairs: FloatArray, floor: float) -> Prices:
    """Return the best triple with each item if its gradient is above the floor; none is above the bound."""
    keys, values = np.zeros((len(pairs), 3), dtype=np.int64), np.full(len(pairs), -np.inf)
    best_triples(pairs, floor, keys, values)
    kept = np.isfinite(values)
    return Prices(float(values.max(initial=floor)), keys[kept], values[kept])


def _search_by_exchange(pairs: FloatArray, size: int, starts: int, rng: np.random.Generator) -> Prices:
    """Return subsets that no exchange of an item improves, reached from random ones; the bound is only theirs."""
    keys = np.argpartition(rng.random((starts, len(pairs))), size - 1, axis=1)[:, :size].astype(np.int64)
    values = np.empty(starts)
    exchange(pairs, keys, values)
    return Prices(float(values.max()), keys, values)


def _bound_all(
    groups: Sequence[_Group], size: int, reached: float, target: float
) -> tuple[float, list[tuple[int, IntArray, float]]]:
    """Return a bound of the gradients of all subsets, `reached` being that of one.

    If it is not above the target, groups whose bound is are searched, until one takes too long. What the search finds
    above the target is returned too: the group, the subset and its gradient.
    """
    bound, better = reached, list[tuple[int, IntArray, float]]()
    for number, group in enumerate(groups):
        largest = largest_sums(group.pairs, size)
        of_group = gradient_bound(group.items, largest, enough=max(reached, target))
        if of_group > target >= bound:
            value, subset, is_settled = _search_exhaustively(group.pairs, largest, target)
            if value > target:
                better.append((number, subset, value))
            of_group = value if is_settled else of_group
        bound = max(bound, of_group)
    return bound, better


def _search_exhaustively(pairs: FloatArray, largest: FloatArray, floor: float) -> tuple[float, IntArray, bool]:
    """Return the best gradient above the floor, or the floor; the subset; and whether the search came to its end."""
    order, subset = np.argsort(-largest[:, -1], kind="stable"), np.zeros(largest.shape[1], dtype=np.int64)
    ordered = np.ascontiguousarray(pairs[order][:, order])
    value, is_settled = best_subset(ordered, largest[order], floor, _SEARCH_BUDGET, subset)
    return float(value), order[subset], bool(is_settled)


def pair_contrasts(size: int) -> FloatArray:
    """Return Q, (K - 1, K), with Q'Q = K I - 11'."""
    rows = np.tril(np.ones((size - 1, size)), k=0)
    rows[np.arange(size - 1), np.arange(1, size)] = -np.arange(1.0, size)
    return np.asarray(np.sqrt(size) * rows / np.linalg.norm(rows, axis=1, keepdims=True))
