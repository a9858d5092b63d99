"""Errors of the service by the place in the file that is at fault, and whether a file goes on with an import."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from topk_bandit.domain.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topk_bandit.client import InvalidArgument

__all__ = ["check_goes_on", "explain", "field_and_problem"]

_ROW = re.compile(r"rows\[[0-9]+\]\.")


def check_goes_on(*, taken: int, count: int) -> None:
    """Raise `InvalidArgumentError` for a file of `count` rows that can't go on with an import that took more."""
    if taken > count:
        problem = f"the file has {count} rows, and the import took {taken}: it is another file"
        raise InvalidArgumentError("--import-id", problem)


def field_and_problem(error: InvalidArgument) -> tuple[str, str]:
    """Return the field of a row that an error is about, and what is wrong with it."""
    return _ROW.sub("", error.field, count=1), error.problem


def explain(error: InvalidArgument, places: Sequence[str], *, begun: int, import_id: str) -> InvalidArgumentError:
    """Return an error of the service with the place in the file, and how to go on after it.

    Parameters
    ----------
    places
        For the rows that were sent.
    begun
        How many rows are imported.
    """
    place, _, _ = error.field.removeprefix("rows[").partition("].")
    field, problem = field_and_problem(error)
    where = f"{places[int(place)]}, {field}" if place.isdecimal() else field
    if begun:
        problem += f"; {begun} rows are imported: a corrected file goes on with --import-id {import_id}"
    return InvalidArgumentError(where, problem)
