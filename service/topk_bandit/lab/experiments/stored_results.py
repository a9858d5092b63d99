"""Numbers of finished jobs in a folder, so that a run that was stopped goes on where it was."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import zipfile
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from topk_bandit.domain.errors import ConfigurationError
from topk_bandit.lab.experiments.versions import code_digest, versions

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Self, TextIO

    from topk_bandit.lab.experiments.plan import Plan

__all__ = ["Measurement", "StoredResults", "digest_of"]

FloatArray = NDArray[np.float64]

_DIGITS = 16


class Measurement(NamedTuple):
    """What a job measured, and the seconds of processor time it took."""

    values: FloatArray
    seconds: float


def digest_of(plan: Plan) -> str:
    """Return what tells this experiment, with these settings and this code, from all others."""
    identity = {
        "experiment": plan.name,
        "settings": dict(plan.settings),
        "jobs": len(plan.jobs),
        "methods": plan.methods,
        "panels": [(panel.key, panel.axis.values, panel.axis.categories) for panel in plan.panels],
        "versions": versions(),
        "code": code_digest(),
    }
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:_DIGITS]


class StoredResults:
    """The folder of one unfinished experiment: one small file for each finished job.

    It belongs to one process at a time, from when it is made until the end of a `with`.

    Raises
    ------
    ConfigurationError
        Another process runs the same experiment into the same folder.
    OSError
        The folder can't be made or written to.
    """

    def __init__(self, out: Path, plan: Plan) -> None:
        self._folder = out / f".{plan.name}-{digest_of(plan)}"
        self._folder.mkdir(exist_ok=True)
        self._lock = _lock_file(self._folder / "lock")

    def read_all(self, n_jobs: int) -> dict[int, Measurement]:
        """Return what was measured before, by the jobs' numbers."""
        read = {number: _read(self._file(number)) for number in range(n_jobs)}
        return {number: measured for number, measured in read.items() if measured is not None}

    def store(self, number: int, measured: Measurement) -> None:
        """Store what a job measured: the whole of it, or nothing if this process ends meanwhile."""
        unfinished = self._folder / "unfinished"
        with unfinished.open("wb") as file:
            np.savez(file, values=measured.values, seconds=measured.seconds)
        unfinished.replace(self._file(number))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Let others go on with it."""
        self._lock.close()

    def remove(self) -> None:
        """Forget all: the result is written."""
        shutil.rmtree(self._folder)

    def _file(self, number: int) -> Path:
        return self._folder / f"{number:05d}.npz"


def _read(path: Path) -> Measurement | None:
    """Return what a file holds; None if it is not there, or was cut when the machine lost its power."""
    if not path.exists():
        return None
    try:
        with path.open("rb") as file, np.load(file) as arrays:
            return Measurement(arrays["values"], float(arrays["seconds"]))
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None


def _lock_file(path: Path) -> TextIO:
    file = path.open("w")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise ConfigurationError(f"{path.parent} is in use: the same experiment runs in another process") from None
    # Whoever had the lock before may have removed the folder since it was opened.
    if not path.exists() or os.fstat(file.fileno()).st_ino != path.stat().st_ino:
        file.close()
        raise ConfigurationError(f"{path.parent} is in use: the same experiment was just finished") from None
    return file
