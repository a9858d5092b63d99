"""What a pair costs a service of several workers, beside a service of one: the same load on each, in turns."""

from __future__ import annotations

import multiprocessing
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from figures import Bench, Figure, Outcome
from machine import cpu_seconds
from served import CALL_SECONDS, TENANT, settings_in
from topk_bandit.client import Client
from topk_bandit.process import logs
from topk_bandit.process.supervisor import Supervisor

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["several_workers"]

N_ITEMS, SLATE_SIZE, CONTEXT = 50, 6, 5
BANDITS, REWARDS, RATE, SECONDS = 20, 30, 25.0, 20
CALLERS = 8
WORKERS = (1, 2, 4)
IDLE_SECONDS = 5.0
TURNS = 3


def several_workers(bench: Bench) -> Outcome:
    """Ask many bandits, and then one, of services of 1, 2 and 4 workers; callers have a client over gRPC each."""
    turns, seconds, rewards = bench.scaled(TURNS, 1), bench.scaled(SECONDS, 3), bench.scaled(REWARDS, 8)
    figures, done = [], 0
    for key, title, bandits in (("many", f"{BANDITS} bandits", BANDITS), ("hot", "one bandit", 1)):
        spent: dict[int, list[float]] = {workers: [] for workers in WORKERS}
        for turn in range(turns):
            for workers in WORKERS:
                spent[workers].append(_measure(workers, bandits, rewards * BANDITS // bandits, seconds, seed=turn))
                done += 1
                bench.report(done, 2 * turns * len(WORKERS))
        means = {workers: float(np.mean(of_turns)) for workers, of_turns in spent.items()}
        figures += [
            Figure(f"{key}_{workers}", f"{title}, {workers} workers: CPU of a pair", mean * 1e3, "ms")
            for workers, mean in means.items()
        ]
        figures += [
            Figure(f"{key}_ratio_{workers}", f"{title}, {workers} workers / 1", means[workers] / means[1])
            for workers in WORKERS[1:]
        ]
    settings = {"n": N_ITEMS, "k": SLATE_SIZE, "C": CONTEXT, "rewards_before": rewards, "pairs_a_second": RATE}
    return Outcome(figures, {**settings, "seconds": seconds, "turns": turns, "callers": CALLERS, "store": "embedded"})


def _measure(workers: int, bandits: int, rewards: int, seconds: float, *, seed: int) -> float:
    """Return the processor time that all workers take for a pair, less what they take when nobody calls."""
    logs.configure("text", level="ERROR")
    names = [f"home-{number}" for number in range(bandits)]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="topk-bandit-bench-")))
        supervisor = stack.enter_context(Supervisor(replace(settings_in(folder), workers=workers)))
        pids = [int(child.pid or 0) for child in multiprocessing.active_children() if "topk-bandit" in child.name]
        opened = (Client(supervisor.address, tenant=TENANT, timeout=CALL_SECONDS) for _ in range(CALLERS))
        clients = [stack.enter_context(one) for one in opened]
        _fill(clients[0], names, rewards, np.random.default_rng(seed))
        _meet(clients, names)
        before = _cpu(pids)
        time.sleep(IDLE_SECONDS)
        idle = (_cpu(pids) - before) / IDLE_SECONDS
        callers = stack.enter_context(ThreadPoolExecutor(CALLERS))
        begun, before = time.perf_counter(), _cpu(pids)
        calls = [
            callers.submit(_call, one, names, seconds, seed * CALLERS + place) for place, one in enumerate(clients)
        ]
        pairs = sum(one.result() for one in calls)
        return (_cpu(pids) - before - idle * (time.perf_counter() - begun)) / pairs


def _cpu(pids: Sequence[int]) -> float:
    return sum(map(cpu_seconds, pids))


def _fill(client: Client, names: Sequence[str], rewards: int, rng: np.random.Generator) -> None:
    for name in names:
        client.create_bandit(name, slate_size=SLATE_SIZE, item_capacity=N_ITEMS, context_dimension=CONTEXT)
        client.upsert_items(name, [f"item-{number}" for number in range(N_ITEMS)])
        for _ in range(rewards):
            _trade(client, name, rng)


def _meet(clients: Sequence[Client], names: Sequence[str]) -> None:
    """Have each client know who owns each bandit, as one does that has called for a while."""
    for _ in range(3):
        for client in clients:
            for name in names:
                client.stats(name)


def _trade(client: Client, name: str, rng: np.random.Generator) -> None:
    slate = client.recommend(name, [1.0, *rng.normal(size=CONTEXT - 1).tolist()])
    client.reward(name, slate.id, float(rng.normal()))


def _call(client: Client, names: Sequence[str], seconds: float, seed: int) -> int:
    """Ask for slates of bandits at random, and reward them; return how many."""
    rng, end, pairs = np.random.default_rng([seed, 1]), time.perf_counter() + seconds, 0
    while time.perf_counter() < end:
        time.sleep(float(rng.exponential(CALLERS / RATE)))
        _trade(client, names[int(rng.integers(len(names)))], rng)
        pairs += 1
    return pairs
