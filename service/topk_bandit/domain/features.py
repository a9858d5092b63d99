"""Named features: what a shop knows of a request or an item in its own words, and the schema that says what each is.

A schema's features become numbers in `topk_bandit.learning.encoding`. Each of them may be missing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "MAX_FEATURE_MAGNITUDE",
    "MAX_FEATURE_TEXT",
    "NO_FEATURES",
    "Boolean",
    "Categorical",
    "Context",
    "Feature",
    "FeatureKind",
    "FeatureSchema",
    "FeatureStats",
    "FeatureValue",
    "Features",
    "LabelSet",
    "Numeric",
    "Vector",
    "width_of",
]

MAX_FEATURE_MAGNITUDE = 1e100
"""How far from zero a feature's number may be."""

MAX_FEATURE_TEXT = 256
"""How many characters a feature's text may have."""


@dataclass(frozen=True, slots=True)
class Numeric:
    """A number.

    Attributes
    ----------
    least, most
        The range that is declared; both None for one that is learned from the first values.
    unit
        For people.
    log_scale
        Whether ratios count, not differences: its logarithm is encoded, and what is not positive is below all else.
    """

    least: float | None = None
    most: float | None = None
    unit: str = ""
    log_scale: bool = False

    @property
    def width(self) -> int:
        """How many numbers encode it: itself, and whether it is missing."""
        return 2


@dataclass(frozen=True, slots=True)
class Boolean:
    """True or false."""

    @property
    def width(self) -> int:
        """How many numbers encode it: itself, and whether it is missing."""
        return 2


@dataclass(frozen=True, slots=True)
class Categorical:
    """One text of several.

    Attributes
    ----------
    values
        Those that are declared; all others are unknown. None of them for texts that are hashed.
    buckets
        How many numbers hashed texts share; 0 for declared ones.
    """

    values: tuple[str, ...] = ()
    buckets: int = 0

    @property
    def width(self) -> int:
        """How many numbers encode it: a place a value and one for unknown ones, or the buckets; and one if missing."""
        return self.buckets + 1 if self.buckets else len(self.values) + 2


@dataclass(frozen=True, slots=True)
class LabelSet(Categorical):
    """Any number of texts at once, of which none counts twice; the rest as of `Categorical`."""


@dataclass(frozen=True, slots=True)
class Vector:
    """An embedding of `size` numbers that counts `weight` times as much as any other feature."""

    size: int
    weight: float = 1.0

    @property
    def width(self) -> int:
        """How many numbers encode it: its own, and whether it is missing."""
        return self.size + 1


FeatureKind: TypeAlias = Numeric | Boolean | Categorical | LabelSet | Vector


@dataclass(frozen=True, slots=True)
class Feature:
    """One feature of a schema."""

    name: str
    kind: FeatureKind


FeatureSchema: TypeAlias = tuple[Feature, ...]

FeatureValue: TypeAlias = float | bool | str | tuple[str, ...] | tuple[float, ...]
"""The values that a numeric, boolean or categorical feature, a label set and a vector have."""


@dataclass(frozen=True, slots=True)
class Features:
    """Values by name, in the order of the names; those that are missing are left out."""

    values: tuple[tuple[str, FeatureValue], ...] = ()

    @classmethod
    def of(cls, values: Mapping[str, FeatureValue]) -> Features:
        """Return these values."""
        return cls(tuple(sorted(values.items(), key=lambda pair: pair[0])))


NO_FEATURES = Features()
"""No features."""

Context: TypeAlias = tuple[float, ...] | Features
"""What a slate is chosen for: numbers as the caller encoded them, or features by name."""


def width_of(schema: FeatureSchema) -> int:
    """Return how many numbers encode the features of a schema."""
    return sum(feature.kind.width for feature in schema)


@dataclass(frozen=True, slots=True)
class FeatureStats:
    """What was seen of a feature in a bandit's requests, or its items as they were added or changed.

    Attributes
    ----------
    name
        Empty for a context that is one vector, whose norms the rest is about.
    centre, scale
        What encodes as 0, and how far from it as 1, in the unit of the feature, logarithms on a log scale; 0 for what
        has neither, or is always the same. The scale of a vector is its median length.
    frozen
        Whether both stay as they are.
    clamped_count, unknown_count, missing_count
        In how many of them it was farther out than is believed, a value that is not declared, or not there.
    share
        How much of what tells slates apart comes of it, from 0 to 1.
    """

    name: str
    centre: float
    scale: float
    frozen: bool
    clamped_count: int
    unknown_count: int
    missing_count: int
    share: float = 0.0
