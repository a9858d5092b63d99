from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.learning.dense import KINDS, WCK, Kind, fitted, rankings_of, sample

from topk_bandit.learning.acquisition import UpperConfidenceBound
from topk_bandit.learning.policy import Limits, State, decide
from topk_bandit.learning.posterior import Posterior
from topk_bandit.learning.rankings import all_rankings, random_rankings
from topk_bandit.learning.search import Found, local_search
from topk_bandit.types import ConstantBeta, Exploration

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from topk_bandit.learning.posterior import Moments

CONTEXT = np.array([0.8, 0.5])


@dataclass
class Watched:
    """UCB that notes what it was asked about."""

    rule: UpperConfidenceBound
    asked: int = 0
    highest_mean: float = -np.inf
    scores: list[float] = field(default_factory=list)

    def __call__(self, moments: Moments, /) -> NDArray[np.float64]:
        scores = self.rule(moments)
        self.asked += scores.size
        self.highest_mean = max(self.highest_mean, float(moments.mean.max()))
        self.scores.append(float(scores.max()))
        return scores


def random_posterior(seed: int, *, kind: Kind = WCK, n_items: int = 12, slate_size: int = 3) -> Posterior:
    rng = np.random.default_rng(seed)
    data = sample(kind, rng, n_items=n_items, slate_size=slate_size, context_dim=2, count=int(rng.integers(1, 120)))
    return fitted(kind, data, n_items=n_items)


def search(posterior: Posterior, rule: UpperConfidenceBound, *, seed: int, n_starts: int = 8) -> tuple[Found, Watched]:
    n_items, slate_size = posterior.kernel.n_items, posterior.kernel.slate_size
    landscape = posterior.at(CONTEXT, np.arange(n_items))
    watched = Watched(rule)
    rng = np.random.default_rng([seed, 77])
    starts = random_rankings(np.arange(n_items), slate_size=slate_size, count=n_starts, rng=rng)
    return local_search(landscape, watched, starts), watched


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_decision_reaches_the_exhaustive_optimum(kind: Kind) -> None:
    everything = all_rankings(np.arange(12), slate_size=3)
    exploration = Exploration(ConstantBeta(1.0), uniform_share=0.0)
    reached = 0
    for seed in range(30):
        posterior = random_posterior(seed, kind=kind)
        optimum = float(UpperConfidenceBound(1.0)(posterior.predict(CONTEXT, everything)).max())
        state = State(posterior, Limits(), observations=posterior.n_rows)
        rng = np.random.default_rng(seed)
        decision = decide(state, exploration, context=CONTEXT, eligible=np.arange(12, dtype=np.int32), rng=rng)
        value = decision.mean + decision.standard_deviation
        assert value <= optimum + 1e-9
        reached += value >= optimum - 1e-6 * (1.0 + abs(optimum))
    assert reached >= 27


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_enough_starts_reach_the_exhaustive_optimum(kind: Kind) -> None:
    rule = UpperConfidenceBound(1.0)
    everything = all_rankings(np.arange(12), slate_size=3)
    reached = 0
    for seed in range(30):
        posterior = random_posterior(seed, kind=kind)
        optimum = float(rule(posterior.predict(CONTEXT, everything)).max())
        found, _ = search(posterior, rule, seed=seed, n_starts=48)
        assert found.value <= optimum + 1e-9
        reached += found.value >= optimum - 1e-6 * (1.0 + abs(optimum))
    assert reached >= 27


@pytest.mark.parametrize("beta", [0.0, 1.0, 9.0])
def test_what_is_found_is_what_it_is_said_to_be(beta: float) -> None:
    rule = UpperConfidenceBound(beta)
    for seed in range(10):
        posterior = random_posterior(seed)
        found, watched = search(posterior, rule, seed=seed)
        moments = posterior.predict(CONTEXT, found.ranking[None])
        assert found.value == pytest.approx(float(rule(moments)[0]), abs=1e-9)
        assert found.highest_mean == watched.highest_mean
        assert found.highest_mean >= moments.mean[0] - 1e-9
        assert found.evaluations == watched.asked
        assert len(set(found.ranking.tolist())) == 3


def neighbours(ranking: NDArray[np.int32], n_items: int) -> NDArray[np.int32]:
    """Return the ranking's replacements of one item and exchanges of two positions."""
    rows = [ranking]
    for position in range(len(ranking)):
        for item in set(range(n_items)) - set(ranking.tolist()):
            rows.append(ranking.copy())
            rows[-1][position] = item
        for other in range(position):
            rows.append(ranking.copy())
            rows[-1][[position, other]] = ranking[[other, position]]
    return np.array(rows, dtype=np.int32)


@pytest.mark.parametrize("n_starts", [1, 3])
def test_the_result_is_a_local_optimum_and_no_worse_than_any_start(n_starts: int) -> None:
    rule = UpperConfidenceBound(2.0)
    for seed in range(20):
        landscape = random_posterior(seed, slate_size=4).at(CONTEXT, np.arange(12))
        starts = rankings_of(12, 4, n_starts, np.random.default_rng(seed))
        before = starts.copy()
        found = local_search(landscape, rule, starts)
        assert starts.tolist() == before.tolist()
        assert found.value >= rule(landscape.moments(starts)).max() - 1e-12
        around = rule(landscape.moments(neighbours(found.ranking, 12))).max()
        assert around <= found.value + 1e-5 * (1.0 + abs(found.value))


@pytest.mark.parametrize(("n_items", "slate_size"), [(5, 1), (4, 4), (2, 2), (6, 2)])
def test_the_smallest_and_the_fullest_slates_are_searched(n_items: int, slate_size: int) -> None:
    rule = UpperConfidenceBound(1.0)
    everything = all_rankings(np.arange(n_items), slate_size=slate_size)
    for seed in range(10):
        posterior = random_posterior(seed, n_items=n_items, slate_size=slate_size)
        found, _ = search(posterior, rule, seed=seed)
        assert found.value == pytest.approx(float(rule(posterior.predict(CONTEXT, everything)).max()), rel=1e-5)


def test_a_flat_landscape_ends_at_once() -> None:
    posterior = Posterior.prior(WCK.make(12, 3), context_dim=2, noise_variance=0.1)
    found, _ = search(posterior, UpperConfidenceBound(1.0), seed=0)
    assert found.value == pytest.approx(float(np.linalg.norm(CONTEXT)))
    assert found.evaluations == 8 + 8 * (3 * 12 + 3)


def test_the_same_start_twice_is_searched_once() -> None:
    landscape = random_posterior(3).at(CONTEXT, np.arange(12))
    start = np.array([[4, 1, 9]], dtype=np.int32)
    once = local_search(landscape, UpperConfidenceBound(1.0), start)
    often = local_search(landscape, UpperConfidenceBound(1.0), np.repeat(start, 5, axis=0))
    assert (often.evaluations, often.value) == (once.evaluations, once.value)


def test_the_search_stays_among_the_items_of_the_landscape() -> None:
    posterior = random_posterior(5)
    items = np.array([1, 4, 6, 11], dtype=np.int32)
    landscape = posterior.at(CONTEXT, items)
    rule = UpperConfidenceBound(1.0)
    starts = rankings_of(4, 3, 8, np.random.default_rng(0))
    found = local_search(landscape, rule, starts)
    optimum = rule(posterior.predict(CONTEXT, all_rankings(items, slate_size=3))).max()
    assert found.value == pytest.approx(optimum, rel=1e-5)
    assert set(items[found.ranking].tolist()) <= set(items.tolist())
