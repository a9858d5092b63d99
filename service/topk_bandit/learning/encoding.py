"""Named features as the vector that the kernel takes: of a width that the schema fixes, and of a norm of about 1.

Each feature has a block of the vector. A number is centred, scaled (`feature_records`) and clamped at a few scales;
true and false are 1 and -1; a text, or a bucket of texts, has a place that is 1; labels share a unit length; a vector
keeps its direction. Each block ends with a place that is 1 where the value is missing, all others being 0 then; what is
many times too far out to be true counts as missing. Blocks have a root mean square of 1, and are divided by the root of
how many there are, constant numbers not counted: so none drowns the others, whatever its unit.

An encoder is a value that is folded from requests (`observe`). When a centre, a scale or the schema changes, contexts
that were encoded before are recoded: a number that is linear in the old coordinates and in the constant that contexts
share. So rows that are sums of contexts can be recoded, too. Only what is far beyond the new limits is cut.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from topk_bandit.domain.features import Boolean, Categorical, Features, LabelSet, Numeric, Vector, width_of
from topk_bandit.domain.replacing import replace
from topk_bandit.learning.feature_records import FeatureRecord, Mark

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from topk_bandit.domain.features import Feature, FeatureKind, FeatureSchema, FeatureValue

__all__ = ["Encoded", "Encoder", "find_blocks"]

FloatArray = NDArray[np.float64]


class Encoded(NamedTuple):
    """Features as a vector (C,), and how each was taken, in the order of the schema."""

    context: FloatArray
    marks: tuple[Mark, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Encoder:
    """A schema, what was seen of each of its features, in its order, and what each block is multiplied by."""

    schema: FeatureSchema
    records: tuple[FeatureRecord, ...]
    weights: tuple[float, ...] = field(init=False)

    def __post_init__(self) -> None:
        weights = [_weight_of(feature.kind) for feature in self.schema]
        counted = zip(weights, self.records, strict=True)
        square = sum(weight * weight for weight, record in counted if not record.is_constant)
        norm = math.sqrt(square or 1.0)
        object.__setattr__(self, "weights", tuple(weight / norm for weight in weights))

    @classmethod
    def initial(cls, schema: FeatureSchema) -> Encoder:
        """Return the encoder of a bandit that has seen nothing."""
        return cls(schema, tuple(FeatureRecord.first(feature.kind) for feature in schema))

    @property
    def memory_bytes(self) -> int:
        """About how much memory it takes."""
        return sum(record.sample.nbytes for record in self.records) + _PLACE_BYTES * width_of(self.schema)

    @property
    def requests_before_recoding(self) -> int | None:
        """With how many more requests rows are recoded at the earliest, None if they never are."""
        counts = [record.values_before_change for record in self.records]
        return min((count for count in counts if count is not None), default=None)

    def encode(self, features: Features) -> Encoded:
        """Return features as a vector; they are of the schema, and each has a value of its kind."""
        values, context, marks = dict(features.values), list[float](), list[Mark]()
        for feature, record, weight in zip(self.schema, self.records, self.weights, strict=True):
            block, mark = _encode(feature.kind, record, values.get(feature.name))
            context += [weight * number for number in block]
            marks.append(mark)
        return Encoded(np.array(context), tuple(marks))

    def observe(self, features: Features) -> Encoder:
        """Return the encoder after one more request."""
        return self.observe_all((features,))

    def observe_all(self, requests: Iterable[Features]) -> Encoder:
        """Return the encoder after more requests, one after the other; the same one if there was nothing to learn."""
        records = list(self.records)
        for features in requests:
            values = dict(features.values)
            for index, feature in enumerate(self.schema):
                records[index] = _observe(feature.kind, records[index], values.get(feature.name))
        is_new = any(after is not before for after, before in zip(records, self.records, strict=True))
        return replace(self, records=tuple(records)) if is_new else self

    def with_schema(self, schema: FeatureSchema) -> Encoder:
        """Return the encoder of a schema that has all that this one has: nothing was seen yet of what is new."""
        known = {feature.name: record for feature, record in zip(self.schema, self.records, strict=True)}
        records = (known.get(feature.name, FeatureRecord.first(feature.kind)) for feature in schema)
        return Encoder(schema, tuple(records))

    def encodes_alike(self, other: Encoder) -> bool:
        """Return whether the same features give the same vector, as long as nothing more is seen."""
        ours, theirs = ([(one.centre, one.scale, one.known) for one in encoder.records] for encoder in (self, other))
        return self.schema == other.schema and ours == theirs

    def recode(self, contexts: FloatArray, sizes: FloatArray, before: Encoder, *, shared: float) -> FloatArray:
        """Return contexts that an earlier encoder gave as this one gives them, shape (N, C + 1).

        They are the same as of the same features, but for numbers that were clamped, and for what was not known of them
        then: a feature or a value that is new.

        Parameters
        ----------
        contexts
            Contexts with what they share as their last number, or sums of such, shape (N, C before + 1).
        sizes
            How many times as long as a context each can be, shape (N,).
        before
            That encoder; its schema has nothing that the schema has not.
        shared
            What a single context shares, above 0.
        """
        recoded = np.zeros((len(contexts), width_of(self.schema) + 1))
        recoded[:, -1] = contexts[:, -1]
        ones = contexts[:, -1] / shared
        of_name = {feature.name: index for index, feature in enumerate(before.schema)}
        here, there, weights, old_weights = (
            *(find_blocks(self.schema), find_blocks(before.schema)),
            *(self.weights, before.weights),
        )
        for index, feature in enumerate(self.schema):
            earlier = of_name.get(feature.name)
            if earlier is None:
                continue
            old = contexts[:, there[earlier]] / old_weights[earlier]
            change = _Change(before.records[earlier], self.records[index], before.schema[earlier].kind, feature.kind)
            recoded[:, here[index]] = weights[index] * change.apply(old, ones, sizes)
        return recoded


_PLACE_BYTES = 200
"""About what a coordinate takes, with the text that it stands for."""


class _Change(NamedTuple):
    """What became of one feature."""

    before: FeatureRecord
    after: FeatureRecord
    old_kind: FeatureKind
    kind: FeatureKind

    def apply(self, block: FloatArray, ones: FloatArray, sizes: FloatArray) -> FloatArray:
        """Return a block of sums of `ones` contexts that are at most `sizes` times as long as one; weights left out."""
        if isinstance(self.kind, Categorical) and isinstance(self.old_kind, Categorical):
            return _move_values(block, self.old_kind, self.kind)
        if self.after.limit == np.inf or self.before[:3] == self.after[:3]:
            return block
        moved, scale = block.copy(), self.after.scale
        numbers = moved[:, :-1]
        numbers *= self.before.scale / scale if scale else 0.0
        if scale and self.before.known:
            numbers += ((self.before.centre - self.after.centre) / scale * (ones - block[:, -1]))[:, None]
        norms, most = _norms_of(numbers), self.after.limit * sizes
        numbers *= np.divide(most, norms, out=np.ones_like(norms), where=norms > most)[:, None]
        return moved


def _move_values(block: FloatArray, before: Categorical, after: Categorical) -> FloatArray:
    """Return a block of texts with a column for each value that is declared now, unknown and missing ones last."""
    if before == after:
        return block
    moved, columns = np.zeros((len(block), after.width)), _find_columns(after.values)
    moved[:, [columns[value] for value in before.values]] = block[:, :-2]
    moved[:, -2:] = block[:, -2:]
    return moved


def _norms_of(rows: FloatArray) -> FloatArray:
    """Return the norms of rows whose squares may be too large."""
    largest = np.abs(rows).max(axis=1)
    unit = np.where(largest > 0.0, largest, 1.0)
    return np.asarray(largest * np.sqrt(((rows / unit[:, None]) ** 2).sum(axis=1)))


def _weight_of(kind: FeatureKind) -> float:
    return kind.weight if isinstance(kind, Vector) else 1.0


@lru_cache(maxsize=512)
def find_blocks(schema: tuple[Feature, ...]) -> tuple[slice, ...]:
    """Return the coordinates of each feature."""
    ends = list(accumulate((feature.kind.width for feature in schema), initial=0))
    return tuple(slice(start, end) for start, end in pairwise(ends))


@lru_cache(maxsize=4096)
def _find_columns(values: tuple[str, ...]) -> Mapping[str, int]:
    return {value: column for column, value in enumerate(values)}


def _observe(kind: FeatureKind, record: FeatureRecord, value: FeatureValue | None) -> FeatureRecord:
    """Return what is known of a feature after one more value."""
    counted, number = record.mark(_encode(kind, record, value)[1]), _number_of(kind, value) if record.learns else None
    return counted if number is None else counted.learn(number, is_norm=isinstance(kind, Vector))


def _encode(kind: FeatureKind, record: FeatureRecord, value: FeatureValue | None) -> tuple[list[float], Mark]:
    """Return a block, its weight left out, and how the value was taken."""
    block = [0.0] * kind.width
    if value is None:
        block[-1] = 1.0
        return block, Mark.MISSING
    return block, _ENCODERS[type(kind)](kind, record, value, block)


def _encode_number(kind: Numeric, record: FeatureRecord, value: float, block: list[float]) -> Mark:
    if not record.known:
        return Mark.IN_RANGE
    number = _number_of(kind, value)
    if number is None:
        block[0] = -record.limit if record.scale else 0.0
        return Mark.CLAMPED
    scaled = (number - record.centre) / record.scale if record.scale else 0.0
    if abs(scaled) > record.farthest * (_LOGARITHMS_ARE_NEARER if kind.log_scale else 1.0):
        block[-1] = 1.0
        return Mark.CLAMPED
    block[0] = min(max(scaled, -record.limit), record.limit)
    return Mark.IN_RANGE if abs(scaled) <= record.limit * _ROUNDING else Mark.CLAMPED


_ROUNDING = 1.0 + 1e-9

_LOGARITHMS_ARE_NEARER = 0.3
"""Nine spreads of a logarithm are a factor of thousands already, which thirty of the number itself are not."""


def _encode_flag(_kind: Boolean, _record: FeatureRecord, value: bool, block: list[float]) -> Mark:  # noqa: FBT001
    block[0] = 1.0 if value else -1.0
    return Mark.IN_RANGE


def _encode_text(kind: Categorical, _record: FeatureRecord, value: str, block: list[float]) -> Mark:
    column = _column_of(kind, value)
    block[column] = 1.0
    return Mark.UNKNOWN if column == len(kind.values) and not kind.buckets else Mark.IN_RANGE


def _encode_labels(kind: LabelSet, record: FeatureRecord, value: tuple[str, ...], block: list[float]) -> Mark:
    marks = [_encode_text(kind, record, label, block) for label in value]
    if any(block):
        height = 1.0 / math.sqrt(sum(block))
        block[:] = [height if column else 0.0 for column in block]
    return max(marks, default=Mark.IN_RANGE)


_SMALLEST_NORM = 1e-300
"""A shorter vector is zero: what it would have to be multiplied by is beyond the largest number."""


def _encode_vector(kind: Vector, record: FeatureRecord, value: tuple[float, ...], block: list[float]) -> Mark:
    norm = _number_of(kind, value)
    if not record.scale or not norm:
        return Mark.IN_RANGE
    if norm > record.farthest * record.scale:
        block[-1] = 1.0
        return Mark.CLAMPED
    height = min(norm / record.scale, record.limit) / norm
    block[:-1] = [number * height for number in value]
    return Mark.IN_RANGE if norm <= record.limit * record.scale else Mark.CLAMPED


_ENCODERS: Mapping[type, Callable[..., Mark]] = {
    Numeric: _encode_number,
    Boolean: _encode_flag,
    Categorical: _encode_text,
    LabelSet: _encode_labels,
    Vector: _encode_vector,
}


def _column_of(kind: Categorical, value: str) -> int:
    if kind.buckets:
        return int.from_bytes(blake2b(value.encode(), digest_size=8).digest()) % kind.buckets
    return _find_columns(kind.values).get(value, len(kind.values))


def _number_of(kind: FeatureKind, value: FeatureValue | None) -> float | None:
    """Return what is centred and scaled of a value: a number, its logarithm, or the norm of a vector; else None."""
    match kind, value:
        case Numeric(log_scale=True), float():
            return math.log(value) if value > 0.0 else None
        case Numeric(), float():
            return value
        case Vector(), tuple():
            norm = math.hypot(*value)
            return norm if norm >= _SMALLEST_NORM else 0.0
        case _:
            return None
