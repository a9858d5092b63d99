"""Compiled local search for the largest upper confidence bound in a contraction.

The variance of a slate x is c.c - x' G x, with G the Gram matrix of the features less that of the items' content, so
that trying a slate costs nothing that depends on the number of rows. G over all features would be far too large; so the
search has three stages:

1. *coarse*: climb with all items and with the variance of the items' parts alone, which is nearly all that differs
   between slates (the means are exact). What is learned from it is which few items matter.
2. *fine*: climb among those items with all of their features: exact.
3. *polish*: climb on from the best with all items and all features, until no neighbour is better.

Neighbours are replacements of one item and exchanges of two positions. A climb tries every position in turn and moves
to the best item there; when no position gains it makes the best exchange. In the fine stage climbs begin among the few
items that matter most, and the best go on among all of them with more neighbours: one item out, at any place, and one
in, at any other.

Letters: as in `_contraction`; m items in the fine stage, F features there: u of item i at i, v at m + i, s at 2m, pairs
from 2m + 1 on. `bound` is (c.c, sqrt(beta s^2)): a slate's score is its mean + bound[1] sqrt(bound[0] - x' G x).
"""

from __future__ import annotations

import numpy as np
from numba import njit

from topk_bandit.learning.compiled.arrays import (
    NOWHERE,
    ONE,
    ZERO,
    are_equal,
    copy,
    count_up,
    fill,
    fill_rows,
    find_largest,
    floats,
    floats32,
    integers,
    multiply_by_own,
    sort_descending,
)
from topk_bandit.learning.compiled.contraction import (
    add,
    add_pair,
    make_pairs,
    replaced_means,
    replacements,
    slate_mean,
    slates,
)
from topk_bandit.learning.compiled.options import FOR_LOOPS, FOR_PYTHON, REASSOCIATE, WITHOUT_LOCK

__all__ = ["best_seen", "climb", "polish", "weigh_items"]

# Moves must gain more than rounding can.
_GAIN = 1e-6
_MOST_SWEEPS = 32

_SLATES_TO_GO_ON_FROM = 6

# Items are weighed by the neighbours of so many slates.
_SLATES_TO_LOOK_AROUND = 4
_STARTS_TO_WEIGH_ITEMS_FROM = 2


@njit(**FOR_LOOPS)
def _gains(score, value):
    return score > value + _GAIN * (_GAIN + abs(value))


@njit(**FOR_LOOPS)
def _score(mean, explained, bound):
    return mean + bound[1] * np.sqrt(max(bound[0] - explained, 0.0))


@njit(**FOR_LOOPS)
def _shows(slate, item):
    for a in range(slate.shape[0]):  # noqa: SIM110 - compiled
        if slate[a] == item:
            return True
    return False


@njit(**FOR_PYTHON)
def best_seen(weights, pair_weights, places, n_rows, count, u, d, v, s):
    """Return up to `count` different slates of the rewarded rows with all items eligible, the largest means first."""
    k = places.shape[1]
    best, values, n_found = integers((count, k)), fill(floats(count), -np.inf), 0
    slate = integers(k)
    for r in range(n_rows):
        copy(slate, places[r])
        if _shows(slate, NOWHERE):
            continue
        mean = slate_mean(weights, pair_weights, slate, u, d, v, s)
        rank = 0
        while rank < count and values[rank] > mean:
            rank += 1
        if rank == count or (values[rank] == mean and are_equal(best[rank], slate)):
            continue
        for i in range(count - 1, rank, -1):
            copy(best[i], best[i - 1])
            values[i] = values[i - 1]
        copy(best[rank], slate)
        values[rank] = mean
        n_found = min(n_found + 1, count)
    return best[:n_found]


@njit(**FOR_LOOPS)
def _draw(order, uniforms, slate):
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
def _coarse_scores(of_items, weights, pair_weights, slate, position, spread, u, d, v, s, scores, means, cross):
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
def _coarse_climb(of_items, weights, pair_weights, slate, spread, u, d, v, s, scores, means, cross):
    """Climb from `slate`, in place, by replacements; return the score and how many slates were scored."""
    n_eligible, k = pair_weights.shape[0], slate.shape[0]
    value, tried, position, still = -np.inf, 0, ZERO, 0
    while still < k and tried < _MOST_SWEEPS * k * n_eligible:
        _coarse_scores(of_items, weights, pair_weights, slate, position, spread, u, d, v, s, scores, means, cross)
        tried += n_eligible
        still += 1
        value = scores[slate[position]]
        for a in range(k):
            scores[slate[a]] = -np.inf
        item = find_largest(scores)
        if _gains(scores[item], value):
            value = scores[item]
            slate[position] = item
            still = 1
        position = (position + 1) % k
    return value, tried


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


@njit(**WITHOUT_LOCK)
def weigh_items(at, of_items, starts, uniforms, size, spread, u, d, v, s):
    """Return the `size` items that matter most, these first, the slates climbed to, and how many slates were scored.

    An item matters as much as the best slate in reach that shows it; the items of the best slate climbed to, and of the
    first of `starts`, matter in any case. Parameters: as for `climb`; `of_items` is the covariance of the items' parts
    (E, E), and what variances have beside it, both in the unit of c.c.
    """
    weights, pair_weights, starts = at.weights, at.pair_weights, starts[:_STARTS_TO_WEIGH_ITEMS_FROM]
    n_eligible, k = pair_weights.shape[0], uniforms.shape[1]
    scores, means, cross = floats(n_eligible), floats(n_eligible), floats(n_eligible)
    order = integers(n_eligible)
    climbed = integers((starts.shape[0] + uniforms.shape[0], k))
    values = floats(climbed.shape[0])
    tried = 0
    for i in range(climbed.shape[0]):
        if i < starts.shape[0]:
            copy(climbed[i], starts[i])
        else:
            _draw(order, uniforms[i - starts.shape[0]], climbed[i])
        values[i], more = _coarse_climb(
            of_items, weights, pair_weights, climbed[i], spread, u, d, v, s, scores, means, cross
        )
        tried += more
    ranked = sort_descending(values, values.shape[0])
    ends, matters = np.empty_like(climbed), fill(floats(n_eligible), -np.inf)
    for rank in range(ends.shape[0]):
        copy(ends[rank], climbed[ranked[rank]])
    for i in range(min(_SLATES_TO_LOOK_AROUND, ends.shape[0])):
        for position in range(k):
            _coarse_scores(of_items, weights, pair_weights, ends[i], position, spread, u, d, v, s, scores, means, cross)
            tried += n_eligible
            for j in range(n_eligible):
                matters[j] = max(matters[j], scores[j])
    for a in range(k):
        matters[ends[0, a]] = np.inf
        if starts.shape[0] > 0:
            matters[starts[0, a]] = np.inf
    return sort_descending(matters, size), ends, tried


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
def _fine_features(at, items):
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
def _terms(pairs, slate, position, item, u, d, v, columns, values):
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
def _exchange_terms(pairs, slate, a, b, u, d, v, columns, values):
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
def _change(gram, weights, products, columns, values, count):
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
def _apply(gram, products, columns, values, count):
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
def _weigh(gram, weights, pairs, slate, gap, u, d, v, s, products, columns, values):
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
    _apply(gram, products, columns, values, count)
    mean, explained = 0.0, 0.0
    for i in range(count):
        mean += values[i] * weights[columns[i]]
        explained += values[i] * products[columns[i]]
    return mean, explained


@njit(**FOR_LOOPS)
def _best_replacement(
    gram, weights, pairs, slate, among, a, value, mean, explained, highest, bound, u, d, v, products, columns, values
):
    """Take the item at position a out of `products`; return which to put there, its figures and the largest mean."""
    count = _terms(pairs, slate, a, slate[a], u, d, v, columns, values)
    for i in range(count):
        values[i] = -values[i]
    less, lower = _change(gram, weights, products, columns, values, count)
    _apply(gram, products, columns, values, count)
    chosen, best_mean, best_explained = slate[a], mean, explained
    for item in range(among):
        if _shows(slate, item):
            continue
        count = _terms(pairs, slate, a, item, u, d, v, columns, values)
        more, higher = _change(gram, weights, products, columns, values, count)
        score = _score(mean + lower + higher, explained + less + more, bound)
        highest = max(highest, mean + lower + higher)
        if _gains(score, value):
            value, chosen = score, item
            best_mean, best_explained = mean + lower + higher, explained + less + more
    return chosen, value, best_mean, best_explained, highest


@njit(**FOR_LOOPS)
def _best_exchange(
    gram, weights, pairs, slate, value, mean, explained, highest, bound, u, d, v, products, columns, values
):
    """Return the two positions to exchange, -1 if no exchange gains, the figures then and the largest mean."""
    first, second, best_mean, best_explained = -1, -1, mean, explained
    for b in range(slate.shape[0]):
        for c in range(b + 1, slate.shape[0]):
            count = _exchange_terms(pairs, slate, b, c, u, d, v, columns, values)
            more, higher = _change(gram, weights, products, columns, values, count)
            score = _score(mean + higher, explained + more, bound)
            highest = max(highest, mean + higher)
            if _gains(score, value):
                value, first, second, best_mean, best_explained = score, b, c, mean + higher, explained + more
    return first, second, value, best_mean, best_explained, highest


@njit(**FOR_LOOPS)
def _number(slate, m):
    number = np.int64(0)
    for a in range(slate.shape[0]):
        number = number * m + slate[a]
    return number


@njit(**FOR_LOOPS)
def _holds(numbers, count, number):
    for i in range(count):  # noqa: SIM110
        if numbers[i] == number:
            return True
    return False


@njit(**FOR_LOOPS)
def _fine_climb(gram, weights, pairs, slate, among, bound, u, d, v, s, products, columns, values, settled, n_settled):
    """Climb from `slate`, in place; return score, largest mean, how many were tried, and how many are `settled`.

    `settled` holds a number for each slate that no replacement made better in this or an earlier climb: what follows
    from there is known.
    """
    m, k = pairs.shape[0], slate.shape[0]
    mean, explained = _weigh(gram, weights, pairs, slate, NOWHERE, u, d, v, s, products, columns, values)
    value, highest, tried = _score(mean, explained, bound), mean, 1
    a, still = ZERO, 0
    while n_settled < settled.shape[0]:
        while still < k:
            chosen, value, mean, explained, highest = _best_replacement(
                gram, weights, pairs, slate, among, a, value, mean, explained, highest, bound, u, d, v,
                products, columns, values,
            )  # fmt: skip
            tried += among - k
            still = still + 1 if chosen == slate[a] else 1
            slate[a] = chosen
            count = _terms(pairs, slate, a, chosen, u, d, v, columns, values)
            _apply(gram, products, columns, values, count)
            a = (a + 1) % k
        number = _number(slate, m)
        if _holds(settled, n_settled, number):
            break
        settled[n_settled] = number
        n_settled += 1
        first, second, value, mean, explained, highest = _best_exchange(
            gram, weights, pairs, slate, value, mean, explained, highest, bound, u, d, v, products, columns, values
        )
        tried += k * (k - 1) // 2
        if first < 0:
            break
        count = _exchange_terms(pairs, slate, first, second, u, d, v, columns, values)
        _apply(gram, products, columns, values, count)
        slate[first], slate[second] = slate[second], slate[first]
        still = 0
    return value, highest, tried, n_settled


@njit(**FOR_LOOPS)
def _open_gap(slate, source, target, out):
    """Set `out` to the slate with the item at `source` taken out and the others moved up, for a gap at `target`."""
    for a in range(slate.shape[0]):
        shift = 0
        if source <= a < target:
            shift = 1
        elif target < a <= source:
            shift = -1
        out[a] = slate[a + shift]
    out[target] = slate[source]


@njit(**FOR_LOOPS)
def _best_insertion(gram, weights, pairs, slate, value, highest, bound, u, d, v, s, products, columns, values, out):
    """Set `out` to the best slate with one item taken out, at any place, and one put in, at any other.

    Returns whether it gains on `value`, the largest mean and how many were tried.
    """
    k, m = slate.shape[0], pairs.shape[0]
    opened = slate.copy()
    gains, tried = False, 0
    for source in range(k):
        for gap in range(k):
            _open_gap(slate, source, gap, opened)
            mean, explained = _weigh(gram, weights, pairs, opened, gap, u, d, v, s, products, columns, values)
            for item in range(m):
                if _shows(slate, item) and item != slate[source]:
                    continue
                count = _terms(pairs, opened, gap, item, u, d, v, columns, values)
                more, higher = _change(gram, weights, products, columns, values, count)
                highest, tried = max(highest, mean + higher), tried + 1
                score = _score(mean + higher, explained + more, bound)
                if _gains(score, value):
                    value, gains = score, True
                    copy(out, opened)
                    out[gap] = item
    return gains, highest, tried


@njit(**FOR_LOOPS)
def _are_inside(inside, slate):
    for item in slate:  # noqa: SIM110 - compiled
        if inside[item] < 0:
            return False
    return True


@njit(**FOR_LOOPS)
def _first_climbs(gram, weights, pairs, inside, among, uniforms, starts, bound, u, d, v, s, products, columns, values):
    """Climb from `starts` that show no other items, and from random slates; return ends, scores and what `_fine` does.

    The scratch is that of `_fine_climb`.
    """
    n_climbs, k = uniforms.shape
    settled, n_settled = integers(_MOST_SWEEPS * n_climbs), ZERO
    order, slates = integers(among), integers((n_climbs, k))
    reached, highest, tried = floats(n_climbs), -np.inf, 0
    for i in range(n_climbs):
        _draw(order, uniforms[i], slates[i])
        if i < starts.shape[0] and _are_inside(inside, starts[i]):
            for a in range(k):
                slates[i, a] = inside[starts[i, a]]
        reached[i], mean, more, n_settled = _fine_climb(
            gram, weights, pairs, slates[i], among, bound, u, d, v, s, products, columns, values, settled, n_settled
        )
        highest, tried = max(highest, mean), tried + more
    return slates, reached, highest, tried


@njit(**FOR_LOOPS)
def _go_on(gram, weights, pairs, slates, reached, highest, bound, u, d, v, s, products, columns, values):
    """Climb on from the best of the `slates` that were reached, among all; return the best, and what `climb` does."""
    m, n_climbs, tried = pairs.shape[0], slates.shape[0], 0
    settled = integers(_MOST_SWEEPS * n_climbs)
    best, best_value = slates[0].copy(), -np.inf
    slate, other = best.copy(), best.copy()
    n_seen, seen, left, previous = (
        ZERO,
        integers(_MOST_SWEEPS * n_climbs),
        _SLATES_TO_GO_ON_FROM,
        np.inf,
    )
    for i in sort_descending(reached, n_climbs):
        if left == 0:
            break
        if reached[i] >= previous:
            continue
        left -= 1
        previous, value = reached[i], reached[i]
        copy(slate, slates[i])
        while n_seen < seen.shape[0] and not _holds(seen, n_seen, _number(slate, m)):
            seen[n_seen] = _number(slate, m)
            n_seen += 1
            gains, highest, more = _best_insertion(
                gram, weights, pairs, slate, value, highest, bound, u, d, v, s, products, columns, values, other
            )
            tried += more
            if not gains:
                break
            copy(slate, other)
            value, mean, more, _ = _fine_climb(
                gram, weights, pairs, slate, m, bound, u, d, v, s, products, columns, values, settled, ZERO
            )
            highest, tried = max(highest, mean), tried + more
        if value > best_value:
            best_value = value
            copy(best, slate)
    return best, highest, tried


@njit(**WITHOUT_LOCK)
def climb(at, items, inside, among, starts, uniforms, prior, spread, u, d, v, s):
    """Return the best slate found among `items`, the largest mean met and how many slates were scored.

    Climbs begin from `starts` that show no other items, and from random slates of the first `among`, and go on from the
    best. Parameters: the contraction; items and each eligible one's place among them, -1 for the rest; slates to start
    from, (A, k), the best first; uniform numbers for the random ones, (.., k); c.c; sqrt(beta s^2); the kernel's
    numbers.
    """
    gram, weights, pairs = _fine_features(at, items)
    bound, k = (prior, spread), uniforms.shape[1]
    products = floats32(weights.shape[0])
    columns, values = integers(2 * k + 1 + k * k), floats(2 * k + 1 + k * k)
    slates, reached, highest, first_tried = _first_climbs(
        gram, weights, pairs, inside, among, uniforms, starts, bound, u, d, v, s, products, columns, values
    )
    slate, highest, tried = _go_on(
        gram, weights, pairs, slates, reached, highest, bound, u, d, v, s, products, columns, values
    )
    for a in range(k):
        slate[a] = items[slate[a]]
    return slate, highest, first_tried + tried


@njit(**FOR_LOOPS)
def _exchanges(slate):
    """Return the slate and then each that has two of its positions exchanged."""
    k = slate.shape[0]
    out = integers((1 + k * (k - 1) // 2, k))
    for i in range(out.shape[0]):
        copy(out[i], slate)
    row = 1
    for a in range(k):
        for b in range(a + 1, k):
            out[row, a] = slate[b]
            out[row, b] = slate[a]
            row += 1
    return out


@njit(**FOR_LOOPS)
def _replace_all(at, slate, among, bound, u, d, v, s):
    """Go through the positions once and put the best of `among` into each; return the largest mean and whether any."""
    features, weights, pair_weights, pairs = at.features, at.weights, at.pair_weights, at.pairs
    mean, explained = floats(pairs.shape[0]), floats(pairs.shape[0])
    highest, moved = -np.inf, False
    for position in range(slate.shape[0]):
        for others in (among, slate):
            make_pairs(features, pairs, at.made, at.starts, at.rows, at.values, at.whitener, at.pending, slate, others)
        replacements(
            features,
            at.content,
            at.taken,
            at.of_v,
            weights,
            pair_weights,
            pairs,
            slate,
            position,
            among,
            u,
            d,
            v,
            s,
            mean,
            explained,
        )
        best = slate[position]
        value = _score(mean[best], explained[best], bound)
        for item in among:
            highest = max(highest, mean[item])
            score = _score(mean[item], explained[item], bound)
            if _gains(score, value) and not _shows(slate, item):
                value, best = score, item
        moved = moved or best != slate[position]
        slate[position] = best
    return highest, moved


@njit(**FOR_LOOPS)
def _exchange(at, slate, bound, u, d, v, s):
    """Make the best exchange of two positions; return the largest mean and whether there is one that gains."""
    around = _exchanges(slate)
    explained = slates(at.features, at.content, at.taken, at.of_v, at.pairs, around, at.features.shape[1], u, d, v, s)
    highest, value, best = -np.inf, -np.inf, 0
    for i in range(around.shape[0]):
        mean = slate_mean(at.weights, at.pair_weights, around[i], u, d, v, s)
        highest = max(highest, mean)
        score = _score(mean, explained[i], bound)
        if i == 0 or _gains(score, value):
            value, best = score, i
    copy(slate, around[best])
    return highest, best > 0


@njit(**FOR_LOOPS)
def _outside(inside):
    """Return the items that have no place inside."""
    among, count = integers(inside.shape[0]), 0
    for item in range(inside.shape[0]):
        if inside[item] < 0:
            among[count] = item
            count += 1
    return among[:count]


@njit(**WITHOUT_LOCK)
def polish(at, slate, inside, prior, spread, u, d, v, s):
    """Climb from `slate`, in place, with all items and features; return the largest mean and how many were tried.

    No item with a place `inside` makes the slate better, and no exchange: they are tried once others have changed it.
    """
    k, every, bound = slate.shape[0], count_up(inside.shape[0]), (prior, spread)
    among = _outside(inside)
    highest, tried = -np.inf, 0
    for _ in range(_MOST_SWEEPS):
        mean, replaced = _replace_all(at, slate, among, bound, u, d, v, s)
        highest, tried = max(highest, mean), tried + k * among.shape[0]
        if not replaced and among.shape[0] < every.shape[0]:
            break
        make_pairs(at.features, at.pairs, at.made, at.starts, at.rows, at.values, at.whitener, at.pending, slate, slate)
        mean, exchanged = _exchange(at, slate, bound, u, d, v, s)
        highest, tried = max(highest, mean), tried + k * (k - 1) // 2
        if not replaced and not exchanged:
            break
        among = every
    return highest, tried
