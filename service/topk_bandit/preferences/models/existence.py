"""Whether a Plackett-Luce likelihood has a maximum, and if not, why not.

Its maximum exists and is unique if and only if the answers compare all d directions of the features, and no weights
v != 0 give every chosen item of every stage at least the utility of each item left there: such answers are separable.

Newton's method shows the existence by itself, without a search for such v. Let D be the differences of features
between items of one answer, H the information at some weights, and lambda^2 the squared Newton decrement there. Along a
line through the weights in direction v, the third derivative is at most r(v) = max_D |D'v| times the second, so that
the slope ends up beyond zero if lambda r(v) < (v'Hv)^1/2. As r(v)^2 <= max_D |D|^2_{H^-1} v'Hv, there is a maximum if

    lambda max_D |D|_{H^-1} < 1

which holds close enough to any maximum that exists.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dtrtrs
from scipy.optimize import linprog

from topk_bandit.domain.errors import InvalidArgumentError

if TYPE_CHECKING:
    from topk_bandit.preferences.models.likelihood import Likelihood

__all__ = ["check_not_separable", "check_rank", "is_certain"]

FloatArray = NDArray[np.float64]

_SMALLEST_SINGULAR_VALUE = 1e-9
_ROUNDING = 1e-12


def check_rank(likelihood: Likelihood) -> None:
    """Refuse answers that compare fewer than d directions of standardised features.

    Answers that connect a group of items compare all differences in it, so the rank is that of the features about the
    means of their groups.

    Raises
    ------
    InvalidArgumentError
        Naming ``features``, with the rank and, if there are several, the number of groups.
    """
    d = likelihood.features.shape[1]
    rank = int(np.linalg.matrix_rank(likelihood.features, rtol=_SMALLEST_SINGULAR_VALUE))
    if rank < d:
        groups = int(likelihood.groups.max()) + 1
        apart = f" (its items fall into {groups} groups that no answer connects)" if groups > 1 else ""
        problem = f"the answers compare {rank} of {d} directions{apart}: give a prior, more answers or fewer features"
        raise InvalidArgumentError("features", problem)


def is_certain(likelihood: Likelihood, lower: FloatArray, decrement: float) -> bool:
    """Return whether this information L L' and squared Newton decrement show that there is a maximum.

    |D|_{H^-1} is bounded by twice the largest |x|_{H^-1}.
    """
    whitened = dtrtrs(lower, likelihood.features.T, lower=1)[0]
    return float(decrement * 4.0 * np.max(np.sum(whitened**2, axis=0))) < 1.0


def check_not_separable(likelihood: Likelihood) -> None:
    """Refuse separable answers, found by a linear programme.

    Raises
    ------
    InvalidArgumentError
        Naming ``orderings``.
    """
    differences = _list_differences(likelihood)
    d = differences.shape[1]
    found = linprog(-differences.sum(axis=0), A_ub=-differences, b_ub=np.zeros(len(differences)), bounds=[(-1, 1)] * d)
    if found.x is None:
        return
    margins = differences @ found.x
    rounding = _ROUNDING * float(np.abs(differences).sum(axis=1).max())
    if margins.min() >= -rounding and margins.max() > 1e3 * rounding:
        problem = "the answers are separable: some weights explain each of them, and larger ones always better"
        raise InvalidArgumentError("orderings", f"{problem}; give a prior")


def _list_differences(likelihood: Likelihood) -> FloatArray:
    """Return x_chosen - x_left for all that the answers imply by transitivity, each once, shape (., d)."""
    lengths, n = np.diff(likelihood.starts), len(likelihood.features)
    answer = np.repeat(np.arange(len(lengths)), lengths)
    position = np.arange(len(likelihood.items)) - likelihood.starts[answer]
    better = np.minimum(position - 1, likelihood.places[answer] - 1)
    below = position > 0
    winners = likelihood.items[(likelihood.starts[answer] + better)[below]]
    pairs = np.unique(winners * n + likelihood.items[below])
    return np.asarray(likelihood.features[pairs // n] - likelihood.features[pairs % n])
