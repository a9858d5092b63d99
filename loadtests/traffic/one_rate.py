"""Scenarios in which calls come at one rate that is easily answered."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from figures import Figure
from machine import cpu_seconds
from traffic.found import usual
from traffic.plans import Stream
from traffic.scenario import Scenario
from traffic.stage import BANDIT, OWN_CONTEXTS, REWARDS, REWARDS_TO_THE_LIMIT, TENANT, shop_of
from traffic.watch import resident_mb

if TYPE_CHECKING:
    from traffic.found import Found
    from traffic.stage import Stage

__all__ = ["BANDITS_200", "HOT_BANDIT", "STEADY"]

STEADY_RATE, MANY_RATE, HOT_RATE = 20.0, 20.0, 15.0
MANY, REWARDS_OF_MANY, IDLE_SECONDS = 200, 20, 3.0
WAITING = 100


def steady(stage: Stage, seconds: float) -> Found:
    """Let customers of one bandit come at a rate that is easily answered."""
    shop = shop_of(1)
    stage.open(shop, rewards=REWARDS)
    calls = stage.load((seconds,), Stream(TENANT, (BANDIT,), shop, (STEADY_RATE,)), seed=1)
    return usual(calls, seconds, cpu=stage.cpu)


def bandits_200(stage: Stage, seconds: float) -> Found:
    """Let customers of 200 bandits come, which the service has all in memory."""
    shop, names = shop_of(6), tuple(f"bandit-{number}" for number in range(MANY))
    stage.open(shop, names, rewards=REWARDS_OF_MANY)
    worker = stage.service.worker_pid
    before = cpu_seconds(worker)
    time.sleep(IDLE_SECONDS)
    idle = (cpu_seconds(worker) - before) / IDLE_SECONDS
    calls = stage.load((seconds,), Stream(TENANT, names, shop, (MANY_RATE,)), seed=6)
    found = usual(calls, seconds, cpu=stage.cpu)
    found.figures += [
        Figure("idle_cpu", f"worker CPU without calls, following {MANY} bandits", idle, "share"),
        Figure("resident", "worker, resident", resident_mb(worker), "MB"),
    ]
    return found


def hot_bandit(stage: Stage, seconds: float) -> Found:
    """Let customers of one bandit come that has all rows it may have, while a hundred slates wait.

    Each customer has a context of its own.
    """
    shop = shop_of(7, customers=OWN_CONTEXTS)
    stage.open(shop, rewards=REWARDS_TO_THE_LIMIT)
    with stage.client() as client:
        for customer in range(WAITING):
            client.recommend(BANDIT, shop.customers[-1 - REWARDS_TO_THE_LIMIT - customer].tolist())
    before = stage.stats()
    calls = stage.load((seconds,), Stream(TENANT, (BANDIT,), shop, (HOT_RATE,)), seed=7)
    found, after = usual(calls, seconds, cpu=stage.cpu), stage.stats()
    found.figures += [
        Figure("rows", "rows before, of rewards", before.posterior_row_count),
        Figure("rows_after", "rows after, of rewards", after.posterior_row_count),
        Figure("pending", "slates that wait throughout", before.pending_count),
    ]
    return found


STEADY = Scenario("steady", "20 customers a second of one bandit", 10.0, 120.0, steady)
BANDITS_200 = Scenario("200-bandits", f"{MANY} bandits in one worker", 8.0, 120.0, bandits_200)
HOT_BANDIT = Scenario("hot-bandit", f"one bandit at its row limit, {WAITING} slates pending", 8.0, 120.0, hot_bandit)
