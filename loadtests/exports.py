"""How soon a log is a file, and what its export costs those who wait for a slate meanwhile."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from functools import partial
from operator import gt
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from figures import Bench, Figure, Outcome
from long_log import ITEMS, SLATE_SIZE, write_visits
from served import BANDIT, CALL_SECONDS, TENANT, Storefront, settings_in
from topk_bandit.client import Client
from topk_bandit.process import logs
from topk_bandit.process.supervisor import Supervisor
from topk_bandit.store.embedded import EmbeddedStore

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["export"]

EVENTS, QUICK_EVENTS = 300_000, 10_000
ROUNDS, QUICK_ROUNDS = 4, 1
OBSERVATIONS = 60
MILLION = 1_000_000


def export(bench: Bench) -> Outcome:
    """Write events, then export them again and again while one caller asks another bandit for slates.

    After each export the caller asks as often without one. Times are of the command as an operator starts it, its own
    start included.
    """
    logs.configure("text", level="ERROR")
    events, rounds = bench.scaled(EVENTS, QUICK_EVENTS), bench.scaled(ROUNDS, QUICK_ROUNDS)
    with (
        tempfile.TemporaryDirectory(prefix="topk-bandit-bench-") as name,
        EmbeddedStore.start(Path(name), fsync="everysec") as embedded,
        Supervisor(replace(settings_in(Path(name)), redis_url=embedded.url)) as supervisor,
        Client(supervisor.address, tenant=TENANT, timeout=CALL_SECONDS) as client,
    ):
        client.create_bandit(BANDIT, slate_size=SLATE_SIZE, context_dimension=1, item_capacity=ITEMS)
        client.upsert_items(BANDIT, [f"item-{index}" for index in range(ITEMS)])
        asyncio.run(write_visits(embedded.url, events // 2, bench.report))
        storefront = Storefront.opened(client, seed=1, bandit="asked")
        storefront.fill(OBSERVATIONS, lambda _done, _all: None)
        words = [sys.executable, "-m", "topk_bandit", "events", "export", f"{TENANT}/{BANDIT}"]
        words += [f"--address={supervisor.address}", f"--out={Path(name) / 'exported.jsonl'}"]
        seconds, during, without = _rounds(storefront, words, rounds)
    return Outcome(
        _figures(events, seconds, during, without),
        {"events": events, "rounds": rounds, "callers": 1, "workers": 1, "store": "embedded", "file": "JSON Lines"},
    )


def _rounds(storefront: Storefront, words: list[str], rounds: int) -> tuple[list[float], list[float], list[float]]:
    """Return the seconds of each export, and of each call during one and without."""
    seconds: list[float] = []
    during: list[float] = []
    without: list[float] = []
    for _ in range(rounds):
        start = time.perf_counter()
        with subprocess.Popen(words) as exporting:
            calls = _asked(storefront, lambda _: exporting.poll() is None)
        seconds.append(time.perf_counter() - start)
        if exporting.returncode:
            raise RuntimeError("the export failed")
        during += calls
        without += _asked(storefront, partial(gt, len(calls)))
    return seconds, during, without


def _asked(storefront: Storefront, go_on: Callable[[int], bool]) -> list[float]:
    storefront.forget_times()
    while go_on(len(storefront.recommend_seconds)):
        storefront.recommend_one()
    return list(storefront.recommend_seconds)


def _figures(events: int, seconds: list[float], during: list[float], without: list[float]) -> list[Figure]:
    busy, quiet = (1e3 * float(np.percentile(times, 99)) for times in (during, without))
    one = float(np.median(seconds)) / events
    return [
        Figure("rate", "events exported", 1.0 / one, "/s"),
        Figure("million", "a million events, at that rate", one * MILLION, "s"),
        Figure("calls", "Recommend during the exports", len(during)),
        Figure("p99_without", "p99 of Recommend without an export", quiet, "ms"),
        Figure("p99_during", "p99 of Recommend during an export", busy, "ms"),
        Figure("p99_ratio", "p99 during / without", busy / quiet, "x"),
    ]
