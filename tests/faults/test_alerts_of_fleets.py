"""Services that share a store and should not be as unlike as they are, before a real Prometheus."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.faults.alarms import SHORT_HOLD, Fault, long_only, name_of, see_alerts
from tests.faults.service import held, serving
from tests.faults.test_upgrade import NEXT, finalized
from tests.servers import free_port, running_server, valkey_binary
from tests.test_watching import watching
from tests.waiting import until

from topk_bandit.domain.bandits import BanditName
from topk_bandit.store.redis.keys import KeySpace

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.faults.service import Service
    from tests.servers import RunningServer
    from tests.test_watching import Prometheus

pytestmark = long_only("it trades for a minute: make faults does")

ROUNDS = 700
DIMENSION = 4
MEMORY_MIB = 8
SEEN_SECONDS = 5.0
CART = KeySpace("topk-bandit").bandit(BanditName("shop", "cart"))


@dataclass(frozen=True)
class Fleet:
    """A service that others may join on its store, who watches it and one of these, and the flags of that one."""

    service: Service
    server: RunningServer
    prometheus: Prometheus
    folder: Path
    joining: tuple[str, ...]


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    targets = [f"127.0.0.1:{free_port()}" for _ in range(2)]
    folder, watcher = tmp_path_factory.mktemp("unused"), tmp_path_factory.mktemp("prometheus")
    with running_server(valkey_binary()) as server:
        mine, joining = ((f"--redis-url={server.url}", f"--metrics-listen={target}") for target in targets)
        with (
            serving(folder, *mine, f"--bandit-memory-mib={MEMORY_MIB}") as service,
            watching(watcher, '", "'.join(targets), hold=SHORT_HOLD) as prometheus,
        ):
            yield Fleet(service, server, prometheus, folder, joining)


@contextlib.contextmanager
def joined(fleet: Fleet, *, memory_mib: int) -> Iterator[Service]:
    """Run another service on the store for a block, and stop it, so that no upgrade waits for it."""
    with serving(fleet.folder, *fleet.joining, f"--bandit-memory-mib={memory_mib}") as other:
        yield other
        other.running.terminate()
        assert other.wait() == 0


@contextlib.contextmanager
def unlike_memory(fleet: Fleet) -> Iterator[None]:
    """Two services have unlike --bandit-memory-mib, so that one projects rows that the other one keeps."""
    rng = np.random.default_rng(1)
    with (
        joined(fleet, memory_mib=2 * MEMORY_MIB) as other,
        fleet.service.client() as here,
        other.client() as there,
    ):
        here.create_bandit("home", slate_size=3, item_capacity=12, context_dimension=DIMENSION)
        here.upsert_items("home", [f"i{number}" for number in range(12)])
        for _ in range(ROUNDS):
            context = rng.normal(size=DIMENSION).tolist()
            # Four events for each reward: then a snapshot is due wherever one can be taken.
            slates = [client.recommend("home", context) for client in (here, there, there)]
            here.reward("home", slates[0].id, float(rng.normal()))
        yield


@contextlib.contextmanager
def waiting_upgrade(fleet: Fleet) -> Iterator[None]:
    """A service of the next version joins, and the upgrade is not finalized for longer than that may take."""
    with serving(fleet.folder, *fleet.joining, command=NEXT):
        yield
        fleet.service.running.terminate()
        assert fleet.service.wait() == 0
        status, told = finalized(fleet.server, *NEXT)
        assert status == 0, told
        until(lambda: "TopkBanditUpgradeUnfinalized" not in fleet.prometheus.firing(), what="it ends")


def test_a_worker_that_was_held_up_tells_of_no_loss(fleet: Fleet) -> None:
    """While it stood still another one folded, saved and trimmed the log that it goes on with."""
    with (
        joined(fleet, memory_mib=MEMORY_MIB) as other,
        fleet.service.client() as here,
        other.client() as there,
    ):
        here.create_bandit("cart", slate_size=2, item_capacity=4)
        here.upsert_items("cart", ["tea", "coffee", "cocoa", "milk"])
        there.recommend("cart")
        with held(other.pid, *other.worker_pids):  # the supervisor would replace it
            for _ in range(ROUNDS):
                here.reward("cart", here.recommend("cart").id, 1.0)
        there.recommend("cart", min_model_version=here.stats("cart").log_position)
        with fleet.server.client() as keys:
            assert int(keys.hget(CART.meta, "first_position")) > ROUNDS // 2
        time.sleep(SEEN_SECONDS)
        assert not {"TopkBanditLogReplaced", "TopkBanditEventsLost"} & fleet.prometheus.firing()


FAULTS = [
    Fault(unlike_memory, {"ModelsDiverge"}),
    Fault(waiting_upgrade, {"UpgradeUnfinalized"}, {"UpgradeUnfinalized"}),
]


@pytest.mark.parametrize("fault", FAULTS, ids=name_of)
def test_a_fault_has_its_alerts_fire(fleet: Fleet, fault: Fault) -> None:
    see_alerts(fleet, fleet.prometheus, fault)
