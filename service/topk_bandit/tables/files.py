"""Rows of a file, one at a time: JSON Lines, CSV, Parquet and PrefLib, each as values by column and where it stands.

A row that can't be read stands for its error, so that it can be counted. A file that can't be understood as a whole is
refused. Nothing here knows what columns mean.
"""

from __future__ import annotations

from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from topk_bandit.domain.errors import ConfigurationError, InvalidArgumentError
from topk_bandit.domain.json_text import JsonError, parse_json
from topk_bandit.tables.delimited import read_csv
from topk_bandit.tables.parquet import read_parquet
from topk_bandit.tables.preflib import PREFLIB, read_preflib
from topk_bandit.tables.rows import FileRow

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from pathlib import Path

__all__ = ["DECISION_LOG", "OBP", "PARQUET", "check_reads_twice", "digest_of", "read_json_lines", "read_rows"]

DECISION_LOG, OBP = "vw-dsjson", "obp"
"""The formats that no ending tells."""

PARQUET = ".parquet"

_READ_AT_ONCE = 2**20
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


def check_reads_twice(path: Path) -> None:
    """Raise `ConfigurationError` for a pipe or a device: what is there once is gone when it is read again."""
    if path.exists() and not path.is_file() and not path.is_dir():
        raise ConfigurationError(f"{path} is a pipe or a device, and is read more than once: save it as a file first")


def digest_of(path: Path, how: Sequence[str]) -> str:
    """Return what tells a file, read in this way, from others; `ConfigurationError` if it can't be read."""
    _check_file(path)
    digest = blake2b("\n".join(sorted(how)).encode(), digest_size=16)
    try:
        with path.open("rb") as file:
            while part := file.read(_READ_AT_ONCE):
                digest.update(part)
    except OSError as error:
        raise ConfigurationError(f"{path} can't be read: {error.strerror}") from None
    return digest.hexdigest()


def read_rows(
    path: Path,
    *,
    read: Callable[[Path], Iterator[FileRow]] | None = None,
    orders: bool = False,
    ignored: Collection[str] = (),
) -> Iterator[FileRow]:
    """Return the rows of a file in the format that its ending names.

    Parameters
    ----------
    read
        Reads it instead, whatever its ending.
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
    _check_file(path)
    read, count = read or _reader_of(path, orders=orders, ignored=ignored), 0
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


def _reader_of(path: Path, *, orders: bool, ignored: Collection[str]) -> Callable[[Path], Iterator[FileRow]]:
    """Return what reads a file by its ending, or raise `InvalidArgumentError` where nothing does."""
    readers = _TABLES | {PARQUET: partial(read_parquet, ignored=ignored)} | (_ORDERS if orders else {})
    if path.suffix.lower() in readers:
        return readers[path.suffix.lower()]
    hint = _OTHER_ENDINGS.get(path.suffix.lower(), _RENAME)
    raise InvalidArgumentError("FILE", f"expected one that ends in {', '.join(readers)}; got {path.name!r}: {hint}")


def _check_file(path: Path) -> None:
    check_reads_twice(path)
    if path.is_dir():
        parts = sorted(one.name for one in path.iterdir() if one.suffix.lower() in {*_TABLES, PARQUET})
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


def read_json_lines(path: Path) -> Iterator[FileRow]:
    """Return the rows of a file of JSON Lines."""
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


_TABLES: dict[str, Callable[[Path], Iterator[FileRow]]] = {
    ".jsonl": read_json_lines,
    ".csv": read_csv,
    ".tsv": partial(read_csv, delimiter="\t"),
}
_ORDERS: dict[str, Callable[[Path], Iterator[FileRow]]] = dict.fromkeys(PREFLIB, read_preflib)
