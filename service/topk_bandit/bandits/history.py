"""How a bandit's sums and counts grew over its life, in a bounded number of points.

Time is cut into intervals of one width, and for each in which something happened the totals at its end are kept. When
there are too many, the width doubles and pairs of intervals become one, so that a point is never computed, only
dropped: what is kept is exact however old the bandit is. It is a function of the log alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

__all__ = ["FIRST_WIDTH_MS", "MOST_POINTS", "History", "Interval", "Totals"]

MOST_POINTS = 192
"""Of 72 bytes each: less than 14 kB a bandit."""

FIRST_WIDTH_MS = 1000


class Totals(NamedTuple):
    """Totals since a bandit's beginning.

    Attributes
    ----------
    recommendations, explored
        Slates given out, and those of them that a share of the exploration drew.
    rewarded, expired
        Slates that ended with a reward, whether or not it could be learned, and without one.
    observations, reward_sum
        What was learned, default rewards too, and what was counted of slates that were set aside.
    regret_bound_sum, estimated_regret_sum
        For the slates given out.
    """

    recommendations: float
    explored: float
    rewarded: float
    expired: float
    observations: float
    reward_sum: float
    regret_bound_sum: float
    estimated_regret_sum: float


class Interval(NamedTuple):
    """An interval by the store's clock, and the totals at its end."""

    start_ms: int
    end_ms: int
    totals: Totals


@dataclass(frozen=True, slots=True, eq=False)
class History:
    """The intervals that are over; the one that is not ends with the model's own totals.

    Attributes
    ----------
    width_ms
        How long an interval is.
    current
        Number of the interval of the newest event, counted from the epoch; -1 before the first event.
    numbers
        Of the intervals that are over, ascending, shape (P,), P <= `MOST_POINTS`.
    totals
        At their ends, shape (P, 8).
    """

    width_ms: int = FIRST_WIDTH_MS
    current: int = -1
    numbers: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    totals: NDArray[np.float64] = field(default_factory=lambda: np.zeros((0, len(Totals._fields))))

    def ends_before(self, at_ms: int) -> bool:
        """Return whether an event at this time begins another interval; a clock that went back begins none."""
        return at_ms // self.width_ms > self.current

    def begin(self, at_ms: int, totals: Totals) -> History:
        """Return the history that goes on with an event in another interval.

        Parameters
        ----------
        totals
            Before that event.
        """
        number = at_ms // self.width_ms
        if self.current < 0:
            return replace(self, current=number)
        numbers = np.append(self.numbers, self.current)
        history = History(self.width_ms, number, numbers, np.vstack([self.totals, totals]))
        while len(history.numbers) > MOST_POINTS:
            history = history._widen_intervals()
        return history

    def _widen_intervals(self) -> History:
        """Return the history with intervals of twice the width."""
        numbers, current = self.numbers // 2, self.current // 2
        is_last = np.append(numbers[1:] != numbers[:-1], numbers[-1] != current)
        return History(2 * self.width_ms, current, numbers[is_last], self.totals[is_last])

    def intervals(self, *, at_ms: int, totals: Totals) -> Iterator[Interval]:
        """Yield the intervals in which something happened, oldest first, up to the newest event.

        Parameters
        ----------
        at_ms, totals
            The newest event's, and after it.
        """
        if self.current < 0:
            return
        for number, row in zip(self.numbers.tolist(), self.totals.tolist(), strict=True):
            yield Interval(number * self.width_ms, (number + 1) * self.width_ms, Totals(*row))
        yield Interval(self.current * self.width_ms, max(at_ms, self.current * self.width_ms), totals)

    @property
    def nbytes(self) -> int:
        """Bytes of its arrays."""
        return self.numbers.nbytes + self.totals.nbytes
