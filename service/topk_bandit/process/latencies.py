"""How long calls took lately, by method: a histogram each, forgotten after a while.

The metrics have the same since the start, over all workers, for those who have a Prometheus to ask. This is for those
who ask the service itself.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from typing import TYPE_CHECKING

from topk_bandit.domain.operators import CallStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["RecentLatencies"]

PERIOD_SECONDS = 300.0
"""Calls of so long and of the time before that, as long again, are known."""

_LEAST, _GROWTH, _BINS = 1e-5, 1.1, 180
"""The first bin ends there, each further one is so much wider, and the last has all that takes 280 s and more."""

_FAILED = frozenset({"UNAVAILABLE", "DEADLINE_EXCEEDED", "INTERNAL", "UNKNOWN"})


class _Counts:
    __slots__ = ("bins", "failed")

    def __init__(self) -> None:
        self.bins = [0] * _BINS
        self.failed = 0


class RecentLatencies:
    """Counts calls of one worker.

    Parameters
    ----------
    clock
        A clock that never goes back, in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = self._turned = clock()
        self._older: dict[str, _Counts] = {}
        self._newer: defaultdict[str, _Counts] = defaultdict(_Counts)

    def note(self, method: str, code: str, seconds: float) -> None:
        """Count a call that ended with the status code of this name, so many seconds after it was received."""
        self._turn()
        counts = self._newer[method]
        counts.bins[_bin_of(seconds)] += 1
        counts.failed += code in _FAILED

    @property
    def window_seconds(self) -> float:
        """How far back calls are known."""
        self._turn()
        return self._clock() - self._began

    def summarise(self) -> tuple[CallStatus, ...]:
        """Return how long the known calls took, by method."""
        self._turn()
        methods = sorted(self._older.keys() | self._newer.keys())
        known = ((self._older.get(method), self._newer.get(method)) for method in methods)
        return tuple(_status(method, [one for one in both if one]) for method, both in zip(methods, known, strict=True))

    def _turn(self) -> None:
        """Forget what is too old; what was new is old then."""
        now = self._clock()
        if now < self._turned + PERIOD_SECONDS:
            return
        is_long_ago = now >= self._turned + 2 * PERIOD_SECONDS
        self._older = {} if is_long_ago else dict(self._newer)
        self._began, self._turned = now if is_long_ago else self._turned, now
        self._newer = defaultdict(_Counts)


def _bin_of(seconds: float) -> int:
    if seconds <= _LEAST:
        return 0
    return min(1 + int(math.log(seconds / _LEAST) / math.log(_GROWTH)), _BINS - 1)


def _status(method: str, known: Sequence[_Counts]) -> CallStatus:
    bins = [sum(counts) for counts in zip(*(one.bins for one in known), strict=True)]
    median, p90, p99 = (_quantile(bins, share) for share in (0.5, 0.9, 0.99))
    return CallStatus(method, sum(bins), sum(one.failed for one in known), median, p90, p99)


def _quantile(bins: Sequence[int], share: float) -> float:
    """Return the middle of the bin in which a share of all calls is reached."""
    left = math.ceil(share * sum(bins))
    for place, count in enumerate(bins):
        left -= count
        if left <= 0:
            return _LEAST * math.pow(_GROWTH, place - 0.5)
    return 0.0
