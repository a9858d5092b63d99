"""What Python values become of a request's features."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from typing import TypedDict

import numpy as np
import pytest

from topk_bandit.client import InvalidArgument, categorical
from topk_bandit.client.features import feature_values
from topk_bandit.v1 import features_pb2 as pb


class Device(StrEnum):
    PHONE = "phone"


class Typed(TypedDict):
    age: int


@dataclass
class Plain:
    age: int
    name: str | None = None


NUMBER = pb.FeatureValue(number=3.0)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (3, NUMBER),
        (3.0, NUMBER),
        (np.float32(3.0), NUMBER),
        (np.int64(3), NUMBER),
        (Decimal(3), NUMBER),
        (True, pb.FeatureValue(boolean=True)),
        (np.bool_(0), pb.FeatureValue(boolean=False)),
        ("x", pb.FeatureValue(text="x")),
        (Device.PHONE, pb.FeatureValue(text="phone")),
        (["b", "a"], pb.FeatureValue(labels=pb.Labels(values=["b", "a"]))),
        (frozenset({"b", "a"}), pb.FeatureValue(labels=pb.Labels(values=["a", "b"]))),
        (set(), pb.FeatureValue(labels=pb.Labels())),
        ([], pb.FeatureValue(labels=pb.Labels())),
        ((1, 2.5), pb.FeatureValue(vector=pb.Numbers(values=[1.0, 2.5]))),
        (np.array([1.0, 2.5], dtype=np.float32), pb.FeatureValue(vector=pb.Numbers(values=[1.0, 2.5]))),
    ],
)
def test_values_are_taken_as_what_they_are(value: object, message: pb.FeatureValue) -> None:
    assert feature_values({"x": value}) == {"x": message}


@pytest.mark.parametrize("features", [{"age": 3}, Typed(age=3), Plain(3), {"age": 3, "name": None}])
def test_features_come_in_mappings_and_dataclasses(features: object) -> None:
    assert feature_values(features) == {"age": NUMBER}


@pytest.mark.parametrize("value", [object(), {"a": 1}, [1.0, "a"], [True], [[1.0]], b"x", {1.0, 2.0}])
def test_what_can_t_be_a_value_is_refused_by_name(value: object) -> None:
    with pytest.raises(InvalidArgument) as refused:
        feature_values({"x": value})
    assert refused.value.field == 'features["x"]'
    assert "expected a number" in str(refused.value)
    assert ("write nested features flat" in str(refused.value)) == isinstance(value, dict)


@pytest.mark.parametrize("features", ["age", 3, [("age", 3)], Plain])
def test_what_has_no_names_is_refused(features: object) -> None:
    with pytest.raises(InvalidArgument) as refused:
        feature_values(features)
    assert refused.value.field == "features"


def test_one_text_is_not_several_values() -> None:
    with pytest.raises(InvalidArgument, match="several"):
        categorical("country", values="DE")
