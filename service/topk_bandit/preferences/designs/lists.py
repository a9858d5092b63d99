"""Lists as candidates for a design."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from topk_bandit.preferences.compiled.columns import norms
from topk_bandit.preferences.designs.ascent import Prices
from topk_bandit.preferences.designs.whitening import split_rows, whiten

if TYPE_CHECKING:
    from topk_bandit.preferences.designs.information import Information

__all__ = ["Lists"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_NOTHING = 1e-14


@dataclass(frozen=True, slots=True, eq=False)
class Lists:
    """Lists in coordinates in which their average information is the identity; a list's key is its number.

    Attributes
    ----------
    all_rows
        Transposes of the lists' matrices, shape (L, M, d).
    log_det
        For the average information in the coordinates that were given.
    """

    all_rows: FloatArray
    log_det: float

    @classmethod
    def of(cls, matrices: FloatArray) -> Lists:
        """Return lists with matrices of shape (L, d, M).

        Raises
        ------
        RankError
            The matrices do not span d dimensions.
        """
        count, d, _ = matrices.shape
        narrow = _narrow(matrices)
        rows = np.ascontiguousarray(narrow.transpose(0, 2, 1)).reshape(-1, d)
        white = whiten(rows, count)
        return cls(white.rows.reshape(count, -1, d), white.log_det)

    @property
    def dimension(self) -> int:
        """How many features there are, d."""
        return int(self.all_rows.shape[2])

    @property
    def prior(self) -> None:
        """Nothing is known beforehand."""

    @property
    def key_length(self) -> int:
        """1: a list's number."""
        return 1

    @property
    def work(self) -> float:
        """That of one product with C^-1."""
        return float(self.all_rows.size) * self.dimension

    def rows(self, keys: IntArray) -> FloatArray:
        """Return the lists' rows, shape (S, M, d)."""
        return self.all_rows[keys[:, 0]]

    def price(self, information: Information, *, level: float, target: float) -> Prices:  # noqa: ARG002 - always exact
        """Return all lists with g above the level."""
        gradients = np.concatenate([norms(information.whiten(piece)) for piece in split_rows(self.all_rows)])
        keys = np.flatnonzero(gradients > level)
        return Prices(float(gradients.max()), keys[:, None], gradients[keys])


def _narrow(matrices: FloatArray) -> FloatArray:
    """Return matrices with the same A A' and as few columns as a common rotation allows: K - 1 for rankings of K."""
    flat = matrices.reshape(-1, matrices.shape[2])
    values, vectors = np.linalg.eigh(flat.T @ flat)
    basis = vectors[:, values > _NOTHING * len(values) * max(values[-1], 0.0)]
    return (flat @ basis).reshape(*matrices.shape[:2], -1) if basis.shape[1] < len(values) else matrices
