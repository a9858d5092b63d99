"""Counters of what some tenants use, those that the operator names; all other calls are those of `other`.

Tenants that nobody named have no series of their own: how many there are is up to the operator, not to callers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from prometheus_client import Counter

from topk_bandit.process.settings import OTHER_TENANTS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from prometheus_client import CollectorRegistry

__all__ = ["TenantUsage"]

_SLATES, _REWARDS, _REST = "recommend", "reward", "other"
_RECOMMENDER = "topk_bandit.v1.RecommenderService"


class _Series(NamedTuple):
    """The series of a tenant; its calls are by kind."""

    calls: dict[str, Counter]
    seconds: Counter
    refusals: Counter


class TenantUsage:
    """The counters of a worker.

    Parameters
    ----------
    registry
        Where they are registered.
    tenants
        The tenants that have series of their own, each once. Without any there are no series.
    """

    def __init__(self, registry: CollectorRegistry, tenants: Sequence[str]) -> None:
        calls = Counter(
            "topk_bandit_tenant_calls_total",
            "Calls that were answered, by the tenant that they are about, if it is named, and by kind.",
            ("tenant", "kind"),
            registry=registry,
        )
        seconds = Counter(
            "topk_bandit_tenant_call_seconds_total",
            "Sum of the times from a call's arrival to its answer, by tenant.",
            ("tenant",),
            registry=registry,
        )
        refusals = Counter(
            "topk_bandit_tenant_refusals_total",
            "Calls that were refused because the tenant has used up a quota.",
            ("tenant",),
            registry=registry,
        )
        self._of = {
            tenant: _Series(
                {kind: calls.labels(tenant, kind) for kind in (_SLATES, _REWARDS, _REST)},
                seconds.labels(tenant),
                refusals.labels(tenant),
            )
            for tenant in ((*tenants, OTHER_TENANTS) if tenants else ())
        }

    def count(self, resource: str, service: str, method: str, seconds: float) -> None:
        """Count a call that was answered, about a resource by name: ``"tenants/acme/bandits/home"``, or nothing."""
        if self._of:
            series = self._series(_tenant_of(resource))
            series.calls[_kind(service, method)].inc()
            series.seconds.inc(seconds)

    def count_refusal(self, tenant: str) -> None:
        """Count a call that was refused for a quota of the tenant."""
        if self._of:
            self._series(tenant).refusals.inc()

    def _series(self, tenant: str) -> _Series:
        return self._of.get(tenant) or self._of[OTHER_TENANTS]


def _tenant_of(resource: str) -> str:
    collection, _, rest = resource.partition("/")
    return rest.partition("/")[0] if collection == "tenants" else ""


def _kind(service: str, method: str) -> str:
    if service != _RECOMMENDER:
        return _REST
    return _SLATES if method == "Recommend" else _REWARDS
