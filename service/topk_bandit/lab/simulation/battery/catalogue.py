"""The battery's shops by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.lab.simulation.battery.cascade import Reading
from topk_bandit.lab.simulation.battery.recipes import (
    Bernoulli,
    Change,
    Contexts,
    Gaussian,
    ListRecipe,
    LogNormal,
    Pairs,
    Recipe,
    StudentT,
)
from topk_bandit.lab.simulation.scenarios import Between, Constant

if TYPE_CHECKING:
    from topk_bandit.lab.simulation.battery.shop import Shop
    from topk_bandit.learning.environments import Factors

__all__ = ["DAY", "SHOPS", "AnyRecipe", "build"]

AnyRecipe: TypeAlias = Recipe | ListRecipe

DAY = 4000
"""Requests of a day, for rewards that come the next day."""

SHOPS: dict[str, AnyRecipe] = {
    "films": ListRecipe("lists of 5 of 50 films, read from the top"),
    "headlines": ListRecipe(
        "lists of 6 of 100 headlines, most readers leave after one",
        n_items=100,
        reading=Reading(6, 0.7, 0.2, 0.9, 0.0, 0.0, 1.0),
    ),
    "additive": Recipe("3 of 20 items, little noise", n_items=20, slate_size=3, rewards=Gaussian(noise=0.3)),
    "noisy": Recipe("5 of 50 items, noise as large as the spread"),
    "hundred": Recipe("5 of 100 items", n_items=100, rewards=Gaussian(offset=-3.0, unit=20.0)),
    "thousand": Recipe("5 of 1,000 items", n_items=1000, rewards=Gaussian(offset=0.0)),
    "candidates": Recipe("5 of 30 candidates of 300 items", n_items=300, candidates=30),
    "pairs": Recipe(
        "4 of 20 items, effects of all pairs", n_items=20, slate_size=4, n_customers=300, pairs=Pairs.RANDOM
    ),
    "redundancy": Recipe("5 of 50 items, alike ones are worth less", n_customers=300, pairs=Pairs.REDUNDANCY),
    "clicks-1": Recipe("clicks at 1 %, 4 of 30 items", n_items=30, slate_size=4, rewards=Bernoulli(0.01, 1.2)),
    "clicks-8": Recipe("clicks at 8 %, 5 of 50 items", rewards=Bernoulli(0.08)),
    "clicks-40": Recipe("clicks at 40 %, 6 of 100 items", n_items=100, slate_size=6, rewards=Bernoulli(0.4)),
    "late": Recipe("as noisy, rewards 20 to 200 requests late", wait=Between(20, 200)),
    "next-day": Recipe("as noisy, rewards a day late", wait=Constant(DAY)),
    "sudden": Recipe("as noisy, half of all preferences exchanged half way", change=Change.SUDDEN),
    "slow": Recipe("as noisy, preferences wander", change=Change.SLOW),
    "strangers": Recipe("5 of 50 items, contexts without meaning", contexts=Contexts.NOISE),
    "main-effect": Recipe("as noisy, customers vary twice as much as slates", main_effect=2.0),
    "heavy-tails": Recipe("as noisy, heavy tails", rewards=StudentT()),
    "purchases": Recipe("purchases, log-normal amounts, 4 of 40 items", n_items=40, slate_size=4, rewards=LogNormal()),
    "categories": Recipe(
        "4 of 300 items of 12 categories, which the shop sends; purchases",
        n_items=300,
        slate_size=4,
        rewards=LogNormal(),
        categories=12,
    ),
    "regulars": Recipe(
        "3 of 40 items, four customers by name", n_items=40, slate_size=3, n_customers=4, contexts=Contexts.ONE_HOT
    ),
}
"""What can be built, and played in."""


def build(name: str, *, seed: int, rounds: int, factors: Factors | None = None) -> Shop:
    """Return the shop of a name and a seed, with a life of so many rounds.

    Parameters
    ----------
    factors
        Of users and items, to draw customers and items from; None for synthetic ones.

    Raises
    ------
    InvalidArgumentError
        There is no shop with this name.
    """
    if name not in SHOPS:
        raise InvalidArgumentError("shop", f"expected one of {', '.join(SHOPS)}, got {name!r}")
    return SHOPS[name].build(name, seed=seed, rounds=rounds, factors=factors)
