"""Slates that earn by a score: utilities of items weighted by position, effects of pairs, and of the customer alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from topk_bandit.lab.simulation.battery.outcomes import Clicks, Purchases
from topk_bandit.lab.simulation.battery.search import best_order
from topk_bandit.lab.simulation.battery.shop import Earned
from topk_bandit.learning.slate_functions import SlateFunction, maximiser

if TYPE_CHECKING:
    from topk_bandit.lab.simulation.battery.customers import Customers
    from topk_bandit.lab.simulation.battery.outcomes import Outcome
    from topk_bandit.learning.rankings import Rankings

__all__ = ["ScoredSlates", "discounts"]

FloatArray = NDArray[np.float64]


def discounts(slate_size: int) -> FloatArray:
    """Return 1 / log2(a + 1) of each position, that of the first being one."""
    return np.asarray(1.0 / np.log2(np.arange(2, slate_size + 2)))


@dataclass(frozen=True, slots=True, eq=False)
class ScoredSlates:
    """Expected rewards that grow with a score.

    ::

        score = sum_a w_a (v_{pi_a} . u) + sum_{a < b} W[pi_a, pi_b] + m_u

    Attributes
    ----------
    items
        Factors v in each phase, shape (P, n, f).
    customers
        Preferences u are the customers'.
    position_weights
        Positive weights w, descending, shape (k,).
    outcome
        From scores to rewards.
    pair_scores
        Symmetric W, shape (n, n); None for no effects of pairs.
    main_effects
        What customers bring to any slate, m, shape (U,).
    """

    items: FloatArray
    customers: Customers
    position_weights: FloatArray
    outcome: Outcome
    pair_scores: FloatArray | None = None
    main_effects: FloatArray | None = None
    _best_scores: dict[tuple[int, int], float] = field(default_factory=dict, init=False, repr=False)

    @property
    def slate_size(self) -> int:
        """K."""
        return len(self.position_weights)

    @property
    def n_items(self) -> int:
        """How many items there are."""
        return int(self.items.shape[1])

    @property
    def n_phases(self) -> int:
        """How many states of its preferences the shop goes through."""
        return len(self.items)

    @property
    def is_additive(self) -> bool:
        """Whether items earn alone, so that the best slate is found by sorting."""
        return self.pair_scores is None

    def utilities(self, customer: int, phase: int) -> FloatArray:
        """Return what each item is worth to a customer, shape (n,)."""
        return np.asarray(self.items[phase] @ self.customers.preferences[customer])

    def scores(self, customer: int, phase: int, rankings: Rankings) -> FloatArray:
        """Return the scores of `rankings` (A, k), shape (A,)."""
        scores = self.utilities(customer, phase)[rankings] @ self.position_weights
        if self.pair_scores is not None:
            first, second = np.triu_indices(self.slate_size, 1)
            scores = scores + self.pair_scores[rankings[:, first], rankings[:, second]].sum(axis=1)
        if self.main_effects is not None:
            scores = scores + self.main_effects[customer]
        return np.asarray(scores)

    def expect_rewards(self, customer: int, phase: int, rankings: Rankings) -> FloatArray:
        """Return the expected rewards of `rankings` (A, k), shape (A,)."""
        return self.outcome.mean(self.scores(customer, phase, rankings))

    def draw(self, customer: int, phase: int, ranking: NDArray[np.int32], rng: np.random.Generator) -> Earned:
        """Return a reward as the customer would give it, and which item earned it where that is one of them."""
        reward = self.outcome.draw(float(self.scores(customer, phase, ranking[None])[0]), rng)
        return Earned(reward, self._attribute(customer, phase, ranking, reward, rng))

    def _attribute(
        self, customer: int, phase: int, ranking: NDArray[np.int32], reward: float, rng: np.random.Generator
    ) -> FloatArray | None:
        """Return a reward as the outcome of one item: more likely, in odds, the more it adds to the score's.

        It takes nothing of the generator: rewards are the same whether somebody asks for the outcomes or not.
        """
        if not isinstance(self.outcome, Clicks | Purchases):
            return None
        outcomes = np.zeros(self.slate_size)
        if reward:
            odds = np.exp(self.outcome.scale * self.position_weights * self.utilities(customer, phase)[ranking])
            luck = rng.spawn(1)[0].random()
            place = np.searchsorted(np.cumsum(odds / odds.sum()), luck)
            outcomes[min(int(place), self.slate_size - 1)] = reward
        return outcomes

    def best(self, customer: int, phase: int, eligible: NDArray[np.int32] | None) -> float:
        """Return the largest expected reward of any slate of the eligible items, or of all."""
        if self.is_additive:
            return float(self.outcome.mean(np.array(self._best_sum(customer, phase, eligible))))
        if eligible is not None:
            return float(self.outcome.mean(np.array(self._search(customer, phase, eligible))))
        key = customer, phase
        if key not in self._best_scores:
            self._best_scores[key] = self._search(customer, phase, np.arange(self.n_items, dtype=np.int32))
        return float(self.outcome.mean(np.array(self._best_scores[key])))

    def _best_sum(self, customer: int, phase: int, eligible: NDArray[np.int32] | None) -> float:
        utilities = self.utilities(customer, phase)
        if eligible is not None:
            utilities = utilities[eligible]
        best = utilities[best_order(utilities, self.slate_size)] @ self.position_weights
        return float(best) + (0.0 if self.main_effects is None else float(self.main_effects[customer]))

    def _search(self, customer: int, phase: int, eligible: NDArray[np.int32]) -> float:
        """Search from many starts; exact where there are few slates."""
        if self.pair_scores is None:
            raise AssertionError("additive slates need no search")
        k = self.slate_size
        function = SlateFunction(
            self.position_weights[:, None] * self.utilities(customer, phase),
            np.triu(np.ones((k, k)), 1),
            self.pair_scores,
            0.0,
        ).among(eligible)
        starts = best_order(function.position_scores[0], k)[None].astype(np.int32)
        found = eligible[maximiser(function, starts=starts, rng=np.random.default_rng([customer, phase]))]
        return float(self.scores(customer, phase, found[None])[0])
