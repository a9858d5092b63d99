"""The store frozen, and killed, under a running service: it goes on with what it knows, and comes back by itself."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from tests.contracts.harness import whole_log
from tests.faults.insisting import created, deleted, recorded, reward_of, rewarded
from tests.faults.service import serving
from tests.long_forms import usual_or_long
from tests.rpc.harness import channel_to
from tests.rpc.wire import HOME, create, recommend, refusal_of, refused
from tests.servers import running_server, valkey_binary
from tests.waiting import PATIENCE, until

from topk_bandit.domain.bandits import BanditName
from topk_bandit.store.events import Recommended, Rewarded
from topk_bandit.store.redis.bandits import RedisStore
from topk_bandit.v1 import bandit_service_pb2 as bpb
from topk_bandit.v1 import recommender_service_pb2 as rpb
from topk_bandit.v1.bandit_service_pb2_grpc import BanditServiceStub
from topk_bandit.v1.recommender_service_pb2_grpc import RecommenderServiceStub

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import grpc
    from tests.faults.service import Service
    from tests.servers import RunningServer

    from topk_bandit.store.events import LoggedEvent


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with running_server(valkey_binary(), config=["appendfsync always"]) as server:
        yield server


@pytest.fixture(scope="module")
def service(server: RunningServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("unused")
    with serving(folder, f"--redis-url={server.url}", "--store-timeout-seconds=5") as service:
        yield service
        assert list(folder.iterdir()) == []


@contextmanager
def shop_of(service: Service) -> Iterator[grpc.Channel]:
    """Make a bandit for the block."""
    with channel_to(service.address) as channel:
        created(channel)
        yield channel
        deleted(channel)


@pytest.fixture
def channel(service: Service, request: pytest.FixtureRequest) -> Iterator[grpc.Channel]:
    with shop_of(service) as channel:
        yield channel


def log_of(server: RunningServer) -> list[LoggedEvent]:
    async def read() -> list[LoggedEvent]:
        store = await RedisStore.connect(server.url, timeout=PATIENCE)
        try:
            return await whole_log(store, BanditName("acme", "home"))
        finally:
            await store.close()

    return asyncio.run(read())


@contextmanager
def away(server: RunningServer, channel: grpc.Channel, how: str) -> Iterator[None]:
    """Take the store away for the block; after it, whatever happened inside, the service works again."""
    server.kill() if how == "killed" else server.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        server.start() if how == "killed" else server.send_signal(signal.SIGCONT)
        until(lambda: not recommend(channel, request_id="after").degraded, what="recommending again")


@pytest.mark.parametrize("how", ["frozen", "killed"])
def test_it_goes_on_without_the_store_and_comes_back(
    server: RunningServer, service: Service, channel: grpc.Channel, how: str
) -> None:
    first = recorded(channel, "first")
    rewarded(channel, first, 1.0)
    until(lambda: recommend(channel).observation_count == 1, what="the reward is learned")
    kept = recorded(channel, "kept")
    until(lambda: is_all_learned(server, channel), what="the model knows the whole log")
    before = log_of(server)
    workers = service.worker_pids

    with away(server, channel, how):
        for _ in range(20):
            assert_is_degraded(recommend(channel), model_version=before[-1].position)
            refusal = refused(RecommenderServiceStub(channel).Reward, reward_of(kept, 2.0))
            assert (refusal.code, refusal.retry_after is not None) == ("UNAVAILABLE", True)
        for stub, request in (
            (BanditServiceStub(channel).RetireItems, bpb.RetireItemsRequest(bandit=HOME, item_ids=["a"])),
            (BanditServiceStub(channel).GetBanditStats, bpb.GetBanditStatsRequest(bandit=HOME)),
            (RecommenderServiceStub(channel).Recommend, rpb.RecommendRequest(bandit=HOME.replace("home", "unseen"))),
        ):
            assert refused(stub, request).code == "UNAVAILABLE"

    assert rewarded(channel, kept, 2.0) in {rpb.REWARD_OUTCOME_ACCEPTED, rpb.REWARD_OUTCOME_DUPLICATE}
    assert rewarded(channel, kept, 2.0) == rpb.REWARD_OUTCOME_DUPLICATE
    until(lambda: recommend(channel).observation_count == 2, what="learning again")
    assert service.worker_pids == workers
    service.until_ready()

    until(lambda: is_all_learned(server, channel), what="the model knows the whole log again")
    after = log_of(server)
    assert after[: len(before)] == before
    assert [one.event.value for one in after if isinstance(one.event, Rewarded)] == [1.0, 2.0]
    ids = [one.event.request.request_id for one in after if isinstance(one.event, Recommended)]
    assert len(ids) == len(set(ids))
    told = stats(channel)
    assert (told.recommendation_count, told.observation_count) == (len(ids), 2)
    assert told.log_position == told.model_version


def stats(channel: grpc.Channel) -> bpb.BanditStats:
    return BanditServiceStub(channel).GetBanditStats(bpb.GetBanditStatsRequest(bandit=HOME), timeout=PATIENCE)


def is_all_learned(server: RunningServer, channel: grpc.Channel) -> bool:
    """Return whether the model knows all of the log, to which a call may add that the store was too slow for."""
    return stats(channel).model_version == log_of(server)[-1].position


def assert_is_degraded(slate: rpb.RecommendResponse, *, model_version: int) -> None:
    """Hold a slate that may not be recorded; whether it has an id is whether it was sent."""
    assert slate.degraded
    assert not slate.HasField("reward_deadline")
    assert len(set(slate.item_ids)) == 2
    assert 0.0 < slate.propensity <= 1.0
    assert (slate.model_version, slate.observation_count) == (model_version, 1)


def test_a_reward_that_was_cut_off_is_there_once_or_not_at_all(
    server: RunningServer, service: Service, channel: grpc.Channel
) -> None:
    """The store is killed while rewards are on their way; each is posted again until it is answered."""
    slates = [recorded(channel, f"r{number}") for number in range(60)]
    requests = [reward_of(slate, float(number)) for number, slate in enumerate(slates)]
    stub = RecommenderServiceStub(channel)
    under_way = [stub.Reward.future(one, timeout=PATIENCE) for one in requests]
    server.kill()
    statuses = [call.exception() for call in under_way]
    server.start()
    for status in statuses:
        # A call beyond those in flight is refused before anything is done for it.
        assert status is None or refusal_of(status).code in {"UNAVAILABLE", "RESOURCE_EXHAUSTED"}
    for number, (status, slate) in enumerate(zip(statuses, slates, strict=True)):
        outcome = rewarded(channel, slate, float(number))
        assert outcome == rpb.REWARD_OUTCOME_DUPLICATE or (
            status is not None and outcome == rpb.REWARD_OUTCOME_ACCEPTED
        )
    learned = [one.event for one in log_of(server) if isinstance(one.event, Rewarded)]
    assert {one.recommendation_id: one.value for one in learned} == {
        slate.recommendation_id: float(number) for number, slate in enumerate(slates)
    }
    assert len(learned) == 60


def test_a_service_that_starts_without_a_store_waits_for_it(server: RunningServer, folder: Path) -> None:
    server.kill()
    with serving(folder, f"--redis-url={server.url}", start=False) as service:
        service.spawn()
        until(lambda: "waiting for the store" in service.log, what="it waits")
        assert service.running.poll() is None
        server.start()
        until(lambda: service.address, what="it serves")
        with channel_to(service.address) as channel:
            create(channel, "tenants/acme/bandits/late")
            assert not recommend(channel, bandit="tenants/acme/bandits/late").degraded


def test_a_service_that_waits_for_the_store_can_be_stopped(server: RunningServer, folder: Path) -> None:
    server.kill()
    try:
        with serving(folder, f"--redis-url={server.url}", start=False) as service:
            service.spawn()
            until(lambda: "waiting for the store" in service.log, what="it waits")
            os.kill(service.pid, signal.SIGTERM)
            assert service.wait() == 0
            service.until_gone()
    finally:
        server.start()


def test_a_worker_that_waits_for_the_store_ends_with_its_supervisor(server: RunningServer, folder: Path) -> None:
    server.kill()
    try:
        with serving(folder, f"--redis-url={server.url}", start=False) as service:
            service.spawn()
            until(lambda: "waiting for the store" in service.log, what="it waits")
            assert len(service.worker_pids) == 1
            service.kill_supervisor()
            until(lambda: service.everything() == set(), what="the worker ends")
    finally:
        server.start()


def test_a_store_that_forgets_is_refused(folder: Path) -> None:
    with (
        running_server(valkey_binary(), append_only=False, config=["maxmemory-policy allkeys-lru"]) as forgetful,
        serving(folder, f"--redis-url={forgetful.url}", start=False) as service,
    ):
        service.spawn()
        assert service.wait() == 1
        for problem in ("append-only file is off", "maxmemory-policy is allkeys-lru"):
            assert problem in service.log.splitlines()[-1]
        service.until_gone()


@pytest.mark.long_form
@pytest.mark.parametrize("how", usual_or_long(["killed"], long=["frozen", "killed"]))
def test_an_outage_is_two_lines_of_the_log(server: RunningServer, tmp_path: Path, how: str) -> None:
    flags = [f"--redis-url={server.url}", *(["--store-timeout-seconds=5"] if how == "frozen" else [])]
    with serving(tmp_path, *flags) as service, shop_of(service) as channel:
        recommend(channel)
        with away(server, channel, how):
            until(lambda: recommend(channel).degraded and unfinished(service), what="it is told")
            for _ in range(30):
                assert recommend(channel).degraded
        until(lambda: not unfinished(service), what="the end is told")
        said = [record["message"].partition(";")[0] for record in service.records]
        assert [line for line in said if line.startswith("the store is")] == ["the store is away", "the store is back"]


def unfinished(service: Service) -> bool:
    said = [record.get("message", "") for record in service.records]
    began = sum(message.startswith("the store is away") for message in said)
    return began > sum(message == "the store is back" for message in said)


@pytest.mark.long_form
@pytest.mark.parametrize("how", usual_or_long(["frozen"], long=["frozen", "killed"]))
def test_the_metrics_tell_of_an_outage_while_it_lasts(
    server: RunningServer, service: Service, channel: grpc.Channel, how: str
) -> None:
    def metric(name: str) -> float:
        lines = service.page("/metrics")[1].splitlines()
        return next(float(line.split()[1]) for line in lines if line.startswith(f"topk_bandit_{name} "))

    recommend(channel)
    until(lambda: metric("store_up") == 1, what="the store is seen")
    failures, snapshots = metric("store_failures_total"), metric("snapshot_failures_total")
    with away(server, channel, how):
        until(lambda: metric("store_up") == 0, what="the store is missed")
        seen = metric("log_unread_seconds")
        until(lambda: metric("log_unread_seconds") > seen + 1, what="the age of what was read grows")
        until(lambda: metric("store_failures_total") > failures, what="failures are counted")
        assert metric("store_memory_bytes") > 0
    until(lambda: metric("store_up") == 1, what="the store is seen again")
    assert metric("snapshot_failures_total") == snapshots


def test_waiting_for_a_store_is_two_lines_of_the_log(server: RunningServer, folder: Path) -> None:
    server.kill()
    with serving(folder, f"--redis-url={server.url}", start=False) as service:
        service.spawn()
        until(lambda: "waiting for the store" in service.log, what="it waits")
        time.sleep(2.5)
        server.start()
        until(lambda: service.address, what="it serves")
        said = [record["message"].partition(":")[0] for record in service.records if record["level"] != "INFO"]
        assert said == ["waiting for the store", "the store is there"]
