from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.learning.dense import KINDS, WCK, WK, Kind, fitted, rankings_of, sample

from topk_bandit.domain.bandits import ConstantBeta, Exploration
from topk_bandit.learning.acquisition import UpperConfidenceBound
from topk_bandit.learning.decisions import decide
from topk_bandit.learning.item_draws import ItemDraws
from topk_bandit.learning.limits import Limits
from topk_bandit.learning.policy import State
from topk_bandit.learning.posterior import Posterior
from topk_bandit.learning.rankings import all_rankings
from topk_bandit.learning.search import BEST_SEEN, FEWEST_FINE_ITEMS, Found, best_seen, local_search

if TYPE_CHECKING:
    from numpy.typing import NDArray

CONTEXT = np.array([0.8, 0.5])
SIZES = [9, 18]
"""With fewer items than FEWEST_FINE_ITEMS the search has one stage, with more all three."""

MANY = 40
"""So many that most are looked at in the last stage alone."""


def random_posterior(seed: int, *, kind: Kind = WCK, n_items: int = 18, slate_size: int = 3) -> Posterior:
    rng = np.random.default_rng(seed)
    data = sample(kind, rng, n_items=n_items, slate_size=slate_size, context_dim=2, count=int(rng.integers(1, 120)))
    return fitted(kind, data, n_items=n_items)


def search(
    posterior: Posterior, *, beta: float, seed: int, starts: NDArray[np.int32] | None = None, items: object = None
) -> Found:
    at_context = posterior.at(CONTEXT, np.arange(posterior.kernel.n_items) if items is None else items)
    given = best_seen(at_context) if starts is None else starts
    return local_search(
        at_context, ItemDraws(at_context).covariance, beta=beta, starts=given, rng=np.random.default_rng([seed, 77])
    )


def bounds(posterior: Posterior, rankings: NDArray[np.int32], beta: float) -> NDArray[np.float64]:
    return UpperConfidenceBound(beta)(posterior.predict(CONTEXT, rankings))


def test_both_ways_through_the_search_are_tested() -> None:
    assert SIZES[0] <= FEWEST_FINE_ITEMS < SIZES[1]


@pytest.mark.slow
@pytest.mark.usefixtures("without_draws")
@pytest.mark.parametrize("n_items", SIZES)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_decision_reaches_the_exhaustive_optimum(kind: Kind, n_items: int) -> None:
    everything = all_rankings(np.arange(n_items), slate_size=3)
    exploration = Exploration(ConstantBeta(1.0), uniform_share=0.0)
    eligible = np.arange(n_items, dtype=np.int32)
    reached = 0
    for seed in range(30):
        posterior = random_posterior(seed, kind=kind, n_items=n_items)
        optimum = float(bounds(posterior, everything, 1.0).max())
        state = State(posterior=posterior, limits=Limits(), observations=posterior.n_rows)
        decision = decide(state, exploration, context=CONTEXT, eligible=eligible, rng=np.random.default_rng(seed))
        value = float(bounds(posterior, decision.ranking[None], 1.0)[0])
        assert value <= optimum + 1e-9
        reached += value >= optimum - 1e-5 * (1.0 + abs(optimum))
    assert reached >= 28


@pytest.mark.parametrize("n_items", [*SIZES, MANY])
@pytest.mark.parametrize("beta", [0.0, 9.0])
def test_what_is_found_is_what_it_is_said_to_be(beta: float, n_items: int) -> None:
    for seed in range(8):
        posterior = random_posterior(seed, n_items=n_items)
        found = search(posterior, beta=beta, seed=seed)
        assert len(set(found.ranking.tolist())) == 3
        assert found.evaluations > 100


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


@pytest.mark.parametrize("n_items", [*SIZES, MANY])
@pytest.mark.parametrize("kind", [WCK, WK], ids=lambda kind: kind.name)
def test_the_result_is_a_local_optimum_and_no_worse_than_any_start(kind: Kind, n_items: int) -> None:
    for seed in range(12):
        posterior = random_posterior(seed, kind=kind, n_items=n_items, slate_size=4)
        starts = rankings_of(n_items, 4, 3, np.random.default_rng(seed))
        before = starts.copy()
        found = search(posterior, beta=2.0, seed=seed, starts=starts)
        assert starts.tolist() == before.tolist()
        value = float(bounds(posterior, found.ranking[None], 2.0)[0])
        around = float(bounds(posterior, neighbours(found.ranking, n_items), 2.0).max())
        assert around <= value + 1e-5 * (1.0 + abs(value))
        if n_items <= FEWEST_FINE_ITEMS:
            assert value >= float(bounds(posterior, starts, 2.0).max()) - 1e-5


@pytest.mark.parametrize(("n_items", "slate_size"), [(5, 1), (30, 1), (4, 4), (2, 2), (6, 2), (14, 2)])
def test_the_smallest_and_the_fullest_slates_are_searched(n_items: int, slate_size: int) -> None:
    everything = all_rankings(np.arange(n_items), slate_size=slate_size)
    for seed in range(10):
        posterior = random_posterior(seed, n_items=n_items, slate_size=slate_size)
        found = search(posterior, beta=1.0, seed=seed)
        reached = float(bounds(posterior, found.ranking[None], 1.0)[0])
        assert reached == pytest.approx(float(bounds(posterior, everything, 1.0).max()), rel=1e-5)


@pytest.mark.parametrize("n_items", SIZES)
def test_a_flat_landscape_gives_a_slate_and_ends(n_items: int) -> None:
    posterior = Posterior.prior(WCK.make(n_items, 3), context_dim=2, noise_variance=0.1)
    found = search(posterior, beta=1.0, seed=0)
    assert len(set(found.ranking.tolist())) == 3
    assert found.evaluations < 20_000


def test_the_same_generator_finds_the_same() -> None:
    posterior = random_posterior(3, n_items=30, slate_size=5)
    one, other = search(posterior, beta=1.0, seed=4), search(posterior, beta=1.0, seed=4)
    assert one.ranking.tolist() == other.ranking.tolist()
    assert one.evaluations == other.evaluations


def test_the_search_stays_among_the_items_of_the_landscape() -> None:
    posterior = random_posterior(5)
    for items in (np.array([1, 4, 6, 11], dtype=np.int32), np.arange(2, 18, dtype=np.int32)):
        found = search(posterior, beta=1.0, seed=0, items=items)
        optimum = bounds(posterior, all_rankings(items, slate_size=3), 1.0).max()
        assert bounds(posterior, items[found.ranking][None], 1.0)[0] == pytest.approx(optimum, rel=1e-5)


def test_the_best_seen_are_the_rewarded_rankings_with_the_largest_means() -> None:
    for seed in range(20):
        posterior = random_posterior(seed, n_items=7, slate_size=2).show([CONTEXT], [[0, 1]])
        items = np.array([0, 1, 2, 4, 5, 6], dtype=np.int32)
        at_context = posterior.at(CONTEXT, items)
        eligible = [row for row in posterior.observations.rankings if set(row.tolist()) <= set(items.tolist())]
        if not eligible:
            assert len(best_seen(at_context)) == 0
            continue
        different = np.unique(np.array(eligible), axis=0)
        by_mean = np.sort(posterior.predict(CONTEXT, different).mean)[::-1][:BEST_SEEN]
        found = items[best_seen(at_context)]
        assert len(np.unique(found, axis=0)) == len(found) == len(by_mean)
        np.testing.assert_allclose(posterior.predict(CONTEXT, found).mean, by_mean, atol=1e-9)


@pytest.mark.parametrize("kind", [WCK, WK], ids=lambda kind: kind.name)
def test_the_unit_of_the_rewards_changes_no_step_of_a_search(kind: Kind) -> None:
    """Of a posterior that is four times as wide in all its variances a quarter of beta asks for the same."""
    for seed in range(5):
        posterior = random_posterior(seed, kind=kind, n_items=40)
        one, four = (posterior.rescale(offset=0.0, amplitude=amplitude) for amplitude in (1.0, 4.0))
        expected, found = search(one, beta=4.0, seed=seed), search(four, beta=1.0, seed=seed)
        assert found.ranking.tolist() == expected.ranking.tolist()
        assert found.evaluations == expected.evaluations
