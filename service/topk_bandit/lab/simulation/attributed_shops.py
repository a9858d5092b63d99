"""Shops of thousands of items that have attributes, and what those play in them who know the attributes and who do not.

A slate pi of k of the candidates of a visit earns, in a context c of one and some normal numbers::

    sum_a d_a c.(Theta z_{pi_a} + e_{pi_a})        d_a = 1 / log2(a + 1), by their sum

with attributes z of unit length, weights Theta that all items share, and an own part e of each item, so that `own` of
the variance of what items are worth is no function of the attributes. Attributes that are useless are drawn anew.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from topk_bandit.lab.simulation.episodes import Visit
from topk_bandit.lab.simulation.ridge_posteriors import DenseRidge

if TYPE_CHECKING:
    from topk_bandit.lab.simulation.episodes import Player

__all__ = ["AttributeThompson", "AttributedShop", "Customs", "draw_attributes", "play", "requests_until_known"]

FloatArray = NDArray[np.float64]

_IN_A_ROW = 8


class Customs(NamedTuple):
    """What shops are like.

    Attributes
    ----------
    n_items, slate_size, context_dim
        n, k and C.
    n_attributes, n_candidates
        Numbers of an item, and items that a visit chooses among.
    own
        Share of the variance of what items are worth that their attributes do not tell.
    noise
        Standard deviation of a reward; items' own differ by about 1.
    """

    n_items: int = 5000
    slate_size: int = 6
    context_dim: int = 3
    n_attributes: int = 10
    n_candidates: int = 30
    own: float = 0.2
    noise: float = 0.3


@dataclass(frozen=True, slots=True, eq=False)
class AttributedShop:
    """A shop; `attributes` is of shape (n, q), and `worth` of each item by context coordinate, (n, C)."""

    customs: Customs
    attributes: FloatArray
    worth: FloatArray

    @classmethod
    def draw(cls, customs: Customs, rng: np.random.Generator) -> AttributedShop:
        """Draw one."""
        attributes = draw_attributes(customs, rng)
        weights = rng.normal(size=(customs.n_attributes, customs.context_dim))
        own = rng.normal(size=(customs.n_items, customs.context_dim))
        # What is the same for all customers counts more than what each of the context's numbers does.
        deviations = np.append(1.0, np.full(customs.context_dim - 1, 0.7))
        of_attributes = attributes @ weights * math.sqrt(customs.n_attributes) / np.linalg.norm(weights[:, 0])
        worth = deviations * (math.sqrt(1.0 - customs.own) * of_attributes + math.sqrt(customs.own) * own)
        return cls(customs, attributes, worth)

    @property
    def discounts(self) -> FloatArray:
        """What positions count, shape (k,)."""
        discounts = 1.0 / np.log2(np.arange(2, self.customs.slate_size + 2))
        return np.asarray(discounts / discounts.sum())

    def visit(
        self,
        number: int,
        rng: np.random.Generator,
        *,
        among: NDArray[np.integer] | None = None,
        also: int | None = None,
    ) -> Visit:
        """Draw a context and candidates, of some items or all; `also` is one of them in any case."""
        customs = self.customs
        context = np.append(1.0, rng.normal(size=customs.context_dim - 1))
        candidates = rng.choice(customs.n_items if among is None else among, customs.n_candidates, replace=False)
        if also is not None and also not in candidates:
            candidates[0] = also
        return Visit(number, context, np.sort(candidates).astype(np.int32))

    def expect_reward(self, context: FloatArray, ranking: NDArray[np.integer]) -> float:
        """Return the expected reward of a slate."""
        return float(self.discounts @ (self.worth[ranking] @ context))

    def best(self, context: FloatArray, eligible: NDArray[np.integer]) -> NDArray[np.integer]:
        """Return the best slate."""
        order = np.argsort(-(self.worth[eligible] @ context), kind="stable")
        return eligible[order[: self.customs.slate_size]]


def draw_attributes(customs: Customs, rng: np.random.Generator) -> FloatArray:
    """Draw attributes of unit length of all items, shape (n, q)."""
    drawn = rng.normal(size=(customs.n_items, customs.n_attributes))
    return np.asarray(drawn / np.linalg.norm(drawn, axis=1, keepdims=True))


class AttributeThompson:
    """Linear Thompson sampling on attributes and contexts: shows the items that are worth most in a draw.

    Parameters
    ----------
    shop
        Whose attributes and discounts it knows.
    rng
        Draws the weights.
    ridge, width
        As of `AdditiveThompson`.
    """

    def __init__(
        self, shop: AttributedShop, rng: np.random.Generator, *, ridge: float = 1.0, width: float = 1.0
    ) -> None:
        self._attributes = np.column_stack([np.ones(len(shop.attributes)), shop.attributes])
        self._discounts, self._rng, self._width = shop.discounts, rng, width
        self._dim = self._attributes.shape[1] * shop.customs.context_dim
        self._posterior = DenseRidge(self._dim, ridge=ridge)
        self._rows: dict[int, FloatArray] = {}

    def choose(self, visit: Visit) -> NDArray[np.int32]:
        """Return the slate for this round."""
        weights = self._posterior.draw(self._width, self._rng).reshape(self._attributes.shape[1], -1)
        order = np.argsort(-(self._attributes[visit.eligible] @ (weights @ visit.context)), kind="stable")
        ranking = visit.eligible[order[: len(self._discounts)]]
        self._rows[visit.number] = np.outer(self._discounts @ self._attributes[ranking], visit.context).ravel()
        return ranking

    def observe(self, number: int, reward: float) -> None:
        """Learn a reward."""
        self._posterior.observe(np.arange(self._dim), self._rows.pop(number), reward)

    def close(self, number: int) -> None:
        """Forget the slate."""
        del self._rows[number]


class _Played(NamedTuple):
    ranking: NDArray[np.int32]
    regret: float


def play(shop: AttributedShop, player: Player, *, rounds: int, rng: np.random.Generator) -> FloatArray:
    """Let a player play, each reward being learned at once; return the regret of each round, shape (rounds,)."""
    regret = np.empty(rounds)
    for number in range(rounds):
        regret[number] = _play_one(shop, player, shop.visit(number, rng), rng).regret
    return regret


def _play_one(shop: AttributedShop, player: Player, visit: Visit, rng: np.random.Generator) -> _Played:
    ranking = player.choose(visit)
    expected = shop.expect_reward(visit.context, ranking)
    player.observe(visit.number, float(expected + shop.customs.noise * rng.normal()))
    return _Played(ranking, shop.expect_reward(visit.context, shop.best(visit.context, visit.eligible)) - expected)


def requests_until_known(
    shop: AttributedShop, player: Player, *, rounds: int, arriving: int, most: int, rng: np.random.Generator
) -> int:
    """Return at which request the best item of all is known, which is shown wherever it belongs from then on.

    For some rounds a few items are not there, the best one (in the mean context) among them. Then they arrive, and it
    is a candidate of every request. It is shown wherever it belongs when that is so in `_IN_A_ROW` of the requests in
    whose best slates it is. If it is not known by request `most` that is returned.
    """
    good = int(np.argmax(shop.worth[:, 0]))
    others = rng.permutation(np.delete(np.arange(len(shop.worth)), good))
    there = np.sort(others[arriving - 1 :])
    for number in range(rounds):
        _play_one(shop, player, shop.visit(number, rng, among=there), rng)
    since, in_a_row = 1, 0
    for request in range(1, most + 1):
        visit = shop.visit(rounds + request, rng, also=good)
        belongs = good in shop.best(visit.context, visit.eligible)
        shown = good in _play_one(shop, player, visit, rng).ranking
        if belongs and not shown:
            since, in_a_row = request + 1, 0
        in_a_row += belongs and shown
        if in_a_row == _IN_A_ROW:
            return since
    return most
