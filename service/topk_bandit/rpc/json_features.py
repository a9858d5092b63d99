"""Values of features in JSON as everybody writes them first: a text, a number, true, or a list of texts or numbers.

They stand beside the typed form of the protos, ``{"text": "DE"}``. Which kind a feature is of, its schema says.
"""

from __future__ import annotations

from typing import Any

__all__ = ["FEATURE_VALUE", "WRITTEN_PLAINLY", "typed_value"]

FEATURE_VALUE = "topk_bandit.v1.FeatureValue"
"""The message that may be written plainly."""

WRITTEN_PLAINLY = 'a text, a number, true or false, a list, or an object such as {"text": "DE"}'


def typed_value(value: Any) -> Any:  # noqa: ANN401, whatever JSON holds
    """Return the typed form of a value; one that has it, or is of no kind of feature, stays as it is.

    An empty list is a set of no labels, since no vector is empty.
    """
    match value:
        case bool():
            return {"boolean": value}
        case str():
            return {"text": value}
        case int() | float():
            return {"number": value}
        case list() if all(isinstance(one, str) for one in value):
            return {"labels": {"values": value}}
        case list() if all(type(one) in {int, float} for one in value):
            return {"vector": {"values": value}}
    return value
