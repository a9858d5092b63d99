"""Write documents as compact JSON with their data version, and read them by their layouts.

A layout declares the fields of a document and their types; most are those of a value of the domain. Bytes with a field
less, or of another type, raise `CorruptDataError`, which names it; nothing is guessed or repaired, but a whole number
becomes a float. A field that no layout has is of another program on the same store: it is passed over, and stays where
it is; in a file it is refused. Bytes of a data version beyond this program's own raise `NewerDataError`.
"""

from __future__ import annotations

import json
from dataclasses import fields
from functools import reduce
from operator import or_
from types import UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Literal,
    NoReturn,
    Protocol,
    TypeVar,
    Union,
    get_origin,
    get_type_hints,
)

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import astuple

from topk_bandit.domain.errors import CorruptDataError, NewerDataError
from topk_bandit.store.data_versions import FIRST, NEWEST

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

__all__ = [
    "DataVersion",
    "Decoder",
    "Document",
    "EventLayout",
    "Layout",
    "Stamped",
    "any_of",
    "decoder",
    "derive",
    "find_unknown",
    "message_of",
    "pack",
    "plain",
    "read",
    "read_optional",
    "refuse",
    "refuse_newer",
    "stamp",
    "text_of",
]

DataVersion = Annotated[int, Meta(ge=FIRST, le=NEWEST)]
"""The data version of a document that can be read here."""

Document = dict[str, Any]
_Value = TypeVar("_Value")
_Made_co = TypeVar("_Made_co", covariant=True)
_FLAT = {str, float, int, bool}


def _as_plain(value: Any) -> float:  # noqa: ANN401, what msgspec does not know
    """Return a number of a type that is made from float, as numpy's is, as the float that it is."""
    if isinstance(value, float):
        return float(value)
    raise TypeError(f"{type(value).__name__} has no place in a document")


text_of = msgspec.json.Encoder(enc_hook=_as_plain).encode
"""Return a document as bytes. What is not finite becomes null: numbers are written by `pack`."""


class Layout(Struct):
    """The fields of a document. It has all of them but those that are left out, which are `UNSET`."""

    of: ClassVar[Any]

    def read(self) -> Any:  # noqa: ANN401, of as many types as there are layouts
        """Return the value that the document stands for."""
        return self.of(*astuple(self))


class Stamped(Layout):
    """The fields of a document that stands alone: behind the data version."""

    v: DataVersion

    def read(self) -> Any:  # noqa: ANN401
        """Return the value that the document stands for."""
        return self.of(*[one if type(one) in _FLAT else read(one) for one in astuple(self)[1:]])


class EventLayout(Stamped, tag_field="type"):
    """The fields of an event, whose type is the layout's tag."""


def read(value: Any) -> Any:  # noqa: ANN401, what layouts have
    """Return the value that a field stands for."""
    if isinstance(value, tuple):
        return tuple(map(read, value)) if value and isinstance(value[0], Layout) else value
    return value.read() if isinstance(value, Layout) else read_optional(value)


def derive(
    kind: type,
    base: type[Layout] = Layout,
    *,
    tag: str | None = None,
    of: Callable[..., Any] | None = None,
    parts: Mapping[str, Any] | None = None,
    left_out: Iterable[str] = (),
    beside: Iterable[str] = (),
) -> type[Struct]:
    """Return the layout that has the fields of a type of the domain, after those of `base`.

    Parameters
    ----------
    of
        Makes the value of the fields; the type itself if it is not given.
    parts
        Layouts by the names that stand for them in the type's annotations.
    left_out
        Fields that documents have only where they are not None, false or empty.
    beside
        Fields that documents never have.
    """
    types = get_type_hints(kind, localns=dict(parts or {}))
    declared: list[Any] = []
    for field in fields(kind):
        if field.name in beside:
            continue
        declared.append((field.name, types[field.name]))
        if field.name in left_out:
            declared[-1] = (field.name, _or_unset(types[field.name]), UNSET)
    space = {"of": staticmethod(of or kind)}
    return msgspec.defstruct(f"_{kind.__name__}", declared, bases=(base,), namespace=space, tag=tag)


def _or_unset(kind: Any) -> Any:  # noqa: ANN401, a type
    """Return the type of a field that is left out where it is None, false or empty."""
    if kind is bool:
        return Literal[True] | UnsetType
    is_union = isinstance(kind, UnionType) or get_origin(kind) is Union
    return any_of({UnsetType, *kind.__args__} - {type(None)}) if is_union else kind | UnsetType


def any_of(types: Iterable[Any]) -> Any:  # noqa: ANN401, a type
    """Return the union of types."""
    return reduce(or_, types)


class Decoder(Protocol[_Made_co]):
    """Makes something of a document, or raises `CorruptDataError` or `NewerDataError`."""

    def __call__(self, data: bytes, *, wholly: bool = False) -> _Made_co:
        """Return what is made of it; `wholly` refuses a field that this program does not know."""
        ...


def decoder(layout: Any, *, made: Callable[[Any], _Value] = read) -> Decoder[_Value]:  # noqa: ANN401, a type
    """Return the function that reads documents of a layout.

    Parameters
    ----------
    made
        What is made of the layout: the value that the document stands for if it is not given.
    """
    decode = msgspec.json.Decoder(layout).decode

    def decode_document(data: bytes, *, wholly: bool = False) -> _Value:
        try:
            parsed = decode(data)
            if wholly and (unknown := find_unknown(parsed, msgspec.json.decode(data))):
                raise CorruptDataError(f"this program does not know the field {unknown}")
            return made(parsed)
        except (ValueError, RecursionError) as error:
            refuse_newer(_version_of(data))
            raise CorruptDataError(f"stored bytes are damaged: {error}") from error

    return decode_document


def find_unknown(layout: Any, stored: Any) -> str:  # noqa: ANN401, what documents have
    """Return the path of the first field of a stored document that its layout does not have; empty if it has all."""
    return next(_unknown_fields(layout, stored, ""), "")


def _unknown_fields(layout: Any, stored: Any, path: str) -> Iterator[str]:  # noqa: ANN401
    if isinstance(layout, tuple):
        for place, (one, other) in enumerate(zip(layout, stored, strict=False)):
            yield from _unknown_fields(one, other, f"{path}[{place}]")
    elif isinstance(layout, Struct) and isinstance(stored, list):
        yield from _unknown_fields(astuple(layout), stored, path)
        if len(stored) > len(layout.__struct_fields__):
            yield f"{path}[{len(layout.__struct_fields__)}]"
    elif isinstance(layout, Struct):
        known = {layout.__struct_config__.tag_field, *layout.__struct_fields__}
        inner = f"{path}." if path else ""
        for name, value in stored.items():
            if name not in known:
                yield f"{inner}{name}"
            elif isinstance(value, list | dict):
                yield from _unknown_fields(getattr(layout, name), value, f"{inner}{name}")


def refuse_newer(version: int) -> None:
    """Raise `NewerDataError` for a data version that only a newer program reads."""
    if version > NEWEST:
        raise NewerDataError(f"the store has data of version {version}, and this program reads up to {NEWEST}")


class _Versioned(Struct):
    v: int


_decode_versioned = msgspec.json.Decoder(_Versioned).decode


def _version_of(data: bytes) -> int:
    """Return the data version that bytes have, whatever else is in them; 0 if they have none."""
    try:
        return _decode_versioned(data).v
    except (ValueError, RecursionError):
        return 0


def message_of(document: object) -> bytes:
    """Return a document as MessagePack, which scripts read."""
    return msgspec.msgpack.encode(document)


def pack(document: object, *, without: Sequence[bytes] = ()) -> bytes:
    """Return a document as bytes, or raise `ValueError` if a number in it is not finite.

    Parameters
    ----------
    without
        Last fields that are left out, from the last one on, each with the comma before it.
    """
    data = text_of(document)
    for fields_left_out in without:
        data = data[: -len(fields_left_out) - 1] + b"}"
    if b"null" in data:
        json.dumps(msgspec.to_builtins(document, enc_hook=_as_plain), allow_nan=False)
    return data


def stamp(document: object, kind: str = "", *, version: int) -> bytes:
    """Return a document as bytes, behind the data version and, if it is an event, its type."""
    head = f'{{"v":{version},"type":"{kind}",' if kind else f'{{"v":{version},'
    return head.encode() + pack(document)[1:]


def plain(number: float) -> float:
    """Return a number as a float, and -0.0 as 0.0: equal ones are written alike."""
    return float(number) + 0.0


def read_optional(value: _Value | UnsetType) -> _Value | None:
    """Return a field's value, None where it was left out."""
    return None if value is UNSET else value


def refuse(field: str, value: object) -> NoReturn:
    """Raise `CorruptDataError` for a field's value."""
    raise CorruptDataError(f"the stored field {field} can't be {value!r}")
