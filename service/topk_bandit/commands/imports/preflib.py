"""Rankings in PrefLib's formats: complete or incomplete orders, each with how many people gave it.

https://www.preflib.org/format: lines that begin with ``#`` say what the numbers of the items stand for, and each other
line is ``count: first, second, ...``. Items of equal rank stand in braces.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from topk_bandit.commands.imports.rows import FileRow, check_end
from topk_bandit.domain.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

__all__ = ["PREFLIB", "read_preflib"]

PREFLIB = (".soc", ".soi", ".toc", ".toi")
"""The endings of files with orders, strict or with ties, complete or not."""

_COMPLETE = (".soc", ".toc")
_NAME = re.compile(r"#\s*ALTERNATIVE NAME\s+([0-9]+)\s*:\s*(.*?)\s*", re.IGNORECASE)
_ORDERS = re.compile(r"#\s*NUMBER VOTERS\s*:\s*([0-9]+)\s*", re.IGNORECASE)
_ORDER = re.compile(r"\s*([0-9]{1,9})\s*:\s*(\S.*?)\s*")
_MOST_AT_ONCE = 1_000_000
_NUMBER = re.compile(r"[0-9]{1,9}")
_OLD = re.compile(r"\s*[0-9]+\s*")


def read_preflib(path: Path) -> Iterator[FileRow]:
    """Return each order as often as it was given; an item is named as the file names it, else by its number.

    An order of one item says nothing.

    Raises
    ------
    InvalidArgumentError
        The file has the form of before 2022, two items of one name, or not as many orders as it says.
    """
    names: dict[str, str] = {}
    said, found, number = None, 0, 0
    is_complete = path.suffix.lower() in _COMPLETE
    with path.open(encoding="utf-8-sig") as file:
        for number, line in enumerate(file, start=1):
            place = f"{path.name}, line {number}"
            if match := _NAME.fullmatch(line):
                if found:
                    raise InvalidArgumentError(place, "names an item after the first order")
                _add_name(names, place, match[1], match[2])
            elif match := _ORDERS.fullmatch(line):
                said = int(match[1])
            elif line.strip() and not line.startswith("#"):
                if not names and _OLD.fullmatch(line):
                    raise InvalidArgumentError(place, "has the form of before 2022: take it from preflib.org anew")
                count, row = _read_order(line, names)
                if isinstance(row, dict) and is_complete and names and len(row["items"]) != len(names):
                    row = InvalidArgumentError("row", f"expected all {len(names)} items, got {len(row['items'])}")
                found += count
                is_silent = isinstance(row, dict) and len(row["items"]) == 1
                yield from (FileRow(place, row, is_silent) for _ in range(count))
    if number:
        check_end(path, number)
    if said is not None and said != found:
        raise InvalidArgumentError(path.name, f"has {found} orders, but says that there are {said}: it may be cut")


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
    if "{" in order or "}" in order:
        return count, InvalidArgumentError("row", f"has items of equal rank, which no model takes: {order!r:.60}")
    numbers = [one.strip() for one in order.split(",")]
    unknown = next((one for one in numbers if not _NUMBER.fullmatch(one) or (names and one not in names)), None)
    if unknown is not None:
        return count, InvalidArgumentError("row", f"there is no item {unknown!r:.60}")
    return count, {"items": [names.get(one, one) for one in numbers]}
