"""What a file of items changes in a catalogue, item by item, before anything is sent."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from typing import TYPE_CHECKING

from topk_bandit.commands.tables import table
from topk_bandit.store.rules.bandits import merge_item

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from topk_bandit.domain.bandits import Item, ItemMask

__all__ = ["CatalogueDiff", "Change", "ChangeKind", "compare"]

_EXAMPLES = 20
_LONGEST = 160


class ChangeKind(StrEnum):
    """What happens to an item."""

    ADDED = "added"
    HIDDEN = "made unavailable"
    SHOWN = "made available"
    CHANGED = "changed"
    RETIRED = "retired"
    UNCHANGED = "unchanged"


@dataclass(frozen=True, slots=True)
class Change:
    """What happens to an item, and which of its parts are other ones, each as text."""

    kind: ChangeKind
    item_id: str
    parts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CatalogueDiff:
    """What a file changes.

    Attributes
    ----------
    changes
        Of items that change, in the order of the file; those that are retired come last.
    unchanged
        How many items of the file are there, and are as it says.
    """

    changes: tuple[Change, ...]
    unchanged: int

    @property
    def retired(self) -> tuple[str, ...]:
        """The items that are retired."""
        return tuple(one.item_id for one in self.changes if one.kind is ChangeKind.RETIRED)

    @property
    def added_count(self) -> int:
        """How many items are new."""
        return sum(one.kind is ChangeKind.ADDED for one in self.changes)

    def describe(self) -> Iterator[str]:
        """Yield a table of how many items change in which way, and one of the first of them."""
        counts = Counter(one.kind for one in self.changes) + Counter({ChangeKind.UNCHANGED: self.unchanged})
        yield from table(("items", "change"), [(counts[kind], kind.value) for kind in ChangeKind if counts[kind]])
        if self.changes:
            yield ""
            shown = islice(self.changes, _EXAMPLES)
            rows = [(one.item_id, one.kind.value, ", ".join(one.parts)[:_LONGEST]) for one in shown]
            yield from table(("item", "change", "parts"), rows)
        if len(self.changes) > _EXAMPLES:
            yield f"... and {len(self.changes) - _EXAMPLES} more"


def compare(present: Mapping[str, Item], given: Iterable[Item], mask: ItemMask, *, retires: bool) -> CatalogueDiff:
    """Return what items of a file change in those that are present.

    Parameters
    ----------
    present
        The bandit's items, by their ids.
    mask
        The parts of them that change; an item that is not present is added whole.
    retires
        Whether items that are present and not given are retired.
    """
    changes, unchanged, missing = list[Change](), 0, dict.fromkeys(present)
    for item in given:
        missing.pop(item.item_id, None)
        change = _change_of(present.get(item.item_id), item, mask)
        if change.kind is ChangeKind.UNCHANGED:
            unchanged += 1
        else:
            changes.append(change)
    if retires:
        changes += [Change(ChangeKind.RETIRED, item_id) for item_id in missing]
    return CatalogueDiff(tuple(changes), unchanged)


def _change_of(before: Item | None, given: Item, mask: ItemMask) -> Change:
    if before is None:
        available = () if given.available else ("available no",)
        return Change(ChangeKind.ADDED, given.item_id, (*available, *map(_told, given.features.values)))
    after = merge_item(before, given, mask)
    parts = tuple(_differences(dict(before.features.values), dict(after.features.values)))
    if before.available != after.available:
        return Change(ChangeKind.SHOWN if after.available else ChangeKind.HIDDEN, given.item_id, parts)
    return Change(ChangeKind.CHANGED if parts else ChangeKind.UNCHANGED, given.item_id, parts)


def _differences(before: Mapping[str, object], after: Mapping[str, object]) -> Iterator[str]:
    for name in sorted(before.keys() | after.keys()):
        if before.get(name) != after.get(name):
            yield f"{name} {_text(before.get(name))} -> {_text(after.get(name))}"


def _told(pair: tuple[str, object]) -> str:
    return f"{pair[0]} {_text(pair[1])}"


def _text(value: object) -> str:
    match value:
        case None:
            return "-"
        case float():
            return f"{value:g}"
        case tuple():
            return f"[{' '.join(map(_text, value))}]"
        case _:
            return str(value)
