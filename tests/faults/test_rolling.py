"""Two services on one store are replaced one after the other, as a cluster rolls its pods, and no caller notices."""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING, Self

import numpy as np
import pytest
from tests.faults.service import serving
from tests.long_forms import usual_or_long
from tests.servers import free_port, running_server, valkey_binary
from tests.waiting import PATIENCE, until

from topk_bandit.client import Client, ClientError

if TYPE_CHECKING:
    from pathlib import Path

    from tests.faults.service import Service

ROLLS = usual_or_long(1, long=10)
CALLERS = 4


class Storefront:
    """Callers that want a slate and its reward again and again, and note whatever they did not get."""

    def __init__(self, target: str) -> None:
        self.rewarded: list[str] = []
        self.missed: list[str] = []
        self._target = target
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=self._shop, args=(seed,)) for seed in range(CALLERS)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def _shop(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        with Client(self._target, tenant="shop", timeout=PATIENCE) as client:
            while not self._ended.wait(0.02):
                try:
                    slate = client.recommend("home", rng.normal(size=2).tolist())
                    if slate.degraded:
                        self.missed.append("a slate was degraded")
                        continue
                    outcome = client.reward("home", slate.id, float(rng.normal())).outcome
                    # One that has arrived is a duplicate where its first answer was lost.
                    (self.rewarded if outcome in {"accepted", "duplicate"} else self.missed).append(slate.id)
                except ClientError as error:
                    self.missed.append(f"{type(error).__name__}: {error}")


def replace(service: Service) -> None:
    """End a service as a cluster ends a pod, and start another one in its place."""
    service.running.send_signal(signal.SIGTERM)
    assert service.wait() == 0
    service.start()


@pytest.mark.long_form
def test_two_services_on_one_store_roll_and_no_caller_notices(tmp_path: Path) -> None:
    with running_server(valkey_binary()) as server:
        ports = [free_port() for _ in range(2)]
        both = (f"--redis-url={server.url}", "--drain-seconds=600")
        flags = [(*both, f"--listen=127.0.0.1:{port}") for port in ports]
        with serving(tmp_path / "one", *flags[0]) as one, serving(tmp_path / "other", *flags[1]) as other:
            with one.client() as client:
                client.create_bandit("home", slate_size=3, item_capacity=12, context_dimension=2)
                client.upsert_items("home", [f"i{number}" for number in range(8)])
            with Storefront(f"ipv4:{one.address},{other.address}") as storefront:
                for service in (one, other) * ROLLS:
                    before = len(storefront.rewarded)
                    until(lambda: len(storefront.rewarded) > before + 50, what="callers go on")  # noqa: B023 - at once
                    replace(service)
                until(lambda: len(storefront.rewarded) > before + 100, what="callers go on")
            assert storefront.missed == []
            for service in (one, other):
                with service.client() as client:
                    until(
                        lambda: client.stats("home").observation_count == len(storefront.rewarded),
                        what="every reward is learned, once",
                    )
