"""Jobs: taken from a pool, and lined up."""

from __future__ import annotations

from numba import njit

from topk_bandit.lab.fleet.compiled.state import GONE
from topk_bandit.learning.compiled.options import FOR_LOOPS

__all__ = ["append", "drop_job", "new_job", "take"]


@njit(**FOR_LOOPS)
def new_job(state, kind, who, worker):
    """Return a job of a worker: `who` is the call or the slot that it is for."""
    jobs = state.jobs
    job = state.free_job[0]
    state.free_job[0] = jobs.next[job]
    jobs.kind[job], jobs.who[job], jobs.worker[job] = kind, who, worker
    jobs.epoch[job], jobs.stage[job], jobs.left[job] = state.workers.epoch[worker], 0, 0.0
    jobs.next[job] = -1
    return job


@njit(**FOR_LOOPS)
def drop_job(state, job):
    """Give a job back to the pool."""
    jobs = state.jobs
    jobs.place[job], jobs.next[job] = GONE, state.free_job[0]
    state.free_job[0] = job


@njit(**FOR_LOOPS)
def append(heads, tails, at, following, job):
    """Append a job to the line number `at`."""
    following[job] = -1
    if heads[at] < 0:
        heads[at] = job
    else:
        following[tails[at]] = job
    tails[at] = job


@njit(**FOR_LOOPS)
def take(heads, at, following):
    """Take the first job of a line that has one."""
    job = heads[at]
    heads[at] = following[job]
    following[job] = -1
    return job
