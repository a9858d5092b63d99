"""`python -m tests.simulation`: simulate the service among faults, and check what it promises (docs/reliability.md).

Several workers of the service, with their own code, on a store in memory; network, clocks, randomness and time are
simulated, so that hours pass in seconds and the same seed gives the same run. Workers die, replies are lost, the store
is away or fails over, callers give up, clocks jump. Callers ask for slates and reward them, import past ones, and make
a study that the bandit begins with. The answers to callers are compared with the logs, and each model with a replay.

Hours beyond 20 are simulated as days of their own, with the next seeds. A promise that is broken ends the run with exit
status 1, the fewest actions found that break it, and the command that repeats them.
"""

from __future__ import annotations

import argparse
import sys

from tests.simulation.campaign import show

from topk_bandit.commands.numbers import count, natural


def _numbers(text: str) -> frozenset[int]:
    return frozenset() if text == "none" else frozenset(natural(one) for one in text.split(","))


def _main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=natural, default=0, metavar="NUMBER", help="which run it is (default: 0)")
    parser.add_argument("--hours", type=count, default=20, metavar="COUNT", help="how long it is (default: 20)")
    parser.add_argument(
        "--only",
        type=_numbers,
        default=None,
        metavar="NUMBERS",
        help="the actions that happen, as a violation lists them; all if not given",
    )
    given = parser.parse_args()
    return show(seed=given.seed, hours=given.hours, only=given.only)


if __name__ == "__main__":
    sys.exit(_main())
