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

from topk_bandit.learning.compiled.allowed_moves import (
    begin_at,
    begin_somewhere,
    exchange_is_allowed,
    exchanges_of,
    find_fitting,
    free_positions,
    mark_down,
    others_are_allowed,
    prepare,
    take_those_that_fit,
)
from topk_bandit.learning.compiled.arrays import (
    NOWHERE,
    ZERO,
    are_equal,
    copy,
    count_up,
    fill,
    find_largest,
    floats,
    floats32,
    integers,
    sort_descending,
)
from topk_bandit.learning.compiled.contraction import (
    make_pairs,
    replacements,
    slate_mean,
    slates,
)
from topk_bandit.learning.compiled.moves import (
    apply_terms,
    change_of,
    coarse_scores,
    exchange_terms,
    fine_features,
    holds,
    is_gain,
    item_terms,
    number_of,
    score_of,
    shows,
    weigh_slate,
)
from topk_bandit.learning.compiled.options import FOR_LOOPS, FOR_PYTHON, WITHOUT_LOCK

__all__ = ["MOST_SWEEPS", "best_seen", "climb", "coarse_climb", "polish", "replace_all", "weigh_items"]

MOST_SWEEPS = 32

_STARTS_TO_GO_ON_FROM_ONE = 2
_STARTS_TO_LEAVE_ONE_BY_PAIRS = 8

# Items are weighed by the neighbours of so many slates.
_SLATES_TO_LOOK_AROUND = 4
_STARTS_TO_WEIGH_ITEMS_FROM = 2

# So much less matters an item that fits into no slate in reach.
_UNFIT = 1e12


@njit(**FOR_PYTHON)
def best_seen(weights, pair_weights, places, n_rows, count, u, d, v, s):
    """Return up to `count` different slates of the rewarded rows with all items eligible, the largest means first."""
    k = places.shape[1]
    best, values, n_found = integers((count, k)), fill(floats(count), -np.inf), 0
    slate = integers(k)
    for r in range(n_rows):
        copy(slate, places[r])
        if shows(slate, NOWHERE):
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
def coarse_climb(of_items, weights, pair_weights, rules, slate, spread, u, d, v, s, scores, means, cross):
    """Climb from `slate`, in place, by replacements; return the score and how many slates were scored."""
    n_eligible, k = pair_weights.shape[0], slate.shape[0]
    value, tried, position, still = -np.inf, 0, ZERO, 0
    while still < k and tried < MOST_SWEEPS * k * n_eligible:
        coarse_scores(of_items, weights, pair_weights, slate, position, spread, u, d, v, s, scores, means, cross)
        tried += n_eligible
        still += 1
        value = scores[slate[position]]
        mark_down(rules, slate, position, scores, np.inf)
        for a in range(k):
            scores[slate[a]] = -np.inf
        item = find_largest(scores)
        if is_gain(scores[item], value):
            value = scores[item]
            slate[position] = item
            still = 1
        position = (position + 1) % k
    return value, tried


@njit(**WITHOUT_LOCK)
def weigh_items(at, rules, anchor, of_items, starts, uniforms, size, spread, u, d, v, s):
    """Return the `size` items that matter most, these first, the slates climbed to, and how many slates were scored.

    An item matters as much as the best slate in reach that shows it; the items of the best slate climbed to, and of the
    first of `starts` where any slate is allowed, matter in any case. Parameters: as for `climb`; `of_items` is the
    covariance of the items' parts (E, E), and what variances have beside it, both in the unit of c.c.
    """
    weights, pair_weights, starts = at.weights, at.pair_weights, starts[:_STARTS_TO_WEIGH_ITEMS_FROM]
    n_eligible, k = pair_weights.shape[0], uniforms.shape[1]
    moves = prepare(rules, anchor)
    scores, means, cross = floats(n_eligible), floats(n_eligible), floats(n_eligible)
    order = integers(n_eligible)
    climbed = integers((starts.shape[0] + uniforms.shape[0], k))
    values = floats(climbed.shape[0])
    tried = 0
    for i in range(climbed.shape[0]):
        if i < starts.shape[0]:
            begin_at(moves, order, starts[i], climbed[i])
        else:
            begin_somewhere(moves, order, uniforms[i - starts.shape[0]], climbed[i])
        values[i], more = coarse_climb(
            of_items, weights, pair_weights, moves, climbed[i], spread, u, d, v, s, scores, means, cross
        )
        tried += more
    ends, matters = np.empty_like(climbed), fill(floats(n_eligible), -np.inf)
    for rank, best in enumerate(sort_descending(values, values.shape[0])):
        copy(ends[rank], climbed[best])
    for i in range(min(_SLATES_TO_LOOK_AROUND, ends.shape[0])):
        for position in range(k):
            coarse_scores(of_items, weights, pair_weights, ends[i], position, spread, u, d, v, s, scores, means, cross)
            tried += n_eligible
            mark_down(moves, ends[i], position, scores, _UNFIT)
            for j in range(n_eligible):
                matters[j] = max(matters[j], scores[j])
    for a in range(k):
        matters[ends[0, a]] = np.inf
        if rules is None and starts.shape[0] > 0:
            matters[starts[0, a]] = np.inf
    return sort_descending(matters, size), ends, tried


@njit(**FOR_LOOPS)
def _best_replacement(
    gram, weights, pairs, rules, slate, among, a, value, mean, explained, bound, u, d, v, products, columns, values
):
    """Take the item at position a out of `products`; return which to put there, and its figures."""
    count = item_terms(pairs, slate, a, slate[a], u, d, v, columns, values)
    for i in range(count):
        values[i] = -values[i]
    less, lower = change_of(gram, weights, products, columns, values, count)
    apply_terms(gram, products, columns, values, count)
    chosen, best_mean, best_explained = slate[a], mean, explained
    for item in range(among):
        if rules is not None and not rules.fits[item]:
            continue
        if shows(slate, item):
            continue
        count = item_terms(pairs, slate, a, item, u, d, v, columns, values)
        more, higher = change_of(gram, weights, products, columns, values, count)
        score = score_of(mean + lower + higher, explained + less + more, bound)
        if is_gain(score, value):
            value, chosen = score, item
            best_mean, best_explained = mean + lower + higher, explained + less + more
    return chosen, value, best_mean, best_explained


@njit(**FOR_LOOPS)
def _best_exchange(
    gram, weights, pairs, rules, slate, value, mean, explained, bound, u, d, v, products, columns, values
):
    """Return the two positions to exchange, -1 if no exchange gains, and the figures then."""
    first, second, best_mean, best_explained = -1, -1, mean, explained
    for b in range(slate.shape[0]):
        for c in range(b + 1, slate.shape[0]):
            if not exchange_is_allowed(rules, slate, b, c):
                continue
            count = exchange_terms(pairs, slate, b, c, u, d, v, columns, values)
            more, higher = change_of(gram, weights, products, columns, values, count)
            score = score_of(mean + higher, explained + more, bound)
            if is_gain(score, value):
                value, first, second, best_mean, best_explained = score, b, c, mean + higher, explained + more
    return first, second, value, best_mean, best_explained


@njit(**FOR_LOOPS)
def _fine_climb(
    gram, weights, pairs, rules, slate, among, bound, u, d, v, s, products, columns, values, settled, n_settled
):
    """Climb from `slate`, in place; return score, how many were tried, and how many are `settled`.

    `settled` holds a number for each slate that no replacement made better in this or an earlier climb: what follows
    from there is known.
    """
    m, k = pairs.shape[0], slate.shape[0]
    mean, explained = weigh_slate(gram, weights, pairs, slate, NOWHERE, u, d, v, s, products, columns, values)
    value, tried = score_of(mean, explained, bound), 1
    a, still = ZERO, 0
    while n_settled < settled.shape[0]:
        while still < k:
            if rules is not None:
                if rules.alone[a] >= 0:
                    still += 1
                    a = (a + 1) % k
                    continue
                find_fitting(rules, slate, a)
            chosen, value, mean, explained = _best_replacement(
                gram, weights, pairs, rules, slate, among, a, value, mean, explained, bound, u, d, v,
                products, columns, values,
            )  # fmt: skip
            tried += among - k
            still = still + 1 if chosen == slate[a] else 1
            slate[a] = chosen
            count = item_terms(pairs, slate, a, chosen, u, d, v, columns, values)
            apply_terms(gram, products, columns, values, count)
            a = (a + 1) % k
        number = number_of(slate, m)
        if holds(settled, n_settled, number):
            break
        settled[n_settled] = number
        n_settled += 1
        first, second, value, mean, explained = _best_exchange(
            gram, weights, pairs, rules, slate, value, mean, explained, bound, u, d, v, products, columns, values
        )
        tried += k * (k - 1) // 2
        if first < 0:
            break
        count = exchange_terms(pairs, slate, first, second, u, d, v, columns, values)
        apply_terms(gram, products, columns, values, count)
        slate[first], slate[second] = slate[second], slate[first]
        still = 0
    return value, tried, n_settled


@njit(**FOR_LOOPS)
def _open_gap(slate, free, source, target, out):
    """Set `out` to the slate with the item at one free position taken out, for a gap at another; pinned items stay."""
    copy(out, slate)
    step = 1 if source < target else -1
    n = source
    while n != target:
        out[free[n]] = slate[free[n + step]]
        n += step
    out[free[target]] = slate[free[source]]


@njit(**FOR_LOOPS)
def _fill_gap(
    gram, weights, pairs, rules, opened, gap, left_out, value, bound, u, d, v, s, products, columns, values, out
):
    """Set `out` to the best slate with any item at the gap, the one that was left out too, if it gains on `value`.

    Returns whether it does, its score, and how many were tried.
    """
    gains, tried = False, 0
    if not others_are_allowed(rules, opened, gap):
        return gains, value, tried
    if rules is not None:
        find_fitting(rules, opened, gap)
        if not rules.fits.any():
            return gains, value, tried
    mean, explained = weigh_slate(gram, weights, pairs, opened, gap, u, d, v, s, products, columns, values)
    for item in range(pairs.shape[0]):
        if rules is not None and not rules.fits[item]:
            continue
        if rules is None and shows(opened, item) and item != left_out:
            continue
        count = item_terms(pairs, opened, gap, item, u, d, v, columns, values)
        more, higher = change_of(gram, weights, products, columns, values, count)
        tried += 1
        score = score_of(mean + higher, explained + more, bound)
        if is_gain(score, value):
            value, gains = score, True
            copy(out, opened)
            out[gap] = item
    return gains, value, tried


@njit(**FOR_LOOPS)
def _best_insertion(gram, weights, pairs, rules, slate, value, bound, u, d, v, s, products, columns, values, out):
    """Set `out` to the best slate with one item taken out, at any place, and one put in, at any other.

    Returns whether it gains on `value`, and how many were tried.
    """
    free, opened = free_positions(rules, slate.shape[0]), slate.copy()
    gains, tried = False, 0
    for source in range(free.shape[0]):
        for target in range(free.shape[0]):
            _open_gap(slate, free, source, target, opened)
            better, value, more = _fill_gap(
                gram, weights, pairs, rules, opened, free[target], slate[free[source]], value, bound, u, d, v, s,
                products, columns, values, out,
            )  # fmt: skip
            gains, tried = gains or better, tried + more
    return gains, tried


@njit(**FOR_LOOPS)
def _best_pair(gram, weights, pairs, rules, slate, value, bound, u, d, v, s, products, columns, values, out):
    """Set `out` to the best allowed slate with two items replaced, of which one does not fit alone.

    Returns as `_best_insertion`.
    """
    free, opened = free_positions(rules, slate.shape[0]), slate.copy()
    fits_alone = np.empty_like(rules.fits)
    gains, tried = False, 0
    for position in free:
        find_fitting(rules, slate, position)
        for item in range(fits_alone.shape[0]):
            fits_alone[item] = rules.fits[item] or not rules.admits[position, item]
        for item in range(fits_alone.shape[0]):
            if fits_alone[item] or item == slate[position]:
                continue
            for gap in free:
                if gap == position or (item != slate[gap] and shows(slate, item)):
                    continue
                copy(opened, slate)
                opened[position] = item
                better, value, more = _fill_gap(
                    gram, weights, pairs, rules, opened, gap, slate[gap], value, bound, u, d, v, s,
                    products, columns, values, out,
                )  # fmt: skip
                gains, tried = gains or better, tried + more
    return gains, tried


@njit(**FOR_LOOPS)
def _are_inside(inside, slate):
    for item in slate:  # noqa: SIM110 - compiled
        if inside[item] < 0:
            return False
    return True


@njit(**FOR_LOOPS)
def _first_climbs(
    gram, weights, pairs, rules, inside, among, uniforms, starts, bound, u, d, v, s, products, columns, values
):
    """Climb from `starts` that show no other items, and from random slates; return ends, scores and what `_fine` does.

    The scratch is that of `_fine_climb`.
    """
    n_climbs, k = uniforms.shape
    settled, n_settled = integers(MOST_SWEEPS * n_climbs), ZERO
    order, slates, given = integers(among), integers((n_climbs, k)), integers(k)
    reached, tried = floats(n_climbs), 0
    for i in range(n_climbs):
        if i < starts.shape[0] and _are_inside(inside, starts[i]):
            for a in range(k):
                given[a] = inside[starts[i, a]]
            begin_at(rules, order, given, slates[i])
        else:
            begin_somewhere(rules, order, uniforms[i], slates[i])
        reached[i], more, n_settled = _fine_climb(
            gram, weights, pairs, rules, slates[i], among, bound, u, d, v, s, products, columns, values, settled,
            n_settled,
        )  # fmt: skip
        tried += more
    return slates, reached, tried


@njit(**FOR_LOOPS)
def _go_on(gram, weights, pairs, rules, slates, reached, bound, u, d, v, s, products, columns, values):
    """Climb on from the best of the `slates` that were reached, among all; return the best, and what `climb` does."""
    m, n_climbs, tried = pairs.shape[0], slates.shape[0], 0
    settled = integers(MOST_SWEEPS * n_climbs)
    best, best_value = slates[0].copy(), -np.inf
    slate, other = best.copy(), best.copy()
    n_seen, seen, left, previous = (
        ZERO,
        integers(MOST_SWEEPS * n_climbs),
        n_climbs // _STARTS_TO_GO_ON_FROM_ONE,
        np.inf,
    )
    n_by_pairs = n_climbs // _STARTS_TO_LEAVE_ONE_BY_PAIRS
    for i in sort_descending(reached, n_climbs):
        if left == 0:
            break
        if reached[i] >= previous:
            continue
        left -= 1
        n_by_pairs -= 1
        previous, value = reached[i], reached[i]
        copy(slate, slates[i])
        while n_seen < seen.shape[0] and not holds(seen, n_seen, number_of(slate, m)):
            seen[n_seen] = number_of(slate, m)
            n_seen += 1
            gains, more = _best_insertion(
                gram, weights, pairs, rules, slate, value, bound, u, d, v, s, products, columns, values, other
            )
            tried += more
            if rules is not None:  # noqa: SIM102 - compiled: the whole is left out without rules
                if not gains and n_by_pairs >= 0 and (rules.least.shape[0] > 0 or rules.kinds.shape[1] > 0):
                    gains, more = _best_pair(
                        gram, weights, pairs, rules, slate, value, bound, u, d, v, s, products, columns, values, other
                    )
                    tried += more
            if not gains:
                break
            copy(slate, other)
            value, more, _ = _fine_climb(
                gram, weights, pairs, rules, slate, m, bound, u, d, v, s, products, columns, values, settled, ZERO
            )
            tried += more
        if value > best_value:
            best_value = value
            copy(best, slate)
    return best, tried


@njit(**WITHOUT_LOCK)
def climb(at, rules, anchor, items, inside, among, starts, uniforms, prior, spread, u, d, v, s):
    """Return the best slate found among `items`, and how many slates were scored.

    Climbs begin from `starts` that show no other items, and from random slates of the first `among`, and go on from the
    best. Parameters: the contraction; rules over `items` and a slate of their places that keeps them, or None and None,
    with `among` all items; items and each eligible one's place among them, -1 for the rest; slates to start from,
    (A, k), the best first; uniform numbers for the random ones, (.., k); c.c; sqrt(beta s^2); the kernel's numbers.
    """
    gram, weights, pairs = fine_features(at, items)
    bound, k, moves = (prior, spread), uniforms.shape[1], prepare(rules, anchor)
    products = floats32(weights.shape[0])
    columns, values = integers(2 * k + 1 + k * k), floats(2 * k + 1 + k * k)
    slates, reached, first_tried = _first_climbs(
        gram, weights, pairs, moves, inside, among, uniforms, starts, bound, u, d, v, s, products, columns, values
    )
    slate, tried = _go_on(gram, weights, pairs, moves, slates, reached, bound, u, d, v, s, products, columns, values)
    for a in range(k):
        slate[a] = items[slate[a]]
    return slate, first_tried + tried


@njit(**FOR_LOOPS)
def replace_all(at, rules, slate, among, bound, u, d, v, s):
    """Go through the positions once and put the best of `among` into each; return whether any is new."""
    features, weights, pair_weights, pairs = at.features, at.weights, at.pair_weights, at.pairs
    mean, explained = floats(pairs.shape[0]), floats(pairs.shape[0])
    moved = False
    for position in range(slate.shape[0]):
        fitting = take_those_that_fit(rules, slate, position, among)
        for others in (fitting, slate):
            make_pairs(features, pairs, at.made, at.starts, at.rows, at.values, at.whitener, at.pending, slate, others)
        replacements(
            features, at.content, at.taken, at.of_v, weights, pair_weights, pairs, slate, position, fitting,
            u, d, v, s, mean, explained,
        )  # fmt: skip
        best = slate[position]
        value = score_of(mean[best], explained[best], bound)
        for item in fitting:
            score = score_of(mean[item], explained[item], bound)
            if is_gain(score, value) and not shows(slate, item):
                value, best = score, item
        moved = moved or best != slate[position]
        slate[position] = best
    return moved


@njit(**FOR_LOOPS)
def _exchange(at, rules, slate, bound, u, d, v, s):
    """Make the best exchange of two positions; return whether there is one that gains."""
    around = exchanges_of(rules, slate)
    explained = slates(at.features, at.content, at.taken, at.of_v, at.pairs, around, at.features.shape[1], u, d, v, s)
    value, best = -np.inf, 0
    for i in range(around.shape[0]):
        mean = slate_mean(at.weights, at.pair_weights, around[i], u, d, v, s)
        score = score_of(mean, explained[i], bound)
        if i == 0 or is_gain(score, value):
            value, best = score, i
    copy(slate, around[best])
    return best > 0


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
def polish(at, rules, slate, inside, prior, spread, u, d, v, s):
    """Climb from `slate`, in place, with all items and features; return how many slates were tried.

    No item with a place `inside` makes the slate better, and no exchange: they are tried once others have changed it.
    """
    k, every, bound, moves = slate.shape[0], count_up(inside.shape[0]), (prior, spread), prepare(rules, slate)
    among = _outside(inside)
    tried = 0
    for _ in range(MOST_SWEEPS):
        replaced = replace_all(at, moves, slate, among, bound, u, d, v, s)
        tried += k * among.shape[0]
        if not replaced and among.shape[0] < every.shape[0]:
            break
        make_pairs(at.features, at.pairs, at.made, at.starts, at.rows, at.values, at.whitener, at.pending, slate, slate)
        exchanged = _exchange(at, moves, slate, bound, u, d, v, s)
        tried += k * (k - 1) // 2
        if not replaced and not exchanged:
            break
        among = every
    return tried
