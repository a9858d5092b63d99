"""Encode documents as compact JSON with a schema number, and read them field by field.

Equal documents have equal bytes. A field that is missing or not of the type asked for raises `CorruptDataError`;
nothing is ever guessed or repaired.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from itertools import filterfalse
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from topk_bandit.domain.errors import CorruptDataError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["SCHEMA", "Document", "Fields", "decode", "pack", "refuse", "text_of"]

SCHEMA = 1
"""Number of the layout of all documents; a reader refuses any other."""

Document = dict[str, Any]
_Decoded = TypeVar("_Decoded")

text_of = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def pack(document: object) -> bytes:
    """Return a document as bytes: equal documents have equal bytes."""
    return text_of(document).encode()


def decode(data: bytes, read: Callable[[Fields], _Decoded]) -> _Decoded:
    """Return what `read` makes of the document in `data`, or raise `CorruptDataError`."""
    try:
        document = json.loads(data.decode())
    except (ValueError, RecursionError) as error:
        raise CorruptDataError(f"stored bytes are not JSON: {error}") from error
    if not isinstance(document, dict):
        raise CorruptDataError("stored bytes are not a JSON object")
    fields = Fields(document)
    schema = fields.integer("v")
    if schema != SCHEMA:
        raise CorruptDataError(f"stored bytes have the unknown schema {schema}")
    return read(fields)


@dataclass(frozen=True, slots=True)
class Fields:
    """The fields of a JSON object; each is returned with the type asked for, or `CorruptDataError` is raised."""

    document: Document

    def is_null(self, field: str) -> bool:
        """Tell whether a field is null."""
        return self._get(field) is None

    def text(self, field: str) -> str:
        """Return a text."""
        value = self._get(field)
        return value if isinstance(value, str) else refuse(field, value)

    def number(self, field: str) -> float:
        """Return a finite number that was written as a float."""
        value = self._get(field)
        return value if isinstance(value, float) and math.isfinite(value) else refuse(field, value)

    def optional_number(self, field: str) -> float | None:
        """Return a finite number, or None."""
        return None if self.is_null(field) else self.number(field)

    def integer(self, field: str) -> int:
        """Return an integer."""
        value = self._get(field)
        return value if type(value) is int else refuse(field, value)

    def flag(self, field: str) -> bool:
        """Return true or false."""
        value = self._get(field)
        return value if isinstance(value, bool) else refuse(field, value)

    def sequence(self, field: str) -> list[Any]:
        """Return a list of whatever."""
        value = self._get(field)
        return value if isinstance(value, list) else refuse(field, value)

    def texts(self, field: str) -> tuple[str, ...]:
        """Return a list of texts."""
        return self._entries(field, str)

    def integers(self, field: str) -> tuple[int, ...]:
        """Return a list of integers."""
        return self._entries(field, int)

    def numbers(self, field: str) -> tuple[float, ...]:
        """Return a list of finite numbers."""
        values = self._entries(field, float)
        for value in filterfalse(math.isfinite, values):
            refuse(field, value)
        return values

    def several(self, kinds: Mapping[str, Any]) -> list[Any]:
        """Return fields of these types, in order: the other methods, but of many fields at once, for the hot path."""
        try:
            values = [self.document[field] for field in kinds]
        except KeyError as error:
            raise CorruptDataError(f"stored bytes lack the field {error.args[0]}") from None
        for (field, kind), value in zip(kinds.items(), values, strict=True):
            if type(value) is not kind or (kind is float and not math.isfinite(value)):
                refuse(field, value)
        return values

    def child(self, field: str) -> Fields:
        """Return the fields of an object."""
        value = self._get(field)
        return Fields(value) if isinstance(value, dict) else refuse(field, value)

    def choice(self, field: str, choices: Mapping[str, _Decoded]) -> _Decoded:
        """Return what the text stands for in `choices`."""
        value = self.text(field)
        return choices[value] if value in choices else refuse(field, value)

    def _entries(self, field: str, kind: type[_Decoded]) -> tuple[_Decoded, ...]:
        values = self.sequence(field)
        for value in values:
            if type(value) is not kind:
                refuse(field, value)
        return tuple(values)

    def _get(self, field: str) -> Any:  # noqa: ANN401 - JSON has no narrower type
        if field not in self.document:
            raise CorruptDataError(f"stored bytes lack the field {field}")
        return self.document[field]


def refuse(field: str, value: object) -> NoReturn:
    """Raise `CorruptDataError` for a field's value."""
    raise CorruptDataError(f"the stored field {field} can't be {value!r}")
