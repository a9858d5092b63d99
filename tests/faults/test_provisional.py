"""Rewards that are learned as they come, by a real service: through kills, refits and another start."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

import pytest
from tests.faults.service import serving
from tests.faults.test_damaged_bandit import command
from tests.servers import running_sentinel, running_server, valkey_binary
from tests.waiting import PATIENCE, until

from topk_bandit.client import Aggregation, FailedPrecondition

if TYPE_CHECKING:
    from pathlib import Path

    from tests.faults.service import Service

    from topk_bandit.client import BanditStats, Client

pytestmark = pytest.mark.slow

VISITS = 120
ITEMS = ["tea", "coffee", "cocoa", "milk"]


def create(client: Client, *, aggregation: Aggregation = Aggregation.SUM) -> None:
    client.create_bandit(
        "home",
        slate_size=2,
        item_capacity=6,
        default_reward=0.0,
        reward_aggregation=aggregation,
        reward_wait=timedelta(days=90),
        provisional_after=timedelta(0),
    )
    client.upsert_items("home", ITEMS)


def learned(client: Client, *, total: float) -> BanditStats:
    """Return the stats once all is learned that was posted."""
    until(lambda: total_of(client.stats("home")) == pytest.approx(total), what=f"{total} is learned")
    return client.stats("home")


def total_of(stats: BanditStats) -> float:
    return stats.mean_reward * stats.observation_count


def kill_and_start(service: Service) -> None:
    service.kill_everything()
    service.start()


def test_nothing_that_comes_later_is_lost_or_doubled_by_kills(tmp_path: Path) -> None:
    """A visit in ten buys, and one of two purchases is sent back, long after the refit that learned the slate."""
    with serving(tmp_path) as service:
        with service.client(timeout=PATIENCE) as client:
            create(client)
            slates = [client.recommend("home").id for _ in range(VISITS)]
            until(lambda: client.stats("home").default_count == VISITS, what="all defaults are learned")
            for number in range(0, VISITS, 10):
                client.reward("home", slates[number], 20.0, reward_id="order")
            learned(client, total=20.0 * VISITS / 10)
        kill_and_start(service)
        with service.client(timeout=PATIENCE) as client:
            for number in range(0, VISITS, 10):
                assert client.reward("home", slates[number], 20.0, reward_id="order").outcome == "duplicate"
            for number in range(0, VISITS, 20):
                client.reward("home", slates[number], -20.0, reward_id="return")
            stats = learned(client, total=20.0 * VISITS / 20)
            assert (stats.default_count, stats.observation_count) == (VISITS - VISITS // 10, VISITS)
            client.amend_reward("home", slates[10], 5.0, reward_id="order")
            client.void_reward("home", slates[30])
            stats = learned(client, total=20.0 * VISITS / 20 - 15.0 - 20.0)
            assert (stats.observation_count, stats.missed_correction_count) == (VISITS - 1, 0)
            digest = stats.log_digest
        kill_and_start(service)
        with service.client(timeout=PATIENCE) as client:
            again = client.stats("home")
            assert (again.log_digest, again.mean_reward) == (digest, stats.mean_reward)
            assert again.posterior_digest == stats.posterior_digest


def test_nothing_that_comes_later_is_lost_or_doubled_when_the_primary_dies(tmp_path: Path) -> None:
    """An order that its shop does not know to be taken is posted again to the new primary, and a return follows."""
    with running_sentinel(valkey_binary()) as pair, serving(tmp_path, f"--redis-url={pair.url}") as service:
        with service.client(timeout=PATIENCE) as client:
            create(client)
            slates = [client.recommend("home").id for _ in range(VISITS)]
            until(lambda: client.stats("home").default_count == VISITS, what="all defaults are learned")
            for slate in slates[::10]:
                client.reward("home", slate, 20.0, reward_id="order")
            learned(client, total=20.0 * VISITS / 10)
            client.reward("home", slates[0], -20.0, reward_id="return")
            learned(client, total=20.0 * VISITS / 10 - 20.0)
            pair.until_ready_to_fail_over()
            pair.lose_primary()
            for number in range(0, VISITS, 5):  # half of them were posted before
                until(partial(post, client, slates[number], 20.0, "order"), what="the order is taken")
            for number in range(0, VISITS, 20):
                until(partial(post, client, slates[number], -20.0, "return"), what="the return is taken")
            stats = learned(client, total=20.0 * VISITS / 5 - 20.0 * VISITS / 20)
            assert (stats.observation_count, stats.missed_correction_count) == (VISITS, 0)
            digests = stats.log_digest, stats.posterior_digest
        kill_and_start(service)
        with service.client(timeout=PATIENCE) as client:
            stats = client.stats("home")
            assert (stats.log_digest, stats.posterior_digest) == digests, "a replay comes to the same model"


def post(client: Client, slate: str, value: float, reward_id: str) -> bool:
    client.reward("home", slate, value, reward_id=reward_id)
    return True


def test_a_purchase_is_amended_at_any_time_though_only_the_first_counts(tmp_path: Path) -> None:
    with serving(tmp_path) as service, service.client(timeout=PATIENCE) as client:
        create(client, aggregation=Aggregation.FIRST)
        first = client.recommend("home").id
        client.reward("home", first, 3.0)
        for _ in range(60):
            client.reward("home", client.recommend("home").id, 1.0)
        learned(client, total=63.0)
        client.amend_reward("home", first, 0.5)
        assert learned(client, total=60.5).missed_correction_count == 0


def test_a_store_of_the_version_before_takes_it_once_the_upgrade_is_finalized(tmp_path: Path) -> None:
    with running_server(valkey_binary()) as server:
        with server.client() as keys:
            keys.hset("topk-bandit:programs", "data_version", 1)
        flag = f"--redis-url={server.url}"
        with serving(tmp_path, flag) as service, service.client(timeout=PATIENCE) as client:
            with pytest.raises(FailedPrecondition, match="finalize-upgrade") as refused:
                create(client)
            assert refused.value.reason == "DATA_VERSION"
            client.create_bandit("plain", slate_size=1, item_capacity=2)
            client.upsert_items("plain", ["tea", "milk"])
            slate = client.recommend("plain")
            named = {slate.items[0]: 1.0}
            with pytest.raises(FailedPrecondition, match="item_values needs data version 2") as refused:
                client.reward("plain", slate.id, 1.0, item_values=named)
            assert refused.value.reason == "DATA_VERSION"
            errors = client.rewards("plain", {slate.id: 1.0}).errors
            assert errors == {}, "without item values it is taken"
            file = tmp_path / "year.jsonl"
            file.write_text('{"items": ["tea"], "reward": 1, "item_values": {"tea": 1}}\n', encoding="utf-8")
            words = "import", "shop/plain", str(file), f"--address={service.address}"
            for flags in ((), ("--check",)):
                status, said = command(*words, *flags)
                assert status == 1
                assert "item_values needs data version 2, and 1 is in force" in said
            with server.client() as keys:
                keys.hset("topk-bandit:programs", "data_version", 2)
            until(lambda: is_taken(client), what="the worker knows of the version in force")
            again = client.recommend("plain")
            assert client.reward("plain", again.id, 1.0, item_values={again.items[0]: 1.0}).log_position > 0
            assert "1 rows can be imported" in command(*words, "--check")[1]
            assert "1 rows imported" in command(*words)[1]


def test_the_doctor_names_a_bandit_that_learns_from_buyers_alone(tmp_path: Path) -> None:
    """By its snapshot: nobody has to run the service."""
    with running_server(valkey_binary()) as server:
        flag = f"--redis-url={server.url}"
        with serving(tmp_path, flag) as service, service.client(timeout=PATIENCE) as client:
            for bandit, default in (("selective", None), ("whole", 0.0)):
                wait = timedelta(milliseconds=200)
                client.create_bandit(bandit, slate_size=2, item_capacity=6, reward_wait=wait, default_reward=default)
                client.upsert_items(bandit, ITEMS)
                for visit in range(700):
                    slate = client.recommend(bandit).id
                    if visit % 5 == 0:
                        client.reward(bandit, slate, 4.0)
                until(lambda name=bandit: client.stats(name).snapshot_position, what="a snapshot is saved")
        _, said = command("doctor", flag)
        assert "rewards: tenants/shop/bandits/selective learn from visitors who buy alone" in said
        assert "whole learn" not in said


def is_taken(client: Client) -> bool:
    try:
        create(client)
    except FailedPrecondition:
        return False
    return True
