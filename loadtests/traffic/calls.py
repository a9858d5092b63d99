"""What became of the calls of a run."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

import numpy as np

from traffic.histogram import Histogram

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

__all__ = ["RECOMMEND", "REWARD", "Calls", "End"]

RECOMMEND, REWARD = 0, 1

_ROW = np.dtype(
    [("stream", "i4"), ("kind", "i1"), ("end", "i1"), ("due", "f8"), ("sent", "f8"), ("done", "f8"), ("retry", "?")]
)


class End(IntEnum):
    """How a call ended."""

    OK = 0
    DEGRADED = 1
    REFUSED = 2
    TOO_LATE = 3
    FAILED = 4


@dataclass(frozen=True, slots=True)
class Calls:
    """Calls of a run, in seconds from its start: when each was meant to be sent, was sent, and was answered."""

    rows: NDArray[np.void]

    @classmethod
    def of(cls, rows: Iterable[tuple[int, int, int, float, float, float, bool]]) -> Calls:
        """Take calls as the generator notes them: stream, kind, end, due, sent, done, and whether RetryInfo came."""
        return cls(np.array(list(rows), dtype=_ROW))

    def of_kind(self, kind: int) -> Calls:
        """Return the calls of one method."""
        return Calls(self.rows[self.rows["kind"] == kind])

    def of_stream(self, stream: int) -> Calls:
        """Return the calls of one stream's customers."""
        return Calls(self.rows[self.rows["stream"] == stream])

    def between(self, start: float, end: float) -> Calls:
        """Return the calls that were meant to be sent in a part of the run."""
        return Calls(self.rows[(self.rows["due"] >= start) & (self.rows["due"] < end)])

    def ended(self, *ends: End) -> Calls:
        """Return the calls that ended in one of these ways."""
        return Calls(self.rows[np.isin(self.rows["end"], ends)])

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def due(self) -> NDArray[np.float64]:
        """When each was meant to be sent."""
        return np.asarray(self.rows["due"], dtype=np.float64)

    @property
    def latencies(self) -> NDArray[np.float64]:
        """Seconds from when a call was meant to be sent, so that one that was held up counts as what it was."""
        return np.asarray(self.rows["done"] - self.rows["due"], dtype=np.float64)

    @property
    def latency(self) -> Histogram:
        """Of `latencies`."""
        return Histogram.of(self.latencies)

    @property
    def lateness(self) -> Histogram:
        """How long after it was meant to be a call was really sent: the generator's own fault."""
        return Histogram.of(self.rows["sent"] - self.rows["due"])

    @property
    def told_to_wait(self) -> int:
        """How many were refused with RetryInfo."""
        return int(self.rows["retry"].sum())

    def share(self, *ends: End) -> float:
        """Return the share that ended in one of these ways; 0 without calls."""
        return len(self.ended(*ends)) / max(len(self), 1)
