"""Logged feedback of the Open Bandit Pipeline as rows of slates: of one item each, or of the positions of a slate.

https://zr-obp.readthedocs.io: a row is one position of what was shown. The Open Bandit Dataset has ``item_id``,
``click`` and ``propensity_score``; tables of its simulations have ``action``, ``reward`` and ``pscore``, and with
``slate_id`` the rows of one slate, each with the joint probability of it.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any

from topk_bandit.commands.imports.rows import FileRow
from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.domain.values import read_number

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = ["slates_of_feedback"]

_NAMES = {
    "item": ("item_id", "action"),
    "reward": ("click", "reward"),
    "propensity": ("propensity_score", "action_prob", "pscore"),
    "time": ("timestamp",),
}
_SLATE, _POSITION = "slate_id", "position"


def slates_of_feedback(rows: Iterator[FileRow], *, slate_size: int) -> Iterator[FileRow]:
    """Return rows of slates; those of one ``slate_id`` are one slate, whose reward is the sum of its positions'.

    Parameters
    ----------
    slate_size
        Of the bandit; slates of one need no ``slate_id``.
    """
    if slate_size == 1:
        yield from (FileRow(row.place, _single(row.values)) for row in rows)
        return
    for _, several in groupby(rows, key=_slate_of):
        group = list(several)
        yield FileRow(group[0].place, _slate(group))


def _slate_of(row: FileRow) -> object:
    return id(row) if isinstance(row.values, InvalidArgumentError) else row.values.get(_SLATE, id(row))


def _single(values: Mapping[str, Any] | InvalidArgumentError) -> Mapping[str, Any] | InvalidArgumentError:
    if isinstance(values, InvalidArgumentError):
        return values
    try:
        found = {name: _only(values, columns) for name, columns in _NAMES.items()}
    except InvalidArgumentError as error:
        return error
    return {**_others(values), "item_1": found.pop("item"), **found}


def _slate(rows: Sequence[FileRow]) -> Mapping[str, Any] | InvalidArgumentError:
    values = [row.values for row in rows if not isinstance(row.values, InvalidArgumentError)]
    if len(values) < len(rows):
        return next(row.values for row in rows if isinstance(row.values, InvalidArgumentError))
    try:
        shown = _in_order(values)
        found = {name: _only(shown[0], columns) for name, columns in _NAMES.items()}
        items = {f"item_{place}": _only(one, _NAMES["item"]) for place, one in enumerate(shown, start=1)}
        reward = sum(_number(one, _present(one, _NAMES["reward"])) for one in shown)
    except InvalidArgumentError as error:
        return error
    return {**_others(shown[0]), **items, "reward": reward, "propensity": found["propensity"], "time": found["time"]}


def _in_order(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the rows of a slate in the order of their positions."""
    if rows[0].get(_SLATE) is None:
        raise InvalidArgumentError(f"column {_SLATE!r}", "is missing: rows are slates of one without it")
    positions = {_number(row, _POSITION): row for row in rows}
    if len(positions) < len(rows):
        raise InvalidArgumentError(f"column {_POSITION!r}", "is the same twice in one slate")
    return [positions[position] for position in sorted(positions)]


def _others(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of columns that may be features."""
    known = {_SLATE, _POSITION, *(name for names in _NAMES.values() for name in names)}
    return {name: value for name, value in values.items() if name not in known}


def _present(values: Mapping[str, Any], columns: Sequence[str]) -> str:
    there = [name for name in columns if name in values]
    if len(there) > 1:
        raise InvalidArgumentError(f"column {there[1]!r}", f"says what {there[0]!r} says, too: leave one of them out")
    return there[0] if there else columns[0]


def _only(values: Mapping[str, Any], columns: Sequence[str]) -> Any:  # noqa: ANN401, whatever a file has
    return values.get(_present(values, columns))


def _number(values: Mapping[str, Any], column: str) -> float:
    try:
        number = read_number(values.get(column))
    except ValueError as error:
        raise InvalidArgumentError(f"column {column!r}", str(error)) from None
    if number is None:
        raise InvalidArgumentError(f"column {column!r}", "is missing")
    return number
