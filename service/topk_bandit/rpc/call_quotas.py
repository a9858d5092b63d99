"""How many calls a second a tenant may send: a token bucket for each tenant and kind of call, in this worker alone.

A bucket holds the tokens of one second and is full at first; a call takes one, before its message is parsed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from topk_bandit.domain.errors import QuotaError
from topk_bandit.domain.quotas import UNLIMITED

if TYPE_CHECKING:
    from collections.abc import Callable

    from topk_bandit.domain.quotas import Quota, Quotas

__all__ = ["BURST_SECONDS", "Bucket", "CallQuotas", "charge", "take_token"]

BURST_SECONDS = 1.0
"""A bucket holds what comes in within so long."""

_ROUNDING_SECONDS = 1e-6


class Bucket(NamedTuple):
    """How many tokens it lacked, and when that was, in seconds."""

    lacking: float = 0.0
    at: float = 0.0


def take_token(bucket: Bucket, *, rate: int, now: float) -> tuple[Bucket, float]:
    """Take a token from a bucket that holds `rate` tokens and gets as many a second.

    Parameters
    ----------
    now
        Seconds, monotonic.

    Returns
    -------
    tuple
        The bucket after this, and how many seconds to wait for a token: 0 if one was taken.
    """
    full = rate * BURST_SECONDS  # a bucket of a higher rate may have lacked more
    lacking = max(0.0, min(bucket.lacking, full) - (now - bucket.at) * rate) + 1.0
    wait = lacking / rate - BURST_SECONDS
    return (Bucket(lacking, now), 0.0) if wait <= _ROUNDING_SECONDS else (bucket, wait)


def charge(bucket: Bucket, tokens: int, *, rate: int, now: float) -> Bucket:
    """Return a bucket from which so many more tokens were taken, also those that are not there yet.

    Parameters
    ----------
    rate, now
        As for `take_token`.
    """
    lacking = max(0.0, bucket.lacking - (now - bucket.at) * rate) + tokens
    full = rate * BURST_SECONDS
    # A bucket lacks no more than it holds: what goes beyond comes from the future.
    return Bucket(min(lacking, full), now + max(0.0, lacking - full) / rate)


class CallQuotas:
    """The buckets of a worker; of tenants that have keys alone, so that there are never many.

    Parameters
    ----------
    clock
        Seconds, monotonic.
    """

    def __init__(self, quotas: Quotas, *, clock: Callable[[], float]) -> None:
        self._quotas = quotas
        self._clock = clock
        self._buckets: dict[tuple[str, Quota], Bucket] = {}

    def refusal(self, tenant: str, quota: Quota) -> QuotaError | None:
        """Take a token for a call of a tenant, or return why there is none; a call of no tenant needs none."""
        if not tenant:
            return None
        limit = self._quotas.limit(tenant, quota)
        if limit == UNLIMITED:
            return None
        known = self._buckets.get((tenant, quota), Bucket())
        self._buckets[tenant, quota], wait = take_token(known, rate=limit, now=self._clock())
        return QuotaError(quota, tenant, limit=limit, used=limit, retry_after=wait) if wait else None

    def charge(self, tenant: str, quota: Quota, tokens: int) -> None:
        """Take more tokens for a call that had one; those that are not there yet are waited for by the next calls."""
        known = self._buckets.get((tenant, quota))
        if tokens and known is not None and (limit := self._quotas.limit(tenant, quota)) != UNLIMITED:
            self._buckets[tenant, quota] = charge(known, tokens, rate=limit, now=self._clock())
