"""Items of a study that are described as a bandit's are: by named features, encoded when the study is created.

They become the rows that a bandit with the same schema makes of the same items: a shop describes its items once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from topk_bandit.bandits.contexts import check_features, read_features
from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.learning.content import MOST_FEATURES
from topk_bandit.learning.item_features import ItemFeatures, content_width
from topk_bandit.rpc.features import features_from_proto, schema_from_proto

if TYPE_CHECKING:
    from topk_bandit.domain.features import Features, FeatureSchema
    from topk_bandit.v1 import preference_service_pb2 as pb

__all__ = ["encode_named", "refuse_named"]

_SCHEMA = "study.item_schema"

_DECIMALS = 9
"""A study that is created again elsewhere is the same: logarithms differ by less from one processor to another."""


def encode_named(study: pb.Study) -> list[tuple[float, ...]]:
    """Return the features of each item of a study with an item schema; errors name the feature."""
    schema = schema_from_proto(_SCHEMA, study.item_schema)
    width = content_width(schema)
    if width > MOST_FEATURES:
        problem = f"gives each item {width} numbers, not counting what is missing; at most {MOST_FEATURES} are allowed"
        raise InvalidArgumentError(_SCHEMA, problem)
    named = [_named(schema, f"study.items[{place}]", item) for place, item in enumerate(study.items)]
    places, none = np.arange(len(named), dtype=np.int32), np.zeros(0, dtype=np.int32)
    encoded = ItemFeatures.initial(schema, n_places=len(named)).change(places, named, free=none)
    return [tuple(row) for row in np.round(encoded.rows, _DECIMALS).tolist()]


def _named(schema: FeatureSchema, path: str, item: pb.StudyItem) -> Features:
    if item.features:
        raise InvalidArgumentError(f"{path}.features", "can't be used: the study has an item_schema")
    features = read_features(schema, features_from_proto(f"{path}.named_features", item.named_features))
    check_features(schema, features, field=f"{path}.named_features")
    return features


def refuse_named(study: pb.Study) -> None:
    """Refuse named features in a study without a schema."""
    for place, item in enumerate(study.items):
        if item.named_features:
            raise InvalidArgumentError(
                f"study.items[{place}].named_features", "can't be used: the study has no item_schema"
            )
