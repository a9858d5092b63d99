"""A file as rows of one kind: looked through wholly before the first is used."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from topk_bandit.commands.imports.cells import NearlyNamedError
from topk_bandit.domain.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

    from topk_bandit.tables.rows import FileRow

__all__ = ["Found", "Reading", "RowReader"]

_Row = TypeVar("_Row")
_Row_co = TypeVar("_Row_co", covariant=True)


class RowReader(Protocol[_Row_co]):
    """What the columns of a file mean."""

    def columns_of(self, values: Mapping[str, Any]) -> Iterable[str]:
        """Return the names in a row that may mean something."""
        ...

    def check_columns(self, columns: Collection[str]) -> list[str]:
        """Return the columns that mean nothing; raise `InvalidArgumentError` for what is wrong with them."""
        ...

    def read_row(self, values: Mapping[str, Any]) -> _Row_co:
        """Return what a row says, or raise `InvalidArgumentError` naming the column."""
        ...


@dataclass(frozen=True, slots=True)
class Found:
    """What there is in a file.

    Attributes
    ----------
    count, wrong
        How many rows there are that say something, and how many of them can't be read.
    silent
        How many rows say nothing.
    strangers
        The columns that mean nothing.
    """

    count: int
    wrong: int
    silent: int
    strangers: tuple[str, ...]

    def is_refused(self, *, skips: bool) -> bool:
        """Return whether the file is refused: for a bad row, or where those are left out, because all are bad."""
        return self.wrong > 0 and (not skips or self.wrong == self.count)

    def remarks(self, whom: str) -> Iterator[str]:
        """Yield what a person should know of what is passed over, because it means nothing to somebody."""
        if self.strangers:
            yield f"columns that mean nothing to {whom}: {', '.join(self.strangers)}"
        if self.silent:
            yield f"{self.silent} rows say nothing, because they order one item: they are left out"


@dataclass(frozen=True, slots=True)
class Reading(Generic[_Row]):
    """How a file is read.

    Attributes
    ----------
    name
        The file's.
    open_rows
        Returns its rows from the first on, with those that say nothing.
    reader
        Says what they mean.
    """

    name: str
    open_rows: Callable[[], Iterator[FileRow]]
    reader: RowReader[_Row]

    def rows(self) -> Iterator[FileRow]:
        """Return the rows that say something."""
        return (row for row in self.open_rows() if not row.is_silent)

    def look_through(
        self,
        *,
        skips: bool,
        watch: Callable[[Mapping[str, Any], _Row], None] | None = None,
        report: Callable[[InvalidArgumentError], None] | None = None,
    ) -> Found:
        """Return what there is.

        Parameters
        ----------
        skips
            Whether rows that can't be read are left out, as long as there is another.
        watch
            Is given the values of each row that can be read, and what they say.
        report
            Is given what is wrong with each other row, instead of having the first refuse the file.

        Raises
        ------
        InvalidArgumentError
            The file is wrong as a whole, all rows are, or a row is and is not left out.
        """
        count, wrong, silent, columns, named_at = 0, 0, 0, dict[str, None](), self.name
        first: InvalidArgumentError | None = None
        for row in self.open_rows():
            if row.is_silent:
                silent += 1
                continue
            count, named_at = count + 1, row.named_at or self.name
            read, is_first = self._read_or_error(row), not columns
            columns.update(dict.fromkeys(self._columns_of(row)))
            if is_first and columns and row.named_at and not row.own:
                # Before the row is reported: what is wrong with a header is no row's fault.
                self._check(named_at, list(columns), read if isinstance(read, NearlyNamedError) else None)
            if isinstance(read, InvalidArgumentError):
                wrong, first = wrong + 1, first or read
                if report is not None:
                    report(read)
            elif watch is not None and not isinstance(row.values, InvalidArgumentError):
                watch(row.values, read)
        slip = first if isinstance(first, NearlyNamedError) and not skips else None
        strangers = self._check(named_at, list(columns), slip) if columns else []
        found = Found(count, wrong, silent, tuple(strangers))
        if first is not None and report is None and found.is_refused(skips=skips):
            raise first
        return found

    def read(self, row: FileRow) -> _Row:
        """Return what a row says, or raise `InvalidArgumentError` that begins with its place."""
        try:
            if isinstance(row.values, InvalidArgumentError):
                raise row.values
            return self.reader.read_row(row.values)
        except InvalidArgumentError as error:
            place = row.named_at or row.place if isinstance(error, NearlyNamedError) else row.place
            raise type(error)(f"{place}, {row.own.get(error.field, error.field)}", error.problem) from None

    def _read_or_error(self, row: FileRow) -> _Row | InvalidArgumentError:
        try:
            return self.read(row)
        except InvalidArgumentError as error:
            return error

    def _columns_of(self, row: FileRow) -> Iterable[str]:
        """Return the names in a row; none where they can't be read, which `read` refuses with the row's place."""
        if isinstance(row.values, InvalidArgumentError):
            return ()
        try:
            return self.reader.columns_of(row.values)
        except InvalidArgumentError:
            return ()

    def _check(self, named_at: str, columns: Collection[str], slip: NearlyNamedError | None) -> list[str]:
        """Return the columns that mean nothing, unless one of them is a slip: what a flag names goes before that."""
        try:
            strangers = self.reader.check_columns(columns)
        except InvalidArgumentError as error:
            if error.field.startswith("--"):
                raise
            raise slip or InvalidArgumentError(f"{named_at}, {error.field}", error.problem) from None
        if slip is not None:
            raise slip
        return strangers
