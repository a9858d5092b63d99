"""Feature schemas and values between the wire and `topk_bandit.domain.features`.

What comes in is checked for its form, and errors name the feature. Whether values are of a bandit's schema, and whether
a schema may follow another, is left to the use cases.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, TypeVar

from topk_bandit.domain.bandits import MAX_CONTEXT_WIDTH
from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.domain.features import (
    MAX_FEATURE_MAGNITUDE,
    MAX_FEATURE_TEXT,
    Boolean,
    Categorical,
    Feature,
    Features,
    LabelSet,
    Numeric,
    Vector,
    width_of,
)
from topk_bandit.domain.ids import ID, ID_RULE
from topk_bandit.domain.paths import entry_of
from topk_bandit.rpc import fields
from topk_bandit.rpc.json_reading import message_of
from topk_bandit.v1 import features_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from topk_bandit.domain.features import FeatureKind, FeatureSchema, FeatureValue

__all__ = [
    "MAX_FEATURES",
    "MAX_LABELS",
    "features_from_proto",
    "features_to_proto",
    "is_feature_name",
    "schema_from_json",
    "schema_from_proto",
]

MAX_FEATURES = 64
MAX_LABELS = 256
_MIN_WEIGHT, _MAX_WEIGHT = 1e-6, 100.0
_MAX_UNIT = 64

_Texts = TypeVar("_Texts", Categorical, LabelSet)


def schema_from_proto(path: str, schema: pb.FeatureSchema) -> FeatureSchema:
    """Return a schema; errors name fields below `path`, which may be empty."""
    below = f"{path}.features".lstrip(".")
    fields.size(below, len(schema.features), most=MAX_FEATURES)
    features: list[Feature] = []
    for place, feature in enumerate(schema.features):
        at = f"{below}[{place}]"
        if not is_feature_name(feature.name):
            raise InvalidArgumentError(f"{at}.name", f"must be {ID_RULE}, not {fields.quote_text(feature.name)}")
        earlier = next((n for n, one in enumerate(features) if one.name == feature.name), None)
        if earlier is not None:
            raise InvalidArgumentError(f"{at}.name", f'repeats {below}[{earlier}].name: "{feature.name}"')
        try:
            features.append(Feature(feature.name, _kind(at, feature)))
        except InvalidArgumentError as error:
            raise InvalidArgumentError(error.field, f'{error.problem} (feature "{feature.name}")') from None
    width = width_of(tuple(features))
    if width > MAX_CONTEXT_WIDTH:
        raise InvalidArgumentError(path, f"takes {width} numbers to encode; at most {MAX_CONTEXT_WIDTH} are allowed")
    return tuple(features)


def schema_from_json(content: Any) -> FeatureSchema:  # noqa: ANN401, whatever JSON holds
    """Return the schema that JSON has, read as over HTTP; errors name fields of it."""
    return schema_from_proto("", message_of(content, pb.FeatureSchema()))


def _kind(path: str, feature: pb.Feature) -> FeatureKind:
    match feature.WhichOneof("kind"):
        case "numeric":
            return _numeric(f"{path}.numeric", feature.numeric)
        case "categorical":
            return _texts(f"{path}.categorical", feature.categorical, Categorical)
        case "boolean":
            return Boolean()
        case "labels":
            return _texts(f"{path}.labels", feature.labels, LabelSet)
        case "vector":
            return _vector(f"{path}.vector", feature.vector)
        case _:
            raise InvalidArgumentError(path, "needs a kind: numeric, categorical, boolean, labels or vector")


def _numeric(path: str, kind: pb.NumericFeature) -> Numeric:
    if len(kind.unit) > _MAX_UNIT:
        raise InvalidArgumentError(f"{path}.unit", f"has {len(kind.unit)} characters; at most {_MAX_UNIT} are allowed")
    if kind.unit:
        fields.opaque_id(f"{path}.unit", kind.unit)
    if not kind.HasField("min") and not kind.HasField("max"):
        return Numeric(unit=kind.unit, log_scale=kind.log_scale)
    for end in ("min", "max"):
        if not kind.HasField(end):
            raise InvalidArgumentError(f"{path}.{end}", "is required where the other end of the range is declared")
        fields.number(f"{path}.{end}", getattr(kind, end), low=-MAX_FEATURE_MAGNITUDE, high=MAX_FEATURE_MAGNITUDE)
    if kind.log_scale and kind.min <= 0.0:
        raise InvalidArgumentError(f"{path}.min", f"must be above 0 on a log scale, not {kind.min!r}")
    if not kind.min < kind.max:
        raise InvalidArgumentError(f"{path}.max", f"must be above min, {kind.min!r}, not {kind.max!r}")
    return Numeric(kind.min, kind.max, kind.unit, kind.log_scale)


def _texts(path: str, kind: pb.CategoricalFeature | pb.LabelSetFeature, made: type[_Texts]) -> _Texts:
    if len(kind.values) > MAX_CONTEXT_WIDTH:
        raise InvalidArgumentError(
            f"{path}.values",
            f"has {len(kind.values)} entries; at most {MAX_CONTEXT_WIDTH - 2} are allowed: use buckets",
        )
    if bool(kind.values) == bool(kind.buckets):
        problem = "has values and buckets: leave one of them out" if kind.values else "needs values or buckets"
        raise InvalidArgumentError(path, problem)
    if kind.buckets:
        return made(buckets=fields.integer(f"{path}.buckets", kind.buckets, low=2, high=MAX_CONTEXT_WIDTH - 1))
    return made(fields.item_ids(f"{path}.values", kind.values))


def _vector(path: str, kind: pb.VectorFeature) -> Vector:
    size = fields.integer(f"{path}.dimension", kind.dimension, low=1, high=MAX_CONTEXT_WIDTH - 1)
    weight = fields.number(f"{path}.weight", kind.weight, low=_MIN_WEIGHT if kind.weight else 0.0, high=_MAX_WEIGHT)
    return Vector(size, weight or 1.0)


def is_feature_name(text: str) -> bool:
    """Return whether a feature can have this name."""
    return ID.fullmatch(text) is not None


def features_from_proto(path: str, values: Mapping[str, pb.FeatureValue]) -> Features:
    """Return values by name; errors name the feature as ``path["name"]``."""
    if len(values) > MAX_FEATURES:
        raise InvalidArgumentError(path, f"has {len(values)} entries; at most {MAX_FEATURES} are allowed")
    found: dict[str, FeatureValue] = {}
    for name, value in values.items():
        if not is_feature_name(name):
            raise InvalidArgumentError(
                path, f"has the name {fields.quote_text(name)}, which no feature can have: use {ID_RULE}"
            )
        read = _value(entry_of(path, name), value)
        if read != "":
            found[name] = read
    return Features.of(found)


def features_to_proto(features: Features) -> dict[str, pb.FeatureValue]:
    """Return values by name."""
    return {name: _value_to_proto(value) for name, value in features.values}


def _value_to_proto(value: FeatureValue) -> pb.FeatureValue:
    match value:
        case bool():
            return pb.FeatureValue(boolean=value)
        case str():
            return pb.FeatureValue(text=value)
        case float():
            return pb.FeatureValue(number=value)
        case tuple():
            numbers = [one for one in value if isinstance(one, float)]
            texts = [one for one in value if isinstance(one, str)]
            if numbers:
                return pb.FeatureValue(vector=pb.Numbers(values=numbers))
            return pb.FeatureValue(labels=pb.Labels(values=texts))


def _value(path: str, value: pb.FeatureValue) -> FeatureValue:
    match value.WhichOneof("value"):
        case "number":
            return _number(path, value.number)
        case "text":
            return _text(path, value.text)
        case "boolean":
            return value.boolean
        case "labels":
            return _labels(path, value.labels.values)
        case "vector":
            if not 1 <= len(value.vector.values) < MAX_CONTEXT_WIDTH:
                raise InvalidArgumentError(path, f"has {len(value.vector.values)} numbers; 1 to 255 are allowed")
            return tuple(_number(f"{path}[{n}]", number) for n, number in enumerate(value.vector.values))
        case _:
            raise InvalidArgumentError(path, "has no value; leave out a feature that is missing")


def _number(path: str, value: float) -> float:
    if math.isnan(value):
        raise InvalidArgumentError(path, f"expected a finite number, got {value}: leave out a feature that is missing")
    return fields.number(path, value, low=-MAX_FEATURE_MAGNITUDE, high=MAX_FEATURE_MAGNITUDE)


def _text(path: str, text: str) -> str:
    if len(text) > MAX_FEATURE_TEXT:
        problem = f"has {len(text)} characters; at most {MAX_FEATURE_TEXT} are allowed: {fields.quote_text(text)}"
        raise InvalidArgumentError(path, problem)
    return text


def _labels(path: str, labels: Sequence[str]) -> tuple[str, ...]:
    if len(labels) > MAX_LABELS:
        raise InvalidArgumentError(path, f"has {len(labels)} labels; at most {MAX_LABELS} are allowed")
    for place, label in enumerate(labels):
        if not _text(f"{path}[{place}]", label):
            raise InvalidArgumentError(f"{path}[{place}]", "is empty: leave it out")
    return tuple(labels)
