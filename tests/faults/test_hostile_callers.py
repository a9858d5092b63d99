"""Callers that hang up, that give up at once, that send too much, and that say nothing: others are served as ever."""

from __future__ import annotations

import gzip
import json
import selectors
import socket
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import grpc
import pytest
from tests.faults.service import serving
from tests.long_forms import usual_or_long
from tests.rpc.harness import channel_to
from tests.rpc.wire import HOME, create, recommend, refused
from tests.waiting import until

from topk_bandit.rpc.server import HANDSHAKE_SECONDS
from topk_bandit.v1 import bandit_service_pb2 as bpb
from topk_bandit.v1 import recommender_service_pb2 as rpb
from topk_bandit.v1.bandit_service_pb2_grpc import BanditServiceStub
from topk_bandit.v1.recommender_service_pb2_grpc import RecommenderServiceStub

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.faults.service import Service

LIMIT = 8_388_608
GIVEN_UP = usual_or_long(1_000, long=20_000)
SILENT = 120
RPC = "/topk_bandit.v1.RecommenderService/Recommend"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with serving(tmp_path_factory.mktemp("data"), "--console-listen=127.0.0.1:0") as running:
        with channel_to(running.address) as channel:
            create(channel)
        yield running


@pytest.fixture
def channel(service: Service) -> Iterator[grpc.Channel]:
    with channel_to(service.address) as channel:
        yield channel


def resident_mib(service: Service) -> float:
    [worker] = service.worker_pids
    with open(f"/proc/{worker}/statm", encoding="ascii") as file:  # noqa: PTH123 - no file of ours
        return int(file.read().split()[1]) * 4096 / 2**20


def settled_mib(service: Service) -> float:
    """Return the resident memory once it has stopped growing: what studies need is loaded after the start."""
    seen = [resident_mib(service)]
    while len(seen) < 4 or max(seen[-4:]) - min(seen[-4:]) > 0.5:
        time.sleep(0.5)
        seen.append(resident_mib(service))
    return seen[-1]


def assert_all_places_are_free(channel: grpc.Channel) -> None:
    """Hold that as many calls at once as a worker takes are taken, and each has the answer to its own request."""
    stub = RecommenderServiceStub(channel)
    for _ in range(5):
        wanted = [
            rpb.RecommendRequest(bandit=HOME, candidate_item_ids=["ab", "cd"][number % 2]) for number in range(32)
        ]
        answers = [stub.Recommend.future(one, timeout=20) for one in wanted]
        for one, answer in zip(wanted, answers, strict=True):
            assert set(answer.result().item_ids) == set(one.candidate_item_ids)


@pytest.mark.long_form
def test_callers_that_hang_up_leave_nothing_behind(service: Service, channel: grpc.Channel) -> None:
    stub = RecommenderServiceStub(channel)
    request = rpb.RecommendRequest(bandit=HOME)
    recommend(channel)
    before = settled_mib(service)
    for number in range(GIVEN_UP):
        call = stub.Recommend.future(request, timeout=20)
        time.sleep(0.001 * (number % 4))
        call.cancel()
    time.sleep(0.5)
    assert_all_places_are_free(channel)
    assert resident_mib(service) - before < 30
    assert service.page("/readyz")[0] == 200


@pytest.mark.long_form
def test_callers_that_wait_a_millisecond_starve_nobody(service: Service, channel: grpc.Channel) -> None:
    stub = RecommenderServiceStub(channel)
    request = rpb.RecommendRequest(bandit=HOME)
    served = 0
    with channel_to(service.address) as impatient:
        hasty = RecommenderServiceStub(impatient)
        for number in range(GIVEN_UP):
            hasty.Recommend.future(request, timeout=0.001)
            time.sleep(0.001)
            if number % 20 == 0:
                with suppress(grpc.RpcError):
                    served += not stub.Recommend(request, timeout=20).degraded
        time.sleep(0.5)
        assert_all_places_are_free(channel)
    assert served > 0.5 * GIVEN_UP / 20


def upsert(channel: grpc.Channel) -> grpc.UnaryUnaryMultiCallable:
    """Return the call with messages that are bytes already."""
    return channel.unary_unary("/topk_bandit.v1.BanditService/UpsertItems")


@pytest.mark.parametrize("size", [LIMIT + 1, 100_000_000])
@pytest.mark.parametrize("compression", [grpc.Compression.NoCompression, grpc.Compression.Gzip])
def test_a_message_over_the_limit_costs_no_memory(
    service: Service, channel: grpc.Channel, size: int, compression: grpc.Compression
) -> None:
    """Compressed, they are some hundred kilobytes that would become 100 MB."""
    recommend(channel)
    before = settled_mib(service)
    for _ in range(3):
        refusal = refused(upsert(channel), bytes(size), compression=compression, timeout=30)
        assert refusal.code == "RESOURCE_EXHAUSTED"
        assert resident_mib(service) - before < 60
    assert not recommend(channel).degraded


def test_bodies_that_unpack_to_much_cost_no_memory_however_many_come_at_once(
    service: Service, channel: grpc.Channel
) -> None:
    """Two are some hundred kilobytes that would become 100 MB, and one just fits, but is no message."""
    assert post_packed(service, gzip.compress(f'{{"bandit":"{HOME}"}}'.encode())) == b"200"
    blank = b" " * 100_000_000
    bodies = [(gzip.compress(blank, 1), "gzip", b"429"), (zlib.compress(blank, 1), "deflate", b"429")]
    bodies += [(gzip.compress(blank[:LIMIT]), "gzip", b"400")]
    before = settled_mib(service)
    with ThreadPoolExecutor(16) as callers:
        for body, packing, status in bodies:
            assert post_packed(service, body, packing) == status
            assert resident_mib(service) - before < 20
            assert set(callers.map(lambda _, one=body, by=packing: post_packed(service, one, by), range(48))) == {
                status
            }
            assert resident_mib(service) - before < 20
    # The store's second may have passed while all processors were at work: it is well as soon as they are not.
    until(lambda: not recommend(channel).degraded, what="it serves")


def post_packed(service: Service, body: bytes, packing: str = "gzip") -> bytes:
    """Return the status of a call whose body is compressed."""
    host, _, port = service.http_address.rpartition(":")
    head = f"POST {RPC} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Encoding: {packing}\r\n"
    with socket.create_connection((host, int(port)), timeout=20) as connection:
        connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        return connection.recv(4096).split()[1]


def test_long_metadata_is_refused_and_others_are_served(channel: grpc.Channel) -> None:
    stub = RecommenderServiceStub(channel)
    long = (("x-long", "a" * 20_000),)
    refusal = refused(stub.Recommend, rpb.RecommendRequest(bandit=HOME), metadata=long)
    assert refusal.code == "RESOURCE_EXHAUSTED"
    assert not recommend(channel).degraded


SPLITTERS = ["a}:{b", "a:{b}", "}:{", "a\nb", "a/b", "a\r\n{}", "a\0b", "\u202eab", "../b", "a*"]


@pytest.mark.parametrize("odd", SPLITTERS)
def test_names_that_could_be_keys_are_refused_and_logs_stay_lines(
    service: Service, channel: grpc.Channel, odd: str
) -> None:
    stub = BanditServiceStub(channel)
    for name in (f"tenants/{odd}/bandits/home", f"tenants/acme/bandits/{odd}"):
        made = bpb.Bandit(name=name, slate_size=2, item_capacity=9)
        assert refused(stub.CreateBandit, bpb.CreateBanditRequest(bandit=made)).code == "INVALID_ARGUMENT"
        assert refused(stub.DeleteBandit, bpb.DeleteBanditRequest(name=name)).code == "INVALID_ARGUMENT"
    odd_id = rpb.RecommendRequest(bandit=HOME, request_id=odd)
    with suppress(grpc.RpcError):
        RecommenderServiceStub(channel).Recommend(odd_id, timeout=10)
    assert not [record for record in service.records if "raw" in record], json.dumps(service.records[-3:])


@contextmanager
def connected(address: str, words: list[bytes]) -> Iterator[list[socket.socket]]:
    host, _, port = address.rpartition(":")
    connections = []
    try:
        for number in range(SILENT):
            connection = socket.create_connection((host, int(port)), timeout=10)
            connections.append(connection)
            with suppress(OSError):
                connection.sendall(words[number % len(words)])
        yield connections
    finally:
        for connection in connections:
            connection.close()


def ended(connections: list[socket.socket], *, seconds: float) -> int:
    """Return how many of them the other side has closed when the time is over, or as soon as it has closed all."""
    end, closed = time.monotonic() + seconds, 0
    with selectors.DefaultSelector() as selector:
        for connection in connections:
            selector.register(connection, selectors.EVENT_READ)
        while closed < len(connections) and time.monotonic() < end:
            for key, _ in selector.select(timeout=0.5):
                try:
                    gone = key.fileobj.recv(65_536) == b""
                except OSError:
                    gone = True
                if gone:
                    selector.unregister(key.fileobj)
                    closed += 1
    return closed


HALF_HEAD = b"POST / HTTP/1.1\r\nHost: x\r\nX-A: "


def test_half_a_request_is_not_waited_for(service: Service, channel: grpc.Channel) -> None:
    words = [b"", HALF_HEAD]
    with connected(service.http_address, words) as calls, connected(service.console_address, words) as pages:
        assert not recommend(channel).degraded
        assert ended([*calls, *pages], seconds=2 * HANDSHAKE_SECONDS + 25) == 2 * SILENT
    assert not recommend(channel).degraded
