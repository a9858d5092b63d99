"""Logs of a policy that learns while it is logged, three other policies, and what these would have earned in truth."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from topk_bandit.lab.simulation.battery.recipes import Gaussian, Recipe
from topk_bandit.lab.simulation.battery.scored import ScoredSlates
from topk_bandit.learning.evaluation.slate_log import slate_log
from topk_bandit.learning.evaluation.targets import Target, always, uniform
from topk_bandit.learning.rankings import random_rankings

if TYPE_CHECKING:
    from topk_bandit.learning.evaluation.slate_log import SlateLog
    from topk_bandit.learning.rankings import Rankings

__all__ = ["TARGETS", "Logged", "Logging", "Question", "log_in", "questions"]

FloatArray = NDArray[np.float64]

TARGETS = ("uniform", "popular", "linear")
"""Slates drawn uniformly; the items that were shown most, always; the best slate by a linear model of its own."""

_BEFORE, _RIDGE = 1000, 10.0


@dataclass(frozen=True, slots=True)
class Logging:
    """How a log comes about.

    Attributes
    ----------
    noise
        Standard deviation of rewards, in distances from random slates to the best fixed one.
    learns_every
        The best slates are those of a linear model of all rewards so far, learned anew after so many requests.
    """

    rounds: int = 20_000
    n_items: int = 20
    slate_size: int = 3
    noise: float = 1.0
    near_share: float = 0.04
    uniform_share: float = 0.01
    learns_every: int = 500


class Logged(NamedTuple):
    """A log, its customers (N,), the shop's slates, and how far it is from random slates to the best ones."""

    log: SlateLog
    customers: NDArray[np.intp]
    slates: ScoredSlates
    way: float


class Question(NamedTuple):
    """A policy and its true value on the logged requests."""

    target: Target
    truth: float


def log_in(how: Logging, *, seed: int) -> Logged:
    """Return a log of the shop of a seed: 2,000 customers, rewards that are sums over items, and noise."""
    rng = np.random.default_rng([seed, 1])
    recipe = Recipe("", n_items=how.n_items, slate_size=how.slate_size, rewards=Gaussian(noise=how.noise))
    shop = recipe.build("off-policy", seed=seed, rounds=how.rounds)
    if not isinstance(shop.slates, ScoredSlates):
        raise TypeError("a recipe of scores makes scored slates")
    slates = shop.slates
    customers = rng.integers(len(slates.customers.contexts), size=how.rounds)
    best, shown, rewards = _play(how, slates, customers, rng)
    log = slate_log(
        slates.customers.contexts[customers],
        np.ones((how.rounds, how.n_items), dtype=bool),
        shown,
        rewards,
        best=best,
        near_share=how.near_share,
        uniform_share=how.uniform_share,
    )
    return Logged(log, customers, slates, shop.values.contextual - shop.values.random)


def questions(logged: Logged, *, seed: int) -> tuple[Question, ...]:
    """Return the policies that `TARGETS` names, and their true values."""
    slates, log = logged.slates, logged.log
    often = np.argsort(-np.bincount(log.slates[: max(len(log) // 10, 1)].ravel(), minlength=log.n_items))
    popular = np.repeat(often[None, : slates.slate_size], len(log), axis=0).astype(np.int32)
    linear = _teach_learner(slates, np.random.default_rng([seed, 2])).best(logged.customers)
    # Rewards are sums over positions, so a random slate has the mean item at each.
    mean_scores = _utilities(slates)[logged.customers].mean(axis=1) * slates.position_weights.sum()
    return (
        Question(uniform(log), float(slates.outcome.mean(mean_scores).mean())),
        *(Question(always(log, rows), _true_mean(slates, logged.customers, rows)) for rows in (popular, linear)),
    )


def _play(
    how: Logging, slates: ScoredSlates, customers: NDArray[np.intp], rng: np.random.Generator
) -> tuple[Rankings, Rankings, FloatArray]:
    """Return the best slates as they seemed, those shown, and the rewards."""
    learner = _teach_learner(slates, rng)
    best = np.empty((how.rounds, how.slate_size), dtype=np.int32)
    shown, rewards = best.copy(), np.empty(how.rounds)
    for start in range(0, how.rounds, how.learns_every):
        rows = slice(start, start + how.learns_every)
        best[rows] = learner.best(customers[rows])
        shown[rows] = _explore_slates(best[rows], how, rng)
        rewards[rows] = _rewards(slates, customers[rows], shown[rows], rng)
        learner.learn(customers[rows], shown[rows], rewards[rows])
    return best, shown, rewards


def _explore_slates(best: Rankings, how: Logging, rng: np.random.Generator) -> Rankings:
    """Return each slate, one near it, or any other, with the shares."""
    shown, luck = best.copy(), rng.random(len(best))
    for row in np.flatnonzero(luck < how.near_share).tolist():
        shown[row] = _near(best[row], how.n_items, rng)
    anything = np.flatnonzero((luck >= how.near_share) & (luck < how.near_share + how.uniform_share))
    items = np.arange(how.n_items)
    shown[anything] = random_rankings(items, slate_size=how.slate_size, count=len(anything), rng=rng)
    return shown


def _near(best: NDArray[np.int32], n_items: int, rng: np.random.Generator) -> NDArray[np.int32]:
    """Return the slate with one item replaced or two exchanged, each such slate equally likely."""
    shown, k = best.copy(), len(best)
    others = np.setdiff1d(np.arange(n_items), best)
    number = int(rng.integers(k * len(others) + k * (k - 1) // 2))
    if number < k * len(others):
        shown[number // len(others)] = others[number % len(others)]
        return shown
    first, second = (one[number - k * len(others)] for one in np.triu_indices(k, 1))
    shown[first], shown[second] = best[second], best[first]
    return shown


class _Learner:
    """Ridge regression of rewards on items times contexts, with the shop's weights of positions."""

    def __init__(self, slates: ScoredSlates) -> None:
        self._slates, self._contexts = slates, slates.customers.contexts
        size = slates.n_items * self._contexts.shape[1]
        self._gram, self._products, self._sums = _RIDGE * np.eye(size), np.zeros(size), np.zeros(size)
        self._count, self._total = 0, 0.0

    def learn(self, customers: NDArray[np.intp], shown: Rankings, rewards: FloatArray) -> None:
        weighted = np.zeros((len(shown), self._slates.n_items))
        np.put_along_axis(weighted, shown.astype(np.intp), self._slates.position_weights[None], axis=1)
        rows = (weighted[:, :, None] * self._contexts[customers][:, None, :]).reshape(len(shown), -1)
        self._gram += rows.T @ rows
        self._products += rewards @ rows
        self._sums += rows.sum(axis=0)
        self._count, self._total = self._count + len(rewards), self._total + float(rewards.sum())

    def best(self, customers: NDArray[np.intp]) -> Rankings:
        """Return the slate that seems best for each customer."""
        effects = np.linalg.solve(self._gram, self._products - self._total / self._count * self._sums)
        worth = self._contexts[customers] @ effects.reshape(self._slates.n_items, -1).T
        return np.argsort(-worth, axis=1)[:, : self._slates.slate_size].astype(np.int32)


def _teach_learner(slates: ScoredSlates, rng: np.random.Generator) -> _Learner:
    """Return a learner that has seen some random slates, which no log has."""
    customers = rng.integers(len(slates.customers.contexts), size=_BEFORE)
    shown = random_rankings(np.arange(slates.n_items), slate_size=slates.slate_size, count=_BEFORE, rng=rng)
    learner = _Learner(slates)
    learner.learn(customers, shown, _rewards(slates, customers, shown, rng))
    return learner


def _utilities(slates: ScoredSlates) -> FloatArray:
    return np.asarray(slates.customers.preferences @ slates.items[0].T)


def _scores(slates: ScoredSlates, customers: NDArray[np.intp], shown: Rankings) -> FloatArray:
    return np.asarray(_utilities(slates)[customers[:, None], shown] @ slates.position_weights)


def _rewards(
    slates: ScoredSlates, customers: NDArray[np.intp], shown: Rankings, rng: np.random.Generator
) -> FloatArray:
    return np.array([slates.outcome.draw(score, rng) for score in _scores(slates, customers, shown).tolist()])


def _true_mean(slates: ScoredSlates, customers: NDArray[np.intp], shown: Rankings) -> float:
    return float(slates.outcome.mean(_scores(slates, customers, shown)).mean())
