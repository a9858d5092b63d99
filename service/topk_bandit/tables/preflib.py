"""Rankings in PrefLib's formats: complete or incomplete orders, each with how many people gave it.

https://www.preflib.org/format: lines that begin with ``#`` say what the numbers of the items stand for, and each other
line is ``count: first, second, ...``. Items of equal rank stand in braces.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.tables.rows import FileRow, check_end, says_nothing

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

__all__ = ["PREFLIB", "read_preflib"]

PREFLIB = (".soc", ".soi", ".toc", ".toi")
"""The endings of files with orders, strict or with ties, complete or not."""

_COMPLETE = (".soc", ".toc")
_NAME = re.compile(r"#\s*ALTERNATIVE NAME\s+([0-9]+)\s*:\s*(.*?)\s*", re.IGNORECASE)
_NUMBER_OF = re.compile(r"#\s*NUMBER (VOTERS|ALTERNATIVES|UNIQUE ORDERS)\s*:\s*([0-9]{1,18})\s*", re.IGNORECASE)
_ORDER = re.compile(r"\s*([0-9]{1,9})\s*:\s*(\S.*?)\s*")
_TIER = re.compile(r"\{[^{}]*\}|[^\s,{}][^,{}]*")
_TIERS = re.compile(r"(?:\s*\{[^{}]*\}\s*|[^,{}]+)(?:,(?:\s*\{[^{}]*\}\s*|[^,{}]+))*")
_MOST_AT_ONCE = 1_000_000
_NUMBER = re.compile(r"[0-9]{1,9}")
_OLD = re.compile(r"\s*[0-9]+\s*")


def read_preflib(path: Path) -> Iterator[FileRow]:
    """Return each order as often as it was given; an item is named as the file names it, else by its number.

    An order of one item says nothing, nor one whose items are all of equal rank.

    Raises
    ------
    InvalidArgumentError
        The file has the form of before 2022, two items of one name, or not as many orders or items as it says.
    """
    contents, number = _Contents(path.name, is_complete=path.suffix.lower() in _COMPLETE), 0
    with path.open(encoding="utf-8-sig") as file:
        for number, line in enumerate(file, start=1):
            place = f"{path.name}, line {number}"
            if line.startswith("#"):
                contents.take_comment(place, line)
            elif line.strip():
                count, row = contents.take_order(place, line)
                is_silent = isinstance(row, dict) and says_nothing(row)
                yield from (FileRow(place, row, is_silent) for _ in range(count))
    if number:
        check_end(path, number)
    contents.check()


@dataclass(slots=True)
class _Contents:
    """What a file has so far, and what it says of it.

    Attributes
    ----------
    names
        Of the items, by their numbers.
    said
        How many voters, items and different orders it says that there are.
    found, orders
        How many people gave an order, and the different orders.
    """

    name: str
    is_complete: bool
    names: dict[str, str] = field(default_factory=dict)
    said: dict[str, int] = field(default_factory=dict)
    found: int = 0
    orders: set[str] = field(default_factory=set)

    def take_comment(self, place: str, line: str) -> None:
        """Note what a line says of the file."""
        if match := _NAME.fullmatch(line):
            if self.found:
                raise InvalidArgumentError(place, "names an item after the first order")
            _add_name(self.names, place, match[1], match[2])
        elif match := _NUMBER_OF.fullmatch(line):
            what, count = match[1].lower(), int(match[2])
            if self.said.setdefault(what, count) != count:
                problem = f"says that there are {count} {what}, and before that there are {self.said[what]}"
                raise InvalidArgumentError(place, problem)

    def take_order(self, place: str, line: str) -> tuple[int, Mapping[str, Any] | InvalidArgumentError]:
        """Return how many people gave an order, and the order as a row."""
        if not self.names and _OLD.fullmatch(line):
            raise InvalidArgumentError(place, "has the form of before 2022: take it from preflib.org anew")
        count, row = _read_order(line, self.names)
        if isinstance(row, dict) and self.is_complete and self.names and len(row["items"]) != len(self.names):
            row = InvalidArgumentError("row", f"expected all {len(self.names)} items, got {len(row['items'])}")
        self.found += count
        self.orders.add("".join(line.partition(":")[2].split()))
        return count, row

    def check(self) -> None:
        """Raise `InvalidArgumentError` for a file that has not what it says."""
        there = {"voters": self.found, "unique orders": len(self.orders)}
        there |= {"alternatives": len(self.names)} if self.names else {}
        for what, count in there.items():
            if self.said.get(what, count) != count:
                problem = f"has {count} {what}, but says that there are {self.said[what]}: it may be cut"
                raise InvalidArgumentError(self.name, problem)


def _add_name(names: dict[str, str], place: str, number: str, name: str) -> None:
    if number in names or name in names.values():
        raise InvalidArgumentError(place, f"there is another item with the number {number} or the name {name!r:.60}")
    names[number] = name


def _read_order(line: str, names: Mapping[str, str]) -> tuple[int, Mapping[str, Any] | InvalidArgumentError]:
    """Return how many people gave an order, and the order as a row."""
    match = _ORDER.fullmatch(line)
    if match is None:
        return 1, InvalidArgumentError("row", f"expected 'count: item, item, ...', got {line.strip()!r:.60}")
    count, order = int(match[1]), match[2]
    if not 1 <= count <= _MOST_AT_ONCE:
        return 1, InvalidArgumentError("row", f"expected an order that 1 to {_MOST_AT_ONCE} people gave, got {count}")
    if not _TIERS.fullmatch(order):
        return count, InvalidArgumentError("row", f"expected items, those of equal rank in braces: {order!r:.60}")
    tiers = [[one.strip() for one in tier.strip("{}").split(",")] for tier in _TIER.findall(order)]
    numbers = [one for tier in tiers for one in tier]
    unknown = next((one for one in numbers if not _NUMBER.fullmatch(one) or (names and one not in names)), None)
    if unknown is not None:
        return count, InvalidArgumentError("row", f"there is no item {unknown!r:.60}")
    row: dict[str, Any] = {"items": [names.get(one, one) for one in numbers]}
    if len(tiers) < len(numbers):
        row["places"] = [place for place, tier in enumerate(tiers, start=1) for _ in tier]
    return count, row
