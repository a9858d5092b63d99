"""How long a call of the real service takes and what it costs the server, beside a call that does nothing."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from figures import Bench, Figure, Outcome, percentiles, repeat
from machine import cpu_seconds
from served import BANDIT, CALL_SECONDS, TENANT, Storefront, service, settings_in, worker_pid
from topk_bandit.client import Client
from topk_bandit.process.supervisor import Supervisor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

__all__ = ["latency"]

OBSERVATIONS, CALLS, BANDITS, EMPTY_CALLS = 256, 50, 10, 2000
IDLE_SECONDS, SETTLING_SECONDS = 3.0, 0.5


def latency(bench: Bench) -> Outcome:
    """Time one caller's calls around 256 observations, with the processor time of the worker, then a restart.

    Several bandits take turns, so that none grows far. Each is first asked and rewarded until it has 256 observations,
    which learns and refits meanwhile; then it is asked only, and the slates wait for their rewards.
    """
    observations, calls, bandits = bench.scaled(OBSERVATIONS, 60), bench.scaled(CALLS, 20), bench.scaled(BANDITS, 2)
    before = observations - calls
    with service() as (supervisor, folder):
        with (
            Client(supervisor.address, tenant=TENANT, timeout=CALL_SECONDS) as client,
            grpc.insecure_channel(supervisor.address) as channel,
        ):
            storefronts = [Storefront.opened(client, seed=n, bandit=f"{BANDIT}-{n}") for n in range(bandits)]
            for number, storefront in enumerate(storefronts):
                storefront.fill(before, partial(_report_after, bench, number * before, bandits * observations))
            figures = _timed(storefronts, _Health(channel), calls=calls, empty_calls=bench.scaled(EMPTY_CALLS, 500))
            context = storefronts[0].shop.customers[0].tolist()
        supervisor.stop()
        figures += _restart(Supervisor(settings_in(folder)), context)
    return Outcome(
        figures,
        {"n": 50, "k": 6, "C": 5, "asked_and_rewarded_at": [before, observations], "asked_only_at": observations}
        | {"calls": bandits * calls, "callers": 1, "workers": 1, "store": "embedded"}
        | {"empty_call": "grpc.health.v1.Health/Check", "cpu": "of the worker, learning in the background included"},
    )


def _report_after(bench: Bench, already: int, of: int, done: int, _: int) -> None:
    bench.report(already + done, of)


class _Health:
    """Calls that do nothing, timed."""

    def __init__(self, channel: grpc.Channel) -> None:
        self._stub = health_pb2_grpc.HealthStub(channel)
        self.seconds: list[float] = []

    def check(self) -> None:
        start = time.perf_counter()
        self._stub.Check(health_pb2.HealthCheckRequest(), timeout=CALL_SECONDS)
        self.seconds.append(time.perf_counter() - start)


def _timed(storefronts: Sequence[Storefront], health: _Health, *, calls: int, empty_calls: int) -> list[Figure]:
    meter = _Meter()
    for _ in range(20):
        health.check()
    health.seconds.clear()
    empty_cpu = meter.cpu_of(lambda: repeat(health.check, empty_calls)) / empty_calls
    total = calls * len(storefronts)
    pair_cpu = meter.cpu_of(lambda: _each(Storefront.serve_one, storefronts, calls)) / total
    pairs = [
        *percentiles("recommend", "Recommend, rewards in between", _all(one.recommend_seconds for one in storefronts)),
        *percentiles("reward", "Reward", _all(one.reward_seconds for one in storefronts)),
    ]
    for storefront in storefronts:
        storefront.await_learned(0)
        storefront.forget_times()
    ask_cpu = meter.cpu_of(lambda: _each(Storefront.recommend_one, storefronts, calls)) / total
    return [
        *pairs,
        *percentiles("recommend_only", "Recommend alone", _all(one.recommend_seconds for one in storefronts)),
        *percentiles("empty", "empty call", health.seconds, (50, 99)),
        Figure("empty_cpu", "worker CPU for an empty call", empty_cpu * 1e3, "ms"),
        Figure("recommend_cpu", "worker CPU for a Recommend", ask_cpu * 1e3, "ms"),
        Figure("pair_cpu", "worker CPU for a Recommend and a Reward", pair_cpu * 1e3, "ms"),
        Figure("idle_cpu", f"worker CPU without calls, following {len(storefronts)} bandits", meter.idle * 1e3, "ms/s"),
        Figure("cpu_ratio", "worker CPU for a Recommend / for an empty call", ask_cpu / empty_cpu, "x"),
    ]


def _each(call: Callable[[Storefront], None], storefronts: Sequence[Storefront], times: int) -> None:
    for storefront in storefronts:
        repeat(partial(call, storefront), times)


class _Meter:
    """The worker's processor time, without what it takes when nobody calls; `idle` is that, in seconds a second."""

    def __init__(self) -> None:
        self._pid = worker_pid()
        self.idle = 0.0
        self.idle = self.cpu_of(lambda: time.sleep(IDLE_SECONDS)) / (IDLE_SECONDS + SETTLING_SECONDS)

    def cpu_of(self, work: Callable[[], object]) -> float:
        """Return the seconds that the worker computes for calls, until it has also learned from them."""
        before, start = cpu_seconds(self._pid), time.perf_counter()
        work()
        time.sleep(SETTLING_SECONDS)
        return cpu_seconds(self._pid) - before - self.idle * (time.perf_counter() - start)


def _all(parts: Iterable[Iterable[float]]) -> list[float]:
    return [seconds for part in parts for seconds in part]


def _restart(supervisor: Supervisor, context: list[float]) -> list[Figure]:
    """Start the service again on the same folder, and ask at once: the bandit is brought back by the first call."""
    start = time.perf_counter()
    with supervisor, Client(supervisor.address, tenant=TENANT, timeout=CALL_SECONDS) as client:
        ready = time.perf_counter()
        client.recommend(f"{BANDIT}-0", context)
        answered = time.perf_counter()
    return [
        Figure("restart", "restart until the service is ready", ready - start, "s"),
        Figure(
            "restart_first_call", "first Recommend after it, which loads the bandit", (answered - ready) * 1e3, "ms"
        ),
    ]
