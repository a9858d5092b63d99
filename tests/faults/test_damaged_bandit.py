"""Bandits of which keys in the store were deleted by hand: they are told, hide no other, and are deleted or mended."""

from __future__ import annotations

import asyncio
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
from tests.contracts.samples import ITEMS, SETTINGS
from tests.faults.service import COMMAND, clean_environment, serving
from tests.servers import running_server, valkey_binary
from tests.waiting import PATIENCE, until

from topk_bandit.client import FailedPrecondition, NotFound
from topk_bandit.domain.bandits import BanditName
from topk_bandit.store.redis.bandits import RedisStore
from topk_bandit.store.redis.keys import KeySpace

if TYPE_CHECKING:
    from pathlib import Path

    from tests.faults.service import Service
    from tests.servers import RunningServer

KEYS = KeySpace("topk-bandit").bandit(BanditName("acme", "lost"))
LISTS = (KeySpace("topk-bandit").tenants, *KeySpace("topk-bandit").bandits("acme"))


def shown(service: Service, metric: str) -> float:
    lines = service.page("/metrics")[1].splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith(f"{metric} "))


def records_of(service: Service, words: str) -> list[dict[str, Any]]:
    return [record for record in service.records if words in record.get("message", "")]


def command(*words: str) -> tuple[int, str]:
    ran = subprocess.run([COMMAND, *words], capture_output=True, text=True, env=clean_environment(), check=False)
    return ran.returncode, ran.stdout + ran.stderr


async def lose_one(server: RunningServer, *keys: str) -> None:
    """Leave a store of two bandits in which one has lost keys."""
    store = await RedisStore.connect(server.url, timeout=PATIENCE)
    for bandit in ("lost", "well"):
        name = BanditName("acme", bandit)
        await store.create_bandit(name, SETTINGS, incarnation=bandit, quota=9)
        await store.change_items(name, upserted=ITEMS, retired=[])
    await store.close()
    with server.client() as client:
        client.delete(*keys)


def test_a_bandit_that_lost_its_record_is_told_of_and_deleted(tmp_path: Path) -> None:
    excused = "a bandit can't be served"
    with running_server(valkey_binary(), config=["appendfsync always"]) as server, server.client() as keys:
        asyncio.run(lose_one(server, KEYS.meta))
        flags = (f"--redis-url={server.url}", "--workers=1")
        with serving(tmp_path, *flags, excused=excused) as service, service.client(tenant="acme") as client:
            until(lambda: shown(service, "topk_bandit_damaged_bandits") == 1, what="the metric tells")
            assert shown(service, "topk_bandit_unfinalized_data_versions") == 0
            told = records_of(service, excused)
            assert [record["bandit"] for record in told] == ["tenants/acme/bandits/lost"]
            status, said = command("doctor", f"--redis-url={server.url}")
            assert status == 1
            assert "tenants/acme/bandits/lost: its record is gone" in said
            assert "rewards: tenants/acme/bandits/well take rewards of any size" in said
            assert [known.name for known in client.list_bandits()] == ["well"]
            assert client.recommend("well", context=[0.1, 0.2, 0.3]).id
            with pytest.raises(NotFound):
                client.recommend("lost", context=[0.1, 0.2, 0.3])
            with pytest.raises(FailedPrecondition, match="delete that first"):
                client.create_bandit("lost", slate_size=2, item_capacity=9)
            status, said = command("bandits", "delete", "acme/lost", "--yes", f"--address={service.address}")
            assert status == 0, said
            assert keys.exists(*KEYS.all) == 0
            client.create_bandit("lost", slate_size=2, item_capacity=9)


def test_bandits_that_lists_have_lost_are_told_of_and_put_back(tmp_path: Path) -> None:
    missing = "a bandit was missing in its tenant's list"
    with running_server(valkey_binary(), config=["appendfsync always"]) as server:
        asyncio.run(lose_one(server, *LISTS))
        status, said = command("doctor", f"--redis-url={server.url}")
        assert status == 1
        assert "lists: 2 bandits are missing" in said
        assert "tenants/acme/bandits/lost" in said
        flags = (f"--redis-url={server.url}", "--workers=1")
        with serving(tmp_path, *flags) as service, service.client(tenant="acme") as client:
            until(lambda: len(list(client.list_bandits())) == 2, what="the bandits are listed again")
            assert client.recommend("lost", context=[0.1, 0.2, 0.3]).id
            names = {"tenants/acme/bandits/lost", "tenants/acme/bandits/well"}
            until(lambda: {one["bandit"] for one in records_of(service, missing)} == names, what="the log tells")
            client.delete_bandit("lost")
            assert [known.name for known in client.list_bandits()] == ["well"]
        status, said = command("doctor", f"--redis-url={server.url}")
        assert status == 0, said
