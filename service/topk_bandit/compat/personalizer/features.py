"""Features as nested JSON objects, as named features, and the schema that they make. No I/O here.

The name of a feature is the path to it, with dots. A name may have letters of ASCII, digits, '.', '_' and '-': where a
path has others, each becomes '-', and a digest of the path keeps different names different.
"""

from __future__ import annotations

import re
from hashlib import blake2b
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from topk_bandit.domain.feature_values import read_feature
from topk_bandit.domain.features import (
    MAX_FEATURE_MAGNITUDE,
    MAX_FEATURE_TEXT,
    Boolean,
    Categorical,
    Feature,
    FeatureKind,
    FeatureSchema,
    LabelSet,
    Numeric,
    Vector,
)
from topk_bandit.domain.values import is_missing, shorten

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["CONTEXT_BUCKETS", "ITEM_BUCKETS", "FlatFeatures", "extend_schema", "fit_features", "flatten"]

FlatFeatures: TypeAlias = dict[str, Any]
"""Values by name: numbers, texts, booleans, and lists or sets of these."""

CONTEXT_BUCKETS, ITEM_BUCKETS = 16, 8
"""How many numbers all texts of a feature share: 15 such features of contexts fit into 256, 7 of items into 56."""

MOST_FEATURES, MOST_NUMBERS, DEEPEST = 64, 256, 16
_LONGEST_NAME, _MOST_LABELS, _LONGEST_VECTOR = 64, 256, 255
_EXACT = 2**53


def flatten(objects: Iterable[Mapping[str, Any]], *, lost: dict[str, str] | None = None) -> FlatFeatures:
    """Return the features in the objects, by path.

    Left out are null, blank texts, empty lists, names that begin with '_', and what is no value of a feature: lists in
    lists, and what is too deep. A path that comes again gets a number: ``seen.price``, ``seen.price.2``.

    Parameters
    ----------
    lost
        Is given what is wrong with a value that is left out or cut, by its name.
    """
    flat = _Flat({}, {}, {} if lost is None else lost)
    for one in objects:
        flat.add(one, ())
    return flat.values


class _Flat(NamedTuple):
    """Features by name, the path of each name, and what is wrong with what was lost."""

    values: FlatFeatures
    paths: dict[str, tuple[str, ...]]
    lost: dict[str, str]

    def add(self, values: Mapping[str, Any], path: tuple[str, ...]) -> None:
        """Add the features in an object at a path."""
        for name, value in values.items():
            below = (*path, name)
            if name.startswith("_") or is_missing(value) or value == []:
                continue
            inner = [value] if isinstance(value, dict) else value
            inner = [one for one in inner if one is not None] if isinstance(inner, list) else inner
            is_nested = isinstance(inner, list) and any(isinstance(one, dict) for one in inner)
            if is_nested and len(below) < DEEPEST and all(isinstance(one, dict) for one in inner):
                for one in inner:
                    self.add(one, below)
            else:
                self._add_plain(below, value)

    def _add_plain(self, path: tuple[str, ...], value: Any) -> None:  # noqa: ANN401, whatever a shop has
        name = _name(path)
        parts = value if isinstance(value, list) else [value]
        if isinstance(value, dict) or any(isinstance(one, list | dict) for one in parts):
            self.lost[name] = f"expected a value, or a list of values, got {shorten(value)}"
            return
        if any(isinstance(one, str) and len(one) > MAX_FEATURE_TEXT for one in parts):
            self.lost[name] = f"has more than {MAX_FEATURE_TEXT} characters: {shorten(value)}"
        if self.paths.setdefault(name, path) != path:
            self.lost[name] = f"is there by two paths, {self.paths[name]!r} and {path!r}"
        self.values[_free_name(name, self.values)] = list(map(_plain, value)) if parts is value else _plain(value)


def _plain(value: Any) -> Any:  # noqa: ANN401, whatever a shop has
    match value:
        case bool():
            return value
        case int():  # the last digits of a large id would be lost to a number
            return str(value) if abs(value) > _EXACT else float(value)
        case str():
            return _shorten(value, value, MAX_FEATURE_TEXT)
    return value


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


def _free_name(name: str, taken: FlatFeatures) -> str:
    """Return a name that is not taken yet."""
    if name not in taken:
        return name
    number = next(number for number in count(2) if f"{name}.{number}" not in taken)
    return f"{name[: _LONGEST_NAME - 4]}.{number}"


def extend_schema(
    schema: FeatureSchema, features: FlatFeatures, *, buckets: int, spare: int = 0, most_numbers: int = MOST_NUMBERS
) -> FeatureSchema:
    """Return a schema with the features that it lacks, in the order of their names, as far as its capacity allows.

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
    for name in sorted(features.keys() - known):
        kind = _kind_of(features[name], buckets)
        if kind is None:
            continue
        if len(schema) < MOST_FEATURES and width + kind.width - spare <= most_numbers:
            schema = (*schema, Feature(name, kind))
            width += kind.width - spare
    return schema


def _kind_of(value: Any, buckets: int) -> FeatureKind | None:  # noqa: ANN401, a value of `FlatFeatures`
    """Return the kind of feature that a value is of, None if it is of none: unlike parts, or a number too large."""
    match value:
        case bool():
            return Boolean()
        case float() if abs(value) <= MAX_FEATURE_MAGNITUDE:
            return Numeric()
        case str():
            return Categorical(buckets=buckets)
        case [*texts] if len(texts) <= _MOST_LABELS and all(isinstance(one, str) and one.strip() for one in texts):
            return LabelSet(buckets=buckets)
        case [*numbers] if len(numbers) <= _LONGEST_VECTOR and all(_is_number(one) for one in numbers):
            return Vector(len(numbers))
    return None


def _is_number(value: object) -> bool:
    return isinstance(value, float) and abs(value) <= MAX_FEATURE_MAGNITUDE


def fit_features(
    features: FlatFeatures, schema: FeatureSchema | None, *, lost: dict[str, str] | None = None
) -> FlatFeatures:
    """Return what a schema takes of features, each read as one of its kind; labels are sets.

    Parameters
    ----------
    lost
        Is given what is wrong with a value that is of another kind, by its name.
    """
    found: FlatFeatures = {}
    for feature in schema or ():
        try:
            value = read_feature(feature.kind, features.get(feature.name))
        except ValueError as error:
            value = None
            if lost is not None:
                lost[feature.name] = str(error)
        if value is not None:
            found[feature.name] = frozenset(value) if isinstance(feature.kind, LabelSet) else value  # type: ignore[arg-type]
    return found
