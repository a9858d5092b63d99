"""Implicit-feedback factors against dense normal equations, and on ratings with a structure that is known."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from topk_bandit.domain.errors import ConfigurationError
from topk_bandit.lab.experiments.least_squares import factors_of
from topk_bandit.lab.experiments.ratings_file import RatingsTable

N_USERS, N_ITEMS = 30, 24


def ratings_of(values: np.ndarray) -> RatingsTable:
    """Return the ratings of a table whose zeros are not rated."""
    user_of, item_of = np.nonzero(values)
    return RatingsTable(
        np.arange(len(values)),
        np.arange(values.shape[1]),
        user_of,
        item_of,
        values[user_of, item_of].astype(np.float64),
    )


def table(seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    rated = rng.random((N_USERS, N_ITEMS)) < rng.uniform(0.05, 0.7, size=N_ITEMS)
    return np.where(rated, rng.integers(1, 11, size=rated.shape) / 2.0, 0.0)


def best_given(others: np.ndarray, values: np.ndarray, *, ridge: float) -> np.ndarray:
    """Return the rows that minimise the documented loss for each row of `values`, given the factors of its columns."""
    rows = []
    for row in values:
        confidence, preference = np.where(row > 0.0, 1.0 + row, 1.0), (row > 0.0).astype(float)
        normal = others.T @ np.diag(confidence) @ others + ridge * np.eye(others.shape[1])
        rows.append(np.linalg.solve(normal, others.T @ (confidence * preference)))
    return np.array(rows)


@pytest.mark.parametrize("ridge", [0.5, 10.0])
def test_factors_solve_the_normal_equations_of_each_other(ridge: float) -> None:
    values = table()
    found = factors_of(ratings_of(values), seed=1, ridge=ridge, sweeps=400)
    np.testing.assert_allclose(found.items, best_given(found.users, values.T, ridge=ridge), atol=1e-8)
    np.testing.assert_allclose(found.users, best_given(found.items, values, ridge=ridge), atol=1e-4)
    assert np.abs(found.users).max() > 0.1


@pytest.mark.parametrize("sweeps", [1, 4])
def test_so_many_sweeps_are_made_from_the_seeds_start(sweeps: int) -> None:
    values, rng = table(1), np.random.default_rng(7)
    rng.random((N_USERS, 5))
    items = 0.01 * rng.random((N_ITEMS, 5))
    for _ in range(sweeps):
        users = best_given(items, values, ridge=0.1)
        items = best_given(users, values.T, ridge=0.1)
    found = factors_of(ratings_of(values), seed=7, ridge=0.1, sweeps=sweeps)
    np.testing.assert_allclose(found.users, users, rtol=1e-7, atol=1e-12)
    np.testing.assert_allclose(found.items, items, rtol=1e-7, atol=1e-12)


def test_a_seed_gives_the_same_factors_to_the_bit() -> None:
    one, same, other = (factors_of(ratings_of(table()), seed=seed) for seed in (1, 1, 2))
    assert one.users.shape == (N_USERS, 5)
    assert one.users.tobytes() + one.items.tobytes() == same.users.tobytes() + same.items.tobytes()
    assert one.users.tolist() != other.users.tolist()


def test_what_was_not_rated_is_predicted_from_what_was() -> None:
    rng = np.random.default_rng(3)
    likes = np.repeat(np.eye(3), 40, axis=0) @ np.repeat(np.eye(3), 30, axis=1) > 0.0
    seen = likes & (rng.random(likes.shape) < 0.4)
    found = factors_of(ratings_of(4.0 * seen), seed=0)
    attraction = found.users @ found.items.T
    unseen_liked, unseen_disliked = attraction[likes & ~seen], attraction[~likes]
    assert unseen_liked.min() > unseen_disliked.max() + 0.1


def test_without_the_package_the_message_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "implicit", None)
    for name in [name for name in sys.modules if name.startswith("implicit.")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(ConfigurationError, match=r"ratings needs implicit: pip install 'topk-bandit\[ratings\]'"):
        factors_of(ratings_of(table()), seed=0)
