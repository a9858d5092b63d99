"""Compiled loops that contract a posterior to one context, and evaluate slates and neighbourhoods there.

Those that may take long release the GIL; all keep their results the same from run to run, and are cached on disk.

Letters: A rankings, k positions, N rewarded rows, P pending rows, E eligible items, S pairs of eligible items that some
row shows together. `features` is M diag(C c) X B, feature-major: the N + P numbers of a feature are contiguous.
Features 0 .. E - 1 are the items' u, E .. 2E - 1 their v, 2E is s, and from 2E + 1 on there is one for each pair:
`pairs` (E, E) tells which, -1 where there is none. A pair's feature is made when it is first needed; `made` tells which
are.

`taken` (E,) is by how much the variances of the items' parts are smaller than they would be before the rows; a part
counts by u + v times `of_v`, 1 / n. It has no numbers where nothing is known of single items.

`content` (E, q) is what items with features add beside: a slate's prior variance grows by the square of the sum of u
times their rows. It has no columns where content counts for nothing.

Inner loops take arrays one by one and rows by their index: each array taken out of a tuple, and each view of a row,
costs as much as adding a hundred numbers.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from topk_bandit.learning.compiled.arrays import (
    NOWHERE,
    ZERO,
    add_up,
    copy,
    count_up,
    fill_rows,
    floats,
    floats32,
    integers,
    integers32,
    zero_counts,
    zero_rows,
    zeros,
)
from topk_bandit.learning.compiled.options import FOR_LOOPS, FOR_PYTHON, REASSOCIATE, WITHOUT_LOCK

__all__ = [
    "Contraction",
    "add",
    "add_pair",
    "contract",
    "explained_by",
    "make_own_pairs",
    "make_pairs",
    "mean_neighbourhoods",
    "means",
    "neighbourhoods",
    "replaced_means",
    "replacements",
    "slate_mean",
    "slate_vector",
    "slates",
]

# Sums may be reordered so that they vectorise; NaN and infinity keep their meaning.


class Contraction(NamedTuple):
    """A posterior at one context, as arrays.

    `weights` (2E + 1,) and `pair_weights` (E, E), antisymmetric, give the means. Rows `starts[i]` to `starts[i + 1]` of
    `rows` and `values` make up the i-th pair's feature.
    """

    features: np.ndarray
    weights: np.ndarray
    pair_weights: np.ndarray
    pairs: np.ndarray
    made: np.ndarray
    starts: np.ndarray
    rows: np.ndarray
    values: np.ndarray
    whitener: np.ndarray
    pending: np.ndarray
    content: np.ndarray
    taken: np.ndarray
    of_v: np.float32


# Of a signed index that starts anywhere the compiler has to ask whether it counts from the end, and then does not
# vectorise.
_index = np.uint64


@njit(**FOR_LOOPS, fastmath=REASSOCIATE)
def _add_one(features, f, source, row, weight, first, last, shift):
    for i in range(_index(first), _index(last)):
        features[f, i + _index(shift)] += weight * source[row, i]


@njit(**FOR_LOOPS, fastmath=REASSOCIATE)
def _add_two(features, f, source, r, q, a, b, first, last):
    for i in range(_index(first), _index(last)):
        features[f, i] += a * source[r, i] + b * source[q, i]


@njit(**FOR_LOOPS, fastmath=REASSOCIATE)
def _add_four(features, f, source, r, q, s, t, a, b, c, d, first, last):
    for i in range(_index(first), _index(last)):
        features[f, i] += a * source[r, i] + b * source[q, i] + c * source[s, i] + d * source[t, i]


@njit(**FOR_LOOPS)
def _combine(features, f, whitener, pending, n_rows, rows, values, start, end):
    """Set feature f to the sum of `values` times the rows `rows` of M', ascending, from `start` to `end`."""
    for j in range(features.shape[1]):
        features[f, j] = 0.0
    i = start
    while i + 4 <= end and rows[i + 3] < n_rows:
        r, q, s, t = rows[i], rows[i + 1], rows[i + 2], rows[i + 3]
        a, b, c, d = values[i], values[i + 1], values[i + 2], values[i + 3]
        _add_four(features, f, whitener, r, q, s, t, a, b, c, d, r, n_rows)
        i += 4
    while i + 2 <= end and rows[i + 1] < n_rows:
        r, q = rows[i], rows[i + 1]
        _add_two(features, f, whitener, r, q, values[i], values[i + 1], r, n_rows)
        i += 2
    if i < end and rows[i] < n_rows:
        _add_one(features, f, whitener, rows[i], values[i], np.int64(rows[i]), n_rows, ZERO)
    n_pending = pending.shape[1]
    if n_pending > 0:
        for j in range(start, end):
            _add_one(features, f, pending, rows[j], values[j], ZERO, n_pending, n_rows)


@njit(**FOR_LOOPS)
def _places(rankings, place):
    places = integers32(rankings.shape)
    for r in range(rankings.shape[0]):
        for a in range(rankings.shape[1]):
            places[r, a] = place[rankings[r, a]]
    return places


@njit(**FOR_LOOPS)
def _number_pairs(places, pairs):
    """Set `pairs` to the numbers, from 0, of pairs that are shown together; return where each pair's list starts."""
    n_rows, k = places.shape
    together = zero_counts(n_rows * k * (k - 1) // 2 + 1)
    n_pairs = 0
    for r in range(n_rows):
        for a in range(k):
            i = places[r, a]
            for b in range(a + 1, k):
                j = places[r, b]
                if i < 0 or j < 0:
                    continue
                if pairs[i, j] < 0:
                    pairs[i, j] = n_pairs
                    pairs[j, i] = n_pairs
                    n_pairs += 1
                together[pairs[i, j] + 1] += 1
    return add_up(together[: n_pairs + 1])


@njit(**FOR_LOOPS, fastmath=REASSOCIATE)
def _add_item(features, u_row, v_row, row, of_u, of_v, first):
    """Add the row, from column `first` on, times two numbers to the features of an item's u and v."""
    for i in range(_index(first), _index(row.shape[0])):
        features[u_row, i] += of_u * row[i]
        features[v_row, i] += of_v * row[i]


@njit(**FOR_LOOPS)
def _whiten_rows(places, similarities, entries, whitener, pending, n_eligible, n_features, n_items, u, v, s):
    """Return an array for all features, with those of the items and of s: M times the sparse rows, row by row."""
    n_all, n_rows = places.shape[0], places.shape[0] - pending.shape[1]
    features = floats32((n_features, n_all))
    features[: 2 * n_eligible + 1] = 0.0
    row = floats32(n_all)
    for r in range(n_all):
        first = min(r, n_rows)
        for i in range(_index(first), _index(n_rows)):
            row[i] = whitener[r, i]
        copy(row[n_rows:], pending[r])
        for a in range(places.shape[1]):
            item, of_v = places[r, a], similarities[r] * u[a]
            if item >= 0:
                of_u = similarities[r] * (n_items * u[a] + v[a])
                if entries.shape[0] > 0:
                    of_u -= entries[r, a]
                    of_v -= entries[r, a] / n_items
                _add_item(features, item, n_eligible + item, row, np.float32(of_u), np.float32(of_v), first)
        of_s = np.float32(-s * similarities[r])
        for i in range(_index(first), _index(n_all)):
            features[2 * n_eligible, i] += of_s * row[i]
    return features


@njit(**FOR_LOOPS)
def _weigh_pairs(places, similarities, entries, row_weights, pairs, starts, n_items, u, d, v, s):
    """Return the weights, and the rows and values of the pairs' lists."""
    n_eligible, k = pairs.shape[0], places.shape[1]
    rows, values = integers32(starts[-1]), floats(starts[-1])
    following = starts.copy()
    weights, pair_weights = zeros(2 * n_eligible + 1), zero_rows(n_eligible, n_eligible)
    for r in range(places.shape[0]):
        similarity, alpha = similarities[r], row_weights[r] if r < row_weights.shape[0] else 0.0
        weights[2 * n_eligible] -= s * similarity * alpha
        for a in range(k):
            i = places[r, a]
            if i < 0:
                continue
            weights[i] += alpha * similarity * (n_items * u[a] + v[a])
            weights[n_eligible + i] += alpha * similarity * u[a]
            if entries.shape[0] > 0:
                weights[i] -= alpha * entries[r, a]
                weights[n_eligible + i] -= alpha * entries[r, a] / n_items
            for b in range(a + 1, k):
                j = places[r, b]
                if j < 0:
                    continue
                at = following[pairs[i, j]]
                following[pairs[i, j]] += 1
                value = similarity * d[a, b]
                rows[at] = r
                values[at] = value if i < j else -value
                pair_weights[i, j] += alpha * value
                pair_weights[j, i] -= alpha * value
    return weights, pair_weights, rows, values


@njit(**WITHOUT_LOCK)
def contract(rankings, similarities, entries, row_weights, whitener, pending, place, n_eligible, n_items, u, d, v, s):
    """Return the contraction but for the pairs' features, and the places of all rows' items, (N + P, k).

    Parameters: the rankings and similarities (C c, times the kernel's scale) of all rows; what is taken off for each of
    their items, (N + P, k), or no rows where nothing is; alpha of the rewarded ones;
    M' of both kinds of rows; the place of each item among the eligible ones, -1 for the rest; and the kernel's numbers.
    """
    places = _places(rankings, place)
    pairs = fill_rows(integers32((n_eligible, n_eligible)), NOWHERE)
    starts = _number_pairs(places, pairs)
    weights, pair_weights, rows, values = _weigh_pairs(
        places, similarities, entries, row_weights, pairs, starts, n_items, u, d, v, s
    )
    first = 2 * n_eligible + 1
    n_features = first + starts.shape[0] - 1
    features = _whiten_rows(places, similarities, entries, whitener, pending, n_eligible, n_features, n_items, u, v, s)
    for i in range(n_eligible):
        for j in range(n_eligible):
            if pairs[i, j] >= 0:
                pairs[i, j] += first
    return places, features, weights, pair_weights, pairs, starts, rows, values


@njit(**WITHOUT_LOCK)
def make_pairs(features, pairs, made, starts, rows, values, whitener, pending, left, right):
    """Make the features of all pairs of an item of `left` and one of `right` that are not there yet."""
    first = features.shape[0] - made.shape[0]
    n_rows = pending.shape[0] - pending.shape[1]
    for a in range(left.shape[0]):
        for b in range(right.shape[0]):
            f = np.int64(pairs[left[a], right[b]])
            if f >= 0 and not made[f - first]:
                start, end = starts[f - first], starts[f - first + 1]
                _combine(features, f, whitener, pending, n_rows, rows, values, start, end)
                made[f - first] = True


@njit(**WITHOUT_LOCK)
def make_own_pairs(features, pairs, made, starts, rows, values, whitener, pending, chosen):
    """Make the features of the pairs of items of each slate of `chosen` (A, k) that are not there yet."""
    for a in range(chosen.shape[0]):
        make_pairs(features, pairs, made, starts, rows, values, whitener, pending, chosen[a], chosen[a])


@njit(**FOR_LOOPS, fastmath=REASSOCIATE)
def add(target, features, row, weight):
    """Add `weight` times row `row` of the features to `target`."""
    for i in range(target.shape[0]):
        target[i] += weight * features[row, i]


@njit(**FOR_LOOPS, fastmath=REASSOCIATE)
def add_pair(target, features, row, weight, other_row, other_weight):
    """Add two rows of the features, each times its weight, to `target`."""
    for i in range(target.shape[0]):
        target[i] += weight * features[row, i] + other_weight * features[other_row, i]


@njit(**FOR_LOOPS, fastmath=REASSOCIATE)
def _set_sum(target, base, features, row, weight, other_row, other_weight):
    for i in range(target.shape[0]):
        target[i] = base[i] + weight * features[row, i] + other_weight * features[other_row, i]


@njit(**FOR_LOOPS, fastmath=REASSOCIATE)
def _norm2(vector):
    total = vector.dtype.type(0)
    for i in range(vector.shape[0]):
        total += vector[i] * vector[i]
    return total


@njit(**FOR_LOOPS)
def _terms(pairs, slate, position, item, d, columns, values):
    """Set `columns` and `values` to D of `item` at `position` with the rest of `slate`; return how many there are."""
    count = 0
    for other in range(slate.shape[0]):
        f = pairs[slate[other], item]
        if other == position or f < 0:
            continue
        weight = d[other, position] if other < position else -d[position, other]
        columns[count] = f
        values[count] = weight if slate[other] < item else -weight
        count += 1
    return count


@njit(**FOR_LOOPS)
def _place(target, base, features, pairs, slate, position, item, u, d, v, columns, values):
    """Set target = base + what `item` at `position` brings in beside the rest of `slate`; scratch is of k numbers."""
    real = target.dtype.type
    count = _terms(pairs, slate, position, item, d, columns, values)
    _set_sum(target, base, features, item, real(u[position]), pairs.shape[0] + item, real(v[position]))
    # Two at a time: the sum is read and written half as often.
    for j in range(0, count - 1, 2):
        add_pair(target, features, columns[j], real(values[j]), columns[j + 1], real(values[j + 1]))
    if count % 2 == 1:
        add(target, features, columns[count - 1], real(values[count - 1]))


@njit(**FOR_LOOPS, fastmath=REASSOCIATE)
def _norm2_of_seven(base, features, columns, weights):
    """Return |base + seven weighted features|^2 in one pass."""
    p, q, r, s, t, u, v = columns[0], columns[1], columns[2], columns[3], columns[4], columns[5], columns[6]
    a, b, c, d, e, f, g = weights[0], weights[1], weights[2], weights[3], weights[4], weights[5], weights[6]
    total = base.dtype.type(0)
    for i in range(base.shape[0]):
        x = base[i] + a * features[p, i] + b * features[q, i] + c * features[r, i] + d * features[s, i]
        x += e * features[t, i] + f * features[u, i] + g * features[v, i]
        total += x * x
    return total


@njit(**FOR_LOOPS)
def slate_mean(weights, pair_weights, slate, u, d, v, s):
    """Return x.m of one slate: O(k^2)."""
    n_eligible = pair_weights.shape[0]
    mean = s * weights[2 * n_eligible]
    for a in range(slate.shape[0]):
        mean += u[a] * weights[slate[a]] + v[a] * weights[n_eligible + slate[a]]
        for b in range(a + 1, slate.shape[0]):
            mean += d[a, b] * pair_weights[slate[a], slate[b]]
    return mean


@njit(**FOR_LOOPS)
def slate_vector(target, features, pairs, slate, u, d, v, s):
    """Set `target` to R x of a slate, the features of whose pairs must be there, (N + P,)."""
    real = target.dtype.type
    n_eligible = pairs.shape[0]
    target[:] = 0
    add(target, features, 2 * n_eligible, real(s))
    for a in range(slate.shape[0]):
        add_pair(target, features, slate[a], real(u[a]), n_eligible + slate[a], real(v[a]))
        for b in range(a + 1, slate.shape[0]):
            f = np.int64(pairs[slate[a], slate[b]])
            if f >= 0:
                add(target, features, f, real(d[a, b] if slate[a] < slate[b] else -d[a, b]))


@njit(**FOR_PYTHON)
def means(weights, pair_weights, chosen, u, d, v, s):
    """Return x.m for each slate of `chosen` (A, k), shape (A,): O(k^2) each."""
    out = floats(chosen.shape[0])
    for i in range(chosen.shape[0]):
        out[i] = slate_mean(weights, pair_weights, chosen[i], u, d, v, s)
    return out


@njit(**FOR_LOOPS)
def _sum_content(target, content, slate, gap, u):
    """Set `target` to the content of a slate, without the item at `gap` unless that is -1."""
    target[:] = 0
    for a in range(slate.shape[0]):
        if a != gap:
            add(target, content, slate[a], target.dtype.type(u[a]))


@njit(**FOR_LOOPS, fastmath=REASSOCIATE)
def _norm2_with(base, content, item, weight):
    total = base.dtype.type(0)
    for i in range(base.shape[0]):
        x = base[i] + weight * content[item, i]
        total += x * x
    return total


@njit(**FOR_LOOPS)
def _taken_of(taken, of_v, slate, gap, u, v):
    """Return by how much the variance of a slate is smaller by `taken`, without the item at `gap` unless that is -1."""
    total = taken.dtype.type(0)
    if taken.shape[0] > 0:
        for a in range(slate.shape[0]):
            if a != gap:
                weight = taken.dtype.type(u[a]) + of_v * taken.dtype.type(v[a])
                total += weight * weight * taken[slate[a]]
    return total


@njit(**FOR_LOOPS)
def explained_by(content, taken, of_v, vector, slate, u, v):
    """Return |R x|^2 and what is taken, less what content adds, of a slate with R x as in `vector`."""
    of_content = floats32(content.shape[1])
    _sum_content(of_content, content, slate, NOWHERE, u)
    return _norm2(vector) - _norm2(of_content) + _taken_of(taken, of_v, slate, NOWHERE, u, v)


@njit(**FOR_PYTHON)
def slates(features, content, taken, of_v, pairs, chosen, n_columns, u, d, v, s):
    """Return |R x|^2 by the first rows and what is taken, less what content adds, of slates `chosen` (A, k), (A,).

    The features of their pairs must be there.
    """
    explained = floats(chosen.shape[0])
    vector = floats32(n_columns)
    for i in range(chosen.shape[0]):
        slate_vector(vector, features, pairs, chosen[i], u, d, v, s)
        explained[i] = explained_by(content, taken, of_v, vector, chosen[i], u, v)
    return explained


@njit(**FOR_LOOPS, fastmath=REASSOCIATE)
def replaced_means(weights, pair_weights, slate, position, u, d, v, s, out):
    """Set `out` to x.m of the slate with each item in turn at `position`; of no use for items that it shows, (E,)."""
    n_eligible, k = pair_weights.shape[0], slate.shape[0]
    rest = s * weights[2 * n_eligible]
    for a in range(k):
        if a == position:
            continue
        rest += u[a] * weights[slate[a]] + v[a] * weights[n_eligible + slate[a]]
        for b in range(a + 1, k):
            if b != position:
                rest += d[a, b] * pair_weights[slate[a], slate[b]]
    for item in range(n_eligible):
        out[item] = rest + u[position] * weights[item] + v[position] * weights[n_eligible + item]
    for a in range(k):
        if a != position:
            add(out, pair_weights, slate[a], d[a, position] if a < position else -d[position, a])


@njit(**WITHOUT_LOCK)
def mean_neighbourhoods(weights, pair_weights, chosen, position, u, d, v, s):
    """Return `replaced_means` of each slate of `chosen` (A, k), (A, E)."""
    out = floats((chosen.shape[0], pair_weights.shape[0]))
    for row in range(chosen.shape[0]):
        replaced_means(weights, pair_weights, chosen[row], position, u, d, v, s, out[row])
    return out


@njit(**FOR_LOOPS)
def _take_content_off(content, slate, position, among, u, explained):
    """Take off `explained` what content adds to the slate with each item of `among` at `position`."""
    rest = floats32(content.shape[1])
    _sum_content(rest, content, slate, position, u)
    for item in among:
        explained[item] -= _norm2_with(rest, content, item, content.dtype.type(u[position]))


@njit(**FOR_LOOPS)
def _add_taken(taken, of_v, slate, position, among, u, v, explained):
    """Add to `explained` by how much the variance of the slate with each item of `among` at `position` is smaller."""
    rest = _taken_of(taken, of_v, slate, position, u, v)
    weight = taken.dtype.type(u[position]) + of_v * taken.dtype.type(v[position])
    for item in among:
        explained[item] += rest + weight * weight * taken[item]


@njit(**FOR_LOOPS)
def replacements(
    features, content, taken, of_v, weights, pair_weights, pairs, slate, position, among, u, d, v, s, mean, explained
):
    """Set `mean` and `explained` to those of the slate with each item of `among` at `position`, both (E,).

    They are x.m, and |R x|^2 and what is taken, less what content adds. A replacement by an item that is shown already
    stands for the slate itself. The features of the pairs of the slate's items with those of `among` must be there.
    """
    own = floats32(features.shape[1])
    without, vector = np.empty_like(own), np.empty_like(own)
    columns, values = integers(slate.shape[0]), floats(slate.shape[0])
    seven, weights_of_seven = integers(7), floats32(7)
    slate_vector(own, features, pairs, slate, u, d, v, s)
    # What the item brings in is the difference that placing it once more makes.
    _place(vector, own, features, pairs, slate, position, slate[position], u, d, v, columns, values)
    for i in range(own.shape[0]):
        without[i] = own[i] - (vector[i] - own[i])
    replaced_means(weights, pair_weights, slate, position, u, d, v, s, mean)
    for item in among:
        if slate.shape[0] > 6:
            _place(vector, without, features, pairs, slate, position, item, u, d, v, columns, values)
            explained[item] = _norm2(vector)
            continue
        count = _terms(pairs, slate, position, item, d, columns, values)
        seven[0], weights_of_seven[0] = item, u[position]
        seven[1], weights_of_seven[1] = pairs.shape[0] + item, v[position]
        for j in range(5):
            seven[2 + j] = columns[j] if j < count else item
            weights_of_seven[2 + j] = values[j] if j < count else 0.0
        explained[item] = _norm2_of_seven(without, features, seven, weights_of_seven)
    if content.shape[1] > 0:
        _take_content_off(content, slate, position, among, u, explained)
    if taken.shape[0] > 0:
        _add_taken(taken, of_v, slate, position, among, u, v, explained)
    own_mean, own_explained = mean[slate[position]], explained_by(content, taken, of_v, own, slate, u, v)
    for a in range(slate.shape[0]):
        mean[slate[a]] = own_mean
        explained[slate[a]] = own_explained


@njit(**WITHOUT_LOCK)
def neighbourhoods(features, content, taken, of_v, weights, pair_weights, pairs, chosen, position, u, d, v, s):
    """Return `replacements` of each slate of `chosen` (A, k), both (A, E)."""
    mean = floats((chosen.shape[0], pairs.shape[0]))
    explained, every = np.empty_like(mean), count_up(pairs.shape[0])
    for row in range(chosen.shape[0]):
        replacements(
            features, content, taken, of_v, weights, pair_weights, pairs, chosen[row], position, every, u, d, v, s,
            mean[row], explained[row],
        )  # fmt: skip
    return mean, explained
