"""Compiled loops over what is known of single items: rows that leave, and what is known taken off covariances.

Those that may take long release the GIL; all keep their results the same from run to run, and are cached on disk.

Letters: N rows, k positions, m items of which something is known, C numbers of a context. An index among the m items
is -1 for items of which nothing is known.
"""

from __future__ import annotations

from numba import njit

from topk_bandit.learning.compiled.arrays import (
    NOWHERE,
    add_up,
    fill,
    floats,
    integers,
    integers32,
    zero_counts,
    zero_rows,
)
from topk_bandit.learning.compiled.options import FOR_LOOPS, FOR_PYTHON, WITHOUT_LOCK

__all__ = ["absorb", "add_up_shared", "entries", "expect_targets", "gram_of_parts"]


@njit(**FOR_LOOPS)
def _times(matrix, vector, out):
    """Set `out` to the product of a matrix and a vector; return that of `out` and the vector."""
    square = 0.0
    for c in range(vector.shape[0]):
        total = 0.0
        for d in range(vector.shape[0]):
            total += matrix[c, d] * vector[d]
        out[c] = total
        square += total * vector[c]
    return square


@njit(**FOR_LOOPS)
def _dot(left, right):
    total = 0.0
    for c in range(left.shape[0]):
        total += left[c] * right[c]
    return total


@njit(**FOR_LOOPS)
def _add_outer(matrix, vector, weight):
    for c in range(vector.shape[0]):
        for d in range(vector.shape[0]):
            matrix[c, d] += weight * vector[c] * vector[d]


@njit(**FOR_LOOPS)
def _absorb_item(precision, shifts, left, means, i, image, context, g, errors, variance, own, noise_variance):
    """Learn of one item: `errors` (T,) and `variance` are of the row's targets, `own` is its part of the latter."""
    others = variance - own
    _add_outer(precision[i], context, noise_variance * g * g / others)
    for t in range(errors.shape[0]):
        value = errors[t] + g * _dot(means[t, i], context)
        for c in range(context.shape[0]):
            shifts[t, i, c] += noise_variance * g * context[c] * value / others
            means[t, i, c] += g * image[c] * errors[t] / variance
    _add_outer(left[i], image, -g * g / variance)


@njit(**WITHOUT_LOCK)
def absorb(
    precisions, shifts, left, means, indices, contexts, targets, variances, noise_variance, weights, beside, unit
):
    """Learn of all items of each row, one row after the other, in place; return what is left of the targets, (T, T).

    That are the products of what no item explains, each row's in units of its variance, times sigma^2.

    Parameters: sigma^2 P and h of the items, (m, C, C) and (T, m, C); S and the means, likewise; the indices (A, k),
    contexts (A, C), targets (T, A) and noise variances (A,) of the rows; sigma^2; g by position; what a slate's
    variance is beside its items' parts; and kappa_0, which is that of items without an index.
    """
    (n_targets, n_rows), (k, dim) = targets.shape, (indices.shape[1], contexts.shape[1])
    images, own, errors, products = (
        floats((k, dim)),
        floats(k),
        floats(n_targets),
        zero_rows(n_targets, n_targets),
    )
    for row in range(n_rows):
        context = contexts[row]
        square = _dot(context, context)
        variance = variances[row] + beside * square
        for t in range(n_targets):
            errors[t] = targets[t, row]
        for a in range(k):
            i = indices[row, a]
            if i < 0:
                variance += unit * weights[a] * weights[a] * square
                continue
            own[a] = weights[a] * weights[a] * max(_times(left[i], context, images[a]), 0.0)
            variance += own[a]
            for t in range(n_targets):
                errors[t] -= weights[a] * _dot(means[t, i], context)
        _add_outer(products, errors, noise_variance / variance)
        for a in range(k):
            if indices[row, a] >= 0:
                _absorb_item(
                    precisions, shifts, left, means, indices[row, a], images[a], context, weights[a], errors, variance,
                    own[a], noise_variance,
                )  # fmt: skip
    return products


@njit(**WITHOUT_LOCK)
def expect_targets(rankings, contexts, means, index_of, weights):
    """Return what is expected of the targets of rows (N,), shape (T, N), by `means` (T, m + 1, C), zeros last."""
    out = zero_rows(means.shape[0], rankings.shape[0])
    for t in range(means.shape[0]):
        for row in range(rankings.shape[0]):
            for a in range(rankings.shape[1]):
                out[t, row] += weights[a] * _dot(means[t, index_of[rankings[row, a]]], contexts[row])
    return out


@njit(**FOR_PYTHON)
def entries(rankings, contexts, images, index_of, weights):
    """Return g_p times the product of the row's context with the image of each of its items, (N, k).

    Images are (m + 1, C), zeros last.
    """
    out = floats(rankings.shape)
    for row in range(rankings.shape[0]):
        for a in range(rankings.shape[1]):
            out[row, a] = weights[a] * _dot(images[index_of[rankings[row, a]]], contexts[row])
    return out


@njit(**WITHOUT_LOCK)
def add_up_shared(rankings, entries, orders, weights, n_items):
    """Return for each row and slate of `orders` (A, k) the sum of `entries` (N, k) times g of the items of both."""
    out = zero_rows(rankings.shape[0], orders.shape[0])
    position = fill(integers32(n_items), NOWHERE)
    for column in range(orders.shape[0]):
        for b in range(orders.shape[1]):
            position[orders[column, b]] = b
        for row in range(rankings.shape[0]):
            total = 0.0
            for a in range(rankings.shape[1]):
                b = position[rankings[row, a]]
                if b >= 0:
                    total += entries[row, a] * weights[b]
            out[row, column] = total
        for b in range(orders.shape[1]):
            position[orders[column, b]] = -1
    return out


@njit(**FOR_LOOPS)
def _list_entries(rankings, index_of, n_parts):
    """Return where each part's list starts, and the rows and positions of the lists."""
    starts = zero_counts(n_parts + 1)
    for row in range(rankings.shape[0]):
        for a in range(rankings.shape[1]):
            starts[index_of[rankings[row, a]] + 1] += index_of[rankings[row, a]] >= 0
    starts = add_up(starts)
    ends = starts.copy()
    rows, positions = integers(starts[-1]), integers(starts[-1])
    for row in range(rankings.shape[0]):
        for a in range(rankings.shape[1]):
            i = index_of[rankings[row, a]]
            if i >= 0:
                rows[ends[i]], positions[ends[i]] = row, a
                ends[i] += 1
    return starts, rows, positions


@njit(**WITHOUT_LOCK)
def gram_of_parts(rankings, contexts, matrices, index_of, weights):
    """Return the sums of g_p g_q c' T_i c' over the items that two rows have in common, (N, N), symmetric.

    T is `matrices` (m, C, C).
    """
    n_rows, n_parts = rankings.shape[0], matrices.shape[0]
    out, image = zero_rows(n_rows, n_rows), floats(contexts.shape[1])
    starts, rows, positions = _list_entries(rankings, index_of, n_parts)
    for i in range(n_parts):
        for first in range(starts[i], starts[i + 1]):
            row, g = rows[first], weights[positions[first]]
            out[row, row] += g * g * _times(matrices[i], contexts[row], image)
            for second in range(starts[i], first):
                other = rows[second]
                shared = g * weights[positions[second]] * _dot(image, contexts[other])
                out[row, other] += shared
                out[other, row] += shared
    return out
