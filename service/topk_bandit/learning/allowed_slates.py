"""How many slates rules allow, and uniform draws of one of them: exact, by dynamic programming over the positions.

Items in the same groups, which may be at the same positions, are of one type. What can follow a position depends on the
type before it and on how many items of each type were used; of types that differ by nothing but which they are, such as
brands with as many items each, on how often each number of uses occurs among them. Each such state is worked out once.
Counts are whole numbers without a limit, so they are exact.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.learning.slate_rules import find_slate, types_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from topk_bandit.learning.slate_rules import Effort, ItemType, SlateRules

__all__ = ["MOST_STATES", "AllowedSlates"]

MOST_STATES = 20_000
"""Rules with more are not counted: that would take longer than a second."""

MOST_STEPS, FEW_TYPES = 2_000_000, 50
"""Nor are those with more states times types times types, of types beyond a few: each state has as many steps as there
are types, and each step takes as long."""

State: TypeAlias = tuple[int, tuple[int, ...]]
"""The type before, -1 if it is alike nothing; and how many items of each type were used."""


@dataclass(frozen=True, slots=True)
class _Step:
    """One way on from a state: with any of some unused items of a type."""

    type_number: int
    items: int
    after: State


class AllowedSlates:
    """The slates that keep rules, by the places of the rules' items.

    They are a function of the rules alone: one that is kept counts once, when the first uniform draw may be made.

    Attributes
    ----------
    rules
        Over the places of E items.
    types
        Of these items.
    """

    def __init__(self, rules: SlateRules, effort: Effort | None = None) -> None:
        self.rules, self._size = rules, len(rules.admits)
        self.types = types_of(rules)
        self._classes = _classes_of(self.types, rules)
        self._members = [np.flatnonzero(self._classes == one) for one in range(self._classes.max(initial=-1) + 1)]
        self._effort = effort
        self._ways: dict[tuple[int, State], int] = {}
        self._n_begun = 0
        self._begin: State = (-1, (0,) * len(self.types))

    @cached_property
    def first(self) -> NDArray[np.int64] | None:
        """One of them, from which a search may begin, shape (k,); None if there is none."""
        return find_slate(self.rules, self._effort)

    @property
    def anchor(self) -> NDArray[np.int64]:
        """The first one; `InvalidArgumentError` if there is none."""
        if self.first is None:
            raise InvalidArgumentError("allowed", "no slate keeps the rules")
        return self.first

    @cached_property
    def count(self) -> int | None:
        """How many there are; None if that takes more than `MOST_STATES` states."""
        try:
            return self._count(0, self._begin)
        except _TooManyError:
            return None

    def draw(self, rng: np.random.Generator) -> NDArray[np.int64]:
        """Return one, each as probable, shape (k,); they have to be counted."""
        slate, state = np.empty(self._size, dtype=np.int64), self._begin
        unused = [rng.permutation(one.items).tolist() for one in self.types]
        for position in range(self._size):
            steps = list(self._steps(position, state))
            ways = np.array([step.items * self._count(position + 1, step.after) for step in steps], dtype=object)
            shares = np.cumsum((ways / ways.sum()).astype(np.float64))
            step = steps[min(int(np.searchsorted(shares, rng.random(), side="right")), len(steps) - 1)]
            slate[position] = unused[step.type_number].pop()
            state = step.after
        return slate

    @cached_property
    def position_shares(self) -> NDArray[np.float64]:
        """The share of the slates that have each item at each position, shape (k, E); they have to be counted."""
        shares = np.zeros((self._size, len(self.rules.groups)))
        reached: dict[State, float] = {self._begin: 1.0}
        for position in range(self._size):
            after: dict[State, float] = {}
            of_class = np.zeros(len(self._members))
            for state, share in reached.items():
                total = self._count(position, state)
                for step in self._steps(position, state):
                    ways = step.items * self._count(position + 1, step.after)
                    # A quotient of whole numbers is rounded once, however large they are.
                    part = share * (ways / total)
                    if part:
                        follows = self._stand_in(step.after)
                        after[follows] = after.get(follows, 0.0) + part
                        of_class[self._classes[step.type_number]] += part
            for share, members in zip(of_class, self._members, strict=True):
                items = np.concatenate([self.types[number].items for number in members])
                shares[position, items] = share / len(items)
            reached = after
        return shares

    def _count(self, position: int, state: State) -> int:
        """Return in how many ways a slate goes on from a position."""
        state = self._stand_in(state)
        known = self._ways.get((position, state))
        if known is not None:
            return known
        if position == self._size:
            ways = int(self._are_bounds_kept(state[1]))
        else:
            self._n_begun += 1
            if self._n_begun * max(len(self.types) - FEW_TYPES, 0) ** 2 > MOST_STEPS:
                raise _TooManyError
            ways = sum(step.items * self._count(position + 1, step.after) for step in self._steps(position, state))
        if len(self._ways) == MOST_STATES:
            raise _TooManyError
        self._ways[position, state] = ways
        return ways

    def _stand_in(self, state: State) -> State:
        """Return the state that stands for all those that differ by types of one class that change places."""
        last, used = state
        stands = list(used)
        for members in self._members:
            if len(members) > 1:
                for number, uses in zip(members, sorted(used[number] for number in members), strict=True):
                    stands[number] = uses
        if last >= 0:
            alike = self._members[self._classes[last]]
            last = next(int(number) for number in alike if stands[number] == used[last])
        return last, tuple(stands)

    def _steps(self, position: int, state: State) -> Iterator[_Step]:
        last, used = state
        before = self.types[last].kinds if last >= 0 else frozenset()
        counts = self._counts(used)
        full = {group for group, count in enumerate(counts) if count >= self.rules.most[group]}
        for number, one in enumerate(self.types):
            left = len(one.items) - used[number]
            if left and position in one.positions and not one.kinds & before and full.isdisjoint(one.groups):
                after = (*used[:number], used[number] + 1, *used[number + 1 :])
                yield _Step(number, left, (number if one.kinds else -1, after))

    def _counts(self, used: tuple[int, ...]) -> list[int]:
        """Return how many items of each group a slate has by now."""
        counts = [0] * len(self.rules.least)
        for one, uses in zip(self.types, used, strict=True):
            for group in one.groups if uses else ():
                counts[group] += uses
        return counts

    def _are_bounds_kept(self, used: tuple[int, ...]) -> bool:
        bounds = zip(self.rules.least, self._counts(used), self.rules.most, strict=True)
        return all(least <= count <= most for least, count, most in bounds)


class _TooManyError(Exception):
    """More states than are worth it."""


def _classes_of(types: list[ItemType], rules: SlateRules) -> NDArray[np.int64]:
    """Return the class of each type: those of one class may change places, and nothing else changes.

    They have as many items each, for the same positions, and groups of their own with the same bounds.
    """
    counts = Counter(group for one in types for group in set(one.groups))
    shared_groups = {group for group, count in counts.items() if count > 1}
    kinds = Counter(kind for one in types for kind in one.kinds)
    classes: dict[object, int] = {}
    out = []
    for number, one in enumerate(types):
        private = not shared_groups.intersection(one.groups) and all(kinds[kind] == 1 for kind in one.kinds)
        bounds = sorted((int(rules.least[group]), int(rules.most[group])) for group in one.groups)
        key = (len(one.items), one.positions, tuple(bounds), bool(one.kinds)) if private else number
        out.append(classes.setdefault(key, len(classes)))
    return np.array(out, dtype=np.int64)
