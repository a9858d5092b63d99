"""Schemas and values of features as parts of stored documents, written and read.

Equal schemas and equal values have equal documents. What no encoder here could have written raises `CorruptDataError`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from topk_bandit.domain.features import Boolean, Categorical, Feature, Features, LabelSet, Numeric, Vector
from topk_bandit.store.documents import Fields, refuse

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from topk_bandit.domain.features import FeatureKind, FeatureSchema, FeatureValue
    from topk_bandit.store.documents import Document

__all__ = ["features_document", "read_features", "read_schema", "schema_document"]


def features_document(features: Features) -> Document:
    """Return values by name."""
    return {name: _value_document(value) for name, value in features.values}


def _value_document(value: FeatureValue) -> object:
    if isinstance(value, tuple):
        return [one if isinstance(one, str) else float(one) + 0.0 for one in value]
    return value if isinstance(value, str | bool) else float(value) + 0.0


def read_features(fields: Fields) -> Features:
    """Return the values in a document, or raise `CorruptDataError`."""
    return Features.of({name: _read_value(fields, name) for name in fields.document})


def _read_value(fields: Fields, name: str) -> FeatureValue:
    value = fields.document[name]
    if isinstance(value, list):
        return fields.numbers(name) if value and isinstance(value[0], float) else fields.texts(name)
    if isinstance(value, str | bool) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return refuse(name, value)


def schema_document(schema: FeatureSchema) -> list[Document]:
    """Return the features of a schema in their order."""
    return [{"name": feature.name, **_kind_document(feature.kind)} for feature in schema]


def _kind_document(kind: FeatureKind) -> Document:
    match kind:
        case Numeric(least, most, unit, log_scale):
            declared = {"least": _float(least), "most": _float(most)}
            return {"kind": "numeric", **declared, "unit": unit, "log_scale": bool(log_scale)}
        case Boolean():
            return {"kind": "boolean"}
        case LabelSet(values, buckets):
            return {"kind": "labels", "values": list(values), "buckets": buckets}
        case Categorical(values, buckets):
            return {"kind": "categorical", "values": list(values), "buckets": buckets}
        case Vector(size, weight):
            return {"kind": "vector", "size": size, "weight": _float(weight)}


def _float(number: float | None) -> float | None:
    return None if number is None else float(number) + 0.0


def read_schema(fields: Fields, name: str) -> FeatureSchema:
    """Return the schema in a field of a document, or raise `CorruptDataError`."""
    return tuple(_read_feature(one, name) for one in fields.sequence(name))


def _read_feature(document: Any, name: str) -> Feature:  # noqa: ANN401, what JSON has
    fields = Fields(document) if isinstance(document, dict) else refuse(name, document)
    return Feature(fields.text("name"), fields.choice("kind", _KINDS)(fields))


_KINDS: Mapping[str, Callable[[Fields], FeatureKind]] = {
    "numeric": lambda fields: Numeric(
        fields.optional_number("least"), fields.optional_number("most"), fields.text("unit"), fields.flag("log_scale")
    ),
    "boolean": lambda _: Boolean(),
    "categorical": lambda fields: Categorical(fields.texts("values"), fields.integer("buckets")),
    "labels": lambda fields: LabelSet(fields.texts("values"), fields.integer("buckets")),
    "vector": lambda fields: Vector(fields.integer("size"), fields.number("weight")),
}
