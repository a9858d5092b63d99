"""What was seen of one feature so far: where its numbers lie, and how often one was odd.

Numbers without a declared range are centred on their median and scaled by quantiles, so that a few wild ones among them
change next to nothing. Both are taken of the first values, anew at a few growing counts, and then for good.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from topk_bandit.domain.features import FeatureKind, FeatureStats, Numeric, Vector
from topk_bandit.learning._layout import lay_out

__all__ = ["COUNTS", "FeatureRecord", "Mark"]

FloatArray = NDArray[np.float64]

COUNTS = (1, 2, 4, 16, 64, 256, 1024)
"""Values after which centre and scale are taken; the last time for good."""

FEWEST_VALUES = 16
"""So many values give a range. Fewer only give a unit, in which nothing is lost until there are more."""

_LOOSE_LIMIT = 100.0

_FARTHER = 10.0
"""A value so many times as far out as is believed is an error."""

_ROUNDING = 1e-12
"""Values that differ by less than this part of the largest are equal, and were rounded."""

_UNIFORM_SPREAD = 3.0**0.5
"""Half the width of a uniform distribution in units of its standard deviation."""

_TAILS = ((0.16, 0.994), (0.05, 1.645), (0.01, 2.326), (0.0, 3.0))
"""Tails that are cut off, and where they begin in a normal distribution: more is cut off only if something is left."""


class Mark(IntEnum):
    """How a value was taken."""

    IN_RANGE = 0
    CLAMPED = 1
    UNKNOWN = 2
    MISSING = 3


class FeatureRecord(NamedTuple):
    """A feature's values so far.

    Attributes
    ----------
    centre, scale
        What encodes as 0, and how far from it as 1; the scale of a vector is its median norm. A scale of 0 is that of
        values that are all equal, or of which too few are known: they encode as 0.
    limit
        How many scales from the centre are believed; infinite where nothing is scaled.
    known
        Whether the centre was declared, or taken of values.
    sample
        The values that they will be taken of; none once they are for good.
    learns
        Whether they will be taken again.
    clamped, unknown, missing
        How often a value was so marked.
    """

    centre: float = 0.0
    scale: float = 0.0
    limit: float = np.inf
    known: bool = False
    sample: FloatArray = lay_out(np.zeros(0))
    learns: bool = False
    clamped: int = 0
    unknown: int = 0
    missing: int = 0

    @classmethod
    def first(cls, kind: FeatureKind) -> FeatureRecord:
        """Return the record of a feature of which nothing was seen."""
        match kind:
            case Numeric(float(least), float(most), _, log_scale):
                low, high = (float(np.log(least)), float(np.log(most))) if log_scale else (least, most)
                half = 0.5 * high - 0.5 * low
                return cls(low + half, half / _UNIFORM_SPREAD, _UNIFORM_SPREAD, known=True)
            case Numeric():
                return cls(limit=_LOOSE_LIMIT, learns=True)
            case Vector():
                return cls(limit=_LOOSE_LIMIT, learns=True)
            case _:
                return cls(known=True)

    @property
    def is_constant(self) -> bool:
        """Whether all of its numbers were found to be equal."""
        return self.known and self.scale == 0.0 and self.limit < np.inf

    @property
    def farthest(self) -> float:
        """Scales from the centre beyond which a value is an error and not clamped; infinite while few came."""
        return _FARTHER * self.limit if self.limit < _LOOSE_LIMIT else np.inf

    @property
    def values_before_change(self) -> int | None:
        """With how many more values centre and scale are taken again, None if they never are."""
        seen = len(self.sample)
        return next(count for count in COUNTS if count > seen) - seen if self.learns else None

    def mark(self, mark: Mark) -> FeatureRecord:
        """Return the record after a value that was so marked."""
        match mark:
            case Mark.IN_RANGE:
                return self
            case Mark.CLAMPED:
                return self._replace(clamped=self.clamped + 1)
            case Mark.UNKNOWN:
                return self._replace(unknown=self.unknown + 1)
            case Mark.MISSING:
                return self._replace(missing=self.missing + 1)

    def learn(self, number: float, *, is_norm: bool) -> FeatureRecord:
        """Return the record with one more value, of which centre and scale are taken if it is time for it."""
        sample = np.append(self.sample, number)
        record = self._replace(sample=lay_out(sample))
        if len(sample) not in COUNTS:
            return record
        centre, scale = (0.0, float(np.median(sample))) if is_norm else _centre_and_scale(sample)
        if len(sample) < FEWEST_VALUES and self.limit == _LOOSE_LIMIT:
            return record._replace(centre=centre, scale=scale or self.scale or abs(centre) or 1.0, known=True)
        if len(sample) >= FEWEST_VALUES:
            record = record._replace(centre=centre, scale=scale, limit=2.0 if is_norm else 3.0)
        if len(sample) < COUNTS[-1]:
            return record
        # What never varied may do so yet.
        return record._replace(sample=lay_out(np.zeros(0)), learns=scale == 0.0)

    def stats(self, name: str) -> FeatureStats:
        """Return the statistics of the feature of this name."""
        counts = self.clamped, self.unknown, self.missing
        return FeatureStats(name, self.centre, self.scale, not self.learns, *counts)


def _centre_and_scale(sample: FloatArray) -> tuple[float, float]:
    """Return the median, and the spread between the quantiles beyond which the least has to be cut off."""
    centre = float(np.median(sample))
    for tail, normal in _TAILS:
        low, high = np.quantile(sample, (tail, 1.0 - tail)).tolist()
        spread = 0.5 * high - 0.5 * low
        # Of the largest of these, not of all: one of 10^100 would have all others be equal.
        if spread > _ROUNDING * max(abs(low), abs(high)):
            return centre, spread / normal
    return centre, 0.0
