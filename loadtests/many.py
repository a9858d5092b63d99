"""What a thousand bandits need in one process, and how soon one is back whose memory was given to others."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from figures import Bench, Figure, Outcome, percentiles
from machine import resident_bytes
from models import model_of
from played import shown_at_random
from topk_bandit.bandits.choices import choose_slate
from topk_bandit.bandits.snapshots import decode_model, encode_model
from topk_bandit.domain.slates import RecommendationRequest
from topk_bandit.learning.environments import Shop
from topk_bandit.learning.limits import Limits
from topk_bandit.learning.rankings import random_rankings
from topk_bandit.learning.warm_up import warm_up

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from figures import Report
    from topk_bandit.bandits.model import Model
    from topk_bandit.learning.policy import State

__all__ = ["many"]

BANDITS, PENDING, RETURNS, CUSTOMERS = 1000, 10, 100, 1000
MEGABYTE = 2.0**20


def many(bench: Bench) -> Outcome:
    """Hold bandits at the most rows that they may have, each built from a snapshot and rewards, all in one process."""
    bandits, returns = bench.scaled(BANDITS, 10), bench.scaled(RETURNS, 10)
    held = bench.alone(_held, (bandits, returns))
    growth = (held.resident[-1] - held.resident[0]) / (len(held.resident) - 1)
    figures = [
        Figure("resident", f"{bandits:,} bandits at their most rows, resident", held.resident[-1] / 2**30, "GiB"),
        Figure("per_bandit", "resident memory for each bandit", growth / MEGABYTE, "MB"),
        Figure("arrays", "    of which the posterior's arrays, as it counts them", held.memory_bytes / MEGABYTE, "MB"),
        Figure("alone", "the process without bandits", held.resident[0] / MEGABYTE, "MB"),
        Figure("rows", "rows of each", held.rows),
        Figure("snapshot", "snapshot of each", held.snapshot_bytes / MEGABYTE, "MB"),
        *percentiles("return", "from a snapshot to the first decision", held.returns, (50, 99)),
    ]
    settings = {"n": 50, "k": 6, "C": 5, "bandits": bandits, "pending": PENDING, "returns": returns}
    settings |= {"customers": CUSTOMERS}
    return Outcome(figures, {**settings, "limits": str(Limits()), "rows_from": "random slates, other rewards in each"})


@dataclass(slots=True)
class _Held:
    """Resident bytes with 0, 1, 2, ... bandits, and what each has; seconds from a snapshot to the first decision."""

    resident: list[float] = field(default_factory=list)
    memory_bytes: int = 0
    rows: int = 0
    snapshot_bytes: int = 0
    returns: list[float] = field(default_factory=list)


def _held(job: tuple[int, int], report: Report) -> _Held:
    bandits, returns = job
    warm_up()
    rng, held = np.random.default_rng(11), _Held()
    shop = Shop.random(rng, n_customers=CUSTOMERS)
    full, more = _full(shop, rng)
    payload = encode_model(model_of(full))
    held.snapshot_bytes = len(payload)
    models: list[Model] = []
    held.resident.append(resident_bytes())
    for number in range(bandits):
        restored = decode_model(payload, limits=full.limits)
        state = restored.state
        for state in _learning(restored.state, shop, rng, rewards=more):  # noqa: B007 - the last one is kept
            pass
        models.append(model_of(state))
        held.resident.append(resident_bytes())
        report(number, bandits + returns)
    held.memory_bytes, held.rows = models[-1].state.posterior.memory_bytes, models[-1].state.posterior.n_rows
    for number in range(returns):
        held.returns.append(_seconds_to_return(payload, full.limits, shop.customers[number].tolist()))
        report(bandits + number, bandits + returns)
    return held


def _full(shop: Shop, rng: np.random.Generator) -> tuple[State, int]:
    """Return a state that was just refit at its row limit, and after how many rewards from there it is largest."""
    bandit = shown_at_random(shop, rng, rewards=2 * Limits().rows, pending=PENDING)
    states = _learning(bandit.state, shop, rng, rewards=4 * Limits().rows)
    full = next(state for state in states if state.since_refit == 0)
    sizes = []
    for state in states:
        if state.since_refit == 0:
            break
        sizes.append(state.posterior.memory_bytes)
    return full, 1 + int(np.argmax(sizes))


def _learning(state: State, shop: Shop, rng: np.random.Generator, *, rewards: int) -> Iterator[State]:
    """Yield the state after each of so many rewards of random slates, with a steady number of slates pending."""
    slates = random_rankings(np.arange(len(shop.items)), slate_size=shop.slate_size, count=rewards, rng=rng)
    for number, slate in enumerate(slates):
        customer = int(rng.integers(len(shop.customers)))
        context, slate_id = shop.customers[customer], f"more-{number}"
        state = state.shown(slate_id, context, slate)
        state = state.rewarded(slate_id, context, slate, reward=shop.draw(customer, slate, rng))
        yield state


def _seconds_to_return(payload: bytes, limits: Limits, context: Sequence[float]) -> float:
    request = RecommendationRequest("first", tuple(context), None)
    start = time.perf_counter()
    choose_slate(decode_model(payload, limits=limits), request)
    return time.perf_counter() - start
