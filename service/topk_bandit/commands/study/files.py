"""The tables of a study: one row each, with a header that names the columns. Errors name the line of the file.

==============  ===============================================================================
items           ``item``, and a column of numbers for each feature; none: each item is its own
queries         ``query``, and a column of numbers for each feature
answers         as `topk-bandit study import` takes them; ``question`` is passed over, so that a file of questions can
                be filled in
questions       ``question``, ``query`` if there are queries, ``item_1``, ``item_2``, ...
lists           as questions or a design, without the first column if you like: each row a list to choose among
design          as questions, with ``weight``, the share of the questions, in place of ``question``
respondents     ``respondent``, ``answers``, ``careless``, the probability that these were given at random
preferences     ``query`` if there are queries, ``item``, ``utility``, ``standard_deviation``, ``rank``
==============  ===============================================================================
"""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from topk_bandit.client import AnswerKind, BestWorst, Declined, DeclineReason, Tiers
from topk_bandit.commands.imports.answers import read_study_number
from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.domain.nearest import find_nearest
from topk_bandit.domain.values import read_label
from topk_bandit.tables.files import read_rows
from topk_bandit.tables.row_numbers import check_no_row_numbers
from topk_bandit.tables.rows import read_value, require_value

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from topk_bandit.client import PastAnswer
    from topk_bandit.commands.imports.reading import Found
    from topk_bandit.commands.study.answer_files import AnswerFile
    from topk_bandit.domain.studies import Respondent
    from topk_bandit.preferences.utilities import Utilities

__all__ = [
    "Answered",
    "Described",
    "read_answers",
    "read_described",
    "read_lists",
    "write_lists",
    "write_preferences",
    "write_respondents",
]

_BESIDE_LISTS = frozenset({"query", "question", "weight"})
"""Columns of questions and designs, which are lists too."""

_ITEM_COLUMN = re.compile(r"item_[1-9][0-9]*", re.ASCII)


@dataclass(frozen=True, slots=True, eq=False)
class Described:
    """Items or queries: ids and features, shape (N, d)."""

    ids: tuple[str, ...]
    features: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Answered:
    """One answer: indices of its query (0 without queries) and of its items in tiers, best first.

    Ratings have one tier, with as many numbers. One that was declined has one tier, and the reason.
    """

    query: int
    tiers: tuple[tuple[int, ...], ...]
    ratings: tuple[float, ...] = ()
    declined: DeclineReason | None = None
    respondent: str = ""


def read_described(path: Path, *, kind: str) -> Described:
    """Return the items or queries of a file; without feature columns each has a feature of its own.

    Parameters
    ----------
    kind
        ``item`` or ``query``: what the column of ids is called.

    Raises
    ------
    InvalidArgumentError
        Naming the file, and the line and column where there is one: no rows, no column of ids, an id missing or there
        twice, a cell that is no finite number.
    ConfigurationError
        The file can't be read.
    """
    rows = dict[str, list[float]]()
    features: list[str] = []
    first = ""
    for row in read_rows(path):
        values = row.whole()
        if kind not in values:
            raise InvalidArgumentError(
                f"{row.named_at or row.place}, header",
                f"expected a column {kind!r}; got {', '.join(values):.300}: name it so",
            )
        if not rows:
            first, features = next(iter(values)), [name for name in values if name != kind]
            _check_capitals(f"{row.named_at or row.place}, header", values)
        if other := sorted(set(features) ^ (values.keys() - {kind})):
            raise InvalidArgumentError(f"{row.place}, column {other[0]!r}", "is in one row and not in another")
        identifier = require_value(f"{row.place}, column {kind!r}", values[kind], read_label)
        if identifier in rows:
            raise InvalidArgumentError(f"{row.place}, column {kind!r}", f"{identifier!r} is there twice")
        rows[identifier] = [
            require_value(f"{row.place}, column {name!r}", values[name], read_study_number) for name in features
        ]
    numbers = np.array(list(rows.values())) if features else np.eye(len(rows))
    if features and features[0] == first:
        check_no_row_numbers(path, first, numbers[:, 0].tolist())
    return Described(tuple(rows), numbers)


def _check_capitals(place: str, names: Iterable[str]) -> None:
    """Refuse two columns whose names differ in capitals alone: one is another spelling, not another feature."""
    known = dict[str, str]()
    for name in names:
        if (other := known.setdefault(name.strip().lower(), name)) != name:
            raise InvalidArgumentError(place, f"the columns {other!r} and {name!r} have one name")


def read_answers(
    file: AnswerFile, *, kind: AnswerKind, items: Described, queries: Described | None
) -> tuple[list[Answered], Found]:
    """Return the answers of a file, and what else there is in it.

    Raises
    ------
    InvalidArgumentError
        Naming the file and the line: an unknown item or query, an item twice, too few items or too many.
    ConfigurationError
        The file can't be read.
    """
    reading = file.reading(kind, size=2 if kind is AnswerKind.PAIR else len(items.ids))
    found = reading.look_through(skips=False)
    indices = _ItemIndices.of(items, queries)
    answers = [indices.find(row.place, reading.read(row)) for row in reading.rows()]
    return answers, found


def read_lists(
    path: Path, *, fewest: int, items: Described, queries: Described | None
) -> list[tuple[int, tuple[int, ...]]]:
    """Return the lists of a file, each with the index of its query (0 without queries) and those of its items.

    Parameters
    ----------
    fewest
        How many items a list has at least.

    Raises
    ------
    InvalidArgumentError
        Naming the file, and the line and column where there is one: no rows, too few columns of items, an unknown item
        or query, an item twice.
    ConfigurationError
        The file can't be read.
    """
    indices, lists = _ItemIndices.of(items, queries), list[tuple[int, tuple[int, ...]]]()
    columns: list[str] = []
    for row in read_rows(path):
        values = row.whole()
        there = {name for name in values if _ITEM_COLUMN.fullmatch(name)}
        if stranger := next((name for name in values if name not in there | _BESIDE_LISTS), None):
            known = "item_1, item_2, ..., and query, question or weight"
            raise InvalidArgumentError(
                f"{row.named_at or row.place}, header", f"column {stranger!r}: a file of lists has {known}"
            )
        columns = columns or [f"item_{number}" for number in range(1, max(len(there), fewest) + 1)]
        if there != set(columns):
            wanted = f"expected the columns {columns[0]} to {columns[-1]}, as all lists have as many items"
            raise InvalidArgumentError(
                f"{row.named_at or row.place}, header", f"{wanted}; got {', '.join(values):.300}"
            )
        lists.append(indices.find_list(row.place, values, columns))
    return lists


@dataclass(frozen=True, slots=True)
class _ItemIndices:
    """The indices of items and queries by their ids."""

    items: Mapping[str, int]
    queries: Mapping[str, int] | None

    @classmethod
    def of(cls, items: Described, queries: Described | None) -> _ItemIndices:
        """Return those of items and queries."""
        return cls(_index_by_id(items), None if queries is None else _index_by_id(queries))

    def find_list(self, place: str, cells: Mapping[str, object], columns: Sequence[str]) -> tuple[int, tuple[int, ...]]:
        """Return the query of a row of a file of lists, and the items in its columns."""
        query = self._query(place, read_value(f"{place}, column 'query'", cells.get("query"), read_label) or "")
        places = {name: f"{place}, column {name!r}" for name in columns}
        items = [self._item(at, require_value(at, cells.get(name), read_label)) for name, at in places.items()]
        if len(set(items)) < len(items):
            raise InvalidArgumentError(place, "has an item twice")
        return query, tuple(items)

    def find(self, place: str, answer: PastAnswer) -> Answered:
        """Return an answer by indices."""
        query, said, name = self._query(place, answer.query), answer.answer, answer.respondent
        if isinstance(said, dict):
            return Answered(query, (self._items(place, said),), tuple(said.values()), respondent=name)
        if isinstance(said, Declined):
            shown = (self._items(place, answer.shown),)
            return Answered(query, shown, declined=DeclineReason(said.reason), respondent=name)
        tiers = _tiers_of(said)
        named = {item for tier in tiers for item in tier}
        between = [item for item in answer.shown if item not in named]
        if between:
            tiers.insert(1 if isinstance(said, BestWorst) else len(tiers), between)
        return Answered(query, tuple(self._items(place, tier) for tier in tiers), respondent=name)

    def _items(self, place: str, items: Iterable[str]) -> tuple[int, ...]:
        return tuple(self._item(place, item) for item in items)

    def _item(self, place: str, item: str) -> int:
        if item not in self.items:
            nearest = find_nearest(item, self.items)
            hint = f": is it {nearest!r}?" if nearest else ": the file of items has no row of it"
            raise InvalidArgumentError(place, f"there is no item {item!r}{hint}")
        return self.items[item]

    def _query(self, place: str, query: str) -> int:
        if self.queries is None:
            if query:
                raise InvalidArgumentError(f"{place}, column 'query'", "needs a file of queries: --queries")
            return 0
        if query not in self.queries:
            problem = f"there is no query {query!r}" if query else "is missing, because there are queries"
            raise InvalidArgumentError(f"{place}, column 'query'", problem)
        return self.queries[query]


def _tiers_of(said: BestWorst | Tiers | str | Iterable[str]) -> list[Sequence[str]]:
    """Return the tiers that an answer names."""
    match said:
        case BestWorst(best, worst):
            return [[best], [worst]]
        case Tiers(tiers):
            return list(tiers)
        case str():
            return [[said]]
        case _:
            return [[item] for item in said]


def write_lists(
    path: Path,
    lists: Sequence[tuple[int, Sequence[int]]],
    *,
    first: tuple[str, Iterable[str]],
    items: Described,
    queries: Described | None,
) -> None:
    """Write lists: the index of the query, and those of the items; `first` is the first column, with its header."""
    longest = max((len(shown) for _, shown in lists), default=0)
    header = [first[0], *_query_header(queries), *(f"item_{number}" for number in range(1, longest + 1))]
    rows = (
        [cell, *_query_cell(queries, query), *(items.ids[item] for item in shown)]
        for cell, (query, shown) in zip(first[1], lists, strict=True)
    )
    _write(path, header, rows)


def write_respondents(path: Path, respondents: Sequence[Respondent]) -> None:
    """Write who answered, and how carefully."""
    rows = ([one.respondent, str(one.answered), f"{one.careless:.4g}"] for one in respondents)
    _write(path, ["respondent", "answers", "careless"], rows)


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


def _write(path: Path, header: list[str], rows: Iterable[list[str]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)


def _index_by_id(described: Described) -> dict[str, int]:
    return {identifier: index for index, identifier in enumerate(described.ids)}


def _query_header(queries: Described | None) -> list[str]:
    return [] if queries is None else ["query"]


def _query_cell(queries: Described | None, query: int) -> list[str]:
    return [] if queries is None else [queries.ids[query]]
