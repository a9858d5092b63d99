"""Shops whose true rewards are known, so that true regret can be reported beside the service's own figures."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import expit

from topk_bandit.learning.rankings import all_rankings, random_rankings

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from topk_bandit.learning.rankings import Rankings

__all__ = ["Shop"]

_EXHAUSTIVE_ITEMS = 20
_CLIMBS = 32


@dataclass(frozen=True, slots=True, eq=False)
class Shop:
    """A shop with hidden tastes and a reward that is not additive over the items of a slate.

    With relevance s_i = sigmoid(6 c.theta_i - 0.3) of item i to the customer c (paper, Section 5)::

        reward(c, pi) = w nDCG(c, pi) + (1 - w) (1 - mean cosine of the pairs of items shown) + noise

    Attributes
    ----------
    customers
        Contexts of the customers who come by, shape (U, C), of norm 1.
    items
        Hidden item factors theta, shape (n, C).
    relevance_weight
        w in [0, 1].
    noise
        Standard deviation of a reward around its expectation.
    """

    customers: NDArray[np.float64]
    items: NDArray[np.float64]
    slate_size: int
    relevance_weight: float
    noise: float

    @classmethod
    def random(
        cls,
        rng: np.random.Generator,
        *,
        n_items: int = 50,
        slate_size: int = 6,
        context_dim: int = 5,
        n_customers: int = 40,
        relevance_weight: float = 0.75,
        noise: float = 0.05,
    ) -> Shop:
        """Return a shop with random tastes; the defaults are the demo's."""
        customers = rng.normal(size=(n_customers, context_dim))
        items = rng.normal(size=(n_items, context_dim)) / np.sqrt(context_dim)
        customers /= np.linalg.norm(customers, axis=1, keepdims=True)
        return cls(customers, items, slate_size, relevance_weight, noise)

    def relevance(self, customer: int) -> NDArray[np.float64]:
        """Return how relevant each item is to a customer, in [0, 1], shape (n,)."""
        return np.asarray(expit(6.0 * self.items @ self.customers[customer] - 0.3), dtype=np.float64)

    def expected(self, customer: int, rankings: Rankings) -> NDArray[np.float64]:
        """Return the expected rewards of `rankings` (A, k) for one customer, shape (A,)."""
        relevance = self.relevance(customer)
        discount = 1.0 / np.log2(np.arange(2, self.slate_size + 2))
        ideal = np.sort(relevance)[::-1][: self.slate_size] @ discount
        ndcg = relevance[rankings] @ discount / ideal
        return np.asarray(self.relevance_weight * ndcg + (1.0 - self.relevance_weight) * self._diversity(rankings))

    def draw(self, customer: int, ranking: NDArray[np.int32], rng: np.random.Generator) -> float:
        """Return a reward as the customer would give it: its expectation and the noise."""
        return float(self.expected(customer, ranking[None])[0] + self.noise * rng.normal())

    def best(self, customer: int) -> float:
        """Return the largest expected reward of any slate for one customer.

        Exact by enumeration for up to 20 items and slates of 3; beyond, the best end of many climbs on the true reward.
        """
        return _best(self, customer)

    def _diversity(self, rankings: Rankings) -> NDArray[np.float64]:
        unit = self.items / np.linalg.norm(self.items, axis=1, keepdims=True)
        cosine = unit @ unit.T
        first, second = np.triu_indices(self.slate_size, 1)
        if not len(first):
            return np.ones(len(rankings))
        return np.asarray(1.0 - cosine[rankings[:, first], rankings[:, second]].mean(axis=1))


@cache
def _best(shop: Shop, customer: int) -> float:
    items = np.arange(len(shop.items))
    if len(items) <= _EXHAUSTIVE_ITEMS and shop.slate_size <= 3:
        return float(shop.expected(customer, all_rankings(items, slate_size=shop.slate_size)).max())
    starts = random_rankings(items, slate_size=shop.slate_size, count=_CLIMBS, rng=np.random.default_rng(customer))
    return max(_climb(shop, customer, start) for start in starts)


def _climb(shop: Shop, customer: int, ranking: NDArray[np.int32]) -> float:
    value = -np.inf
    while True:
        neighbours = _neighbours(ranking, len(shop.items))
        rewards = shop.expected(customer, neighbours)
        if rewards.max() <= value:
            return float(value)
        value, ranking = float(rewards.max()), neighbours[int(np.argmax(rewards))]


def _neighbours(ranking: NDArray[np.int32], n_items: int) -> Rankings:
    outside = np.setdiff1d(np.arange(n_items), ranking)
    rows = [ranking]
    for position in range(len(ranking)):
        replaced = np.tile(ranking, (len(outside), 1))
        replaced[:, position] = outside
        rows.extend(replaced)
        for other in range(position):
            exchanged = ranking.copy()
            exchanged[[position, other]] = exchanged[[other, position]]
            rows.append(exchanged)
    return np.array(rows, dtype=np.int32)
