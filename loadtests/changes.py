"""What a reward that changes costs worker and store, beside a reward that is final: in turns, in one service."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import redis

from figures import Bench, Outcome, mean_with_error, ratio_with_error
from machine import cpu_seconds
from served import CALL_SECONDS, LEARNING_SECONDS, TENANT, service, worker_pid
from topk_bandit.client import Aggregation, Client

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from figures import Report

__all__ = ["changes"]

N_ITEMS, SLATE_SIZE, CONTEXT = 50, 6, 5
REWARDS, TURNS, WARM_UP_TURNS = 300, 40, 2
CALLS = 28
"""In a turn of a second: 10^5 an hour."""
SETTLING_SECONDS = 0.3

FINAL, CHANGING = "final", "changing"
SETTINGS: Mapping[str, Mapping[str, Any]] = {
    FINAL: {},
    CHANGING: {
        "provisional_after": timedelta(0),
        "reward_wait": timedelta(days=14),
        "default_reward": 0.0,
        "reward_aggregation": Aggregation.SUM,
    },
}


class _Job(NamedTuple):
    rewards: int
    turns: int


class _Spent(NamedTuple):
    """Seconds of processor time."""

    worker: float
    store: float


def changes(bench: Bench) -> Outcome:
    """Post rewards to a bandit that takes one for each slate, and to one that has learned its slates as defaults."""
    job = _Job(bench.scaled(REWARDS, 30), bench.scaled(TURNS, 3))
    spent, figures = bench.alone(_measure, job), []
    for place, part in enumerate(_Spent._fields):
        final, changed = (np.array([one[place] for one in spent[kind]]) / CALLS for kind in (FINAL, CHANGING))
        figures += [
            mean_with_error(f"{part}_final", f"{part}: CPU of a final reward", final * 1e3, unit="ms"),
            mean_with_error(f"{part}_change", f"{part}: CPU of a change", changed * 1e3, unit="ms"),
            ratio_with_error(f"{part}_ratio", f"{part}: a change / a final reward", changed, final),
        ]
    settings = {"n": N_ITEMS, "k": SLATE_SIZE, "C": CONTEXT, "rewards_before": job.rewards, "turns": job.turns}
    return Outcome(figures, {**settings, "calls_a_second": CALLS, "store": "embedded"})


def _measure(job: _Job, report: Report) -> dict[str, list[_Spent]]:
    with service() as (supervisor, folder), Client(supervisor.address, tenant=TENANT, timeout=CALL_SECONDS) as client:
        shops = {kind: _Shop(client, kind) for kind in SETTINGS}
        for shop in shops.values():
            shop.fill(job.rewards)
        meter, rng = _Meter(folder), np.random.default_rng(3)
        spent: dict[str, list[_Spent]] = {kind: [] for kind in SETTINGS}
        for turn in range(WARM_UP_TURNS + job.turns):
            for shop in shops.values():
                shop.show(CALLS)
            for kind in rng.permutation(list(SETTINGS)).tolist():
                seconds = meter.spend(shops[kind])
                if turn >= WARM_UP_TURNS:
                    spent[kind].append(seconds)
            report(turn + 1, WARM_UP_TURNS + job.turns)
        return spent


class _Shop:
    """A bandit, and slates whose rewards are to come: the newest where they are final, else any that are learned."""

    def __init__(self, client: Client, kind: str) -> None:
        self._client, self._kind = client, kind
        self._rng, self._slates = np.random.default_rng(4), list[str]()
        client.create_bandit(
            kind, slate_size=SLATE_SIZE, item_capacity=N_ITEMS, context_dimension=CONTEXT, **SETTINGS[kind]
        )
        client.upsert_items(kind, [f"item-{number}" for number in range(N_ITEMS)])

    def fill(self, rewards: int) -> None:
        """Have the bandit learn so many rewards; those of the second kind are left to change later."""
        for _ in range(rewards // CALLS + 1):
            self.show(CALLS)
            if self._kind == FINAL:
                for _ in range(CALLS):
                    self.reward()

    def show(self, count: int) -> None:
        """Give out slates, and wait until all that is known of them is learned."""
        for _ in range(count):
            slate = self._client.recommend(self._kind, [1.0, *self._rng.normal(size=CONTEXT - 1).tolist()])
            self._slates.append(slate.id)
        deadline, due = time.monotonic() + LEARNING_SECONDS, 0
        while time.monotonic() < deadline:
            stats = self._client.stats(self._kind)
            due = 0 if self._kind == FINAL else stats.recommendation_count
            if stats.model_version == stats.log_position and stats.observation_count >= due:
                return
            time.sleep(0.05)
        raise TimeoutError(f"{due} rewards are not learned within {LEARNING_SECONDS:.0f} seconds")

    def reward(self) -> None:
        """Post the reward of a slate, which has none yet."""
        place = len(self._slates) - 1 if self._kind == FINAL else int(self._rng.integers(len(self._slates)))
        self._client.reward(self._kind, self._slates.pop(place), float(self._rng.normal()), reward_id="order")


class _Meter:
    """The processor time of worker and store, without what they take when nobody calls."""

    def __init__(self, folder: Path) -> None:
        self._pid, self._store = worker_pid(), redis.Redis(unix_socket_path=str(folder / "valkey.sock"))
        before, begun = self._read(), time.perf_counter()
        time.sleep(5.0)
        self._idle = _Spent(*(np.subtract(self._read(), before) / (time.perf_counter() - begun)).tolist())

    def _read(self) -> _Spent:
        used = self._store.info("cpu")
        return _Spent(cpu_seconds(self._pid), used["used_cpu_user"] + used["used_cpu_sys"])

    def spend(self, shop: _Shop) -> _Spent:
        """Return what the calls of a turn cost until they are learned, sent over a second."""
        before, begun = self._read(), time.perf_counter()
        for number in range(CALLS):
            time.sleep(max(begun + number / CALLS - time.perf_counter(), 0.0))
            shop.reward()
        time.sleep(SETTLING_SECONDS)
        spent = np.subtract(self._read(), before) - (time.perf_counter() - begun) * np.array(self._idle)
        return _Spent(*spent.tolist())
