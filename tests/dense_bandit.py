"""A small bandit by the textbook: what a service has to answer, from what it was sent and nothing of its own code.

All ordered slates are listed, the kernel is Eq. 4's average over all completions of a slate to a full ranking, and the
posterior is a dense matrix that is solved. The probabilities are sums over the list.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations, permutations
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = ["ADAPTIVE", "WCK", "Answer", "DenseBandit", "Moments", "Prior", "check_answer"]

FloatArray = NDArray[np.float64]
Slate = tuple[int, ...]

DRAW_WIDTH = 0.2
"""Width of the draw of the items' parts beside the bound's, as docs/learner.md states it."""

JITTER = 1e-5


@dataclass(frozen=True)
class Prior:
    """What is believed before any reward: kernel, what contexts share, and noise, for an amplitude of one.

    Attributes
    ----------
    power
        Pairs of ranks a and b weigh 1 / (log(a + 1) log(b + 1)) to this power.
    pair_scale
        What the order within a slate is multiplied by, beside what its items add by themselves.
    constant
        Variance of what a context does to all slates alike.
    shared
        What is added to the dot product of two contexts.
    noise
        Variance of a reward around its expectation.
    content
        How much the items' features count, where they have any.
    """

    power: float
    pair_scale: float = 1.0
    constant: float = 0.0
    shared: float = 0.0
    noise: float = 0.1
    content: float = 0.0


WCK = Prior(power=1.0)
ADAPTIVE = Prior(power=0.5, constant=0.25, shared=1.0, content=1.0)
"""Of a bandit whose kernel was not chosen by rewards yet."""


class Moments(NamedTuple):
    """Means and standard deviations of slates."""

    mean: FloatArray
    deviation: FloatArray


class Answer(NamedTuple):
    """A slate as the service gives it out; `best` where it says which one it explored around."""

    slate: Slate
    propensity: float
    position_propensities: tuple[float, ...]
    mean: float
    deviation: float
    explored: bool
    best: Slate | None = None


@dataclass(frozen=True)
class DenseBandit:
    """What it was sent so far; rows of slates that wait for their rewards have none.

    Attributes
    ----------
    beta
        Of the upper confidence bound.
    uniform_share, near_share
        The first is the share of uniform slates, the second that of near ones among the others.
    contexts, slates, rewards
        Of the rewarded slates.
    waiting
        Contexts and slates of the others.
    attributes
        Features of the items as the kernel has them, shape (n, q): how they come from what a shop sends has oracles of
        its own. None for items without features.
    """

    n_items: int
    slate_size: int
    prior: Prior
    beta: float
    uniform_share: float
    near_share: float
    contexts: tuple[tuple[float, ...], ...] = ()
    slates: tuple[Slate, ...] = ()
    rewards: tuple[float, ...] = ()
    waiting: tuple[tuple[tuple[float, ...], Slate], ...] = ()
    attributes: FloatArray | None = None

    def show(self, context: Sequence[float], slate: Slate) -> DenseBandit:
        return replace(self, waiting=(*self.waiting, (tuple(context), slate)))

    def reward(self, context: Sequence[float], slate: Slate, value: float) -> DenseBandit:
        """Learn the reward of a slate that waits for it."""
        waiting = list(self.waiting)
        waiting.remove((tuple(context), slate))
        return replace(
            self,
            contexts=(*self.contexts, tuple(context)),
            slates=(*self.slates, slate),
            rewards=(*self.rewards, value),
            waiting=tuple(waiting),
        )

    def list_slates(self, eligible: Iterable[int]) -> list[Slate]:
        return list(permutations(sorted(eligible), self.slate_size))

    # The kernel

    def features(self, slates: Sequence[Slate]) -> FloatArray:
        """Return a row for each slate, whose products are the kernel's values without the constant."""
        of_ranks = np.array([self._feature(slate) for slate in slates]).reshape(len(slates), -1) / self._norm
        return np.hstack([of_ranks, self._content(slates)])

    def _content(self, slates: Sequence[Slate]) -> FloatArray:
        """Return what features of items add to the rows of slates, shape (A, q)."""
        weights, attributes = self._place_weights, self._of_attributes
        rows = [np.dot(weights, attributes[list(slate)]) for slate in slates]
        return np.array(rows).reshape(len(slates), attributes.shape[1])

    @property
    def _of_attributes(self) -> FloatArray:
        """What each item adds to the content of a slate at a place of weight 1, shape (n, q); q is 0 without any."""
        if self.attributes is None:
            return np.empty((self.n_items, 0))
        return math.sqrt(self.prior.content) / sum(self._place_weights) * self.attributes

    def _feature(self, slate: Slate) -> FloatArray:
        return kernel_feature(slate, self.n_items, self.prior.power, self.prior.pair_scale)

    @property
    def _place_weights(self) -> tuple[float, ...]:
        return average_weights(self.slate_size, self.n_items, self.prior.power)

    @property
    def _norm(self) -> float:
        return float(np.linalg.norm(self._feature(tuple(range(self.slate_size)))))

    # The Gaussian process

    def _covariance(self, left: _Rows, right: _Rows, *, constant: float) -> FloatArray:
        of_slates = self.features(left.slates) @ self.features(right.slates).T + constant
        return np.asarray((left.contexts @ right.contexts.T + self.prior.shared) * of_slates)

    @property
    def _rewarded(self) -> _Rows:
        return _Rows(np.array(self.contexts), self.slates)

    def _rows(self, *, with_waiting: bool) -> _Rows:
        waiting = self.waiting if with_waiting else ()
        contexts = [*self.contexts, *(context for context, _ in waiting)]
        return _Rows(np.array(contexts), (*self.slates, *(slate for _, slate in waiting)))

    def _noisy(self, rows: _Rows) -> FloatArray:
        own = self._covariance(rows, rows, constant=self.prior.constant)
        return own + self.prior.noise * np.eye(len(rows.slates))

    @property
    def offset(self) -> float:
        """The generalised least squares mean of the rewards."""
        ones = np.ones(len(self.rewards))
        solved = np.linalg.solve(self._noisy(self._rewarded), np.column_stack([self.rewards, ones]))
        return float(ones @ solved[:, 0] / (ones @ solved[:, 1]))

    @property
    def amplitude(self) -> float:
        """The scale of the kernel at which the rewards are most likely; 1 while they are all equal."""
        if len(set(self.rewards)) < 2:
            return 1.0
        centred = np.array(self.rewards) - self.offset
        return float(centred @ np.linalg.solve(self._noisy(self._rewarded), centred)) / len(centred)

    def predict(self, context: Sequence[float], slates: Sequence[Slate]) -> Moments:
        """Return the moments of the expected reward, by what rewards have told."""
        variances = self._variances(context, slates, with_waiting=False, constant=self.prior.constant)
        return Moments(self._means(context, slates), np.sqrt(self.amplitude * variances))

    def _means(self, context: Sequence[float], slates: Sequence[Slate]) -> FloatArray:
        if len(set(self.rewards)) < 2:
            return np.full(len(slates), self.rewards[0] if self.rewards else 0.0)
        across = self._covariance(self._rewarded, _Rows.at(context, slates), constant=self.prior.constant)
        weights = np.linalg.solve(self._noisy(self._rewarded), np.array(self.rewards) - self.offset)
        return np.asarray(self.offset + across.T @ weights)

    def _variances(
        self, context: Sequence[float], slates: Sequence[Slate], *, with_waiting: bool, constant: float
    ) -> FloatArray:
        rows, asked = self._rows(with_waiting=with_waiting), _Rows.at(context, slates)
        own = self._square(context) * (1.0 + constant + (self._content(slates) ** 2).sum(axis=1))
        if not rows.slates:
            return own
        across = self._covariance(rows, asked, constant=constant)
        return np.asarray(own - (across * np.linalg.solve(self._noisy(rows), across)).sum(axis=0))

    def _square(self, context: Sequence[float]) -> float:
        return float(np.dot(context, context)) + self.prior.shared

    # The decision

    def acquisition(self, context: Sequence[float], slates: Sequence[Slate]) -> dict[Slate, float]:
        """Return mean + sqrt(beta) (sd + 0.2 d) of slates, d of one draw of what each item brings in by itself."""
        width, items = math.sqrt(self.beta), sorted({item for slate in slates for item in slate})
        variances = self._variances(context, slates, with_waiting=True, constant=0.0)
        values = self._means(context, slates) + width * np.sqrt(self.amplitude * np.maximum(variances, 0.0))
        if self.rewards:
            drawn = dict(zip(items, self._draw_items(context, items), strict=True))
            of_places = self._place_weights
            values += [DRAW_WIDTH * width * np.dot(of_places, [drawn[item] for item in slate]) for slate in slates]
        return dict(zip(slates, values.tolist(), strict=True))

    def _draw_items(self, context: Sequence[float], items: Sequence[int]) -> FloatArray:
        """Return how far the draw has the items from their means: the sums of the weights of their pairs and features.

        Where features count, a share of it is a draw of what features alone say.
        """
        pairs, of_content = list(combinations(range(self.n_items), 2)), self._of_attributes[list(items)]
        sums = np.array([[(item == i) * 1.0 - (item == j) for i, j in pairs] for item in items]) / self._norm
        square = self._square(context)
        jitter = JITTER * square * (self.n_items / self._norm**2 + (of_content**2).sum(axis=1).max())
        rng = np.random.default_rng([len(self.rewards), len(self.waiting), len(items)])
        left = self._covariance_left(context, np.hstack([sums, of_content]))
        drawn = self._factor(left, jitter) @ rng.standard_normal(len(items))
        if not of_content.size:
            return np.asarray(drawn)
        n_pairs, n_features = sums.shape[1], of_content.shape[1]
        features = np.hstack([np.zeros((n_features, n_pairs)), np.eye(n_features)])
        of_features = self._factor(self._covariance_left(context, features), JITTER * square)
        told = of_content @ (of_features @ rng.standard_normal(n_features))
        return np.asarray((drawn + self.prior.content * told) / (1.0 + self.prior.content))

    def _covariance_left(self, context: Sequence[float], sums: FloatArray) -> FloatArray:
        """Return the covariance of sums of the kernel's weights at a context, for an amplitude of one."""
        rows = self._rows(with_waiting=True)
        of_rows = self.features(rows.slates) * (rows.contexts @ np.array(context) + self.prior.shared)[:, None]
        across = of_rows @ sums.T
        return np.asarray(self._square(context) * sums @ sums.T - across.T @ np.linalg.solve(self._noisy(rows), across))

    def _factor(self, covariance: FloatArray, jitter: float) -> FloatArray:
        return np.asarray(np.linalg.cholesky(self.amplitude * (covariance + jitter * np.eye(len(covariance)))))

    def probabilities(self, best: Slate, slates: Sequence[Slate]) -> Mapping[Slate, float]:
        """Return how probable each slate is, for the slate that is best: summed over the ways to draw it."""
        near = [slate for slate in slates if is_near(slate, best)]
        near_share = self.near_share if near else 0.0
        chances = dict.fromkeys(slates, self.uniform_share / len(slates))
        chances[best] += (1.0 - self.uniform_share) * (1.0 - near_share)
        for slate in near:
            chances[slate] += (1.0 - self.uniform_share) * near_share / len(near)
        return chances


# What depends on nothing but a slate and a prior is worked out once: an answer is held against hundreds of slates.


@lru_cache(maxsize=4096)
def kernel_feature(slate: Slate, n_items: int, power: float, pair_scale: float) -> FloatArray:
    """Return Eq. 4's feature of a slate, whose order counts by the scale beside what its items add by themselves."""
    alone = dict(zip(slate, average_weights(len(slate), n_items, power), strict=True))
    parts = np.array([alone.get(i, 0.0) - alone.get(j, 0.0) for i, j in combinations(range(n_items), 2)])
    return np.asarray(parts + pair_scale * (average_feature(slate, n_items, power) - parts))


@lru_cache
def average_weights(slate_size: int, n_items: int, power: float) -> tuple[float, ...]:
    """Return the average weight of each place of a slate beside the ranks after the slate."""
    after = range(slate_size + 1, n_items + 1)
    return tuple(float(np.mean([weight(place, rank, power) for rank in after])) for place in range(1, slate_size + 1))


def average_feature(slate: Slate, n_items: int, power: float) -> FloatArray:
    """Return the average over completions of w(s_i, s_j) sgn(s_j - s_i), for each pair of items i < j."""
    rest = [item for item in range(n_items) if item not in slate]
    return np.mean([feature_of([*slate, *tail], power) for tail in permutations(rest)], axis=0)


def feature_of(order: Sequence[int], power: float) -> list[float]:
    """Return w(s_i, s_j) sgn(s_j - s_i) of a full ranking, for each pair of items i < j."""
    rank = {item: place for place, item in enumerate(order, start=1)}
    return [
        weight(rank[i], rank[j], power) * (1.0 if rank[i] < rank[j] else -1.0)
        for i, j in combinations(range(len(order)), 2)
    ]


def weight(first: int, second: int, power: float) -> float:
    return (math.log(first + 1) * math.log(second + 1)) ** -power


class _Rows(NamedTuple):
    contexts: FloatArray
    slates: Sequence[Slate]

    @classmethod
    def at(cls, context: Sequence[float], slates: Sequence[Slate]) -> _Rows:
        return cls(np.tile(np.asarray(context), (len(slates), 1)), slates)


def is_near(slate: Slate, best: Slate) -> bool:
    """Return whether one item of the best slate is replaced, or two have changed places."""
    differs = [place for place, (one, other) in enumerate(zip(slate, best, strict=True)) if one != other]
    if len(differs) == 1:
        return slate[differs[0]] not in best
    return len(differs) == 2 and set(slate) == set(best)


def check_answer(bandit: DenseBandit, context: Sequence[float], slates: Sequence[Slate], answer: Answer) -> str:
    """Hold an answer to be the textbook's, of all slates that may be shown; return its kind: best, near or far."""
    assert answer.slate in slates, "a slate that may not be shown"
    check_moments(bandit, context, answer)
    best_ones = find_best(bandit.acquisition(context, slates))
    said = answer.best if answer.explored else answer.slate
    if said is not None:
        assert said in best_ones, best_ones
        best_ones = [said]
    # Of slates that are equally good only the service knows which one it took for the best.
    best = next((one for one in best_ones if has_probabilities(answer, bandit.probabilities(one, slates))), None)
    assert best is not None, [bandit.probabilities(one, slates)[answer.slate] for one in best_ones]
    return "best" if answer.slate == best else "near" if is_near(answer.slate, best) else "far"


def find_best(values: Mapping[Slate, float]) -> list[Slate]:
    """Return the slates of the largest value: the service computes in single precision."""
    most, least = max(values.values()), min(values.values())
    return [slate for slate, value in values.items() if value >= most - 1e-4 * (most - least)]


def has_probabilities(answer: Answer, chances: Mapping[Slate, float]) -> bool:
    """Return whether an answer's propensities are these probabilities, summed over slates for each position."""
    assert math.fsum(chances.values()) == pytest.approx(1.0)
    of_places = [
        math.fsum(chance for slate, chance in chances.items() if slate[place] == item)
        for place, item in enumerate(answer.slate)
    ]
    expected = (chances[answer.slate], *of_places)
    return bool((answer.propensity, *answer.position_propensities) == pytest.approx(expected, rel=1e-9))


def check_moments(bandit: DenseBandit, context: Sequence[float], answer: Answer) -> None:
    """Hold mean and standard deviation to be those of the slate that is shown."""
    expected = bandit.predict(context, [answer.slate])
    scale = math.sqrt(bandit.amplitude)
    assert answer.mean == pytest.approx(expected.mean[0], rel=1e-6, abs=1e-6 * scale)
    assert answer.deviation == pytest.approx(expected.deviation[0], rel=1e-6, abs=1e-6 * scale)
