"""People's own rankings with features, from CSV or Parquet.

One line is one item of one list, in any order of lines. The columns, by their names in the head of the file:

    list        id of the list (the question, the query): any text or number
    item        id of the item, no id twice in a list
    position    where the item was ranked in its list, a number: the smallest is the best; items with the same number
                are tied
    all others  features, finite numbers; the same columns for every item, so a question's features go into its items'
                (for the papers' vec(question answer'), write out the products)
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from topk_bandit.domain.errors import ConfigurationError, InvalidArgumentError
from topk_bandit.domain.optional import import_extra
from topk_bandit.preferences.answers import Orderings

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
    """Read a file whose name ends in .csv or .parquet; the module says which columns it has.

    Raises
    ------
    ConfigurationError
        The file can't be read, or pyarrow is needed for it and not installed.
    InvalidArgumentError
        Naming ``--data``: a column is missing or comes twice; or a line, by its number, holds in some column what it
        must not: no number, an item twice in a list, or a list of one item.
    """
    readers = {".csv": _csv, ".parquet": _parquet}
    if path.suffix not in readers:
        raise InvalidArgumentError("--data", f"expected a file ending in .csv or .parquet, got {path.name!r}")
    try:
        columns, first_line = readers[path.suffix](path)
    except OSError as error:
        raise ConfigurationError(f"{path} can't be read: {error.strerror or error}") from None
    return _make_lists(columns, first_line)


def _csv(path: Path) -> tuple[dict[str, Sequence[object]], int]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            names, *lines = list(csv.reader(file)) or [[]]
    except (UnicodeDecodeError, csv.Error) as error:
        raise InvalidArgumentError("--data", f"{path.name} is no CSV in UTF-8: {error}") from None
    lines = [line for line in lines if line]
    for number, line in enumerate(lines, start=2):
        if len(line) != len(names):
            raise InvalidArgumentError("--data", f"line {number}: expected {len(names)} columns, got {len(line)}")
    _check_names(names)
    return dict(zip(names, zip(*lines, strict=True) if lines else [()] * len(names), strict=True)), 2


def _parquet(path: Path) -> tuple[dict[str, Sequence[object]], int]:
    parquet = import_extra("pyarrow.parquet", "reading Parquet")
    lib = import_extra("pyarrow.lib", "reading Parquet")
    try:
        table = parquet.read_table(path)
    except lib.ArrowInvalid as error:
        raise InvalidArgumentError("--data", f"{path.name} is no Parquet file: {error}") from None
    _check_names(table.column_names)
    return {name: table.column(name).to_pylist() for name in table.column_names}, 1


def _check_names(names: Sequence[str]) -> None:
    for name in _KEYS:
        if name not in names:
            raise InvalidArgumentError("--data", f"there is no column {name!r}; the columns are {', '.join(names)}")
    for name in names:
        if names.count(name) > 1:
            raise InvalidArgumentError("--data", f"column {name!r} comes twice")
    if len(names) == len(_KEYS):
        raise InvalidArgumentError("--data", "there is no feature column beside list, item and position")


def _make_lists(columns: Mapping[str, Sequence[object]], first_line: int) -> RankedLists:
    names = tuple(name for name in columns if name not in _KEYS)
    if not len(columns["list"]):
        raise InvalidArgumentError("--data", "there are no lines")
    lists, items = _texts(columns, "list", first_line), _texts(columns, "item", first_line)
    positions = _numbers(columns, "position", first_line)
    features = np.stack([_numbers(columns, name, first_line) for name in names], axis=1)
    order: list[int] = []
    rows: list[IntArray] = []
    for name, lines in _by_list(lists).items():
        _check_list(name, lines, items, first_line)
        rows.append(np.arange(len(order), len(order) + len(lines), dtype=np.int64))
        order += sorted(lines, key=lambda line: positions[line])
    ids = tuple(dict.fromkeys(lists))
    return RankedLists(ids, tuple(items[line] for line in order), names, features[order], positions[order], tuple(rows))


def _by_list(lists: Sequence[str]) -> dict[str, list[int]]:
    lines: dict[str, list[int]] = {}
    for line, name in enumerate(lists):
        lines.setdefault(name, []).append(line)
    return lines


def _check_list(name: str, lines: Sequence[int], items: Sequence[str], first_line: int) -> None:
    seen: dict[str, int] = {}
    for line in lines:
        if items[line] in seen:
            where = f"line {line + first_line}, column 'item'"
            raise InvalidArgumentError("--data", f"{where}: {items[line]!r} comes twice in list {name!r}")
        seen[items[line]] = line
    if len(lines) < 2:
        raise InvalidArgumentError("--data", f"line {lines[0] + first_line}: list {name!r} has only one item")


def _texts(columns: Mapping[str, Sequence[object]], name: str, first_line: int) -> list[str]:
    texts = []
    for line, value in _lines(columns, name, first_line):
        if value is None or not str(value):
            raise InvalidArgumentError("--data", f"line {line}, column {name!r}: it is empty")
        texts.append(str(value))
    return texts


def _numbers(columns: Mapping[str, Sequence[object]], name: str, first_line: int) -> FloatArray:
    values = columns[name]
    try:
        numbers = np.array([float(value) for value in values])  # type: ignore[arg-type]
    except (TypeError, ValueError):
        numbers = np.full(len(values), np.nan)
    if not np.isfinite(numbers).all():
        line, value = next(one for one in _lines(columns, name, first_line) if not _is_finite(one[1]))
        raise InvalidArgumentError("--data", f"line {line}, column {name!r}: expected a finite number, got {value!r}")
    return numbers


def _lines(columns: Mapping[str, Sequence[object]], name: str, first_line: int) -> Iterator[tuple[int, object]]:
    return enumerate(columns[name], start=first_line)


def _is_finite(value: object) -> bool:
    try:
        return bool(np.isfinite(float(value)))  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return False
