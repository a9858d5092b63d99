"""No room for the embedded store, or none of its starts succeeds: the service goes on without it until it can start."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.faults.service import Service, serving
from tests.long_forms import usual_or_long
from tests.rpc.harness import channel_to
from tests.rpc.wire import HOME, create, recommend, refused
from tests.waiting import PATIENCE, until

from topk_bandit.v1 import recommender_service_pb2 as rpb
from topk_bandit.v1.recommender_service_pb2_grpc import RecommenderServiceStub

if TYPE_CHECKING:
    from collections.abc import Iterator

    import grpc

ROUNDS = usual_or_long(1, long=5)
STAYS = usual_or_long(1.0, long=15.0)


@contextmanager
def small_disk(megabytes: int = 12) -> Iterator[Path]:
    """A disk of its own, which a test can fill without harm."""
    folder = Path(tempfile.mkdtemp(prefix="tkb-"))
    mount = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "none", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        folder.rmdir()
        pytest.skip("only root may mount a small disk")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)
        folder.rmdir()


def write_without_end(descriptor: int) -> None:
    while True:
        os.write(descriptor, bytes(4096))


@contextmanager
def filled(folder: Path) -> Iterator[None]:
    """Leave no byte free for the block."""
    hog = folder / "hog"
    descriptor = os.open(hog, os.O_CREAT | os.O_WRONLY)
    try:
        with pytest.raises(OSError, match="No space left on device"):
            write_without_end(descriptor)
        yield
    finally:
        os.close(descriptor)
        hog.unlink()


def posted(channel: grpc.Channel, recommendation_id: str) -> rpb.RewardResponse:
    request = rpb.RewardRequest(bandit=HOME, recommendation_id=recommendation_id, value=1.0)
    return RecommenderServiceStub(channel).Reward(request, timeout=PATIENCE)


def until_without_store(channel: grpc.Channel) -> None:
    until(lambda: recommend(channel).degraded, what="slates are not recorded")


def assert_lives_without_store(channel: grpc.Channel, *, owed: str, seconds: float) -> None:
    """Hold for a while that slates are given out without a record, and that rewards are refused."""
    stub = RecommenderServiceStub(channel)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        slate = recommend(channel)
        assert slate.degraded
        refusal = refused(stub.Reward, rpb.RewardRequest(bandit=HOME, recommendation_id=owed, value=1.0))
        assert (refusal.code, refusal.retry_after is not None) == ("UNAVAILABLE", True)
        time.sleep(0.05)


def assert_recovers(channel: grpc.Channel, *, owed: str) -> None:
    until(lambda: not recommend(channel).degraded, what="slates are recorded again")
    until(lambda: posted(channel, owed), what="rewards are taken again")
    # A reward that was refused may have been taken all the same, which the same one posted again finds out.
    assert posted(channel, owed).outcome == rpb.REWARD_OUTCOME_DUPLICATE


def lines_about_store(service: Service) -> list[str]:
    about = [record["message"] for record in service.records if "embedded store" in record.get("message", "")]
    return [message.partition(";")[0] for message in about]


@pytest.mark.long_form
@pytest.mark.parametrize("fsync", ["always", "everysec"])
def test_a_full_disk_ends_nothing(fsync: str) -> None:
    with small_disk() as disk, serving(disk / "data", f"--fsync={fsync}") as service:
        with channel_to(service.address) as channel:
            create(channel)
            acknowledged = 0
            for _ in range(ROUNDS):
                owed = recommend(channel).recommendation_id
                workers = service.worker_pids
                with filled(disk):
                    until_without_store(channel)
                    assert_lives_without_store(channel, owed=owed, seconds=STAYS)
                assert_recovers(channel, owed=owed)
                acknowledged += 1
                assert service.running.poll() is None
                assert service.worker_pids == workers
            with service.client(tenant="acme") as client:
                assert client.stats("home").observation_count == acknowledged
        told = lines_about_store(service)[1:]
        assert told == (
            ["the embedded store is away", "the embedded store is back"] * ROUNDS if fsync == "always" else []
        )
        os.kill(service.pid, signal.SIGTERM)
        assert service.wait() == 0


def test_a_service_without_its_store_can_be_stopped() -> None:
    with small_disk() as disk, serving(disk / "data") as service:
        with channel_to(service.address) as channel, filled(disk):
            unknown = refused(RecommenderServiceStub(channel).Recommend, rpb.RecommendRequest(bandit=HOME))
            assert unknown.code == "NOT_FOUND"
            os.kill(service.store_pid, signal.SIGKILL)
            until(lambda: "is away" in service.log, what="it has noticed")
            os.kill(service.pid, signal.SIGTERM)
            assert service.wait() == 0
        service.until_gone()


def test_a_start_on_a_full_disk_says_so_in_one_line() -> None:
    with small_disk() as disk, filled(disk), serving(disk / "data", start=False) as service:
        service.spawn()
        assert service.wait() == 1
        said = [record["raw"] for record in service.records if "raw" in record]
        problem = "1 MiB can't be written to it: No space left on device"
        assert said == [f"topk-bandit: data folder {disk}/data can't be used: {problem}"]
        service.until_gone()


def test_a_store_that_does_not_start_is_tried_until_it_does(folder: Path) -> None:
    """What hinders it is a file that a careless restore left, for example."""
    with serving(folder) as service, channel_to(service.address) as channel:
        create(channel)
        owed = recommend(channel).recommendation_id
        manifest = folder / "appendonlydir" / "appendonly.aof.manifest"
        shutil.copy(manifest, folder / "kept")
        manifest.write_text("nonsense\n")
        os.kill(service.store_pid, signal.SIGKILL)
        until_without_store(channel)
        assert_lives_without_store(channel, owed=owed, seconds=STAYS)
        (folder / "kept").replace(manifest)
        assert_recovers(channel, owed=owed)
        assert lines_about_store(service)[1:] == ["the embedded store is away", "the embedded store is back"]
        assert any("Invalid AOF manifest" in record["message"] for record in service.records)


def test_a_full_temporary_folder_ends_nothing_either(folder: Path) -> None:
    """The metrics are there, in files that are written to as memory, whose writer dies where the disk has no room."""
    with (
        small_disk() as disk,
        serving(folder, variables={"TMPDIR": str(disk)}) as service,
        channel_to(service.address) as channel,
        filled(disk),
    ):
        create(channel)
        [worker] = service.worker_pids
        os.kill(worker, signal.SIGKILL)
        until(lambda: service.worker_pids not in ([], [worker]), what="another worker is started")
        until(lambda: not recommend(channel).degraded, what="it serves")
        status, page = service.page("/metrics")
        assert status == 200
        assert "grpc_server_handled_total" in page
        assert sum("died" in record["message"] for record in service.records) == 1
