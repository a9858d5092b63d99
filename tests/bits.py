"""Runs the tests of what is promised to the bit under every kind of processor that this one can stand for.

Usage: ``python -m tests.bits [--quick]``. Each kind and each number of BLAS threads has a process of its own.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

from tests.processors import PROCESSORS, THIS, Processor, executable, variables

if TYPE_CHECKING:
    from collections.abc import Sequence

MOST_SECONDS = 1800
WHERE = ("tests/learning", "tests/bandits", "tests/properties")
"""Where they are: to read all files for them takes a minute."""

PYTEST = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--no-header")


class Run(NamedTuple):
    """How the tests went."""

    processor: Processor
    threads: int
    passed: bool
    seconds: float
    output: str

    @property
    def line(self) -> str:
        last = self.output.strip().splitlines()[-1:] or ["no output"]
        return f"{self.processor!s:10} {self.threads} BLAS threads   {last[0].strip('= ')}"


def run(processor: Processor, threads: int) -> Run:
    """Run the tests once."""
    command = [*PYTEST, "-m", "bits", *WHERE]
    start = time.monotonic()
    environment = variables(processor, threads=threads)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=MOST_SECONDS, check=False)
    return Run(processor, threads, done.returncode == 0, time.monotonic() - start, done.stdout + done.stderr)


def asked_for(kinds: Sequence[Processor], *, quick: bool) -> list[tuple[Processor, int]]:
    """Return which kinds are to run with how many BLAS threads; a kind that runs twice is compiled in the first."""
    if quick:
        return [(kind, 2) for kind in kinds if kind == PROCESSORS[0]]
    return [(kind, threads) for threads in (1, 2) for kind in kinds]


def main() -> int:
    """Run all, print a line each, and what failed; return the exit status."""
    parser = argparse.ArgumentParser(description="Run the tests of what is promised to the bit, on every processor.")
    parser.add_argument("--quick", action="store_true", help="the oldest kind alone, with two BLAS threads")
    quick = parser.parse_args().quick
    kinds = [processor for processor in (THIS, *PROCESSORS) if executable(processor)]
    for processor in PROCESSORS:
        if processor not in kinds:
            print(f"{processor!s:10} not run: this processor lacks its instructions", flush=True)
    failed = 0
    with ThreadPoolExecutor(os.cpu_count()) as executor:
        for done in executor.map(lambda asked: run(*asked), asked_for(kinds, quick=quick)):
            print(done.line, flush=True)
            if not done.passed:
                failed += 1
                print(done.output, flush=True)
    print("Unlike processors beside each other:", flush=True)
    beside = subprocess.run([*PYTEST, "-m", "processors", "-rs"], env=variables(THIS), check=False)
    return 1 if failed or beside.returncode else 0


if __name__ == "__main__":
    sys.exit(main())
