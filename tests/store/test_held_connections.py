"""What is sent over connections that are kept from call to call, with a real server."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from redis.asyncio import Redis
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError
from tests.servers import running_server, valkey_binary

from topk_bandit.store.redis.held_connections import HeldConnections

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from tests.servers import RunningServer


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with running_server(valkey_binary()) as running:
        yield running


def run(server: RunningServer, scenario: Callable[[HeldConnections, Redis], Awaitable[None]]) -> None:
    async def connected() -> None:
        async with Redis.from_url(server.url, protocol=2) as client:
            await scenario(HeldConnections(client), client)

    asyncio.run(connected())


def test_replies_are_in_order_and_an_error_is_in_its_place(server: RunningServer) -> None:
    async def scenario(held: HeldConnections, _: Redis) -> None:
        set_, wrong, got, missing = await held.send(
            [("SET", "a", 7), ("LPUSH", "a", 1), ("GET", "a"), ("GET", b"\xff")]
        )
        assert [bool(set_), got, missing] == [True, b"7", None]
        assert isinstance(wrong, ResponseError)

    run(server, scenario)


def test_a_name_of_two_words_is_sent_and_read_as_the_client_library_does(server: RunningServer) -> None:
    async def scenario(held: HeldConnections, client: Redis) -> None:
        [found] = await held.send([("CONFIG GET", "maxmemory")])
        assert found == await client.config_get("maxmemory") == {"maxmemory": "0"}

    run(server, scenario)


def test_one_connection_serves_calls_that_follow_each_other(server: RunningServer) -> None:
    async def scenario(held: HeldConnections, _: Redis) -> None:
        assert len({(await held.send([("CLIENT ID",)]))[0] for _ in range(5)}) == 1
        several = await asyncio.gather(*(held.send([("CLIENT ID",)]) for _ in range(5)))
        assert len({ident for [ident] in several}) == 5

    run(server, scenario)


def test_the_reply_of_a_call_that_was_cancelled_is_nobody_elses(server: RunningServer) -> None:
    async def scenario(held: HeldConnections, client: Redis) -> None:
        await client.delete("queue")
        waiting = asyncio.create_task(held.send([("BLPOP", "queue", 0)]))
        while not (await client.info("clients"))["blocked_clients"]:
            await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await client.rpush("queue", "late")
        assert await held.send([("ECHO", "mine")]) == [b"mine"]

    run(server, scenario)


def test_a_call_is_sent_again_when_its_connection_broke_meanwhile(server: RunningServer) -> None:
    async def scenario(held: HeldConnections, client: Redis) -> None:
        [ident] = await held.send([("CLIENT ID",)])
        await client.client_kill_filter(_id=ident)
        assert (await held.send([("CLIENT ID",), ("ECHO", "there")]))[1] == b"there"

    run(server, scenario)


def test_idle_connections_are_dropped_and_connect_again(server: RunningServer) -> None:
    async def scenario(held: HeldConnections, _: Redis) -> None:
        [before] = await held.send([("CLIENT ID",)])
        await held.drop_idle()
        [after] = await held.send([("CLIENT ID",)])
        assert after != before

    run(server, scenario)


def test_a_server_that_is_gone_is_an_error_until_it_is_back() -> None:
    with running_server(valkey_binary()) as server:

        async def scenario(held: HeldConnections, _: Redis) -> None:
            assert await held.send([("ECHO", "a")]) == [b"a"]
            server.kill()
            with pytest.raises(RedisConnectionError):
                await held.send([("ECHO", "b")])
            server.start()
            assert await held.send([("ECHO", "c")]) == [b"c"]

        run(server, scenario)
