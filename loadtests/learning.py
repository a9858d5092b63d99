"""Whether it learns in the demo's shop, and what counting unrewarded slates is worth while rewards are late."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from figures import Bench, Figure, Outcome, mean_with_error, ratio_with_error
from topk_bandit.domain.bandits import Kernel
from topk_bandit.lab.simulation.arm_players import RandomPlayer
from topk_bandit.lab.simulation.episodes import GpTopK, play
from topk_bandit.lab.simulation.scenarios import Constant, Scenario
from topk_bandit.learning.environments import Shop
from topk_bandit.learning.limits import Limits
from topk_bandit.learning.policy import State, kernel_of
from topk_bandit.process.settings import Settings

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["late_rewards", "learns"]

ROUNDS, DELAY = 600, 10
LATE_ROUNDS, DELAYS = 200, (5, 20)
CUSTOMERS = {"contextual": 5, "single": 1}
TITLES = {"contextual": "5 customers", "single": "1 customer"}


def learns(bench: Bench) -> Outcome:
    """Compare the regret in the demo's shop with the regret of random slates, over the last third of the rounds."""
    seeds, rounds = range(bench.scaled(10, 2)), bench.scaled(ROUNDS, 150)
    shares = bench.each(_share_of_random, [(seed, rounds) for seed in seeds])
    figures = [
        Figure(f"seed_{seed}", f"seed {seed}", share, "share") for seed, share in zip(seeds, shares, strict=True)
    ]
    figures.append(mean_with_error("mean", "mean", shares, unit="share"))
    figures.append(Figure("spread", "standard deviation over seeds", float(np.std(shares, ddof=1)), "share"))
    exploration = str(Settings().default_exploration)
    return Outcome(figures, {"n": 50, "k": 6, "C": 5, "rounds": rounds, "delay": DELAY, "exploration": exploration})


def _share_of_random(job: tuple[int, int]) -> float:
    """Return regret over regret of random slates, in the same shop with the same customers and noise."""
    seed, rounds = job
    shop = Shop.random(np.random.default_rng([seed, 1]))
    drawing = RandomPlayer(slate_size=shop.slate_size, rng=np.random.default_rng([seed, 3]))
    scenario = Scenario(shop, Constant(DELAY))
    last = [
        play(scenario, player, rounds=rounds, rng=np.random.default_rng([seed, 2])).regret[-(rounds // 3) :].mean()
        for player in (_gp_topk(shop, seed, count_pending=True), drawing)
    ]
    return float(last[0] / last[1])


@dataclass(frozen=True, slots=True)
class _Episode:
    """GP-TopK in the paper's small shop; the same seed means the same tastes, customers and noise."""

    seed: int
    n_customers: int
    rounds: int
    delay: int
    count_pending: bool


def late_rewards(bench: Bench) -> Outcome:
    """Compare cumulative regret with and without counting the slates that are shown and not yet rewarded."""
    seeds, rounds = range(bench.scaled(40, 2)), bench.scaled(LATE_ROUNDS, 60)
    kinds = [
        (setting, delay, counted)
        for setting in CUSTOMERS
        for delay, counted in [(0, True), *((delay, counted) for delay in DELAYS for counted in (True, False))]
    ]
    jobs = [
        _Episode(seed, CUSTOMERS[setting], rounds, delay, counted)
        for setting, delay, counted in kinds
        for seed in seeds
    ]
    totals = np.array(bench.each(_regret, jobs)).reshape(len(kinds), len(seeds))
    sample = dict(zip(kinds, totals, strict=True))
    figures: list[Figure] = []
    for setting, title in TITLES.items():
        at_once = sample[setting, 0, True]
        figures.append(mean_with_error(f"{setting}_0_regret", f"{title}, rewards at once: regret", at_once))
        for delay in DELAYS:
            key, label = f"{setting}_{delay}", f"{title}, {delay} rounds late"
            figures += _compared(key, label, sample[setting, delay, True], sample[setting, delay, False])
    exploration = str(Settings().default_exploration)
    return Outcome(
        figures, {"n": 20, "k": 3, "C": 5, "rounds": rounds, "seeds": len(seeds), "exploration": exploration}
    )


def _compared(key: str, label: str, counted: NDArray[np.float64], not_counted: NDArray[np.float64]) -> list[Figure]:
    return [
        mean_with_error(f"{key}_counted", f"{label}: regret, pending counted", counted),
        mean_with_error(f"{key}_not_counted", f"{label}: regret, not counted", not_counted),
        ratio_with_error(f"{key}_ratio", f"{label}: counted / not counted", counted, not_counted),
    ]


def _regret(episode: _Episode) -> float:
    shop = Shop.random(
        np.random.default_rng([episode.seed, 1]), n_items=20, slate_size=3, n_customers=episode.n_customers
    )
    player = _gp_topk(shop, episode.seed, count_pending=episode.count_pending)
    rng = np.random.default_rng([episode.seed, 2])
    scenario = Scenario(shop, Constant(episode.delay))
    return float(play(scenario, player, rounds=episode.rounds, rng=rng).regret.sum())


def _gp_topk(shop: Shop, seed: int, *, count_pending: bool) -> GpTopK:
    n_items, context_dim = shop.items.shape
    kernel = kernel_of(Kernel.ADAPTIVE, n_items, shop.slate_size)
    state = State.initial(kernel, context_dim=context_dim, limits=Limits())
    rng = np.random.default_rng([seed, 3])
    return GpTopK(state, Settings().default_exploration, rng=rng, count_pending=count_pending)
