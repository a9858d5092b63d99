"""What is awaited before a write is acknowledged, on real servers: alone, with a replica that hangs, in a cluster."""

from __future__ import annotations

import asyncio
import signal
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from redis.crc import key_slot
from tests.contracts.harness import RedisStores, insist, run, waiting_little, whole_log
from tests.contracts.samples import ITEMS, NAME, PAST, SETTINGS, import_part, recommendation, request
from tests.servers import free_port, redis_binary, running_cluster, running_pair, running_server, valkey_binary
from tests.waiting import PATIENCE, until

from topk_bandit.domain.bandits import BanditName, Item
from topk_bandit.domain.durability import FSYNC, IN_MEMORY, Durability
from topk_bandit.domain.errors import CorruptDataError, NotDurableError
from topk_bandit.domain.slates import RewardOutcome
from topk_bandit.store.events import Imported, Rewarded
from topk_bandit.store.log import RecordStatus
from topk_bandit.store.redis.keys import KeySpace
from topk_bandit.store.redis.waits import waits

if TYPE_CHECKING:
    from collections.abc import Iterator

    import redis
    from tests.servers import RunningServer

    from topk_bandit.domain.bandits import BanditSettings
    from topk_bandit.store.log import Store

PART = import_part()
ROWS = Imported(PART.import_id, PART.first_row, PAST)
REPLICATED = Durability(synced=True, replicas=1)
OTHER = BanditName(NAME.tenant, "other")
PATIENCE_MS = round(PATIENCE * 1000)
CLASSES = {"memory": IN_MEMORY, "fsync": FSYNC, "replicated:1": REPLICATED}


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[RunningServer, RunningServer]]:
    with running_pair(valkey_binary(), "--appendfsync", "always") as pair:
        yield pair


async def furnish(store: Store, *ids: str) -> None:
    await store.create_bandit(NAME, SETTINGS, incarnation="first", quota=9)
    for one in ids:
        written = await store.record_recommendation(
            NAME, request(), recommendation(one), incarnation="first", items_position=0
        )
        outcome = written.answer
        assert outcome.status == RecordStatus.RECORDED


def rewards_of(log: object) -> int:
    assert isinstance(log, list)
    return sum(isinstance(logged.event, Rewarded) for logged in log)


@contextmanager
def hanging(server: RunningServer) -> Iterator[None]:
    """Let a server do nothing until the end of the block."""
    server.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        server.send_signal(signal.SIGCONT)


@pytest.mark.parametrize("name", CLASSES)
def test_a_receipt_says_what_was_achieved(pair: tuple[RunningServer, RunningServer], name: str) -> None:
    wanted = CLASSES[name]

    async def scenario(store: Store) -> None:
        await furnish(store, "one")
        for outcome in (RewardOutcome.ACCEPTED, RewardOutcome.DUPLICATE):
            receipt = (await store.record_reward(NAME, "one", 1.0)).answer
            assert (receipt.outcome, receipt.durability) == (outcome, wanted)

    run(RedisStores(pair[0].unix_url, durability=wanted), scenario)
    assert str(wanted) == name


def test_without_the_replica_nothing_is_acknowledged_and_everything_is_found_out_later(
    pair: tuple[RunningServer, RunningServer],
) -> None:
    primary, replica = pair

    async def scenario(store: Store, unpaid: Store) -> None:
        await furnish(store, "one", "two")
        with hanging(replica), waiting_little("WAIT"):
            # Slates need nobody's confirmation, and another class none of the replica.
            await furnish(unpaid)
            for _ in range(2):  # the second is a repetition, which writes nothing of its own
                with pytest.raises(NotDurableError, match="0 of 1 replicas"):
                    await store.record_reward(NAME, "one", 1.0)
            with pytest.raises(NotDurableError):
                await store.change_items(NAME, upserted=ITEMS, retired=[])
            with pytest.raises(NotDurableError):
                await store.change_items(NAME, upserted=ITEMS, retired=[])
            with pytest.raises(NotDurableError):
                await store.update_settings(NAME, SETTINGS, revision=1)
            at = (await store.get_bandit(NAME)).items_position
            with pytest.raises(NotDurableError):
                await store.record_import(NAME, PART, ROWS, incarnation="first", items_position=at)
            with pytest.raises(NotDurableError):
                await store.find_import_part(NAME, PART)
            with pytest.raises(NotDurableError):
                await store.create_bandit(NAME, SETTINGS, incarnation="first", quota=9)
            receipt = (await unpaid.record_reward(NAME, "two", 2.0)).answer
            assert receipt.durability == IN_MEMORY
            assert rewards_of(await whole_log(store, NAME)) == 2
        receipt = (await store.record_reward(NAME, "one", 1.0)).answer
        assert (receipt.outcome, receipt.durability) == (RewardOutcome.DUPLICATE, REPLICATED)
        found = await store.find_import_part(NAME, PART)
        assert found is not None
        assert found.status is RecordStatus.REPEATED
        assert rewards_of(await whole_log(store, NAME)) == 2

    async def main() -> None:
        stores = RedisStores(primary.unix_url, durability=REPLICATED)
        others = RedisStores(primary.unix_url)
        others.prefix = stores.prefix
        async with stores.connect() as store, others.connect() as unpaid:
            await scenario(store, unpaid)

    asyncio.run(main())


def test_a_script_that_the_server_forgot_is_waited_for_too(pair: tuple[RunningServer, RunningServer]) -> None:
    async def scenario(store: Store) -> None:
        await furnish(store, "one")
        with pair[0].client() as client:
            client.script_flush()
        receipt = (await store.record_reward(NAME, "one", 1.0)).answer
        assert (receipt.outcome, receipt.durability) == (RewardOutcome.ACCEPTED, REPLICATED)

    run(RedisStores(pair[0].unix_url, durability=REPLICATED), scenario)


def test_the_disk_is_waited_for() -> None:
    """Between two syncs of a store that syncs each second the class is not reached; after one it is."""
    with running_server(valkey_binary(), "--appendfsync", "no") as server:

        async def scenario(store: Store) -> None:
            with waiting_little("WAITAOF"), pytest.raises(NotDurableError, match="disk"):
                await furnish(store)
            with server.client() as client:
                client.config_set("appendfsync", "always")
            await furnish(store, "one")
            assert (await store.record_reward(NAME, "one", 1.0)).answer.durability == FSYNC
            with server.client() as client:
                client.config_set("appendonly", "no")
            with pytest.raises(NotDurableError, match="appendonly"):
                await store.record_reward(NAME, "one", 1.0)

        run(RedisStores(server.unix_url, durability=FSYNC), scenario)


def with_class(durability: Durability | None) -> BanditSettings:
    return replace(SETTINGS, durability=durability)


async def receipt_of(store: Store, one: str) -> Durability:
    receipt = (await store.record_reward(NAME, one, 1.0)).answer
    assert receipt.outcome is RewardOutcome.ACCEPTED
    return receipt.durability


@pytest.mark.parametrize("default", CLASSES.values(), ids=CLASSES)
def test_a_bandit_may_have_a_class_of_its_own(pair: tuple[RunningServer, RunningServer], default: Durability) -> None:
    """Whoever has not heard of a change waits for what it knew, notices, and waits for what is asked for."""

    async def scenario(store: Store, other: Store) -> None:
        revision = (await store.create_bandit(NAME, SETTINGS, incarnation="first", quota=9)).revision
        await furnish_more(store, *"abcdefghi")
        ids = iter("abcdefghi")
        for own in (REPLICATED, FSYNC, IN_MEMORY, None):
            revision = (await store.update_settings(NAME, with_class(own), revision=revision)).revision
            required = own or default
            assert await receipt_of(store, next(ids)) == required
            # More than is needed may have been waited for, once.
            assert await receipt_of(other, next(ids)) >= required
            assert (await other.record_reward(NAME, "a", 1.0)).answer.durability == required

    async def furnish_more(store: Store, *ids: str) -> None:
        for one in ids:
            await store.record_recommendation(
                NAME, request(), recommendation(one), incarnation="first", items_position=0
            )

    run(RedisStores(pair[0].unix_url, durability=default), scenario, connections=2)


def test_only_the_bandit_that_asks_for_a_replica_waits_for_it(pair: tuple[RunningServer, RunningServer]) -> None:
    primary, replica = pair

    async def scenario(store: Store) -> None:
        await store.create_bandit(NAME, with_class(REPLICATED), incarnation="first", quota=9)
        await store.create_bandit(OTHER, SETTINGS, incarnation="first", quota=9)
        for name in (NAME, OTHER):
            await store.record_recommendation(
                name, request(), recommendation("one"), incarnation="first", items_position=0
            )
        with hanging(replica), waiting_little("WAIT"):
            with pytest.raises(NotDurableError, match="0 of 1 replicas"):
                await store.record_reward(NAME, "one", 1.0)
            assert (await store.record_reward(OTHER, "one", 1.0)).answer.durability == FSYNC
            with pytest.raises(NotDurableError, match="0 of 1 replicas"):
                await store.change_items(NAME, upserted=ITEMS, retired=[])
            # What needs no replica any more is not refused for the lack of one.
            changed = await store.update_settings(NAME, SETTINGS, revision=1)
            assert changed.settings == SETTINGS
        receipt = (await store.record_reward(NAME, "one", 1.0)).answer
        assert (receipt.outcome, receipt.durability) == (RewardOutcome.DUPLICATE, FSYNC)

    run(RedisStores(primary.unix_url, durability=FSYNC), scenario)


def test_a_class_that_is_none_is_not_guessed() -> None:
    with running_server(valkey_binary(), "--appendfsync", "always") as server:
        stores = RedisStores(server.unix_url, durability=FSYNC)

        async def scenario(store: Store) -> None:
            await furnish(store, "one")
            with server.client() as client:
                client.hset(KeySpace(stores.prefix).bandit(NAME).meta, "durability", "fast")
            for _ in range(2):
                with pytest.raises(CorruptDataError, match="unknown durability"):
                    await store.record_reward(NAME, "one", 1.0)

        run(stores, scenario)


def test_waits_end_before_the_call_does() -> None:
    for timeout in (0.01, 1.0, 60.0):
        commands = waits(REPLICATED, timeout=timeout)
        assert [command[0] for command in commands] == ["WAITAOF", "WAIT"]
        assert sum(int(command[-1]) for command in commands) < 1000 * timeout
    assert waits(IN_MEMORY, timeout=1.0) == ()


@pytest.mark.parametrize("durability", [FSYNC, REPLICATED], ids=str)
def test_what_keeps_a_store_from_its_class_is_named(durability: Durability) -> None:
    with running_server(valkey_binary()) as server:  # syncs each second, has no replica and needs none

        async def scenario(store: Store) -> None:
            report = await store.check()
            problems = " ".join(report.problems)
            assert ("appendfsync is everysec" in problems, "min-replicas-to-write" in problems) == (
                durability.synced,
                durability.replicas > 0,
            )
            assert ("0 of 1 replicas" in " ".join(report.shortages)) == (durability.replicas > 0)
            with server.client() as client:
                client.config_set("appendfsync", "always")
                client.config_set("min-replicas-to-write", durability.replicas)
            report = await store.check()
            assert report.problems == ()
            assert len(report.shortages) == durability.replicas

        run(RedisStores(server.unix_url, durability=durability), scenario)


def test_a_store_with_its_replica_keeps_the_class(pair: tuple[RunningServer, RunningServer]) -> None:
    async def scenario(store: Store) -> None:
        report = await store.check()
        assert "min-replicas-to-write is 0" in " ".join(report.problems)
        assert report.shortages == ()

    run(RedisStores(pair[0].unix_url, durability=REPLICATED), scenario)


def test_a_server_that_knows_no_waitaof_is_named() -> None:
    with running_server(redis_binary()) as server, server.client() as client:
        if tuple(map(int, client.info("server")["redis_version"].split(".")[:2])) >= (7, 2):
            pytest.skip("this Redis knows it")

        async def scenario(store: Store) -> None:
            assert "at least 7.2 is needed" in " ".join((await store.check()).problems)

        run(RedisStores(server.unix_url, durability=FSYNC), scenario)


def test_a_server_that_hides_its_settings_is_taken_as_it_is() -> None:
    with running_server(valkey_binary(), "--rename-command", "CONFIG", "hidden") as server:

        async def scenario(store: Store) -> None:
            assert (await store.check()).problems == ()

        run(RedisStores(server.unix_url, durability=FSYNC), scenario)


def admin(client: redis.Redis, *command: str | int) -> None:
    client.execute_command(*command)


def give(slot: int, new: redis.Redis, old: redis.Redis) -> None:
    """Send both servers who has a slot."""
    owner = new.execute_command("CLUSTER MYID").decode()
    for client in (new, old):
        admin(client, "CLUSTER SETSLOT", slot, "NODE", owner)


def until_joined(client: redis.Redis) -> None:
    """Wait until a server knows the other one and its slots."""

    def has_joined() -> bool:
        info = client.execute_command("CLUSTER INFO")
        return info["cluster_state"] == "ok" and info["cluster_size"] != "0"

    until(has_joined, what="the server knows the other one")


def test_a_key_that_moves_between_servers_is_followed_while_it_is_waited_for() -> None:
    """The slot of a bandit is moved key by key: the call is redirected by ASK, then by MOVED, and waited for there."""
    with (
        running_cluster(valkey_binary(), "--appendfsync", "always") as source,
        running_server(
            valkey_binary(),
            "--cluster-enabled",
            "yes",
            "--appendfsync",
            "always",
            port=free_port(with_bus=True),
        ) as target,
        source.client() as here,
        target.client() as there,
    ):
        admin(here, "CLUSTER MEET", "127.0.0.1", target.port)
        until_joined(there)
        give(0, there, here)  # a server without any slot is in no client's map
        stores = RedisStores(source.url, durability=FSYNC)
        keys = [key.encode() for key in KeySpace(stores.prefix).bandit(NAME).all]
        slot = key_slot(keys[0])

        def begin_to_move() -> None:
            ids = [client.execute_command("CLUSTER MYID").decode() for client in (here, there)]
            admin(there, "CLUSTER SETSLOT", slot, "IMPORTING", ids[0])
            admin(here, "CLUSTER SETSLOT", slot, "MIGRATING", ids[1])
            here.execute_command("MIGRATE", "127.0.0.1", target.port, "", 0, PATIENCE_MS, "KEYS", *keys)

        async def scenario(store: Store) -> None:
            await furnish(store, "one", "two", "three")
            for step, (one, value) in {"before": ("one", 1.0), "during": ("two", 2.0), "after": ("three", 3.0)}.items():
                if step == "during":
                    await asyncio.to_thread(begin_to_move)
                if step == "after":
                    await asyncio.to_thread(give, slot, there, here)
                receipt = (await store.record_reward(NAME, one, value)).answer
                assert (receipt.outcome, receipt.durability) == (RewardOutcome.ACCEPTED, FSYNC), step
            changed = await store.change_items(NAME, upserted=[Item("apple")], retired=[])
            assert changed.log_position == 8

        run(stores, scenario)


@pytest.mark.parametrize("start", [running_server, running_cluster], ids=["alone", "cluster"])
def test_a_server_that_comes_back_is_found_again(start: object) -> None:
    assert callable(start)
    with start(valkey_binary(), "--appendfsync", "always") as server:

        async def scenario(store: Store) -> None:
            await furnish(store, "one", "two")
            await store.record_reward(NAME, "one", 1.0)
            server.kill()
            server.start()
            receipt = (await insist(lambda: store.record_reward(NAME, "two", 1.0))).answer
            assert receipt.durability == FSYNC
            assert rewards_of(await whole_log(store, NAME)) == 2

        run(RedisStores(server.url, durability=FSYNC), scenario)
