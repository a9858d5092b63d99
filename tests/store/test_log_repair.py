"""A log that is torn or damaged: what is cut off is reported, and what is before it comes back."""

from __future__ import annotations

import os
import random
import shutil
import signal
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import redis
from tests.long_forms import usual_or_long

from topk_bandit.commands.cli import main
from topk_bandit.domain.errors import ConfigurationError
from topk_bandit.store.embedded import EmbeddedStore
from topk_bandit.store.log_repair import examine_log, repair_log

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ENTRIES = 120
TEARS = usual_or_long(3, long=30)


@pytest.fixture
def folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="tkb-"))
    yield folder / "data"
    shutil.rmtree(folder)


def count_entries(store: EmbeddedStore) -> int:
    with redis.Redis.from_url(store.url) as client:
        return int(client.xlen("log"))


def die_with_entries(store: EmbeddedStore) -> Path:
    """Write a log, kill its server, and return the file that it is in."""
    with redis.Redis.from_url(store.url) as client:
        for position in range(1, ENTRIES + 1):
            client.xadd("log", {"event": "x" * 50}, id=f"{position}-0")
    os.kill(store.pid, signal.SIGKILL)
    assert store._process is not None
    store._process.wait()
    (file,) = store.folder.glob("appendonlydir/*.incr.aof")
    return file


def test_what_a_torn_end_cost_is_reported(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    rng = random.Random(9)
    for _ in range(TEARS):
        caplog.clear()
        with EmbeddedStore.start(folder) as store:
            file = die_with_entries(store)
            written = file.read_bytes()
            cut = rng.randint(1, 4096)
            file.write_bytes(written[:-cut])
            assert store.ensure_running()
            [record] = [vars(record) for record in caplog.records if "torn" in record.getMessage()]
            left = written[: record["bytes_left"]]
            assert record["bytes_lost"] == len(written) - cut - len(left)
            assert 0 < record["bytes_lost"] < len(written) // ENTRIES + 60, "no more than one write is torn"
            assert count_entries(store) == left.count(b"XADD")
            assert ENTRIES - cut // 90 - 2 <= count_entries(store) < ENTRIES
        shutil.rmtree(folder)


def test_an_end_that_is_whole_is_not_reported(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    with EmbeddedStore.start(folder) as store:
        die_with_entries(store)
        assert store.ensure_running()
        assert count_entries(store) == ENTRIES
    assert not caplog.records


@pytest.fixture
def damaged(folder: Path) -> tuple[Path, bytes]:
    """A file of a log with garbage after some 40 entries, and what was in it."""
    with EmbeddedStore.start(folder) as store:
        file = die_with_entries(store)
        written = file.read_bytes()
        middle = len(written) // 3
        file.write_bytes(written[:middle] + b"\xff" * 40 + written[middle + 40 :])
        with pytest.raises(ConfigurationError) as refused:
            store.ensure_running()
        assert f"{file} is damaged" in str(refused.value)
        assert f"topk-bandit store repair --data-dir {store.folder}" in str(refused.value)
    return file, file.read_bytes()


def test_a_damaged_log_is_refused_and_repaired(
    folder: Path, damaged: tuple[Path, bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    file, before = damaged
    repair = ["store", "repair", "--data-dir", str(folder)]
    assert main(repair) == 1
    output = capsys.readouterr()
    good = examine_log(folder).good_bytes
    assert output.out == f"{file}: the first {good} of {len(before)} bytes are good\n"
    assert "--yes" in output.err
    assert file.read_bytes() == before
    assert main([*repair, "--yes"]) == 0
    copy = folder / "appendonlydir.damaged-1"
    assert f"cut off {len(before) - good} bytes; the log as it was is in {copy}" in capsys.readouterr().out
    assert (copy / file.name).read_bytes() == before
    assert file.read_bytes() == before[:good]
    assert main(repair) == 0
    assert capsys.readouterr().out == f"{file}: {good} bytes, all of them good\n"
    with EmbeddedStore.start(folder) as store:
        assert count_entries(store) == before[:good].count(b"XADD") > ENTRIES // 4
        with pytest.raises(ConfigurationError, match="is owned by process"):
            repair_log(folder)


def test_a_server_that_was_left_behind_is_in_the_way(folder: Path) -> None:
    with EmbeddedStore.start(folder) as store:
        store._owner.close()  # as if the owner had been killed
        try:
            with pytest.raises(ConfigurationError, match=f"left behind, process {store.pid}"):
                examine_log(folder)
        finally:
            store._kill()


def test_a_folder_without_a_log_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["store", "repair", "--data-dir", str(tmp_path)]) == 1
    assert "there is no log of a store in" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("command", ["start", "repair"])
def test_a_log_without_its_manifest_is_refused_and_left_as_it_is(
    folder: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    with EmbeddedStore.start(folder) as store, redis.Redis.from_url(store.url) as client:
        client.set("kept", 1)
    manifest = folder / "appendonlydir/appendonly.aof.manifest"
    text = manifest.read_text()
    (log,) = folder.glob("appendonlydir/*.incr.aof")
    before = log.read_bytes()
    manifest.unlink()
    said = (
        "appendonlydir has appendonly.aof.1.incr.aof and no appendonly.aof.manifest, which names the files of the log"
    )
    if command == "start":
        with pytest.raises(ConfigurationError, match=said):
            EmbeddedStore.start(folder)
    else:
        assert main(["store", "repair", "--data-dir", str(folder)]) == 1
        assert said in capsys.readouterr().err
    assert log.read_bytes() == before
    assert not manifest.exists()
    manifest.write_text(text)
    with EmbeddedStore.start(folder) as store, redis.Redis.from_url(store.url) as client:
        assert client.get("kept") == b"1"


def test_a_server_that_ended_as_it_began_its_first_log_is_no_loss(folder: Path) -> None:
    EmbeddedStore.start(folder).stop()
    (folder / "appendonlydir/appendonly.aof.manifest").unlink()
    EmbeddedStore.start(folder).stop()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda log: (log / "appendonly.aof.manifest").write_text("garbage\n"), "manifest, line 1: names no file of a"),
        (lambda log: next(log.glob("*.incr.aof")).unlink(), "has no appendonly.aof.1.incr.aof, which appendonly.aof."),
        (lambda log: next(log.glob("*.rdb")).unlink(), "has no appendonly.aof.1.base.rdb, which appendonly.aof."),
    ],
)
def test_a_manifest_that_names_other_files_is_not_good(
    folder: Path, capsys: pytest.CaptureFixture[str], change: Callable[[Path], object], said: str
) -> None:
    with EmbeddedStore.start(folder) as store, redis.Redis.from_url(store.url) as client:
        client.set("kept", 1)
    change(folder / "appendonlydir")
    assert main(["store", "repair", "--data-dir", str(folder)]) == 1
    assert said in capsys.readouterr().err
