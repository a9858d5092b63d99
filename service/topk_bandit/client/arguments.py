"""What a caller gives, as messages: what can't be sent is refused by the name of its field. No I/O here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from topk_bandit.client.errors import invalid_argument
from topk_bandit.domain.paths import entry_of
from topk_bandit.domain.values import read_number

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from topk_bandit.client.errors import InvalidArgument
    from topk_bandit.wire.forms import Enumeration

__all__ = ["WRONG", "choice", "filled", "item_values", "message", "number", "numbers", "refuse", "several", "texts"]

M = TypeVar("M", bound="Message")

WRONG = (TypeError, ValueError, OverflowError)
"""What Python and protobuf raise for a value of the wrong type, out of range, or that is no text in UTF-8."""


def message(kind: type[M], at: str = "", /, **values: Any) -> M:  # noqa: ANN401, whatever a caller gives
    """Return a message with these fields.

    Raises
    ------
    InvalidArgument
        A field can't hold its value; it is named after `at`, the path of the message.
    """
    try:
        return kind(**values)
    except WRONG:
        culprit = next((name for name, value in values.items() if not _holds(kind, name, value)), "")
        raise refuse(f"{at}.{culprit}".strip("."), values.get(culprit)) from None


def _holds(kind: type[Message], name: str, value: object) -> bool:
    try:
        kind(**{name: value})
    except WRONG:
        return False
    return True


def choice(field: str, value: Any, known: Enumeration[Any]) -> Any:  # noqa: ANN401, whatever a caller gives
    """Return the wire's number of a value of an enumeration, or raise `InvalidArgument` with all that it may be."""
    try:
        return known.numbers[value]
    except (KeyError, TypeError):
        names = ", ".join(str(one) for one in known.numbers)
        raise invalid_argument(field, f"must be one of {names}, not {value!r:.60}") from None


def refuse(field: str, value: object) -> InvalidArgument:
    """Return the error of a field that can't have this value."""
    try:
        shown = f": {value!r:.60}"
    except WRONG:  # an integer of more digits than Python writes
        shown = ""
    return invalid_argument(field, f"can't be {type(value).__name__}{shown}")


def number(field: str, value: Any) -> float:  # noqa: ANN401, whatever a caller gives
    """Return a number as a float, or raise `InvalidArgument`; a boolean is none, and a text a decimal one."""
    try:
        found = read_number(value) if isinstance(value, str | bool) else float(value)
    except WRONG:
        found = None
    if found is None:
        raise refuse(field, value)
    return found


def numbers(field: str, values: Any) -> list[float]:  # noqa: ANN401, whatever a caller gives
    """Return several numbers as floats, or raise `InvalidArgument` naming the one that is none."""
    return [number(f"{field}[{place}]", one) for place, one in enumerate(several(field, values))]


def item_values(field: str, values: Any) -> dict[str, float]:  # noqa: ANN401, whatever a caller gives
    """Return numbers by the ids of items, none for None; `InvalidArgument` names the one that is none."""
    if values is None:
        return {}
    if not isinstance(values, Mapping):
        raise invalid_argument(field, f"must be a mapping of item ids, not {type(values).__name__}: {values!r:.60}")
    for item_id in values:
        if not isinstance(item_id, str):
            raise refuse(field, item_id)
    return {item_id: number(entry_of(field, item_id), value) for item_id, value in values.items()}


def texts(field: str, values: Any) -> list[str]:  # noqa: ANN401, whatever a caller gives
    """Return several texts, such as ids, or raise `InvalidArgument` naming the one that is none."""
    found = several(field, values)
    for place, one in enumerate(found):
        if not isinstance(one, str):
            raise refuse(f"{field}[{place}]", one)
    return found


def filled(field: str, values: Any, *, absent: str) -> list[str]:  # noqa: ANN401, whatever a caller gives
    """Return several texts, or none for None, which stands for what `absent` says.

    On the wire an empty list is the same as none, the opposite of what a caller means by it: it is `InvalidArgument`.
    """
    if values is None:
        return []
    found = texts(field, values)
    if not found:
        raise invalid_argument(field, f"must not be empty; None stands for {absent}")
    return found


def several(field: str, values: object) -> list[Any]:
    """Return several values, or raise `InvalidArgument` for one: a text is not the ids that are its letters."""
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        kind = type(values).__name__
        raise invalid_argument(field, f"must be several, such as a list, not one {kind}: {values!r:.60}")
    return list(values)
