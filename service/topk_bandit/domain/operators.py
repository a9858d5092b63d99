"""Facts on tenants, bandits and single recommendations for operators: values without behaviour."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from topk_bandit.domain.bandits import BanditName
    from topk_bandit.domain.rules import Absence
    from topk_bandit.domain.slates import Recommendation, RecommendationRequest

__all__ = [
    "BanditOverview",
    "CallStatus",
    "EventPage",
    "EventText",
    "Explanation",
    "HistoryPoint",
    "ItemPart",
    "ModelGlance",
    "ModelSource",
    "PairPart",
    "QuotaUse",
    "RankedSlate",
    "Reasons",
    "SkippedEvent",
    "StoreStatus",
    "TenantStats",
    "TopSlates",
    "Verification",
    "WorkerStatus",
]


class ModelSource(StrEnum):
    """Where the model came from that a recommendation is explained by.

    LIVE is the one in memory. REPLAYED was folded again, from a snapshot or from the beginning of the log. TRIMMED says
    that it can't be had, as where neither the log nor a snapshot goes back so far any more.
    """

    LIVE = "live"
    REPLAYED = "replayed"
    TRIMMED = "trimmed"


@dataclass(frozen=True, slots=True)
class ModelGlance:
    """The values of a model in memory; the fields are described in ``operator_service.proto`` under the same names."""

    model_version: int
    recommendation_count: int
    observation_count: int
    explored_count: int
    mean_reward: float
    regret_bound_sum: float
    estimated_regret_sum: float
    item_count: int
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class BanditOverview:
    """A bandit at a glance.

    Attributes
    ----------
    log_position, snapshot_position, pending, late_rewards
        As the store has them; see `topk_bandit.domain.statistics.BanditStats`.
    created_ms
        When it was created, by the store's clock.
    glance
        None for a bandit that rests: no model of it is in the answering worker's memory.
    """

    name: BanditName
    created_ms: int
    log_position: int
    snapshot_position: int
    pending: int
    late_rewards: int
    glance: ModelGlance | None


@dataclass(frozen=True, slots=True)
class HistoryPoint:
    """An interval of a bandit's life in which something happened, and its totals since the beginning at the end of it.

    Attributes
    ----------
    start_ms, end_ms
        By the store's clock; the newest one ends with the newest event.
    recommendations, explored
        Slates given out, and those of them that a share of the exploration drew.
    rewarded, expired
        Slates that ended with a reward, and without one.
    observations, reward_sum
        What was learned, default rewards too.
    regret_bound_sum, estimated_regret_sum
        For the slates given out, in reward units.
    """

    start_ms: int
    end_ms: int
    recommendations: int
    explored: int
    rewarded: int
    expired: int
    observations: int
    reward_sum: float
    regret_bound_sum: float
    estimated_regret_sum: float


@dataclass(frozen=True, slots=True)
class QuotaUse:
    """How much a tenant may have of something, and has: None for no limit, and for a use that is not counted."""

    quota: str
    limit: int | None
    used: int | None


@dataclass(frozen=True, slots=True)
class TenantStats:
    """What a tenant uses.

    Attributes
    ----------
    log_events, pending, late_rewards
        Of all its bandits, over their lives but for `pending`, which is now.
    models, memory_bytes
        How many of its bandits have a model in the answering worker's memory, and what these take.
    recommendations, observations
        Of these bandits.
    quotas
        Each quota, with its limit and what is used of it.
    """

    tenant: str
    bandits: int
    log_events: int
    pending: int
    late_rewards: int
    models: int
    memory_bytes: int
    recommendations: int
    observations: int
    quotas: tuple[QuotaUse, ...]


@dataclass(frozen=True, slots=True)
class ItemPart:
    """What an item adds to the mean of a slate, in reward units.

    Attributes
    ----------
    position
        Where the slate shows it, 1 for the first.
    own
        What is known of the item itself, at this position.
    content
        What its features tell.
    prior
        What the study says that is the bandit's prior.
    """

    item_id: str
    position: int
    own: float
    content: float
    prior: float


@dataclass(frozen=True, slots=True)
class PairPart:
    """What it adds to the mean of a slate, in reward units, that it shows one item before another."""

    first_item_id: str
    second_item_id: str
    value: float


@dataclass(frozen=True, slots=True)
class RankedSlate:
    """A slate, and what a model expects of it.

    Attributes
    ----------
    mean, standard_deviation
        Posterior of its expected reward.
    upper_bound
        The mean and so many standard deviations more as the bandit's exploration says; the mean alone where slates are
        ranked by that.
    score
        What slates were compared by: the upper bound with means as in the decision's draw of the items' parts. Of
        slates ranked by their mean it is that. None for a slate that was not among those compared.
    """

    slate: tuple[str, ...]
    mean: float
    standard_deviation: float
    upper_bound: float
    score: float | None


@dataclass(frozen=True, slots=True)
class Reasons:
    """Why a model expects of a slate what it does.

    Attributes
    ----------
    shown
        The slate that was given out. Its mean is the sum of all parts.
    offset
        What rewards are centred on.
    context
        What the context does to every slate alike.
    items, pairs
        The other parts, by position.
    beta
        The upper bound is the mean and the root of this many standard deviations more.
    chosen_again
        Whether the model chooses the recorded slate for the recorded request.
    next_best
        The best other slates that were found, by their score.
    """

    shown: RankedSlate
    offset: float
    context: float
    items: tuple[ItemPart, ...]
    pairs: tuple[PairPart, ...]
    beta: float
    chosen_again: bool
    next_best: tuple[RankedSlate, ...]


@dataclass(frozen=True, slots=True)
class Explanation:
    """One recommendation as it is in the log, and why it was what it was.

    Attributes
    ----------
    position, at_ms
        Where it stands in the log, and the store's clock then.
    reasons
        None where the source is TRIMMED.
    absent
        Items that were asked about and that the slate does not show; none where the source is TRIMMED.
    problem
        Why there are no reasons; empty where there are some.
    """

    request: RecommendationRequest
    recommendation: Recommendation
    position: int
    at_ms: int
    source: ModelSource
    reasons: Reasons | None
    absent: tuple[Absence, ...] = ()
    problem: str = ""


@dataclass(frozen=True, slots=True)
class TopSlates:
    """The slates that a model expects most of.

    Attributes
    ----------
    slates
        Best first.
    model_version
        The log position that the model has learned up to.
    item_count
        How many available items the rules leave.
    rules, relaxed_rules
        Those of the bandit, or the proposed ones, in words; and those that were given up.
    """

    slates: tuple[RankedSlate, ...]
    model_version: int
    item_count: int
    rules: tuple[str, ...]
    relaxed_rules: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Verification:
    """A live model beside the fold of its log.

    Attributes
    ----------
    replayed_from
        Position of the snapshot that the replay began with; 0 for the beginning of the log.
    version
        Log position that both models have folded.
    log_digest, posterior_digest, arithmetic
        The live model's.
    replayed_log_digest, replayed_posterior_digest, replayed_arithmetic
        Of the replayed one.
    difference
        What differs and must not: "log" or "posterior"; empty if nothing does.
    """

    replayed_from: int
    version: int
    log_digest: str
    posterior_digest: str
    arithmetic: str
    replayed_log_digest: str
    replayed_posterior_digest: str
    replayed_arithmetic: str
    difference: str


@dataclass(frozen=True, slots=True)
class SkippedEvent:
    """Where a learner stands after an event was passed over.

    Attributes
    ----------
    model_version
        Log position that its model has folded.
    log_position
        Position of the newest event.
    problem
        Why it ends before that; empty if it does not.
    """

    model_version: int
    log_position: int
    problem: str


@dataclass(frozen=True, slots=True)
class EventText:
    """An event of a log as JSON in UTF-8."""

    position: int
    at_ms: int
    text: bytes


@dataclass(frozen=True, slots=True)
class EventPage:
    """Part of a log.

    Attributes
    ----------
    incarnation
        The bandit's: another one's log is another log.
    next_position
        Where to go on, also if there is nothing yet.
    log_position
        Position of the newest event.
    """

    incarnation: str
    events: tuple[EventText, ...]
    next_position: int
    log_position: int


@dataclass(frozen=True, slots=True)
class CallStatus:
    """How long the calls of a method took lately.

    Attributes
    ----------
    method
        Its service and its name.
    call_count, failed_count
        How many there were, and how many of them ended with a failure of the service.
    median_seconds, p90_seconds, p99_seconds
        The latency that this share of the calls did not exceed.
    """

    method: str
    call_count: int
    failed_count: int
    median_seconds: float
    p90_seconds: float
    p99_seconds: float


@dataclass(frozen=True, slots=True)
class WorkerStatus:
    """How a worker is.

    Attributes
    ----------
    version
        The service's.
    worker
        Tells it from others.
    start_ms
        When it was started, by its machine's clock.
    window_seconds
        How far back its calls are counted.
    calls
        By method, those that were called.
    """

    version: str
    worker: str
    start_ms: int
    window_seconds: float
    calls: tuple[CallStatus, ...]


@dataclass(frozen=True, slots=True)
class StoreStatus:
    """How the store is.

    Attributes
    ----------
    server, version, mode
        What it is.
    durability
        What the service awaits before it acknowledges a write.
    problems
        What keeps it from keeping what it acknowledges, for good or for the moment.
    memory_bytes, memory_limit_bytes
        What the data of the fullest server take, and what that server may take: 0 where it does not tell.
    """

    server: str
    version: str
    mode: str
    durability: str
    problems: tuple[str, ...]
    memory_bytes: int
    memory_limit_bytes: int
