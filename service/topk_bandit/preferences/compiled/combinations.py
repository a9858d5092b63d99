"""Compiled searches for subsets of items with a large gradient, and a bound of it.

The gradient of a subset S is G(S), the sum over its pairs of D_jk = |y_j - y_k|^2, the *pair gradients*. Whatever is
found by an exhaustive search is the best there is; what exchanges find is best among the subsets one exchange away.
"""

from __future__ import annotations

import numpy as np
from numba import njit

__all__ = ["best_pairs", "best_subset", "best_triples", "exchange", "pair_gradients", "scatter_bound"]

_MOST_EXCHANGES = 10
_GAIN = 1e-12

_MOST_BOUNDS = 100
_PRECISION = 1e-4


@njit(nogil=True, cache=True)
def pair_gradients(products):
    """Turn H = Y Y' into D_jk = H_jj + H_kk - 2 H_jk in place, and return it."""
    n = products.shape[0]
    diagonal = np.empty(n)
    for j in range(n):
        diagonal[j] = products[j, j]
    for j in range(n):
        for k in range(n):
            products[j, k] = max(diagonal[j] + diagonal[k] - 2.0 * products[j, k], 0.0)
        products[j, j] = 0.0
    return products


@njit(nogil=True, cache=True)
def best_pairs(pairs, subsets, values):
    """Set row i of `subsets`, (N, 2), to the best pair with item i, and `values`, (N,), to its gradient."""
    n = pairs.shape[0]
    for i in range(n):
        best = 0 if i > 0 else 1
        for j in range(n):
            if j != i and pairs[i, j] > pairs[i, best]:
                best = j
        subsets[i, 0], subsets[i, 1] = i, best
        values[i] = pairs[i, best]


@njit(nogil=True, cache=True)
def best_triples(pairs, floor, subsets, values):
    """Set row i of `subsets`, (N, 3), to the best triple with item i whose gradient is above `floor`, if there is one.

    `values`, (N,), holds less than `floor` at first, and becomes the gradients. Each triple is met at its longest side,
    so that most pairs are too short to be looked at.
    """
    n = pairs.shape[0]
    longest = np.empty(n)
    for i in range(n):
        longest[i] = pairs[i].max()
    for i in range(n):
        for j in range(i + 1, n):
            side = pairs[i, j]
            if side + min(longest[i], side) + min(longest[j], side) <= floor:
                continue
            best, third = floor - side, -1
            for k in range(n):
                others = pairs[i, k] + pairs[j, k]
                if others > best and k not in (i, j):
                    best, third = others, k
            if third >= 0:
                _offer(i, j, third, side + best, subsets, values)


@njit(nogil=True, cache=True)
def _offer(i, j, k, value, subsets, values):
    for item in (i, j, k):
        if value > values[item]:
            values[item] = value
            subsets[item, 0], subsets[item, 1], subsets[item, 2] = i, j, k


@njit(nogil=True, cache=True)
def exchange(pairs, subsets, values):
    """Improve subsets, (S, K), in place by their best exchange of an item until there is none; set their gradients."""
    sums, inside = np.empty(pairs.shape[0]), np.zeros(pairs.shape[0], dtype=np.bool_)
    for s in range(subsets.shape[0]):
        values[s] = _exchange_one(pairs, subsets[s], sums, inside)


@njit(nogil=True, cache=True)
def _exchange_one(pairs, subset, sums, inside):
    n, size = pairs.shape[0], subset.shape[0]
    sums[:] = 0.0
    for item in subset:
        inside[item] = True
        for j in range(n):
            sums[j] += pairs[item, j]
    for _ in range(_MOST_EXCHANGES * size):
        slot, item, gain = _best_exchange(pairs, subset, sums, inside)
        if gain <= _GAIN * sums[subset].sum():
            break
        for j in range(n):
            sums[j] += pairs[item, j] - pairs[subset[slot], j]
        inside[subset[slot]] = False
        inside[item] = True
        subset[slot] = item
    inside[subset] = False
    return 0.5 * sums[subset].sum()


@njit(nogil=True, cache=True)
def _best_exchange(pairs, subset, sums, inside):
    """Return the slot of the item to go, the one to come, and what the gradient gains."""
    best_slot, best_item, best = 0, 0, 0.0
    for slot in range(subset.shape[0]):
        out = subset[slot]
        for j in range(pairs.shape[0]):
            gain = sums[j] - pairs[out, j] - sums[out]
            if gain > best and not inside[j]:
                best_slot, best_item, best = slot, j, gain
    return best_slot, best_item, best


@njit(nogil=True, cache=True)
def best_subset(pairs, largest, floor, budget, subset):
    """Set `subset`, (K,), to the best subset whose gradient is above `floor`, if there is one.

    Branch and bound in the order of the items. With items P taken, an item j adds its sum to P, and with R - 1 others
    still to come at most half of its R - 1 largest pair gradients beside: `largest`, (N, K), has their sums, column r
    that of the r largest.

    Returns
    -------
    The best gradient, or `floor`; and whether the search ended within a budget of about so many additions.
    """
    n, size = pairs.shape[0], subset.shape[0]
    sums, top, gradients = np.zeros((size, n)), np.zeros(size), np.zeros(size)
    taken = np.zeros(size, dtype=np.int64)
    taken[0] = -1
    depth = 0
    while depth >= 0 and budget > 0:
        taken[depth] += 1
        item, left = taken[depth], size - depth - 1
        if item + left >= n:
            depth -= 1
            continue
        budget -= n - item
        gradient = gradients[depth] + sums[depth, item]
        if left == 1:
            for j in range(item + 1, n):
                value = gradient + sums[depth, j] + pairs[item, j]
                if value > floor:
                    floor = value
                    taken[depth + 1] = j
                    subset[:] = taken
            continue
        for j in range(item + 1, n):
            sums[depth + 1, j] = sums[depth, j] + pairs[item, j]
        budget -= 3 * (n - item)
        if gradient + _most_to_come(sums, depth + 1, largest, left, item + 1, top) > floor:
            depth += 1
            taken[depth], gradients[depth] = item, gradient
    return floor, depth < 0


@njit(nogil=True, cache=True)
def _most_to_come(sums, depth, largest, left, first, top):
    """Return the sum of the `left` largest of what items from `first` on can add each."""
    for rank in range(left):
        top[rank] = -np.inf
    for j in range(first, sums.shape[1]):
        value = sums[depth, j] + 0.5 * largest[j, left - 1]
        if value > top[left - 1]:
            rank = left - 1
            while rank > 0 and top[rank - 1] < value:
                top[rank] = top[rank - 1]
                rank -= 1
            top[rank] = value
    total = 0.0
    for rank in range(left):
        total += top[rank]
    return total


@njit(nogil=True, cache=True, fastmath={"reassoc", "contract", "nsz"})
def scatter_bound(items, size, enough):
    """Return K times the sum of the K largest |y_i - m|^2, for a good m; none better if it is at most `enough`.

    A subset's gradient is K times the scatter of its y about their mean, and about any other point the scatter is
    larger. The best m is a mean sum_i w_i y_i / K, 0 <= w_i <= 1, sum w = K, with w maximising the concave
    sum_i w_i |y_i|^2 - |sum_i w_i y_i|^2 / K: found by Frank-Wolfe steps, every one of which gives a bound.
    """
    n, d = items.shape
    shares, distances = np.full(n, size / n), np.empty(n)
    centre, move, top = np.empty(d), np.empty(d), np.empty(size, dtype=np.int64)
    bound = np.inf
    for _ in range(_MOST_BOUNDS):
        _mean(items, shares, size, centre)
        inside = 0.0
        for i in range(n):
            distances[i] = 0.0
            for j in range(d):
                distances[i] += (items[i, j] - centre[j]) ** 2
            inside += shares[i] * distances[i]
        total = _largest(distances, top)
        bound = min(bound, total)
        if total - inside <= _PRECISION * bound or size * bound <= enough:
            break
        move[:] = -size * centre
        for i in top:
            move += items[i]
        curvature = (move * move).sum() / size
        step = min(1.0, (total - inside) / max(2.0 * curvature, total - inside))
        for i in range(n):
            shares[i] *= 1.0 - step
        for i in top:
            shares[i] += step
    return size * bound


@njit(nogil=True, cache=True, fastmath={"reassoc", "contract", "nsz"})
def _mean(items, shares, size, centre):
    centre[:] = 0.0
    for i in range(items.shape[0]):
        for j in range(items.shape[1]):
            centre[j] += shares[i] / size * items[i, j]


@njit(nogil=True, cache=True)
def _largest(values, top):
    """Set `top` to the indices of the largest values; return their sum."""
    size = top.shape[0]
    for i in range(values.shape[0]):
        if i < size:
            rank = i
        elif values[i] > values[top[size - 1]]:
            rank = size - 1
        else:
            continue
        while rank > 0 and values[top[rank - 1]] < values[i]:
            top[rank] = top[rank - 1]
            rank -= 1
        top[rank] = i
    total = 0.0
    for rank in range(size):
        total += values[top[rank]]
    return total
