"""The experiment on other policies' values: what is measured, and what is said of it."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

import numpy as np

from topk_bandit.commands.cli import main
from topk_bandit.lab.experiments import arguments, plans
from topk_bandit.lab.experiments.plan import Results
from topk_bandit.lab.simulation.off_policy import TARGETS

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from topk_bandit.lab.experiments.plan import Plan


def plan_of(*words: str) -> Plan:
    parser = argparse.ArgumentParser()
    arguments.add_arguments(parser)
    return plans.make_plan(parser.parse_args(["off-policy", *words, "--out=here"]))


def test_it_runs_and_writes_what_it_depends_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--trials=2", "--rounds=300", "--near-share=0.1", "--uniform-share=0.2", "--processes=1"]
    assert main(["experiment", "off-policy", *words, f"--out={tmp_path}"]) == 0
    written = json.loads((tmp_path / "off-policy.json").read_text(encoding="utf-8"))
    assert (written["settings"]["near_share"], written["settings"]["uniform_share"]) == (0.1, 0.2)
    assert written["settings"]["rounds"] == 300
    assert "Truth in the interval" in capsys.readouterr().out


def test_trials_differ_and_come_again() -> None:
    first, second = (job.run() for job in plan_of("--trials=2", "--rounds=200").jobs)
    [again] = (job.run() for job in plan_of("--trials=1", "--rounds=200").jobs)
    np.testing.assert_array_equal(first, again)
    assert (first[1] != second[1]).any()


def test_only_intervals_that_hold_are_the_narrowest() -> None:
    plan = plan_of("--trials=10", "--rounds=200")
    covered, width = (np.ones((10, len(plan.methods), len(TARGETS))) for _ in range(2))
    width[:, 3], covered[:2, 3] = 0.01, 0.0  # narrow, and wrong in two of ten
    width[:, 5, 0], width[:, 5, 1], width[:, 5, 2] = 0.2, 0.21, np.nan
    targets = plan.targets(Results(plan, (covered, width, width)))
    assert [target.met for target in targets] == [True, True, True, False, True, True, True, False, False]
    assert [target.figure for target in targets[-3:]] == [
        "20.0%, doubly robust, balanced", "21.0%, doubly robust, balanced", "100.0%, IPS",
    ]  # fmt: skip
    covered[:] = 0.0
    assert plan.targets(Results(plan, (covered, width, width)))[-1].figure == "none holds"
