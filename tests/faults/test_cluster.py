"""The service on a cluster of three primaries under load: primaries are killed, and a bandit's slot moves."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from tests.faults.load import counted, shopping, writing
from tests.faults.service import serving
from tests.long_forms import LONG, usual_or_long
from tests.servers import running_replicated_cluster, valkey_binary
from tests.waiting import PATIENCE, until

from topk_bandit.domain.bandits import BanditName
from topk_bandit.store.events import Recommended, Rewarded
from topk_bandit.store.redis.keys import KeySpace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.faults.load import Customers
    from tests.faults.service import Service
    from tests.servers import ReplicatedCluster

    from topk_bandit.client import Client
    from topk_bandit.store.events import LoggedEvent

ROUNDS = usual_or_long(1, long=5)


@pytest.fixture(scope="module")
def cluster() -> Iterator[ReplicatedCluster]:
    with running_replicated_cluster(valkey_binary()) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def service(cluster: ReplicatedCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("unused")
    with serving(folder, f"--redis-url={cluster.url}", "--durability=replicated:1") as service:
        yield service


def is_recorded(client: Client, bandit: str) -> bool:
    return not client.recommend(bandit, [0.5], timeout=PATIENCE).degraded


def wait_for_business(customers: Customers) -> None:
    heard = len(customers.acknowledged)
    until(lambda: len(customers.acknowledged) >= heard + 20, what="business goes on")


def fail_over(cluster: ReplicatedCluster, key: str) -> None:
    """Kill the primary that has a key; it comes back as the replica of the one that took over."""
    killed = cluster.primary_of(key)
    cluster.kill(killed)
    if not LONG:  # else the others notice by themselves
        cluster.promote_replica_of(killed, key)
    until(lambda: cluster.primary_of(key) is not killed, what="its replica takes over")
    cluster.bring_back(killed, cluster.primary_of(key))


def move_the_slot(cluster: ReplicatedCluster, key: str) -> None:
    target = cluster.other_primary(key)
    cluster.move(key, target)
    until(lambda: cluster.primary_of(key) is target, what="the others know who has the slot")


@pytest.mark.long_form
@pytest.mark.parametrize("trouble", [fail_over, move_the_slot])
def test_a_cluster_loses_and_doubles_nothing_that_was_acknowledged(
    trouble: Callable[[ReplicatedCluster, str], None], cluster: ReplicatedCluster, service: Service
) -> None:
    name = BanditName("shop", trouble.__name__.replace("_", "-"))
    key = KeySpace("topk-bandit").bandit(name).log
    with service.client(tenant=name.tenant) as client:
        client.create_bandit(name.bandit, slate_size=2, item_capacity=6, context_dimension=1)
        client.upsert_items(name.bandit, [f"item-{number}" for number in range(6)])
        with writing(cluster.url, name, may_lose=True) as scribe:
            with shopping(service.address, name.bandit, waits=scribe.is_behind) as customers:
                gaps = []
                for _ in range(ROUNDS):
                    cluster.until_replicated()
                    wait_for_business(customers)
                    begun = time.monotonic()
                    trouble(cluster, key)
                    until(lambda: is_recorded(client, name.bandit), what="slates are recorded again")
                    gaps.append(time.monotonic() - begun)
                wait_for_business(customers)
            events = scribe.finish()
        print(f"{trouble.__name__}: seconds until slates were recorded again: {[round(gap, 2) for gap in gaps]}")
        check_rewards(customers, events)
        lost = customers.given - slates_in(events)
        assert not lost & customers.acknowledged.keys()
        until(lambda: client.stats(name.bandit).lost_event_count >= len(lost), what="what is lost is counted")
        assert trouble is fail_over or client.stats(name.bandit).lost_event_count == 0


def check_rewards(customers: Customers, events: list[LoggedEvent]) -> None:
    rewards = [logged.event for logged in events if isinstance(logged.event, Rewarded)]
    assert customers.surprises == []
    assert counted([one.recommendation_id for one in rewards]) == {}
    learned = {one.recommendation_id: one.value for one in rewards}
    assert customers.acknowledged.items() <= learned.items() <= customers.sent.items()


def slates_in(events: list[LoggedEvent]) -> set[str]:
    recorded = [logged.event.recommendation for logged in events if isinstance(logged.event, Recommended)]
    return {one.recommendation_id for one in recorded}
