"""The patient command, whose workers compile without end beside the calls. Worker processes run this file too."""

from __future__ import annotations

import sys
import time

from tests.faults import patient_program
from tests.waiting import PATIENCE

from topk_bandit.process import assembly

__all__ = ["patient_program"]

assembly.warm_up_rules = lambda: time.sleep(10 * PATIENCE)

if __name__ == "__main__":
    from topk_bandit.commands.cli import main

    sys.exit(main())
