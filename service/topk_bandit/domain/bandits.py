"""Values without behaviour: what the floors above hand to each other.

Times are milliseconds of the store's clock since the Unix epoch (`*_ms`). Item ids and recommendation ids are opaque
text. Rewards, means and spreads are in the unit of the storefront's reward.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias

from topk_bandit.domain.durability import IN_MEMORY
from topk_bandit.domain.features import NO_FEATURES
from topk_bandit.domain.stages import Group, Stage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from topk_bandit.domain.durability import Durability
    from topk_bandit.domain.features import Context, Features, FeatureSchema, FeatureStats
    from topk_bandit.domain.reward_times import RewardTimes
    from topk_bandit.domain.rules import Absence, ExposureStats, SlateRule
    from topk_bandit.domain.stages import ConservativeStats, LiftStats, Shadow, ShadowStats

__all__ = [
    "DEFAULT_BETA_SCALE",
    "DEFAULT_EXPLORATION",
    "DEFAULT_LEARNED_PER_SECOND",
    "DEFAULT_NEAR_SHARE",
    "DEFAULT_SHARES_FALL_AFTER",
    "DEFAULT_UNIFORM_SHARE",
    "MAX_BETA",
    "MAX_CONTEXT_DIMENSION",
    "MAX_CONTEXT_WIDTH",
    "MAX_HALF_LIFE_MS",
    "MAX_ITEM_CAPACITY",
    "MAX_REWARD_WAIT_MS",
    "MAX_SLATE_SIZE",
    "MOST_LEARNED_PER_SECOND",
    "MOST_SHARES_FALL_AFTER",
    "NOTHING_NAMED",
    "REGRET_CONFIDENCE",
    "WHOLE_ITEMS",
    "Activated",
    "ActivationOutcome",
    "ActivationReceipt",
    "Aggregation",
    "BanditCreated",
    "BanditName",
    "BanditReset",
    "BanditSettings",
    "BanditStats",
    "ConstantBeta",
    "Event",
    "EventSkipped",
    "Expired",
    "Exploration",
    "HyperparameterStats",
    "Imported",
    "Item",
    "ItemMask",
    "ItemUtility",
    "ItemValues",
    "ItemsChanged",
    "Kernel",
    "Lapsed",
    "LogReach",
    "LoggedEvent",
    "PaperBeta",
    "PastSlate",
    "Prior",
    "Recommendation",
    "RecommendationRequest",
    "Recommended",
    "Reward",
    "RewardAmended",
    "RewardCollected",
    "RewardOutcome",
    "RewardRange",
    "RewardReceipt",
    "RewardRevised",
    "Rewarded",
    "SettingsChanged",
    "Shown",
    "SlateEvent",
    "rules_of",
]


@dataclass(frozen=True, slots=True, order=True)
class BanditName:
    """One learning loop of one tenant."""

    tenant: str
    bandit: str

    def __str__(self) -> str:
        return f"tenants/{self.tenant}/bandits/{self.bandit}"


class Kernel(StrEnum):
    """The similarity of two rankings that a bandit learns with (paper, Section 2).

    ADAPTIVE is the weighted convolutional one with rank weights dcg^p whose p its rewards choose (Eq. 5 leaves the
    weights free); the others stay what they are. Bandits are ADAPTIVE if nobody asks for another.
    """

    ADAPTIVE = "adaptive"
    WEIGHTED_CONVOLUTIONAL = "wck"
    CONVOLUTIONAL = "ck"
    WEIGHTED = "wk"


@dataclass(frozen=True, slots=True)
class ConstantBeta:
    """The same UCB width in every round: beta_t = value."""

    value: float


@dataclass(frozen=True, slots=True)
class PaperBeta:
    """The paper's growing width, beta_t = scale * log(|X| t^2 pi^2) (Appendix C.2); smaller where items are many."""

    scale: float


@dataclass(frozen=True, slots=True)
class Exploration:
    """How a bandit tries what it does not know.

    Attributes
    ----------
    beta
        Width of the upper confidence bound: mean + sqrt(beta_t) * standard deviation.
    uniform_share
        Probability with which a slate is drawn uniformly from all eligible slates instead.
    near_share
        Probability with which a slate that is not drawn uniformly is drawn from those near the best one: one item
        replaced by another eligible one, or two positions exchanged, each slate as probable.
    shares_fall_after
        After so many learned rewards both shares fall as the root of their number rises; 0 for shares that stay.
    """

    beta: ConstantBeta | PaperBeta
    uniform_share: float
    near_share: float = 0.0
    shares_fall_after: int = 0

    def after(self, observations: int) -> Exploration:
        """Return the exploration of a bandit that has learned so many rewards: beta as it is, and shares that stay."""
        full = self.shares_fall_after
        left = math.sqrt(full / observations) if 0 < full < observations else 1.0
        return Exploration(self.beta, left * self.uniform_share, left * self.near_share)


DEFAULT_BETA_SCALE, DEFAULT_UNIFORM_SHARE, DEFAULT_NEAR_SHARE = 0.1, 0.01, 0.04
MAX_CONTEXT_DIMENSION, MAX_CONTEXT_WIDTH, MAX_ITEM_CAPACITY, MAX_SLATE_SIZE = 64, 256, 100_000, 30
"""What a bandit may have at the most, however it comes to be."""

MAX_CONTEXT_MAGNITUDE, MAX_REWARD_MAGNITUDE = 1e6, 1e100
"""How far from zero a number of a context and a reward may be: sums of their squares are still numbers."""

MAX_BETA = 1e6
MAX_REWARD_WAIT_MS, MAX_HALF_LIFE_MS = 90 * 24 * 60 * 60 * 1000, 3650 * 24 * 60 * 60 * 1000
DEFAULT_SHARES_FALL_AFTER, MOST_SHARES_FALL_AFTER = 500, 1_000_000_000
DEFAULT_LEARNED_PER_SECOND, MOST_LEARNED_PER_SECOND = 300, 1_000_000
DEFAULT_EXPLORATION = Exploration(
    beta=PaperBeta(DEFAULT_BETA_SCALE),
    uniform_share=DEFAULT_UNIFORM_SHARE,
    near_share=DEFAULT_NEAR_SHARE,
    shares_fall_after=DEFAULT_SHARES_FALL_AFTER,
)
"""How a bandit explores unless somebody says otherwise."""


ItemValues: TypeAlias = tuple[float | None, ...]
"""What each item of a slate did, by its position; None for an item of which nothing is known."""


NOTHING_NAMED: Mapping[str, float] = MappingProxyType({})
"""The item values of a reward that has none."""


@dataclass(frozen=True, slots=True)
class RewardRange:
    """The rewards that a bandit takes.

    Attributes
    ----------
    low, high
        The least and the largest.
    clamp
        Whether others are learned as the nearest of these; else they are refused.
    trusted
        Whether each is learned, however far it is from all others; else such a reward is an outlier at first.
    """

    low: float
    high: float
    clamp: bool = False
    trusted: bool = False


class Aggregation(StrEnum):
    """What is learned of a slate that gets several rewards.

    FIRST learns the first at once, and takes no others. The others are learned from all rewards that came until the
    reward wait ended, or until one was posted as the final one.
    """

    FIRST = "first"
    LAST = "last"
    SUM = "sum"
    MEAN = "mean"
    MAX = "max"


@dataclass(frozen=True, slots=True)
class BanditSettings:
    """What a bandit is created with.

    All but slate size, context dimension and kernel may change; the item capacity may be raised.

    Schemas may grow: they keep the features and values that they have. An item schema may come later.

    Attributes
    ----------
    item_capacity
        n: the size of the item universe that the kernel is defined on; more items than this are never accepted.
    slate_size
        k: how many items a slate shows.
    context_dim
        C: how many numbers a context has, after its features are encoded if they have names.
    reward_wait_ms
        How long after a recommendation its reward is still learned.
    default_reward
        What is learned when that time passes without one; None closes the recommendation without a trace in the model.
    prior_study
        Id of the study, of the same tenant, whose utilities are the prior mean; empty for none.
    prior_digest
        Tells the `Prior` that was taken from the study from others; empty for none, and for one that is named and not
        yet taken.
    half_life_ms
        Age at which a reward counts half; 0 for rewards that never count less.
    reward_range
        The rewards that are taken, each by itself; None for any.
    reward_aggregation
        What is learned of a slate that gets several rewards.
    requires_activation
        Whether a recommendation may never be shown, and counts and is learned from only once it is activated.
    baseline_item_ids
        The slate that is shown where too few candidates are left, and where the stage or the group asks for it, best
        first; none for a bandit without one.
    context_schema
        The features that contexts are encoded from; None for contexts that callers encode.
    item_schema
        The features that items may have; None for items that are known by their ids alone.
    durability
        What is awaited before a write of the bandit is acknowledged; None for what the service awaits.
    learned_per_second
        About how many slates a second are learned from at most; the others are set aside.
    provisional_after_ms
        How long after a recommendation its reward so far is first learned, or the default reward without one. Each
        change of it until the reward wait ends is learned at once. None for rewards that are learned when they are
        final, or the wait ends.
    default_item_value
        What an item of a slate counts that none of its rewards names, and each item of one that ends with the default
        reward; None where nothing is known of such items.
    stage
        Whose slates are shown, and whether anything is learned.
    control_share
        Share of the requests, by their group keys, that get the baseline slate, so that others are compared with them;
        0 for a bandit without a control group.
    guardrail_margin
        By which share of what the control group earns the bandit's group may earn less; once it is worse for sure, the
        stage becomes SHADOW. None for a bandit without a guardrail.
    conservative_share
        alpha: by which share of what the baseline slates would have earned all that was shown may have earned less, at
        any time. Where it could be more, the baseline slate is shown. 0 for a bandit that is not conservative.
    rules
        What each slate keeps, in the order of importance.
    """

    item_capacity: int
    slate_size: int
    context_dim: int
    kernel: Kernel
    exploration: Exploration
    reward_wait_ms: int
    default_reward: float | None
    prior_study: str = ""
    prior_digest: str = ""
    half_life_ms: int = 0
    reward_range: RewardRange | None = None
    reward_aggregation: Aggregation = Aggregation.FIRST
    requires_activation: bool = False
    baseline_item_ids: tuple[str, ...] = ()
    context_schema: FeatureSchema | None = None
    item_schema: FeatureSchema | None = None
    durability: Durability | None = None
    learned_per_second: int = DEFAULT_LEARNED_PER_SECOND
    provisional_after_ms: int | None = None
    default_item_value: float | None = None
    stage: Stage = Stage.LIVE
    control_share: float = 0.0
    guardrail_margin: float | None = None
    conservative_share: float = 0.0
    rules: tuple[SlateRule, ...] = ()

    @property
    def trusts_rewards(self) -> bool:
        """Whether each reward is learned, however far it is from all others."""
        return self.reward_range is not None and self.reward_range.trusted


@dataclass(frozen=True, slots=True)
class Item:
    """Something that can be shown; an unavailable one is kept, and shown again once it is available.

    Its features are of the bandit's item schema; those that are missing are taken for average ones.
    """

    item_id: str
    available: bool = True
    features: Features = NO_FEATURES


@dataclass(frozen=True, slots=True)
class ItemMask:
    """The parts of items that a change names; all others stay as they are.

    Attributes
    ----------
    availability
        Whether it names `Item.available`.
    features
        The names of the features that it names; None for all.
    creates
        Whether an item that is not there is made, whole as it is given; otherwise the change is refused.
    """

    availability: bool = True
    features: frozenset[str] | None = None
    creates: bool = True


WHOLE_ITEMS = ItemMask()
"""Items replace those of their ids, or are made."""


@dataclass(frozen=True, slots=True)
class ItemUtility:
    """What a study learned of an item: its utility in a context c is `constant` + c . `slopes`.

    Attributes
    ----------
    constant
        Of a study without queries, whose utilities hold in every context; else 0.
    slopes
        Of a study whose queries are contexts: C numbers; else none.
    """

    item_id: str
    constant: float
    slopes: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Prior:
    """What a bandit believes of its items before their rewards: utilities in whatever unit, learned by a study.

    Attributes
    ----------
    study
        Id of the study, of the same tenant.
    answers
        How many answers the utilities come from.
    """

    study: str
    answers: int
    utilities: tuple[ItemUtility, ...]


@dataclass(frozen=True, slots=True)
class RecommendationRequest:
    """What a storefront asks: a slate for this context, from these candidates (None: every available item).

    Attributes
    ----------
    baseline_item_ids
        The caller's own slate, best first: it takes the place of the bandit's baseline slate. None if it is empty.
    group_key
        What is drawn to a group, such as a visitor: equal keys are in the same one. If it is empty, the request is.
    rules
        What the slate keeps beside the bandit's own rules.
    reached
        What the visitor has seen as often as each rule of frequency allows, in the order of the rules: values of its
        feature, or ids of items. Empty where that is nothing. It is found out, and recorded.
    explain
        Items of which the answer says why they are not there. It is asked, and never recorded.
    known_features_only
        Whether features that the bandit does not know are left out. It is asked, and never recorded.
    frequency_key
        Whom rules of frequency count for, such as a visitor. It is asked, and never recorded.
    """

    request_id: str
    context: Context
    candidates: tuple[str, ...] | None
    baseline_item_ids: tuple[str, ...] = ()
    group_key: str = ""
    rules: tuple[SlateRule, ...] = ()
    reached: tuple[tuple[str, ...], ...] = ()
    explain: tuple[str, ...] = ()
    known_features_only: bool = False
    frequency_key: str = ""


def rules_of(settings: BanditSettings, request: RecommendationRequest) -> tuple[SlateRule, ...]:
    """Return the rules that a request's slate keeps: the bandit's, then its own."""
    return (*settings.rules, *request.rules)


REGRET_CONFIDENCE = 0.9
"""Probability with which a regret bound holds, if the posterior does."""


@dataclass(frozen=True, slots=True)
class Recommendation:
    """One slate given out.

    Attributes
    ----------
    slate
        Item ids, best first.
    propensity
        Exact probability that this slate would be shown, given the model version, the group, and the request without
        its id.
    mean, standard_deviation
        Posterior of the slate's expected reward, in reward units, by the rewards that have come. Until two of them
        differ these have no unit, and the mean is what all of them were: 0 before the first.
    regret_bound
        The slate's regret is no larger with probability `REGRET_CONFIDENCE`, if the posterior holds; never negative.
    estimated_regret
        The slate's expected regret under the posterior.
    explored
        True when the slate was drawn by one of the exploration's shares, not by the acquisition function.
    model_version
        Log position that the posterior had folded in.
    observations
        Rewards that the posterior had learned from.
    deadline_ms
        When the reward wait ends; 0 when the recommendation could not be recorded (`degraded`).
    degraded
        True when the store was away: the slate may be shown, and may not be recorded. Without an id it is not; with one
        its reward can be posted, and finds out.
    position_propensities
        Exact probability of showing each of the slate's items at its position, k numbers.
    best_slate
        What the acquisition function chose, where an exploration's share drew another slate; else none.
    passed_over
        Candidates that were passed over: unknown, retired or unavailable.
    baseline
        True when this is the baseline slate: too few candidates were left, or the stage or the group asks for it.
    stage, group
        Those of the request.
    shadow
        The slate that the bandit would have shown, in the stage that asks for it; else None.
    relaxed
        The rules that were given up, in words, because no slate keeps all of them.
    paid
        The promised exposures that the slate paid for, in words: it was drawn among those that show their groups.
    absent
        Why items that the request asks about are not in the slate. It is answered, and never recorded.
    """

    recommendation_id: str
    slate: tuple[str, ...]
    propensity: float
    mean: float
    standard_deviation: float
    regret_bound: float
    estimated_regret: float
    explored: bool
    model_version: int
    observations: int
    deadline_ms: int = 0
    degraded: bool = False
    position_propensities: tuple[float, ...] = ()
    best_slate: tuple[str, ...] = ()
    passed_over: int = 0
    baseline: bool = False
    stage: Stage = Stage.LIVE
    group: Group = Group.NONE
    shadow: Shadow | None = None
    relaxed: tuple[str, ...] = ()
    paid: tuple[str, ...] = ()
    absent: tuple[Absence, ...] = ()


@dataclass(frozen=True, slots=True)
class Reward:
    """A number for the slate of one recommendation; `reward_id` is empty unless it is one of several.

    `item_values` are what single items of the slate did, by their ids.
    """

    recommendation_id: str
    value: float
    reward_id: str = ""
    final: bool = False
    item_values: Mapping[str, float] = field(default_factory=dict, hash=False)


class RewardOutcome(StrEnum):
    """What became of a posted reward that raised no error.

    DUPLICATE is one that was recorded before, perhaps by an earlier try of the same call: clients send calls again, and
    so does the service if one of its workers dies or hangs, or its connection to the store breaks.
    """

    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"
    LATE = "late"


@dataclass(frozen=True, slots=True)
class RewardReceipt:
    """What became of a posted reward, and where it stands in the log: 0 for one that was late.

    The position of one of several rewards is that of its `RewardCollected`, and nothing is learned there yet; that of a
    final one is that of `Rewarded`. `durability` is what was awaited and achieved by this call; another one about the
    same reward may have achieved another, so receipts are compared without it.
    """

    outcome: RewardOutcome
    log_position: int = 0
    durability: Durability = field(default=IN_MEMORY, compare=False)


class ActivationOutcome(StrEnum):
    """What became of an activation that raised no error; one after the deadline is LATE, and does nothing."""

    ACTIVATED = "activated"
    DUPLICATE = "duplicate"
    LATE = "late"


@dataclass(frozen=True, slots=True)
class ActivationReceipt:
    """What became of an activation, and where it stands in the log: 0 for one that is not there."""

    outcome: ActivationOutcome
    log_position: int = 0


@dataclass(frozen=True, slots=True)
class BanditCreated:
    """The first event of every log; `prior` is the one that the settings tell of."""

    settings: BanditSettings
    prior: Prior | None = None


@dataclass(frozen=True, slots=True)
class SettingsChanged:
    """New settings; only fields that may change differ from the old ones. `prior` is the new one, if it changed.

    `guarded` is why a guardrail changed them; empty where somebody asked for the change.
    """

    settings: BanditSettings
    prior: Prior | None = None
    guarded: str = ""


@dataclass(frozen=True, slots=True)
class ItemsChanged:
    """Items added, made (un)available or retired, in this order."""

    upserted: tuple[Item, ...] = ()
    retired: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Recommended:
    """A slate was given out. `recommendation.deadline_ms` is set by the store's clock.

    If the bandit's settings at that moment require activation, it is only shown once it is `Activated`. One that is set
    `aside` is not learned from, whatever comes of it: all that tell of it later say so again.
    """

    request: RecommendationRequest
    recommendation: Recommendation
    aside: bool = False


@dataclass(frozen=True, slots=True)
class Shown:
    """What a reward is learned for: the slate, its context, and the store's clock when it was recommended."""

    context: Context
    slate: tuple[str, ...]
    at_ms: int


@dataclass(frozen=True, slots=True)
class Activated:
    """A slate was shown; `instead` of the recommended one if it is another, whose propensity nobody knows."""

    recommendation_id: str
    shown: Shown
    instead: bool
    aside: bool = False


@dataclass(frozen=True, slots=True)
class Lapsed:
    """A deadline passed and the slate was never activated: there is nothing to learn."""

    recommendation_id: str
    aside: bool = False


@dataclass(frozen=True, slots=True)
class RewardCollected:
    """One of several rewards is known, or known anew: None if it was taken back. `Rewarded` has what all come to.

    `item_values` are those that this reward names; None if it names none.
    """

    recommendation_id: str
    reward_id: str
    value: float | None
    aside: bool = False
    item_values: ItemValues | None = None


@dataclass(frozen=True, slots=True)
class Rewarded:
    """A slate's reward is known: one that arrived before its deadline, or what several such ones come to.

    `item_values` are what is learned of its items; None where nothing is known of any. `group` is its request's.
    """

    recommendation_id: str
    value: float
    shown: Shown
    aside: bool = False
    item_values: ItemValues | None = None
    group: Group = Group.NONE


@dataclass(frozen=True, slots=True)
class RewardRevised:
    """A slate's provisional reward: what is learned of it from now on, until it is revised again.

    Attributes
    ----------
    value
        What its rewards come to so far, or the default reward; None if it is to count for nothing.
    learned_ms
        When it was learned first; 0 for the first time.
    is_default, was_default
        Whether `value` is the default reward, and whether `before` was.
    is_final
        Whether the slate ended with it.
    before
        What was learned of it before; None for the first time.
    item_values, item_values_before
        What is learned of its items, and what was before; None where nothing is known of any.
    group
        That of the slate's request.
    """

    recommendation_id: str
    value: float | None
    shown: Shown
    learned_ms: int
    is_default: bool
    was_default: bool
    is_final: bool
    before: float | None = None
    item_values: ItemValues | None = None
    item_values_before: ItemValues | None = None
    group: Group = Group.NONE


@dataclass(frozen=True, slots=True)
class RewardAmended:
    """A reward that was learned was another one, or None: the slate ended without one.

    `before` is what it was, of a slate that was set aside: nobody else knows. None of one that was learned.
    `item_values` are what is known of its items from now on; None where that is nothing, and of one that was set aside.
    `group` is that of the slate's request. If it has one, `replaced` is what its reward was, and `given_position` where
    the slate was recommended; 0 where nobody knows.
    """

    recommendation_id: str
    value: float | None
    before: float | None = None
    item_values: ItemValues | None = None
    group: Group = Group.NONE
    replaced: float | None = None
    given_position: int = 0


@dataclass(frozen=True, slots=True)
class PastSlate:
    """A slate that was shown elsewhere, and what it earned.

    Attributes
    ----------
    at_ms
        When it was shown; None for one of which that is not known, which counts as shown when it is imported.
    propensity
        Probability with which it was shown; None where nobody knows. It is kept, and nothing is learned from it.
    item_values
        What its items did; None where nothing is known of any.
    """

    context: Context
    slate: tuple[str, ...]
    reward: float
    at_ms: int | None = None
    propensity: float | None = None
    item_values: ItemValues | None = None


@dataclass(frozen=True, slots=True)
class Imported:
    """Slates that were shown elsewhere are learned from: part of an import, from its row `first_row` on."""

    import_id: str
    first_row: int
    slates: tuple[PastSlate, ...]


@dataclass(frozen=True, slots=True)
class BanditReset:
    """All that was learned from rewards before is forgotten; `request_id` is that of the call."""

    request_id: str


@dataclass(frozen=True, slots=True)
class EventSkipped:
    """An operator had the event that stood here passed over, for this reason and at this time: it can't be folded."""

    reason: str
    skipped_ms: int


@dataclass(frozen=True, slots=True)
class Expired:
    """A deadline passed; `default_reward` is what is learned instead for `shown`, both None when nothing is.

    `item_values` are what is learned of its items with it; None for nothing. `group` is that of the slate's request;
    NONE of a slate that is taken back. If it has a group and nothing is `shown`, `given_position` is where it was
    recommended; 0 where nobody knows.
    """

    recommendation_id: str
    default_reward: float | None
    shown: Shown | None
    aside: bool = False
    item_values: ItemValues | None = None
    group: Group = Group.NONE
    given_position: int = 0


SlateEvent: TypeAlias = Activated | Lapsed | RewardCollected | Rewarded | RewardAmended | RewardRevised | Expired
"""What happens to a slate after it was recommended."""

Event: TypeAlias = (
    BanditCreated | SettingsChanged | BanditReset | ItemsChanged | Recommended | SlateEvent | Imported | EventSkipped
)


@dataclass(frozen=True, slots=True)
class LoggedEvent:
    """An event at its place in a bandit's log.

    Attributes
    ----------
    position
        1 for the first event, then without gaps.
    at_ms
        The store's clock when the event was appended.
    """

    position: int
    at_ms: int
    event: Event


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
