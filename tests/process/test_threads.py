"""One BLAS thread in every process of the project, unless somebody says otherwise."""

from __future__ import annotations

import subprocess
import sys

import pytest
from threadpoolctl import threadpool_info

from topk_bandit.process.threads import THREAD_VARIABLES, use_one_thread


def without_variables() -> dict[str, str]:
    """Return this process's environment as a user has it who set nothing."""
    from tests.faults.service import clean_environment  # noqa: PLC0415 - it imports the client

    return {name: value for name, value in clean_environment().items() if name not in THREAD_VARIABLES}


def threads_after(statements: str) -> list[int]:
    """Return the threads of each BLAS in a process that ran `statements` first."""
    program = (
        f"{statements}\nimport numpy, scipy.linalg, threadpoolctl\n"
        "print(*(one['num_threads'] for one in threadpoolctl.threadpool_info() if one['user_api'] == 'blas'))"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], env=without_variables(), capture_output=True, text=True, check=True
    )
    return [int(number) for number in run.stdout.split()]


def test_what_is_set_stays() -> None:
    environment = {"OPENBLAS_NUM_THREADS": "2"}
    use_one_thread(environment)
    assert environment == dict.fromkeys(THREAD_VARIABLES, "1") | {"OPENBLAS_NUM_THREADS": "2"}


def test_the_command_sets_one_thread_before_numpy_is_there() -> None:
    threads = threads_after(
        "import contextlib, io, sys\n"
        "from topk_bandit.commands.cli import main\n"
        "assert 'numpy' not in sys.modules\n"
        "with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()): main(['--version'])"
    )
    assert set(threads) <= {1}


@pytest.mark.skipif(not threadpool_info(), reason="no BLAS here tells its threads")
def test_the_tests_run_on_as_many_threads_as_the_environment_says() -> None:
    import os  # noqa: PLC0415

    asked = int(os.environ["OPENBLAS_NUM_THREADS"])
    assert {one["num_threads"] for one in threadpool_info() if one["internal_api"] == "openblas"} <= {asked}
