"""The steps of rank aggregation by stochastic gradient descent."""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"
from __future__ import annotations

import math

from numba import njit

__all__ = ["take_steps"]


@njit(nogil=True, cache=True)
def take_steps(squared, features, ridge, steepest, comparisons, values, last, mean, step):
    """Take one step for each comparison (i, j) of shape (m, 2), in their order: `last` and `mean` are changed.

    ``last`` and ``mean`` have the weights and then the residuals; ``step`` steps were taken before.
    """
    d = features.shape[1]
    for number in range(len(values)):
        i, j, value = comparisons[number, 0], comparisons[number, 1], values[number]
        difference = last[d + j] - last[d + i]
        for k in range(d):
            difference += (features[j, k] - features[i, k]) * last[k]
        if squared:
            slope = 2.0 * (difference - value)
        else:
            margin = value * difference
            if margin >= 0.0:
                small = math.exp(-margin)
                slope = -value * small / (1.0 + small)
            else:
                slope = -value / (1.0 + math.exp(margin))
        size = 2.0 / (ridge * step + 2.0 * steepest)
        by_difference = size * slope
        for k in range(len(last)):
            last[k] *= 1.0 - size * ridge
        for k in range(d):
            last[k] -= by_difference * (features[j, k] - features[i, k])
        last[d + j] -= by_difference
        last[d + i] += by_difference
        step += 1
        for k in range(len(last)):
            mean[k] += (2.0 / (step + 1.0)) * (last[k] - mean[k])
    return step
