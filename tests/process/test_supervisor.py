"""A service of several processes: who is started again, who ends with whom, and what they have in common."""

from __future__ import annotations

import os
import re
import signal
from typing import TYPE_CHECKING

import pytest
from tests.faults.service import Service, alive, serving
from tests.rpc.harness import channel_to
from tests.rpc.wire import HOME, create, recommend
from tests.waiting import PATIENCE, until

from topk_bandit.process.supervisor import HUNG_SECONDS
from topk_bandit.v1 import bandit_service_pb2 as bpb
from topk_bandit.v1 import recommender_service_pb2 as rpb
from topk_bandit.v1.bandit_service_pb2_grpc import BanditServiceStub
from topk_bandit.v1.recommender_service_pb2_grpc import RecommenderServiceStub

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import grpc


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with serving(tmp_path_factory.mktemp("data"), "--workers=2") as service, channel_to(service.address) as channel:
        create(channel)
        yield service


@pytest.fixture
def channel(service: Service) -> Iterator[grpc.Channel]:
    with channel_to(service.address) as channel:
        yield channel


def sample(service: Service, name: str, **labels: str) -> float:
    """Return the sum of a metric over all series with these labels."""
    lines = [line for line in service.page("/metrics")[1].splitlines() if line.startswith((f"{name} ", f"{name}{{"))]
    chosen = [line for line in lines if all(f'{label}="{value}"' in line for label, value in labels.items())]
    return sum(float(line.rsplit(" ", 1)[1]) for line in chosen)


def observations(service: Service, *, connections: int) -> list[int]:
    """Ask over fresh connections, which the kernel spreads over the workers, what the answering model has learned."""
    counts = []
    for _ in range(connections):
        with channel_to(service.address) as channel:
            counts.append(recommend(channel).observation_count)
    return counts


def test_a_reward_posted_through_one_worker_is_learned_by_all(service: Service, channel: grpc.Channel) -> None:
    observations(service, connections=16)  # so that both workers follow the bandit
    before = max(observations(service, connections=16))
    ids = [recommend(channel).recommendation_id for _ in range(10)]
    for one in ids:  # one connection is one worker
        request = rpb.RewardRequest(bandit=HOME, recommendation_id=one, value=1.0)
        RecommenderServiceStub(channel).Reward(request, timeout=PATIENCE)
    until(lambda: min(observations(service, connections=16)) >= before + 10, what="both have learned all")
    assert set(observations(service, connections=16)) == {before + 10}


def test_the_page_adds_up_what_all_workers_count(service: Service) -> None:
    labels = {"grpc_method": "ListBandits", "grpc_code": "OK"}  # which nobody else calls
    for _ in range(24):
        with channel_to(service.address) as channel:
            BanditServiceStub(channel).ListBandits(bpb.ListBanditsRequest(parent="tenants/acme"), timeout=PATIENCE)
    until(lambda: sample(service, "grpc_server_handled_total", **labels) == 24, what="every call is counted")
    assert sample(service, "topk_bandit_observations") > 0


def test_the_probes_answer(service: Service) -> None:
    assert service.page("/livez") == (200, "OK\n")
    assert service.page("/readyz") == (200, "OK\n")
    assert service.page("/else")[0] == 404


@pytest.mark.slow
def test_a_killed_worker_is_replaced_while_the_other_goes_on(service: Service) -> None:
    before = service.worker_pids
    counted = sample(service, "grpc_server_handled_total", grpc_method="Recommend")
    os.kill(before[0], signal.SIGKILL)
    seen, begun = set(), starts(service)

    def replaced() -> bool:
        seen.add(service.page("/readyz")[0])
        return len(service.worker_pids) == 2 and before[0] not in service.worker_pids

    with service.client(tenant="acme") as client:
        until(replaced, what="another one is started")
        assert client.recommend("home").id != ""
    assert seen == {200}
    assert service.page("/livez")[0] == 200
    after = service.worker_pids
    until(lambda: starts(service) > begun, what="the new one serves")
    assert set(before) & set(after) == {before[1]}
    until(lambda: sample(service, "topk_bandit_workers_ready") == 2, what="both are ready")
    assert sample(service, "topk_bandit_workers") == 2
    assert sample(service, "topk_bandit_worker_restarts_total", reason="died") >= 1
    assert sample(service, "process_resident_memory_bytes", process="worker-2") > 2**24
    assert sample(service, "grpc_server_handled_total", grpc_method="Recommend") >= counted
    assert "worker 1 died" in service.log or "worker 2 died" in service.log
    observations(service, connections=16)


@pytest.mark.slow
def test_hung_workers_are_noticed_and_replaced(service: Service) -> None:
    before = service.worker_pids
    for pid in before:
        os.kill(pid, signal.SIGSTOP)
    until(lambda: service.page("/readyz")[0] == 503, what="it is not ready")
    assert service.page("/livez")[0] == 200
    until(lambda: not set(before) & set(service.worker_pids), what="both are replaced")
    with service.client(tenant="acme") as client:
        until(lambda: client.recommend("home").id, what="it serves")
    # How long a start takes is the machine's; how long a hung worker is put up with is not.
    silent = [int(seconds) for seconds in re.findall(r"hangs: no sign of life for (\d+) seconds", service.log)]
    assert len(silent) >= 2
    assert max(silent) <= HUNG_SECONDS + 2
    assert sample(service, "topk_bandit_worker_restarts_total", reason="hung") >= 2
    until(lambda: service.page("/readyz")[0] == 200, what="it is ready again")


def starts(service: Service) -> int:
    """Return how often a worker began to serve."""
    return sum(record.get("message") == "ready" for record in service.records)


def test_a_killed_store_is_started_again(service: Service) -> None:
    before, workers = service.store_pid, service.worker_pids
    with service.client(tenant="acme") as client:
        count = client.stats("home").observation_count
        os.kill(before, signal.SIGKILL)
        until(lambda: service.store_pid != before, what="a new store")
        assert client.stats("home").observation_count == count
        until(lambda: client.recommend("home").id, what="recording again")
    assert service.worker_pids == workers


@pytest.mark.slow
def test_workers_end_with_their_supervisor_and_the_next_one_takes_over(service: Service) -> None:
    workers, store = service.worker_pids, service.store_pid
    with service.client(tenant="acme") as client:
        count = client.stats("home").observation_count
    service.kill_supervisor()
    until(lambda: not alive(*workers), what="the workers end")
    assert alive(store) == {store}
    service.wait()
    service.start()
    assert service.store_pid == store
    with service.client(tenant="acme") as client:
        assert client.stats("home").observation_count == count


@pytest.mark.slow
def test_a_terminal_that_is_closed_has_it_drain(tmp_path: Path) -> None:
    with serving(tmp_path) as service:
        workers = service.worker_pids
        os.kill(workers[0], signal.SIGHUP)  # a terminal sends it to all
        os.kill(service.pid, signal.SIGHUP)
        assert service.wait() == 0
        service.until_gone()
        messages = [record.get("message") for record in service.records]
        assert messages.index("draining") < messages.index("stopped")


def test_sigterm_while_it_starts_ends_it(tmp_path_factory: pytest.TempPathFactory) -> None:
    with serving(tmp_path_factory.mktemp("data"), start=False) as service:
        service.spawn()
        until(lambda: "embedded store is up" in service.log, what="it is starting")
        os.kill(service.pid, signal.SIGTERM)
        assert service.wait() == 0
        service.until_gone()
        assert service.address == ""
