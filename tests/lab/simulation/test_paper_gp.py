"""The paper's policy against Eqs. 6, 34 and 35 written out, with nothing of the package's arithmetic."""

from __future__ import annotations

import math
import pickle
from itertools import permutations
from typing import TYPE_CHECKING

import numpy as np
import pytest
from scipy.stats import chisquare, multivariate_normal
from tests.learning.dense import CK, WCK, WK

from topk_bandit.domain.bandits import Kernel
from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.lab.simulation.episodes import ProblemSize, Visit, play
from topk_bandit.lab.simulation.paper_gp import PaperGpTopK, log_likelihood, paper_policies
from topk_bandit.lab.simulation.scenarios import Batches, ComingAndGoing, Constant, Incomplete, Scenario
from topk_bandit.learning.environments import Objective, Shop

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from tests.learning.dense import Kind

    from topk_bandit.lab.simulation.scenarios import Wait

    FloatArray = NDArray[np.float64]

KINDS = {Kernel.WEIGHTED: WK, Kernel.CONVOLUTIONAL: CK, Kernel.WEIGHTED_CONVOLUTIONAL: WCK}
DEVIATIONS = 0.01, 0.05, 0.1


def shop(*, n_items: int = 7, n_customers: int = 3, noise: float = 0.05, seed: int = 0) -> Shop:
    rng = np.random.default_rng(seed)
    customers, items = rng.normal(size=(n_customers, 2)), rng.normal(size=(n_items, 2))
    return Shop(customers, items, 3, Objective.NDCG_DIVERSITY, noise, customers)


def size_of(market: Shop) -> ProblemSize:
    n_customers, context_dim = market.customers.shape
    return ProblemSize(len(market.items), market.slate_size, context_dim, n_customers)


def rankings_among(eligible: NDArray[np.int32]) -> NDArray[np.intp]:
    return np.array(list(permutations(eligible.tolist(), 3)))


class Auditor:
    """Lets a player play, and before each choice works out by dense matrices what the paper would make of it."""

    def __init__(self, player: PaperGpTopK, size: ProblemSize, kind: Kind, beta: float) -> None:
        self.player, self.size, self.kind, self.beta = player, size, kind, beta
        self.deviation = 0.05
        self.deviations: list[float] = []
        self.chosen: dict[int, tuple[FloatArray, NDArray[np.int32]]] = {}
        self.heard: list[tuple[FloatArray, NDArray[np.int32], float]] = []

    def choose(self, visit: Visit) -> NDArray[np.int32]:
        slate = self.player.choose(visit)
        self.chosen[visit.number] = visit.context, slate
        every = rankings_among(visit.eligible)
        bounds = self.bounds(visit, every)
        [mine] = np.flatnonzero((every == slate).all(axis=1))
        assert bounds[mine] == pytest.approx(bounds.max(), rel=1e-5, abs=1e-5)
        assert self.player.posterior.noise_variance == pytest.approx(self.deviation**2)
        self.deviations.append(self.deviation)
        return slate

    def observe(self, number: int, reward: float) -> None:
        self.player.observe(number, reward)
        self.heard.append((*self.chosen[number], reward))
        if len(self.heard) % 10 == 0:
            covariance, rewards = self.covariance(), np.array([reward for _, _, reward in self.heard])
            one = np.eye(len(rewards))
            likelihood = [multivariate_normal(cov=covariance + s**2 * one).logpdf(rewards) for s in DEVIATIONS]
            self.deviation = DEVIATIONS[int(np.argmax(likelihood))]

    def close(self, number: int) -> None:
        self.player.close(number)

    def covariance(self) -> FloatArray:
        contexts = np.array([context for context, _, _ in self.heard])
        features = self.features(np.array([slate for _, slate, _ in self.heard]))
        return (contexts @ contexts.T) * (features @ features.T)

    def features(self, rankings: NDArray[np.integer]) -> FloatArray:
        return self.kind.features(rankings, self.size.n_items)

    def bounds(self, visit: Visit, rankings: NDArray[np.intp]) -> FloatArray:
        n, k, _, n_contexts, _ = self.size
        prior = float(visit.context @ visit.context)
        n_arms = n_contexts * math.factorial(n) // math.factorial(n - k)
        beta = self.beta * math.log(n_arms * (visit.number + 1) ** 2 * math.pi**2)
        if not self.heard:
            return np.full(len(rankings), math.sqrt(beta * prior))
        contexts = np.array([context for context, _, _ in self.heard])
        shown = self.features(np.array([slate for _, slate, _ in self.heard]))
        across = (contexts @ visit.context)[:, None] * (shown @ self.features(rankings).T)
        noisy = self.covariance() + self.deviation**2 * np.eye(len(contexts))
        mean = across.T @ np.linalg.solve(noisy, np.array([reward for _, _, reward in self.heard]))
        variance = prior - (across * np.linalg.solve(noisy, across)).sum(axis=0)
        return np.asarray(mean + np.sqrt(beta * np.maximum(variance, 0.0)))


@pytest.mark.parametrize("kernel", KINDS)
@pytest.mark.parametrize(
    "wait", [Batches(5), Constant(3), Incomplete(Constant(1), missing=0.3, deadline=2, default=None)]
)
def test_every_choice_has_the_largest_bound_of_all(kernel: Kernel, wait: Wait) -> None:
    market = shop()
    player = PaperGpTopK(size_of(market), kernel=kernel, beta=0.1, rng=np.random.default_rng(1))
    auditor = Auditor(player, size_of(market), KINDS[kernel], 0.1)
    play(Scenario(market, wait), auditor, rounds=45, rng=np.random.default_rng(2))
    assert len(auditor.deviations) == 45


@pytest.mark.parametrize(("noise", "deviation"), [(0.0, 0.01), (0.1, 0.1)])
def test_noise_is_the_likeliest_of_three(noise: float, deviation: float) -> None:
    market = shop(noise=noise, n_customers=1)
    player = PaperGpTopK(size_of(market), kernel=Kernel.CONVOLUTIONAL, beta=0.05, rng=np.random.default_rng(1))
    auditor = Auditor(player, size_of(market), CK, 0.05)
    play(Scenario(market, Constant(0)), auditor, rounds=81, rng=np.random.default_rng(2))
    assert auditor.deviations[0] == 0.05
    assert auditor.deviations[-1] == deviation


def test_likelihood_is_that_of_a_normal_distribution() -> None:
    rng = np.random.default_rng(0)
    root, rewards = rng.normal(size=(6, 4)), rng.normal(size=6)
    expected = multivariate_normal(cov=root @ root.T + 0.25 * np.eye(6)).logpdf(rewards)
    assert log_likelihood(root @ root.T, rewards, 0.5) == pytest.approx(expected)


def test_only_eligible_items_are_shown_and_the_best_of_their_rankings() -> None:
    market = shop(n_items=8)
    player = PaperGpTopK(size_of(market), kernel=Kernel.WEIGHTED, beta=0.1, rng=np.random.default_rng(1))
    auditor = Auditor(player, size_of(market), WK, 0.1)
    play(Scenario(market, Batches(5), ComingAndGoing(5, 4)), auditor, rounds=40, rng=np.random.default_rng(2))
    assert len({tuple(sorted(slate.tolist())) for _, slate in auditor.chosen.values()}) > 4


def test_more_contexts_ask_for_more_exploration() -> None:
    """The number of arms, and nothing else, is what players who know of more contexts know."""
    market = shop(n_customers=1)
    few, many = size_of(market), size_of(market)._replace(n_contexts=10**9)
    for size in (few, many):
        player = PaperGpTopK(size, kernel=Kernel.CONVOLUTIONAL, beta=0.5, rng=np.random.default_rng(1))
        auditor = Auditor(player, size, CK, 0.5)
        play(Scenario(market, Constant(0)), auditor, rounds=20, rng=np.random.default_rng(2))
    [context] = market.customers
    visit, every = Visit(20, context, np.arange(7, dtype=np.int32)), rankings_among(np.arange(7, dtype=np.int32))
    narrow = Auditor(player, few, CK, 0.5)
    narrow.heard = auditor.heard
    assert not np.allclose(narrow.bounds(visit, every), auditor.bounds(visit, every), rtol=1e-2)


def test_before_any_reward_every_slate_is_as_likely() -> None:
    market = shop(n_items=4)
    visit = Visit(0, market.customers[0], np.arange(4, dtype=np.int32))
    counts = dict.fromkeys(permutations(range(4), 3), 0)
    for seed in range(600):
        player = PaperGpTopK(size_of(market), kernel=Kernel.WEIGHTED, beta=0.1, rng=np.random.default_rng(seed))
        counts[tuple(player.choose(visit).tolist())] += 1
    assert chisquare(list(counts.values())).pvalue > 1e-3


def test_nine_policies_that_can_be_sent_to_another_process() -> None:
    policies = paper_policies()
    assert [policy.name for policy in policies] == [
        *("WK 0.05", "WK 0.1", "WK 0.5"),
        *("CK 0.05", "CK 0.1", "CK 0.5"),
        *("WCK 0.05", "WCK 0.1", "WCK 0.5"),
    ]
    market, regrets = shop(), set()
    for policy in policies:
        assert policy.name.startswith(policy.family + " ")
        twice = []
        for sent in (policy, pickle.loads(pickle.dumps(policy))):
            player = sent.make(size_of(market), np.random.default_rng(3))
            twice.append(play(Scenario(market, Batches(5)), player, rounds=30, rng=np.random.default_rng(4)).regret)
        np.testing.assert_array_equal(*twice)
        regrets.add(float(twice[0].sum()))
    assert len(regrets) == len(policies)


def test_beyond_what_can_be_enumerated_it_searches() -> None:
    rng = np.random.default_rng(0)
    market = Shop.random(rng, n_items=24, slate_size=3, context_dim=2, n_customers=2, objective=Objective.NDCG)
    player = PaperGpTopK(size_of(market), kernel=Kernel.CONVOLUTIONAL, beta=0.05, rng=np.random.default_rng(1))
    auditor = Auditor(player, size_of(market), CK, 0.05)
    play(Scenario(market, Batches(5)), auditor, rounds=15, rng=np.random.default_rng(2))
    assert len(auditor.chosen) == 15


def test_a_negative_beta_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="beta"):
        PaperGpTopK(size_of(shop()), kernel=Kernel.WEIGHTED, beta=-0.1, rng=np.random.default_rng(0))
