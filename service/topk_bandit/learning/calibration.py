"""By how much the latest rewards lay farther from what was expected of them than their spread said.

Each reward has a surprise: its squared distance from what earlier rewards tell, in units of the variance that they
tell. Its mean is 1 where spreads are right. Where even a lower confidence limit of the latest surprises' mean is above
1, spreads are too small, and are widened by its root.
"""

from __future__ import annotations

import math
from typing import NamedTuple

__all__ = ["NO_SURPRISES", "Calibration"]

_KEPT = 1.0 - 1.0 / 64.0
"""What is left of a surprise's weight with each later one."""

_FEWEST = 16.0
"""Fewer surprises tell nothing."""

_MOST = 1e8
"""A larger surprise counts as this: squares of larger ones have no end."""

_DEVIATIONS = 2.5
"""The lower confidence limit is so many standard errors below the mean: it is looked at after each reward."""


class Calibration(NamedTuple):
    """Sums over the latest surprises: of their weights, of themselves, and of their squares."""

    weight: float = 0.0
    sum: float = 0.0
    squares: float = 0.0

    def after(self, surprise: float) -> Calibration:
        """Return the sums with one more surprise."""
        surprise = min(surprise, _MOST)
        return Calibration(
            _KEPT * self.weight + 1.0, _KEPT * self.sum + surprise, _KEPT * self.squares + surprise * surprise
        )

    @property
    def spread_factor(self) -> float:
        """The factor of standard deviations, 1 at least."""
        if self.weight < _FEWEST:
            return 1.0
        mean = self.sum / self.weight
        error = math.sqrt(max(self.squares / self.weight - mean * mean, 0.0) / self.weight)
        return math.sqrt(max(mean - _DEVIATIONS * error, 1.0))


NO_SURPRISES = Calibration()
