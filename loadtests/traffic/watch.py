"""What a service takes while it is under load, from outside: memory, descriptors, tasks, and records in its store."""

from __future__ import annotations

import math
import os
import threading
import time
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np
import redis
from scipy.stats import theilslopes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from traffic.checkouts import Service

__all__ = ["Sample", "Watch", "resident_mb", "slope", "troughs"]

MEGABYTE = 2.0**20
PAGE_SECONDS = 5.0
PARTS = 10

_COUNT = """
local count = 0
for _, bucket in ipairs(redis.call('HVALS', KEYS[1])) do
  local place = 0
  while place ~= -1 and place < #bucket do
    count, place = count + 1, cmsgpack.unpack_one(bucket, place + 9)
  end
end
return count
"""
"""How many records a slice has: each is 9 bytes of a digest and a list, as `lua/closed.lua` of the service says."""


class Sample(NamedTuple):
    """A look at a service.

    Attributes
    ----------
    seconds
        Since the watch began.
    worker_mb, store_mb
        Resident memory.
    descriptors, threads, tasks
        Of the worker; tasks are those of its event loop, NaN of a service without a metrics page that tells them.
    remembered, overdue
        Records of closed slates in the store, and those of them that are remembered for longer than they are meant to.
    """

    seconds: float
    worker_mb: float
    store_mb: float
    descriptors: float
    threads: float
    tasks: float
    remembered: float
    overdue: float


class Watch:
    """Looks at a service now and then, on a thread of its own, until the end of the block.

    Parameters
    ----------
    retention_seconds
        How long the service remembers records of closed slates.
    every
        Seconds between two looks.
    """

    def __init__(self, service: Service, *, retention_seconds: float, every: float) -> None:
        self.samples: list[Sample] = []
        self._service, self._retention, self._every = service, retention_seconds, every
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look_on)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _look_on(self) -> None:
        start = time.monotonic()
        with redis.Redis(unix_socket_path=str(self._service.store_socket)) as store:
            while not self._ended.wait(self._every):
                self.samples.append(self._look(time.monotonic() - start, store))

    def _look(self, seconds: float, store: redis.Redis) -> Sample:
        worker = Path(f"/proc/{self._service.worker_pid}")
        remembered = overdue = 0
        for meta in store.scan_iter("*:meta"):
            newest, *told = map(int, (store.hget(meta, "closed") or b"1").split())
            for place, at_ms in enumerate(told[::2], 1):
                held = int(str(store.eval(_COUNT, 1, meta.removesuffix(b"meta") + b"closed%d" % (place - 1))))
                remembered += held
                overdue += held * (place != newest and at_ms < (time.time() - self._retention) * 1e3)
        return Sample(
            seconds,
            resident_mb(self._service.worker_pid),
            resident_mb(self._service.store_pid),
            _entries(worker / "fd"),
            _entries(worker / "task"),
            _tasks(self._service.metrics_port),
            float(remembered),
            float(overdue),
        )


def resident_mb(pid: int) -> float:
    """Return the memory of a process that is in RAM, from ``/proc``; NaN where there is none."""
    with suppress(OSError):
        pages = Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE") / MEGABYTE
    return math.nan


def slope(samples: Sequence[Sample], name: str) -> tuple[float, float]:
    """Return by how much something grows in a second, and the error of that.

    It is the median over all pairs of looks, which a few jumps do not move. The error is half of what holds 68 % of the
    chance if looks were independent of each other.
    """
    values = [float(getattr(one, name)) for one in samples]
    if len(values) < 3 or not np.isfinite(values).all():
        return math.nan, math.nan
    found = theilslopes(values, [one.seconds for one in samples], alpha=0.68)
    return float(found.slope), float(found.high_slope - found.low_slope) / 2.0


def troughs(samples: Sequence[Sample], name: str) -> list[Sample]:
    """Return the least of each tenth of the looks.

    Memory that is given back late stands above what is used, now more and now less: its troughs are what a leak lifts.
    """
    parts = (samples[part[0] : part[-1] + 1] for part in np.array_split(np.arange(len(samples)), PARTS) if len(part))
    return [min(part, key=lambda one: float(getattr(one, name))) for part in parts]


def _tasks(port: int) -> float:
    with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PAGE_SECONDS) as page:
        told = [line.split()[1] for line in page.read().decode().splitlines() if line.startswith("topk_bandit_tasks ")]
        return float(told[0]) if told else math.nan
    return math.nan


def _entries(folder: Path) -> float:
    with suppress(OSError):
        return float(len(list(folder.iterdir())))
    return math.nan
