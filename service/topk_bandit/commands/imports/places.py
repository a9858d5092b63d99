"""Errors of the service by the place in the file that is at fault, and whether a file goes on with an import."""

from __future__ import annotations

from typing import TYPE_CHECKING

from topk_bandit.domain.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topk_bandit.client import InvalidArgument

__all__ = ["check_goes_on", "explain"]


def check_goes_on(*, taken: int, count: int) -> None:
    """Raise `InvalidArgumentError` for a file of `count` rows that can't go on with an import that took more."""
    if taken > count:
        problem = f"the file has {count} rows, and the import took {taken}: it is another file"
        raise InvalidArgumentError("--import-id", problem)


def explain(error: InvalidArgument, places: Sequence[str], *, begun: int, import_id: str) -> InvalidArgumentError:
    """Return an error of the service with the place in the file, and how to go on after it.

    Parameters
    ----------
    places
        Of the rows that were sent.
    begun
        How many rows are imported.
    """
    place, _, field = error.field.removeprefix("rows[").partition("].")
    where = f"{places[int(place)]}, {field}" if place.isdecimal() else error.field
    problem = error.details.message.removeprefix(f"{error.field}: ")
    if begun:
        problem += f"; {begun} rows are imported: a corrected file goes on with --import-id {import_id}"
    return InvalidArgumentError(where, problem)
