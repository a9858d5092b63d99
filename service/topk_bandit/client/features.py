"""Named features in Python: the schema of a bandit, and the values of a request. No I/O here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import fields as dataclass_fields
from dataclasses import is_dataclass
from typing import TYPE_CHECKING, Any

from topk_bandit.client.arguments import WRONG, message, refuse, several
from topk_bandit.client.errors import invalid_argument
from topk_bandit.domain.features import Boolean, Categorical, Feature, FeatureStats, LabelSet, Numeric, Vector
from topk_bandit.domain.values import shorten
from topk_bandit.v1 import features_pb2 as pb
from topk_bandit.wire.features import kind_on_the_wire

if TYPE_CHECKING:
    from collections.abc import Iterable


__all__ = [
    "Feature",
    "FeatureStats",
    "boolean",
    "categorical",
    "feature_values",
    "features_of",
    "labels",
    "numeric",
    "schema_message",
    "vector",
]


def numeric(
    name: str, *, minimum: float | None = None, maximum: float | None = None, unit: str = "", log: bool = False
) -> Feature:
    """Return a feature whose values are numbers.

    Parameters
    ----------
    minimum, maximum
        Its usual range; both None for one that the service learns.
    unit
        For people.
    log
        Whether ratios count, not differences, as with amounts of money.
    """
    return Feature(name, Numeric(minimum, maximum, unit, log))


def categorical(name: str, *, values: Iterable[str] = (), buckets: int = 0) -> Feature:
    """Return a feature whose values are one text of several: declared ones, or any by their hash."""
    return Feature(name, Categorical(_texts(name, values), buckets))


def boolean(name: str) -> Feature:
    """Return a feature that is true or false."""
    return Feature(name, Boolean())


def labels(name: str, *, values: Iterable[str] = (), buckets: int = 0) -> Feature:
    """Return a feature whose values are sets of texts: of declared ones, or of any by their hash."""
    return Feature(name, LabelSet(_texts(name, values), buckets))


def vector(name: str, *, dimension: int, weight: float = 1.0) -> Feature:
    """Return a feature whose values are embeddings, which count `weight` times as much as any other feature."""
    return Feature(name, Vector(dimension, weight))


def _texts(name: str, values: Iterable[str]) -> tuple[str, ...]:
    if isinstance(values, str):
        raise invalid_argument(f'context_schema["{name}"].values', "must be several texts, not one")
    return tuple(values)


def schema_message(field: str, schema: Iterable[Feature] | None) -> pb.FeatureSchema | None:
    """Return the message of a schema; None for none. Errors name what is below `field`."""
    if schema is None:
        return None
    made = [_feature_message(f"{field}[{place}]", feature) for place, feature in enumerate(several(field, schema))]
    return pb.FeatureSchema(features=made)


def _feature_message(path: str, feature: Feature) -> pb.Feature:
    if not isinstance(feature, Feature):
        raise refuse(path, feature)
    at = f'{path.partition("[")[0]}["{feature.name}"]'
    name, form = kind_on_the_wire(feature.kind)
    kind = message(form.message, at, **form.fields(feature.kind))
    return message(pb.Feature, path, name=feature.name, **{name: kind})


def feature_values(features: object, *, field: str = "features") -> dict[str, pb.FeatureValue]:
    """Return the values of a mapping or of a dataclass by name; those that are None are missing.

    Numbers, texts, booleans and enumerations of texts are taken as what they are, sequences of numbers and arrays as
    vectors, and sets and sequences of texts, also empty ones, as labels.
    """
    if is_dataclass(features) and not isinstance(features, type):
        values: Mapping[Any, Any] = {one.name: getattr(features, one.name) for one in dataclass_fields(features)}
    elif isinstance(features, Mapping):
        values = features
    else:
        raise invalid_argument(field, f"expected a mapping or a dataclass, got {shorten(features)}")
    return {_name(field, name): _value(f'{field}["{name}"]', one) for name, one in values.items() if one is not None}


def _name(field: str, name: object) -> str:
    if not isinstance(name, str) or not name.isprintable():
        raise invalid_argument(field, f"has the name {name!r:.60}, which no feature can have")
    return name


def features_of(values: Mapping[str, pb.FeatureValue]) -> dict[str, Any]:
    """Return values by name, in the order of the names: labels as sets, vectors as tuples of numbers."""
    return {name: _read_value(values[name]) for name in sorted(values)}


def _read_value(value: pb.FeatureValue) -> Any:  # noqa: ANN401, whatever a shop has
    match value.WhichOneof("value"):
        case "labels":
            return frozenset(value.labels.values)
        case "vector":
            return tuple(value.vector.values)
        case kind:
            return getattr(value, str(kind))


def _value(path: str, value: Any) -> pb.FeatureValue:  # noqa: ANN401, whatever a shop has
    try:
        return _typed(path, value)
    except WRONG:  # a number that is too large, or a text that is not one of Unicode
        raise refuse(path, value) from None


def _typed(path: str, value: Any) -> pb.FeatureValue:  # noqa: ANN401, whatever a shop has
    if hasattr(value, "tolist"):  # of an array or a number of numpy
        value = value.tolist()
    match value:
        case bool():
            return pb.FeatureValue(boolean=value)
        case str():
            return pb.FeatureValue(text=value)
        case AbstractSet() | Sequence() if all(isinstance(one, str) for one in value):
            # A list keeps its order: its texts may be the numbers of a vector.
            return pb.FeatureValue(labels=pb.Labels(values=sorted(value) if isinstance(value, AbstractSet) else value))
        case Sequence() if not isinstance(value, bytes) and all(map(_is_number, value)):
            return pb.FeatureValue(vector=pb.Numbers(values=map(float, value)))
        case _ if _is_number(value):
            return pb.FeatureValue(number=float(value))
    hint = ': write nested features flat, such as "user.age"' if isinstance(value, Mapping) else ""
    expected = "a number, a text, true or false, texts, or numbers"
    raise invalid_argument(path, f"expected {expected}, got {shorten(value)}{hint}")


def _is_number(value: object) -> bool:
    return hasattr(value, "__float__") and not isinstance(value, bool | str)
