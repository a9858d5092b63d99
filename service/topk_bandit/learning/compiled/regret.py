"""The compiled part of the figures of regret: rivals of a slate, and what they are worth in each of some draws.

It is short, so it keeps the GIL. It keeps its results the same from run to run, and is cached on disk.

Letters: k positions, E eligible items, G draws, R rivals.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from topk_bandit.learning.compiled.allowed_moves import begin_early, prepare
from topk_bandit.learning.compiled.arrays import (
    are_equal,
    copy,
    find_largest,
    floats,
    integers,
    sort_descending,
    zeros,
)
from topk_bandit.learning.compiled.contraction import slate_mean
from topk_bandit.learning.compiled.options import FOR_LOOPS, FOR_PYTHON

__all__ = ["regrets", "rivals"]


@njit(**FOR_LOOPS)
def _put_best(scores, slate):
    """Set `slate` to the items with the largest scores, the first of equal ones, and these scores to -inf."""
    for a in range(slate.shape[0]):
        slate[a] = find_largest(scores)
        scores[slate[a]] = -np.inf


@njit(**FOR_LOOPS)
def _variance_of_items(covariance, slate, u):
    """Return the variance of the sum of u_p r_i over the items of the slate."""
    total = 0.0
    for a in range(slate.shape[0]):
        for b in range(slate.shape[0]):
            total += u[a] * covariance[slate[a], slate[b]] * u[b]
    return total


@njit(**FOR_PYTHON)
def rivals(weights, draws, rules, anchor, shown, best, count):
    """Return the slates shown and best (k,), and those of the items that are best in each of `count` draws, (G + 2, k).

    Under rules these are the first allowed ones with the best items early. Parameters: the contraction's weights; draws
    of the items' parts, (.., E); rules over the items and a slate that keeps them, or None and None.
    """
    moves = prepare(rules, anchor)
    compared = integers((count + 2, shown.shape[0]))
    copy(compared[0], shown)
    copy(compared[1], best)
    scores = floats(draws.shape[1])
    for i in range(count):
        for item in range(scores.shape[0]):
            scores[item] = weights[item] + draws[i, item]
        if rules is None:
            _put_best(scores, compared[i + 2])
        else:
            begin_early(moves, sort_descending(scores, scores.shape[0]), compared[i + 2])
    return compared


@njit(**FOR_PYTHON)
def regrets(weights, pair_weights, covariance, draws, normals, compared, explained, prior, amplitude, u, d, v, s):
    """Return by how much the best of the slates `compared` is better than the first in each draw, shape (G,).

    Parameters: the contraction's weights; the covariance of the items' parts (E, E), and draws of them (G, E); standard
    normal numbers for what slates deviate by beside these, (G, G + 2); the slates, and what the rows explain of their
    variances; c.c and s^2; the kernel's numbers.
    """
    shown = compared[0]
    out, own = zeros(draws.shape[0]), floats(draws.shape[0])
    for i in range(compared.shape[0]):
        slate = compared[i]
        # A slate that is the one shown is as good.
        if i > 0 and are_equal(slate, shown):
            continue
        variance = amplitude * max(prior - explained[i], 0.0)
        beside = math.sqrt(max(variance - _variance_of_items(covariance, slate, u), 0.0))
        mean = slate_mean(weights, pair_weights, slate, u, d, v, s)
        for g in range(draws.shape[0]):
            value = mean + beside * normals[g, i]
            for a in range(slate.shape[0]):
                value += u[a] * draws[g, slate[a]]
            if i == 0:
                own[g] = value
            else:
                out[g] = max(out[g], value - own[g])
    return out
