"""A store whose user may not do all that is needed: what is refused is named, and is no store that is away."""

from __future__ import annotations

import asyncio
import logging
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from prometheus_client import CollectorRegistry
from tests.contracts.harness import LEAST_RIGHTS, RedisStores, listening
from tests.contracts.samples import NAME, SETTINGS, recommendation, request
from tests.servers import redis_binary, running_server, valkey_binary
from tests.waiting import PATIENCE

from topk_bandit.domain.durability import FSYNC
from topk_bandit.domain.errors import ConfigurationError, NotPermittedError, TopkBanditError
from topk_bandit.process.assembly import _connect
from topk_bandit.process.metrics import Metrics
from topk_bandit.process.settings import Settings
from topk_bandit.store.redis.bandits import RedisStore
from topk_bandit.store.redis.deployment import connection_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.servers import RunningServer

    from topk_bandit.store.log import Store

PAGE = Path(__file__).parents[2] / "docs" / "operations.md"
ALL = ("+@all", "allkeys", "allchannels")


@pytest.fixture(scope="module", params=["valkey", "redis"])
def server(request: pytest.FixtureRequest) -> Iterator[RunningServer]:
    with running_server(valkey_binary() if request.param == "valkey" else redis_binary()) as server:
        yield server


async def recommend(store: Store, key: str) -> None:
    await store.record_recommendation(NAME, request(), recommendation(key), incarnation="first", items_position=0)


@pytest.mark.parametrize("refused", ["evalsha", "xadd", "hget"])
def test_what_is_refused_is_named_and_told_once(
    server: RunningServer, caplog: pytest.LogCaptureFixture, refused: str
) -> None:
    async def scenario() -> None:
        url = server.url_of_a_user(*ALL)
        async with RedisStores(url).connect() as store:
            await store.create_bandit(NAME, SETTINGS, incarnation="first", quota=9)
            await recommend(store, "known")
            server.url_of_a_user(*ALL, f"-{refused}")
            for number in range(3):
                with pytest.raises(NotPermittedError, match="the store's user lacks a permission: ") as refusal:
                    await recommend(store, f"refused-{number}")
                assert "away" not in str(refusal.value)
                assert "user_script" not in str(refusal.value)
                assert not isinstance(refusal.value.__cause__, TopkBanditError)
            with pytest.raises(NotPermittedError):
                await store.record_reward(NAME, "known", 2.0)
            [problem] = (await store.check()).problems
            assert problem.startswith(f"The store's user may not run {refused} on what begins with test-")
            server.url_of_a_user(*ALL)
            assert (await store.check()).problems == ()
            await recommend(store, "permitted")

    caplog.set_level(logging.WARNING)
    asyncio.run(scenario())
    [line] = caplog.messages
    assert line.startswith("the store refuses calls: the store's user lacks a permission: ")


@pytest.mark.parametrize("rights", [ALL, LEAST_RIGHTS])
def test_connections_have_a_name_where_they_may(server: RunningServer, rights: tuple[str, ...]) -> None:
    async def scenario() -> None:
        async with RedisStores(server.url_of_a_user(*rights)).connect() as store, listening(store):
            await store.create_bandit(NAME, SETTINGS, incarnation="first", quota=9)
            with server.client() as client:
                named = [one["name"] for one in client.client_list() if one["user"] == "shop"]
            assert len(named) >= 2
            assert set(named) == ({connection_name()} if rights == ALL else {""})

    asyncio.run(scenario())


def test_keys_and_channels_of_others_are_no_use(server: RunningServer) -> None:
    async def problems(*rights: str) -> tuple[str, ...]:
        async with RedisStores(server.url_of_a_user("+@all", *rights)).connect() as store:
            return (await store.check()).problems

    assert asyncio.run(problems("~test-*", "&test-*")) == ()
    [channels] = asyncio.run(problems("~test-*", "&other"))
    assert "may not run publish, subscribe on what" in channels
    [keys] = asyncio.run(problems("~other", "&test-*"))
    assert "may not run append, del, " in keys
    assert " and " in keys


def test_the_page_has_the_rights_that_are_enough(server: RunningServer) -> None:
    [permissions] = re.findall(
        r"^    ACL SETUSER topk-bandit on >PASSWORD (.+)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE
    )

    async def problems(*rights: str) -> tuple[str, ...]:
        store = await RedisStore.connect(server.url_of_a_user(*rights), timeout=PATIENCE)
        try:
            return (await store.check()).problems
        finally:
            await store.close()

    assert asyncio.run(problems(*permissions.split())) == ()
    [less] = asyncio.run(problems(*permissions.split(), "-@write"))
    assert " xadd" in less or " more on " in less


def test_waits_are_needed_for_their_class(server: RunningServer) -> None:
    async def problems(store: Store) -> str:
        return " ".join((await store.check(FSYNC)).problems)

    async def scenario() -> None:
        async with RedisStores(server.url_of_a_user(*LEAST_RIGHTS)).connect() as store:
            assert (await store.check()).problems == ()
            found = await problems(store)
            assert "may not run waitaof on" in found or "at least 7.2 is needed" in found

    asyncio.run(scenario())


@pytest.mark.parametrize("refused", ["-info", "-time", "-eval", "-xadd"])
def test_a_start_ends_with_what_is_refused(server: RunningServer, refused: str) -> None:
    settings = Settings(redis_url=server.url_of_a_user(*ALL, refused))
    metrics = Metrics(CollectorRegistry(), methods=())

    async def start() -> None:
        async with asyncio.timeout(PATIENCE):
            await _connect(settings, settings.redis_url or "", asyncio.Event(), metrics)

    with pytest.raises(ConfigurationError, match=f"[Tt]he store's user .*{refused[1:]}"):
        asyncio.run(start())
