"""Policies playing rounds in a shop of the battery.

>>> from topk_bandit.lab.simulation.battery.playing import play
>>> from topk_bandit.lab.simulation.policies import random_slates
>>> played = play("noisy", random_slates(), rounds=10, seed=0)
>>> bool((played.best >= played.expected).all())
True
"""

from __future__ import annotations

import heapq
import math
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from topk_bandit.lab.simulation.battery.catalogue import build
from topk_bandit.lab.simulation.battery.prices import price_exploration
from topk_bandit.lab.simulation.episodes import GpTopK, Late, Visit, check_slate, deliver
from topk_bandit.lab.simulation.mishaps import ErringClient

if TYPE_CHECKING:
    from collections.abc import Callable

    from topk_bandit.lab.simulation.battery.prices import Prices
    from topk_bandit.lab.simulation.battery.shop import Request, Shop
    from topk_bandit.lab.simulation.episodes import Player, ProblemSize
    from topk_bandit.lab.simulation.policies import Policy
    from topk_bandit.learning.decisions import Decision
    from topk_bandit.learning.environments import Factors

__all__ = ["Rounds", "make_player", "open_shop", "play", "play_in"]

FloatArray = NDArray[np.float64]

_OF_REQUESTS, _OF_REWARDS, _OF_WAITS, _OF_PLAYER = 1, 2, 3, 4


_ROUNDS_A_PRICE = 32
"""To know what one decision gives up takes as long as three decisions."""


class Rounds(NamedTuple):
    """What was played, all of shape (rounds,).

    Attributes
    ----------
    expected
        Expected reward of the slate shown, in its context.
    best
        The largest expected reward of any slate that could be shown.
    reward
        As it was given, whenever it came.
    heard
        How many rewards the policy had heard of before.
    mean, deviation, regret_bound, estimated_regret
        As given out with the decision; NaN for policies that give out none.
    of_bound, of_draw, of_near, of_uniform
        What exploration gave up, as of `Prices`; NaN for most rounds, and for policies that are not the service's.
    """

    expected: FloatArray
    best: FloatArray
    reward: FloatArray
    heard: FloatArray
    mean: FloatArray
    deviation: FloatArray
    regret_bound: FloatArray
    estimated_regret: FloatArray
    of_bound: FloatArray
    of_draw: FloatArray
    of_near: FloatArray
    of_uniform: FloatArray

    @property
    def regret(self) -> FloatArray:
        """True regret."""
        return self.best - self.expected


def play(
    shop: str,
    policy: Policy | Callable[[ProblemSize, np.random.Generator], Player],
    rounds: int,
    seed: int,
    *,
    factors: Factors | None = None,
) -> Rounds:
    """Build the shop of a name and a seed, and let a policy play in it.

    Parameters
    ----------
    policy
        A `Policy`, or a function that makes a player.
    factors
        Of users and items; None for synthetic ones.
    """
    opened = open_shop(shop, seed=seed, rounds=rounds, factors=factors)
    return play_in(opened, make_player(policy, opened, seed=seed), rounds=rounds, seed=seed)


def open_shop(name: str, *, seed: int, rounds: int, factors: Factors | None = None) -> Shop:
    """Return the shop of a name and a seed; one of synthetic factors is the same one as the last time."""
    if factors is None:
        return _build_once(name, seed, rounds)
    return build(name, seed=seed, rounds=rounds, factors=factors)


def make_player(
    policy: Policy | Callable[[ProblemSize, np.random.Generator], Player], shop: Shop, *, seed: int
) -> Player:
    """Return what plays by a policy in a shop."""
    make = policy if callable(policy) else policy.make
    return make(shop.size, np.random.default_rng([seed, _OF_PLAYER]))


def play_in(shop: Shop, player: Player, *, rounds: int, seed: int) -> Rounds:
    """Let a player play.

    Requests, luck and waits depend on the seed alone, so that all players meet the same. What is due after the last
    round is not heard.

    Raises
    ------
    InvalidArgumentError
        The player chose something that is no slate of eligible items.
    """
    of_requests, of_rewards, of_waits = (
        np.random.default_rng([seed, stream]) for stream in (_OF_REQUESTS, _OF_REWARDS, _OF_WAITS)
    )
    every_item = np.arange(shop.slates.n_items, dtype=np.int32)
    played = np.full((len(Rounds._fields), rounds), np.nan)
    late: list[Late] = []
    for t in range(rounds):
        deliver(player, late, before=t)
        request = shop.request(t, of_requests)
        eligible = every_item if request.eligible is None else request.eligible
        if t % _ROUNDS_A_PRICE == 0:
            played[8:, t] = _price(player, shop, request, eligible)
        ranking = player.choose(Visit(t, shop.context(request), eligible))
        check_slate(ranking, eligible, shop.slates.slate_size)
        reward, outcomes = shop.draw(request, ranking, of_rewards)
        played[:4, t] = shop.expect_rewards(request, ranking[None])[0], shop.best(request), reward, t - len(late)
        decision = _last_decision(player)
        if decision is not None:
            played[4:8, t] = (
                decision.mean,
                decision.standard_deviation,
                decision.regret_bound,
                decision.estimated_regret,
            )
        feedback = shop.wait.feedback(t, of_waits)
        heapq.heappush(late, Late(feedback.round_number, t, feedback, reward, outcomes))
    return Rounds(*played)


def _price(player: Player, shop: Shop, request: Request, eligible: NDArray[np.int32]) -> Prices | float:
    """Return what the service's next decision gives up, NaN for another player, and before the first reward."""
    player = player.player if isinstance(player, ErringClient) else player
    if not isinstance(player, GpTopK) or not player.state.posterior.n_rows:
        return math.nan
    return price_exploration(
        player.state,
        player.exploration,
        context=shop.context(request),
        eligible=eligible,
        expect=lambda rankings: shop.expect_rewards(request, rankings),
    )


def _last_decision(player: Player) -> Decision | None:
    """Return the service's latest decision, None for a player that has none."""
    if isinstance(player, ErringClient):
        return _last_decision(player.player)
    return player.last_decision if isinstance(player, GpTopK) else None


@lru_cache(maxsize=64)
def _build_once(shop: str, seed: int, rounds: int) -> Shop:
    """Build a shop for all policies that play in it one after the other, with what was searched for."""
    return build(shop, seed=seed, rounds=rounds)
