"""Calls that are slow are sent again, and not so often that a slow service gets twice as many of them."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.client.conftest import ONCE
from tests.waiting import PATIENCE, until

from topk_bandit.client import AsyncClient, Cancelled, Client
from topk_bandit.client.resends import MOST_RESENDS, PATIENCE_SECONDS, Resends
from topk_bandit.client.routing import SILENT_SECONDS, WORKER_HEADER, read_worker_header
from topk_bandit.v1 import recommender_service_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Iterator

CALLERS = 12
ROUNDS = 4


@pytest.fixture(autouse=True)
def slow_calls_go_once() -> None:
    """Leave the limit of calls that are sent again as it is: they are what is tested here."""


class SlowService:
    """Answers as two workers do, each connection by one of them, and counts slates."""

    def __init__(self) -> None:
        self.target = ""
        self.seconds = 0.0
        self.hung = 0
        self.count = 0
        self.at_hung: set[str] = set()
        self.ended = threading.Event()
        self._peers: dict[str, int] = {}
        self._lock = threading.Lock()

    def answer(self, context: grpc.ServicerContext) -> int:
        with self._lock:
            worker = self._peers.setdefault(context.peer(), len(self._peers) % 2 + 1)
        context.set_trailing_metadata(((WORKER_HEADER, f"{worker}/2;service=slow;owner=2"),))
        return worker

    def recommend(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        worker = self.answer(context)
        request_id = pb.RecommendRequest.FromString(request).request_id
        with self._lock:
            self.count += 1
            if worker == self.hung:
                self.at_hung.add(request_id)
        self.ended.wait(PATIENCE if worker == self.hung else self.seconds)
        return pb.RecommendResponse(recommendation_id="r", item_ids=["tea"]).SerializeToString()

    def check(self, _request: bytes, context: grpc.ServicerContext) -> bytes:
        self.answer(context)
        return b""


@contextmanager
def slow_service() -> Iterator[SlowService]:
    service = SlowService()

    class Handler(grpc.GenericRpcHandler):  # type: ignore[type-arg]  # not subscriptable at run time
        def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:  # type: ignore[type-arg]
            is_health = details.method.startswith("/grpc.health")
            return grpc.unary_unary_rpc_method_handler(service.check if is_health else service.recommend)

    server = grpc.server(ThreadPoolExecutor(8 * CALLERS), handlers=[Handler()])
    service.target = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        yield service
    finally:
        service.ended.set()
        server.stop(None).wait()


def test_a_call_is_sent_again_as_long_as_others_are_answered_in_time() -> None:
    resends = Resends()
    for _ in range(int(MOST_RESENDS)):
        assert resends.patience(2.0, is_probe=False) == PATIENCE_SECONDS
        resends.sent()
    assert resends.patience(2.0, is_probe=False) == 2.0
    for _ in range(100):
        resends.answered(PATIENCE_SECONDS)
    assert resends.patience(2.0, is_probe=False) == 2.0, "slow answers earn nothing"
    for _ in range(11):
        resends.answered(0.01)
    assert resends.patience(2.0, is_probe=False) == PATIENCE_SECONDS


def test_a_probe_is_sent_again_whatever_is_left() -> None:
    resends = Resends()
    for _ in range(100):
        resends.sent()
    assert resends.patience(2.0, is_probe=True) == PATIENCE_SECONDS
    assert resends.patience(2.0 * PATIENCE_SECONDS - 0.01, is_probe=True) == 2.0 * PATIENCE_SECONDS - 0.01


def test_many_at_the_same_time_are_paid_for_later() -> None:
    resends = Resends()
    for _ in range(100):
        resends.sent()
    for _ in range(900):
        resends.answered(0.01)
    assert resends.patience(2.0, is_probe=False) == 2.0
    for _ in range(2000):
        resends.answered(0.01)
    for _ in range(int(MOST_RESENDS)):
        assert resends.patience(2.0, is_probe=False) == PATIENCE_SECONDS
        resends.sent()
    assert resends.patience(2.0, is_probe=False) == 2.0, "however long all was well"


def test_a_call_without_time_for_a_second_one_is_sent_once() -> None:
    assert Resends().patience(0.9, is_probe=False) == 0.9
    assert Resends().patience(0.15, is_probe=False) == 0.15
    assert Resends().patience(1.0, is_probe=False) == PATIENCE_SECONDS


def sendings(seconds: float) -> list[float]:
    """Return how long each sending of a call lasts that is never answered."""
    resends, lasted = Resends(), list[float]()
    while seconds > 0.0:
        lasted.append(resends.patience(seconds, is_probe=False, tries=len(lasted)))
        seconds -= lasted[-1]
    return lasted


def test_each_time_a_call_has_four_times_as_long() -> None:
    assert sendings(40.0) == [0.5, 2.0, 8.0, 29.5]
    assert sendings(20.0) == [0.5, 2.0, 17.5]
    assert sendings(3.0) == [0.5, 2.5]
    assert sendings(0.9) == [0.9]


@given(st.floats(0.01, 3600.0))
def test_the_last_time_a_call_has_half_of_its_time_or_more(seconds: float) -> None:
    lasted = sendings(seconds)
    assert lasted[-1] >= seconds / 2.0
    assert len(lasted) < 16


def test_where_each_sending_connects_anew_two_seconds_are_three_of_them() -> None:
    resends, lasted = Resends(), list[float]()
    while sum(lasted) < 2.0:
        lasted.append(resends.patience(2.0 - sum(lasted), is_probe=False, tries=len(lasted), connects_anew=True))
    assert lasted == [0.5, 1.0, 0.5]


class HangingConnections(ThreadingHTTPServer):
    """Answers calls over HTTP, but on the first connections."""

    daemon_threads = True

    def __init__(self, *, hanging: int) -> None:
        super().__init__(("127.0.0.1", 0), AnswerOrHang)
        self.left, self.ended = hanging, threading.Event()
        self.target = f"http://127.0.0.1:{self.server_port}"


class AnswerOrHang(BaseHTTPRequestHandler):
    """What is done on one connection."""

    server: HangingConnections
    protocol_version = "HTTP/1.1"

    def setup(self) -> None:
        super().setup()
        self.server.left -= 1
        if self.server.left >= 0:
            self.server.ended.wait(PATIENCE)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        body = pb.RecommendResponse(recommendation_id="r", item_ids=["tea"]).SerializeToString()
        self.send_response(200)
        self.send_header("Content-Type", "application/proto")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def hanging_connections() -> Iterator[str]:
    with HangingConnections(hanging=2) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        try:
            yield server.target
        finally:
            server.ended.set()
            server.shutdown()
            serving.join()


def test_over_http_a_call_that_is_not_answered_goes_over_other_connections() -> None:
    with hanging_connections() as target, Client(target, tenant="acme", timeout=PATIENCE, retry=ONCE) as client:
        assert client.recommend("home").id == "r"


def test_so_does_one_of_an_asynchronous_client() -> None:
    async def shop(target: str) -> None:
        async with AsyncClient(target, tenant="acme", timeout=PATIENCE, retry=ONCE) as client:
            assert (await client.recommend("home")).id == "r"

    with hanging_connections() as target:
        asyncio.run(shop(target))


def test_once_the_resends_are_spent_a_call_goes_where_something_was_answered_last() -> None:
    stopped = partial(float, 0)  # so that no time is over after which the one that hangs is tried again
    with slow_service() as service, Client(service.target, tenant="acme", timeout=PATIENCE, clock=stopped) as client:
        while client._connections.count < 2:
            client.recommend("home")
        hung_and_slow(service)
        client.recommend("home")  # notices that the owner hangs
        while not client._connections._resends.are_spent:
            client._connections._resends.sent()
        client.recommend("home", request_id="last")
        assert "last" not in service.at_hung, "the one that hangs is not asked"


def test_probes_cost_nothing() -> None:
    with slow_service() as service, Client(service.target, tenant="acme", timeout=PATIENCE) as client:
        while client._connections.count < 2:
            client.recommend("home")
        service.hung = 2
        client.recommend("home")
        left = client._connections._resends._left
        time.sleep(SILENT_SECONDS + 0.1)
        client.recommend("home")  # is tried at the owner, which still hangs, and sent again
        assert client._connections._resends._left >= left


def hung_and_slow(service: SlowService, *, hung: int = 2) -> None:
    """Let one worker hang, the owner or not, and the other one take longer than a call waits at first."""
    service.hung, service.seconds = hung, PATIENCE_SECONDS + 0.2


def test_a_call_that_a_slow_worker_is_late_with_does_not_wait_for_one_that_hangs() -> None:
    with slow_service() as service, Client(service.target, tenant="acme", timeout=PATIENCE, retry=ONCE) as client:
        while client._connections.count < 2:
            client.recommend("home")
        hung_and_slow(service)
        for _ in range(4):
            client.recommend("home")  # one that waited there would end without an answer


def test_nor_where_it_is_not_known_yet_which_one_hangs() -> None:
    with slow_service() as service, Client(service.target, tenant="acme", timeout=PATIENCE, retry=ONCE) as client:
        while client._connections.count < 2:
            client.recommend("home")
        hung_and_slow(service, hung=1)  # the owner is slow
        client.recommend("home")


def test_nor_does_a_call_of_an_asynchronous_client() -> None:
    async def shop(service: SlowService) -> None:
        async with AsyncClient(service.target, tenant="acme", timeout=PATIENCE) as client:
            while client._connections.count < 2:
                await client.recommend("home")
            hung_and_slow(service)
            for _ in range(2):
                await client.recommend("home")

    with slow_service() as service:
        asyncio.run(shop(service))


def test_a_slow_service_gets_little_more_than_it_is_asked() -> None:
    with slow_service() as service, Client(service.target, tenant="acme", timeout=PATIENCE) as client:
        while client._connections.count < 2:
            client.recommend("home")
        service.seconds, service.count = PATIENCE_SECONDS + 0.2, 0
        with ThreadPoolExecutor(CALLERS) as callers:
            list(callers.map(lambda _: client.recommend("home"), range(CALLERS * ROUNDS)))
        assert service.count <= CALLERS * ROUNDS + MOST_RESENDS + CALLERS


def test_calls_that_take_long_are_sent_once_after_a_few() -> None:
    """So that one which takes nearly all its time is answered: what is sent again has less of it.

    A machine that stands still for a while makes calls that take longer than any before, which are sent again.
    """

    async def shop(service: SlowService) -> list[int]:
        async with AsyncClient(service.target, tenant="acme", timeout=PATIENCE) as client:
            while client._connections.count < 2:
                await client.recommend("home")
            service.seconds = PATIENCE_SECONDS + 0.5
            await asyncio.gather(*(client.recommend("home") for _ in range(CALLERS)))
            counts = [0]
            while counts[-1] != CALLERS and len(counts) < 10:
                service.count = 0
                await asyncio.gather(*(client.recommend("home") for _ in range(CALLERS)))
                counts.append(service.count)
            return counts

    with slow_service() as service:
        assert asyncio.run(shop(service))[-1] == CALLERS


def test_an_answer_over_the_connection_for_hedging_tells_nothing_of_the_other_one() -> None:
    with slow_service() as service, ExitStack() as stack:
        while True:
            client = Client(service.target, tenant="acme", hedge_after=0.05, timeout=PATIENCE)
            stack.enter_context(client)
            while client._connections.count < 2:
                client.recommend("home")
            if worker_of_spare(client) == 1:  # on a slow machine a call of before may have been hedged, to worker 2
                break
        service.hung = 2
        for _ in range(4):
            client.recommend("home")
        assert client._connections.count == 2


def worker_of_spare(client: Client) -> int:
    spare = client._connections._spare
    assert spare is not None
    _, call = spare.channel.unary_unary("/grpc.health.v1.Health/Check").with_call(b"", timeout=PATIENCE)
    info = read_worker_header(dict(call.trailing_metadata())[WORKER_HEADER])
    assert info is not None
    return info.worker


def test_who_closes_a_client_cancels_the_calls_of_other_threads() -> None:
    with slow_service() as service, ThreadPoolExecutor(CALLERS) as callers:
        client = Client(service.target, tenant="acme", timeout=PATIENCE)
        client.recommend("home")
        service.seconds, service.count = PATIENCE, 0
        calls = [callers.submit(client.recommend, "home") for _ in range(CALLERS)]
        until(lambda: service.count >= CALLERS, what="all calls are under way")
        client.close()
        assert {type(one.exception()) for one in calls} == {Cancelled}
