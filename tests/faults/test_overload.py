"""More calls than there is room for, and the end of a service under calls."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import socket
import subprocess
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import pytest
from grpc_health.v1 import health_pb2
from grpc_health.v1.health_pb2_grpc import HealthStub
from tests.faults.lines import SlowLine
from tests.faults.service import COMMAND, ITS_PATH, PATIENT, clean_environment, serving
from tests.long_forms import usual_or_long
from tests.rpc.harness import channel_to
from tests.rpc.wire import HOME, create, recommend, refusal_of, refused
from tests.waiting import PATIENCE, until

from topk_bandit.client import AsyncClient, PastObservation
from topk_bandit.client.routing import WORKER_HEADER, read_worker_header
from topk_bandit.process.settings import Settings
from topk_bandit.v1 import recommender_service_pb2 as rpb
from topk_bandit.v1.recommender_service_pb2_grpc import RecommenderServiceStub

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import grpc
    from tests.faults.service import Service

    from topk_bandit.client import Client

BURST = 600


def posted(channel: grpc.Channel, recommendation_id: str) -> grpc.Future:
    """Post a reward, and do not wait for its answer."""
    request = rpb.RewardRequest(bandit=HOME, recommendation_id=recommendation_id, value=1.0)
    return RecommenderServiceStub(channel).Reward.future(request, timeout=PATIENCE)


def started(service_page: str) -> float:
    lines = [line for line in service_page.splitlines() if line.startswith("grpc_server_started_total")]
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if 'grpc_method="Reward"' in line)


def test_calls_beyond_the_limit_are_refused_at_once_and_the_others_finish(folder: Path) -> None:
    with serving(folder, "--max-calls-in-flight=4") as service, channel_to(service.address) as channel:
        create(channel)
        *ids, further = [recommend(channel).recommendation_id for _ in range(5)]
        os.kill(service.store_pid, signal.SIGSTOP)
        try:
            accepted = [posted(channel, one) for one in ids]
            until(lambda: started(service.page("/metrics")[1]) == 4, what="four calls are under way")
            for _ in range(20):
                reward = rpb.RewardRequest(bandit=HOME, recommendation_id=further, value=1.0)
                refusal = refused(RecommenderServiceStub(channel).Reward, reward)
                assert (refusal.code, refusal.reason) == ("RESOURCE_EXHAUSTED", "CALLS_IN_FLIGHT")
                assert refusal.retry_after is not None
                assert 0 < refusal.retry_after <= 1
            assert HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=PATIENCE).status == 1
            assert not any(call.done() for call in accepted)
        finally:
            os.kill(service.store_pid, signal.SIGCONT)
        assert [call.result().outcome for call in accepted] == [rpb.REWARD_OUTCOME_ACCEPTED] * 4
        assert recommend(channel).recommendation_id != ""


def recorded(service: Service) -> int:
    with service.client(tenant="acme") as client:
        return client.stats("home").recommendation_count


def flooded(channels: Sequence[grpc.Channel]) -> list[grpc.Future]:
    """Ask for as many slates as fit on the connections at once, and do not wait for the answers."""
    stubs = [RecommenderServiceStub(channel) for channel in channels]
    return [stub.Recommend.future(rpb.RecommendRequest(bandit=HOME), timeout=PATIENCE) for stub in stubs * 100]


def test_a_flood_is_refused_early_and_leaves_the_service_well(folder: Path) -> None:
    """While the store is slow all calls beyond the limit are refused before any other is answered, and no later."""
    with serving(folder, "--max-calls-in-flight=8") as service, ExitStack() as stack:
        channels = [stack.enter_context(channel_to(service.address)) for _ in range(3)]
        create(channels[0])
        assert recommend(channels[0]).recommendation_id != ""
        os.kill(service.store_pid, signal.SIGSTOP)
        try:
            calls = flooded(channels)
            until(lambda: sum(call.done() for call in calls) == 292, what="what is too much is refused")
            refusals = [refusal_of(call.exception()) for call in calls if call.done()]
            assert {(one.code, one.reason) for one in refusals} == {("RESOURCE_EXHAUSTED", "CALLS_IN_FLIGHT")}
            assert all(one.retry_after is not None and 0 < one.retry_after <= 1 for one in refusals)
        finally:
            os.kill(service.store_pid, signal.SIGCONT)
        assert Counter(call.code().name for call in calls) == {"OK": 8, "RESOURCE_EXHAUSTED": 292}
        assert recorded(service) == 1 + 8
        assert recommend(channels[0]).recommendation_id != ""


def test_a_burst_on_a_fresh_channel_is_told_when_to_try_again(folder: Path) -> None:
    """None of it is refused by HTTP/2 itself, whose refusal (UNAVAILABLE) has no reason and no time."""
    with serving(folder) as service:
        with channel_to(service.address) as channel:
            create(channel)
            assert recommend(channel).recommendation_id != ""
        os.kill(service.store_pid, signal.SIGSTOP)
        try:
            with channel_to(service.address) as fresh:
                stub = RecommenderServiceStub(fresh)
                calls = [
                    stub.Recommend.future(rpb.RecommendRequest(bandit=HOME), timeout=PATIENCE) for _ in range(BURST)
                ]
                refused_ones = BURST - Settings().max_calls_in_flight
                until(lambda: sum(call.done() for call in calls) == refused_ones, what="the others are refused")
                refusals = [refusal_of(call.exception()) for call in calls if call.done()]
                assert Counter((one.code, one.reason) for one in refusals) == {
                    ("RESOURCE_EXHAUSTED", "CALLS_IN_FLIGHT"): refused_ones
                }
                assert all(one.retry_after is not None and 0 < one.retry_after <= 1 for one in refusals)
                os.kill(service.store_pid, signal.SIGCONT)
                assert Counter(call.code().name for call in calls)["OK"] == Settings().max_calls_in_flight
        finally:
            os.kill(service.store_pid, signal.SIGCONT)


def test_a_burst_of_the_shipped_client_is_worked_off(folder: Path) -> None:
    async def burst(address: str) -> list[str]:
        async with AsyncClient(address, tenant="acme", timeout=PATIENCE) as client:
            return [slate.id for slate in await asyncio.gather(*(client.recommend("home") for _ in range(BURST)))]

    with serving(folder) as service:
        with channel_to(service.address) as channel:
            create(channel)
        given = asyncio.run(burst(service.address))
        assert len(set(given)) == len(given) == BURST
        assert recorded(service) == BURST


def test_a_flood_that_is_worked_off_is_answered_or_refused(folder: Path) -> None:
    """How much of it is refused depends on the machine: a service that keeps up has no reason to refuse anything."""
    with serving(folder, "--max-calls-in-flight=8") as service, ExitStack() as stack:
        channels = [stack.enter_context(channel_to(service.address)) for _ in range(3)]
        create(channels[0])
        calls: list[grpc.Future] = []
        for _ in range(2):
            calls += flooded(channels)
            assert {call.code().name for call in calls} <= {"OK", "RESOURCE_EXHAUSTED"}
        given = [call.result().recommendation_id for call in calls if call.code().name == "OK"]
        assert len(set(given)) == len(given) >= 16
        assert recorded(service) == len(given)


@contextmanager
def line_to(service: Service) -> Iterator[tuple[SlowLine, grpc.Channel]]:
    """Open a channel over a line that can be held, and use it once, so that all that is sent from then on are calls."""
    with SlowLine(int(service.address.rpartition(":")[2])) as line, channel_to(f"127.0.0.1:{line.port}") as channel:
        recommend(channel)
        yield line, channel


def frames(sent: bytes, *kinds: int, flag: int = 0) -> int:
    """Count the frames of some kinds in what was sent over HTTP/2, or those with a flag (RFC 9113, section 4.1)."""
    count, place = 0, 0
    while place + 9 <= len(sent):
        count += sent[place + 3] in kinds and sent[place + 4] & flag == flag
        place += 9 + int.from_bytes(sent[place : place + 3])
    return count


DATA, HEADERS, RST_STREAM, END_STREAM = 0, 1, 3, 1


def test_a_burst_of_calls_that_take_milliseconds_is_refused_before_it_waits(folder: Path) -> None:
    """Slates of this bandit are chosen on the event loop: calls are taken in all the same, and most of them refused."""
    with serving(folder, "--max-calls-in-flight=8") as service:
        with service.client(tenant="acme") as client:
            learn(client)
        before = recorded(service)
        with line_to(service) as (line, channel):
            line.hold()
            stub = RecommenderServiceStub(channel)
            calls = [stub.Recommend.future(rpb.RecommendRequest(bandit=HOME), timeout=PATIENCE) for _ in range(BURST)]
            until(lambda: frames(line.sent, DATA, HEADERS, flag=END_STREAM) == BURST, what="all calls are sent")
            line.release()
            codes = Counter(call.code().name for call in calls)
        assert set(codes) == {"OK", "RESOURCE_EXHAUSTED"}
        assert codes["RESOURCE_EXHAUSTED"] > BURST / 2
        assert recorded(service) - before - 1 == codes["OK"] >= 8


def test_no_slate_is_chosen_for_who_has_given_up_waiting(folder: Path) -> None:
    """Calls whose callers have left before their turn came take none."""
    with serving(folder, "--max-calls-in-flight=64") as service:
        with service.client(tenant="acme") as client:
            learn(client)
        before = recorded(service)
        with line_to(service) as (line, channel):
            line.hold()
            stub = RecommenderServiceStub(channel)
            calls = [stub.Recommend.future(rpb.RecommendRequest(bandit=HOME), timeout=PATIENCE) for _ in range(BURST)]
            until(lambda: frames(line.sent, DATA, HEADERS, flag=END_STREAM) == BURST, what="all calls are sent")
            for call in calls:
                call.cancel()
            until(lambda: frames(line.sent, RST_STREAM) == BURST, what="all are taken back")
            line.release()
            recommend(channel)
        print(f"{recorded(service) - before - 2} slates were chosen for nobody")
        assert recorded(service) - before - 2 <= BURST / 10


def learn(client: Client) -> None:
    """Make a bandit whose slates take a millisecond or two: 50 items and 256 rewards of random slates."""
    rng = random.Random(1)
    items = [f"item-{number}" for number in range(50)]
    client.create_bandit("home", slate_size=6, item_capacity=50)
    client.upsert_items("home", items)
    past = [PastObservation(tuple(rng.sample(items, 6)), rng.random()) for _ in range(256)]
    client.import_observations("home", past, import_id="history")
    until(lambda: client.stats("home").observation_count == 256, what="the rewards are learned")


@contextmanager
def channel_beside_owner(service: Service) -> Iterator[grpc.Channel]:
    """Open a channel to the worker of two that passes calls about the bandit on to the other one."""
    while True:
        with channel_to(service.address) as channel:
            asked = rpb.RecommendRequest(bandit=HOME)
            _, call = RecommenderServiceStub(channel).Recommend.with_call(asked, timeout=PATIENCE)
            at = read_worker_header(dict(call.trailing_metadata())[WORKER_HEADER])
            if at is not None and at.owner != at.worker:
                yield channel
                return


@pytest.mark.long_form
@pytest.mark.parametrize(
    "how", usual_or_long(["Ctrl-C at a terminal"], long=["SIGTERM to the supervisor", "Ctrl-C at a terminal"])
)
def test_a_drain_lets_calls_finish_and_leaves_nothing_behind(folder: Path, how: str) -> None:
    with (
        serving(folder, "--workers=2", "--drain-seconds=600", command=PATIENT, variables=ITS_PATH) as service,
        ExitStack() as stack,
        ThreadPoolExecutor(1) as pool,
    ):
        service.until_ready()
        assert len(service.worker_pids) == 2
        with channel_to(service.address) as creating:
            create(creating)
        channel = stack.enter_context(channel_beside_owner(service))
        ids = [recommend(channel).recommendation_id for _ in range(5)]
        watch = HealthStub(channel).Watch(health_pb2.HealthCheckRequest(service=""), timeout=PATIENCE)
        assert next(watch).status == health_pb2.HealthCheckResponse.SERVING
        os.kill(service.store_pid, signal.SIGSTOP)
        try:
            calls = [posted(channel, one) for one in ids]
            until(lambda: started(service.page("/metrics")[1]) == 5, what="the calls are under way")
            last = pool.submit(next, watch)
            if how == "SIGTERM to the supervisor":
                os.kill(service.pid, signal.SIGTERM)
            else:
                os.killpg(service.pid, signal.SIGINT)
            assert last.result(timeout=PATIENCE).status == health_pb2.HealthCheckResponse.NOT_SERVING
            until(lambda: service.page("/readyz")[0] == 503, what="it is not ready any more")
            assert service.page("/livez")[0] == 200
            assert not any(call.done() for call in calls)
            assert service.running.poll() is None
        finally:
            os.kill(service.store_pid, signal.SIGCONT)
        assert [call.result().outcome for call in calls] == [rpb.REWARD_OUTCOME_ACCEPTED] * 5
        assert service.wait() == 0
        service.until_gone()
        for port in (service.metrics_port, int(service.address.rpartition(":")[2])):
            with socket.socket() as probe:
                assert probe.connect_ex(("127.0.0.1", port)) != 0
        assert not (folder / "valkey.sock").exists()
        assert [record["level"] for record in service.records if record["level"] not in {"INFO", "WARNING"}] == []

        service.start()
        with service.client(tenant="acme") as client:
            assert client.stats("home").observation_count == 5


def test_a_call_that_does_not_end_is_not_waited_for_without_end(folder: Path) -> None:
    with serving(folder, "--drain-seconds=0.5") as service, channel_to(service.address) as channel:
        create(channel)
        shown = recommend(channel).recommendation_id
        os.kill(service.store_pid, signal.SIGSTOP)
        try:
            call = posted(channel, shown)
            until(lambda: started(service.page("/metrics")[1]) == 1, what="the call is under way")
            os.kill(service.pid, signal.SIGTERM)
            assert call.exception(timeout=PATIENCE) is not None
            assert "the store is away" not in service.log
        finally:
            os.kill(service.store_pid, signal.SIGCONT)
        assert service.wait() == 0
        service.until_gone()


def refused_start(*flags: str) -> str:
    """Run serve, which must refuse; return what it says last."""
    done = subprocess.run(
        [COMMAND, "serve", "--http-listen=", *flags],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env=clean_environment(),
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr.splitlines()[-1]


def test_what_is_taken_already_is_refused_and_named(folder: Path, tmp_path: Path) -> None:
    with serving(folder) as service, socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        free, own = "--listen=127.0.0.1:0", f"--data-dir={tmp_path}"
        said = refused_start(f"--listen=127.0.0.1:{port}", own, "--metrics-listen=")
        assert said == f"topk-bandit: listen: 127.0.0.1:{port} can't be used: Address already in use"
        said = refused_start(f"--listen={service.address}", own, "--metrics-listen=")
        assert said == f"topk-bandit: listen: {service.address} can't be used: Address already in use"
        said = refused_start(free, own, f"--http-listen=127.0.0.1:{port}", "--metrics-listen=")
        assert said == f"topk-bandit: http_listen: 127.0.0.1:{port} can't be used: Address already in use"
        said = refused_start(free, own, f"--metrics-listen=127.0.0.1:{port}")
        assert said == f"topk-bandit: metrics can't be served on 127.0.0.1:{port}: Address already in use"
        said = refused_start(free, f"--data-dir={folder}", "--metrics-listen=")
        assert said == (
            f"topk-bandit: data folder {folder} is owned by process {service.pid}; stop it or use another folder"
        )
        with service.client() as client:
            assert list(client.list_bandits()) == []
    assert not (tmp_path / "valkey.sock").exists()
