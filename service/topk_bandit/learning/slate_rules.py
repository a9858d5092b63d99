"""Rules of a slate as arrays over the items that they leave, and an exact answer to whether any slate keeps them.

Items that are in the same groups are of one type. Whether a slate exists is asked of types, position by position: what
can follow depends on the type before and on how many items of each type were used, and is worked out once. For T types
and slates of k that are at most T C(T + k, k) cases. Most questions take k of them, and more than `MOST_CASES` are
refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from topk_bandit.domain.errors import ExhaustedError, NotReadyError
from topk_bandit.domain.filters import accepts
from topk_bandit.domain.rules import Apart, Count, Exclude, Filter, Pin, describe_rule

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from topk_bandit.domain.features import Features
    from topk_bandit.domain.rules import Group, Rule

__all__ = [
    "MOST_CASES",
    "ItemType",
    "RuledItems",
    "SlateRules",
    "compile_rules",
    "find_clash",
    "find_slate",
    "keep_rules",
    "refuse_clash",
    "types_of",
]

MOST_CASES = 100_000


class SlateRules(NamedTuple):
    """Rules over E items, by their places.

    Attributes
    ----------
    pinned
        The item at each position, -1 where it is to be chosen, shape (k,).
    groups
        The counted groups of each item, then -1, shape (E, G'): G' is the largest number of an item.
    least, most
        How many items a slate has of each counted group, shape (G,).
    kinds
        The groups of each item of which no two are beside each other, then -1, shape (E, H').
    """

    pinned: NDArray[np.int64]
    groups: NDArray[np.int64]
    least: NDArray[np.int64]
    most: NDArray[np.int64]
    kinds: NDArray[np.int64]

    def among(self, places: NDArray[np.int64] | NDArray[np.int32]) -> SlateRules:
        """Return the rules over some of the items, in ascending order; each pinned item has to be one of them."""
        pinned = np.where(self.pinned < 0, -1, np.searchsorted(places, self.pinned))
        return self._replace(pinned=pinned, groups=self.groups[places], kinds=self.kinds[places])


class RuledItems(NamedTuple):
    """The items that rules leave, as places among those that were given, shape (E,), ascending; and the rules."""

    places: NDArray[np.int64]
    rules: SlateRules


def compile_rules(
    rules: Sequence[Rule], item_ids: Sequence[str], features: Sequence[Features], slate_size: int
) -> RuledItems | None:
    """Return what rules leave of some items; None if a pinned item is not left, or pins contradict each other.

    Parameters
    ----------
    rules
        Checked by `topk_bandit.domain.rules.check_rules`.
    item_ids, features
        Of the items that may be shown: E of both.
    """
    left = [n for n, item in enumerate(zip(item_ids, features, strict=True)) if _is_left(rules, *item)]
    names = {item_ids[place]: number for number, place in enumerate(left)}
    pinned = np.full(slate_size, -1, dtype=np.int64)
    for pin in rules:
        if isinstance(pin, Pin):
            [item_id] = pin.item_ids
            item = names.get(item_id, -1)
            at = np.flatnonzero(pinned == item)
            if item < 0 or pinned[pin.position] not in (-1, item) or (len(at) and at[0] != pin.position):
                return None
            pinned[pin.position] = item
    values = [dict(features[place].values) for place in left]
    counted, bounds = [], []
    for rule in rules:
        if isinstance(rule, Count):
            most = slate_size if rule.most is None else min(rule.most, slate_size)
            groups = _members(rule.group, values)
            counted += groups
            bounds += [(rule.least, most)] * len(groups)
    # A limit that no slate can reach is none.
    binding = [n for n, (least, most) in enumerate(bounds) if least > 0 or most < min(len(counted[n]), slate_size)]
    apart = [group for rule in rules if isinstance(rule, Apart) for group in _members(rule.group, values)]
    least_most = np.array([bounds[n] for n in binding], dtype=np.int64).reshape(-1, 2)
    return RuledItems(
        np.array(left, dtype=np.int64),
        SlateRules(
            pinned,
            _lay_out([counted[n] for n in binding], len(left)),
            np.ascontiguousarray(least_most[:, 0]),
            np.ascontiguousarray(least_most[:, 1]),
            _lay_out([group for group in apart if len(group) > 1], len(left)),
        ),
    )


def _is_left(rules: Sequence[Rule], item_id: str, features: Features) -> bool:
    return not any(
        (isinstance(rule, Exclude) and item_id in rule.item_ids)
        or (isinstance(rule, Filter) and not accepts(rule.condition, features))
        for rule in rules
    )


def _members(group: Group, values: Sequence[Mapping[str, object]]) -> list[list[int]]:
    """Return the items of a group, or of each value's group."""
    of_value: dict[object, list[int]] = {} if group.value is None else {group.value: []}
    for place, named in enumerate(values):
        value = named.get(group.feature)
        for one in value if isinstance(value, tuple) else (value,):
            if one is not None and group.value in (None, one):
                of_value.setdefault(one, []).append(place)
    return list(of_value.values())


def _lay_out(groups: Sequence[Sequence[int]], n_items: int) -> NDArray[np.int64]:
    of_item: list[list[int]] = [[] for _ in range(n_items)]
    for number, group in enumerate(groups):
        for place in group:
            of_item[place].append(number)
    out = np.full((n_items, max(map(len, of_item), default=0)), -1, dtype=np.int64)
    for place, numbers in enumerate(of_item):
        out[place, : len(numbers)] = numbers
    return out


def keep_rules(rules: SlateRules, slates: NDArray[np.int64] | NDArray[np.int32]) -> NDArray[np.bool_]:
    """Return which of some slates of distinct items keep rules, as places, shape (A, k)."""
    kept = ((rules.pinned < 0) | (slates == rules.pinned)).all(axis=1)
    groups = rules.groups[slates].reshape(len(slates), slates.shape[1] * rules.groups.shape[1])
    for number, (least, most) in enumerate(zip(rules.least, rules.most, strict=True)):
        counts = (groups == number).sum(axis=1)
        kept &= (least <= counts) & (counts <= most)
    above, below = rules.kinds[slates[:, :-1]], rules.kinds[slates[:, 1:]]
    alike = (above[..., :, None] == below[..., None, :]) & (above[..., :, None] >= 0)
    return np.asarray(kept & ~alike.any(axis=(1, 2, 3)))


class ItemType(NamedTuple):
    """Items that are in the same groups: which groups and kinds, and the places of those that are not pinned."""

    groups: tuple[int, ...]
    kinds: frozenset[int]
    items: NDArray[np.int64]


def types_of(rules: SlateRules) -> tuple[list[ItemType], list[ItemType | None]]:
    """Return the types of the items that are to be chosen, and the type of the pinned item at each position."""
    both = np.concatenate([rules.groups, rules.kinds], axis=1)
    free = np.setdiff1d(np.arange(len(both)), rules.pinned)
    rows, inverse = np.unique(both[free], axis=0, return_inverse=True)
    inverse = inverse.reshape(-1)
    n_groups = rules.groups.shape[1]
    types = [_type(row, n_groups, free[inverse == number]) for number, row in enumerate(rows)]
    pinned = [None if item < 0 else _type(both[item], n_groups, np.array([item])) for item in rules.pinned]
    return types, pinned


def _type(row: NDArray[np.int64], n_groups: int, items: NDArray[np.int64]) -> ItemType:
    groups, kinds = row[:n_groups].tolist(), row[n_groups:].tolist()
    return ItemType(tuple(g for g in groups if g >= 0), frozenset(g for g in kinds if g >= 0), items)


def find_slate(rules: SlateRules) -> NDArray[np.int64] | None:
    """Return a slate that keeps rules, as places, shape (k,); None if there is none.

    Raises
    ------
    ExhaustedError
        More than `MOST_CASES` cases had to be looked at.
    """
    return _Question(rules).answer()


class _Question:
    """A search through the types, from the first position to the last; cases that lead nowhere are remembered."""

    def __init__(self, rules: SlateRules) -> None:
        self._rules, self._size = rules, len(rules.pinned)
        self._types, self._pinned = types_of(rules)
        self._counts = [0] * len(rules.least)
        for one in self._pinned:
            for group in one.groups if one else ():
                self._counts[group] += 1
        self._least, self._most = rules.least.tolist(), rules.most.tolist()
        self._used = [0] * len(self._types)
        self._free = sum(one is None for one in self._pinned)
        self._chosen: list[int] = []
        self._nowhere: set[tuple[int, int, tuple[int, ...]]] = set()

    def answer(self) -> NDArray[np.int64] | None:
        if any(count > most for count, most in zip(self._counts, self._most, strict=True)):
            return None
        return np.array(self._chosen, dtype=np.int64) if self._go_on(0, -1, frozenset(), self._free) else None

    def _go_on(self, position: int, last: int, before: frozenset[int], free: int) -> bool:
        if any(least - count > free for least, count in zip(self._least, self._counts, strict=True)):
            return False
        if position == self._size:
            return True
        case = position, last, tuple(self._used)
        if case in self._nowhere:
            return False
        pinned = self._pinned[position]
        if pinned is None:
            found = any(self._choose(number, position, before, free) for number in self._by_need())
        else:
            self._chosen.append(int(pinned.items[0]))
            found = not pinned.kinds & before and self._go_on(position + 1, -1, pinned.kinds, free)
            if not found:
                self._chosen.pop()
        if not found:
            self._nowhere.add(case)
            if len(self._nowhere) > MOST_CASES:
                raise ExhaustedError("RULES_TOO_ENTANGLED", "whether any slate keeps the rules takes too long to find")
        return found

    def _by_need(self) -> Iterator[int]:
        """Yield the types, those first that more groups still need."""
        short = [least > count for least, count in zip(self._least, self._counts, strict=True)]
        need = [sum(short[group] for group in one.groups) for one in self._types]
        yield from sorted(range(len(need)), key=lambda number: -need[number])

    def _choose(self, number: int, position: int, before: frozenset[int], free: int) -> bool:
        one, used = self._types[number], self._used[number]
        if used == len(one.items) or one.kinds & before:
            return False
        if any(self._counts[group] == self._most[group] for group in one.groups):
            return False
        self._add(number, 1)
        self._chosen.append(int(one.items[used]))
        if self._go_on(position + 1, number, one.kinds, free - 1):
            return True
        self._chosen.pop()
        self._add(number, -1)
        return False

    def _add(self, number: int, count: int) -> None:
        self._used[number] += count
        for group in self._types[number].groups:
            self._counts[group] += count


def find_clash(
    rules: Sequence[Rule], item_ids: Sequence[str], features: Sequence[Features], slate_size: int
) -> tuple[int, ...]:
    """Return the places of rules that can't be kept together, none if all can: without any one of them they could.

    Parameters
    ----------
    item_ids, features
        As of `compile_rules`, at least as many as a slate has.
    """

    def can_be_kept(places: Sequence[int]) -> bool:
        compiled = compile_rules([rules[place] for place in places], item_ids, features, slate_size)
        return compiled is not None and find_slate(compiled.rules) is not None

    clash = list(range(len(rules)))
    if can_be_kept(clash):
        return ()
    for place in range(len(rules)):
        without = [one for one in clash if one != place]
        if not can_be_kept(without):
            clash = without
    return tuple(clash)


def refuse_clash(rules: Sequence[Rule], clash: Sequence[int], *, field: str = "rules") -> None:
    """Raise `NotReadyError` that names the rules of a clash, if there is one."""
    if clash:
        named = "; ".join(f"{field}[{place}]: {describe_rule(rules[place])}" for place in clash)
        raise NotReadyError("RULES_CLASH", f"no slate keeps {named}")
