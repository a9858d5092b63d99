"""A bandit's model: what is known of it after some event of its log. `fold` makes it."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from topk_bandit.bandits.comparison import NOTHING_COMPARED, Comparison
from topk_bandit.bandits.exposures import NOTHING_PROMISED, Exposures
from topk_bandit.bandits.history import History, Totals
from topk_bandit.bandits.reward_curve import RewardCurve
from topk_bandit.domain.errors import CorruptDataError
from topk_bandit.domain.features import Features
from topk_bandit.domain.reward_times import RewardTimes
from topk_bandit.learning.corrections import can_correct
from topk_bandit.learning.feature_records import Mark

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from topk_bandit.bandits.items import Items
    from topk_bandit.bandits.priors import PriorItems
    from topk_bandit.domain.bandits import BanditSettings
    from topk_bandit.domain.features import Context
    from topk_bandit.domain.slates import Recommendation
    from topk_bandit.learning.encoding import Encoder
    from topk_bandit.learning.item_features import ItemFeatures
    from topk_bandit.learning.policy import State
    from topk_bandit.store.events import (
        LoggedEvent,
    )

__all__ = [
    "EVENTS_BETWEEN_CHECKPOINTS",
    "Model",
    "OddFeatures",
    "RegretSums",
    "Taken",
    "Tally",
    "UnitlessPhase",
    "half_life_of",
]

EVENTS_BETWEEN_CHECKPOINTS = 1024
"""A checkpoint comes after so many events at the latest, even if none of them is a reward."""

_FEWEST_REWARDS, _FEWEST_UNLEARNED = 20, 50
"""By so many rewards, and slates without one, a bandit's selection is judged."""

ASIDE_AS_ONE = 16
"""So many events about slates that were set aside count as one of them: a refit would learn nothing from these."""


class OddFeatures(NamedTuple):
    """How many features of a request are clamped or unknown; a context without features counts as one."""

    clamped: int
    unknown: int


class Taken(NamedTuple):
    """A context as numbers, shape (C,), and how much of it is not taken as it is."""

    context: NDArray[np.float64]
    odd: OddFeatures


@dataclass(frozen=True, slots=True)
class Tally:
    """Sums and counts over a bandit's life, in the units of `topk_bandit.domain.statistics.BanditStats`.

    But `inactive` is how many there are now. Of the slates that were `set_aside`, `aside_rewards` are those that ended
    with a reward, and `aside_defaults` those with a default reward; `aside_sum` is the sum of these rewards.
    """

    recommendations: int = 0
    defaults: int = 0
    expirations: int = 0
    explored: int = 0
    unlearned: int = 0
    passed_over: int = 0
    reward_sum: float = 0.0
    regret_bound_sum: float = 0.0
    estimated_regret_sum: float = 0.0
    inactive: int = 0
    lapsed: int = 0
    shown_otherwise: int = 0
    voided: int = 0
    amended: int = 0
    missed_corrections: int = 0
    set_aside: int = 0
    aside_rewards: int = 0
    aside_defaults: int = 0
    aside_sum: float = 0.0

    def as_document(self) -> dict[str, float]:
        """Return it as digests and snapshots have it: what is of slates set aside only where there are any."""
        return {name: value for name, value in asdict(self).items() if value or "aside" not in name}


class RegretSums(NamedTuple):
    """Regrets of slates, added up: their bounds, and what was estimated."""

    bound: float = 0.0
    estimated: float = 0.0

    def plus(self, other: RegretSums) -> RegretSums:
        """Return both together."""
        return RegretSums(self.bound + other.bound, self.estimated + other.estimated)

    def without(self, phases: Sequence[UnitlessPhase]) -> RegretSums:
        """Return sums up to some slate without those of phases in which nothing had a unit."""
        bound, estimated = self
        for begin, added in phases:
            bound -= min(max(self.bound - begin.bound, 0.0), added.bound)
            estimated -= min(max(self.estimated - begin.estimated, 0.0), added.estimated)
        return RegretSums(max(bound, 0.0), max(estimated, 0.0))


class UnitlessPhase(NamedTuple):
    """Slates of before two rewards differed, or differed again after a reset: their regrets have no unit."""

    begin: RegretSums
    """The sums of all slates when the phase began."""
    added: RegretSums
    """What its slates have added."""


@dataclass(frozen=True, slots=True, eq=False)
class Model:
    """A bandit after the event `last`.

    Attributes
    ----------
    prior_items
        The items that the state's prior mean knows.
    encoder
        Encodes contexts; None for those that callers encode.
    item_features
        The features of items, by place; None without an item schema.
    items_position
        Log position of the newest `ItemsChanged`.
    arithmetic
        What all of it was computed with; see `topk_bandit.bandits.digests`.
    since_checkpoint
        Events folded since the last checkpoint; 0 at one.
    aside_since_checkpoint
        How many of them were about slates that were set aside.
    history
        How the totals grew.
    reward_curve
        By when slates have earned what they end up with. Snapshots of the first data version have none, and digests
        leave it out.
    comparison
        What it would have shown in shadow, and what its groups earn. Digests leave out one that knows nothing.
    exposures
        What it promised to show, and owes. Digests leave out one that promised nothing.
    skipped
        Positions of events that an operator had passed over. What comes after them may name slates and items that
        the model does not know.
    unit_from
        Position of the event since which two rewards differ; 0 while none do. Until then no regret and no spread has
        the rewards' unit.
    unitless
        Of the tally's regrets, those without a unit. Older programs do not know these two, and digests leave them out.
    """

    incarnation: str
    settings: BanditSettings
    items: Items
    prior_items: PriorItems
    state: State
    tally: Tally
    last: LoggedEvent
    arithmetic: str
    encoder: Encoder | None = None
    item_features: ItemFeatures | None = None
    items_position: int = 0
    since_checkpoint: int = 0
    aside_since_checkpoint: int = 0
    history: History = field(default_factory=History)
    reward_curve: RewardCurve = field(default_factory=RewardCurve)
    comparison: Comparison = NOTHING_COMPARED
    exposures: Exposures = NOTHING_PROMISED
    skipped: frozenset[int] = frozenset()
    unit_from: int = 0
    unitless: tuple[UnitlessPhase, ...] = ()

    @property
    def version(self) -> int:
        """Log position that is folded in."""
        return self.last.position

    @property
    def regret_sums(self) -> RegretSums:
        """The regrets of all slates that have the rewards' unit."""
        return self.all_regrets.without(self.unitless)

    @property
    def all_regrets(self) -> RegretSums:
        """The regrets of all slates, whatever their unit."""
        return RegretSums(self.tally.regret_bound_sum, self.tally.estimated_regret_sum)

    def has_unit(self, recommendation: Recommendation) -> bool:
        """Return whether the figures of a slate have the rewards' unit, by what was known when it was chosen."""
        return 0 < self.unit_from <= recommendation.model_version

    @property
    def open_slates(self) -> int:
        """How many recommendations are shown, and neither rewarded nor expired; the store knows which."""
        tally = self.tally
        ended = tally.lapsed + tally.expirations + self.rewarded_slates
        return max(tally.recommendations - tally.inactive - ended, 0)  # more may end than are known to have begun

    @property
    def rewarded_slates(self) -> int:
        """How many recommendations ended with a reward, whether or not it could be learned."""
        learned = self.state.observations - self.state.imported - self.tally.defaults
        return learned + self.tally.unlearned + self.tally.voided + self.tally.aside_rewards

    @property
    def counted_rewards(self) -> int:
        """How many rewards the sum of rewards is of: those learned, and those of slates that were set aside."""
        counted = self.state.counted
        learned = self.state.observations - counted.wild_rewards - counted.wild_contexts
        return learned + self.tally.aside_rewards + self.tally.aside_defaults

    @property
    def mean_reward(self) -> float:
        """Mean of all rewards that count, 0 before the first."""
        return self.tally.reward_sum / self.counted_rewards if self.counted_rewards else 0.0

    @property
    def events_before_checkpoint(self) -> int:
        """How many events come at least before the next checkpoint that no refit makes."""
        aside = self.aside_since_checkpoint
        return EVENTS_BETWEEN_CHECKPOINTS - (self.since_checkpoint - aside + aside // ASIDE_AS_ONE)

    @property
    def selection_share(self) -> float:
        """Share of the ended slates that are not learned, though no learned reward is zero; 0 while they are few.

        Where only visitors who buy post a reward, and there is no default reward, the others are missing from what is
        learned: the model is of buyers alone.
        """
        rewards, unlearned = self.state.recent.rewards, self.tally.expirations - self.tally.defaults
        ended = unlearned + self.rewarded_slates
        is_selected = len(rewards) >= _FEWEST_REWARDS and bool(np.all(rewards != 0.0))
        return unlearned / ended if is_selected and unlearned >= _FEWEST_UNLEARNED else 0.0

    @property
    def reward_times(self) -> RewardTimes:
        """By when slates have earned what they end up with, of those whose wait is over at the newest event."""
        curve = self.reward_curve.close(self.last.at_ms)
        return RewardTimes(curve.slates, curve.points, self.settings.reward_wait_ms)

    @property
    def totals(self) -> Totals:
        """What the history is made of."""
        tally = self.tally
        return Totals(
            recommendations=tally.recommendations,
            explored=tally.explored,
            rewarded=self.rewarded_slates,
            expired=tally.expirations,
            observations=self.counted_rewards,
            reward_sum=tally.reward_sum,
            regret_bound_sum=tally.regret_bound_sum,
            estimated_regret_sum=tally.estimated_regret_sum,
        )

    def last_correction(self, recommendation_id: str) -> int:
        """Return the last position at which a `RewardAmended` finds the reward as a row of its own, 0 if it is none.

        But for a change of settings or items, and for an import, which may refit at once.
        """
        return self.version + self.events_before_refit if can_correct(self.state, recommendation_id) else 0

    def find_correctable(self, recommendation_id: str) -> tuple[str, ...]:
        """Return the slate whose reward is a row of its own, empty for one whose reward is none."""
        recent = self.state.recent
        if recommendation_id not in recent.ids:
            return ()
        return self.items.find_ids(recent.rankings[recent.ids.index(recommendation_id)])

    @property
    def events_before_refit(self) -> int:
        """With how many more events of slates a refit comes at the earliest, even if all are rewards or requests."""
        encoder = self.encoder
        counts = (
            self.state.rewards_before_refit,
            self.events_before_checkpoint,
            None if encoder is None else encoder.requests_before_recoding,
        )
        return min(count for count in counts if count is not None)

    @property
    def memory_bytes(self) -> int:
        """About how much memory the model takes."""
        prior_mean = self.state.study_mean
        prior_bytes = 0 if prior_mean is None else prior_mean.nbytes + self.prior_items.memory_bytes
        encoder_bytes = 0 if self.encoder is None else self.encoder.memory_bytes
        feature_bytes = 0 if self.item_features is None else self.item_features.memory_bytes
        beside = prior_bytes + encoder_bytes + feature_bytes + self.history.nbytes
        return self.state.memory_bytes + self.items.memory_bytes + beside

    def encode(self, context: Context) -> NDArray[np.float64]:
        """Return a context that the bandit takes as numbers, shape (C,)."""
        if self.encoder is not None and isinstance(context, Features):
            return self.encoder.encode(context).context
        if self.encoder is not None or isinstance(context, Features):
            raise CorruptDataError("the log has features without a schema, or a schema and no features")
        return np.array(context)

    def take(self, context: Context) -> Taken:
        """Return a context that the bandit takes as numbers, and how much of it is not taken as it is."""
        if self.encoder is not None and isinstance(context, Features):
            numbers, marks = self.encoder.encode(context)
            return Taken(numbers, OddFeatures(marks.count(Mark.CLAMPED), marks.count(Mark.UNKNOWN)))
        numbers = self.encode(context)
        return Taken(numbers, OddFeatures(int(self.state.is_wild_context(numbers)), 0))


def half_life_of(settings: BanditSettings) -> float:
    """Return the age in milliseconds at which a reward counts half, infinite for one that never counts less."""
    return float(settings.half_life_ms) if settings.half_life_ms else math.inf
