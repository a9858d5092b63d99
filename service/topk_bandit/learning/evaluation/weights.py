"""Weights of logged rewards by which their mean is that of another policy, and what these weights vary by.

The second moments are expectations over all slates that could have been shown: rare slates with large weights, which a
log may not have by chance, count in them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from topk_bandit.learning.evaluation.slate_log import share_of_each

if TYPE_CHECKING:
    from topk_bandit.learning.evaluation.slate_log import LoggingPolicy, SlateLog
    from topk_bandit.learning.evaluation.targets import Target

__all__ = ["Weights", "importance_weights", "mean_weight_of_uniform", "pseudo_inverse_weights"]

FloatArray = NDArray[np.float64]

_NOTHING = 1e-10


class Weights(NamedTuple):
    """Of the slates shown, shape (N,), and the expected squares over the slates that could have been, shape (N,)."""

    values: FloatArray
    second_moments: FloatArray


def importance_weights(log: SlateLog, target: Target) -> Weights:
    """Return pi(s) / mu(s): the target's probability of a slate by the logging policy's."""
    policy = log.policy
    values = target.probability_of(log.slates) / policy.propensities(log.slates)
    second = target.uniform_share * _mean_weight_of_uniform(policy, target)
    for slates, probabilities in target.lists():
        second = second + probabilities * target.probability_of(slates) / policy.propensities(slates)
    return Weights(values, second)


def mean_weight_of_uniform(
    each: FloatArray, far: FloatArray, best: FloatArray, near: FloatArray, n_near: NDArray[np.integer]
) -> FloatArray:
    """Return the mean weight that a uniform policy gives to a slate that it draws, shape (N,).

    Parameters
    ----------
    each
        One by the number of slates.
    far
        The probability of each slate by the uniform share of the log.
    best, near
        What b has beside that, and what each of the `n_near` slates near b has, all of shape (N,).
    """
    # Each of b, the slates near it, and all others: how many there are by their probability.
    of_all = each / (best + far) + n_near * each / (near + far)
    return np.asarray(each * (of_all + np.maximum(1.0 - (1 + n_near) * each, 0.0) / far))


def _mean_weight_of_uniform(policy: LoggingPolicy, target: Target) -> FloatArray:
    """Return the mean weight of a slate drawn uniformly, shape (N,)."""
    each = share_of_each(policy.n_eligible, policy.slate_size)
    of_all = mean_weight_of_uniform(
        each, policy.uniform_share * each, policy.share_of_best, policy.share_of_each_near, policy.n_near
    )
    total = target.uniform_share * of_all
    for slates, probabilities in target.lists():
        total = total + probabilities * each / policy.propensities(slates)
    return np.asarray(total)


def pseudo_inverse_weights(log: SlateLog, target: Target) -> Weights:
    """Return q' Gamma^+ 1_s of the slates shown (Swaminathan et al. 2017, Eq. 3).

    1_s says which item is at which position, q is its expectation under the target, and Gamma that of 1_s 1_s' under
    the logging policy. Items that b does not show are alike to the logging policy. So Gamma falls apart: into a matrix
    of k (k + 1) rows, for b's items and the mean of all others, and k rows for what others differ by from their mean.
    Both are the same for all requests with as many eligible items and the same shares.
    """
    policy, size = log.policy, log.policy.slate_size
    kinds = np.column_stack([policy.n_eligible, policy.near_share, policy.uniform_share])
    _, first, kind = np.unique(kinds, axis=0, return_index=True, return_inverse=True)
    of_b, of_others = target.position_matches(policy.best), target.position_matches(log.slates)
    shown = (log.slates[:, :, None] == policy.best[:, None, :]).astype(float)
    products, outside = _products_of_others(policy, target), 1.0 - shown.sum(axis=2)
    wanted_outside = 1.0 - of_b.sum(axis=2)
    values, second = np.empty(len(log)), np.empty(len(log))
    for number, one in enumerate(first.tolist()):
        rows = kind.ravel() == number
        others = int(policy.n_eligible[one]) - size
        joint, apart = _inverses(policy, one)
        q, z = (_reduce(*pair, others) for pair in ((of_b[rows], wanted_outside[rows]), (shown[rows], outside[rows])))
        values[rows] = ((q @ joint) * z).sum(axis=1)
        second[rows] = ((q @ joint) * q).sum(axis=1)
        if others:
            met = of_others[rows] * outside[rows][:, None, :]
            values[rows] += _apart(apart, met, wanted_outside[rows], outside[rows], others)
            second[rows] += _apart(apart, products[rows], wanted_outside[rows], wanted_outside[rows], others)
    return Weights(values, second)


def _reduce(of_b: FloatArray, outside: FloatArray, others: int) -> FloatArray:
    """Return coordinates (N, k (k + 1)): positions by b's items, then positions by the mean of all other items."""
    mean = outside / np.sqrt(max(others, 1))
    return np.concatenate([of_b.reshape(len(of_b), -1), mean], axis=1)


def _apart(inverse: FloatArray, products: FloatArray, left: FloatArray, right: FloatArray, others: int) -> FloatArray:
    """Return products (N, k, k) of what items differ by from their mean, by the inverse (k, k) of their moments."""
    centred = products - left[:, :, None] * right[:, None, :] / others
    return np.asarray(np.einsum("jl,njl->n", inverse, centred))


def _products_of_others(policy: LoggingPolicy, target: Target) -> FloatArray:
    """Return, of pairs of positions, sum_i q_ji q_li over the items that b does not show, shape (N, k, k)."""
    outside = 1.0 - target.position_matches(policy.best).sum(axis=2)
    of_uniform = target.uniform_share / target.n_eligible
    total = np.repeat((of_uniform[:, None] * outside)[:, :, None], policy.slate_size, axis=2)
    for slates, probabilities in target.lists():
        away = (slates[:, :, None] != policy.best[:, None, :]).all(axis=2)
        total += target.position_matches(slates) * (probabilities[:, None] * away)[:, None, :]
    return total


def _inverses(policy: LoggingPolicy, request: int) -> tuple[FloatArray, FloatArray]:
    """Return the pseudo-inverses of one request's moments: in the coordinates of `_reduce`, and of differences."""
    size, items = policy.slate_size, int(policy.n_eligible[request])
    near, uniform = float(policy.share_of_each_near[request]), float(policy.uniform_share[request])
    rows, chances = _b_and_near(size, items - size, best=float(policy.share_of_best[request]), near=near)
    joint = (rows.T * chances) @ rows + uniform * _uniform_moments(size, items)
    apart = np.full((size, size), -uniform / (items * max(items - 1, 1)))
    np.fill_diagonal(apart, near + uniform / items)
    inverses = (np.linalg.pinv(one, rcond=_NOTHING, hermitian=True) for one in (joint, apart))
    of_joint, of_apart = (np.asarray(one, dtype=float) for one in inverses)
    return of_joint, of_apart


def _b_and_near(size: int, others: int, *, best: float, near: float) -> tuple[FloatArray, FloatArray]:
    """Return b and the slates near it in the coordinates of `_reduce`, alike ones once, and their probabilities."""
    first, second = np.triu_indices(size, 1)
    rows = np.zeros((1 + size + len(first), size * (size + 1)))
    of_b = rows[:, : size * size].reshape(-1, size, size)
    of_b[:] = np.eye(size)
    replaced = np.arange(size)
    of_b[1 + replaced, replaced, replaced] = 0.0
    rows[1 + replaced, size * size + replaced] = 1.0 / np.sqrt(max(others, 1))
    swapped = 1 + size + np.arange(len(first))
    of_b[swapped, first, first] = of_b[swapped, second, second] = 0.0
    of_b[swapped, first, second] = of_b[swapped, second, first] = 1.0
    rows[:, : size * size] = of_b.reshape(len(rows), -1)
    return rows, np.repeat([best, near * others, near], [1, size, len(first)])


def _uniform_moments(size: int, items: int) -> FloatArray:
    """Return the moments of a slate drawn uniformly, in the coordinates of `_reduce`."""
    others = items - size
    pairs = np.repeat(np.arange(size), size), np.tile(np.arange(size), size)
    position, item = (
        np.concatenate([one, tail]) for one, tail in zip(pairs, (np.arange(size), [-1] * size), strict=True)
    )
    mass = np.where(item < 0, np.sqrt(others), 1.0)  # what all items have together in a coordinate of unit length
    there = np.minimum(mass, 1.0)
    apart = (position[:, None] != position) / (items * max(items - 1, 1))
    return np.asarray(apart * (np.outer(mass, mass) - (item[:, None] == item) * there) + np.diag(there) / items)
