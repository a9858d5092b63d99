"""What the experiments `late-rewards` and `drift` play in: the paper's small contextual shop, as shops' lives go.

20 items, slates of 3, five users; where items come and go, 20 of 40 at a time. Circumstances that are made, and played,
with generators of the same seeds have the same shop, customers and noise, and differ in nothing else (but for the one
with 40 items). So a trial should give all of them the same seeds.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol

from topk_bandit.lab.simulation.scenarios import (
    AllItems,
    ComingAndGoing,
    Constant,
    Drift,
    Geometric,
    Incomplete,
    Scenario,
    SuddenChange,
)
from topk_bandit.learning.environments import Objective, Shop

if TYPE_CHECKING:
    import numpy as np

    from topk_bandit.lab.simulation.scenarios import Stock, Wait
    from topk_bandit.learning.environments import Factors

__all__ = [
    "DEADLINE",
    "DRIFT",
    "LATE_REWARDS",
    "N_CUSTOMERS",
    "N_ITEMS",
    "ROUNDS_OF_DRIFT",
    "ROUNDS_OF_LATE_REWARDS",
    "SLATE_SIZE",
    "Circumstance",
    "Make",
    "step_of_half_life",
]

N_ITEMS, SLATE_SIZE, N_CUSTOMERS = 20, 3, 5
DEADLINE = 50
"""So many rounds are rewards waited for that may never come."""

ROUNDS_OF_LATE_REWARDS, ROUNDS_OF_DRIFT = 200, 400


class Make(Protocol):
    """How a circumstance is drawn."""

    def __call__(self, factors: Factors, rng: np.random.Generator, *, objective: Objective, rounds: int) -> Scenario:
        """Return a shop of the factors, and what happens to it in so many rounds."""
        ...


class Circumstance(NamedTuple):
    """Something that may happen to a shop.

    Attributes
    ----------
    key
        What the CSV calls it.
    title
        What the figure calls it.
    make
        Draws a trial's; it can be pickled.
    """

    key: str
    title: str
    make: Make


def _waiting(
    factors: Factors,
    rng: np.random.Generator,
    *,
    objective: Objective,
    rounds: int,  # noqa: ARG001 - as of the protocol
    wait: Wait,
    n_items: int = N_ITEMS,
    stock: Stock | None = None,
) -> Scenario:
    return Scenario(_shop(factors, rng, objective, n_items), wait, stock or AllItems())


def _wandering(
    factors: Factors,
    rng: np.random.Generator,
    *,
    objective: Objective,
    rounds: int,  # noqa: ARG001 - as of the protocol
    step: float,
) -> Scenario:
    shop = _shop(factors, rng, objective, N_ITEMS)
    return Scenario(shop, Constant(), preferences=Drift(factors.users, step) if step else None)


def _changing(factors: Factors, rng: np.random.Generator, *, objective: Objective, rounds: int) -> Scenario:
    shop = _shop(factors, rng, objective, N_ITEMS)
    return Scenario(shop, Constant(), preferences=SuddenChange(factors.users, at=rounds // 2))


def _shop(factors: Factors, rng: np.random.Generator, objective: Objective, n_items: int) -> Shop:
    return Shop.of(factors, rng, n_items=n_items, slate_size=SLATE_SIZE, n_customers=N_CUSTOMERS, objective=objective)


def step_of_half_life(rounds: float) -> float:
    """Return the step of a `Drift` after which, in so many rounds, preferences correlate by 1/2 with the old ones."""
    return float((1.0 - 0.25 ** (1.0 / rounds)) ** 0.5)


def _missing(default: float | None) -> Make:
    return partial(_waiting, wait=Incomplete(Constant(), missing=0.3, deadline=DEADLINE, default=default))


LATE_REWARDS = (
    Circumstance("at_once", "at once", partial(_waiting, wait=Constant())),
    Circumstance("5_late", "5 rounds late", partial(_waiting, wait=Constant(5))),
    Circumstance("20_late", "20 rounds late", partial(_waiting, wait=Constant(20))),
    Circumstance("geometric_20", "late by 20 on average", partial(_waiting, wait=Geometric(20.0))),
    Circumstance("missing", "30 % never, left out", _missing(None)),
    Circumstance("missing_as_0", "30 % never, taken for 0", _missing(0.0)),
    Circumstance(
        "renewed",
        "5 rounds late, items come and go",
        partial(_waiting, wait=Constant(5), n_items=40, stock=ComingAndGoing(N_ITEMS, 10)),
    ),
)
"""What may become of rewards, and of items."""

DRIFT = (
    Circumstance("still", "preferences stay", partial(_wandering, step=0.0)),
    Circumstance("slow", "half forgotten in 200 rounds", partial(_wandering, step=step_of_half_life(200))),
    Circumstance("fast", "half forgotten in 50 rounds", partial(_wandering, step=step_of_half_life(50))),
    Circumstance("sudden", "all change at half time", _changing),
)
"""What may become of preferences; contexts stay what they were."""
