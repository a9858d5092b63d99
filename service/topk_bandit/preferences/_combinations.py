"""Compiled searches for subsets of items with a large gradient, from the pair gradients D_jk = |y_j - y_k|^2.

The gradient of a subset S is G(S), the sum of D_jk over its pairs.
"""

from __future__ import annotations

import numpy as np
from numba import njit

__all__ = ["best_pairs", "best_triples", "exchange", "pair_gradients"]


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
        best = 0 if i else 1
        for j in range(n):
            if j != i and pairs[i, j] > pairs[i, best]:
                best = j
        subsets[i, 0], subsets[i, 1] = i, best
        values[i] = pairs[i, best]


@njit(nogil=True, cache=True)
def _offer(i, j, k, value, subsets, values):
    for item in (i, j, k):
        if value > values[item]:
            values[item] = value
            subsets[item, 0], subsets[item, 1], subsets[item, 2] = i, j, k


@njit(nogil=True, cache=True)
def best_triples(pairs, floor, subsets, values):
    """Find the triples with a gradient above `floor`.

    Row i of `subsets`, (N, 3), holds the best triple with item i so far, and `values`, (N,), its gradient.
    """
    n = pairs.shape[0]
    longest = np.empty(n)
    for i in range(n):
        longest[i] = pairs[i].max()
    for i in range(n):
        for j in range(i + 1, n):
            side = pairs[i, j]
            rest = min(longest[i], side) + min(longest[j], side)
            if side + rest <= floor:
                continue
            best, place = floor - side, -1
            for k in range(n):
                value = pairs[i, k] + pairs[j, k]
                if value > best and k not in (i, j):
                    best, place = value, k
            if place >= 0:
                _offer(i, j, place, side + best, subsets, values)


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
