"""The real command on a real pair of servers behind Sentinel, before and after the primary dies."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest
from tests.faults.insisting import recorded, rewarded
from tests.faults.service import COMMAND, clean_environment, serving
from tests.rpc.harness import channel_to
from tests.rpc.wire import create, recommend
from tests.servers import running_sentinel, valkey_binary
from tests.waiting import PATIENCE, until

from topk_bandit.v1 import recommender_service_pb2 as rpb

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import grpc
    from tests.servers import SentinelPair


@pytest.fixture(scope="module")
def pair() -> Iterator[SentinelPair]:
    with running_sentinel(valkey_binary()) as pair:
        yield pair


def learned(channel: grpc.Channel, count: int) -> bool:
    given = recommend(channel)
    return not given.degraded and given.observation_count == count


def doctor(pair: SentinelPair, durability: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [COMMAND, "doctor"],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
        env=clean_environment(COLUMNS="200", TOPK_BANDIT_REDIS_URL=pair.url, TOPK_BANDIT_DURABILITY=durability),
    )


def test_the_doctor_examines_the_primary(pair: SentinelPair) -> None:
    done = doctor(pair, "memory")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "master, sentinel, answers in" in done.stdout
    assert "durability: memory is awaited" in done.stdout


def test_the_doctor_says_what_a_class_lacks(pair: SentinelPair) -> None:
    done = doctor(pair, "replicated:2")
    assert done.returncode == 1
    assert "appendfsync is everysec" in done.stdout
    assert "min-replicas-to-write is 0" in done.stdout
    assert "1 of 2 replicas follow" in done.stdout


def test_it_serves_through_sentinel_and_follows_to_the_new_primary(pair: SentinelPair, tmp_path: Path) -> None:
    with (
        serving(tmp_path, "--redis-url", pair.url) as service,
        channel_to(service.address) as channel,
    ):
        create(channel)
        first = recorded(channel, "first")
        assert rewarded(channel, first, 1.0) == rpb.REWARD_OUTCOME_ACCEPTED
        until(lambda: learned(channel, 1), what="the reward is learned")
        assert list(tmp_path.iterdir()) == []

        pair.until_ready_to_fail_over()
        pair.lose_primary()
        until(lambda: learned(channel, 1), what="recommending on the new primary")
        assert recorded(channel, "first").recommendation_id == first.recommendation_id
        assert rewarded(channel, first, 1.0) == rpb.REWARD_OUTCOME_DUPLICATE
        second = recorded(channel, "second")
        assert rewarded(channel, second, 2.0) == rpb.REWARD_OUTCOME_ACCEPTED
        until(lambda: learned(channel, 2), what="learning on the new primary")
        with pair.replica.client() as client:
            assert client.info("replication")["role"] == "master"
