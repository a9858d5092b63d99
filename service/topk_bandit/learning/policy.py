"""GP-TopK: state in, decision and propensity out (Algorithm 1, with UCB and local search).

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

from topk_bandit.domain.bandits import ConstantBeta, Exploration, Kernel
from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.learning.acquisition import paper_beta
from topk_bandit.learning.hyperparameters import SlopePrior, best_noise, scaling
from topk_bandit.learning.item_draws import ItemDraws
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
from topk_bandit.learning.observed_rows import Observations, ObservedRows, outgrows, project_out
from topk_bandit.learning.posterior import Posterior, capacity_for
from topk_bandit.learning.propensities import SlateDistribution
from topk_bandit.learning.rankings import NO_ITEMS, log_count, validated_items
from topk_bandit.learning.search import best_seen, local_search
from topk_bandit.learning.usual_contexts import NO_CONTEXTS
from topk_bandit.learning.usual_rewards import NO_REWARDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from topk_bandit.learning.context_posterior import ContextPosterior
    from topk_bandit.learning.item_draws import RegretFigures
    from topk_bandit.learning.kendall import KendallKernel, Shape
    from topk_bandit.learning.posterior import Moments, PendingSlates
    from topk_bandit.learning.prior_mean import PriorMean
    from topk_bandit.learning.rankings import Rankings
    from topk_bandit.learning.usual_contexts import UsualContexts
    from topk_bandit.learning.usual_rewards import UsualRewards

__all__ = [
    "Checkpoint",
    "Decision",
    "Learned",
    "Limits",
    "PastRows",
    "Search",
    "StandIns",
    "State",
    "decide",
    "kernel_of",
    "most_bytes_of",
    "search_best",
]


@dataclass(frozen=True, slots=True)
class Limits:
    """What a state may grow to.

    Attributes
    ----------
    rows
        Rewarded rows kept at a refit; before the next one come a quarter as many, and eight at least.
    pending_rows
        Pending slates that count for the variance; the oldest stop counting first, and are still learned from when
        their reward comes.
    part_bytes
        Beside all that: what is kept of single items, and again as much for what predictions take of it.
    """

    rows: int = 512
    pending_rows: int = 128
    part_bytes: int = 3 * 2**19

    def __post_init__(self) -> None:
        for name in ("rows", "pending_rows", "part_bytes"):
            if getattr(self, name) < 1:
                raise InvalidArgumentError(name, f"expected at least 1, got {getattr(self, name)}")

    @classmethod
    def within(
        cls, memory_bytes: int, *, context_dim: int, slate_size: int, n_features: int = 0, pending_rows: int = 128
    ) -> Limits:
        """Return the limits with the most rows whose state fits into so many bytes.

        Where items are many, what is known of single ones takes up to half as much beside them (`item_parts`).

        Raises
        ------
        InvalidArgumentError
            Not even one row fits beside the pending ones.
        """
        fits, too_many = 0, math.isqrt(memory_bytes // 8) + 1
        while too_many - fits > 1:
            rows = (fits + too_many) // 2
            most = most_bytes_of(
                cls(rows, pending_rows), context_dim=context_dim, slate_size=slate_size, n_features=n_features
            )
            if most <= memory_bytes:
                fits = rows
            else:
                too_many = rows
        if not fits:
            raise InvalidArgumentError("memory_bytes", f"{memory_bytes} bytes leave no room for rows")
        return cls(fits, pending_rows, memory_bytes // 4)

    def most_items(self, context_dim: int) -> int:
        """Return of how many items parts may be kept, in contexts of so many numbers with what all share."""
        return self.part_bytes // (8 * context_dim * (context_dim + 1))


def most_bytes_of(limits: Limits, *, context_dim: int, slate_size: int, n_features: int = 0) -> int:
    """Return the most bytes that a state's arrays take: whitener, pending rows, shape of the noise, rows and sums.

    Items with features, of `n_features` numbers, have these in the rows. The features themselves are not the state's.
    """
    rows, pending = capacity_for(limits.rows), limits.pending_rows
    # A shown slate is pending for a moment before the oldest stops counting.
    numbers = rows * rows + (rows + pending) * pending + pending * pending + limits.rows * limits.rows
    # A context may have one number more, which is shared by all.
    numbers += (rows + pending) * (context_dim + 1 + slate_size + n_features) + rows * 13
    return 8 * numbers


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
        return cls(_rescale(posterior), limits, shared=shared, half_life=half_life, usual_contexts=usual_contexts)

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
            _rescale(posterior),
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
            posterior = _rescale(posterior)
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
            posterior=_rescale(posterior),
            pending_ids=pending_ids,
            observations=self.observations + 1,
            since_refit=self.since_refit + 1,
            usual=usual,
            recent=(*self.recent, posted),
        )
        return learned.refit(at) if learned._refit_is_due() else learned

    def learn_history(self, past: PastRows, *, at: float = 0.0) -> State:
        """Learn rewards of slates that were shown elsewhere, all at once: the state is refit.

        It is refit twice where the rows first fill the room that is left: what is projected then is projected by a
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
        count, room = len(learned), self.limits.rows - self.posterior.n_rows
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
            posterior=_rescale(posterior.with_rewards(np.array(rewards))),
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
        prior, noise = _slope_prior(prior_mean, rows), None
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
            posterior=_rescale(posterior),
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
            most_rows=self.limits.rows,
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


def _rescale(posterior: Posterior) -> Posterior:
    """Centre the rewards on their best b + s h and scale the kernel by the best amplitude.

    Rewards that are all equal leave the amplitude at one, so that a bandit that has only seen zeros goes on exploring.
    """
    prior, offset = _slope_prior(posterior.prior_mean, posterior), posterior.best_offset
    square = posterior.whitened_square(offset)
    varied = posterior.rewards_vary and square > 0.0
    if prior is None:
        return posterior.rescale(offset=offset, amplitude=square / posterior.n_observations if varied else 1.0)
    best = scaling(posterior.centred_products, prior, amplitude=None if varied else 1.0)
    amplitude, slope = float(best.amplitude), float(best.slope)
    if posterior.has_item_parts:
        slope = float(scaling(posterior.slope_products, prior, amplitude=amplitude).slope)
    return posterior.rescale(offset=posterior.offset_at(slope), slope=slope, amplitude=amplitude)


def _slope_prior(prior_mean: PriorMean | None, rows: ObservedRows | Posterior) -> SlopePrior | None:
    """Return what is believed of the slope before the rewards of some rows; None without a prior mean."""
    if prior_mean is None:
        return None
    return SlopePrior.of_contexts(1.0 if prior_mean.grows_with_the_context else rows.context_square)


def _spread_of_slope(posterior: Posterior) -> float:
    """Return the posterior standard deviation of the slope, in units of the rewards; 0 without a prior mean."""
    prior = _slope_prior(posterior.prior_mean, posterior)
    if prior is None:
        return 0.0
    return float(scaling(posterior.slope_products, prior, amplitude=posterior.amplitude).spread)


def _without(ids: tuple[str, ...], chosen: int) -> tuple[str, ...]:
    return ids[:chosen] + ids[chosen + 1 :]


@dataclass(frozen=True, slots=True, eq=False)
class Decision:
    """A slate and what is known of it.

    Attributes
    ----------
    ranking
        Item indices, best first, shape (k,).
    best
        The best slate by the acquisition function, shape (k,): `ranking` unless that was drawn.
    propensity
        Exact probability of this ranking, given the state, the context and the eligible items.
    position_propensities
        Exact probabilities of showing each of its items at its position, shape (k,).
    mean, standard_deviation
        Of its expected reward, by what rewards have told. Until two of them differ there is no unit, and the mean is
        what all of them were: 0 before the first.
    regret_bound, estimated_regret
        As in `topk_bandit.domain.bandits.Recommendation`, by what rewards have told.
    explored
        Whether one of the exploration's shares drew it.
    evaluations
        Rankings that the search evaluated.
    """

    ranking: NDArray[np.int32]
    best: NDArray[np.int32]
    propensity: float
    position_propensities: NDArray[np.float64]
    mean: float
    standard_deviation: float
    regret_bound: float
    estimated_regret: float
    explored: bool
    evaluations: int


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


def decide(
    state: State,
    exploration: Exploration,
    *,
    context: NDArray[np.float64],
    eligible: NDArray[np.int32],
    rng: np.random.Generator,
) -> Decision:
    """Choose a slate for a context.

    The best slate by UCB is a function of the state, the context and the eligible items alone; `rng` only decides
    whether the exploration draws a slate instead, and which. So the propensities are exact.

    Parameters
    ----------
    context
        Shape (C,).
    eligible
        Distinct item indices in ascending order, at least k of them.
    rng
        Source of the exploration's randomness.
    """
    context, slate_size = state.encode(context), state.posterior.kernel.slate_size
    if len(eligible) < slate_size:
        raise InvalidArgumentError("eligible", f"a slate needs {slate_size} items, got {len(eligible)}")
    validated_items(eligible, n_items=state.posterior.kernel.n_items)
    best = search_best(state, exploration, context, eligible)
    slates = SlateDistribution.of(_shares_now(exploration, state), best.ranking, eligible)
    shown, explored = slates.draw(rng)
    moments = state.posterior.predict(context, shown[None], with_pending=False)
    regret = _regret_of(state, context, best, shown)
    return Decision(
        ranking=shown,
        best=best.ranking,
        propensity=slates.propensity(shown),
        position_propensities=slates.position_propensities(shown),
        mean=float(moments.mean[0]) if state.posterior.rewards_vary else state.posterior.best_offset,
        standard_deviation=math.sqrt(float(moments.variance[0])),
        regret_bound=regret.bound,
        estimated_regret=regret.estimate,
        explored=explored,
        evaluations=best.evaluations,
    )


def _shares_now(exploration: Exploration, state: State) -> Exploration:
    """Return the exploration with the shares that it has by now; where rewards age, they stay."""
    return exploration.after(state.remembered) if math.isinf(state.half_life) else exploration


DRAW_WIDTH = 0.2
"""Width of the draw of the items' parts, in units of that of the upper confidence bound."""

SLOPE_DRAW_WIDTH = 1.0
"""Width of the draw of a prior mean's slope, in units of its posterior standard deviation."""


class Search(NamedTuple):
    """Where the search for the best slate by the acquisition function ended, and what it was found by.

    Attributes
    ----------
    ranking, places
        The best slate as item indices, and as positions in `items`, both (k,).
    items
        The items that were looked at, ascending, shape (E,).
    drawn
        The posterior at the context, with means as in the draw: the acquisition function is its mean + sqrt(beta) sd.
    beta
        As of the upper confidence bound.
    draws
        The posterior of the items' parts, by which the one draw was made.
    unseen
        Those of `items` that no row has shown and that stand for all such items, and how many these are.
    evaluations
        Rankings that were evaluated.
    """

    ranking: NDArray[np.int32]
    items: NDArray[np.int32]
    places: NDArray[np.int32]
    drawn: ContextPosterior
    beta: float
    draws: ItemDraws
    unseen: StandIns
    evaluations: int


class StandIns(NamedTuple):
    """Items that stand for `total`, themselves among them: all alike as far as is known. There may be none."""

    items: NDArray[np.int32]
    total: int


def search_best(
    state: State, exploration: Exploration, context: NDArray[np.float64], eligible: NDArray[np.int32]
) -> Search:
    """Search for the best slate: a function of the state, the encoded context and the eligible items.

    It has the largest mean + sqrt(beta) (sd + DRAW_WIDTH d), with d of a draw of the items' parts. The bound alone
    prefers slates of which every item is little known; a draw alone seldom tries what only a pair can make good. With a
    prior mean the slope is drawn too: the slates that it puts first hardly tell how far to follow it.
    """
    rng = _rng_of(state, eligible)
    believed = _with_slope_drawn(state, eligible)
    shown_counts = state.posterior.shown_counts()
    items = _items_to_search(believed, context, eligible, shown_counts, rng)
    at_context = state.posterior.at(context, items)
    beta = _beta(exploration, state, eligible, shown_counts)
    draws = ItemDraws(at_context)
    # Before the first reward there is nothing to explore around: what is believed is shown.
    drawn = at_context
    if state.posterior.n_rows:
        drawn = draws.shift(DRAW_WIDTH * math.sqrt(beta), rng)
        drawn = _with_means_of(drawn, believed, context, slope=state.posterior.slope)
    found = local_search(drawn, beta=beta, starts=best_seen(drawn), rng=rng)
    unseen = _unseen_among(state.posterior, items, eligible, shown_counts)
    return Search(items[found.ranking], items, found.ranking, drawn, beta, draws, unseen, found.evaluations)


def _unseen_among(
    posterior: Posterior, items: NDArray[np.int32], eligible: NDArray[np.int32], shown_counts: NDArray[np.intp]
) -> StandIns:
    """Return which of the searched items stand for more of the eligible ones; none where these differ."""
    alike = posterior.prior_mean is None and posterior.kernel.counted_content is None
    new = items[shown_counts[items] == 0] if alike else NO_ITEMS
    return StandIns(new, int(np.count_nonzero(shown_counts[eligible] == 0)))


def _with_slope_drawn(state: State, eligible: NDArray[np.int32]) -> Posterior:
    """Return the posterior at a slope that is drawn from what is believed of it, if it has a prior mean and rewards."""
    posterior = state.posterior
    if posterior.prior_mean is None or not posterior.n_rows:
        return posterior
    drawn = float(_rng_of(state, eligible, _OF_SLOPE).standard_normal())
    slope = posterior.slope + SLOPE_DRAW_WIDTH * _spread_of_slope(posterior) * drawn
    return posterior.rescale(offset=posterior.offset_at(slope), slope=slope, amplitude=posterior.amplitude)


def _with_means_of(
    at: ContextPosterior, believed: Posterior, context: NDArray[np.float64], *, slope: float
) -> ContextPosterior:
    """Return a posterior at a context that was contracted at a slope, with the items' means at that of `believed`."""
    if believed.slope == slope:
        return at
    weights = at.contraction.weights.copy()
    change = (believed.slope - slope) * believed.weights_of_slope(context, at.items)
    weights[: 2 * len(at.items)] += change.reshape(-1)
    return replace(at, contraction=at.contraction._replace(weights=weights))


_OF_FIGURES, _OF_SLOPE = 1, 2


def _rng_of(state: State, items: NDArray[np.int32], *stream: int) -> np.random.Generator:
    """Return a generator that is seeded by the state's counts: the same state gives the same numbers in a stream."""
    return np.random.default_rng([state.observations, state.posterior.n_pending, len(items), *stream])


def _regret_of(state: State, context: NDArray[np.float64], best: Search, shown: NDArray[np.int32]) -> RegretFigures:
    """Return figures of a slate's regret; one that was drawn may have items that were not searched.

    They are of what rewards have told: slates that wait for theirs narrow what is explored next, and tell nothing yet.
    """
    items, draws, best_places, places = best.items, best.draws, best.places, best.places
    if shown is not best.ranking:
        if not np.isin(shown, items).all():
            items = np.union1d(items, shown)
            draws = ItemDraws(state.posterior.at(context, items))
        places, best_places = (np.searchsorted(items, slate).astype(np.int32) for slate in (shown, best.ranking))
    new, count = best.unseen
    if len(new):
        # Those that are shown are no longer any of many: their parts are drawn as they are.
        new = np.setdiff1d(new, shown)
        count -= len(best.unseen.items) - len(new)
    # Not the numbers that the slate was chosen by: in that draw it would be the best one for sure.
    rng, standing = _rng_of(state, items, _OF_FIGURES), np.searchsorted(items, new)
    return draws.without_pending().regret_of(places, best_places, rng, standing, count)


MOST_ITEMS_TO_SEARCH = 256

NEW_PER_PLACE = 4
"""So many items that were never shown stand for the rest, for each place of a slate, where they differ by features."""


def _items_to_search(
    posterior: Posterior,
    context: NDArray[np.float64],
    eligible: NDArray[np.int32],
    shown_counts: NDArray[np.intp],
    rng: np.random.Generator,
) -> NDArray[np.int32]:
    """Return the eligible items that the search looks at, ascending.

    Items that no row has shown are alike but for the prior mean and what their features tell, so a few stand for the
    rest (`_stand_ins`). Of those that were shown there may still be more than a search can look at: then three quarters
    are those with the largest means, the others the least shown.
    """
    counts, k = shown_counts[eligible], posterior.kernel.slate_size
    most_new = NEW_PER_PLACE * k if _looks_at_more(posterior) else k
    known, new = np.flatnonzero(counts), np.flatnonzero(counts == 0)
    if len(new) <= most_new and len(known) <= MOST_ITEMS_TO_SEARCH:
        return eligible
    if len(new) > most_new:
        new = _stand_ins(posterior, context, eligible, new, rng)
    room = max(MOST_ITEMS_TO_SEARCH - most_new, k)
    if len(known) > room:
        by_mean = known[np.argsort(-posterior.item_means(context, eligible[known]), kind="stable")]
        rest = by_mean[room * 3 // 4 :]
        rarest = rest[np.argsort(counts[rest], kind="stable")]
        known = np.concatenate([by_mean[: room * 3 // 4], rarest[: room - room * 3 // 4]])
    return np.asarray(eligible[np.sort(np.concatenate([known, new]))], dtype=np.int32)


def _stand_ins(
    posterior: Posterior,
    context: NDArray[np.float64],
    eligible: NDArray[np.int32],
    new: NDArray[np.intp],
    rng: np.random.Generator,
) -> NDArray[np.intp]:
    """Return places of `new` that stand for the rest: any k, or those with the largest means, ties at random.

    Means differ by a prior mean or by content. Where content counts, or items are many, more stand for the rest, and a
    quarter are any: what is believed of features is uncertain, and so are the means.
    """
    k, more = posterior.kernel.slate_size, _looks_at_more(posterior)
    count = NEW_PER_PLACE * k if more else k
    if posterior.prior_mean is None and posterior.kernel.counted_content is None:
        return np.asarray(rng.choice(new, size=count, replace=False, shuffle=False))
    drawn = rng.permutation(new)
    order = np.argsort(-posterior.item_means(context, eligible[drawn]), kind="stable")
    if not more:
        return np.asarray(drawn[order[:k]])
    best, rest = order[: count * 3 // 4], np.sort(order[count * 3 // 4 :])
    return np.asarray(drawn[np.concatenate([best, rest[: count - len(best)]])])


def _looks_at_more(posterior: Posterior) -> bool:
    """Tell whether many items that were never shown are looked at: by features, or one by one where there are many.

    Of one that is drawn for the first time the draw is all that there is: among five few are ever tried.
    """
    return posterior.kernel.counted_content is not None or not posterior.kernel.centred


FEW_ITEMS = 50
"""Up to so many items the width is the paper's."""


def _beta(exploration: Exploration, state: State, eligible: NDArray[np.int32], shown_counts: NDArray[np.intp]) -> float:
    """Return beta, which the schedule makes smaller where there are many items.

    The paper's grows with the number of slates. But most slates of many items stay little known for ever, and a wide
    bound goes on through them: among m times as many items as are few beta is smaller by the root of m.
    """
    if isinstance(exploration.beta, ConstantBeta):
        return exploration.beta.value
    log_n_slates = log_count(len(eligible), state.posterior.kernel.slate_size)
    beta = paper_beta(exploration.beta.scale, log_n_arms=log_n_slates, round_number=state.remembered + 1)
    return beta * math.sqrt(min(FEW_ITEMS / _count_items(shown_counts, eligible), 1.0))


def _count_items(shown_counts: NDArray[np.intp], eligible: NDArray[np.int32]) -> int:
    """Return how many items there are: those that some row shows, and the eligible ones."""
    known = shown_counts > 0
    known[eligible] = True
    return int(np.count_nonzero(known))
