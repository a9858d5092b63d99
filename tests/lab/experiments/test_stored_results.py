"""Experiments that were stopped go on where they were, with the same numbers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.waiting import PATIENCE, until

from topk_bandit.commands.cli import main
from topk_bandit.domain.errors import ConfigurationError
from topk_bandit.lab.experiments import stored_results as kept_module
from topk_bandit.lab.experiments.plan import Axis, Job, Panel, Plan, stack_trials
from topk_bandit.lab.experiments.stored_results import Measurement, StoredResults, digest_of

if TYPE_CHECKING:
    from pathlib import Path

WORDS = ("figure-2", "--trials=1", "--rounds=5", "--seed=3")


def plan(*, seed: int = 0, rounds: int = 2) -> Plan:
    axis = Axis.of_rounds(rounds)
    panels = (Panel("loss", "Panel", "ranking_loss", "loss", axis),)
    jobs = tuple(Job(partial(np.full, rounds, float(n))) for n in range(3))
    return Plan("some", "Some", panels, ("ours",), jobs, stack_trials, {"seed": seed}, lambda _: [])


KILLED = """
import os
import signal
import sys
from topk_bandit.commands.cli import main
from topk_bandit.lab.experiments.stored_results import StoredResults

store = StoredResults.store

def store_and_die(self, number, measured):
    store(self, number, measured)
    if len(list(self._folder.glob("*.npz"))) == 26:
        os.kill(os.getpid(), signal.SIGKILL)

StoredResults.store = store_and_die
main(sys.argv[1:])
"""


def test_killed_half_way_it_goes_on_to_the_same_bytes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = [sys.executable, "-c", KILLED, "experiment", *WORDS, "--processes=2", f"--out={tmp_path / 'a'}"]
    with subprocess.Popen(command, start_new_session=True, stdout=subprocess.DEVNULL) as process:
        assert process.wait(PATIENCE) == -signal.SIGKILL
    until(lambda: not is_there(process.pid), what="the children see that their parent is gone")
    assert main(["experiment", *WORDS, "--processes=1", f"--out={tmp_path / 'a'}"]) == 0
    assert "figure-2: 26 of 64 jobs are done\n" in capsys.readouterr().out
    assert main(["experiment", *WORDS, "--processes=1", f"--out={tmp_path / 'b'}"]) == 0
    assert "jobs are done" not in capsys.readouterr().out
    for folder in (tmp_path / "a", tmp_path / "b"):
        assert sorted(path.name for path in folder.iterdir()) == ["figure-2.csv", "figure-2.json", "figure-2.png"]
    for name in ("figure-2.csv", "figure-2.png"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def is_there(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def test_what_was_kept_is_found_to_the_bit(tmp_path: Path) -> None:
    values = np.random.default_rng(0).normal(size=(2, 3))
    with StoredResults(tmp_path, plan()) as stored:
        stored.store(1, Measurement(values, 0.25))
    with StoredResults(tmp_path, plan()) as stored:
        found = stored.read_all(3)
    assert list(found) == [1]
    np.testing.assert_array_equal(found[1].values, values)
    assert found[1].seconds == 0.25


def test_other_settings_methods_points_or_code_do_not_mix(monkeypatch: pytest.MonkeyPatch) -> None:
    one = plan()
    others = [plan(seed=1), plan(rounds=3), replace(one, methods=("theirs",)), replace(one, name="other")]
    assert len({digest_of(other) for other in (one, *others)}) == 5
    assert digest_of(plan()) == digest_of(one)
    before = digest_of(one)
    monkeypatch.setattr(kept_module, "code_digest", lambda: "other")
    assert digest_of(one) != before


def test_a_file_that_was_cut_counts_as_not_done(tmp_path: Path) -> None:
    with StoredResults(tmp_path, plan()) as stored:
        for number in range(3):
            stored.store(number, Measurement(np.arange(100.0), 1.0))
        [folder] = tmp_path.iterdir()
        cut, empty = folder / "00000.npz", folder / "00002.npz"
        cut.write_bytes(cut.read_bytes()[:500])
        empty.write_bytes(b"")
        (folder / "unfinished").write_bytes(b"half")
        assert list(stored.read_all(3)) == [1]


def test_two_processes_do_not_run_the_same_at_once(tmp_path: Path) -> None:
    with StoredResults(tmp_path, plan()) as stored:
        with pytest.raises(ConfigurationError, match="is in use: the same experiment runs in another process"):
            StoredResults(tmp_path, plan())
        with StoredResults(tmp_path, plan(seed=1)) as other:
            other.remove()
        stored.remove()
    assert list(tmp_path.iterdir()) == []
