"""Files of the cold log on real disks: killed writers, full disks, several writers."""

from __future__ import annotations

import gzip
import json
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from tests.faults.test_full_disk import filled, small_disk

from topk_bandit.domain.bandits import BanditName
from topk_bandit.domain.operators import EventText
from topk_bandit.store.cold_log import ColdLog

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

NAME = BanditName("..", "home")
"""The worst of names."""

WRITER = """
import os, signal, sys
from pathlib import Path
from topk_bandit.domain.bandits import BanditName
from topk_bandit.domain.operators import EventText
from topk_bandit.store.cold_log import ColdLog

folder, stage, first, last, size = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])
if stage:
    usual, calls = {"fsync": os.fsync, "rename": Path.rename}, []
    def die_at(name):
        def call(*arguments):
            calls.append(name)
            if f"before {name} {calls.count(name)}" == stage:
                os.kill(os.getpid(), signal.SIGKILL)
            result = usual[name](*arguments)
            if f"after {name} {calls.count(name)}" == stage:
                os.kill(os.getpid(), signal.SIGKILL)
            return result
        return call
    os.fsync, Path.rename = die_at("fsync"), die_at("rename")
cold, name = ColdLog(Path(folder)), BanditName("..", "home")
for start in range(first, last + 1, size):
    positions = range(start, min(last, start + size - 1) + 1)
    cold.append(name, "first", [EventText(at, 1000 + at, b'{"n":%d}' % at) for at in positions])
"""


def events(first: int, last: int) -> list[EventText]:
    return [EventText(at, 1000 + at, b'{"n":%d}' % at) for at in range(first, last + 1)]


def read(cold: ColdLog) -> list[int]:
    """Return the positions of all events in the order of the files, each line checked."""
    found: list[int] = []
    for file in cold.list_files(NAME, "first"):
        head, *lines = gzip.decompress(file.path.read_bytes()).decode().splitlines()
        assert json.loads(head) == {"bandit": str(NAME), "incarnation": "first", "snapshot": None}
        parsed = [json.loads(line) for line in lines]
        assert all(one["event"] == {"n": one["position"]} for one in parsed)
        assert (parsed[0]["position"], parsed[-1]["position"]) == (file.first, file.last)
        assert parsed[-1]["at_ms"] == file.at_ms
        found += [one["position"] for one in parsed]
    return found


def writer(folder: Path, stage: str, *numbers: int) -> Sequence[str]:
    return [sys.executable, "-c", WRITER, str(folder), stage, *map(str, numbers)]


def test_events_are_written_once_and_in_order(tmp_path: Path) -> None:
    cold = ColdLog(tmp_path)
    assert cold.find_end(NAME, "first") == 0
    assert cold.append(NAME, "first", events(3, 9)) == 9
    assert cold.append(NAME, "first", events(5, 12)) == 12
    assert cold.append(NAME, "first", events(4, 12)) == 12
    assert ColdLog(tmp_path).find_end(NAME, "first") == 12
    assert read(cold) == list(range(3, 13))
    assert cold.find_end(NAME, "second") == 0


# Three folders are made, each with an fsync of the one around it; then come that of the file and that of its folder.
STAGES = ("before fsync 2", "before fsync 4", "after fsync 4", "before rename 1", "after rename 1", "after fsync 5")


@pytest.mark.parametrize("stage", [*STAGES, "before fsync 6", "before rename 2", "after rename 2", "after fsync 7"])
def test_a_writer_that_is_killed_in_a_rotation_leaves_no_gap_and_no_double(tmp_path: Path, stage: str) -> None:
    killed = subprocess.run(writer(tmp_path, stage, 1, 30, 10), check=False)
    assert killed.returncode == -signal.SIGKILL
    cold = ColdLog(tmp_path)
    end = cold.find_end(NAME, "first")
    assert read(cold) == list(range(1, end + 1))
    for start in range(1, 31, 7):  # the next one may cut files elsewhere
        cold.append(NAME, "first", events(start, min(30, start + 6)))
    assert read(cold) == list(range(1, 31))


def test_two_writers_write_each_event_once(tmp_path: Path) -> None:
    both = [subprocess.Popen(writer(tmp_path, "", 1, 400, size)) for size in (7, 11)]
    assert [one.wait() for one in both] == [0, 0]
    assert read(ColdLog(tmp_path)) == list(range(1, 401))


def test_a_full_disk_is_an_error_and_leaves_nothing_half(tmp_path: Path) -> None:
    del tmp_path
    with small_disk(1) as folder:
        cold = ColdLog(folder)
        cold.append(NAME, "first", events(1, 10))
        with filled(folder), pytest.raises(OSError, match="No space left"):
            cold.append(NAME, "first", events(11, 2000))
        assert read(cold) == list(range(1, 11))
        assert not list(folder.rglob("unfinished"))
        assert cold.append(NAME, "first", events(11, 2000)) == 2000
        assert read(cold) == list(range(1, 2001))


def test_a_missing_folder_is_not_made(tmp_path: Path) -> None:
    cold = ColdLog(tmp_path / "gone")
    with pytest.raises(FileNotFoundError):
        cold.find_end(NAME, "first")
    with pytest.raises(FileNotFoundError):
        cold.append(NAME, "first", events(1, 2))
    assert not list(tmp_path.iterdir())


def test_old_files_are_removed(tmp_path: Path) -> None:
    cold = ColdLog(tmp_path)
    for start in (1, 11, 21):
        cold.append(NAME, "first", events(start, start + 9))
    assert cold.remove_older(1020) == 1
    assert read(cold) == list(range(11, 31))
    assert cold.append(NAME, "first", events(25, 33)) == 33
