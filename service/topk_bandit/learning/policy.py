"""The state of GP-TopK: what a bandit has learned, folded from what happens to its slates (Algorithm 1).

A state is folded from what happens to a bandit's slates: `shown`, `rewarded`, `closed`. The fold is deterministic: the
same happenings in the same order give the same state to the bit. From time to time, by a rule that looks at nothing but
counts, it is `refit`: rows that are sums of others are folded into them, those beyond the budget are projected onto the
others or kept item by item, kernel, noise and scale are chosen anew, and the posterior is rebuilt from its rows. A
state that was just refit is a function of its `Checkpoint`: its rows, its pending slates, its counts and what was
chosen. That is what a snapshot keeps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from topk_bandit.domain.bandits import Kernel
from topk_bandit.domain.replacing import replace
from topk_bandit.learning.calibration import NO_SURPRISES, Calibration
from topk_bandit.learning.hyperparameters import best_noise
from topk_bandit.learning.item_feedback import ItemFeedback, extend_images
from topk_bandit.learning.item_outcomes import OutcomeRows, extend_contexts
from topk_bandit.learning.kendall import (
    CONSTANTS,
    CONTENTS,
    adaptive_kendall,
    convolutional_kendall,
    weighted_convolutional_kendall,
    weighted_kendall,
)
from topk_bandit.learning.kernel_choice import FIRST_SHARED, LEAST_SHARED, MOST_SHARED, choice_is_due, choose, condense
from topk_bandit.learning.noticed_changes import notice_change
from topk_bandit.learning.observed_rows import (
    FEWEST_ROWS,
    Observations,
    ObservedRows,
    RowOutcomes,
    outgrows,
    project_out,
    rows_needed,
)
from topk_bandit.learning.posterior import Posterior
from topk_bandit.learning.rankings import NO_ITEMS
from topk_bandit.learning.recent_observations import NO_OBSERVATIONS, NOTHING_COUNTED, Verdict, norm_of
from topk_bandit.learning.robust_ranges import ALL_VALUES, FEWEST_VALUES, NO_VALUES
from topk_bandit.learning.scales import scale_best, slope_prior

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from topk_bandit.learning.kendall import KendallKernel, Shape
    from topk_bandit.learning.limits import Limits
    from topk_bandit.learning.posterior import Moments, PendingSlates
    from topk_bandit.learning.prior_mean import PriorMean
    from topk_bandit.learning.rankings import Rankings
    from topk_bandit.learning.recent_observations import Counted, PastRows, RecentObservations
    from topk_bandit.learning.robust_ranges import RobustRange

__all__ = ["Checkpoint", "Lasting", "State", "kernel_of"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Lasting:
    """What a state has beside its posterior and a restart must not change.

    Attributes
    ----------
    pending_ids
        Ids of the posterior's pending rows, in their order.
    observations
        Rewards taken in since the beginning.
    forgotten
        How many of them were taken in before the last `State.forget`.
    imported
        How many of them were of slates that were shown elsewhere.
    compared
        Rewards remembered when kernels were compared the last time.
    shared
        lambda: what all contexts have in common. The kernel of two contexts is c.c' + lambda, their dot product with
        the root of lambda as one number more; 0 for contexts that are taken as they are.
    unrewarded
        Slates that ended without a reward.
    to_count
        What shown slates add up to that were not counted as pending yet, less than one: see `State.shown`.
    aged_at
        When the rows were aged the last time.
    usual_rewards, usual_norms
        The robust ranges of rewards and of contexts' lengths; None for encoded contexts, whose lengths are limited.
    recent
        The latest observations, at least those since the last refit.
    settled
        What is counted of those before.
    noise_at_edge
        Whether the noise that was chosen last is the least or the largest that is tried.
    doubt
        The doubt that what was learned is true still, as of `notice_change`.
    changes
        How many changes of the shop were noticed.
    calibration
        By which spreads are widened.
    begun_at
        When it last began anew, from the latest observations or from nothing: of others before nothing is known.
    feedback
        What became of single items; None where nobody ever said.
    """

    pending_ids: tuple[str, ...] = ()
    observations: int = 0
    forgotten: int = 0
    imported: int = 0
    compared: int = 0
    shared: float = 0.0
    unrewarded: int = 0
    to_count: float = 0.0
    aged_at: float = 0.0
    usual_rewards: RobustRange = NO_VALUES
    usual_norms: RobustRange | None = NO_VALUES
    recent: RecentObservations = NO_OBSERVATIONS
    settled: Counted = NOTHING_COUNTED
    noise_at_edge: bool = False
    doubt: float = 0.0
    changes: int = 0
    calibration: Calibration = NO_SURPRISES
    begun_at: float = 0.0
    feedback: ItemFeedback | None = None


def _lasting_of(one: Lasting) -> dict[str, Any]:
    """Return the fields that a state and its checkpoint share."""
    return {name: getattr(one, name) for name in _LASTING}


_LASTING = tuple(one.name for one in fields(Lasting))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Checkpoint(Lasting):
    """What a state that was just refit is a function of: its rows, its pending slates, its counts and choices.

    `shape` is the kernel's, None for a kernel that stays as it is.
    """

    observed_rows: ObservedRows
    pending: PendingSlates
    noise_variance: float
    shape: Shape | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class State(Lasting):
    """What GP-TopK knows.

    Attributes
    ----------
    since_refit
        Rewards taken in since the last refit.
    half_life
        Age at which a reward counts half, in the unit of the times that `rewarded` is given: milliseconds in the
        service. Infinite for rewards that are never forgotten.
    trusts_rewards
        Whether each reward is learned, however far it is from all others.
    range_at_refit
        The robust range of rewards at the last refit, and after what was heard since of slates that came before.
    leaving
        Items that are never shown again, ascending: rows that show them are the first to be projected onto others.
    """

    posterior: Posterior
    limits: Limits
    since_refit: int = 0
    half_life: float = math.inf
    trusts_rewards: bool = False
    range_at_refit: RobustRange = NO_VALUES
    leaving: NDArray[np.int32] = field(default_factory=lambda: NO_ITEMS)

    @classmethod
    def initial(
        cls,
        kernel: KendallKernel,
        *,
        context_dim: int,
        limits: Limits,
        prior_mean: PriorMean | None = None,
        half_life: float = math.inf,
        encoded: bool = False,
        trusts_rewards: bool = False,
    ) -> State:
        """Return the state of a bandit that knows nothing, but for what is believed of its items.

        With an adaptive kernel contexts of several numbers get one more, so that what they have in common is learned
        whether they tell anything or not. Contexts that are `encoded` features get it with any kernel.
        """
        shared = FIRST_SHARED if encoded or (kernel.shape is not None and context_dim > 1) else 0.0
        in_all = context_dim + bool(shared)
        prior_mean = None if prior_mean is None else prior_mean.with_context_dim(in_all)
        posterior = Posterior.prior(kernel, context_dim=in_all, noise_variance=_FIRST_NOISE, prior_mean=prior_mean)
        usual_norms = None if encoded else NO_VALUES
        return cls(
            posterior=scale_best(posterior),
            limits=limits,
            shared=shared,
            half_life=half_life,
            trusts_rewards=trusts_rewards,
            usual_norms=usual_norms,
        )

    @classmethod
    def restore(
        cls,
        kernel: KendallKernel,
        checkpoint: Checkpoint,
        *,
        limits: Limits,
        prior_mean: PriorMean | None = None,
        half_life: float = math.inf,
        trusts_rewards: bool = False,
        leaving: NDArray[np.int32] = NO_ITEMS,
    ) -> State:
        """Return the state that `checkpoint` was taken from, to the bit if it had just been refit.

        Parameters
        ----------
        kernel
            The state's, or another one of its family; with the features of the items, if they have any.
        checkpoint, limits, half_life, trusts_rewards, leaving
            The state's.
        prior_mean
            The posterior's, made for its kernel.
        """
        kernel = kernel if checkpoint.shape is None else kernel.with_shape(checkpoint.shape)
        kernel = kernel if checkpoint.observed_rows.parts is None else kernel.uncentre()
        posterior = Posterior.fit(
            kernel,
            checkpoint.observed_rows,
            checkpoint.pending,
            noise_variance=checkpoint.noise_variance,
            prior_mean=prior_mean,
        )
        return cls(
            **_lasting_of(checkpoint),
            posterior=scale_best(posterior, noise_at_edge=checkpoint.noise_at_edge),
            limits=limits,
            half_life=half_life,
            trusts_rewards=trusts_rewards,
            range_at_refit=checkpoint.usual_rewards,
            leaving=leaving,
        )

    @property
    def checkpoint(self) -> Checkpoint:
        """What has to be kept of this state; exact only for one that was just refit."""
        return Checkpoint(
            **_lasting_of(self),
            observed_rows=self._observed_rows,
            pending=self.posterior.pending,
            noise_variance=self.posterior.noise_variance,
            shape=self.posterior.kernel.shape,
        )

    @property
    def study_mean(self) -> PriorMean | None:
        """The prior mean of a study, if there is one: the posterior's own, but where outcomes of items say more."""
        return self.posterior.prior_mean if self.feedback is None else self.feedback.study

    @property
    def remembered(self) -> int:
        """Rewards taken in since the beginning, or since the last `forget`."""
        return self.observations - self.forgotten

    @property
    def counted(self) -> Counted:
        """What is counted of all observations."""
        return self.settled.plus(self.recent)

    def counts_as(self, before: State) -> bool:
        """Return whether `counted` is what it was before, without adding it up."""
        return self.recent is before.recent and self.settled is before.settled

    @property
    def edges_reached(self) -> tuple[str, ...]:
        """What was chosen at the end of its range, beyond which there may be better: "noise", "constant"..."""
        shape = self.posterior.kernel.shape
        at_edge = {
            "noise": self.noise_at_edge,
            "constant": shape is not None and shape.constant == CONSTANTS[-1],
            "content": self._content_is_counted and shape is not None and shape.content == CONTENTS[-1],
            "shared": self.shared in {LEAST_SHARED, MOST_SHARED},
        }
        return tuple(name for name, reached in at_edge.items() if reached)

    @property
    def content_share(self) -> float:
        """Rho, as last chosen; 0 where features of items count for nothing, or there are none."""
        shape = self.posterior.kernel.shape
        return 0.0 if shape is None or not self._content_is_counted else shape.content

    @property
    def _content_is_counted(self) -> bool:
        return self.posterior.kernel.counted_content is not None

    @property
    def rewarded_share(self) -> float:
        """Share of the slates shown that ended with a reward, near 1 before any has ended."""
        rewarded = self.observations - self.imported + _ENDED_BEFORE
        return rewarded / (rewarded + self.unrewarded)

    def encode(self, context: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return a context as the posterior takes it: not a wild one, and with what all contexts share."""
        if self.is_wild_context(context):
            # With the number that all contexts share, nothing is left but somebody of whom nothing is known.
            context = context * (0.0 if self.shared else self._norm_reach / norm_of(context))
        return np.append(context, math.sqrt(self.shared)) if self.shared else context

    def is_wild_context(self, context: NDArray[np.float64]) -> bool:
        """Return whether a context is too long to be believed."""
        return norm_of(context) > self._norm_reach

    @property
    def _norm_reach(self) -> float:
        return math.inf if self.usual_norms is None else self.usual_norms.reach

    def reward_in_range(self, reward: float) -> float:
        """Return a reward that is in the robust range, or the centre for one that is not."""
        return reward if self.recent.would_believe(reward, self._judge_of(self.usual_rewards)) else self.recent.centre

    def _judge_of(self, usual: RobustRange) -> RobustRange:
        """Return the range by which rewards are judged, where they have a robust range: that, or one without an end."""
        return ALL_VALUES if self.trusts_rewards else usual

    def predict(
        self,
        context: NDArray[np.float64],
        rankings: Rankings,
        *,
        with_constant: bool = True,
        with_pending: bool = True,
    ) -> Moments:
        """Return `Posterior.predict` of a context that is not encoded, with its spread as wide as holds."""
        return self.widen(
            self.posterior.predict(
                self.encode(context), rankings, with_constant=with_constant, with_pending=with_pending
            )
        )

    def predict_difference(
        self, context: NDArray[np.float64], first: NDArray[np.int32], second: NDArray[np.int32]
    ) -> tuple[float, float]:
        """Return mean and variance of what a ranking (k,) earns more than another, as `predict` does of one.

        Until two rewards differ there is no unit, and no mean is larger.
        """
        mean, variance = self.posterior.predict_difference(self.encode(context), first, second)
        return mean if self.posterior.rewards_vary else 0.0, variance * self.spread_factor**2

    def prior_spread(self, context: NDArray[np.float64]) -> float:
        """Return the standard deviation of what a slate earns in a context, (C,), before any reward; none is 0."""
        return math.sqrt(self.posterior.amplitude) * norm_of(self.encode(context))

    def widen(self, moments: Moments) -> Moments:
        """Return moments of the posterior with a spread that holds of the latest rewards."""
        return moments._replace(variance=moments.variance * self.spread_factor**2)

    @property
    def spread_factor(self) -> float:
        """What the posterior's standard deviations are multiplied by, 1 at least: see `calibration`."""
        return self.calibration.spread_factor

    def shown(self, slate_id: str, context: NDArray[np.float64], ranking: NDArray[np.int32]) -> State:
        """Count a slate that was just shown as pending; where most never get a reward, only a part of them.

        A pending slate stands for the reward that is expected of it, so the part that counts is the share of slates
        that gets rewards: each slate adds that share, and one counts whenever they add up to a whole one.
        """
        state = self._admit(context[None])
        if state.is_wild_context(context):
            return state
        to_count = state.to_count + state.rewarded_share
        if to_count < 1.0 - _ROUNDING:
            return replace(state, to_count=to_count)
        if len(state.pending_ids) >= state.limits.pending_rows:
            state = state._discard(state.pending_ids[0])
        posterior = state.posterior.show(state.encode(context), ranking)
        if not posterior.n_rows:
            posterior = scale_best(posterior)
        pending_ids = (*state.pending_ids, slate_id)
        return replace(state, posterior=posterior, pending_ids=pending_ids, to_count=max(to_count - 1.0, 0.0))

    def _admit(self, contexts: NDArray[np.float64]) -> State:
        """Return the state that knows of more contexts; once contexts can be judged, no wild one is pending."""
        if self.usual_norms is None:
            return self
        updated = self.usual_norms
        for context in contexts:
            updated = updated.after(norm_of(context), 0.0)
        state = replace(self, usual_norms=updated)
        can_judge = len(self.usual_norms.values) < FEWEST_VALUES <= len(updated.values)
        return state._discard_wild() if can_judge else state

    def _discard_wild(self) -> State:
        """Stop counting slates that were shown in wild contexts as pending."""
        state, contexts = self, self.posterior.pending.contexts
        own = contexts[:, : contexts.shape[1] - bool(self.shared)]
        for slate_id, context in zip(self.pending_ids, own, strict=True):
            state = state._discard(slate_id) if self.is_wild_context(context) else state
        return state

    def closed(self, slate_id: str) -> State:
        """End a slate without a reward."""
        return replace(self._discard(slate_id), unrewarded=self.unrewarded + 1)

    def _discard(self, slate_id: str) -> State:
        """Stop counting a slate as pending, if it did."""
        if slate_id not in self.pending_ids:
            return self
        chosen = self.pending_ids.index(slate_id)
        return replace(self, posterior=self.posterior.discard(chosen), pending_ids=_without(self.pending_ids, chosen))

    def rewarded(
        self,
        slate_id: str,
        context: NDArray[np.float64],
        ranking: NDArray[np.int32],
        *,
        reward: float,
        at: float = 0.0,
        outcomes: NDArray[np.float64] | None = None,
    ) -> State:
        """Take in a slate's reward at a time, whether it still counts as pending or not, and learn what is not wild.

        Parameters
        ----------
        outcomes
            What became of its items, shape (k,), NaN where nothing is known; None where that is so of all.
        """
        recent = self.recent.extend(
            (slate_id,),
            context[None],
            ranking[None],
            np.array([reward]),
            np.array([at]),
            outcomes=None if outcomes is None else outcomes[None],
        )
        updated = self.usual_rewards.after(reward, recent.centre)
        recent = recent.judge_new(self._judge_of(updated), self.usual_norms, count=1)
        counted: dict[str, Any] = {
            "observations": self.observations + 1,
            "since_refit": self.since_refit + 1,
            "usual_rewards": updated,
            "recent": recent,
            "feedback": self._hear_outcomes(recent, count=1) if outcomes is not None else self.feedback,
        }
        if recent.verdicts[-1] == Verdict.BELIEVED:
            taken = replace(self, **counted, **self._learn(slate_id, context, ranking, reward))
        else:
            taken = replace(self._discard(slate_id), **counted)
        return taken.refit(at) if taken._refit_is_due() else taken

    def _hear_outcomes(self, recent: RecentObservations, *, count: int) -> ItemFeedback:
        """Return the feedback on items that judges by the outcomes of the newest observations, too."""
        return self._feedback_so_far.hear(recent, count=count)

    @property
    def _feedback_so_far(self) -> ItemFeedback:
        """The feedback on items, that of nothing where nobody ever said."""
        posterior = self.posterior
        return self.feedback or ItemFeedback.none(
            context_dim=posterior.context_dim,
            own_dim=posterior.context_dim - bool(self.shared),
            slate_size=posterior.kernel.slate_size,
            study=posterior.prior_mean,
        )

    def _learn(
        self, slate_id: str, context: NDArray[np.float64], ranking: NDArray[np.int32], reward: float
    ) -> dict[str, Any]:
        """Return what changes of the state where a reward is learned."""
        pending_ids = self.pending_ids
        if slate_id in pending_ids:
            chosen = pending_ids.index(slate_id)
            posterior, pending_ids = self.posterior.reward(chosen, reward), _without(pending_ids, chosen)
        else:
            posterior = self.posterior.observe(self.encode(context), ranking, reward)
        calibration = self.calibration
        if self.remembered >= _REWARDS_BETWEEN_LOOKS:
            calibration = calibration.after(posterior.surprise_of_newest(self.posterior))
        return {"posterior": self._scale(posterior), "pending_ids": pending_ids, "calibration": calibration}

    def _scale(self, posterior: Posterior) -> Posterior:
        return scale_best(posterior, noise_at_edge=self.noise_at_edge)

    def learn_history(self, past: PastRows, *, at: float = 0.0) -> State:
        """Learn rewards of slates that were shown elsewhere, all at once: the state is refit.

        It is refit twice where the rows first are more than are always kept: what is projected then is projected by a
        kernel and a noise that are fitted to rewards. Robust ranges of contexts and rewards come from all of `past`.

        Parameters
        ----------
        at
            The time now.
        """
        state, count, rows = self._admit(past.contexts), len(past.rewards), self._age_rows(at)
        recent = self.recent.extend(
            ("",) * count, past.contexts, past.rankings, past.rewards, at - past.ages, outcomes=past.outcomes
        )
        updated = self.usual_rewards.after_all(recent.rewards, first=len(self.recent))
        recent = recent.judge_new(self._judge_of(updated), state.usual_norms, count=count)
        state = replace(
            state,
            recent=recent,
            usual_rewards=updated,
            observations=self.observations + count,
            imported=self.imported + count,
            feedback=self.feedback if past.outcomes is None else self._hear_outcomes(recent, count=count),
        )
        past = past.select(recent.believed[-count:])
        believed, space = len(past.rewards), min(self.limits.rows, FEWEST_ROWS) - self.posterior.n_rows
        for part in (slice(0, space), slice(space, believed)) if 0 < space < believed else (slice(0, believed),):
            rows = rows.extend(state._rows_of(past.select(part)))
            state = state._rebuild(state.posterior.kernel, rows, state.posterior.pending, max(at, self.aged_at))
            rows = state._observed_rows
        return state

    def _rows_of(self, past: PastRows) -> ObservedRows:
        """Return observations as rows, those of some age counting for less."""
        contexts = self._with_shared(past.contexts)
        rows = ObservedRows.of(Observations(contexts, past.rankings, past.rewards))
        rows = rows.with_prior_mean(self.posterior.prior_mean)
        if past.outcomes is not None:
            rows = replace(rows, feedback=RowOutcomes.of(past.outcomes))
        if math.isinf(self.half_life):
            return rows
        return rows.fade(0.5 ** np.minimum(past.ages / self.half_life, _MOST_HALVINGS))

    def _with_shared(self, contexts: NDArray[np.float64]) -> NDArray[np.float64]:
        if not self.shared:
            return contexts
        return np.column_stack([contexts, np.full(len(contexts), math.sqrt(self.shared))])

    def can_correct(self, slate_id: str) -> bool:
        """Return whether a slate's reward can still be `corrected`: it is a row of its own, or is not learned."""
        return slate_id in self.recent.ids

    def corrected(self, slate_id: str, reward: float | None, *, outcomes: NDArray[np.float64] | None = None) -> State:
        """Return the state in which the reward of a slate was another, or none.

        It is that of the same happenings with the other reward, or with the slate `closed` where it was corrected, to
        rounding, but for which other rewards were judged to be wild since the last refit: the next one judges anew. Of
        slates shown since the reward, as many count as pending as did, and surprises stay what they were.

        Parameters
        ----------
        slate_id
            Of a reward that `can_correct` tells of.
        reward
            None for a slate that ended without one.
        outcomes
            As of `rewarded`.
        """
        index = self.recent.ids.index(slate_id)
        amended = replace(self, recent=self.recent.with_outcomes(index, outcomes))
        state = amended._void(index) if reward is None else amended._amend(index, reward)
        latest, feedback = len(state.recent) - state.since_refit, state.feedback
        if state.recent.outcomes is not None:
            feedback = state._feedback_so_far.hear_again(state.recent, count=state.since_refit)
        usual = state.range_at_refit.after_all(state.recent.rewards, first=latest)
        return replace(state, usual_rewards=usual, feedback=feedback)

    def revised(
        self,
        slate_id: str,
        context: NDArray[np.float64],
        ranking: NDArray[np.int32],
        *,
        before: float,
        reward: float | None,
        at: float,
        before_outcomes: NDArray[np.float64] | None = None,
        outcomes: NDArray[np.float64] | None = None,
    ) -> State | None:
        """Return the state in which a slate that was learned before the last refit had another reward, or none.

        It is that of the same happenings with the other reward where the slate is a row or a sum of rows still, but for
        what was chosen and judged by the reward that it had. Where its row was projected onto others it is as exact as
        that (`folded_rewards`). One that fades counts as it does now, but for changes of the shop that were noticed.
        A slate whose other reward is wild is not learned, until later rewards show that it is in range.

        Parameters
        ----------
        slate_id, context, ranking
            Of the slate, as it was learned.
        before
            The reward that was learned last.
        reward
            None for a slate that is to count for nothing.
        at
            When the slate's reward was learned first.
        before_outcomes, outcomes
            As of `rewarded`: those that were learned last, and the others.

        Returns
        -------
        State | None
            None where the slate, or its other reward, is wild, and it is not among the latest observations. Then the
            reward can still be `heard`.
        """
        outcomes = None if reward is None else outcomes
        index = self.recent.find_settled(slate_id)
        seen = self if reward is None else self.heard(reward)
        is_wild = reward is not None and seen.reward_in_range(reward) != reward
        is_unknown = index is None and (is_wild or at <= self.begun_at or seen.reward_in_range(before) != before)
        if is_unknown or self.is_wild_context(context):
            return None
        age = max(self.aged_at - at, 0.0) / self.half_life
        learned, latest = (self.encode(context), ranking, before), self._latest_rows
        weight = 0.5 ** min(age, _MOST_HALVINGS)
        if reward is None or is_wild:
            posterior = self.posterior.remove(*learned, weight=weight, n_latest=latest)
        else:
            posterior = self.posterior.amend(*learned, change=reward - before, weight=weight, n_latest=latest)
        recounted = seen._recount(slate_id, index, before=before, reward=reward, is_wild=is_wild)
        posterior = posterior.with_outcomes(*learned[:2], before_outcomes, None if is_wild else outcomes)
        revised = replace(recounted, posterior=self._scale(posterior))
        if before_outcomes is None and outcomes is None:
            return revised
        if index is not None and reward is not None:
            revised = replace(revised, recent=revised.recent.with_outcomes(index, outcomes))
        taken = None if self._has_outcomes_of(index) or at <= self.begun_at else before_outcomes
        added = None if index is not None or reward is None else outcomes
        ends = (before, taken), (reward or 0.0, added)
        return revised._hear_late(outcomes)._revise_outcomes(context, ranking, ends, weight)

    def _has_outcomes_of(self, index: int | None) -> bool:
        """Return whether the outcomes of a slate are those of a latest observation: if not, they are in sums."""
        outcomes = self.recent.outcomes
        return index is not None and outcomes is not None and bool(np.isfinite(outcomes[index]).any())

    def _hear_late(self, outcomes: NDArray[np.float64] | None) -> State:
        """Return the state that knows of outcomes of an earlier slate, as far as outcomes are judged by them."""
        if outcomes is None:
            return self
        return replace(self, feedback=self._feedback_so_far.hear_late(outcomes, self.recent.outcome_centre))

    def _revise_outcomes(
        self,
        context: NDArray[np.float64],
        ranking: NDArray[np.int32],
        learned: Sequence[tuple[float, NDArray[np.float64] | None]],
        weight: float,
    ) -> State:
        """Return the state whose sums have another reward and outcomes of a slate: those before, and those after."""
        feedback, kernel = self.feedback, self.posterior.kernel
        for sign, (reward, one) in zip((-1.0, 1.0), learned, strict=True):
            if one is not None and feedback is not None:
                extended = extend_contexts(context[None], context_dim=feedback.context_dim)
                judged = feedback.judge(one[None], self.recent.outcome_centre)
                rows = OutcomeRows(extended, ranking[None], judged, np.array([sign * weight]), np.array([reward]))
                feedback = feedback.absorb(rows, most_items=self._most_items_of(kernel))
        return replace(self, feedback=feedback)

    def heard(self, reward: float) -> State:
        """Return the state that knows of one more reward of an earlier slate, as far as rewards are judged by it."""
        usual, centre = self.usual_rewards.after(reward, self.recent.centre), self.recent.centre
        is_first = self.range_at_refit is self.usual_rewards
        at_refit = usual if is_first else self.range_at_refit.after(reward, centre)
        return replace(self, usual_rewards=usual, range_at_refit=at_refit)

    def _recount(
        self, slate_id: str, index: int | None, *, before: float, reward: float | None, is_wild: bool
    ) -> State:
        """Return the state that remembers a slate's other reward, or none; what is learned stays."""
        gone, settled, recent = reward is None, self.settled, self.recent
        if index is None:
            settled = settled._replace(reward_sum=settled.reward_sum + (reward or 0.0) - before)
        elif reward is None:
            recent = recent.without(index)
        else:
            recent = recent.with_reward(index, reward)
            recent = recent.doubt(index, slate_id) if is_wild else recent
        return replace(
            self,
            observations=self.observations - gone,
            unrewarded=self.unrewarded + gone,
            settled=settled,
            recent=recent,
        )

    def _void(self, index: int) -> State:
        posterior, is_latest = self.posterior, self._is_latest(index)
        if self.recent.believed[index]:
            posterior = self._scale(posterior.without_row(self._row_of(index)))
        return replace(
            self,
            posterior=posterior,
            observations=self.observations - 1,
            since_refit=self.since_refit - is_latest,
            unrewarded=self.unrewarded + 1,
            recent=self.recent.without(index),
        )

    def _amend(self, index: int, reward: float) -> State:
        posterior, was_believed, is_latest = self.posterior, self.recent.believed[index], self._is_latest(index)
        recent = self.recent.with_reward(index, reward)
        verdict = recent.judge(self._judge_of(self.usual_rewards), self.usual_norms, n_new=len(recent) - index)[index]
        if verdict != Verdict.BELIEVED:
            posterior = posterior.without_row(self._row_of(index)) if was_believed else posterior
            recent = recent.with_verdict(index, verdict)
        elif was_believed:
            latest = np.arange(len(recent)) >= len(recent) - self.since_refit
            posterior = posterior.with_rewards(recent.rewards[recent.believed & latest])
        else:
            # It is the newest row, so it has to be the newest observation.
            recent = recent.move_to_the_end(index)
            posterior = posterior.observe(self.encode(recent.contexts[-1]), recent.rankings[-1], reward)
        since_refit = self.since_refit + (bool(verdict == Verdict.BELIEVED) and not is_latest)
        return replace(self, posterior=self._scale(posterior), recent=recent, since_refit=since_refit)

    def _is_latest(self, index: int) -> bool:
        """Return whether an observation came since the last refit."""
        return index >= len(self.recent) - self.since_refit

    def _row_of(self, index: int) -> int:
        """Return which of the posterior's rows is that of an observation that is learned, and came since the refit."""
        return self.posterior.n_rows - int(self.recent.believed[index:].sum())

    @property
    def _latest_rows(self) -> int:
        """How many of the posterior's rows came since the last refit: the last ones."""
        return int(self.recent.believed[len(self.recent) - self.since_refit :].sum())

    def refit(self, at: float = 0.0, *, vacated: NDArray[np.int32] = NO_ITEMS) -> State:
        """Age, notice changes, fold, project, choose kernel, noise and scale anew, and rebuild the posterior.

        The result is a function of its `checkpoint`, the limits and half-life, and the items' prior and features.

        Parameters
        ----------
        at
            The time now, for rows to be aged by.
        vacated
            Items that no row shows afterwards.
        """
        state, rows = self._discard_wild()._notice_change(self._age_rows(at))
        state, rows = state._judge_again(rows, at)
        kernel, pending = state.posterior.kernel, state.posterior.pending
        return state._rebuild(kernel, rows, pending, max(at, self.aged_at), vacated=vacated)

    def _judge_again(self, rows: ObservedRows, at: float) -> tuple[State, ObservedRows]:
        """Return the state and the rows once the latest observations are judged by all that came since.

        Those that turn out to be in range become rows. Where some that were learned turn out to be wild, or the scale
        has changed, all is learned anew from those that are believed: no sum of rows gives one back.
        """
        before = self.recent
        verdicts = before.judge(self._judge_of(self.usual_rewards), self.usual_norms)
        restored = ~before.believed & (verdicts == Verdict.BELIEVED)
        doubted = before.believed & (verdicts != Verdict.BELIEVED)
        if self.remembered > len(before) and doubted.sum() < _FEWEST_DOUBTED:
            verdicts[doubted] = Verdict.BELIEVED
            doubted[:] = False
        state = replace(self, recent=before.with_verdicts(verdicts))
        if restored.sum() >= _FEWEST_OF_A_SCALE and restored[np.argmax(restored) :].mean() > 0.5:
            # Since the first of them most are of a scale that those before are not of.
            others = ~restored & (verdicts == Verdict.BELIEVED) & (np.arange(len(before)) < np.argmax(restored))
            settled = self.settled.plus(state.recent.select(others))
            return replace(state, recent=state.recent.select(~others), settled=settled)._begin_again(at)
        if doubted.any():
            return state._begin_again(at)
        if restored.any():
            rows = rows.extend(state._rows_of(before.select(restored).past(at)))
        return state, rows

    def _begin_again(self, at: float) -> tuple[State, ObservedRows]:
        """Return the state of a bandit that has learned nothing, and rows of what is believed of its observations."""
        posterior, shared = self.posterior, FIRST_SHARED if self.shared else 0.0
        kernel, prior_mean = posterior.kernel.with_first_shape(), posterior.prior_mean
        begun = Posterior.prior(
            kernel,
            context_dim=posterior.context_dim,
            noise_variance=_FIRST_NOISE,
            prior_mean=None if prior_mean is None else prior_mean.with_kernel(kernel),
        )
        pending = posterior.pending.with_shared(shared / self.shared if shared else 1.0)
        begun = begun.refit(begun.observed_rows, noise_variance=_FIRST_NOISE, pending=pending)
        state = replace(
            self,
            posterior=begun,
            shared=shared,
            compared=0,
            doubt=0.0,
            calibration=NO_SURPRISES,
            begun_at=at,
            feedback=None if self.feedback is None else self.feedback.anew(),
        )
        rows = state._rows_of(self.recent.select(self.recent.believed).past(at))
        return state, rows if kernel.centred else rows.with_parts()

    def _notice_change(self, rows: ObservedRows) -> tuple[State, ObservedRows]:
        """Return the state with what its latest rewards say of all before, and the rows as they count then."""
        if not self.posterior.kernel.shape:
            return self, rows
        weight, doubt = notice_change(self.posterior, rows, n_latest=self._latest_rows, doubt=self.doubt)
        if weight == 1.0:
            return replace(self, doubt=doubt), rows
        faded = rows.fade_earlier(weight, n_latest=self._latest_rows)
        return replace(self._doubt_outcomes(weight), doubt=doubt, changes=self.changes + 1), faded

    def _doubt_outcomes(self, weight: float) -> State:
        """Return the state whose outcomes before the last refit count for less."""
        if self.feedback is None:
            return self
        n_earlier = len(self.recent) - self.since_refit
        earlier = self.recent.select(np.arange(n_earlier))
        feedback = self._absorb_outcomes(self.feedback, earlier, self.posterior.kernel, self.aged_at)
        added_up = np.append(earlier.believed, np.zeros(self.since_refit, dtype=np.bool_))
        return replace(self, feedback=feedback.fade(weight), recent=self.recent.forget_outcomes(added_up))

    def _rebuild(
        self,
        kernel: KendallKernel,
        rows: ObservedRows,
        pending: PendingSlates,
        aged_at: float,
        *,
        vacated: NDArray[np.int32] = NO_ITEMS,
    ) -> State:
        """Return the state of these rows, aged until then, and of these pending slates, beginning with a kernel."""
        shared, noise_variance, compared = self.shared, self.posterior.noise_variance, self.compared
        kernel, rows = self._condense(kernel, rows)
        rows = project_out(kernel, rows, vacated, noise_variance=noise_variance)
        feedback = self._settle_outcomes(kernel, aged_at)
        posterior, rows = self._learn_outcomes(kernel, rows, feedback, aged_at)
        prior_mean = posterior.prior_mean
        prior, noise = slope_prior(prior_mean, rows), None
        enough = rows.n_rows and self.remembered >= _FEWEST_TO_CHOOSE_BY
        if kernel.shape and enough and choice_is_due(rows, observations=self.remembered, compared=compared):
            (choice, noise), compared = (
                choose(kernel, rows, shared=shared, noise_variance=noise_variance, prior_mean=prior_mean, prior=prior),
                self.remembered,
            )
            ratio = choice.ratio_to(shared)
            rows, pending = rows.with_shared(ratio), pending.with_shared(ratio)
            if prior_mean is not None and choice.kernel is not kernel:
                rows = rows.with_prior_mean(prior_mean.with_kernel(choice.kernel))
            kernel, shared = choice
            if prior is not None and ratio != 1.0:  # it is in the unit of contexts, which share more or less now
                prior, noise = slope_prior(prior_mean, rows), None
        at_edge = self.noise_at_edge
        if enough:
            evidence = rows.kernel_evidence(kernel, noise_variance)
            noise_variance, _, at_edge = noise or best_noise(kernel, rows, prior=prior, evidence=evidence)
        posterior = posterior.refit(rows, noise_variance=noise_variance, kernel=kernel, pending=pending)
        return replace(
            self,
            posterior=scale_best(posterior, noise_at_edge=at_edge),
            since_refit=0,
            compared=compared,
            shared=shared,
            aged_at=aged_at,
            noise_at_edge=at_edge,
            recent=self.recent.settle(),
            settled=self.settled.plus(self.recent.leaving),
            range_at_refit=self.usual_rewards,
            feedback=None if feedback is None else feedback.settle(kernel),
        )

    def _settle_outcomes(self, kernel: KendallKernel, at: float) -> ItemFeedback | None:
        """Return the feedback on items at a refit, with the sums of what the latest observations do not have then."""
        feedback = self.feedback
        if feedback is None:
            return None
        halvings = min(max(at - self.aged_at, 0.0) / self.half_life, _MOST_HALVINGS) if self.aged_at else 0.0
        return self._absorb_outcomes(feedback.fade(0.5**halvings), self.recent.leaving, kernel, at)

    def _absorb_outcomes(
        self, feedback: ItemFeedback, leaving: RecentObservations, kernel: KendallKernel, at: float
    ) -> ItemFeedback:
        if leaving.outcomes is None or not len(leaving):
            return feedback
        rows = feedback.rows_of(leaving, at=at, half_life=self.half_life, centre=self.recent.outcome_centre)
        return feedback.absorb(rows, most_items=self._most_items_of(kernel))

    def _learn_outcomes(
        self, kernel: KendallKernel, rows: ObservedRows, feedback: ItemFeedback | None, at: float
    ) -> tuple[Posterior, ObservedRows]:
        """Return the posterior with the prior mean that outcomes give, and the rows with its h."""
        if feedback is None:
            return self.posterior, rows
        latest, centre = self.recent.settle(), self.recent.outcome_centre
        rows, prior_mean = feedback.learn(
            kernel,
            rows,
            feedback.rows_of(latest, at=at, half_life=self.half_life, centre=centre),
            centre=centre,
            most_items=self._most_items_of(kernel),
        )
        return replace(self.posterior, prior_mean=prior_mean), rows

    def _most_items_of(self, kernel: KendallKernel) -> int:
        return self.limits.most_outcome_items(self.posterior.context_dim, kernel.slate_size)

    def _condense(self, kernel: KendallKernel, rows: ObservedRows) -> tuple[KendallKernel, ObservedRows]:
        """Return as few rows as the capacity allows, and an uncentred kernel if item parts are kept beside them."""
        if outgrows(kernel, rows, most_rows=self.limits.rows):
            kernel, rows = kernel.uncentre(), rows.with_parts()
        # What items' features say is learned by the rows, of whatever items.
        most_items = 0 if kernel.counted_content else self.limits.most_items(rows.contexts.shape[1])
        rows = condense(
            kernel,
            rows,
            most_rows=rows_needed(kernel, rows, most_rows=self.limits.rows),
            noise_variance=self.posterior.noise_variance,
            leaving=self.leaving,
            most_items=most_items,
        )
        return kernel, rows

    def forget(self, kernel: KendallKernel, at: float = 0.0) -> State:
        """Return the state, refit, of a bandit that begins anew: what was learned of rewards is gone.

        Slates that were shown are no longer pending; their rewards can be learned all the same. Counts go on, and so
        does what a study said of the items.

        Parameters
        ----------
        kernel
            As for `initial`, with the features of the items, if they have any.
        at
            As for `refit`.
        """
        prior_mean = self.study_mean
        anew = State.initial(
            kernel,
            context_dim=self.posterior.context_dim - bool(self.shared),
            limits=self.limits,
            prior_mean=None if prior_mean is None else prior_mean.with_kernel(kernel),
            half_life=self.half_life,
            encoded=self.usual_norms is None,
            trusts_rewards=self.trusts_rewards,
        )
        return replace(
            anew,
            settled=self.counted,
            observations=self.observations,
            forgotten=self.observations,
            imported=self.imported,
            unrewarded=self.unrewarded,
            changes=self.changes,
            begun_at=at,
            leaving=self.leaving,
        ).refit(at)

    def with_kernel(self, kernel: KendallKernel, at: float = 0.0) -> State:
        """Return the state, refit, whose kernel is of the same family for more items; its rows are taken for theirs.

        Parameters
        ----------
        kernel
            Of the same slates; the shape of an adaptive one stays what it is, and so do the features of its items.
        at
            As for `refit`.
        """
        posterior, prior_mean, shape = self.posterior, self.posterior.prior_mean, self.posterior.kernel.shape
        kernel = kernel if shape is None else kernel.with_shape(shape)
        kernel = kernel if posterior.kernel.centred else kernel.uncentre()
        if (content := posterior.kernel.content) is not None:
            # Places without an item have no features.
            more = kernel.n_items - len(content.features)
            kernel = kernel.with_item_features(np.pad(content.features, ((0, more), (0, 0))))
        rows = self._observed_rows
        if prior_mean is not None:
            rows = rows.with_prior_mean(prior_mean.with_kernel(kernel))
        posterior = posterior.refit(rows, noise_variance=posterior.noise_variance, kernel=kernel)
        feedback = None if self.feedback is None else self.feedback.with_kernel(kernel)
        return replace(self, posterior=posterior, feedback=feedback).refit(at)

    def with_leaving(self, items: NDArray[np.int32]) -> State:
        """Return the state that knows which items are never shown again; no row changes."""
        return replace(self, leaving=items)

    def vacate(self, items: NDArray[np.int32], at: float = 0.0) -> State:
        """Return the state, refit if any row shows one of these items, and none shows one then.

        Information on other items from rewarded rows is kept as far as other rows hold it; pending ones stop counting.

        Parameters
        ----------
        items
            Items that are never shown again, whose slots others take.
        at
            As for `refit`.
        """
        posterior, state = self.posterior, self
        parts = posterior.observed_rows.parts
        known_items = np.zeros(0, dtype=np.int32) if parts is None else parts.items
        if state.feedback is not None:
            known_items = np.union1d(known_items, np.append(state.feedback.settled.items, state.recent.rankings))
            state = replace(state, feedback=state.feedback.without(items), recent=state.recent.mask_outcomes(items))
        if not np.isin(posterior.all_rows.rankings, items).any() and not np.isin(known_items, items).any():
            return self
        shown = np.flatnonzero(np.isin(posterior.pending.rankings, items).any(axis=1))
        for slate_id in [self.pending_ids[row] for row in shown.tolist()]:
            state = state._discard(slate_id)
        refit = state.refit(at, vacated=items)
        gone = np.asarray(np.isin(refit.recent.rankings, items).any(axis=1))
        leave = refit.recent.select(gone)
        feedback = refit.feedback
        if feedback is not None:
            feedback = refit._absorb_outcomes(feedback, leave, refit.posterior.kernel, refit.aged_at)
        settled = refit.settled.plus(leave)
        return replace(refit, recent=refit.recent.select(~gone), settled=settled, feedback=feedback)

    def with_half_life(self, half_life: float) -> State:
        """Return the state whose rewards count half at another age; what was forgotten stays so."""
        return replace(self, half_life=half_life)

    def with_trust(self, *, trusts_rewards: bool) -> State:
        """Return the state whose rewards are judged otherwise from now on, and at the next refit the latest, too."""
        return replace(self, trusts_rewards=trusts_rewards)

    def with_contexts(self, change: Callable[[NDArray[np.float64], NDArray[np.float64]], NDArray[np.float64]]) -> State:
        """Return the state, refit, whose rows have other contexts.

        Parameters
        ----------
        change
            From contexts as the posterior has them, shape (N, C + 1), what they share being the last number, to others
            in their order, perhaps with more numbers; or from (N, C), if they share nothing. It is also given how many
            times as long as a context each can be, shape (N,). Values out of range may be shortened; all others are
            changed linearly.
        """
        posterior = self.posterior
        rows, pending = self._observed_rows, posterior.pending
        changed = change(rows.contexts, rows.sizes), change(pending.contexts, np.ones(len(pending.contexts)))
        if all(np.array_equal(new, old) for new, old in zip(changed, (rows.contexts, pending.contexts), strict=True)):
            return self
        context_dim = changed[0].shape[1]
        if posterior.prior_mean is not None:
            posterior = replace(posterior, prior_mean=posterior.prior_mean.with_context_dim(context_dim))
        state = replace(self, posterior=posterior)
        parts, feedback = rows.parts, self.feedback
        if parts is not None or feedback is not None:
            every = np.eye(self.posterior.context_dim)
            images = change(every, np.full(len(every), math.inf))
            parts = None if parts is None else parts.with_contexts(images)
            if feedback is not None:
                extended = extend_images(images, self.shared)
                state = replace(state, feedback=feedback.with_contexts(extended, context_dim=context_dim))
        rows, pending = replace(rows, contexts=changed[0], parts=parts), pending._replace(contexts=changed[1])
        if len(self.recent):
            latest = change(self._with_shared(self.recent.contexts), np.ones(len(self.recent)))
            latest = latest[:, : latest.shape[1] - bool(self.shared)]
            state = replace(state, recent=self.recent.with_contexts(latest))
        return state._rebuild(posterior.kernel, rows, pending, self.aged_at)

    @property
    def _observed_rows(self) -> ObservedRows:
        """The posterior's rows, with what became of their items."""
        rows, outcomes, n_latest = self.posterior.observed_rows, self.recent.outcomes, self._latest_rows
        if outcomes is None or not n_latest:
            return rows
        known = (rows.feedback or RowOutcomes.none(*rows.rankings.shape)).outcomes.copy()
        known[-n_latest:] = outcomes[self.recent.believed][-n_latest:]
        own = np.zeros_like(known) if rows.feedback is None else rows.feedback.own
        return replace(rows, feedback=RowOutcomes(known, own))

    def _age_rows(self, at: float) -> ObservedRows:
        """Return the rows as they count now: those of the last refit aged by all the time since, later ones by half."""
        rows = self._observed_rows
        halvings = min(max(at - self.aged_at, 0.0) / self.half_life, _MOST_HALVINGS)
        if not halvings or not self.aged_at:
            return rows
        return rows.fade_earlier(0.5**halvings, n_latest=self._latest_rows, of_latest=0.5 ** (0.5 * halvings))

    def with_prior_mean(self, prior_mean: PriorMean | None) -> State:
        """Return the state, refit, with another prior mean, or none: what was learned from rewards is kept."""
        if prior_mean is not None:
            prior_mean = prior_mean.with_context_dim(self.posterior.context_dim)
        if self.feedback is not None:
            return replace(self, feedback=replace(self.feedback, study=prior_mean)).refit(self.aged_at)
        posterior = self.posterior.with_prior_mean(prior_mean, noise_variance=self.posterior.noise_variance)
        return replace(self, posterior=posterior).refit(self.aged_at)

    def with_new_items(self, prior_mean: PriorMean) -> State:
        """Return the state with a prior mean that differs for items that were never shown: no row changes.

        Where outcomes say more than it, the state is refit.
        """
        if self.feedback is not None:
            return replace(self, feedback=replace(self.feedback, study=prior_mean)).refit(self.aged_at)
        return replace(self, posterior=self.posterior.with_new_items(prior_mean))

    def with_item_features(self, features: NDArray[np.float64] | None) -> State:
        """Return the state with these features of the items, or none.

        Where the items of all rows have the features that they had, nothing else changes. Else it is refit, and when
        items get features for the first time, or others in number, how much they count is chosen at once.

        Parameters
        ----------
        features
            As for `KendallKernel.with_item_features`.
        """
        posterior, old = self.posterior, self.posterior.kernel.content
        kernel = posterior.kernel.with_item_features(features)
        if kernel.content is None and old is None:
            return self
        if kernel.content is not None and old is not None and old.features.shape == kernel.content.features.shape:
            shown = np.flatnonzero(posterior.shown_counts())
            if np.array_equal(old.features[shown], kernel.content.features[shown]):
                return replace(self, posterior=posterior.with_unshown_features(kernel))
            return self._rebuild(kernel, self._observed_rows, posterior.pending, self.aged_at)
        state = replace(self, compared=0)
        return state._rebuild(kernel, self._observed_rows, posterior.pending, self.aged_at)

    @property
    def memory_bytes(self) -> int:
        """Bytes of the arrays that are held."""
        of_utilities, of_items = self.posterior.prior_mean, 0 if self.feedback is None else self.feedback.nbytes
        if self.feedback is not None and of_utilities is not None:
            of_items += of_utilities.nbytes
        return self.posterior.memory_bytes + of_items

    @property
    def rewards_before_refit(self) -> int:
        """With how many more rewards a refit is due at the earliest."""
        return min(self._rewards_before_growth, self._rewards_before_look)

    @property
    def _rewards_before_look(self) -> int:
        """With how many more rewards it is judged anew whether those before are believed: with each, while few came."""
        looks = 1 if self.remembered < _REWARDS_BETWEEN_LOOKS else _REWARDS_BETWEEN_LOOKS
        return looks - self.since_refit % looks

    @property
    def _rewards_before_growth(self) -> int:
        """With how many more rewards the rows have grown by a quarter and eight: refits cost a few times the last."""
        return max(_FEWEST_TO_CHOOSE_BY, (self.posterior.n_rows - self._latest_rows) // 4) - self.since_refit

    def _refit_is_due(self) -> bool:
        """Return whether there is enough that is new, or enough of what was learned is not believed any more."""
        if self._rewards_before_growth <= 0:
            return True
        if self.remembered > _REWARDS_BETWEEN_LOOKS and self.since_refit % _REWARDS_BETWEEN_LOOKS:
            return False
        verdicts = self.recent.judge(self._judge_of(self.usual_rewards), self.usual_norms)
        doubted = int((self.recent.believed & (verdicts != Verdict.BELIEVED)).sum())
        return doubted >= (1 if self.remembered <= _REWARDS_BETWEEN_LOOKS else _FEWEST_DOUBTED)


_REWARDS_BETWEEN_LOOKS = 16
"""After so many rewards it is judged anew whether those before are believed; after each while so few came."""

_FIRST_NOISE = 0.1

_FEWEST_DOUBTED = 8
"""Fewer wild ones are left among more observations than are kept: to begin again would cost more."""

_FEWEST_OF_A_SCALE = 32
"""So many that were judged wrongly tell that rewards, or contexts, have another scale for good."""

_FEWEST_TO_CHOOSE_BY = 8
"""By so many rewards kernel and noise are first chosen: to two or three of them all is noise, and nothing is tried."""

_MOST_HALVINGS = 256.0
"""After so many half lives nothing is left of a reward; after a thousand more its weight would be zero."""

_ENDED_BEFORE = 4
"""So many slates count as ended with a reward before any has: the first that ends without one is no rule."""

_ROUNDING = 1e-9


def _without(ids: tuple[str, ...], chosen: int) -> tuple[str, ...]:
    return ids[:chosen] + ids[chosen + 1 :]


def kernel_of(kind: Kernel, n_items: int, slate_size: int) -> KendallKernel:
    """Return the kernel that a bandit's settings name."""
    match kind:
        case Kernel.ADAPTIVE:
            return adaptive_kendall(n_items, slate_size)
        case Kernel.WEIGHTED_CONVOLUTIONAL:
            return weighted_convolutional_kendall(n_items, slate_size)
        case Kernel.CONVOLUTIONAL:
            return convolutional_kendall(n_items, slate_size)
        case Kernel.WEIGHTED:
            return weighted_kendall(n_items, slate_size)
