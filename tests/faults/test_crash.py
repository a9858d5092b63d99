"""The service killed again and again under load: what was acknowledged stays, once, and the posterior is the log's."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.bandits.harness import replayed
from tests.faults.load import assert_each_counts_once, shopping, writing
from tests.faults.service import Service, alive, serving
from tests.long_forms import usual_or_long
from tests.servers import free_port
from tests.waiting import PATIENCE, until

from topk_bandit.bandits.choices import choose_slate
from topk_bandit.domain.bandits import BanditName
from topk_bandit.learning.limits import Limits
from topk_bandit.store.events import Recommended
from topk_bandit.store.redis.bandits import RedisStore

if TYPE_CHECKING:
    from pathlib import Path

    from tests.faults.load import Customers

    from topk_bandit.bandits.model import Model
    from topk_bandit.client import BanditStats

NAME = BanditName("shop", "home")
KILLS = usual_or_long(
    ["store", "worker", "supervisor", "everything while it starts"],
    long=["store"] * 40
    + ["worker"] * 24
    + ["supervisor"] * 18
    + ["everything"] * 10
    + ["everything while it starts"] * 10,
)
FSYNC = usual_or_long(["always"], long=["always", "everysec"])


def kill_store(service: Service, rng: np.random.Generator) -> None:
    """The supervisor starts it again."""
    before = service.store_pid
    os.kill(before, signal.SIGKILL)
    until(lambda: service.store_pid != before, what="a new store")


def kill_worker(service: Service, rng: np.random.Generator) -> None:
    """The supervisor hires another."""
    [before] = service.worker_pids
    os.kill(before, signal.SIGKILL)
    until(lambda: service.worker_pids not in ([], [before]) and service.page("/readyz")[0] == 200, what="a new worker")


def kill_supervisor(service: Service, rng: np.random.Generator) -> None:
    """The worker ends by itself, and the next service takes over the store that is left."""
    workers, store = service.worker_pids, service.store_pid
    service.kill_supervisor()
    until(lambda: not alive(*workers), what="the worker notices")
    assert alive(store) == {store}
    service.start()
    assert service.store_pid == store


def kill_everything(service: Service, rng: np.random.Generator) -> None:
    service.kill_everything()
    service.start()


def kill_everything_while_it_starts(service: Service, rng: np.random.Generator) -> None:
    service.kill_everything()
    service.spawn()
    time.sleep(float(rng.random()))
    kill_everything(service, rng)


def wait_for_business(customers: Customers) -> None:
    heard = len(customers.acknowledged)
    until(lambda: len(customers.acknowledged) >= heard + 5, what="business goes on")


@pytest.mark.long_form
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("fsync", FSYNC)
def test_nothing_acknowledged_is_lost_or_counted_twice(folder: Path, fsync: str) -> None:
    rng = np.random.default_rng(11)
    address = f"127.0.0.1:{free_port()}"
    with serving(folder, f"--listen={address}", f"--fsync={fsync}") as service:
        with service.client() as client:
            client.create_bandit("home", slate_size=2, item_capacity=6, context_dimension=2, uniform_share=0.1)
            client.upsert_items("home", [f"item-{n}" for n in range(6)])
        with writing(f"unix://{folder}/valkey.sock", NAME) as scribe:
            with shopping(address, "home", context_dim=2, waits=scribe.is_behind) as customers:
                for kind in rng.permutation(KILLS):
                    wait_for_business(customers)
                    time.sleep(float(rng.random()) * 0.2)
                    globals()[f"kill_{str(kind).replace(' ', '_')}"](service, rng)
                wait_for_business(customers)  # a worker is ready for a moment after its store was killed
                service.until_ready()
            with service.client() as client:
                checks = [client.recommend("home", [x, 1.0], request_id=f"check-{x}") for x in range(5)]
                stats = client.stats("home")
            events = scribe.finish()
        incarnation = asyncio.run(_incarnation(folder))
        models = replayed(incarnation, events, limits=Limits())

    assert stats.observation_count == assert_each_counts_once(customers, events)
    assert len(customers.acknowledged) > 5 * len(KILLS)
    assert_same_figures(stats, models[stats.model_version - 1])
    recorded = [logged.event for logged in events if isinstance(logged.event, Recommended)]
    # A call whose customer has gone may be recorded among the checks.
    asked = {check.id for check in checks}
    checked = [one for one in recorded if one.recommendation.recommendation_id in asked]
    assert [one.recommendation.recommendation_id for one in checked] == [check.id for check in checks]
    for one in [*recorded[::11], *checked]:
        again = choose_slate(models[one.recommendation.model_version - 1], one.request)
        assert _bare(again) == _bare(one.recommendation)


def assert_same_figures(stats: BanditStats, model: Model) -> None:
    posterior, tally = model.state.posterior, model.tally
    assert stats.model_version == model.version
    assert stats.observation_count == model.state.observations
    assert stats.recommendation_count == tally.recommendations
    assert stats.pending_count == model.open_slates
    assert stats.mean_reward == tally.reward_sum / model.state.observations
    assert (stats.regret_bound_sum, stats.estimated_regret_sum) == model.regret_sums
    assert stats.noise_variance == posterior.amplitude * posterior.noise_variance
    assert stats.prior_variance == posterior.amplitude * (1.0 + model.state.shared)


def _bare(recommendation: object) -> tuple[object, ...]:
    names = ("recommendation_id", "slate", "propensity", "mean", "standard_deviation", "regret_bound", "explored")
    return tuple(getattr(recommendation, name) for name in names)


async def _incarnation(folder: Path) -> str:
    store = await RedisStore.connect(f"unix://{folder}/valkey.sock", timeout=PATIENCE)
    try:
        return (await store.get_bandit(NAME)).incarnation
    finally:
        await store.close()
