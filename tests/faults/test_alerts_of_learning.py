"""Real faults of rewards, logs and snapshots, before a real Prometheus."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import tempfile
import threading
import time
from collections import deque
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.faults.alarms import SHORT_HOLD, Fault, long_only, name_of, see_alerts
from tests.faults.service import serving
from tests.faults.test_damaged_event import flip, skip, trade
from tests.servers import free_port, running_server, valkey_binary
from tests.test_watching import watching
from tests.waiting import PATIENCE, until

from topk_bandit.client import AsyncClient, Group, Stage
from topk_bandit.domain.bandits import BanditName
from topk_bandit.store.codec import decode_snapshot
from topk_bandit.store.redis.keys import KeySpace

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tests.faults.service import Service
    from tests.servers import RunningServer
    from tests.test_watching import Prometheus

pytestmark = long_only("it waits for minutes: make faults does")

WAIT = timedelta(seconds=2)
WELL_SECONDS = 15.0
BANDIT = KeySpace("topk-bandit").bandit(BanditName("shop", "home"))
DAMAGED = 20
AT_ONCE = 10


class Storefront:
    """Asks for slates all the time, and posts what they earned, unless that is held up."""

    def __init__(self, service: Service) -> None:
        self.is_posting = True
        self._service = service
        self._held: deque[str] = deque()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def open(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._closed.set()
        self._thread.join()

    def _run(self) -> None:
        with self._service.client() as client:
            while not self._closed.wait(0.02):
                self._held.append(client.recommend("home").id)
                if self.is_posting:
                    client.rewards("home", dict.fromkeys(self._held, 1.0))
                    self._held.clear()


@contextlib.contextmanager
def trading(service: Service) -> Iterator[Storefront]:
    storefront = Storefront(service)
    storefront.open()
    try:
        yield storefront
    finally:
        storefront.close()


@dataclass(frozen=True)
class Shop:
    """A service on a store of its own, who calls it and who watches it."""

    service: Service
    server: RunningServer
    target: str
    prometheus: Prometheus
    cold: Path


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    address, target = (f"127.0.0.1:{free_port()}" for _ in range(2))
    with running_server(valkey_binary(), config=["appendfsync always"]) as server:
        flags = (f"--redis-url={server.url}", f"--listen={address}", f"--metrics-listen={target}", "--workers=1")
        cold = tmp_path_factory.mktemp("cold") / "log"
        cold.mkdir()
        flags = (*flags, f"--cold-log-dir={cold}")
        with serving(tmp_path_factory.mktemp("unused"), *flags, excused="can't be followed") as service:
            with service.client() as client:
                client.create_bandit("home", slate_size=2, item_capacity=6, reward_wait=WAIT, default_reward=0.0)
                client.upsert_items("home", [f"i{number}" for number in range(6)])
            with service.client(tenant="acme") as client:
                client.create_bandit("home", slate_size=2, item_capacity=9)
                client.upsert_items("home", [f"i{number}" for number in range(6)])
                trade(client, DAMAGED)
            with watching(tmp_path_factory.mktemp("prometheus"), target, hold=SHORT_HOLD) as prometheus:
                yield Shop(service, server, target, prometheus, cold)


@contextlib.contextmanager
def silent_storefront(shop: Shop) -> Iterator[None]:
    """A storefront that posted a reward for each slate posts none any more, and its backlog when all is over."""
    with trading(shop.service) as storefront:
        time.sleep(WELL_SECONDS)
        storefront.is_posting = False
        yield


@contextlib.contextmanager
def backlog(shop: Shop) -> Iterator[None]:
    """What posts rewards was held up for longer than they are waited for, and posts them now."""
    with trading(shop.service) as storefront:
        storefront.is_posting = False
        time.sleep(2 * WAIT.total_seconds())
        storefront.is_posting = True
        yield


@contextlib.contextmanager
def damaged_event(shop: Shop) -> Iterator[None]:
    """Bits of an event have flipped while the service was away; after it the log grows on."""
    shop.service.kill_everything()
    flip(shop.server, DAMAGED)
    shop.service.start()
    with shop.service.client(tenant="acme") as client:
        trade(client, 600)
        yield
    status, said = skip(shop.service, str(DAMAGED), "--reason=bits flipped", "--yes")
    assert status == 0, said


@contextlib.contextmanager
def spoiled_snapshot(shop: Shop) -> Iterator[None]:
    """The newest snapshot is not what it was while the service was away."""
    with shop.service.client() as client:
        trade(client, 600)
    shop.service.kill_everything()
    with shop.server.client() as keys:
        frames = {key: keys.get(key) for key in BANDIT.snapshots}
        newest = max(frames, key=lambda key: decode_snapshot(frames[key]).position)
        keys.setrange(newest, len(frames[newest]) // 2, bytes(8))
    shop.service.start()
    with shop.service.client() as client:
        client.recommend("home")
    yield
    with tempfile.TemporaryDirectory() as folder, watching(Path(folder), shop.target) as fresh:
        until(lambda: "TopkBanditSnapshotsFail" in fresh.firing(), what="who sees no increase is told, too")


@contextlib.contextmanager
def missing_folder(shop: Shop) -> Iterator[None]:
    """The folder of the cold log is not there for a while."""
    away = shop.cold.with_name("away")
    shop.cold.rename(away)
    with shop.service.client() as client:
        trade(client, 600)
        yield
    away.rename(shop.cold)


@contextlib.contextmanager
def older_file(shop: Shop) -> Iterator[None]:
    """The store comes back from a copy of its file, and lacks what it acknowledged since."""
    server = shop.server
    with shop.service.client() as client:
        client.recommend("home")
        shutil.copytree(server.folder / "appendonlydir", server.folder / "copy")
        trade(client, 20)
        server.kill()
        shutil.rmtree(server.folder / "appendonlydir")
        (server.folder / "copy").rename(server.folder / "appendonlydir")
        server.start()
        until(lambda: client.recommend("home").id, what="slates are recorded again")
    yield


@contextlib.contextmanager
def refused_snapshots(shop: Shop) -> Iterator[None]:
    """The store's rules for its user let the service write all but snapshots, while a log grows and grows."""
    with shop.service.client(tenant="acme") as client:
        client.create_bandit("busy", slate_size=2, item_capacity=6, reward_wait=timedelta(seconds=1))
        client.upsert_items("busy", [f"i{number}" for number in range(6)])
        client.recommend("busy")
    with shop.server.client() as keys:
        keys.execute_command("ACL SETUSER", "default", "resetkeys", "~*[^01]")
    asyncio.run(ask(shop.service.address, "busy", slates=10_500))
    yield
    with shop.server.client() as keys:
        keys.execute_command("ACL SETUSER", "default", "allkeys")
    asyncio.run(ask(shop.service.address, "busy", slates=600))  # a snapshot comes when the log grows


@contextlib.contextmanager
def erring_client(shop: Shop) -> Iterator[None]:
    """A client posts rewards of a million where they are about one, and mends its code."""
    with shop.service.client(tenant="acme") as client:
        client.create_bandit("odd", slate_size=2, item_capacity=6)
        client.upsert_items("odd", [f"i{number}" for number in range(6)])

        def post(rewards: Iterable[float]) -> None:
            for reward in rewards:
                client.reward("odd", client.recommend("odd").id, reward)

        post(0.1 * (number % 7) for number in range(60))
        post([1e6] * 40)
        yield
        post(0.1 * (number % 7) for number in range(300))


@contextlib.contextmanager
def buyers_only(shop: Shop) -> Iterator[None]:
    """A shop without a default reward posts what one visitor of four buys, and then sets one."""
    with shop.service.client(tenant="acme") as client:
        client.create_bandit("sales", slate_size=2, item_capacity=6, reward_wait=timedelta(seconds=1))
        client.upsert_items("sales", [f"i{number}" for number in range(6)])
        for number in range(160):
            given = client.recommend("sales")
            if number % 4 == 0:
                client.reward("sales", given.id, 5.0 + number % 3)
        yield
        client.update_bandit("sales", default_reward=0.0)
        client.recommend("sales")


@contextlib.contextmanager
def worse_than_before(shop: Shop) -> Iterator[None]:
    """A bandit whose slates earn less than the shop's own is taken off by its guardrail."""
    with shop.service.client(tenant="acme") as client:
        client.create_bandit("worse", slate_size=2, item_capacity=6, control_share=0.5, guardrail_margin=0.1)
        client.upsert_items("worse", [f"i{number}" for number in range(6)])
        for number in range(500):
            given = client.recommend("worse", baseline=("i1", "i0"))
            client.reward("worse", given.id, 0.25 * (number % 2) + (given.group is Group.CONTROL))
        yield
        assert client.get_bandit("worse").stage is Stage.SHADOW


@contextlib.contextmanager
def one_key_for_all(shop: Shop) -> Iterator[None]:
    """A caller sends the same group key with each request, and learns better."""
    with shop.service.client(tenant="acme") as client:
        client.create_bandit("keys", slate_size=2, item_capacity=6, control_share=0.5)
        client.upsert_items("keys", [f"i{number}" for number in range(6)])
        for _ in range(300):
            client.recommend("keys", baseline=("i1", "i0"), group_key="nobody")
        yield
        client.update_bandit("keys", control_share=0.4)


@contextlib.contextmanager
def unsteady_client(shop: Shop) -> Iterator[None]:
    """A client posts rewards that vary three and a half times as much as before, and mends its code."""
    rng = np.random.default_rng(3)
    with shop.service.client(tenant="acme") as client:
        client.create_bandit("unsteady", slate_size=2, item_capacity=6)
        client.upsert_items("unsteady", [f"i{number}" for number in range(6)])

        def post(count: int, *, spread: float) -> None:
            for reward in (1.0 + spread * rng.normal(size=count)).tolist():
                client.reward("unsteady", client.recommend("unsteady").id, reward)

        post(200, spread=0.2)
        post(100, spread=0.7)
        yield
        post(400, spread=0.2)


async def ask(address: str, bandit: str, *, slates: int) -> None:
    """Ask for so many slates, some of them at once."""
    async with AsyncClient(address, tenant="acme", timeout=PATIENCE) as client:

        async def ask_for_some() -> None:
            for _ in range(slates // AT_ONCE):
                await client.recommend(bandit)

        await asyncio.gather(*(ask_for_some() for _ in range(AT_ONCE)))


FAULTS = [
    Fault(silent_storefront, {"RewardsStopped", "JoinRateDropped", "DefaultsRose"}),
    Fault(backlog, {"RewardsLate"}),
    Fault(erring_client, {"Outliers"}, {"Outliers"}),
    Fault(buyers_only, {"BuyersOnly"}, {"BuyersOnly"}),
    Fault(worse_than_before, {"Guarded"}),
    Fault(one_key_for_all, {"OddGroups"}, {"OddGroups"}),
    Fault(unsteady_client, {"SpreadsTooSmall"}, {"SpreadsTooSmall"}),
    Fault(damaged_event, {"LearnerLags", "ModelOld"}, {"LearnerLags", "ModelOld"}),
    Fault(spoiled_snapshot, {"SnapshotsFail"}),
    Fault(missing_folder, {"ColdLogFails"}),
    Fault(refused_snapshots, {"SnapshotsLate"}, {"SnapshotsLate"}),
    Fault(older_file, {"LogReplaced", "EventsLost"}),
]


@pytest.mark.parametrize("fault", FAULTS, ids=name_of)
def test_a_fault_has_its_alerts_fire(shop: Shop, fault: Fault) -> None:
    see_alerts(shop, shop.prometheus, fault)
