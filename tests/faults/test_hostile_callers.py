"""Callers that hang up, that give up at once, that send too much, and that say nothing: others are served as ever."""

from __future__ import annotations

import gzip
import json
import socket
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import grpc
import pytest
from tests.faults.service import serving
from tests.faults.test_silent_connections import until_closed
from tests.long_forms import usual_or_long
from tests.rpc.harness import channel_to
from tests.rpc.wire import HOME, create, recommend, refused
from tests.waiting import PATIENCE, until

from topk_bandit.client import AnswerKind
from topk_bandit.rpc.bodies import SMALL_BYTES
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
        with channel_to(running.address) as channel, running.client() as client:
            create(channel)
            # What studies need is loaded after the start, and takes memory.
            client.create_study("loaded", {"a": [1.0], "b": [2.0]}, answer_kind=AnswerKind.PAIR, budget=1)
            client.wait_for_design("loaded", timeout=PATIENCE)
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
    """Return the resident memory once it has stopped growing."""
    seen = [resident_mib(service)]
    while len(seen) < 4 or max(seen[-4:]) - min(seen[-4:]) > 0.5:
        time.sleep(0.5)
        seen.append(resident_mib(service))
    return seen[-1]


def are_all_places_free(channel: grpc.Channel) -> bool:
    """Ask as often at once as a worker takes calls; each that is taken has the answer to its own request."""
    stub = RecommenderServiceStub(channel)
    wanted = [rpb.RecommendRequest(bandit=HOME, candidate_item_ids=["ab", "cd"][number % 2]) for number in range(32)]
    answers = [stub.Recommend.future(one, timeout=PATIENCE) for one in wanted]
    taken = [(one, answer.result()) for one, answer in zip(wanted, answers, strict=True) if answer.exception() is None]
    assert all(set(answer.item_ids) == set(one.candidate_item_ids) for one, answer in taken)
    return len(taken) == len(wanted)


@pytest.mark.long_form
def test_callers_that_hang_up_leave_nothing_behind(service: Service, channel: grpc.Channel) -> None:
    stub = RecommenderServiceStub(channel)
    request = rpb.RecommendRequest(bandit=HOME)
    recommend(channel)
    before = settled_mib(service)
    for number in range(GIVEN_UP):
        call = stub.Recommend.future(request, timeout=PATIENCE)
        time.sleep(0.001 * (number % 4))
        call.cancel()
    until(lambda: are_all_places_free(channel), what="all places are free")
    assert resident_mib(service) - before < 30
    service.until_ready()


@pytest.mark.long_form
def test_callers_that_wait_a_millisecond_starve_nobody(service: Service, channel: grpc.Channel) -> None:
    stub = RecommenderServiceStub(channel)
    request = rpb.RecommendRequest(bandit=HOME)
    with channel_to(service.address) as impatient:
        hasty = RecommenderServiceStub(impatient)
        for number in range(GIVEN_UP):
            hasty.Recommend.future(request, timeout=0.001)
            time.sleep(0.001)
            if number % 20 == 0:
                until(lambda: not stub.Recommend(request, timeout=PATIENCE).degraded, what="others are served")
        until(lambda: are_all_places_free(channel), what="all places are free")


def upsert(channel: grpc.Channel) -> grpc.UnaryUnaryMultiCallable:
    """Return the call with messages that are bytes already."""
    return channel.unary_unary("/topk_bandit.v1.BanditService/UpsertItems")


@pytest.mark.parametrize(
    ("size", "compression"),
    [(LIMIT + 1, grpc.Compression.NoCompression), (100_000_000, grpc.Compression.Gzip)],
)
def test_a_message_over_the_limit_costs_no_memory(
    service: Service, channel: grpc.Channel, size: int, compression: grpc.Compression
) -> None:
    """Compressed, they are some hundred kilobytes that would become 100 MB."""
    recommend(channel)
    before = settled_mib(service)
    for _ in range(3):
        refusal = refused(upsert(channel), bytes(size), compression=compression, timeout=PATIENCE)
        assert refusal.code == "RESOURCE_EXHAUSTED"
        assert resident_mib(service) - before < 60
    assert not recommend(channel).degraded


def test_bodies_that_unpack_to_much_cost_no_memory_however_many_come_at_once(
    service: Service, channel: grpc.Channel
) -> None:
    """Two are some hundred kilobytes that would become 100 MB, one grows too much, and one fits, but is no message."""
    assert post_packed(service, gzip.compress(f'{{"bandit":"{HOME}"}}'.encode())) == b"200"
    blank = b" " * 100_000_000
    bodies = [(gzip.compress(blank, 1), "gzip", b"429"), (zlib.compress(blank, 1), "deflate", b"429")]
    bodies += [(gzip.compress(blank[:LIMIT]), "gzip", b"429"), (gzip.compress(blank[:SMALL_BYTES]), "gzip", b"400")]
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
    head = (
        f"POST {RPC} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Encoding: {packing}\r\n"
    )
    with socket.create_connection((host, int(port)), timeout=PATIENCE) as connection:
        connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        return connection.recv(4096).split()[1]


def test_long_metadata_is_refused_and_others_are_served(channel: grpc.Channel) -> None:
    stub = RecommenderServiceStub(channel)
    long = (("x-long", "a" * 20_000),)
    refusal = refused(stub.Recommend, rpb.RecommendRequest(bandit=HOME), metadata=long)
    assert refusal.code == "RESOURCE_EXHAUSTED"
    assert not recommend(channel).degraded


SPLITTERS = ["a}:{b", "a:{b}", "}:{", "a\nb", "a/b", "a\r\n{}", "a\0b", "\u202eab", "../b", "a*"]


def test_names_that_could_be_keys_are_refused_and_logs_stay_lines(service: Service, channel: grpc.Channel) -> None:
    stub = BanditServiceStub(channel)
    for odd in SPLITTERS:
        for name in (f"tenants/{odd}/bandits/home", f"tenants/acme/bandits/{odd}"):
            made = bpb.Bandit(name=name, slate_size=2, item_capacity=9)
            assert refused(stub.CreateBandit, bpb.CreateBanditRequest(bandit=made)).code == "INVALID_ARGUMENT"
            assert refused(stub.DeleteBandit, bpb.DeleteBanditRequest(name=name)).code == "INVALID_ARGUMENT"
        odd_id = rpb.RecommendRequest(bandit=HOME, request_id=odd)
        with suppress(grpc.RpcError):
            RecommenderServiceStub(channel).Recommend(odd_id, timeout=PATIENCE)
    assert not [record for record in service.records if "raw" in record], json.dumps(service.records[-3:])


@contextmanager
def connected(address: str, words: list[bytes]) -> Iterator[list[socket.socket]]:
    host, _, port = address.rpartition(":")
    connections = []
    try:
        for number in range(SILENT):
            connection = socket.create_connection((host, int(port)), timeout=PATIENCE)
            connections.append(connection)
            with suppress(OSError):
                connection.sendall(words[number % len(words)])
        yield connections
    finally:
        for connection in connections:
            connection.close()


HALF_HEAD = b"POST / HTTP/1.1\r\nHost: localhost\r\nX-A: "


def test_half_a_request_is_not_waited_for(service: Service, channel: grpc.Channel) -> None:
    words = [b"", HALF_HEAD]
    with connected(service.http_address, words) as calls, connected(service.console_address, words) as pages:
        assert not recommend(channel).degraded
        until_closed([*calls, *pages])
    assert not recommend(channel).degraded
