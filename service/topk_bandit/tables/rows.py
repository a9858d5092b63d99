"""A row of a file, whether the last one is whole, and values whose errors name their field."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from topk_bandit.domain.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

__all__ = ["FileRow", "check_end", "check_names", "read_value", "require_value", "says_nothing"]

_Read = TypeVar("_Read")


@dataclass(frozen=True, slots=True)
class FileRow:
    """A row.

    Attributes
    ----------
    place
        Where it stands.
    values
        By column, or what is wrong with it as a whole.
    is_silent
        Whether it is in order, but says nothing, so that it is left out.
    named_at
        Where its columns have their names; empty where each row names its own.
    own
        What the file calls the columns of a row that was made of several, as errors name them.
    """

    place: str
    values: Mapping[str, Any] | InvalidArgumentError
    is_silent: bool = False
    named_at: str = ""
    own: Mapping[str, str] = field(default_factory=dict)

    def whole(self) -> Mapping[str, Any]:
        """Return the values, or raise what is wrong with the row as a whole, from where it stands."""
        if isinstance(self.values, InvalidArgumentError):
            raise InvalidArgumentError(f"{self.place}, {self.values.field}", self.values.problem)
        return self.values


def check_end(path: Path, line: int) -> None:
    """Raise `InvalidArgumentError` for a file that stops inside its last line: nobody knows whether that is whole."""
    with path.open("rb") as file:
        file.seek(-1, 2)
        if file.read(1) not in {b"\n", b"\r"}:
            problem = "the last line has no end, so that the file may be cut: add a line break if it is whole"
            raise InvalidArgumentError(f"{path.name}, line {line}", problem)


def says_nothing(order: Mapping[str, Any]) -> bool:
    """Return whether an order, with the places of its items where some are tied, is of one item or ties them all."""
    return len(order["items"]) == 1 or len(set(order.get("places", ()))) == 1


def check_names(place: str, names: Sequence[str]) -> None:
    """Raise `InvalidArgumentError` for a column that a file has twice."""
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InvalidArgumentError(place, f"column {twice!r} comes twice: rename one of them")


def read_value(field: str, value: Any, reader: Callable[[Any], _Read | None]) -> _Read | None:  # noqa: ANN401
    """Return a value, read by one of `domain.values`, None if it is missing; `InvalidArgumentError` names its field."""
    try:
        return reader(value)
    except ValueError as error:
        raise InvalidArgumentError(field, str(error)) from None


def require_value(field: str, value: Any, reader: Callable[[Any], _Read | None]) -> _Read:  # noqa: ANN401
    """Return a value as `read_value` does, which may not be missing."""
    found = read_value(field, value, reader)
    if found is None:
        raise InvalidArgumentError(field, "is missing")
    return found
