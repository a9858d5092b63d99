"""A service with too little memory for its bandits, before a real Prometheus."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from tests.faults.alarms import SHORT_HOLD, Fault, long_only, name_of, see_alerts
from tests.faults.conftest import short_folder
from tests.faults.service import serving
from tests.servers import free_port
from tests.test_watching import watching

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.faults.service import Service
    from tests.test_watching import Prometheus

    from topk_bandit.client import Client

pytestmark = long_only("it loads models for half a minute: make faults does")

MANY_ITEMS = 20_000
CROWD = ("one", "two", "three")


@dataclass(frozen=True)
class Tight:
    """A service whose worker may take as little for all models as for one, and who watches it."""

    service: Service
    prometheus: Prometheus


@pytest.fixture(scope="module")
def tight(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tight]:
    target = f"127.0.0.1:{free_port()}"
    flags = ("--bandit-memory-mib=8", "--worker-memory-mib=8", f"--metrics-listen={target}")
    with (
        short_folder() as folder,
        serving(folder, *flags) as service,
        watching(tmp_path_factory.mktemp("prometheus"), target, hold=SHORT_HOLD) as prometheus,
    ):
        yield Tight(service, prometheus)


def stock(client: Client, bandit: str, items: int) -> None:
    """Create a bandit with the longest ids that there can be, half a kilobyte of memory each."""
    client.create_bandit(bandit, slate_size=2, item_capacity=items)
    for start in range(0, items, 1000):
        client.upsert_items(
            bandit, [f"{number:06}".ljust(128, "\N{PARTY POPPER}") for number in range(start, start + 1000)]
        )
    client.recommend(bandit)


@contextlib.contextmanager
def crowded_models(tight: Tight) -> Iterator[None]:
    """Bandits are used by turns that fit into memory alone, and not together."""
    with tight.service.client() as client:
        for bandit in CROWD:
            stock(client, bandit, 7000)
        for _ in range(120):
            for bandit in CROWD:
                client.recommend(bandit)
        yield


@contextlib.contextmanager
def long_ids(tight: Tight) -> Iterator[None]:
    with tight.service.client() as client:
        stock(client, "catalogue", MANY_ITEMS)
        yield
        client.delete_bandit("catalogue")


FAULTS = [
    Fault(crowded_models, {"ModelsCrowded"}),
    Fault(long_ids, {"ModelFull"}, {"ModelFull"}),
]


@pytest.mark.parametrize("fault", FAULTS, ids=name_of)
def test_a_fault_has_its_alerts_fire(tight: Tight, fault: Fault) -> None:
    see_alerts(tight, tight.prometheus, fault)
