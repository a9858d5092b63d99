"""Rules of a slate as arrays over the items that they leave, and an exact answer to whether any slate keeps them.

Items that are in the same groups, and may be at the same positions, are of one type. Whether a slate exists is asked of
types, position by position: what can follow depends on the type before and on how many items of each type were used,
and is worked out once. For T types and slates of k that are at most T C(T + k, k) cases. Most questions take k of them,
and more than `MOST_CASES` are refused.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from topk_bandit.domain.errors import ExhaustedError, NotReadyError
from topk_bandit.domain.rules import Apart, Count, Exclude, Filter, Frequency, Pin, describe_rule

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from topk_bandit.domain.rules import Group, Rule
    from topk_bandit.learning.item_table import ItemTable

__all__ = [
    "MOST_CASES",
    "Candidates",
    "Effort",
    "ItemType",
    "RuledItems",
    "SlateRules",
    "compile_rules",
    "find_clash",
    "find_slate",
    "keep_rules",
    "places_reached",
    "refuse_clash",
    "shows_group",
    "types_of",
]

MOST_CASES = 100_000

MOST_EFFORT = 2_000_000
"""So many types and groups are looked at for one request: with thousands of types a single case is as many. An item
counts as one of eight, since arrays are asked of it. It takes 1.1 s of a processor, and 3 s at worst on a busy machine.

It is where more would answer hardly more. Of 1,419 legal sets that were drawn, of 1 to 32 rules, slates of 2 to 12
and 20 to 100,000 items, half end within 930, and 98 % of those with up to 4 rules within the bound. So do 82 % of
those with 5 to 12, and 57 % with more. Of 357 sets, 312 end within it, 315 within its double, 317 within its
fourfold, and the others not there either: the largest that ended took 5.3 million."""

_SHORT_FILTER, _LETTERS_OF_ALL = 16, 4096
"""A filter of so many letters takes, of an item, what a type does in a search; the shortest takes as many more."""

_MOST_NUMBERS = 2**40
"""So many numbers of types and their groups are counted up to before those that there are get numbers anew."""


class SlateRules(NamedTuple):
    """Rules over E items, by their places.

    Attributes
    ----------
    admits
        Which items may be at each position, as far as that depends on nothing else, shape (k, E). Each item may be
        somewhere, and one that alone may be at a position is at no other.
    groups
        The counted groups of each item, then -1, shape (E, G'): G' is the largest number of an item.
    least, most
        How many items a slate has of each counted group, shape (G,).
    kinds
        The groups of each item of which no two are beside each other, then -1, shape (E, H').
    """

    admits: NDArray[np.bool_]
    groups: NDArray[np.int64]
    least: NDArray[np.int64]
    most: NDArray[np.int64]
    kinds: NDArray[np.int64]

    @property
    def allow_all(self) -> bool:
        """Whether they allow every slate of their items, as those that only exclude and filter do."""
        return not self.groups.shape[1] and not self.kinds.shape[1] and bool(self.admits.all())

    def among(self, places: NDArray[np.integer]) -> SlateRules:
        """Return the rules over some of the items."""
        admits = np.ascontiguousarray(self.admits[:, places])
        return self._replace(admits=admits, groups=self.groups[places], kinds=self.kinds[places])


class Candidates(NamedTuple):
    """Items that a slate may show, but for its rules.

    Attributes
    ----------
    items
        All items.
    places
        Places of those that may be shown, ascending, shape (N,); None if all may be.
    shown_counts
        How many of the slates that were learned have shown each of all items, shape (n,); None if none was shown.
    reached
        What the visitor has seen as often as rules of frequency allow, as a request has it; nothing for others.
    """

    items: ItemTable
    places: NDArray[np.integer] | None = None
    shown_counts: NDArray[np.integer] | None = None
    reached: Mapping[Frequency, tuple[str, ...]] = MappingProxyType({})


def _too_entangled() -> ExhaustedError:
    """Return the refusal of rules, which would be the same if it was asked again."""
    problem = "whether any slate keeps the rules takes too long to find"
    return ExhaustedError("RULES_TOO_ENTANGLED", problem, retry_after=None)


class Effort:
    """What all questions of one request may take together; a count, so that it is the same on each machine."""

    def __init__(self) -> None:
        self._left = MOST_EFFORT

    def spend(self, count: int) -> None:
        """Raise `ExhaustedError` once more was spent than there is."""
        self._left -= count
        if self._left < 0:
            raise _too_entangled()

    def spend_on_items(self, rules: Sequence[Rule], candidates: Candidates) -> None:
        """Spend what it takes to compile rules: a filter is asked of all items, and the others of the candidates."""
        letters = sum(_SHORT_FILTER + len(rule.text) for rule in rules if isinstance(rule, Filter))
        n_items, places = len(candidates.items), candidates.places
        n_candidates = n_items if places is None else len(places)
        self.spend(letters * n_items // _LETTERS_OF_ALL + (1 + len(rules)) * n_candidates // 8)


class RuledItems(NamedTuple):
    """The items that some allowed slate may show, as places among all items, shape (E,), ascending; and the rules."""

    places: NDArray[np.int64]
    rules: SlateRules


def compile_rules(rules: Sequence[Rule], candidates: Candidates, slate_size: int) -> RuledItems | None:
    """Return what rules leave of some items; None if no item may be at a position.

    Parameters
    ----------
    rules
        Checked by `topk_bandit.domain.rules.check_rules`.
    """
    left = _find_left(rules, candidates)
    counted, bounds, apart = [], [], []
    for rule in rules:
        if isinstance(rule, Count):
            groups = _members(rule.group, candidates, left)
            counted += groups
            bounds += [(rule.least, slate_size if rule.most is None else rule.most)] * len(groups)
        elif isinstance(rule, Apart):
            apart += [group for group in _members(rule.group, candidates, left) if len(group) > 1]
    # A limit that no slate can reach is none.
    binding = [n for n, (least, most) in enumerate(bounds) if least > 0 or most < min(len(counted[n]), slate_size)]
    least_most = np.array([bounds[n] for n in binding], dtype=np.int64).reshape(-1, 2)
    admits = _admit(rules, candidates.items, left, slate_size)
    made = SlateRules(
        admits,
        _lay_out([counted[n] for n in binding], len(left)),
        np.ascontiguousarray(least_most[:, 0]),
        np.ascontiguousarray(least_most[:, 1]),
        _lay_out(apart, len(left)),
    )
    if not _follow_up(made):
        return None
    somewhere = np.flatnonzero(admits.any(axis=0))
    return RuledItems(left[somewhere], made if len(somewhere) == len(left) else made.among(somewhere))


def _find_left(rules: Sequence[Rule], candidates: Candidates) -> NDArray[np.int64]:
    """Return the places of the candidates that are neither excluded nor filtered, ascending."""
    items, places = candidates.items, candidates.places
    left = np.ones(len(items), dtype=np.bool_)
    for rule in rules:
        if isinstance(rule, Exclude):
            left[items.places_of(rule.item_ids)] = False
        elif isinstance(rule, Filter):
            left &= items.meet(rule.condition)
        elif isinstance(rule, Frequency):
            left[places_reached(rule, candidates)] = False
    found = np.flatnonzero(left) if places is None else places[left[places]]
    return np.asarray(found, dtype=np.int64)


def places_reached(rule: Frequency, candidates: Candidates) -> NDArray[np.intp]:
    """Return the places of the items that the visitor has seen as often as a rule allows."""
    items, reached = candidates.items, candidates.reached.get(rule, ())
    if not (rule.group.feature and reached):
        return items.places_of(reached)
    return np.flatnonzero(items.have_any(rule.group.feature, reached))


def _members(group: Group, candidates: Candidates, left: NDArray[np.int64]) -> list[NDArray[np.intp]]:
    """Return the items of a group, or of each value's group, as numbers of those that are left."""
    if group.shown_fewer_than:
        counts = candidates.shown_counts
        return [np.arange(len(left)) if counts is None else np.flatnonzero(counts[left] < group.shown_fewer_than)]
    if group.item_ids:
        return [np.flatnonzero(np.isin(left, candidates.items.places_of(group.item_ids)))]
    found = candidates.items.groups_of(group.feature, group.value, left)
    if group.value is not None:
        return [found.items]
    order = np.argsort(found.groups, kind="stable")
    ends = np.flatnonzero(np.diff(found.groups[order])) + 1
    return np.split(found.items[order], ends) if len(order) else []


def shows_group(group: Group, candidates: Candidates, slate: NDArray[np.integer]) -> bool:
    """Return whether a slate of items, by place, shows any item of a group."""
    return any(len(found) for found in _members(group, candidates, np.sort(slate).astype(np.int64)))


def _admit(rules: Sequence[Rule], items: ItemTable, left: NDArray[np.int64], slate_size: int) -> NDArray[np.bool_]:
    """Return which of the items that are left may be at each position by the rules that pin some, shape (k, E)."""
    admits = np.ones((slate_size, len(left)), dtype=np.bool_)
    for rule in rules:
        if isinstance(rule, Pin):
            pinned = np.isin(left, items.places_of(rule.item_ids))
            admits[rule.position] &= pinned
            if len(rule.item_ids) == 1:
                _keep_from_others(admits, rule.position, np.flatnonzero(pinned))
    return admits


def _keep_from_others(admits: NDArray[np.bool_], position: int, items: NDArray[np.intp]) -> None:
    admits[:position, items] = False
    admits[position + 1 :, items] = False


def _follow_up(rules: SlateRules) -> bool:
    """Take from `rules.admits` what can't be beside items that are alone at their positions; return if any may be left.

    These are at no other position, fill groups, and keep those alike from their sides. What is taken may leave another
    item alone.
    """
    admits, n_known = rules.admits, -1
    while True:
        n_admitted = admits.sum(axis=1)
        if not n_admitted.all():
            return False
        positions = np.flatnonzero(n_admitted == 1)
        if len(positions) == n_known:
            return True
        n_known, items = len(positions), admits[positions].argmax(axis=1)
        for position, item in zip(positions.tolist(), items.tolist(), strict=True):
            _keep_from_others(admits, position, np.array([item]))
            alike = _are_in(rules.kinds, rules.kinds[item])
            admits[max(position - 1, 0) : position, alike] = False
            admits[position + 1 : position + 2, alike] = False
        of_items = rules.groups[items]
        counts = np.bincount(of_items[of_items >= 0], minlength=len(rules.most))
        full = _are_in(rules.groups, np.flatnonzero(counts >= rules.most))
        full[items] = False
        admits[:, full] = False


def _are_in(groups: NDArray[np.int64], wanted: NDArray[np.integer]) -> NDArray[np.bool_]:
    """Return which items are in one of some groups; -1 is none."""
    return np.asarray(np.isin(groups, wanted[wanted >= 0]).any(axis=1))


def _lay_out(groups: Sequence[NDArray[np.intp]], n_items: int) -> NDArray[np.int64]:
    if not groups:
        return np.empty((n_items, 0), dtype=np.int64)
    items = np.concatenate(groups)
    numbers = np.repeat(np.arange(len(groups)), [len(group) for group in groups])
    order = np.argsort(items, kind="stable")
    counts = np.bincount(items, minlength=n_items)
    slots = np.arange(len(items)) - np.repeat(np.cumsum(counts) - counts, counts)
    out = np.full((n_items, counts.max(initial=0)), -1, dtype=np.int64)
    out[items[order], slots] = numbers[order]
    return out


def keep_rules(rules: SlateRules, slates: NDArray[np.integer]) -> NDArray[np.bool_]:
    """Return which of some slates of distinct items keep rules, as places, shape (A, k)."""
    kept = rules.admits[np.arange(slates.shape[1]), slates].all(axis=1)
    groups = rules.groups[slates].reshape(len(slates), slates.shape[1] * rules.groups.shape[1])
    for number, (least, most) in enumerate(zip(rules.least, rules.most, strict=True)):
        counts = (groups == number).sum(axis=1)
        kept &= (least <= counts) & (counts <= most)
    above, below = rules.kinds[slates[:, :-1]], rules.kinds[slates[:, 1:]]
    alike = (above[..., :, None] == below[..., None, :]) & (above[..., :, None] >= 0)
    return np.asarray(kept & ~alike.any(axis=(1, 2, 3)))


class ItemType(NamedTuple):
    """Items that may be at the same positions and are in the same groups: these, and the places of the items."""

    positions: frozenset[int]
    groups: tuple[int, ...]
    kinds: frozenset[int]
    items: NDArray[np.intp]


def types_of(rules: SlateRules) -> list[ItemType]:
    """Return the types of the items."""
    every = np.concatenate([rules.admits.T.astype(np.int64) - 1, rules.groups, rules.kinds], axis=1)
    numbers, n_numbers = np.zeros(len(every), dtype=np.int64), 1
    for column, size in zip(every.T, (every.max(axis=0) + 2).tolist(), strict=True):
        numbers, n_numbers = numbers * size + column + 1, n_numbers * size
        if n_numbers > _MOST_NUMBERS:
            numbers = np.unique(numbers, return_inverse=True)[1]
            n_numbers = len(numbers)
    order = np.argsort(numbers, kind="stable")
    of_types = np.split(order, np.flatnonzero(np.diff(numbers[order])) + 1)
    k, n_groups = len(rules.admits), rules.groups.shape[1]
    return [_type(every[items[0]].tolist(), k, n_groups, items) for items in of_types]


def _type(row: list[int], slate_size: int, n_groups: int, items: NDArray[np.intp]) -> ItemType:
    positions = (position for position in range(slate_size) if row[position] >= 0)
    groups = (group for group in row[slate_size : slate_size + n_groups] if group >= 0)
    kinds = (kind for kind in row[slate_size + n_groups :] if kind >= 0)
    return ItemType(frozenset(positions), tuple(groups), frozenset(kinds), items)


def find_slate(rules: SlateRules, effort: Effort | None = None) -> NDArray[np.int64] | None:
    """Return a slate that keeps rules, as places, shape (k,); None if there is none.

    Raises
    ------
    ExhaustedError
        More than `MOST_CASES` cases had to be looked at, or more effort than is left.
    """
    return _Question(rules, effort or Effort()).answer()


class _Question:
    """A search through the types, from the first position to the last; cases that lead nowhere are remembered."""

    def __init__(self, rules: SlateRules, effort: Effort) -> None:
        self._effort = effort
        self._size, self._types = len(rules.admits), types_of(rules)
        self._least, self._most = rules.least.tolist(), rules.most.tolist()
        self._counts = [0] * len(self._least)
        self._needed = [group for group, least in enumerate(self._least) if least]
        self._used = [0] * len(self._types)
        self._chosen: list[int] = []
        self._nowhere: set[tuple[int, int, tuple[int, ...]]] = set()

    def answer(self) -> NDArray[np.int64] | None:
        return np.array(self._chosen, dtype=np.int64) if self._go_on(0, -1) else None

    def _go_on(self, position: int, last: int) -> bool:
        left = self._size - position
        self._effort.spend(2 + len(self._needed) // 2)
        if any(self._least[group] - self._counts[group] > left for group in self._needed):
            return False
        if not left:
            return True
        self._effort.spend(len(self._types) // 16)
        case = position, last, tuple(self._used)
        if case in self._nowhere:
            return False
        self._effort.spend(len(self._types))
        found = any(self._choose(number, position, last) for number in self._by_need())
        if not found:
            self._nowhere.add(case)
            if len(self._nowhere) > MOST_CASES:
                raise _too_entangled()
        return found

    def _by_need(self) -> Iterator[int]:
        """Yield the types, those first that more groups still need."""
        short = {group for group in self._needed if self._least[group] > self._counts[group]}
        need = [sum(group in short for group in one.groups) for one in self._types]
        yield from sorted(range(len(need)), key=lambda number: -need[number])

    def _choose(self, number: int, position: int, last: int) -> bool:
        one, used = self._types[number], self._used[number]
        if used == len(one.items) or position not in one.positions:
            return False
        if last >= 0 and one.kinds & self._types[last].kinds:
            return False
        if any(self._counts[group] == self._most[group] for group in one.groups):
            return False
        self._add(number, 1)
        self._chosen.append(int(one.items[used]))
        if self._go_on(position + 1, number if one.kinds else -1):
            return True
        self._chosen.pop()
        self._add(number, -1)
        return False

    def _add(self, number: int, count: int) -> None:
        self._used[number] += count
        for group in self._types[number].groups:
            self._counts[group] += count


def find_clash(
    rules: Sequence[Rule], candidates: Candidates, slate_size: int, effort: Effort | None = None
) -> tuple[int, ...]:
    """Return the places of rules that can't be kept together, none if all can: without any one of them they could.

    There have to be as many candidates as a slate has items.
    """
    effort = effort or Effort()

    def can_be_kept(places: Sequence[int]) -> bool:
        effort.spend_on_items(rules, candidates)
        compiled = compile_rules([rules[place] for place in places], candidates, slate_size)
        return compiled is not None and find_slate(compiled.rules, effort) is not None

    clash = list(range(len(rules)))
    if can_be_kept(clash):
        return ()
    for place in range(len(rules)):
        without = [one for one in clash if one != place]
        if not can_be_kept(without):
            clash = without
    return tuple(clash)


def refuse_clash(rules: Sequence[Rule], clash: Sequence[int], *, own: int = 0) -> None:
    """Raise `NotReadyError` that names the rules of a clash, if there is one.

    Parameters
    ----------
    own
        So many of the rules, the first ones, are the bandit's; the others are the request's.
    """
    if clash:
        fields = tuple(_place_of(place, own) for place in clash)
        named = "; ".join(f"{field}: {describe_rule(rules[place])}" for field, place in zip(fields, clash, strict=True))
        raise NotReadyError("RULES_CLASH", f"no slate keeps {named}", fields=fields)


def _place_of(place: int, own: int) -> str:
    return f"bandit.rules[{place}]" if place < own else f"rules[{place - own}]"
