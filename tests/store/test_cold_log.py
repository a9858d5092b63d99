"""Files of the cold log on real disks: killed writers, full disks, several writers."""

from __future__ import annotations

import gzip
import json
import random
import re
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from tests.faults.test_full_disk import filled, small_disk

from topk_bandit.domain.bandits import BanditName
from topk_bandit.domain.errors import CorruptDataError
from topk_bandit.domain.operators import EventText
from topk_bandit.store.cold_log import ColdLog
from topk_bandit.store.event_keys import group_key, recommendation_key

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

first, last, size = map(int, sys.argv[1:4])

def die_at(stage):
    usual, calls = {"fsync": os.fsync, "rename": Path.rename}, []
    def counted(name):
        def call(*arguments):
            calls.append(name)
            if f"before {name} {calls.count(name)}" == stage:
                os.kill(os.getpid(), signal.SIGKILL)
            result = usual[name](*arguments)
            if f"after {name} {calls.count(name)}" == stage:
                os.kill(os.getpid(), signal.SIGKILL)
            return result
        return call
    os.fsync, Path.rename = counted("fsync"), counted("rename")

def write(folder):
    cold, name = ColdLog(Path(folder)), BanditName("..", "home")
    for start in range(first, last + 1, size):
        positions = range(start, min(last, start + size - 1) + 1)
        cold.append(name, "first", [EventText(at, 1000 + at, b'{"n":%d}' % at) for at in positions])

for folder in sys.argv[4:]:
    stage = Path(folder).name
    if " " not in stage:
        write(folder)
        continue
    child = os.fork()
    if not child:
        die_at(stage)
        write(folder)
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
"""Writes into each folder; in one that has the name of a stage by a process that dies there, whose end it prints."""


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


def end_of(cold: ColdLog) -> int:
    newest = cold.find_newest(NAME, "first")
    return 0 if newest is None else newest.last


def writer(first: int, last: int, size: int, *folders: Path) -> Sequence[str]:
    return [sys.executable, "-c", WRITER, *map(str, (first, last, size, *folders))]


def test_events_are_written_once_and_in_order(tmp_path: Path) -> None:
    cold = ColdLog(tmp_path)
    assert cold.find_newest(NAME, "first") is None
    assert cold.append(NAME, "first", events(3, 9)) == 9
    assert cold.append(NAME, "first", events(5, 12)) == 12
    assert cold.append(NAME, "first", events(4, 12)) == 12
    assert end_of(ColdLog(tmp_path)) == 12
    assert read(cold) == list(range(3, 13))
    assert cold.find_newest(NAME, "second") is None


# Three folders are made, each with an fsync of the one around it; then come, of the index and of the file, that of
# itself and that of its folder.
STAGES = tuple(
    f"{when} {call}"
    for call in ("fsync 4", "rename 1", "fsync 5", "fsync 6", "rename 2", "fsync 7", "rename 3", "rename 4", "fsync 11")
    for when in ("before", "after")
)


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return what a writer left that was killed, by the stage in which it was."""
    folder = tmp_path_factory.mktemp("killed")
    left = {stage: folder / stage for stage in ("before fsync 2", *STAGES)}
    for one in left.values():
        one.mkdir()
    ended = subprocess.run(writer(1, 30, 10, *left.values()), stdout=subprocess.PIPE, text=True, check=True)
    assert ended.stdout.split() == [str(-signal.SIGKILL)] * len(left)
    return left


@pytest.mark.parametrize("stage", ["before fsync 2", *STAGES])
def test_a_writer_that_is_killed_in_a_rotation_leaves_no_gap_and_no_double(killed: dict[str, Path], stage: str) -> None:
    cold = ColdLog(killed[stage])
    end = end_of(cold)
    assert read(cold) == list(range(1, end + 1))
    for start in range(1, 31, 7):  # the next one may cut files elsewhere
        cold.append(NAME, "first", events(start, min(30, start + 6)))
    assert read(cold) == list(range(1, 31))
    assert all(file.index.exists() for file in cold.list_files(NAME, "first"))


def test_two_writers_write_each_event_once(tmp_path: Path) -> None:
    both = [subprocess.Popen(writer(1, 400, size, tmp_path)) for size in (7, 11)]
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
        cold.find_newest(NAME, "first")
    with pytest.raises(FileNotFoundError):
        cold.append(NAME, "first", events(1, 2))
    assert not list(tmp_path.iterdir())


def test_old_files_are_removed(tmp_path: Path) -> None:
    cold = ColdLog(tmp_path)
    for start in (1, 11, 21):
        cold.append(NAME, "first", events(start, start + 9))
    assert cold.set_aside(NAME, "first", after=25) == 5
    assert read(cold) == list(range(1, 26))
    assert cold.append(NAME, "first", events(26, 30)) == 30
    assert cold.remove_older(1020) == 1
    assert read(cold) == list(range(11, 31))
    assert cold.remove_older(1031) == 4
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["lock"]
    for start in (11, 21):
        cold.append(NAME, "first", events(start, start + 9))
    assert len(list(tmp_path.rglob("*.index"))) == 2
    assert cold.append(NAME, "first", events(25, 33)) == 33


def named(position: int, **fields: object) -> EventText:
    return EventText(position, 1000 + position, json.dumps(fields).encode())


@pytest.mark.parametrize("entries", [3, 340])
def test_events_are_found_by_their_names_with_an_index_and_without(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, entries: int
) -> None:
    monkeypatch.setattr("topk_bandit.store.event_index.ENTRIES_PER_BLOCK", entries)
    draw, cold = random.Random(3), ColdLog(tmp_path)
    every: list[EventText] = []
    for position in range(1, 401):
        name, group = f"slate \u00e9 {draw.randrange(90)}", f"visitor {draw.randrange(20)}"
        asked = {"group_key": group} if draw.random() < 0.7 else {}
        kinds: list[dict[str, object]] = [
            {"type": "recommended", "request": asked, "recommendation": {"recommendation_id": name}},
            {"type": "rewarded", "recommendation_id": name},
            {"type": "settings_changed"},
        ]
        every.append(named(position, **draw.choice(kinds)))
    for start in range(0, 400, 64):
        cold.append(NAME, "first", every[start : start + 64])
    files = cold.list_files(NAME, "first")
    for key in (
        *(recommendation_key(f"slate \u00e9 {n}") for n in range(91)),
        *(group_key(f"visitor {n}") for n in range(21)),
    ):
        field = "recommendation_id" if key == recommendation_key(key.name) else "group_key"
        wanted = [one for one in every if f'"{field}": {json.dumps(key.name)}' in one.text.decode()]
        assert [one for file in files for one in file.find(key)] == wanted
    files[2].index.unlink()
    assert [one for file in files for one in file.find(key)] == wanted
    assert not caplog.text
    # An index that is cut, damaged or of another file hides nothing.
    whole, other = files[1].index.read_bytes(), files[0].index.read_bytes()
    for damaged in (
        b"",
        whole[: len(whole) // 2],
        whole[:-1],
        bytes(len(whole)),
        other,
        whole[:40] + b"\xff" + whole[41:],
    ):
        files[1].index.write_bytes(damaged)
        caplog.clear()
        assert [one for file in files for one in file.find(key)] == wanted
        assert f"{files[1].index} is damaged" in caplog.text or entries < 340
    files[1].index.write_bytes(whole)
    assert [one for file in files for one in file.read()] == every
    assert [file.read_begin_ms() for file in files] == [1001 + start for start in range(0, 400, 64)]


def test_names_with_one_digest_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("topk_bandit.store.event_keys.EventKey.digest", b"12345678")
    cold, every = ColdLog(tmp_path), [named(at, recommendation_id=f"slate {at % 3}") for at in range(1, 10)]
    cold.append(NAME, "first", every)
    (file,) = cold.list_files(NAME, "first")
    assert file.find(recommendation_key("slate 1")) == [every[0], every[3], every[6]]
    assert file.find(group_key("slate 1")) == []


def test_a_file_of_another_bandit_is_damaged(tmp_path: Path) -> None:
    cold, twin = ColdLog(tmp_path), BanditName("..", "twin")
    for name, incarnation in ((NAME, "first"), (NAME, "second"), (twin, "first")):
        cold.append(name, incarnation, events(1, 9))
    (file,) = cold.list_files(NAME, "first")
    for name, incarnation in ((NAME, "second"), (twin, "first")):
        (other,) = cold.list_files(name, incarnation)
        file.path.write_bytes(other.path.read_bytes())
        for read_it in (file.read, file.read_begin_ms):
            with pytest.raises(CorruptDataError, match=r"of another bandit.*" + incarnation):
                read_it()


def test_a_file_that_is_damaged_is_named(tmp_path: Path) -> None:
    cold = ColdLog(tmp_path)
    cold.append(NAME, "first", [named(at, recommendation_id="slate") for at in range(1, 10)])
    (file,) = cold.list_files(NAME, "first")
    whole = file.path.read_bytes()
    lines = gzip.decompress(whole)
    for damaged in (
        b"",
        whole[:40],
        whole[:-9],
        b"no gzip",
        gzip.compress(lines[:-40]),
        gzip.compress(lines[:-1] + b"x"),
    ):
        file.path.write_bytes(damaged)
        for read_it in (file.read, lambda: file.find(recommendation_key("slate"))):
            with pytest.raises(CorruptDataError, match=re.escape(str(file.path))):
                read_it()
    file.path.write_bytes(b"no gzip")
    with pytest.raises(CorruptDataError, match=re.escape(str(file.path))):
        file.read_begin_ms()
