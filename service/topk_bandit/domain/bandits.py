"""What a bandit is made of: its name, its settings, its items and what a study says of them.

Times are milliseconds of the store's clock since the Unix epoch (`*_ms`). Item ids and recommendation ids are opaque
text. Rewards, means and spreads are in the unit of the storefront's reward.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from topk_bandit.domain.features import NO_FEATURES
from topk_bandit.domain.stages import Stage

if TYPE_CHECKING:
    from topk_bandit.domain.durability import Durability
    from topk_bandit.domain.features import Features, FeatureSchema
    from topk_bandit.domain.rules import SlateRule

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
    "WHOLE_ITEMS",
    "Aggregation",
    "BanditName",
    "BanditSettings",
    "ConstantBeta",
    "Exploration",
    "Item",
    "ItemMask",
    "ItemUtility",
    "Kernel",
    "PaperBeta",
    "Prior",
    "RewardRange",
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
