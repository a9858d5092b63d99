from __future__ import annotations

import math
from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.long_forms import examples

from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.learning import environments
from topk_bandit.learning.environments import Factors, Objective, Shop
from topk_bandit.learning.rankings import all_rankings

SUMS_OF_TERMS = (Objective.DCG, Objective.NDCG)


def shop_of(
    seed: int = 0,
    *,
    n_items: int = 8,
    slate_size: int = 3,
    objective: Objective = Objective.NDCG_VARIETY,
    noise: float = 0.05,
) -> Shop:
    return Shop.random(
        np.random.default_rng(seed),
        n_items=n_items,
        slate_size=slate_size,
        context_dim=4,
        n_customers=6,
        objective=objective,
        noise=noise,
    )


def relevance_by_hand(shop: Shop, customer: int) -> list[float]:
    return [1.0 / (1.0 + math.exp(-(6.0 * float(theta @ shop.preferences[customer]) - 0.3))) for theta in shop.items]


def dcg_by_hand(values: list[float]) -> float:
    return sum(value / math.log2(place + 2) for place, value in enumerate(values))


def by_hand(shop: Shop, customer: int, slate: tuple[int, ...]) -> float:
    """Return the documented reward of one slate, one term at a time."""
    relevance = relevance_by_hand(shop, customer)
    dcg = dcg_by_hand([relevance[item] for item in slate])
    ndcg = dcg / max(dcg_by_hand(list(order)) for order in permutations(relevance, len(slate)))
    products = [float(shop.items[a] @ shop.items[b]) for a in slate for b in slate]
    diversity = sum(products) / len(slate) ** 2
    cosines = [
        float(shop.items[a] @ shop.items[b] / np.linalg.norm(shop.items[a]) / np.linalg.norm(shop.items[b]))
        for place, a in enumerate(slate)
        for b in slate[place + 1 :]
    ]
    variety = 1.0 - (sum(cosines) / len(cosines) if cosines else 0.0)
    return {
        Objective.DCG: dcg,
        Objective.NDCG: ndcg,
        Objective.DIVERSITY: diversity,
        Objective.NDCG_DIVERSITY: 0.25 * ndcg + 0.75 * diversity,
        Objective.MOSTLY_NDCG: 0.75 * ndcg + 0.25 * diversity,
        Objective.NDCG_VARIETY: 0.75 * ndcg + 0.25 * variety,
    }[shop.objective]


@pytest.mark.parametrize("slate_size", [1, 2, 4])
@pytest.mark.parametrize("objective", Objective)
def test_the_expected_reward_is_its_formula(slate_size: int, objective: Objective) -> None:
    shop = shop_of(slate_size=slate_size, objective=objective, n_items=7)
    slates = list(permutations(range(7), slate_size))[::97] or [(0,)]
    for customer in range(3):
        expected = shop.expect_rewards(customer, np.array(slates, dtype=np.int32))
        np.testing.assert_allclose(expected, [by_hand(shop, customer, slate) for slate in slates], atol=1e-12)


def largest(shop: Shop, customer: int, items: np.ndarray) -> float:
    return float(shop.expect_rewards(customer, all_rankings(items, slate_size=shop.slate_size)).max())


@pytest.mark.parametrize(("n_items", "slate_size"), [(8, 3), (5, 1), (9, 4), (5, 5), (22, 2), (22, 1)])
@pytest.mark.parametrize("objective", Objective)
def test_the_best_reward_is_that_of_the_best_of_all_slates(n_items: int, slate_size: int, objective: Objective) -> None:
    shop = shop_of(1, n_items=n_items, slate_size=slate_size, objective=objective)
    for customer in range(6):
        assert shop.best(customer) == pytest.approx(largest(shop, customer, np.arange(n_items)), abs=1e-12)
        assert shop.best(customer) == shop.best(customer)


@pytest.mark.parametrize("objective", Objective)
def test_the_best_of_some_items_is_that_of_their_slates(objective: Objective) -> None:
    shop = shop_of(2, n_items=12, objective=objective)
    everything = [shop.best(customer) for customer in range(6)]
    for items in ([0, 3, 4, 7, 11], [1, 2, 5], [2, 3, 5, 6, 8, 9, 10]):
        eligible = np.array(items, dtype=np.int32)
        best = [shop.best(customer, eligible) for customer in range(6)]
        assert best == pytest.approx([largest(shop, customer, eligible) for customer in range(6)], abs=1e-12)
        assert all(some <= all_of_them + 1e-12 for some, all_of_them in zip(best, everything, strict=True))
        assert best != everything


@given(seed=st.integers(0, 2**32 - 1), objective=st.sampled_from(list(Objective)), data=st.data())
@settings(max_examples=examples(30), deadline=None)
def test_more_items_never_make_the_best_slate_worse(seed: int, objective: Objective, data: st.DataObject) -> None:
    shop = shop_of(seed, n_items=9, objective=objective)
    some = data.draw(st.sets(st.integers(0, 8), min_size=3))
    more = some | data.draw(st.sets(st.integers(0, 8)))
    few, many = (np.array(sorted(items), dtype=np.int32) for items in (some, more))
    assert shop.best(0, few) <= shop.best(0, many) + 1e-12
    assert shop.best(0, many) >= float(shop.expect_rewards(0, few[None, :3])[0]) - 1e-12


@pytest.mark.parametrize("objective", [Objective.NDCG_DIVERSITY, Objective.NDCG_VARIETY])
def test_the_best_of_the_papers_large_shop_is_that_of_all_its_rankings(objective: Objective) -> None:
    shop = shop_of(3, n_items=50, objective=objective)
    everything = all_rankings(np.arange(50), slate_size=3)
    assert len(everything) == 117_600
    for customer in range(2):
        assert shop.best(customer) == pytest.approx(float(shop.expect_rewards(customer, everything).max()), abs=1e-12)


@pytest.mark.parametrize("objective", [Objective.NDCG_DIVERSITY, Objective.MOSTLY_NDCG, Objective.NDCG_VARIETY])
@pytest.mark.parametrize(("n_items", "slate_size"), [(50, 3), (16, 6)])
def test_climbs_end_at_the_best_slate(
    monkeypatch: pytest.MonkeyPatch, objective: Objective, n_items: int, slate_size: int
) -> None:
    reached = []
    for enumerated in (0, 50_000):
        monkeypatch.setattr(environments, "_ENUMERATED", enumerated)
        environments._best.cache_clear()
        shops = [shop_of(seed, n_items=n_items, slate_size=slate_size, objective=objective) for seed in range(2)]
        reached.append([shop.best(customer) for shop in shops for customer in range(3)])
    environments._best.cache_clear()
    np.testing.assert_allclose(reached[0], reached[1], atol=1e-12)


@pytest.mark.parametrize("objective", Objective)
def test_the_best_belongs_to_its_shop_its_customer_and_its_items(objective: Objective) -> None:
    shop, other = (shop_of(seed, objective=objective) for seed in (8, 9))
    some = np.arange(4, dtype=np.int32)
    found = [shop.best(0), shop.best(0, some), other.best(0), other.best(0, some)]
    # Of all items the best nDCG is 1 in any shop.
    assert len(set(found)) == (3 if objective is Objective.NDCG else 4)
    assert shop_of(8, objective=objective).best(0) == shop.best(0)
    same_for_all = objective in {Objective.NDCG, Objective.DIVERSITY}
    assert (shop.best(1) == shop.best(0)) == same_for_all
    assert replace(shop, slate_size=2).best(0) == pytest.approx(largest(replace(shop, slate_size=2), 0, np.arange(8)))


def interaction(shop: Shop, customer: int) -> float:
    """Return what two items in two places are worth together, over what each is worth: zero for an additive reward."""
    slates = np.array([[0, 1], [2, 3], [0, 3], [2, 1]], dtype=np.int32)
    both = shop.expect_rewards(customer, slates)
    return float(both[0] + both[1] - both[2] - both[3])


@pytest.mark.parametrize("objective", Objective)
def test_only_relevance_is_additive_over_the_items(objective: Objective) -> None:
    shop = shop_of(2, slate_size=2, objective=objective)
    for customer in range(6):
        assert (abs(interaction(shop, customer)) < 1e-12) == (objective in SUMS_OF_TERMS)


def test_the_order_of_a_slate_matters_to_its_relevance() -> None:
    shop = shop_of(3)
    forward, backward = shop.expect_rewards(0, np.array([[0, 1, 2], [2, 1, 0]], dtype=np.int32))
    assert abs(forward - backward) > 1e-3


def test_the_papers_diversity_is_largest_for_items_that_are_alike_and_variety_for_others() -> None:
    items = np.array([[1.0, 0.0], [1.0, 0.01], [0.0, 1.0]])
    alike, different = np.array([[0, 1], [0, 2]], dtype=np.int32)
    for objective, better, worse in (
        (Objective.DIVERSITY, alike, different),
        (Objective.NDCG_VARIETY, different, alike),
    ):
        shop = Shop(np.zeros((1, 2)), items, 2, objective, 0.0, np.zeros((1, 2)))
        higher, lower = shop.expect_rewards(0, np.array([better, worse]))
        assert higher > lower + 0.1


@pytest.mark.parametrize("noise", [0.0, 0.2])
def test_a_drawn_reward_is_its_expectation_and_the_noise(noise: float) -> None:
    shop = shop_of(4, noise=noise)
    slate = np.array([5, 0, 7], dtype=np.int32)
    rng = np.random.default_rng(0)
    drawn = np.array([shop.draw(1, slate, rng) for _ in range(2000)])
    expected = float(shop.expect_rewards(1, slate[None])[0])
    assert abs(drawn.mean() - expected) <= 4.0 * noise / math.sqrt(2000) + 1e-12
    assert drawn.std() == pytest.approx(noise, rel=0.1, abs=1e-12)


def test_a_shop_is_a_function_of_its_generator() -> None:
    one, same, other = shop_of(5), shop_of(5), shop_of(6)
    assert one.items.tolist() == same.items.tolist()
    assert one.customers.tolist() == same.customers.tolist()
    assert one.items.tolist() != other.items.tolist()
    np.testing.assert_allclose(np.linalg.norm(one.customers, axis=1), 1.0)
    assert (one.items.shape, one.customers.shape) == ((8, 4), (6, 4))


FACTORS = Factors(np.arange(24.0).reshape(12, 2), -np.arange(20.0).reshape(10, 2))


def shop_of_factors(seed: int, *, n_items: int = 6, n_customers: int = 4) -> Shop:
    return Shop.of(
        FACTORS,
        np.random.default_rng(seed),
        n_items=n_items,
        slate_size=2,
        n_customers=n_customers,
        objective=Objective.NDCG,
    )


def test_a_shop_of_factors_has_some_of_their_items_and_users_each_once() -> None:
    shops = [shop_of_factors(seed) for seed in range(40)]
    for shop in shops:
        items, users = (shop.items[:, 0] / -2.0).tolist(), (shop.customers[:, 0] / 2.0).tolist()
        assert (len(set(items)), len(set(users))) == (6, 4)
        assert set(items) <= set(range(10))
        assert set(users) <= set(range(12))
        assert shop.preferences is shop.customers
    assert {tuple(row) for shop in shops for row in shop.items.tolist()} == {tuple(row) for row in FACTORS.items}
    assert {tuple(row) for shop in shops for row in shop.customers.tolist()} == {tuple(row) for row in FACTORS.users}
    assert shop_of_factors(1).items.tolist() == shop_of_factors(1).items.tolist()
    everything = shop_of_factors(0, n_items=10, n_customers=12)
    assert sorted(everything.items.tolist()) == sorted(FACTORS.items.tolist())


def test_customers_who_like_something_else_have_the_same_contexts() -> None:
    shop = shop_of(7)
    moved = shop.with_preferences(np.roll(shop.preferences, 1, axis=0))
    assert moved.customers is shop.customers
    assert moved.relevance(1).tolist() == shop.relevance(0).tolist()
    assert moved.best(1) != shop.best(1)


@pytest.mark.parametrize(("field", "change"), [("n_items", {"n_items": 11}), ("n_customers", {"n_customers": 13})])
def test_a_shop_needs_enough_factors(field: str, change: dict[str, int]) -> None:
    with pytest.raises(InvalidArgumentError, match=r"expected 1 to 1[02], the (items|users) that there are") as caught:
        shop_of_factors(0, **change)
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("field", "slate_size", "columns", "preferences", "noise"),
    [
        ("slate_size", 5, 2, (3, 2), 0.1),
        ("slate_size", 0, 2, (3, 2), 0.1),
        ("customers", 2, 3, (3, 3), 0.1),
        ("preferences", 2, 2, (2, 2), 0.1),
        ("noise", 2, 2, (3, 2), -0.1),
    ],
)
def test_a_shop_says_what_does_not_fit(
    field: str, slate_size: int, columns: int, preferences: tuple[int, int], noise: float
) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        Shop(np.ones((3, columns)), np.ones((4, 2)), slate_size, Objective.DCG, noise, np.ones(preferences))
    assert caught.value.field == field
