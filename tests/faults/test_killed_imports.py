"""Histories whose import is killed at some end: begun again, they end in the model of one that was not."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.faults.service import COMMAND, clean_environment, serving
from tests.long_forms import usual_or_long

from topk_bandit.client import ClientError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.faults.service import Service

    from topk_bandit.client import BanditStats, Client

ROWS = usual_or_long(4000, long=30_000)
KILLS = usual_or_long(2, long=24)
ITEMS = [f"i{number}" for number in range(8)]
HISTORY = "year"


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with serving(tmp_path / "data", "--workers=2") as service:
        yield service


def kill_the_command(_: Service, command: subprocess.Popen[str]) -> None:
    command.kill()


def kill_a_worker(service: Service, _: subprocess.Popen[str]) -> None:
    for pid in sorted(service.worker_pids)[:1]:
        os.kill(pid, signal.SIGKILL)


def kill_everything(service: Service, command: subprocess.Popen[str]) -> None:
    service.kill_everything()
    command.wait(60.0)
    service.start()


KINDS = (kill_the_command, kill_a_worker, kill_everything)


def run_killed(service: Service, words: Callable[[], list[str]], progress: Callable[[], int]) -> int:
    """Run a command until it has come to its end, and kill something at each progress; return the kills."""
    kills, before = 0, progress()
    while True:
        command = subprocess.Popen(
            [COMMAND, *words()], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=clean_environment()
        )
        while kills < KILLS and command.poll() is None:
            if (now := progress()) != before:
                KINDS[kills % len(KINDS)](service, command)
                kills, before = kills + 1, now
        _, told = command.communicate(timeout=300.0)
        if command.returncode == 0:
            return kills
        assert command.returncode in {-signal.SIGKILL, 1}, told
        assert "Traceback" not in told


def make(client: Client, bandit: str) -> None:
    client.create_bandit(bandit, slate_size=3, item_capacity=16, context_dimension=2)
    client.upsert_items(bandit, ITEMS)


def write_history(path: Path, rng: np.random.Generator) -> None:
    with path.open("w") as file:
        for number in range(ROWS):
            shown = [ITEMS[place] for place in rng.permutation(len(ITEMS))[:3]]
            row = {"items": shown, "reward": float(rng.normal()), "time": 1_760_000_000 + number}
            file.write(json.dumps({**row, "context": rng.normal(size=2).tolist()}) + "\n")


def stats(service: Service, bandit: str) -> BanditStats:
    with service.client() as client:
        deadline = time.monotonic() + 60.0
        while True:
            try:
                assert client.verify(bandit).agrees
                return client.stats(bandit)
            except ClientError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)


@pytest.mark.long_form
def test_a_history_ends_in_the_posterior_of_one_that_nothing_was_killed_in(service: Service, tmp_path: Path) -> None:
    path = tmp_path / "year.jsonl"
    write_history(path, np.random.default_rng(5))
    with service.client() as client:
        for bandit in ("whole", "killed"):
            make(client, bandit)

    def words(bandit: str) -> list[str]:
        return [
            "import",
            f"shop/{bandit}",
            str(path),
            f"--import-id={HISTORY}",
            "--timeout=10",
            f"--address={service.address}",
        ]

    def progress() -> int:
        with service.client() as client:
            return client.get_import("killed", HISTORY).next_row

    assert subprocess.run([COMMAND, *words("whole")], env=clean_environment(), check=False).returncode == 0
    assert run_killed(service, lambda: words("killed"), progress) == KILLS
    whole, killed = stats(service, "whole"), stats(service, "killed")
    assert killed.imported_count == whole.imported_count == ROWS
    assert (killed.log_position, killed.posterior_digest) == (whole.log_position, whole.posterior_digest)
