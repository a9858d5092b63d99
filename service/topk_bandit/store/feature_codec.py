"""Schemas and values of features as parts of stored documents, written and read.

Equal schemas and equal values have equal documents. What no encoder here could have written raises `CorruptDataError`.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from msgspec.structs import astuple

from topk_bandit.domain.features import Boolean, Categorical, Feature, Features, LabelSet, Numeric, Vector
from topk_bandit.store.documents import Layout, any_of, derive, plain, refuse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topk_bandit.domain.features import Context, FeatureKind, FeatureSchema, FeatureValue
    from topk_bandit.store.documents import Document

__all__ = [
    "ContextLayout",
    "FeaturesLayout",
    "SchemaLayout",
    "context_document",
    "features_document",
    "read_context",
    "read_features",
    "schema_document",
]

FeaturesLayout = dict[str, bool | float | str | tuple[float | str, ...]]
ContextLayout = tuple[float, ...] | FeaturesLayout


def features_document(features: Features) -> Document:
    """Return values by name."""
    return {name: _value_document(value) for name, value in features.values}


def _value_document(value: FeatureValue) -> object:
    if isinstance(value, tuple):
        return [one if isinstance(one, str) else plain(one) for one in value]
    return value if isinstance(value, str | bool) else plain(value)


def read_features(stored: FeaturesLayout) -> Features:
    """Return the values in a document, or raise `CorruptDataError`."""
    for name, value in stored.items():
        if isinstance(value, tuple) and len(set(map(type, value))) > 1:
            refuse(name, value)
    return Features.of(stored)  # type: ignore[arg-type]  # no tuple has numbers and texts


def context_document(context: Context) -> Document | Sequence[float]:
    """Return a context: numbers as they are, or values by name."""
    return features_document(context) if isinstance(context, Features) else context


def read_context(stored: ContextLayout) -> Context:
    """Return the context in a document, or raise `CorruptDataError`."""
    return read_features(stored) if isinstance(stored, dict) else stored


class _Feature(Layout, tag_field="kind"):
    name: str

    def read(self) -> Feature:
        return Feature(self.name, self.of(*astuple(self)[1:]))


_KINDS: dict[type[FeatureKind], str] = {
    Numeric: "numeric",
    Boolean: "boolean",
    Categorical: "categorical",
    LabelSet: "labels",
    Vector: "vector",
}
if TYPE_CHECKING:
    SchemaLayout = tuple[_Feature, ...]
else:
    SchemaLayout = tuple[any_of(derive(kind, _Feature, tag=tag) for kind, tag in _KINDS.items()), ...]


def schema_document(schema: FeatureSchema) -> list[Document]:
    """Return the features of a schema in their order."""
    return [
        {"name": feature.name, "kind": _KINDS[type(feature.kind)], **_declare_kind(feature.kind)} for feature in schema
    ]


def _declare_kind(kind: FeatureKind) -> Document:
    said = asdict(kind)
    numbers = {name: plain(said[name]) for name in ("least", "most", "weight") if said.get(name) is not None}
    return {**said, **numbers}
