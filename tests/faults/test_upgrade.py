"""An upgrade and its rollback: this program, the one after it (`next_program`), and both at once on one store."""

from __future__ import annotations

import json
import os
import platform
import signal
import subprocess
import sys
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.faults.service import clean_environment, serving
from tests.long_forms import LONG, usual_or_long
from tests.operations_page import check_shown
from tests.servers import running_server, valkey_binary
from tests.waiting import until

from topk_bandit.store.data_versions import NEWEST

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.faults.service import Service
    from tests.servers import RunningServer

    from topk_bandit.client import Client

NEXT = (sys.executable, str(Path(__file__).with_name("next_program.py")))
ROUNDS = usual_or_long(900, long=5000)
FEW = 60
AFTERWARDS = usual_or_long(FEW, long=1000)
PROGRAMS = "topk-bandit:programs"
BANDITS = ("home", "cart")
TOO_OLD = f"topk-bandit: the store's data version is {NEWEST + 1}, and this program knows up to {NEWEST}"
KEYS = "topk-bandit:{shop/home}:"


class Shop:
    """Asks one service or several by turns: one for a slate, and the next one takes its reward. No call may fail."""

    def __init__(self, clients: Sequence[Client]) -> None:
        self.clients = clients
        self.rounds = 0

    def create(self) -> None:
        for bandit in BANDITS:
            self.clients[0].create_bandit(bandit, slate_size=2, item_capacity=4)
            self.clients[0].upsert_items(bandit, ["tea", "coffee", "cocoa", "milk"])

    def trade(self, rounds: int) -> None:
        for _ in range(rounds):
            self.rounds += 1
            bandit = BANDITS[self.rounds % 10 == 0]
            asked, told = (self.clients[(self.rounds + turn) % len(self.clients)] for turn in (0, 1))
            slate = asked.recommend(bandit)
            assert slate.id
            told.reward(bandit, slate.id, float("tea" in slate.items) + self.rounds % 7 / 10.0)

    def agree(self) -> None:
        """Hold all models of a bandit to each other, and to its log: to the bit, by their digests."""
        for bandit in BANDITS:
            end = self.clients[0].stats(bandit).log_position
            for client in self.clients:
                client.recommend(bandit, min_model_version=end)
            until(lambda bandit=bandit: len(self._models(bandit)) == 1, what=f"{bandit} is one model")  # type: ignore[misc]
            for client in self.clients:
                assert client.verify(bandit).agrees
            assert self.clients[0].stats(bandit).observation_count > 0

    def _models(self, bandit: str) -> set[tuple[int, str, str]]:
        told = [client.stats(bandit) for client in self.clients]
        return {(one.model_version, one.log_digest, one.posterior_digest) for one in told}


@contextmanager
def shop_of(*services: Service) -> Iterator[Shop]:
    with ExitStack() as stack:
        yield Shop([stack.enter_context(closing(one.client())) for one in services])


def written_versions(server: RunningServer) -> set[int]:
    """Return the data versions of all that the store has of the busier bandit: events, settings and snapshots."""
    with server.client() as store:
        events = [json.loads(entry[b"event"])["v"] for _, entry in store.xrange(f"{KEYS}log")]
        frames = [frame for slot in (0, 1) if (frame := store.get(f"{KEYS}snapshot{slot}"))]
        assert len(frames) == 2
        return {*events, json.loads(store.hget(f"{KEYS}meta", "settings"))["v"], *map(framed_version, frames)}


def framed_version(frame: bytes) -> int:
    return int.from_bytes(frame[4:6], "big")


def finalized(server: RunningServer, *command: str) -> tuple[int, str]:
    """Run the command that ends the time of rollbacks; return its status and what it says, which the page shows so."""
    status, told = run(server, *command, "finalize-upgrade")
    check_shown("finalize-upgrade ", told.replace(f"on {platform.node()}/", "on shop-1/"))
    return status, told


def run(server: RunningServer, *command: str) -> tuple[int, str]:
    done = subprocess.run(
        [*command, f"--redis-url={server.url}"],
        capture_output=True,
        text=True,
        env=clean_environment(),
        check=False,
    )
    return done.returncode, (done.stdout + done.stderr).strip()


def said(service: Service, part: str) -> bool:
    return any(part in record.get("message", record.get("raw", "")) for record in service.records)


def warnings(service: Service) -> list[str]:
    return [record["message"] for record in service.records if record.get("level") == "WARNING"]


def no_call_failed(service: Service) -> bool:
    """Return whether the service met nothing that was its own fault."""
    return not said(service, "failed, reference") and not said(service, "passed over")


@pytest.mark.long_form
def test_the_version_before_takes_over_until_the_upgrade_is_finalized(tmp_path: Path) -> None:
    with running_server(valkey_binary()) as server, ExitStack() as stack:
        url = f"--redis-url={server.url}"
        old = stack.enter_context(serving(tmp_path, url))
        later = stack.enter_context(serving(tmp_path, url, start=False, command=NEXT))
        with shop_of(old) as shop:
            later.spawn()
            shop.create()
            shop.trade(FEW)
        later.start_spawned()
        check_shown("serve --redis-url", f"... WARNING {warnings(later)[0]}")
        if LONG:
            check_shown("doctor --redis-url", *run(server, *NEXT, "doctor")[1].splitlines())

        upgrade(server, old, later)
        roll_back(server, old, later)
        refuse_to_finalize(server, old)
        finalize_while_it_hangs(server, old)
        assert old.wait() == 1
        assert old.records[-1]["raw"].startswith(TOO_OLD)
        go_on_finalized(server, old, later)
        assert no_call_failed(old)
        assert no_call_failed(later)


def upgrade(server: RunningServer, old: Service, later: Service) -> None:
    """Serve with the next version alone, until nothing is left in the log of what this one wrote."""
    old.running.terminate()
    assert old.wait() == 0
    with shop_of(later) as shop:
        shop.trade(ROUNDS)
        shop.agree()
    with server.client() as store:
        assert int(store.hget(f"{KEYS}meta", "first_position")) > 2 * FEW
    assert written_versions(server) == {NEWEST}


def roll_back(server: RunningServer, old: Service, later: Service) -> None:
    """Take up with this version what the next one left, and serve with both."""
    old.start()
    with shop_of(old, later) as shop:
        shop.agree()
        shop.trade(FEW)
        shop.agree()
    assert written_versions(server) == {NEWEST}


def refuse_to_finalize(server: RunningServer, old: Service) -> None:
    status, told = finalized(server, *NEXT)
    assert status == 1
    assert "workers of the version before run" in told
    assert f"/{old.worker_pids[0]}" in told


def finalize_while_it_hangs(server: RunningServer, service: Service) -> None:
    """Finalize the next version's upgrade while a worker of this one runs that was silent for long, and wake it."""
    worker = service.worker_pids[0]
    os.kill(service.pid, signal.SIGSTOP)
    os.kill(worker, signal.SIGSTOP)
    with server.client() as store:
        for noted, told in store.hgetall(PROGRAMS).items():
            if told.partition(b" on store ")[0].endswith(f"/{worker}".encode()):  # its first note names no store
                version, _, about = told.split(b" ", 2)
                store.hset(PROGRAMS, noted, b"%b 0 %b" % (version, about))
    status, told_by = finalized(server, *NEXT)
    assert (status, told_by.partition(":")[0]) == (0, f"data version {NEWEST + 1} is in force")
    status, told_by = finalized(server, *NEXT)
    assert (status, told_by) == (0, f"data version {NEWEST + 1} is in force: nothing to finalize")
    os.kill(worker, signal.SIGCONT)
    os.kill(service.pid, signal.SIGCONT)


def go_on_finalized(server: RunningServer, old: Service, later: Service) -> None:
    """Serve with the next version, with all that was learned, and not with this one."""
    until(lambda: said(later, f"finalized: data version {NEWEST + 1} is written"), what="the next one knows")
    old.spawn()
    with shop_of(later) as shop:
        shop.trade(AFTERWARDS)
        shop.agree()
    assert NEWEST + 1 in written_versions(server)
    assert old.wait() == 1
    assert old.records[-1]["raw"].startswith(TOO_OLD)
    check_shown("serve --redis-url", old.records[-1]["raw"])
