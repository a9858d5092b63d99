"""Files that commands write are whole, or as they were before; a screen that takes nothing is an error in a line."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from topk_bandit.commands.whole_files import write_whole
from topk_bandit.domain.errors import ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path


def test_a_file_is_replaced_at_the_end_and_keeps_its_mode(tmp_path: Path) -> None:
    file = tmp_path / ("long" * 60)
    file.write_text("before")
    file.chmod(0o600)
    with write_whole(file) as draft:
        draft.write_text("after")
        assert file.read_text() == "before"
    assert file.read_text() == "after"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize(
    ("error", "raised"), [(RuntimeError("gone"), RuntimeError), (OSError(28, "full"), ConfigurationError)]
)
def test_what_a_file_held_stays_when_its_writing_fails(
    tmp_path: Path, error: Exception, raised: type[Exception]
) -> None:
    file = tmp_path / "log.jsonl"
    file.write_text("before")

    def fail() -> None:
        with write_whole(file) as draft:
            draft.write_text("half")
            raise error

    with pytest.raises(raised):
        fail()
    assert file.read_text() == "before"
    assert list(tmp_path.iterdir()) == [file]


def test_a_file_in_a_folder_that_takes_no_other_is_whole_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder is as one that another user owns; who runs the tests may be the one whom no folder refuses."""
    file, drafts = tmp_path / "log.jsonl", tmp_path / "drafts"
    drafts.mkdir()
    file.write_text("before")
    monkeypatch.setattr("topk_bandit.commands.whole_files.gettempdir", lambda: str(drafts))
    allowed = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: path != tmp_path and allowed(path, mode))
    with pytest.raises(ConfigurationError), write_whole(file) as draft:
        raise OSError(28, str(draft.write_text("half")))
    assert file.read_text() == "before"
    with write_whole(file) as draft:
        draft.write_text("after")
        assert (file.read_text(), draft.parent) == ("before", drafts)
    assert file.read_text() == "after"
    assert list(drafts.iterdir()) == []


def test_two_files_of_one_folder_do_not_mix(tmp_path: Path) -> None:
    with write_whole(tmp_path / "a") as one, write_whole(tmp_path / "b") as other:
        one.write_text("a")
        other.write_text("b")
    assert ((tmp_path / "a").read_text(), (tmp_path / "b").read_text()) == ("a", "b")


def test_a_closed_standard_output_breaks_no_command(tmp_path: Path) -> None:
    command = (
        f"{sys.executable} -m topk_bandit keys create --keys-file {tmp_path / 'keys'} --tenant=a --scope=reward >&-"
    )
    ended = subprocess.run(command, shell=True, stderr=subprocess.PIPE, text=True, check=False)
    assert "Traceback" not in ended.stderr


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    def write() -> None:
        with write_whole(tmp_path / "no" / "x") as draft:
            draft.write_text("text")

    with pytest.raises(ConfigurationError, match="x can't be written: No such file"):
        write()


def test_a_link_and_a_pipe_stay_what_they_are(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "file")
    with write_whole(tmp_path / "link") as draft:
        draft.write_text("text")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_text() == "text"
    os.mkfifo(tmp_path / "pipe")
    with write_whole(tmp_path / "pipe") as draft:
        assert draft == tmp_path / "pipe"
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full, which Linux has")  # noqa: PTH110
@pytest.mark.parametrize("words", ["config print", "--help", "serve --help", "--version"])
def test_a_full_disk_below_standard_output_is_an_error_in_a_line(words: str) -> None:
    command = [sys.executable, "-m", "topk_bandit", *words.split()]
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with open("/dev/full", "w") as full:  # noqa: PTH123
        ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False, env=buffered)
    assert ended.returncode == 1
    assert ended.stderr == "topk-bandit: the output can't be written: No space left on device\n"
