"""The values of a row by the names that they have for a person; errors name the column."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import repeat
from shlex import quote
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar

from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.domain.nearest import find_nearest
from topk_bandit.domain.values import is_missing, read_label, read_list, read_number, read_time
from topk_bandit.tables.rows import read_value, require_value

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from datetime import datetime

__all__ = ["Cells", "Named", "NearlyNamedError", "check_there"]

_Read = TypeVar("_Read")
_NUMBERED = re.compile(r"(item|item_value|context|rating)_([0-9]{1,9})")
_ALMOST_NUMBERED = re.compile(r"(item|item_value|context|rating)s?[^a-z0-9]*([0-9]{1,9})")
_SEVERAL = re.compile(r"(.+?)(?:(?:[._]|_duplicated_)[0-9]{1,9}|\[[0-9]{1,9}\])")
"""A list that has a column for each of its parts, where it should have one, or what programs call a second column."""

_PROPENSITIES = frozenset({"prob", "probability", "probabilities", "pscore", "propensity_score", "propensities"})
_TIMES = frozenset({"timestamp", "time_stamp", "datetime", "date_time", "event_time", "ts"})

_COUNTED = frozenset({"count", "counts", "frequency", "impressions", "n", "times", "votes", "weight", "weights"})
"""Whole names of columns that say how many a row stands for."""

_NEAR = 0.8


@lru_cache
def _numbered_names(part: str, size: int) -> tuple[str, ...]:
    return tuple(f"{part}_{number}" for number in range(1, size + 1))


class NearlyNamedError(InvalidArgumentError):
    """A column is named almost as one that is missing; whatever else is wrong follows from it."""


@dataclass(frozen=True, slots=True)
class Named:
    """What flags say of columns.

    Attributes
    ----------
    columns
        The column that has each name, where that is not the name itself.
    ignored
        Columns that are passed over.
    spreadsheet_dates
        Whether times are numbers of days, as spreadsheets have them.
    """

    columns: Mapping[str, str] = field(default_factory=dict)
    ignored: frozenset[str] = frozenset()
    spreadsheet_dates: bool = False

    @classmethod
    def of(cls, columns: Sequence[str], ignored: Sequence[str] = (), *, spreadsheet_dates: bool = False) -> Named:
        """Return what texts such as ``reward=margin`` say.

        Raises
        ------
        InvalidArgumentError
            One of them has another form, or a name or a column is there twice.
        """
        pairs = [text.partition("=") for text in columns]
        for name, _, column in pairs:
            if not (name and column):
                raise InvalidArgumentError("--column", "expected NAME=COLUMN, such as reward=margin")
        for words in ([name for name, _, _ in pairs], [column for _, _, column in pairs]):
            if twice := next((word for word in words if words.count(word) > 1), ""):
                raise InvalidArgumentError("--column", f"{twice!r} is there twice")
        return cls({name: column for name, _, column in pairs}, frozenset(ignored), spreadsheet_dates)


class _Layout(NamedTuple):
    """The names that mean something with their columns, and numbered columns beyond those that do, by their part."""

    names: tuple[tuple[str, str], ...]
    beyond: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cells:
    """Where a row has what.

    Attributes
    ----------
    flags
        What the flags say.
    known
        The names that mean something, with those that are numbered as far as they go.
    required
        Of these, sets of which a file has one name at least.
    has_flags
        Whether the command has flags for columns, so that errors may advise one.
    """

    has_flags: ClassVar[bool] = True

    flags: Named
    known: frozenset[str]
    required: tuple[frozenset[str], ...] = ()
    _layouts: dict[tuple[str, ...], _Layout] = field(default_factory=dict, repr=False, compare=False)

    def check_flags(self, where: str) -> None:
        """Raise `InvalidArgumentError` for a name of a flag that means nothing here."""
        for name in self.flags.columns:
            if name not in self.known:
                raise InvalidArgumentError("--column", f"{where} has no {name!r}{_meant(name, self.known)}")

    def columns_of(self, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the columns of a row."""
        return values

    def check_columns(self, columns: Collection[str]) -> list[str]:
        """Return the columns of a file that mean nothing.

        Raises
        ------
        InvalidArgumentError
            A column that a flag names is not there, or the file has nothing of what it must have.
        """
        check_there("--column", self.flags.columns.values(), columns)
        check_there("--ignore", sorted(self.flags.ignored), columns)
        names = {self._name_of(column): column for column in columns}
        strangers = [column for column in columns if self._name_of(column) is None]
        for wanted in self.required:
            if not any(name in wanted for name in names):
                expected = " or ".join(f"{name!r}" for name in sorted(wanted))
                problem = f"expected a column {expected}; got {', '.join(columns):.300}"
                instead = f", or say --column {min(wanted)}=COLUMN" if self.has_flags else ""
                remedy = f"name one so in the file{instead}"
                raise InvalidArgumentError("header", f"{problem}: {remedy}")
        return [column for column in strangers if column not in self.flags.ignored]

    @staticmethod
    def check_no_counts(strangers: Iterable[str], *, what: str, each: str) -> None:
        """Raise `InvalidArgumentError` for a column that means nothing, but seems to say how many a row stands for."""
        counts = next((name for name in strangers if name.lower() in _COUNTED), None)
        if counts is not None:
            problem = f"seems to say how many {what}, but each row is one {each}: repeat the row so often"
            raise InvalidArgumentError(f"column {counts!r}", f"{problem}, or pass it over: --ignore {quote(counts)}")

    def take(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return what a row has by the names that mean something, without what is missing.

        Raises
        ------
        InvalidArgumentError
            There is something in a numbered column beyond the last one that means something.
        """
        columns = tuple(values)
        layout = self._layouts.get(columns) or self._lay_out(columns)
        for part, column in layout.beyond:
            if not is_missing(values[column]):
                most = sum(match[1] == part for name in self.known if (match := _NUMBERED.fullmatch(name)))
                raise self.error(column, f"there are {most} at most, from {part}_1 on")
        return {name: value for name, column in layout.names if not is_missing(value := values[column])}

    def convert(self, name: str, value: Any, reader: Callable[[Any], _Read | None]) -> _Read | None:  # noqa: ANN401
        """Return a value of the column of a name, read by one of `domain.values`; None if it is missing."""
        return read_value(self._field(name), value, reader)

    def require(self, name: str, value: Any, reader: Callable[[Any], _Read | None]) -> _Read:  # noqa: ANN401
        """Return a value of the column of a name, which may not be missing."""
        return require_value(self._field(name), value, reader)

    def error(self, name: str, problem: str) -> InvalidArgumentError:
        """Return the error about the column of a name."""
        return InvalidArgumentError(self._field(name), problem)

    def _field(self, name: str) -> str:
        return f"column {self.flags.columns.get(name, name)!r}"

    def numbered(self, named: Mapping[str, Any], part: str, size: int) -> dict[int, Any]:
        """Return what a row has under numbered names, by their numbers from 1 on, without those that are missing."""
        return {number: named[name] for number, name in enumerate(_numbered_names(part, size), 1) if name in named}

    def parts(self, named: Mapping[str, Any], name: str, part: str, size: int) -> list[Any]:
        """Return a list under one name, or under several that are numbered, without a gap."""
        whole = self.convert(name, named[name], read_list) if name in named else None
        several = self.numbered(named, part, size)
        if whole is not None and several:
            raise self.error(name, f"says what {part}_{min(several)} says, too: leave one of them out")
        if whole is not None:
            if len(whole) > size:
                raise self.error(name, f"has {len(whole)} parts; there are {size} at most")
            return whole
        if several and max(several) > len(several):
            number = next(number for number in range(1, size) if number not in several)
            raise self.error(f"{part}_{number}", f"is missing, but {part}_{max(several)} is there")
        return list(several.values())

    def number(self, name: str, value: Any) -> float:  # noqa: ANN401, whatever a file has
        """Return a finite number, which may not be missing."""
        return self.require(name, value, read_number)

    def text(self, name: str, value: Any) -> str:  # noqa: ANN401, whatever a file has
        """Return a text, which may not be missing."""
        return self.require(name, value, read_label)

    def time(self, value: Any) -> datetime | None:  # noqa: ANN401, whatever a file has
        """Return a time in UTC; None if it is missing."""
        try:
            return read_time(value, of_spreadsheet=self.flags.spreadsheet_dates)
        except ValueError as error:
            hint = "; if it is a day of a spreadsheet, say --spreadsheet-dates" if _is_day(value) else ""
            raise self.error("time", f"{error}{hint}") from None

    def _lay_out(self, columns: tuple[str, ...]) -> _Layout:
        """Return where rows with these columns have what."""
        names = [(name, column) for column in columns if (name := self._name_of(column)) is not None]
        beyond = [
            (match[1], column)
            for column in columns
            if self._name_of(column) is None and (match := self._is_beyond(column)) is not None
        ]
        self._check_near(columns, {name for name, _ in names}, {column for _, column in beyond})
        layout = self._layouts[columns] = _Layout(tuple(names), tuple(beyond))
        return layout

    def _check_near(self, columns: Collection[str], named: set[str], beyond: set[str]) -> None:
        """Refuse a column that is named almost as one that is missing: it is a slip, and no stranger."""
        for column in columns:
            is_stranger = self._name_of(column) is None and column not in beyond
            if column in self.flags.ignored or not is_stranger:
                continue
            if meant := self._find_meant(column, named):
                instead = f", or pass it over: --ignore {quote(column)}" if self.has_flags else ""
                problem = f"means nothing; is it {meant!r}? Rename it{instead}"
                raise NearlyNamedError(f"column {column!r}", problem)

    def _find_meant(self, column: str, named: set[str]) -> str:
        """Return the name that a column seems to stand for; nothing where it seems to be a stranger."""
        if (numbered := _ALMOST_NUMBERED.fullmatch(column.lower())) and f"{numbered[1]}_1" in self.known:
            return f"{numbered[1]}_{int(numbered[2])}"
        if (several := _SEVERAL.fullmatch(column)) and several[1] in self.known:
            return several[1]
        own = (name for name in named if name not in self.flags.columns)
        if twice := next((name for name in own if name.lower() == column.strip().lower()), ""):
            return twice
        for words, name in ((_PROPENSITIES, "propensity"), (_TIMES, "time")):
            if column.lower() in words and name in self.known - named:
                return name
        return find_nearest(column, self.known - named, cutoff=_NEAR) or ""

    @staticmethod
    def names_of_parts(named: Mapping[str, Any], name: str, part: str, size: int) -> Iterable[str]:
        """Return the name under which each part of a list stands: that of the list, or its own if they are numbered."""
        return repeat(name, size) if name in named else _numbered_names(part, size)

    def has_column(self, values: Mapping[str, Any], name: str) -> bool:
        """Return whether a row has a column of a name, with something in it or not."""
        return self.flags.columns.get(name, name) in values

    def _is_beyond(self, column: str) -> re.Match[str] | None:
        """Return the part and the number of a column, if its number means nothing, but those before it do."""
        if column in self.flags.ignored or column in self.flags.columns:
            return None
        match = _NUMBERED.fullmatch(column)
        return match if match is not None and f"{match[1]}_1" in self.known else None

    def _name_of(self, column: str) -> str | None:
        """Return the name whose column this is; None for one that means nothing."""
        for name, named in self.flags.columns.items():
            if named == column:
                return name
        if column in self.flags.ignored or column in self.flags.columns:
            return None
        return column if column in self.known else None


def _is_day(value: Any) -> bool:  # noqa: ANN401, whatever a file has
    try:
        return read_time(value, of_spreadsheet=True) is not None
    except ValueError:
        return False


def check_there(flag: str, named: Iterable[str], columns: Collection[str]) -> None:
    """Raise `InvalidArgumentError` for a column that a flag names and a file does not have."""
    for column in named:
        if column not in columns:
            raise InvalidArgumentError(flag, f"the file has no column {column!r}{_meant(column, columns)}")


def _meant(name: str, names: Collection[str]) -> str:
    nearest = find_nearest(name, names, cutoff=_NEAR)
    return f": is it {nearest!r}?" if nearest else f"; it has {', '.join(sorted(names))}"[:300]
