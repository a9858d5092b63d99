"""How long the service takes to come back after a long life."""

from __future__ import annotations

import asyncio
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np
from redis.asyncio import Redis

from figures import Bench, Figure, Outcome
from served import BANDIT, CALL_SECONDS, TENANT, settings_in
from topk_bandit.bandits.recommender import recommendation_id_of
from topk_bandit.client import Client
from topk_bandit.domain.bandits import BanditName, Recommendation, RecommendationRequest
from topk_bandit.domain.durability import IN_MEMORY
from topk_bandit.learning.rankings import random_rankings
from topk_bandit.process import logs
from topk_bandit.process.supervisor import Supervisor
from topk_bandit.store.data_versions import OLDEST
from topk_bandit.store.embedded import EmbeddedStore
from topk_bandit.store.log import DEFAULT_RECORD_RETENTION_MS
from topk_bandit.store.redis.bandits import RedisStore
from topk_bandit.store.redis.scripts import RECORD_RECOMMENDATION, RECORD_REWARD

if TYPE_CHECKING:
    from collections.abc import Sequence

    from figures import Report
    from topk_bandit.domain.durability import Durability
    from topk_bandit.store.log import BanditRecord
    from topk_bandit.store.redis.link import Link
    from topk_bandit.store.redis.scripts import Script

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
    async with Redis.from_url(url) as client:
        line = _Line(client)
        await client.script_load(RECORD_RECOMMENDATION.at(line.data_version).source)
        await client.script_load(RECORD_REWARD.at(line.data_version).source)
        store = RedisStore(
            cast("Link", line), prefix="topk-bandit", record_retention_ms=DEFAULT_RECORD_RETENTION_MS, writer=""
        )
        for start in range(0, visits, VISITORS_AT_ONCE):
            among = range(start, min(start + VISITORS_AT_ONCE, visits))
            shown = asyncio.gather(*(_show(store, record, number, slates[number]) for number in among))
            await line.sent()
            posted = asyncio.gather(
                *(store.record_reward(NAME, i, rewards[n]) for n, i in zip(among, await shown, strict=True))
            )
            await line.sent()
            await posted
            report(2 * start, 2 * visits)


class _Line:
    """Stands for the store's link: it holds scripts back, and sends all that came together down one connection."""

    data_version = OLDEST

    def __init__(self, client: Redis) -> None:
        self._client = client
        self._held: list[tuple[tuple[object, ...], asyncio.Future[object]]] = []

    async def run(self, script: Script, keys: Sequence[str], arguments: Sequence[bytes | str | int] = ()) -> object:
        """Return the script's reply, once everything that is held was sent."""
        reply: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self._held.append((("EVALSHA", script.at(self.data_version).digest, len(keys), *keys, *arguments), reply))
        return await reply

    async def run_durably(
        self,
        script: Script,
        keys: Sequence[str],
        arguments: Sequence[bytes | str | int] = (),
        *,
        meta: str,  # noqa: ARG002 - the link's
    ) -> tuple[object, Durability]:
        """Return the same, and that nothing more was awaited."""
        return await self.run(script, keys, arguments), IN_MEMORY

    async def sent(self) -> None:
        """Send what is held, and hand out the replies."""
        await asyncio.sleep(0)  # lets those who were just asked to call do so
        held, self._held = self._held, []
        pipeline = self._client.pipeline(transaction=False)
        for command, _ in held:
            pipeline.execute_command(*command)
        for (_, future), reply in zip(held, await pipeline.execute(), strict=True):
            future.set_result(reply)


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
    outcome = await store.record_recommendation(
        NAME, request, recommendation, incarnation=record.incarnation, items_position=record.items_position
    )
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
