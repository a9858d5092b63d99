"""What only a store of studies in Redis can get wrong: lost replies, torn keys, dangling entries, spoiled bytes."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from redis.crc import key_slot
from tests.contracts.clocks import StoreClock
from tests.contracts.harness import RedisStores, insist
from tests.contracts.study_archives import StudySender, archived_study
from tests.contracts.study_samples import CHOSEN, LEASE_MS, PROGRESS, STUDY, imported, study_settings
from tests.servers import running_server, valkey_binary
from tests.store.proxy import LossyProxy, lossy_proxy

from topk_bandit.domain.bandits import BanditName
from topk_bandit.domain.errors import CorruptDataError, ExhaustedError
from topk_bandit.domain.studies import (
    DesignCancelled,
    DesignState,
    LoggedStudyEvent,
    RankingAnswer,
    StudyName,
    StudyQuery,
)
from topk_bandit.store.data_versions import OLDEST
from topk_bandit.store.log import ImportOutcome, RecordStatus
from topk_bandit.store.redis import scripts
from topk_bandit.store.redis.keys import KeySpace
from topk_bandit.store.redis.tenant_index import RESERVATION_MS
from topk_bandit.store.study_log import AnswerStatus, AskOutcome, AskStatus

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

    from tests.servers import RunningServer

    from topk_bandit.store.redis.scripts import Script
    from topk_bandit.store.redis.studies import RedisStudies

OTHER = StudyName("shop", "other")
ANSWER = RankingAnswer((0, 1))


@pytest.fixture(scope="module")
def valkey() -> Iterator[RunningServer]:
    with running_server(valkey_binary()) as server:
        yield server


async def furnish(store: RedisStudies) -> None:
    """Create a study with two questions, and one whose design is under way."""
    record = await store.create_study(STUDY, study_settings(), incarnation="first", quota=9)
    await store.end_design(record, CHOSEN)
    await store.ask(record, request_id="r1", count=2, lists=[0, 1], asked=0)
    other = await store.create_study(OTHER, study_settings(), incarnation="other", quota=9)
    await store.end_design(other, DesignCancelled(1))
    await store.create_study(OTHER, study_settings(), incarnation="other", quota=9)


async def on(store: RedisStudies, name: StudyName, call: Callable[..., Awaitable[Any]]) -> Any:  # noqa: ANN401
    return await call(await store.get_study(name))


WRITES: dict[str, tuple[Callable[[RedisStudies], Awaitable[Any]], Script, StudyName, int, Any]] = {
    "create": (
        lambda store: store.create_study(StudyName("shop", "new"), study_settings(), incarnation="new", quota=3),
        scripts.STUDY_CREATE,
        STUDY,
        0,
        None,
    ),
    "claim": (
        lambda store: store.claim_design(OTHER, owner="me", lease_ms=LEASE_MS),
        scripts.STUDY_COMMIT,
        OTHER,
        0,
        None,
    ),
    "report": (
        lambda store: on(
            store,
            OTHER,
            lambda record: store.report_design(record, owner="me", lease_ms=LEASE_MS, progress=PROGRESS),
        ),
        scripts.STUDY_COMMIT,
        OTHER,
        0,
        True,
    ),
    "end": (
        lambda store: on(store, OTHER, lambda record: store.end_design(record, DesignCancelled(2))),
        scripts.STUDY_COMMIT,
        OTHER,
        1,
        None,
    ),
    "ask": (
        lambda store: on(store, STUDY, lambda record: store.ask(record, request_id="r2", count=1, lists=[0], asked=2)),
        scripts.STUDY_COMMIT,
        STUDY,
        1,
        AskOutcome(AskStatus.REPEATED, 3, 1),
    ),
    "answer": (
        lambda store: on(store, STUDY, lambda record: store.record_answers(record, [(1, ANSWER), (2, ANSWER)])),
        scripts.STUDY_COMMIT,
        STUDY,
        2,
        [AnswerStatus.DUPLICATE, AnswerStatus.DUPLICATE],
    ),
    "import": (
        lambda store: on(store, STUDY, lambda record: store.record_import(record, *imported())),
        scripts.STUDY_COMMIT,
        STUDY,
        1,
        ImportOutcome(RecordStatus.REPEATED, 2, 2, 4),
    ),
}


@asynccontextmanager
async def through_proxy(server: RunningServer) -> AsyncIterator[tuple[LossyProxy, RedisStudies]]:
    """Connect to a server through a proxy that can lose replies."""
    async with lossy_proxy(server.port) as proxy, RedisStores(f"redis://127.0.0.1:{proxy.port}").connect() as store:
        yield proxy, store.studies()


@pytest.mark.parametrize("losses", [1, 2])
@pytest.mark.parametrize("call", WRITES)
def test_a_write_whose_reply_was_lost_has_its_effect_once(valkey: RunningServer, call: str, losses: int) -> None:
    write, script, name, appended, again = WRITES[call]

    async def main() -> None:
        async with through_proxy(valkey) as (proxy, store):
            await furnish(store)
            before = await store.get_study(name)
            proxy.lose(script, replies=losses)
            outcome = await insist(lambda: write(store))
            assert proxy.lost == losses
            assert again is None or outcome == again
            after = await store.get_study(name)
            assert after.log_position == before.log_position + appended
            listed = [record.name.study for record in await store.list_studies("shop", after="", limit=9)]
            assert listed == ["new", "other", "taste"] if call == "create" else ["other", "taste"]

    asyncio.run(main())


def test_a_study_is_restored_once_though_replies_were_lost(valkey: RunningServer) -> None:
    async def main() -> None:
        async with through_proxy(valkey) as (proxy, store):
            plain = replace(study_settings(), queries=(StudyQuery("now", (1.0,)), StudyQuery("later", (2.0,))))
            record = await store.create_study(STUDY, plain, incarnation="first", quota=9)
            await store.end_design(record, CHOSEN)
            lines = await archived_study(store, STUDY)
            await store.delete_study(STUDY)
            sender, receipt = StudySender(store), None
            for place, line in enumerate(lines):
                proxy.lose(scripts.RECORD_RESTORE, replies=1)
                receipt = await sender.send(STUDY, [line], first=place)
            assert proxy.lost == len(lines)
            assert receipt is not None
            assert receipt.made is not None
            assert await archived_study(store, STUDY) == lines

    asyncio.run(main())


def test_a_deletion_whose_reply_was_lost_is_no_error(valkey: RunningServer) -> None:
    async def main() -> None:
        async with through_proxy(valkey) as (proxy, store):
            await furnish(store)
            proxy.lose(scripts.DELETE, replies=1)
            await store.delete_study(STUDY)
            assert proxy.lost == 1
            assert [record.name for record in await store.list_studies("shop", after="", limit=9)] == [OTHER]

    asyncio.run(main())


@pytest.mark.parametrize("name", [STUDY, StudyName("}", "{"), StudyName("a/b", "c}d"), StudyName("", "")])
def test_no_name_tears_keys_apart_or_meets_another(name: StudyName) -> None:
    space = KeySpace("prefix")
    keys = set(space.study(name).all)
    assert len({key_slot(key.encode()) for key in keys}) == 1
    assert space.read_study(space.write_study(name).encode()) == name
    bandits = [BanditName(name.tenant, name.study), BanditName("studies", f"{name.tenant}/{name.study}")]
    assert all(keys.isdisjoint(space.bandit(bandit).all) for bandit in bandits)


def test_a_study_leaves_nothing_behind(valkey: RunningServer) -> None:
    stores = RedisStores(valkey.url, clock=StoreClock())
    space = KeySpace(stores.prefix)

    async def main() -> None:
        async with stores.connect() as opened:
            store = opened.studies()
            record = await store.create_study(STUDY, study_settings(), incarnation="first", quota=9)
            await store.claim_design(STUDY, owner="me", lease_ms=LEASE_MS)
            with valkey.client() as client:
                assert client.exists(*space.study(STUDY).all) == 3
            await store.end_design(record, CHOSEN)
            await store.ask(record, request_id="r", count=1, lists=[0], asked=0)
            await store.record_answers(record, [(1, ANSWER)])
            await store.record_import(record, *imported())
            tenant = space.studies("shop")
            with valkey.client() as client:
                written = {key.decode() for key in client.scan_iter(match=f"{stores.prefix}:*", count=1000)}
                lease = space.study(STUDY).lease
                assert written == {*space.study(STUDY).all, *vars_of(tenant), space.designs, space.tenants} - {lease}
                assert all(client.ttl(key) == -1 for key in written)
                await store.delete_study(STUDY)
                left = [key.decode() for key in client.scan_iter(match=f"{stores.prefix}:*", count=1000)]
                assert left == [space.designs]
                # What is listed for nothing goes once nobody can be about to begin it.
                assert await store.unfinished_designs(limit=9) == ()
                assert client.zcard(space.designs) == 1
                await stores.pass_time(RESERVATION_MS)
                assert await store.unfinished_designs(limit=9) == ()
                assert client.exists(space.designs) == 0

    asyncio.run(main())


def test_a_log_of_long_events_is_read_a_few_at_a_time(valkey: RunningServer) -> None:
    async def main() -> None:
        async with RedisStores(valkey.url).connect() as opened:
            store = opened.studies()
            record = await store.create_study(STUDY, study_settings(), incarnation="first", quota=9)
            for number in range(9):
                await store.record_import(record, *imported(1000 * number, 1000))
            found: list[LoggedStudyEvent] = []
            while part := (await store.read_study(STUDY, start=len(found) + 1, limit=99)).events:
                assert len(part) in {4, 2}
                found += part
            assert [one.event for one in found[1:]] == [imported(1000 * number, 1000)[1] for number in range(9)]

    asyncio.run(main())


def vars_of(keys: Any) -> tuple[str, str]:  # noqa: ANN401
    return keys.entries, keys.reservations


def test_a_design_that_began_again_stays_listed(valkey: RunningServer) -> None:
    """Its listing is as new as its last beginning, whatever a sweep of the one before is about to do."""
    stores = RedisStores(valkey.url)
    space = KeySpace(stores.prefix)

    async def main() -> None:
        async with stores.connect() as opened:
            store = opened.studies()
            record = await store.create_study(STUDY, study_settings(), incarnation="first", quota=9)
            await store.end_design(record, DesignCancelled(1))
            with valkey.client() as client:
                client.zincrby(space.designs, -20_000, space.write_study(STUDY))
                seen = int(client.zscore(space.designs, space.write_study(STUDY)))
                await store.create_study(STUDY, study_settings(), incarnation="first", quota=9)
                client.eval(
                    scripts.STUDY_UNLIST_DESIGN.at(OLDEST).source,
                    1,
                    space.designs,
                    space.write_study(STUDY),
                    seen,
                    10_000,
                )
            assert await store.unfinished_designs(limit=9) == (STUDY,)

    asyncio.run(main())


def test_an_entry_that_dangles_counts_only_for_a_while(valkey: RunningServer) -> None:
    stores = RedisStores(valkey.url, clock=StoreClock())

    async def main() -> None:
        async with stores.connect() as opened:
            store = opened.studies()
            await store._studies.index.reserve("shop", "dead", incarnation="dead", quota=1)
            with pytest.raises(ExhaustedError):
                await store.create_study(STUDY, study_settings(), incarnation="first", quota=1)
            await stores.pass_time(RESERVATION_MS)
            made = await store.create_study(STUDY, study_settings(), incarnation="first", quota=1)
            assert made.state is DesignState.DESIGNING

    asyncio.run(main())


def put_nonsense(client: Any, keys: Any) -> None:  # noqa: ANN401
    client.delete(keys.log)
    client.xadd(keys.log, {"at_ms": 1, "event": "{}"}, id="1-0")


def put_another_type(client: Any, keys: Any) -> None:  # noqa: ANN401
    client.delete(keys.meta)
    client.set(keys.meta, "x")


SPOILED: dict[str, Callable[[Any, Any], object]] = {
    "a gap": lambda client, keys: client.xdel(keys.log, "2-0"),
    "an event that is none": put_nonsense,
    "a meta hash without a field": lambda client, keys: client.hdel(keys.meta, "shape"),
    "a state that is none": lambda client, keys: client.hset(keys.meta, "state", "odd"),
    "progress that is none": lambda client, keys: client.hset(keys.meta, "progress", "{}"),
    "a key of another type": put_another_type,
}


@pytest.mark.parametrize("what", SPOILED)
def test_what_was_spoiled_is_not_believed(valkey: RunningServer, what: str) -> None:
    stores = RedisStores(valkey.url)

    async def main() -> None:
        async with stores.connect() as opened:
            store = opened.studies()
            await furnish(store)
            with valkey.client() as client:
                SPOILED[what](client, KeySpace(stores.prefix).study(STUDY))
            with pytest.raises(CorruptDataError):
                await store.read_study(STUDY, start=1, limit=99)

    asyncio.run(main())
