"""A bandit of the real service, as `topk-bandit serve` runs it, and the shop whose customers it serves."""

from __future__ import annotations

import multiprocessing
import tempfile
import time
from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from topk_bandit.learning.environments import Shop
from topk_bandit.process import logs
from topk_bandit.process.settings import Address, Settings
from topk_bandit.process.supervisor import Supervisor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from topk_bandit.client import Client

__all__ = [
    "BANDIT",
    "CALL_SECONDS",
    "LEARNING_SECONDS",
    "TENANT",
    "Storefront",
    "ranking_of",
    "service",
    "settings_in",
    "worker_pid",
]

TENANT, BANDIT = "bench", "home-page"
REWARD_DELAY = 10
CALL_SECONDS = 30.0
LEARNING_SECONDS = 120.0


def settings_in(folder: Path, *, redis_url: str = "") -> Settings:
    """Return the settings of `topk-bandit serve`, but for a free port, no metrics page and a quiet log."""
    return Settings(
        listen=Address("127.0.0.1", 0),
        http_listen=None,
        metrics_listen=None,
        redis_url=redis_url,
        data_dir=folder,
        log_level="ERROR",
        log_format="text",
    )


@contextmanager
def service() -> Iterator[tuple[Supervisor, Path]]:
    """Run the service, one worker on an embedded store in a folder that is deleted afterwards."""
    logs.configure("text", level="ERROR")
    with (
        tempfile.TemporaryDirectory(prefix="topk-bandit-bench-") as folder,
        Supervisor(settings_in(Path(folder))) as supervisor,
    ):
        yield supervisor, Path(folder)


def worker_pid() -> int:
    """Return the process id of the one worker."""
    workers = [child for child in multiprocessing.active_children() if child.name.startswith("topk-bandit-")]
    (worker,) = workers
    return int(worker.pid or 0)


@dataclass(slots=True)
class Storefront:
    """One caller: it asks for slates for random customers, and posts each reward ten requests later."""

    client: Client
    bandit: str
    shop: Shop
    rng: np.random.Generator
    recommend_seconds: list[float] = field(default_factory=list)
    reward_seconds: list[float] = field(default_factory=list)
    _unrewarded: deque[tuple[str, float]] = field(default_factory=deque)

    @classmethod
    def opened(cls, client: Client, *, seed: int, bandit: str = BANDIT, customers: int = 40) -> Storefront:
        """Create a bandit and fill its shelves with the demo's 50 items."""
        rng = np.random.default_rng(seed)
        shop = Shop.random(rng, n_customers=customers)
        n_items, context_dim = shop.items.shape
        client.create_bandit(bandit, slate_size=shop.slate_size, context_dimension=context_dim, item_capacity=n_items)
        client.upsert_items(bandit, [f"item-{index}" for index in range(n_items)])
        return cls(client, bandit, shop, rng)

    def recommend_one(self) -> None:
        """Ask for one slate for a random customer, and keep its reward for later; timed."""
        customer = int(self.rng.integers(len(self.shop.customers)))
        start = time.perf_counter()
        slate = self.client.recommend(self.bandit, self.shop.customers[customer].tolist())
        self.recommend_seconds.append(time.perf_counter() - start)
        self._unrewarded.append((slate.id, self.shop.draw(customer, ranking_of(slate.items), self.rng)))

    def serve_one(self) -> None:
        """Ask for one slate, and post the reward of an earlier one; both are timed."""
        self.recommend_one()
        if len(self._unrewarded) > REWARD_DELAY:
            self.reward_one()

    def reward_one(self) -> None:
        """Post the reward of the slate that has waited longest; timed."""
        start = time.perf_counter()
        self.client.reward(self.bandit, *self._unrewarded.popleft())
        self.reward_seconds.append(time.perf_counter() - start)

    def fill(self, observations: int, report: Callable[[int, int], None]) -> None:
        """Serve until so many rewards are learned, and forget how long that took."""
        for number in range(observations + REWARD_DELAY):
            self.serve_one()
            report(number, observations)
        self.await_learned(observations)
        self.forget_times()

    def forget_times(self) -> None:
        """Begin to time anew."""
        self.recommend_seconds.clear()
        self.reward_seconds.clear()

    def await_learned(self, observations: int) -> None:
        """Wait until the model has all that the log holds, and as many rewards."""
        deadline = time.monotonic() + LEARNING_SECONDS
        while time.monotonic() < deadline:
            stats = self.client.stats(self.bandit)
            if stats.observation_count >= observations and stats.model_version == stats.log_position:
                return
            time.sleep(0.05)
        raise TimeoutError(f"{observations} rewards are not learned within {LEARNING_SECONDS:.0f} seconds")


def ranking_of(items: tuple[str, ...]) -> NDArray[np.int32]:
    """Return the indices of a slate's items."""
    return np.array([int(item.removeprefix("item-")) for item in items], dtype=np.int32)
