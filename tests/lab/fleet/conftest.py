from __future__ import annotations

import fcntl
import os
import tempfile
from pathlib import Path

import pytest

from topk_bandit.lab.fleet.costs import MEASURED
from topk_bandit.lab.fleet.scenario import Fleet, Traffic
from topk_bandit.lab.fleet.simulation import simulate


@pytest.fixture(scope="session", autouse=True)
def compiled() -> None:
    """Have one process compile the simulation, which takes a quarter of a minute; the others find it then."""
    with (Path(tempfile.gettempdir()) / f"topk-bandit-fleet-{os.getuid()}").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        simulate(Fleet(costs=MEASURED, workers=1), Traffic(pairs=1.0, bandits=1, seconds=1.0, settling=0.1), seed=0)
