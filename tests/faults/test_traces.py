"""Traces of the real service, as a collector receives them, and the log records that belong to them."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
import pytest
import redis
from google.rpc.code_pb2 import Code
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tests.collectors import Collector, Span, collecting
from tests.faults.conftest import short_folder
from tests.faults.service import ITS_PATH, PATIENT, Service, clean_environment, serving
from tests.rpc.harness import channel_to
from tests.rpc.wire import HOME, create, refused
from tests.servers import free_port
from tests.waiting import PATIENCE, until

from topk_bandit.client.routing import WORKER_HEADER
from topk_bandit.v1 import bandit_service_pb2 as bandit_pb
from topk_bandit.v1 import recommender_service_pb2 as pb
from topk_bandit.v1.bandit_service_pb2_grpc import BanditServiceStub
from topk_bandit.v1.recommender_service_pb2_grpc import RecommenderServiceStub

if TYPE_CHECKING:
    from collections.abc import Iterator

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
RECOMMEND = "topk_bandit.v1.RecommenderService/Recommend"
REWARD = "topk_bandit.v1.RecommenderService/Reward"
OFTEN = {"OTEL_BSP_SCHEDULE_DELAY": "100"}
RARELY = {"OTEL_BSP_SCHEDULE_DELAY": "600000"}
COMPILING = (sys.executable, str(Path(__file__).with_name("compiling_program.py")))


def variables(collector: Collector, **others: str) -> dict[str, str]:
    return {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, **OFTEN, **others}


def sent(trace_id: str, *, flags: str = "01", request_id: str = "r-17") -> tuple[tuple[str, str], ...]:
    return (("traceparent", f"00-{trace_id}-{PARENT}-{flags}"), ("x-request-id", request_id))


def ids_of(call: grpc.Call | grpc.RpcError) -> tuple[str, str, str]:
    """Return the trace id, the span id and the flags that an answer tells."""
    told = dict(call.trailing_metadata())["traceparent"].split("-")
    return told[1], told[2], told[3]


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    with collecting() as one:
        yield one


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with short_folder() as one:
        yield one


@pytest.fixture(scope="module")
def service(folder: Path, collector: Collector) -> Iterator[Service]:
    told = variables(collector, OTEL_RESOURCE_ATTRIBUTES="deployment.environment.name=test")
    with serving(folder, "--traces", variables=told, excused="GetBandit failed, reference") as running:
        with channel_to(running.address) as channel:
            create(channel)
        yield running


@pytest.fixture
def channel(service: Service) -> Iterator[grpc.Channel]:
    with channel_to(service.address) as opened:
        yield opened


def span_of(collector: Collector, span_id: str) -> Span:
    """Return a span once it has arrived with those under it, which are sent before it."""
    until(lambda: any(span.span_id == span_id for span in collector.spans), what=f"span {span_id} arrives")
    return next(span for span in collector.spans if span.span_id == span_id)


def test_a_slate_is_a_tree_of_spans_under_the_callers(channel: grpc.Channel, collector: Collector) -> None:
    asked = pb.RecommendRequest(bandit=HOME)
    slate, call = RecommenderServiceStub(channel).Recommend.with_call(asked, metadata=sent(TRACE), timeout=PATIENCE)
    trace_id, span_id, flags = ids_of(call)
    assert (trace_id, flags) == (TRACE, "01")
    span = span_of(collector, span_id)
    assert (span.name, span.kind, span.trace_id, span.parent_id) == (RECOMMEND, "SERVER", TRACE, PARENT)
    assert not span.failed
    assert span.attributes == {
        "rpc.method": RECOMMEND,
        "rpc.response.status_code": "OK",
        "topk_bandit.request_id": "r-17",
        "topk_bandit.resource": HOME,
    }
    children = sorted(collector.children(span), key=lambda child: (child.start, child.name != "queue"))
    assert [child.name for child in children] == ["queue", "decide", "store record_recommendation"]
    assert all(span.start <= child.start <= child.end <= span.end for child in children)
    assert children[1].attributes["topk_bandit.recommendation_id"] == slate.recommendation_id
    assert children[2].kind == "CLIENT"
    assert children[2].attributes == {"db.system.name": "redis", "db.operation.name": "record_recommendation"}
    assert span.resource["service.name"] == "topk-bandit"
    assert span.resource["deployment.environment.name"] == "test"
    assert {path for path, _ in collector.requests} == {"/v1/traces"}


def test_a_call_over_http_is_traced_as_well(service: Service, collector: Collector) -> None:
    trace_id = "0123456789abcdef0123456789abcdef"
    headers = {"Content-Type": "application/json", "Traceparent": f"00-{trace_id}-{PARENT}-01"}
    request = urllib.request.Request(
        f"http://{service.http_address}/{RECOMMEND}", json.dumps({"bandit": HOME}).encode(), headers
    )
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        _, told_trace, span_id, _ = answer.headers["traceparent"].split("-")
    assert told_trace == trace_id
    span = span_of(collector, span_id)
    assert (span.name, span.parent_id) == (RECOMMEND, PARENT)
    assert {"queue", "decide", "store record_recommendation"} == {child.name for child in collector.children(span)}


def test_folding_is_in_the_trace_of_the_call_that_waits_for_it_or_in_one_of_its_own(
    channel: grpc.Channel, collector: Collector
) -> None:
    name, stub = "tenants/acme/bandits/folded", RecommenderServiceStub(channel)
    create(channel, name)
    slate, first = stub.Recommend.with_call(pb.RecommendRequest(bandit=name), timeout=PATIENCE)
    assert span_of(collector, ids_of(first)[1]).parent_id == ""
    calls = [span for span in collector.spans if span.attributes.get("topk_bandit.resource") == name]
    waited_for = [child for call in calls for child in collector.children(call) if child.name == "fold"]
    assert waited_for  # by whichever of them loaded the model
    reward = pb.RewardRequest(bandit=name, recommendation_id=slate.recommendation_id, value=1.0)
    _, call = stub.Reward.with_call(reward, timeout=PATIENCE)
    rewarded = span_of(collector, ids_of(call)[1])
    assert rewarded.name == REWARD
    assert {child.name for child in collector.children(rewarded)} == {"queue", "store record_reward"}

    def later() -> list[Span]:
        return [span for span in collector.spans if span.name == "fold" and span.end > rewarded.end]

    until(later, what="the reward is folded")
    assert {span.parent_id for span in later()} == {""}
    assert all(span.attributes["topk_bandit.events"] >= 1 for span in later())
    # What is followed in the background asks the store again and again, which makes no spans.
    alone = {span.name for span in collector.spans if span.parent_id == ""}
    assert "fold" in alone
    assert not [name for name in alone if name.startswith("store ")]


def test_a_failing_call_has_the_same_trace_in_span_and_log(
    service: Service, channel: grpc.Channel, collector: Collector, folder: Path
) -> None:
    trace_id = "f" * 31 + "1"
    request = bandit_pb.GetBanditRequest(name="tenants/acme/bandits/broken")
    with redis.Redis(unix_socket_path=f"{folder}/valkey.sock", protocol=2) as store:
        store.set("topk-bandit:{acme/broken}:meta", "secret text")
        with pytest.raises(grpc.RpcError, match="INTERNAL") as caught:
            BanditServiceStub(channel).GetBandit(request, metadata=sent(trace_id, request_id="r-18"), timeout=PATIENCE)
        store.delete("topk-bandit:{acme/broken}:meta")
    told_trace, span_id, _ = ids_of(caught.value)
    span = span_of(collector, span_id)
    assert (told_trace, span.trace_id, span.failed) == (trace_id, trace_id, True)
    assert span.attributes["rpc.response.status_code"] == "INTERNAL"
    until(lambda: any(record.get("request_id") == "r-18" for record in service.records), what="the failure is logged")
    (record,) = [record for record in service.records if record.get("request_id") == "r-18"]
    assert "GetBandit failed, reference" in record["message"]
    assert (record["trace_id"], record["span_id"]) == (trace_id, span_id)


def test_a_mistake_of_the_caller_is_no_failure_of_the_service(channel: grpc.Channel, collector: Collector) -> None:
    with pytest.raises(grpc.RpcError, match="INVALID_ARGUMENT") as caught:
        RecommenderServiceStub(channel).Recommend(pb.RecommendRequest(), timeout=PATIENCE)
    span = span_of(collector, ids_of(caught.value)[1])
    assert (span.failed, span.attributes["rpc.response.status_code"]) == (False, "INVALID_ARGUMENT")


def test_a_call_that_its_caller_does_not_sample_makes_no_spans(channel: grpc.Channel, collector: Collector) -> None:
    trace_id, stub = "1" * 32, RecommenderServiceStub(channel)
    asked = pb.RecommendRequest(bandit=HOME)
    _, call = stub.Recommend.with_call(asked, metadata=sent(trace_id, flags="00"), timeout=PATIENCE)
    assert ids_of(call)[::2] == (trace_id, "00")
    _, after = stub.Recommend.with_call(asked, timeout=PATIENCE)
    span_of(collector, ids_of(after)[1])
    assert collector.trace(trace_id) == []


def test_probes_make_no_spans(channel: grpc.Channel, collector: Collector) -> None:
    checked, call = health_pb2_grpc.HealthStub(channel).Check.with_call(
        health_pb2.HealthCheckRequest(), timeout=PATIENCE
    )
    assert checked.status == health_pb2.HealthCheckResponse.SERVING
    _, after = RecommenderServiceStub(channel).Recommend.with_call(pb.RecommendRequest(bandit=HOME), timeout=PATIENCE)
    span_of(collector, ids_of(after)[1])
    assert not [span for span in collector.spans if "health" in span.name.lower()]
    assert collector.trace(ids_of(call)[0]) == []


# From start to end


def test_what_is_left_is_sent_when_the_service_stops(tmp_path: Path) -> None:
    with (
        collecting() as collector,
        serving(
            tmp_path,
            "--traces",
            "--workers=2",
            "--drain-seconds=600",
            variables=variables(collector, OTEL_SERVICE_NAME="shop", **RARELY, **ITS_PATH),
            command=PATIENT,
        ) as service,
    ):
        told, workers = set(), set()
        while len(workers) < 2:
            with channel_to(service.address) as channel, pytest.raises(grpc.RpcError) as caught:
                RecommenderServiceStub(channel).Recommend(pb.RecommendRequest(bandit=HOME), timeout=PATIENCE)
            told.add(ids_of(caught.value)[1])
            workers.add(dict(caught.value.trailing_metadata())[WORKER_HEADER].partition("/")[0])
        assert not collector.spans
        service.running.send_signal(signal.SIGTERM)
        assert service.wait() == 0
        assert told <= {span.span_id for span in collector.spans}
        assert {span.resource["service.name"] for span in collector.spans} == {"shop"}
        assert len({span.resource["service.instance.id"] for span in collector.spans}) == 2


def test_what_is_left_is_sent_while_the_service_still_compiles(tmp_path: Path) -> None:
    """A worker whose threads do not end is killed some time after its drain: its spans are sent before."""
    with (
        collecting() as collector,
        serving(
            tmp_path,
            "--traces",
            "--drain-seconds=600",
            variables=variables(collector, **RARELY, **ITS_PATH),
            command=COMPILING,
        ) as service,
    ):
        with channel_to(service.address) as channel, pytest.raises(grpc.RpcError) as caught:
            RecommenderServiceStub(channel).Recommend(pb.RecommendRequest(bandit=HOME), timeout=PATIENCE)
        assert not collector.spans
        service.running.send_signal(signal.SIGTERM)
        span_of(collector, ids_of(caught.value)[1])


def test_a_collector_that_is_away_is_told_once_and_holds_up_nothing(tmp_path: Path) -> None:
    port = free_port()
    told = {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}", "OTEL_EXPORTER_OTLP_TIMEOUT": "5", **OFTEN}

    def lines(service: Service, words: str) -> int:
        return sum(words in str(record.get("message")) for record in service.records)

    def call(service: Service) -> str:
        with channel_to(service.address) as channel:
            refusal = refused(BanditServiceStub(channel).GetBandit, bandit_pb.GetBanditRequest(name=HOME))
        assert refusal.code == Code.Name(Code.NOT_FOUND)
        return refusal.code

    with serving(tmp_path, "--traces", variables=told) as service:
        call(service)
        until(lambda: lines(service, "spans can't be sent"), what="the outage is told")
        call(service)
        with collecting(port) as collector:
            until(lambda: call(service) and collector.spans, what="spans arrive")
            until(lambda: lines(service, "spans are sent again"), what="the end is told")
        call(service)
        service.running.send_signal(signal.SIGTERM)
        assert service.wait() == 0
        ends = [one for one in service.records if "spans " in str(one.get("message"))]
        assert [one["message"][:12] for one in ends[:2]] == ["spans can't ", "spans are se"]
        # Once more after the collector has gone, and where it was slow; never one after the other.
        assert 0 <= lines(service, "spans can't be sent") - lines(service, "spans are sent again") <= 1
        assert not lines(service, "killed")
        assert not [record for record in service.records if str(record.get("logger")).startswith("opentelemetry")]


@pytest.mark.long_form
def test_what_an_owner_does_is_in_the_trace_of_the_call_that_came_in_elsewhere(tmp_path: Path) -> None:
    with (
        collecting() as collector,
        serving(tmp_path, "--traces", "--workers=2", variables=variables(collector)) as service,
        channel_to(service.address) as channel,
    ):
        names = [f"tenants/acme/bandits/b{number}" for number in range(8)]
        for name in names:
            create(channel, name)

        def owners_spans() -> list[Span]:
            for name in names:
                RecommenderServiceStub(channel).Recommend(pb.RecommendRequest(bandit=name), timeout=PATIENCE)
            decided = {span.parent_id for span in collector.spans if span.name == "decide"}
            return [span for span in collector.spans if span.name == "owner" and span.span_id in decided]

        until(owners_spans, what="a decision of a call that was passed on")
        owners = owners_spans()[0]
        call = span_of(collector, owners.parent_id)
        assert (call.name, call.trace_id, owners.kind) == (RECOMMEND, owners.trace_id, "INTERNAL")
        assert call.attributes["topk_bandit.request_id"] == owners.attributes["topk_bandit.request_id"]
        # The first call about a bandit also brings its model.
        wanted = {"decide", "store record_recommendation"}
        until(lambda: wanted <= {child.name for child in collector.children(owners)}, what="its spans")


# Where it is not asked for


def test_without_traces_nothing_of_it_is_imported() -> None:
    script = (
        "import sys, topk_bandit.commands.cli, topk_bandit.process.assembly\n"
        "unwanted = ('opentelemetry.sdk.trace', 'opentelemetry.exporter')\n"
        "print(*(name for name in sys.modules if name.startswith(unwanted)))\n"
        "print('topk_bandit.process.traces' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False"]


def test_traces_without_the_extra_are_refused_before_anything_starts() -> None:
    script = (
        "import sys\n"
        "sys.modules['opentelemetry.exporter'] = None\n"
        "from topk_bandit.commands.cli import main\n"
        "sys.exit(main(['serve', '--traces']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=False,
        env=clean_environment(),
        timeout=PATIENCE,
    )
    assert done.returncode == 1
    assert "traces (from flag --traces) needs opentelemetry: pip install 'topk-bandit[traces]'" in done.stderr


def test_another_protocol_is_refused(tmp_path: Path) -> None:
    told = {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}
    with serving(tmp_path, "--traces", variables=told, start=False) as service:
        service.spawn()
        assert service.wait() == 1
    assert "OTEL_EXPORTER_OTLP_PROTOCOL: 'grpc' is not http/protobuf" in service.log
