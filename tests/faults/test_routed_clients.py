"""Clients over gRPC before a service of several workers: each goes to the owners, also when these die."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import math
import os
import re
import signal
import subprocess
import sys
import threading
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

import grpc
import pytest
from tests.faults.service import held, serving
from tests.long_forms import usual_or_long
from tests.waiting import PATIENCE, until, until_async

from topk_bandit.client import AsyncClient, Client, Item, resends
from topk_bandit.client.routing import WORKER_HEADER, read_worker_header
from topk_bandit.v1 import recommender_service_pb2 as pb
from topk_bandit.v1.recommender_service_pb2_grpc import RecommenderServiceStub

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.faults.service import Service

TENANT = "acme"
WORKERS = usual_or_long(2, long=4)
BANDITS = [f"home-{number}" for number in range(4 * WORKERS)]
CALLERS = 6
FORKS = usual_or_long(10, long=100)

# A shop whose server forks its workers while connections are tried.
FORKING = """
import os, sys, time
from topk_bandit.client import Client

patience = float(sys.argv[3])
client = Client(sys.argv[1], tenant="acme", timeout=patience)
bandits = [f"home-{number}" for number in range(8)]

def ask(count):
    for number in range(count):
        slate = client.recommend(bandits[number % 8], [1.0])
        client.reward(bandits[number % 8], slate.id, 1.0)

def meet():
    end = time.monotonic() + patience
    while client._connections.count < 2:
        assert time.monotonic() < end
        ask(8)

for number in range(int(sys.argv[2])):
    client._connections.close()
    client._connect()
    ask(1 + number % 3)  # another connection is being tried now, more often than not
    child = os.fork()
    if not child:
        meet()
        os._exit(0)
    meet()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
client.close()
"""

# A shop that may start no further thread.
WITHOUT_THREADS = """
import os, resource, sys
from topk_bandit.client import Client

client = Client(sys.argv[1], tenant="acme", timeout=float(sys.argv[2]))
routing = client._connections._routing
routing._no_try_before = float("inf")  # until there can be no further thread
list(client.list_bandits())
if not os.getuid():
    os.setuid(65534)  # root has no such limit
resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))
routing._no_try_before = 0.0
for number in range(24):
    client.recommend(f"home-{number % 8}", [1.0])
assert client._connections.count == 1
client.close()
"""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with serving(tmp_path_factory.mktemp("routed") / "data", f"--workers={WORKERS}") as one:
        with one.client(tenant=TENANT) as client:
            for bandit in BANDITS:
                client.create_bandit(bandit, slate_size=2, item_capacity=9, context_dimension=1)
                client.upsert_items(bandit, ["tea", "milk", "salt", "oats"])
        yield one


def passed_on(service: Service) -> int:
    """Return how many calls went to another worker than the owner, whatever became of them."""
    text = service.page("/metrics")[1]
    found = re.findall(r"^topk_bandit_calls_passed_on_total\{.*\} (\S+)", text, re.MULTILINE)
    return sum(int(float(count)) for count in found)


def pair(client: Client, bandit: str) -> None:
    slate = client.recommend(bandit, [1.0])
    client.reward(bandit, slate.id, 1.0)


def has_all(client: Client | AsyncClient) -> bool:
    return client._connections.count == WORKERS


def meet(client: Client) -> bool:
    """Make calls until each worker has a connection."""
    for bandit in BANDITS:
        pair(client, bandit)
    return has_all(client)


def passes_none_on(service: Service, client: Client) -> bool:
    """Return whether each of some calls went to the owner. A late one, on a slow machine, is sent elsewhere too."""
    before = passed_on(service)
    for bandit in BANDITS * 3:
        pair(client, bandit)
    return passed_on(service) == before


@pytest.mark.parametrize("settings", [{}, {"hedge_after": 9.0}], ids=["plain", "hedging"])
def test_calls_go_to_the_owner_and_none_is_passed_on(service: Service, settings: dict[str, float]) -> None:
    with Client(service.address, tenant=TENANT, timeout=PATIENCE, **settings) as client:
        until(partial(meet, client), what="a connection to each worker")
        until(partial(passes_none_on, service, client), what="none is passed on")


def test_so_do_those_of_an_asynchronous_client(service: Service) -> None:
    async def shop() -> None:
        async with AsyncClient(service.address, tenant=TENANT, timeout=PATIENCE) as client:

            async def ask_all() -> None:
                for bandit in BANDITS:
                    slate = await client.recommend(bandit, [1.0])
                    await client.reward(bandit, slate.id, 1.0)

            async def meets() -> bool:
                await ask_all()
                return has_all(client)

            async def passes_none() -> bool:
                before = passed_on(service)
                await ask_all()
                return passed_on(service) == before

            await until_async(meets, what="a connection to each worker")
            await until_async(passes_none, what="none is passed on")
            assert has_all(client)

    asyncio.run(shop())


def test_answers_and_refusals_tell_who_gave_them(service: Service) -> None:
    with grpc.insecure_channel(service.address) as channel:
        recommend = RecommenderServiceStub(channel).Recommend
        request = pb.RecommendRequest(bandit=f"tenants/{TENANT}/bandits/{BANDITS[0]}", context=[1.0])
        _, call = recommend.with_call(request, timeout=PATIENCE)
        answer = read_worker_header(dict(call.trailing_metadata())[WORKER_HEADER])
        request.context.append(1.0)
        with pytest.raises(grpc.RpcError) as caught:
            recommend(request, timeout=PATIENCE)
        refusal = read_worker_header(dict(caught.value.trailing_metadata())[WORKER_HEADER])
    assert answer is not None
    assert (answer.workers, answer.is_shared) == (WORKERS, False)
    assert answer.owner
    assert refusal == answer


def test_answers_and_refusals_over_http_tell_the_same(service: Service) -> None:
    connection = http.client.HTTPConnection(service.http_address, timeout=PATIENCE)
    with contextlib.closing(connection):
        for context in ([1.0], [1.0, 1.0]):
            body = json.dumps({"bandit": f"tenants/{TENANT}/bandits/{BANDITS[0]}", "context": context})
            # The second one is read by the library.
            kind = "application/json" if len(context) == 1 else "application/json; charset=utf-8"
            connection.request("POST", "/topk_bandit.v1.RecommenderService/Recommend", body, {"Content-Type": kind})
            answer = connection.getresponse()
            answer.read()
            header = read_worker_header(answer.headers["Topk-Bandit-Worker"])
            assert header is not None
            assert header.owner


def test_no_call_fails_when_owners_die_and_come_back(service: Service) -> None:
    ends, done, failed = threading.Event(), Counter[str](), list[BaseException]()

    def call(client: Client, number: int) -> None:
        turn = 0
        while not ends.is_set():
            bandit = BANDITS[(turn + number) % len(BANDITS)]
            turn += 1
            try:
                pair(client, bandit)
            except Exception as error:  # noqa: BLE001 - the test tells all of them
                failed.append(error)
            done[bandit] += 1

    def go_on() -> None:
        wanted = done.total() + 4 * len(BANDITS)
        until(lambda: done.total() > wanted or failed, what="more pairs")

    with service.client(tenant=TENANT) as client:
        until(partial(meet, client), what="a connection to each worker")
        threads = [threading.Thread(target=call, args=(client, number)) for number in range(CALLERS)]
        for one in threads:
            one.start()
        try:
            for victim in service.worker_pids:
                os.kill(victim, signal.SIGKILL)
                go_on()
                until(lambda: len(service.worker_pids) == WORKERS, what="another one in its place")
                # It starts, a bandit moves to it, and a connection has to be at it: no call waits for that.
                until(lambda: has_all(client), what="a connection to it")
                go_on()
        finally:
            ends.set()
            for one in threads:
                one.join()
    assert failed == []


def test_calls_to_an_owner_that_hangs_are_sent_elsewhere(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """All are answered while it hangs; the supervisor, which would replace it, is held too."""
    monkeypatch.setattr(resends, "MOST_RESENDS", math.inf)  # a slow machine spends what there is
    with service.client(tenant=TENANT) as client:
        until(partial(meet, client), what="a connection to each worker")
        meet(client)
        with held(service.pid, service.worker_pids[0]):
            for bandit in BANDITS * 3:
                assert client.recommend(bandit, [1.0]).id


def test_an_owner_that_hung_does_not_undo_what_was_changed_meanwhile(service: Service) -> None:
    with service.client(tenant=TENANT) as client:
        slates = {}
        for bandit in (f"changed-{number}" for number in range(4 * WORKERS)):  # without a refit between the changes
            client.create_bandit(bandit, slate_size=2, item_capacity=9)
            client.upsert_items(bandit, ["tea", "milk", "oats"])
            slates[bandit] = client.recommend(bandit).id
            client.reward(bandit, slates[bandit], 0.5)
        hung, *others = service.worker_pids
        with service.client_at(*others, tenant=TENANT) as other, held(service.pid, hung):
            for bandit, slate in slates.items():
                for value in (0.1, 0.9):
                    other.amend_reward(bandit, slate, value)
                for is_available in (False, True):
                    other.upsert_items(bandit, [Item("oats", available=is_available)])
        service.client_at(hung).close()  # it goes on, and has done what it may do late
        for bandit in slates:
            events = [one.event_json for one in client.export_events(bandit).events]
            values = [json.loads(one)["value"] for one in events if '"reward_amended"' in one]
            assert values == [0.1, 0.9]
            changes = [json.loads(one)["upserted"] for one in events if '"items_changed"' in one]
            assert changes[-2:] == [[["oats", False]], [["oats", True]]]


def test_a_process_may_be_forked_while_connections_are_tried(service: Service, tmp_path: Path) -> None:
    program = tmp_path / "shop.py"
    program.write_text(FORKING)
    command = [sys.executable, str(program), service.address, str(FORKS), str(PATIENCE)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_a_process_without_further_threads_is_answered_all_the_same(service: Service, tmp_path: Path) -> None:
    program = tmp_path / "shop.py"
    program.write_text(WITHOUT_THREADS)
    command = [sys.executable, str(program), service.address, str(PATIENCE)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
