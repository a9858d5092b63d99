"""Each script against each of its keys when that is missing, of another type, or full of garbage.

A script that errors must leave every key as it was: what it has written by then is not rolled back.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest
import redis
from tests.contracts.archives import archived, restore_lines
from tests.contracts.clocks import ClockedLink, StoreClock, ToldTime
from tests.contracts.harness import RedisStores
from tests.contracts.samples import ITEMS, NAME, PAST, import_part, recommendation, request, settings
from tests.contracts.study_archives import StudySender, archived_study
from tests.contracts.study_samples import CHOSEN, LEASE_MS, PROGRESS, STUDY, imported, study_settings
from tests.long_forms import usual_or_long
from tests.servers import running_server, valkey_binary

from topk_bandit.domain.bandits import Aggregation, BanditName, Item
from topk_bandit.domain.errors import ExhaustedError
from topk_bandit.domain.studies import DesignCancelled, RankingAnswer, StudyQuery
from topk_bandit.store.data_versions import NEWEST
from topk_bandit.store.events import EventSkipped, Imported, ItemsChanged, SettingsChanged
from topk_bandit.store.log import Correctable, Skip, Snapshot
from topk_bandit.store.redis import scripts as module
from topk_bandit.store.redis.scripts import Script

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence

    from tests.servers import RunningServer

    from topk_bandit.store.log import Store
    from topk_bandit.store.redis.bandits import RedisStore
    from topk_bandit.store.study_log import StudyStore

SCRIPTS = {name: script for name, script in vars(module).items() if isinstance(script, Script)}
Dumps = dict[bytes, bytes]
GARBAGE = b"garbage"
MOST_CALLS = usual_or_long(2, long=100)
APPENDING = {"COMMIT", "STUDY_COMMIT"}
"""The scripts that append to a log that is there."""


def is_mending(call: Call) -> bool:
    """Return whether a call has an event passed over, which mends a log."""
    return any(isinstance(one, bytes) and b"mends" in one for one in call.arguments)


@dataclass(frozen=True)
class Call:
    """A call of a script with the time as its last argument, and what was in the server before."""

    script: str
    keys: tuple[str, ...]
    arguments: tuple[bytes | str | int, ...]
    before: Dumps


def dumps(client: redis.Redis) -> Dumps:
    return {key: client.dump(key) for key in client.keys("*")}


def contents(client: redis.Redis) -> dict[bytes, Any]:
    """Return what all keys hold; a server may move the fields of a hash about while they are read."""
    return {key: client.hgetall(key) if client.type(key) == b"hash" else client.dump(key) for key in client.keys("*")}


def restore(client: redis.Redis, kept: Mapping[bytes, bytes]) -> None:
    client.flushall()
    for key, value in kept.items():
        client.restore(key, 0, value)


def hash_damages(client: redis.Redis, key: str) -> Iterator[tuple[str, Callable[[], Any]]]:
    for field, value in client.hgetall(key).items():
        for word, spoiled in spoilt(value).items():
            yield f"{field.decode()} {word}", lambda field=field, spoiled=spoiled: client.hset(key, field, spoiled)
        yield f"{field.decode()} gone", lambda field=field: client.hdel(key, field)


def spoilt(value: bytes) -> dict[str, bytes]:
    """Return garbage instead of a value, and instead of each of its words."""
    words = value.split(b" ")
    parts = {f"word {n}": b" ".join([*words[:n], GARBAGE, *words[n + 1 :]]) for n in range(min(len(words), 9))}
    halves = {"half": value[: len(value) // 2], "real": b"1.5", "huge": b"9" * 30, "none": b"", "odd": b"[[1]]"}
    return {**(parts if len(words) > 1 else {}), **halves, "garbage": GARBAGE}


def damages(client: redis.Redis, key: str) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield each way to damage a key: what it is called, and a function that does it."""
    kind = client.type(key).decode()
    yield "missing", lambda: client.delete(key)
    for other, make in {
        "string": lambda: client.set(key, GARBAGE),
        "list": lambda: client.rpush(key, GARBAGE),
        "hash": lambda: client.hset(key, GARBAGE, GARBAGE),
        "zset": lambda: client.zadd(key, {GARBAGE: 0.5}),
        "stream": lambda: client.xadd(key, {GARBAGE: GARBAGE}),
    }.items():
        yield f"a {other}", lambda make=make: (client.delete(key), make())
    if kind == "hash":
        yield from hash_damages(client, key)
    if kind == "zset":
        yield "with garbage", lambda: client.zadd(key, {GARBAGE: 1.0})
    if kind == "stream":
        yield "with garbage", lambda: client.xadd(key, {GARBAGE: GARBAGE}, id="9999999-0")


class Recorder:
    """Notes each call of a script, with what was in the server before."""

    def __init__(self, client: redis.Redis) -> None:
        self.client = client
        self.calls: list[Call] = []

    def note(self, link: ClockedLink, script: Script, keys: Any, arguments: Any = ()) -> None:  # noqa: ANN401 - any of them
        name = next(name for name, one in SCRIPTS.items() if one is script)
        self.calls.append(Call(name, tuple(keys), (*arguments, link.clock.now_ms), dumps(self.client)))


async def recommend(store: Store, *ids: str, items_position: int = 2) -> None:
    for one in ids:
        await store.record_recommendation(
            NAME, request(), recommendation(one), incarnation="first", items_position=items_position
        )


async def skip(store: Store, position: int) -> None:
    record = await store.get_bandit(NAME)
    looked_at = record.incarnation, record.revision, record.items_position
    stated = SettingsChanged(record.settings), ItemsChanged(tuple(await store.list_items(NAME)))
    assert await store.skip_event(NAME, Skip(position, EventSkipped("why", 1), 1, *looked_at, *stated))


async def use_bandits(store: Store, pass_time: Callable[[int], Awaitable[None]]) -> Sequence[str]:
    """Call each script about bandits, those with several ways through them in each; return the lines of one."""
    plain = settings(requires_activation=True, reward_aggregation=Aggregation.MEAN, default_reward=0.5)
    await store.create_bandit(NAME, plain, incarnation="first", quota=1)
    await store.change_items(NAME, upserted=[*ITEMS, Item("fig")], retired=[])
    await recommend(store, "shown", "inactive", "late", "due", "unseen")
    await store.find_recommendation(NAME, request(), "shown")
    for part in (import_part(), import_part(3)):
        event = Imported(part.import_id, part.first_row, PAST)
        await store.find_import_part(NAME, part)
        await store.record_import(NAME, part, event, incarnation="first", items_position=2)
    await store.find_import(NAME, "year")
    for one in ("shown", "late", "due"):
        await store.activate(NAME, one)
    await store.activate(NAME, "shown")
    for final in (False, True):
        await store.record_reward(NAME, "shown", 1.0, reward_id=f"{final}", final=final)
    await store.record_reward(NAME, "inactive", 1.0, reward_id="one")
    version = (await store.get_bandit(NAME)).log_position
    known = Correctable("first", 1, version, 2**40)
    await store.correct_reward(NAME, "inactive", 2.0, reward_id="one", known=known)
    await store.correct_reward(NAME, "shown", 2.0, reward_id="True", known=known)
    await store.correct_reward(NAME, "unseen", None, known=known)
    quick = settings(reward_wait_ms=30, reward_aggregation=Aggregation.SUM, default_reward=0.5)
    await store.update_settings(NAME, quick, revision=1)
    for request_id in ("one", "one", "two"):
        await store.reset_bandit(NAME, request_id=request_id)
    await skip(store, 4)
    await skip(store, 3)
    newest = (await store.get_bandit(NAME)).items_position
    await recommend(store, "overdue", "open", "tardy", items_position=newest)
    await store.record_reward(NAME, "open", 1.0, reward_id="one")
    await pass_time(30)
    await store.record_reward(NAME, "tardy", 1.0, reward_id="one")
    await store.expire_due(NAME, limit=9)
    await pass_time(2)
    await store.expire_due(NAME, limit=9)
    await store.change_items(NAME, upserted=[Item("fig", available=False)], retired=["apple", "pear"])
    await store.note_follower(NAME, follower="old", items_position=1)
    await store.note_follower(NAME, follower="new", items_position=2)
    await store.measure(NAME.tenant)
    assert [damage async for damage in store.find_damaged()] == []
    await store.list_again(NAME)
    await store.slowest_follower(NAME, heard_within_ms=60_000)
    await store.list_items(NAME)
    await store.read_log(NAME, start=1, limit=5)
    await store.note_loss(NAME, incarnation="first", after=3, end=9, rewards=(5, 7))
    for position, behind in ((3, 0), (6, 3)):
        await store.save_snapshot(NAME, Snapshot(position, b"x"), incarnation="first", behind=behind)
    with pytest.raises(ExhaustedError):  # which looks for lapsed reservations
        await store.create_bandit(BanditName("shop", "other"), plain, incarnation="other", quota=1)
    lines = await archived(store, NAME)
    await store.delete_bandit(NAME)
    return lines


async def use_studies(store: StudyStore) -> None:
    """Call each script about studies."""
    having = replace(study_settings(), queries=(StudyQuery("now", (1.0,)), StudyQuery("later", (2.0,))))
    record = await store.create_study(STUDY, having, incarnation="first", quota=9)
    await store.claim_design(STUDY, owner="me", lease_ms=LEASE_MS)
    await store.report_design(record, owner="me", lease_ms=LEASE_MS, progress=PROGRESS)
    await store.end_design(record, DesignCancelled(1))
    again = await store.create_study(STUDY, having, incarnation="first", quota=9)
    await store.end_design(again, replace(CHOSEN, attempt=2))
    asked = await store.get_study(STUDY)
    await store.ask(asked, request_id="one", count=2, lists=(0, 1), asked=0)
    await store.record_answers(asked, [(1, RankingAnswer((1, 0))), (2, RankingAnswer((0, 1)))])
    await store.record_import(asked, *imported())
    await store.find_import(STUDY, "old")
    await store.read_study(STUDY, start=1, limit=9)
    await store.unfinished_designs(limit=9)
    lines = await archived_study(store, STUDY)
    await store.delete_study(STUDY)
    assert (await StudySender(store).send(STUDY, lines, at_once=5)).made is not None


async def use_programs(store: RedisStore) -> None:
    """Call each script about the programs that use a store."""
    for worker in ("one", "two"):
        await store.programs(worker, about="me").note()
    await store.programs("one", about="me").finalize()
    await store.time_writes(count=1)


async def use_everything(url: str) -> Sequence[str]:
    """Call each script; return the lines of the bandit."""
    clock = StoreClock()
    stores = RedisStores(url, record_retention_ms=1, clock=clock)
    async with stores.connect() as store:
        lines = await use_bandits(store, stores.pass_time)
        await use_studies(store.studies())
        await use_programs(store)
    async with RedisStores(url, clock=clock).connect() as store:
        await store.finish_restore(NAME, await restore_lines(store, NAME, lines, at_once=12), quota=1)
    return lines


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with running_server(valkey_binary(), append_only=False) as server:
        yield server


@pytest.fixture(scope="module")
def calls(server: RunningServer) -> list[Call]:
    """Each call that a store makes in a life with a bit of everything."""
    recorder = Recorder(server.client())
    with pytest.MonkeyPatch.context() as patch:
        run, run_all, run_durably = ClockedLink.run, ClockedLink.run_all, ClockedLink.run_all_durably

        async def noted(link: ClockedLink, script: Script, *arguments: Any) -> Any:  # noqa: ANN401
            recorder.note(link, script, *arguments)
            return await run(link, script, *arguments)

        def note_all(call: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
            async def noted_too(link: ClockedLink, script: Script, keys: Any, arguments: Any, **how: str) -> Any:  # noqa: ANN401
                for one in arguments:
                    recorder.note(link, script, keys, one)
                return await call(link, script, keys, arguments, **how)

            return noted_too

        patch.setattr(ClockedLink, "run", noted)
        patch.setattr(ClockedLink, "run_all", note_all(run_all))
        patch.setattr(ClockedLink, "run_all_durably", note_all(run_durably))
        asyncio.run(use_everything(server.unix_url))
    return recorder.calls


def test_every_script_is_called(calls: list[Call]) -> None:
    assert {call.script for call in calls} == set(SCRIPTS)


def log_of(call: Call) -> str | None:
    return next((key for key in call.keys if key.endswith(":log")), None)


def send(client: redis.Redis, call: Call) -> None:
    source = ToldTime(SCRIPTS[call.script]).at(NEWEST).source
    client.eval(source, len(call.keys), *call.keys, *call.arguments)


def newest_entry(client: redis.Redis, log: str) -> bytes:
    return next((entry_id for entry_id, _ in client.xrevrange(log, count=1)), b"")


CUTS: dict[str, Callable[[redis.Redis, str], object]] = {
    "deleted": lambda client, log: client.delete(log),
    "emptied": lambda client, log: client.xtrim(log, maxlen=0),
    "cut": lambda client, log: client.xdel(log, newest_entry(client, log)),
    "gone on with": lambda client, log: client.xadd(log, {GARBAGE: GARBAGE}, id="9999999-0"),
}


@pytest.mark.parametrize("cut", CUTS)
def test_nothing_is_appended_behind_a_gap(server: RunningServer, calls: list[Call], cut: str) -> None:
    client, refused = server.client(), set()
    for call in calls:
        log = log_of(call)
        if call.script not in APPENDING or log is None or log.encode() not in call.before or is_mending(call):
            continue
        restore(client, call.before)
        newest = newest_entry(client, log)
        send(client, call)
        if newest_entry(client, log) == newest:
            continue  # it finds its effect there already
        restore(client, call.before)
        CUTS[cut](client, log)
        before = contents(client)
        with pytest.raises(redis.ResponseError, match="does not end at position"):
            send(client, call)
        assert contents(client) == before, call.script
        refused.add(call.script)
    assert refused == APPENDING


@pytest.mark.slow
@pytest.mark.long_form
@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_that_errors_leaves_all_keys_as_they_were(server: RunningServer, calls: list[Call], name: str) -> None:
    client, errors, kept = server.client(), 0, []
    for call in [call for call in calls if call.script == name][-MOST_CALLS:]:
        restore(client, call.before)
        for key in dict.fromkeys(call.keys):
            for word, damage in list(damages(client, key)):
                restore(client, call.before)
                damage()
                before = contents(client)
                try:
                    send(client, call)
                except redis.ResponseError as error:
                    errors += 1
                    if contents(client) != before:
                        kept.append((key.rpartition(":")[2], word, str(error)[:80]))
    assert not kept, f"{len(kept)} of {errors}: {kept[:12]}"
    assert errors > 0 or name == "EXAMINE"  # which reports damage, and is never stopped by it
