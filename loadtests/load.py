"""Load on the service that does not wait for its answers: what `make load` runs.

Usage: ``python loadtests/load.py [--long] [--only NAME] [--seconds S] [--against FOLDER] [--turns N] [--out FOLDER]``.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from topk_bandit.process.threads import use_one_thread

use_one_thread(os.environ)

from runner import run_all  # noqa: E402
from traffic.checkouts import python_of  # noqa: E402
from traffic.plays import How, benchmarks  # noqa: E402
from traffic.scenarios import SCENARIOS  # noqa: E402

__all__ = ["main"]

RESULTS = Path(__file__).resolve().parent.parent / "bench-results"


def main() -> int:
    """Play what the command line asks for; return the exit status."""
    asked = _parser().parse_args()
    against = asked.against.resolve() if asked.against else None
    if against is not None:
        python_of(against)
    how = How(asked.seconds, against, asked.turns or (2 if against else 1))
    chosen = {name: play for name, play in benchmarks(how).items() if name in (asked.only or SCENARIOS)}
    missed = run_all(chosen, quick=not asked.long, folder=asked.out)
    return 1 if missed and asked.strict else 0


def _parser() -> argparse.ArgumentParser:
    scenarios = "\n".join(
        f"  {one.name:14}{one.seconds:6g}{one.long_seconds:6g}  {one.about}" for one in SCENARIOS.values()
    )
    parser = argparse.ArgumentParser(
        description="Send calls at random times, whether earlier ones are answered or not, and tell how they fare.",
        epilog=f"scenarios, with the seconds of the short and the long form:\n{scenarios}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--only", action="append", choices=list(SCENARIOS), help="play this scenario; may be repeated")
    add("--long", action="store_true", help="play the long forms, whose figures the targets are meant for")
    add("--seconds", type=float, help="how long a scenario's main part lasts (sweep: each rate)")
    add("--against", type=Path, metavar="FOLDER", help="another checkout, with its .venv, to play in turns and compare")
    add("--turns", type=int, help="how often each is played; with --against 2, else 1")
    add("--out", type=Path, default=RESULTS, metavar="FOLDER", help="where JSON, tables and plots go")
    add("--strict", action="store_true", help="exit with status 1 if a target is missed or a run invalid")
    return parser


if __name__ == "__main__":
    sys.exit(main())
