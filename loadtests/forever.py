"""Whether the hundred thousandth round costs what the thousandth did, and the millionth reward."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from figures import Bench, Figure, Outcome, exponent
from machine import resident_bytes
from models import model_of
from topk_bandit.bandits.snapshots import encode_model
from topk_bandit.domain.bandits import Kernel
from topk_bandit.learning.decisions import decide
from topk_bandit.learning.environments import Shop
from topk_bandit.learning.limits import Limits
from topk_bandit.learning.policy import State, kernel_of
from topk_bandit.learning.rankings import random_rankings
from topk_bandit.learning.warm_up import warm_up
from topk_bandit.process.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from figures import Report

__all__ = ["forever"]

MARKS = (1_000, 3_000, 10_000, 30_000, 100_000)
OBSERVATIONS = 1_000_000
QUICK_MARKS, QUICK_OBSERVATIONS = (300, 600, 1_000), 3_000
COMPARED_AT = 1_000
DELAY = 10
CUSTOMERS = 1000
"""So many that hardly a slate is shown to the same one twice: there is little to be compacted."""

BATCH = 4096
CYCLES = 3
MEGABYTE = 2.0**20


def forever(bench: Bench) -> Outcome:
    """Play rounds of one decision and one reward, then learn rewards alone, and compare the end with the beginning.

    The comparison is of two states that both go on learning, in turns: one that was kept at 1,000 observations, and the
    last one. Each decides once after each of its rewards, over whole cycles from one refit to the next.
    """
    marks, observations = (QUICK_MARKS, QUICK_OBSERVATIONS) if bench.quick else (MARKS, OBSERVATIONS)
    lived = bench.alone(_live, (marks, observations))
    settings = {
        "n": 50,
        "k": 6,
        "C": 5,
        "rewards_late_by": DELAY,
        "customers": CUSTOMERS,
        "observations": observations,
        "after_the_last_round": "half random slates, half slates that were decided for before",
        "limits": str(Limits()),
    }
    return Outcome([*_rounds(marks, lived), *_compared(lived, observations)], settings)


@dataclass(slots=True)
class _Cycles:
    """One state over whole cycles: milliseconds of each decision, and bytes and rows at that moment."""

    decisions: list[float] = field(default_factory=list)
    memory: list[float] = field(default_factory=list)
    rows: list[float] = field(default_factory=list)


@dataclass(slots=True)
class _Lived:
    """What a life came to: seconds up to each mark, of which for decisions; then the comparison."""

    seconds: list[float]
    deciding: list[float]
    learning_ms: float
    early: _Cycles
    late: _Cycles
    resident: tuple[float, float]
    snapshot_bytes: int


def _rounds(marks: Sequence[int], lived: _Lived) -> list[Figure]:
    figures = []
    for mark, seconds, deciding in zip(marks, lived.seconds, lived.deciding, strict=True):
        figures.append(Figure(f"seconds_{mark}", f"{mark:,} rounds", seconds, "s"))
        figures.append(Figure(f"deciding_{mark}", "    of which decisions", deciding, "s"))
    figures.append(Figure("exponent", "total time of T rounds: fitted exponent", exponent(marks, lived.seconds)))
    figures.append(Figure("learning", "a slate shown and a reward, with refits, mean", lived.learning_ms, "ms"))
    return figures


def _compared(lived: _Lived, observations: int) -> list[Figure]:
    early, late = lived.early, lived.late
    first, last = f"{COMPARED_AT:,} observations", f"{observations:,}"
    mean = {key: (float(np.mean(getattr(early, key))), float(np.mean(getattr(late, key)))) for key in _PARTS}
    median = float(np.median(early.decisions)), float(np.median(late.decisions))
    return [
        Figure("decision_early", f"one decision at {first}, p50 over {len(early.decisions)}", median[0], "ms"),
        Figure("decision_late", f"one decision at {last}, p50 over {len(late.decisions)}", median[1], "ms"),
        Figure("decision_ratio", f"decision at {last} / at {first}, p50", median[1] / median[0]),
        Figure("decision_mean_ratio", "    the same of means", mean["decisions"][1] / mean["decisions"][0]),
        Figure("rows_early", f"rows at {first}, mean", mean["rows"][0]),
        Figure("rows_late", f"rows at {last}, mean", mean["rows"][1]),
        Figure("memory_early", f"arrays at {first}, mean", mean["memory"][0] / MEGABYTE, "MB"),
        Figure("memory_late", f"arrays at {last}, mean", mean["memory"][1] / MEGABYTE, "MB"),
        Figure("memory_ratio", f"arrays at {last} / at {first}", mean["memory"][1] / mean["memory"][0]),
        Figure("memory_largest", f"arrays at {last}, largest", max(late.memory) / MEGABYTE, "MB"),
        Figure("resident_early", f"process at {first}, resident", lived.resident[0] / MEGABYTE, "MB"),
        Figure("resident_late", f"process at {last}, with both states", lived.resident[1] / MEGABYTE, "MB"),
        Figure("snapshot", f"snapshot at {last}", lived.snapshot_bytes / MEGABYTE, "MB"),
    ]


_PARTS = ("decisions", "memory", "rows")


class _Life:
    """A bandit in a shop, with rewards that come some rounds late; `deciding` and `learning` count seconds."""

    def __init__(self, shop: Shop, state: State, rng: np.random.Generator) -> None:
        self.state = state
        self.deciding = self.learning = 0.0
        self._shop, self._rng = shop, rng
        self._items = np.arange(len(shop.items), dtype=np.int32)
        self._exploration = Settings().default_exploration
        self._shown: deque[tuple[str, int, NDArray[np.int32]]] = deque()
        self._count = 0

    def decide(self, customer: int) -> NDArray[np.int32]:
        """Return the slate for a customer."""
        context, start = self._shop.customers[customer], time.perf_counter()
        decision = decide(self.state, self._exploration, context=context, eligible=self._items, rng=self._rng)
        self.deciding += time.perf_counter() - start
        return decision.ranking

    def learn(self, customer: int, ranking: NDArray[np.int32]) -> None:
        """Show a slate, and take in the reward of an earlier one."""
        self._count += 1
        self._shown.append((str(self._count), customer, ranking))
        start = time.perf_counter()
        self.state = self.state.shown(str(self._count), self._shop.customers[customer], ranking)
        self.learning += time.perf_counter() - start
        if len(self._shown) > DELAY:
            self._reward(*self._shown.popleft())

    def _reward(self, slate_id: str, customer: int, ranking: NDArray[np.int32]) -> None:
        reward, context = self._shop.draw(customer, ranking, self._rng), self._shop.customers[customer]
        start = time.perf_counter()
        self.state = self.state.rewarded(slate_id, context, ranking, reward=reward)
        self.learning += time.perf_counter() - start

    def customer(self) -> int:
        """Return who comes next."""
        return int(self._rng.integers(len(self._shop.customers)))

    def sibling(self) -> _Life:
        """Return a life that goes on from here on its own."""
        other = _Life(self._shop, self.state, np.random.default_rng(self._count))
        other._count, other._shown = self._count, self._shown.copy()
        return other


def _live(job: tuple[Sequence[int], int], report: Report) -> _Lived:
    marks, observations = job
    warm_up()
    rng = np.random.default_rng(10)
    shop = Shop.random(rng, n_customers=CUSTOMERS)
    kernel = kernel_of(Kernel.ADAPTIVE, len(shop.items), shop.slate_size)
    life = _Life(shop, State.initial(kernel, context_dim=shop.items.shape[1], limits=Limits()), rng)
    seconds, deciding, decided = [], [], deque[tuple[int, "NDArray[np.int32]"]](maxlen=BATCH)
    kept, resident_early = life, 0.0
    for number in range(1, marks[-1] + 1):
        customer = life.customer()
        decided.append((customer, life.decide(customer)))
        life.learn(*decided[-1])
        if number == COMPARED_AT:
            kept, resident_early = life.sibling(), resident_bytes()
        if number in marks:
            seconds.append(life.deciding + life.learning)
            deciding.append(life.deciding)
        report(number, marks[-1] + observations)
    before, count = life.learning, observations - life.state.observations
    for number, (customer, ranking) in enumerate(_cheap_slates(shop, list(decided), count, rng)):
        life.learn(customer, ranking)
        report(marks[-1] + number, marks[-1] + observations)
    learning_ms = (life.learning - before) / count * 1e3
    resident = resident_early, resident_bytes()
    early, late = _over_cycles(kept, life)
    return _Lived(
        seconds, deciding, learning_ms, early, late, resident, len(encode_model(model_of(life.state.refit())))
    )


def _cheap_slates(
    shop: Shop, decided: Sequence[tuple[int, NDArray[np.int32]]], count: int, rng: np.random.Generator
) -> Iterator[tuple[int, NDArray[np.int32]]]:
    """Yield customers with slates for them: random ones, and ones that were decided for, in turns."""
    items = np.arange(len(shop.items))
    for start in range(0, count, BATCH):
        slates = random_rankings(items, slate_size=shop.slate_size, count=BATCH, rng=rng)
        customers = rng.integers(len(shop.customers), size=BATCH).tolist()
        chosen = rng.integers(len(decided), size=BATCH).tolist()
        for place in range(min(BATCH, count - start)):
            yield (customers[place], slates[place]) if place % 2 else decided[chosen[place]]


def _over_cycles(*lives: _Life) -> list[_Cycles]:
    """Let each learn from what it decides, in turns, over as many whole cycles; the first refit only starts them."""
    found, refits = [_Cycles() for _ in lives], [0] * len(lives)
    while min(refits) <= CYCLES:
        for which, life in enumerate(lives):
            customer = life.customer()
            before = life.deciding
            ranking = life.decide(customer)
            if 0 < refits[which] <= CYCLES:
                found[which].decisions.append((life.deciding - before) * 1e3)
                found[which].memory.append(float(life.state.posterior.memory_bytes))
                found[which].rows.append(float(life.state.posterior.n_rows))
            life.learn(customer, ranking)
            refits[which] += life.state.since_refit == 0
    return found
