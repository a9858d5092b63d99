"""Compiled search for a slate so long that scoring all of its neighbours, with all features, would take too long.

It is the coarse stage of `climbing`, which climbs by exchanges of two positions as well: the means are exact, and of
the variance it has the items' parts. Both kinds of moves cost O(k) a slate, so that a climb costs O(E k^2).

Letters: as in `climbing`.
"""

from __future__ import annotations

from numba import njit

from topk_bandit.learning.compiled.allowed_moves import begin_at, begin_somewhere, exchange_is_allowed, prepare
from topk_bandit.learning.compiled.arrays import floats, integers
from topk_bandit.learning.compiled.climbing import coarse_climb
from topk_bandit.learning.compiled.contraction import slate_mean
from topk_bandit.learning.compiled.moves import is_gain, score_of
from topk_bandit.learning.compiled.options import FOR_LOOPS, WITHOUT_LOCK

__all__ = ["climb_by_items"]

_MOST_SWEEPS = 32


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
def _exchange(of_items, weights, pair_weights, rules, slate, spread, u, d, v, s, cross):
    """Make the best exchange of two positions; return whether there is one that gains."""
    covariance = of_items[0]
    mean, variance = slate_mean(weights, pair_weights, slate, u, d, v, s), _weigh(of_items, slate, u, cross)
    value, first, second = score_of(mean, 0.0, (variance, spread)), 0, 0
    for a in range(slate.shape[0]):
        for b in range(a + 1, slate.shape[0]):
            if not exchange_is_allowed(rules, slate, a, b):
                continue
            i, j, step = slate[a], slate[b], u[b] - u[a]
            apart = covariance[i, i] + covariance[j, j] - 2.0 * covariance[i, j]
            more = step * (2.0 * (cross[a] - cross[b]) + step * apart)
            higher = _change_of_mean(weights, pair_weights, slate, a, b, u, d, v)
            score = score_of(mean + higher, -more, (variance, spread))
            if is_gain(score, value):
                value, first, second = score, a, b
    slate[first], slate[second] = slate[second], slate[first]
    return first != second


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
        for _ in range(_MOST_SWEEPS):
            _, more = coarse_climb(
                of_items, weights, pair_weights, moves, climbed[i], spread, u, d, v, s, scores, means, cross
            )
            tried += more
            exchanges = 0
            while exchanges < _MOST_SWEEPS * k and _exchange(
                of_items, weights, pair_weights, moves, climbed[i], spread, u, d, v, s, cross
            ):
                exchanges += 1
            tried += (exchanges + 1) * k * (k - 1) // 2
            if exchanges == 0:
                break
    return climbed, tried
