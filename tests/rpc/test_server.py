from __future__ import annotations

import asyncio
import logging
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from tests.rpc.certificates import certify
from tests.rpc.harness import RunningServer, channel_to, serving
from tests.rpc.wire import HOME, create, recommend, refusal_of, refused
from tests.waiting import PATIENCE, until

from topk_bandit.domain.bandits import BanditName
from topk_bandit.domain.errors import ConfigurationError
from topk_bandit.rpc import server as server_module
from topk_bandit.rpc.server import SERVICE_NAMES
from topk_bandit.v1 import bandit_service_pb2 as bandit_pb
from topk_bandit.v1 import recommender_service_pb2 as pb
from topk_bandit.v1.bandit_service_pb2_grpc import BanditServiceStub
from topk_bandit.v1.recommender_service_pb2_grpc import RecommenderServiceStub

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

NAME = BanditName("acme", "home")
RECOMMENDER = "topk_bandit.v1.RecommenderService"
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
RECOMMEND = pb.RecommendRequest(bandit=HOME, request_id="r1")


@pytest.fixture
def stub(channel: grpc.Channel) -> RecommenderServiceStub:
    create(channel)
    return RecommenderServiceStub(channel)


def check(channel: grpc.Channel, service: str = "") -> int:
    request = health_pb2.HealthCheckRequest(service=service)
    return health_pb2_grpc.HealthStub(channel).Check(request, timeout=PATIENCE).status


# Metrics


def test_calls_are_counted_with_their_codes(server: RunningServer, channel: grpc.Channel) -> None:
    create(channel)
    refused(RecommenderServiceStub(channel).Recommend, pb.RecommendRequest(bandit="x"))
    check(channel)
    refused(health_pb2_grpc.HealthStub(channel).Check, health_pb2.HealthCheckRequest(service="nobody"))
    server.ledger.wait_handled(5)
    assert server.ledger.started == [
        ("topk_bandit.v1.BanditService", "CreateBandit"),
        ("topk_bandit.v1.BanditService", "UpsertItems"),
        (RECOMMENDER, "Recommend"),
        ("grpc.health.v1.Health", "Check"),
        ("grpc.health.v1.Health", "Check"),
    ]
    codes = ["OK", "OK", "INVALID_ARGUMENT", "OK", "NOT_FOUND"]
    expected = [(*call, code) for call, code in zip(server.ledger.started, codes, strict=True)]
    assert sorted(server.ledger.handled) == sorted(expected)
    assert all(seconds > 0 for seconds in server.ledger.seconds)
    assert len(server.ledger.phases) == codes.count("OK")
    assert all(queue >= 0 and encode > 0 for queue, encode in server.ledger.phases)


def test_unknown_methods_are_not_counted(server: RunningServer, channel: grpc.Channel) -> None:
    assert refused(channel.unary_unary(f"/{RECOMMENDER}/Nothing"), b"").code == "UNIMPLEMENTED"
    assert refused(channel.unary_unary("/nobody/Nothing"), b"").code == "UNIMPLEMENTED"
    assert server.ledger.started == []


# Calls in flight


@pytest.fixture
def narrow() -> Iterator[RunningServer]:
    with serving(max_in_flight=2) as running:
        yield running


def test_the_limit_refuses_early_spares_health_and_recovers(narrow: RunningServer) -> None:
    with channel_to(narrow.target) as channel:
        create(channel)
        stub = RecommenderServiceStub(channel)
        narrow.close_gate()
        calls = [stub.Recommend.future(RECOMMEND, timeout=PATIENCE) for _ in range(2)]
        until(lambda: narrow.shop.calls.count("recommend") == 2, what="both calls are under way")
        refusal = refused(channel.unary_unary(f"/{RECOMMENDER}/Recommend"), b"\xff not even parsed")
        assert (refusal.code, refusal.reason) == ("RESOURCE_EXHAUSTED", "CALLS_IN_FLIGHT")
        assert refusal.retry_after == pytest.approx(0.1)
        assert check(channel) == SERVING
        assert set(listed(channel)) >= set(SERVICE_NAMES)
        narrow.open_gate()
        assert [call.result().recommendation_id for call in calls] == ["r1", "r1"]
        assert recommend(channel).item_ids
        narrow.ledger.wait_handled(7)
    assert sorted(narrow.ledger.codes) == ["OK"] * 6 + ["RESOURCE_EXHAUSTED"]


def test_what_became_of_slates_has_places_of_its_own(narrow: RunningServer) -> None:
    with channel_to(narrow.target) as channel:
        create(channel)
        stub = RecommenderServiceStub(channel)
        shown = recommend(channel).recommendation_id
        narrow.close_gate()
        feedback: list[tuple[Callable[..., grpc.Future], object]] = [
            (stub.Reward.future, pb.RewardRequest(bandit=HOME, recommendation_id=shown, value=1.0)),
            (stub.Activate.future, pb.ActivateRequest(bandit=HOME, recommendation_id=shown)),
        ]
        calls = [stub.Recommend.future(RECOMMEND, timeout=PATIENCE) for _ in range(2)]
        until(lambda: narrow.shop.calls.count("recommend") == 3, what="both calls are under way")
        assert refused(stub.Recommend, RECOMMEND).reason == "CALLS_IN_FLIGHT"
        calls += [method(request, timeout=PATIENCE) for method, request in feedback]
        until(lambda: {"reward", "activate"} <= set(narrow.shop.calls), what="the others are, too")
        for method in ("Reward", "BatchReward", "RewardPage", "Activate", "VoidReward", "AmendReward"):
            refusal = refused(channel.unary_unary(f"/{RECOMMENDER}/{method}"), b"\xff not even parsed")
            assert (refusal.code, refusal.reason) == ("RESOURCE_EXHAUSTED", "CALLS_IN_FLIGHT")
        narrow.open_gate()
        assert [call.code() for call in calls] == [grpc.StatusCode.OK] * 4


def test_failed_calls_give_their_place_back(narrow: RunningServer) -> None:
    with channel_to(narrow.target) as channel:
        create(channel)
        stub = RecommenderServiceStub(channel)
        bandits = BanditServiceStub(channel)
        narrow.shop.faults = {"recommend": ZeroDivisionError(), "get_bandit": ZeroDivisionError()}
        for _ in range(3):
            assert refused(stub.Recommend, RECOMMEND).code == "INTERNAL"
            assert refused(bandits.GetBandit, bandit_pb.GetBanditRequest(name=HOME)).code == "INTERNAL"
            assert refused(stub.Recommend, pb.RecommendRequest()).code == "INVALID_ARGUMENT"
        narrow.shop.faults = {}
        assert recommend(channel).item_ids


# Clients that stop waiting


def test_a_write_goes_on_when_its_client_cancels_and_keeps_its_place(narrow: RunningServer) -> None:
    with channel_to(narrow.target) as channel:
        create(channel)
        stub = RecommenderServiceStub(channel)
        narrow.close_gate()
        calls = [stub.Recommend.future(RECOMMEND, timeout=PATIENCE) for _ in range(2)]
        until(lambda: narrow.shop.calls.count("recommend") == 2, what="both calls are under way")
        for call in calls:
            call.cancel()
        narrow.ledger.wait_handled(4)
        assert narrow.ledger.codes[2:] == ["CANCELLED", "CANCELLED"]
        assert refused(stub.Recommend, RECOMMEND).code == "RESOURCE_EXHAUSTED"
        assert "r1" not in narrow.shop.loops[NAME].given
        narrow.open_gate()
        until(lambda: "r1" in narrow.shop.loops[NAME].given, what="it is done")
        assert recommend(channel, request_id="r1").recommendation_id == "r1"


def test_an_abandoned_write_that_fails_is_logged(
    server: RunningServer, stub: RecommenderServiceStub, caplog: pytest.LogCaptureFixture
) -> None:
    server.shop.faults["recommend"] = ZeroDivisionError("after the client left")
    server.close_gate()
    call = stub.Recommend.future(RECOMMEND, timeout=PATIENCE)
    until(lambda: "recommend" in server.shop.calls, what="the call is under way")
    call.cancel()
    server.ledger.wait_handled(3)
    server.open_gate()
    until(lambda: "after the client left" in caplog.text, what="it is logged")


def test_a_read_stops_when_its_client_cancels(narrow: RunningServer) -> None:
    with channel_to(narrow.target) as channel:
        create(channel)
        stub = BanditServiceStub(channel)
        narrow.close_gate()
        for _ in range(3):
            call = stub.GetBandit.future(bandit_pb.GetBanditRequest(name=HOME), timeout=PATIENCE)
            started = len(narrow.ledger.handled) + 1
            narrow.ledger.wait_started(started)
            until(lambda: "get_bandit" in narrow.shop.calls, what="the call is under way")
            call.cancel()
            narrow.ledger.wait_handled(started)
        assert narrow.ledger.codes[2:] == ["CANCELLED"] * 3
        assert "get_bandit" not in narrow.shop.finished


@pytest.mark.parametrize("timeout", [0.1, 1.234])
def test_a_deadline_is_counted_as_such(server: RunningServer, stub: RecommenderServiceStub, timeout: float) -> None:
    too_late = {"DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED"}  # the latter where the machine is busy
    server.close_gate()

    def comes_and_ends() -> bool:
        """Make a call that its client may give up before the server hears of it, or that waits too long in a queue."""
        assert refused(stub.Recommend, RECOMMEND, timeout=timeout).code in too_late
        server.ledger.wait_handled(len(server.ledger.started))
        return "DEADLINE_EXCEEDED" in server.ledger.codes[2:]

    until(comes_and_ends, what="a call has come to the server, and ended at its deadline")
    assert set(server.ledger.codes[2:]) <= too_late


def test_something_cancelled_inside_is_answered(
    server: RunningServer, channel: grpc.Channel, stub: RecommenderServiceStub
) -> None:
    server.shop.faults = {"recommend": asyncio.CancelledError(), "get_bandit": asyncio.CancelledError()}
    assert refused(stub.Recommend, RECOMMEND).code == "INTERNAL"
    request = bandit_pb.GetBanditRequest(name=HOME)
    assert refused(BanditServiceStub(channel).GetBandit, request).code == "INTERNAL"


# Messages


def test_a_message_over_the_limit_is_refused() -> None:
    with serving(max_message_bytes=100_000) as server, channel_to(server.target) as channel:
        create(channel)
        stub = RecommenderServiceStub(channel)
        assert refused(stub.Recommend, pb.RecommendRequest(bandit="x" * 100_001)).code == "RESOURCE_EXHAUSTED"
        assert refused(stub.Recommend, pb.RecommendRequest(bandit="x" * 90_000)).code == "INVALID_ARGUMENT"
        assert recommend(channel).item_ids


# Health and reflection


def listed(channel: grpc.Channel) -> list[str]:
    return list(ProtoReflectionDescriptorDatabase(channel).get_services())


def test_reflection_lists_the_services_and_their_messages(channel: grpc.Channel) -> None:
    assert sorted(listed(channel)) == [
        "google.longrunning.Operations",
        "grpc.health.v1.Health",
        "grpc.reflection.v1alpha.ServerReflection",
        "topk_bandit.v1.BanditService",
        "topk_bandit.v1.OperatorService",
        "topk_bandit.v1.PreferenceService",
        "topk_bandit.v1.RecommenderService",
    ]
    file = ProtoReflectionDescriptorDatabase(channel).FindFileContainingSymbol("topk_bandit.v1.RecommendRequest")
    assert file.name == "topk_bandit/v1/recommender_service.proto"


def test_health_follows_what_is_set(server: RunningServer, channel: grpc.Channel) -> None:
    services = ("", *SERVICE_NAMES)
    assert {check(channel, service) for service in services} == {SERVING}
    server.run(server.server.set_serving(False))
    assert {check(channel, service) for service in services} == {NOT_SERVING}
    server.run(server.server.set_serving(True))
    assert {check(channel, service) for service in services} == {SERVING}
    request = health_pb2.HealthCheckRequest(service="nobody")
    assert refused(health_pb2_grpc.HealthStub(channel).Check, request).code == "NOT_FOUND"


@pytest.mark.parametrize("service", ["", "nobody"])
def test_a_watch_sees_not_serving_and_does_not_hold_up_the_drain(server: RunningServer, service: str) -> None:
    with channel_to(server.target) as channel:
        watch = health_pb2_grpc.HealthStub(channel).Watch(
            health_pb2.HealthCheckRequest(service=service), timeout=PATIENCE
        )
        first = next(watch).status
        started = time.monotonic()
        server.stop(grace=2 * PATIENCE)
        assert time.monotonic() - started < PATIENCE
        rest = [answer.status for answer in watch]
    assert [first, *rest] == ([SERVING, NOT_SERVING] if service == "" else [3])


# Start and drain


def test_drain_lets_calls_finish_and_accepts_no_more(server: RunningServer, channel: grpc.Channel) -> None:
    create(channel)
    stub = RecommenderServiceStub(channel)
    watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(), timeout=PATIENCE)
    assert next(watch).status == SERVING
    server.close_gate()
    call = stub.Recommend.future(RECOMMEND, timeout=PATIENCE)
    until(lambda: "recommend" in server.shop.calls, what="the call is under way")
    with ThreadPoolExecutor(1) as pool:
        drained = pool.submit(server.run, server.server.drain(PATIENCE))
        assert next(watch).status == NOT_SERVING
        assert list(watch) == []
        with channel_to(server.target) as newcomer:
            until(lambda: unavailable(newcomer), what="newcomers are refused")
        assert refused(stub.Recommend, RECOMMEND).code == "UNAVAILABLE"
        assert (
            refused(BanditServiceStub(channel).GetBandit, bandit_pb.GetBanditRequest(name=HOME)).code == "UNAVAILABLE"
        )
        assert not drained.done()
        assert not call.done()
        server.open_gate()
        assert call.result().recommendation_id == "r1"
        drained.result(timeout=PATIENCE)
    assert server.shop.calls.count("recommend") == 1


def unavailable(channel: grpc.Channel) -> bool:
    try:
        check(channel)
    except grpc.RpcError as error:
        return error.code() is grpc.StatusCode.UNAVAILABLE
    return False


def test_a_drain_ends_with_its_grace_and_finishes_what_was_begun(
    server: RunningServer, stub: RecommenderServiceStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "_SETTLE_SECONDS", PATIENCE)
    server.close_gate()
    call = stub.Recommend.future(RECOMMEND, timeout=PATIENCE)
    until(lambda: "recommend" in server.shop.calls, what="the call is under way")
    with ThreadPoolExecutor(1) as pool:
        drained = pool.submit(server.run, server.server.drain(0.2))
        assert_refused_at_shutdown(call)
        assert not drained.done()
        assert "r1" not in server.shop.loops[NAME].given
        server.open_gate()
        drained.result(timeout=PATIENCE)
    assert "r1" in server.shop.loops[NAME].given


def assert_refused_at_shutdown(call: grpc.Future) -> None:
    refusal = refusal_of(call.exception())
    assert (refusal.code, refusal.message) == ("UNAVAILABLE", "the service is shutting down")
    assert refusal.retry_after is not None


def test_a_drain_gives_up_on_what_never_ends(
    stub: RecommenderServiceStub, server: RunningServer, caplog: pytest.LogCaptureFixture
) -> None:
    server.close_gate()
    call = stub.Recommend.future(RECOMMEND, timeout=PATIENCE)
    until(lambda: "recommend" in server.shop.calls, what="the call is under way")
    started = time.monotonic()
    with caplog.at_level(logging.DEBUG, logger="asyncio"):
        server.stop(grace=0.1)
    assert time.monotonic() - started > 1.0
    assert_refused_at_shutdown(call)
    assert "never retrieved" not in caplog.text
    assert "destroyed" not in caplog.text


def test_a_drain_answers_calls_that_only_read_too(server: RunningServer, channel: grpc.Channel) -> None:
    create(channel)
    server.close_gate()
    call = BanditServiceStub(channel).GetBandit.future(bandit_pb.GetBanditRequest(name=HOME), timeout=PATIENCE)
    until(lambda: "get_bandit" in server.shop.calls, what="the call is under way")
    server.stop(grace=0.1)
    assert_refused_at_shutdown(call)


def test_two_servers_share_a_port() -> None:
    with serving(so_reuseport=True) as first, serving(first.shop, address=first.target, so_reuseport=True) as second:
        assert first.port == second.port
        for _ in range(200):
            with channel_to(first.target) as channel:
                refused(RecommenderServiceStub(channel).Recommend, pb.RecommendRequest())
            if first.ledger.started and second.ledger.started:
                break
        assert first.ledger.started
        assert second.ledger.started
        first.stop()
        with channel_to(second.target) as channel:
            create(channel)
            assert recommend(channel).item_ids


def test_a_port_in_use_is_a_configuration_error() -> None:
    with serving() as first, pytest.raises(ConfigurationError, match=f"can't listen on {first.target}"):
        RunningServer(address=first.target)


def test_a_unix_socket(tmp_path: Path) -> None:
    target = f"unix:{tmp_path}/socket"
    with serving(address=target), channel_to(target) as channel:
        create(channel)
        assert recommend(channel).item_ids


def test_tls(tmp_path: Path) -> None:
    certificate = certify(tmp_path)
    with serving(tls=certificate, address="127.0.0.1:0") as server:
        trusting = grpc.ssl_channel_credentials(root_certificates=certificate.pair.certificate)
        with grpc.secure_channel(f"127.0.0.1:{server.port}", trusting) as channel:
            create(channel)
            assert recommend(channel).item_ids
        with channel_to(server.target) as plain:
            assert refused(RecommenderServiceStub(plain).Recommend, RECOMMEND, timeout=PATIENCE).code == "UNAVAILABLE"
