"""When a failed call is tried again: the one policy of both clients, and the only one, as gRPC's own is turned off."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from topk_bandit.client.errors import ClientError, ResourceExhausted, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Attempts", "RetryPolicy"]


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Exponential back-off with jitter: pause n is drawn from the upper half of ``initial * multiplier**n`` seconds.

    The pause that the service asks for comes on top. There is no limit on the number of tries but the call's deadline.

    Attributes
    ----------
    initial_backoff, max_backoff
        Seconds; how long the first pause and any pause is at most.
    """

    initial_backoff: float = 0.05
    multiplier: float = 2.0
    max_backoff: float = 1.0

    def __post_init__(self) -> None:
        """Refuse a policy that does not back off."""
        if not 0.0 < self.initial_backoff <= self.max_backoff:
            raise ValueError("initial_backoff must be positive and at most max_backoff")
        if not self.multiplier >= 1.0:
            raise ValueError("multiplier must be at least 1")

    def pause(self, number: int, *, random: Callable[[], float]) -> float:
        """Return how many seconds to wait before retry `number`, from 0 on; `random` draws from [0, 1)."""
        # A power of hundreds of retries would overflow: there is no need to look beyond the cap.
        longest = self.initial_backoff
        for _ in range(number):
            if longest >= self.max_backoff:
                break
            longest *= self.multiplier
        return min(longest, self.max_backoff) * (0.5 + random() / 2.0)


class Attempts:
    """The tries of one call, which share its deadline.

    Parameters
    ----------
    repeatable
        Whether the call may be sent again although it may have had its effect.
    timeout
        Seconds from now for all tries and pauses together.
    clock
        Seconds, monotonic.
    """

    def __init__(
        self,
        policy: RetryPolicy,
        *,
        repeatable: bool,
        timeout: float,
        clock: Callable[[], float],
        random: Callable[[], float],
    ) -> None:
        self._policy = policy
        self._repeatable = repeatable
        self._clock = clock
        self._random = random
        self._deadline = clock() + timeout
        self._failures = 0

    def remaining(self) -> float:
        """Return how many seconds are left."""
        return max(self._deadline - self._clock(), 0.0)

    def pause_after(self, error: ClientError) -> float | None:
        """Return how many seconds to wait before the next try, None when there is none."""
        if not self._repeatable or not _may_pass(error):
            return None
        pause = self._policy.pause(self._failures, random=self._random) + (error.details.retry_after or 0.0)
        self._failures += 1
        return pause if pause < self.remaining() else None


def _may_pass(error: ClientError) -> bool:
    """Return whether waiting may help; gRPC calls a message that is too large exhausted too, but does not say when."""
    return isinstance(error, Unavailable) or (isinstance(error, ResourceExhausted) and error.retry_after is not None)
