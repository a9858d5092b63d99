"""Several workers, of which one follows each bandit: what callers see while it works, dies and hangs."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Self

import pytest
from tests.faults.service import held, serving
from tests.long_forms import usual_or_long
from tests.waiting import PATIENCE, until

from topk_bandit.client import Client

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from tests.faults.service import Service

TENANT = "acme"
WORKERS = usual_or_long(2, long=4)
BANDITS = [f"home-{number}" for number in range(8)]
CALLERS = 4


class Told(NamedTuple):
    """What a caller was told of a pair."""

    bandit: str
    recommendation_id: str


TOLD: list[Told] = []
"""What was told in all tests of the module, which share a service."""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with serving(tmp_path_factory.mktemp("owners") / "data", f"--workers={WORKERS}") as one:
        with over_http(one) as client:
            for bandit in BANDITS:
                client.create_bandit(bandit, slate_size=2, item_capacity=9, context_dimension=2)
                client.upsert_items(bandit, ["tea", "milk", "salt", "oats"])
        yield one


def passed_on(service: Service) -> Counter[str]:
    """Return how many calls were passed on, by what became of them."""
    text = service.page("/metrics")[1]
    found = re.findall(r'^topk_bandit_calls_passed_on_total\{outcome="(\w+)"\} (\S+)', text, re.MULTILINE)
    return Counter({outcome: int(float(count)) for outcome, count in found})


def over_http(service: Service) -> Client:
    return Client(f"http://{service.http_address}", tenant=TENANT, timeout=PATIENCE)


class Callers:
    """Threads that ask for slates and reward them until they are told to end.

    Parameters
    ----------
    opened
        Opens each thread's client, which has a connection of its own, and so any worker.
    """

    def __init__(self, opened: Callable[[], AbstractContextManager[Client]]) -> None:
        self.told: list[Told] = []
        self.failed: list[BaseException] = []
        self._ends = threading.Event()
        self._threads = [threading.Thread(target=self._call, args=(opened, number)) for number in range(CALLERS)]

    def __enter__(self) -> Self:
        for one in self._threads:
            one.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        for one in self._threads:
            one.join()

    def _call(self, opened: Callable[[], AbstractContextManager[Client]], number: int) -> None:
        with opened() as client:
            pair = 0
            while not self._ends.is_set():
                pair += 1
                bandit = BANDITS[(pair + number) % len(BANDITS)]
                try:
                    slate = client.recommend(bandit, [1.0, pair % 3 - 1.0])
                    client.reward(bandit, slate.id, float(pair % 2))
                except Exception as error:  # noqa: BLE001 - the test tells all of them
                    self.failed.append(error)
                else:
                    self.told.append(Told(bandit, slate.id))
                time.sleep(0.01)

    def go_on(self, pairs: int) -> None:
        """Return after so many more pairs."""
        wanted = len(self.told) + pairs
        until(lambda: len(self.told) >= wanted or self.failed, what=f"{pairs} more pairs")


def has_learned(client: Client, bandit: str, rewards: int) -> bool:
    return client.stats(bandit).observation_count == rewards


def is_gone(service: Service, pid: int) -> bool:
    return pid not in service.worker_pids


def assert_learned(service: Service, told: list[Told]) -> None:
    """Each reward that was acknowledged is learned once, by models that are the folds of their logs."""
    assert len({one.recommendation_id for one in told}) == len(told)
    rewarded = Counter(one.bandit for one in told)
    with service.client(tenant=TENANT) as client:
        for bandit in BANDITS:
            until(
                partial(has_learned, client, bandit, rewarded[bandit]), what=f"{rewarded[bandit]} rewards of {bandit}"
            )
            assert client.verify(bandit).agrees


def test_callers_see_one_service(service: Service) -> None:
    with Callers(partial(over_http, service)) as callers:
        callers.go_on(5 * len(BANDITS))
        learned = list(callers.told)
    assert callers.failed == []
    assert passed_on(service)["answered"] > 0
    TOLD.extend(callers.told)
    for _ in range(4):  # over connections of their own, to whichever workers
        with over_http(service) as client:
            until(partial(shows_what_was_learned, client), what="all are shown with what they learned")
            assert client.tenant_stats().model_count >= len(BANDITS)
            slate = client.recommend(BANDITS[0], [1.0, 0.0])
            assert client.explain(BANDITS[0], slate.id).recommendation.id == slate.id
            client.reward(BANDITS[0], slate.id, 1.0)
            TOLD.append(Told(BANDITS[0], slate.id))
    assert learned


def shows_what_was_learned(client: Client) -> bool:
    glances = {one.bandit: one.glance for one in client.list_bandit_overviews()}
    assert set(glances) == set(BANDITS)
    return all(glance is not None and glance.observation_count > 0 for glance in glances.values())


def audited(service: Service, method: str) -> list[str]:
    """Return the request ids of the calls of a method that were audited."""
    return [one["request_id"] for one in service.records if one.get("method", "").endswith(f"/{method}")]


def test_a_call_that_was_passed_on_is_audited_once(service: Service) -> None:
    before = passed_on(service)
    with over_http(service) as client:
        for bandit in BANDITS:
            client.retire_items(bandit, ["oats"])
    until(lambda: len(set(audited(service, "RetireItems"))) == len(BANDITS), what="all are audited")
    passed = passed_on(service) - before
    assert passed.total() > 0
    # An owner that stood still for long does it too, after the worker that gave it up.
    assert len(audited(service, "RetireItems")) <= len(BANDITS) + passed["away"]


def test_no_call_fails_when_an_owner_dies(service: Service) -> None:
    with Callers(partial(over_http, service)) as callers:
        for victim in service.worker_pids:
            callers.go_on(2 * len(BANDITS))
            os.kill(victim, signal.SIGKILL)
            until(partial(is_gone, service, victim), what="it is gone")
            callers.go_on(2 * len(BANDITS))
            until(lambda: len(service.worker_pids) == WORKERS, what="another one in its place")
    assert callers.failed == []
    TOLD.extend(callers.told)
    assert_learned(service, TOLD)


@pytest.mark.long_form
def test_calls_to_an_owner_that_hangs_are_answered_while_it_hangs(service: Service) -> None:
    # One that still starts may be silent for longer.
    until(lambda: f"\ntopk_bandit_workers_ready {WORKERS:.1f}\n" in service.page("/metrics")[1], what="all serve")
    hung, *others = service.worker_pids
    with Callers(partial(service.client_at, *others, tenant=TENANT)) as callers:
        callers.go_on(2 * len(BANDITS))
        with held(service.pid):  # which would replace it
            os.kill(hung, signal.SIGSTOP)
            callers.go_on(5 * len(BANDITS))
        until(partial(is_gone, service, hung), what="it is replaced")
        answered = passed_on(service)["answered"]
        until(lambda: passed_on(service)["answered"] > answered, what="its place asks and answers again")
    assert callers.failed == []
    TOLD.extend(callers.told)
    assert_learned(service, TOLD)
