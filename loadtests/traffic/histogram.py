"""Histograms of durations with three digits over the whole range, laid out as HDR histograms are.

A duration is counted in whole microseconds. Below 2,048 each has a bucket of its own; above, each doubling is divided
into 1,024 buckets of one width. So any percentile is known to one part in 1,024, however long the tail is, and
histograms of several runs are added by adding counts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

__all__ = ["Histogram"]

HALF = 1024
UNIT = 1e6


@dataclass(frozen=True, slots=True)
class Histogram:
    """How many durations fell into each bucket.

    Attributes
    ----------
    counts
        By the bucket's number; those that nothing fell into are not there.
    """

    counts: dict[int, int] = field(default_factory=dict)

    @classmethod
    def of(cls, seconds: ArrayLike) -> Histogram:
        """Count durations in seconds; one below 0 counts as 0."""
        whole = np.maximum(np.rint(np.asarray(seconds, dtype=np.float64) * UNIT), 0.0).astype(np.int64)
        numbers, counts = np.unique(_bucket(whole), return_counts=True)
        return cls(dict(zip(numbers.tolist(), counts.tolist(), strict=True)))

    def __add__(self, other: Histogram) -> Histogram:
        """Return the histogram of what both have counted."""
        numbers = self.counts.keys() | other.counts.keys()
        return Histogram({one: self.counts.get(one, 0) + other.counts.get(one, 0) for one in sorted(numbers)})

    @property
    def total(self) -> int:
        """How many durations were counted."""
        return sum(self.counts.values())

    def percentile(self, rank: float) -> float:
        """Return the seconds that so many per cent of the durations do not exceed; NaN without any."""
        if not self.counts:
            return math.nan
        numbers = sorted(self.counts)
        reached = np.cumsum([self.counts[one] for one in numbers])
        # A rank of 99 is meant exactly, though 0.99 is no binary fraction.
        needed = max(math.ceil(round(rank / 100.0 * self.total, 6)), 1)
        return _upper(numbers[int(np.searchsorted(reached, needed))]) / UNIT

    def written(self) -> list[list[int]]:
        """Return pairs of a bucket's upper end in microseconds and its count, ascending."""
        return [[_upper(one), self.counts[one]] for one in sorted(self.counts)]


def _bucket(whole: NDArray[np.int64]) -> NDArray[np.int64]:
    # frexp tells how many binary digits a number has; all but eleven are dropped.
    dropped = np.maximum(np.frexp(whole.astype(np.float64))[1].astype(np.int64) - 11, 0)
    return np.asarray(HALF * dropped + (whole >> dropped), dtype=np.int64)


def _upper(number: int) -> int:
    """Return the largest duration that falls into a bucket."""
    dropped = max(number // HALF - 1, 0)
    return ((number - HALF * dropped + 1) << dropped) - 1
