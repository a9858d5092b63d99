"""A fleet and its traffic, simulated event by event from a seed."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from topk_bandit.lab.fleet.compiled import events
from topk_bandit.lab.fleet.compiled.state import (
    BANDITS,
    CALLS,
    CLASSES,
    JOBS,
    LINES,
    SHARDS,
    SLOTS,
    WORKERS,
    Rules,
    State,
)
from topk_bandit.lab.fleet.ownership import readers, rendezvous_order
from topk_bandit.lab.fleet.results import Results
from topk_bandit.lab.fleet.scenario import Chance, Serving

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topk_bandit.lab.fleet.scenario import Death, Fleet, Traffic

__all__ = ["popularity", "simulate"]

FloatArray = NDArray[np.float64]
Records = NDArray[np.void]

_DRAINING_SECONDS = 10.0
"""After the last request: so long answers may come, and models may fold what is left."""

_SPARE_OWNERS = 3
"""So many workers that a bandit needs may be dead at once."""

_MOST_CALLS = 1 << 40
"""More than there ever are."""


def popularity(traffic: Traffic) -> FloatArray:
    """Return the share of requests that each bandit gets, shape (bandits,)."""
    weights = np.arange(1, traffic.bandits + 1, dtype=np.float64) ** -traffic.zipf
    return np.asarray(weights / weights.sum())


def simulate(fleet: Fleet, traffic: Traffic, *, seed: int, deaths: Sequence[Death] = ()) -> Results:
    """Return what becomes of the calls, and what the fleet does for them.

    Parameters
    ----------
    seed
        Of requests, of what chance decides of each, and of nothing else: the rest follows.
    deaths
        In the order of their times.
    """
    rng = np.random.default_rng(seed)
    shares = popularity(traffic)
    calls = _calls(traffic, shares, rng)
    rules = _rules(fleet, traffic)
    state = _state(fleet, traffic, shares, calls, rng)
    events.fill(state, rules, *_earlier(fleet, traffic, shares, rng))
    dying = np.array([death.worker for death in deaths], dtype=np.int64)
    times = np.array([death.at for death in deaths], dtype=np.float64)
    events.run(state, rules, times, dying, traffic.seconds + _DRAINING_SECONDS)
    return Results(fleet, traffic, state)


def _calls(traffic: Traffic, shares: FloatArray, rng: np.random.Generator) -> Records:
    count = int(rng.poisson(traffic.pairs * traffic.seconds))
    exponential = traffic.chance is Chance.EXPONENTIAL
    return _records(
        CALLS,
        count,
        due=np.sort(rng.uniform(0.0, traffic.seconds, size=count)),
        bandit=_draw_places(shares, count, rng),
        pick=rng.random(count),
        reward_pick=rng.random(count),
        delay=traffic.reward_seconds,
        work=rng.exponential(size=count) if exponential else 1.0,
        answered_at=np.nan,
        rewarded_at=np.nan,
    )


def _draw_places(shares: FloatArray, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    found = np.searchsorted(np.cumsum(shares), rng.random(count), side="right")
    return np.minimum(found, len(shares) - 1).astype(np.int64)


def _earlier(
    fleet: Fleet, traffic: Traffic, shares: FloatArray, rng: np.random.Generator
) -> tuple[FloatArray, NDArray[np.int64], FloatArray]:
    """Return requests before the start, of as long as models are kept that nobody needs."""
    count = int(rng.poisson(traffic.pairs * fleet.idle))
    times = np.sort(rng.uniform(-fleet.idle, 0.0, size=count))
    return times, _draw_places(shares, count, rng), rng.random(count)


def _rules(fleet: Fleet, traffic: Traffic) -> Rules:
    costs = fleet.costs
    return Rules(
        cores=fleet.cores,
        quantum=fleet.quantum,
        most_calls=fleet.most_calls,
        most_in_group=fleet.most_in_group or _MOST_CALLS,
        everyone=int(fleet.serving is Serving.EVERYONE),
        ask=max(costs.recommend - costs.answer, 0.0),
        give=max(costs.reward - costs.answer, 0.0),
        answer=costs.answer,
        refuse=costs.refuse,
        look=costs.look,
        shown=costs.shown,
        rewarded=costs.rewarded,
        refit=costs.refit,
        rewards_between=costs.rewards_between,
        load=costs.load,
        store_call=costs.store_call,
        sync=costs.sync,
        gather=fleet.gather,
        pause=fleet.pause,
        longest_pause=fleet.longest_pause,
        idle=fleet.idle,
        retry=fleet.retry,
        noticed=fleet.noticed,
        replaced=fleet.replaced,
        measured_from=traffic.settling,
        measured_to=traffic.seconds,
    )


def _state(fleet: Fleet, traffic: Traffic, shares: FloatArray, calls: Records, rng: np.random.Generator) -> State:
    slots_of_each = min(fleet.models_of_a_worker, traffic.bandits)
    n_slots = fleet.workers * slots_of_each
    in_hand = min(2 * fleet.workers * fleet.most_calls, 2 * len(calls))
    # A worker that dies leaves its jobs in the store; as many may be there again.
    n_jobs = 2 * (in_hand + n_slots) + 1
    serving = readers(shares * traffic.pairs, most_pairs=fleet.pairs_of_a_reader, workers=fleet.workers)
    return State(
        calls,
        _bandits(fleet, serving, rng),
        _workers(fleet.workers, slots_of_each),
        _records(LINES, 2 * fleet.workers, head=-1, tail=-1),
        _records(SHARDS, fleet.shards, head=-1, tail=-1, group=-1),
        _slots(n_slots, slots_of_each),
        _records(JOBS, n_jobs, next=_list_of(n_jobs, n_jobs)),
        resident=np.full((traffic.bandits, fleet.workers), -1, dtype=np.int64),
        order=_order(fleet, serving),
        in_hand=np.zeros((fleet.workers, 2), dtype=np.int64),
        computed=np.zeros((fleet.workers, CLASSES)),
        free_job=np.zeros(1, dtype=np.int64),
    )


def _records(layout: np.dtype[np.void], count: int, **fields: ArrayLike) -> Records:
    """Return so many records of a layout, zero but for the fields that are given."""
    made = np.zeros(count, dtype=layout)
    for name, values in fields.items():
        made[name] = values
    return made


def _bandits(fleet: Fleet, serving: NDArray[np.int64], rng: np.random.Generator) -> Records:
    count = len(serving)
    readers_of_each = serving if fleet.serving is Serving.OWNERS else 1
    rewarded = rng.integers(fleet.costs.rewards_between, size=count)  # refits come at any time
    shard = rng.integers(fleet.shards, size=count)
    return _records(BANDITS, count, shard=shard, readers=readers_of_each, rewarded=rewarded)


def _order(fleet: Fleet, serving: NDArray[np.int64]) -> NDArray[np.int64]:
    if fleet.serving is Serving.EVERYONE:
        return np.zeros((1, 1), dtype=np.int64)
    depth = int(serving.max()) + _SPARE_OWNERS if fleet.serving is Serving.OWNERS else 1
    return rendezvous_order(len(serving), fleet.workers, depth=depth)


def _workers(count: int, slots_of_each: int) -> Records:
    first = np.arange(count) * slots_of_each
    return _records(WORKERS, count, alive=1, member=1, newest=-1, oldest=-1, free=first)


def _slots(count: int, slots_of_each: int) -> Records:
    """Return free slots: each worker's are a list."""
    following = _list_of(count, slots_of_each)
    nowhere = {"bandit": -1, "newer": -1, "waiting": -1}
    return _records(SLOTS, count, older=following, look_at=math.inf, looked_at=-math.inf, **nowhere)


def _list_of(count: int, of_each: int) -> NDArray[np.int64]:
    """Return what follows each, in lists of `of_each`."""
    following = np.arange(1, count + 1, dtype=np.int64)
    following[of_each - 1 :: of_each] = -1
    return following
