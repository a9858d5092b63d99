"""What `topk_bandit.lab.fleet` simulates with: processor time of each part of a pair, and a sync of the store."""

from __future__ import annotations

import math
import multiprocessing
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import grpc
import numpy as np
import redis
from grpc_health.v1 import health_pb2, health_pb2_grpc

from figures import Bench, Figure, Outcome, repeat
from machine import cpu_seconds
from models import model_of
from played import shown_at_random
from served import BANDIT, CALL_SECONDS, TENANT, Storefront, settings_in
from topk_bandit.bandits.model import fold
from topk_bandit.bandits.recommender import choose_slate
from topk_bandit.bandits.snapshots import decode_model, encode_model
from topk_bandit.client import Client
from topk_bandit.domain.bandits import LoggedEvent, RecommendationRequest, Recommended, Rewarded, Shown
from topk_bandit.learning.environments import Shop
from topk_bandit.learning.limits import Limits
from topk_bandit.process import logs
from topk_bandit.process.supervisor import Supervisor
from topk_bandit.store.embedded import EmbeddedStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from topk_bandit.bandits.model import Model

__all__ = ["fleet_costs"]

OBSERVATIONS, CALLS, TURNS = 600, 40, 5
APART_SECONDS = 0.08
"""So far apart that each event is looked at by itself: logs are left alone for 25 ms after each look."""
SETTLING_SECONDS, IDLE_SECONDS, IDLE_LOOKS = 0.5, 3.0, 3
EMPTY_CALLS, SYNCS, RETURNS = 500, 200, 20
REWARDS = 600
CUSTOMERS = 1000


class _Folds(NamedTuple):
    """Seconds of folding: a slate shown and a reward, medians; the least refit; rewards between two of them."""

    shown: float
    rewarded: float
    refit: float
    rewards: float


class _Spent(NamedTuple):
    """Seconds of a phase, a call or a pair: of the worker that is asked, of the one that follows, and of the store."""

    asked: float
    following: float
    store: float
    store_calls: float


def fleet_costs(bench: Bench) -> Outcome:
    """Ask one of two services that share a store; the other follows. The least of several turns counts."""
    turns, calls = bench.scaled(TURNS, 2), bench.scaled(CALLS, 5)
    observations = bench.scaled(OBSERVATIONS, 30)
    folds, load = _folds(bench.scaled(REWARDS, 40)), _load(bench.scaled(RETURNS, 2))
    with ExitStack() as stack:
        measured = _Fleet.started(stack, observations, lambda done: bench.report(done, 2 * observations))
        empty = min(measured.empty(bench.scaled(EMPTY_CALLS, 50)) for _ in range(turns))
        phases = [(measured.asked_only(calls), measured.pairs(calls), measured.burst(calls)) for _ in range(turns)]
        sync = min(measured.sync(bench.scaled(SYNCS, 20)) for _ in range(turns))
    asked_only, pairs, burst = (_least(phase) for phase in zip(*phases, strict=True))
    folded = folds.shown + folds.rewarded + folds.refit / folds.rewards
    recommend, both = asked_only.asked - asked_only.following, pairs.asked - pairs.following
    figures = [
        _ms("empty", "an empty call", empty),
        _ms("recommend", "a Recommend, following it apart", recommend),
        _ms("reward", "a Reward, following it apart", both - recommend),
        _ms("look", "a look at a log that has grown, folding apart", (pairs.following - folded) / 2),
        _ms("shown", "folding a slate shown", folds.shown),
        _ms("rewarded", "folding a reward", folds.rewarded),
        _ms("refit", "a refit", folds.refit),
        Figure("rewards", "rewards between two refits", folds.rewards),
        _ms("load", "from a snapshot to a decision", load),
        _ms("store_call", "a call in the store", pairs.store / pairs.store_calls),
        Figure("store_calls", "calls of the store a pair, two workers, events apart", pairs.store_calls),
        _ms("sync", "a sync of the store's log", sync),
        _ms("pair_following", "a pair, in a worker that follows, events apart", pairs.following),
        _ms("pair_asked", "a pair, in the worker that is asked, events apart", pairs.asked),
        _ms("burst_following", "a pair, in a worker that follows, one caller without pause", burst.following),
        _ms("burst_asked", "a pair, in the worker that is asked, one caller without pause", burst.asked),
        _ms("idle", "a worker with one bandit that nobody asks, a second", measured.idle.following),
    ]
    settings = {"n": 50, "k": 6, "C": 5, "observations_before": observations, "turns": turns, "calls_a_turn": calls}
    return Outcome(figures, {**settings, "figure": "the least of the turns", "customers": CUSTOMERS})


def _ms(key: str, label: str, seconds: float) -> Figure:
    return Figure(key, label, seconds * 1e3, "ms")


def _least(phases: tuple[_Spent, ...]) -> _Spent:
    """Return the turn in which the worker that is asked took least: parts of one turn belong together."""
    return min(phases, key=lambda spent: spent.asked)


@dataclass(slots=True)
class _Fleet:
    """Two services on one store, and a caller of the first."""

    storefront: Storefront
    health: health_pb2_grpc.HealthStub
    store: redis.Redis
    asked_pid: int
    following_pid: int
    store_pid: int
    keep_alive: Callable[[], object]
    idle: _Spent = field(default_factory=lambda: _Spent(math.inf, math.inf, math.inf, math.inf))

    @classmethod
    def started(cls, stack: ExitStack, observations: int, report: Callable[[int], None]) -> _Fleet:
        logs.configure("text", level="ERROR")
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="topk-bandit-bench-")))
        store = EmbeddedStore.start(folder / "store")
        stack.callback(store.stop)
        asked, asked_pid = _service(stack, folder / "asked", store.url)
        follows, following_pid = _service(stack, folder / "follows", store.url)
        client = stack.enter_context(Client(asked, tenant=TENANT, timeout=CALL_SECONDS))
        other = stack.enter_context(Client(follows, tenant=TENANT, timeout=CALL_SECONDS))
        channel = stack.enter_context(grpc.insecure_channel(asked))
        storefront = Storefront.opened(client, seed=1, customers=CUSTOMERS)
        storefront.fill(observations, lambda done, _: report(done))
        other.stats(BANDIT)  # from now on the other one follows, too
        direct = stack.enter_context(redis.Redis.from_url(store.url))
        health = health_pb2_grpc.HealthStub(channel)
        made = cls(storefront, health, direct, asked_pid, following_pid, store.pid, lambda: other.stats(BANDIT))
        made.burst(20)
        for _ in range(IDLE_LOOKS):
            made.measure_idle()
        return made

    def empty(self, calls: int) -> float:
        """Return what the asked worker computes for a call that does nothing."""
        spent = self._spent(lambda: repeat(self._check, calls), calls)
        return spent.asked

    def _check(self) -> None:
        self.health.Check(health_pb2.HealthCheckRequest(), timeout=CALL_SECONDS)

    def asked_only(self, calls: int) -> _Spent:
        """Return what a Recommend costs whose event is looked at by itself."""
        return self._spent(lambda: repeat(partial(self._apart, self.storefront.recommend_one), calls), calls)

    def pairs(self, calls: int) -> _Spent:
        """Return what a Recommend and a Reward cost whose events are looked at by themselves."""

        def one() -> None:
            self._apart(self.storefront.recommend_one)
            self._apart(self.storefront.reward_one)

        return self._spent(lambda: repeat(one, calls), calls)

    def burst(self, calls: int) -> _Spent:
        """Return what a Recommend and a Reward cost when one caller sends them without pause."""
        return self._spent(lambda: repeat(self.storefront.serve_one, calls), calls)

    def sync(self, writes: int) -> float:
        """Return the median of what a write waits for the disk, in seconds."""
        try:
            self.store.config_set("appendfsync", "no")
            without = float(np.median([self._write() for _ in range(writes)]))
        finally:
            self.store.config_set("appendfsync", "always")
        return float(np.median([self._write() for _ in range(writes)])) - without

    def _write(self) -> float:
        start = time.perf_counter()
        self.store.set("a-write-of-the-benchmark", "x" * 500)
        return time.perf_counter() - start

    def _apart(self, call: Callable[[], None]) -> None:
        call()
        time.sleep(APART_SECONDS)

    def measure_idle(self) -> None:
        """Note what is computed while nobody calls, a second: the least that was seen counts."""
        self.keep_alive()
        time.sleep(IDLE_SECONDS)
        spent, seconds = self._counted(lambda: time.sleep(IDLE_SECONDS))
        self.idle = _Spent(*(min(least, now / seconds) for least, now in zip(self.idle, spent, strict=True)))

    def _spent(self, work: Callable[[], object], calls: int) -> _Spent:
        spent, seconds = self._counted(work)
        return _Spent(*((all_of_it - seconds * idle) / calls for all_of_it, idle in zip(spent, self.idle, strict=True)))

    def _counted(self, work: Callable[[], object]) -> tuple[_Spent, float]:
        before, start = self._meters(), time.perf_counter()
        work()
        time.sleep(SETTLING_SECONDS)
        seconds = time.perf_counter() - start
        return _Spent(*(after - then for after, then in zip(self._meters(), before, strict=True))), seconds

    def _meters(self) -> _Spent:
        reads = self.store.info("stats")["total_reads_processed"]
        asked, following, store = map(cpu_seconds, (self.asked_pid, self.following_pid, self.store_pid))
        return _Spent(asked, following, store, reads)


def _service(stack: ExitStack, folder: Path, store_url: str) -> tuple[str, int]:
    """Start a service with one worker; return its address and the worker's process id."""
    before = {child.pid for child in multiprocessing.active_children()}
    supervisor = stack.enter_context(Supervisor(settings_in(folder, redis_url=store_url)))
    started = [child for child in multiprocessing.active_children() if child.name.startswith("topk-bandit-")]
    (worker,) = [child for child in started if child.pid not in before]
    return supervisor.address, int(worker.pid or 0)


def _folds(rewards: int) -> _Folds:
    """Fold slates shown and rewards at the row limit, and tell refits from the rest by what the model says."""
    rng = np.random.default_rng(3)
    shop = Shop.random(rng, n_customers=CUSTOMERS)
    model = model_of(shown_at_random(shop, rng, rewards=Limits().rows, pending=0).state.refit())
    usual: tuple[list[float], list[float]] = [], []
    refits: list[tuple[int, float]] = []
    for number, pair in enumerate(_events(model, shop, rng, rewards)):
        for kind, event in enumerate(pair):
            start = time.thread_time()
            model = fold(model, event)
            took = time.thread_time() - start
            if model.since_checkpoint == 0:
                refits.append((number, took))
            else:
                usual[kind].append(took)
    shown, rewarded = (float(np.median(times)) for times in usual)
    between = float(np.diff([number for number, _ in refits]).mean()) if len(refits) > 1 else float(rewards)
    return _Folds(shown, rewarded, min((took for _, took in refits), default=rewarded) - rewarded, between)


def _events(
    model: Model, shop: Shop, rng: np.random.Generator, rewards: int
) -> Iterator[tuple[LoggedEvent, LoggedEvent]]:
    """Yield a slate shown and its reward, again and again."""
    template = choose_slate(model, RecommendationRequest("first", tuple(shop.customers[0].tolist()), None))
    for number in range(rewards):
        context = tuple(shop.customers[int(rng.integers(len(shop.customers)))].tolist())
        request = RecommendationRequest(f"r{number}", context, None)
        slate = rng.choice(len(shop.items), size=shop.slate_size, replace=False)
        named, at = tuple(f"item-{item}" for item in slate), model.version + 1 + 2 * number
        chosen = replace(template, recommendation_id=request.request_id, slate=named)
        reward = Rewarded(request.request_id, float(rng.normal()), Shown(context, named, 3))
        yield LoggedEvent(at, 3, Recommended(request, chosen)), LoggedEvent(at + 1, 3, reward)


def _load(returns: int) -> float:
    """Return the least time that a thread computes from a snapshot at the row limit to the first decision."""
    rng = np.random.default_rng(4)
    shop = Shop.random(rng, n_customers=CUSTOMERS)
    model = model_of(shown_at_random(shop, rng, rewards=Limits().rows, pending=0).state.refit())
    payload, limits = encode_model(model), model.state.limits
    requests = (RecommendationRequest("first", tuple(context.tolist()), None) for context in shop.customers[:returns])
    return min(_come_back(payload, limits, request) for request in requests)


def _come_back(payload: bytes, limits: Limits, request: RecommendationRequest) -> float:
    start = time.thread_time()
    choose_slate(decode_model(payload, limits=limits), request)
    return time.thread_time() - start
