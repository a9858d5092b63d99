"""Rows of a file, one at a time: JSON Lines, CSV, Parquet and PrefLib, each as values by column and where it stands.

A row that can't be read stands for its error, so that it can be counted. A file that can't be understood as a whole is
refused. Nothing here knows what columns mean.
"""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from topk_bandit.commands.imports.preflib import PREFLIB, read_preflib
from topk_bandit.commands.imports.row_numbers import RowNumbers, without_row_numbers
from topk_bandit.commands.imports.rows import FileRow, check_end
from topk_bandit.domain.errors import ConfigurationError, InvalidArgumentError
from topk_bandit.domain.json_text import JsonError, parse_json
from topk_bandit.domain.optional import import_extra
from topk_bandit.domain.values import MISSING_MARKS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path
    from typing import TextIO

__all__ = ["DECISION_LOG", "OBP", "digest_of", "read_rows"]

DECISION_LOG, OBP = "vw-dsjson", "obp"
"""The formats that no ending tells."""

_READ_AT_ONCE = 2**20
_ROWS_AT_ONCE = 1000
_OTHER_DELIMITERS = (";", "\t")
_PACKED = (b"\x1f\x8b", b"PK\x03\x04", b"BZh", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd")
"""How files of gzip, zip, bzip2, xz and zstd begin."""

_LONGEST_MARK = max(map(len, _PACKED))
_OTHER_ENDINGS = {
    **dict.fromkeys((".gz", ".zip", ".bz2", ".xz", ".zst"), ": unpack it first"),
    **dict.fromkeys((".xlsx", ".xls", ".ods"), ": save it as CSV"),
    ".json": ": with one object in each line it is .jsonl",
}
_QUOTED = re.compile(r'"[^"]*"')


def digest_of(path: Path, how: Sequence[str]) -> str:
    """Return what tells a file, read in this way, from others; `ConfigurationError` if it can't be read."""
    digest = blake2b("\n".join(sorted(how)).encode(), digest_size=16)
    try:
        with path.open("rb") as file:
            while part := file.read(_READ_AT_ONCE):
                digest.update(part)
    except OSError as error:
        raise ConfigurationError(f"{path} can't be read: {error.strerror}") from None
    return digest.hexdigest()


def read_rows(path: Path, *, json_lines: bool = False, orders: bool = False) -> Iterator[FileRow]:
    """Return the rows of a file in the format that its ending names, or of JSON Lines whatever its name.

    Parameters
    ----------
    orders
        Whether it may also be a file of PrefLib.

    Raises
    ------
    ConfigurationError
        The file can't be read, or pyarrow is needed for it and not installed.
    InvalidArgumentError
        It has another ending, is packed, no text in UTF-8, no whole table, or no Parquet, or it has no rows.
    """
    readers = _TABLES | _ORDERS if orders else _TABLES
    read = _json_lines if json_lines else readers.get(path.suffix.lower())
    if read is None:
        hint = _OTHER_ENDINGS.get(path.suffix.lower(), "")
        raise InvalidArgumentError("FILE", f"expected one that ends in {', '.join(readers)}; got {path.name!r}{hint}")
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
        for number, line in enumerate(file, start=1):
            if line.strip():
                yield FileRow(f"{path.name}, line {number}", _object(line))


def _object(line: str) -> Mapping[str, Any] | InvalidArgumentError:
    try:
        found = parse_json(line, takes_nan=True)
    except JsonError as error:
        return InvalidArgumentError("row", str(error))
    if isinstance(found, list):
        return InvalidArgumentError("row", "is a list: write one object in each line")
    return found if isinstance(found, dict) else InvalidArgumentError("row", "is no JSON object")


def _tsv(path: Path) -> Iterator[FileRow]:
    return _csv(path, delimiter="\t")


def _csv(path: Path, *, delimiter: str = "") -> Iterator[FileRow]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = _Lines(path.name, file, delimiter=delimiter)
        header = rows.next()
        if header is None:
            raise InvalidArgumentError(path.name, "has no header row")
        columns, numbers = _Header.of(header.place, header.cells), RowNumbers()
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
    """The rows of a file of CSV, whose quotes are closed; its header says how cells are separated, if nothing else."""

    def __init__(self, name: str, file: TextIO, *, delimiter: str) -> None:
        self._name, self.line = name, 1
        first = file.readline()
        while first and not first.strip():
            self.line += 1
            first = file.readline()
        delimiter = delimiter or _delimiter_of(first)
        self._reader = csv.reader(_chain(first, file), strict=True, skipinitialspace=True, delimiter=delimiter)
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
    """The names of a file's columns, "" for one that has none."""

    names: tuple[str, ...]

    @classmethod
    def of(cls, place: str, names: Sequence[str]) -> _Header:
        """Check the names of a file's columns."""
        if names[0].lower().startswith("sep="):
            raise InvalidArgumentError(place, f"the file begins with {names[0]!r}: delete that line")
        _check_names(place, [name for name in names if name])
        return cls(tuple(names))

    def values(self, cells: Sequence[str]) -> Mapping[str, Any] | InvalidArgumentError:
        """Return the values of a row by column; what a first column without a name has was looked at before."""
        if len(cells) != len(self.names):
            problem = f"expected {len(self.names)} cells, as the header has, got {len(cells)}"
            return InvalidArgumentError("row", problem)
        for index, (name, cell) in enumerate(zip(self.names, cells, strict=True)):
            if index and cell and not name:
                return InvalidArgumentError(f"column {index + 1}", f"has {cell!r:.60}, but no name in the header")
        values = ["" if cell in MISSING_MARKS else cell for cell in cells]
        return {name: value for name, value in zip(self.names, values, strict=True) if name}


def _check_names(place: str, names: Sequence[str]) -> None:
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InvalidArgumentError(place, f"column {twice!r} comes twice")


def _parquet(path: Path) -> Iterator[FileRow]:
    parquet, lib = (import_extra(f"pyarrow.{name}", "reading Parquet") for name in ("parquet", "lib"))
    try:
        file = parquet.ParquetFile(path)
    except (lib.ArrowException, OSError) as error:
        raise InvalidArgumentError(path.name, f"is no whole Parquet file: {error}") from None
    _check_names(path.name, file.schema_arrow.names)
    number, counted = 0, dict[str, RowNumbers]()
    try:
        for batch in file.iter_batches(_ROWS_AT_ONCE):
            for values in _without_nanoseconds(batch, lib).to_pylist():
                number += 1
                place = f"{path.name}, row {number}"
                yield FileRow(place, without_row_numbers(place, values, counted))
    except (lib.ArrowException, OSError, OverflowError, ValueError) as error:
        raise InvalidArgumentError(path.name, f"can't be read after row {number}: {error}") from None


def _without_nanoseconds(batch: Any, lib: Any) -> Any:  # noqa: ANN401, pyarrow is imported only where it is needed
    """Return rows whose times are those that Python has: pandas writes finer ones."""
    for index, column in enumerate(batch.schema):
        if isinstance(column.type, lib.TimestampType) and column.type.unit == "ns":
            coarser = batch.column(index).cast(lib.timestamp("us", column.type.tz), safe=False)
            batch = batch.set_column(index, column.name, coarser)
    return batch


_TABLES: dict[str, Callable[[Path], Iterator[FileRow]]] = {
    ".jsonl": _json_lines,
    ".csv": _csv,
    ".tsv": _tsv,
    ".parquet": _parquet,
}
_ORDERS: dict[str, Callable[[Path], Iterator[FileRow]]] = dict.fromkeys(PREFLIB, read_preflib)
