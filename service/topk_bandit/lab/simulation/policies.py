"""Policies by name: what an experiment compares."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from topk_bandit.bandits.budget import MemoryBudget
from topk_bandit.domain.bandits import DEFAULT_EXPLORATION, Kernel
from topk_bandit.lab.simulation.arm_players import EpsilonGreedy, MabUcb, RandomPlayer
from topk_bandit.lab.simulation.episodes import GpTopK, GpTopKOfItems
from topk_bandit.learning.limits import Limits
from topk_bandit.learning.policy import State, kernel_of
from topk_bandit.learning.state_changes import change_item_features

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np

    from topk_bandit.domain.bandits import Exploration
    from topk_bandit.lab.simulation.episodes import Player, ProblemSize

__all__ = [
    "SERVICE",
    "Policy",
    "ageing_service",
    "armwise",
    "random_slates",
    "service",
    "service_player",
    "shipped_service",
]


@dataclass(frozen=True, slots=True)
class Policy:
    """A way to play.

    Attributes
    ----------
    name
        What tables and the CSV call it, with its parameter: "WCK 0.1".
    family
        What figures call it: "WCK". Of policies of one family a figure shows the one with the best result.
    make
        Returns a player for one trial. It must be something that can be pickled; all randomness is the generator's.
    """

    name: str
    family: str
    make: Callable[[ProblemSize, np.random.Generator], Player]


SERVICE = "GP-TopK (service)"


def random_slates() -> Policy:
    """Return the policy that shows random slates."""
    return Policy("Random", "Random", RandomPlayer.of)


def armwise() -> tuple[Policy, ...]:
    """Return the paper's baselines, which take every slate for an arm of its own (Appendix C.2)."""
    greedy = (
        Policy(f"epsilon-greedy {epsilon:g}", "epsilon-greedy", partial(EpsilonGreedy.of, epsilon=epsilon))
        for epsilon in (0.01, 0.05, 0.1)
    )
    bounds = (Policy(f"MAB-UCB {beta:g}", "MAB-UCB", partial(MabUcb.of, beta=beta)) for beta in (0.1, 0.25, 0.5))
    return (*greedy, *bounds)


def service(exploration: Exploration) -> Policy:
    """Return the service's policy, with its kernel and limits as they are unless somebody asks for others."""
    return Policy(SERVICE, SERVICE, partial(service_player, exploration))


def shipped_service(
    name: str = SERVICE,
    *,
    exploration: Exploration = DEFAULT_EXPLORATION,
    rows: int | None = None,
    half_life: float = math.inf,
    item_values: bool = False,
) -> Policy:
    """Return the service's policy as it is shipped, unless somebody asks for something else.

    Parameters
    ----------
    name
        Of the policy.
    exploration
        How it explores.
    rows
        How many it keeps; None for those of the default memory.
    half_life
        Rewards count half after so many rounds.
    item_values
        Whether it hears what each item did, in shops that say so.
    """
    make = partial(_shipped_player, exploration, rows=rows, half_life=half_life, item_values=item_values)
    return Policy(name, name, make)


def ageing_service(half_life: float) -> Policy:
    """Return the service's policy as it is shipped, for rewards that count half after so many rounds."""
    return shipped_service(f"half-life {half_life:g}", half_life=half_life)


def _shipped_player(
    exploration: Exploration,
    size: ProblemSize,
    rng: np.random.Generator,
    *,
    rows: int | None,
    half_life: float,
    item_values: bool,
) -> Player:
    limits = MemoryBudget().limits(context_dim=size.context_dim, slate_size=size.slate_size)
    limits = limits if rows is None else replace(limits, rows=rows)
    return service_player(exploration, size, rng, limits=limits, half_life=half_life, item_values=item_values)


def service_player(
    exploration: Exploration,
    size: ProblemSize,
    rng: np.random.Generator,
    *,
    limits: Limits | None = None,
    count_pending: bool = True,
    half_life: float = math.inf,
    item_values: bool = False,
) -> Player:
    """Return what plays by the service's policy; with other limits, or pending not counted, it shows their worth."""
    kernel = kernel_of(Kernel.ADAPTIVE, size.n_items, size.slate_size)
    state = State.initial(kernel, context_dim=size.context_dim, limits=limits or Limits(), half_life=half_life)
    kind = GpTopKOfItems if item_values else GpTopK
    return kind(change_item_features(state, size.item_features), exploration, rng=rng, count_pending=count_pending)
