"""Models in the workers' memory: taken in when they are asked for, and put out when others need the room."""

from __future__ import annotations

import numpy as np
from numba import njit

from topk_bandit.lab.fleet.compiled.state import FREE, LOADING, READY
from topk_bandit.learning.compiled.options import FOR_LOOPS

__all__ = ["admit", "rest", "serves", "touch", "worker_of"]


@njit(**FOR_LOOPS)
def worker_of(state, rules, bandit, pick):
    """Return the worker that is called for a bandit, as far as callers know who lives; -1: none."""
    workers, order = state.workers, state.order
    if rules.everyone:
        chosen = int(pick * workers.member.sum())
        for worker in range(workers.member.shape[0]):
            chosen -= workers.member[worker]
            if chosen < 0:
                return worker
        return -1
    chosen, found = int(pick * state.bandits.readers[bandit]), -1
    for place in range(order.shape[1]):
        worker = order[bandit, place]
        if workers.member[worker]:
            found = worker
            if chosen == 0:
                break
            chosen -= 1
    return found


@njit(**FOR_LOOPS)
def serves(state, rules, bandit, worker):
    """Tell whether a worker is one of those that serve a bandit."""
    if rules.everyone:
        return True
    order, left = state.order, state.bandits.readers[bandit]
    for place in range(order.shape[1]):
        if order[bandit, place] == worker:
            return True
        left -= state.workers.member[order[bandit, place]]
        if left == 0:
            return False
    return False


@njit(**FOR_LOOPS)
def admit(state, worker, bandit, now):
    """Return a slot for a bandit that has none in a worker; -1 if all are in use just now."""
    workers, slots = state.workers, state.slots
    if workers.free[worker] < 0 and not _make_room(state, worker):
        return -1
    slot = workers.free[worker]
    workers.free[worker] = slots.older[slot]
    workers.models[worker] += 1
    workers.most_models[worker] = max(workers.most_models[worker], workers.models[worker])
    slots.bandit[slot], slots.state[slot], slots.is_looking[slot] = bandit, LOADING, 0
    slots.look_at[slot], slots.looked_at[slot], slots.used_at[slot] = np.inf, -np.inf, now
    slots.waiting[slot] = -1
    state.resident[bandit, worker] = slot
    _put_first(state, worker, slot)
    return slot


@njit(**FOR_LOOPS)
def touch(state, worker, slot, now):
    """Note that a model was asked for: it is the last to leave."""
    state.slots.used_at[slot] = now
    if state.workers.newest[worker] != slot:
        _take_out(state, worker, slot)
        _put_first(state, worker, slot)


@njit(**FOR_LOOPS)
def rest(state, worker, slot):
    """Put a model out of memory."""
    workers, slots = state.workers, state.slots
    _take_out(state, worker, slot)
    state.resident[slots.bandit[slot], worker] = -1
    slots.state[slot], slots.look_at[slot] = FREE, np.inf
    slots.token[slot] += 1
    slots.older[slot] = workers.free[worker]
    workers.free[worker] = slot
    workers.models[worker] -= 1


@njit(**FOR_LOOPS)
def _make_room(state, worker):
    """Let the model rest that was asked for least recently, of those that nobody works on."""
    slot = state.workers.oldest[worker]
    while slot >= 0:
        if state.slots.state[slot] == READY and not state.slots.is_looking[slot]:
            rest(state, worker, slot)
            return True
        slot = state.slots.newer[slot]
    return False


@njit(**FOR_LOOPS)
def _put_first(state, worker, slot):
    workers, slots = state.workers, state.slots
    newest = workers.newest[worker]
    slots.older[slot], slots.newer[slot] = newest, -1
    if newest < 0:
        workers.oldest[worker] = slot
    else:
        slots.newer[newest] = slot
    workers.newest[worker] = slot


@njit(**FOR_LOOPS)
def _take_out(state, worker, slot):
    workers, slots = state.workers, state.slots
    older, newer = slots.older[slot], slots.newer[slot]
    if older < 0:
        workers.oldest[worker] = newer
    else:
        slots.newer[older] = newer
    if newer < 0:
        workers.newest[worker] = older
    else:
        slots.older[newer] = older
