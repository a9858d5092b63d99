"""Factors of ratings by alternating least squares for implicit feedback (Hu, Koren and Volinsky 2008).

With c_ui = 1 + r_ui where user u has rated item i and 1 elsewhere, and p_ui = 1 where u has rated i and 0 elsewhere,
the factors minimise

    sum_ui c_ui (p_ui - x_u . y_i)^2 + ridge (sum_u |x_u|^2 + sum_i |y_i|^2)

in turns: all x given all y, then all y given all x. The package implicit does it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.sparse import csr_matrix
from threadpoolctl import threadpool_limits

from topk_bandit.domain.optional import import_extra
from topk_bandit.learning.environments import Factors

if TYPE_CHECKING:
    from topk_bandit.lab.experiments.ratings_file import RatingsTable

__all__ = ["SETTINGS", "factors_of"]

DIM, RIDGE, SWEEPS = 5, 10.0, 15

SETTINGS = {
    "factorization": f"implicit-feedback alternating least squares, confidence 1 + rating, ridge {RIDGE:g}",
    "sweeps": SWEEPS,
}


def factors_of(
    ratings: RatingsTable, *, seed: int, dim: int = DIM, ridge: float = RIDGE, sweeps: int = SWEEPS
) -> Factors:
    """Return the factors of ratings; one thread, and the same for the same seed.

    Parameters
    ----------
    seed
        Of the item factors that the first sweep begins with: uniform in [0, 0.01).

    Raises
    ------
    ConfigurationError
        The package implicit is not installed.
    """
    als = import_extra("implicit.cpu.als", "factors of ratings", extra="ratings")
    confidence = csr_matrix(
        (1.0 + ratings.values, (ratings.user_of, ratings.item_of)), shape=(len(ratings.users), len(ratings.items))
    )
    with threadpool_limits(1):
        model = als.AlternatingLeastSquares(
            factors=dim,
            regularization=ridge,
            iterations=sweeps,
            use_cg=False,
            dtype=np.float64,
            num_threads=1,
            random_state=seed,
        )
        model.fit(confidence, show_progress=False)
    return Factors(np.asarray(model.user_factors), np.asarray(model.item_factors))
