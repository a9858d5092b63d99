"""A disk that takes long for each write: the embedded store's fsync is held up by strace, which stands for it."""

from __future__ import annotations

import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from tests.faults.service import serving
from tests.programs import find_program
from tests.waiting import until

from topk_bandit.client import ClientError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.faults.service import Service

    from topk_bandit.client import Client


@contextmanager
def slow_disk(service: Service, *, seconds: float) -> Iterator[None]:
    """Have each write to the disk take so much longer until the end of the block."""
    calls = "fsync,fdatasync"
    delayed = f"inject={calls}:delay_enter={seconds * 1e6:.0f}"
    watched = ["-e", f"trace={calls}", "-e", delayed, "-p", str(service.store_pid)]
    tracer = subprocess.Popen([find_program("strace"), "-f", *watched], stderr=subprocess.PIPE, text=True)
    assert tracer.stderr is not None
    first = tracer.stderr.readline()
    if "attached" not in first:
        pytest.skip(f"no process may be held up here: {first}")
    try:
        yield
    finally:
        tracer.terminate()
        tracer.communicate()


def trade(client: Client, rounds: int) -> tuple[int, int]:
    """Return how many rewards were acknowledged, and how many slates were degraded."""
    acknowledged = degraded = 0
    for _ in range(rounds):
        slate = client.recommend("home")
        degraded += slate.degraded
        if not slate.degraded:
            try:
                client.reward("home", slate.id, 1.0)
            except ClientError:
                continue
            acknowledged += 1
    return acknowledged, degraded


def test_a_slow_disk_makes_calls_slow_or_degrades_slates_and_loses_nothing(tmp_path: Path) -> None:
    with serving(tmp_path, variables={"TOPK_BANDIT_STORE_TIMEOUT_SECONDS": "2"}) as service:
        with service.client() as client:
            client.create_bandit("home", slate_size=2, item_capacity=6)
            client.upsert_items("home", ["a", "b", "c", "d"])
            acknowledged, _ = trade(client, 10)
            with slow_disk(service, seconds=0.05):
                acknowledged += trade(client, 5)[0]
            with slow_disk(service, seconds=3.0):
                more, degraded = trade(client, 5)
                acknowledged += more
                assert degraded, "slates go on without the store"
            until(lambda: not client.recommend("home").degraded, what="slates are recorded again")
            acknowledged += trade(client, 5)[0]
        service.kill_everything()
        service.start()
        with service.client() as client:
            known = client.stats("home")
            assert known.observation_count >= acknowledged >= 15
            assert known.lost_event_count == 0
