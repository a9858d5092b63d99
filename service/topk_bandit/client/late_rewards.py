"""Makes rewards that came too late heard: nothing is learned from them, and a storefront would not notice."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from typing import TYPE_CHECKING

from topk_bandit.client.errors import ClientError, ErrorDetails, FailedPrecondition
from topk_bandit.client.values import RewardOutcome

if TYPE_CHECKING:
    from collections.abc import Iterable

    from topk_bandit.client.values import RewardReceipt

__all__ = ["LateRewards", "error_of_late", "error_of_late_activation"]

_log = logging.getLogger("topk_bandit.client")


class LateRewards:
    """Counts late rewards by bandit, and warns of the first of each, or raises for all.

    Parameters
    ----------
    raises
        Whether a late reward is an error.
    """

    def __init__(self, *, raises: bool) -> None:
        self.counts: Counter[str] = Counter()
        self._raises = raises
        self.renew()

    def renew(self) -> None:
        """Be free of whoever held the lock, of whom this process has nothing; see `topk_bandit.client.forks`."""
        self._lock = threading.Lock()

    def note(self, bandit: str, receipts: Iterable[RewardReceipt]) -> None:
        """Look for late rewards among what was posted.

        Raises
        ------
        FailedPrecondition
            REWARD_LATE: there are some, and they are errors here.
        """
        late = sum(receipt.outcome is RewardOutcome.LATE for receipt in receipts)
        if not late:
            return
        is_known = bandit in self.counts
        self.count(bandit, late)
        error = error_of_late(bandit, late)
        if self._raises:
            raise error
        if not is_known:
            _log.warning(
                "%s; a longer reward_wait takes them (this is said once, Client.late_rewards counts)",
                error.details.message,
            )

    def note_one(self, bandit: str, result: RewardReceipt | ClientError) -> RewardReceipt | ClientError:
        """Look at one of several rewards; where it is late, and an error here, the error comes back in its place."""
        if isinstance(result, ClientError):
            return result
        try:
            self.note(bandit, [result])
        except FailedPrecondition as error:
            return error
        return result

    def count(self, bandit: str, late: int) -> None:
        """Count late rewards that are reported elsewhere."""
        with self._lock:
            self.counts[bandit] += late


def error_of_late(bandit: str, late: int) -> FailedPrecondition:
    """Return the error that says so."""
    problem = f"{late} of the rewards posted to {bandit} came after their deadline and were not learned"
    return FailedPrecondition(ErrorDetails("FAILED_PRECONDITION", problem, reason="REWARD_LATE"))


def error_of_late_activation(bandit: str) -> FailedPrecondition:
    """Return the error that says so of an activation."""
    problem = f"an activation of a slate of {bandit} came after its deadline"
    return FailedPrecondition(ErrorDetails("FAILED_PRECONDITION", problem, reason="ACTIVATION_LATE"))
