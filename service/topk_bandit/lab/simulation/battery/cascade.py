"""Customers who go down a list, click on what attracts them, and leave: rewards of a cascade of clicks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from topk_bandit.lab.simulation.battery.search import best_order, climb
from topk_bandit.lab.simulation.battery.shop import Earned
from topk_bandit.learning.rankings import random_rankings

if TYPE_CHECKING:
    from topk_bandit.lab.simulation.battery.customers import Customers
    from topk_bandit.learning.rankings import Rankings

__all__ = ["CascadeSlates", "Reading"]

FloatArray = NDArray[np.float64]

_STARTS = 6


class Reading(NamedTuple):
    """How customers read a list.

    Attributes
    ----------
    slate_size
        K.
    stays, stays_after_click
        Probabilities of looking at the next item after one that was not clicked, and after one that was.
    discount
        What a click is worth is multiplied by this for each position above it.
    attention_cost
        For each item looked at.
    diversity_bonus
        Times one minus the mean cosine of the items shown, pair by pair.
    noise
        Standard deviation of what is added to a reward.
    """

    slate_size: int
    stays: float
    stays_after_click: float
    discount: float
    attention_cost: float
    diversity_bonus: float
    noise: float


@dataclass(frozen=True, slots=True, eq=False)
class CascadeSlates:
    """Expected rewards of lists that are read from the top.

    An item with utility v . u is clicked with probability sigmoid(a + b v . u), and its rating then is between 1 and 5
    and grows with the same utility::

        reward = sum of discount^a rating over clicks - cost * items looked at + bonus * diversity + noise

    Attributes
    ----------
    items
        Factors v in each phase, shape (P, n, f).
    customers
        Preferences u are the customers'.
    attraction
        The numbers a and b.
    """

    items: FloatArray
    customers: Customers
    reading: Reading
    attraction: tuple[float, float]
    _bests: dict[tuple[int, int], float] = field(default_factory=dict, init=False, repr=False)

    @property
    def slate_size(self) -> int:
        """K."""
        return self.reading.slate_size

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
        """Whether items earn alone: they never do here."""
        return False

    def utilities(self, customer: int, phase: int) -> FloatArray:
        """Return what each item is worth to a customer, shape (n,)."""
        return np.asarray(self.items[phase] @ self.customers.preferences[customer])

    def expect_rewards(self, customer: int, phase: int, rankings: Rankings) -> FloatArray:
        """Return the expected rewards of `rankings` (A, k), shape (A,)."""
        reading = self.reading
        clicks, ratings = self._clicks_and_ratings(customer, phase)
        total, looks, worth = self._diversity_worth(phase, rankings), np.ones(len(rankings)), 1.0
        for column in rankings.T:
            click = clicks[column]
            total += looks * (worth * click * ratings[column] - reading.attention_cost)
            looks = looks * (reading.stays + (reading.stays_after_click - reading.stays) * click)
            worth *= reading.discount
        return total

    def draw(self, customer: int, phase: int, ranking: NDArray[np.int32], rng: np.random.Generator) -> Earned:
        """Return a reward, and which items were clicked: clicks are drawn one by one."""
        reading, luck = self.reading, rng.random((2, self.slate_size))
        clicks, ratings = self._clicks_and_ratings(customer, phase)
        total, worth = float(self._diversity_worth(phase, ranking[None])[0]), 1.0
        total += reading.noise * rng.normal()
        outcomes = np.zeros(self.slate_size)
        for place, item in enumerate(ranking.tolist()):
            clicked = luck[0, place] < clicks[item]
            total += worth * ratings[item] * clicked - reading.attention_cost
            outcomes[place] = clicked
            if luck[1, place] >= (reading.stays_after_click if clicked else reading.stays):
                break
            worth *= reading.discount
        return Earned(float(total), outcomes)

    def best(self, customer: int, phase: int, eligible: NDArray[np.int32] | None) -> float:
        """Return the largest expected reward of any slate of the eligible items, or of all, by climbs."""
        if eligible is not None:
            return self._search(customer, phase, eligible)
        key = customer, phase
        if key not in self._bests:
            self._bests[key] = self._search(customer, phase, np.arange(self.n_items, dtype=np.int32))
        return self._bests[key]

    def _search(self, customer: int, phase: int, eligible: NDArray[np.int32]) -> float:
        rng = np.random.default_rng([customer, phase])
        starts = random_rankings(np.arange(len(eligible)), slate_size=self.slate_size, count=_STARTS, rng=rng)
        starts[0] = best_order(self.utilities(customer, phase)[eligible], self.slate_size)
        return climb(
            lambda rows: self.expect_rewards(customer, phase, eligible[rows]), starts, n_items=len(eligible)
        ).value

    def _clicks_and_ratings(self, customer: int, phase: int) -> tuple[FloatArray, FloatArray]:
        location, scale = self.attraction
        utilities = self.utilities(customer, phase)
        return expit(location + scale * utilities), 1.0 + 4.0 * expit(scale * utilities)

    def _diversity_worth(self, phase: int, rankings: Rankings) -> FloatArray:
        if self.slate_size < 2 or not self.reading.diversity_bonus:
            return np.zeros(len(rankings))
        items = self.items[phase]
        unit = items / np.maximum(np.linalg.norm(items, axis=1, keepdims=True), 1e-12)
        total = unit[rankings].sum(axis=1)
        k = self.slate_size
        cosine = ((total * total).sum(axis=1) - k) / (k * (k - 1))
        return np.asarray(self.reading.diversity_bonus * (1.0 - cosine))
