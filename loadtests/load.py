"""What happens when calls come at a rate of their own, whether earlier ones are answered or not."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import grpc
import numpy as np

from figures import Bench, Figure, Outcome, percentiles
from served import BANDIT, CALL_SECONDS, TENANT, Storefront, ranking_of, service
from topk_bandit.client import Client
from topk_bandit.v1.recommender_service_pb2 import RecommendRequest, RewardRequest
from topk_bandit.v1.recommender_service_pb2_grpc import RecommenderServiceStub

if TYPE_CHECKING:
    from topk_bandit.lab.simulation.environments import Shop
    from topk_bandit.v1.recommender_service_pb2_grpc import RecommenderServiceAsyncStub

__all__ = ["open_loop"]

OBSERVATIONS = 200
RATES = (20, 50, 100)
SECONDS = 8.0
DEADLINE_SECONDS = 5.0
NAME = f"tenants/{TENANT}/bandits/{BANDIT}"


@dataclass(slots=True)
class _Tally:
    """What became of the calls at one rate; seconds are counted from when a call was meant to be sent."""

    seconds: list[float] = field(default_factory=list)
    late_to_send: list[float] = field(default_factory=list)
    codes: Counter[str] = field(default_factory=Counter)
    last_answer: float = 0.0


def open_loop(bench: Bench) -> Outcome:
    """Send Recommend at random times at a fixed rate, and the reward of each slate that comes back."""
    rates, seconds = RATES, 1.0 if bench.quick else SECONDS
    observations = bench.scaled(OBSERVATIONS, 20)
    figures: list[Figure] = []
    with service() as (supervisor, _), Client(supervisor.address, tenant=TENANT, timeout=CALL_SECONDS) as client:
        storefront = Storefront.opened(client, seed=1)
        storefront.fill(observations, lambda done, _: bench.report(min(done, observations), 2 * observations))
        for number, rate in enumerate(rates):
            tally = asyncio.run(_driven(supervisor.address, storefront.shop, rate=rate, seconds=seconds))
            figures += _figures(rate, tally, seconds)
            storefront.await_learned(0)
            bench.report(observations + observations * (number + 1) // len(rates), 2 * observations)
    return Outcome(
        figures,
        {"n": 50, "k": 6, "C": 5, "observations_before": observations, "seconds": seconds, "arrivals": "Poisson"}
        | {"deadline_seconds": DEADLINE_SECONDS, "measured": "from the time that a call was meant to be sent at"},
    )


async def _driven(address: str, shop: Shop, *, rate: int, seconds: float) -> _Tally:
    rng, tally = np.random.default_rng([rate, 4]), _Tally()
    times = np.cumsum(rng.exponential(1.0 / rate, size=round(2 * rate * seconds)))
    async with grpc.aio.insecure_channel(address, options=[("grpc.enable_retries", 0)]) as channel:
        await channel.channel_ready()
        stub, start = RecommenderServiceStub(channel), time.perf_counter()
        async with asyncio.TaskGroup() as visits:
            for due in start + times[times < seconds]:
                await asyncio.sleep(max(due - time.perf_counter(), 0.0))
                visits.create_task(_visit(stub, shop, tally, due=float(due), seed=int(rng.integers(2**32))))
    tally.last_answer -= start
    return tally


async def _visit(stub: RecommenderServiceAsyncStub, shop: Shop, tally: _Tally, *, due: float, seed: int) -> None:
    """One customer: a slate, and later the reward, whose delay and failure are not counted."""
    rng = np.random.default_rng(seed)
    customer = int(rng.integers(len(shop.customers)))
    tally.late_to_send.append(time.perf_counter() - due)
    request = RecommendRequest(bandit=NAME, context=shop.customers[customer].tolist())
    try:
        slate = await stub.Recommend(request, timeout=DEADLINE_SECONDS)
    except grpc.aio.AioRpcError as error:
        tally.codes[error.code().name] += 1
        return
    tally.last_answer = time.perf_counter()
    tally.seconds.append(tally.last_answer - due)
    tally.codes["DEGRADED" if slate.degraded else "OK"] += 1
    if slate.degraded:
        return
    reward = shop.draw(customer, ranking_of(tuple(slate.item_ids)), rng)
    try:
        await stub.Reward(
            RewardRequest(bandit=NAME, recommendation_id=slate.recommendation_id, value=reward),
            timeout=DEADLINE_SECONDS,
        )
    except grpc.aio.AioRpcError as error:
        tally.codes[f"REWARD_{error.code().name}"] += 1


def _figures(rate: int, tally: _Tally, seconds: float) -> list[Figure]:
    sent = len(tally.late_to_send)
    refused = tally.codes["RESOURCE_EXHAUSTED"]
    too_late = tally.codes["DEADLINE_EXCEEDED"]
    failed = sent - tally.codes["OK"] - refused - too_late
    lost = sum(count for code, count in tally.codes.items() if code.startswith("REWARD_"))
    key, label = f"rate_{rate}", f"{rate}/s"
    return [
        Figure(f"{key}_offered", f"{label}: sent", sent / seconds, "/s"),
        Figure(f"{key}_achieved", f"{label}: answered", len(tally.seconds) / max(tally.last_answer, seconds), "/s"),
        *percentiles(key, f"{label}: Recommend", tally.seconds, (50, 99)),
        Figure(f"{key}_refused", f"{label}: refused (RESOURCE_EXHAUSTED)", refused / sent, "share"),
        Figure(f"{key}_too_late", f"{label}: not answered within {DEADLINE_SECONDS:g} s", too_late / sent, "share"),
        Figure(f"{key}_errors", f"{label}: other errors and degraded answers", failed),
        Figure(f"{key}_reward_errors", f"{label}: rewards that failed", lost),
        *percentiles(f"{key}_send_lag", f"{label}: generator behind its schedule", tally.late_to_send, (99,)),
    ]
