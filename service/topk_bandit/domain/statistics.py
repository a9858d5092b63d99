"""What is known of a bandit at a moment, for operators."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from topk_bandit.domain.features import FeatureStats
    from topk_bandit.domain.reward_times import RewardTimes
    from topk_bandit.domain.rules import ExposureStats
    from topk_bandit.domain.stages import ConservativeStats, LiftStats, ShadowStats

__all__ = [
    "BanditStats",
    "HyperparameterStats",
    "LogReach",
]


@dataclass(frozen=True, slots=True)
class HyperparameterStats:
    """What the kernel and the noise are like, as last chosen at a refit.

    Attributes
    ----------
    noise_variance
        Variance of a reward around its expectation, in squared reward units.
    prior_variance
        Variance of the expected reward before any observation for a context of norm 1, in squared reward units.
    prior_slope
        Reward units that a standard deviation of the prior's utilities is worth; 0 without a prior.
    rank_weight_power
        p of the kernel's rank weights dcg^p; 0 for a kernel without weights.
    pair_scale
        tau of the kernel: how much the order of a slate's items among each other counts; 1 for a kernel
        that stays as it is.
    constant_variance
        kappa of the kernel: the variance of what a context does to all slates alike, in units of what
        slates differ by.
    shared_context
        lambda: what all contexts have in common, in the unit of their dot products.
    content_share
        rho of the kernel: the variance of what the items' features say of a slate, in units of what
        slates differ by; 0 where they count for nothing.
    edges_reached
        Which of "noise", "constant", "content" and "shared" were chosen at the end of their range.
    """

    noise_variance: float
    prior_variance: float
    prior_slope: float
    rank_weight_power: float
    pair_scale: float
    constant_variance: float
    shared_context: float
    content_share: float
    edges_reached: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LogReach:
    """How far back the log of a bandit can be read: in the store, and before that in the files of a cold log.

    Attributes
    ----------
    first_position, since_ms
        Of the oldest event from which on none is missing; the time is by the store's clock, None if it is damaged.
    stored_position
        That of the oldest event in the store.
    missing_events
        How many events before that one are in no file, though files have older ones: a folder for each service leaves
        such gaps, and so does a disk that was full for long.
    """

    first_position: int
    since_ms: int | None
    stored_position: int
    missing_events: int


@dataclass(frozen=True, slots=True)
class BanditStats:
    """Where a bandit stands.

    Attributes
    ----------
    log_position
        Position of the newest event in the store.
    model_version
        Position that the answering worker's posterior has folded in.
    pending
        Recommendations that are shown, whose deadline has not passed and that have no reward yet.
    inactive
        Recommendations whose deadline has not passed and that are not activated yet.
    lapsed
        Recommendations whose deadline passed before they were activated.
    shown_otherwise
        Recommendations instead of which another slate was shown.
    corrected
        Rewards that were amended or voided after they had been learned.
    missed_corrections
        Those of them that came when the model had folded the reward, and changed nothing: 0 unless workers have
        different limits, or a log was replayed with others.
    late_rewards
        Rewards that came after their deadline and were counted, not learned.
    clamped_rewards
        Rewards outside the bandit's range that were learned as its nearest end.
    lost_events, lost_rewards
        Events that the store had and lost, as far as a worker knew them, and how many of them were rewards.
    places
        Places of the universe that the kernel is defined on.
    passed_over
        Candidates that were passed over, over all recommendations.
    unplaced_rewards
        Rewards that were not learned because an item of their slate had lost its place.
    hyperparameters
        What the kernel and the noise are like.
    imported
        Observations of slates that were shown elsewhere, and are no recommendations.
    forgotten
        Observations that were learned before the newest reset: they count, and nothing of them is known.
    outliers
        Rewards that are not learned, because they are too far from all others; those that turned out in range are.
    outlier_contexts
        Rewards that are not learned, because the contexts of their slates are too long to be true.
    spread_factor
        By how much standard deviations are widened, because the latest rewards lay farther from what was expected; 1 if
        they did not.
    has_reward_range
        Whether rewards that can't be are refused; else rewards of any size are taken.
    selection_share
        Share of the slates that ended and are not learned, though all rewards that are learned are other than zero.
    reward_times
        By when slates have earned what they end up with.
    shadow
        What it would have shown in shadow.
    lift
        What its group earns beside the control group; None for a bandit that never had one.
    damage
        Why the log can't be learned from any further; empty while it can.
    set_aside
        Recommendations that are not learned from, because there were too many in a second.
    noticed_changes
        How often the latest rewards said that the shop had changed, so that all before counted for less.
    memory_bytes
        What the answering worker's model takes in memory, about.
    memory_limit_bytes
        What it may take.
    store_bytes
        What the bandit takes in the store, by the store's estimate; 0 if that may not be asked.
    log_digest
        Of what the log up to `model_version` says: the same in every worker.
    posterior_digest
        Those of the answering worker's posterior: the same in every worker with the same `arithmetic`.
    arithmetic
        What that posterior was computed with: by the answering worker, and before by whoever saved the snapshot that it
        started from, if that was an unlike one.
    context_features
        What was seen of each feature of the schema, in its order; of the whole context without one.
    item_features
        What was seen of each feature of the item schema, in its order.
    log_reach
        How far back the log can be read.
    rules
        Its own, in words.
    exposures
        How promised exposures were kept.
    conservative
        How its conservative share was kept; None for a bandit without one.
    """

    log_position: int
    model_version: int
    recommendations: int
    observations: int
    imported: int
    forgotten: int
    defaults: int
    expirations: int
    late_rewards: int
    clamped_rewards: int
    lost_events: int
    lost_rewards: int
    pending: int
    inactive: int
    lapsed: int
    shown_otherwise: int
    corrected: int
    missed_corrections: int
    items: int
    available_items: int
    places: int
    passed_over: int
    unplaced_rewards: int
    posterior_rows: int
    pending_rows: int
    reward_sum: float
    mean_reward: float
    regret_bound_sum: float
    estimated_regret_sum: float
    explored: int
    hyperparameters: HyperparameterStats
    outliers: int
    outlier_contexts: int
    spread_factor: float
    has_reward_range: bool
    selection_share: float
    reward_times: RewardTimes
    shadow: ShadowStats
    lift: LiftStats | None
    damage: str
    noticed_changes: int
    set_aside: int
    snapshot_position: int
    memory_bytes: int
    memory_limit_bytes: int
    store_bytes: int
    log_digest: str
    posterior_digest: str
    arithmetic: str
    context_features: tuple[FeatureStats, ...]
    item_features: tuple[FeatureStats, ...]
    log_reach: LogReach
    rules: tuple[str, ...]
    exposures: tuple[ExposureStats, ...] = ()
    conservative: ConservativeStats | None = None
