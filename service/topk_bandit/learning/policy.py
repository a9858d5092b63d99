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
from topk_bandit.learning.item_feedback import ItemFeedback
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
    from numpy.typing import NDArray

    from topk_bandit.learning.kendall import KendallKernel, Shape
    from topk_bandit.learning.limits import Limits
    from topk_bandit.learning.posterior import Moments, PendingSlates
    from topk_bandit.learning.prior_mean import PriorMean
    from topk_bandit.learning.rankings import Rankings
    from topk_bandit.learning.recent_observations import Counted, PastRows, RecentObservations
    from topk_bandit.learning.robust_ranges import RobustRange

__all__ = ["Checkpoint", "Lasting", "State", "halvings", "kernel_of"]


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
        How many of them were taken in before the last `forget`.
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
    reward_range, norm_range
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
    reward_range: RobustRange = NO_VALUES
    norm_range: RobustRange | None = NO_VALUES
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
        norm_range = None if encoded else NO_VALUES
        return cls(
            posterior=scale_best(posterior),
            limits=limits,
            shared=shared,
            half_life=half_life,
            trusts_rewards=trusts_rewards,
            norm_range=norm_range,
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
            range_at_refit=checkpoint.reward_range,
            leaving=leaving,
        )

    @property
    def checkpoint(self) -> Checkpoint:
        """What has to be kept of this state; exact only for one that was just refit."""
        return Checkpoint(
            **_lasting_of(self),
            observed_rows=self.observed_rows,
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
        return math.inf if self.norm_range is None else self.norm_range.reach

    def reward_in_range(self, reward: float) -> float:
        """Return a reward that is in the robust range, or the centre for one that is not."""
        return reward if self.recent.would_believe(reward, self.judge_of(self.reward_range)) else self.recent.centre

    def judge_of(self, robust_range: RobustRange) -> RobustRange:
        """Return the range by which rewards are judged, where they have a robust range: that, or one without an end."""
        return ALL_VALUES if self.trusts_rewards else robust_range

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
            state = state.discard(state.pending_ids[0])
        posterior = state.posterior.show(state.encode(context), ranking)
        if not posterior.n_rows:
            posterior = scale_best(posterior)
        pending_ids = (*state.pending_ids, slate_id)
        return replace(state, posterior=posterior, pending_ids=pending_ids, to_count=max(to_count - 1.0, 0.0))

    def _admit(self, contexts: NDArray[np.float64]) -> State:
        """Return the state that knows of more contexts; once contexts can be judged, no wild one is pending."""
        if self.norm_range is None:
            return self
        updated = self.norm_range
        for context in contexts:
            updated = updated.after(norm_of(context), 0.0)
        state = replace(self, norm_range=updated)
        can_judge = len(self.norm_range.values) < FEWEST_VALUES <= len(updated.values)
        return state._discard_wild() if can_judge else state

    def _discard_wild(self) -> State:
        """Stop counting slates that were shown in wild contexts as pending."""
        state, contexts = self, self.posterior.pending.contexts
        own = contexts[:, : contexts.shape[1] - bool(self.shared)]
        for slate_id, context in zip(self.pending_ids, own, strict=True):
            state = state.discard(slate_id) if self.is_wild_context(context) else state
        return state

    def closed(self, slate_id: str) -> State:
        """End a slate without a reward."""
        return replace(self.discard(slate_id), unrewarded=self.unrewarded + 1)

    def discard(self, slate_id: str) -> State:
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
        updated = self.reward_range.after(reward, recent.centre)
        recent = recent.judge_new(self.judge_of(updated), self.norm_range, count=1)
        counted: dict[str, Any] = {
            "observations": self.observations + 1,
            "since_refit": self.since_refit + 1,
            "reward_range": updated,
            "recent": recent,
            "feedback": self._hear_outcomes(recent, count=1) if outcomes is not None else self.feedback,
        }
        if recent.verdicts[-1] == Verdict.BELIEVED:
            taken = replace(self, **counted, **self._learn(slate_id, context, ranking, reward))
        else:
            taken = replace(self.discard(slate_id), **counted)
        return taken.refit(at) if taken._refit_is_due() else taken

    def _hear_outcomes(self, recent: RecentObservations, *, count: int) -> ItemFeedback:
        """Return the feedback on items that judges by the outcomes of the newest observations, too."""
        return self.feedback_so_far.hear(recent, count=count)

    @property
    def feedback_so_far(self) -> ItemFeedback:
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
        return {"posterior": self.scale(posterior), "pending_ids": pending_ids, "calibration": calibration}

    def scale(self, posterior: Posterior) -> Posterior:
        """Return a posterior with the offset and amplitude that fit its rows best."""
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
        updated = self.reward_range.after_all(recent.rewards, first=len(self.recent))
        recent = recent.judge_new(self.judge_of(updated), state.norm_range, count=count)
        state = replace(
            state,
            recent=recent,
            reward_range=updated,
            observations=self.observations + count,
            imported=self.imported + count,
            feedback=self.feedback if past.outcomes is None else self._hear_outcomes(recent, count=count),
        )
        past = past.select(recent.believed[-count:])
        believed, space = len(past.rewards), min(self.limits.rows, FEWEST_ROWS) - self.posterior.n_rows
        for part in (slice(0, space), slice(space, believed)) if 0 < space < believed else (slice(0, believed),):
            rows = rows.extend(state._rows_of(past.select(part)))
            state = state.rebuild(state.posterior.kernel, rows, state.posterior.pending, max(at, self.aged_at))
            rows = state.observed_rows
        return state

    def _rows_of(self, past: PastRows) -> ObservedRows:
        """Return observations as rows, those of some age counting for less."""
        contexts = self.with_shared(past.contexts)
        rows = ObservedRows.of(Observations(contexts, past.rankings, past.rewards))
        rows = rows.with_prior_mean(self.posterior.prior_mean)
        if past.outcomes is not None:
            rows = replace(rows, feedback=RowOutcomes.of(past.outcomes))
        if math.isinf(self.half_life):
            return rows
        return rows.fade(0.5 ** np.minimum(past.ages / self.half_life, _MOST_HALVINGS))

    def with_shared(self, contexts: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return contexts, shape (N, C), with what all share as one number more, if they share anything."""
        if not self.shared:
            return contexts
        return np.column_stack([contexts, np.full(len(contexts), math.sqrt(self.shared))])

    @property
    def latest_rows(self) -> int:
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
        return state.rebuild(kernel, rows, pending, max(at, self.aged_at), vacated=vacated)

    def _judge_again(self, rows: ObservedRows, at: float) -> tuple[State, ObservedRows]:
        """Return the state and the rows once the latest observations are judged by all that came since.

        Those that turn out to be in range become rows. Where some that were learned turn out to be wild, or the scale
        has changed, all is learned anew from those that are believed: no sum of rows gives one back.
        """
        before = self.recent
        verdicts = before.judge(self.judge_of(self.reward_range), self.norm_range)
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
        weight, doubt = notice_change(self.posterior, rows, n_latest=self.latest_rows, doubt=self.doubt)
        if weight == 1.0:
            return replace(self, doubt=doubt), rows
        faded = rows.fade_earlier(weight, n_latest=self.latest_rows)
        return replace(self._doubt_outcomes(weight), doubt=doubt, changes=self.changes + 1), faded

    def _doubt_outcomes(self, weight: float) -> State:
        """Return the state whose outcomes before the last refit count for less."""
        if self.feedback is None:
            return self
        n_earlier = len(self.recent) - self.since_refit
        earlier = self.recent.select(np.arange(n_earlier))
        feedback = self.absorb_outcomes(self.feedback, earlier, self.posterior.kernel, self.aged_at)
        added_up = np.append(earlier.believed, np.zeros(self.since_refit, dtype=np.bool_))
        return replace(self, feedback=feedback.fade(weight), recent=self.recent.forget_outcomes(added_up))

    def rebuild(
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
            range_at_refit=self.reward_range,
            feedback=None if feedback is None else feedback.settle(kernel),
        )

    def _settle_outcomes(self, kernel: KendallKernel, at: float) -> ItemFeedback | None:
        """Return the feedback on items at a refit, with the sums of what the latest observations do not have then."""
        feedback = self.feedback
        if feedback is None:
            return None
        passed = halvings(at - self.aged_at, self.half_life) if self.aged_at else 0.0
        return self.absorb_outcomes(feedback.fade(0.5**passed), self.recent.leaving, kernel, at)

    def absorb_outcomes(
        self, feedback: ItemFeedback, leaving: RecentObservations, kernel: KendallKernel, at: float
    ) -> ItemFeedback:
        """Return feedback whose sums have the outcomes of observations that leave the latest ones, as of a time."""
        if leaving.outcomes is None or not len(leaving):
            return feedback
        rows = feedback.rows_of(leaving, at=at, half_life=self.half_life, centre=self.recent.outcome_centre)
        return feedback.absorb(rows, most_items=self.most_items_of(kernel))

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
            most_items=self.most_items_of(kernel),
        )
        return replace(self.posterior, prior_mean=prior_mean), rows

    def most_items_of(self, kernel: KendallKernel) -> int:
        """Return of how many items outcomes are added up at most, with slates as long as a kernel's."""
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

    def with_leaving(self, items: NDArray[np.int32]) -> State:
        """Return the state that knows which items are never shown again; no row changes."""
        return replace(self, leaving=items)

    def with_half_life(self, half_life: float) -> State:
        """Return the state whose rewards count half at another age; what was forgotten stays so."""
        return replace(self, half_life=half_life)

    def with_trust(self, *, trusts_rewards: bool) -> State:
        """Return the state whose rewards are judged otherwise from now on, and at the next refit the latest, too."""
        return replace(self, trusts_rewards=trusts_rewards)

    @property
    def observed_rows(self) -> ObservedRows:
        """The posterior's rows, with what became of their items."""
        rows, outcomes, n_latest = self.posterior.observed_rows, self.recent.outcomes, self.latest_rows
        if outcomes is None or not n_latest:
            return rows
        known = (rows.feedback or RowOutcomes.none(*rows.rankings.shape)).outcomes.copy()
        known[-n_latest:] = outcomes[self.recent.believed][-n_latest:]
        own = np.zeros_like(known) if rows.feedback is None else rows.feedback.own
        return replace(rows, feedback=RowOutcomes(known, own))

    def _age_rows(self, at: float) -> ObservedRows:
        """Return the rows as they count now: those of the last refit aged by all the time since, later ones by half."""
        rows = self.observed_rows
        passed = halvings(at - self.aged_at, self.half_life)
        if not passed or not self.aged_at:
            return rows
        return rows.fade_earlier(0.5**passed, n_latest=self.latest_rows, of_latest=0.5 ** (0.5 * passed))

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
        return max(_FEWEST_TO_CHOOSE_BY, (self.posterior.n_rows - self.latest_rows) // 4) - self.since_refit

    def _refit_is_due(self) -> bool:
        """Return whether there is enough that is new, or enough of what was learned is not believed any more."""
        if self._rewards_before_growth <= 0:
            return True
        if self.remembered > _REWARDS_BETWEEN_LOOKS and self.since_refit % _REWARDS_BETWEEN_LOOKS:
            return False
        verdicts = self.recent.judge(self.judge_of(self.reward_range), self.norm_range)
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


def halvings(age: float, half_life: float) -> float:
    """Return how many half-lives an age is: none if it is negative, and at most those after which nothing is left."""
    return min(max(age, 0.0) / half_life, _MOST_HALVINGS)


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
