"""Features as nested JSON objects, as named features, and the schema that they make. No I/O here.

The name of a feature is the path to it, with dots. A name may have letters of ASCII, digits, '.', '_' and '-': where a
path has others, each becomes '-', and a digest of the path keeps different names different.
"""

from __future__ import annotations

import re
from hashlib import blake2b
from itertools import count
from typing import TYPE_CHECKING, Any, TypeAlias

from topk_bandit.domain.features import (
    Boolean,
    Categorical,
    Feature,
    FeatureKind,
    FeatureSchema,
    LabelSet,
    Numeric,
    Vector,
)
from topk_bandit.domain.values import read_number, read_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["CONTEXT_BUCKETS", "ITEM_BUCKETS", "FlatFeatures", "extend_schema", "fit_features", "flatten"]

FlatFeatures: TypeAlias = dict[str, Any]
"""Values by name: numbers, texts, booleans, sets of texts and tuples of numbers."""

CONTEXT_BUCKETS, ITEM_BUCKETS = 16, 8
"""How many numbers all texts of a feature share: 15 such features of contexts fit into 256, 7 of items into 56."""

MOST_FEATURES, MOST_NUMBERS, DEEPEST = 64, 256, 16
_MOST_CHARACTERS, _LONGEST_NAME, _LARGEST = 256, 64, 1e100
_MOST_LABELS = 256


def flatten(objects: Iterable[Mapping[str, Any]]) -> FlatFeatures:
    """Return what the objects tell, by path.

    Left out are null, empty texts and lists, lists of unlike values, names that begin with '_', and what is too deep.
    What comes again at one path is told apart by a number: ``seen.price``, ``seen.price.2``.
    """
    told: FlatFeatures = {}
    for one in objects:
        _flatten(one, (), told)
    return told


def _flatten(values: Mapping[str, Any], path: tuple[str, ...], told: FlatFeatures) -> None:
    for name, value in values.items():
        below = (*path, name)
        if name.startswith("_") or len(below) > DEEPEST:
            continue
        inner = [value] if isinstance(value, dict) else value
        if isinstance(inner, list) and inner and all(isinstance(one, dict) for one in inner):
            for one in inner:
                _flatten(one, below, told)
        elif (plain := _plain(value)) is not None:
            told[_free_name(_name(below), told)] = plain


def _plain(value: Any) -> Any:  # noqa: ANN401, whatever a shop has
    match value:
        case bool():
            return value
        case int() | float():
            return float(value) if abs(value) <= _LARGEST else None
        case str():
            return _shorten(value, value, _MOST_CHARACTERS) or None
        case [*texts] if texts and all(isinstance(one, str) for one in texts):
            return frozenset(_shorten(one, one, _MOST_CHARACTERS) for one in texts[:_MOST_LABELS] if one)
        case [*numbers] if numbers and all(type(one) in {int, float} and abs(one) <= _LARGEST for one in numbers):
            return tuple(map(float, numbers))
    return None


def _name(path: tuple[str, ...]) -> str:
    """Return a name that a schema takes; one that lost something ends with a digest of the path."""
    whole = ".".join(path)
    name = re.sub(r"[^a-zA-Z0-9._-]", "-", whole) or "-"
    return name if name == whole and len(name) <= _LONGEST_NAME else _with_digest(name, whole, _LONGEST_NAME)


def _shorten(text: str, whole: str, most: int) -> str:
    return text if len(text) <= most else _with_digest(text, whole, most)


def _with_digest(text: str, whole: str, most: int) -> str:
    """Return a text of so many characters that differs from others as the whole ones do."""
    digest = blake2b(whole.encode(errors="surrogatepass"), digest_size=4).hexdigest()
    return f"{text[: most - 9]}-{digest}"


def _free_name(name: str, told: FlatFeatures) -> str:
    """Return a name that is not told yet."""
    if name not in told:
        return name
    number = next(number for number in count(2) if f"{name}.{number}" not in told)
    return f"{name[: _LONGEST_NAME - 4]}.{number}"


def extend_schema(
    schema: FeatureSchema, told: FlatFeatures, *, buckets: int, spare: int = 0, most_numbers: int = MOST_NUMBERS
) -> FeatureSchema:
    """Return a schema with what is told and not in it, in the order of the names, as far as there is room.

    Parameters
    ----------
    buckets
        How many numbers the texts of a feature share.
    spare
        How many of a feature's numbers are not counted.
    most_numbers
        How many there may be.
    """
    known = {feature.name for feature in schema}
    width = sum(feature.kind.width - spare for feature in schema)
    for name in sorted(told.keys() - known):
        kind = _kind_of(told[name], buckets)
        if len(schema) < MOST_FEATURES and width + kind.width - spare <= most_numbers:
            schema = (*schema, Feature(name, kind))
            width += kind.width - spare
    return schema


def _kind_of(value: Any, buckets: int) -> FeatureKind:  # noqa: ANN401, one of those that are told
    match value:
        case bool():
            return Boolean()
        case float():
            return Numeric()
        case str():
            return Categorical(buckets=buckets)
        case tuple():
            return Vector(len(value))
        case _:
            return LabelSet(buckets=buckets)


def fit_features(told: FlatFeatures, schema: FeatureSchema | None) -> FlatFeatures:
    """Return what a schema takes of it: what is of another kind is read as the schema's where that says the same."""
    found = {feature.name: _fit(told[feature.name], feature.kind) for feature in schema or () if feature.name in told}
    return {name: value for name, value in found.items() if value is not None}


def _fit(value: Any, kind: FeatureKind) -> Any:  # noqa: ANN401, one of those that are told
    match kind, value:
        case (Numeric(), float()) | (Boolean(), bool()) | (LabelSet(), frozenset()):
            found = value
        case Numeric(), str():
            found = _number_in(value)
        case LabelSet(), str():
            found = frozenset({value})
        case Categorical(), bool() | float() | str() if not isinstance(kind, LabelSet):
            found = _text_of(value)
        case Vector(size), tuple() if len(value) == size:
            found = value
        case _:
            found = None
    return found


def _text_of(value: bool | float | str) -> str | None:  # noqa: FBT001, what JSON has
    try:
        return read_text(value)
    except ValueError:
        return None


def _number_in(text: str) -> float | None:
    try:
        number = read_number(text)
    except ValueError:
        return None
    return number if number is not None and abs(number) <= _LARGEST else None
