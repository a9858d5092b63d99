"""Compiled loops over orderings: the Plackett-Luce likelihood and what its derivatives are made of.

With utilities u and m_s = max_{j >= s} u_j, the sum of stage s of an answer is Z_s = sum_{j >= s} exp(u_j) =
exp(m_s) zeta_s. Going from the last item to the first takes one exponential an item::

    ratios[j] = exp(u_j - m_j)      steps[j] = exp(m_j - m_{j-1})      inverses[s] = 1 / zeta_s

All of these are at most 1, so nothing overflows, and what underflows is negligible. An item k at or below stage s is
chosen there with probability exp(u_k - m_s) / zeta_s.

They release the GIL, and are compiled on their first call and cached on disk.

Letters: A answers, E items of all answers, S stages (places given out), n items with features, d features.
"""

from __future__ import annotations

import numpy as np
from numba import njit

__all__ = [
    "accumulate_pairs",
    "accumulate_surplus",
    "fill_pairs",
    "fill_stage_means",
    "find_components",
    "log_likelihood",
    "renumber_items",
]

_LARGE, _SMALL = 1e250, 1e-150


@njit(nogil=True, cache=True)
def _stages(utilities, answer, placed, ratios, steps, inverses):
    """Fill the three arrays for one answer, and return its log-likelihood."""
    last = len(answer) - 1
    largest = utilities[answer[last]]
    total = product = 1.0
    value = 0.0
    ratios[last] = 1.0
    for k in range(last - 1, -1, -1):
        difference = utilities[answer[k]] - largest
        if difference > 0.0:
            steps[k + 1] = np.exp(-difference)
            ratios[k] = 1.0
            total = total * steps[k + 1] + 1.0
            largest = utilities[answer[k]]
            difference = 0.0
        else:
            steps[k + 1] = 1.0
            ratios[k] = np.exp(difference)
            total += ratios[k]
        inverses[k] = 1.0 / total
        if k < placed:
            value += difference
            product *= total
            if product > _LARGE:
                value -= np.log(product)
                product = 1.0
    return value - np.log(product)


@njit(nogil=True, cache=True)
def _longest(starts):
    longest = 2
    for a in range(len(starts) - 1):
        longest = max(longest, starts[a + 1] - starts[a])
    return longest


@njit(nogil=True, cache=True)
def _add_surplus(answer, placed, ratios, steps, inverses, surplus):
    """Add to `surplus` how much more often than expected each item of one answer was chosen in its stages."""
    weight = 0.0
    for k in range(len(answer)):
        if k > 0:
            weight *= steps[k]
        if k < placed:
            weight += inverses[k]
            surplus[answer[k]] += 1.0 - ratios[k] * weight
        else:
            surplus[answer[k]] -= ratios[k] * weight


@njit(nogil=True, cache=True)
def log_likelihood(utilities, items, starts, places):
    """Return sum over answers and their stages s of u_s - log Z_s."""
    longest = _longest(starts)
    ratios, steps, inverses = np.empty(longest), np.empty(longest), np.empty(longest)
    value = 0.0
    for a in range(len(places)):
        value += _stages(utilities, items[starts[a] : starts[a + 1]], places[a], ratios, steps, inverses)
    return value


@njit(nogil=True, cache=True)
def accumulate_surplus(utilities, items, starts, places, surplus):
    """Return the log-likelihood; add to `surplus` (n,) its derivative by each utility."""
    longest = _longest(starts)
    ratios, steps, inverses = np.empty(longest), np.empty(longest), np.empty(longest)
    value = 0.0
    for a in range(len(places)):
        answer = items[starts[a] : starts[a + 1]]
        value += _stages(utilities, answer, places[a], ratios, steps, inverses)
        _add_surplus(answer, places[a], ratios, steps, inverses, surplus)
    return value


@njit(nogil=True, cache=True)
def accumulate_pairs(weights, items, starts, places, surplus, products):
    """As `accumulate_surplus`; add to `products` (n, n) the sum of p_si p_sj over stages, once for each pair i, j.

    It takes exp(u) instead of u, which must be neither too large nor too small for products of four.
    """
    n, longest = len(weights), _longest(starts)
    local, inverses = np.empty(longest), np.empty(longest)
    flat = products.reshape(n * n)
    value, product = 0.0, 1.0
    for a in range(len(places)):
        answer, placed = items[starts[a] : starts[a + 1]], places[a]
        total = 0.0
        for k in range(len(answer) - 1, -1, -1):
            local[k] = weights[answer[k]]
            total += local[k]
            inverses[k] = 1.0 / total
            if k < placed:
                product *= local[k] * inverses[k]
                if product < _SMALL:
                    value += np.log(product)
                    product = 1.0
        first = second = 0.0
        for k in range(len(answer)):
            if k < placed:
                first += inverses[k]
                second += inverses[k] * inverses[k]
                surplus[answer[k]] += 1.0 - local[k] * first
            else:
                surplus[answer[k]] -= local[k] * first
            row, factor = answer[k] * n, local[k] * second
            for j in range(k + 1, len(answer)):
                flat[row + answer[j]] += factor * local[j]
    return value + np.log(product)


@njit(nogil=True, cache=True)
def fill_pairs(utilities, items, starts, places, surplus, weights):
    """As `accumulate_surplus`; set `weights` to the sum of p_si p_sj over stages of each pair of places i < j.

    The pairs stand answer by answer, by i and then by j. No range of utilities is too wide.
    """
    longest = _longest(starts)
    ratios, steps, inverses = np.empty(longest), np.empty(longest), np.empty(longest)
    value, pair = 0.0, 0
    for a in range(len(places)):
        answer = items[starts[a] : starts[a + 1]]
        value += _stages(utilities, answer, places[a], ratios, steps, inverses)
        _add_surplus(answer, places[a], ratios, steps, inverses, surplus)
        squares = 0.0
        for i in range(len(answer) - 1):
            if i > 0:
                squares *= steps[i] * steps[i]
            if i < places[a]:
                squares += inverses[i] * inverses[i]
            below = 1.0
            for j in range(i + 1, len(answer)):
                below *= steps[j]
                weights[pair] = squares * ratios[i] * below * ratios[j]
                pair += 1
    return value


@njit(nogil=True, cache=True)
def fill_stage_means(utilities, features, items, starts, places, surplus, means):
    """As `accumulate_surplus`; set `means` (S, d) to the features expected to be chosen at each stage."""
    longest = _longest(starts)
    ratios, steps, inverses = np.empty(longest), np.empty(longest), np.empty(longest)
    sums = np.empty(features.shape[1])
    value, row = 0.0, 0
    for a in range(len(places)):
        answer = items[starts[a] : starts[a + 1]]
        value += _stages(utilities, answer, places[a], ratios, steps, inverses)
        _add_surplus(answer, places[a], ratios, steps, inverses, surplus)
        sums[:] = features[answer[-1]]
        for k in range(len(answer) - 2, -1, -1):
            for f in range(len(sums)):
                sums[f] = steps[k + 1] * sums[f] + ratios[k] * features[answer[k], f]
            if k < places[a]:
                for f in range(len(sums)):
                    means[row, f] = inverses[k] * sums[f]
                row += 1
    return value


@njit(nogil=True, cache=True)
def renumber_items(items, starts, places, n_features):
    """Return the items that occur in ascending order, the items counted among them, and how many places each won."""
    number = np.full(n_features, -1, dtype=np.int64)
    for e in range(len(items)):
        number[items[e]] = 0
    used = np.flatnonzero(number == 0)
    for i in range(len(used)):
        number[used[i]] = i
    renamed, wins = np.empty_like(items), np.zeros(len(used))
    for a in range(len(places)):
        for e in range(starts[a], starts[a + 1]):
            renamed[e] = number[items[e]]
            if e < starts[a] + places[a]:
                wins[renamed[e]] += 1.0
    return used, renamed, wins


@njit(nogil=True, cache=True)
def _root(parents, item):
    while parents[item] != item:
        parents[item] = parents[parents[item]]
        item = parents[item]
    return item


@njit(nogil=True, cache=True)
def find_components(items, starts, n):
    """Return for each item the number of its group, shape (n,): answers connect the items in them."""
    parents = np.arange(n)
    for a in range(len(starts) - 1):
        first = _root(parents, items[starts[a]])
        for e in range(starts[a] + 1, starts[a + 1]):
            other = _root(parents, items[e])
            parents[other] = first
    groups, count = np.empty(n, dtype=np.int64), 0
    for i in range(n):
        if parents[i] == i:
            groups[i] = count
            count += 1
    for i in range(n):
        groups[i] = groups[_root(parents, i)]
    return groups
