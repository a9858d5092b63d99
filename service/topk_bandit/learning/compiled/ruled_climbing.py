"""Compiled local search among the slates that rules allow: the stages of `climbing`, with moves that keep the rules.

A climb begins at an allowed slate and makes allowed moves alone. Where a start breaks a rule it is completed anew, its
items first. Bounds of groups make moves depend on each other, so that a climb may be stuck where two items would have
to change at once: the best slates are left by such pairs, too.

Letters: as in `climbing`. `rules` is `topk_bandit.learning.slate_rules.SlateRules`.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from topk_bandit.learning.compiled.arrays import (
    NOWHERE,
    ONE,
    ZERO,
    copy,
    count_up,
    fill,
    find_largest,
    floats,
    floats32,
    integers,
    sort_descending,
    zero_counts,
)
from topk_bandit.learning.compiled.contraction import make_pairs, replacements, slate_mean, slates
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
from topk_bandit.learning.compiled.options import FOR_LOOPS, WITHOUT_LOCK

__all__ = ["climb", "list_near", "polish", "weigh_items"]

_MOST_SWEEPS = 32
_STARTS_TO_GO_ON_FROM_ONE = 2
_STARTS_TO_LEAVE_ONE_BY_PAIRS = 8
_SLATES_TO_LOOK_AROUND = 3
_STARTS_TO_WEIGH_ITEMS_FROM = 2

_MOST_TRIES = 400
"""A slate that is not completed after so many is the one that is known to keep the rules."""

_UNFIT = 1e12
"""So much less matters an item that fits into no slate in reach."""


@njit(**FOR_LOOPS)
def _are_apart(kinds, item, other):
    for a in range(kinds.shape[1]):
        if kinds[item, a] < 0:
            break
        for b in range(kinds.shape[1]):
            if kinds[item, a] == kinds[other, b]:
                return False
    return True


@njit(**FOR_LOOPS)
def _fits_beside(kinds, slate, position, item):
    """Tell whether an item is unlike those beside a position; -1 stands for one that is not known."""
    before, after = position - 1, position + 1
    if before >= 0 and slate[before] >= 0 and not _are_apart(kinds, item, slate[before]):
        return False
    return not (after < slate.shape[0] and slate[after] >= 0 and not _are_apart(kinds, item, slate[after]))


@njit(**FOR_LOOPS)
def _count(groups, item, counts, sign):
    for n in range(groups.shape[1]):
        if groups[item, n] >= 0:
            counts[groups[item, n]] += sign


@njit(**FOR_LOOPS)
def _has_room(rules, item, counts):
    for n in range(rules.groups.shape[1]):
        group = rules.groups[item, n]
        if group >= 0 and counts[group] >= rules.most[group]:
            return False
    return True


@njit(**FOR_LOOPS)
def _can_be_filled(rules, counts, free):
    for group in range(counts.shape[0]):  # noqa: SIM110 - compiled
        if rules.least[group] - counts[group] > free:
            return False
    return True


@njit(**FOR_LOOPS)
def _find_alone(rules, position):
    """Return the item that alone may be at a position; -1 if several may."""
    alone = -1
    for item in range(rules.admits.shape[1]):
        if rules.admits[position, item]:
            if alone >= 0:
                return -1
            alone = item
    return alone


@njit(**FOR_LOOPS)
def _free_positions(rules):
    """Return the positions where several items may be."""
    free, count = integers(rules.admits.shape[0]), 0
    for a in range(free.shape[0]):
        if _find_alone(rules, a) < 0:
            free[count] = a
            count += 1
    return free[:count]


@njit(**FOR_LOOPS)
def _count_short(rules, slate, position, counts):
    """Set `counts` to those of a slate without one position; return how many groups need just one item more.

    Returns -1 if no one item there makes the slate keep its bounds.
    """
    fill(counts, ZERO)
    for a in range(slate.shape[0]):
        if a != position:
            _count(rules.groups, slate[a], counts, 1)
    short = ZERO
    for group in range(counts.shape[0]):
        if counts[group] > rules.most[group] or rules.least[group] - counts[group] > 1:
            return NOWHERE
        if counts[group] < rules.least[group]:
            short += ONE
    return short


@njit(**FOR_LOOPS)
def _mark_fitting(admitted, groups, least, most, kinds, counts, short, before, after, fits):
    """Set `fits` to whether each item is admitted, keeps the bounds and is unlike the items before and after it.

    A tuple of arrays in a call costs a count of references for each of them: here are the arrays alone.
    """
    for item in range(fits.shape[0]):
        fit, needs = short >= 0 and admitted[item], ZERO
        for n in range(groups.shape[1]):
            group = groups[item, n]
            if group < 0 or not fit:
                break
            fit = counts[group] < most[group]
            if counts[group] < least[group]:
                needs += ONE
        fit = fit and needs == short
        for n in range(kinds.shape[1]):
            kind = kinds[item, n]
            if kind < 0 or not fit:
                break
            for other in range(kinds.shape[1]):
                if (before >= 0 and kinds[before, other] == kind) or (after >= 0 and kinds[after, other] == kind):
                    fit = False
        fits[item] = fit


@njit(**FOR_LOOPS)
def _find_fitting(rules, slate, position, counts, fits):
    """Set `fits` to whether the slate with each item at `position` keeps the rules, the slate's own there among them.

    The other positions keep those rules that are about them alone. `counts` is scratch.
    """
    short = _count_short(rules, slate, position, counts)
    before = slate[position - 1] if position > 0 else NOWHERE
    after = slate[position + 1] if position + 1 < slate.shape[0] else NOWHERE
    admitted = rules.admits[position]
    _mark_fitting(admitted, rules.groups, rules.least, rules.most, rules.kinds, counts, short, before, after, fits)
    for a in range(slate.shape[0]):
        if a != position:
            fits[slate[a]] = False


@njit(**FOR_LOOPS)
def _place_next(rules, order, first, free_after, counts, slate, position):
    """Put the first item of `order` that can be there, from the `first` on, at a position; return the place after it.

    Returns -1 if there is none.
    """
    for n in range(first, order.shape[0]):
        item = order[n]
        if not rules.admits[position, item] or shows(slate, item) or not _has_room(rules, item, counts):
            continue
        if not _fits_beside(rules.kinds, slate, position, item):
            continue
        _count(rules.groups, item, counts, 1)
        if _can_be_filled(rules, counts, free_after):
            slate[position] = item
            return n + 1
        _count(rules.groups, item, counts, -1)
    return -1


@njit(**FOR_LOOPS)
def _complete(rules, order, anchor, counts, slate):
    """Set `slate` to the first allowed one whose items come early in `order`; to `anchor` if that takes too long."""
    free, cursors = _free_positions(rules), zero_counts(slate.shape[0] + 1)
    fill(counts, ZERO)
    for a in range(slate.shape[0]):
        slate[a] = _find_alone(rules, a)
        if slate[a] >= 0:
            _count(rules.groups, slate[a], counts, 1)
    depth, tries = 0, 0
    while 0 <= depth < free.shape[0] and tries < _MOST_TRIES:
        a = free[depth]
        if slate[a] >= 0:
            _count(rules.groups, slate[a], counts, -1)
            slate[a] = NOWHERE
        after = _place_next(rules, order, cursors[depth], free.shape[0] - depth - 1, counts, slate, a)
        tries += order.shape[0] - cursors[depth] if after < 0 else after - cursors[depth]
        cursors[depth] = max(after, 0)
        depth += 1 if after >= 0 else -1
        if after >= 0:
            cursors[depth] = 0
    if depth < free.shape[0]:
        copy(slate, anchor)


@njit(**FOR_LOOPS)
def _shuffle(order, uniform):
    """Set `order` to an order of 0 .. len(order) - 1 that a uniform number decides."""
    state = np.uint64(uniform * 2.0**53)
    for i in range(order.shape[0]):
        order[i] = i
    for i in range(order.shape[0] - 1):
        state = state * np.uint64(6364136223846793005) + np.uint64(1442695040888963407)
        j = i + np.int64((state >> np.uint64(33)) % np.uint64(order.shape[0] - i))
        order[i], order[j] = order[j], order[i]


@njit(**FOR_LOOPS)
def _put_first(order, slate):
    """Set `order` to the items of a slate, and then the others."""
    count = 0
    for a in range(slate.shape[0]):
        order[count] = slate[a]
        count += 1
    for item in range(order.shape[0]):
        if not shows(slate, item):
            order[count] = item
            count += 1


@njit(**FOR_LOOPS)
def _coarse_climb(of_items, at, rules, slate, spread, u, d, v, s, scores, means, cross, counts, fits):
    """Climb from `slate`, in place, by replacements; return the score and how many slates were scored."""
    n_eligible, k = scores.shape[0], slate.shape[0]
    value, tried, position, still = -np.inf, 0, ZERO, 0
    while still < k and tried < _MOST_SWEEPS * k * n_eligible:
        coarse_scores(of_items, at.weights, at.pair_weights, slate, position, spread, u, d, v, s, scores, means, cross)
        tried += n_eligible
        still += 1
        value = scores[slate[position]]
        _find_fitting(rules, slate, position, counts, fits)
        for item in range(n_eligible):
            if not fits[item] or item == slate[position]:
                scores[item] = -np.inf
        item = find_largest(scores)
        if is_gain(scores[item], value):
            value = scores[item]
            slate[position] = item
            still = 1
        position = (position + 1) % k
    return value, tried


@njit(**WITHOUT_LOCK)
def weigh_items(at, rules, anchor, of_items, starts, uniforms, size, spread, u, d, v, s):
    """Return the `size` items that matter most, the slates climbed to, the best first, and how many were scored.

    Parameters: as for `climbing.weigh_items`; `anchor` is a slate that keeps the rules.
    """
    starts = starts[:_STARTS_TO_WEIGH_ITEMS_FROM]
    n_eligible, k, n_given = at.pair_weights.shape[0], anchor.shape[0], starts.shape[0]
    scores, means, cross = floats(n_eligible), floats(n_eligible), floats(n_eligible)
    counts, fits = integers(rules.least.shape[0]), np.empty(n_eligible, np.bool_)
    climbed = integers((n_given + 1 + uniforms.shape[0], k))
    values, tried = floats(climbed.shape[0]), 0
    order = integers(n_eligible)
    for i in range(climbed.shape[0]):
        if i < n_given:
            _put_first(order, starts[i])
        elif i == n_given:
            copy(order, sort_descending(at.weights[:n_eligible], n_eligible))
        else:
            _shuffle(order, uniforms[i - n_given - 1])
        _complete(rules, order, anchor, counts, climbed[i])
        values[i], more = _coarse_climb(
            of_items, at, rules, climbed[i], spread, u, d, v, s, scores, means, cross, counts, fits
        )
        tried += more
    ends, matters = np.empty_like(climbed), fill(floats(n_eligible), -np.inf)
    ranked = sort_descending(values, values.shape[0])
    for rank in range(ends.shape[0]):
        copy(ends[rank], climbed[ranked[rank]])
    for i in range(min(_SLATES_TO_LOOK_AROUND, ends.shape[0])):
        for position in range(k):
            coarse_scores(
                of_items, at.weights, at.pair_weights, ends[i], position, spread, u, d, v, s, scores, means, cross
            )
            tried += n_eligible
            _find_fitting(rules, ends[i], position, counts, fits)
            for item in range(n_eligible):
                matters[item] = max(matters[item], scores[item] - (0.0 if fits[item] else _UNFIT))
    for a in range(k):
        matters[ends[0, a]] = np.inf
    return sort_descending(matters, size), ends, tried


@njit(**FOR_LOOPS)
def _exchange_is_allowed(rules, slate, a, b):
    if not rules.admits[a, slate[b]] or not rules.admits[b, slate[a]]:
        return False
    slate[a], slate[b] = slate[b], slate[a]
    allowed = _fits_beside(rules.kinds, slate, a, slate[a]) and _fits_beside(rules.kinds, slate, b, slate[b])
    slate[a], slate[b] = slate[b], slate[a]
    return allowed


@njit(**FOR_LOOPS)
def _best_replacement(
    gram, weights, pairs, slate, fits, a, value, mean, explained, bound, u, d, v, products, columns, values
):
    """Take the item at position a out of `products`; return which to put there, and its figures."""
    count = item_terms(pairs, slate, a, slate[a], u, d, v, columns, values)
    for i in range(count):
        values[i] = -values[i]
    less, lower = change_of(gram, weights, products, columns, values, count)
    apply_terms(gram, products, columns, values, count)
    chosen, best_mean, best_explained = slate[a], mean, explained
    for item in range(fits.shape[0]):
        if not fits[item] or item == slate[a]:
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
            if not _exchange_is_allowed(rules, slate, b, c):
                continue
            count = exchange_terms(pairs, slate, b, c, u, d, v, columns, values)
            more, higher = change_of(gram, weights, products, columns, values, count)
            score = score_of(mean + higher, explained + more, bound)
            if is_gain(score, value):
                value, first, second, best_mean, best_explained = score, b, c, mean + higher, explained + more
    return first, second, value, best_mean, best_explained


@njit(**FOR_LOOPS)
def _fine_climb(
    gram, weights, pairs, rules, slate, bound, u, d, v, s, products, columns, values, settled, n_settled, counts, fits
):
    """Climb from `slate`, in place; return score, how many were tried, and how many are `settled`."""
    m, k = pairs.shape[0], slate.shape[0]
    mean, explained = weigh_slate(gram, weights, pairs, slate, NOWHERE, u, d, v, s, products, columns, values)
    value, tried = score_of(mean, explained, bound), 1
    a, still = ZERO, 0
    while n_settled < settled.shape[0]:
        while still < k:
            if _find_alone(rules, a) >= 0:
                still += 1
                a = (a + 1) % k
                continue
            _find_fitting(rules, slate, a, counts, fits)
            chosen, value, mean, explained = _best_replacement(
                gram, weights, pairs, slate, fits, a, value, mean, explained, bound, u, d, v,
                products, columns, values,
            )  # fmt: skip
            tried += m - k
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
            gram, weights, pairs, rules, slate, value, mean, explained, bound, u, d, v,
            products, columns, values,
        )  # fmt: skip
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
def _others_are_allowed(rules, slate, gap):
    for a in range(slate.shape[0]):
        if a != gap and not rules.admits[a, slate[a]]:
            return False
        if a > 0 and gap not in (a, a - 1) and not _are_apart(rules.kinds, slate[a - 1], slate[a]):
            return False
    return True


@njit(**FOR_LOOPS)
def _fill_gap(
    gram, weights, pairs, rules, opened, gap, value, bound, u, d, v, s, products, columns, values, counts,
    fits, out,
):  # fmt: skip
    """Set `out` to the best allowed slate with any item at the gap, if it gains on `value`.

    Returns whether it does, its score, and how many were tried.
    """
    gaining, tried = False, 0
    if not _others_are_allowed(rules, opened, gap):
        return gaining, value, tried
    _find_fitting(rules, opened, gap, counts, fits)
    if not fits.any():
        return gaining, value, tried
    mean, explained = weigh_slate(gram, weights, pairs, opened, gap, u, d, v, s, products, columns, values)
    for item in range(fits.shape[0]):
        if not fits[item]:
            continue
        count = item_terms(pairs, opened, gap, item, u, d, v, columns, values)
        more, higher = change_of(gram, weights, products, columns, values, count)
        tried += 1
        score = score_of(mean + higher, explained + more, bound)
        if is_gain(score, value):
            value, gaining = score, True
            copy(out, opened)
            out[gap] = item
    return gaining, value, tried


@njit(**FOR_LOOPS)
def _best_insertion(
    gram, weights, pairs, rules, slate, value, bound, u, d, v, s, products, columns, values, counts, fits, out
):
    """Set `out` to the best allowed slate with one item taken out, at any place, and one put in, at any other.

    Returns whether it gains on `value`, and how many were tried.
    """
    free, opened = _free_positions(rules), slate.copy()
    gaining, tried = False, 0
    for source in range(free.shape[0]):
        for target in range(free.shape[0]):
            _open_gap(slate, free, source, target, opened)
            better, value, more = _fill_gap(
                gram, weights, pairs, rules, opened, free[target], value, bound, u, d, v, s,
                products, columns, values, counts, fits, out,
            )  # fmt: skip
            gaining, tried = gaining or better, tried + more
    return gaining, tried


@njit(**FOR_LOOPS)
def _best_pair(
    gram, weights, pairs, rules, slate, value, bound, u, d, v, s, products, columns, values, counts, fits, out
):
    """Set `out` to the best allowed slate with two items replaced, of which one does not fit alone.

    Returns as `_best_insertion`.
    """
    free, opened = _free_positions(rules), slate.copy()
    fits_alone = np.empty_like(fits)
    gaining, tried = False, 0
    for position in free:
        _find_fitting(rules, slate, position, counts, fits_alone)
        for item in range(fits.shape[0]):
            if fits_alone[item] or item == slate[position]:
                continue
            for gap in free:
                if gap == position or (item != slate[gap] and shows(slate, item)):
                    continue
                copy(opened, slate)
                opened[position] = item
                better, value, more = _fill_gap(
                    gram, weights, pairs, rules, opened, gap, value, bound, u, d, v, s,
                    products, columns, values, counts, fits, out,
                )  # fmt: skip
                gaining, tried = gaining or better, tried + more
    return gaining, tried


@njit(**FOR_LOOPS)
def _are_inside(inside, slate):
    for item in slate:  # noqa: SIM110 - compiled
        if inside[item] < 0:
            return False
    return True


@njit(**FOR_LOOPS)
def _first_climbs(
    gram, weights, pairs, rules, anchor, inside, uniforms, starts, bound, u, d, v, s, products, columns, values, counts,
    fits,
):  # fmt: skip
    """Climb from `starts` that show no other items, and from random slates; return ends, scores and what `_fine` does.

    The scratch is that of `_fine_climb`.
    """
    n_climbs, k = uniforms.shape[0], anchor.shape[0]
    settled, n_settled = integers(_MOST_SWEEPS * n_climbs), ZERO
    order, chosen = integers(pairs.shape[0]), integers((n_climbs, k))
    given = integers(k)
    reached, tried = floats(n_climbs), 0
    for i in range(n_climbs):
        if i < starts.shape[0] and _are_inside(inside, starts[i]):
            for a in range(k):
                given[a] = inside[starts[i, a]]
            _put_first(order, given)
        else:
            _shuffle(order, uniforms[i])
        _complete(rules, order, anchor, counts, chosen[i])
        reached[i], more, n_settled = _fine_climb(
            gram, weights, pairs, rules, chosen[i], bound, u, d, v, s, products, columns, values, settled, n_settled,
            counts, fits,
        )  # fmt: skip
        tried += more
    return chosen, reached, tried


@njit(**FOR_LOOPS)
def _go_on(gram, weights, pairs, rules, chosen, reached, bound, u, d, v, s, products, columns, values, counts, fits):
    """Climb on from the best of the slates that were reached; return the best, and what `climb` does."""
    m, n_climbs, tried = pairs.shape[0], chosen.shape[0], 0
    settled, depend = integers(_MOST_SWEEPS * n_climbs), rules.least.shape[0] > 0 or rules.kinds.shape[1] > 0
    best, best_value = chosen[0].copy(), -np.inf
    slate, other = best.copy(), best.copy()
    n_seen, seen = ZERO, integers(_MOST_SWEEPS * n_climbs)
    most, previous = n_climbs // _STARTS_TO_GO_ON_FROM_ONE, np.inf
    left, n_by_pairs = most, n_climbs // _STARTS_TO_LEAVE_ONE_BY_PAIRS
    for i in sort_descending(reached, n_climbs):
        if left == 0:
            break
        if reached[i] >= previous:
            continue
        by_pairs = depend and left > most - n_by_pairs
        left -= 1
        previous, value = reached[i], reached[i]
        copy(slate, chosen[i])
        while n_seen < seen.shape[0] and not holds(seen, n_seen, number_of(slate, m)):
            seen[n_seen] = number_of(slate, m)
            n_seen += 1
            gaining, more = _best_insertion(
                gram, weights, pairs, rules, slate, value, bound, u, d, v, s, products, columns, values,
                counts, fits, other,
            )  # fmt: skip
            tried += more
            if not gaining and by_pairs:
                gaining, more = _best_pair(
                    gram, weights, pairs, rules, slate, value, bound, u, d, v, s, products, columns, values,
                    counts, fits, other,
                )  # fmt: skip
                tried += more
            if not gaining:
                break
            copy(slate, other)
            value, more, _ = _fine_climb(
                gram, weights, pairs, rules, slate, bound, u, d, v, s, products, columns, values, settled, ZERO,
                counts, fits,
            )  # fmt: skip
            tried += more
        if value > best_value:
            best_value = value
            copy(best, slate)
    return best, tried


@njit(**WITHOUT_LOCK)
def climb(at, rules, anchor, items, inside, starts, uniforms, prior, spread, u, d, v, s):
    """Return the best slate found among `items`, and how many slates were scored.

    Parameters: as for `climbing.climb`; `rules` are over `items`, and `anchor` is a slate of their places that keeps
    them.
    """
    gram, weights, pairs = fine_features(at, items)
    bound, k = (prior, spread), anchor.shape[0]
    products = floats32(weights.shape[0])
    columns, values = integers(2 * k + 1 + k * k), floats(2 * k + 1 + k * k)
    counts, fits = zero_counts(rules.least.shape[0]), np.empty(items.shape[0], np.bool_)
    chosen, reached, first_tried = _first_climbs(
        gram, weights, pairs, rules, anchor, inside, uniforms, starts, bound, u, d, v, s, products, columns, values,
        counts, fits,
    )  # fmt: skip
    slate, tried = _go_on(
        gram, weights, pairs, rules, chosen, reached, bound, u, d, v, s, products, columns, values, counts,
        fits,
    )  # fmt: skip
    for a in range(k):
        slate[a] = items[slate[a]]
    return slate, first_tried + tried


@njit(**FOR_LOOPS)
def _replace_all(at, rules, slate, every, bound, u, d, v, s, counts, fits):
    """Go through the positions once and put the best item that fits into each; return whether any is new."""
    mean, explained = floats(every.shape[0]), floats(every.shape[0])
    moved, among = False, integers(every.shape[0])
    for position in range(slate.shape[0]):
        _find_fitting(rules, slate, position, counts, fits)
        count = ZERO
        for item in every:
            if fits[item]:
                among[count] = item
                count += ONE
        if count == 0:
            continue
        for others in (among[:count], slate):
            make_pairs(
                at.features, at.pairs, at.made, at.starts, at.rows, at.values, at.whitener, at.pending, slate, others
            )
        replacements(
            at.features, at.content, at.taken, at.of_v, at.weights, at.pair_weights, at.pairs, slate, position,
            among[:count], u, d, v, s, mean, explained,
        )  # fmt: skip
        best = slate[position]
        value = score_of(mean[best], explained[best], bound)
        for item in among[:count]:
            score = score_of(mean[item], explained[item], bound)
            if is_gain(score, value):
                value, best = score, item
        moved = moved or best != slate[position]
        slate[position] = best
    return moved


@njit(**FOR_LOOPS)
def _exchange(at, rules, slate, bound, u, d, v, s):
    """Make the best allowed exchange; return how many were tried, and whether one gains."""
    k = slate.shape[0]
    around, count = integers((1 + k * (k - 1) // 2, k)), ONE
    copy(around[0], slate)
    for a in range(k):
        for b in range(a + 1, k):
            if _exchange_is_allowed(rules, slate, a, b):
                copy(around[count], slate)
                around[count, a] = slate[b]
                around[count, b] = slate[a]
                count += ONE
    around = around[:count]
    explained = slates(at.features, at.content, at.taken, at.of_v, at.pairs, around, at.features.shape[1], u, d, v, s)
    value, best = -np.inf, 0
    for i in range(count):
        mean = slate_mean(at.weights, at.pair_weights, around[i], u, d, v, s)
        score = score_of(mean, explained[i], bound)
        if i == 0 or is_gain(score, value):
            value, best = score, i
    copy(slate, around[best])
    return count, best > 0


@njit(**WITHOUT_LOCK)
def polish(at, rules, slate, prior, spread, u, d, v, s):
    """Climb from an allowed `slate`, in place, with all items and features; return how many slates were tried."""
    n_eligible, bound = at.pairs.shape[0], (prior, spread)
    every, fits, counts = count_up(n_eligible), np.empty(n_eligible, np.bool_), zero_counts(rules.least.shape[0])
    tried = 0
    for _ in range(_MOST_SWEEPS):
        replaced = _replace_all(at, rules, slate, every, bound, u, d, v, s, counts, fits)
        tried += slate.shape[0] * n_eligible
        make_pairs(at.features, at.pairs, at.made, at.starts, at.rows, at.values, at.whitener, at.pending, slate, slate)
        more, exchanged = _exchange(at, rules, slate, bound, u, d, v, s)
        tried += more
        if not replaced and not exchanged:
            break
    return tried


@njit(**WITHOUT_LOCK)
def list_near(rules, slate):
    """Return the allowed slates that differ from one by an item that is replaced, or by two exchanged, (A, k)."""
    k, n_eligible = slate.shape[0], rules.groups.shape[0]
    near, count = integers((k * n_eligible + k * (k - 1) // 2, k)), 0
    counts, fits = zero_counts(rules.least.shape[0]), np.empty(n_eligible, np.bool_)
    for position in range(k):
        _find_fitting(rules, slate, position, counts, fits)
        for item in range(n_eligible):
            if fits[item] and item != slate[position]:
                copy(near[count], slate)
                near[count, position] = item
                count += 1
    for a in range(k):
        for b in range(a + 1, k):
            if _exchange_is_allowed(rules, slate, a, b):
                copy(near[count], slate)
                near[count, a] = slate[b]
                near[count, b] = slate[a]
                count += 1
    return near[:count]
