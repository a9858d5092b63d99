"""The benchmarks: what the service reaches on this machine, beside what it is meant to reach.

Usage: ``python loadtests/bench.py [--quick] [--only NAME] [--out FOLDER] [--markdown FILE] [--strict]``.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from topk_bandit.process.threads import use_one_thread

use_one_thread(os.environ)

import suite  # noqa: E402

__all__ = ["main"]

RESULTS = Path(__file__).resolve().parent.parent / "bench-results"


def main() -> int:
    """Run what the command line asks for; return the exit status."""
    parser = argparse.ArgumentParser(description="Print what the service reaches on this machine, beside its targets.")
    parser.add_argument("--quick", action="store_true", help="fewer trials, within minutes: a check that all runs")
    parser.add_argument("--only", action="append", choices=suite.names(), help="run this benchmark; may be repeated")
    parser.add_argument(
        "--out",
        type=Path,
        default=RESULTS,
        metavar="FOLDER",
        help="where results go, as JSON and as tables, named by the time of the start",
    )
    parser.add_argument("--strict", action="store_true", help="exit with status 1 if a target is missed")
    asked = parser.parse_args()
    missed = suite.run(asked.only or suite.names(), quick=asked.quick, folder=asked.out)
    return 1 if missed and asked.strict else 0


if __name__ == "__main__":
    sys.exit(main())
