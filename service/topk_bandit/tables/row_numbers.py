"""Columns with the numbers of rows: without a name one is left out, and under a name it is refused."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.domain.values import is_missing, shorten

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path
    from typing import Any

__all__ = ["RowNumbers", "check_no_row_numbers", "without_row_numbers"]

_INDEX = re.compile(r"__index_level_[0-9]+__|\s*")
"""Where pandas keeps the numbers of rows, and what has no name."""

_WHOLE = re.compile(r"[0-9]{1,18}")
_FIRST = (0, 1)


_ROW_NUMBER = re.compile(
    r"unnamed: ?[0-9]+|index|level_0|row|row[ _]?(?:names?|ids?|num|numbers?)|x|\.\.\.1|_c0|id|nr|no|number"
)
"""What programs call a column with the numbers of rows, in lower case."""


class RowNumbers:
    """What a column without a name has, row by row: consecutive numbers from 0 or 1 on, or nothing at all."""

    def __init__(self) -> None:
        self._begun = False
        self._next: int | None = None

    def check(self, place: str, column: str, value: object) -> None:
        """Take the value of the next row.

        Raises
        ------
        InvalidArgumentError
            It is not the row's number, so that the column has something to say.
        """
        number = _number_of(value)
        if not self._begun:
            self._begun = True
            self._next = None if is_missing(value) else number if number in _FIRST else -1
        if self._next is None and is_missing(value):
            return
        if self._next is None or number != self._next:
            problem = "is no row's number counted from 0 or 1 on, but the column has no name: give it one, or delete it"
            raise InvalidArgumentError(f"{place}, {column}", f"{shorten(value)} {problem}")
        self._next += 1


def without_row_numbers(place: str, values: Mapping[str, Any], numbers: dict[str, RowNumbers]) -> Mapping[str, Any]:
    """Return the next row of a table of pandas without its numbers.

    Parameters
    ----------
    numbers
        For each column that may have them what was there before.

    Raises
    ------
    InvalidArgumentError
        There is something else in such a column.
    """
    for name in [name for name in values if _INDEX.fullmatch(name)]:
        numbers.setdefault(name, RowNumbers()).check(place, f"column {name!r}", values[name])
    return {name: value for name, value in values.items() if name not in numbers}


def check_no_row_numbers(path: Path, name: str, column: Sequence[float]) -> None:
    """Raise `InvalidArgumentError` for a column that only numbers the rows, under a name that programs give it."""
    counts = [float(number) for number in range(len(column) + 1)]
    if _ROW_NUMBER.fullmatch(name.lower()) and list(column) in (counts[:-1], counts[1:]):
        raise InvalidArgumentError(f"{path.name}, column {name!r}", "only numbers the rows: delete it, or rename it")


def _number_of(value: object) -> int | None:
    if isinstance(value, str):
        return int(value) if _WHOLE.fullmatch(value) else None
    return value if type(value) is int else None
