"""Compiled search for a slate so long that scoring all of its neighbours, with all features, would take too long.

1. *climb*: as the coarse stage of `climbing`, and by exchanges of two positions as well. The means are exact, and the
   variance is that of the items' parts. Both kinds of moves cost O(k) a slate, so that a climb costs O(E k^2).
2. *settle*: from the best slate, with all features, by exchanges and by the few other items that matter most to it. An
   exchange costs O(k N): only what it changes is added up.

Letters: as in `climbing`.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from topk_bandit.learning.compiled.allowed_moves import (
    begin_at,
    begin_somewhere,
    exchange_is_allowed,
    mark_down,
    prepare,
)
from topk_bandit.learning.compiled.arrays import copy, fill, floats, floats32, integers, sort_descending
from topk_bandit.learning.compiled.climbing import MOST_SWEEPS, coarse_climb, replace_all
from topk_bandit.learning.compiled.contraction import explained_by, make_pairs, slate_mean, slate_vector
from topk_bandit.learning.compiled.moves import (
    apply_terms,
    coarse_scores,
    exchange_terms,
    is_gain,
    score_of,
    shows,
)
from topk_bandit.learning.compiled.options import FOR_LOOPS, WITHOUT_LOCK

__all__ = ["climb_by_items", "settle"]

_MOST_TURNS = 8


@njit(**FOR_LOOPS)
def _weight_of(d, a, b):
    """Return D of the items at two positions, the first of them named first."""
    return d[a, b] if a < b else -d[b, a]


@njit(**FOR_LOOPS)
def _change_of_mean(weights, pair_weights, slate, a, b, u, d, v):
    """Return by how much the mean changes when the items at positions a and b change places."""
    n_eligible, i, j = pair_weights.shape[0], slate[a], slate[b]
    change = (u[b] - u[a]) * (weights[i] - weights[j])
    change += (v[b] - v[a]) * (weights[n_eligible + i] - weights[n_eligible + j])
    change -= 2.0 * _weight_of(d, a, b) * pair_weights[i, j]
    for c in range(slate.shape[0]):
        if c != a and c != b:  # noqa: PLR1714 - a tuple is not free here
            more = _weight_of(d, b, c) - _weight_of(d, a, c)
            change += more * (pair_weights[i, slate[c]] - pair_weights[j, slate[c]])
    return change


@njit(**FOR_LOOPS)
def _weigh(of_items, slate, u, cross):
    """Set `cross` to the covariances of the items' parts with the slate's sum, (k,); return the slate's variance."""
    covariance, variance = of_items
    for a in range(slate.shape[0]):
        cross[a] = 0.0
        for b in range(slate.shape[0]):
            cross[a] += u[b] * covariance[slate[a], slate[b]]
        variance += u[a] * cross[a]
    return variance


@njit(**FOR_LOOPS)
def _exchange_by_items(of_items, weights, pair_weights, rules, slate, spread, u, d, v, s, cross):
    """Try each exchange of two positions once, and make those that gain; return whether there is one."""
    covariance, moved = of_items[0], False
    mean, variance = slate_mean(weights, pair_weights, slate, u, d, v, s), _weigh(of_items, slate, u, cross)
    value = score_of(mean, -variance, (0.0, spread))
    for a in range(slate.shape[0]):
        for b in range(a + 1, slate.shape[0]):
            if not exchange_is_allowed(rules, slate, a, b):
                continue
            i, j, step = slate[a], slate[b], u[b] - u[a]
            apart = covariance[i, i] + covariance[j, j] - 2.0 * covariance[i, j]
            more = step * (2.0 * (cross[a] - cross[b]) + step * apart)
            higher = _change_of_mean(weights, pair_weights, slate, a, b, u, d, v)
            score = score_of(mean + higher, -variance - more, (0.0, spread))
            if is_gain(score, value):
                value, mean, moved = score, mean + higher, True
                slate[a], slate[b] = j, i
                variance = _weigh(of_items, slate, u, cross)
    return moved


@njit(**WITHOUT_LOCK)
def climb_by_items(at, rules, anchor, of_items, starts, uniforms, spread, u, d, v, s):
    """Return the slates climbed to from `starts` and from random slates, (A + R, k), and how many slates were scored.

    Parameters: as for `climbing.climb`, rules over all eligible items; `of_items` as for `climbing.weigh_items`.
    """
    weights, pair_weights, moves = at.weights, at.pair_weights, prepare(rules, anchor)
    n_eligible, k = pair_weights.shape[0], uniforms.shape[1]
    scores, means, cross = floats(n_eligible), floats(n_eligible), floats(n_eligible)
    order, climbed, tried = integers(n_eligible), integers((starts.shape[0] + uniforms.shape[0], k)), 0
    for i in range(climbed.shape[0]):
        if i < starts.shape[0]:
            begin_at(moves, order, starts[i], climbed[i])
        else:
            begin_somewhere(moves, order, uniforms[i - starts.shape[0]], climbed[i])
        for _ in range(MOST_SWEEPS):
            _, more = coarse_climb(
                of_items, weights, pair_weights, moves, climbed[i], spread, u, d, v, s, scores, means, cross
            )
            tried += more + k * (k - 1) // 2
            if not _exchange_by_items(of_items, weights, pair_weights, moves, climbed[i], spread, u, d, v, s, cross):
                break
    return climbed, tried


@njit(**FOR_LOOPS)
def _most_wanted(of_items, weights, pair_weights, rules, slate, count, spread, u, d, v, s):
    """Return up to `count` items that the slate does not show, those first with which it scores most by items."""
    n_eligible = pair_weights.shape[0]
    scores, means, cross = floats(n_eligible), floats(n_eligible), floats(n_eligible)
    wanted = fill(floats(n_eligible), -np.inf)
    for position in range(slate.shape[0]):
        coarse_scores(of_items, weights, pair_weights, slate, position, spread, u, d, v, s, scores, means, cross)
        mark_down(rules, slate, position, scores, np.inf)
        for item in range(n_eligible):
            wanted[item] = max(wanted[item], scores[item])
    n_others = 0
    for item in range(n_eligible):
        if shows(slate, item):
            wanted[item] = -np.inf
        if wanted[item] > -np.inf:
            n_others += 1
    return sort_descending(wanted, min(count, n_others))


@njit(**FOR_LOOPS)
def _exchange_all(at, rules, slate, bound, u, d, v, s):
    """Try each exchange of two positions once, and make those that gain; return whether there is one."""
    features, pairs = at.features, at.pairs
    own, moved = floats32(features.shape[1]), False
    target = np.empty_like(own)
    columns, values = integers(2 * slate.shape[0] + 1), floats(2 * slate.shape[0] + 1)
    slate_vector(own, features, pairs, slate, u, d, v, s)
    mean = slate_mean(at.weights, at.pair_weights, slate, u, d, v, s)
    value = score_of(mean, explained_by(at.content, at.taken, at.of_v, own, slate, u, v), bound)
    for a in range(slate.shape[0]):
        for b in range(a + 1, slate.shape[0]):
            if not exchange_is_allowed(rules, slate, a, b):
                continue
            higher = _change_of_mean(at.weights, at.pair_weights, slate, a, b, u, d, v)
            count = exchange_terms(pairs, slate, a, b, u, d, v, columns, values)
            copy(target, own)
            apply_terms(features, target, columns, values, count)
            slate[a], slate[b] = slate[b], slate[a]
            score = score_of(mean + higher, explained_by(at.content, at.taken, at.of_v, target, slate, u, v), bound)
            if is_gain(score, value):
                value, mean, moved = score, mean + higher, True
                copy(own, target)
            else:
                slate[a], slate[b] = slate[b], slate[a]
    return moved


@njit(**WITHOUT_LOCK)
def settle(at, rules, slate, of_items, count, prior, spread, u, d, v, s):
    """Climb from `slate`, in place, with all features; return how many slates were tried.

    It exchanges positions, and puts in up to `count` other items. Parameters: as for `climb_by_items`, and c.c.
    """
    k, moves, bound, tried = slate.shape[0], prepare(rules, slate), (prior, spread), 0
    make_pairs(at.features, at.pairs, at.made, at.starts, at.rows, at.values, at.whitener, at.pending, slate, slate)
    for _ in range(_MOST_TURNS):
        exchanged = _exchange_all(at, moves, slate, bound, u, d, v, s)
        among = _most_wanted(of_items, at.weights, at.pair_weights, moves, slate, count, spread, u, d, v, s)
        tried += k * (k - 1) // 2 + k * among.shape[0]
        if not replace_all(at, moves, slate, among, bound, u, d, v, s) and not exchanged:
            break
    return tried
