"""What is understood of a file before anything of it is sent: its columns, the span of its times, its first rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from topk_bandit.client import BestWorst, Declined, Tiers
from topk_bandit.domain.features import Categorical, LabelSet
from topk_bandit.domain.values import MISSING_WORDS, is_missing, list_hint, shorten

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from topk_bandit.client import GivenAnswer, PastAnswer, PastObservation
    from topk_bandit.domain.errors import InvalidArgumentError
    from topk_bandit.domain.features import FeatureSchema

__all__ = ["ROWS_SHOWN", "Ages", "BadRows", "SeenColumns", "UnknownTexts", "first_answers_table", "first_rows_table"]

ROWS_SHOWN = 5
_ERRORS_SHOWN = 10
_LONGEST = 40
_LITTLE = 7.0
"""After so many half-lives a row counts for less than a hundredth."""

_SLACK = timedelta(days=1)
"""Clocks differ, and days have no hour: only what is later than this is in the future."""


@dataclass(slots=True)
class BadRows:
    """Rows that can't be taken: the first are named, and all are counted.

    Attributes
    ----------
    say
        Shows a line to a person.
    what
        Becomes of them.
    """

    say: Callable[[str], None]
    what: str
    count: int = 0

    def add(self, error: InvalidArgumentError) -> None:
        """Count one."""
        self.count += 1
        if self.count <= _ERRORS_SHOWN:
            self.say(f"{self.what}: {error}")
        elif self.count == _ERRORS_SHOWN + 1:
            self.say(f"{self.what}: more, which are only counted")


@dataclass(slots=True)
class Ages:
    """When the rows of a file were shown, and how many count for nothing.

    Attributes
    ----------
    half_life
        The bandit's; None for none.
    now
        When the file is read.
    """

    half_life: timedelta | None
    now: datetime = field(default_factory=lambda: datetime.now(UTC))
    first: datetime | None = None
    last: datetime | None = None
    undated: int = 0
    faded: int = 0
    future: int = 0

    def add(self, time: datetime | None) -> None:
        """Count a row."""
        if time is None:
            self.undated += 1
            return
        self.first, self.last = min(self.first or time, time), max(self.last or time, time)
        if self.half_life and self.now - time > _LITTLE * self.half_life:
            self.faded += 1
        self.future += time > self.now + _SLACK

    def say(self) -> Iterable[str]:
        """Yield what a person should know of them."""
        if self.first is not None and self.last is not None:
            undated = f"; {self.undated} rows have none, and count as of now" if self.undated else ""
            yield f"times from {self.first:%Y-%m-%d %H:%M} to {self.last:%Y-%m-%d %H:%M} UTC{undated}"
        if self.faded:
            yield f"{self.faded} rows are older than {_LITTLE:g} half-lives of the bandit: they count for nothing"
        if self.future:
            yield f"{self.future} rows have a time in the future: they count as of now"


@dataclass(slots=True)
class _Counted:
    """How many rows have something, and the first example."""

    rows: int
    example: str


class UnknownTexts:
    """Counts, for each feature of texts, rows with values that the bandit does not know, or that seem to be none.

    Parameters
    ----------
    schema
        For the bandit's contexts; None without one.
    """

    def __init__(self, schema: FeatureSchema | None) -> None:
        kinds = {one.name: one.kind for one in schema or () if isinstance(one.kind, Categorical)}
        self._declared = {name: frozenset(kind.values) for name, kind in kinds.items() if not kind.buckets}
        self._labels = [name for name, kind in kinds.items() if isinstance(kind, LabelSet)]
        self._texts = {name: frozenset(kind.values) for name, kind in kinds.items()}
        self._unknown = dict[str, _Counted]()
        self._words = dict[str, _Counted]()
        self._joined = dict[str, _Counted]()

    def add(self, features: Mapping[str, Any] | None) -> None:
        """Count a row."""
        known = features or {}
        for name, declared in self._declared.items():
            if name in known and (others := _texts_of(known[name]) - declared):
                _count(self._unknown, name, min(others))
        for name, declared in self._texts.items():
            value = known.get(name, ())
            for text in (value,) if isinstance(value, str) else value:
                if text.lower() in MISSING_WORDS and text not in declared:
                    _count(self._words, name, text)
        for name in self._labels:
            texts = _texts_of(known.get(name, ())) - self._declared.get(name, frozenset())
            if list_hint(list(texts)):
                _count(self._joined, name, min(texts))

    def say(self) -> Iterable[str]:
        """Yield what a person should know of them."""
        for name, one in self._unknown.items():
            shown = f"{one.rows} rows have what the bandit does not know, such as {shorten(one.example)}"
            yield f"feature {name!r}: {shown}"
        for name, one in self._words.items():
            shown = f"the text {shorten(one.example)} is there {one.rows} times, and taken as it is"
            yield f"feature {name!r}: {shown}: write nothing where a text is missing"
        for name, one in self._joined.items():
            shown = f"{one.rows} rows have one label that looks like several, such as {shorten(one.example)}"
            yield f"feature {name!r}: {shown}{list_hint([one.example])}"


def _texts_of(value: Any) -> frozenset[str]:  # noqa: ANN401, a text or several
    return frozenset([value] if isinstance(value, str) else value)


def _count(counted: dict[str, _Counted], name: str, example: str) -> None:
    counted.setdefault(name, _Counted(0, example)).rows += 1


@dataclass(slots=True)
class SeenColumns:
    """Of each column how often it is there, and its first value."""

    there: dict[str, int] = field(default_factory=dict)
    missing: dict[str, int] = field(default_factory=dict)
    example: dict[str, Any] = field(default_factory=dict)

    def add(self, values: Mapping[str, Any]) -> None:
        """Count a row."""
        for name, value in values.items():
            counted = self.missing if is_missing(value) else self.there
            counted[name] = counted.get(name, 0) + 1
            if counted is self.there:
                self.example.setdefault(name, value)

    def table(self, strangers: Sequence[str]) -> Table:
        """Return a table of them."""
        table = Table("column", "rows", "missing", "first value", "", title="What was understood")
        for name in dict.fromkeys([*self.there, *self.missing]):
            example = repr(self.example.get(name, ""))[:_LONGEST]
            note = "passed over" if name in strangers else ""
            _add_row(table, name, str(self.there.get(name, 0)), str(self.missing.get(name, 0)), example, note)
        return table


def first_rows_table(rows: Sequence[PastObservation]) -> Table:
    """Return the first rows as they will be learned."""
    table = Table("items", "reward", "time", "propensity", "context", title="The first rows as they will be learned")
    of_items = any(row.item_values for row in rows[:ROWS_SHOWN])
    if of_items:
        table.add_column("what the items did")
    for row in rows[:ROWS_SHOWN]:
        known = row.features if row.features is not None else row.context
        time = "" if row.time is None else f"{row.time:%Y-%m-%d %H:%M:%S}"
        propensity = "" if row.propensity is None else f"{row.propensity:g}"
        values = [", ".join(f"{item_id} {value:g}" for item_id, value in (row.item_values or {}).items())]
        cells = ", ".join(row.items), f"{row.reward:g}", time, propensity, str(known)
        _add_row(table, *cells, *(values if of_items else ()))
    return table


def first_answers_table(answers: Sequence[PastAnswer]) -> Table:
    """Return the first answers as they will be learned."""
    table = Table("query", "answer", "shown", title="The first answers as they will be learned")
    for one in answers[:ROWS_SHOWN]:
        _add_row(table, one.query, _describe(one.answer), ", ".join(one.shown))
    return table


def _describe(answer: GivenAnswer) -> str:
    match answer:
        case Tiers(tiers):
            return " > ".join(" = ".join(tier) for tier in tiers)
        case BestWorst(best, worst):
            return f"{best} > ... > {worst}"
        case Declined(reason):
            return str(reason)
        case list() | tuple():
            return ", ".join(answer)
        case _:
            return str(answer)


def _add_row(table: Table, *cells: str) -> None:
    """Add texts as they are: to the library ``[b]`` would be markup."""
    table.add_row(*map(Text, cells))
