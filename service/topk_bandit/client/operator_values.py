"""What the clients return to operators."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from topk_bandit.domain.operators import (
    CallStatus,
    ItemPart,
    ModelGlance,
    ModelSource,
    PairPart,
    QuotaUse,
    RankedSlate,
    Reasons,
    SkippedEvent,
    StoreStatus,
    TopSlates,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime, timedelta

    from topk_bandit.client.values import Recommendation
    from topk_bandit.domain.rules import Absence

__all__ = [
    "BanditOverview",
    "CallStatus",
    "EventPage",
    "Explanation",
    "ExportedEvent",
    "HistoryPoint",
    "ImportedLines",
    "ItemPart",
    "ModelGlance",
    "ModelSource",
    "PairPart",
    "QuotaUse",
    "RankedSlate",
    "Reasons",
    "ServiceStatus",
    "SkippedEvent",
    "StoreStatus",
    "TenantStats",
    "TopSlates",
    "Verification",
]


@dataclass(frozen=True, slots=True)
class Explanation:
    """One recommendation as it was recorded, and why it was what it was.

    Attributes
    ----------
    context, features
        The request's: one of them is empty.
    candidates
        None if every available item was one.
    best_items
        What would have been shown if no share of the exploration had drawn another slate; empty if none did.
    log_position
        Where it stands in the log.
    recommend_time
        By the store's clock, in UTC.
    reasons
        None where the model is gone: `ModelSource.TRIMMED`.
    absent_items
        Those of the items that were asked about which the slate does not show, with the reason.
    reasons_problem
        Why there are none; empty where there are some.
    """

    request_id: str
    context: tuple[float, ...]
    features: Mapping[str, Any]
    candidates: tuple[str, ...] | None
    recommendation: Recommendation
    best_items: tuple[str, ...]
    log_position: int
    recommend_time: datetime
    model_source: ModelSource
    reasons: Reasons | None
    absent_items: tuple[Absence, ...] = ()
    reasons_problem: str = ""


@dataclass(frozen=True, slots=True)
class BanditOverview:
    """A bandit at a glance; other fields are described in ``operator_service.proto`` under the same names.

    Attributes
    ----------
    tenant, bandit
        Their ids.
    glance
        None for a bandit whose model is in no memory of the answering service's workers.
    """

    tenant: str
    bandit: str
    create_time: datetime
    log_position: int
    snapshot_position: int
    pending_count: int
    late_reward_count: int
    glance: ModelGlance | None


@dataclass(frozen=True, slots=True)
class TenantStats:
    """What a tenant uses; the fields are described in ``operator_service.proto`` under the same names."""

    bandit_count: int
    log_event_count: int
    pending_count: int
    late_reward_count: int
    model_count: int
    model_memory_bytes: int
    recommendation_count: int
    observation_count: int
    quotas: tuple[QuotaUse, ...]


@dataclass(frozen=True, slots=True)
class ServiceStatus:
    """How the answering worker and the store are; see ``operator_service.proto``. `store` is None while it is away."""

    version: str
    worker: str
    start_time: datetime
    window: timedelta
    calls: tuple[CallStatus, ...]
    store: StoreStatus | None


@dataclass(frozen=True, slots=True)
class HistoryPoint:
    """An interval of a bandit's life; the fields are described in ``operator_service.proto`` under the same names.

    Counts and sums are totals since the beginning. Means and shares are of the interval, None where there is none.
    """

    start_time: datetime
    end_time: datetime
    recommendation_count: int
    explored_count: int
    rewarded_count: int
    expired_count: int
    observation_count: int
    reward_sum: float
    regret_bound_sum: float
    estimated_regret_sum: float
    mean_reward: float | None
    explored_share: float | None
    join_rate: float | None


@dataclass(frozen=True, slots=True)
class Verification:
    """A model beside the fold of its log; the fields are described in ``operator_service.proto``."""

    agrees: bool
    difference: str
    model_version: int
    replayed_from: int
    log_digest: str
    posterior_digest: str
    arithmetic: str
    replayed_log_digest: str
    replayed_posterior_digest: str
    replayed_arithmetic: str


@dataclass(frozen=True, slots=True)
class ExportedEvent:
    """An event of a log: its place, the store's clock in milliseconds, and the event as JSON."""

    position: int
    at_ms: int
    event_json: str


@dataclass(frozen=True, slots=True)
class EventPage:
    """Part of a log.

    Attributes
    ----------
    next_cursor
        Where to go on, also if there is nothing yet.
    log_position
        Position of the newest event.
    """

    events: tuple[ExportedEvent, ...]
    next_cursor: str
    log_position: int


@dataclass(frozen=True, slots=True)
class ImportedLines:
    """With which line an import goes on, and the newest position of what was made; 0 while lines miss."""

    next_line: int
    log_position: int
