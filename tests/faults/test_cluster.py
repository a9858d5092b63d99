"""The service on a cluster of three primaries under load: primaries are killed, and a bandit's slot moves."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from tests.faults.load import counted, shopping, writing
from tests.faults.service import serving
from tests.long_forms import usual_or_long
from tests.servers import running_replicated_cluster, valkey_binary
from tests.waiting import until

from topk_bandit.domain.bandits import BanditName, Rewarded
from topk_bandit.store.redis.keys import KeySpace

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.faults.load import Customers
    from tests.servers import ReplicatedCluster

    from topk_bandit.client import Client
    from topk_bandit.domain.bandits import LoggedEvent

NAME = BanditName("shop", "home")
KEY = KeySpace("topk-bandit").bandit(NAME).log
ROUNDS = usual_or_long(1, long=5)
FLAGS = ("--store-timeout-seconds=0.5", "--durability=replicated:1")


def is_recorded(client: Client) -> bool:
    return bool(client.recommend("home", [0.5], timeout=1.0).id)


def wait_for_business(customers: Customers) -> None:
    heard = len(customers.acknowledged)
    until(lambda: len(customers.acknowledged) >= heard + 20, what="business goes on")


def kill_a_primary(cluster: ReplicatedCluster) -> None:
    """Kill the primary that has the bandit; it comes back as the replica of the one that took over."""
    killed = cluster.primary_of(KEY)
    cluster.kill(killed)
    until(lambda: cluster.primary_of(KEY) is not killed, what="its replica takes over")
    cluster.bring_back(killed)


def move_the_slot(cluster: ReplicatedCluster) -> None:
    target = cluster.other_primary(KEY)
    cluster.move(KEY, target)
    until(lambda: cluster.primary_of(KEY) is target, what="the others know who has the slot")


@pytest.mark.long_form
@pytest.mark.timeout(usual_or_long(240, long=900))
@pytest.mark.parametrize("trouble", [kill_a_primary, move_the_slot])
def test_a_cluster_loses_and_doubles_nothing_that_was_acknowledged(
    trouble: Callable[[ReplicatedCluster], None], tmp_path: Path
) -> None:
    with (
        running_replicated_cluster(valkey_binary()) as cluster,
        serving(tmp_path, f"--redis-url={cluster.url}", *FLAGS) as service,
        service.client(tenant="shop") as client,
    ):
        client.create_bandit("home", slate_size=2, item_capacity=6, context_dimension=1)
        client.upsert_items("home", [f"item-{number}" for number in range(6)])
        with writing(cluster.url, NAME) as scribe:
            with shopping(service.address, "home") as customers:
                gaps = [gap_after(trouble, cluster, client, customers) for _ in range(ROUNDS)]
                wait_for_business(customers)
            events = scribe.finish()
        stats = client.stats("home")
    print(f"{trouble.__name__}: seconds until slates were recorded again: {[round(gap, 2) for gap in gaps]}")
    check_ledger(customers, events)
    assert stats.lost_event_count == stats.lost_reward_count == 0


def gap_after(
    trouble: Callable[[ReplicatedCluster], None], cluster: ReplicatedCluster, client: Client, customers: Customers
) -> float:
    """Return for how many seconds no slate was recorded."""
    cluster.until_replicated()
    wait_for_business(customers)
    begun = time.monotonic()
    trouble(cluster)
    until(lambda: is_recorded(client), what="slates are recorded again")
    return time.monotonic() - begun


def check_ledger(customers: Customers, events: list[LoggedEvent]) -> None:
    rewards = [logged.event for logged in events if isinstance(logged.event, Rewarded)]
    assert customers.surprises == []
    assert counted([one.recommendation_id for one in rewards]) == {}
    learned = {one.recommendation_id: one.value for one in rewards}
    assert customers.acknowledged.items() <= learned.items() <= customers.sent.items()
