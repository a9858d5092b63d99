from __future__ import annotations

import numpy as np
import pytest

from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.lab.simulation.factors import synthetic
from topk_bandit.learning.environments import Factors

QUANTILES = [0.1, 0.5, 0.9, 1.0]


@pytest.mark.parametrize("seed", range(3))
def test_inner_products_are_distributed_like_those_of_real_ratings(seed: int) -> None:
    users, items = synthetic(np.random.default_rng(seed))
    assert (users.shape, items.shape) == ((943, 5), (1682, 5))
    found = np.quantile(users @ items.T, QUANTILES)
    assert (np.abs(found - [-0.03, 0.03, 0.47, 1.61]) < [0.02, 0.04, 0.08, 0.2]).all()


@pytest.mark.parametrize("dim", [2, 3, 12])
def test_other_dimensions_keep_the_shape(dim: int) -> None:
    users, items = synthetic(np.random.default_rng(1), n_users=300, n_items=400, dim=dim)
    assert (users.shape, items.shape) == ((300, dim), (400, dim))
    low, middle, high, largest = np.quantile(users @ items.T, QUANTILES)
    assert -0.2 < low < 0.01 < middle < 0.1 < 0.3 < high < 0.7 < 1.2 < largest < 2.1


def test_popularity_is_heavy_tailed_and_shared_and_tastes_differ() -> None:
    users, items = synthetic(np.random.default_rng(2))
    popularity = np.sort((users @ items.T).mean(axis=0))[::-1]
    assert popularity[:168].sum() > 0.3 * popularity.sum()
    assert popularity[840:].sum() < 0.15 * popularity.sum()
    # One direction outweighs the others, and those are alike: what is not shared is spread over all of them.
    strengths = np.linalg.eigvalsh(items.T @ items)[::-1]
    assert strengths[0] > 2.5 * strengths[1]
    assert strengths[1] < 2.0 * strengths[-1]


def test_the_shared_direction_is_along_no_axis() -> None:
    shared = np.array(
        [synthetic(np.random.default_rng(seed), n_users=9, n_items=300).items.mean(axis=0) for seed in range(20)]
    )
    assert (np.abs(shared / np.linalg.norm(shared, axis=1, keepdims=True)).max(axis=1) < 0.99).sum() > 15
    assert np.linalg.norm(shared.mean(axis=0)) < 0.5 * np.linalg.norm(shared, axis=1).mean()


def test_factors_are_a_function_of_their_generator() -> None:
    one, same, other = (synthetic(np.random.default_rng(seed), n_users=7, n_items=9) for seed in (3, 3, 4))
    assert one.users.tobytes() + one.items.tobytes() == same.users.tobytes() + same.items.tobytes()
    assert one.items.tolist() != other.items.tolist()


@pytest.mark.parametrize(("field", "number"), [("n_users", 0), ("n_items", -1), ("dim", 1)])
def test_there_are_some_of_each(field: str, number: int) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        synthetic(np.random.default_rng(0), **{field: number})
    assert caught.value.field == field


def test_they_are_factors() -> None:
    assert isinstance(synthetic(np.random.default_rng(0), n_users=2, n_items=2), Factors)
