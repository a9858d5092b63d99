"""The paper's Table 1, measured: how rounds, products with the kernel matrix, updates and memory grow."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from figures import Bench, Figure, Outcome, exponent
from topk_bandit.lab.paper.approaches import Approach, FeatureApproach, KernelApproach, NaiveApproach
from topk_bandit.lab.paper.work import Arithmetic
from topk_bandit.learning.environments import Shop
from topk_bandit.learning.kendall import weighted_convolutional_kendall
from topk_bandit.learning.limits import Limits
from topk_bandit.learning.policy import State
from topk_bandit.learning.rankings import random_rankings

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from topk_bandit.learning.kendall import KendallKernel

__all__ = ["table1"]

NOISE_VARIANCE, ITERATIONS, ASKED = 0.1, 20, 2
ROUNDS = {
    "naive": (150, 300, 600, 1200),
    "kernel": (150, 300, 600, 1200),
    "feature": (150, 300, 600, 1200),
    "ours": (1000, 2000, 4000, 8000),
}
QUICK_ROUNDS = (40, 80, 160)
SIZES, QUICK_SIZES = (1000, 2000, 4000, 8000), (125, 250, 500)
PAPER_TOTAL = {"naive": 4, "kernel": 3, "feature": 2, "ours": 1}
PAPER = {"kernel": {"mvm": 2, "update": 1, "memory": 2}, "feature": {"mvm": 1, "update": 0, "memory": 1}}
NAMES = {
    "naive": "naive",
    "kernel": "kernel approach",
    "feature": "feature approach",
    "ours": "this service, default limits",
}
TASKS = {"mvm": "product with the kernel matrix", "update": "update by one row", "memory": "memory"}


class _Stream(NamedTuple):
    """What comes by: contexts, slates and rewards, and each round's slates to predict."""

    contexts: NDArray[np.float64]
    rankings: NDArray[np.int32]
    rewards: NDArray[np.float64]
    asked: NDArray[np.int32]


def table1(bench: Bench) -> Outcome:
    """Let each approach predict two slates and take in one reward a round, and time what it consists of as t grows."""
    figures: list[Figure] = []
    for done, name in enumerate(ROUNDS):
        _rounds(name, (2,))  # compiles what is not
        marks = QUICK_ROUNDS if bench.quick else ROUNDS[name]
        figures += _totals(name, marks)
        bench.report(done + 1, len(ROUNDS) + len(PAPER))
    sizes = QUICK_SIZES if bench.quick else SIZES
    for done, name in enumerate(PAPER):
        figures += _tasks(name, sizes)
        bench.report(len(ROUNDS) + done + 1, len(ROUNDS) + len(PAPER))
    settings: dict[str, object] = {
        "n": 50,
        "k": 6,
        "C": 5,
        "predicted_each_round": ASKED,
        "iterations": ITERATIONS,
        "threads": 1,
    }
    return Outcome(figures, settings)


def _totals(name: str, marks: Sequence[int]) -> list[Figure]:
    seconds = _rounds(name, marks)
    label = NAMES[name]
    figures = [
        Figure(f"{name}_{mark}", f"{label}: {mark:,} rounds", took, "s")
        for mark, took in zip(marks, seconds, strict=True)
    ]
    fitted = exponent(marks, seconds)
    paper = f"(paper: {PAPER_TOTAL[name]})" if name != "ours" else "(bounded rows: 1)"
    figures.append(Figure(f"{name}_exponent", f"{label}: exponent {paper}", fitted))
    # The last doubling is nearest to what the exponent tends to.
    figures.append(Figure(f"{name}_last", "    of the last doubling", exponent(marks[-2:], seconds[-2:])))
    return figures


def _rounds(name: str, marks: Sequence[int]) -> list[float]:
    """Return the seconds of so many rounds, at each mark."""
    shop = Shop.random(np.random.default_rng(14))
    stream, take = _stream(shop, marks[-1]), _round_of(name, shop, marks[-1])
    seconds, total = [], 0.0
    for t, (context, ranking, reward, asked) in enumerate(zip(*stream, strict=True)):
        start = time.perf_counter()
        take(context, ranking, reward, asked)
        total += time.perf_counter() - start
        if t + 1 in marks:
            seconds.append(total)
    return seconds


def _round_of(name: str, shop: Shop, capacity: int) -> Callable[..., None]:
    """Return a function that plays one round."""
    if name == "ours":
        return _OurRounds(_kernel(shop), shop.items.shape[1])
    approach = _approach(name, shop, capacity)

    def take(context: NDArray[np.float64], ranking: NDArray[np.int32], reward: float, asked: NDArray[np.int32]) -> None:
        approach.moments(context, asked)
        approach.update(context, ranking, reward)

    return take


class _OurRounds:
    """The service's state, which also refits, forgets what is over its limits, and counts the slate as pending."""

    def __init__(self, kernel: KendallKernel, context_dim: int) -> None:
        self._state = State.initial(kernel, context_dim=context_dim, limits=Limits())

    def __call__(
        self, context: NDArray[np.float64], ranking: NDArray[np.int32], reward: float, asked: NDArray[np.int32]
    ) -> None:
        self._state.predict(context, asked)
        self._state = self._state.shown("now", context, ranking).rewarded("now", context, ranking, reward=reward)


def _kernel(shop: Shop) -> KendallKernel:
    return weighted_convolutional_kendall(len(shop.items), shop.slate_size)


def _approach(name: str, shop: Shop, capacity: int) -> Approach:
    kernel, uncounted, dim = _kernel(shop), Arithmetic(), shop.items.shape[1]
    if name == "naive":
        return NaiveApproach(kernel, uncounted, context_dim=dim, noise_variance=NOISE_VARIANCE, capacity=capacity)
    kind = KernelApproach if name == "kernel" else FeatureApproach
    return kind(
        kernel,
        uncounted,
        context_dim=dim,
        noise_variance=NOISE_VARIANCE,
        capacity=capacity,
        iterations=ITERATIONS,
    )


def _stream(shop: Shop, rounds: int) -> _Stream:
    rng = np.random.default_rng(15)
    items = np.arange(len(shop.items))
    slates = random_rankings(items, slate_size=shop.slate_size, count=(1 + ASKED) * rounds, rng=rng)
    contexts = rng.normal(size=(rounds, shop.items.shape[1]))
    contexts /= np.linalg.norm(contexts, axis=1, keepdims=True)
    return _Stream(contexts, slates[:rounds], rng.normal(size=rounds), slates[rounds:].reshape(rounds, ASKED, -1))


def _tasks(name: str, sizes: Sequence[int]) -> list[Figure]:
    """Return how Table 1's rows grow with t for one approach."""
    shop = Shop.random(np.random.default_rng(14))
    approach, stream = _approach(name, shop, sizes[-1] + len(sizes) * _REPEATS), _stream(shop, 2 * sizes[-1])
    costs: dict[str, list[float]] = {task: [] for task in TASKS}
    rows = zip(stream.contexts, stream.rankings, stream.rewards, strict=True)
    t = 0
    for size in sizes:
        while t < size:
            approach.update(*next(rows))
            t += 1
        costs["memory"].append(float(approach.memory_bytes))
        vector = np.random.default_rng(t).normal(size=(t, 1))
        costs["mvm"].append(_median(partial(approach.mvm, vector)))
        costs["update"].append(_median(lambda: approach.update(*next(rows))))
        t += _REPEATS
    return [figure for task, values in costs.items() for figure in _growth(name, task, sizes, values)]


_REPEATS = 15


def _median(work: Callable[[], object]) -> float:
    took = []
    for _ in range(_REPEATS):
        start = time.perf_counter()
        work()
        took.append(time.perf_counter() - start)
    return float(np.median(took))


def _growth(name: str, task: str, sizes: Sequence[int], values: Sequence[float]) -> list[Figure]:
    scale, unit = (2.0**20, "MB") if task == "memory" else (1e-3, "ms")
    label = f"{NAMES[name]}, {TASKS[task]}"
    return [
        Figure(f"{name}_{task}_{sizes[0]}", f"{label}, t = {sizes[0]:,}", values[0] / scale, unit),
        Figure(f"{name}_{task}_{sizes[-1]}", f"{label}, t = {sizes[-1]:,}", values[-1] / scale, unit),
        Figure(f"{name}_{task}_exponent", f"    exponent (paper: {PAPER[name][task]})", exponent(sizes, values)),
    ]
