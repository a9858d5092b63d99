"""Which of the latest observations are believed: see `learning.recent_observations`."""

from __future__ import annotations

import numpy as np
from numba import njit

from topk_bandit.learning.compiled.options import FOR_LOOPS, FOR_PYTHON

__all__ = ["BELIEVED", "BESIDE", "WILD_CONTEXT", "WILD_REWARD", "count", "is_wild_reward", "judge"]

BELIEVED, WILD_REWARD, WILD_CONTEXT = 0, 1, 2

BESIDE = 4
"""An observation is of a run if half of so many before and so many after it are wild, some of them on both sides."""

_LEAST_REWARD = 1e-100
"""A smaller reward is no measurement, but what an error left of one; 0 is a reward."""

_SLACK = 1.5
"""A believed value stays so until it is so many times as far as the robust range: at its edge nothing changes often."""


@njit(**FOR_PYTHON)
def count(verdicts, rewards, reward_sum):
    """Return a sum and then the rewards of believed observations, added one after the other, and how many are wild.

    Returns
    -------
    reward_sum, wild_rewards, wild_contexts
        See `learning.recent_observations.Counted`.
    """
    wild_rewards, wild_contexts = 0, 0
    for i in range(verdicts.shape[0]):
        if verdicts[i] == BELIEVED:
            reward_sum += rewards[i]
        wild_rewards += verdicts[i] == WILD_REWARD
        wild_contexts += verdicts[i] == WILD_CONTEXT
    return reward_sum, wild_rewards, wild_contexts


@njit(**FOR_PYTHON)
def is_wild_reward(reward, centre, reach):
    """Return whether a reward is farther from the centre than rewards are believed, or too small for a measurement."""
    return abs(reward - centre) > reach or 0.0 < abs(reward) < _LEAST_REWARD


@njit(**FOR_PYTHON)
def judge(before, rewards, centre, reach, norms, norm_reach, n_new):
    """Return the verdicts on observations, oldest first, (R,).

    Parameters
    ----------
    before
        The verdicts until now, shape (R,).
    rewards, norms
        Of slates, and of their contexts, shape (R,).
    centre, reach, norm_reach
        Of the rewards, and how far from it they are believed, and contexts from nothing; infinite for all.
    n_new
        So many of the last ones were not judged before.
    """
    count = before.shape[0]
    verdicts = np.empty(count, np.int8)
    wild = 0
    for i in range(count):
        slack = _SLACK if before[i] == BELIEVED and i < count - n_new else 1.0
        verdicts[i] = BELIEVED
        if norms[i] > slack * norm_reach:
            verdicts[i] = WILD_CONTEXT
        elif is_wild_reward(rewards[i], centre, slack * reach):
            verdicts[i] = WILD_REWARD
        wild += verdicts[i] != BELIEVED
    return _doubt_runs(verdicts) if wild and count > BESIDE else verdicts


@njit(**FOR_LOOPS)
def _doubt_runs(verdicts):
    """Return the verdicts with all of a run of wild ones: what came between wild ones, and what comes after them now.

    Where a unit is wrong for an hour some of the wrong values are as small as right ones. They do the most harm.
    """
    last = verdicts.shape[0] - 1
    doubted = np.empty(last + 1, np.int8)
    for i in range(last + 1):
        first, end = max(i - BESIDE, 0), min(i + BESIDE, last)
        wild_before, wild_after, contexts = 0, 0, 0
        for j in range(first, end + 1):
            wild_before += j < i and verdicts[j] != BELIEVED
            wild_after += j > i and verdicts[j] != BELIEVED
            contexts += verdicts[j] == WILD_CONTEXT
        is_between = wild_before > 0 and (wild_after > 0 or i == last)
        in_run = is_between and 2 * (wild_before + wild_after) >= end - first
        doubted[i] = verdicts[i]
        if in_run and verdicts[i] == BELIEVED:
            doubted[i] = WILD_CONTEXT if contexts else WILD_REWARD
    return doubted
