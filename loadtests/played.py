"""Bandits without the service, brought to a number of rewards in a simulated shop."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from topk_bandit.domain.bandits import Exploration, Kernel, PaperBeta
from topk_bandit.learning.decisions import decide
from topk_bandit.learning.limits import Limits
from topk_bandit.learning.policy import State, kernel_of
from topk_bandit.learning.rankings import random_rankings
from topk_bandit.process.settings import Settings

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from topk_bandit.learning.environments import Shop

__all__ = ["BEST_BY_UCB", "WIDE", "Played", "played", "shown_at_random"]

WIDE = Limits(rows=2000)
"""Wider than the service's, so that nothing is forgotten while it is timed."""

BEST_BY_UCB = Exploration(PaperBeta(Settings().beta_scale), uniform_share=0.0)
"""The service's acquisition, without the share of slates that are drawn uniformly."""


@dataclass(slots=True)
class Played:
    """A state, and all that went into it: contexts, rankings and rewards; then the slates without a reward."""

    state: State
    contexts: list[NDArray[np.float64]] = field(default_factory=list)
    rankings: list[NDArray[np.int32]] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    waiting: deque[tuple[str, int, NDArray[np.int32]]] = field(default_factory=deque)

    def show(self, shop: Shop, customer: int, ranking: NDArray[np.int32]) -> None:
        """Show a slate, whose reward waits."""
        slate_id = str(len(self.rewards) + len(self.waiting))
        self.state = self.state.shown(slate_id, shop.customers[customer], ranking)
        self.waiting.append((slate_id, customer, ranking))

    def reward(self, shop: Shop, rng: np.random.Generator) -> None:
        """Learn the reward of the slate that has waited longest."""
        slate_id, customer, ranking = self.waiting.popleft()
        context, reward = shop.customers[customer], shop.draw(customer, ranking, rng)
        self.state = self.state.rewarded(slate_id, context, ranking, reward=reward)
        self.contexts.append(context)
        self.rankings.append(ranking)
        self.rewards.append(reward)


def _beginner(shop: Shop, limits: Limits, kernel: Kernel) -> Played:
    n_items, context_dim = shop.items.shape
    of_rankings = kernel_of(kernel, n_items, shop.slate_size)
    return Played(State.initial(of_rankings, context_dim=context_dim, limits=limits))


def shown_at_random(
    shop: Shop,
    rng: np.random.Generator,
    *,
    rewards: int,
    pending: int,
    limits: Limits | None = None,
    kernel: Kernel = Kernel.ADAPTIVE,
) -> Played:
    """Return a bandit that saw random slates: every pair of items is in use before long."""
    bandit = _beginner(shop, limits or Limits(), kernel)
    slates = random_rankings(np.arange(len(shop.items)), slate_size=shop.slate_size, count=rewards + pending, rng=rng)
    for number, slate in enumerate(slates):
        bandit.show(shop, int(rng.integers(len(shop.customers))), slate)
        if number >= pending:
            bandit.reward(shop, rng)
    return bandit


def played(
    shop: Shop, rng: np.random.Generator, *, rewards: int, pending: int, kernel: Kernel = Kernel.ADAPTIVE
) -> Played:
    """Return a bandit that saw what it chose itself, as served by default, its rewards coming `pending` rounds late."""
    bandit, items = _beginner(shop, Limits(), kernel), np.arange(len(shop.items), dtype=np.int32)
    exploration = Settings().default_exploration
    for number in range(rewards + pending):
        customer = int(rng.integers(len(shop.customers)))
        decision = decide(bandit.state, exploration, context=shop.customers[customer], eligible=items, rng=rng)
        bandit.show(shop, customer, decision.ranking)
        if number >= pending:
            bandit.reward(shop, rng)
    return bandit
