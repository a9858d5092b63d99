"""Shops whose true rewards are known, so that true regret can be reported beside the service's own figures.

With the relevance s_i = sigmoid(6 c.theta_i - 0.3) of item i to a customer with preferences c, a slate pi earns on
average one of (paper, Section 5)::

    DCG             sum_a s_{pi_a} / log2(a + 1)
    nDCG            DCG / the largest DCG that any slate reaches, of whatever items of the shop
    diversity       1/k^2 sum_a sum_b theta_{pi_a}.theta_{pi_b}
    nDCG+diversity  lambda nDCG + (1 - lambda) diversity,  lambda = 0.25
    mostly nDCG     the same with lambda = 0.75
    nDCG+variety    0.75 nDCG + 0.25 (1 - mean cosine of the pairs of items shown)

The paper's diversity is the squared length of the mean of the items shown: it is largest for items that are alike. The
paper takes lambda = 0.25 "to emphasize relevance over diversity", for which its formula needs more than 0.5, such as
0.75. The last one, which is not the paper's, rewards items that differ.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from itertools import combinations
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.learning.rankings import random_rankings

if TYPE_CHECKING:
    from topk_bandit.learning.rankings import Rankings

__all__ = ["NOISE", "Factors", "Objective", "Shop"]

FloatArray = NDArray[np.float64]

NOISE = 0.05
"""Standard deviation of a reward around its expectation, the paper's."""

_LAMBDA = 0.25
_LAMBDA_OF_MOSTLY = 0.75
_RELEVANCE_SHARE = 0.75
_ENUMERATED = 20_000
"""So many sets of items are looked at one by one: all of 3 out of 50, and of 5 out of 20."""

_CLIMBS = 32
_BESTS = 4096


class Objective(StrEnum):
    """What a slate earns on average."""

    DCG = "DCG"
    NDCG = "nDCG"
    DIVERSITY = "diversity"
    NDCG_DIVERSITY = "nDCG+diversity"
    MOSTLY_NDCG = "mostly nDCG"
    NDCG_VARIETY = "nDCG+variety"


class Factors(NamedTuple):
    """User factors, shape (U, C), and item factors, shape (M, C), whose inner products are attractions."""

    users: FloatArray
    items: FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class Shop:
    """Customers with hidden preferences, and items with hidden factors.

    Attributes
    ----------
    customers
        Contexts of the customers who come by, shape (U, C).
    items
        Hidden item factors theta, shape (n, C).
    slate_size
        K.
    objective
        What a slate earns on average.
    noise
        Standard deviation of a reward around its expectation.
    preferences
        What the customers really like, shape (U, C): their contexts unless they moved on.
    """

    customers: FloatArray
    items: FloatArray
    slate_size: int
    objective: Objective
    noise: float
    preferences: FloatArray

    def __post_init__(self) -> None:
        n_items, dim = self.items.shape
        if not 1 <= self.slate_size <= n_items:
            raise InvalidArgumentError("slate_size", f"expected 1 to {n_items}, got {self.slate_size}")
        if self.customers.shape[1] != dim:
            raise InvalidArgumentError("customers", f"expected shape (U, {dim}), got {self.customers.shape}")
        if self.preferences.shape != self.customers.shape:
            raise InvalidArgumentError(
                "preferences", f"expected shape {self.customers.shape}, got {self.preferences.shape}"
            )
        if self.noise < 0.0:
            raise InvalidArgumentError("noise", f"expected at least 0, got {self.noise}")

    @classmethod
    def of(
        cls,
        factors: Factors,
        rng: np.random.Generator,
        *,
        n_items: int,
        slate_size: int,
        n_customers: int,
        objective: Objective,
        noise: float = NOISE,
    ) -> Shop:
        """Return a shop with some of the items and of the users, drawn without replacement (paper, Section 5).

        Raises
        ------
        InvalidArgumentError
            There are fewer items or users than wanted.
        """
        _check_enough("n_items", n_items, "items", len(factors.items))
        _check_enough("n_customers", n_customers, "users", len(factors.users))
        items = factors.items[rng.choice(len(factors.items), size=n_items, replace=False)]
        users = factors.users[rng.choice(len(factors.users), size=n_customers, replace=False)]
        return cls(users, items, slate_size, objective, noise, users)

    @classmethod
    def random(
        cls,
        rng: np.random.Generator,
        *,
        n_items: int = 50,
        slate_size: int = 6,
        context_dim: int = 5,
        n_customers: int = 40,
        objective: Objective = Objective.NDCG_VARIETY,
        noise: float = NOISE,
    ) -> Shop:
        """Return a shop with random preferences, contexts of norm 1; the defaults are the demo's."""
        customers = rng.normal(size=(n_customers, context_dim))
        items = rng.normal(size=(n_items, context_dim)) / np.sqrt(context_dim)
        customers /= np.linalg.norm(customers, axis=1, keepdims=True)
        return cls(customers, items, slate_size, objective, noise, customers)

    def with_preferences(self, preferences: FloatArray) -> Shop:
        """Return the shop once its customers like something else, shape (U, C); their contexts stay what they were."""
        return replace(self, preferences=preferences)

    def relevance(self, customer: int) -> FloatArray:
        """Return how relevant each item is to a customer, in [0, 1], shape (n,)."""
        return np.asarray(expit(6.0 * self.items @ self.preferences[customer] - 0.3), dtype=np.float64)

    def expect_rewards(self, customer: int, rankings: Rankings) -> FloatArray:
        """Return the expected rewards of `rankings` (A, k) for one customer, shape (A,)."""
        match self.objective:
            case Objective.DCG:
                return self._dcg(customer, rankings)
            case Objective.NDCG:
                return self._ndcg(customer, rankings)
            case Objective.DIVERSITY:
                return self._diversity(rankings)
            case Objective.NDCG_DIVERSITY:
                return self._with_diversity(customer, rankings, share=_LAMBDA)
            case Objective.MOSTLY_NDCG:
                return self._with_diversity(customer, rankings, share=_LAMBDA_OF_MOSTLY)
            case Objective.NDCG_VARIETY:
                relevance, variety = self._ndcg(customer, rankings), self._variety(rankings)
                return _RELEVANCE_SHARE * relevance + (1.0 - _RELEVANCE_SHARE) * variety

    def draw(self, customer: int, ranking: NDArray[np.int32], rng: np.random.Generator) -> float:
        """Return a reward as the customer would give it: its expectation and the noise."""
        return float(self.expect_rewards(customer, ranking[None])[0] + self.noise * rng.normal())

    def best(self, customer: int, eligible: NDArray[np.int32] | None = None) -> float:
        """Return the largest expected reward of any slate of the eligible items, or of all, for one customer.

        A set of items earns most in the order of relevance, whatever the objective. So all sets are looked at where
        there are not too many of them (3 out of 50 items); beyond, what is returned is the best end of many climbs from
        set to set. For DCG and nDCG the most relevant items are the best.
        """
        of_all = np.arange(len(self.items), dtype=np.int32) if eligible is None else eligible.astype(np.int32)
        preference = self.preferences[customer]
        return _best(self.items.tobytes(), preference.tobytes(), self.slate_size, self.objective, of_all.tobytes())

    @property
    def _discount(self) -> FloatArray:
        return np.asarray(1.0 / np.log2(np.arange(2, self.slate_size + 2)))

    def _dcg(self, customer: int, rankings: Rankings) -> FloatArray:
        return np.asarray(self.relevance(customer)[rankings] @ self._discount)

    def _ndcg(self, customer: int, rankings: Rankings) -> FloatArray:
        ideal = np.sort(self.relevance(customer))[::-1][: self.slate_size] @ self._discount
        return np.asarray(self._dcg(customer, rankings) / ideal)

    def _with_diversity(self, customer: int, rankings: Rankings, *, share: float) -> FloatArray:
        return share * self._ndcg(customer, rankings) + (1.0 - share) * self._diversity(rankings)

    def _diversity(self, rankings: Rankings) -> FloatArray:
        mean = self.items[rankings].mean(axis=1)
        return np.asarray((mean * mean).sum(axis=1))

    def _variety(self, rankings: Rankings) -> FloatArray:
        unit = self.items / np.linalg.norm(self.items, axis=1, keepdims=True)
        cosine = unit @ unit.T
        first, second = np.triu_indices(self.slate_size, 1)
        if not len(first):
            return np.ones(len(rankings))
        return np.asarray(1.0 - cosine[rankings[:, first], rankings[:, second]].mean(axis=1))


def _check_enough(field: str, wanted: int, what: str, there: int) -> None:
    if not 1 <= wanted <= there:
        raise InvalidArgumentError(field, f"expected 1 to {there}, the {what} that there are, got {wanted}")


@lru_cache(maxsize=_BESTS)
def _best(items: bytes, preference: bytes, slate_size: int, objective: Objective, eligible: bytes) -> float:
    """Return `Shop.best`, by contents: policies that are compared meet the same customers in equal shops."""
    only = np.frombuffer(preference)[None]
    shop = Shop(only, np.frombuffer(items).reshape(-1, only.shape[1]), slate_size, objective, 0.0, only)
    return _best_of(shop, np.frombuffer(eligible, dtype=np.int32))


def _best_of(shop: Shop, items: NDArray[np.int32]) -> float:
    """Return the largest expected reward of any slate of some items, for the first customer."""
    k = shop.slate_size
    by_relevance = items[np.argsort(-shop.relevance(0)[items], kind="stable")]
    if shop.objective in {Objective.DCG, Objective.NDCG}:
        return float(shop.expect_rewards(0, by_relevance[None, :k])[0])
    if math.comb(len(items), k) <= _ENUMERATED:
        return float(shop.expect_rewards(0, by_relevance[_sets(len(items), k)]).max())
    starts = random_rankings(np.arange(len(items)), slate_size=k, count=_CLIMBS, rng=np.random.default_rng(0))
    return max(_climb(shop, by_relevance, chosen) for chosen in starts)


@lru_cache(maxsize=8)
def _sets(n_items: int, slate_size: int) -> Rankings:
    """Return all sets of k indices, each ascending, shape (n choose k, k)."""
    return np.array(list(combinations(range(n_items), slate_size)), dtype=np.int32)


def _climb(shop: Shop, by_relevance: NDArray[np.int32], chosen: NDArray[np.int32]) -> float:
    value = -np.inf
    while True:
        neighbours = _neighbours(chosen, len(by_relevance))
        rewards = shop.expect_rewards(0, by_relevance[neighbours])
        if rewards.max() <= value:
            return float(value)
        value, chosen = float(rewards.max()), neighbours[int(np.argmax(rewards))]


def _neighbours(chosen: NDArray[np.int32], n_items: int) -> Rankings:
    """Return the set itself and each with one of its indices replaced, ascending, shape (1 + k (n - k), k)."""
    outside, k = np.setdiff1d(np.arange(n_items), chosen), len(chosen)
    rows = np.tile(chosen, (1 + k * len(outside), 1))
    rows[np.arange(1, len(rows)), np.repeat(np.arange(k), len(outside))] = np.tile(outside, k)
    return np.sort(rows, axis=1).astype(np.int32)
