"""Where a scenario is played: a service of its own, the generator, and shops whose customers come."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from machine import cpu_seconds
from topk_bandit.client import Client, PastObservation
from topk_bandit.learning.environments import Shop
from topk_bandit.learning.rankings import random_rankings
from traffic.plans import Plan

if TYPE_CHECKING:
    from collections.abc import Iterable

    from topk_bandit.client import BanditStats
    from traffic.calls import Calls
    from traffic.checkouts import Service
    from traffic.generator import Generator
    from traffic.histogram import Histogram
    from traffic.plans import Stream

__all__ = ["BANDIT", "OWN_CONTEXTS", "REWARDS", "REWARDS_TO_THE_LIMIT", "TENANT", "Stage", "shop_of"]

TENANT, BANDIT = "load", "home-page"

REWARDS = 200
"""What a usual bandit has learned from."""

REWARDS_TO_THE_LIMIT = 1000
"""Rewards of random slates after which the default memory holds no more rows."""

OWN_CONTEXTS = 50_000
"""More customers than come, so that each has a context of its own."""

CALL_SECONDS, LEARNING_SECONDS, POLL_SECONDS = 60.0, 120.0, 0.05
AT_ONCE = 4


@dataclass(slots=True)
class Stage:
    """What a scenario plays on.

    Attributes
    ----------
    lateness
        Of each run of the generator so far.
    cpu
        Seconds that the worker computed during the last run.
    """

    service: Service
    generator: Generator
    lateness: list[Histogram] = field(default_factory=list)
    cpu: float = 0.0

    def client(self, tenant: str = TENANT) -> Client:
        """Return a client of a tenant."""
        return Client(self.service.address, tenant=tenant, timeout=CALL_SECONDS)

    def open(self, shop: Shop, bandits: Iterable[str] = (BANDIT,), *, tenant: str = TENANT, rewards: int = 0) -> None:
        """Create bandits, each with all items and with rewards of random slates, and wait until these are learned."""
        with self.client(tenant) as client, ThreadPoolExecutor(AT_ONCE) as pool:
            for _ in pool.map(lambda bandit: _open(client, shop, bandit, rewards), bandits):
                pass

    def load(self, seconds: tuple[float, ...], *streams: Stream, seed: int) -> Calls:
        """Let customers come, in phases that last so long."""
        before = cpu_seconds(self.service.worker_pid)
        calls = self.generator.run(Plan(self.service.address, seconds, streams, seed))
        self.cpu = cpu_seconds(self.service.worker_pid) - before
        self.lateness.append(calls.lateness)
        return calls

    def stats(self, bandit: str = BANDIT, *, tenant: str = TENANT) -> BanditStats:
        """Return where a bandit stands, once its model has all that its log holds."""
        with self.client(tenant) as client:
            return _learned(client, bandit)


def shop_of(seed: int, *, customers: int = 40) -> Shop:
    """Return a shop of the demo's size: 50 items, slates of 6, contexts of 5 numbers."""
    return Shop.random(np.random.default_rng(seed), n_customers=customers)


def _open(client: Client, shop: Shop, bandit: str, rewards: int) -> None:
    n_items, context_dim = shop.items.shape
    client.create_bandit(bandit, slate_size=shop.slate_size, context_dimension=context_dim, item_capacity=n_items)
    client.upsert_items(bandit, [f"item-{index}" for index in range(n_items)])
    if rewards:
        client.import_observations(bandit, list(_history(shop, rewards)), import_id="history")
        _learned(client, bandit)


def _history(shop: Shop, rewards: int) -> Iterable[PastObservation]:
    rng = np.random.default_rng(rewards)
    n_items, n_customers = len(shop.items), len(shop.customers)
    for number, ranking in enumerate(
        random_rankings(np.arange(n_items), slate_size=shop.slate_size, count=rewards, rng=rng)
    ):
        customer = n_customers - 1 - number % n_customers
        items = tuple(f"item-{index}" for index in ranking)
        yield PastObservation(items, shop.draw(customer, ranking, rng), tuple(shop.customers[customer].tolist()))


def _learned(client: Client, bandit: str) -> BanditStats:
    deadline = time.monotonic() + LEARNING_SECONDS
    while (stats := client.stats(bandit)).model_version != stats.log_position:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{bandit} has not learned its log within {LEARNING_SECONDS:.0f} seconds")
        time.sleep(POLL_SECONDS)
    return stats
