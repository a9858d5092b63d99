"""How many calls that are slow may be sent again over another connection.

A worker that hangs and a service that is slow look alike to who waits for one answer. Where a worker hangs, a call that
is sent again is answered by another one; where all are slow it is work done twice, and each caller's doing so keeps
them slow. So sending again is paid for with answers that came in time, as retries are by gRPC's throttling and by
Finagle's budgets: a client whose calls are all slow sends each of them once, and waits for it.
"""

from __future__ import annotations

__all__ = ["MOST_RESENDS", "PATIENCE_SECONDS", "Resends"]

PATIENCE_SECONDS = 0.5
"""So long a worker that owes answers may say nothing before calls go elsewhere, which are few: most take some 10 ms."""

MOST_RESENDS = 10.0
"""So many calls may be sent again at first, and after any number of quick answers."""

_EARNED = 0.1

_TIMES = 4.0
"""The second time is enough for a worker that has to notice first that the bandit's owner hangs, which takes 1.25 s."""

_LEAST_TIMES = 3.0
"""A call that was sent again goes on to a third connection if it has so many times its patience left."""

_TIMES_ANEW = 2.0
_LEAST_TIMES_ANEW = 1.25
"""The same where the third connection may be at the worker that hangs: two seconds are a half, a whole and a half."""


class Resends:
    """What is left to a client. Not safe between threads."""

    def __init__(self) -> None:
        self._left = MOST_RESENDS

    @property
    def are_spent(self) -> bool:
        """Whether no call may be sent again, but for probes."""
        return self._left < 1.0

    def patience(self, left: float, *, is_probe: bool, tries: int = 0, connects_anew: bool = False) -> float:
        """Return how long a call may take before it is sent again: all that is left of its time if it is not to be.

        One that is sent again has as much time then as it had before, and each time four times as much: who hangs
        costs little. A slow worker answers in the end: the last try has at least half of all the time. A probe, by
        which a connection that said nothing is tried again, is sent again if there is time for it: there is one at a
        time, and it would else wait for whoever hangs. Where each sending connects anew it may meet the worker that
        hangs again, and is sent once more.
        """
        times, least_times = (_TIMES_ANEW, _LEAST_TIMES_ANEW) if connects_anew else (_TIMES, _LEAST_TIMES)
        patience = PATIENCE_SECONDS * times**tries
        if left < (least_times if tries else 2.0) * patience or (self.are_spent and not is_probe):
            return left
        return patience

    def answered(self, seconds: float) -> None:
        """Note that a call was answered, after so long."""
        if seconds < PATIENCE_SECONDS:
            self._left = min(MOST_RESENDS, self._left + _EARNED)

    def sent(self) -> None:
        """Note that a call is sent again. Calls that are slow at the same time are all sent again; later ones pay."""
        self._left -= 1.0
