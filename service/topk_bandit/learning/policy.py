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
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from topk_bandit.domain.bandits import Kernel
from topk_bandit.learning.hyperparameters import best_noise
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
    outgrows,
    project_out,
    rows_needed,
)
from topk_bandit.learning.posterior import Posterior
from topk_bandit.learning.rankings import NO_ITEMS
from topk_bandit.learning.scales import scale_best, slope_prior
from topk_bandit.learning.usual_contexts import NO_CONTEXTS
from topk_bandit.learning.usual_rewards import NO_REWARDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from topk_bandit.learning.kendall import KendallKernel, Shape
    from topk_bandit.learning.limits import Limits
    from topk_bandit.learning.posterior import Moments, PendingSlates
    from topk_bandit.learning.prior_mean import PriorMean
    from topk_bandit.learning.rankings import Rankings
    from topk_bandit.learning.usual_contexts import UsualContexts
    from topk_bandit.learning.usual_rewards import UsualRewards

__all__ = [
    "Checkpoint",
    "Learned",
    "PastRows",
    "State",
    "kernel_of",
]


@dataclass(frozen=True, slots=True, eq=False)
class Checkpoint:
    """What a state that was just refit is a function of: its rows, its pending slates, its counts and choices.

    `shape` is the kernel's, None for a kernel that stays as it is; the rest is as of `State`.
    """

    observed_rows: ObservedRows
    pending: PendingSlates
    pending_ids: tuple[str, ...]
    noise_variance: float
    shape: Shape | None
    shared: float
    observations: int
    forgotten: int
    imported: int
    compared: int
    unrewarded: int
    to_count: float
    aged_at: float
    usual: UsualRewards
    usual_contexts: UsualContexts | None
    noise_at_edge: bool
    doubt: float
    changes: int


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
    """

    contexts: NDArray[np.float64]
    rankings: Rankings
    rewards: NDArray[np.float64]
    ages: NDArray[np.float64]

    def select(self, rows: slice) -> PastRows:
        """Return some of the rows."""
        return PastRows(self.contexts[rows], self.rankings[rows], self.rewards[rows], self.ages[rows])


class Learned(NamedTuple):
    """A reward as it was posted, of a slate; it is a row of its own until the next refit."""

    slate_id: str
    reward: float


@dataclass(frozen=True, slots=True, eq=False)
class State:
    """What GP-TopK knows.

    Attributes
    ----------
    pending_ids
        Ids of the posterior's pending rows, in their order.
    observations
        Rewards learned since the beginning.
    forgotten
        How many of them were learned before the last `forget`.
    imported
        How many of them were of slates that were shown elsewhere.
    since_refit
        Rewards learned since the last refit.
    compared
        Rewards remembered when kernels were compared the last time.
    shared
        lambda: what all contexts have in common. The kernel of two contexts is c.c' + lambda, their dot product with
        the root of lambda as one number more; 0 for contexts that are taken as they are.
    unrewarded
        Slates that ended without a reward.
    to_count
        What shown slates add up to that were not counted as pending yet, less than one: see `shown`.
    half_life
        Age at which a reward counts half, in the unit of the times that `rewarded` is given: milliseconds in the
        service. Infinite for rewards that are never forgotten.
    aged_at
        When the rows were aged the last time.
    usual
        Which rewards are usual, so that outliers are shortened.
    usual_contexts
        What contexts are usual; None for encoded ones, which have usual lengths.
    noise_at_edge
        Whether the noise that was chosen last is the least or the largest that is tried.
    doubt
        Of what was learned being true still, as of `notice_change`.
    changes
        How many changes of the shop were noticed.
    recent
        The rewards learned since the last refit, oldest first: those of the last rows.
    usual_before
        What rewards were usual before these.
    leaving
        Items that are never shown again, ascending: rows that show them are the first to be projected onto others.
    """

    posterior: Posterior
    limits: Limits
    pending_ids: tuple[str, ...] = ()
    observations: int = 0
    forgotten: int = 0
    imported: int = 0
    since_refit: int = 0
    compared: int = 0
    shared: float = 0.0
    unrewarded: int = 0
    to_count: float = 0.0
    half_life: float = math.inf
    aged_at: float = 0.0
    usual: UsualRewards = NO_REWARDS
    usual_contexts: UsualContexts | None = NO_CONTEXTS
    noise_at_edge: bool = False
    doubt: float = 0.0
    changes: int = 0
    recent: tuple[Learned, ...] = ()
    usual_before: UsualRewards = NO_REWARDS
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
    ) -> State:
        """Return the state of a bandit that knows nothing, but for what is believed of its items.

        With an adaptive kernel contexts of several numbers get one more, so that what they have in common is learned
        whether they tell anything or not. Contexts that are `encoded` features get it with any kernel.
        """
        shared = FIRST_SHARED if encoded or (kernel.shape is not None and context_dim > 1) else 0.0
        in_all = context_dim + bool(shared)
        prior_mean = None if prior_mean is None else prior_mean.with_context_dim(in_all)
        posterior = Posterior.prior(kernel, context_dim=in_all, noise_variance=0.1, prior_mean=prior_mean)
        usual_contexts = None if encoded else NO_CONTEXTS
        return cls(scale_best(posterior), limits, shared=shared, half_life=half_life, usual_contexts=usual_contexts)

    @classmethod
    def restore(
        cls,
        kernel: KendallKernel,
        checkpoint: Checkpoint,
        *,
        limits: Limits,
        prior_mean: PriorMean | None = None,
        half_life: float = math.inf,
        leaving: NDArray[np.int32] = NO_ITEMS,
    ) -> State:
        """Return the state that `checkpoint` was taken from, to the bit if it had just been refit.

        Parameters
        ----------
        kernel
            Of the state, or another one of its family; with the features of the items, if they have any.
        checkpoint, limits, half_life, leaving
            Of the state.
        prior_mean
            Of the state, made for its kernel.
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
            scale_best(posterior),
            limits,
            checkpoint.pending_ids,
            observations=checkpoint.observations,
            forgotten=checkpoint.forgotten,
            imported=checkpoint.imported,
            compared=checkpoint.compared,
            shared=checkpoint.shared,
            unrewarded=checkpoint.unrewarded,
            to_count=checkpoint.to_count,
            half_life=half_life,
            aged_at=checkpoint.aged_at,
            usual=checkpoint.usual,
            usual_contexts=checkpoint.usual_contexts,
            noise_at_edge=checkpoint.noise_at_edge,
            doubt=checkpoint.doubt,
            changes=checkpoint.changes,
            usual_before=checkpoint.usual,
            leaving=leaving,
        )

    @property
    def checkpoint(self) -> Checkpoint:
        """What has to be kept of this state; exact only for one that was just refit."""
        return Checkpoint(
            observed_rows=self.posterior.observed_rows,
            pending=self.posterior.pending,
            pending_ids=self.pending_ids,
            noise_variance=self.posterior.noise_variance,
            shape=self.posterior.kernel.shape,
            observations=self.observations,
            forgotten=self.forgotten,
            imported=self.imported,
            compared=self.compared,
            shared=self.shared,
            unrewarded=self.unrewarded,
            to_count=self.to_count,
            aged_at=self.aged_at,
            usual=self.usual,
            usual_contexts=self.usual_contexts,
            noise_at_edge=self.noise_at_edge,
            doubt=self.doubt,
            changes=self.changes,
        )

    @property
    def remembered(self) -> int:
        """Rewards learned since the beginning, or since the last `forget`."""
        return self.observations - self.forgotten

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
        """Return a context as the posterior takes it: no outlier, and with what all contexts share."""
        if self.usual_contexts is not None and self.usual_contexts.is_outlier(context):
            # With the number that all contexts share, nothing is left but somebody of whom nothing is known.
            context = np.zeros_like(context) if self.shared else self.usual_contexts.shorten(context)
        return np.append(context, math.sqrt(self.shared)) if self.shared else context

    def predict(
        self,
        context: NDArray[np.float64],
        rankings: Rankings,
        *,
        with_constant: bool = True,
        with_pending: bool = True,
    ) -> Moments:
        """Return `Posterior.predict` of a context that is not encoded."""
        return self.posterior.predict(
            self.encode(context), rankings, with_constant=with_constant, with_pending=with_pending
        )

    def shown(self, slate_id: str, context: NDArray[np.float64], ranking: NDArray[np.int32]) -> State:
        """Count a slate that was just shown as pending; where most never get a reward, only a part of them.

        A pending slate stands for the reward that is expected of it, so the part that counts is the share of slates
        that gets rewards: each slate adds that share, and one counts whenever they add up to a whole one.
        """
        state, context = self._admit(context), self.encode(context)
        to_count = state.to_count + state.rewarded_share
        if to_count < 1.0 - _ROUNDING:
            return replace(state, to_count=to_count)
        if len(state.pending_ids) >= state.limits.pending_rows:
            state = state._discard(state.pending_ids[0])
        posterior = state.posterior.show(context, ranking)
        if not posterior.n_rows:
            posterior = scale_best(posterior)
        pending_ids = (*state.pending_ids, slate_id)
        return replace(state, posterior=posterior, pending_ids=pending_ids, to_count=max(to_count - 1.0, 0.0))

    def _admit(self, context: NDArray[np.float64]) -> State:
        """Return the state that knows of one more context; once contexts can be judged, its rows have no outliers."""
        before = self.usual_contexts
        if before is None:
            return self
        usual = before.admit(context)
        state = replace(self, usual_contexts=usual)
        if not usual.judges_those_before or not any(usual.is_too_long(norm) for norm in before.first):
            return state
        shares = bool(self.shared)
        return state.with_contexts(lambda contexts, sizes: usual.shorten_rows(contexts, sizes, shares=shares))

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
    ) -> State:
        """Learn a slate's reward at a time, whether it still counts as pending or not.

        An outlier is learned as the farthest reward that is usual.
        """
        posted = Learned(slate_id, reward)
        reward, usual = self.usual.admit(reward)
        if slate_id in self.pending_ids:
            chosen = self.pending_ids.index(slate_id)
            posterior = self.posterior.reward(chosen, reward)
            pending_ids = _without(self.pending_ids, chosen)
        else:
            posterior = self.posterior.observe(self.encode(context), ranking, reward)
            pending_ids = self.pending_ids
        learned = replace(
            self,
            posterior=scale_best(posterior),
            pending_ids=pending_ids,
            observations=self.observations + 1,
            since_refit=self.since_refit + 1,
            usual=usual,
            recent=(*self.recent, posted),
        )
        return learned.refit(at) if learned._refit_is_due() else learned

    def learn_history(self, past: PastRows, *, at: float = 0.0) -> State:
        """Learn rewards of slates that were shown elsewhere, all at once: the state is refit.

        It is refit twice where the rows first are more than are always kept: what is projected then is projected by a
        kernel and a noise that rewards have told of. What contexts and rewards are usual is judged with all of `past`.

        Parameters
        ----------
        at
            The time now.
        """
        state = self
        for context in past.contexts:
            state = state._admit(context)
        learned, usual = self.usual.admit_all(past.rewards.tolist())
        state, past = replace(state, usual=usual), past._replace(rewards=np.array(learned))
        count, room = len(learned), min(self.limits.rows, FEWEST_ROWS) - self.posterior.n_rows
        for part in (slice(0, room), slice(room, count)) if 0 < room < count else (slice(0, count),):
            state = state._learn_past(past.select(part), at)
        return state

    def _learn_past(self, past: PastRows, at: float) -> State:
        contexts = np.array([self.encode(context) for context in past.contexts])
        later = ObservedRows.of(Observations(contexts, past.rankings, past.rewards))
        later = later.with_prior_mean(self.posterior.prior_mean)
        if not math.isinf(self.half_life):
            later = later.fade(0.5 ** np.minimum(past.ages / self.half_life, _MOST_HALVINGS))
        count, rows = len(past.rewards), self._age_rows(at).extend(later)
        state = replace(self, observations=self.observations + count, imported=self.imported + count)
        return state._rebuild(self.posterior.kernel, rows, self.posterior.pending, max(at, self.aged_at))

    def is_recent(self, slate_id: str) -> bool:
        """Tell whether a slate's reward was learned since the last refit, so that it can still be `corrected`."""
        return any(learned.slate_id == slate_id for learned in self.recent)

    @property
    def recent_sum(self) -> float:
        """Sum of the rewards learned since the last refit, as they were learned."""
        rewards = self.posterior.observations.rewards
        return float(rewards[len(rewards) - len(self.recent) :].sum())

    def corrected(self, slate_id: str, reward: float | None) -> State:
        """Return the state in which the reward of a slate was another, or none.

        It is that of the same happenings with the other reward, or with the slate `closed` where it was corrected, to
        rounding: all rewards since the last refit are admitted anew. Of slates shown since the reward, as many count as
        pending as did.

        Parameters
        ----------
        slate_id
            Of a reward that `is_recent`.
        reward
            None for a slate that ended without one.
        """
        chosen = [learned.slate_id for learned in self.recent].index(slate_id)
        kept = () if reward is None else (Learned(slate_id, reward),)
        recent, rewards, usual = (*self.recent[:chosen], *kept, *self.recent[chosen + 1 :]), [], self.usual_before
        for learned in recent:
            admitted, usual = usual.admit(learned.reward)
            rewards.append(admitted)
        posterior = self.posterior
        if reward is None:
            posterior = posterior.without_row(posterior.n_rows - len(self.recent) + chosen)
        return replace(
            self,
            posterior=scale_best(posterior.with_rewards(np.array(rewards))),
            observations=self.observations - (reward is None),
            since_refit=self.since_refit - (reward is None),
            unrewarded=self.unrewarded + (reward is None),
            usual=usual,
            recent=recent,
        )

    def refit(self, at: float = 0.0, *, vacated: NDArray[np.int32] = NO_ITEMS) -> State:
        """Age, notice changes, fold, project, choose kernel, noise and scale anew, and rebuild the posterior.

        What comes out is a function of its `checkpoint`, the limits and half-life, and what is believed and told of
        the items.

        Parameters
        ----------
        at
            The time now, for rows to be aged by.
        vacated
            Items that no row shows afterwards.
        """
        state, rows = self._notice_change(self._age_rows(at))
        kernel, pending = self.posterior.kernel, self.posterior.pending
        return state._rebuild(kernel, rows, pending, max(at, self.aged_at), vacated=vacated)

    def _notice_change(self, rows: ObservedRows) -> tuple[State, ObservedRows]:
        """Return the state with what its latest rewards say of all before, and the rows as they count then."""
        if not self.posterior.kernel.shape:
            return self, rows
        weight, doubt = notice_change(self.posterior, rows, n_latest=self.since_refit, doubt=self.doubt)
        if weight == 1.0:
            return replace(self, doubt=doubt), rows
        faded = rows.fade_earlier(weight, n_latest=self.since_refit)
        return replace(self, doubt=doubt, changes=self.changes + 1), faded

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
        posterior, shared = self.posterior, self.shared
        noise_variance, prior_mean, compared = posterior.noise_variance, posterior.prior_mean, self.compared
        kernel, rows = self._condense(kernel, rows)
        rows = project_out(kernel, rows, vacated, noise_variance=noise_variance)
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
        at_edge = self.noise_at_edge
        if enough:
            told = rows.told_parts(kernel, noise_variance)
            noise_variance, _, at_edge = noise or best_noise(kernel, rows, prior=prior, told=told)
        posterior = posterior.refit(rows, noise_variance=noise_variance, kernel=kernel, pending=pending)
        return replace(
            self,
            posterior=scale_best(posterior),
            since_refit=0,
            compared=compared,
            shared=shared,
            aged_at=aged_at,
            noise_at_edge=at_edge,
            recent=(),
            usual_before=self.usual,
        )

    def _condense(self, kernel: KendallKernel, rows: ObservedRows) -> tuple[KendallKernel, ObservedRows]:
        """Return as few rows as there is room for; with an uncentred kernel, if items are told of beside them."""
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
        prior_mean = self.posterior.prior_mean
        anew = State.initial(
            kernel,
            context_dim=self.posterior.context_dim - bool(self.shared),
            limits=self.limits,
            prior_mean=None if prior_mean is None else prior_mean.with_kernel(kernel),
            half_life=self.half_life,
            encoded=self.usual_contexts is None,
        )
        return replace(
            anew,
            observations=self.observations,
            forgotten=self.observations,
            imported=self.imported,
            unrewarded=self.unrewarded,
            changes=self.changes,
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
        rows = posterior.observed_rows
        if prior_mean is not None:
            rows = rows.with_prior_mean(prior_mean.with_kernel(kernel))
        posterior = posterior.refit(rows, noise_variance=posterior.noise_variance, kernel=kernel)
        return replace(self, posterior=posterior).refit(at)

    def with_leaving(self, items: NDArray[np.int32]) -> State:
        """Return the state that knows which items are never shown again; no row changes."""
        return replace(self, leaving=items)

    def vacate(self, items: NDArray[np.int32], at: float = 0.0) -> State:
        """Return the state, refit if any row shows one of these items, and none shows one then.

        What rewarded rows told of other items is kept as far as other rows can tell it; pending ones stop counting.

        Parameters
        ----------
        items
            Items that are never shown again, whose places others take.
        at
            As for `refit`.
        """
        posterior, state = self.posterior, self
        parts = posterior.observed_rows.parts
        told = np.zeros(0, dtype=np.int32) if parts is None else parts.items
        if not np.isin(posterior.all_rows.rankings, items).any() and not np.isin(told, items).any():
            return self
        shown = np.flatnonzero(np.isin(posterior.pending.rankings, items).any(axis=1))
        for slate_id in [self.pending_ids[row] for row in shown.tolist()]:
            state = state._discard(slate_id)
        return state.refit(at, vacated=items)

    def with_half_life(self, half_life: float) -> State:
        """Return the state whose rewards count half at another age; what was forgotten stays so."""
        return replace(self, half_life=half_life)

    def with_contexts(self, change: Callable[[NDArray[np.float64], NDArray[np.float64]], NDArray[np.float64]]) -> State:
        """Return the state, refit, whose rows have other contexts.

        Parameters
        ----------
        change
            From contexts as the posterior has them, shape (N, C + 1), what they share being the last number, to others
            in their order, perhaps with more numbers; or from (N, C), if they share nothing. It is also given how many
            times as long as a context each can be, shape (N,). Values that no usual context has may be shortened; all
            others are changed linearly.
        """
        posterior = self.posterior
        rows, pending = posterior.observed_rows, posterior.pending
        changed = change(rows.contexts, rows.sizes), change(pending.contexts, np.ones(len(pending.contexts)))
        if all(np.array_equal(new, old) for new, old in zip(changed, (rows.contexts, pending.contexts), strict=True)):
            return self
        if posterior.prior_mean is not None:
            wider = posterior.prior_mean.with_context_dim(changed[0].shape[1])
            posterior = replace(posterior, prior_mean=wider)
        state = replace(self, posterior=posterior)
        parts = rows.parts
        if parts is not None:
            every = np.eye(posterior.context_dim)
            parts = parts.with_contexts(change(every, np.full(len(every), math.inf)))
        rows, pending = replace(rows, contexts=changed[0], parts=parts), pending._replace(contexts=changed[1])
        return state._rebuild(posterior.kernel, rows, pending, self.aged_at)

    def _age_rows(self, at: float) -> ObservedRows:
        """Return the rows as they count now: those of the last refit aged by all the time since, later ones by half."""
        rows = self.posterior.observed_rows
        halvings = min(max(at - self.aged_at, 0.0) / self.half_life, _MOST_HALVINGS)
        if not halvings or not self.aged_at:
            return rows
        return rows.fade_earlier(0.5**halvings, n_latest=self.since_refit, of_latest=0.5 ** (0.5 * halvings))

    def with_prior_mean(self, prior_mean: PriorMean | None) -> State:
        """Return the state, refit, with another prior mean, or none: what was learned from rewards is kept."""
        if prior_mean is not None:
            prior_mean = prior_mean.with_context_dim(self.posterior.context_dim)
        posterior = self.posterior.with_prior_mean(prior_mean, noise_variance=self.posterior.noise_variance)
        return replace(self, posterior=posterior).refit(self.aged_at)

    def with_new_items(self, prior_mean: PriorMean) -> State:
        """Return the state with a prior mean that differs for items that were never shown: no row changes."""
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
            return self._rebuild(kernel, posterior.observed_rows, posterior.pending, self.aged_at)
        state = replace(self, compared=0)
        return state._rebuild(kernel, posterior.observed_rows, posterior.pending, self.aged_at)

    @property
    def memory_bytes(self) -> int:
        """Bytes of the arrays that are held."""
        return self.posterior.memory_bytes

    @property
    def rewards_before_refit(self) -> int:
        """With how many more rewards a refit is due: when the rows have grown by a quarter and by eight.

        So all refits together cost a few times the last one.
        """
        return max(_FEWEST_TO_CHOOSE_BY, (self.posterior.n_rows - self.since_refit) // 4) - self.since_refit

    def _refit_is_due(self) -> bool:
        return self.rewards_before_refit <= 0


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
