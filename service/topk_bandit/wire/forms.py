"""How a value and a message are made of each other: field by field, by their names.

A field that is new in a value and in its message is on the wire at both ends without another line of code.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import UTC
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper

__all__ = ["MILLISECONDS", "SPAN", "SPAN_MS", "TIME", "Enumeration", "Form", "Pair", "Part", "duration", "timestamp"]

V = TypeVar("V")
M = TypeVar("M", bound=Message)
E = TypeVar("E", bound=Enum)

_NONE: Mapping[str, Any] = MappingProxyType({})
_NANOS_PER_MS = 1_000_000


class Part(Protocol):
    """How the value of a field and what a message has for it are made of each other."""

    @property
    def write(self) -> Callable[[Any], Any]:
        """Makes what a message has."""

    @property
    def read(self) -> Callable[[Any], Any]:
        """Makes the value."""


def _keep(value: Any) -> Any:
    return value


@dataclass(frozen=True, slots=True)
class Pair:
    """A part of two functions; without one of them a value is what the message has."""

    write: Callable[[Any], Any] = _keep
    read: Callable[[Any], Any] = _keep


class Enumeration(Generic[E]):
    """An enumeration of the domain and one of the wire, by the names of their values.

    Parameters
    ----------
    unset
        What the wire's zero stands for; None where it stands for nothing.

    Attributes
    ----------
    numbers, values
        The wire's number of each value, and the value of each number.
    """

    def __init__(self, kind: type[E], wire: EnumTypeWrapper, *, unset: E | None = None) -> None:
        prefix = wire.Name(0).removesuffix("UNSPECIFIED")
        known = dict(wire.items())
        self.numbers: Mapping[E, Any] = {
            value: known.get(prefix + value.name, 0) for value in kind if value is unset or prefix + value.name in known
        }
        self.values: Mapping[int, E] = {number: value for value, number in self.numbers.items()}
        if unset is not None:
            self.values = {0: unset, **self.values}
        self.write: Callable[[Any], Any] = self.numbers.__getitem__
        self.read: Callable[[Any], Any] = self.values.__getitem__


class _Field(NamedTuple):
    """A field of a value, its name in the message, and the functions that make each of the other's holder."""

    name: str
    wire: str
    write: Callable[[Any], Any]
    read: Callable[[Any], Any]


class Form(Generic[V, M]):
    """How a dataclass and a message are made of each other.

    A field has the same name in both, or is a count: ``rewards`` is ``reward_count`` on the wire. One that is None is
    unset, and the other way round if its annotation has None.

    Parameters
    ----------
    names
        The wire's names of fields that have others.
    parts
        How fields are made that are not the same in both, by the dataclass's names; each entry, if there are several.
    beside
        Fields that are made elsewhere.

    Attributes
    ----------
    value, message
        The two types.
    described
        The fields of both.

    Raises
    ------
    ValueError
        The message has no such field.
    """

    def __init__(
        self,
        value: type[V],
        message: type[M],
        *,
        names: Mapping[str, str] = _NONE,
        parts: Mapping[str, Part] = _NONE,
        beside: Collection[str] = (),
    ) -> None:
        self.value, self.message = value, message
        known = message.DESCRIPTOR.fields_by_name
        self.described: list[_Field] = []
        for one in fields(value):  # type: ignore[arg-type]
            if one.name in beside:
                continue
            wire = names.get(one.name) or _name_on_the_wire(one.name, known)
            optional = str(one.type).endswith("| None")
            write, read = _functions(known[wire], parts.get(one.name), optional=optional)
            self.described.append(_Field(one.name, wire, write, read))

    def fields(self, value: V) -> dict[str, Any]:
        """Return the fields of the message of a value."""
        return {one.wire: one.write(getattr(value, one.name)) for one in self.described}

    def write(self, value: V, **others: Any) -> M:
        """Return the message of a value, with what else it has."""
        return self.message(**self.fields(value), **others)

    def read(self, message: M, **others: Any) -> V:
        """Return the value in a message, with what else it has."""
        return self.value(**{one.name: one.read(message) for one in self.described}, **others)


def _name_on_the_wire(name: str, known: Collection[str]) -> str:
    for wire in (name, f"{name}_count", f"{name.removesuffix('s')}_count"):
        if wire in known:
            return wire
    raise ValueError(f"no field on the wire is like {name}")


def _functions(field: Any, part: Part | None, *, optional: bool) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """Return what makes a field's content of its value, and what makes its value of the message."""
    name = field.name
    write, read = (_keep, _keep) if part is None else (part.write, part.read)
    if field.default_value == []:  # repeated: newer libraries have a property for it, and older ones a label
        every = _keep if part is None else lambda values: [write(one) for one in values]
        return every, lambda message: tuple(map(read, getattr(message, name)))
    if optional and field.has_presence:
        return (
            lambda value: None if value is None else write(value),
            lambda message: read(getattr(message, name)) if message.HasField(name) else None,
        )
    return lambda value: None if value is None else write(value), lambda message: read(getattr(message, name))


def timestamp(milliseconds: int) -> Timestamp:
    """Return a time of the store's clock as a message."""
    seconds, rest = divmod(milliseconds, 1000)
    return Timestamp(seconds=seconds, nanos=rest * _NANOS_PER_MS)


def duration(milliseconds: int) -> Duration:
    """Return how long something takes as a message."""
    seconds, rest = divmod(milliseconds, 1000)
    return Duration(seconds=seconds, nanos=rest * _NANOS_PER_MS)


MILLISECONDS = Pair(timestamp, Timestamp.ToMilliseconds)
"""A time in milliseconds of the store's clock."""

TIME = Pair(read=lambda time: time.ToDatetime(tzinfo=UTC))
"""A time in UTC."""

SPAN_MS = Pair(duration, Duration.ToMilliseconds)
"""How long something takes, in milliseconds."""

SPAN = Pair(read=Duration.ToTimedelta)
"""How long something takes, as a timedelta."""
