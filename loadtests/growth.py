"""How learning, deciding and coming back grow with the rewards that are kept."""

from __future__ import annotations

import time
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

import numpy as np

from figures import Bench, Figure, Outcome
from topk_bandit.learning.policy import Limits, Memory, State, kernel_of
from topk_bandit.learning.posterior import Observations, PendingSlates
from topk_bandit.learning.rankings import random_rankings
from topk_bandit.serving.model import Model, begin, fold
from topk_bandit.serving.recommender import choose_slate
from topk_bandit.serving.snapshots import decode_model, encode_model
from topk_bandit.settings import Settings
from topk_bandit.simulation.environments import Shop
from topk_bandit.types import (
    BanditCreated,
    BanditSettings,
    Event,
    Item,
    ItemsChanged,
    Kernel,
    LoggedEvent,
    RecommendationRequest,
    Recommended,
    Rewarded,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["growth"]

ROWS = (64, 128, 256, 512, 1000)
PENDING = 10
STEPS, DECISIONS = 24, 24
LIMITS = Limits(rows=2000, row_bytes=2**30)
"""Wider than the service's, so that nothing is forgotten while it is timed."""


@dataclass(frozen=True, slots=True)
class _Times:
    """Milliseconds of computing at a number of rows: medians, but for `restart`."""

    step: float
    refit: float
    decision: float
    restart: float


_LABELS = {
    "step": "fold one slate shown and one rewarded",
    "refit": "refit, once in a quarter more rows",
    "decision": "decide",
    "restart": "load the snapshot and fold the longest tail",
}


def growth(bench: Bench) -> Outcome:
    """Time the parts of serving one bandit at several sizes, and fit time = constant * rows^exponent to each."""
    rows = ROWS if not bench.quick else ROWS[:3]
    measured: list[_Times] = []
    for number, n_rows in enumerate(rows):
        measured.append(_measured(n_rows))
        bench.report(number + 1, len(rows))
    figures: list[Figure] = []
    for part in fields(_Times):
        times = [getattr(one, part.name) for one in measured]
        label = _LABELS[part.name]
        figures += [
            Figure(f"{part.name}_{n}", f"{label}, {n} rows", value, "ms") for n, value in zip(rows, times, strict=True)
        ]
        exponent = float(np.polyfit(np.log(rows), np.log(times), 1)[0])
        figures.append(Figure(f"{part.name}_exponent", f"{label}: exponent", exponent))
    settings = {
        "n": 50,
        "k": 6,
        "C": 5,
        "pending": PENDING,
        "rows_from": "random slates: every pair of items is in use",
    }
    return Outcome(figures, settings)


def _measured(n_rows: int) -> _Times:
    rng = np.random.default_rng([n_rows, 5])
    shop = Shop.random(rng)
    model = _model(shop, n_rows, rng)
    script = _Script(shop, rng)
    decisions = [_milliseconds(lambda: choose_slate(model, script.request())) for _ in range(DECISIONS)]
    refits = [_milliseconds(model.state.refit) for _ in range(3)]
    # The next refit comes after a quarter more rows: until then a snapshot has a tail of so many slates and rewards.
    tail = script.events(model, n_rows // 4 - 1)
    return _Times(
        step=float(np.median(_steps(model, tail[: 2 * STEPS]))),
        refit=float(np.median(refits)),
        decision=float(np.median(decisions)),
        restart=_restart(model, tail),
    )


def _model(shop: Shop, n_rows: int, rng: np.random.Generator) -> Model:
    """Return a bandit at a checkpoint with so many rows, and the slates that wait for their reward."""
    n_items, context_dim = shop.items.shape
    settings = BanditSettings(
        item_capacity=n_items,
        slate_size=shop.slate_size,
        context_dim=context_dim,
        kernel=Kernel.WEIGHTED_CONVOLUTIONAL,
        exploration=Settings().default_exploration,
        reward_wait_ms=3_600_000,
        default_reward=None,
    )
    model = begin("bench", LoggedEvent(1, 1, BanditCreated(settings)), limits=LIMITS)
    items = ItemsChanged(upserted=tuple(Item(f"item-{index}") for index in range(n_items)))
    model = fold(model, LoggedEvent(2, 2, items))
    state = State.restored(
        kernel_of(settings.kernel, n_items, shop.slate_size), _memory(shop, n_rows, rng), limits=LIMITS
    )
    return replace(model, state=state.refit(), since_checkpoint=0)


def _memory(shop: Shop, n_rows: int, rng: np.random.Generator) -> Memory:
    n_items = len(shop.items)
    slates = random_rankings(np.arange(n_items), slate_size=shop.slate_size, count=n_rows, rng=rng)
    customers = rng.integers(len(shop.customers), size=n_rows)
    rewards = [shop.draw(int(customer), slate, rng) for customer, slate in zip(customers, slates, strict=True)]
    observed = Observations(shop.customers[customers], slates, np.array(rewards))
    nothing = PendingSlates(observed.contexts[:0], slates[:0])
    return Memory(observed=observed, pending=nothing, pending_ids=(), noise_variance=0.1, observations=n_rows)


class _Script:
    """Requests, and the events that the log would hold of them."""

    def __init__(self, shop: Shop, rng: np.random.Generator) -> None:
        self._shop = shop
        self._rng = rng
        self._count = 0

    def request(self) -> RecommendationRequest:
        """Return the request of a random customer."""
        self._count += 1
        context = self._shop.customers[int(self._rng.integers(len(self._shop.customers)))]
        return RecommendationRequest(f"r{self._count}", tuple(context.tolist()), None)

    def events(self, model: Model, pairs: int) -> Sequence[LoggedEvent]:
        """Return what follows `model`: slates shown, each rewarded `PENDING` slates later, after so many without."""
        template = choose_slate(model, self.request())
        events: list[Event] = []
        shown: list[str] = []
        for number in range(PENDING + pairs):
            request = self.request()
            slate = self._rng.choice(len(self._shop.items), size=self._shop.slate_size, replace=False)
            named = tuple(f"item-{item}" for item in slate)
            events.append(Recommended(request, replace(template, recommendation_id=request.request_id, slate=named)))
            shown.append(request.request_id)
            if number >= PENDING:
                events.append(Rewarded(shown[number - PENDING], float(self._rng.normal())))
        return [LoggedEvent(model.version + 1 + place, 3, event) for place, event in enumerate(events)]


def _steps(model: Model, events: Sequence[LoggedEvent]) -> list[float]:
    """Return milliseconds of each slate shown and the reward after it, once as many as usual are pending."""
    for logged in events[:PENDING]:
        model = fold(model, logged)
    times = []
    for shown, rewarded in zip(events[PENDING::2], events[PENDING + 1 :: 2], strict=False):
        start = time.thread_time()
        model = fold(fold(model, shown), rewarded)
        times.append((time.thread_time() - start) * 1e3)
    return times


def _restart(model: Model, tail: Sequence[LoggedEvent]) -> float:
    payload = encode_model(model)

    def come_back() -> None:
        restored = decode_model(payload, limits=LIMITS)
        for logged in tail:
            restored = fold(restored, logged)

    return _milliseconds(come_back)


def _milliseconds(work: Callable[[], object]) -> float:
    """Return the time that this thread computes, so that other programs on the machine do not count."""
    start = time.thread_time()
    work()
    return (time.thread_time() - start) * 1e3
