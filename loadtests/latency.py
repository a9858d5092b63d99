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

OBSERVATIONS, CALLS, BANDITS, ALONE = 500, 120, 5, 2000


def latency(bench: Bench) -> Outcome:
    """Time one caller's Recommend and Reward around 500 observations, with an empty call in between, then a restart.

    Every call is rewarded, so that learning goes on meanwhile; several bandits take turns, so that none grows far.
    """
    observations, calls, bandits = bench.scaled(OBSERVATIONS, 100), bench.scaled(CALLS, 40), bench.scaled(BANDITS, 2)
    before, total = observations - calls // 2, bandits * (observations + calls // 2)
    with service() as (supervisor, folder):
        with (
            Client(supervisor.address, tenant=TENANT, timeout=CALL_SECONDS) as client,
            grpc.insecure_channel(supervisor.address) as channel,
        ):
            storefronts = [Storefront.opened(client, seed=n, bandit=f"{BANDIT}-{n}") for n in range(bandits)]
            for number, storefront in enumerate(storefronts):
                storefront.fill(before, lambda done, _, at=number * before: bench.report(at + done, total))
            figures = _timed(bench, storefronts, _Health(channel), calls=calls, observations=before)
            context = storefronts[0].shop.customers[0].tolist()
        supervisor.stop()
        figures += _restart(Supervisor(settings_in(folder)), context)
    return Outcome(
        figures,
        {"n": 50, "k": 6, "C": 5, "observations": [before, before + calls], "calls": bandits * calls}
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


def _timed(
    bench: Bench, storefronts: list[Storefront], health: _Health, *, calls: int, observations: int
) -> list[Figure]:
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
    total = len(storefronts) * (observations + calls)
    for storefront in storefronts:
        for _ in range(calls):
            storefront.serve_one()
            health.check()
            bench.report(total - len(storefronts) * calls + len(health.seconds), total)
        storefront.await_learned(observations + calls)
    pair_cpu = (cpu_seconds(pid) - before) / (len(storefronts) * calls) - empty_cpu
    return [
        *percentiles("recommend", "Recommend", [took for one in storefronts for took in one.recommend_seconds]),
        *percentiles("reward", "Reward", [took for one in storefronts for took in one.reward_seconds]),
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
        client.recommend(f"{BANDIT}-0", context)
        answered = time.perf_counter()
    return [
        Figure("restart", "restart until the service is ready", ready - start, "s"),
        Figure("restart_first_call", "first Recommend after it, which loads the bandit", answered - ready, "s"),
    ]
