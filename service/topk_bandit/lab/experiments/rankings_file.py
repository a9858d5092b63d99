"""People's own rankings with features, from JSON Lines, CSV or Parquet.

One line is one item of one list, in any order of lines. The columns, by their names in the head of the file:

    list        id of the list (the question, the query): any text or number
    item        id of the item, no id twice in a list
    position    where the item was ranked in its list, a number: the smallest is the best; items with the same number
                are tied
    all others  features, finite numbers; the same columns for every item, so a question's features go into its items'
                (for the papers' vec(question answer'), write out the products)
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.domain.values import read_label, read_number
from topk_bandit.preferences.answers import Orderings
from topk_bandit.tables.files import read_rows
from topk_bandit.tables.row_numbers import check_no_row_numbers
from topk_bandit.tables.rows import require_value

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

__all__ = ["RankedLists", "load"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_KEYS = ("list", "item", "position")


@dataclass(frozen=True, slots=True, eq=False)
class RankedLists:
    """Lists of items that people ranked.

    Attributes
    ----------
    lists, items
        Ids: of the lists in the order of their first lines, and of the items of each row.
    feature_names
        Names of the d feature columns.
    features
        Shape (N, d): the rows of the first list, then those of the next; within a list best first.
    positions
        For each row within its list, shape (N,).
    rows
        Rows of each list.
    """

    lists: tuple[str, ...]
    items: tuple[str, ...]
    feature_names: tuple[str, ...]
    features: FloatArray
    positions: FloatArray
    rows: tuple[IntArray, ...]

    def orderings(self) -> Orderings:
        """Return what people answered: each list's ranking; of a list with ties, all pairs that are not tied."""
        rankings, pairs = [], []
        for rows in self.rows:
            positions = self.positions[rows]
            if (np.diff(positions) > 0.0).all():
                rankings.append(rows.tolist())
            else:
                pairs += [
                    (int(rows[a]), int(rows[b]))
                    for a, b in combinations(range(len(rows)), 2)
                    if positions[a] < positions[b]
                ]
        n_items = len(self.features)
        ranked = Orderings.from_rankings(rankings, n_items=n_items)
        return ranked.join(Orderings.from_pairs(np.array(pairs, dtype=np.int64), n_items=n_items))

    def of_one_length(self) -> IntArray:
        """Return the rows of lists that all have as many items, shape (L, K).

        Raises
        ------
        InvalidArgumentError
            Naming ``--data``: they have not.
        """
        length = len(self.rows[0])
        for name, rows in zip(self.lists, self.rows, strict=True):
            if len(rows) != length:
                problem = f"list {name!r} has {len(rows)} items and list {self.lists[0]!r} has {length}"
                raise InvalidArgumentError("--data", f"{problem}: this experiment needs lists of one length")
        return np.stack(self.rows)


def load(path: Path) -> RankedLists:
    """Read a file; the module says which columns it has.

    Raises
    ------
    ConfigurationError
        The file can't be read, or pyarrow is needed for it and not installed.
    InvalidArgumentError
        Naming ``--data``, the file, and the line and the column where there is one: a column is missing, comes twice,
        or only numbers the rows; a cell is no number, an item is twice in a list, or a list has one item.
    """
    try:
        columns: list[str] = []
        lines = list(_lines(path, columns))
        names = tuple(name for name in columns if name not in _KEYS)
        if columns[0] == names[0]:
            check_no_row_numbers(path, names[0], [line.features[0] for line in lines])
        return _make_lists(names, lines)
    except InvalidArgumentError as error:
        problem = error.problem if error.field == "FILE" else str(error)
        raise InvalidArgumentError("--data", problem) from None


class _Line(NamedTuple):
    """One item of one list."""

    place: str
    of: str
    item: str
    position: float
    features: list[float]


def _lines(path: Path, columns: list[str]) -> Iterator[_Line]:
    """Return the lines of a file, and note the names of its columns before the first."""
    for row in read_rows(path):
        values = row.whole()
        if not columns:
            columns += values
            _check_columns(row.named_at or row.place, columns)
        if other := sorted(set(columns) ^ values.keys()):
            raise InvalidArgumentError(f"{row.place}, column {other[0]!r}", "is in one row and not in another")
        yield _line(row.place, {name: values[name] for name in columns})


def _line(place: str, values: Mapping[str, Any]) -> _Line:
    def at(name: str) -> str:
        return f"{place}, column {name!r}"

    of, item = (require_value(at(name), values[name], read_label) for name in ("list", "item"))
    position, *features = (
        require_value(at(name), values[name], read_number)
        for name in ("position", *(name for name in values if name not in _KEYS))
    )
    return _Line(place, of, item, position, features)


def _check_columns(place: str, names: Sequence[str]) -> None:
    """Raise `InvalidArgumentError` if a column is missing."""
    for name in _KEYS:
        if name not in names:
            raise InvalidArgumentError(place, f"there is no column {name!r}; the columns are {', '.join(names):.300}")
    if len(names) == len(_KEYS):
        raise InvalidArgumentError(place, "there is no feature column beside list, item and position")


def _make_lists(names: tuple[str, ...], lines: Sequence[_Line]) -> RankedLists:
    features = np.array([line.features for line in lines])
    by_list: dict[str, list[int]] = {}
    for number, line in enumerate(lines):
        by_list.setdefault(line.of, []).append(number)
    order: list[int] = []
    rows: list[IntArray] = []
    for of_list in by_list.values():
        _check_list([lines[number] for number in of_list])
        rows.append(np.arange(len(order), len(order) + len(of_list), dtype=np.int64))
        order += sorted(of_list, key=lambda number: lines[number].position)
    positions = np.array([lines[number].position for number in order])
    items = tuple(lines[number].item for number in order)
    return RankedLists(tuple(by_list), items, names, features[order], positions, tuple(rows))


def _check_list(lines: Sequence[_Line]) -> None:
    seen = set[str]()
    for line in lines:
        if line.item in seen:
            problem = f"{line.item!r} comes twice in list {line.of!r}"
            raise InvalidArgumentError(f"{line.place}, column 'item'", problem)
        seen.add(line.item)
    if len(lines) < 2:
        raise InvalidArgumentError(lines[0].place, f"list {lines[0].of!r} has only one item")
