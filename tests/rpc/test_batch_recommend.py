"""`BatchRecommend` over gRPC and HTTP, on real stores: each request has a result of its own."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from tests.contracts.harness import MemoryStores, RedisStores
from tests.rpc.harness import serving
from tests.rpc.keys import bearer, ring
from tests.rpc.whole import served
from tests.rpc.wire import HOME, refused
from tests.servers import running_server, valkey_binary
from tests.waiting import PATIENCE

from topk_bandit.client import (
    AlreadyExists,
    AsyncClient,
    Client,
    ClientError,
    Exclude,
    FailedPrecondition,
    InvalidArgument,
    Recommendation,
    SlateRequest,
)
from topk_bandit.domain.quotas import Quota, Quotas
from topk_bandit.v1 import recommender_service_pb2 as pb
from topk_bandit.v1.recommender_service_pb2_grpc import RecommenderServiceStub

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from tests.contracts.harness import Stores
    from tests.rpc.harness import RunningServer


@pytest.fixture(scope="module")
def valkey() -> Iterator[Any]:
    with running_server(valkey_binary()) as server:
        yield server


@pytest.fixture(params=["memory", "valkey"])
def stores(request: pytest.FixtureRequest, valkey: Any) -> Stores:  # noqa: ANN401
    return MemoryStores() if request.param == "memory" else RedisStores(valkey.url)


@asynccontextmanager
async def opened(stores: Stores) -> AsyncIterator[AsyncClient]:
    async with stores.connect() as store, served(store) as client:
        await client.create_bandit("home", slate_size=2, item_capacity=9, context_dimension=2)
        await client.upsert_items("home", ["a", "b", "c", "d"])
        yield client


def test_a_mailing_gets_a_slate_for_each_reader(stores: Stores) -> None:
    async def scenario() -> None:
        async with opened(stores) as client:
            asked = [SlateRequest(context=(1.0, n / 130), request_id=f"reader-{n}") for n in range(130)]
            slates = await client.recommend_batch("home", asked)
            found = [slate for slate in slates if isinstance(slate, Recommendation)]
            assert len({slate.id for slate in found}) == 130
            for number in (0, 99, 100, 129):
                alone = await client.recommend("home", (1.0, number / 130), request_id=f"reader-{number}")
                assert alone == found[number]
            assert await client.recommend_batch("home", asked) == slates
            receipts = await client.rewards("home", {slate.id: 1.0 for slate in found})
            assert receipts.errors == {}
            assert (await client.stats("home")).observation_count == 130
            newer = await client.recommend_batch(
                "home", [SlateRequest(context=(1.0, 1.0))], min_model_version=(await client.stats("home")).model_version
            )
            assert isinstance(newer[0], Recommendation)
            assert newer[0].observations == 130
            assert await client.recommend_batch("home", []) == []

    asyncio.run(scenario())


def test_what_is_refused_names_its_entry(stores: Stores) -> None:
    async def scenario() -> None:
        async with opened(stores) as client:
            good = SlateRequest(context=(1.0, 1.0), request_id="good")
            wrong = [
                SlateRequest(context=(1.0,)),
                SlateRequest(context=(1.0, float("nan"))),
                SlateRequest(context=(1.0, 1.0), candidates=["a", "zebra"]),
                SlateRequest(context=(1.0, 2.0), request_id="good"),
                SlateRequest(context=(1.0, 1.0), features={"x": 1.0}),
                SlateRequest(context=(1.0, 1.0), rules=[Exclude(["b", "c", "d"]), Exclude(["c"])]),
            ]
            first, *others = await client.recommend_batch("home", [good, *wrong])
            assert isinstance(first, Recommendation)
            assert [(type(one), one.details.field) for one in others if isinstance(one, ClientError)] == [
                (InvalidArgument, "requests[1].context"),
                (InvalidArgument, "requests[2].context[1]"),
                (FailedPrecondition, ""),
                (AlreadyExists, ""),
                (InvalidArgument, "requests[5].features"),
                (FailedPrecondition, "requests[6].rules[0]"),
            ]
            assert "no slate keeps requests[6].rules[0]: exclude b, c, d" in str(others[-1])
            with pytest.raises(InvalidArgument) as refusal:
                await client.recommend_batch("home", ["reader"])  # type: ignore[list-item]
            assert refusal.value.field == "requests[0]"

    asyncio.run(scenario())


@pytest.fixture
def server() -> Iterator[RunningServer]:
    with serving() as running:
        with Client(running.target, tenant="acme", timeout=PATIENCE) as client:
            client.create_bandit("home", slate_size=2, item_capacity=9)
            client.upsert_items("home", ["a", "b", "c"])
        yield running


@pytest.mark.parametrize("way", ["grpc", "http"])
def test_both_doors_have_it(server: RunningServer, way: str) -> None:
    target = server.target if way == "grpc" else server.open_http()
    with Client(target, tenant="acme", timeout=PATIENCE) as client:
        first, second = client.recommend_batch("home", [SlateRequest(request_id="x"), SlateRequest(candidates=["a"])])
        assert isinstance(first, Recommendation)
        assert first == client.recommend("home", request_id="x")
        assert isinstance(second, FailedPrecondition)


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        (pb.BatchRecommendRequest(bandit=HOME), "requests"),
        (pb.BatchRecommendRequest(bandit=HOME, requests=[pb.RecommendRequest()] * 101), "requests"),
        (pb.BatchRecommendRequest(bandit="home", requests=[pb.RecommendRequest()]), "bandit"),
    ],
)
def test_the_whole_call_is_refused(server: RunningServer, request_: pb.BatchRecommendRequest, field: str) -> None:
    with grpc.insecure_channel(server.target) as channel:
        refusal = refused(RecommenderServiceStub(channel).BatchRecommend, request_)
    assert (refusal.code, list(refusal.fields)) == ("INVALID_ARGUMENT", [field])
    assert not server.shop.asked_versions


def test_an_entry_of_another_bandit_is_refused_by_itself(server: RunningServer) -> None:
    entries = [pb.RecommendRequest(bandit=f"{HOME}-2"), pb.RecommendRequest(bandit=HOME)]
    with grpc.insecure_channel(server.target) as channel:
        answer = RecommenderServiceStub(channel).BatchRecommend(
            pb.BatchRecommendRequest(bandit=HOME, requests=entries), timeout=PATIENCE
        )
    assert [one.error.field for one in answer.results] == ["requests[0].bandit", ""]
    assert [one.HasField("slate") for one in answer.results] == [False, True]


def test_each_slate_counts_as_a_call() -> None:
    now = [100.0]
    quotas = Quotas({Quota.CALLS_PER_SECOND: 5})
    batch = pb.BatchRecommendRequest(bandit=HOME, requests=[pb.RecommendRequest()] * 8)
    with (
        serving(keys=ring(), quotas=quotas, clock=lambda: now[0]) as running,
        grpc.insecure_channel(running.target) as channel,
    ):
        stub, metadata = RecommenderServiceStub(channel), [("authorization", bearer("acme"))]
        # There is no such bandit; what is asked counts all the same. A full bucket of 5 pays for 8, and owes 3.
        answer = stub.BatchRecommend(batch, timeout=PATIENCE, metadata=metadata)
        assert len(answer.results) == 8
        refusal = refused(stub.Recommend, pb.RecommendRequest(bandit=HOME), metadata=metadata)
        assert (refusal.code, refusal.reason) == ("RESOURCE_EXHAUSTED", "CALL_QUOTA")
        assert refusal.retry_after == pytest.approx(4 / 5)
        now[0] += 4 / 5
        assert refused(stub.Recommend, pb.RecommendRequest(bandit=HOME), metadata=metadata).code == "NOT_FOUND"
        assert refused(stub.Recommend, pb.RecommendRequest(bandit=HOME), metadata=metadata).reason == "CALL_QUOTA"
