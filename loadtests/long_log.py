"""How long the service takes to come back after a long life."""

from __future__ import annotations

import asyncio
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from figures import Bench, Figure, Outcome
from served import BANDIT, CALL_SECONDS, TENANT, settings_in
from topk_bandit.bandits.choices import recommendation_id_of
from topk_bandit.client import Client
from topk_bandit.domain.bandits import BanditName
from topk_bandit.domain.slates import Recommendation, RecommendationRequest
from topk_bandit.learning.rankings import random_rankings
from topk_bandit.process import logs
from topk_bandit.process.supervisor import Supervisor
from topk_bandit.store.embedded import EmbeddedStore
from topk_bandit.store.redis.bandits import RedisStore

if TYPE_CHECKING:
    from figures import Report
    from topk_bandit.store.log import BanditRecord

__all__ = ["ITEMS", "SLATE_SIZE", "long_log", "write_visits"]

EVENTS, QUICK_EVENTS = 1_000_000, 10_000
VISITORS_AT_ONCE = 250
ITEMS, SLATE_SIZE = 8, 2
CATCHING_UP_SECONDS = 1800.0
NAME = BanditName(TENANT, BANDIT)
MEGABYTE = 2.0**20


def long_log(bench: Bench) -> Outcome:
    """Write a million events while the service follows them, stop it, and start it again.

    The events are written by the store's own calls, many at once: random slates, and their rewards. The bandit is
    small, so that the worker keeps up; what counts here is the length of its life.
    """
    logs.configure("text", level="ERROR")
    events = bench.scaled(EVENTS, QUICK_EVENTS)
    with tempfile.TemporaryDirectory(prefix="topk-bandit-bench-") as name:
        folder = Path(name)
        start = time.perf_counter()
        with EmbeddedStore.start(folder, fsync="everysec") as embedded:
            record = _lived(folder, embedded.url, events, bench.report)
        produced = time.perf_counter() - start
        on_disk = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
        start = time.perf_counter()
        EmbeddedStore.start(folder).stop()
        store_alone = time.perf_counter() - start
        figures = _start(Supervisor(settings_in(folder)))
    tail = record.log_position - record.snapshot_position
    figures += [
        Figure("ready_empty", "    the same on an empty folder", _seconds_to_start_empty(), "s"),
        Figure("store_alone", "    the store alone, up and down", store_alone, "s"),
        Figure("events", "events of the bandit's life", record.log_position),
        Figure("tail", "events after the newest snapshot", tail),
        Figure("on_disk", "store on the disk", on_disk / MEGABYTE, "MB"),
        Figure("produced", "writing all that, the service following", produced, "s"),
    ]
    settings = {"n": ITEMS, "k": SLATE_SIZE, "C": 1, "store": "embedded", "record_retention": "7 days, the default"}
    return Outcome(figures, settings)


def _lived(folder: Path, url: str, events: int, report: Report) -> BanditRecord:
    """Write the events, wait until the worker has learned them all, and return how the bandit stands."""
    settings = replace(settings_in(folder), redis_url=url, store_timeout_seconds=30.0)
    with (
        Supervisor(settings) as supervisor,
        Client(supervisor.address, tenant=TENANT, timeout=CATCHING_UP_SECONDS) as client,
    ):
        client.create_bandit(BANDIT, slate_size=SLATE_SIZE, context_dimension=1, item_capacity=ITEMS)
        client.upsert_items(BANDIT, [f"item-{index}" for index in range(ITEMS)])
        client.recommend(BANDIT, [1.0])  # from now on the worker follows
        asyncio.run(write_visits(url, events // 2, report))
        client.stats(BANDIT)  # answers once the worker has followed the log to its end
    return asyncio.run(_record(url))


async def _record(url: str) -> BanditRecord:
    store = await RedisStore.connect(url, timeout=30.0)
    try:
        return await store.get_bandit(NAME)
    finally:
        await store.close()


async def write_visits(url: str, visits: int, report: Report) -> None:
    """Write slates and their rewards of the bandit at a store, which has its items."""
    record, rng = await _record(url), np.random.default_rng(12)
    slates = random_rankings(np.arange(ITEMS), slate_size=SLATE_SIZE, count=visits, rng=rng).tolist()
    rewards = rng.normal(size=visits).tolist()
    store = await RedisStore.connect(url, timeout=30.0)
    try:
        for start in range(0, visits, VISITORS_AT_ONCE):
            among = range(start, min(start + VISITORS_AT_ONCE, visits))
            shown = await asyncio.gather(*(_show(store, record, number, slates[number]) for number in among))
            await asyncio.gather(*(store.record_reward(NAME, i, rewards[n]) for n, i in zip(among, shown, strict=True)))
            report(2 * start, 2 * visits)
    finally:
        await store.close()


async def _show(store: RedisStore, record: BanditRecord, number: int, slate: list[int]) -> str:
    """Record a slate as the service records it, and return its id."""
    request = RecommendationRequest(f"visit-{number}", (1.0,), None)
    recommendation = Recommendation(
        recommendation_id=recommendation_id_of(record.incarnation, request.request_id),
        slate=tuple(f"item-{item}" for item in slate),
        propensity=0.987654321,
        mean=0.123456789,
        standard_deviation=0.123456789,
        regret_bound=0.123456789,
        estimated_regret=0.123456789,
        explored=False,
        model_version=number,
        observations=number,
    )
    written = await store.record_recommendation(
        NAME, request, recommendation, incarnation=record.incarnation, items_position=record.items_position
    )
    outcome = written.answer
    if outcome.recommendation is None:
        raise RuntimeError("the items were changed meanwhile")
    return recommendation.recommendation_id


def _seconds_to_start_empty() -> float:
    with tempfile.TemporaryDirectory(prefix="topk-bandit-bench-") as name:
        start = time.perf_counter()
        with Supervisor(settings_in(Path(name))):
            return time.perf_counter() - start


def _start(supervisor: Supervisor) -> list[Figure]:
    start = time.perf_counter()
    with supervisor, Client(supervisor.address, tenant=TENANT, timeout=CALL_SECONDS) as client:
        ready = time.perf_counter()
        client.recommend(BANDIT, [1.0])
        answered = time.perf_counter()
    return [
        Figure("ready", "start until the service is ready", ready - start, "s"),
        Figure("first_recommend", "start until the first Recommend is answered", answered - start, "s"),
    ]
