"""What a tenant may use: values, and the one place that says which limit is whose."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["CALL_QUOTAS", "UNLIMITED", "Quota", "Quotas", "TenantUse"]

UNLIMITED = 2**53
"""More than there ever is of anything that is counted."""


class Quota(StrEnum):
    """What is limited, by the name that settings, files, errors and metrics have for it."""

    CALLS_PER_SECOND = "calls_per_second"
    REWARDS_PER_SECOND = "rewards_per_second"
    CALLS_IN_FLIGHT = "calls_in_flight"
    BANDITS = "bandits"
    STUDIES = "studies"
    ITEMS = "items"
    OPEN_SLATES = "open_slates"
    LOG_BYTES = "log_bytes"

    @property
    def reason(self) -> str:
        """What errors call it."""
        return _REASONS[self]


_REASONS = {
    Quota.CALLS_PER_SECOND: "CALL_QUOTA",
    Quota.REWARDS_PER_SECOND: "REWARD_QUOTA",
    Quota.CALLS_IN_FLIGHT: "IN_FLIGHT_QUOTA",
    Quota.BANDITS: "BANDIT_QUOTA",
    Quota.STUDIES: "STUDY_QUOTA",
    Quota.ITEMS: "ITEM_QUOTA",
    Quota.OPEN_SLATES: "OPEN_SLATE_QUOTA",
    Quota.LOG_BYTES: "LOG_QUOTA",
}


CALL_QUOTAS = (Quota.CALLS_PER_SECOND, Quota.REWARDS_PER_SECOND, Quota.CALLS_IN_FLIGHT)
"""Those of the tenant that a call's key is for: who is named in its message is not known in time, nor proved."""


class TenantUse(NamedTuple):
    """What a tenant's bandits have in the store; each field is named as its quota.

    Attributes
    ----------
    items
        Items, retired ones not counted.
    open_slates
        Slates that await their reward, or that they are shown.
    log_bytes
        What the bandits take in the store's memory: their logs, and all that belongs to them.
    """

    items: int = 0
    open_slates: int = 0
    log_bytes: int = 0


class Quotas:
    """The limits of all tenants.

    Parameters
    ----------
    default
        The limits of tenants without their own; a quota that is missing is unlimited.
    of_tenants
        Their own limits, by tenant.

    Attributes
    ----------
    of_tenants
        As above. Others may take their place while calls come.
    """

    def __init__(
        self,
        default: Mapping[Quota, int] | None = None,
        of_tenants: Mapping[str, Mapping[Quota, int]] | None = None,
    ) -> None:
        self._default = dict(default or {})
        self.of_tenants = of_tenants or {}

    def limit(self, tenant: str, quota: Quota) -> int:
        """Return how much a tenant may have of something; `UNLIMITED` for as much as there is."""
        default = self._default.get(quota, UNLIMITED)
        own = self.of_tenants.get(tenant)
        return default if own is None else own.get(quota, default)
