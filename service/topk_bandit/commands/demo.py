"""The demo: a simulated shop served over gRPC, with what it learns on the screen.

Everything is real but the customers: the service runs as `topk-bandit serve` does, on an embedded store in a folder
that is deleted afterwards, and the shop talks to it through the client that a storefront would import.
"""

from __future__ import annotations

import tempfile
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.live import Live
from rich.table import Table

from topk_bandit.client import Client
from topk_bandit.learning.environments import Shop
from topk_bandit.learning.rankings import random_rankings
from topk_bandit.process import logs
from topk_bandit.process.settings import Address, Settings
from topk_bandit.process.supervisor import Supervisor

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from topk_bandit.client import Recommendation

__all__ = ["show"]

TENANT, BANDIT = "demo", "home-page"
REWARD_DELAY = 10
"""In how many requests a reward arrives."""

SCREEN_SECONDS = 0.2

PATIENCE = 60.0
"""Nobody waits for a page here: a machine that stands still for a while ends no demo."""


@dataclass(slots=True)
class _Record:
    """What one policy earned, round by round."""

    rewards: list[float] = field(default_factory=list)
    regrets: list[float] = field(default_factory=list)

    def add(self, reward: float, regret: float) -> None:
        self.rewards.append(reward)
        self.regrets.append(regret)

    def recent(self, values: list[float]) -> float:
        """Return the mean over the last third of the rounds."""
        return float(np.mean(values[-max(len(values) // 3, 1) :])) if values else 0.0


class _Visit:
    """A shop, the service, and a policy of random slates that meets the same customers."""

    def __init__(self, client: Client, *, seed: int) -> None:
        self._client = client
        self._rng = np.random.default_rng(seed)
        self.shop = Shop.random(self._rng)
        self.learned, self.random = _Record(), _Record()
        self.seconds: list[float] = []
        self._unrewarded: deque[tuple[str, float]] = deque()

    def open(self) -> None:
        """Create the bandit and fill its shelves."""
        n_items, context_dim = self.shop.items.shape
        self._client.create_bandit(
            BANDIT, slate_size=self.shop.slate_size, context_dimension=context_dim, item_capacity=n_items
        )
        self._client.upsert_items(BANDIT, [f"item-{index}" for index in range(n_items)])

    def serve_one(self) -> None:
        """Serve one customer: a slate now, and the reward of a slate shown ten requests ago."""
        customer = int(self._rng.integers(len(self.shop.customers)))
        start = time.perf_counter()
        slate = self._client.recommend(BANDIT, self.shop.customers[customer].tolist())
        self.seconds.append(time.perf_counter() - start)
        ranking = np.array([int(item.removeprefix("item-")) for item in slate.items], dtype=np.int32)
        self._unrewarded.append((slate.id, self._earn(self.learned, customer, ranking)))
        drawn = random_rankings(
            np.arange(len(self.shop.items)), slate_size=self.shop.slate_size, count=1, rng=self._rng
        )
        self._earn(self.random, customer, drawn[0])
        if len(self._unrewarded) > REWARD_DELAY:
            self._client.reward(BANDIT, *self._unrewarded.popleft())

    def _earn(self, record: _Record, customer: int, ranking: NDArray[np.int32]) -> float:
        reward = self.shop.draw(customer, ranking, self._rng)
        record.add(reward, self.shop.best(customer) - float(self.shop.expect_rewards(customer, ranking[None])[0]))
        return reward

    def table(self, rounds: int) -> Table:
        """Return what the screen shows."""
        table = Table(
            title=f"50 items, slates of 6, one number per slate: request {len(self.seconds)} of {rounds}",
            box=SIMPLE_HEAD,
            pad_edge=False,
        )
        table.add_column("policy", no_wrap=True)
        for title in ("mean reward", "last third", "mean regret", "last third", "all regret"):
            table.add_column(title, justify="right", no_wrap=True)
        for name, record in (("topk-bandit", self.learned), ("random", self.random)):
            table.add_row(name, *_figures(record))
        milliseconds = np.array(self.seconds or [0.0]) * 1e3
        p50, p95, p99 = np.percentile(milliseconds, [50, 95, 99])
        table.caption = f"Recommend over gRPC: p50 {p50:.1f} ms, p95 {p95:.1f} ms, p99 {p99:.1f} ms"
        return table


def _figures(record: _Record) -> list[str]:
    mean = float(np.mean(record.rewards)) if record.rewards else 0.0
    regret = float(np.mean(record.regrets)) if record.regrets else 0.0
    return [
        f"{mean:.3f}",
        f"{record.recent(record.rewards):.3f}",
        f"{regret:.3f}",
        f"{record.recent(record.regrets):.3f}",
        f"{sum(record.regrets):.1f}",
    ]


def show(*, rounds: int, seed: int) -> int:
    """Run the demo; return the exit status."""
    console = Console()
    logs.configure("text", level="ERROR")
    with tempfile.TemporaryDirectory(prefix="topk-bandit-demo-") as folder:
        settings = Settings(
            listen=Address("127.0.0.1", 0),
            http_listen=None,
            metrics_listen=None,
            data_dir=Path(folder),
            store_timeout_seconds=PATIENCE,
            log_level="ERROR",
            log_format="text",
        )
        console.print("Starting the service on an embedded store (the first time on a machine, this compiles) ...")
        with (
            Supervisor(settings) as service,
            Client(service.address, tenant=TENANT, timeout=PATIENCE) as client,
        ):
            console.print(f"Serving gRPC on {service.address}. Each reward arrives {REWARD_DELAY} requests late.")
            visit = _Visit(client, seed=seed)
            visit.open()
            _watch(visit, console, rounds=rounds)
            last = client.recommend(BANDIT, visit.shop.customers[0].tolist())
    _summarise(visit, last, console)
    return 0


def _watch(visit: _Visit, console: Console, *, rounds: int) -> None:
    shown = 0.0
    with Live(visit.table(rounds), console=console, auto_refresh=False) as live:
        for number in range(1, rounds + 1):
            visit.serve_one()
            if time.monotonic() - shown > SCREEN_SECONDS or number == rounds:
                live.update(visit.table(rounds), refresh=True)
                shown = time.monotonic()


def _summarise(visit: _Visit, last: Recommendation, console: Console) -> None:
    learned, drawn = visit.learned, visit.random
    share = learned.recent(learned.regrets) / drawn.recent(drawn.regrets)
    console.print(
        f"\nOver the last third of the requests its regret was [bold]{share:.0%}[/bold] of the random policy's.\n"
        f"For the first customer it would now show {', '.join(last.items)},\n"
        f"and expects a reward of {last.mean:.3f} ± {last.standard_deviation:.3f}.\n\n"
        "How to go on:\n"
        "  make serve            leaves a service running on 127.0.0.1:50051 (gRPC) and 127.0.0.1:50080 (HTTP)\n"
        "  topk-bandit doctor    checks what it stands on\n"
        "  README.md             a storefront in ten lines of Python",
        highlight=False,
    )
