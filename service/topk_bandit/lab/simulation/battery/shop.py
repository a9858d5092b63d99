"""A shop of the battery: what slates earn from customers, what can be shown, and when rewards come."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from topk_bandit.lab.simulation.battery.search import best_order, climb
from topk_bandit.lab.simulation.episodes import ProblemSize
from topk_bandit.learning.rankings import random_rankings

if TYPE_CHECKING:
    from topk_bandit.lab.simulation.battery.customers import Customers
    from topk_bandit.lab.simulation.scenarios import Wait
    from topk_bandit.learning.rankings import Rankings

__all__ = ["Earned", "Request", "Shop", "Slates", "Values"]

FloatArray = NDArray[np.float64]

_REFERENCES, _RANDOM_SLATES, _STARTS = 256, 64, 3


class Slates(Protocol):
    """What slates earn on average from customers, in each phase of a shop's life."""

    @property
    def customers(self) -> Customers:
        """Who comes by."""
        ...

    @property
    def slate_size(self) -> int:
        """K."""
        ...

    @property
    def n_items(self) -> int:
        """How many items there are."""
        ...

    @property
    def n_phases(self) -> int:
        """How many states of its preferences the shop goes through."""
        ...

    @property
    def is_additive(self) -> bool:
        """Whether items earn alone, so that the best slate is found by sorting."""
        ...

    def utilities(self, customer: int, phase: int) -> FloatArray:
        """Return what each item is worth to a customer, shape (n,)."""
        ...

    def expect_rewards(self, customer: int, phase: int, rankings: Rankings) -> FloatArray:
        """Return the expected rewards of `rankings` (A, k), shape (A,)."""
        ...

    def draw(self, customer: int, phase: int, ranking: NDArray[np.int32], rng: np.random.Generator) -> Earned:
        """Return a reward as the customer would give it, and what each item did."""
        ...

    def best(self, customer: int, phase: int, eligible: NDArray[np.int32] | None) -> float:
        """Return the largest expected reward of any slate of the eligible items, or of all."""
        ...


class Earned(NamedTuple):
    """A slate's reward and, where a shop has them, the outcomes of its items, shape (k,)."""

    reward: float
    outcomes: FloatArray | None


class Request(NamedTuple):
    """Who comes by in a round: a customer, in a phase of the shop's life; `eligible` is None for all items."""

    customer: int
    phase: int
    eligible: NDArray[np.int32] | None


class Values(NamedTuple):
    """Mean expected rewards of random slates, of the best fixed slate, and of the best slate for each request."""

    random: float
    fixed: float
    contextual: float


@dataclass(frozen=True, eq=False)
class Shop:
    """A shop.

    Attributes
    ----------
    name
        Of its kind.
    wait
        When rewards come.
    rounds
        How long its life is; its phases are equally long.
    candidates
        So many items, drawn anew, can be shown to a request; None for all.
    item_features
        As the kernel takes them, shape (n, q); None where the shop sends none.
    """

    name: str
    slates: Slates
    wait: Wait
    rounds: int
    candidates: int | None = None
    item_features: FloatArray | None = None

    @property
    def size(self) -> ProblemSize:
        """What every policy knows before its first round."""
        n_contexts, context_dim = self.slates.customers.contexts.shape
        return ProblemSize(self.slates.n_items, self.slates.slate_size, context_dim, n_contexts, self.item_features)

    def request(self, number: int, rng: np.random.Generator) -> Request:
        """Return the request of a round."""
        slates = self.slates
        phase = min(number * slates.n_phases // self.rounds, slates.n_phases - 1)
        customer = int(rng.integers(len(slates.customers.contexts)))
        if self.candidates is None:
            return Request(customer, phase, None)
        eligible = np.sort(rng.choice(slates.n_items, size=self.candidates, replace=False)).astype(np.int32)
        return Request(customer, phase, eligible)

    def context(self, request: Request) -> FloatArray:
        """Return what is seen of a request's customer, shape (C,)."""
        return np.asarray(self.slates.customers.contexts[request.customer])

    def expect_rewards(self, request: Request, rankings: Rankings) -> FloatArray:
        """Return the expected rewards of `rankings` (A, k), shape (A,)."""
        return self.slates.expect_rewards(request.customer, request.phase, rankings)

    def best(self, request: Request) -> float:
        """Return the largest expected reward of any slate that can be shown."""
        return self.slates.best(request.customer, request.phase, request.eligible)

    def draw(self, request: Request, ranking: NDArray[np.int32], rng: np.random.Generator) -> Earned:
        """Return a reward of a slate, and what each of its items did."""
        return self.slates.draw(request.customer, request.phase, ranking, rng)

    @cached_property
    def values(self) -> Values:
        """What can be reached, as means over requests spread over the shop's life."""
        return Values(self._mean_of_random, self._best_fixed, float(np.mean([self.best(one) for one in self._typical])))

    @property
    def spread(self) -> float:
        """From the mean of random slates to the best fixed slate."""
        return self._best_fixed - self._mean_of_random

    @cached_property
    def _typical(self) -> list[Request]:
        rng, rounds = np.random.default_rng(0), np.linspace(0, self.rounds - 1, _REFERENCES).astype(int)
        return [self.request(number, rng) for number in rounds.tolist()]

    @cached_property
    def _mean_of_random(self) -> float:
        rng = np.random.default_rng(1)
        return float(np.mean([self.expect_rewards(one, self._random_slates(one, rng)) for one in self._typical]))

    def _random_slates(self, request: Request, rng: np.random.Generator) -> Rankings:
        items = np.arange(self.slates.n_items) if request.eligible is None else request.eligible
        return random_rankings(items, slate_size=self.slates.slate_size, count=_RANDOM_SLATES, rng=rng)

    @cached_property
    def _best_fixed(self) -> float:
        """The best slate for all; where items differ by request, the first ones there of the best order."""
        slates, requests, rng = self.slates, self._typical, np.random.default_rng(2)
        utilities = np.mean([slates.utilities(one.customer, one.phase) for one in requests], axis=0)
        if self.candidates is not None:
            return float(np.mean([self.expect_rewards(one, self._first_there(one, utilities))[0] for one in requests]))
        starts = random_rankings(np.arange(slates.n_items), slate_size=slates.slate_size, count=_STARTS, rng=rng)
        starts[0] = best_order(utilities, slates.slate_size)
        if slates.is_additive:
            starts = starts[:1]
        return climb(
            lambda rows: np.mean([self.expect_rewards(one, rows) for one in requests], axis=0),
            starts,
            n_items=slates.n_items,
        ).value

    def _first_there(self, request: Request, utilities: FloatArray) -> Rankings:
        if request.eligible is None:
            raise AssertionError("all items can be shown")
        return request.eligible[best_order(utilities[request.eligible], self.slates.slate_size)][None]
