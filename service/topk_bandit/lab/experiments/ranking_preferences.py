"""What people's own rankings say of their preference, for simulating more of them."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from topk_bandit.lab.experiments.rankings_file import RankedLists, load
from topk_bandit.preferences.designs.spans import span_of_differences
from topk_bandit.preferences.models import plackett_luce
from topk_bandit.preferences.utilities import Gaussian

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["RankingPreferences"]

FloatArray = NDArray[np.float64]

_WIDE = 100.0
"""Prior variance of weights, in coordinates of unit mean square: next to none, but separable data have a maximum."""


class RankingPreferences(NamedTuple):
    """Rankings, and the weights that explain them best.

    Attributes
    ----------
    coordinates
        For each row, in the span of the differences within lists, shape (N, r).
    of_coordinates, of_features
        The weights theta, shapes (r,) and (d,).
    """

    data: RankedLists
    coordinates: FloatArray
    of_coordinates: FloatArray
    of_features: FloatArray

    @classmethod
    def of(cls, path: Path) -> RankingPreferences:
        """Read rankings and fit Plackett-Luce to them; errors as `rankings_file.load`."""
        data = load(path)
        labels = np.repeat(np.arange(len(data.rows)), [len(rows) for rows in data.rows])
        span = span_of_differences(data.features, groups=labels)
        prior = Gaussian.isotropic(span.rank, variance=_WIDE)
        weights = plackett_luce.fit(span.coordinates, data.orderings(), prior=prior).posterior.mean
        return cls(data, data.features @ span.basis, weights, span.basis @ weights)

    def settings(self, path: Path) -> dict[str, object]:
        """Return what to write beside results."""
        return {
            "data": path.name,
            "data_sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
            "lists": len(self.data.lists),
            "items": len(self.data.items),
            "features": len(self.data.feature_names),
            "rank": len(self.of_coordinates),
            "theta": f"most probable by the data's rankings, prior variance {_WIDE:g} in coordinates of mean square 1",
        }
