"""The posterior at one context: the moments of any slate, and of all its neighbours at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from topk_bandit.learning import _compiled

if TYPE_CHECKING:
    from topk_bandit.learning.kendall import KendallKernel
    from topk_bandit.learning.rankings import Rankings

__all__ = ["Landscape", "Moments"]

FloatArray = NDArray[np.float64]
RealArray = NDArray[np.floating]


class Moments(NamedTuple):
    """Posterior mean and variance of the expected reward, without the noise: two arrays of one shape."""

    mean: FloatArray
    variance: FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class Landscape:
    """The posterior at one context, over the rankings of some items; rankings hold positions in `items`.

    Attributes
    ----------
    items
        Item indices in ascending order, shape (E,).
    slate_size
        k.
    """

    items: NDArray[np.int32]
    slate_size: int
    _kernel: KendallKernel
    _features: RealArray
    _weights: FloatArray
    _slots: NDArray[np.int32]
    _offset: float
    _amplitude: float
    _prior: float

    def means(self, rankings: Rankings) -> FloatArray:
        """Return the posterior means of `rankings` (A, k), shape (A,): O(k^2) each."""
        above = _compiled.means(self._weights, self._slots, rankings, *self._position_weights())
        return np.asarray(self._offset + above, dtype=np.float64)

    def moments(self, rankings: Rankings) -> Moments:
        """Return the moments of `rankings` (A, k), both (A,): O(k^2 N) each."""
        position_weights = self._position_weights()
        mean, explained = _compiled.slates(self._features, self._weights, self._slots, rankings, *position_weights)
        return self._scaled(mean, explained)

    def replacements(self, rankings: Rankings, position: int) -> Moments:
        """Return the moments of `rankings` (A, k) with each item in turn at `position`, both (A, E).

        A ranking in which the item is shown already, at whatever position, stands for itself.
        """
        mean, explained = _compiled.replacements(
            self._features, self._weights, self._slots, rankings, position, *self._position_weights()
        )
        return self._scaled(mean, explained)

    def _position_weights(self) -> tuple[FloatArray, FloatArray, FloatArray, float]:
        kernel = self._kernel
        return kernel.item_weight, kernel.pair_weight, kernel.divergence, kernel.total

    def _scaled(self, mean: FloatArray, explained: FloatArray) -> Moments:
        # Rounding can push an almost certain slate a hair below zero.
        return Moments(self._offset + mean, self._amplitude * np.maximum(self._prior - explained, 0.0))
