"""A running service closes the slates of bandits that nobody asks it for, and loads no model for that."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from tests.contracts.samples import ITEMS, SETTINGS, recommendation, request
from tests.faults.service import serving
from tests.servers import running_server, valkey_binary
from tests.waiting import PATIENCE, until

from topk_bandit.domain.bandits import BanditName
from topk_bandit.store.events import Expired
from topk_bandit.store.redis.bandits import RedisStore

if TYPE_CHECKING:
    from pathlib import Path

IDLE = BanditName("acme", "idle")


async def leave_open(url: str) -> None:
    """Leave a store with a bandit that waits for a reward, and will not for long."""
    store = await RedisStore.connect(url, timeout=PATIENCE)
    settings = replace(SETTINGS, reward_wait_ms=1000, default_reward=0.25)
    await store.create_bandit(IDLE, settings, incarnation="first", quota=1)
    changed = await store.change_items(IDLE, upserted=ITEMS, retired=[])
    await store.record_recommendation(
        IDLE, request(), recommendation("one"), incarnation="first", items_position=changed.items_position
    )
    await store.close()


async def ends(url: str) -> list[object]:
    store = await RedisStore.connect(url, timeout=PATIENCE)
    log = await store.read_log(IDLE, start=1, limit=99)
    await store.close()
    return [logged.event for logged in log.events if isinstance(logged.event, Expired)]


def test_a_slate_that_nobody_asks_after_is_closed_by_a_running_service(tmp_path: Path) -> None:
    with running_server(valkey_binary(), config=["appendfsync always"]) as server:
        asyncio.run(leave_open(server.url))
        with serving(tmp_path, f"--redis-url={server.url}", "--workers=2") as service:
            until(lambda: asyncio.run(ends(server.url)), what="the slate is closed")
            [ended] = asyncio.run(ends(server.url))
            assert isinstance(ended, Expired)
            assert (ended.recommendation_id, ended.default_reward) == ("one", 0.25)
            page = service.page("/metrics")[1]
        assert "topk_bandit_models 0" in page, [line for line in page.splitlines() if "models" in line]
