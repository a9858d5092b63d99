"""How long a call of the real service takes, beside a call that does nothing."""

from __future__ import annotations

import time

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from figures import Bench, Figure, Outcome, percentiles
from served import BANDIT, CALL_SECONDS, TENANT, Storefront, cpu_seconds, service, settings_in, worker_pid
from topk_bandit.client import Client
from topk_bandit.supervisor import Supervisor

__all__ = ["latency"]

OBSERVATIONS, CALLS, ALONE = 500, 500, 2000


def latency(bench: Bench) -> Outcome:
    """Time one caller's Recommend and Reward, with an empty call between them, then a restart."""
    observations, calls = bench.scaled(OBSERVATIONS, 100), bench.scaled(CALLS, 60)
    with service() as (supervisor, folder):
        with (
            Client(supervisor.address, tenant=TENANT, timeout=CALL_SECONDS) as client,
            grpc.insecure_channel(supervisor.address) as channel,
        ):
            storefront = Storefront.opened(client, seed=0)
            storefront.fill(observations, lambda done, _: bench.report(done, observations + calls))
            figures = _timed(bench, storefront, _Health(channel), calls=calls, done=observations)
            context = storefront.shop.customers[0].tolist()
        supervisor.stop()
        figures += _restart(Supervisor(settings_in(folder)), context)
    return Outcome(
        figures,
        {"n": 50, "k": 6, "C": 5, "observations": [observations, observations + calls], "calls": calls}
        | {"callers": 1, "workers": 1, "store": "embedded", "empty_call": "grpc.health.v1.Health/Check"},
    )


class _Health:
    """Calls that do nothing, timed."""

    def __init__(self, channel: grpc.Channel) -> None:
        self._stub = health_pb2_grpc.HealthStub(channel)
        self.seconds: list[float] = []

    def check(self) -> None:
        start = time.perf_counter()
        self._stub.Check(health_pb2.HealthCheckRequest(), timeout=CALL_SECONDS)
        self.seconds.append(time.perf_counter() - start)


def _timed(bench: Bench, storefront: Storefront, health: _Health, *, calls: int, done: int) -> list[Figure]:
    pid, alone = worker_pid(), bench.scaled(ALONE, 500)
    health.check()
    health.seconds.clear()
    before = cpu_seconds(pid)
    for _ in range(alone):
        health.check()
    empty_cpu = (cpu_seconds(pid) - before) / alone
    idle = percentiles("empty_alone", "empty call while nothing else happens", health.seconds, (50, 99))
    health.seconds.clear()
    before = cpu_seconds(pid)
    for number in range(calls):
        storefront.serve_one()
        health.check()
        bench.report(done + number, done + calls)
    storefront.await_learned(done + calls)
    pair_cpu = (cpu_seconds(pid) - before) / calls - empty_cpu
    return [
        *percentiles("recommend", "Recommend", storefront.recommend_seconds),
        *percentiles("reward", "Reward", storefront.reward_seconds),
        *percentiles("empty", "empty call in between", health.seconds),
        *idle,
        Figure("recommend_and_reward_cpu", "worker CPU for a Recommend, its Reward and learning", pair_cpu * 1e3, "ms"),
        Figure("empty_cpu", "worker CPU for an empty call", empty_cpu * 1e3, "ms"),
    ]


def _restart(supervisor: Supervisor, context: list[float]) -> list[Figure]:
    """Start the service again on the same folder, and ask at once: the bandit is brought back by the first call."""
    start = time.perf_counter()
    with supervisor, Client(supervisor.address, tenant=TENANT, timeout=CALL_SECONDS) as client:
        ready = time.perf_counter()
        client.recommend(BANDIT, context)
        answered = time.perf_counter()
    return [
        Figure("restart", "restart until the service is ready", ready - start, "s"),
        Figure("restart_first_call", "first Recommend after it, which loads the bandit", answered - ready, "s"),
    ]
