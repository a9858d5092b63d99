"""Makes rewards that came too late heard: nothing is learned from them, and a storefront would not notice."""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING

from topk_bandit.client.errors import ErrorDetails, FailedPrecondition
from topk_bandit.client.values import RewardOutcome

if TYPE_CHECKING:
    from collections.abc import Iterable

    from topk_bandit.client.values import RewardReceipt

__all__ = ["LateRewards"]

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
        told_before = bandit in self.counts
        self.counts[bandit] += late
        problem = f"{late} of the rewards posted to {bandit} came after their deadline and were not learned"
        if self._raises:
            raise FailedPrecondition(ErrorDetails("FAILED_PRECONDITION", problem, reason="REWARD_LATE"))
        if not told_before:
            _log.warning("%s; a longer reward_wait takes them (this is said once, Client.late_rewards counts)", problem)
