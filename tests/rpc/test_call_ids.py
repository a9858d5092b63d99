"""The ids of a call: taken from its caller where they are good, else made, and sent with every answer."""

from __future__ import annotations

import contextlib
import http.client
import logging
import re
from typing import TYPE_CHECKING

import grpc
import pytest
from tests.rpc.harness import channel_to, serving
from tests.rpc.test_http_server import BANDIT, RECOMMEND, HttpListener, opened
from tests.rpc.wire import HOME, create
from tests.waiting import PATIENCE

from topk_bandit.domain.calls import CURRENT_CALL
from topk_bandit.rpc.call_ids import call_of, metadata_of
from topk_bandit.v1 import recommender_service_pb2 as pb
from topk_bandit.v1.recommender_service_pb2_grpc import RecommenderServiceStub

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from topk_bandit.domain.calls import Call

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = f"00-{TRACE}-{SPAN}-01"
ASKED = pb.RecommendRequest(bandit=HOME)


@pytest.fixture
def listener() -> Iterator[HttpListener]:
    with opened() as one:
        yield one


def ids_of(headers: Mapping[str, str]) -> tuple[str, str, str, str]:
    """Return the request id, the trace id, the span id and the flags of an answer, which are well-formed."""
    version, trace_id, span_id, flags = headers["traceparent"].split("-")
    assert (version, len(trace_id), len(span_id)) == ("00", 32, 16)
    assert re.fullmatch("[0-9a-f]+", trace_id + span_id)
    return headers["x-request-id"], trace_id, span_id, flags


# What is taken


@pytest.mark.parametrize(
    ("text", "sampled"),
    [
        (PARENT, True),
        (f"00-{TRACE}-{SPAN}-00", False),
        (f"00-{TRACE}-{SPAN}-03", True),  # other flags are not ours to know
        (f"00-{TRACE}-{SPAN}-02", False),
        (f"cc-{TRACE}-{SPAN}-01", True),  # versions to come begin as the first
        (f"cc-{TRACE}-{SPAN}-01-what-the-future-will-be", True),
    ],
)
def test_a_good_parent_is_taken(text: str, *, sampled: bool) -> None:
    call = call_of([("traceparent", text)])
    assert call.parent == (TRACE, SPAN, sampled)
    assert (call.span.trace_id, call.span.sampled) == (TRACE, sampled)
    assert call.span.span_id != SPAN


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        PARENT.upper(),
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE}-{SPAN}-01-more",
        f"cc-{TRACE}-{SPAN}-01.more",
        f"00-{TRACE}-{SPAN}-1",
        f"00-{TRACE}-{SPAN}",
        f"00-{TRACE[:-1]}-{SPAN}-01",
        f" {PARENT}",
        f"{PARENT}\n",
        f"cc-{TRACE}-{SPAN}-01-{'x' * 1000}",
        PARENT.encode(),
    ],
)
def test_a_bad_parent_is_as_none(text: str | bytes) -> None:
    call = call_of([("traceparent", text)])
    assert call.parent is None
    assert call.span.trace_id != TRACE


@pytest.mark.parametrize("text", ["a", "r-17", "Root=1-67891233-abcdef012345678912345678", "x" * 128, f"v1.{'x' * 44}"])
def test_a_good_request_id_is_taken(text: str) -> None:
    assert call_of([("x-request-id", text)]).request_id == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x" * 129,
        "two words",
        "a\nb",
        'say "a"',
        "é",
        "\x1b[31m",
        "a,b",
        b"bytes",
        f"id.{'x' * 43}",
        f"key=id.{'x' * 43}/1",
    ],
)
def test_a_bad_request_id_is_replaced(text: str | bytes) -> None:
    assert re.fullmatch("[0-9a-f]{32}", call_of([("x-request-id", text)]).request_id)


@pytest.mark.parametrize("name", ["x-request-id", "traceparent"])
def test_what_is_sent_twice_is_replaced(name: str) -> None:
    call = call_of([(name, PARENT)] * 2)
    assert (call.parent, len(call.request_id)) == (None, 32)


def test_ids_that_are_made_are_never_the_same() -> None:
    calls = [call_of(None) for _ in range(1000)]
    assert len({call.request_id for call in calls} | {call.span.trace_id for call in calls}) == 2000
    assert len({call.span.span_id for call in calls}) == 1000
    assert not any(call.span.sampled for call in calls)


def test_the_ids_of_an_answer_are_what_a_caller_may_send() -> None:
    made = call_of(None)
    assert call_of(metadata_of(made)).parent == made.span


# What is sent with answers


def test_an_answer_over_grpc_tells_its_ids(channel: grpc.Channel) -> None:
    create(channel)
    sent = (("x-request-id", "r-17"), ("traceparent", PARENT))
    _, call = RecommenderServiceStub(channel).Recommend.with_call(ASKED, metadata=sent, timeout=PATIENCE)
    request_id, trace_id, span_id, flags = ids_of(dict(call.trailing_metadata()))
    assert (request_id, trace_id, flags) == ("r-17", TRACE, "01")
    assert span_id != SPAN


def test_an_error_over_grpc_tells_its_ids_and_its_details(channel: grpc.Channel) -> None:
    sent = (("x-request-id", "two words"), ("traceparent", PARENT))
    with pytest.raises(grpc.RpcError) as caught:
        RecommenderServiceStub(channel).Recommend(ASKED, metadata=sent, timeout=PATIENCE)
    trailers = dict(caught.value.trailing_metadata())
    assert ids_of(trailers)[:2] == (trailers["x-request-id"], TRACE)
    assert re.fullmatch("[0-9a-f]{32}", trailers["x-request-id"])
    assert "grpc-status-details-bin" in trailers


def test_an_answer_over_http_tells_its_ids(listener: HttpListener) -> None:
    answer = listener.send(RECOMMEND, {"bandit": BANDIT, "context": [1.0]}, X_Request_Id="r-17", Traceparent=PARENT)
    assert answer.status == 200
    assert ids_of(answer.headers)[:2] == ("r-17", TRACE)


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        ({"bandit": "x"}, {}, 400),
        (b"x" * 200_000, {}, 429),
        ({}, {"Connect_Protocol_Version": "7"}, 400),
        ({}, {"Content_Type": "text/plain"}, 415),
    ],
)
def test_an_error_over_http_tells_its_ids(
    listener: HttpListener, body: dict[str, str] | bytes, headers: dict[str, str], status: int
) -> None:
    answer = listener.send(RECOMMEND, body, X_Request_Id="r-17", Traceparent=PARENT, **headers)
    assert answer.status == status
    assert ids_of(answer.headers)[:2] == ("r-17", TRACE)


def test_pages_of_other_origins_may_send_and_read_ids() -> None:
    with opened(origins=("https://shop.example",)) as shop:
        asked = shop.send(RECOMMEND, method="OPTIONS", Origin="https://shop.example")
        assert {"X-Request-Id", "Traceparent"} <= set(asked.headers["Access-Control-Allow-Headers"].split(", "))
        called = shop.send(RECOMMEND, {"bandit": BANDIT, "context": [1.0]}, Origin="https://shop.example")
        shown = called.headers["Access-Control-Expose-Headers"].split(", ")
        assert {"X-Request-Id", "Traceparent", "Retry-After"} <= set(shown)


def test_calls_of_one_connection_have_ids_of_their_own(listener: HttpListener) -> None:
    connection, seen = http.client.HTTPConnection("127.0.0.1", listener.port, timeout=PATIENCE), []
    with contextlib.closing(connection):
        for _ in range(3):
            connection.request("POST", RECOMMEND, b"{}", {"Content-Type": "application/json"})
            response = connection.getresponse()
            response.read()
            seen.append(ids_of(response.headers))
    for part in range(3):
        assert len({ids[part] for ids in seen}) == 3


# Who knows them while a call is served


class Witness(logging.Handler):
    """Keeps which call was being served when a record was written."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Call | None] = []

    def emit(self, _record: logging.LogRecord) -> None:
        self.calls.append(CURRENT_CALL.get())


@pytest.fixture
def witness() -> Iterator[Witness]:
    handler, logger = Witness(), logging.getLogger("topk_bandit.rpc.failures")
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)


def test_a_failure_is_logged_while_its_call_is_current(witness: Witness) -> None:
    with serving() as server, channel_to(server.target) as channel:
        create(channel)
        server.shop.faults = {"recommend": ZeroDivisionError()}
        for request_id in ("r-1", "r-2"):
            sent = (("x-request-id", request_id), ("traceparent", PARENT))
            with pytest.raises(grpc.RpcError, match="INTERNAL"):
                RecommenderServiceStub(channel).Recommend(ASKED, metadata=sent, timeout=PATIENCE)
    found = [call for call in witness.calls if call is not None]
    assert [call.request_id for call in found] == ["r-1", "r-2"]
    assert {call.span.trace_id for call in found} == {TRACE}
