"""The tables of a study as CSV files (UTF-8, one header row); errors name the line of the file.

==============  ===============================================================================
items           ``item``, then a column of numbers for each feature; none: each item is its own
queries         ``query``, then a column of numbers for each feature
answers         ``query`` if there are queries, then the items of one answer, best first; of a choice the chosen one is
                first, and the order of the others means nothing; ratings have the columns ``item`` and ``rating``; a
                first column ``question`` is passed over, so that a file of questions can be filled in
questions       ``question``, ``query`` if there are queries, ``item_1``, ``item_2``, ...
preferences     ``query`` if there are queries, ``item``, ``utility``, ``standard_deviation``, ``rank``
==============  ===============================================================================
"""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from topk_bandit.domain.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path
    from typing import TextIO

    from numpy.typing import NDArray

    from topk_bandit.preferences.utilities import Utilities

__all__ = [
    "Answered",
    "Described",
    "read_described",
    "read_orders",
    "read_ratings",
    "write_preferences",
    "write_questions",
]


@dataclass(frozen=True, slots=True, eq=False)
class Described:
    """Items or queries: ids and features, shape (N, d)."""

    ids: tuple[str, ...]
    features: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Answered:
    """One answer: indices of its query (0 without queries) and of its items, and the rating if it is one."""

    query: int
    items: tuple[int, ...]
    rating: float = 0.0


class _Row(NamedTuple):
    """The cells of a row, and where it is, as an error names it."""

    place: str
    cells: list[str]


def read_described(path: Path, *, kind: str) -> Described:
    """Return the items or queries of a file; without feature columns each has a feature of its own.

    Parameters
    ----------
    kind
        ``item`` or ``query``: what the first column is called.

    Raises
    ------
    InvalidArgumentError
        Naming the file, and the line and column where there is one: no such file, no rows, another first column, an id
        missing or there twice, a cell that is no finite number.
    """
    header, rows = _read(path)
    if header[0] != kind:
        raise InvalidArgumentError(f"{path.name}, first column", f"expected {kind!r}, got {header[0]!r}")
    ids: dict[str, int] = {}
    features = np.zeros((len(rows), len(header) - 1))
    for number, (place, row) in enumerate(rows):
        identifier = row[0]
        if not identifier or identifier in ids:
            problem = f"{identifier!r} is there twice" if identifier else f"the {kind} has no id"
            raise InvalidArgumentError(place, problem)
        ids[identifier] = number
        features[number] = _numbers(row[1:], header[1:], place)
    return Described(tuple(ids), features if len(header) > 1 else np.eye(len(rows)))


def read_orders(path: Path, *, items: Described, queries: Described | None, most: int | None = None) -> list[Answered]:
    """Return rankings, choices or pairs.

    Parameters
    ----------
    most
        How many items an answer may have; None for any number.

    Raises
    ------
    InvalidArgumentError
        Naming the file and the line: an unknown item or query, an item twice, fewer than two items or too many; or no
        header row, but an answer in its place.
    """
    header, rows = _read_answers(path, items)
    first = _query_column(path, header, queries)
    item_of, query_of, answers = _index_by_id(items), _index_by_id(queries), []
    for place, row in rows:
        cells = [cell for cell in row[first:] if cell]
        if len(cells) < 2 or len(cells) > (most or len(cells)):
            expected = "at least 2" if most is None else f"{most}" if most == 2 else f"2 to {most}"
            raise InvalidArgumentError(place, f"expected {expected} items, got {len(cells)}")
        if len(set(cells)) < len(cells):
            twice = next(cell for cell in cells if cells.count(cell) > 1)
            raise InvalidArgumentError(place, f"item {twice!r} occurs twice")
        chosen = tuple(_find_index(cell, item_of, place, "item") for cell in cells)
        answers.append(Answered(_query_of(row, query_of, place), chosen))
    return answers


def read_ratings(path: Path, *, items: Described, queries: Described | None) -> list[Answered]:
    """Return ratings of one item each; errors as for `read_orders`, and a rating that is no finite number."""
    header, rows = _read_answers(path, items)
    first = _query_column(path, header, queries)
    if header[first:] != ["item", "rating"]:
        raise InvalidArgumentError(f"{path.name}, columns", f"expected 'item' and 'rating', got {header[first:]}")
    item_of, query_of, answers = _index_by_id(items), _index_by_id(queries), []
    for place, row in rows:
        item, rating = (*row[first:], "", "")[:2]
        value = float(_numbers([rating], ["rating"], place)[0])
        answers.append(Answered(_query_of(row, query_of, place), (_find_index(item, item_of, place, "item"),), value))
    return answers


def write_questions(
    path: Path, lists: Sequence[tuple[int, Sequence[int]]], *, items: Described, queries: Described | None
) -> None:
    """Write lists to ask about: the index of the query, and those of the items."""
    longest = max((len(shown) for _, shown in lists), default=0)
    header = ["question", *_query_header(queries), *(f"item_{place}" for place in range(1, longest + 1))]
    rows = (
        [str(number), *_query_cell(queries, query), *(items.ids[item] for item in shown)]
        for number, (query, shown) in enumerate(lists, start=1)
    )
    _write(path, header, rows)


def write_preferences(
    path: Path, utilities: Sequence[Utilities], *, items: Described, queries: Described | None
) -> None:
    """Write what was learned, best first: the utilities of all items, for each query."""
    header = [*_query_header(queries), "item", "utility", "standard_deviation", "rank"]
    rows = (
        [
            *_query_cell(queries, query),
            items.ids[item],
            f"{learned.mean[item]:.6g}",
            f"{learned.standard_deviation[item]:.6g}",
            str(learned.ranks[item]),
        ]
        for query, learned in enumerate(utilities)
        for item in np.argsort(learned.ranks).tolist()
    )
    _write(path, header, rows)


def _read(path: Path) -> tuple[list[str], list[_Row]]:
    """Return the header and the rows of a file, without empty lines."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = list(_rows(path.name, file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InvalidArgumentError(str(path), f"can't be read: {error}") from None
    if not rows:
        raise InvalidArgumentError(str(path), "expected a header row")
    return rows[0].cells, rows[1:]


def _rows(name: str, file: TextIO) -> Iterator[_Row]:
    """Return what is on the lines of a file; a cell may go over several lines, of which the first one counts."""
    reader, line = csv.reader(file), 1
    for row in reader:
        cells = [cell.strip() for cell in row]
        if any(cells):
            yield _Row(f"{name}, line {line}", cells)
        line = reader.line_num + 1


def _read_answers(path: Path, items: Described) -> tuple[list[str], list[_Row]]:
    header, rows = _read(path)
    if header[0] != "question":
        _check_header(path, header, items)
        return header, rows
    if len(header) == 1:
        raise InvalidArgumentError(f"{path.name}, columns", "expected items beside the question")
    return header[1:], [_Row(place, cells[1:]) for place, cells in rows]


def _check_header(path: Path, header: list[str], items: Described) -> None:
    """Refuse a first row that is an answer: it would be lost as a header."""
    found = [cell for cell in header if cell in items.ids]
    if found and header[0] != "query":
        expected = "expected a header row, for example question,item_1,item_2"
        raise InvalidArgumentError(f"{path.name}, first row", f"{found[0]!r} is an item; {expected}")


def _write(path: Path, header: list[str], rows: Iterable[list[str]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)


def _numbers(cells: Sequence[str], columns: Sequence[str], place: str) -> list[float]:
    if len(cells) != len(columns):
        raise InvalidArgumentError(place, f"expected {len(columns)} numbers, got {len(cells)}")
    numbers = []
    for cell, column in zip(cells, columns, strict=True):
        try:
            number = float(cell)
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            raise InvalidArgumentError(f"{place}, column {column!r}", f"expected a finite number, got {cell!r}")
        numbers.append(number)
    return numbers


def _index_by_id(described: Described | None) -> dict[str, int]:
    return {identifier: index for index, identifier in enumerate(described.ids if described else ())}


def _find_index(identifier: str, index_of: dict[str, int], place: str, kind: str) -> int:
    if identifier not in index_of:
        raise InvalidArgumentError(place, f"there is no {kind} {identifier!r}")
    return index_of[identifier]


def _query_column(path: Path, header: list[str], queries: Described | None) -> int:
    if (header[0] == "query") != (queries is not None):
        expected = "expected 'query', because there are queries" if queries else "'query' needs a file of queries"
        raise InvalidArgumentError(f"{path.name}, first column", expected)
    return int(queries is not None)


def _query_of(row: Sequence[str], query_of: dict[str, int], place: str) -> int:
    return _find_index(row[0], query_of, place, "query") if query_of else 0


def _query_header(queries: Described | None) -> list[str]:
    return [] if queries is None else ["query"]


def _query_cell(queries: Described | None, query: int) -> list[str]:
    return [] if queries is None else [queries.ids[query]]
