"""The command with a clock that a test sets: as far ahead as the file in CLOCK_AHEAD says. Worker processes run it too.

The steady clock is the machine's, as when somebody sets a machine's clock.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

_AHEAD = Path(os.environ["CLOCK_AHEAD"])
_time, _time_ns = time.time, time.time_ns


def _seconds_ahead() -> int:
    return int(_AHEAD.read_text(encoding="ascii") or 0)


time.time = lambda: _time() + _seconds_ahead()
time.time_ns = lambda: _time_ns() + 10**9 * _seconds_ahead()

if __name__ == "__main__":
    from topk_bandit.commands.cli import main

    sys.exit(main())
