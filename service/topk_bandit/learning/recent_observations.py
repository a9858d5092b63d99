"""The latest observations as they came, and which of them are believed.

Rewards and contexts are judged by what came lately (`robust_ranges`). Later ones may show that a judgement was wrong:
the first reward was the odd one, or prices rose for good. Rows of a posterior are soon sums of many observations, from
which none can be taken back. So the latest observations are kept, each with its verdict.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from topk_bandit.domain.replacing import replace
from topk_bandit.learning._layout import lay_out
from topk_bandit.learning.compiled import verdicts as compiled
from topk_bandit.learning.robust_ranges import MOST_VALUES, median

if TYPE_CHECKING:
    from topk_bandit.learning.rankings import Rankings
    from topk_bandit.learning.robust_ranges import RobustRange

__all__ = ["NOTHING_COUNTED", "NO_OBSERVATIONS", "Counted", "PastRows", "RecentObservations", "Verdict", "norm_of"]

FloatArray = NDArray[np.float64]

_FEWEST_TO_SHARE = 16


class Verdict(IntEnum):
    """Whether an observation is learned, or what is wild about it."""

    BELIEVED = compiled.BELIEVED
    WILD_REWARD = compiled.WILD_REWARD
    WILD_CONTEXT = compiled.WILD_CONTEXT


class PastRows(NamedTuple):
    """Slates that were shown elsewhere, and what they earned.

    Attributes
    ----------
    contexts
        Not encoded by the state yet, shape (B, C).
    rankings
        Shape (B, k).
    rewards, ages
        As they were posted, and how long ago, in the unit of the times that `State.rewarded` is given; shape (B,).
    outcomes
        Of the items, shape (B, k), NaN where nothing is known; None where that is so of all.
    """

    contexts: NDArray[np.float64]
    rankings: Rankings
    rewards: NDArray[np.float64]
    ages: NDArray[np.float64]
    outcomes: NDArray[np.float64] | None = None

    def select(self, rows: slice | NDArray[np.bool_]) -> PastRows:
        """Return some of the rows."""
        outcomes = None if self.outcomes is None else self.outcomes[rows]
        return PastRows(self.contexts[rows], self.rankings[rows], self.rewards[rows], self.ages[rows], outcomes)


class Counted(NamedTuple):
    """The sum of the rewards that are learned, and how many observations are not, for what is wild about them."""

    reward_sum: float = 0.0
    wild_rewards: int = 0
    wild_contexts: int = 0

    def plus(self, others: RecentObservations) -> Counted:
        """Return it with other observations, whose rewards are added one after the other."""
        reward_sum, rewards, contexts = compiled.count(others.verdicts, others.rewards, self.reward_sum)
        return Counted(reward_sum, self.wild_rewards + rewards, self.wild_contexts + contexts)


NOTHING_COUNTED = Counted()


@dataclass(frozen=True, slots=True, eq=False)
class RecentObservations:
    """The latest rewarded slates.

    Attributes
    ----------
    ids
        For the slates, oldest first; empty for one whose reward can't be corrected any more.
    contexts, rankings, rewards
        Shapes (R, C), without what all contexts share, (R, k) and (R,).
    norms
        For the contexts as they came, shape (R,).
    times
        When they were rewarded, in the unit of `State.rewarded`; shape (R,).
    verdicts
        Shape (R,).
    names
        The slates' ids, also of those whose rewards can't be corrected by `ids`; empty for those shown elsewhere.
    outcomes
        Of their items, shape (R, k), NaN where nothing is known; None where nobody ever said.
    """

    ids: tuple[str, ...]
    contexts: FloatArray
    rankings: Rankings
    rewards: FloatArray
    norms: FloatArray
    times: FloatArray
    verdicts: NDArray[np.int8]
    names: tuple[str, ...] = ()
    outcomes: FloatArray | None = None

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def believed(self) -> NDArray[np.bool_]:
        """Which of them are learned, shape (R,)."""
        return np.asarray(self.verdicts == Verdict.BELIEVED)

    @property
    def outlier_share(self) -> float:
        """Which share of them is not learned; 0 while they are few."""
        return float(1.0 - self.believed.mean()) if len(self) >= _FEWEST_TO_SHARE else 0.0

    @property
    def centre(self) -> float:
        """The median of the latest rewards, believed or not."""
        return median(self.rewards[-MOST_VALUES:]) if len(self) else 0.0

    @property
    def outcome_centre(self) -> float:
        """The median of what became of items, 0 where nothing is known."""
        return self.outcome_centre_at(len(self))

    def outcome_centre_at(self, end: int) -> float:
        """Return the same as it was with the observations before an index as the newest."""
        if self.outcomes is None:
            return 0.0
        latest = self.outcomes[max(end - MOST_VALUES, 0) : end]
        known = latest[np.isfinite(latest)]
        return median(known) if len(known) else 0.0

    def extend(
        self,
        ids: tuple[str, ...],
        contexts: FloatArray,
        rankings: Rankings,
        rewards: FloatArray,
        times: FloatArray,
        *,
        outcomes: FloatArray | None = None,
    ) -> RecentObservations:
        """Return these and then others, believed for now."""
        before = (self.contexts, self.rankings) if len(self) else (contexts[:0], rankings[:0])
        norms = [norm_of(context) for context in contexts]
        # What is joined is laid out as a new array is.
        return RecentObservations(
            (*self.ids, *ids),
            np.concatenate([before[0], contexts]),
            np.concatenate([before[1], rankings], dtype=np.int32),
            np.concatenate([self.rewards, rewards]),
            np.concatenate([self.norms, norms]),
            np.concatenate([self.times, times]),
            np.concatenate([self.verdicts, np.zeros(len(ids), dtype=np.int8)]),
            (*self.names, *ids),
            self._extend_outcomes(outcomes, rankings),
        )

    def _extend_outcomes(self, outcomes: FloatArray | None, rankings: Rankings) -> FloatArray | None:
        if outcomes is None and self.outcomes is None:
            return None
        before = np.full((len(self), rankings.shape[1]), np.nan) if self.outcomes is None else self.outcomes
        return np.concatenate([before, np.full(rankings.shape, np.nan) if outcomes is None else outcomes])

    def select(self, chosen: NDArray[np.intp] | NDArray[np.bool_]) -> RecentObservations:
        """Return those at some indices, in this order."""
        indices = np.flatnonzero(chosen) if chosen.dtype == np.bool_ else chosen
        return RecentObservations(
            tuple(self.ids[index] for index in indices.tolist()),
            lay_out(self.contexts[indices]),
            lay_out(self.rankings[indices], np.int32),
            lay_out(self.rewards[indices]),
            lay_out(self.norms[indices]),
            lay_out(self.times[indices]),
            lay_out(self.verdicts[indices], np.int8),
            tuple(self.names[index] for index in indices.tolist()),
            None if self.outcomes is None else lay_out(self.outcomes[indices]),
        )

    def without(self, index: int) -> RecentObservations:
        """Return the others."""
        return self.select(np.delete(np.arange(len(self)), index))

    def move_to_the_end(self, index: int) -> RecentObservations:
        """Return them with one as the newest, which is believed now."""
        order = np.append(np.delete(np.arange(len(self)), index), index)
        return self.select(order).with_verdict(-1, Verdict.BELIEVED)

    def with_reward(self, index: int, reward: float) -> RecentObservations:
        """Return them with another reward of one."""
        rewards = self.rewards.copy()
        rewards[index] = reward
        return replace(self, rewards=lay_out(rewards))

    def with_outcomes(self, index: int, outcomes: FloatArray | None) -> RecentObservations:
        """Return them with other outcomes of one; None where nothing is known of its items."""
        if outcomes is None and self.outcomes is None:
            return self
        every = np.full(self.rankings.shape, np.nan) if self.outcomes is None else self.outcomes.copy()
        every[index] = np.nan if outcomes is None else outcomes
        return replace(self, outcomes=lay_out(every))

    def mask_outcomes(self, items: NDArray[np.int32]) -> RecentObservations:
        """Return them with nothing known of some items."""
        if self.outcomes is None:
            return self
        return replace(self, outcomes=np.where(np.isin(self.rankings, items), np.nan, self.outcomes))

    def forget_outcomes(self, chosen: NDArray[np.bool_]) -> RecentObservations:
        """Return them with nothing known of the items of some, (R,)."""
        if self.outcomes is None:
            return self
        return replace(self, outcomes=np.where(chosen[:, None], np.nan, self.outcomes))

    def with_contexts(self, contexts: FloatArray) -> RecentObservations:
        """Return them with other contexts, in their order."""
        return replace(self, contexts=lay_out(contexts))

    def with_verdict(self, index: int, verdict: int) -> RecentObservations:
        """Return them with another verdict on one."""
        verdicts = self.verdicts.copy()
        verdicts[index] = verdict
        return self.with_verdicts(verdicts)

    def with_verdicts(self, verdicts: NDArray[np.int8]) -> RecentObservations:
        """Return them with other verdicts."""
        return replace(self, verdicts=lay_out(verdicts, np.int8))

    @property
    def leaving(self) -> RecentObservations:
        """Those that are not kept at a refit."""
        return self.select(np.arange(max(len(self) - MOST_VALUES, 0)))

    def settle(self) -> RecentObservations:
        """Return those that are kept at a refit: only rewards that are not learned can be corrected afterwards."""
        latest = self.select(np.arange(max(len(self) - MOST_VALUES, 0), len(self)))
        kept = zip(latest.ids, latest.believed.tolist(), strict=True)
        return replace(latest, ids=tuple("" if believed else slate_id for slate_id, believed in kept))

    def find_settled(self, slate_id: str) -> int | None:
        """Return the index of a slate that was learned before the last refit, None for one that is not here."""
        return self.names.index(slate_id) if slate_id in self.names else None

    def doubt(self, index: int, slate_id: str) -> RecentObservations:
        """Return them with one whose reward is wild, which can be corrected by its id again."""
        ids = (*self.ids[:index], slate_id, *self.ids[index + 1 :])
        return replace(self, ids=ids).with_verdict(index, Verdict.WILD_REWARD)

    def past(self, at: float) -> PastRows:
        """Return them as rows that are as old as they are at a time."""
        ages = np.maximum(at - self.times, 0.0)
        return PastRows(self.contexts, self.rankings, self.rewards, ages, self.outcomes)

    def judge_new(self, rewards: RobustRange, norms: RobustRange | None, *, count: int) -> RecentObservations:
        """Return them with verdicts on the last ones, which are believed until then; see `judge`."""
        latest = slice(-count - compiled.BESIDE, None)
        new = self._judge_part(latest, rewards, norms, n_new=count)[-count:]
        return self.with_verdicts(np.concatenate([self.verdicts[:-count], new])) if new.any() else self

    def judge(self, rewards: RobustRange, norms: RobustRange | None, *, n_new: int = 0) -> NDArray[np.int8]:
        """Return the verdicts on them by the robust ranges of rewards and contexts, shape (R,).

        Parameters
        ----------
        rewards, norms
            For rewards around their `centre`, and of the contexts' norms; None where contexts are always in range.
        n_new
            So many of the last ones were not judged before.
        """
        return self._judge_part(slice(None), rewards, norms, n_new=n_new)

    def _judge_part(
        self, part: slice, rewards: RobustRange, norms: RobustRange | None, *, n_new: int
    ) -> NDArray[np.int8]:
        judged = compiled.judge(
            self.verdicts[part],
            self.rewards[part],
            self.centre,
            rewards.reach,
            self.norms[part],
            math.inf if norms is None else norms.reach,
            n_new,
        )
        return np.asarray(judged, dtype=np.int8)

    def would_believe(self, reward: float, robust_range: RobustRange) -> bool:
        """Return whether a reward is in their robust range, whatever its context."""
        return not compiled.is_wild_reward(reward, self.centre, robust_range.reach)


_NOTHING = lay_out(np.zeros(0))

NO_OBSERVATIONS = RecentObservations(
    (), np.zeros((0, 0)), np.zeros((0, 0), dtype=np.int32), _NOTHING, _NOTHING, _NOTHING, lay_out(_NOTHING, np.int8)
)


def norm_of(context: FloatArray) -> float:
    """Return the length of a context, the same on every processor."""
    return math.hypot(*context.reshape(-1).tolist())
