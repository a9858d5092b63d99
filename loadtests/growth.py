"""How learning, deciding and coming back grow with the rewards that are kept."""

from __future__ import annotations

import time
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

import numpy as np

from figures import Bench, Figure, Outcome, exponent
from models import model_of
from played import WIDE, shown_at_random
from topk_bandit.bandits.choices import choose_slate
from topk_bandit.bandits.fold import fold
from topk_bandit.bandits.snapshots import decode_model, encode_model
from topk_bandit.domain.slates import RecommendationRequest
from topk_bandit.learning.environments import Shop
from topk_bandit.store.events import Event, LoggedEvent, Recommended, Rewarded, Shown

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from topk_bandit.bandits.model import Model

__all__ = ["growth"]

ROWS = (64, 128, 256, 512, 1000)
PENDING = 10
STEPS, DECISIONS = 24, 24


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
        figures.append(Figure(f"{part.name}_exponent", f"{label}: exponent", exponent(rows, times)))
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
    bandit = shown_at_random(shop, rng, rewards=n_rows, pending=0, limits=WIDE)
    model = model_of(bandit.state.refit())
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
        shown: list[tuple[str, Shown]] = []
        for number in range(PENDING + pairs):
            request = self.request()
            slate = self._rng.choice(len(self._shop.items), size=self._shop.slate_size, replace=False)
            named = tuple(f"item-{item}" for item in slate)
            events.append(Recommended(request, replace(template, recommendation_id=request.request_id, slate=named)))
            shown.append((request.request_id, Shown(request.context, named, 3)))
            if number >= PENDING:
                rewarded, then = shown[number - PENDING]
                events.append(Rewarded(rewarded, float(self._rng.normal()), then))
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
        restored = decode_model(payload, limits=WIDE)
        for logged in tail:
            restored = fold(restored, logged)

    return _milliseconds(come_back)


def _milliseconds(work: Callable[[], object]) -> float:
    """Return the time that this thread computes, so that other programs on the machine do not count."""
    start = time.thread_time()
    work()
    return (time.thread_time() - start) * 1e3
