"""What only a store in Redis can get wrong: lost replies, servers that hang or die, used-up memory, spoiled bytes."""

from __future__ import annotations

import asyncio
import itertools
import logging
import signal
import socket
import subprocess
from collections import Counter
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from redis.crc import key_slot
from tests.contracts.archives import Sender, archived
from tests.contracts.clocks import StoreClock, ToldTime
from tests.contracts.harness import RedisStores, dump, insist, listening, run, whole_log
from tests.contracts.samples import ITEMS, NAME, PAST, SETTINGS, import_part, recommendation, request, settings
from tests.programs import find_program
from tests.servers import (
    NEVER_MS,
    free_port,
    redis_binary,
    running_cluster,
    running_sentinel,
    running_server,
    valkey_binary,
)
from tests.store.proxy import LossyProxy, lossy_proxy
from tests.waiting import PATIENCE

from topk_bandit.domain.bandits import Aggregation, BanditName, Item
from topk_bandit.domain.durability import IN_MEMORY
from topk_bandit.domain.errors import (
    ConfigurationError,
    ConflictError,
    CorruptDataError,
    ExhaustedError,
    NotFoundError,
    UnavailableError,
)
from topk_bandit.domain.slates import ActivationOutcome, ActivationReceipt, RewardOutcome, RewardReceipt
from topk_bandit.store.codec import encode_context
from topk_bandit.store.data_versions import OLDEST
from topk_bandit.store.events import Expired, Imported
from topk_bandit.store.log import Correctable, RecordStatus, Snapshot, Written
from topk_bandit.store.redis import scripts
from topk_bandit.store.redis.bandits import RedisStore
from topk_bandit.store.redis.inspection import report
from topk_bandit.store.redis.keys import KeySpace

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
    from pathlib import Path

    from tests.servers import RunningServer

    from topk_bandit.store.log import BanditRecord, Store
    from topk_bandit.store.redis.scripts import Script

OTHER = BanditName(tenant="shop", bandit="other")


@pytest.fixture(scope="module")
def valkey() -> Iterator[RunningServer]:
    with running_server(valkey_binary()) as server:
        yield server


@pytest.fixture
def own_valkey() -> Iterator[RunningServer]:
    """Return a server that the test may do with as it likes."""
    with running_server(valkey_binary()) as server:
        yield server


@pytest.fixture(params=["valkey", "cluster"])
def mortal(request: pytest.FixtureRequest) -> Iterator[RunningServer]:
    """Return a server that the test may kill, alone and in cluster mode."""
    # With everysec the server may hold writes back for up to two seconds while the disk is busy, acknowledged or not.
    start = running_cluster if request.param == "cluster" else running_server
    with start(valkey_binary(), "--appendfsync", "always") as server:
        yield server


async def furnish(store: Store) -> None:
    """Create a bandit with one pending recommendation, and one that is overdue."""
    await store.create_bandit(NAME, settings(reward_wait_ms=0), incarnation="first", quota=9)
    await recommend(store, "overdue")
    await store.update_settings(NAME, SETTINGS, revision=1)
    await recommend(store, "pending")


async def expire(store: Store) -> int:
    return (await store.expire_due(NAME, limit=5)).count


async def recommend(store: Store, key: str) -> RecordStatus:
    written = await store.record_recommendation(
        NAME, request(), recommendation(key), incarnation="first", items_position=0
    )
    outcome = written.answer
    return outcome.status


WRITES: dict[str, tuple[Callable[[Store], Awaitable[Any]], Script, Any, int]] = {
    "create": (
        lambda store: store.create_bandit(OTHER, SETTINGS, incarnation="other", quota=2),
        scripts.CREATE_BANDIT,
        None,
        0,
    ),
    "reserve": (
        lambda store: store.create_bandit(OTHER, SETTINGS, incarnation="other", quota=2),
        scripts.RESERVE_ENTRY,
        None,
        0,
    ),
    "update": (
        lambda store: store.update_settings(NAME, settings(uniform_share=0.5), revision=2),
        scripts.COMMIT,
        None,
        1,
    ),
    "recommend": (
        lambda store: recommend(store, "new"),
        scripts.COMMIT,
        RecordStatus.REPEATED,
        1,
    ),
    "reward": (
        lambda store: store.record_reward(NAME, "pending", 2.0),
        scripts.COMMIT,
        RewardReceipt(RewardOutcome.DUPLICATE, 5),
        1,
    ),
    "late": (
        lambda store: store.record_reward(NAME, "overdue", 2.0),
        scripts.COMMIT,
        RewardReceipt(RewardOutcome.LATE),
        1,
    ),
    "activate": (
        lambda store: store.activate(NAME, "unseen"),
        scripts.COMMIT,
        ActivationReceipt(ActivationOutcome.DUPLICATE),
        1,
    ),
    "void": (
        lambda store: store.correct_reward(NAME, "pending", None, known=Correctable("first", 2, 5, 0)),
        scripts.COMMIT,
        RewardReceipt(RewardOutcome.DUPLICATE),
        1,
    ),
    "import": (
        lambda store: store.record_import(
            NAME, import_part(), Imported("year", 0, PAST), incarnation="first", items_position=0
        ),
        scripts.COMMIT,
        None,
        1,
    ),
    "expire": (expire, scripts.COMMIT, 0, 1),
    "snapshot": (
        lambda store: store.save_snapshot(NAME, Snapshot(2, b"x"), incarnation="first"),
        scripts.SAVE_SNAPSHOT,
        False,
        0,
    ),
}


@pytest.mark.parametrize("losses", [1, 2])
@pytest.mark.parametrize("call", WRITES)
def test_a_write_whose_reply_was_lost_has_its_effect_once(valkey: RunningServer, call: str, losses: int) -> None:
    write, script, again, appended = WRITES[call]

    async def main() -> None:
        async with through_proxy(valkey) as (proxy, store):
            await furnish(store)
            if call == "activate":
                await store.update_settings(NAME, settings(requires_activation=True), revision=2)
                await recommend(store, "unseen")
            before = await store.get_bandit(NAME)
            # As a worker that did not record it: what is presumed of it is stale, and that reply would be the lost one.
            store._journal._records.drop(NAME, "overdue")
            proxy.lose(script, replies=losses)
            outcome = await insist(lambda: write(store))
            outcome = outcome.answer if isinstance(outcome, Written) else outcome
            assert proxy.lost == losses
            assert again is None or outcome == again
            after = await store.get_bandit(NAME)
            assert after.log_position == before.log_position + appended
            assert after.late_rewards == (call == "late")
            expected = ["home", "other"] if call in ("create", "reserve") else ["home"]
            listed = await store.list_bandits("shop", after="", limit=9)
            assert [bandit.name.bandit for bandit in listed] == expected

    asyncio.run(main())


@asynccontextmanager
async def through_proxy(server: RunningServer) -> AsyncIterator[tuple[LossyProxy, RedisStore]]:
    """Connect to a server through a proxy that can lose replies."""
    async with lossy_proxy(server.port) as proxy:
        stores = RedisStores(f"redis://127.0.0.1:{proxy.port}")
        async with stores.connect() as store:
            yield proxy, store


def test_items_change_once_though_the_reply_was_lost(valkey: RunningServer) -> None:
    async def main() -> None:
        async with through_proxy(valkey) as (proxy, store):
            await furnish(store)
            proxy.lose(scripts.COMMIT, replies=1)
            changed = await store.change_items(NAME, upserted=ITEMS, retired=[])
            assert (proxy.lost, changed.log_position) == (1, 5)
            proxy.lose(scripts.COMMIT, replies=1)
            changed = await store.change_items(NAME, upserted=[Item("pear", available=False)], retired=["apple"])
            assert (proxy.lost, changed.log_position) == (2, 6)

    asyncio.run(main())


@pytest.mark.parametrize("script", [scripts.RECORD_RESTORE, scripts.FINISH_RESTORE], ids=["part", "end"])
def test_a_bandit_is_restored_once_though_replies_were_lost(valkey: RunningServer, script: Script) -> None:
    async def main() -> None:
        async with through_proxy(valkey) as (proxy, store):
            await store.create_bandit(NAME, SETTINGS, incarnation="first", quota=9)
            newest = (await store.change_items(NAME, upserted=ITEMS, retired=[])).log_position
            await store.record_recommendation(
                NAME, request(), recommendation("pending"), incarnation="first", items_position=newest
            )
            lines = await archived(store, NAME)
            await store.delete_bandit(NAME)
            sender, receipt = Sender(store), None
            for place, line in enumerate(lines):
                proxy.lose(script, replies=1)
                receipt = await sender.send(NAME, [line], first=place)
                assert receipt.next_line == place + 1
            assert proxy.lost == (len(lines) if script is scripts.RECORD_RESTORE else 1)
            assert receipt is not None
            assert receipt.log_position == (await store.get_bandit(NAME)).log_position
            assert Counter(await archived(store, NAME)) == Counter(lines)

    asyncio.run(main())


def test_a_part_of_an_import_that_is_undone_while_it_is_looked_for_is_not_recorded(valkey: RunningServer) -> None:
    """A failover comes between the two steps of the search; whoever hears of the part believes to have sent it."""
    stores = RedisStores(valkey.url)
    imports = KeySpace(stores.prefix).bandit(NAME).imports

    async def scenario(store: RedisStore) -> None:
        await store.create_bandit(NAME, SETTINGS, incarnation="first", quota=1)
        await store.record_import(NAME, import_part(), Imported("year", 0, PAST), incarnation="first", items_position=0)
        with valkey.client() as client:
            known = client.hgetall(imports)
            for turns in range(40):
                client.hset(imports, mapping=known)
                looking = asyncio.create_task(store.find_import_part(NAME, import_part()))
                for _ in range(turns):
                    await asyncio.sleep(0)
                client.delete(imports)  # before this loop, which it holds up, goes on to the second step
                found = await looking
                assert found is None or found.status is RecordStatus.REPEATED, f"after {turns} turns: {found}"

    run(stores, scenario)


def test_a_deletion_whose_reply_was_lost_is_no_error(valkey: RunningServer) -> None:
    async def main() -> None:
        async with through_proxy(valkey) as (proxy, store):
            await furnish(store)
            proxy.lose(scripts.DELETE, replies=1)
            await store.delete_bandit(NAME)
            assert proxy.lost == 1
            assert await store.list_bandits("shop", after="", limit=9) == ()

    asyncio.run(main())


class Clock:
    """What shows a store when it may try again, which stands still unless it is moved."""

    seconds = 0.0

    def read(self) -> float:
        return self.seconds


async def count_refused_at_once(call: Callable[[], Awaitable[Any]], *, times: int) -> int:
    """Return how many of calls at once fail before one could have waited for anything; all of them fail."""
    calls = [asyncio.ensure_future(call()) for _ in range(times)]
    await asyncio.sleep(0)
    refused = sum(one.done() for one in calls)
    for outcome in await asyncio.gather(*calls, return_exceptions=True):
        assert isinstance(outcome, UnavailableError)
    return refused


def test_a_server_that_hangs_is_waited_for_by_one_call_at_a_time(mortal: RunningServer) -> None:
    """Who calls first waits for a connection and a timeout, and who calls then does not."""
    clock = Clock()
    stores, others = RedisStores(mortal.url, timeout=1.0, monotonic=clock.read), RedisStores(mortal.url)
    others.prefix = stores.prefix

    async def scenario(store: Store, other: Store) -> None:
        await furnish(other)
        mortal.send_signal(signal.SIGSTOP)
        try:
            assert await count_refused_at_once(lambda: store.record_reward(NAME, "pending", 1.0), times=200) == 0
            assert await count_refused_at_once(lambda: store.get_bandit(NAME), times=1) == 1
            clock.seconds += 10.0
            assert await count_refused_at_once(lambda: store.get_bandit(NAME), times=50) == 49
        finally:
            mortal.send_signal(signal.SIGCONT)
        receipt = (await insist(lambda: other.record_reward(NAME, "pending", 1.0))).answer
        assert receipt.outcome in (RewardOutcome.ACCEPTED, RewardOutcome.DUPLICATE)
        assert (await other.get_bandit(NAME)).log_position == 5

        async def ask_later() -> BanditRecord:
            clock.seconds += 10.0
            return await store.get_bandit(NAME)

        assert (await insist(ask_later)).log_position == 5

    async def main() -> None:
        async with stores.connect() as store, others.connect() as other:
            await scenario(store, other)

    asyncio.run(main())


def test_acknowledged_writes_survive_a_killed_server(mortal: RunningServer) -> None:
    stores = RedisStores(mortal.url)

    async def scenario(store: Store) -> None:
        await furnish(store)
        accepted: list[str] = []
        enough = asyncio.Event()

        async def shop(number: int) -> None:
            for turn in itertools.count():
                try:
                    await recommend(store, f"{number}-{turn}")
                    await store.record_reward(NAME, f"{number}-{turn}", 1.0)
                except UnavailableError:
                    return
                accepted.append(f"{number}-{turn}")
                if len(accepted) >= 100:
                    enough.set()

        async with listening(store) as following:
            shops = [asyncio.create_task(shop(number)) for number in range(8)]
            await enough.wait()
            mortal.kill()
            await asyncio.gather(*shops)
            with pytest.raises(UnavailableError):
                await store.get_bandit(NAME)
            await asyncio.to_thread(mortal.start)
            now = await insist(lambda: store.get_bandit(NAME))
            while await following() is not None:
                pass
        events = await whole_log(store, NAME)
        assert [event.position for event in events] == list(range(1, now.log_position + 1))
        rewarded = [getattr(event.event, "recommendation_id", "") for event in events]
        assert set(accepted) <= set(rewarded)
        for key in accepted:
            assert (await store.record_reward(NAME, key, 1.0)).answer.outcome == RewardOutcome.DUPLICATE
        assert (await store.record_reward(NAME, "pending", 1.0)).answer.outcome == RewardOutcome.ACCEPTED

    run(stores, scenario)


def test_no_call_waits_for_ever_when_nothing_answers() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"redis://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(UnavailableError):
            asyncio.run(RedisStore.connect(url, timeout=0.3))
    with pytest.raises(UnavailableError):
        asyncio.run(RedisStore.connect(f"redis://127.0.0.1:{free_port()}", timeout=PATIENCE))


def test_a_full_store_refuses_writes_and_changes_nothing(own_valkey: RunningServer) -> None:
    async def scenario(store: Store) -> None:
        await furnish(store)
        await recommend(store, "unseen")
        before = await dump(store, NAME)
        with own_valkey.client() as client:
            client.config_set("maxmemory", 1)
            for write, _, _, _ in WRITES.values():
                with pytest.raises(ExhaustedError) as caught:
                    await write(store)
                assert caught.value.reason == "STORE_FULL"
            with pytest.raises(ExhaustedError):
                await store.change_items(NAME, upserted=ITEMS, retired=[])
            assert await dump(store, NAME) == before
            await store.delete_bandit(NAME)
            with pytest.raises(NotFoundError):
                await store.get_bandit(NAME)
            client.config_set("maxmemory", 0)
        await furnish(store)

    run(RedisStores(own_valkey.url), scenario)


def test_a_server_may_forget_the_scripts(valkey: RunningServer) -> None:
    async def scenario(store: Store) -> None:
        await furnish(store)
        with valkey.client() as client:
            client.script_flush()
            assert (await store.record_reward(NAME, "pending", 1.0)).answer.outcome == RewardOutcome.ACCEPTED
            client.script_flush()
        assert len(await whole_log(store, NAME)) == 5

    run(RedisStores(valkey.url), scenario)


def test_a_replica_is_unavailable_until_it_is_promoted(own_valkey: RunningServer) -> None:
    async def scenario(store: Store) -> None:
        await furnish(store)
        with own_valkey.client() as client:
            client.replicaof("127.0.0.1", free_port())
            for _ in range(3):
                with pytest.raises(UnavailableError):
                    await store.record_reward(NAME, "pending", 1.0)
            client.replicaof("NO", "ONE")
        assert (await store.record_reward(NAME, "pending", 1.0)).answer.outcome == RewardOutcome.ACCEPTED

    run(RedisStores(own_valkey.url), scenario)


def test_a_key_that_holds_something_else_is_corrupt(valkey: RunningServer) -> None:
    stores = RedisStores(valkey.url)
    keys = KeySpace(stores.prefix).bandit(NAME)

    async def scenario(store: Store) -> None:
        await furnish(store)
        with valkey.client() as client:
            before = (await store.read_log(NAME, start=1, limit=9)).events
            client.xadd(keys.log, {"event": "{}"}, id="9-0")
            assert (await store.read_log(NAME, start=1, limit=9)).events == before
            with pytest.raises(CorruptDataError):
                await store.read_log(NAME, start=len(before) + 1, limit=9)
            client.hset(keys.meta, "settings", "{}")
            with pytest.raises(CorruptDataError):
                await store.get_bandit(NAME)
            client.delete(keys.meta)
            client.set(keys.meta, "text")
            with pytest.raises(CorruptDataError):
                await store.get_bandit(NAME)

    run(stores, scenario)


def test_what_can_not_be_read_keeps_no_other_deadline_open(valkey: RunningServer) -> None:
    stores = RedisStores(valkey.url)
    keys = KeySpace(stores.prefix).bandit(NAME)

    async def scenario(store: Store) -> None:
        await store.create_bandit(NAME, settings(reward_wait_ms=0, default_reward=1.0), incarnation="first", quota=9)
        for key in ("a", "b", "c", "d"):
            await recommend(store, key)
        with valkey.client() as client:
            client.hdel(keys.recommendations, "a")
            client.hset(keys.recommendations, "c", "something else")
            assert [await expire(store) for _ in range(2)] == [2, 0]
            assert client.zcard(keys.deadlines) == 0
        ended = [logged.event for logged in await whole_log(store, NAME)][5:]
        assert [event.recommendation_id for event in ended if isinstance(event, Expired)] == ["b", "d"]
        assert len(ended) == 2

    run(stores, scenario)


def test_a_record_that_can_be_read_again_before_it_is_given_up_keeps_its_deadline(
    valkey: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is mended between what finds it damaged and what would take its deadline off."""
    stores = RedisStores(valkey.url)
    keys = KeySpace(stores.prefix).bandit(NAME)

    async def scenario(store: Store) -> None:
        await store.create_bandit(NAME, settings(reward_wait_ms=0, default_reward=1.0), incarnation="first", quota=9)
        await recommend(store, "a")
        with valkey.client() as client:
            whole = client.hget(keys.recommendations, "a")
            client.hset(keys.recommendations, "a", "something else")
            commit = store._commit

            async def mend_and_commit(*decided: Any, is_durable: bool, hands_on: bool) -> Any:  # noqa: ANN401
                client.hset(keys.recommendations, "a", whole)
                return await commit(*decided, is_durable=is_durable, hands_on=hands_on)

            monkeypatch.setattr(store, "_commit", mend_and_commit)
            assert await expire(store) == 1
        assert isinstance((await whole_log(store, NAME))[-1].event, Expired)

    run(stores, scenario)


def test_a_closed_record_no_longer_has_what_was_shown(valkey: RunningServer) -> None:
    stores = RedisStores(valkey.url)
    keys = KeySpace(stores.prefix).bandit(NAME)
    records, closed = keys.recommendations, keys.closed[0]
    context = encode_context(request().context)

    async def scenario(store: Store) -> None:
        await furnish(store)
        with valkey.client() as client:
            waiting = client.hgetall(records)
            assert all(context in record for record in waiting.values())
            assert await expire(store) == 1
            await store.record_reward(NAME, "pending", 1.0)
            assert client.hgetall(records) == {}
            (filed,) = [value for value in client.hgetall(closed).values() if value]
            assert len(filed) < 2 * 60
            assert context not in filed

    run(stores, scenario)


def test_what_another_program_adds_to_a_record_stays_in_it(valkey: RunningServer) -> None:
    stores = RedisStores(valkey.url)
    records = KeySpace(stores.prefix).bandit(NAME).recommendations

    async def scenario(store: Store) -> None:
        several = settings(reward_aggregation=Aggregation.SUM)
        await store.create_bandit(NAME, several, incarnation="first", quota=9)
        await recommend(store, "open")
        with valkey.client() as client:
            before = client.hget(records, "open")
            client.hset(records, "open", before[:-1] + b',"surplus":{"a":[0.5]}}')
            await store.record_reward(NAME, "open", 1.0, reward_id="click")
            assert client.hget(records, "open").endswith(b',"surplus":{"a":[0.5]}}')
        found = await store.find_recommendation(NAME, request(), "open")
        assert found is not None
        assert found.slate == recommendation("open").slate

    run(stores, scenario)


def test_a_log_with_a_gap_is_corrupt(valkey: RunningServer) -> None:
    stores = RedisStores(valkey.url)

    async def scenario(store: Store) -> None:
        await furnish(store)
        with valkey.client() as client:
            client.xdel(KeySpace(stores.prefix).bandit(NAME).log, "2-0")
        assert len((await store.read_log(NAME, start=1, limit=9)).events) == 1
        with pytest.raises(CorruptDataError, match="gap"):
            await store.read_log(NAME, start=2, limit=9)
        assert len((await store.read_log(NAME, start=3, limit=9)).events) == 2

    run(stores, scenario)


def spoil(server: RunningServer, key: str) -> None:
    with server.client() as client:
        frame = bytearray(client.get(key) or b"")
        frame[-1] ^= 1
        client.set(key, bytes(frame))


def test_a_snapshot_that_does_not_verify_is_passed_over_loudly(
    valkey: RunningServer, caplog: pytest.LogCaptureFixture
) -> None:
    stores = RedisStores(valkey.url)
    keys = KeySpace(stores.prefix).bandit(NAME)
    older, newer, newest = (Snapshot(position, bytes([position])) for position in (1, 2, 4))

    async def scenario(store: Store) -> None:
        await furnish(store)
        await store.save_snapshot(NAME, older, incarnation="first")
        await store.save_snapshot(NAME, newer, incarnation="first", behind=1)
        spoil(valkey, keys.snapshots[1])
        with caplog.at_level(logging.ERROR):
            assert await store.load_snapshots(NAME) == (older,)
        assert "passed over a snapshot of tenants/shop/bandits/home" in caplog.text
        assert await store.save_snapshot(NAME, newest, incarnation="first", behind=1) is True
        assert await store.load_snapshots(NAME) == (newest, older)
        assert (await store.read_log(NAME, start=2, limit=9)).first_position == 2

    run(stores, scenario)


def test_no_log_is_trimmed_for_snapshots_that_do_not_verify(valkey: RunningServer) -> None:
    stores = RedisStores(valkey.url)
    keys = KeySpace(stores.prefix).bandit(NAME)

    async def scenario(store: Store) -> None:
        await furnish(store)
        await store.save_snapshot(NAME, Snapshot(2, b"a"), incarnation="first")
        spoil(valkey, keys.snapshots[0])
        assert await store.save_snapshot(NAME, Snapshot(3, b"b"), incarnation="first", behind=2) is True
        assert len(await whole_log(store, NAME)) == 4
        assert await store.load_snapshots(NAME) == (Snapshot(3, b"b"),)

    run(stores, scenario)


def test_a_writer_hears_of_its_own_writes_by_their_answers_alone(valkey: RunningServer) -> None:
    """What no answer returns is announced to all, and so is what others write."""

    async def scenario(near: Store, far: Store) -> None:
        async with listening(near) as next_near, listening(far) as next_far:
            await near.create_bandit(NAME, SETTINGS, incarnation="first", quota=1)
            await recommend(near, "one")
            await near.record_reward(NAME, "one", 1.0)
            await near.correct_reward(NAME, "one", 2.0, known=Correctable("first", 1, 9, 9))
            await recommend(far, "two")
            await near.create_bandit(OTHER, SETTINGS, incarnation="first", quota=2)
            assert [await next_near() for _ in range(4)] == [NAME, NAME, NAME, OTHER]
            assert [await next_far() for _ in range(5)] == [NAME, NAME, NAME, NAME, OTHER]

    run(RedisStores(valkey.url, writers=True), scenario, connections=2)


def test_what_the_only_follower_wrote_is_announced_to_nobody(valkey: RunningServer) -> None:
    """As soon as another follows, or another writes, it is announced; and so is what no answer returns."""

    async def scenario(near: Store, far: Store) -> None:
        assert isinstance(near, RedisStore)
        await near.create_bandit(NAME, SETTINGS, incarnation="first", quota=2)
        await near.note_follower(NAME, follower=near.writer, items_position=0)
        async with listening(near) as next_near, listening(far) as next_far:
            await recommend(near, "one")
            await near.record_reward(NAME, "one", 1.0)
            await near.create_bandit(OTHER, SETTINGS, incarnation="first", quota=2)
            assert await next_far() == OTHER, "nothing before"
            await recommend(far, "two")
            assert [await next_near(), await next_near()] == [OTHER, NAME]
            await far.note_follower(NAME, follower="another", items_position=0)
            await near.record_reward(NAME, "two", 1.0)
            assert await next_far() == NAME

    run(RedisStores(valkey.url, writers=True), scenario, connections=2)


def test_all_keys_of_a_bandit_share_a_slot_and_live_for_ever(valkey: RunningServer) -> None:
    stores = RedisStores(valkey.url)
    space = KeySpace(stores.prefix)

    async def scenario(store: Store) -> None:
        await furnish(store)
        await store.change_items(NAME, upserted=ITEMS, retired=["apple"])
        await store.record_reward(NAME, "pending", 1.0)
        await store.note_follower(NAME, follower="worker", items_position=2)
        newest = (await store.get_bandit(NAME)).items_position
        await store.record_import(NAME, import_part(), None, incarnation="first", items_position=newest)
        for position in (1, 2):
            await store.save_snapshot(NAME, Snapshot(position, b""), incarnation="first")
        with valkey.client() as client:
            written = {key.decode() for key in client.scan_iter(f"{stores.prefix}:*")}
            tenant = space.bandits("shop")
            keys = space.bandit(NAME)
            lasting = {*keys.all} - {keys.visitors}  # what visitors saw has its own test, in test_retention.py
            assert written == {*lasting, tenant.entries, tenant.reservations, space.tenants}
            assert [client.ttl(key) for key in written] == [-1] * len(written)
        await store.delete_bandit(NAME)
        with valkey.client() as client:
            assert list(client.scan_iter(f"{stores.prefix}:*")) == []

    run(stores, scenario)


@pytest.mark.parametrize("name", [NAME, BanditName("}", "{"), BanditName("a/b", "c}d"), BanditName("", "")])
def test_no_name_tears_keys_apart_or_meets_another(name: BanditName) -> None:
    space = KeySpace("prefix")
    assert len({key_slot(key.encode()) for key in space.bandit(name).all}) == 1
    assert space.read_announcement(space.announcement(name).encode()) == (name, "")
    assert space.read_announcement(space.announcement(name, writer="w-1").encode()) == (name, "w-1")
    assert space.bandit(BanditName("a", "b/c")) != space.bandit(BanditName("a/b", "c"))


def test_an_entry_that_dangles_is_not_listed_and_counts_only_for_a_while(valkey: RunningServer) -> None:
    stores = RedisStores(valkey.url, clock=StoreClock())
    tenant = KeySpace(stores.prefix).bandits("shop")

    async def scenario(store: RedisStore) -> None:
        await store.create_bandit(OTHER, SETTINGS, incarnation="other", quota=1)
        await store._bandits.index.reserve("shop", "dead", incarnation="dead", quota=2)
        assert [made.name for made in await store.list_bandits("shop", after="", limit=1)] == [OTHER]
        with pytest.raises(ExhaustedError):
            await store.create_bandit(NAME, SETTINGS, incarnation="first", quota=2)
        with valkey.client() as client:
            client.hset(tenant.reservations, mapping={"dead": "dead 1000", "other": "other 1000"})
            await store.create_bandit(NAME, SETTINGS, incarnation="first", quota=2)
            assert client.zrange(tenant.entries, 0, -1) == [b"home", b"other"]
        with pytest.raises(ExhaustedError):
            await store.create_bandit(BanditName("shop", "third"), SETTINGS, incarnation="third", quota=2)

    run(stores, scenario)


def test_a_reservation_that_lapsed_creates_nothing(valkey: RunningServer) -> None:
    stores = RedisStores(valkey.url)
    keys = KeySpace(stores.prefix).bandit(NAME)
    arguments, setting = ("changes", "shop/home", "first", "{}", "{}"), ("item_capacity", 5)
    create, now_ms = ToldTime(scripts.CREATE_BANDIT).at(OLDEST).source, 1_764_000_000_000
    with valkey.client() as client:
        for age, answer in ((10_000, b"lapsed"), (9_999, b"created")):
            reserved = (now_ms - age, 10_000)
            reply = client.eval(create, 2, keys.meta, keys.log, *arguments, *reserved, *setting, now_ms)
            assert reply[0] == answer
            assert client.exists(keys.meta, keys.log) == (2 if answer == b"created" else 0)
        client.delete(keys.meta, keys.log)


def test_times_are_the_servers(valkey: RunningServer) -> None:
    """Other tests give their stores a clock."""

    async def scenario(store: RedisStore) -> None:
        before = await store._link.clock_ms()
        made = await store.create_bandit(NAME, settings(reward_wait_ms=0), incarnation="first", quota=1)
        await recommend(store, "overdue")
        await store.update_settings(NAME, SETTINGS, revision=1)
        await recommend(store, "pending")
        assert await expire(store) == 1
        [*times, ended] = [logged.at_ms for logged in await whole_log(store, NAME)]
        assert [before, made.created_ms, *times, ended] == sorted([before, made.created_ms, *times, ended])
        assert ended <= (await store.check()).clock_ms

    run(RedisStores(valkey.url), scenario)


def test_an_entry_reserved_anew_outlives_the_deletion_of_its_forerunner(valkey: RunningServer) -> None:
    async def scenario(store: RedisStore) -> None:
        await store.create_bandit(NAME, SETTINGS, incarnation="first", quota=1)
        await store.delete_bandit(NAME)
        await store.create_bandit(NAME, SETTINGS, incarnation="second", quota=1)
        await store._bandits.index.release("shop", "home", incarnation="first")
        assert [made.incarnation for made in await store.list_bandits("shop", after="", limit=9)] == ["second"]

    run(RedisStores(valkey.url), scenario)


STANDALONE: Any = {"settings": {}, "durability": IN_MEMORY, "mode": "standalone", "clock_ms": 1}
CLUSTER: Any = {**STANDALONE, "mode": "cluster"}
GOOD = {"redis_version": "7.0.0", "role": "master", "maxmemory_policy": "noeviction", "aof_enabled": 1}


@pytest.mark.parametrize(
    ("bad", "word"),
    [
        ({"redis_version": "6.2.14"}, "7.0"),
        ({"redis_version": "7.2.4", "valkey_version": "7.1.9"}, "7.2"),
        ({"role": "slave"}, "primary"),
        ({"maxmemory_policy": "allkeys-lru"}, "noeviction"),
        ({"aof_enabled": 0}, "appendonly"),
    ],
)
def test_a_report_names_what_is_wrong_and_what_to_do(bad: dict[str, Any], word: str) -> None:
    assert report({"": GOOD}, **STANDALONE).problems == ()
    [problem] = report({"a:1": GOOD, "b:2": {**GOOD, **bad}}, **CLUSTER).problems
    assert problem.startswith("b:2: ")
    assert word in problem


def test_keys_that_were_evicted_are_a_loss_and_no_reason_to_refuse() -> None:
    found = report({"a:1": GOOD, "b:2": {**GOOD, "evicted_keys": 3}}, **CLUSTER)
    assert (found.problems, found.shortages) == ((), ())
    assert found.losses == found.problems_between(0.0, 1.0)
    assert found.losses[0].startswith("b:2: The server has evicted 3 keys: ")


def test_a_report_is_about_the_memory_of_the_fullest_server() -> None:
    limited = {**GOOD, "used_memory": 60, "maxmemory": 100, "total_system_memory": 1000}
    unlimited = {**GOOD, "used_memory": 90, "maxmemory": 0, "total_system_memory": 1000}
    for infos in ({"a": limited, "b": unlimited}, {"b": unlimited, "a": limited}):
        found = report(infos, **CLUSTER)
        assert (found.memory_bytes, found.memory_limit_bytes) == (60, 100)
    alone = report({"": unlimited}, **STANDALONE)
    assert (alone.memory_bytes, alone.memory_limit_bytes) == (90, 1000)
    silent = report({"": GOOD}, **STANDALONE)
    assert (silent.memory_bytes, silent.memory_limit_bytes) == (0, 0)


def test_a_report_is_about_the_real_server() -> None:
    async def scenario(store: Store) -> None:
        found = await store.check()
        assert (found.server, found.role, found.mode) == ("redis", "master", "standalone")
        assert found.version.startswith("7.")
        assert 0 < found.memory_bytes < found.memory_limit_bytes
        assert [word in " ".join(found.problems) for word in ("allkeys-lru", "appendonly")] == [True, True]
        assert len(found.problems) == 2

    with running_server(redis_binary(), "--maxmemory-policy", "allkeys-lru", append_only=False) as server:
        run(RedisStores(server.url), scenario)


@pytest.mark.parametrize(
    "url",
    [
        "http://localhost",
        "localhost:6379",
        "redis://localhost:port",
        "sentinel://localhost:1",
        "sentinel://:1/service",
        "sentinel://localhost:port/service",
    ],
)
def test_a_url_that_can_not_be_used_is_a_configuration_error(url: str) -> None:
    with pytest.raises(ConfigurationError, match="the store's URL is not a URL like redis://host:port/0"):
        asyncio.run(RedisStore.connect(url))


def test_a_prefix_with_braces_is_a_configuration_error() -> None:
    with pytest.raises(ConfigurationError, match="braces"):
        asyncio.run(RedisStore.connect("redis://localhost", prefix="a{b}"))


def test_a_wrong_password_is_a_configuration_error() -> None:
    with running_server(valkey_binary(), password="secret") as server:
        address = server.url.removeprefix("redis://")
        with pytest.raises(ConfigurationError, match="password"):
            asyncio.run(RedisStore.connect(f"redis://:wrong@{address}", timeout=PATIENCE))
        with pytest.raises(ConfigurationError, match="password"):
            asyncio.run(RedisStore.connect(server.url, timeout=PATIENCE))
        run(RedisStores(f"redis://:secret@{address}"), furnish)


def test_items_that_are_retired_together_are_all_remembered(valkey: RunningServer) -> None:
    """Some of them share a bucket, which is written once."""

    async def scenario(store: Store) -> None:
        await store.create_bandit(NAME, settings(item_capacity=400), incarnation="first", quota=9)
        ids = [f"item-{number}" for number in range(400)]
        await store.change_items(NAME, upserted=[Item(one) for one in ids], retired=[])
        await store.change_items(NAME, upserted=[], retired=ids)
        for one in ids:
            with pytest.raises(ConflictError, match="retired"):
                await store.change_items(NAME, upserted=[Item(one)], retired=[])

    run(RedisStores(valkey.url), scenario)


def test_what_can_not_be_ended_holds_up_no_other_deadline(valkey: RunningServer) -> None:
    """Of a garbage record only its own deadline goes; garbage that all of them need is an error, and all stay."""

    async def scenario(store: RedisStore) -> None:
        await store.create_bandit(NAME, settings(reward_wait_ms=0), incarnation="first", quota=9)
        for one in ("first", "second", "third"):
            await recommend(store, one)
        keys = store._keys.bandit(NAME)
        with valkey.client() as client:
            packed = client.hget(keys.recommendations, "second")
            client.hset(keys.recommendations, "second", packed.replace(b"[]", b"[[1]]", 1))
            kept = client.hget(keys.meta, "log_position")
            client.hset(keys.meta, "log_position", "garbage")
            with pytest.raises(CorruptDataError):
                await store.expire_due(NAME, limit=9)
            assert client.zcard(keys.deadlines) == 3
            client.hset(keys.meta, "log_position", kept)
            assert await expire(store) == 2
            assert client.zcard(keys.deadlines) == 0
        log = await whole_log(store, NAME)
        assert [one.event.recommendation_id for one in log if isinstance(one.event, Expired)] == ["first", "third"]

    run(RedisStores(valkey.url), scenario)


def test_tls() -> None:
    openssl = find_program("openssl")
    port = free_port()
    options = ("--tls-port", str(port), "--tls-cert-file", "cert.pem", "--tls-key-file", "key.pem")
    trust = ("--tls-ca-cert-file", "cert.pem", "--tls-auth-clients", "no")

    def make_certificate(folder: Path) -> None:
        command = [openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        command += ["-keyout", "key.pem", "-out", "cert.pem", "-days", "1", "-subj", "/CN=localhost"]
        command += ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
        subprocess.run(command, cwd=folder, check=True, capture_output=True)

    with running_server(redis_binary(), *options, *trust, prepare=make_certificate) as server:
        run(RedisStores(f"rediss://127.0.0.1:{port}?ssl_ca_certs={server.folder}/cert.pem"), furnish)
        with pytest.raises(UnavailableError):
            asyncio.run(RedisStore.connect(f"rediss://127.0.0.1:{port}"))


def test_sentinel_leads_to_the_new_primary() -> None:
    with running_sentinel(valkey_binary(), down_after_ms=NEVER_MS) as pair:

        async def scenario(store: Store) -> None:
            await furnish(store)
            assert (await store.check()).mode == "sentinel"
            await asyncio.to_thread(pair.until_ready_to_fail_over)
            async with listening(store) as following:
                await asyncio.to_thread(pair.lose_primary)
                receipt = (await insist(lambda: store.record_reward(NAME, "pending", 1.0))).answer
                assert receipt.outcome == RewardOutcome.ACCEPTED
                assert await following() is None
            with pair.replica.client() as client:
                assert client.info("replication")["role"] == "master"

        run(RedisStores(pair.url), scenario)


def test_a_sentinel_that_hangs_holds_up_nobody() -> None:
    with (
        running_sentinel(valkey_binary(), down_after_ms=NEVER_MS) as pair,
        running_server(valkey_binary(), "--sentinel") as other,
    ):
        other.send_signal(signal.SIGSTOP)
        hosts = ",".join(f"127.0.0.1:{sentinel.port}" for sentinel in (other, pair.sentinel))

        async def scenario(store: Store) -> None:
            for _ in range(3):
                await furnish(store)
                await store.delete_bandit(NAME)

        run(RedisStores(f"sentinel://{hosts}/main"), scenario)


def test_a_sentinel_that_does_not_know_the_service_is_unavailable() -> None:
    with running_server(valkey_binary(), "--sentinel") as sentinel:
        url = f"sentinel://127.0.0.1:{sentinel.port}/nobody"
        with pytest.raises(UnavailableError):
            asyncio.run(RedisStore.connect(url))
