"""Who comes by: what a shop sees of customers, and what they prefer."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from topk_bandit.domain.features import Categorical, Feature, Features
from topk_bandit.lab.simulation.factors import synthetic
from topk_bandit.learning.environments import Factors
from topk_bandit.learning.item_features import ItemFeatures

__all__ = [
    "Customers",
    "category_features",
    "draw_factors",
    "gather_in_categories",
    "make_recognised",
    "one_hot",
    "random_walk",
    "swap_half",
    "unrecognisable",
]

FloatArray = NDArray[np.float64]


class Customers(NamedTuple):
    """Contexts, shape (U, C), and preferences, shape (U, f): an item's utility is its factors times these."""

    contexts: FloatArray
    preferences: FloatArray


def draw_factors(factors: Factors | None, rng: np.random.Generator, *, n_items: int, n_users: int) -> Factors:
    """Return factors of so many items and users: some of those given, or all if there are fewer, or synthetic ones.

    Users' factors are scaled to a mean square length of one, and items' so that inner products stay what they are.
    """
    source = factors or synthetic(rng, n_users=max(n_users, 1000), n_items=max(2 * n_items, 1000))
    items = source.items[rng.choice(len(source.items), size=min(n_items, len(source.items)), replace=False)]
    users = source.users[rng.choice(len(source.users), size=min(n_users, len(source.users)), replace=False)]
    length = float(np.sqrt((users**2).sum(axis=1).mean()))
    return Factors(users / length, items * length)


def gather_in_categories(items: FloatArray, categories: NDArray[np.integer], *, own: float) -> FloatArray:
    """Return factors that items of a category share but for a part of their own, shape (n, f).

    Each category has the factors of one of the items, the first ones. `own` is the part's share of the variance.
    """
    mean = items.mean(axis=0)
    return np.asarray(mean + np.sqrt(1.0 - own) * (items[categories] - mean) + np.sqrt(own) * (items - mean))


def category_features(categories: NDArray[np.integer]) -> FloatArray:
    """Return the categories of items as the service hands them to the kernel, shape (n, q)."""
    names = tuple(f"category {number}" for number in range(int(categories.max()) + 1))
    schema = (Feature("category", Categorical(names)),)
    features = [Features.of({"category": names[number]}) for number in categories.tolist()]
    places = np.arange(len(features), dtype=np.int32)
    return ItemFeatures.initial(schema, n_places=len(features)).change(places, features, free=places[:0]).rows


def make_recognised(users: FloatArray) -> Customers:
    """Return customers whose contexts say all there is to know: [1, factors]."""
    return Customers(np.column_stack([np.ones(len(users)), users]), users)


def unrecognisable(users: FloatArray, rng: np.random.Generator) -> Customers:
    """Return customers who all prefer the same, the mean, and whose contexts are noise: [1, five normal numbers]."""
    noise = rng.normal(size=users.shape) / np.sqrt(users.shape[1])
    return Customers(
        np.column_stack([np.ones(len(users)), noise]), np.repeat(users.mean(axis=0, keepdims=True), len(users), axis=0)
    )


def one_hot(users: FloatArray) -> Customers:
    """Return few customers, each with a context that says who it is and nothing else."""
    return Customers(np.eye(len(users)), users)


def swap_half(items: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Return factors before and after half of all items exchange theirs among each other, shape (2, n, f)."""
    chosen = rng.choice(len(items), size=len(items) // 2, replace=False)
    after = items.copy()
    after[chosen] = items[np.roll(chosen, 1)]
    return np.stack([items, after])


def random_walk(items: FloatArray, rng: np.random.Generator, *, n_phases: int, half_life: float) -> FloatArray:
    """Return factors that wander and keep their mean and covariance, shape (P, n, f).

    After `half_life` phases they are correlated by 1/2 with what they were.
    """
    stay = 0.5 ** (1.0 / half_life)
    mean = items.mean(axis=0)
    phases = np.empty((n_phases, *items.shape))
    phases[0] = items
    for p in range(1, n_phases):
        drawn = items[rng.permutation(len(items))]
        phases[p] = mean + stay * (phases[p - 1] - mean) + np.sqrt(1.0 - stay**2) * (drawn - mean)
    return phases
