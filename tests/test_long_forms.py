"""The long forms are more of the same, and a run of them holds nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.long_forms import examples, usual_or_long

ROOT = Path(__file__).parent.parent


def long_run(*arguments: str) -> str:
    environment = os.environ | {"LONG_TESTS": "1"}
    command = [sys.executable, *arguments]
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout


def test_a_run_of_the_long_forms_leaves_out_tests_that_have_none() -> None:
    lines = long_run("-m", "pytest", "--collect-only", "-q", "tests/faults/test_crash.py", "tests/domain").splitlines()
    assert [line.partition("::")[2] for line in lines if "::" in line] == [
        "test_nothing_acknowledged_is_lost_or_counted_twice"
    ]


def test_long_forms_are_longer() -> None:
    assert (examples(30), usual_or_long(8, long=30)) == (30, 8)
    code = "from tests.long_forms import examples, usual_or_long; print(examples(30), usual_or_long(8, long=30))"
    assert long_run("-c", code).split() == ["150", "30"]
