"""Feature schemas on the wire, and what was seen of features."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from topk_bandit.domain.features import Boolean, Categorical, Feature, FeatureStats, LabelSet, Numeric, Vector
from topk_bandit.v1 import features_pb2 as pb
from topk_bandit.wire.forms import Form, Pair

if TYPE_CHECKING:
    from topk_bandit.domain.features import FeatureKind

__all__ = ["FEATURE_STATS", "SCHEMA", "kind_on_the_wire"]

FEATURE_STATS = Form(FeatureStats, pb.FeatureStats)

_KINDS: dict[str, Form[Any, Any]] = {
    "numeric": Form(Numeric, pb.NumericFeature, names={"least": "min", "most": "max"}),
    "categorical": Form(Categorical, pb.CategoricalFeature),
    "boolean": Form(Boolean, pb.BooleanFeature),
    "labels": Form(LabelSet, pb.LabelSetFeature),
    "vector": Form(Vector, pb.VectorFeature, names={"size": "dimension"}),
}


_FIELDS = {form.value: name for name, form in _KINDS.items()}


def kind_on_the_wire(kind: FeatureKind) -> tuple[str, Form[Any, Any]]:
    """Return the field that holds a kind, and the form of what it holds."""
    name = _FIELDS[type(kind)]
    return name, _KINDS[name]


def _write(feature: Feature) -> pb.Feature:
    name, form = kind_on_the_wire(feature.kind)
    return pb.Feature(name=feature.name, **{name: form.write(feature.kind)})


def _read(feature: pb.Feature) -> Feature:
    name = feature.WhichOneof("kind")
    return Feature(feature.name, Boolean() if name is None else _KINDS[name].read(getattr(feature, name)))


SCHEMA = Pair(
    lambda schema: pb.FeatureSchema(features=map(_write, schema)), lambda message: tuple(map(_read, message.features))
)
