"""A store that loses all that it has, or is another one: it is noticed, counted, and nothing is made anew over it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from typing import TYPE_CHECKING

import pytest
import redis
from tests.faults.service import COMMAND, clean_environment, serving
from tests.waiting import PATIENCE, until

from topk_bandit.client import NotFound, Unavailable

if TYPE_CHECKING:
    from pathlib import Path

    from tests.faults.service import Service

    from topk_bandit.client import Client

pytestmark = pytest.mark.slow

BANDITS, PAIRS = ("first", "second", "third"), 12
REPLACED = "topk_bandit_store_replaced "
LOST = "topk_bandit_lost_events_total"


def furnish(service: Service) -> tuple[int, int]:
    """Return how many events there are, and how many rewards."""
    events = 0
    with service.client(tenant="acme") as client:
        for bandit in BANDITS:
            client.create_bandit(bandit, slate_size=2, item_capacity=9)
            client.upsert_items(bandit, ["a", "b", "c"])
            for _ in range(PAIRS):
                client.reward(bandit, client.recommend(bandit).id, 0.5)
            until(lambda name=bandit: is_learned(client, name), what="all is learned")
            events += client.stats(bandit).log_position
    return events, len(BANDITS) * PAIRS


def is_learned(client: Client, bandit: str) -> bool:
    stats = client.stats(bandit)
    return stats.model_version == stats.log_position


def metric(service: Service, name: str) -> float:
    return sum(float(line.split()[-1]) for line in service.page("/metrics")[1].splitlines() if line.startswith(name))


def doctor(data: Path) -> str:
    command = [COMMAND, "doctor", f"--data-dir={data}"]
    environment = clean_environment()
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False, timeout=PATIENCE)
    return done.stdout


def counted(service: Service) -> tuple[int, int]:
    """Return how many events and rewards the log says are lost."""
    found = [record for record in service.records if "lost_events" in record]
    return sum(record["lost_events"] for record in found), sum(record["lost_rewards"] for record in found)


def test_a_store_that_was_emptied_is_noticed_and_counted_and_not_filled_anew(tmp_path: Path) -> None:
    with serving(tmp_path, "--workers=2") as service:
        events, rewards = furnish(service)
        assert metric(service, REPLACED) == 0
        with redis.Redis(unix_socket_path=str(tmp_path / "valkey.sock")) as store:
            kept = {key: store.dump(key) for key in store.scan_iter("*")}
            store.flushall()
            until(lambda: counted(service) == (events, rewards), what="all that was known is counted")
            until(lambda: metric(service, REPLACED) == 1, what="the metric shows it")
            assert metric(service, LOST) == events
            with service.client(tenant="acme") as client, pytest.raises(Unavailable, match="has lost all its data"):
                client.create_bandit("first", slate_size=2, item_capacity=9, timeout=1.0)
            with service.client(tenant="acme") as client:
                # The models are still there, and a page has its slates.
                assert all(client.recommend(bandit).degraded for bandit in BANDITS)
            assert "wrong identity" in doctor(tmp_path)
            # A worker that is started meanwhile knows it from the supervisor.
            os.kill(service.worker_pids[0], signal.SIGKILL)
            service.until_ready()
            with service.client(tenant="acme") as client, pytest.raises(Unavailable, match="has lost all its data"):
                client.create_bandit("first", slate_size=2, item_capacity=9, timeout=1.0)
            store.flushall()
            for key, value in kept.items():
                store.restore(key, 0, value, replace=True)
            until(lambda: metric(service, REPLACED) == 0, what="the store is the one again")
        with service.client(tenant="acme") as client:
            assert sum(client.stats(bandit).log_position for bandit in BANDITS) == events
    # A service that is started takes the store as it is.
    with serving(tmp_path) as service:
        assert metric(service, REPLACED) == 0


def test_a_store_that_lost_its_id_alone_is_still_the_same(tmp_path: Path) -> None:
    with serving(tmp_path) as service:
        furnish(service)
        with redis.Redis(unix_socket_path=str(tmp_path / "valkey.sock")) as store:
            [programs] = store.keys("*:programs")
            store.delete(programs)
            until(
                lambda: any("not its data" in record.get("message", "") for record in service.records),
                what="the log says so",
            )
        assert counted(service) == (0, 0)
        with service.client(tenant="acme") as client:
            client.recommend("first")


def wrong_losses(data: Path) -> str:
    return next(iter(re.findall(r"wrong losses: .*\n.*", doctor(data))), "")


@pytest.mark.parametrize("lost", ["a bandit", "a tenant"])
def test_bandits_that_nobody_deleted_are_counted(tmp_path: Path, lost: str) -> None:
    with serving(tmp_path, "--workers=2") as service:
        events, rewards = furnish(service)
        keys = "*acme/second}*" if lost == "a bandit" else "*{acme*"
        with redis.Redis(unix_socket_path=str(tmp_path / "valkey.sock")) as store:
            store.delete(*store.scan_iter(keys))
            part = 1 if lost == "a tenant" else len(BANDITS)
            expected = (events // part, rewards // part)
            until(lambda: counted(service) == expected, what="what was known of them is counted")
            assert metric(service, LOST) == events // part
        with service.client(tenant="acme") as client:
            if lost == "a bandit":
                client.delete_bandit("third")
                client.create_bandit("fourth", slate_size=2, item_capacity=9)
        assert ("tenants/acme/bandits/second" if lost == "a bandit" else "tenants/acme") in wrong_losses(tmp_path)
        with service.client(tenant="acme") as client, pytest.raises(NotFound):
            client.recommend("second")
        assert counted(service) == expected, "what was deleted is no loss"
