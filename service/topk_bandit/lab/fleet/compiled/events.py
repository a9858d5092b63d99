"""What happens in a fleet, one event after the other: nothing here is random."""

from __future__ import annotations

import heapq

import numpy as np
from numba import njit

from topk_bandit.lab.fleet.compiled.models import admit, rest, serves, touch, worker_of
from topk_bandit.lab.fleet.compiled.queues import append, drop_job, new_job, take
from topk_bandit.lab.fleet.compiled.state import (
    ANSWERED,
    AT_WORK,
    FAILED,
    FOLD,
    FREE,
    GONE,
    IN_STORE,
    LOAD,
    LOADING,
    QUEUED,
    READY,
    RECOMMEND,
    REFUSED,
    REWARD,
    WAITING,
)
from topk_bandit.learning.compiled.options import FOR_LOOPS, WITHOUT_LOCK

__all__ = ["fill", "run"]

_SLICED, _PASSED, _STORED, _REWARD_DUE, _LOOK, _DIES, _NOTICED, _RETURNS = range(8)
"""Kinds of events, each with two whole numbers."""

_GOLDEN = 0.6180339887498949


@njit(**WITHOUT_LOCK)
def fill(state, rules, times, asked, picks):
    """Have workers hold the models that calls before the start asked for: `times` are negative, in their order."""
    for number in range(times.shape[0]):
        bandit = asked[number]
        worker = worker_of(state, rules, bandit, picks[number])
        slot = state.resident[bandit, worker]
        if slot < 0:
            slot = admit(state, worker, bandit, times[number])
            state.slots.state[slot], state.slots.pause[slot] = READY, rules.longest_pause
            state.slots.seen_shown[slot] = state.bandits.shown[bandit]
            state.slots.seen_rewarded[slot] = state.bandits.rewarded[bandit]
        touch(state, worker, slot, times[number])


@njit(**WITHOUT_LOCK)
def run(state, rules, deaths, dying, end):
    """Let time pass until `end`; the workers `dying` die at the times `deaths`."""
    events = [(np.inf, 0, 0, 0)]
    for number in range(deaths.shape[0]):
        heapq.heappush(events, (deaths[number], _DIES, dying[number], 0))
    for slot in range(state.slots.state.shape[0]):
        if state.slots.state[slot] == READY:
            _look_later(state, events, slot, (slot * _GOLDEN % 1.0) * rules.longest_pause)
    due, number = state.calls.due, 0
    while True:
        now = events[0][0]
        if number < due.shape[0] and due[number] <= now:
            if due[number] > end:
                break
            _ask(state, rules, events, number, due[number])
            number += 1
        elif now > end:
            break
        else:
            event = heapq.heappop(events)
            _happen(state, rules, events, event)


@njit(**FOR_LOOPS)
def _happen(state, rules, events, event):
    now, kind, first, second = event
    if kind == _SLICED:
        _end_slice(state, rules, events, first, now)
    elif kind == _PASSED:
        _pass(state, rules, events, first, now)
    elif kind == _STORED:
        _end_group(state, rules, events, first, now)
    elif kind == _REWARD_DUE:
        _reward(state, rules, events, first, now)
    elif kind == _LOOK:
        if state.slots.token[first] == second:
            _look(state, rules, events, first, now)
    elif kind == _DIES:
        _die(state, rules, events, first, now)
    elif kind == _NOTICED:
        state.workers.member[first] = 0
    else:
        state.workers.alive[first] = state.workers.member[first] = 1


@njit(**FOR_LOOPS)
def _ask(state, rules, events, call, now):
    """Take a request for a slate, or refuse it."""
    calls, workers = state.calls, state.workers
    bandit = calls.bandit[call]
    worker = worker_of(state, rules, bandit, calls.pick[call])
    if worker < 0 or not workers.alive[worker]:
        calls.status[call] = FAILED
        return
    slot = state.resident[bandit, worker]
    is_new = slot < 0
    if state.in_hand[worker, RECOMMEND] < rules.most_calls and is_new:
        slot = admit(state, worker, bandit, now)
    if state.in_hand[worker, RECOMMEND] >= rules.most_calls or slot < 0:
        calls.status[call] = REFUSED
        workers.debt[worker] += rules.refuse
        return
    state.in_hand[worker, RECOMMEND] += 1
    if is_new:
        _to_store(state, rules, events, new_job(state, LOAD, slot, worker), now)
    touch(state, worker, slot, now)
    job = new_job(state, RECOMMEND, call, worker)
    if state.slots.state[slot] == LOADING:
        state.jobs.place[job], state.jobs.next[job] = WAITING, state.slots.waiting[slot]
        state.slots.waiting[slot] = job
    else:
        _compute(state, rules, events, job, rules.ask * calls.work[call], now)


@njit(**FOR_LOOPS)
def _reward(state, rules, events, call, now):
    """Take a reward; one that isn't taken comes again later."""
    calls, workers = state.calls, state.workers
    worker = worker_of(state, rules, calls.bandit[call], calls.reward_pick[call])
    if worker < 0 or not workers.alive[worker]:
        heapq.heappush(events, (now + rules.retry, _REWARD_DUE, call, 0))
    elif state.in_hand[worker, REWARD] >= rules.most_calls:
        workers.debt[worker] += rules.refuse
        heapq.heappush(events, (now + rules.retry, _REWARD_DUE, call, 0))
    else:
        state.in_hand[worker, REWARD] += 1
        _compute(state, rules, events, new_job(state, REWARD, call, worker), rules.give, now)


@njit(**FOR_LOOPS)
def _compute(state, rules, events, job, seconds, now):
    """Line a job up for its worker's cores; one that takes nothing waits for nobody."""
    state.jobs.left[job] = seconds
    if seconds <= 0.0:
        state.jobs.place[job] = AT_WORK
        heapq.heappush(events, (now, _PASSED, job, 0))
    elif state.workers.busy[state.jobs.worker[job]] < rules.cores:
        _begin_slice(state, rules, events, job, now)
    else:
        _line_up(state, job)


@njit(**FOR_LOOPS)
def _line_up(state, job):
    jobs, lines = state.jobs, state.lines
    jobs.place[job] = QUEUED
    line = 2 * jobs.worker[job] + (jobs.kind[job] >= FOLD)
    append(lines.head, lines.tail, line, jobs.next, job)


@njit(**FOR_LOOPS)
def _begin_slice(state, rules, events, job, now):
    jobs, workers = state.jobs, state.workers
    worker = jobs.worker[job]
    computed = min(jobs.left[job], rules.quantum)
    jobs.left[job] -= computed
    computed += workers.debt[worker]
    workers.debt[worker] = 0.0
    workers.busy[worker] += 1
    workers.turn[worker] = jobs.kind[job] < FOLD
    jobs.place[job] = AT_WORK
    if rules.measured_from <= now < rules.measured_to:
        state.computed[worker, jobs.kind[job]] += computed
    heapq.heappush(events, (now + computed, _SLICED, job, 0))


@njit(**FOR_LOOPS)
def _end_slice(state, rules, events, job, now):
    jobs, workers = state.jobs, state.workers
    worker = jobs.worker[job]
    if jobs.epoch[job] != workers.epoch[worker]:
        drop_job(state, job)
        return
    workers.busy[worker] -= 1
    if jobs.left[job] > 0.0:
        _line_up(state, job)
    else:
        _end_computing(state, rules, events, job, now)
    line = 2 * worker + workers.turn[worker]
    if state.lines.head[line] < 0:
        line = 4 * worker + 1 - line
    if state.lines.head[line] >= 0 and workers.busy[worker] < rules.cores:
        _begin_slice(state, rules, events, take(state.lines.head, line, jobs.next), now)


@njit(**FOR_LOOPS)
def _pass(state, rules, events, job, now):
    if state.jobs.epoch[job] == state.workers.epoch[state.jobs.worker[job]]:
        _end_computing(state, rules, events, job, now)
    else:
        drop_job(state, job)


@njit(**FOR_LOOPS)
def _end_computing(state, rules, events, job, now):
    """Send a job that has computed what it had to to the store, or end it."""
    jobs, calls = state.jobs, state.calls
    kind, who, worker = jobs.kind[job], jobs.who[job], jobs.worker[job]
    if kind <= REWARD and jobs.stage[job] == 0:
        _to_store(state, rules, events, job, now)
        return
    if kind == RECOMMEND:
        calls.status[who], calls.answered_at[who] = ANSWERED, now
        if calls.delay[who] < np.inf:
            heapq.heappush(events, (now + calls.delay[who], _REWARD_DUE, who, 0))
    elif kind == REWARD:
        calls.rewarded_at[who] = now
    elif kind == FOLD:
        _end_look(state, rules, events, who, now)
    else:
        _end_load(state, rules, events, who, now)
    if kind <= REWARD:
        state.in_hand[worker, kind] -= 1
    drop_job(state, job)


@njit(**FOR_LOOPS)
def _bandit_of(state, job):
    who = state.jobs.who[job]
    return state.calls.bandit[who] if state.jobs.kind[job] <= REWARD else state.slots.bandit[who]


@njit(**FOR_LOOPS)
def _to_store(state, rules, events, job, now):
    """Have a job call the store, which answers it with the others of its group."""
    shards = state.shards
    shard = state.bandits.shard[_bandit_of(state, job)]
    state.jobs.place[job] = IN_STORE
    append(shards.head, shards.tail, shard, state.jobs.next, job)
    if not shards.is_busy[shard]:
        _begin_group(state, rules, events, shard, now)


@njit(**FOR_LOOPS)
def _begin_group(state, rules, events, shard, now):
    """Have a shard take the calls that wait, and sync its log once if any of them writes."""
    shards, jobs = state.shards, state.jobs
    count, writes, last = 0, 0, -1
    job = shards.head[shard]
    shards.group[shard] = job
    while job >= 0 and count < rules.most_in_group:
        writes += jobs.kind[job] <= REWARD
        count, last, job = count + 1, job, jobs.next[job]
    jobs.next[last] = -1
    shards.head[shard], shards.is_busy[shard] = job, 1
    seconds = count * rules.store_call + (rules.sync if writes else 0.0)
    if rules.measured_from <= now < rules.measured_to:
        shards.busy_seconds[shard] += seconds
        shards.calls[shard] += count
        shards.groups[shard] += writes > 0
    heapq.heappush(events, (now + seconds, _STORED, shard, 0))


@njit(**FOR_LOOPS)
def _end_group(state, rules, events, shard, now):
    shards = state.shards
    job, shards.is_busy[shard] = shards.group[shard], 0
    while job >= 0:
        following = state.jobs.next[job]
        _end_writing(state, rules, events, job, now)
        job = following
    if shards.head[shard] >= 0 and not shards.is_busy[shard]:
        _begin_group(state, rules, events, shard, now)


@njit(**FOR_LOOPS)
def _end_writing(state, rules, events, job, now):
    """Note what a job has written, whether or not its worker lives, and let it go on if that does."""
    jobs, bandits, slots = state.jobs, state.bandits, state.slots
    kind, who, worker = jobs.kind[job], jobs.who[job], jobs.worker[job]
    if kind <= REWARD:
        bandit = state.calls.bandit[who]
        bandits.shown[bandit] += kind == RECOMMEND
        bandits.rewarded[bandit] += kind == REWARD
        _tell_followers(state, rules, events, bandit, now)
    if jobs.epoch[job] != state.workers.epoch[worker]:
        drop_job(state, job)
        return
    jobs.stage[job] = 1
    seconds = rules.answer
    if kind >= FOLD:
        slots.read_shown[who] = bandits.shown[slots.bandit[who]]
        slots.read_rewarded[who] = bandits.rewarded[slots.bandit[who]]
        seconds = rules.load if kind == LOAD else _folding(state, rules, who)
    _compute(state, rules, events, job, seconds, now)


@njit(**FOR_LOOPS)
def _folding(state, rules, slot):
    """Return what folding takes of what was read: all that is new, and the refits that are due by counts."""
    slots = state.slots
    refits = slots.read_rewarded[slot] // rules.rewards_between - slots.seen_rewarded[slot] // rules.rewards_between
    return (
        rules.look
        + (slots.read_shown[slot] - slots.seen_shown[slot]) * rules.shown
        + (slots.read_rewarded[slot] - slots.seen_rewarded[slot]) * rules.rewarded
        + refits * rules.refit
    )


@njit(**FOR_LOOPS)
def _tell_followers(state, rules, events, bandit, now):
    """Have workers with a bandit's model look at its log; one that has no part in it any more lets it rest."""
    slots, resident = state.slots, state.resident
    for worker in range(resident.shape[1]):
        slot = resident[bandit, worker]
        if slot < 0 or slots.state[slot] != READY or slots.is_looking[slot]:
            continue
        if serves(state, rules, bandit, worker):
            _look_later(state, events, slot, max(now, slots.looked_at[slot] + rules.gather))
        else:
            rest(state, worker, slot)


@njit(**FOR_LOOPS)
def _look_later(state, events, slot, at):
    """Have a log looked at, unless it will be sooner."""
    slots = state.slots
    if at < slots.look_at[slot]:
        slots.token[slot] += 1
        slots.look_at[slot] = at
        heapq.heappush(events, (at, _LOOK, slot, slots.token[slot]))


@njit(**FOR_LOOPS)
def _has_news(state, slot):
    slots, bandits = state.slots, state.bandits
    bandit = slots.bandit[slot]
    return slots.seen_shown[slot] < bandits.shown[bandit] or slots.seen_rewarded[slot] < bandits.rewarded[bandit]


@njit(**FOR_LOOPS)
def _look(state, rules, events, slot, now):
    """Look at a log; without news for long its model rests."""
    slots = state.slots
    worker = slot // (slots.state.shape[0] // state.workers.alive.shape[0])
    slots.look_at[slot] = np.inf
    if not _has_news(state, slot) and now >= slots.used_at[slot] + rules.idle:
        rest(state, worker, slot)
        return
    slots.is_looking[slot] = 1
    _to_store(state, rules, events, new_job(state, FOLD, slot, worker), now)


@njit(**FOR_LOOPS)
def _end_look(state, rules, events, slot, now):
    slots = state.slots
    grew = slots.read_shown[slot] + slots.read_rewarded[slot] > slots.seen_shown[slot] + slots.seen_rewarded[slot]
    slots.seen_shown[slot], slots.seen_rewarded[slot] = slots.read_shown[slot], slots.read_rewarded[slot]
    slots.is_looking[slot], slots.looked_at[slot] = 0, now
    if grew:
        slots.used_at[slot], slots.pause[slot] = now, rules.pause
    else:
        slots.pause[slot] = min(2.0 * slots.pause[slot], rules.longest_pause)
    pause = rules.gather if _has_news(state, slot) else slots.pause[slot]
    _look_later(state, events, slot, now + pause)


@njit(**FOR_LOOPS)
def _end_load(state, rules, events, slot, now):
    """Hold a model that is loaded, and compute the calls that waited for it."""
    slots, jobs = state.slots, state.jobs
    slots.state[slot], slots.pause[slot] = READY, rules.pause
    slots.seen_shown[slot], slots.seen_rewarded[slot] = slots.read_shown[slot], slots.read_rewarded[slot]
    _look_later(state, events, slot, now)
    job = slots.waiting[slot]
    while job >= 0:
        following = jobs.next[job]
        _compute(state, rules, events, job, rules.ask * state.calls.work[jobs.who[job]], now)
        job = following


@njit(**FOR_LOOPS)
def _die(state, rules, events, worker, now):
    """End a worker with all that it had in hand and in memory; another one comes in its place later."""
    workers, slots, jobs = state.workers, state.slots, state.jobs
    for job in range(jobs.place.shape[0]):
        if jobs.place[job] != GONE and jobs.worker[job] == worker and jobs.epoch[job] == workers.epoch[worker]:
            _fail(state, rules, events, job, now)
    per_worker = slots.state.shape[0] // workers.alive.shape[0]
    for slot in range(worker * per_worker, (worker + 1) * per_worker):
        if slots.state[slot] != FREE:
            rest(state, worker, slot)
    workers.alive[worker], workers.busy[worker], workers.debt[worker] = 0, 0, 0.0
    state.lines.head[2 * worker], state.lines.head[2 * worker + 1] = -1, -1
    state.in_hand[worker, :] = 0
    workers.epoch[worker] += 1
    heapq.heappush(events, (now + rules.noticed, _NOTICED, worker, 0))
    heapq.heappush(events, (now + rules.replaced, _RETURNS, worker, 0))


@njit(**FOR_LOOPS)
def _fail(state, rules, events, job, now):
    """Leave a job's caller without an answer. What computes or is in the store is dropped when that ends."""
    jobs = state.jobs
    if jobs.kind[job] == RECOMMEND:
        state.calls.status[jobs.who[job]] = FAILED
    elif jobs.kind[job] == REWARD:
        heapq.heappush(events, (now + rules.retry, _REWARD_DUE, jobs.who[job], 0))
    if jobs.place[job] in (QUEUED, WAITING):
        drop_job(state, job)
