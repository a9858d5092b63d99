"""The long forms are more of the same."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.bits import WHERE
from tests.long_forms import examples, usual_or_long

ROOT = Path(__file__).parent.parent


def long_run(*arguments: str) -> str:
    environment = os.environ | {"LONG_TESTS": "1"}
    command = [sys.executable, *arguments]
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout


@pytest.mark.slow
def test_what_draws_examples_has_a_long_form() -> None:
    chosen = ("-m", "long_form", "tests/learning/test_kernel_choice.py", "tests/domain/test_errors.py")
    lines = long_run("-m", "pytest", "--collect-only", "-q", *chosen).splitlines()
    assert [line.partition("::")[2] for line in lines if "::" in line] == [
        "test_the_unit_of_the_rewards_does_not_matter"
    ]


def test_long_forms_are_longer() -> None:
    assert (examples(30), usual_or_long(8, long=30)) == (30, 8)
    code = "from tests.long_forms import examples, usual_or_long; print(examples(30), usual_or_long(8, long=30))"
    assert long_run("-c", code).split() == ["150", "30"]


def test_what_is_promised_to_the_bit_is_where_it_is_looked_for() -> None:
    own = Path(__file__).resolve()
    marked = [one for one in own.parent.rglob("test_*.py") if one != own and "mark.bits" in one.read_text()]
    assert marked
    assert all(str(one.relative_to(ROOT)).startswith(WHERE) for one in marked)
