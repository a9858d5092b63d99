"""Compiled loops over plain arrays; only `kendall` and `posterior` call them.

All of them release the GIL, keep their results the same from run to run (the order of each sum is fixed by the compiled
code), and are compiled on their first call and cached on disk.

Letters: A rankings, k positions, n items, N rows of the posterior, C context coordinates, F feature columns, E eligible
items. `rows` is always feature-major, (C, F, N): the N numbers of a feature are contiguous.
"""

from __future__ import annotations

import numpy as np
from numba import njit

__all__ = [
    "contract",
    "gram",
    "means",
    "replacements",
    "residual_row",
    "rotate_out",
    "rotate_to_front",
    "slates",
    "whiten",
]

# Sums may be reordered so that they vectorise; NaN and infinity keep their meaning.
_REASSOCIATE = {"reassoc", "contract", "nsz"}


@njit(nogil=True, cache=True)
def gram(left, right, n_items, u, d, v, s):
    """Return the brackets D.D' + n u.u' + u.v' + v.u' - s s' for all pairs, (A, B)."""
    k = left.shape[1]
    out = np.empty((left.shape[0], right.shape[0]))
    position = np.full(n_items, -1, dtype=np.int32)
    for row in range(left.shape[0]):
        for a in range(k):
            position[left[row, a]] = a
        for column in range(right.shape[0]):
            total = 0.0 - s * s
            for a in range(k):
                p = position[right[column, a]]
                if p < 0:
                    continue
                total += n_items * u[a] * u[p] + u[a] * v[p] + v[a] * u[p]
                for b in range(a + 1, k):
                    q = position[right[column, b]]
                    if q > p:
                        total += d[a, b] * d[p, q]
                    elif q >= 0:
                        total -= d[a, b] * d[q, p]
            out[row, column] = total
        for a in range(k):
            position[left[row, a]] = -1
    return out


@njit(nogil=True, cache=True, fastmath=_REASSOCIATE)
def whiten(rows, n_rows, context, columns, values, out):
    """Set out[:n_rows] = sum_a c_a R_a x for the sparse x of `values` at `columns`: the next row of L."""
    out[:n_rows] = 0
    for a in range(context.shape[0]):
        for j in range(columns.shape[0]):
            weight = out.dtype.type(context[a] * values[j])
            source = rows[a, columns[j]]
            for i in range(n_rows):
                out[i] += weight * source[i]


@njit(nogil=True, cache=True, fastmath=_REASSOCIATE)
def residual_row(rows, n_rows, ell, out):
    """Subtract ell' R_a from out[a], for all a: O(C F N)."""
    for a in range(out.shape[0]):
        for f in range(out.shape[1]):
            source = rows[a, f]
            total = ell.dtype.type(0)
            for i in range(n_rows):
                total += ell[i] * source[i]
            out[a, f] -= total


@njit(nogil=True, cache=True)
def _rotate(rows, first, cosine, sine):
    for a in range(rows.shape[0]):
        for f in range(rows.shape[1]):
            x = rows[a, f, first]
            y = rows[a, f, first + 1]
            rows[a, f, first] = cosine * x + sine * y
            rows[a, f, first + 1] = cosine * y - sine * x


@njit(nogil=True, cache=True)
def _annihilate(factor, rows, row, first):
    """Rotate columns `first`, `first + 1` of the factor, and the same rows of R, so that factor[row, first + 1] = 0."""
    x = factor[row, first]
    y = factor[row, first + 1]
    norm = np.hypot(x, y)
    if y == 0.0 or norm == 0.0:
        return
    cosine = x / norm
    sine = y / norm
    for i in range(factor.shape[0]):
        left = factor[i, first]
        right = factor[i, first + 1]
        factor[i, first] = cosine * left + sine * right
        factor[i, first + 1] = cosine * right - sine * left
    _rotate(rows, first, rows.dtype.type(cosine), rows.dtype.type(sine))


@njit(nogil=True, cache=True)
def rotate_to_front(factor, rows, chosen):
    """Make row `chosen` the first: `factor` becomes L of the permuted matrix, `rows` its R, up to signs."""
    moved = factor[chosen].copy()
    for i in range(chosen, 0, -1):
        factor[i] = factor[i - 1]
    factor[0] = moved
    for t in range(chosen - 1, -1, -1):
        _annihilate(factor, rows, 0, t)


@njit(nogil=True, cache=True)
def rotate_out(factor, rows, chosen):
    """Make row `chosen` removable: the last row and column of `factor`, and the last row of R, can be dropped then."""
    size = factor.shape[0]
    for i in range(chosen, size - 1):
        factor[i] = factor[i + 1]
    factor[size - 1] = 0.0
    for t in range(chosen, size - 1):
        _annihilate(factor, rows, t, t)


@njit(nogil=True, cache=True, fastmath=_REASSOCIATE)
def contract(rows, n_rows, context, columns, out, start):
    """Set out[j, start:start + n_rows] = sum_a c_a R_a[columns[j]]; a negative column is one of zeros."""
    for j in range(columns.shape[0]):
        target = out[j, start : start + n_rows]
        target[:] = 0
        if columns[j] < 0:
            continue
        for a in range(context.shape[0]):
            weight = out.dtype.type(context[a])
            source = rows[a, columns[j]]
            for i in range(n_rows):
                target[i] += weight * source[i]


@njit(nogil=True, cache=True)
def _pair(slots, first, second):
    """Return (slot, sign) of the pair feature when `first` is ranked above `second`; slot -1 when it is in no row."""
    if first < second:
        return slots[first, second], 1.0
    return slots[second, first], -1.0


# Rows are passed by their index: making a view of one costs as much as adding a hundred numbers.
@njit(nogil=True, cache=True, fastmath=_REASSOCIATE)
def _add(target, features, row, weight):
    for i in range(target.shape[0]):
        target[i] += weight * features[row, i]


@njit(nogil=True, cache=True, fastmath=_REASSOCIATE)
def _norm2(vector):
    total = vector.dtype.type(0)
    for i in range(vector.shape[0]):
        total += vector[i] * vector[i]
    return total


@njit(nogil=True, cache=True, fastmath=_REASSOCIATE)
def _set_sum(target, base, features, row, weight, other_row, other_weight):
    for i in range(target.shape[0]):
        target[i] = base[i] + weight * features[row, i] + other_weight * features[other_row, i]


@njit(nogil=True, cache=True, fastmath=_REASSOCIATE)
def _add_two(target, features, row, weight, other_row, other_weight):
    for i in range(target.shape[0]):
        target[i] += weight * features[row, i] + other_weight * features[other_row, i]


@njit(nogil=True, cache=True)
def _pair_terms(slots, slate, position, item, d, columns, values):
    """Set `columns` and `values` to D of `item` at `position` with the rest; return how many are in any row."""
    count = 0
    for other in range(slate.shape[0]):
        if other == position:
            continue
        if other < position:
            slot, sign = _pair(slots, slate[other], item)
            weight = sign * d[other, position]
        else:
            slot, sign = _pair(slots, item, slate[other])
            weight = sign * d[position, other]
        if slot >= 0:
            columns[count] = slot
            values[count] = weight
            count += 1
    return count


@njit(nogil=True, cache=True)
def _place(target, base, features, weights, slots, slate, position, item, u, d, v, columns, values):
    """Set target = base + what `item` at `position` brings in beside the rest of `slate`; return its part of the mean.

    `columns` and `values` are scratch space of k numbers each.
    """
    real = target.dtype.type
    n_items = slots.shape[0]
    count = _pair_terms(slots, slate, position, item, d, columns, values)
    _set_sum(target, base, features, item, real(u[position]), n_items + item, real(v[position]))
    mean = u[position] * weights[item] + v[position] * weights[n_items + item]
    for j in range(count):
        mean += values[j] * weights[columns[j]]
    # Two at a time: the sum is read and written half as often.
    for j in range(0, count - 1, 2):
        _add_two(target, features, columns[j], real(values[j]), columns[j + 1], real(values[j + 1]))
    if count % 2 == 1:
        _add(target, features, columns[count - 1], real(values[count - 1]))
    return mean


@njit(nogil=True, cache=True)
def _slate_mean(weights, slots, slate, u, d, v, s):
    n_items = slots.shape[0]
    mean = s * weights[2 * n_items]
    for a in range(slate.shape[0]):
        mean += u[a] * weights[slate[a]] + v[a] * weights[n_items + slate[a]]
        for b in range(a + 1, slate.shape[0]):
            slot, sign = _pair(slots, slate[a], slate[b])
            if slot >= 0:
                mean += sign * d[a, b] * weights[slot]
    return mean


@njit(nogil=True, cache=True)
def _slate_vector(target, features, slots, slate, u, d, v, s):
    real = target.dtype.type
    n_items = slots.shape[0]
    target[:] = 0
    _add(target, features, 2 * n_items, real(s))
    for a in range(slate.shape[0]):
        _add_two(target, features, slate[a], real(u[a]), n_items + slate[a], real(v[a]))
        for b in range(a + 1, slate.shape[0]):
            slot, sign = _pair(slots, slate[a], slate[b])
            if slot >= 0:
                _add(target, features, slot, real(sign * d[a, b]))


@njit(nogil=True, cache=True)
def means(weights, slots, slates, u, d, v, s):
    """Return x.m for each slate, (A,): O(k^2) each."""
    out = np.empty(slates.shape[0])
    for i in range(slates.shape[0]):
        out[i] = _slate_mean(weights, slots, slates[i], u, d, v, s)
    return out


@njit(nogil=True, cache=True)
def slates(features, weights, slots, chosen, u, d, v, s):
    """Return x.m and |R x|^2 for each slate of `chosen` (A, k), both (A,)."""
    mean = np.empty(chosen.shape[0])
    explained = np.empty(chosen.shape[0])
    vector = np.empty(features.shape[1], dtype=features.dtype)
    for i in range(chosen.shape[0]):
        _slate_vector(vector, features, slots, chosen[i], u, d, v, s)
        mean[i] = _slate_mean(weights, slots, chosen[i], u, d, v, s)
        explained[i] = _norm2(vector)
    return mean, explained


@njit(nogil=True, cache=True)
def replacements(features, weights, slots, chosen, position, u, d, v, s):
    """Return x.m and |R x|^2 of each slate of `chosen` with each item at `position`, both (A, E).

    A replacement by an item that is shown already stands for the slate itself.
    """
    n_items = slots.shape[0]
    mean = np.empty((chosen.shape[0], n_items))
    explained = np.empty_like(mean)
    own = np.empty(features.shape[1], dtype=features.dtype)
    without = np.empty_like(own)
    vector = np.empty_like(own)
    columns = np.empty(chosen.shape[1], dtype=np.int64)
    values = np.empty(chosen.shape[1])
    for row in range(chosen.shape[0]):
        slate = chosen[row]
        _slate_vector(own, features, slots, slate, u, d, v, s)
        own_mean = _slate_mean(weights, slots, slate, u, d, v, s)
        # What the item brings in is the difference that placing it once more makes.
        part = _place(vector, own, features, weights, slots, slate, position, slate[position], u, d, v, columns, values)
        for i in range(own.shape[0]):
            without[i] = own[i] - (vector[i] - own[i])
        for item in range(n_items):
            gained = _place(vector, without, features, weights, slots, slate, position, item, u, d, v, columns, values)
            mean[row, item] = own_mean - part + gained
            explained[row, item] = _norm2(vector)
        own_explained = _norm2(own)
        for a in range(slate.shape[0]):
            mean[row, slate[a]] = own_mean
            explained[row, slate[a]] = own_explained
    return mean, explained
