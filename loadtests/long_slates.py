"""Slates of up to 30: how long a decision takes, and how much of what can be gained its search gains."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from figures import Bench, Chart, Curve, Figure, Outcome, exponent, mean_with_error
from played import BEST_BY_UCB, WIDE, Played, played, shown_at_random
from topk_bandit.domain.bandits import Kernel
from topk_bandit.learning.compiled import climbing
from topk_bandit.learning.decisions import decide
from topk_bandit.learning.environments import Shop
from topk_bandit.learning.item_draws import ItemDraws
from topk_bandit.learning.rankings import random_rankings
from topk_bandit.learning.search import best_seen, local_search

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from topk_bandit.learning.context_posterior import ContextPosterior

__all__ = ["long_slates"]

N_ITEMS, ROWS, PENDING, BETA = 200, 256, 10, 4.0
SIZES, SIZES_JUDGED = (6, 8, 10, 12, 13, 16, 20, 25, 30), (13, 20, 30)
REPEATS, TIMES_AS_LONG, RANDOM_SLATES = 200, 10, 500
KERNELS = (Kernel.ADAPTIVE, Kernel.WEIGHTED_CONVOLUTIONAL, Kernel.CONVOLUTIONAL, Kernel.WEIGHTED)
POSTERIORS = 8
"""Of each size and kernel: half saw random slates, half their own."""


@dataclass(frozen=True, slots=True)
class _Job:
    size: int
    kernel: Kernel
    seed: int


def long_slates(bench: Bench) -> Outcome:
    """Time decisions by the length of the slate, and compare the search with one that takes ten times as long."""
    sizes, repeats = SIZES if not bench.quick else (6, 13), bench.scaled(REPEATS, 5)
    milliseconds = bench.alone(_time_all, (sizes, repeats))
    judged = SIZES_JUDGED if not bench.quick else (13,)
    jobs = [_Job(k, kernel, seed) for k in judged for kernel in KERNELS for seed in range(bench.scaled(POSTERIORS, 2))]
    shares = bench.each(_share_gained, jobs)
    figures = [
        Figure(f"ms_{k}", f"decision, slates of {k}, median", one, "ms")
        for k, one in zip(sizes, milliseconds, strict=True)
    ]
    figures.append(Figure("exponent", "growth with the slate, exponent", exponent(list(sizes), milliseconds)))
    for kernel in KERNELS:
        gained = [share for job, share in zip(jobs, shares, strict=True) if job.kernel is kernel]
        label = f"{kernel.value}: share of the gain of a search {TIMES_AS_LONG} times as long, then climbed exactly"
        figures.append(mean_with_error(f"gained_{kernel.value}", label, gained, unit="share"))
        figures.append(Figure(f"worst_{kernel.value}", f"{kernel.value}: smallest share", min(gained), "share"))
    chart = Chart("A decision", "items of the slate", "ms", [Curve("200 items", list(sizes), milliseconds)], log=True)
    return Outcome(figures, _settings(len(jobs)), charts=[chart])


def _settings(posteriors: int) -> dict[str, object]:
    return {
        "n": N_ITEMS,
        "C": 5,
        "rewards": ROWS,
        "pending": PENDING,
        "posteriors": posteriors,
        "gain": f"UCB (beta {BETA:g}) above the mean of {RANDOM_SLATES} random slates",
        "threads": 1,
    }


def _build(size: int, kernel: Kernel, seed: int) -> tuple[Shop, Played]:
    rng = np.random.default_rng([seed, size])
    shop = Shop.random(rng, n_items=N_ITEMS, slate_size=size)
    if seed % 2:
        return shop, played(shop, rng, rewards=ROWS, pending=PENDING, kernel=kernel)
    return shop, shown_at_random(shop, rng, rewards=ROWS, pending=PENDING, limits=WIDE, kernel=kernel)


def _time_all(job: tuple[tuple[int, ...], int], report: Callable[[int, int], None]) -> list[float]:
    """Return the median of a decision's milliseconds for each size, taken in turns."""
    sizes, repeats = job
    bandits = {size: _build(size, Kernel.ADAPTIVE, 0) for size in sizes}
    took: dict[int, list[float]] = {size: [] for size in sizes}
    for number in range(repeats + 1):
        for size, (shop, bandit) in bandits.items():
            took[size].append(_time(bandit, shop.customers[number % len(shop.customers)]))
        report(number, repeats)
    return [1e3 * float(np.median(took[size][1:])) for size in sizes]


def _time(bandit: Played, context: NDArray[np.float64]) -> float:
    rng, items = np.random.default_rng(0), np.arange(N_ITEMS, dtype=np.int32)
    start = time.process_time()
    decide(bandit.state, BEST_BY_UCB, context=context, eligible=items, rng=rng)
    return time.process_time() - start


def _share_gained(job: _Job) -> float:
    """Return the share of what a long search gains over random slates that the service's search gains."""
    shop, bandit = _build(job.size, job.kernel, job.seed)
    rng, posterior, items = np.random.default_rng(job.seed), bandit.state.posterior, np.arange(N_ITEMS, dtype=np.int32)
    context = bandit.state.encode(shop.customers[0])

    def value(slates: NDArray[np.int32]) -> NDArray[np.float64]:
        mean, variance = posterior.predict(context, slates)
        return np.asarray(mean + np.sqrt(BETA * variance), dtype=np.float64)

    at = posterior.at(context, items)
    covariance, starts = ItemDraws(at).covariance, best_seen(at)
    found = [local_search(at, covariance, beta=BETA, starts=starts, rng=rng).ranking for _ in range(TIMES_AS_LONG)]
    values = value(np.array(found))
    climbed = _climb_exactly(at, found[int(values.argmax())])
    at_random = float(value(random_rankings(items, slate_size=job.size, count=RANDOM_SLATES, rng=rng)).mean())
    most = max(float(values.max()), float(value(climbed[None])[0]))
    return (float(values[0]) - at_random) / (most - at_random)


def _climb_exactly(at: ContextPosterior, slate: NDArray[np.int32]) -> NDArray[np.int32]:
    """Climb by all replacements and exchanges, with all features, until none gains."""
    climbed, spread = slate.astype(np.int64), math.sqrt(BETA * at.amplitude)
    climbing.polish(at.contraction, None, climbed, np.full(len(at.items), -1), at.prior, spread, *at.position_weights)
    return climbed.astype(np.int32)
