"""Rows of a file, one at a time: JSON Lines, CSV, Parquet and PrefLib, each as values by column and where it stands.

A row that can't be read stands for its error, so that it can be counted. A file that can't be understood as a whole is
refused. Nothing here knows what columns mean.
"""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from topk_bandit.commands.imports.parquet import read_parquet
from topk_bandit.commands.imports.points import find_point_columns
from topk_bandit.commands.imports.preflib import PREFLIB, read_preflib
from topk_bandit.commands.imports.row_numbers import RowNumbers
from topk_bandit.commands.imports.rows import FileRow, check_end, check_names
from topk_bandit.domain.errors import ConfigurationError, InvalidArgumentError
from topk_bandit.domain.json_text import JsonError, parse_json
from topk_bandit.domain.values import MISSING_MARKS, Cell, PointCell

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from pathlib import Path
    from typing import TextIO

__all__ = ["DECISION_LOG", "OBP", "digest_of", "read_rows"]

DECISION_LOG, OBP = "vw-dsjson", "obp"
"""The formats that no ending tells."""

_READ_AT_ONCE = 2**20
_OTHER_DELIMITERS = (";", "\t")
_PACKED = (b"\x1f\x8b", b"PK\x03\x04", b"BZh", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd")
"""How files of gzip, zip, bzip2, xz and zstd begin."""

_LONGEST_MARK = max(map(len, _PACKED))
_OTHER_ENDINGS = {
    **dict.fromkeys((".gz", ".zip", ".bz2", ".xz", ".zst", ".lz4", ".tgz", ".tar", ".7z", ".rar"), "unpack it first"),
    **dict.fromkeys((".xlsx", ".xlsm", ".xlsb", ".xls", ".ods", ".numbers"), "save it as CSV"),
    **dict.fromkeys((".ndjson", ".jl", ".jsonlines", ".json"), "with one object in each line rename it to .jsonl"),
    **dict.fromkeys((".txt", ".tab", ".dat"), "with tabs between its cells rename it to .tsv, else to .csv"),
    **dict.fromkeys((".pq", ".parq"), "rename it to .parquet"),
    **dict.fromkeys((".feather", ".arrow", ".ipc", ".orc", ".avro"), "save it as Parquet"),
    **dict.fromkeys(PREFLIB, "it has orders, which a study takes: topk-bandit study import"),
}
_RENAME = "rename it by what it has, such as .csv for a table with commas, or save it as CSV"
_QUOTED = re.compile(r'"[^"]*"')
_LONGEST_CELL = 2**31 - 1
"""A cell is as long as a text of JSON may be."""

_OTHER_SEPARATORS = {"|": "'|'", "\t": "tabs", ";": "';'", ",": "commas", "\x01": "'\\x01'"}
_WORDS = frozenset({*MISSING_MARKS, "True", "TRUE", "False", "FALSE"})
_ENDS = frozenset({".0", "00"})
"""Cells with these, and lists, say something else than the same text of JSON."""


def digest_of(path: Path, how: Sequence[str]) -> str:
    """Return what tells a file, read in this way, from others; `ConfigurationError` if it can't be read."""
    _check_no_folder(path)
    digest = blake2b("\n".join(sorted(how)).encode(), digest_size=16)
    try:
        with path.open("rb") as file:
            while part := file.read(_READ_AT_ONCE):
                digest.update(part)
    except OSError as error:
        raise ConfigurationError(f"{path} can't be read: {error.strerror}") from None
    return digest.hexdigest()


def read_rows(
    path: Path, *, json_lines: bool = False, orders: bool = False, ignored: Collection[str] = ()
) -> Iterator[FileRow]:
    """Return the rows of a file in the format that its ending names, or of JSON Lines whatever its name.

    Parameters
    ----------
    orders
        Whether it may also be a file of PrefLib.
    ignored
        Columns that need not be read.

    Raises
    ------
    ConfigurationError
        The file can't be read, or pyarrow is needed for it and not installed.
    InvalidArgumentError
        It has another ending, is packed, no text in UTF-8, no whole table, or no Parquet, or it has no rows.
    """
    readers = _TABLES | _ORDERS if orders else _TABLES
    _check_no_folder(path)
    read = _json_lines if json_lines else readers.get(path.suffix.lower())
    if path.suffix.lower() == _PARQUET and not json_lines:
        read = partial(read_parquet, ignored=ignored)
    if read is None:
        endings = ", ".join((*_TABLES, _PARQUET, *(_ORDERS if orders else ())))
        hint = _OTHER_ENDINGS.get(path.suffix.lower(), _RENAME)
        raise InvalidArgumentError("FILE", f"expected one that ends in {endings}; got {path.name!r}: {hint}")
    count = 0
    try:
        _check_unpacked(path)
        for row in read(path):
            count += 1
            yield row
    except OSError as error:
        raise ConfigurationError(f"{path} can't be read: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        place = f"{path.name}, line {_find_line(path)}"
        raise InvalidArgumentError(place, f"is no text in UTF-8: {error.reason}; save it as UTF-8") from None
    if not count:
        raise InvalidArgumentError(path.name, "has no rows")


def _check_no_folder(path: Path) -> None:
    if path.is_dir():
        parts = sorted(one.name for one in path.iterdir() if one.suffix.lower() in {*_TABLES, _PARQUET})
        named = f", such as {parts[0]}" if parts else ""
        raise InvalidArgumentError("FILE", f"{path} is a folder: name a file in it{named}, one after the other")


def _check_unpacked(path: Path) -> None:
    with path.open("rb") as file:
        if file.read(_LONGEST_MARK).startswith(_PACKED):
            raise InvalidArgumentError(path.name, "is packed: unpack it first")


def _find_line(path: Path) -> int:
    """Return the number of the first line that is no text in UTF-8."""
    number = 1
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):  # noqa: B007 - the last one, if the end of the file is at fault
            try:
                line.decode()
            except UnicodeDecodeError:
                break
    return number


def _json_lines(path: Path) -> Iterator[FileRow]:
    with path.open(encoding="utf-8-sig") as file:
        is_first = True
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            place = f"{path.name}, line {number}"
            if is_first and line.lstrip().startswith("["):
                raise InvalidArgumentError(place, "begins a list of JSON: write one object in each line, and no list")
            is_first = False
            yield FileRow(place, _object(line))


def _object(line: str) -> Mapping[str, Any] | InvalidArgumentError:
    try:
        found = parse_json(line, takes_nan=True)
    except JsonError as error:
        hint = ": write one object in each line" if "is no JSON:" in str(error) else ""
        return InvalidArgumentError("row", f"{error}{hint}")
    if isinstance(found, dict):
        return found
    kind = "a list" if isinstance(found, list) else "no JSON object"
    return InvalidArgumentError("row", f"is {kind}: write one object in each line")


def _tsv(path: Path) -> Iterator[FileRow]:
    return _csv(path, delimiter="\t")


def _csv(path: Path, *, delimiter: str = "") -> Iterator[FileRow]:
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


_TABLES: dict[str, Callable[[Path], Iterator[FileRow]]] = {
    ".jsonl": _json_lines,
    ".csv": _csv,
    ".tsv": _tsv,
}
_PARQUET = ".parquet"
_ORDERS: dict[str, Callable[[Path], Iterator[FileRow]]] = dict.fromkeys(PREFLIB, read_preflib)
