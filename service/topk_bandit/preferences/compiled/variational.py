"""Compiled loops of the variational posterior: the best local parameters of every answer, and what they add to a sweep.

An answer is a row of choices, each of its first item from the k items left: a *stage*. At a stage y are the mean
utilities of these items and G their covariances, both relative to the answer's best item, which changes nothing.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

__all__ = ["answers_log_likelihoods", "sweep"]

_INNER_STEPS = 8
_INNER_TOLERANCE = 1e-4
_SMALL_VARIANCE = 0.2
_SHORTEST_STEP = 1e-3


@njit(nogil=True, cache=True)
def _centre(y, covariance, shares, deviations, variances):
    """Return p'y, and fill in the mean of y_j - p'y and its variance."""
    k = len(y)
    centre = 0.0
    spread = 0.0
    for i in range(k):
        centre += shares[i] * y[i]
        dot = 0.0
        for j in range(k):
            dot += covariance[i, j] * shares[j]
        variances[i] = covariance[i, i] - 2.0 * dot
        spread += shares[i] * dot
    for i in range(k):
        deviations[i] = y[i] - centre
        variances[i] = max(variances[i] + spread, 0.0)
    return centre


@njit(nogil=True, cache=True)
def _curvature(xi):
    """Return lambda(xi) = tanh(xi / 2) / (4 xi)."""
    if xi < 1e-4:
        return 0.125 - xi * xi / 96.0
    return math.tanh(0.5 * xi) / (4.0 * xi)


@njit(nogil=True, cache=True)
def _log_sigmoid(xi):
    """Return log sigma(xi) for xi >= 0."""
    return -math.log1p(math.exp(-xi))


@njit(nogil=True, cache=True)
def _quadratic_pair(y, covariance, weights, residuals):
    """Return the expected bound of Eq. 30 at its best zeta (Lemma 4), for the first of two items."""
    difference = y[0] - y[1]
    variance = covariance[0, 0] - 2.0 * covariance[0, 1] + covariance[1, 1]
    zeta = math.sqrt(max(variance, 0.0) + difference * difference)
    curvature = _curvature(zeta)
    weights[:] = 4.0 * curvature
    residuals[0] = 0.5 - 2.0 * curvature * difference
    residuals[1] = -residuals[0]
    return _log_sigmoid(zeta) + 0.5 * (difference - zeta)


@njit(nogil=True, cache=True)
def _quadratic_choice(y, covariance, curvatures, weights, residuals):
    """Return the expected bound of Eq. 34 at the best alpha and xi (Lemma 5), with alpha affine in the utilities.

    With p = lambda / sum lambda the best alpha is p'(x theta) + (k - 2) / (4 sum lambda): alpha and xi in turns.
    """
    k = len(y)
    deviations = np.empty(k)
    variances = np.empty(k)
    value = 0.0
    for _ in range(_INNER_STEPS):
        total = curvatures.sum()
        centre = _centre(y, covariance, curvatures / total, deviations, variances)
        offset = (k - 2) / (4.0 * total)
        value = y[0] - centre - offset
        change = 0.0
        for j in range(k):
            deviation = deviations[j] - offset
            xi = math.sqrt(variances[j] + deviation * deviation)
            value += _log_sigmoid(xi) - 0.5 * (deviation + xi)
            curvature = _curvature(xi)
            change = max(change, abs(curvature - curvatures[j]))
            curvatures[j] = curvature
        if change <= _INNER_TOLERANCE:
            break
    total = curvatures.sum()
    _centre(y, covariance, curvatures / total, deviations, variances)
    for j in range(k):
        weights[j] = 2.0 * curvatures[j]
        residuals[j] = (0.5 * k - 1.0) * curvatures[j] / total - 0.5 - weights[j] * deviations[j]
    residuals[0] += 1.0
    return value


@njit(nogil=True, cache=True)
def _sum_tilted(y, covariance, shares, weights, variances):
    """Return F(a) = a'y + log sum_j exp(E + Var / 2 of y_j - a'y), and fill in w, the parts of this sum."""
    centre = _centre(y, covariance, shares, weights, variances)
    largest = -np.inf
    for j in range(len(y)):
        weights[j] += 0.5 * variances[j]
        largest = max(largest, weights[j])
    total = 0.0
    for j in range(len(y)):
        weights[j] = math.exp(weights[j] - largest)
        total += weights[j]
    weights /= total
    return centre + largest + math.log(total)


@njit(nogil=True, cache=True)
def _solve(matrix, right):
    """Overwrite `right` with matrix^-1 right, and the matrix with anything."""
    k = len(right)
    for column in range(k):
        pivot = column + np.argmax(np.abs(matrix[column:, column]))
        if pivot != column:
            for j in range(column, k):
                matrix[column, j], matrix[pivot, j] = matrix[pivot, j], matrix[column, j]
            right[column], right[pivot] = right[pivot], right[column]
        for i in range(column + 1, k):
            factor = matrix[i, column] / matrix[column, column]
            for j in range(column + 1, k):
                matrix[i, j] -= factor * matrix[column, j]
            right[i] -= factor * right[column]
    for i in range(k - 1, -1, -1):
        for j in range(i + 1, k):
            right[i] -= matrix[i, j] * right[j]
        right[i] /= matrix[i, i]


@njit(nogil=True, cache=True)
def _newton_step(covariance, weights, step):
    """Overwrite w - a with (I + (diag w - w w') G)^-1 (w - a): F has gradient G (a - w)."""
    k = len(step)
    matrix = np.empty((k, k))
    for j in range(k):
        dot = 0.0
        for i in range(k):
            dot += weights[i] * covariance[i, j]
        for i in range(k):
            matrix[i, j] = weights[i] * (covariance[i, j] - dot)
        matrix[j, j] += 1.0
    _solve(matrix, step)


@njit(nogil=True, cache=True)
def _tilted_choice(y, covariance, shares, weights, residuals):
    """Return the tilted bound at the best a, kept in `shares`, for the first of k items; F is convex in a."""
    k = len(y)
    variances = np.empty(k)
    step = np.empty(k)
    value = _sum_tilted(y, covariance, shares, weights, variances)
    # With little variance the fixed point a = w attracts fast without the Newton matrix.
    exact = np.trace(covariance) > _SMALL_VARIANCE
    for _ in range(_INNER_STEPS):
        step[:] = weights - shares
        if np.abs(step).max() <= _INNER_TOLERANCE:
            break
        if exact:
            _newton_step(covariance, weights, step)
        length = 1.0
        tried = _sum_tilted(y, covariance, shares + step, weights, variances)
        while not tried <= value and length > _SHORTEST_STEP:
            length *= 0.5
            tried = _sum_tilted(y, covariance, shares + length * step, weights, variances)
        if not tried <= value:
            _sum_tilted(y, covariance, shares, weights, variances)
            break
        value = tried
        shares += length * step
    residuals[:] = -weights
    residuals[0] += 1.0
    return y[0] - value


@njit(nogil=True, cache=True)
def _stage(tilted, y, covariance, kept, weights, residuals, excess):
    """Return a stage's expected bound at its best local parameters, which stay in `kept`.

    Its gradient by y is filled in as `residuals`, and its curvature as diag w - w w' / sum w + e e', e being `excess`.
    """
    if tilted:
        value = _tilted_choice(y, covariance, kept, weights, residuals)
        excess[:] = weights - kept
        return value
    excess[:] = 0.0
    if len(y) == 2:
        return _quadratic_pair(y, covariance, weights, residuals)
    return _quadratic_choice(y, covariance, kept, weights, residuals)


@njit(nogil=True, cache=True)
def _add_curvature(curvature, weights, excess):
    """Add a stage's curvature to the lower triangle of the answer's."""
    k = len(weights)
    total = weights.sum()
    for i in range(k):
        curvature[i, i] += weights[i]
        for j in range(i + 1):
            curvature[i, j] += excess[i] * excess[j] - weights[i] * weights[j] / total


@njit(nogil=True, cache=True)
def _relative(table, items):
    """Return the rows of some items less that of the first of them."""
    out = np.empty((len(items), table.shape[1]))
    for i in range(len(items)):
        for a in range(table.shape[1]):
            out[i, a] = table[items[i], a] - table[items[0], a]
    return out


@njit(nogil=True, cache=True, fastmath={"reassoc", "contract"})
def _gram(rows):
    """Return rows times their transpose."""
    size, width = rows.shape
    out = np.empty((size, size))
    for i in range(size):
        for j in range(i + 1):
            dot = 0.0
            for a in range(width):
                dot += rows[i, a] * rows[j, a]
            out[i, j] = out[j, i] = dot
    return out


@njit(nogil=True, cache=True)
def _root(matrix):
    """Overwrite the lower triangle of a positive semidefinite matrix with its Cholesky factor."""
    size = len(matrix)
    for j in range(size):
        pivot = matrix[j, j]
        for a in range(j):
            pivot -= matrix[j, a] * matrix[j, a]
        pivot = math.sqrt(max(pivot, 0.0))
        matrix[j, j] = pivot
        for i in range(j + 1, size):
            rest = matrix[i, j]
            for a in range(j):
                rest -= matrix[i, a] * matrix[j, a]
            matrix[i, j] = rest / pivot if pivot > 0.0 else 0.0


@njit(nogil=True, cache=True)
def _fill(out, factor, relative):
    """Fill in factor' times the rows of all items but the first."""
    size = len(factor)
    for t in range(size):
        out[t] = 0.0
        for i in range(t, size):
            for a in range(out.shape[1]):
                out[t, a] += factor[i, t] * relative[i + 1, a]


@njit(nogil=True, cache=True)
def sweep(tilted, rows, scaled, means, items, starts, places, kept, slopes, out):
    """Optimise the local parameters of some answers, and return the sum of their expected bounds.

    Parameters
    ----------
    tilted
        Which bound.
    rows, scaled, means
        Features of all items, the same times a root of S, both (n, d), and their mean utilities (n,).
    items, starts, places
        The answers, as in `Orderings`.
    kept
        Local parameters of all stages, one after the other; they are updated.
    slopes
        Gradient of the bound by the items' mean utilities, added to, (n,).
    out
        Filled in: rows whose Gram matrix is the bound's curvature, (sum of m - 1, d).
    """
    value = 0.0
    at = 0
    filled = 0
    for answer in range(len(places)):
        shown = items[starts[answer] : starts[answer + 1]]
        m = len(shown)
        y = np.empty(m)
        for i in range(m):
            y[i] = means[shown[i]] - means[shown[0]]
        covariance = _gram(_relative(scaled, shown))
        curvature = np.zeros((m, m))
        weights, residuals, excess = np.empty(m), np.empty(m), np.empty(m)
        for s in range(places[answer]):
            now = kept[at : at + m - s]
            at += m - s
            value += _stage(tilted, y[s:], covariance[s:, s:], now, weights[s:], residuals[s:], excess[s:])
            _add_curvature(curvature[s:, s:], weights[s:], excess[s:])
            for i in range(s, m):
                slopes[shown[i]] += residuals[i]
        # What an answer says does not depend on its best item's row, which is zero here.
        factor = curvature[1:, 1:]
        _root(factor)
        _fill(out[filled : filled + m - 1], factor, _relative(rows, shown))
        filled += m - 1
    return value


@njit(nogil=True, cache=True)
def answers_log_likelihoods(utilities, items, starts, places):
    """Return the log-likelihood of each answer under each of B draws of the items' utilities (n, B), as (A, B)."""
    draws = utilities.shape[1]
    out = np.zeros((len(places), draws))
    for answer in range(len(places)):
        first, last = starts[answer], starts[answer + 1]
        for b in range(draws):
            largest = -np.inf
            for e in range(first, last):
                largest = max(largest, utilities[items[e], b])
            below = 0.0
            for e in range(last - 1, first - 1, -1):
                utility = utilities[items[e], b] - largest
                below += math.exp(utility)
                if e < first + places[answer]:
                    out[answer, b] += utility - math.log(below)
    return out
