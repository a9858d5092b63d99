"""Pages and batches over two workers, of which each follows some of the bandits, while workers are killed."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Self

import pytest
from tests.faults.service import serving
from tests.faults.test_owners import TENANT, WORKERS, over_http, passed_on
from tests.waiting import until

from topk_bandit.client import PagePlacement, Recommendation, RewardReceipt, SlateRequest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.faults.service import Service

    from topk_bandit.client import Client

BANDITS = [f"place-{number}" for number in range(6)]
ITEMS = [f"i{number}" for number in range(12)]
ASKERS, BATCH = 3, 6


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder: Path = tmp_path_factory.mktemp("pages")
    with serving(folder / "data", f"--workers={WORKERS}") as one:
        with over_http(one) as client:
            for bandit in BANDITS:
                client.create_bandit(bandit, slate_size=3, item_capacity=20, uniform_share=0.5)
                client.upsert_items(bandit, ITEMS)
        yield one


class Askers:
    """Threads that ask for pages and batches, ask again, and reward, until they are told to end."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self.given: dict[str, set[str]] = {bandit: set() for bandit in BANDITS}
        self.rewarded: Counter[str] = Counter()
        self.failed: list[object] = []
        self.rounds = 0
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
        """Return after so many more pages and batches."""
        wanted = self.rounds + rounds
        until(lambda: self.rounds >= wanted or self.failed, what=f"{rounds} more rounds")

    def _ask(self, number: int) -> None:
        turn = 0
        while not self._ends.is_set():
            turn += 1
            try:
                with over_http(self._service) as client:  # a connection of its own, and so any worker
                    self._ask_for_page(client, f"page-{number}-{turn}", BANDITS[turn % 4 :][:3])
                    self._ask_for_batch(client, f"batch-{number}-{turn}", BANDITS[turn % len(BANDITS)])
            except Exception as error:  # noqa: BLE001 - the test shows all of them
                self.failed.append(error)
            with self._lock:
                self.rounds += 1
            time.sleep(0.01)

    def _ask_for_page(self, client: Client, page_id: str, bandits: list[str]) -> None:
        placements = [PagePlacement(bandit=bandit) for bandit in bandits]
        page = client.recommend_page(placements, page_id=page_id)
        slates = self._take_in(dict(zip(bandits, page.slates, strict=True)))
        items = [item for slate in slates for item in slate.items]
        assert len(set(items)) == len(items) == 3 * len(bandits), (page_id, items)
        again = [getattr(one, "items", one) for one in client.recommend_page(placements, page_id=page_id).slates]
        assert again == [slate.items for slate in slates], page_id
        for bandit, receipt in zip(bandits, client.reward_page(page_id, bandits, 1.0), strict=True):
            assert isinstance(receipt, RewardReceipt), receipt
            with self._lock:
                self.rewarded[bandit] += 1

    def _ask_for_batch(self, client: Client, batch_id: str, bandit: str) -> None:
        requests = [SlateRequest(request_id=f"{batch_id}-{place}") for place in range(BATCH)]
        for one in client.recommend_batch(bandit, requests):
            self._take_in({bandit: one})

    def _take_in(self, slates: dict[str, object]) -> list[Recommendation]:
        found = []
        for bandit, slate in slates.items():
            assert isinstance(slate, Recommendation), (bandit, slate)
            assert slate.id, "a slate that was not recorded"
            with self._lock:
                self.given[bandit].add(slate.id)
            found.append(slate)
        return found


def recorded(client: Client, bandit: str) -> Counter[str]:
    """Return how often the log has each recommendation of a bandit."""
    found: Counter[str] = Counter()
    start = 1
    while events := client.export_events(bandit, start=start).events:
        for one in events:
            event = json.loads(one.event_json)
            if event["type"] == "recommended":
                found[event["recommendation"]["recommendation_id"]] += 1
        start = events[-1].position + 1
    return found


def all_serve(service: Service) -> bool:
    return f"\ntopk_bandit_workers_ready {WORKERS:.1f}\n" in service.page("/metrics")[1]


def test_no_item_is_doubled_and_each_slate_recorded_once_when_an_owner_dies(service: Service) -> None:
    with Askers(service) as askers:
        for victim in service.worker_pids:
            askers.go_on(8)
            os.kill(victim, signal.SIGKILL)
            until(lambda gone=victim: gone not in service.worker_pids, what="it is gone")
            askers.go_on(8)
            until(lambda: all_serve(service), what="another one serves in its place")
        askers.go_on(4)
    assert askers.failed == []
    assert passed_on(service)["answered"] > 0
    with service.client(tenant=TENANT) as client:
        for bandit in BANDITS:
            found = recorded(client, bandit)
            assert set(found.values()) <= {1}
            assert set(found) == askers.given[bandit]
            until(
                lambda one=bandit: client.stats(one).observation_count == askers.rewarded[one],
                what=f"{askers.rewarded[bandit]} rewards of {bandit}",
            )
            assert client.verify(bandit).agrees
