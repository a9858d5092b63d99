"""Whose folder of metrics is removed, and whose never."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from typing import TYPE_CHECKING

import pytest
from tests.faults.service import serving
from tests.waiting import until

from topk_bandit.process.metrics_folder import PREFIX, metrics_folder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HOLDER = """
from topk_bandit.process.metrics_folder import metrics_folder
with metrics_folder() as folder:
    print(folder, flush=True)
    input()
"""


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


@pytest.fixture
def holder(temporary: Path) -> Iterator[subprocess.Popen[str]]:
    """Return a process that holds a folder."""
    process = subprocess.Popen([sys.executable, "-c", HOLDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline().startswith(str(temporary / PREFIX))
    yield process
    process.kill()
    process.communicate()


def folders(temporary: Path) -> list[Path]:
    return sorted(temporary.iterdir())


def test_a_folder_is_there_for_as_long_as_it_is_used(temporary: Path) -> None:
    with metrics_folder() as folder:
        assert folders(temporary) == [folder]
        assert folder.name.startswith(PREFIX)
    assert folders(temporary) == []


def test_the_folder_of_a_living_process_is_left_alone(temporary: Path, holder: subprocess.Popen[str]) -> None:
    theirs = folders(temporary)
    with metrics_folder() as ours:
        assert folders(temporary) == sorted([*theirs, ours])
    holder.communicate("\n")
    assert holder.returncode == 0
    assert folders(temporary) == []


def test_the_folder_of_a_killed_process_is_removed_by_the_next(temporary: Path, holder: subprocess.Popen[str]) -> None:
    (folders(temporary)[0] / "counter_1.db").write_bytes(b"1")
    holder.kill()
    holder.wait()
    assert len(folders(temporary)) == 1
    with metrics_folder() as ours:
        assert folders(temporary) == [ours]


def test_what_only_looks_like_a_folder_of_metrics_stays(temporary: Path) -> None:
    elsewhere = temporary / "elsewhere"
    elsewhere.mkdir()
    link = temporary / f"{PREFIX}link"
    link.symlink_to(elsewhere, target_is_directory=True)
    file = temporary / f"{PREFIX}file"
    file.write_text("")
    with metrics_folder():
        pass
    assert folders(temporary) == sorted([elsewhere, link, file])


@pytest.mark.slow
def test_a_killed_supervisor_leaves_nothing_after_the_next_start(tmp_path_factory: pytest.TempPathFactory) -> None:
    def held() -> list[Path]:
        return sorted(service.temporary.glob(f"{PREFIX}*"))

    with serving(tmp_path_factory.mktemp("data"), "--workers=1") as service:
        left = held()
        assert len(left) == 1
        service.kill_supervisor()
        service.wait()
        assert held() == left
        service.start()
        ours = held()
        assert len(ours) == 1
        assert ours != left
        assert "topk_bandit_models" in service.page("/metrics")[1]
        os.kill(service.pid, signal.SIGTERM)
        assert service.wait() == 0
        until(lambda: not held(), what="a service that ends removes its own")
