"""Compiled searches for subsets of items with a large gradient.

The gradient of a subset S is G(S), the sum over its pairs of D_jk = |y_j - y_k|^2, the *pair gradients*. Whatever is
found by an exhaustive search is the best there is; what exchanges find is best among the subsets one exchange away.
"""

from __future__ import annotations

import numpy as np
from numba import njit

__all__ = ["best_pairs", "best_subset", "best_triples", "exchange", "pair_gradients"]

_MOST_EXCHANGES = 10
_GAIN = 1e-12


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
        place, item, gain = _best_exchange(pairs, subset, sums, inside)
        if gain <= _GAIN * sums[subset].sum():
            break
        for j in range(n):
            sums[j] += pairs[item, j] - pairs[subset[place], j]
        inside[subset[place]] = False
        inside[item] = True
        subset[place] = item
    inside[subset] = False
    return 0.5 * sums[subset].sum()


@njit(nogil=True, cache=True)
def _best_exchange(pairs, subset, sums, inside):
    """Return the place of the item to go, the one to come, and what the gradient gains."""
    best_place, best_item, best = 0, 0, 0.0
    for place in range(subset.shape[0]):
        out = subset[place]
        for j in range(pairs.shape[0]):
            gain = sums[j] - pairs[out, j] - sums[out]
            if gain > best and not inside[j]:
                best_place, best_item, best = place, j, gain
    return best_place, best_item, best


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
    sums, taken, gradients = np.zeros((size, n)), np.full(size, -1), np.zeros(size)
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
                if gradient + sums[depth, j] + pairs[item, j] > floor:
                    floor = gradient + sums[depth, j] + pairs[item, j]
                    subset[:-1], subset[-1] = taken[:-1], j
            continue
        for j in range(item + 1, n):
            sums[depth + 1, j] = sums[depth, j] + pairs[item, j]
        budget -= 3 * (n - item)
        if gradient + _most_to_come(sums[depth + 1], largest[:, left - 1], item + 1, left) > floor:
            depth += 1
            taken[depth], gradients[depth] = item, gradient
    return floor, depth < 0


@njit(nogil=True, cache=True)
def _most_to_come(sums, largest, first, count):
    """Return the sum of the `count` largest of sums_j + largest_j / 2, j from `first` on."""
    top = np.full(count, -1.0)
    for j in range(first, sums.shape[0]):
        value = sums[j] + 0.5 * largest[j]
        if value > top[-1]:
            place = count - 1
            while place > 0 and top[place - 1] < value:
                top[place] = top[place - 1]
                place -= 1
            top[place] = value
    return top.sum()
