"""How often visitors see items, over two workers of which each is killed; and no file has the visitors' names."""

from __future__ import annotations

import os
import signal
import threading
from typing import TYPE_CHECKING, Self

import pytest
from tests.faults.service import serving
from tests.faults.test_owners import TENANT, WORKERS, over_http
from tests.waiting import until

from topk_bandit.client import FailedPrecondition, Frequency, PagePlacement

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.faults.service import Service

    from topk_bandit.client import Client

pytestmark = pytest.mark.slow

BANDIT, OTHER = "feed", "beside"
ASKERS, VISITORS, SIZE, N_ITEMS = 3, 4, 3, 90
SECRET = "ann.smith-of-baker-street"


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with serving(tmp_path / "data", f"--workers={WORKERS}") as one:
        with over_http(one) as client:
            for bandit in (BANDIT, OTHER):
                rules = [Frequency(1, 3600)] if bandit == BANDIT else []
                client.create_bandit(bandit, slate_size=SIZE, item_capacity=100, uniform_share=0.5, rules=rules)
                client.upsert_items(bandit, [f"i{number}" for number in range(N_ITEMS)])
        yield one


class Askers:
    """Threads that ask for slates of the same visitors, alone and on pages, and ask again."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self.seen: dict[str, dict[str, tuple[str, ...]]] = {}
        self.failed: list[object] = []
        self.used_up = self.rounds = 0
        self._lock, self._ends = threading.Lock(), threading.Event()
        self._threads = [threading.Thread(target=self._ask, args=(number,)) for number in range(ASKERS)]

    def __enter__(self) -> Self:
        for one in self._threads:
            one.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        for one in self._threads:
            one.join()

    def go_on(self, rounds: int) -> None:
        wanted = self.rounds + rounds
        until(lambda: self.rounds >= wanted or self.failed, what=f"{rounds} more rounds")

    def _ask(self, number: int) -> None:
        turn = 0
        while not self._ends.is_set():
            turn += 1
            try:
                with over_http(self._service) as client:  # a connection of its own, and so any worker
                    self._ask_for(client, f"{SECRET}-{turn // 6 % VISITORS}", f"{number}-{turn}", paged=turn % 3 == 0)
            except Exception as error:  # noqa: BLE001 - the test shows all of them
                self.failed.append(error)
            with self._lock:
                self.rounds += 1

    def _ask_for(self, client: Client, visitor: str, name: str, *, paged: bool) -> None:
        given = []
        for _ in range(2):
            if paged:
                placements = [PagePlacement(bandit=OTHER), PagePlacement(bandit=BANDIT)]
                slate = client.recommend_page(placements, page_id=name, frequency_key=visitor).slates[1]
            else:
                try:
                    slate = client.recommend(BANDIT, request_id=name, frequency_key=visitor)
                except FailedPrecondition as error:
                    slate = error
            if isinstance(slate, FailedPrecondition):
                assert slate.reason == "RULES_CLASH", slate
                self.used_up += 1
                return
            assert not isinstance(slate, Exception), slate
            assert slate.id
            assert not slate.degraded
            given.append(slate)
        assert given[0].items == given[1].items
        with self._lock:
            self.seen.setdefault(visitor, {})[given[0].id] = tuple(given[0].items)


def test_no_visitor_sees_an_item_twice_when_workers_die_and_no_file_has_their_name(
    service: Service, tmp_path: Path
) -> None:
    with Askers(service) as askers:
        for victim in service.worker_pids:
            askers.go_on(15)
            os.kill(victim, signal.SIGKILL)
            until(lambda gone=victim: gone not in service.worker_pids, what="it is gone")
            askers.go_on(15)
    assert askers.failed == []
    assert len(askers.seen) == VISITORS
    for slates in askers.seen.values():
        items = [item for slate in slates.values() for item in slate]
        assert len(items) == len(set(items)) <= N_ITEMS
    with service.client(tenant=TENANT) as client:
        assert client.verify(BANDIT).agrees
    written = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert b"i77" in written  # what is looked for would be found
    for where in (written, service.log.encode(), service.page("/metrics")[1].encode()):
        assert SECRET.encode() not in where
