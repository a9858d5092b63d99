"""Each look through a store counts the damaged bandits, and logs each when it begins and when it ends."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tests.contracts.harness import RedisStores, run
from tests.contracts.samples import SETTINGS
from tests.servers import running_server, valkey_binary

from topk_bandit.domain.bandits import BanditName
from topk_bandit.process.damage_watch import DamageWatch
from topk_bandit.store.redis.keys import KeySpace

if TYPE_CHECKING:
    import pytest

    from topk_bandit.store.redis.bandits import RedisStore


class Counted:
    def __init__(self) -> None:
        self.damaged: list[int] = []

    def damage_examined(self, damaged: int) -> None:
        self.damaged.append(damaged)


def test_damage_is_counted_as_long_as_it_lasts_and_logged_twice(caplog: pytest.LogCaptureFixture) -> None:
    counted = Counted()
    names = [BanditName(tenant, "home") for tenant in ("one", "two")]

    async def scenario(store: RedisStore) -> None:
        watch = DamageWatch(store, hooks=counted, pause_seconds=0.0)
        for name in names:
            await store.create_bandit(name, SETTINGS, incarnation="first", quota=1)
        await watch.look()
        with server.client() as client:
            for name in names:
                client.set(KeySpace(stores.prefix).bandit(name).items, "text")
                await watch.look()
        await watch.look()
        for name in names:
            await store.delete_bandit(name)
        await watch.look()

    with running_server(valkey_binary(), append_only=False) as server, caplog.at_level(logging.WARNING):
        stores = RedisStores(server.url)
        run(stores, scenario)
    assert counted.damaged == [0, 1, 2, 2, 0]
    logged = [(record.levelname, record.bandit) for record in caplog.records]  # type: ignore[attr-defined]
    assert logged[:2] == [("ERROR", str(name)) for name in names]
    assert sorted(logged[2:]) == [("WARNING", str(name)) for name in names]
