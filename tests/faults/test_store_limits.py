"""A store that is slow, or full, under a running service."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from tests.faults.insisting import created, deleted, recorded, rewarded
from tests.faults.lines import SlowLine
from tests.faults.service import serving
from tests.rpc.harness import channel_to
from tests.rpc.wire import HOME, create, recommend, refused
from tests.servers import running_server, valkey_binary
from tests.waiting import PATIENCE, until

from topk_bandit.v1 import bandit_service_pb2 as bpb
from topk_bandit.v1 import recommender_service_pb2 as rpb
from topk_bandit.v1.bandit_service_pb2_grpc import BanditServiceStub
from topk_bandit.v1.recommender_service_pb2_grpc import RecommenderServiceStub

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import grpc
    from tests.faults.service import Service
    from tests.servers import RunningServer

CALLERS = 16


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with running_server(valkey_binary()) as server:
        yield server


@pytest.fixture(scope="module")
def service(server: RunningServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with serving(tmp_path_factory.mktemp("unused"), f"--redis-url={server.url}") as service:
        yield service


def test_a_slow_store_makes_calls_slow_and_piles_up_nothing(server: RunningServer, folder: Path) -> None:
    """Each round trip takes 1.4 s, and the service waits one. Calls that kept their place would soon take all 32."""
    with SlowLine(server.port) as line:
        flags = (f"--redis-url=redis://127.0.0.1:{line.port}", "--store-timeout-seconds=1")
        with serving(folder, *flags) as service, channel_to(service.address) as channel:
            created(channel)
            owed = recorded(channel, "owed")
            line.seconds = 0.7
            until(lambda: recommend(channel).degraded, what="the store is too slow")
            with ThreadPoolExecutor(CALLERS) as pool:
                slates = list(pool.map(lambda _: recommend(channel, timeout=PATIENCE), range(40 * CALLERS)))
            assert {len(slate.item_ids) for slate in slates} == {2}
            line.seconds = 0.0
            until(lambda: not recommend(channel).degraded, what="slates are recorded again")
            assert rewarded(channel, owed, 1.0) in {rpb.REWARD_OUTCOME_ACCEPTED, rpb.REWARD_OUTCOME_DUPLICATE}
            deleted(channel)


def observations(channel: grpc.Channel) -> int:
    request = bpb.GetBanditStatsRequest(bandit=HOME)
    return BanditServiceStub(channel).GetBanditStats(request, timeout=PATIENCE).observation_count


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


def test_a_full_store_refuses_rewards_until_it_has_room(server: RunningServer, service: Service) -> None:
    with channel_to(service.address) as channel:
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
            assert stub.Reward(request, timeout=PATIENCE).outcome == rpb.REWARD_OUTCOME_ACCEPTED
        assert observations(channel) == 10
        assert not recommend(channel).degraded
        deleted(channel)


def test_nothing_is_left_of_a_tenant_that_deleted_all(server: RunningServer, service: Service) -> None:
    with server.client() as store:
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
