"""What the rounds of the paper's experiment with a large arm space take here (Section 5, Figure 3; Appendix C)."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from figures import PROCESSES, Bench, Figure, Outcome
from topk_bandit.domain.bandits import Exploration, Kernel, PaperBeta
from topk_bandit.learning.decisions import decide
from topk_bandit.learning.environments import Objective, Shop
from topk_bandit.learning.limits import Limits
from topk_bandit.learning.policy import State, kernel_of
from topk_bandit.learning.warm_up import warm_up
from topk_bandit.process.settings import Settings

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["large_arms"]

ROUNDS, TRIALS, BATCH, CUSTOMERS, BETA_GP = 100, 6, 5, 5, 0.1
"""The rounds are those that Appendix C.3 gives for this setup; the figure's axis is not in the paper's text."""

SLATE_SIZES = (3, 6)
NAMES = {Kernel.WEIGHTED: "WK", Kernel.CONVOLUTIONAL: "CK", Kernel.WEIGHTED_CONVOLUTIONAL: "WCK"}


@dataclass(frozen=True, slots=True)
class _Trial:
    kernel: Kernel
    slate_size: int
    seed: int
    rounds: int


@dataclass(frozen=True, slots=True)
class _Played:
    """Seconds of decisions and of updates, and cumulative regret, ours and that of random slates."""

    deciding: float
    updating: float
    regret: float
    regret_of_random: float


def large_arms(bench: Bench) -> Outcome:
    """Play the paper's trials with its three kernels, and add up decisions and updates alone."""
    trials, rounds = bench.scaled(TRIALS, 2), bench.scaled(ROUNDS, 20)
    jobs = [_Trial(kernel, k, seed, rounds) for k in SLATE_SIZES for kernel in NAMES for seed in range(trials)]
    start = time.perf_counter()
    found = dict(zip(jobs, bench.each(_play, jobs), strict=True))
    elapsed = time.perf_counter() - start
    figures: list[Figure] = []
    for k in SLATE_SIZES:
        for kernel, name in NAMES.items():
            mine = [played for trial, played in found.items() if (trial.kernel, trial.slate_size) == (kernel, k)]
            figures += _figures(f"{name.lower()}_{k}", f"{name}, k = {k}", mine)
    total = sum(played.deciding + played.updating for played in found.values())
    figures += [
        Figure("total", "all decisions and updates, on one core", total, "s"),
        Figure("total_two_cores", f"all decisions and updates, on {PROCESSES} cores", total / PROCESSES, "s"),
        Figure("elapsed", "with simulation, and starting processes", elapsed, "s"),
    ]
    settings = {"n": 50, "slate_sizes": list(SLATE_SIZES), "C": 5, "rounds": rounds, "trials": trials}
    settings |= {"rewards": "nDCG, noise 0.05", "updates_every": BATCH, "customers": CUSTOMERS, "beta_gp": BETA_GP}
    return Outcome(figures, {**settings, "paper": "24 hours of Tesla M40 GPUs an iteration (Appendix C.1)"})


def _figures(key: str, label: str, found: list[_Played]) -> list[Figure]:
    deciding, updating = sum(one.deciding for one in found), sum(one.updating for one in found)
    regret = float(np.mean([one.regret for one in found]) / np.mean([one.regret_of_random for one in found]))
    return [
        Figure(f"{key}_seconds", f"{label}: decisions and updates of {len(found)} trials", deciding + updating, "s"),
        Figure(f"{key}_regret", f"{label}: cumulative regret, of random slates'", regret, "share"),
    ]


def _play(trial: _Trial) -> _Played:
    """Play one trial; rewards come in batches, and the slates of a batch know of each other."""
    warm_up()
    rng = np.random.default_rng([trial.seed, trial.slate_size, 13])
    shop = Shop.random(rng, slate_size=trial.slate_size, n_customers=CUSTOMERS, objective=Objective.NDCG)
    player = _Player(trial, shop, rng)
    regret = np.zeros(2)
    for _ in range(trial.rounds):
        customer = int(rng.integers(len(shop.customers)))
        ranking = player.decide(customer)
        random = rng.choice(len(shop.items), size=trial.slate_size, replace=False)
        regret += shop.best(customer) - shop.expect_rewards(customer, np.array([ranking, random]))
    return _Played(player.deciding, player.updating, *regret.tolist())


class _Player:
    """The service's state in a trial; `deciding` and `updating` count seconds."""

    def __init__(self, trial: _Trial, shop: Shop, rng: np.random.Generator) -> None:
        self.deciding = self.updating = 0.0
        self._shop, self._rng = shop, rng
        kernel = kernel_of(trial.kernel, len(shop.items), trial.slate_size)
        self._state = State.initial(kernel, context_dim=shop.items.shape[1], limits=Limits())
        self._items = np.arange(len(shop.items), dtype=np.int32)
        self._exploration = Exploration(PaperBeta(BETA_GP), Settings().default_exploration.uniform_share)
        self._batch: list[tuple[str, int, NDArray[np.int32]]] = []

    def decide(self, customer: int) -> NDArray[np.int32]:
        """Return the slate for a customer, and learn what a batch earned once it is full."""
        context, slate_id, start = self._shop.customers[customer], str(len(self._batch)), time.perf_counter()
        decision = decide(self._state, self._exploration, context=context, eligible=self._items, rng=self._rng)
        decided = time.perf_counter()
        self._state = self._state.shown(slate_id, context, decision.ranking)
        self.deciding, self.updating = self.deciding + decided - start, self.updating + time.perf_counter() - decided
        self._batch.append((slate_id, customer, decision.ranking))
        if len(self._batch) == BATCH:
            self._learn()
        return decision.ranking

    def _learn(self) -> None:
        rewards = [self._shop.draw(customer, ranking, self._rng) for _, customer, ranking in self._batch]
        start = time.perf_counter()
        for (slate_id, customer, ranking), reward in zip(self._batch, rewards, strict=True):
            self._state = self._state.rewarded(slate_id, self._shop.customers[customer], ranking, reward=reward)
        self.updating += time.perf_counter() - start
        self._batch.clear()
