"""Ratings in MovieLens's formats (https://grouplens.org/datasets/movielens).

One line is one rating: user, item, rating, time; the time is not needed. By the end of a file's name:

    .data   separated by tabs: u.data of MovieLens-100K
    .dat    separated by two colons: ratings.dat of MovieLens-1M and -10M
    .csv    separated by commas, under a header with userId, movieId and rating: ratings.csv of all others
    .zip    an archive with one of these files, as it was downloaded

A header may also name the columns user, item and rating, or user_id, item_id and rating, and have a type after a colon,
as in user_id:token. The first two kinds of files need none; their first three columns are then user, item and rating.
All lines have as many cells as the first, and the last one has an end.

A folder that one of them was unpacked to will do as well. Users and items are whole numbers, ratings are above zero,
and nobody rates an item twice.
"""

from __future__ import annotations

import io
import re
import warnings
import zlib
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import PurePath
from typing import TYPE_CHECKING, TextIO
from zipfile import BadZipFile, ZipFile

import numpy as np
from numpy.typing import NDArray

from topk_bandit.domain.errors import ConfigurationError, InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

__all__ = ["DAMAGED", "FILES", "RatingsTable", "check", "load"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

FILES = ("u.data", "ratings.dat", "ratings.csv")
_SEPARATORS = {".data": "\t", ".dat": "::", ".csv": ","}
_NAMES = {"\t": "tabs", "::": "two colons", ",": "commas"}
_HEADERS = (("userId", "movieId", "rating"), ("user", "item", "rating"), ("user_id", "item_id", "rating"))
_NUMBER = re.compile(
    r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*|\s*[+-]?(nan|inf(inity)?)\s*", re.IGNORECASE | re.ASCII
)
DAMAGED = (BadZipFile, EOFError, NotImplementedError, RuntimeError, zlib.error)
"""What is raised for an archive that is damaged, has a password, or is packed in a way that Python does not know."""

_LARGEST_ID = 2.0**53
"""Larger whole numbers are not distinct as floating-point numbers."""


@dataclass(frozen=True, slots=True, eq=False)
class RatingsTable:
    """Who rated what, and how.

    Attributes
    ----------
    users, items
        Ids, ascending, shapes (U,) and (M,).
    user_of, item_of
        Places in `users` and `items` of each rating, shape (N,).
    values
        The ratings, shape (N,).
    """

    users: IntArray
    items: IntArray
    user_of: IntArray
    item_of: IntArray
    values: FloatArray


def load(path: Path) -> RatingsTable:
    """Read a file, an archive or a folder; the module says which.

    Raises
    ------
    ConfigurationError
        It can't be read.
    InvalidArgumentError
        Naming ``--ratings``: a folder or an archive has not just one such file, a column is missing, there are no
        lines, or a line, by its number, is no rating.
    """
    with _readable(path) as (name, stream):
        return _read(name, stream)


def check(path: Path) -> None:
    """Look whether there is a file that can be opened, with the columns that are needed; errors as for `load`."""
    with _readable(path) as (name, stream):
        _Source.of(name, stream)


@contextmanager
def _readable(path: Path) -> Iterator[tuple[str, TextIO]]:
    """Open the one file with ratings, or raise an error that the user can read."""
    try:
        with _open_ratings(path) as opened:
            yield opened
    except OSError as error:
        raise ConfigurationError(f"{path} can't be read: {error.strerror or error}") from None
    except DAMAGED as error:
        raise InvalidArgumentError("--ratings", f"{path.name} is no archive that can be read: {error}") from None
    except UnicodeDecodeError as error:
        raise InvalidArgumentError("--ratings", f"{path.name} is no text in UTF-8: {error.reason}") from None


@contextmanager
def _open_ratings(path: Path) -> Iterator[tuple[str, TextIO]]:
    """Open the one file with ratings, and return what to call it in errors."""
    path.stat()  # raises for what is not there, whatever its ending
    if path.is_dir():
        path /= _only_one(path, (one.name for one in path.iterdir()))
    if path.suffix == ".zip":
        with ZipFile(path) as archive:
            member = _only_one(path, archive.namelist())
            with io.TextIOWrapper(archive.open(member), encoding="utf-8-sig") as stream:
                yield f"{path.name}, {member}", stream
    elif path.suffix in _SEPARATORS:
        with path.open(encoding="utf-8-sig") as stream:
            yield path.name, stream
    else:
        endings = ", ".join([*_SEPARATORS, ".zip"])
        raise InvalidArgumentError("--ratings", f"expected a folder or a file ending in {endings}, got {path.name!r}")


def _only_one(path: Path, names: Iterable[str]) -> str:
    found = [name for name in names if PurePath(name).name in FILES]
    if len(found) != 1:
        problem = f"expected one file called {', '.join(FILES[:-1])} or {FILES[-1]}"
        raise InvalidArgumentError("--ratings", f"{path.name}: {problem}, found {', '.join(found) or 'none'}")
    return found[0]


@dataclass(frozen=True, slots=True)
class _Source:
    """Lines, how they are separated, which of their columns are needed, and whether the first line is a header."""

    name: str
    stream: TextIO
    separator: str
    columns: tuple[int, ...]
    width: int
    headed: bool

    @classmethod
    def of(cls, name: str, stream: TextIO) -> _Source:
        separator = _SEPARATORS[PurePath(name).suffix]
        cells = [cell.strip() for cell in stream.readline().split(separator)]
        words = [cell.strip('"').partition(":")[0] for cell in cells]
        headers = [header for header in _HEADERS if set(header) <= set(words)]
        if headers:
            twice = next((word for word in words if words.count(word) > 1), "") or "".join(map(",".join, headers[1:]))
            if twice:
                raise InvalidArgumentError("--ratings", f"{name}, line 1: {twice} is there besides: keep one of them")
            return cls(name, stream, separator, tuple(map(words.index, headers[0])), len(words), headed=True)
        if separator == "," or (len(words) > 1 and not any(map(_NUMBER.fullmatch, cells))):
            column = next(column for column in _HEADERS[0] if column not in words)
            problem = f"line 1: there is no column {column}; the columns are {', '.join(words):.300}"
            raise InvalidArgumentError("--ratings", f"{name}, {problem}")
        stream.seek(0)
        return cls(name, stream, separator, (0, 1, 2), len(words), headed=False)

    def rows(self) -> FloatArray:
        """Return what is in the columns, shape (N, 3)."""
        delimiter, lines = "," if self.separator == "," else "\t", self._whole_lines()
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "loadtxt: input contained no data")
                rows = np.loadtxt(lines, delimiter=delimiter, usecols=self.columns, ndmin=2, comments=None)
        except ValueError:
            raise self._not_numbers() from None
        if not len(rows):
            raise InvalidArgumentError("--ratings", f"{self.name}: there are no ratings")
        return rows

    def _whole_lines(self) -> Iterator[str]:
        """Return the lines of rows with single separators; `ValueError` for one that is not whole."""
        many = len(self.separator) > 1
        for line in self.stream:
            if not line.endswith("\n") or (line.count(self.separator) != self.width - 1 and line.strip()):
                raise ValueError
            yield line.replace(self.separator, "\t") if many else line

    def wrong(self, row: int, problem: str) -> InvalidArgumentError:
        """Return an error that names the line of a row."""
        number, line = next(islice(self._lines(), row, None))
        return InvalidArgumentError("--ratings", f"{self.name}, line {number}: {problem}, got {line!r}")

    def _not_numbers(self) -> InvalidArgumentError:
        expected = f"expected three numbers separated by {_NAMES[self.separator]}"
        for row, (_, line) in enumerate(self._lines()):
            words = line.split(self.separator)
            if len(words) <= max(self.columns) or not all(_NUMBER.fullmatch(words[one]) for one in self.columns):
                return self.wrong(row, expected)
            if len(words) != self.width:
                return self.wrong(row, f"expected {self.width} cells, as line 1 has, and not {len(words)}")
        return InvalidArgumentError("--ratings", f"{self.name}: the last line has no end, so that the file may be cut")

    def _lines(self) -> Iterator[tuple[int, str]]:
        """Return all lines of rows, from the first, with their numbers."""
        self.stream.seek(0)
        numbered = enumerate((line.rstrip("\n") for line in self.stream), start=1)
        return ((number, line) for number, line in islice(numbered, int(self.headed), None) if line)


def _read(name: str, stream: TextIO) -> RatingsTable:
    source = _Source.of(name, stream)
    rows = source.rows()
    ids, values = rows[:, :2], rows[:, 2]
    # NaN is in no interval.
    for bad, problem in (
        (
            ~((ids >= 0.0) & (ids < _LARGEST_ID) & (ids == np.floor(ids))).all(axis=1),
            "expected ids that are whole numbers",
        ),
        (~((values > 0.0) & (values < np.inf)), "expected a rating above zero"),
    ):
        if bad.any():
            raise source.wrong(int(np.argmax(bad)), problem)
    users, user_of = np.unique(ids[:, 0].astype(np.int64), return_inverse=True)
    items, item_of = np.unique(ids[:, 1].astype(np.int64), return_inverse=True)
    first = np.unique(user_of * len(items) + item_of, return_index=True)[1]
    if len(first) < len(rows):
        again = np.setdiff1d(np.arange(len(rows)), first)[0]
        raise source.wrong(int(again), "this user has rated this item before")
    return RatingsTable(users, items, user_of, item_of, values)
