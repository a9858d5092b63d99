"""GP-TopK: state in, decision and propensity out (Algorithm 1, with UCB and local search).

A state is folded from what happens to a bandit's slates: `shown`, `rewarded`, `closed`. The fold is deterministic: the
same happenings in the same order give the same state to the bit. From time to time, by a rule that looks at nothing but
counts, it is `refit`: noise and scale are chosen anew, the oldest rows beyond the budget are forgotten, and the
posterior is rebuilt from its rows. A state that was just refit is a function of its rows, its pending slates and its
counts, which is what a snapshot keeps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from topk_bandit.errors import InvalidArgumentError
from topk_bandit.learning.acquisition import UpperConfidenceBound, paper_beta
from topk_bandit.learning.hyperparameters import choose_noise_variance
from topk_bandit.learning.kendall import convolutional_kendall, weighted_convolutional_kendall, weighted_kendall
from topk_bandit.learning.posterior import Posterior
from topk_bandit.learning.rankings import log_count, random_rankings
from topk_bandit.learning.search import Found, local_search
from topk_bandit.types import ConstantBeta, Exploration, Kernel

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray

    from topk_bandit.learning.kendall import KendallKernel
    from topk_bandit.learning.landscape import Landscape
    from topk_bandit.learning.posterior import Observations, PendingSlates
    from topk_bandit.learning.rankings import Rankings

__all__ = ["Decision", "Limits", "Memory", "State", "decide", "kernel_of"]


@dataclass(frozen=True, slots=True)
class Limits:
    """What a state may grow to.

    Attributes
    ----------
    rows
        Rewarded rows kept; the oldest are forgotten first.
    row_bytes
        Bytes of the rows' whitened features; fewer rows are kept where features are many.
    pending_rows
        Pending slates that count for the variance; the oldest stop counting first, and are still learned from when
        their reward comes.
    """

    rows: int = 1000
    row_bytes: int = 32 * 2**20
    pending_rows: int = 128

    def __post_init__(self) -> None:
        for name in ("rows", "row_bytes", "pending_rows"):
            if getattr(self, name) < 1:
                raise InvalidArgumentError(name, f"expected at least 1, got {getattr(self, name)}")


@dataclass(frozen=True, slots=True, eq=False)
class Memory:
    """What a state that was just refit is a function of: its rows, its pending slates and its counts."""

    observed: Observations
    pending: PendingSlates
    pending_ids: tuple[str, ...]
    noise_variance: float
    observations: int


@dataclass(frozen=True, slots=True, eq=False)
class State:
    """What GP-TopK knows.

    Attributes
    ----------
    pending_ids
        Ids of the posterior's pending rows, in their order.
    observations
        Rewards learned since the beginning, forgotten ones too.
    since_refit
        Rewards learned since the last refit.
    """

    posterior: Posterior
    limits: Limits
    pending_ids: tuple[str, ...] = ()
    observations: int = 0
    since_refit: int = 0

    @classmethod
    def initial(
        cls, kernel: KendallKernel, *, context_dim: int, limits: Limits, dtype: DTypeLike = np.float32
    ) -> State:
        """Return the state of a bandit that knows nothing."""
        return cls(Posterior.prior(kernel, context_dim=context_dim, noise_variance=0.1, dtype=dtype), limits)

    @classmethod
    def restored(
        cls,
        kernel: KendallKernel,
        memory: Memory,
        *,
        limits: Limits,
        dtype: DTypeLike = np.float32,
    ) -> State:
        """Return the state that `memory` was taken from, to the bit if it had just been refit."""
        posterior = Posterior.fit(
            kernel, memory.observed, memory.pending, noise_variance=memory.noise_variance, dtype=dtype
        )
        return cls(_rescaled(posterior), limits, memory.pending_ids, observations=memory.observations)

    @property
    def memory(self) -> Memory:
        """What has to be kept of this state; exact only for one that was just refit."""
        return Memory(
            observed=self.posterior.observations,
            pending=self.posterior.pending,
            pending_ids=self.pending_ids,
            noise_variance=self.posterior.noise_variance,
            observations=self.observations,
        )

    def shown(self, slate_id: str, context: NDArray[np.float64], ranking: NDArray[np.int32]) -> State:
        """Count a slate that was just shown."""
        state = self if len(self.pending_ids) < self.limits.pending_rows else self.closed(self.pending_ids[0])
        posterior = state.posterior.show(context, ranking)
        return replace(state, posterior=posterior, pending_ids=(*state.pending_ids, slate_id))

    def closed(self, slate_id: str) -> State:
        """Stop counting a slate, as if it had never been shown."""
        if slate_id not in self.pending_ids:
            return self
        chosen = self.pending_ids.index(slate_id)
        return replace(self, posterior=self.posterior.discard(chosen), pending_ids=_without(self.pending_ids, chosen))

    def rewarded(
        self, slate_id: str, context: NDArray[np.float64], ranking: NDArray[np.int32], *, reward: float
    ) -> State:
        """Learn a slate's reward, whether it still counts as pending or not."""
        if slate_id in self.pending_ids:
            chosen = self.pending_ids.index(slate_id)
            posterior = self.posterior.reward(chosen, reward)
            pending_ids = _without(self.pending_ids, chosen)
        else:
            posterior = self.posterior.observe(context, ranking, reward)
            pending_ids = self.pending_ids
        learned = replace(
            self,
            posterior=_rescaled(posterior),
            pending_ids=pending_ids,
            observations=self.observations + 1,
            since_refit=self.since_refit + 1,
        )
        return learned.refit() if learned._refit_is_due() else learned

    def refit(self) -> State:
        """Choose noise and scale anew, forget what is over budget, and rebuild: a function of rows and counts alone."""
        newest = self._rows_to_keep()
        noise_variance = self.posterior.noise_variance
        if newest:
            noise_variance = choose_noise_variance(self.posterior.kernel, self.posterior.observations.newest(newest))
        posterior = self.posterior.refit(noise_variance=noise_variance, newest=newest)
        return replace(self, posterior=_rescaled(posterior), since_refit=0)

    def _refit_is_due(self) -> bool:
        """Tell whether the rows grew by a quarter and by eight, so that all refits cost a few times the last one."""
        return self.since_refit >= max(8, self.posterior.n_rows // 4) or self.posterior.n_rows > self.limits.rows

    def _rows_to_keep(self) -> int:
        """Return how many rows to keep: all while they fit, else four fifths of what fits."""
        n_rows, rankings = self.posterior.n_rows, self.posterior.observations.rankings
        fitting = min(self.limits.rows, self.limits.row_bytes * n_rows // max(self.posterior.bytes_of(rankings), 1))
        return n_rows if n_rows <= fitting else max(fitting * 4 // 5, 1)


def _rescaled(posterior: Posterior) -> Posterior:
    """Centre the rewards on their generalised least squares mean and scale the kernel by s^2 = z'z / N.

    Rewards that are all equal leave the amplitude at one, so that a bandit that has only seen zeros goes on exploring.
    """
    rewards = posterior.observations.rewards
    if not len(rewards):
        return posterior.rescaled(offset=0.0, amplitude=1.0)
    offset = posterior.best_offset
    square = posterior.whitened_square(offset)
    varied = float(np.ptp(rewards)) > 0.0 and square > 0.0
    return posterior.rescaled(offset=offset, amplitude=square / len(rewards) if varied else 1.0)


def _without(ids: tuple[str, ...], chosen: int) -> tuple[str, ...]:
    return ids[:chosen] + ids[chosen + 1 :]


@dataclass(frozen=True, slots=True, eq=False)
class Decision:
    """A slate and what is known of it.

    Attributes
    ----------
    ranking
        Item indices, best first, shape (k,).
    propensity
        Exact probability of this ranking, given the state, the context and the eligible items.
    mean, standard_deviation
        Of its expected reward.
    regret_bound, estimated_regret
        As in `topk_bandit.types.Recommendation`.
    explored
        Whether the exploration share drew it.
    evaluations
        Rankings that the search evaluated.
    """

    ranking: NDArray[np.int32]
    propensity: float
    mean: float
    standard_deviation: float
    regret_bound: float
    estimated_regret: float
    explored: bool
    evaluations: int


def kernel_of(kind: Kernel, n_items: int, slate_size: int) -> KendallKernel:
    """Return the kernel that a bandit's settings name."""
    match kind:
        case Kernel.WEIGHTED_CONVOLUTIONAL:
            return weighted_convolutional_kendall(n_items, slate_size)
        case Kernel.CONVOLUTIONAL:
            return convolutional_kendall(n_items, slate_size)
        case Kernel.WEIGHTED:
            return weighted_kendall(n_items, slate_size)


RANDOM_CANDIDATES = 128
FEWEST_STARTS, MOST_STARTS = 8, 24
NEIGHBOURS_TO_START_FROM = 3000
"""A search has as many starts as have so many replacements together, within bounds: large problems stay affordable."""


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
    whether the exploration share draws a slate instead, and which. So the propensity is exact.

    Parameters
    ----------
    context
        Shape (C,).
    eligible
        Distinct item indices in ascending order, at least k of them.
    rng
        Source of the exploration's randomness.
    """
    slate_size = state.posterior.kernel.slate_size
    if len(eligible) < slate_size:
        raise InvalidArgumentError("eligible", f"a slate needs {slate_size} items, got {len(eligible)}")
    landscape = state.posterior.at(context, eligible)
    log_n_slates = log_count(len(eligible), slate_size)
    acquisition = UpperConfidenceBound(_beta(exploration, log_n_slates, state.observations + 1))
    found = local_search(landscape, acquisition, _starts(state, landscape, acquisition))
    explored = bool(rng.random() < exploration.uniform_share)
    shown = found.ranking
    if explored:
        shown = random_rankings(np.arange(len(eligible)), slate_size=slate_size, count=1, rng=rng)[0]
    is_best = bool((shown == found.ranking).all())
    share = exploration.uniform_share
    propensity = share * math.exp(-log_n_slates) + (1.0 - share) * is_best
    return _weighed(landscape, acquisition, found, shown, explored=explored, propensity=propensity)


def _weighed(
    landscape: Landscape,
    acquisition: UpperConfidenceBound,
    found: Found,
    shown: NDArray[np.int32],
    *,
    explored: bool,
    propensity: float,
) -> Decision:
    """Return the decision for a slate, with what the posterior holds of it beside the best that the search met."""
    moments = landscape.moments(shown[None])
    mean, spread = float(moments.mean[0]), math.sqrt(float(moments.variance[0]))
    lower = mean - math.sqrt(acquisition.beta) * spread
    upper = max(found.value, float(acquisition(moments)[0]))
    return Decision(
        ranking=landscape.items[shown],
        propensity=propensity,
        mean=mean,
        standard_deviation=spread,
        regret_bound=upper - lower,
        estimated_regret=max(found.highest_mean - mean, 0.0),
        explored=explored,
        evaluations=found.evaluations,
    )


def _beta(exploration: Exploration, log_n_slates: float, round_number: int) -> float:
    if isinstance(exploration.beta, ConstantBeta):
        return exploration.beta.value
    return paper_beta(exploration.beta.scale, log_n_arms=log_n_slates, round_number=round_number)


def _starts(state: State, landscape: Landscape, acquisition: UpperConfidenceBound) -> Rankings:
    """Return the best of many random slates (the same ones for the same state), and the best of those seen so far."""
    rng = np.random.default_rng([state.observations, state.posterior.n_pending, len(landscape.items)])
    places = np.arange(len(landscape.items))
    affordable = NEIGHBOURS_TO_START_FROM // (landscape.slate_size * len(places))
    n_starts = min(max(affordable, FEWEST_STARTS), MOST_STARTS)
    seen = _best_seen(state, landscape, count=n_starts // 4)
    drawn = random_rankings(places, slate_size=landscape.slate_size, count=RANDOM_CANDIDATES, rng=rng)
    drawn = drawn[np.argsort(-acquisition(landscape.moments(drawn)), kind="stable")[: n_starts - len(seen)]]
    return np.concatenate([drawn, seen])


def _best_seen(state: State, landscape: Landscape, *, count: int) -> Rankings:
    """Return up to `count` of the rewarded rankings that are eligible now, by mean, as positions in the items."""
    place = np.full(state.posterior.kernel.n_items, -1, dtype=np.int32)
    place[landscape.items] = np.arange(len(landscape.items), dtype=np.int32)
    local = place[state.posterior.observations.rankings]
    local = local[(local >= 0).all(axis=1)]
    best_first = local[np.argsort(-landscape.means(local), kind="stable")]
    # A good slate has been shown often; so many of the best are likely to hold enough different ones.
    _, first = np.unique(best_first[: 16 * count], axis=0, return_index=True)
    return best_first[np.sort(first)[:count]]
