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
from tests.faults.service import serving
from tests.long_forms import usual_or_long
from tests.rpc.harness import channel_to
from tests.rpc.wire import HOME, create, recommend, refusal_of, refused
from tests.servers import running_server, valkey_binary
from tests.waiting import until

from topk_bandit.domain.bandits import BanditName, Recommended, Rewarded
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

    from topk_bandit.domain.bandits import LoggedEvent


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with running_server(valkey_binary(), config=["appendfsync always"]) as server:
        yield server


@pytest.fixture(scope="module")
def service(server: RunningServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("unused")
    with serving(folder, f"--redis-url={server.url}", "--store-timeout-seconds=0.5") as service:
        yield service
        assert list(folder.iterdir()) == []


@pytest.fixture
def channel(service: Service, request: pytest.FixtureRequest) -> Iterator[grpc.Channel]:
    with channel_to(service.address) as channel:
        create(channel)
        yield channel
        BanditServiceStub(channel).DeleteBandit(bpb.DeleteBanditRequest(name=HOME), timeout=10)


def log_of(server: RunningServer) -> list[LoggedEvent]:
    async def read() -> list[LoggedEvent]:
        store = await RedisStore.connect(server.url, timeout=5.0)
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
        until(lambda: not recommend(channel, request_id="after").degraded, what="recommending again", seconds=10)


@pytest.mark.parametrize("how", ["frozen", "killed"])
def test_it_goes_on_without_the_store_and_comes_back(
    server: RunningServer, service: Service, channel: grpc.Channel, how: str
) -> None:
    reward = RecommenderServiceStub(channel).Reward
    first = recommend(channel, request_id="first")
    reward(rpb.RewardRequest(bandit=HOME, recommendation_id=first.recommendation_id, value=1.0), timeout=10)
    until(
        lambda: recommend(channel, request_id=f"{time.monotonic()}").observation_count == 1,
        what="the reward is learned",
    )
    kept = recommend(channel, request_id="kept")
    # What a bandit's log grew by within the last 25 ms is not in its model yet; asking for its stats folds it in.
    stats = BanditServiceStub(channel).GetBanditStats(bpb.GetBanditStatsRequest(bandit=HOME), timeout=10)
    before = log_of(server)
    assert stats.model_version == before[-1].position
    workers = service.worker_pids

    posted = rpb.RewardRequest(bandit=HOME, recommendation_id=kept.recommendation_id, value=2.0)
    with away(server, channel, how):
        began = time.monotonic()
        refusal = refused(reward, posted)
        assert time.monotonic() - began < 1.5
        assert (refusal.code, refusal.retry_after is not None) == ("UNAVAILABLE", True)
        seconds = [answered_degraded(channel, model_version=before[-1].position) for _ in range(20)]
        refusals = [refused_in(channel, posted) for _ in range(20)]
        # One call in each quarter of a second probes; the others are answered at once.
        assert sorted(seconds)[10] < 0.1
        assert sorted(refusals)[10] < 0.1
        assert max(*seconds, *refusals) < 1.5
        for stub, request in (
            (BanditServiceStub(channel).RetireItems, bpb.RetireItemsRequest(bandit=HOME, item_ids=["a"])),
            (BanditServiceStub(channel).GetBanditStats, bpb.GetBanditStatsRequest(bandit=HOME)),
            (RecommenderServiceStub(channel).Recommend, rpb.RecommendRequest(bandit=HOME.replace("home", "unseen"))),
        ):
            assert refused(stub, request).code == "UNAVAILABLE"

    assert reward(posted, timeout=10).outcome in {rpb.REWARD_OUTCOME_ACCEPTED, rpb.REWARD_OUTCOME_DUPLICATE}
    assert reward(posted, timeout=10).outcome == rpb.REWARD_OUTCOME_DUPLICATE
    until(lambda: recommend(channel, request_id=f"{time.monotonic()}").observation_count == 2, what="learning again")
    assert service.worker_pids == workers
    assert service.page("/readyz")[0] == 200

    after = log_of(server)
    assert after[: len(before)] == before
    assert [one.event.value for one in after if isinstance(one.event, Rewarded)] == [1.0, 2.0]
    ids = [one.event.request.request_id for one in after if isinstance(one.event, Recommended)]
    assert len(ids) == len(set(ids))
    stats = BanditServiceStub(channel).GetBanditStats(bpb.GetBanditStatsRequest(bandit=HOME), timeout=10)
    assert (stats.recommendation_count, stats.observation_count) == (len(ids), 2)
    assert stats.log_position == stats.model_version


def answered_degraded(channel: grpc.Channel, *, model_version: int) -> float:
    """Return how long a slate took that may not be recorded; whether it has an id is whether it was sent."""
    began = time.monotonic()
    slate = recommend(channel)
    assert slate.degraded
    assert not slate.HasField("reward_deadline")
    assert len(set(slate.item_ids)) == 2
    assert 0.0 < slate.propensity <= 1.0
    assert (slate.model_version, slate.observation_count) == (model_version, 1)
    return time.monotonic() - began


def refused_in(channel: grpc.Channel, posted: rpb.RewardRequest) -> float:
    began = time.monotonic()
    assert refused(RecommenderServiceStub(channel).Reward, posted).code == "UNAVAILABLE"
    return time.monotonic() - began


def test_a_reward_that_was_cut_off_is_there_once_or_not_at_all(
    server: RunningServer, service: Service, channel: grpc.Channel
) -> None:
    """The store is killed while rewards are on their way; each is posted again until it is answered."""
    ids = [recommend(channel, request_id=f"r{number}").recommendation_id for number in range(60)]
    requests = [rpb.RewardRequest(bandit=HOME, recommendation_id=one, value=float(n)) for n, one in enumerate(ids)]
    stub = RecommenderServiceStub(channel)
    under_way = [stub.Reward.future(one, timeout=10) for one in requests]
    server.kill()
    statuses = [call.exception() for call in under_way]
    server.start()
    for status in statuses:
        # A call beyond those in flight is refused before anything is done for it.
        assert status is None or refusal_of(status).code in {"UNAVAILABLE", "RESOURCE_EXHAUSTED"}
    until(lambda: stub.Reward(requests[0], timeout=5), what="the store is back")
    for status, request in zip(statuses, requests, strict=True):
        outcome = stub.Reward(request, timeout=10).outcome
        assert outcome == rpb.REWARD_OUTCOME_DUPLICATE or (
            status is not None and outcome == rpb.REWARD_OUTCOME_ACCEPTED
        )
    rewarded = [one.event for one in log_of(server) if isinstance(one.event, Rewarded)]
    assert {one.recommendation_id: one.value for one in rewarded} == dict(zip(ids, map(float, range(60)), strict=True))
    assert len(rewarded) == 60


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
            began = time.monotonic()
            os.kill(service.pid, signal.SIGTERM)
            assert service.wait() == 0
            assert time.monotonic() - began < 8
            assert service.everything() == set()
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


@pytest.mark.parametrize(
    ("append_only", "policy", "problem"),
    [(False, "noeviction", "append-only file is off"), (True, "allkeys-lru", "maxmemory-policy is allkeys-lru")],
)
def test_a_store_that_forgets_is_refused(folder: Path, *, append_only: bool, policy: str, problem: str) -> None:
    with (
        running_server(valkey_binary(), append_only=append_only, config=[f"maxmemory-policy {policy}"]) as forgetful,
        serving(folder, f"--redis-url={forgetful.url}", start=False) as service,
    ):
        service.spawn()
        assert service.wait() == 1
        assert problem in service.log.splitlines()[-1]
        assert service.everything() == set()


@pytest.mark.long_form
@pytest.mark.parametrize("how", usual_or_long(["killed"], long=["frozen", "killed"]))
def test_an_outage_is_two_lines_of_the_log(
    server: RunningServer, service: Service, channel: grpc.Channel, how: str
) -> None:
    recommend(channel)
    until(lambda: not unfinished(service), what="no earlier outage is left")
    before = len(service.records)
    with away(server, channel, how):
        until(lambda: recommend(channel).degraded, what="it is away")
        for _ in range(30):
            recommend(channel)
            time.sleep(0.1)
    until(lambda: recommend(channel) and not unfinished(service), what="the end is told", seconds=20)
    said = [(record["level"], record["message"].partition(";")[0]) for record in service.records[before:]]
    # A store that is killed while it waits for a busy disk may have lost what it answered last; a follower says so.
    others = {("WARNING", "the log is not the one that was followed"), ("INFO", "audit")}  # the latter of calls before
    assert [line for line in said if line not in others] == [
        ("ERROR", "the store is away"),
        ("WARNING", "the store is back"),
    ]


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
    until(lambda: metric("store_up") == 1, what="the store is seen", seconds=20)
    failures, snapshots = metric("store_failures_total"), metric("snapshot_failures_total")
    with away(server, channel, how):
        until(lambda: metric("store_up") == 0, what="the store is missed", seconds=20)
        seen = metric("log_unread_seconds")
        until(lambda: metric("log_unread_seconds") > seen + 1, what="the age of what was read grows", seconds=20)
        assert metric("store_failures_total") > failures
        assert metric("store_memory_bytes") > 0
    until(lambda: metric("store_up") == 1, what="the store is seen again", seconds=20)
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
