"""Rows of a file of CSV, whatever separates its cells: one that may be something else than a text is a `Cell`."""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.domain.values import MISSING_MARKS, Cell, PointCell
from topk_bandit.tables.points import find_point_columns
from topk_bandit.tables.row_numbers import RowNumbers
from topk_bandit.tables.rows import FileRow, check_end, check_names

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path
    from typing import TextIO

__all__ = ["read_csv"]

_OTHER_DELIMITERS = (";", "\t")
_QUOTED = re.compile(r'"[^"]*"')
_LONGEST_CELL = 2**31 - 1
"""A cell is as long as a text of JSON may be."""

_OTHER_SEPARATORS = {"|": "'|'", "\t": "tabs", ";": "';'", ",": "commas", "\x01": "'\\x01'"}
_WORDS = frozenset({*MISSING_MARKS, "True", "TRUE", "False", "FALSE"})
_ENDS = frozenset({".0", "00"})
"""Cells with these, and lists, say something else than the same text of JSON."""


def read_csv(path: Path, *, delimiter: str = "") -> Iterator[FileRow]:
    """Return the rows of a file; without a delimiter its header says how cells are separated.

    Raises
    ------
    InvalidArgumentError
        It is no whole table: no header, a quote that is not closed, a last line without an end.
    """
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = _Lines(path.name, file, delimiter=delimiter)
        header = rows.next()
        if header is None:
            raise InvalidArgumentError(path.name, "has no header row")
        columns, numbers = _Header.of(path, rows.delimiter, header), RowNumbers()
        while (row := rows.next()) is not None:
            if not any(row.cells):
                continue
            if not header.cells[0]:
                numbers.check(row.place, "column 1", row.cells[0])
            yield FileRow(row.place, columns.values(row.cells), named_at=header.place)
    check_end(path, rows.line - 1)


@dataclass(frozen=True, slots=True)
class _Line:
    """The cells of a row, without the blanks around them, and where it begins."""

    place: str
    cells: list[str]


class _Lines:
    """The rows of a file of CSV, whose quotes are closed; its header says how cells are separated, if nothing else.

    Attributes
    ----------
    line
        The next one's number.
    delimiter
        What separates cells.
    """

    def __init__(self, name: str, file: TextIO, *, delimiter: str) -> None:
        self._name, self.line = name, 1
        first = file.readline()
        while first and not first.strip():
            self.line += 1
            first = file.readline()
        self.delimiter = delimiter or _delimiter_of(first)
        csv.field_size_limit(_LONGEST_CELL)
        lines = _chain(first, file)
        self._reader = csv.reader(lines, strict=True, skipinitialspace=True, delimiter=self.delimiter)
        self._before = self.line - 1

    def next(self) -> _Line | None:
        """Return the next row, which may go over several lines; None at the end."""
        place = f"{self._name}, line {self.line}"
        try:
            cells = next(self._reader, None)
        except csv.Error as error:
            raise InvalidArgumentError(place, _csv_problem(str(error))) from None
        self.line = self._before + self._reader.line_num + 1
        return None if cells is None else _Line(place, [cell.strip() for cell in cells])


def _chain(first: str, file: TextIO) -> Iterator[str]:
    if first:
        yield first
        yield from file


def _delimiter_of(header: str) -> str:
    """Return how a header is separated: by commas, unless it has none, but semicolons or tabs."""
    bare = _QUOTED.sub("", header)
    return next((one for one in (",", *_OTHER_DELIMITERS) if one in bare), ",")


def _csv_problem(message: str) -> str:
    if "unexpected end" in message or "expected after" in message:
        return 'a quote (") opens here and is not closed at the end of its cell, so that all that follows is unclear'
    return f"is no row of CSV: {message}"


@dataclass(frozen=True, slots=True)
class _Header:
    """The names of a file's columns, "" for one that has none, and what their cells are."""

    names: tuple[str, ...]
    kinds: tuple[type[Cell], ...]

    @classmethod
    def of(cls, path: Path, delimiter: str, header: _Line) -> _Header:
        """Check the names of a file's columns."""
        names = tuple(header.cells)
        problem = _header_problem(names, delimiter)
        if problem:
            raise InvalidArgumentError(header.place, problem)
        check_names(header.place, [name for name in names if name])
        pointed = find_point_columns(path, delimiter, len(names))
        return cls(names, tuple(PointCell if index in pointed else Cell for index in range(len(names))))

    def values(self, cells: Sequence[str]) -> Mapping[str, Any] | InvalidArgumentError:
        """Return the values of a row by column; what a first column without a name has was looked at before."""
        if len(cells) != len(self.names):
            hint = ": delete lines of comments" if cells[0].startswith("#") else ""
            problem = f"expected {len(self.names)} cells, as the header has, got {len(cells)}{hint}"
            return InvalidArgumentError("row", problem)
        if "" in self.names:
            for index, (name, cell) in enumerate(zip(self.names, cells, strict=True)):
                if index and cell and not name:
                    problem = f"has {cell!r:.60}, but no name in the header: name it there, or delete it"
                    return InvalidArgumentError(f"column {index + 1}", problem)
        return {
            name: _odd(kind, cell) if cell in _WORDS or cell[-2:] in _ENDS or "|" in cell or kind is PointCell else cell
            for name, kind, cell in zip(self.names, self.kinds, cells, strict=True)
            if name
        }


def _odd(kind: type[Cell], cell: str) -> str:
    return "" if cell in MISSING_MARKS else kind(cell)


def _header_problem(names: Sequence[str], delimiter: str) -> str:
    """Return why a line seems to be no header, and what to do; nothing if it may be one."""
    if names[0].lower().startswith("sep="):
        return f"the file begins with {names[0]!r}: delete that line"
    if names[0].startswith("#") and names[0] != "#":
        return "the file begins with '#': delete lines of comments, and '#' before the first name of a column"
    written = "".join(names)
    if "\0" in written:
        return "is no text in UTF-8: save it as UTF-8"
    for separator, shown in _OTHER_SEPARATORS.items():
        if separator != delimiter and written.count(separator) >= len(names):
            remedy = {"\t": "rename the file to .tsv", ",": "rename the file to .csv"}.get(separator)
            return f"cells seem to be separated by {shown}: {remedy or 'separate them by commas, and write .csv'}"
    return ""
