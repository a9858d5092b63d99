"""The battery's shops: deterministic by seed, expected rewards as many draws say, best values as all slates say."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from scipy.special import expit

from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.lab.simulation.battery.cascade import CascadeSlates, Reading
from topk_bandit.lab.simulation.battery.catalogue import DAY, SHOPS, build
from topk_bandit.lab.simulation.battery.customers import random_walk, swap_half
from topk_bandit.lab.simulation.battery.outcomes import Clicks, Purchases
from topk_bandit.lab.simulation.battery.recipes import (
    Bernoulli,
    Change,
    Contexts,
    Gaussian,
    ListRecipe,
    LogNormal,
    Pairs,
    Recipe,
    StudentT,
)
from topk_bandit.lab.simulation.battery.scored import ScoredSlates
from topk_bandit.lab.simulation.battery.search import best_order, climb
from topk_bandit.lab.simulation.battery.shop import Request
from topk_bandit.lab.simulation.factors import synthetic
from topk_bandit.learning.environments import Factors
from topk_bandit.learning.rankings import all_rankings, random_rankings

if TYPE_CHECKING:
    from topk_bandit.lab.simulation.battery.catalogue import AnyRecipe
    from topk_bandit.lab.simulation.battery.shop import Shop

SMALL = {"n_items": 7, "slate_size": 3, "n_customers": 6}
TINY: dict[str, AnyRecipe] = {
    "gaussian": Recipe("", **SMALL),
    "student": Recipe("", rewards=StudentT(freedom=4.5), **SMALL),
    "clicks": Recipe("", rewards=Bernoulli(0.08), **SMALL),
    "rare clicks": Recipe("", rewards=Bernoulli(0.01, 1.2), **SMALL),
    "purchases": Recipe("", rewards=LogNormal(log_deviation=0.6), **SMALL),
    "pairs": Recipe("", pairs=Pairs.RANDOM, **SMALL),
    "redundancy": Recipe("", pairs=Pairs.REDUNDANCY, **SMALL),
    "main effect": Recipe("", main_effect=2.0, **SMALL),
    "noise": Recipe("", contexts=Contexts.NOISE, **SMALL),
    "one hot": Recipe("", contexts=Contexts.ONE_HOT, **SMALL),
    "sudden": Recipe("", change=Change.SUDDEN, **SMALL),
    "slow": Recipe("", change=Change.SLOW, half_life=300.0, **SMALL),
    "candidates": Recipe("", candidates=4, **SMALL),
    "categories": Recipe("", categories=3, **SMALL),
    "pairs of candidates": Recipe("", candidates=4, pairs=Pairs.RANDOM, **SMALL),
    "list": ListRecipe("", n_items=7, n_customers=6, reading=Reading(3, 0.9, 0.6, 0.85, 0.05, 1.0, 1.0)),
    "short list": ListRecipe("", n_items=7, n_customers=6, reading=Reading(3, 0.7, 0.2, 0.9, 0.0, 0.0, 1.0)),
}
ROUNDS = 400


def tiny(name: str, seed: int = 3) -> Shop:
    return TINY[name].build(name, seed=seed, rounds=ROUNDS)


def requests(shop: Shop, *, every: int = 40) -> list[Request]:
    rng = np.random.default_rng(5)
    return [shop.request(number, rng) for number in range(0, shop.rounds, every)]


@pytest.mark.parametrize("own", [0.0, 0.3, 1.0])
def test_categories_explain_items_but_for_their_own_share(own: float) -> None:
    shop = Recipe("", n_items=60, slate_size=3, categories=5, own=own).build("categories", seed=1, rounds=100)
    features = shop.size.item_features
    assert features is not None
    kinds, categories = np.unique(features, axis=0, return_inverse=True)
    assert len(kinds) == 5
    utilities = np.array([shop.slates.utilities(customer, 0) for customer in range(200)])
    within = [float(utilities[:, categories.ravel() == kind].var(axis=1).mean()) for kind in range(5)]
    share = np.mean(within) / float(utilities.var(axis=1).mean())
    assert {0.0: share < 1e-12, 0.3: 0.1 < share < 0.6, 1.0: share > 0.8}[own]


def all_slates(shop: Shop, request: Request) -> np.ndarray:
    items = np.arange(shop.slates.n_items) if request.eligible is None else request.eligible
    return all_rankings(items, slate_size=shop.slates.slate_size)


def test_there_is_a_shop_of_every_kind() -> None:
    assert len(SHOPS) >= 12
    recipes = [one for one in SHOPS.values() if isinstance(one, Recipe)]
    assert {20, 100, 1000} <= {one.n_items for one in recipes}
    assert {one.rewards.chance for one in recipes if isinstance(one.rewards, Bernoulli)} == {0.01, 0.08, 0.4}
    assert {one.change for one in recipes} == set(Change)
    assert {one.contexts for one in recipes} == set(Contexts)
    assert {one.pairs for one in recipes} == set(Pairs)
    assert any(one.candidates == 30 < one.n_items for one in recipes)
    assert any(one.main_effect == 2.0 for one in recipes)
    films = SHOPS["films"]
    assert isinstance(films, ListRecipe)
    assert (films.n_items, films.reading.slate_size, films.reading.noise) == (50, 5, 1.0)


def test_a_shop_that_does_not_exist() -> None:
    with pytest.raises(InvalidArgumentError, match=r"expected one of films, .*got 'flight'"):
        build("flight", seed=0, rounds=5)


@pytest.mark.parametrize("name", [name for name in SHOPS if name not in {"films", "headlines", "thousand"}])
def test_a_seed_makes_one_shop(name: str) -> None:
    one, same, other = (build(name, seed=seed, rounds=100) for seed in (4, 4, 5))
    rankings = random_rankings(np.arange(one.slates.n_items), slate_size=one.slates.slate_size, count=3, rng=_rng())
    drawn = []
    for shop in (one, same, other):
        of_requests, of_rewards = np.random.default_rng(1), np.random.default_rng(2)
        seen = [shop.request(number, of_requests) for number in (0, 50, 99)]
        values = [shop.expect_rewards(request, rankings).tolist() for request in seen]
        rewards = [shop.draw(request, rankings[0], of_rewards).reward for request in seen]
        drawn.append((values, rewards, [shop.context(request).tolist() for request in seen]))
    assert drawn[0] == drawn[1]
    assert drawn[0] != drawn[2]


@pytest.mark.parametrize("name", TINY)
def test_expected_rewards_are_the_mean_of_many_draws(name: str) -> None:
    shop, rng = tiny(name), _rng()
    for request in requests(shop, every=200):
        for ranking in all_slates(shop, request)[[3, 17]]:
            draws = np.array([shop.draw(request, ranking, rng).reward for _ in range(1500)])
            error = draws.std() / math.sqrt(len(draws))
            assert error > 0.0
            assert abs(draws.mean() - shop.expect_rewards(request, ranking[None])[0]) < 4.5 * error


@pytest.mark.parametrize("name", TINY)
def test_the_best_slate_of_each_request_is_the_best_of_all(name: str) -> None:
    shop = tiny(name)
    for request in requests(shop):
        values = shop.expect_rewards(request, all_slates(shop, request))
        assert shop.best(request) == pytest.approx(values.max(), rel=1e-12)


@pytest.mark.parametrize("name", TINY)
def test_what_can_be_reached_in_a_shop(name: str) -> None:
    shop = tiny(name)
    random, fixed, contextual = shop.values
    assert random < fixed <= contextual + 1e-12
    if shop.candidates is not None:
        return
    # The same requests, each with all slates.
    rng, rounds = np.random.default_rng(0), np.linspace(0, ROUNDS - 1, 256).astype(int)
    seen = [shop.request(int(number), rng) for number in rounds]
    values = np.array([shop.expect_rewards(request, all_slates(shop, request)) for request in seen])
    assert fixed == pytest.approx(values.mean(axis=0).max(), rel=1e-12)
    assert contextual == pytest.approx(values.max(axis=1).mean(), rel=1e-12)
    assert random == pytest.approx(values.mean(), abs=5.0 * values.std(axis=1).mean() / math.sqrt(256 * 64))


def _rng() -> np.random.Generator:
    return np.random.default_rng(11)


@pytest.mark.parametrize("name", ["gaussian", "main effect", "films"])
def test_noise_is_as_large_as_the_spread_of_the_slates(name: str) -> None:
    shop, rng = tiny(name) if name in TINY else build(name, seed=1, rounds=ROUNDS), _rng()
    residuals, k = [], shop.slates.slate_size
    for number in range(2500):
        request = shop.request(number % ROUNDS, rng)
        ranking = random_rankings(np.arange(shop.slates.n_items), slate_size=k, count=1, rng=rng)
        residuals.append(shop.draw(request, ranking[0], rng).reward - shop.expect_rewards(request, ranking)[0])
    spread = shop.values.fixed - shop.values.random
    if name != "films":
        assert spread == pytest.approx(1.0, rel=0.1)
    assert np.std(residuals) == pytest.approx(spread, rel=0.1)


@pytest.mark.parametrize(("name", "chance"), [("clicks-1", 0.01), ("clicks-8", 0.08), ("clicks-40", 0.4)])
def test_clicks_are_as_rare_as_they_say(name: str, chance: float) -> None:
    shop = build(name, seed=1, rounds=10)
    assert shop.values.random == pytest.approx(chance, rel=0.1)
    assert shop.values.fixed > 1.3 * chance


def test_the_main_effect_varies_twice_as_much_as_the_slates() -> None:
    plain, varied = (build(name, seed=2, rounds=10) for name in ("noisy", "main-effect"))
    rankings = random_rankings(np.arange(50), slate_size=5, count=4, rng=_rng())
    of_customers = np.arange(2000)
    effects = np.array(
        [
            varied.slates.expect_rewards(c, 0, rankings) - plain.slates.expect_rewards(c, 0, rankings)
            for c in of_customers
        ]
    )
    assert np.ptp(effects, axis=1).max() < 1e-9  # the same for all slates
    spread = plain.values.fixed - plain.values.random
    assert effects[:, 0].std() == pytest.approx(2.0 * spread, rel=1e-6)


def test_contexts_without_meaning_say_nothing() -> None:
    shop = build("strangers", seed=0, rounds=10)
    contexts = shop.slates.customers.contexts
    assert len(np.unique(contexts[:, 1:], axis=0)) == len(contexts)
    rankings = random_rankings(np.arange(50), slate_size=5, count=4, rng=_rng())
    assert (shop.slates.expect_rewards(0, 0, rankings) == shop.slates.expect_rewards(9, 0, rankings)).all()
    assert shop.values.contextual == pytest.approx(shop.values.fixed, rel=1e-9)


def test_few_customers_have_names() -> None:
    shop = build("regulars", seed=0, rounds=10)
    assert shop.slates.customers.contexts.tolist() == np.eye(4).tolist()
    assert shop.size[:4] == (40, 3, 4, 4)


def test_candidates_are_drawn_anew_for_each_request() -> None:
    shop, rng = build("candidates", seed=0, rounds=50), _rng()
    seen = [shop.request(number, rng).eligible for number in range(50)]
    assert all(one is not None and len(one) == 30 and (np.diff(one) > 0).all() for one in seen)
    counts = np.bincount(np.concatenate(seen), minlength=300)  # type: ignore[arg-type]
    assert len(counts) == 300
    assert 0 < counts.max() < 20  # of 5 on average


def test_late_rewards_come_when_they_say() -> None:
    rng = _rng()
    late = np.array([SHOPS["late"].wait.feedback(7, rng).round_number - 8 for _ in range(4000)])
    assert (late.min(), late.max()) == (20, 200)
    assert late.mean() == pytest.approx(110.0, abs=4.0)
    assert SHOPS["next-day"].wait.feedback(7, rng).round_number == 8 + DAY
    assert SHOPS["noisy"].wait.feedback(7, rng).round_number == 8


def test_a_sudden_change_comes_half_way_and_exchanges_half() -> None:
    shop, rng = build("sudden", seed=0, rounds=20), _rng()
    assert [shop.request(number, rng).phase for number in range(20)] == [0] * 10 + [1] * 10
    before, after = shop.slates.items  # type: ignore[attr-defined]
    assert (before != after).any(axis=1).sum() == 25
    assert sorted(before.tolist()) == sorted(after.tolist())
    calm = build("noisy", seed=0, rounds=20)
    assert (calm.slates.items[0] == before).all()  # type: ignore[attr-defined]


def test_all_items_that_change_places_change() -> None:
    items = np.arange(14.0).reshape(7, 2)
    before, after = swap_half(items, _rng())
    assert (before == items).all()
    assert (before != after).any(axis=1).sum() == 3


def test_slow_change_has_the_half_life_it_says() -> None:
    items = _rng().normal(size=(4000, 2))
    phases = random_walk(items, _rng(), n_phases=41, half_life=20.0)
    for late, correlation in ((1, 0.5 ** (1 / 20)), (20, 0.5), (40, 0.25)):
        for one, other in zip(phases[0].T, phases[late].T, strict=True):
            assert np.corrcoef(one, other)[0, 1] == pytest.approx(correlation, abs=4.0 / math.sqrt(4000))
    np.testing.assert_allclose(phases[40].std(axis=0), items.std(axis=0), rtol=0.06)


def test_shops_of_given_factors() -> None:
    factors = synthetic(_rng(), n_users=60, n_items=55, dim=3)
    shop = replace(SHOPS["candidates"], n_items=300).build("candidates", seed=0, rounds=10, factors=factors)
    assert shop.size[:4] == (55, 5, 4, 60)
    other = Factors(factors.users, factors.items[::-1])
    assert SHOPS["films"].build("films", seed=0, rounds=5, factors=other).size[:4] == (50, 5, 4, 60)
    # Inner products are the factors' own.
    utilities = np.sort([shop.slates.utilities(customer, 0) for customer in range(60)], axis=None)
    np.testing.assert_allclose(utilities, np.sort(factors.users @ factors.items.T, axis=None), atol=1e-12)


def test_the_best_order() -> None:
    assert best_order(np.array([3.0, 9.0, 1.0, 4.0]), 2).tolist() == [1, 3]
    assert best_order(np.array([3.0, 9.0]), 2).tolist() == [1, 0]


def test_a_climb_ends_where_no_neighbour_is_better() -> None:
    rng = _rng()
    table = rng.normal(size=(6, 6, 6))
    found = climb(lambda rows: table[tuple(rows.T)], np.array([[0, 1, 2], [3, 4, 5]], dtype=np.int32), n_items=6)
    assert found.value == table[tuple(found.ranking)]
    rankings = all_rankings(np.arange(6), slate_size=3)
    near = rankings[((rankings != found.ranking).sum(axis=1) == 1) | _exchanged(rankings, found.ranking)]
    assert len(near) == 3 * 3 + 3
    assert table[tuple(near.T)].max() < found.value


def _exchanged(rankings: np.ndarray, ranking: np.ndarray) -> np.ndarray:
    same_items = (np.sort(rankings, axis=1) == np.sort(ranking)).all(axis=1)
    return np.asarray(same_items & ((rankings != ranking).sum(axis=1) == 2))


def test_gaussian_rewards_have_their_unit() -> None:
    shop = replace(TINY["gaussian"], rewards=Gaussian(offset=-3.0, unit=20.0)).build("g", seed=0, rounds=20)
    assert shop.values.random == pytest.approx(-3.0, abs=1.5)
    assert shop.values.fixed - shop.values.random == pytest.approx(20.0, rel=0.1)


@pytest.mark.parametrize("name", ["clicks", "purchases"])
def test_a_reward_is_the_outcome_of_one_item_in_odds_of_what_it_adds(name: str) -> None:
    shop, rng = tiny(name), _rng()
    slates, request = shop.slates, Request(0, 0, None)
    assert isinstance(slates, ScoredSlates)
    assert isinstance(slates.outcome, Clicks | Purchases)
    ranking = np.arange(slates.slate_size, dtype=np.int32)
    counts = np.zeros(slates.slate_size)
    for _ in range(4000):
        reward, outcomes = shop.draw(request, ranking, rng)
        assert outcomes is not None
        assert (outcomes.sum(), np.count_nonzero(outcomes)) == (reward, int(reward > 0.0))
        counts += outcomes > 0.0
    odds = np.exp(slates.outcome.scale * slates.position_weights * slates.utilities(0, 0)[ranking])
    expected = counts.sum() * odds / odds.sum()
    assert ((counts - expected) ** 2 / expected).sum() < 20.0
    assert not np.allclose(expected, expected.mean(), rtol=0.05)


def test_films_that_are_clicked_have_an_outcome_of_one() -> None:
    shop, rng = tiny("list"), _rng()
    slates, request = shop.slates, Request(0, 0, None)
    assert isinstance(slates, CascadeSlates)
    ranking = np.arange(slates.slate_size, dtype=np.int32)
    drawn = np.array([shop.draw(request, ranking, rng).outcomes for _ in range(4000)])
    location, scale = slates.attraction
    clicks, looks = expit(location + scale * slates.utilities(0, 0)[ranking]), 1.0
    for place, click in enumerate(clicks.tolist()):
        error = math.sqrt(0.25 / len(drawn))
        assert abs(drawn[:, place].mean() - looks * click) < 4.5 * error
        looks *= slates.reading.stays + (slates.reading.stays_after_click - slates.reading.stays) * click


def test_a_shop_with_noise_does_not_know_what_an_item_did() -> None:
    shop = tiny("gaussian")
    ranking = np.arange(shop.slates.slate_size, dtype=np.int32)
    assert shop.draw(Request(0, 0, None), ranking, _rng()).outcomes is None
