"""What a study is worth to a bandit: the same bandit cold, with a study's utilities as its prior, and with wrong ones.

A shop has items with features, customers, and no rewards. People rank a few lists that a design chose, for one customer
each, by Plackett-Luce; the utilities learned from that, x = vec(context item'), become the bandit's prior mean. The
features are the items' hidden factors with noise on them, as a shop would have them; what the customers like is only in
the answers. Shuffled utilities are the same ones given to other items: a prior that misleads.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from topk_bandit.domain.bandits import Exploration, Kernel, PaperBeta
from topk_bandit.lab.simulation.episodes import GpTopK, play
from topk_bandit.lab.simulation.scenarios import Constant, Scenario
from topk_bandit.learning.environments import Shop
from topk_bandit.learning.limits import Limits
from topk_bandit.learning.policy import State, kernel_of
from topk_bandit.learning.prior_mean import PriorMean
from topk_bandit.preferences import sampling
from topk_bandit.preferences.designs.optimal import Feedback
from topk_bandit.preferences.questions import QuestionPool, choose_next_lists

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["Study", "Trial", "WarmStart", "studied_slopes", "trial", "warm_start"]

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Study:
    """How people are asked, and how they answer.

    Attributes
    ----------
    questions
        How many lists are ranked.
    list_size
        Items of a list.
    decisiveness
        People rank by Plackett-Luce with this times the relevance, which is in [0, 1], as utility: the most relevant
        item is preferred to the least relevant one with odds of e to this power.
    feature_noise
        Standard deviation of the noise on an item's features, relative to that of its factors.
    """

    questions: int = 60
    list_size: int = 5
    decisiveness: float = 4.0
    feature_noise: float = 0.3


@dataclass(frozen=True, slots=True)
class WarmStart:
    """An experiment: which shop, which study, which bandit.

    Attributes
    ----------
    delay
        In how many rounds a reward arrives.
    """

    n_items: int = 50
    slate_size: int = 6
    rounds: int = 300
    delay: int = 10
    study: Study = field(default_factory=Study)
    exploration: Exploration = field(default_factory=lambda: Exploration(PaperBeta(0.1), uniform_share=0.05))


@dataclass(frozen=True, slots=True, eq=False)
class Trial:
    """True regret of each round, all of shape (rounds,), or (seeds, rounds) of several trials.

    Attributes
    ----------
    correlation
        Of the learned utilities with the true ones, over items and customers.
    """

    cold: FloatArray
    warm: FloatArray
    shuffled: FloatArray
    correlation: FloatArray


def studied_slopes(shop: Shop, study: Study, rng: np.random.Generator) -> FloatArray:
    """Ask people of the shop, and return the slopes of the items' utilities in the context, shape (n, C)."""
    noise = study.feature_noise / np.sqrt(shop.items.shape[1])
    features = shop.items + noise * rng.normal(size=shop.items.shape)
    pool = QuestionPool.of(features, shop.customers, feedback=Feedback.RANKING)
    design = pool.design(list_size=study.list_size, budget=study.questions, relative_gap=0.05, rng=rng)
    nothing = np.zeros(len(design.weights), dtype=np.int64)
    lists = design.subsets[choose_next_lists(pool, design, asked=nothing, count=study.questions)]
    relevance = np.concatenate([shop.relevance(customer) for customer in range(len(shop.customers))])
    answers = sampling.draw_rankings(study.decisiveness * relevance, lists, rng=rng)
    weights = pool.span.basis @ pool.learn(answers).posterior.mean
    return np.asarray(features @ weights.reshape(shop.customers.shape[1], -1).T, dtype=np.float64)


def trial(experiment: WarmStart, seed: int) -> Trial:
    """Play one shop three times, with the same customers and noise."""
    shop = Shop.random(np.random.default_rng([seed, 0]), n_items=experiment.n_items, slate_size=experiment.slate_size)
    slopes = studied_slopes(shop, experiment.study, np.random.default_rng([seed, 1]))
    shuffled = np.random.default_rng([seed, 2]).permutation(slopes)
    true = np.array([shop.relevance(customer) for customer in range(len(shop.customers))])
    return Trial(
        _play(experiment, shop, None, seed),
        _play(experiment, shop, slopes, seed),
        _play(experiment, shop, shuffled, seed),
        np.corrcoef((shop.customers @ slopes.T).ravel(), true.ravel())[0, 1],
    )


def warm_start(
    experiment: WarmStart,
    seeds: Iterable[int],
    *,
    run: Callable[[Callable[[int], Trial], Iterable[int]], Iterable[Trial]] = map,
) -> Trial:
    """Return the trials of all seeds, one below the other; `run` may be the map of a pool of processes."""
    trials = list(run(_Seeded(experiment), seeds))
    return Trial(
        np.array([one.cold for one in trials]),
        np.array([one.warm for one in trials]),
        np.array([one.shuffled for one in trials]),
        np.array([one.correlation for one in trials]),
    )


@dataclass(frozen=True, slots=True)
class _Seeded:
    """A trial as a function of its seed that processes can hand to each other."""

    experiment: WarmStart

    def __call__(self, seed: int) -> Trial:
        return trial(self.experiment, seed)


def _play(experiment: WarmStart, shop: Shop, slopes: FloatArray | None, seed: int) -> FloatArray:
    n_items, context_dim = shop.items.shape
    kernel = kernel_of(Kernel.ADAPTIVE, n_items, shop.slate_size)
    prior_mean = None
    if slopes is not None:
        prior_mean = PriorMean.of(kernel, np.zeros(n_items), slopes, np.arange(n_items))
    state = State.initial(kernel, context_dim=context_dim, limits=Limits(), prior_mean=prior_mean)
    player = GpTopK(state, experiment.exploration, rng=np.random.default_rng([seed, 3]))
    rng = np.random.default_rng([seed, 4])
    scenario = Scenario(shop, Constant(experiment.delay))
    return play(scenario, player, rounds=experiment.rounds, rng=rng).regret
