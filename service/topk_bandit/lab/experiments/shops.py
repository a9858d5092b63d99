"""The paper's settings as shops, and episodes in them as jobs (Section 5 and Appendix C)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from topk_bandit.lab.experiments.plan import Job
from topk_bandit.lab.simulation.episodes import ProblemSize, play
from topk_bandit.lab.simulation.policies import SERVICE
from topk_bandit.lab.simulation.scenarios import Batches, Scenario
from topk_bandit.learning.environments import NOISE, Objective, Shop

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topk_bandit.lab.simulation.episodes import Player
    from topk_bandit.lab.simulation.policies import Policy
    from topk_bandit.learning.environments import Factors

__all__ = [
    "BATCH",
    "FIGURE_2",
    "FIGURE_3",
    "FIGURE_5",
    "Setting",
    "cost_of",
    "cumulative",
    "episodes",
    "play_episode",
    "player_rng",
    "problem_size",
]

FloatArray = NDArray[np.float64]

BATCH = 5
"""Rewards become known every so many rounds (paper, Section 5)."""

_DEFAULT_COST = 1.0
_COSTS = {
    **dict.fromkeys(("WCK", "CK", "WK", SERVICE), 20.0),
    **dict.fromkeys(("Thompson sampling", "VW CCB", "VW slates"), 6.0),
    "linear Thompson": 3.0,
}
"""About how long families play, in units of the cheapest."""


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting of the paper.

    Attributes
    ----------
    number
        Of its random draws; no two settings share one.
    rounds
        How many are played unless others are asked for.
    """

    number: int
    n_items: int
    slate_size: int
    n_customers: int
    objective: Objective
    rounds: int

    @property
    def key(self) -> str:
        """What the CSV calls it."""
        users = {1: "one_user"}.get(self.n_customers, f"{self.n_customers}_users")
        return f"{self.objective.value}_n{self.n_items}_k{self.slate_size}_{users}".replace("+", "_").lower()

    @property
    def title(self) -> str:
        """What a figure calls it."""
        users = {1: "one user"}.get(self.n_customers, f"{self.n_customers} users")
        return f"{self.objective.value.replace('+', ' + ')}, n = {self.n_items}, k = {self.slate_size}, {users}"

    def shop(self, factors: Factors, drawn: Sequence[int]) -> Shop:
        """Return the shop of the trial that `drawn` tells from all others."""
        return Shop.of(
            factors,
            np.random.default_rng([*drawn, 0]),
            n_items=self.n_items,
            slate_size=self.slate_size,
            n_customers=self.n_customers,
            objective=self.objective,
            noise=NOISE,
        )

    def settings(self) -> dict[str, object]:
        """Return what to write beside results."""
        return {
            "items": self.n_items,
            "slate_size": self.slate_size,
            "users": self.n_customers,
            "objective": self.objective.value,
        }


FIGURE_2 = (
    Setting(0, 20, 3, 1, Objective.NDCG, 200),
    Setting(1, 20, 3, 1, Objective.NDCG_DIVERSITY, 200),
    Setting(2, 20, 3, 5, Objective.NDCG, 200),
    Setting(3, 20, 3, 5, Objective.NDCG_DIVERSITY, 200),
)
FIGURE_3 = (Setting(4, 50, 3, 5, Objective.NDCG, 200), Setting(5, 50, 6, 5, Objective.NDCG, 400))
FIGURE_5 = (Setting(6, 50, 3, 5, Objective.NDCG_DIVERSITY, 100), Setting(7, 50, 6, 5, Objective.NDCG_DIVERSITY, 100))


def episodes(
    settings: Sequence[Setting],
    policies: Sequence[Policy],
    factors: Factors,
    *,
    trials: int,
    seed: int,
    rounds: int | None = None,
) -> tuple[Job, ...]:
    """Return one job for each setting, policy and trial, the last varying fastest; see `cumulative`."""
    return tuple(
        Job(
            partial(_episode, setting, policy, factors, seed=seed, trial=trial, rounds=rounds or setting.rounds),
            cost=cost_of(policy, rounds or setting.rounds, setting.slate_size),
        )
        for setting, policy, trial in product(settings, policies, range(trials))
    )


def cost_of(policy: Policy, rounds: int, slate_size: int) -> float:
    """Return about how long an episode takes."""
    return _COSTS.get(policy.family, _DEFAULT_COST) * rounds * slate_size


def cumulative(measured: Sequence[FloatArray], *, n_policies: int, trials: int) -> list[FloatArray]:
    """Gather the jobs of `episodes`: of each setting cumulative regret and reward, (2, trials, policies, rounds)."""
    per_setting = n_policies * trials
    gathered = []
    for first in range(0, len(measured), per_setting):
        values = np.stack(measured[first : first + per_setting])
        values = values.reshape(n_policies, trials, *values.shape[1:])
        gathered.append(np.cumsum(values, axis=3).transpose(2, 1, 0, 3))
    return gathered


def _episode(setting: Setting, policy: Policy, factors: Factors, *, seed: int, trial: int, rounds: int) -> FloatArray:
    """Play one trial: regret and expected reward of each round, shape (2, rounds)."""
    drawn = [seed, setting.number, trial]
    shop = setting.shop(factors, drawn)
    return play_episode(
        Scenario(shop, Batches(BATCH)), policy.make(problem_size(shop), player_rng(drawn)), drawn, rounds=rounds
    )


def problem_size(shop: Shop) -> ProblemSize:
    """Return what policies know of a shop."""
    n_customers, context_dim = shop.customers.shape
    return ProblemSize(len(shop.items), shop.slate_size, context_dim, n_customers)


def player_rng(drawn: Sequence[int]) -> np.random.Generator:
    """Return the randomness of a player; `drawn` tells the trial from all others."""
    return np.random.default_rng([*drawn, 1])


def play_episode(scenario: Scenario, player: Player, drawn: Sequence[int], *, rounds: int) -> FloatArray:
    """Return regret and expected reward of each round, (2, rounds); all players of a trial meet the same customers."""
    episode = play(scenario, player, rounds=rounds, rng=np.random.default_rng([*drawn, 2]))
    return np.array([episode.regret, episode.reward])
