"""Clients and outboxes of a process that is forked, as servers do that load the application before their workers."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from pathlib import Path

    from tests.rpc.harness import RunningServer

# What all programs begin with: a child's errors are its own, and one that hangs ends.
COMMON = """
import asyncio, faulthandler, json, os, sys, threading, time, traceback
from topk_bandit.client import AsyncClient, AsyncOutbox, Client, Outbox

target, folder, options = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
items = [f"item-{number}" for number in range(40)]

def fork(work, *arguments):
    child = os.fork()
    if child:
        return child
    faulthandler.dump_traceback_later(200, exit=True)
    try:
        work(*arguments)
        sys.stdout.flush()
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)

def wait(*children):
    ended = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    assert not any(ended), ended
"""

SLATES = """
def ask(own, count):
    for _ in range(count):
        slate = client.recommend("home", candidates=own, fallback=own[:2], timeout=100.0)
        assert slate.source.value == "service", client.fallbacks
        assert set(slate.items) <= set(own), (slate, own)

client = Client(target, tenant="acme", **options)
ask(items, 3)
wait(*(fork(ask, items[10 * number : 10 * number + 10], 15) for number in range(4)))
ask(items, 3)
client.close()
"""

WHILE_OTHERS_CALL = """
client = Client(target, tenant="acme", **options)
ended, calls = threading.Event(), []

def go_on():
    while not ended.is_set():
        calls.append(client.recommend("home", candidates=items[:10], fallback=items[:2], timeout=100.0).source.value)

def ask():
    for _ in range(5):
        slate = client.recommend("home", candidates=items[20:30], fallback=items[20:22], timeout=100.0)
        assert slate.source.value == "service", client.fallbacks
        assert set(slate.items) <= set(items[20:30]), slate

ask()  # what is imported at the first call is imported: no fork may come in between
threads = [threading.Thread(target=go_on, daemon=True) for _ in range(2)]
for thread in threads:
    thread.start()
for _ in range(10):
    wait(fork(ask))
ended.set()
for thread in threads:
    thread.join()
assert set(calls) == {"service"}, client.fallbacks
client.close()
"""

CLOSED = """
from topk_bandit.client import ClientError
client = Client(target, tenant="acme", **options)
client.recommend("home", candidates=items, timeout=100.0)
client.close()

def ask():
    try:
        client.recommend("home", candidates=items)
    except (ClientError, ValueError):
        return
    raise AssertionError("a client that was closed answers")

wait(fork(ask))
"""

REWARDS = """
client = Client(target, tenant="acme", **options)
outbox = Outbox(f"{folder}/outbox.db", client)
ended, ids = threading.Event(), []

def write(prefix, count):
    for number in range(count):
        assert outbox.reward("home", f"{prefix}-{number}", 1.0)

def go_on():
    while not ended.is_set():
        assert outbox.reward("home", f"parent-{len(ids)}", 1.0)
        ids.append(len(ids))
        time.sleep(0.005)  # SQLite gives nobody a turn who waits for one that writes all the time

def work(number):
    write(f"child-{number}", 10)
    if number % 2:
        outbox.close()

thread = threading.Thread(target=go_on, daemon=True)
thread.start()
for number in range(10):
    wait(fork(work, number))
ended.set()
thread.join()
print(len(ids) + 10 * 10)
assert outbox.status().pending == len(ids) + 10 * 10
outbox.close()
"""

DELIVERED = """
client = Client(target, tenant="acme", **options)
outbox = Outbox(f"{folder}/outbox.db", client)
slates = [client.recommend("home", candidates=items, timeout=100.0).id for _ in range(30)]
for slate in slates[:10]:
    assert outbox.reward("home", slate, 1.0)

def work(own):
    for slate in own:
        assert outbox.reward("home", slate, 1.0)
    assert outbox.flush(100.0) == 0
    status = outbox.status()
    assert status.delivered <= 30 and not status.refused, status
    outbox.close()
    client.close()

children = [fork(work, slates[10:20]), fork(work, slates[20:])]
assert outbox.flush(100.0) == 0
wait(*children)
outbox.close()
client.close()
"""

PARENT_ENDS_FIRST = """
client = Client(target, tenant="acme", **options)
outbox = Outbox(f"{folder}/outbox.db", client)
outbox.reward("home", "parent", 1.0)
reading, writing = os.pipe()

def work():
    outbox.reward("home", "before", 1.0)
    os.read(reading, 1)
    for number in range(20):
        outbox.reward("home", f"after-{number}", 1.0)

child = fork(work)
time.sleep(0.5)
outbox.close()
os.write(writing, b"x")
wait(child)
"""

DELETED = """
from topk_bandit.client import Unavailable
client = Client(target, tenant="acme", **options)
outbox = Outbox(f"{folder}/outbox.db", client)
outbox.reward("home", "kept", 1.0)
for name in os.listdir(folder):
    os.unlink(f"{folder}/{name}")

def work():
    try:
        outbox.reward("home", "lost", 1.0)
    except Unavailable as error:
        assert "make the outbox anew" in str(error), error
        return
    raise AssertionError("nothing was reported")

wait(fork(work))
work()
assert outbox.status().pending == 1
"""

OUTBOX_CLOSED = """
from topk_bandit.client import Unavailable
client = Client(target, tenant="acme", **options)
outbox = Outbox(f"{folder}/outbox.db", client)
outbox.close()

def work():
    for use in (lambda: outbox.reward("home", "r", 1.0), lambda: outbox.flush(0.1)):
        try:
            use()
        except Unavailable as error:
            assert "closed" in str(error), error
        else:
            raise AssertionError("an outbox that was closed takes a reward")
    assert threading.active_count() == 1

work()
wait(fork(work))
"""

ASYNCHRONOUS = """
async def main():
    client = AsyncClient(target, tenant="acme", **options)
    outbox = AsyncOutbox(f"{folder}/outbox.db", client)
    await outbox.reward("home", "parent", 1.0)

    def work():
        try:
            outbox._sender.status()
        except RuntimeError as error:
            assert "fork" in str(error), error
        else:
            raise AssertionError("it was taken over")
        outbox._sender.close()  # as leaving its `async with` does

    def work_and_fork():
        child = os.fork()
        if child:
            wait(child)
        work()

    wait(fork(work_and_fork))
    assert (await outbox.status()).pending == 1
    await outbox.reward("home", "parent", 2.0)
    await outbox.close()
    await client.close()

asyncio.run(main())
"""

HELD = """
client = Client(target, tenant="acme", **options)
client.recommend("home", candidates=items, fallback=items[:2], timeout=100.0)
held, ended = threading.Event(), threading.Event()

def hold():
    with client._fallbacks._lock, client._fallbacks._breaker._lock, client._late._lock:
        held.set()
        ended.wait()

thread = threading.Thread(target=hold, daemon=True)
thread.start()
held.wait()

def work():
    assert client.recommend("home", candidates=items, fallback=items[:2], timeout=100.0).source.value == "service"
    assert client.slates and not client.fallbacks

wait(fork(work))
ended.set()
thread.join()
client.close()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "outbox"
    made.mkdir()
    return made


def run(program: str, target: str, folder: Path, **options: object) -> str:
    arguments = [target, str(folder), json.dumps(options)]
    command = [sys.executable, "-c", COMMON + program, *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def waiting(folder: Path) -> list[str]:
    with closing(sqlite3.connect(folder / "outbox.db")) as file:
        assert file.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        return [slate for (slate,) in file.execute("SELECT recommendation_id FROM calls ORDER BY number")]


@pytest.mark.parametrize(("way", "options"), [("grpc", {"hedge_after": 0.01}), ("http", {})], ids=["hedged", "plain"])
def test_forked_processes_get_slates_of_their_own(
    shop: RunningServer, target: str, folder: Path, options: dict[str, float]
) -> None:
    assert shop
    run(SLATES, target, folder, **options)


def test_over_http_other_threads_may_be_calling_meanwhile(shop: RunningServer, folder: Path) -> None:
    run(WHILE_OTHERS_CALL, shop.open_http(), folder, hedge_after=0.01)


@pytest.mark.parametrize(
    ("program", "way"),
    [(CLOSED, "grpc"), (CLOSED, "http"), (HELD, "grpc")],
    ids=["closed, grpc", "closed, http", "locks held"],
)
def test_a_client_is_what_it_was_but_for_its_connections(
    shop: RunningServer, target: str, folder: Path, program: str
) -> None:
    assert shop
    run(program, target, folder)


def test_no_reward_is_lost_while_processes_are_forked(folder: Path) -> None:
    written = int(run(REWARDS, "http://127.0.0.1:1", folder, timeout=0.2))
    slates = waiting(folder)
    assert len(slates) == len(set(slates)) == written > 100


def test_what_a_process_wrote_stays_when_its_parent_lets_go_of_the_file(folder: Path) -> None:
    run(PARENT_ENDS_FIRST, "http://127.0.0.1:1", folder, timeout=0.2)
    assert sorted(waiting(folder)) == sorted(["parent", "before", *(f"after-{number}" for number in range(20))])


def test_forked_processes_deliver_what_they_write(shop: RunningServer, target: str, folder: Path) -> None:
    run(DELIVERED, target, folder)
    assert waiting(folder) == []
    assert sum(len(loop.rewards) for loop in shop.shop.loops.values()) == 30


def test_a_file_that_was_deleted_is_reported_and_what_was_in_it_kept(folder: Path) -> None:
    run(DELETED, "http://127.0.0.1:1", folder)


def test_an_outbox_that_was_closed_stays_closed(folder: Path) -> None:
    run(OUTBOX_CLOSED, "http://127.0.0.1:1", folder)


def test_an_asynchronous_outbox_stays_with_its_event_loop(folder: Path) -> None:
    run(ASYNCHRONOUS, "http://127.0.0.1:1", folder, timeout=0.2)
