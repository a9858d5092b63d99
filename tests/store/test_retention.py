"""How long what is in the store stays there, where no other test shows it; the table is in docs/operations.md."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.contracts.clocks import BEGINNING_MS, StoreClock
from tests.contracts.frequency_contract import look, show
from tests.contracts.frequency_contract import opened as open_bandit
from tests.contracts.harness import RedisStores, run
from tests.contracts.samples import NAME, PAST, SETTINGS, import_part
from tests.contracts.study_samples import STUDY
from tests.servers import running_server, valkey_binary

from topk_bandit.domain.errors import ExhaustedError
from topk_bandit.store.events import Imported
from topk_bandit.store.log import MOST_IMPORT_PARTS, RecordStatus
from topk_bandit.store.memory.studies import MemoryStudies
from topk_bandit.store.redis.bandits import FOLLOWER_RETENTION_MS
from topk_bandit.store.redis.keys import KeySpace
from topk_bandit.store.redis.programs import RETENTION_MS
from topk_bandit.store.study_log import RESTORE_MS
from topk_bandit.store.study_restores import StudyRestore, StudyRestoreStep

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.servers import RunningServer

    from topk_bandit.store.log import ImportPart
    from topk_bandit.store.redis.bandits import RedisStore

ROOT = Path(__file__).parents[2]
TABLE = (
    (ROOT / "docs/operations.md").read_text().partition("## What is kept, and for how long")[2].partition("\n## ")[0]
)


@pytest.fixture(scope="module")
def valkey() -> Iterator[RunningServer]:
    with running_server(valkey_binary(), append_only=False) as server:
        yield server


def test_an_import_of_a_study_that_nobody_goes_on_with_is_forgotten_in_memory_too() -> None:
    now_ms = 0
    store, before = MemoryStudies(clock_ms=lambda: now_ms), StudyRestore("one")
    step = StudyRestoreStep(StudyRestore("one", next_line=1))

    async def scenario() -> None:
        nonlocal now_ms
        assert await store.record_restore(STUDY, step, before=before)
        now_ms = RESTORE_MS - 1
        assert await store.find_restore(STUDY) == step.restore
        now_ms = RESTORE_MS
        assert await store.find_restore(STUDY) is None

    asyncio.run(scenario())


def test_a_worker_that_is_silent_leaves_no_sign_of_life(valkey: RunningServer) -> None:
    stores = RedisStores(valkey.url, clock=StoreClock())
    space = KeySpace(stores.prefix)
    followers, programs = space.bandit(NAME).followers, space.programs

    async def scenario(store: RedisStore) -> None:
        await store.create_bandit(NAME, SETTINGS, incarnation="first", quota=1)

        async def hear(worker: str) -> None:
            await store.note_follower(NAME, follower=worker, items_position=0)
            await store.programs(worker, about=worker).note()

        with valkey.client() as client:
            await hear("gone")
            for silent_ms, left in ((RETENTION_MS, {b"gone", b"here"}), (1, {b"here"})):
                await stores.pass_time(silent_ms)
                await hear("here")
                assert set(client.hkeys(followers)) == left
                assert set(client.hkeys(programs)) == left | {b"data_version", b"~store"}

    assert FOLLOWER_RETENTION_MS == RETENTION_MS == 60_000
    run(stores, scenario)


def test_what_visitors_saw_goes_with_the_last_slate_that_counts_and_with_the_bandit(valkey: RunningServer) -> None:
    stores = RedisStores(valkey.url, clock=StoreClock())
    keys = KeySpace(stores.prefix).bandit(NAME)

    async def scenario(store: RedisStore) -> None:
        with valkey.client() as client:

            async def see(number: int, who: str) -> None:
                seen = await look(store, who)
                assert (await show(store, number, seen, who)).status is RecordStatus.RECORDED

            def kept() -> set[bytes]:
                return {key for key in client.scan_iter(f"{stores.prefix}:*") if b":seen:" in key or b":visit" in key}

            await open_bandit(store)
            for number, who in enumerate("ab"):
                await see(number, who)
                await stores.pass_time(20_000)
            now_ms, ends = stores.clock.read_ms(), {key: client.pexpiretime(key) - BEGINNING_MS for key in kept()}
            assert sorted(ends.values()) == [60_000, 80_000, 80_000]
            assert ends[keys.visitors.encode()] == 80_000
            assert now_ms == BEGINNING_MS + 40_000
            await stores.pass_time(20_000)
            assert len(kept()) == 2
            await see(9, "c")  # the list forgets whose end has come
            assert client.zcard(keys.visitors) == 2
            await stores.pass_time(60_000)
            assert kept() == set()
            await see(10, "d")
            assert len(kept()) == 2
            await store.delete_bandit(NAME)
            assert list(client.scan_iter(f"{stores.prefix}:*")) == []

    run(stores, scenario)


def test_parts_of_imports_are_remembered_up_to_a_limit(valkey: RunningServer) -> None:
    stores = RedisStores(valkey.url)

    async def scenario(store: RedisStore) -> None:
        await store.create_bandit(NAME, SETTINGS, incarnation="first", quota=1)
        meta = KeySpace(stores.prefix).bandit(NAME).meta

        async def take(part: ImportPart) -> None:
            event = Imported(part.import_id, part.first_row, PAST)
            await store.record_import(NAME, part, event, incarnation="first", items_position=0)

        with valkey.client() as client:
            client.hset(meta, "import_parts", MOST_IMPORT_PARTS - 1)
            await take(import_part())
            assert client.hget(meta, "import_parts") == b"%d" % MOST_IMPORT_PARTS
            with pytest.raises(ExhaustedError) as refused:
                await take(import_part(3))
        assert (refused.value.reason, refused.value.retry_after) == ("IMPORT_COUNT", None)
        assert (await store.find_import(NAME, import_part().import_id)).next_row == 3

    run(stores, scenario)


def test_each_kind_of_data_has_its_retention_and_a_test_of_it() -> None:
    rows = [line.strip("|").split("|") for line in TABLE.splitlines() if line.startswith("| ")][1:]
    assert len(rows) >= 14
    for kind, kept, test in rows:
        assert kept.strip(), kind
        named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", test)
        assert named or "outside" in test, kind
        for path, name in named:
            assert f"def {name}(" in (ROOT / path).read_text(), name


def test_every_key_of_the_store_is_in_the_table() -> None:
    space = KeySpace("p")
    keys = [
        *space.bandit(NAME)._fields,
        "arriving",
        "requests",
        "answers",
        "lease",
        "programs",
        "designs",
        "reservations",
    ]
    assert [key for key in keys if f"`{key}" not in TABLE] == []
