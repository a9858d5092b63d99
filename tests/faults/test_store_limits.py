"""A store that is slow, or full, under a running service."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Self

import pytest
from tests.faults.service import serving
from tests.rpc.harness import channel_to
from tests.rpc.wire import HOME, create, recommend, refused
from tests.servers import running_server, valkey_binary
from tests.waiting import until

from topk_bandit.v1 import bandit_service_pb2 as bpb
from topk_bandit.v1 import recommender_service_pb2 as rpb
from topk_bandit.v1.bandit_service_pb2_grpc import BanditServiceStub
from topk_bandit.v1.recommender_service_pb2_grpc import RecommenderServiceStub

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import grpc
    from tests.servers import RunningServer

CALLERS = 16


@pytest.fixture
def server() -> Iterator[RunningServer]:
    with running_server(valkey_binary()) as server:
        yield server


class SlowLine:
    """A TCP proxy on a thread of its own; what goes either way arrives `seconds` later."""

    def __init__(self, server_port: int) -> None:
        self.seconds = 0.0
        self.port = 0
        self._server_port = server_port
        self._stop: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._up = threading.Event()
        self._sinks: set[asyncio.StreamWriter] = set()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        listener = await asyncio.start_server(self._carry, "127.0.0.1", 0)
        self.port = listener.sockets[0].getsockname()[1]
        self._up.set()
        await self._stop.wait()
        listener.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        for sink in self._sinks:
            sink.transport.abort()
        await asyncio.sleep(0.1)

    async def _carry(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        server, to_server = await asyncio.open_connection("127.0.0.1", self._server_port)
        self._sinks |= {to_client, to_server}
        await asyncio.gather(self._pass(client, to_server), self._pass(server, to_client))

    async def _pass(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        try:
            while part := await source.read(1 << 16):
                loop.call_later(self.seconds, sink.write, part)
        finally:
            loop.call_later(self.seconds, sink.close)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._up.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._loop is not None
        assert self._stop is not None
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()


def test_a_slow_store_makes_calls_slow_and_piles_up_nothing(server: RunningServer, folder: Path) -> None:
    """Each round trip takes 1.4 s, and the service waits one. Calls that kept their place would soon take all 32."""
    with SlowLine(server.port) as line:
        flags = (f"--redis-url=redis://127.0.0.1:{line.port}", "--store-timeout-seconds=1")
        with serving(folder, *flags) as service, channel_to(service.address) as channel:
            create(channel)
            owed = recommend(channel).recommendation_id
            line.seconds = 0.7
            until(lambda: recommend(channel).degraded, what="the store is too slow")
            with ThreadPoolExecutor(CALLERS) as pool:
                took = sorted(pool.map(lambda _: seconds_of_a_slate(channel), range(40 * CALLERS)))
            # The breaker lets one call in a quarter of a second try; the others do not wait.
            assert took[len(took) // 2] < 0.8
            assert took[-1] < 10.0
            line.seconds = 0.0
            until(lambda: not recommend(channel).degraded, what="slates are recorded again")
            request = rpb.RewardRequest(bandit=HOME, recommendation_id=owed, value=1.0)
            assert RecommenderServiceStub(channel).Reward(request, timeout=10).outcome == rpb.REWARD_OUTCOME_ACCEPTED


def seconds_of_a_slate(channel: grpc.Channel) -> float:
    began = time.monotonic()
    assert len(recommend(channel, timeout=20).item_ids) == 2
    return time.monotonic() - began


def observations(channel: grpc.Channel) -> int:
    request = bpb.GetBanditStatsRequest(bandit=HOME)
    return BanditServiceStub(channel).GetBanditStats(request, timeout=10).observation_count


def logged(server: RunningServer) -> list[tuple[bytes, dict[bytes, bytes]]]:
    with server.client() as client:
        return client.xrange("topk-bandit:{acme/home}:log")


@contextmanager
def full(server: RunningServer) -> Iterator[None]:
    """Let the store refuse for the block whatever needs memory."""
    with server.client() as client:
        client.config_set("maxmemory", 1)
        try:
            yield
        finally:
            client.config_set("maxmemory", 0)


def test_a_full_store_refuses_rewards_until_it_has_room(server: RunningServer, folder: Path) -> None:
    with serving(folder, f"--redis-url={server.url}") as service, channel_to(service.address) as channel:
        create(channel)
        stub = RecommenderServiceStub(channel)
        requests = [
            rpb.RewardRequest(bandit=HOME, recommendation_id=recommend(channel).recommendation_id, value=1.0)
            for _ in range(10)
        ]
        before = len(logged(server))
        with full(server):
            for request in requests:
                refusal = refused(stub.Reward, request)
                assert (refusal.code, refusal.reason) == ("RESOURCE_EXHAUSTED", "STORE_FULL")
                assert refusal.retry_after
            assert len(logged(server)) == before
            refusal = refused(stub.Recommend, rpb.RecommendRequest(bandit=HOME))
            assert (refusal.code, refusal.reason) == ("RESOURCE_EXHAUSTED", "STORE_FULL")
            time.sleep(1.1)  # whoever follows would tell the store how far again: each second
            assert observations(channel) == 0
        for request in requests:
            assert stub.Reward(request, timeout=10).outcome == rpb.REWARD_OUTCOME_ACCEPTED
        assert observations(channel) == 10
        assert not recommend(channel).degraded


def test_nothing_is_left_of_a_tenant_that_deleted_all(server: RunningServer, folder: Path) -> None:
    with serving(folder, f"--redis-url={server.url}") as service, server.client() as store:
        before = set(store.scan_iter(count=1000))
        with service.client(tenant="gone") as gone, service.client(tenant="stays") as stays:
            for client in (gone, stays):
                for name in ("home", "search"):
                    client.create_bandit(name, slate_size=2, item_capacity=5)
                    client.upsert_items(name, ["a", "b", "c"])
                    for number in range(5):
                        slate = client.recommend(name, request_id=f"r{number}")
                        if number:
                            client.reward(name, slate.id, 1.0)
            kept = {key for key in store.scan_iter(count=1000) if b"gone" in key}
            assert len(kept) > 4
            for name in ("home", "search"):
                gone.delete_bandit(name)
            assert {key for key in store.scan_iter(count=1000) if b"gone" in key} == set()
            assert stays.recommend("home").id
            for name in ("home", "search"):
                stays.delete_bandit(name)
        left = set(store.scan_iter(count=1000)) - before
        assert not [key for key in left if any(word in key for word in (b"gone", b"stays", b"home", b"search"))]
