"""How rank aggregation goes as the items become many and the comparisons hardly more (RABF, Appendix D).

Scores are s = X* w with standard normal X* (n, d) and w. Of the features, 50 log n rows are replaced by rows drawn
anew, so these items' features say nothing of their scores. 50 log n comparisons of random pairs tell the sign of
s_j - s_i, and each is flipped with some probability. What is measured is the Kendall tau distance as a share of all
pairs.

The source gives no ridges. Each method takes the ridge of the residuals, of a few, that predicts comparisons best which
were left out (three folds); so none knows more than the comparisons tell.
"""

from __future__ import annotations

from math import log
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from topk_bandit.preferences.losses import ranking_loss
from topk_bandit.preferences.models.aggregation import Comparisons, Loss, fit

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "DIMENSION",
    "METHODS",
    "RESIDUAL_RIDGES",
    "chosen_ridge",
    "compare",
    "corrupt_features",
    "kendall_tau_distances",
]

FloatArray = NDArray[np.float64]

METHODS = ("RABF, logistic", "RABF, squared", "maximum likelihood, no features", "least squares, no features")

DIMENSION = 10
RESIDUAL_RIDGES = (0.1, 1.0, 10.0, 100.0, 1000.0)
_FOLDS = 3


def kendall_tau_distances(
    number: int, *, seed: int, sizes: Sequence[int], flips: Sequence[float], share: float = 50.0
) -> FloatArray:
    """Return the distances of one run, shape (flips, `METHODS`, sizes).

    Parameters
    ----------
    number
        The run's. It and `seed` fix all that is random.
    share
        `share` log n items have corrupted features, and as many comparisons are made.
    """
    found = np.empty((len(flips), len(METHODS), len(sizes)))
    for x, n in enumerate(sizes):
        rng = np.random.default_rng([seed, number, n])
        truth = rng.standard_normal((n, DIMENSION))
        scores = truth @ rng.standard_normal(DIMENSION)
        many = round(share * log(n))
        features = corrupt_features(truth, count=min(many, n), rng=rng)
        for p, flip in enumerate(flips):
            comparisons = compare(scores, count=many, flip=flip, rng=rng)
            found[p, :, x] = [ranking_loss(scores, one) for one in _estimates(features, comparisons, rng)]
    return found


def corrupt_features(features: FloatArray, *, count: int, rng: np.random.Generator) -> FloatArray:
    """Return features of which `count` rows are replaced by standard normal ones."""
    changed = features.copy()
    rows = rng.choice(len(features), size=count, replace=False)
    changed[rows] = rng.standard_normal((count, features.shape[1]))
    return changed


def compare(scores: FloatArray, *, count: int, flip: float, rng: np.random.Generator) -> Comparisons:
    """Return comparisons of random pairs of different items, their signs flipped with probability `flip`."""
    n = len(scores)
    first = rng.integers(n, size=count)
    second = (first + rng.integers(1, n, size=count)) % n
    signs = np.where(scores[second] > scores[first], 1.0, -1.0)
    signs[rng.random(count) < flip] *= -1.0
    return Comparisons.of(np.stack([first, second], axis=1), signs, n_items=n)


def _estimates(features: FloatArray, comparisons: Comparisons, rng: np.random.Generator) -> list[FloatArray]:
    """Return the scores that each of `METHODS` estimates."""
    none = np.zeros((len(features), 0))
    estimates = []
    for rows, loss in (
        (features, Loss.LOGISTIC),
        (features, Loss.SQUARED),
        (none, Loss.LOGISTIC),
        (none, Loss.SQUARED),
    ):
        ridge = chosen_ridge(rows, comparisons, loss=loss, rng=rng)
        found = fit(rows, comparisons, loss=loss, residual_ridge=ridge)
        estimates.append(rows @ found.weights + found.residuals)
    return estimates


def chosen_ridge(features: FloatArray, comparisons: Comparisons, *, loss: Loss, rng: np.random.Generator) -> float:
    """Return the residuals' ridge under which comparisons that were left out are lost least on."""
    fold = rng.permutation(len(comparisons)) % _FOLDS
    costs = [
        sum(_left_out(features, comparisons, fold == k, loss, ridge) for k in range(_FOLDS))
        for ridge in RESIDUAL_RIDGES
    ]
    return RESIDUAL_RIDGES[int(np.argmin(costs))]


def _left_out(
    features: FloatArray, comparisons: Comparisons, out: NDArray[np.bool_], loss: Loss, ridge: float
) -> float:
    found = fit(features, _some(comparisons, ~out), loss=loss, residual_ridge=ridge)
    scores = features @ found.weights + found.residuals
    test = _some(comparisons, out)
    margins = test.values * (scores[test.second] - scores[test.first])
    losses = np.logaddexp(0.0, -margins) if loss is Loss.LOGISTIC else (1.0 - margins) ** 2
    return float(losses.sum())


def _some(comparisons: Comparisons, chosen: NDArray[np.bool_]) -> Comparisons:
    return Comparisons(comparisons.first[chosen], comparisons.second[chosen], comparisons.values[chosen])
