"""Slates of which it is told what became of their items, and bandits that hear of them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from topk_bandit.domain.bandits import Kernel
from topk_bandit.learning.limits import Limits
from topk_bandit.learning.policy import State, kernel_of
from topk_bandit.learning.prior_mean import PriorMean
from topk_bandit.learning.recent_observations import PastRows

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    FloatArray = NDArray[np.float64]

N_ITEMS, SLATE_SIZE, DIM = 20, 3, 2
"""Items enough that no ranking comes twice, and no row is a sum of the others while they are fewer than 200."""


class Told(NamedTuple):
    """A slate, when it was rewarded, and what is told of its items."""

    slate_id: str
    context: FloatArray
    ranking: NDArray[np.int32]
    reward: float
    outcomes: FloatArray | None
    at: float

    def ending(self, reward: float, outcomes: FloatArray | None) -> Told:
        return self._replace(reward=reward, outcomes=outcomes)


@dataclass(frozen=True)
class Shop:
    """Items that are liked, on their own and in contexts; a reward is the sum of what its items did, and noise."""

    seed: int = 0
    n_items: int = N_ITEMS
    slate_size: int = SLATE_SIZE
    dim: int = DIM
    noise: float = 0.3
    says_all: bool = True
    gaps: float = 0.0

    @cached_property
    def tastes(self) -> FloatArray:
        return np.random.default_rng([self.seed, 1]).normal(size=(self.n_items, 1 + self.dim)) * 0.7

    def expected(self, context: FloatArray, rankings: NDArray[np.int32]) -> FloatArray:
        """Return the expected rewards of rankings (A, k), up to a constant."""
        likes = self.tastes @ np.append(1.0, context)
        return np.asarray(likes[rankings] @ self.discounts, dtype=np.float64)

    @cached_property
    def discounts(self) -> FloatArray:
        return np.asarray(1.0 / np.log2(np.arange(self.slate_size) + 2.0))

    def slates(self, count: int, *, first: int = 0) -> list[Told]:
        """Return slates, shown at random, rewarded once in each unit of time."""
        return [self._slate(number) for number in range(first, first + count)]

    def _slate(self, number: int) -> Told:
        rng = np.random.default_rng([self.seed, 2, number])
        context = rng.normal(size=self.dim)
        ranking = rng.permutation(self.n_items)[: self.slate_size].astype(np.int32)
        likes = self.tastes[ranking] @ np.append(1.0, context)
        did = 1.0 + self.discounts * likes + rng.normal(size=self.slate_size)
        reward = float(did.sum() + self.noise * rng.normal())
        told = did if self.says_all else 1.0 + rng.normal(size=self.slate_size)
        told = np.where(rng.random(self.slate_size) < self.gaps, np.nan, told)
        return Told(f"s{number}", context, ranking, reward, told, float(number + 1))


def begun(
    kernel: Kernel = Kernel.WEIGHTED_CONVOLUTIONAL,
    *,
    n_items: int = N_ITEMS,
    slate_size: int = SLATE_SIZE,
    dim: int = DIM,
    rows: int = 200,
    study: bool = False,
    half_life: float = np.inf,
    encoded: bool = False,
) -> State:
    basis, limits = kernel_of(kernel, n_items, slate_size), Limits(rows=rows, pending_rows=8)
    prior_mean = study_of(basis.n_items, slate_size, dim) if study else None
    return State.initial(
        basis, context_dim=dim, limits=limits, half_life=half_life, prior_mean=prior_mean, encoded=encoded
    )


def study_of(n_items: int = N_ITEMS, slate_size: int = SLATE_SIZE, dim: int = DIM, *, seed: int = 7) -> PriorMean:
    """Return what a study says of all items but the last three."""
    rng, known = np.random.default_rng(seed), n_items - 3
    row_of = np.append(np.arange(known), np.full(3, -1)).astype(np.intp)
    kernel = kernel_of(Kernel.WEIGHTED_CONVOLUTIONAL, n_items, slate_size)
    return PriorMean.of(kernel, rng.normal(size=known), rng.normal(size=(known, dim)), row_of)


def told(state: State, slates: Iterable[Told], *, shown: bool = True) -> State:
    """Show and reward slates, one after the other."""
    for one in slates:
        state = state.shown(*one[:3]) if shown else state
        state = state.rewarded(*one[:3], reward=one.reward, at=one.at, outcomes=one.outcomes)
    return state


def without_outcomes(slates: Iterable[Told]) -> list[Told]:
    return [one._replace(outcomes=None) for one in slates]


def past_of(slates: Sequence[Told], *, at: float) -> PastRows:
    nothing = np.full(len(slates[0].ranking), np.nan)
    outcomes = [nothing if one.outcomes is None else one.outcomes for one in slates]
    return PastRows(
        np.array([one.context for one in slates]),
        np.array([one.ranking for one in slates]),
        np.array([one.reward for one in slates]),
        at - np.array([one.at for one in slates]),
        None if all(one.outcomes is None for one in slates) else np.array(outcomes),
    )


def some_rankings(
    count: int = 40, *, n_items: int = N_ITEMS, slate_size: int = SLATE_SIZE, seed: int = 5
) -> NDArray[np.int32]:
    rng = np.random.default_rng(seed)
    return np.array([rng.permutation(n_items)[:slate_size] for _ in range(count)], dtype=np.int32)


ASKED = np.array([[0.6, -0.7], [-1.2, 0.4], [0.0, 0.0]])


def assert_predict_alike(one: State, other: State, *, within: float = 1e-8, contexts: FloatArray = ASKED) -> None:
    """Hold two states to predict alike, in parts of the standard deviation before any reward."""
    assert one.posterior.kernel.shape == other.posterior.kernel.shape
    for name in ("noise_variance", "amplitude", "offset", "slope", "n_observations"):
        mine, theirs = getattr(one.posterior, name), getattr(other.posterior, name)
        np.testing.assert_allclose(mine, theirs, rtol=within, atol=within * 1e-4, err_msg=name)
    n_items, slate_size = one.posterior.kernel.n_items, one.posterior.kernel.slate_size
    rankings = some_rankings(n_items=n_items, slate_size=slate_size)
    for context in contexts:
        found, expected = (state.posterior.predict(state.encode(context), rankings) for state in (one, other))
        unit = float(np.sqrt(other.posterior.amplitude)) * max(float(np.linalg.norm(context)), 1.0)
        np.testing.assert_allclose(found.mean, expected.mean, rtol=0, atol=within * unit)
        np.testing.assert_allclose(found.variance, expected.variance, rtol=0, atol=within * unit**2)


def assert_same_feedback(one: State, other: State, *, within: float = 1e-9) -> None:
    """Hold what two states keep of outcomes to be the same, in sums and in what is usual."""
    assert (one.feedback is None) == (other.feedback is None)
    if one.feedback is None or other.feedback is None:
        return
    mine, theirs = one.feedback.settled, other.feedback.settled
    for name in ("items", "squares", "shifts", "shown", "by_position", "with_rewards"):
        np.testing.assert_allclose(getattr(mine, name), getattr(theirs, name), rtol=within, atol=within, err_msg=name)
    for name in ("count", "outliers", "reach"):
        assert getattr(one.feedback.outcome_range, name) == getattr(other.feedback.outcome_range, name), name
    latest = [np.zeros((0, 1)) if state.recent.outcomes is None else state.recent.outcomes for state in (one, other)]
    np.testing.assert_array_equal(*latest)


def replaced(slates: Sequence[Told], number: int, reward: float, outcomes: FloatArray | None) -> list[Told]:
    """Return slates with another end of one of them."""
    return [one.ending(reward, outcomes) if place == number else one for place, one in enumerate(slates)]


def with_wild(slates: Sequence[Told], wild: dict[int, float], *, position: int = 1) -> list[Told]:
    """Return slates with a wild outcome of an item of some."""
    changed = list(slates)
    for number, value in wild.items():
        one = changed[number]
        assert one.outcomes is not None
        outcomes = one.outcomes.copy()
        outcomes[position] = value
        changed[number] = one._replace(outcomes=outcomes)
    return changed
