from __future__ import annotations

import math
from itertools import permutations

import numpy as np
import pytest

from topk_bandit.simulation.environments import Shop


def shop_of(seed: int = 0, *, n_items: int = 8, slate_size: int = 3, weight: float = 0.75, noise: float = 0.05) -> Shop:
    return Shop.random(
        np.random.default_rng(seed),
        n_items=n_items,
        slate_size=slate_size,
        context_dim=4,
        n_customers=6,
        relevance_weight=weight,
        noise=noise,
    )


def by_hand(shop: Shop, customer: int, slate: tuple[int, ...]) -> float:
    """Return the documented reward of one slate, one term at a time."""
    relevance = [1.0 / (1.0 + math.exp(-(6.0 * float(theta @ shop.customers[customer]) - 0.3))) for theta in shop.items]
    gain = sum(relevance[item] / math.log2(place + 2) for place, item in enumerate(slate))
    ideal = sum(
        value / math.log2(place + 2) for place, value in enumerate(sorted(relevance, reverse=True)[: len(slate)])
    )
    cosines = [
        float(shop.items[a] @ shop.items[b] / np.linalg.norm(shop.items[a]) / np.linalg.norm(shop.items[b]))
        for place, a in enumerate(slate)
        for b in slate[place + 1 :]
    ]
    diversity = 1.0 - (sum(cosines) / len(cosines) if cosines else 0.0)
    return shop.relevance_weight * gain / ideal + (1.0 - shop.relevance_weight) * diversity


@pytest.mark.parametrize("slate_size", [1, 2, 4])
@pytest.mark.parametrize("weight", [0.0, 0.75, 1.0])
def test_the_expected_reward_is_its_formula(slate_size: int, weight: float) -> None:
    shop = shop_of(slate_size=slate_size, weight=weight)
    slates = list(permutations(range(8), slate_size))[::11]
    for customer in range(6):
        expected = shop.expected(customer, np.array(slates, dtype=np.int32))
        np.testing.assert_allclose(expected, [by_hand(shop, customer, slate) for slate in slates], atol=1e-12)


# (8, 3) is enumerated; slates of 4, and 22 items, are climbed.
@pytest.mark.parametrize(("n_items", "slate_size"), [(8, 3), (5, 1), (9, 4), (6, 6), (22, 2), (22, 1)])
@pytest.mark.parametrize("weight", [0.3, 0.75])
def test_the_best_reward_is_that_of_the_best_of_all_slates(n_items: int, slate_size: int, weight: float) -> None:
    shop = shop_of(1, n_items=n_items, slate_size=slate_size, weight=weight)
    everything = np.array(list(permutations(range(n_items), slate_size)), dtype=np.int32)
    for customer in range(6):
        assert shop.best(customer) == pytest.approx(float(shop.expected(customer, everything).max()), abs=1e-12)
        assert shop.best(customer) == shop.best(customer)


def interaction(shop: Shop, customer: int) -> float:
    """Return what two items in two places are worth together, over what each is worth: zero for an additive reward."""
    slates = np.array([[0, 1], [2, 3], [0, 3], [2, 1]], dtype=np.int32)
    both = shop.expected(customer, slates)
    return float(both[0] + both[1] - both[2] - both[3])


def test_the_reward_is_not_additive_over_the_items() -> None:
    shop = shop_of(2, slate_size=2)
    assert all(abs(interaction(shop, customer)) > 1e-3 for customer in range(6))
    only_relevance = shop_of(2, slate_size=2, weight=1.0)
    assert all(abs(interaction(only_relevance, customer)) < 1e-12 for customer in range(6))


def test_the_order_of_a_slate_matters_to_its_relevance() -> None:
    shop = shop_of(3)
    forward, backward = shop.expected(0, np.array([[0, 1, 2], [2, 1, 0]], dtype=np.int32))
    assert abs(forward - backward) > 1e-3


@pytest.mark.parametrize("noise", [0.0, 0.2])
def test_a_drawn_reward_is_its_expectation_and_the_noise(noise: float) -> None:
    shop = shop_of(4, noise=noise)
    slate = np.array([5, 0, 7], dtype=np.int32)
    rng = np.random.default_rng(0)
    drawn = np.array([shop.draw(1, slate, rng) for _ in range(2000)])
    expected = float(shop.expected(1, slate[None])[0])
    assert abs(drawn.mean() - expected) <= 4.0 * noise / math.sqrt(2000) + 1e-12
    assert drawn.std() == pytest.approx(noise, rel=0.1, abs=1e-12)


def test_a_shop_is_a_function_of_its_generator() -> None:
    one, same, other = shop_of(5), shop_of(5), shop_of(6)
    assert one.items.tolist() == same.items.tolist()
    assert one.customers.tolist() == same.customers.tolist()
    assert one.items.tolist() != other.items.tolist()
    np.testing.assert_allclose(np.linalg.norm(one.customers, axis=1), 1.0)
    assert (one.items.shape, one.customers.shape) == ((8, 4), (6, 4))
