"""Features as nested JSON objects, as named features, and the schema that they make. No I/O here.

The name of a feature is the path to it, with dots. A name may have letters of ASCII, digits, '.', '_' and '-': where a
path has others, each becomes '-', and a digest of the path keeps different names different.
"""

from __future__ import annotations

import re
from hashlib import blake2b
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

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
from topk_bandit.domain.values import is_missing, read_number, read_text

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
_EXACT = 2**53


def flatten(objects: Iterable[Mapping[str, Any]], *, lost: set[str] | None = None) -> FlatFeatures:
    """Return the features in the objects, by path.

    Left out are null, blank texts, empty lists, names that begin with '_', and what is no value of a feature: lists of
    unlike values, numbers beyond 1e100, what is too deep. A path that comes again gets a number:
    ``seen.price``, ``seen.price.2``.

    Parameters
    ----------
    lost
        Is given the names at which there is something that is no value of a feature.
    """
    flat = _Flat({}, {}, set() if lost is None else lost)
    for one in objects:
        flat.add(one, ())
    return flat.values


class _Flat(NamedTuple):
    """Features by name, the path of each name, and names at which something was lost."""

    values: FlatFeatures
    paths: dict[str, tuple[str, ...]]
    lost: set[str]

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
                self._add_plain(below, None if is_nested else _plain(value), is_cut=_is_cut(value))

    def _add_plain(self, path: tuple[str, ...], plain: Any, *, is_cut: bool) -> None:  # noqa: ANN401, whatever a shop has
        name = _name(path)
        if plain is None or is_cut or self.paths.setdefault(name, path) != path:
            self.lost.add(name)
        if plain is not None:
            self.values[_free_name(name, self.values)] = plain


def _is_cut(value: object) -> bool:
    texts = value if isinstance(value, list) else [value]
    return any(isinstance(one, str) and len(one) > _MOST_CHARACTERS for one in texts)


def _plain(value: Any) -> Any:  # noqa: ANN401, whatever a shop has
    found: Any = None
    match value:
        case bool():
            found = value
        case int() if abs(value) > _EXACT:  # an id, whose last digits a number would lose
            found = str(value)
        case int() | float() if abs(value) <= _LARGEST:
            found = float(value)
        case str():
            found = _shorten(value, value, _MOST_CHARACTERS)
        case [*texts] if all(isinstance(one, str) and one.strip() for one in texts) and len(texts) <= _MOST_LABELS:
            found = frozenset(_shorten(one, one, _MOST_CHARACTERS) for one in texts)
        case [*numbers] if all(type(one) in {int, float} and abs(one) <= _LARGEST for one in numbers):
            found = tuple(map(float, numbers))
    return found


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
        if len(schema) < MOST_FEATURES and width + kind.width - spare <= most_numbers:
            schema = (*schema, Feature(name, kind))
            width += kind.width - spare
    return schema


def _kind_of(value: Any, buckets: int) -> FeatureKind:  # noqa: ANN401, a value of `FlatFeatures`
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


def fit_features(features: FlatFeatures, schema: FeatureSchema | None, *, lost: set[str] | None = None) -> FlatFeatures:
    """Return what a schema takes of features: a value of another kind is read as the schema's where it says the same.

    Parameters
    ----------
    lost
        Is given the names at which there is something else.
    """
    found: FlatFeatures = {}
    for feature in schema or ():
        try:
            value = _fit(features[feature.name], feature.kind) if feature.name in features else None
        except ValueError:
            value = None
            if lost is not None:
                lost.add(feature.name)
        if value is not None:
            found[feature.name] = value
    return found


def _fit(value: Any, kind: FeatureKind) -> Any:  # noqa: ANN401, a value of `FlatFeatures`
    """Return a value as one of its kind, None if it is missing; or raise ValueError."""
    match kind, value:
        case (Numeric(), float()) | (Boolean(), bool()) | (LabelSet(), frozenset()):
            return value
        case Numeric(), str():
            return _number_in(value)
        case LabelSet(), str():
            return frozenset({value})
        case LabelSet(), tuple():
            return frozenset(read_text(number) or "" for number in value)
        case Categorical(), bool() | float() | str() if not isinstance(kind, LabelSet):
            return read_text(value)
        case Vector(size), tuple() if len(value) == size:
            return value
    raise ValueError


def _number_in(text: str) -> float | None:
    number = read_number(text)
    if number is not None and abs(number) > _LARGEST:
        raise ValueError
    return number
