"""What is believed of a prior mean's slope before rewards: how much its utilities are worth (`hyperparameters`)."""

from __future__ import annotations

import math
from typing import NamedTuple

__all__ = ["SLOPE_MEAN", "SLOPE_SPREAD", "SlopePrior", "unit_of"]

_SMALLEST_UNIT = 1e-100
"""A smaller mean square is that of contexts that are all zero."""

SLOPE_MEAN = 2.0
SLOPE_SPREAD = 1.0
"""rho and omega, for contexts of norm 1 (`docs/decisions`)."""


def unit_of(square: float) -> float:
    """Return a mean square, of contexts or of what grows with them; one where contexts are all zero."""
    return square if square > _SMALLEST_UNIT else 1.0


class SlopePrior(NamedTuple):
    """rho and omega^2: in units of s and of s^2, or in those of the rewards."""

    mean: float
    variance: float
    in_rewards: bool = False

    def times(self, factor: float) -> SlopePrior:
        """Return that of a slope which is so many times as large."""
        return self._replace(mean=self.mean * factor, variance=self.variance * factor**2)

    @classmethod
    def of_contexts(cls, square: float) -> SlopePrior:
        """Return the prior for an h that does not grow with the contexts, whose mean square this is; 0 if unknown."""
        unit = unit_of(square)
        return cls(SLOPE_MEAN * math.sqrt(unit), SLOPE_SPREAD**2 * unit)
