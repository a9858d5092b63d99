"""`topk-bandit items load`: a file of items into a bandit's catalogue, after what it changes was shown."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

from topk_bandit.client import ClientError, DeadlineExceeded, InvalidArgument, Item, ResourceExhausted, Unavailable
from topk_bandit.client.errors import is_final
from topk_bandit.commands.connection import connect
from topk_bandit.commands.imports.cells import Named
from topk_bandit.commands.imports.dry_run import DryRunReader, JudgeOfItems
from topk_bandit.commands.imports.item_columns import ItemColumns
from topk_bandit.commands.imports.reading import Reading
from topk_bandit.commands.names import bandit_named
from topk_bandit.commands.operate.item_diffs import ChangeKind, compare
from topk_bandit.commands.printing import progress
from topk_bandit.domain.bandits import ItemMask
from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.domain.nearest import find_nearest
from topk_bandit.tables.files import read_rows

if TYPE_CHECKING:
    import argparse
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from topk_bandit.client import Client
    from topk_bandit.commands.operate.item_diffs import CatalogueDiff
    from topk_bandit.tables.rows import FileRow

__all__ = ["load_items"]

_ITEMS_PER_CALL = 2000
"""A call with so many items of 64 numbers each is smaller than the largest that the service takes."""

_PASSING = (DeadlineExceeded, ResourceExhausted, Unavailable)
"""What the same call may not come to later."""

_T = TypeVar("_T")
_OF_FEATURES = "features."
_PLACE = re.compile(r"items\[([0-9]+)\]\.")


def load_items(given: argparse.Namespace) -> Iterator[str]:
    """Yield what a file changes in a catalogue, and what became of it.

    Raises
    ------
    InvalidArgumentError
        Naming the file, the row and the column, or the flag, that is at fault; nothing was sent.
    """
    name = bandit_named(given.bandit)
    with connect(given, name.tenant) as client:
        yield from _Load(client, name.bandit, given).run()


class _Load:
    """One file on its way into one catalogue."""

    def __init__(self, client: Client, bandit: str, given: argparse.Namespace) -> None:
        self._client, self._bandit, self._given = client, bandit, given
        self._settings = client.get_bandit(bandit)
        self._places, self._items, self._said = list[str](), list[Item](), list[tuple[str, ...]]()
        self._sent = self._on_way = 0

    def run(self) -> Iterator[str]:
        judge, strangers = self._read()
        parts = self._named_parts()
        present, known = JudgeOfItems.of(self._settings), dict[str, Item]()
        for item in self._client.items(self._bandit):
            present.judge(item)
            known[item.item_id] = item
        self._keep_what_rows_leave_out(judge, known)
        mask = ItemMask(
            availability="available" in parts,
            features=None if "features" in parts else frozenset(part.removeprefix(_OF_FEATURES) for part in parts),
        )
        diff = compare(present.items, judge.items.values(), mask, retires=self._given.retire_missing)
        if strangers:
            yield f"columns that mean nothing to the bandit: {', '.join(strangers)}"
        yield f"parts that change: {', '.join(parts) or 'none, as the file has no column of any'}"
        yield from diff.describe()
        self._check_room(diff, len(present.items))
        if self._given.dry_run:
            yield "nothing was sent"
            return
        if diff.retired and not self._given.yes:
            raise InvalidArgumentError("--yes", f"{len(diff.retired)} items are in no slate any more then, for good")
        yield from self._send(diff, parts)

    def _read(self) -> tuple[JudgeOfItems, Sequence[str]]:
        """Read the whole file; return its items as the bandit takes them, and the columns that mean nothing."""
        given = self._given
        columns = ItemColumns.of(Named.of(given.columns, given.ignored), schema=self._settings.item_schema)
        columns.check_flags("an item")
        judge = JudgeOfItems.of(self._settings)

        def watch(values: Mapping[str, Any], item: Item) -> None:
            self._items.append(item)
            self._said.append(tuple(columns.parts_of(values)))

        open_rows = partial(self._rows, ignored=columns.flags.ignored)
        reading = Reading(given.file.name, open_rows, DryRunReader(columns, judge.judge))
        return judge, reading.look_through(skips=False, watch=watch).strangers

    def _rows(self, ignored: Collection[str]) -> Iterator[FileRow]:
        for row in read_rows(self._given.file, ignored=ignored):
            self._places.append(row.place)
            yield row

    def _parts(self) -> list[str]:
        """Return the parts of an item that any row says something of."""
        return list(dict.fromkeys(chain.from_iterable(self._said)))

    def _keep_what_rows_leave_out(self, judge: JudgeOfItems, known: Mapping[str, Item]) -> None:
        """Have each row of JSON that lacks a part of another row leave that part of its item as it is."""
        every = frozenset(self._parts())
        for place, (item, said) in enumerate(zip(self._items, self._said, strict=True)):
            if (left_out := every.difference(said)) and (now := known.get(item.item_id)) is not None:
                self._items[place] = _keep(item, now, left_out)
                del judge.items[item.item_id]
                judge.judge(self._items[place])

    def _named_parts(self) -> list[str]:
        """Return the parts that change: those that the flags name, or else those that the file has columns for."""
        there, named = self._parts(), list(dict.fromkeys(self._given.mask))
        for part in named:
            is_there = part in there or (part == "features" and self._settings.item_schema is not None)
            if not is_there:
                near = find_nearest(part, there)
                hint = f": is it {near}?" if near else f"; it has {', '.join(there) or 'none'}"
                raise InvalidArgumentError("--mask", f"the file has no column for {part!r}{hint}")
        return named or there

    def _check_room(self, diff: CatalogueDiff, count: int) -> None:
        needed, capacity = count + diff.added_count, self._settings.item_capacity
        if diff.added_count and needed > capacity:
            problem = f"{needed} items need room before others are retired, and the bandit has room for {capacity}"
            raise InvalidArgumentError("FILE", f"{problem}: raise its item_capacity, or retire some first")

    def _send(self, diff: CatalogueDiff, parts: Sequence[str]) -> Iterator[str]:
        """Send what changes, a call after the other; yield what became of it, also where a call fails."""
        changed = {one.item_id for one in diff.changes if one.kind is not ChangeKind.RETIRED}
        items = [item for item in self._items if item.item_id in changed]
        total = len(items) + len(diff.retired)
        try:
            with progress() as bar:
                task = bar.add_task(self._bandit, total=total)
                for some in self._calls(items):
                    self._upsert(some, parts)
                    bar.update(task, advance=len(some))
                for gone in self._calls(diff.retired):
                    self._client.retire_items(self._bandit, gone)
                    bar.update(task, advance=len(gone))
        except (ClientError, InvalidArgumentError) as error:
            is_known = isinstance(error, InvalidArgumentError) or is_final(error)
            yield self._standing(total, is_known=is_known, is_refused=not isinstance(error, _PASSING))
            raise
        yield f"{self._given.bandit}: {len(items)} items added or changed, {len(diff.retired)} retired"

    def _upsert(self, items: Sequence[Item], parts: Sequence[str]) -> None:
        try:
            self._client.upsert_items(self._bandit, items, mask=parts or None, allow_missing=True)
        except InvalidArgument as error:
            place = _PLACE.match(error.field)
            if place is None:
                raise
            where = self._places[self._items.index(items[int(place[1])])]
            raise InvalidArgumentError(f"{where}, {error.field[place.end() :]}", error.problem) from None

    def _standing(self, total: int, *, is_known: bool, is_refused: bool) -> str:
        left = total - self._sent
        if is_known:
            remedy = "change the file, and run it again" if is_refused else "run it again"
            return f"{self._sent} of {total} changes are in place, and none of the other {left}: {remedy}"
        return (
            f"{self._sent} of {total} changes are in place; whether the next {self._on_way} are is unknown, "
            f"and {left - self._on_way} were not sent: run it again, which sends what is missing then"
        )

    def _calls(self, every: Sequence[_T]) -> Iterator[Sequence[_T]]:
        """Yield what goes in each call; one is done when the next is asked for."""
        for first in range(0, len(every), _ITEMS_PER_CALL):
            some = every[first : first + _ITEMS_PER_CALL]
            self._on_way = len(some)
            yield some
            self._sent += len(some)


def _keep(item: Item, now: Item, parts: Collection[str]) -> Item:
    """Return an item with some parts as they are now."""
    kept = {name: value for name, value in now.features.items() if _OF_FEATURES + name in parts}
    available = now.available if "available" in parts else item.available
    return replace(item, available=available, features={**item.features, **kept})
