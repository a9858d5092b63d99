"""What a simulated fleet is made of, as plain arrays: workers, shards, jobs, and models in workers.

Times are seconds, and -1 stands for none in all that points to something. A *slot* is a place for one model in a
worker's memory. A *job* is what a worker is to compute, for a call or for a model, until it is done.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "ANSWERED",
    "AT_WORK",
    "BANDITS",
    "CALLS",
    "CLASSES",
    "FAILED",
    "FOLD",
    "FREE",
    "GONE",
    "IN_STORE",
    "JOBS",
    "LINES",
    "LOAD",
    "LOADING",
    "OPEN",
    "QUEUED",
    "READY",
    "RECOMMEND",
    "REFUSED",
    "REWARD",
    "SHARDS",
    "SLOTS",
    "WAITING",
    "WORKERS",
    "Rules",
    "State",
]

Floats = NDArray[np.float64]
Wholes = NDArray[np.int64]

RECOMMEND, REWARD, FOLD, LOAD = range(4)
"""Kinds of jobs."""
CLASSES = 4

GONE, QUEUED, AT_WORK, IN_STORE, WAITING = range(5)
"""Where a job is; WAITING for a model to be loaded."""

OPEN, ANSWERED, REFUSED, FAILED = range(4)
"""What became of a call."""

FREE, LOADING, READY = range(3)
"""What a slot holds."""


class Rules(NamedTuple):
    """What holds for all workers and shards; costs are seconds of one core.

    Attributes
    ----------
    quantum
        So long a job computes at most before the others of the worker have their turn: calls and models by turns.
    most_calls
        So many Recommends, and as many Rewards, a worker has in hand before it refuses more.
    most_in_group
        So many calls a shard answers with one sync at most.
    everyone
        Whether every worker serves every bandit: 1, or 0.
    ask, give
        What a Recommend and a Reward take before the store is called.
    answer
        What either takes after that.
    measured_from, measured_to
        When what is computed counts.
    """

    cores: int
    quantum: float
    most_calls: int
    most_in_group: int
    everyone: int
    ask: float
    give: float
    answer: float
    refuse: float
    look: float
    shown: float
    rewarded: float
    refit: float
    rewards_between: int
    load: float
    store_call: float
    sync: float
    gather: float
    pause: float
    longest_pause: float
    idle: float
    retry: float
    noticed: float
    replaced: float
    measured_from: float
    measured_to: float


CALLS = np.dtype(
    [
        ("due", "f8"), ("bandit", "i8"), ("pick", "f8"), ("reward_pick", "f8"), ("delay", "f8"), ("work", "f8"),
        ("status", "i8"), ("answered_at", "f8"), ("rewarded_at", "f8"),
    ]
)  # fmt: skip
"""A request for a slate: when, for which bandit, and what chance says of it.

`pick` and `reward_pick` are uniform numbers: which of the workers that serve the bandit is called. `delay` is how long
after its slate a reward comes, infinite for never; `work` by how much more than usual deciding takes. The rest is what
becomes of it.
"""

BANDITS = np.dtype([("shard", "i8"), ("readers", "i8"), ("shown", "i8"), ("rewarded", "i8")])
"""Where a bandit's log is, how many workers serve it, and how many slates and rewards its log has."""

WORKERS = np.dtype(
    [
        ("alive", "i8"), ("member", "i8"), ("epoch", "i8"), ("busy", "i8"), ("turn", "i8"),
        ("debt", "f8"), ("free", "i8"), ("newest", "i8"), ("oldest", "i8"), ("models", "i8"), ("most_models", "i8"),
    ]
)  # fmt: skip
"""`member` is whether callers believe that a worker lives; `debt` what it is to compute for calls that it refused;
`turn` which of its two lines has its turn."""

LINES = np.dtype([("head", "i8"), ("tail", "i8")])
"""The jobs that wait for a worker's cores: number 2 w has worker w's calls, number 2 w + 1 its models'."""

SHARDS = np.dtype(
    [
        ("head", "i8"), ("tail", "i8"), ("group", "i8"), ("is_busy", "i8"), ("busy_seconds", "f8"), ("calls", "i8"),
        ("groups", "i8"),
    ]
)  # fmt: skip
"""A shard of the store: calls that wait, the group under way, and how long it was busy."""

SLOTS = np.dtype(
    [
        ("bandit", "i8"), ("state", "i8"), ("is_looking", "i8"), ("token", "i8"), ("look_at", "f8"),
        ("looked_at", "f8"), ("pause", "f8"), ("used_at", "f8"), ("seen_shown", "i8"), ("seen_rewarded", "i8"),
        ("read_shown", "i8"), ("read_rewarded", "i8"), ("older", "i8"), ("newer", "i8"), ("waiting", "i8"),
    ]
)  # fmt: skip
"""A place of a model; `older` is also the next free one."""

JOBS = np.dtype(
    [
        ("kind", "i8"), ("who", "i8"), ("worker", "i8"), ("epoch", "i8"), ("stage", "i8"), ("place", "i8"),
        ("left", "f8"), ("next", "i8"),
    ]
)  # fmt: skip
"""`next` is of whatever list a job is in."""

Records = NDArray[np.void]


class State(NamedTuple):
    """All of it: records as above, few arrays, since each is told to every function that is called.

    Attributes
    ----------
    resident
        The slot of each bandit in each worker, shape (bandits, workers).
    order
        Workers of each bandit, best first, where not all serve it.
    in_hand
        Calls that each worker has, shape (workers, 2).
    computed
        Seconds by what they were for, shape (workers, `CLASSES`).
    free_job
        The first job of the pool, shape (1,).
    """

    calls: Records
    bandits: Records
    workers: Records
    lines: Records
    shards: Records
    slots: Records
    jobs: Records
    resident: Wholes
    order: Wholes
    in_hand: Wholes
    computed: Floats
    free_job: Wholes
