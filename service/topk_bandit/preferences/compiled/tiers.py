"""Loops over answers in tiers: their exact Plackett-Luce probability, and orders within tiers drawn given it."""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"
from __future__ import annotations

import math

import numpy as np
from numba import njit

__all__ = ["draw_orders", "score_tiers"]


@njit(nogil=True, cache=True)
def _fill_first(weights, below, sums, chances):
    """Fill for each subset of a tier its weight, and the probability that all of it comes before what is below.

    Item i of a subset S is the first of all with probability w_i / (w(S) + below), and the others of S have to follow:
    chances(S) = sum_i w_i chances(S - i) / (w(S) + below).
    """
    sums[0], chances[0] = 0.0, 1.0
    for mask in range(1, 1 << len(weights)):
        total, weight = 0.0, 0.0
        for i in range(len(weights)):
            if mask >> i & 1:
                weight += weights[i]
                total += weights[i] * chances[mask ^ (1 << i)]
        sums[mask], chances[mask] = weight, total / (weight + below)


@njit(nogil=True, cache=True)
def _weigh(utilities, items, first, last, end, weights):
    """Fill the weights of a tier, relative to the best item that is left, and return that of all items below."""
    largest = -np.inf
    for e in range(first, end):
        largest = max(largest, utilities[items[e]])
    for e in range(first, last):
        weights[e - first] = math.exp(utilities[items[e]] - largest)
    below = 0.0
    for e in range(last, end):
        below += math.exp(utilities[items[e]] - largest)
    return largest, below


@njit(nogil=True, cache=True)
def score_tiers(utilities, items, tiers, answers, most_tied):
    """Return the log-probability of each answer, shape (A,): its tiers are ``items[tiers[t] : tiers[t + 1]]``."""
    out = np.zeros(len(answers) - 1)
    sums, chances = np.empty(1 << most_tied), np.empty(1 << most_tied)
    weights = np.empty(most_tied)
    for answer in range(len(out)):
        end = tiers[answers[answer + 1]]
        for t in range(answers[answer], answers[answer + 1] - 1):
            first, last = tiers[t], tiers[t + 1]
            largest, below = _weigh(utilities, items, first, last, end, weights)
            if last - first == 1:
                out[answer] += utilities[items[first]] - largest - math.log(weights[0] + below)
            else:
                count = last - first
                _fill_first(weights[:count], below, sums, chances)
                out[answer] += math.log(max(chances[(1 << count) - 1], 1e-300))
    return out


@njit(nogil=True, cache=True)
def draw_orders(utilities, items, tiers, answers, most_tied, uniforms):
    """Return the items with each tier but the last of an answer in an order drawn given that it is above the rest."""
    out = items.copy()
    sums, chances = np.empty(1 << most_tied), np.empty(1 << most_tied)
    weights = np.empty(most_tied)
    for answer in range(len(answers) - 1):
        end = tiers[answers[answer + 1]]
        for t in range(answers[answer], answers[answer + 1] - 1):
            first, last = tiers[t], tiers[t + 1]
            count = last - first
            if count == 1:
                continue
            _, below = _weigh(utilities, items, first, last, end, weights)
            _fill_first(weights[:count], below, sums, chances)
            mask = (1 << count) - 1
            for place in range(first, last):
                left = uniforms[place] * chances[mask] * (sums[mask] + below)
                chosen = -1
                for i in range(count):
                    if mask >> i & 1:
                        chosen = i
                        left -= weights[i] * chances[mask ^ (1 << i)]
                        if left < 0.0:
                            break
                out[place] = items[first + chosen]
                mask ^= 1 << chosen
    return out
