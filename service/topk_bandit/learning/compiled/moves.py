"""What is shared by searches for a slate: scores, the features among a few items, and how figures change with a move.

Letters: as in `climbing`.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from topk_bandit.learning.compiled.arrays import (
    NOWHERE,
    ONE,
    fill_rows,
    floats,
    floats32,
    integers,
    multiply_by_own,
)
from topk_bandit.learning.compiled.contraction import add, add_pair, make_pairs, replaced_means
from topk_bandit.learning.compiled.options import FOR_LOOPS, REASSOCIATE

__all__ = [
    "apply_terms",
    "change_of",
    "coarse_scores",
    "draw_slate",
    "exchange_terms",
    "fine_features",
    "holds",
    "is_gain",
    "item_terms",
    "number_of",
    "score_of",
    "shows",
    "weigh_slate",
]

# Moves must gain more than rounding can.
_GAIN = 1e-6


@njit(**FOR_LOOPS)
def is_gain(score, value):
    """Return whether a score is larger by more than rounding."""
    return score > value + _GAIN * (_GAIN + abs(value))


@njit(**FOR_LOOPS)
def score_of(mean, explained, bound):
    """Return the upper confidence bound of a slate."""
    return mean + bound[1] * np.sqrt(max(bound[0] - explained, 0.0))


@njit(**FOR_LOOPS)
def shows(slate, item):
    """Return whether a slate has an item."""
    for a in range(slate.shape[0]):  # noqa: SIM110 - compiled
        if slate[a] == item:
            return True
    return False


@njit(**FOR_LOOPS)
def draw_slate(order, uniforms, slate):
    """Set `slate` to the beginning of a random order of 0 .. len(order) - 1."""
    n = order.shape[0]
    for i in range(n):
        order[i] = i
    for a in range(slate.shape[0]):
        b = a + int(uniforms[a] * (n - a))
        order[a], order[b] = order[b], order[a]
        slate[a] = order[a]


@njit(**FOR_LOOPS, fastmath=REASSOCIATE)
def _coarse_row(scores, means, cross, covariance, weight, rest, spread):
    for j in range(scores.shape[0]):
        variance = rest + weight * (2.0 * cross[j] + weight * covariance[j, j])
        scores[j] = means[j] + spread * np.sqrt(max(variance, 0.0))


@njit(**FOR_LOOPS)
def coarse_scores(of_items, weights, pair_weights, slate, position, spread, u, d, v, s, scores, means, cross):
    """Set `scores` and `means`, (E,), to those of the slate with each item at `position`; `cross` is scratch, (E,)."""
    covariance, beside = of_items
    replaced_means(weights, pair_weights, slate, position, u, d, v, s, means)
    cross[:] = 0.0
    for b in range(slate.shape[0]):
        if b != position:
            add(cross, covariance, slate[b], u[b])
    rest = beside
    for b in range(slate.shape[0]):
        if b != position:
            rest += u[b] * cross[slate[b]]
    _coarse_row(scores, means, cross, covariance, u[position], rest, spread)


@njit(**FOR_LOOPS)
def _take_content_off(gram, content):
    """Take what content adds to the prior variance off the part of a Gram matrix that is of the items' u."""
    if content.shape[1] > 0:
        of_content = multiply_by_own(content)
        for i in range(content.shape[0]):
            for j in range(content.shape[0]):
                gram[i, j] -= of_content[i, j]


@njit(**FOR_LOOPS)
def _add_taken(gram, taken, of_v, items):
    """Add what is known of single items beside the rows to a Gram matrix of the features of u and v of `items` (m,)."""
    if taken.shape[0] > 0:
        m = items.shape[0]
        for i in range(m):
            of_u = taken[items[i]]
            gram[i, i] += of_u
            gram[i, m + i] += of_v * of_u
            gram[m + i, i] += of_v * of_u
            gram[m + i, m + i] += of_v * of_v * of_u


@njit(**FOR_LOOPS, fastmath=REASSOCIATE)
def _take(target, row, source, source_row, sign):
    for i in range(target.shape[1]):
        target[row, i] = sign * source[source_row, i]


@njit(**FOR_LOOPS)
def _rows(array, indices):
    out = floats32((indices.shape[0], array.shape[1]))
    for i in range(indices.shape[0]):
        _take(out, i, array, indices[i], array.dtype.type(1))
    return out


@njit(**FOR_LOOPS)
def fine_features(at, items):
    """Return the Gram matrix, the weights and the pairs' features (m, m), -1 where there is none, among some items."""
    features, weights, pair_weights, pairs = at.features, at.weights, at.pair_weights, at.pairs
    n_eligible, m, one = pairs.shape[0], items.shape[0], features.dtype.type(1)
    make_pairs(features, pairs, at.made, at.starts, at.rows, at.values, at.whitener, at.pending, items, items)
    inner, n_features = fill_rows(integers((m, m)), NOWHERE), 2 * m + 1
    chosen = floats32((n_features + m * (m - 1) // 2, features.shape[1]))
    out = floats(chosen.shape[0])
    _take(chosen, 2 * m, features, 2 * n_eligible, one)
    out[2 * m] = weights[2 * n_eligible]
    for i in range(m):
        _take(chosen, i, features, items[i], one)
        _take(chosen, m + i, features, n_eligible + items[i], one)
        out[i] = weights[items[i]]
        out[m + i] = weights[n_eligible + items[i]]
        for j in range(i + 1, m):
            pair = pairs[items[i], items[j]]
            if pair < 0:
                continue
            inner[i, j] = n_features
            inner[j, i] = n_features
            # A pair's feature is for its smaller item above the other.
            _take(chosen, n_features, features, np.int64(pair), one if items[i] < items[j] else -one)
            out[n_features] = pair_weights[items[i], items[j]]
            n_features += 1
    chosen = chosen[:n_features]
    gram = multiply_by_own(chosen)
    _take_content_off(gram, _rows(at.content, items))
    _add_taken(gram, at.taken, at.of_v, items)
    return gram, out[:n_features], inner


@njit(**FOR_LOOPS)
def _coefficient(d, item, position, other, other_position):
    """Return D of two items at their positions, as the coefficient of their pair, whose smaller item comes first."""
    weight = d[position, other_position] if position < other_position else -d[other_position, position]
    return weight if item < other else -weight


@njit(**FOR_LOOPS)
def item_terms(pairs, slate, position, item, u, d, v, columns, values):
    """Set `columns` and `values` to what `item` at `position` brings in beside the rest of `slate`."""
    columns[0], values[0] = item, u[position]
    columns[1], values[1] = pairs.shape[0] + item, v[position]
    count = 2
    for b in range(slate.shape[0]):
        if b != position and pairs[item, slate[b]] >= 0:
            columns[count] = pairs[item, slate[b]]
            values[count] = _coefficient(d, item, position, slate[b], b)
            count += 1
    return count


@njit(**FOR_LOOPS)
def exchange_terms(pairs, slate, a, b, u, d, v, columns, values):
    """Set `columns` and `values` to how the features change when positions a and b change places; return how many."""
    m, i, j = pairs.shape[0], slate[a], slate[b]
    columns[0], values[0] = i, u[b] - u[a]
    columns[1], values[1] = m + i, v[b] - v[a]
    columns[2], values[2] = j, u[a] - u[b]
    columns[3], values[3] = m + j, v[a] - v[b]
    count = 4
    if pairs[i, j] >= 0:
        columns[count], values[count] = pairs[i, j], -2.0 * _coefficient(d, i, a, j, b)
        count += 1
    for c in range(slate.shape[0]):
        other = slate[c]
        if c == a or c == b:  # noqa: PLR1714, SIM109 - a tuple is not free here
            continue
        if pairs[i, other] >= 0:
            columns[count] = pairs[i, other]
            values[count] = _coefficient(d, i, b, other, c) - _coefficient(d, i, a, other, c)
            count += 1
        if pairs[j, other] >= 0:
            columns[count] = pairs[j, other]
            values[count] = _coefficient(d, j, a, other, c) - _coefficient(d, j, b, other, c)
            count += 1
    return count


@njit(**FOR_LOOPS)
def change_of(gram, weights, products, columns, values, count):
    """Return by how much x' G x and the mean change with these terms, given the `products` G x."""
    explained, mean = 0.0, 0.0
    for i in range(count):
        column = columns[i]
        total = products[column] + 0.5 * values[i] * gram[column, column]
        for j in range(i):
            total += values[j] * gram[column, columns[j]]
        explained += 2.0 * values[i] * total
        mean += values[i] * weights[column]
    return explained, mean


@njit(**FOR_LOOPS, fastmath=REASSOCIATE)
def _add_four_rows(target, array, r, q, s, t, a, b, c, d):
    for j in range(target.shape[0]):
        target[j] += a * array[r, j] + b * array[q, j] + c * array[s, j] + d * array[t, j]


@njit(**FOR_LOOPS)
def apply_terms(gram, products, columns, values, count):
    """Add the terms' part of G x; several rows at a time, so that the sum is read and written less often."""
    real = products.dtype.type
    i = 0
    while i + 4 <= count:
        a, b, c, d = real(values[i]), real(values[i + 1]), real(values[i + 2]), real(values[i + 3])
        _add_four_rows(products, gram, columns[i], columns[i + 1], columns[i + 2], columns[i + 3], a, b, c, d)
        i += 4
    while i + 2 <= count:
        add_pair(products, gram, columns[i], real(values[i]), columns[i + 1], real(values[i + 1]))
        i += 2
    if i < count:
        add(products, gram, columns[i], real(values[i]))


@njit(**FOR_LOOPS)
def weigh_slate(gram, weights, pairs, slate, gap, u, d, v, s, products, columns, values):
    """Set `products` to G x of a slate, without the item at `gap` unless that is -1; return its mean and x' G x."""
    k, m = slate.shape[0], pairs.shape[0]
    products[:] = 0.0
    columns[0], values[0] = 2 * m, s
    count = ONE
    for a in range(k):
        if a == gap:
            continue
        columns[count], values[count] = slate[a], u[a]
        columns[count + 1], values[count + 1] = m + slate[a], v[a]
        count += 2
        for b in range(a + 1, k):
            if b != gap and pairs[slate[a], slate[b]] >= 0:
                columns[count] = pairs[slate[a], slate[b]]
                values[count] = _coefficient(d, slate[a], a, slate[b], b)
                count += 1
    apply_terms(gram, products, columns, values, count)
    mean, explained = 0.0, 0.0
    for i in range(count):
        mean += values[i] * weights[columns[i]]
        explained += values[i] * products[columns[i]]
    return mean, explained


@njit(**FOR_LOOPS)
def number_of(slate, m):
    """Return a number that no other slate of m items has."""
    number = np.int64(0)
    for a in range(slate.shape[0]):
        number = number * m + slate[a]
    return number


@njit(**FOR_LOOPS)
def holds(numbers, count, number):
    """Return whether a number is one of the first `count`."""
    for i in range(count):  # noqa: SIM110
        if numbers[i] == number:
            return True
    return False
