from __future__ import annotations

import asyncio
import logging
import os
from typing import TYPE_CHECKING

import pytest
from tests.waiting import until_async

from topk_bandit.domain.errors import ConfigurationError
from topk_bandit.process.file_watch import FileWatch
from topk_bandit.rpc.regular_files import read_regular

if TYPE_CHECKING:
    from pathlib import Path


class Reader:
    """Takes a file in, unless it says "bad"."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.taken: list[str] = []

    def take(self) -> None:
        text = self.file.read_text() if self.file.exists() else "bad"
        if text == "bad":
            raise ConfigurationError(f"keys_file: {self.file} is bad")
        self.taken.append(text)


@pytest.fixture
def reader(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Reader:
    caplog.set_level(logging.INFO)
    (tmp_path / "keys").write_text("one")
    return Reader(tmp_path / "keys")


def levels(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = [record.levelname for record in caplog.records]
    caplog.clear()
    return found


def test_what_changed_is_taken_in_once(reader: Reader, caplog: pytest.LogCaptureFixture) -> None:
    watch = FileWatch("keys_file", [reader.file], reader.take)
    watch.look()
    watch.look()
    assert (reader.taken, levels(caplog)) == (["one"], [])
    times = reader.file.stat()
    reader.file.write_text("two")
    os.utime(reader.file, ns=(times.st_atime_ns, times.st_mtime_ns))  # as large as before, and as old
    watch.look()
    watch.look()
    assert (reader.taken, levels(caplog)) == (["one", "two"], ["INFO"])


@pytest.mark.parametrize("gone", [True, False])
def test_what_is_bad_is_logged_once_and_taken_in_when_it_is_good(
    reader: Reader,
    caplog: pytest.LogCaptureFixture,
    gone: bool,  # noqa: FBT001
) -> None:
    watch = FileWatch("keys_file", [reader.file], reader.take)
    watch.look()
    if gone:
        reader.file.unlink()
    else:
        reader.file.write_text("bad")
    for _ in range(3):
        watch.look()
    assert "is bad; what was read before stays in use" in caplog.text
    assert (reader.taken, levels(caplog)) == (["one"], ["ERROR"])
    reader.file.write_text("two")
    watch.look()
    assert (reader.taken, levels(caplog)) == (["one", "two"], ["INFO"])


def test_what_is_refused_for_another_reason_than_what_it_holds_is_tried_again(
    reader: Reader, caplog: pytest.LogCaptureFixture
) -> None:
    """Such as its mode, as an error of the keys file says, or a disk that failed for a while."""
    allowed = False

    def take() -> None:
        if not allowed:
            raise ConfigurationError("keys_file: can be written by every user")
        reader.take()

    watch = FileWatch("keys_file", [reader.file], take)
    for _ in range(3):
        watch.look()
    assert (reader.taken, levels(caplog)) == ([], ["ERROR"])
    allowed = True
    for _ in range(3):
        watch.look()
    assert (reader.taken, levels(caplog)) == (["one"], ["INFO"])


def test_a_pipe_in_the_place_of_a_file_stops_no_looking(reader: Reader, caplog: pytest.LogCaptureFixture) -> None:
    def take() -> None:
        try:
            reader.taken.append(read_regular(reader.file).decode())
        except OSError as error:
            raise ConfigurationError(f"keys_file: {error.strerror}") from None

    watch = FileWatch("keys_file", [reader.file], take)
    watch.look()
    reader.file.unlink()
    os.mkfifo(reader.file)
    for _ in range(2):
        watch.look()
    assert "keys_file: it is no regular file; what was read before stays in use" in caplog.text
    reader.file.unlink()
    reader.file.mkdir()
    watch.look()
    reader.file.rmdir()
    reader.file.write_text("two")
    watch.look()
    assert reader.taken == ["one", "two"]


def test_a_link_that_leads_elsewhere_is_a_change(reader: Reader, tmp_path: Path) -> None:
    """Kubernetes changes a mounted secret so."""
    (tmp_path / "other").write_text("two")
    link = tmp_path / "link"
    link.symlink_to(reader.file)
    linked = Reader(link)
    watch = FileWatch("keys_file", [link], linked.take)
    watch.look()
    link.unlink()
    link.symlink_to(tmp_path / "other")
    watch.look()
    assert linked.taken == ["one", "two"]


def test_it_goes_on_looking_whatever_happens(reader: Reader, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        def take() -> None:
            reader.take()
            raise ZeroDivisionError

        looking = asyncio.create_task(FileWatch("keys_file", [reader.file], take, look_seconds=0.001).run())
        for number in range(3):
            await until_async(lambda seen=number: len(reader.taken) > seen, what="it is taken in")
            reader.file.write_text(f"again {number}")
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)

    asyncio.run(scenario())
    assert "keys_file can't be looked at" in caplog.text
