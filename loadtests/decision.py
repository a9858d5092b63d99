"""How long one decision takes, beside VowpalWabbit's slates."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

import peers
from figures import Bench, Figure, Outcome, percentiles
from played import BEST_BY_UCB, Played, played, shown_at_random
from topk_bandit.learning.decisions import decide
from topk_bandit.learning.environments import Shop

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Contestant = Callable[[NDArray[np.float64]], float]
    """Returns how many seconds it takes to answer a context."""

__all__ = ["decision"]

ROWS, PENDING, REQUESTS, TURN = 256, 10, 1000, 20


def decision(bench: Bench) -> Outcome:
    """Time decisions of two bandits with 256 rows and predictions of VowpalWabbit, in turns."""
    requests, rng = bench.scaled(REQUESTS, 60), np.random.default_rng(6)
    shop, absent = Shop.random(rng), peers.absent(peers.VOWPAL_WABBIT)
    bandits = {
        "random": shown_at_random(shop, rng, rewards=ROWS, pending=PENDING),
        "own": played(shop, rng, rewards=ROWS, pending=PENDING),
    }
    contestants = {name: _deciding(bandit, rng) for name, bandit in bandits.items()}
    if not absent:
        contestants |= _wabbits(shop, bandits["random"])
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for number in range(0, requests, TURN):
        for name, timed in contestants.items():
            took = [timed(shop.customers[customer]) for customer in rng.integers(len(shop.customers), size=1 + TURN)]
            seconds[name] += took[1:]  # the first of each turn finds the others' data in the processor's caches
        bench.report(number + TURN, requests)
    figures = [figure for name, took in seconds.items() for figure in percentiles(name, _LABELS[name], took)]
    return Outcome([*figures, *_ratios(seconds)], _settings(requests), absent)


_LABELS = {
    "random": "decide, 256 rows of random slates",
    "own": "decide, 256 rows of its own slates",
    "vw_50": "VW, 50 actions in each of 6 slots, parsed beforehand",
    "vw_50_text": "VW, 50 actions in each of 6 slots, from text",
    "vw_8": "VW, 50 actions split over 6 slots, parsed beforehand",
    "vw_8_text": "VW, 50 actions split over 6 slots, from text",
}


def _settings(requests: int) -> dict[str, object]:
    return {
        "n": 50,
        "k": 6,
        "C": 5,
        "rows": ROWS,
        "pending": PENDING,
        "requests": requests,
        "turns_of": TURN,
        "threads": 1,
        "vw": "vw_slates.OPTIONS; a context and an action's item crossed; learned from the same 256 slates",
        "vw_from_text": "parse, predict and finish, which is what a request costs",
    }


def _wabbits(shop: Shop, bandit: Played) -> dict[str, Contestant]:
    from vw_slates import Slates  # noqa: PLC0415 - an optional peer

    whole, split = (Slates(len(shop.items), shop.slate_size, split=split) for split in (False, True))
    for context, ranking, reward in zip(bandit.contexts, bandit.rankings, bandit.rewards, strict=True):
        whole.learn(context, ranking, reward)
        split.learn(context, ranking, reward)
    return {
        "vw_50": whole.seconds_parsed,
        "vw_50_text": whole.seconds_from_text,
        "vw_8": split.seconds_parsed,
        "vw_8_text": split.seconds_from_text,
    }


def _deciding(bandit: Played, rng: np.random.Generator) -> Contestant:
    items = np.arange(bandit.state.posterior.kernel.n_items, dtype=np.int32)

    def timed(context: NDArray[np.float64]) -> float:
        start = time.perf_counter()
        decide(bandit.state, BEST_BY_UCB, context=context, eligible=items, rng=rng)
        return time.perf_counter() - start

    return timed


def _ratios(seconds: dict[str, list[float]]) -> list[Figure]:
    """Return the larger of our two medians over each of VowpalWabbit's."""
    ours = max(float(np.median(seconds[name])) for name in ("random", "own"))
    return [
        Figure(f"ratio_{name}", f"decide / {_LABELS[name]}, p50", ours / float(np.median(took)))
        for name, took in seconds.items()
        if name.startswith("vw")
    ]
