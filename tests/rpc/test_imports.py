"""Rows of a bandit's history over the wire: what a well-formed row is, and what the client makes of many."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise

import grpc
import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from tests.contracts.harness import MemoryStores
from tests.rpc.harness import channel_to, serving
from tests.rpc.whole import served

from topk_bandit.bandits.imports import RowsOfImport
from topk_bandit.client import (
    AlreadyExists,
    FailedPrecondition,
    ImportProgress,
    InvalidArgument,
    PastObservation,
    categorical,
    numeric,
)
from topk_bandit.client.imports import requests
from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.domain.features import Features
from topk_bandit.rpc.access import RULES
from topk_bandit.rpc.imports import import_request
from topk_bandit.store.data_versions import NEWEST
from topk_bandit.store.events import PastSlate
from topk_bandit.v1 import bandit_service_pb2 as pb
from topk_bandit.v1.bandit_service_pb2_grpc import BanditServiceStub
from topk_bandit.v1.features_pb2 import FeatureValue

NAME = "tenants/shop/bandits/home"
NAN, INF = float("nan"), float("inf")


def message(**changes: object) -> pb.PastObservation:
    return pb.PastObservation(**{"context": [1.0, 0.5], "item_ids": ["a", "b"], "reward": 0.0, **changes})


def request(*rows: pb.PastObservation, **changes: object) -> pb.ImportObservationsRequest:
    return pb.ImportObservationsRequest(**{"bandit": NAME, "import_id": "year", "rows": rows, **changes})


def test_rows_become_slates() -> None:
    time = Timestamp(seconds=1_769_860_800, nanos=999_000_000)
    named = message(context=[], features={"price": FeatureValue(number=2.0)}, propensity=1.0, time=time)
    name, sent = import_request(request(message(), named, first_row=7, next_row=12, skip_bad_rows=True))
    slates = (
        PastSlate((1.0, 0.5), ("a", "b"), 0.0),
        PastSlate(Features.of({"price": 2.0}), ("a", "b"), 0.0, 1_769_860_800_999, 1.0),
    )
    assert (str(name), sent) == (NAME, RowsOfImport("year", 7, 12, slates, skips=True))
    assert import_request(request(message(), message()))[1].next_row == 2
    [of_items] = import_request(request(message(item_values={"b": 2.0})))[1].rows
    assert of_items == PastSlate((1.0, 0.5), ("a", "b"), 0.0, item_values=(None, 2.0))
    assert import_request(request(next_row=9))[1].rows == ()


@pytest.mark.parametrize(
    ("bad", "field"),
    [
        (message(context=[NAN, 1.0]), "context[0]"),
        (message(features={"price": FeatureValue(number=2.0)}), "features"),
        (message(context=[], features={"price": FeatureValue(number=INF)}), 'features["price"]'),
        (message(item_ids=["a", "a"]), "item_ids[1]"),
        (message(item_ids=["a", ""]), "item_ids[1]"),
        (pb.PastObservation(item_ids=["a", "b"]), "reward"),
        (message(reward=NAN), "reward"),
        (message(reward=1e101), "reward"),
        (message(item_values={"a": NAN}), 'item_values["a"]'),
        (message(item_values={"c": 1.0}), 'item_values["c"]'),
        (message(propensity=0.0), "propensity"),
        (message(propensity=1.5), "propensity"),
        (message(propensity=NAN), "propensity"),
        (message(time=Timestamp(seconds=2**62)), "time"),
        (message(time=Timestamp(nanos=-1)), "time"),
        (message(time=Timestamp(seconds=946_684_799, nanos=999_999_999)), "time"),
        (message(time=Timestamp(seconds=4_102_444_800)), "time"),
    ],
)
def test_a_row_of_another_form_stands_for_its_error(bad: pb.PastObservation, field: str) -> None:
    good, error, _ = import_request(request(message(), bad, message()))[1].rows
    assert isinstance(good, PastSlate)
    assert isinstance(error, InvalidArgumentError)
    assert error.field == field


@pytest.mark.parametrize(
    ("sent", "field"),
    [
        (request(message(), bandit="home"), "bandit"),
        (request(message(), import_id=""), "import_id"),
        (request(message(), import_id="a\n0"), "import_id"),
        (request(), "rows"),
        (request(*[message()] * 1001), "rows"),
        (request(message(), first_row=-1), "first_row"),
        (request(message(), message(), next_row=1), "next_row"),
        (request(first_row=4, next_row=4), "next_row"),
    ],
)
def test_a_request_of_another_form_is_refused(sent: pb.ImportObservationsRequest, field: str) -> None:
    with pytest.raises(InvalidArgumentError) as refused:
        import_request(sent)
    assert refused.value.field == field


def test_the_answer_has_all_that_is_known() -> None:
    with serving() as server, channel_to(server.target) as channel:
        stub = BanditServiceStub(channel)
        stub.CreateBandit(pb.CreateBanditRequest(bandit=pb.Bandit(name=NAME, slate_size=2, item_capacity=9)))
        rows = [message(), *[message(reward=NAN)] * 150]
        with pytest.raises(grpc.RpcError) as refused:
            stub.ImportObservations(request(*rows))
        assert "rows[1].reward" in refused.value.details()
        answer = stub.ImportObservations(request(*rows, skip_bad_rows=True))
        assert (answer.next_row, answer.accepted_count, answer.skipped_count, answer.log_position) == (151, 1, 150, 21)
        assert [(error.row, error.field) for error in answer.row_errors] == [(n, "reward") for n in range(1, 101)]
        progress = stub.GetImport(pb.GetImportRequest(bandit=NAME, import_id="year"))
        assert (progress.next_row, progress.accepted_count) == (151, 1)
        server.shop.data_version = 1
        begun = stub.GetImport(pb.GetImportRequest(bandit=NAME, import_id="other"))
        assert begun == pb.GetImportResponse(data_version=1)


def test_whoever_imports_may_manage() -> None:
    scopes = {
        method: RULES[f"/topk_bandit.v1.BanditService/{method}"].scope for method in ("ImportObservations", "GetImport")
    }
    assert set(scopes.values()) == {"manage"}
    assert RULES["/topk_bandit.v1.BanditService/ImportObservations"].audited


def observations(count: int) -> list[PastObservation]:
    return [
        PastObservation(
            (f"i{n % 5}", f"i{(n + 1) % 5}"),
            n % 7,
            features={"price": float(n % 11), "country": None if n % 3 else "DE"},
            time=datetime(2026, 1, 1, tzinfo=UTC),
            propensity=0.25,
        )
        for n in range(count)
    ]


def test_a_client_imports_many_rows_and_goes_on_where_it_stopped() -> None:
    rows = observations(2100)

    async def scenario() -> None:
        async with MemoryStores().connect() as store, served(store) as client:
            schema = [numeric("price"), categorical("country", values=["DE", "FR"])]
            await client.create_bandit("home", slate_size=2, item_capacity=9, context_schema=schema)
            await client.upsert_items("home", [f"i{n}" for n in range(5)])
            assert await client.get_import("home", "year") == ImportProgress(0, 0, NEWEST)
            await client.import_observations("home", rows[:1000], import_id="year")
            report = await client.import_observations("home", rows, import_id="year")
            assert (report.next_row, report.accepted, report.skipped, report.errors) == (2100, 2100, 0, ())
            known = await client.stats("home")
            assert (known.imported_count, known.observation_count, known.recommendation_count) == (2100, 2100, 0)
            assert report.log_position == known.log_position
            again = await client.import_observations("home", rows, import_id="year")
            assert (again, await client.stats("home")) == (report, known)
            slate = await client.recommend("home", features={"price": 3.0}, min_model_version=report.log_position)
            assert slate.observations == 2100
            assert await client.get_import("home", "year") == ImportProgress(2100, 2100, NEWEST)

    asyncio.run(scenario())


def test_a_client_learns_which_rows_are_bad() -> None:
    rows = observations(1200)
    rows[3] = replace(rows[3], items=("i0", "nowhere"))
    rows[1100] = replace(rows[1100], features={"price": "much"})

    async def scenario() -> None:
        async with MemoryStores().connect() as store, served(store) as client:
            schema = [numeric("price"), categorical("country", values=["DE", "FR"])]
            await client.create_bandit("home", slate_size=2, item_capacity=9, context_schema=schema)
            await client.upsert_items("home", [f"i{n}" for n in range(5)])
            with pytest.raises(InvalidArgument) as refused:
                await client.import_observations("home", rows, import_id="year")
            assert refused.value.field == "rows[3].item_ids[1]"
            with pytest.raises(FailedPrecondition) as gap:
                await client.import_observations("home", rows[5:], import_id="year", first_row=5)
            assert (gap.value.reason, gap.value.numbers) == ("IMPORT_GAP", {"next_row": 0})
            report = await client.import_observations("home", rows, import_id="year", skip_bad_rows=True)
            assert (report.accepted, report.skipped, report.next_row) == (1198, 2, 1200)
            assert [(error.row, error.field) for error in report.errors] == [
                (3, "item_ids[1]"),
                (1100, 'features["price"]'),
            ]
            with pytest.raises(AlreadyExists) as reused:
                await client.import_observations("home", rows[1:900], import_id="year", skip_bad_rows=True)
            assert reused.value.reason == "IMPORT_REUSED"
            naive = replace(rows[0], time=datetime(2026, 1, 1))  # noqa: DTZ001
            with pytest.raises(InvalidArgument, match="time zone"):
                await client.import_observations("home", [naive], import_id="other")
            skipped = await client.import_observations("home", [], import_id="other", next_row=4)
            assert (skipped.next_row, skipped.accepted) == (4, 0)

    asyncio.run(scenario())


def test_parts_of_a_client_follow_each_other() -> None:
    parts = list(requests(NAME, observations(2300), import_id="x", first_row=5, next_row=2400, skip_bad_rows=False))
    assert [len(part.rows) for part in parts] == [1000, 1000, 300]
    assert [part.first_row for part in parts] == [5, 1005, 2005]
    assert all(one.next_row == other.first_row for one, other in pairwise(parts))
    assert parts[-1].next_row == 2400
