"""Reports what fails for a while with one line of the log when that begins, and one when it has ended.

Some calls may succeed while others fail, on a full disk for example: an outage has ended when a call succeeds and none
has failed for a while.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Outage"]

_log = logging.getLogger(__name__)

QUIET_SECONDS = 5.0


class Outage:
    """Knows since when something fails.

    Parameters
    ----------
    begins, ends
        What the log says when it begins and ends.
    monotonic
        A clock that never goes back, in seconds.
    within
        Another outage, of which this one may be a part: it is logged only if it lasts while that one is over, and has
        ended with the first call that succeeds.
    """

    def __init__(self, begins: str, *, ends: str, monotonic: Callable[[], float], within: Outage | None = None) -> None:
        self._begins = begins
        self._ends = ends
        self._monotonic = monotonic
        self._within = within
        self._began_at: float | None = None
        self._failed_at = 0.0
        self._is_logged = False

    def note_failure(self, error: Exception) -> None:
        """Note that a call failed."""
        self._failed_at = self._monotonic()
        if self._began_at is None:
            self._began_at = self._failed_at
        if not self._is_logged and not self._is_part():
            self._is_logged = True
            _log.error("%s: %s", self._begins, str(error) or type(error).__name__)

    def _is_part(self) -> bool:
        """Return whether it may yet turn out to be a part of the other outage, or is."""
        if self._within is None or self._began_at is None:
            return False
        return self._within._is_logged or self._failed_at - self._began_at < QUIET_SECONDS  # noqa: SLF001 - of its own kind

    def note_success(self) -> None:
        """Note that a call succeeded."""
        if self._began_at is None or self._may_fail_again():
            return
        if self._is_logged:
            _log.warning(self._ends, extra={"seconds": round(self._failed_at - self._began_at, 3)})
        self._began_at, self._is_logged = None, False

    def _may_fail_again(self) -> bool:
        return self._within is None and self._monotonic() - self._failed_at < QUIET_SECONDS
