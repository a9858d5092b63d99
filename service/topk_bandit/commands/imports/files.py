"""Rows of a file, one at a time: JSON Lines, CSV and Parquet, each row as values by column, and where it stands.

A row that can't be read stands for its error, so that it can be counted. Nothing here knows what columns mean.
"""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from topk_bandit.domain.errors import ConfigurationError, InvalidArgumentError
from topk_bandit.domain.optional import import_extra

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

__all__ = ["DECISION_LOG", "FileRow", "digest_of", "read_rows"]

DECISION_LOG = "vw-dsjson"
"""The one format that no ending tells."""

_READ_AT_ONCE = 2**20
_ROWS_AT_ONCE = 1000


@dataclass(frozen=True, slots=True)
class FileRow:
    """A row: where it stands, and its values by column or what is wrong with it as a whole."""

    place: str
    values: Mapping[str, Any] | InvalidArgumentError


def digest_of(path: Path, columns: Sequence[str]) -> str:
    """Return what tells a file, read with these columns, from others; `ConfigurationError` if it can't be read."""
    digest = blake2b("\n".join(sorted(columns)).encode(), digest_size=16)
    try:
        with path.open("rb") as file:
            while part := file.read(_READ_AT_ONCE):
                digest.update(part)
    except OSError as error:
        raise ConfigurationError(f"{path} can't be read: {error.strerror}") from None
    return digest.hexdigest()


def read_rows(path: Path, *, json_lines: bool = False) -> Iterator[FileRow]:
    """Return the rows of a file whose name ends in .jsonl, .csv or .parquet, or of JSON Lines whatever its name.

    Raises
    ------
    ConfigurationError
        The file can't be read, or pyarrow is needed for it and not installed.
    InvalidArgumentError
        It has another ending, is no text in UTF-8, or no Parquet.
    """
    read = _json_lines if json_lines else _READERS.get(path.suffix)
    if read is None:
        raise InvalidArgumentError("FILE", f"expected one ending in .jsonl, .csv or .parquet, got {path.name!r}")
    try:
        yield from read(path)
    except OSError as error:
        raise ConfigurationError(f"{path} can't be read: {error.strerror or error}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise InvalidArgumentError("FILE", f"{path.name} is no text in UTF-8: {error}") from None


def _json_lines(path: Path) -> Iterator[FileRow]:
    with path.open(encoding="utf-8-sig") as file:
        for number, line in enumerate(file, start=1):
            if line.strip():
                yield FileRow(f"{path.name}, line {number}", _object(line))


def _object(line: str) -> Mapping[str, Any] | InvalidArgumentError:
    try:
        found = json.loads(line)
    except ValueError as error:
        return InvalidArgumentError("row", f"is no JSON: {error}")
    except RecursionError:
        return InvalidArgumentError("row", "is JSON inside JSON, too deep to be read")
    return found if isinstance(found, dict) else InvalidArgumentError("row", "is no JSON object")


def _csv(path: Path) -> Iterator[FileRow]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file)
        names = next(reader, [])
        for name in names:
            if names.count(name) > 1:
                raise InvalidArgumentError("FILE", f"column {name!r} comes twice")
        line = reader.line_num + 1
        for cells in reader:
            if any(cell.strip() for cell in cells):
                yield FileRow(f"{path.name}, line {line}", _cells(names, cells))
            line = reader.line_num + 1


def _cells(names: Sequence[str], cells: Sequence[str]) -> Mapping[str, Any] | InvalidArgumentError:
    if len(cells) != len(names):
        return InvalidArgumentError("row", f"expected {len(names)} columns, got {len(cells)}")
    return {name: cell.strip() for name, cell in zip(names, cells, strict=True)}


def _parquet(path: Path) -> Iterator[FileRow]:
    parquet, lib = (import_extra(f"pyarrow.{name}", "reading Parquet") for name in ("parquet", "lib"))
    try:
        file = parquet.ParquetFile(path)
    except lib.ArrowInvalid as error:
        raise InvalidArgumentError("FILE", f"{path.name} is no Parquet file: {error}") from None
    number = 0
    try:
        for batch in file.iter_batches(_ROWS_AT_ONCE):
            for values in _without_nanoseconds(batch, lib).to_pylist():
                number += 1
                yield FileRow(f"{path.name}, row {number}", values)
    except (lib.ArrowInvalid, OverflowError) as error:
        raise InvalidArgumentError("FILE", f"{path.name} can't be read after row {number}: {error}") from None


def _without_nanoseconds(batch: Any, lib: Any) -> Any:  # noqa: ANN401, pyarrow is imported only where it is needed
    """Return rows whose times are those that Python has: pandas writes finer ones."""
    for place, column in enumerate(batch.schema):
        if isinstance(column.type, lib.TimestampType) and column.type.unit == "ns":
            coarser = batch.column(place).cast(lib.timestamp("us", column.type.tz), safe=False)
            batch = batch.set_column(place, column.name, coarser)
    return batch


_READERS: Mapping[str, Callable[[Path], Iterator[FileRow]]] = {
    ".jsonl": _json_lines,
    ".csv": _csv,
    ".parquet": _parquet,
}
