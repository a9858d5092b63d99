"""Real faults before a real Prometheus: the alert that is for a fault fires in its time, and none without a fault.

The long form waits for as long as the rules say that a condition must hold, the usual one for two seconds.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from tests.faults.alarms import OF_SPEED, SHORT_HOLD, Fault, name_of, see_alerts
from tests.faults.load import shopping
from tests.faults.service import serving
from tests.faults.test_damaged_event import flip, skip, trade
from tests.long_forms import usual_or_long
from tests.servers import free_port, running_server, valkey_binary
from tests.test_watching import watching
from tests.waiting import until

from topk_bandit.domain.bandits import BanditName
from topk_bandit.store.redis.keys import KeySpace

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.faults.service import Service
    from tests.servers import RunningServer
    from tests.test_watching import Prometheus

HOLD = usual_or_long(SHORT_HOLD, long="")
HEALTHY_SECONDS = usual_or_long(20.0, long=600.0)
LOST = KeySpace("topk-bandit").bandit(BanditName("acme", "lost"))


@dataclass(frozen=True)
class Watched:
    """A service that a shop calls all the time, its store, and who watches it."""

    service: Service
    server: RunningServer
    prometheus: Prometheus


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    address, target = (f"127.0.0.1:{free_port()}" for _ in range(2))
    with running_server(valkey_binary(), config=["appendfsync always"]) as server:
        flags = (f"--redis-url={server.url}", f"--listen={address}", f"--metrics-listen={target}", "--workers=1")
        flags += ("--store-timeout-seconds=1",)
        with serving(tmp_path_factory.mktemp("unused"), *flags, excused="can't be") as service:
            with service.client() as client:
                client.create_bandit("home", slate_size=2, item_capacity=6, context_dimension=1)
                client.upsert_items("home", [f"i{number}" for number in range(6)])
            with service.client(tenant="acme") as client:
                for bandit in ("home", "lost"):
                    client.create_bandit(bandit, slate_size=2, item_capacity=9)
                client.upsert_items("home", [f"i{number}" for number in range(6)])
                trade(client, 12)
            with (
                shopping(address, "home", threads=1) as customers,
                watching(tmp_path_factory.mktemp("prometheus"), target, hold=HOLD) as prometheus,
            ):
                yield Watched(service, server, prometheus)
            assert customers.surprises == []


@pytest.mark.long_form
@pytest.mark.timeout(3600)
def test_no_alert_fires_while_all_is_well(watched: Watched) -> None:
    """It is the first: what a fault leaves behind, rates of an hour tell long after it."""
    end = time.monotonic() + HEALTHY_SECONDS
    while time.monotonic() < end:
        assert watched.prometheus.firing() <= OF_SPEED
        time.sleep(1.0)


@contextlib.contextmanager
def paused(watched: Watched) -> Iterator[None]:
    watched.server.send_signal(signal.SIGSTOP)
    yield
    watched.server.send_signal(signal.SIGCONT)


@contextlib.contextmanager
def unsafe(watched: Watched) -> Iterator[None]:
    with watched.server.client() as client:
        client.config_set("appendonly", "no")
        yield
        client.config_set("appendonly", "yes")


@contextlib.contextmanager
def almost_full(watched: Watched) -> Iterator[None]:
    with watched.server.client() as client:
        client.config_set("maxmemory", int(1.15 * client.info("memory")["used_memory"]))
        yield
        client.config_set("maxmemory", 0)


@contextlib.contextmanager
def emptied(watched: Watched) -> Iterator[None]:
    with watched.server.client() as client:
        client.swapdb(0, 1)
        yield
        client.swapdb(0, 1)


@contextlib.contextmanager
def damaged(watched: Watched) -> Iterator[None]:
    """A bandit has lost its record, and bits of an event of another flipped, while the service was away."""
    service = watched.service
    service.kill_everything()
    flip(watched.server, 20)
    with watched.server.client() as keys:
        keys.delete(LOST.meta)
    service.start()
    with service.client(tenant="acme") as client:
        client.recommend("home")
        yield
        status, said = skip(service, "20", "--reason=a bit flipped", "--yes")
        assert status == 0, said
        client.delete_bandit("lost")


@contextlib.contextmanager
def dying(watched: Watched) -> Iterator[None]:
    for _ in range(4):
        before = watched.service.worker_pids
        os.kill(before[0], signal.SIGKILL)
        until(lambda before=before: watched.service.worker_pids not in ([], before), what="a new worker")
        until(lambda: watched.service.page("/readyz")[0] == 200, what="it is ready")
    yield


@contextlib.contextmanager
def gone(watched: Watched) -> Iterator[None]:
    watched.service.kill_everything()
    yield
    watched.service.start()


FAULTS = [
    # The first: a store that fills up on a busy machine fails calls, too, and rates tell of that long after.
    Fault(paused, {"StoreAway", "Degraded", "StoreFailing"}, {"StoreAway"}),
    Fault(unsafe, {"StoreUnsafe"}, {"StoreUnsafe"}),
    Fault(emptied, {"StoreReplaced"}, {"StoreReplaced"}),
    Fault(almost_full, {"StoreFull"}, {"StoreFull"}),
    Fault(damaged, {"Damaged", "FoldsFail"}, {"Damaged"}),
    Fault(dying, {"Restarts"}),
    Fault(gone, {"Down"}, {"Down"}),
]


@pytest.mark.long_form
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("fault", FAULTS, ids=name_of)
def test_a_fault_has_its_alerts_fire(watched: Watched, fault: Fault) -> None:
    see_alerts(watched, watched.prometheus, fault)
