"""Real faults that callers notice, before a real Prometheus: slow, refused and failed calls, missing workers."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from tests.faults.alarms import SHORT_HOLD, Fault, long_only, name_of, see_alerts
from tests.faults.lines import SlowLine
from tests.faults.load import shopping
from tests.faults.service import serving
from tests.rpc.harness import channel_to
from tests.servers import free_port, running_server, valkey_binary
from tests.test_watching import watching
from tests.waiting import PATIENCE, until

from topk_bandit.v1.recommender_service_pb2 import RecommendRequest, RewardRequest
from topk_bandit.v1.recommender_service_pb2_grpc import RecommenderServiceStub

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.faults.service import Service
    from tests.servers import RunningServer
    from tests.test_watching import Prometheus

pytestmark = long_only("it waits for minutes: make faults does")

HOME = "tenants/shop/bandits/home"
WELL_SECONDS = 5.0


@dataclass(frozen=True)
class Shop:
    """A service that is called all the time, its store, the line between the two, and who watches."""

    service: Service
    server: RunningServer
    line: SlowLine
    prometheus: Prometheus


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    address, target = (f"127.0.0.1:{free_port()}" for _ in range(2))
    quotas = tmp_path_factory.mktemp("quotas") / "quotas.toml"
    quotas.write_text("[loud]\nopen_slates = 3\n")
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(running_server(valkey_binary()))
        line = stack.enter_context(SlowLine(server.port))
        flags = (f"--redis-url=redis://127.0.0.1:{line.port}", f"--listen={address}", f"--metrics-listen={target}")
        flags += ("--workers=1", "--max-calls-in-flight=4", f"--quotas-file={quotas}", "--store-timeout-seconds=1")
        service = stack.enter_context(serving(tmp_path_factory.mktemp("unused"), *flags))
        for tenant in ("shop", "loud"):
            with service.client(tenant=tenant) as client:
                client.create_bandit("home", slate_size=2, item_capacity=6, context_dimension=int(tenant == "shop"))
                client.upsert_items("home", [f"i{number}" for number in range(6)])
        customers = stack.enter_context(shopping(address, "home", threads=1))
        folder = tmp_path_factory.mktemp("prometheus")
        prometheus = stack.enter_context(watching(folder, target, hold=SHORT_HOLD))
        time.sleep(WELL_SECONDS)
        yield Shop(service, server, line, prometheus)
        assert customers.surprises == []


@contextlib.contextmanager
def slow_line(shop: Shop) -> Iterator[None]:
    """Each round trip to the store takes 60 ms more."""
    shop.line.seconds = 0.03
    yield
    shop.line.seconds = 0.0


def ask_at_once(shop: Shop, calls: int) -> set[str]:
    """Ask for slates of the loud tenant at once; return how the calls ended."""
    request = RecommendRequest(bandit="tenants/loud/bandits/home")
    with channel_to(shop.service.address) as channel:
        stub = RecommenderServiceStub(channel)
        return {call.code().name for call in [stub.Recommend.future(request, timeout=PATIENCE) for _ in range(calls)]}


@contextlib.contextmanager
def loud_tenant(shop: Shop) -> Iterator[None]:
    """A tenant asks for slates, one after the other, and rewards none, though few of its may be open."""
    until(lambda: ask_at_once(shop, 1) == {"RESOURCE_EXHAUSTED"}, what="its slates are counted")
    assert {"RESOURCE_EXHAUSTED"} in [ask_at_once(shop, 1) for _ in range(100)]
    yield


@contextlib.contextmanager
def flood(shop: Shop) -> Iterator[None]:
    """More calls come at once than a worker takes."""
    assert "RESOURCE_EXHAUSTED" in ask_at_once(shop, 500)
    yield


@contextlib.contextmanager
def starved_worker(shop: Shop) -> Iterator[None]:
    """A worker is left without a processor for a third of a second, again and again."""
    worker = shop.service.worker_pids[0]
    for _ in range(20):
        os.kill(worker, signal.SIGSTOP)
        time.sleep(0.35)
        os.kill(worker, signal.SIGCONT)
        time.sleep(0.15)
    yield


@contextlib.contextmanager
def frozen_store(shop: Shop) -> Iterator[None]:
    """The store does not answer, and what slates earned can't be posted."""
    with channel_to(shop.service.address) as channel:
        stub = RecommenderServiceStub(channel)
        slate = stub.Recommend(RecommendRequest(bandit=HOME, context=[1.0]), timeout=PATIENCE).recommendation_id
        shop.server.send_signal(signal.SIGSTOP)
        reward = RewardRequest(bandit=HOME, recommendation_id=slate, value=1.0)
        codes = {stub.Reward.future(reward, timeout=PATIENCE).code().name for _ in range(500)}
        assert codes == {"UNAVAILABLE"}
    yield
    shop.server.send_signal(signal.SIGCONT)


@contextlib.contextmanager
def worker_without_store(shop: Shop) -> Iterator[None]:
    """A worker dies while the store is away, so that the next one has to wait for it."""
    before = shop.service.worker_pids
    shop.server.send_signal(signal.SIGSTOP)
    os.kill(before[0], signal.SIGKILL)
    yield
    shop.server.send_signal(signal.SIGCONT)


@contextlib.contextmanager
def hung_workers(shop: Shop) -> Iterator[None]:
    """A worker stops, is killed for it after a quarter of a minute, and so do those that replace it."""
    for _ in range(3):
        before = shop.service.worker_pids
        os.kill(before[0], signal.SIGSTOP)
        until(lambda before=before: shop.service.worker_pids not in ([], before), what="a new worker")
        until(lambda: shop.service.page("/readyz")[0] == 200, what="it is ready")
    yield


FAULTS = [
    Fault(slow_line, {"SlowBurn", "SlowLeak"}),
    Fault(loud_tenant, {"Quota"}),
    Fault(flood, {"Overloaded"}),
    Fault(starved_worker, {"EventLoopBlocked"}),
    Fault(frozen_store, {"ErrorsBurn", "ErrorsLeak", "LogUnread"}, {"LogUnread"}),
    Fault(worker_without_store, {"WorkersMissing"}, {"WorkersMissing"}),
    Fault(hung_workers, {"Restarts"}),
]


@pytest.mark.parametrize("fault", FAULTS, ids=name_of)
def test_a_fault_has_its_alerts_fire(shop: Shop, fault: Fault) -> None:
    see_alerts(shop, shop.prometheus, fault)
