"""`RecommendPage` and `RewardPage`, on real stores: slates of several bandits, none with an item of another."""

from __future__ import annotations

import asyncio
import itertools
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import grpc
import numpy as np
import pytest
from tests.contracts.harness import MemoryStores, RedisStores
from tests.rpc.harness import serving
from tests.rpc.keys import bearer, ring
from tests.rpc.whole import served
from tests.rpc.wire import refused
from tests.servers import running_server, valkey_binary
from tests.waiting import PATIENCE

from topk_bandit.client import (
    AbsenceReason,
    AlreadyExists,
    AsyncClient,
    Client,
    Exclude,
    FailedPrecondition,
    Frequency,
    InvalidArgument,
    NotFound,
    PagePlacement,
    Recommendation,
    RewardOutcome,
    categorical,
    numeric,
)
from topk_bandit.domain.quotas import Quota, Quotas
from topk_bandit.testing import local_service
from topk_bandit.v1 import recommender_service_pb2 as pb
from topk_bandit.v1.recommender_service_pb2_grpc import RecommenderServiceStub

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from tests.contracts.harness import Stores
    from tests.rpc.harness import RunningServer

    from topk_bandit.client import ClientError, SlatePage

BANDITS = ("hero", "row", "foot")
ITEMS = [f"i{number}" for number in range(9)]
PLACEMENTS = [PagePlacement(bandit=name) for name in BANDITS]
MANY = Quotas({Quota.BANDITS: 9})


@pytest.fixture(scope="module")
def valkey() -> Iterator[Any]:
    with running_server(valkey_binary()) as server:
        yield server


@pytest.fixture(params=["memory", "valkey"])
def stores(request: pytest.FixtureRequest, valkey: Any) -> Stores:  # noqa: ANN401
    return MemoryStores() if request.param == "memory" else RedisStores(valkey.url)


@asynccontextmanager
async def opened(stores: Stores, **settings: Any) -> AsyncIterator[AsyncClient]:  # noqa: ANN401
    async with stores.connect() as store, served(store, quotas=MANY) as client:
        for name in BANDITS:
            await client.create_bandit(name, slate_size=3, item_capacity=20, uniform_share=0.5, **settings)
            await client.upsert_items(name, ITEMS)
        yield client


def slates_of(page: SlatePage) -> list[Recommendation]:
    assert [one for one in page.slates if not isinstance(one, Recommendation)] == []
    return [one for one in page.slates if isinstance(one, Recommendation)]


def test_pages_of_a_visitor_count_for_each_other_in_each_bandit(stores: Stores) -> None:
    async def scenario() -> None:
        async with opened(stores, rules=[Frequency(1, 3600)]) as client:
            more = [f"i{number}" for number in range(9, 15)]
            for name in BANDITS:
                await client.upsert_items(name, more)
            first = slates_of(await client.recommend_page(PLACEMENTS, page_id="one", frequency_key="v"))
            again = slates_of(await client.recommend_page(PLACEMENTS, page_id="one", frequency_key="v"))
            assert [one.items for one in again] == [one.items for one in first]
            own = [PagePlacement(bandit="hero", frequency_key="w"), *PLACEMENTS[1:]]
            second = slates_of(await client.recommend_page(own, page_id="two", frequency_key="v"))
            assert len({item for one in second for item in one.items}) == 9
            assert all(not {*one.items} & {*other.items} for one, other in zip(first[1:], second[1:], strict=True))
            alone = await client.recommend("hero", frequency_key="v", explain=[*ITEMS, *more])
            frequent = {one.item_id for one in alone.absent_items if one.reason is AbsenceReason.FREQUENT}
            assert frequent == {*first[0].items}

    asyncio.run(scenario())


def test_no_item_is_on_a_page_twice(stores: Stores) -> None:
    async def scenario() -> None:
        async with opened(stores) as client:
            seen = set()
            for number in range(20):
                page = await client.recommend_page(PLACEMENTS, page_id=f"page-{number}")
                shown = list(itertools.chain.from_iterable(slate.items for slate in slates_of(page)))
                assert len(set(shown)) == len(shown) == 9
                seen.add(tuple(shown))
                assert await client.recommend_page(PLACEMENTS, page_id=f"page-{number}") == page
                for place, slate in enumerate(slates_of(page)):
                    await client.reward(BANDITS[place], slate.id, float(place))
            assert len(seen) > 10
            assert [(await client.stats(name)).observation_count for name in BANDITS] == [20, 20, 20]

    asyncio.run(scenario())


def test_a_slate_is_what_its_request_with_what_is_left_would_get() -> None:
    """Two services alike: a page at one, and at the other single requests whose candidates leave out what is shown."""
    with local_service(seed=5) as paged, local_service(seed=5) as single:
        for service in (paged, single):
            client = service.client()
            for name in BANDITS:
                client.create_bandit(name, slate_size=2, item_capacity=20, uniform_share=0.3)
                client.upsert_items(name, ITEMS)
                for number in range(12):
                    slate = client.recommend(name, request_id=f"before {number}")
                    client.reward(name, slate.id, float(sum(item > "i2" for item in slate.items)))
        for number in range(20):
            shown: list[str] = []
            page = paged.client().recommend_page(PLACEMENTS, page_id=f"p{number}")
            for place, slate in enumerate(slates_of(page)):
                left = [item for item in ITEMS if item not in shown]
                alone = single.client().recommend(BANDITS[place], candidates=left, request_id=f"p{number}/{place + 1}")
                assert (slate.items, slate.propensity) == (alone.items, alone.propensity)
                assert slate.position_propensities == alone.position_propensities
                shown += slate.items


def test_the_record_has_what_was_left_out(stores: Stores) -> None:
    async def scenario() -> None:
        async with opened(stores) as client:
            page = await client.recommend_page(PLACEMENTS, page_id="page")
            shown: list[str] = []
            for name, slate in zip(BANDITS, slates_of(page), strict=True):
                events = (await client.export_events(name, start=slate.model_version + 1)).events
                [recorded] = [json.loads(one.event_json) for one in events if "recommended" in one.event_json]
                assert all(item in json.dumps(recorded) for item in shown)
                why = await client.explain(name, slate.id)
                assert why.reasons is not None
                assert why.reasons.chosen_again
                shown += slate.items

    asyncio.run(scenario())


def test_one_that_fails_stops_no_other(stores: Stores) -> None:
    async def scenario() -> None:
        async with opened(stores) as client:
            wanted = [
                PagePlacement(bandit="none"),
                PagePlacement(bandit="hero", candidates=["i0", "i1", "gone"]),
                PagePlacement(bandit="row", context=(1.0, 2.0)),
                PagePlacement(bandit="foot", request_id="its own"),
                PagePlacement(bandit="foot", rules=[Exclude(("i0", "i1", "i2"))]),
            ]
            page = await client.recommend_page(wanted, page_id="page")
            *failed, last = page.slates
            assert [(type(one), getattr(one, "field", "")) for one in failed] == [
                (NotFound, ""),
                (FailedPrecondition, ""),
                (InvalidArgument, "placements[2].context"),
                (InvalidArgument, "placements[3].request_id"),
            ]
            assert isinstance(last, Recommendation)
            assert not {"i0", "i1", "i2"}.intersection(last.items)
            receipts = await client.reward_page("page", [one.bandit for one in wanted], 1.0)
            assert [type(one) for one in receipts[:4]] == [NotFound] * 4
            assert getattr(receipts[4], "outcome", None) is RewardOutcome.ACCEPTED

    asyncio.run(scenario())


def test_a_page_that_is_sent_again_keeps_its_slates_and_tries_those_that_failed(stores: Stores) -> None:
    async def scenario() -> None:
        async with opened(stores) as client:
            wanted = [PagePlacement(bandit=name) for name in ("late", "row", "foot")]
            failed, *before = (await client.recommend_page(wanted, page_id="page")).slates
            assert isinstance(failed, NotFound)
            await client.create_bandit("late", slate_size=3, item_capacity=20)
            await client.upsert_items("late", ["x0", "x1", "x2"])
            late, *again = slates_of(await client.recommend_page(wanted, page_id="page"))
            assert {*late.items} == {"x0", "x1", "x2"}
            assert again == before

    asyncio.run(scenario())


def test_a_slate_of_before_with_an_item_of_a_new_one_is_refused(stores: Stores) -> None:
    async def scenario() -> None:
        async with opened(stores) as client:
            wanted = [PagePlacement(bandit=name) for name in ("late", "row", "foot")]
            _, row, foot = (await client.recommend_page(wanted, page_id="page")).slates
            assert isinstance(row, Recommendation)
            await client.create_bandit("late", slate_size=3, item_capacity=20)
            await client.upsert_items("late", row.items)
            _, refused_one, as_before = (await client.recommend_page(wanted, page_id="page")).slates
            assert isinstance(refused_one, FailedPrecondition)
            assert refused_one.reason == "RULES_CHANGED"
            assert "ask with another id" in str(refused_one)
            assert as_before == foot
            # One request alone: other excluded items are no other request, unless its slate has one.
            others = [item for item in ITEMS if item not in row.items]
            assert await client.recommend("row", request_id="page/2", rules=[Exclude(tuple(others[:2]))]) == row
            with pytest.raises(FailedPrecondition, match="breaks a rule by now"):
                await client.recommend("row", request_id="page/2", rules=[Exclude(row.items[1:])])

    asyncio.run(scenario())


def test_a_clash_of_rules_is_named_as_the_page_has_it(stores: Stores) -> None:
    async def scenario() -> None:
        async with opened(stores) as client:
            few = Exclude(ITEMS[3:])
            page = await client.recommend_page(
                [
                    PagePlacement(bandit="hero", rules=["price < 1"]),
                    PagePlacement(bandit="hero", rules=[few]),
                    PagePlacement(bandit="hero", rules=[few]),
                    PagePlacement(bandit="hero"),
                ]
            )
            one, first, second, last = page.slates
            assert isinstance(first, Recommendation)
            assert isinstance(last, Recommendation)
            assert isinstance(one, InvalidArgument)
            assert one.field == "placements[0].rules[0].filter"
            assert isinstance(second, FailedPrecondition)
            assert (second.reason, second.details.field) == ("RULES_CLASH", "placements[2].rules[0]")
            assert "no slate keeps placements[2].rules[0]: exclude " in str(second)
            assert "; what the page shows already: exclude " in str(second)
            # Where it is the page alone that leaves nothing, no rule of the caller's is named.
            whole = await client.recommend_page([PagePlacement(bandit="hero")] * 5)
            failed = whole.slates[-1]
            assert isinstance(failed, FailedPrecondition)
            assert (failed.reason, failed.details.field) == ("RULES_CLASH", "placements[4]")
            assert "no slate keeps what the page shows already: exclude " in str(failed)

    asyncio.run(scenario())


def test_one_reward_is_for_all_slates_and_taken_once(stores: Stores) -> None:
    def outcomes(receipts: Any) -> list[str]:  # noqa: ANN401 - receipts or errors
        return [type(one).__name__ if isinstance(one, Exception) else str(one.outcome) for one in receipts]

    async def scenario() -> None:
        async with opened(stores) as client:
            await client.recommend_page(PLACEMENTS, page_id="page")
            assert outcomes(await client.reward_page("page", BANDITS, 2.5)) == ["accepted"] * 3
            assert outcomes(await client.reward_page("page", BANDITS, 2.5)) == ["duplicate"] * 3
            assert outcomes(await client.reward_page("page", BANDITS, 1.0)) == [AlreadyExists.__name__] * 3
            assert [(await client.stats(name)).mean_reward for name in BANDITS] == [2.5] * 3

    asyncio.run(scenario())


def test_each_placement_takes_the_features_that_its_bandit_knows(stores: Stores) -> None:
    async def scenario() -> None:
        async with stores.connect() as store, served(store, quotas=MANY) as client:
            schemas = {
                "hero": [categorical("country", values=["DE", "FR"]), numeric("age")],
                "row": [numeric("age")],
                "foot": None,
            }
            for name, schema in schemas.items():
                await client.create_bandit(name, slate_size=2, item_capacity=20, context_schema=schema)
                await client.upsert_items(name, ITEMS)
            own = PagePlacement(bandit="row", features={"age": 7.0})
            features = {"country": "FR", "age": 5.0}
            page = await client.recommend_page([*PLACEMENTS, own], features=features, page_id="page")
            slates_of(page)
            known = [{"country": "FR", "age": 5.0}, {"age": 5.0}, {}, {"age": 7.0}]
            for place, name in enumerate([*BANDITS, "row"]):
                asked = {"features": known[place]} if known[place] else {}
                before = [item for slate in slates_of(page)[:place] for item in slate.items]
                rules = [Exclude(tuple(before))] if before else None
                alone = await client.recommend(name, request_id=f"page/{place + 1}", rules=rules, **asked)
                assert alone == page.slates[place]
            wrong = PagePlacement(bandit="row", features={"country": "FR"})
            [refusal] = (await client.recommend_page([wrong])).slates
            assert isinstance(refusal, InvalidArgument)
            numbers = await client.recommend_page(PLACEMENTS, [0.5], page_id="numbers")
            assert [isinstance(one, Recommendation) for one in numbers.slates] == [False, False, True]

    asyncio.run(scenario())


# The form of the calls


@pytest.fixture
def server() -> Iterator[RunningServer]:
    with serving() as running:
        with Client(running.target, tenant="acme", timeout=PATIENCE) as client:
            client.create_bandit("home", slate_size=2, item_capacity=9)
            client.upsert_items("home", ["a", "b", "c"])
        yield running


HOME, ELSE = "tenants/acme/bandits/home", "tenants/globex/bandits/home"
PAGES: list[tuple[dict[str, Any], str]] = [
    ({"parent": ""}, "parent"),
    ({"parent": HOME}, "parent"),
    ({"placements": []}, "placements"),
    ({"placements": [pb.RecommendRequest(bandit=HOME)] * 11}, "placements"),
    ({"page_id": "x" * 121}, "page_id"),
    ({"page_id": "x\n"}, "page_id"),
    ({"group_key": "x" * 129}, "group_key"),
    ({"context": [np.nan]}, "context[0]"),
    ({"context": [1.0], "features": {"a": {"number": 1.0}}}, "features"),
]


@pytest.mark.parametrize(("wrong", "field"), PAGES)
def test_a_page_that_is_none_is_refused(server: RunningServer, wrong: dict[str, Any], field: str) -> None:
    fields = {"parent": "tenants/acme", "placements": [pb.RecommendRequest(bandit=HOME)], **wrong}
    with grpc.insecure_channel(server.target) as channel:
        refusal = refused(RecommenderServiceStub(channel).RecommendPage, pb.RecommendPageRequest(**fields))
    assert (refusal.code, list(refusal.fields)) == ("INVALID_ARGUMENT", [field])


REWARDS: list[tuple[dict[str, Any], str]] = [
    ({"parent": "acme"}, "parent"),
    ({"page_id": ""}, "page_id"),
    ({"bandits": []}, "bandits"),
    ({"bandits": [HOME] * 11}, "bandits"),
    ({"value": None}, "value"),
    ({"value": np.inf}, "value"),
    ({"reward_id": "x" * 129}, "reward_id"),
]


@pytest.mark.parametrize(("wrong", "field"), REWARDS)
def test_a_reward_of_a_page_that_is_none_is_refused(server: RunningServer, wrong: dict[str, Any], field: str) -> None:
    fields = {"parent": "tenants/acme", "page_id": "page", "bandits": [HOME], "value": 1.0, **wrong}
    with grpc.insecure_channel(server.target) as channel:
        refusal = refused(RecommenderServiceStub(channel).RewardPage, pb.RewardPageRequest(**fields))
    assert (refusal.code, list(refusal.fields)) == ("INVALID_ARGUMENT", [field])


def test_a_page_has_bandits_of_its_tenant_alone(server: RunningServer) -> None:
    with grpc.insecure_channel(server.target) as channel:
        stub = RecommenderServiceStub(channel)
        placements = [pb.RecommendRequest(bandit=ELSE), pb.RecommendRequest(bandit=HOME)]
        page = stub.RecommendPage(
            pb.RecommendPageRequest(parent="tenants/acme", placements=placements), timeout=PATIENCE
        )
        assert page.placements[0].error.field == "placements[0].bandit"
        assert page.placements[1].slate.item_ids
        assert page.page_id
        rewarded = stub.RewardPage(
            pb.RewardPageRequest(parent="tenants/acme", page_id="page", bandits=[ELSE], value=1.0), timeout=PATIENCE
        )
        assert rewarded.results[0].error.field == "bandits[0]"


def test_a_key_of_another_tenant_gets_no_page() -> None:
    request = pb.RecommendPageRequest(parent="tenants/acme", placements=[pb.RecommendRequest(bandit=HOME)])
    with serving(keys=ring()) as running, grpc.insecure_channel(running.target) as channel:
        stub = RecommenderServiceStub(channel)
        refusal = refused(stub.RecommendPage, request, metadata=[("authorization", bearer("globex"))])
        assert (refusal.code, refusal.reason) == ("PERMISSION_DENIED", "TENANT_NEEDED")
        answer = stub.RecommendPage(request, timeout=PATIENCE, metadata=[("authorization", bearer("acme"))])
        assert answer.placements[0].error.code == grpc.StatusCode.NOT_FOUND.value[0]


@pytest.mark.parametrize("way", ["grpc", "http"])
def test_both_doors_have_pages(server: RunningServer, way: str) -> None:
    target = server.target if way == "grpc" else server.open_http()
    with Client(target, tenant="acme", timeout=PATIENCE) as client:
        page = client.recommend_page([PagePlacement(bandit="home"), PagePlacement(bandit="none")], page_id="page")
        first: Recommendation | ClientError = page.slates[0]
        assert isinstance(first, Recommendation)
        assert isinstance(page.slates[1], NotFound)
        with pytest.raises(InvalidArgument) as refusal:
            client.recommend_page(["home"])  # type: ignore[list-item]
        assert refusal.value.field == "placements[0]"
