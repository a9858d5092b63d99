"""What the clients take and return."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from topk_bandit.domain.bandits import Aggregation, Kernel, RewardRange
from topk_bandit.domain.durability import Durability
from topk_bandit.domain.rules import ExposureStats
from topk_bandit.domain.slates import ActivationOutcome, ActivationReceipt, RewardOutcome, RewardReceipt
from topk_bandit.domain.stages import (
    ConservativeStats,
    Group,
    GroupStats,
    Interval,
    LiftDay,
    LiftStats,
    LiftVerdict,
    ShadowStats,
    Stage,
)
from topk_bandit.domain.statistics import LogReach

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime, timedelta

    from topk_bandit.client.errors import ClientError
    from topk_bandit.client.features import FeatureStats
    from topk_bandit.client.rules import Absence, Rule
    from topk_bandit.domain.features import Feature

__all__ = [
    "ActivationOutcome",
    "ActivationReceipt",
    "Aggregation",
    "Bandit",
    "BanditStats",
    "BatchOutcome",
    "ConservativeStats",
    "Durability",
    "ExposureStats",
    "Group",
    "GroupStats",
    "Interval",
    "Item",
    "Kernel",
    "LiftDay",
    "LiftStats",
    "LiftVerdict",
    "LogReach",
    "OutboxStatus",
    "PagePlacement",
    "Recommendation",
    "Refusal",
    "RewardOutcome",
    "RewardPoint",
    "RewardRange",
    "RewardReceipt",
    "RewardTimes",
    "ShadowStats",
    "SlatePage",
    "SlateRequest",
    "Source",
    "Stage",
    "Tls",
]


@dataclass(frozen=True, slots=True)
class Tls:
    """How to talk TLS: PEM bytes. None trusts what gRPC trusts by default, and shows no certificate of one's own.

    Where the service maps the names in callers' certificates to tenants, a certificate takes the place of a key.

    Attributes
    ----------
    root_certificates
        The authorities of the service's certificate.
    private_key, certificate_chain
        One's own; both or neither.

    Raises
    ------
    TypeError
        One of them is not bytes, such as a path.
    ValueError
        One of them has no PEM, or there is a private key without a certificate, or the other way round.
    """

    root_certificates: bytes | None = None
    private_key: bytes | None = field(default=None, repr=False)
    certificate_chain: bytes | None = None

    def __post_init__(self) -> None:
        for name in ("root_certificates", "private_key", "certificate_chain"):
            _check_pem(name, getattr(self, name))
        if (self.private_key is None) != (self.certificate_chain is None):
            raise ValueError("private_key and certificate_chain: one needs the other")


def _check_pem(name: str, value: object) -> None:
    if value is None:
        return
    if not isinstance(value, bytes):
        raise TypeError(f"{name} must be the bytes of a PEM file, not {type(value).__name__}: read the file")
    if b"-----BEGIN " not in value:
        raise ValueError(f"{name} has no PEM: it needs lines that begin with -----BEGIN")


class Source(StrEnum):
    """Where a slate comes from."""

    SERVICE = "service"
    """Chosen by the service and recorded: post what it earns."""
    DEGRADED = "degraded"
    """Chosen by the service, which may not have recorded it: show it, and post what it earns if it has an id."""
    FALLBACK = "fallback"
    """The shop's own ranking: the service gave none in time. Show it, and post no reward."""


@dataclass(frozen=True, slots=True)
class Recommendation:
    """One slate to show. All numbers of the shop's own ranking are 0: the service said nothing of it.

    Attributes
    ----------
    id
        What its reward is posted for; empty unless `source` is the service.
    items
        Item ids, best first.
    propensity
        Probability with which this slate is shown for this context, these candidates and this model version.
    mean, standard_deviation, regret_bound, estimated_regret
        What the model expects of the slate, in reward units. Until two rewards differ these have no unit, and the mean
        is what all of them were: 0 before the first.
    explored
        Whether the slate was drawn at random by one of the exploration's shares.
    baseline
        Whether it is the baseline slate: the stage or the group asks for it, or too few candidates could be shown.
    observations
        Rewards that the model had learned from.
    reward_deadline
        When its reward comes too late, in UTC; None unless `source` is the service.
    source
        Where it comes from: the service, the service while its store is away, or the shop's own ranking.
    position_propensities
        Probability with which each of its items is shown at its position.
    regret_confidence
        Probability with which `regret_bound` holds, if what the model believes does.
    passed_over
        How many candidates were passed over: unknown, retired or unavailable.
    stage
        Whose slates the bandit shows now, and whether it learns.
    group
        Whom the request was drawn to, if the bandit has a control group.
    relaxed_rules
        The rules that were given up, in words, because no slate keeps all of them.
    absent_items
        The items of `explain` that it does not show, with the reason.
    paid_exposures
        The promised exposures that it paid for, in words: it shows items of their groups because slates were owed.
    """

    id: str
    items: tuple[str, ...]
    propensity: float
    mean: float
    standard_deviation: float
    regret_bound: float
    estimated_regret: float
    explored: bool
    baseline: bool
    model_version: int
    observations: int
    reward_deadline: datetime | None
    source: Source
    position_propensities: tuple[float, ...]
    regret_confidence: float
    passed_over: int
    stage: Stage = Stage.LIVE
    group: Group = Group.NONE
    relaxed_rules: tuple[str, ...] = ()
    absent_items: tuple[Absence, ...] = ()
    paid_exposures: tuple[str, ...] = ()

    @property
    def degraded(self) -> bool:
        """Whether nobody recorded the slate, so that no reward can be posted for it."""
        return self.source is not Source.SERVICE


@dataclass(frozen=True, slots=True)
class Item:
    """Something that can be shown; an unavailable one is kept, and shown again once it is available.

    Attributes
    ----------
    features
        For a bandit with an item schema: a mapping by name, or a dataclass. A mapping where it is given back.
    """

    item_id: str
    available: bool = True
    features: Any = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlateRequest:
    """One of several requests for slates; each field is as for `Client.recommend`."""

    context: Sequence[float] = ()
    features: object = None
    candidates: Sequence[str] | None = None
    request_id: str | None = None
    baseline: Sequence[str] | None = None
    group_key: str | None = None
    rules: Sequence[Rule | str] | None = None
    frequency_key: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PagePlacement(SlateRequest):
    """One of the slates of a page; without a context, features and a group key of its own it has those of the page.

    Attributes
    ----------
    fallback, fallback_size
        As for `Client.recommend`: what is shown where its slate does not come, but for what the page shows elsewhere.
    """

    bandit: str
    fallback: Sequence[str] | None = None
    fallback_size: int | None = None


@dataclass(frozen=True, slots=True)
class SlatePage:
    """The slates of a page.

    Attributes
    ----------
    id
        What one reward for all of them is posted for; empty where each is the shop's own.
    slates
        A slate for each placement, in their order, or the error that is in its place.
    bandits
        Those of its placements, in their order; empty where the slate is the shop's own or an error, which takes no
        reward: the service may have recorded another one.
    """

    id: str
    slates: tuple[Recommendation | ClientError, ...]
    bandits: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BatchOutcome:
    """What became of a batch of rewards: each recommendation id is in exactly one of the two."""

    receipts: dict[str, RewardReceipt]
    errors: dict[str, ClientError]


@dataclass(frozen=True, slots=True)
class Refusal:
    """What was taken out of an outbox undelivered, because the service will never take it: a reward or an activation.

    Attributes
    ----------
    value
        None of an activation.
    reward_id
        Empty of an activation.
    shown
        The items that an activation says were shown; none stands for the slate itself.
    item_values
        What a reward says that single items did, by their ids.
    """

    bandit: str
    recommendation_id: str
    value: float | None
    reward_id: str
    error: ClientError
    shown: tuple[str, ...] = ()
    item_values: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class OutboxStatus:
    """Where an outbox stands; rewards and activations count alike.

    Attributes
    ----------
    pending
        How many are on disk and not delivered, of all processes that share the file.
    oldest
        When the oldest of these was written, in UTC; None where there is none.
    delivered
        How many this outbox has delivered since it was made.
    refused
        How many it took out because the service will never take them, by reason, such as ``REWARD_LATE`` or
        ``ACTIVATION_LATE``.
    """

    pending: int
    oldest: datetime | None
    delivered: int
    refused: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Bandit:
    """A bandit's settings. Of `constant_beta` and `schedule_scale` exactly one is set.

    Attributes
    ----------
    name
        Its id, without the tenant.
    default_reward
        None when a recommendation without a reward is not learned from.
    prior_study
        Id of the study whose utilities are the prior mean; None without one.
    half_life
        Age at which a reward counts half; None where it never counts less.
    reward_range
        The rewards that are taken, each by itself; None for any.
    reward_aggregation
        What is learned of a slate that gets several rewards.
    requires_activation
        Whether a slate counts and is learned from only once `Client.activate`, or a reward, says that it was shown.
    baseline_item_ids
        What is shown where too few candidates are left; none without a baseline slate.
    context_schema
        The features that requests have; None where they have a context of numbers.
    item_schema
        The features that items may have; None where they are known by their ids alone.
    durability
        What is awaited before a write is acknowledged; None for what the service awaits.
    learned_per_second
        About how many slates a second are learned from at most.
    provisional_after
        How long after a slate its reward so far is first learned; None where it is learned when it is final.
    default_item_value
        What an item counts that no reward of its slate names; None where nothing is known of such items.
    stage
        Whose slates are shown, and whether anything is learned.
    control_share
        Share of the requests that get the baseline slate; 0 without a control group.
    guardrail_margin
        By which share of the control group's reward it may be worse before it goes in shadow by itself; None for no
        guardrail.
    conservative_share
        By which share all that was shown may have earned less than the baseline slates would have; 0 for any.
    rules
        What each slate keeps, in the order of importance.
    """

    name: str
    slate_size: int
    item_capacity: int
    context_dimension: int
    kernel: Kernel
    constant_beta: float | None
    schedule_scale: float | None
    uniform_share: float
    near_share: float
    shares_fall_after: int
    reward_wait: timedelta
    default_reward: float | None
    create_time: datetime
    prior_study: str | None
    half_life: timedelta | None
    reward_range: RewardRange | None
    reward_aggregation: Aggregation
    requires_activation: bool
    baseline_item_ids: tuple[str, ...]
    context_schema: tuple[Feature, ...] | None
    item_schema: tuple[Feature, ...] | None
    durability: Durability | None
    learned_per_second: int
    provisional_after: timedelta | None
    default_item_value: float | None
    stage: Stage
    control_share: float
    guardrail_margin: float | None
    conservative_share: float
    rules: tuple[Rule, ...]


@dataclass(frozen=True, slots=True)
class RewardPoint:
    """How much of what slates end up with has come by a delay."""

    delay: timedelta
    share: float


@dataclass(frozen=True, slots=True)
class RewardTimes:
    """By when slates earn what they end up with; the fields are described in ``bandit_service.proto``.

    Attributes
    ----------
    half_by, nine_tenths_by, almost_all_by
        None while nothing is known.
    """

    slate_count: int
    points: tuple[RewardPoint, ...]
    half_by: timedelta | None
    nine_tenths_by: timedelta | None
    almost_all_by: timedelta | None
    reward_wait: timedelta


@dataclass(frozen=True, slots=True)
class BanditStats:
    """Where a bandit stands; the fields are described in ``bandit_service.proto`` under the same names."""

    log_position: int
    model_version: int
    recommendation_count: int
    observation_count: int
    default_count: int
    expiration_count: int
    late_reward_count: int
    pending_count: int
    item_count: int
    available_item_count: int
    posterior_row_count: int
    pending_row_count: int
    mean_reward: float
    regret_bound_sum: float
    estimated_regret_sum: float
    explored_count: int
    noise_variance: float
    prior_variance: float
    snapshot_position: int
    memory_bytes: int
    memory_limit_bytes: int
    prior_slope: float
    rank_weight_power: float
    log_digest: str
    posterior_digest: str
    arithmetic: str
    outlier_count: int
    pair_scale: float
    constant_variance: float
    shared_context: float
    edges_reached: tuple[str, ...]
    context_features: tuple[FeatureStats, ...]
    item_features: tuple[FeatureStats, ...]
    passed_over_count: int
    place_count: int
    unplaced_reward_count: int
    clamped_reward_count: int
    inactive_count: int
    lapsed_count: int
    shown_otherwise_count: int
    corrected_reward_count: int
    missed_correction_count: int
    content_share: float
    lost_event_count: int
    lost_reward_count: int
    imported_count: int
    forgotten_count: int
    noticed_change_count: int
    store_bytes: int
    set_aside_count: int
    outlier_context_count: int
    spread_factor: float
    has_reward_range: bool
    damage: str
    selection_share: float
    reward_times: RewardTimes
    shadow: ShadowStats
    lift: LiftStats | None
    log_reach: LogReach
    rules: tuple[str, ...]
    exposures: tuple[ExposureStats, ...]
    conservative: ConservativeStats | None
