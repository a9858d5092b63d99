"""Imports that are killed at some end: begun again, they end in the model of one that was not."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.faults.service import COMMAND, clean_environment, serving
from tests.long_forms import usual_or_long
from tests.waiting import PATIENCE, until

from topk_bandit.client import NotFound
from topk_bandit.commands.operate.archives import LINES_AT_ONCE, ArchiveFile, archive_lines, examine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.faults.service import Service

    from topk_bandit.client import BanditStats, Client

ROWS = usual_or_long(2000, long=30_000)
KILLS = usual_or_long(2, long=24)
ITEMS = [f"i{number}" for number in range(8)]
HISTORY = "year"
ROUNDS = usual_or_long(800, long=6000)
SOON = 10.0
"""Seconds after which a command gives up whose service is gone; one that did is begun again."""


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
    command.wait(PATIENCE)
    service.start()


def kill_the_store(service: Service, _: subprocess.Popen[str]) -> None:
    os.kill(service.store_pid, signal.SIGKILL)


KINDS = (kill_the_command, kill_a_worker, kill_the_store, kill_everything)


def run_killed(service: Service, words: Callable[[], list[str]], progress: Callable[[], int], *, kills: int = 0) -> int:
    """Run a command until it has come to its end, and kill something at each progress; return all kills by then."""
    before = progress()
    while True:
        command = subprocess.Popen(
            [COMMAND, *words()], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=clean_environment()
        )
        while kills < KILLS and command.poll() is None:
            if (now := progress()) != before:
                KINDS[kills % len(KINDS)](service, command)
                kills, before = kills + 1, now
        _, told = command.communicate(timeout=PATIENCE)
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
        until(lambda: client.verify(bandit), what="it is there again")
        assert client.verify(bandit).agrees
        # When a snapshot is saved is each worker's own affair, and so what is in the store.
        return replace(client.stats(bandit), snapshot_position=0, store_bytes=0)


@pytest.mark.long_form
def test_a_history_ends_in_the_posterior_of_one_that_nothing_was_killed_in(service: Service, tmp_path: Path) -> None:
    path = tmp_path / "year.jsonl"
    write_history(path, np.random.default_rng(5))
    with service.client() as client:
        make(client, "whole")

    def words(bandit: str, timeout: float = PATIENCE) -> list[str]:
        return [
            "import",
            f"shop/{bandit}",
            str(path),
            f"--import-id={HISTORY}",
            f"--timeout={timeout:g}",
            f"--address={service.address}",
        ]

    def progress() -> int:
        with service.client() as client:
            return client.get_import("killed", HISTORY).next_row

    assert subprocess.run([COMMAND, *words("whole")], env=clean_environment(), check=False).returncode == 0
    whole, kills = stats(service, "whole"), 0
    while kills < KILLS:  # an import may end before all has been killed
        with service.client() as client:
            make(client, "killed")
        kills = run_killed(service, lambda: words("killed", SOON), progress, kills=kills)
        killed = stats(service, "killed")
        assert killed.imported_count == whole.imported_count == ROWS
        assert (killed.log_position, killed.posterior_digest) == (whole.log_position, whole.posterior_digest)
        with service.client() as client:
            client.delete_bandit("killed")


def trade(client: Client, bandit: str, rounds: int = ROUNDS) -> None:
    """Give out slates; some have had their reward, and some wait for it."""
    rng = np.random.default_rng(7)
    for number in range(rounds):
        slate = client.recommend(bandit, rng.normal(size=2).tolist(), request_id=f"r{number}")
        if number % 5:
            client.reward(bandit, slate.id, float(rng.normal()))


def export(service: Service, path: Path) -> ArchiveFile:
    words = ["events", "export", "shop/home", f"--out={path}", f"--address={service.address}"]
    subprocess.run([COMMAND, *words], env=clean_environment(), check=True)
    return examine(path)


def arrived(service: Service, archive: ArchiveFile) -> int:
    with service.client() as client:
        return client.import_events("killed", (), import_id=archive.digest, first_line=0).next_line


def arrived_or_ended(service: Service, archive: ArchiveFile, command: subprocess.Popen[str]) -> bool:
    return command.poll() is not None or arrived(service, archive) > 0


def contents(client: Client, bandit: str) -> Counter[str]:
    """Count the lines that a bandit is exported as, but for its name, and for those about the whole of them."""
    first, *lines = archive_lines(client, bandit)
    return Counter([first.replace(f"bandits/{bandit}", ""), *lines[:-1]])


@pytest.mark.long_form
def test_a_bandit_that_arrives_is_the_one_that_left_whatever_is_killed(service: Service, tmp_path: Path) -> None:
    path = tmp_path / "home.jsonl"
    with service.client() as client:
        make(client, "home")
        trade(client, "home")

    archive = export(service, path)

    def words(timeout: float) -> list[str]:
        names = ["events", "import", str(path), "--as=shop/killed"]
        return [*names, f"--timeout={timeout:g}", f"--address={service.address}"]

    left, kills = stats(service, "home"), 0
    with service.client() as client:
        lines = contents(client, "home")
    while kills < KILLS:
        kills = run_killed(service, lambda: words(SOON), lambda: arrived(service, archive), kills=kills)
        # Once more finds that it is done.
        assert subprocess.run([COMMAND, *words(PATIENCE)], env=clean_environment(), check=False).returncode == 0
        assert stats(service, "killed") == left
        with service.client() as client:
            assert contents(client, "killed") == lines
            client.delete_bandit("killed")


def begun(service: Service, words: list[str], archive: ArchiveFile) -> subprocess.Popen[str]:
    """Run a command until some lines have arrived, and hold it; once more if it had ended before that was seen."""
    while True:
        command = subprocess.Popen([COMMAND, *words], stderr=subprocess.PIPE, text=True, env=clean_environment())
        until(partial(arrived_or_ended, service, archive, command), what="the first lines have arrived")
        command.send_signal(signal.SIGSTOP)
        if 0 < arrived(service, archive) < archive.lines and command.poll() is None:
            return command
        command.send_signal(signal.SIGCONT)
        command.communicate(timeout=PATIENCE)
        with service.client() as client, suppress(NotFound):
            client.delete_bandit("killed")


def test_a_command_whose_service_is_gone_ends_in_its_time_and_says_what_has_arrived_for_certain(
    service: Service, tmp_path: Path
) -> None:
    path = tmp_path / "home.jsonl"
    with service.client() as client:
        make(client, "home")
        trade(client, "home", 500)
    archive = export(service, path)
    words = ["events", "import", str(path), "--as=shop/killed", "--timeout=2", f"--address={service.address}"]
    command = begun(service, words, archive)
    service.kill_everything()
    command.send_signal(signal.SIGCONT)
    _, told = command.communicate(timeout=PATIENCE)
    assert command.returncode == 1
    service.start()
    certain = re.search(rf"; at least (\d+) of {archive.lines} lines of {re.escape(str(path))} have arrived; ", told)
    assert certain, told
    # Of the last part nobody but the store knows whether it had arrived.
    assert 0 <= arrived(service, archive) - int(certain[1]) <= LINES_AT_ONCE
    words[-2:] = [f"--timeout={PATIENCE:g}", f"--address={service.address}"]
    assert subprocess.run([COMMAND, *words], env=clean_environment(), check=False).returncode == 0
    assert stats(service, "killed") == stats(service, "home")
