"""A bandit whose log was deleted or overwritten: its pages have slates all the same, and the reason is said once."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
import redis
from tests.faults.service import serving
from tests.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.faults.service import Service

pytestmark = pytest.mark.slow

REASONS = {"deleted": "the log is empty", "overwritten": "a key of the store holds something that was not written by"}


def errors(service: Service, reason: str) -> list[str]:
    messages = [record["message"] for record in service.records if record.get("level") == "ERROR"]
    return [message for message in messages if reason in message]


def test_slates_go_on_by_the_model_and_the_reason_is_said_once(tmp_path: Path) -> None:
    with serving(tmp_path) as service, service.client(tenant="acme") as client:
        for bandit in REASONS:
            client.create_bandit(bandit, slate_size=2, item_capacity=9)
            client.upsert_items(bandit, ["a", "b", "c"])
            for _ in range(5):
                client.reward(bandit, client.recommend(bandit).id, 0.5)
        with redis.Redis(unix_socket_path=str(tmp_path / "valkey.sock")) as store:
            logs = {bandit: next(store.scan_iter(f"*acme/{bandit}*:log")) for bandit in REASONS}
            store.delete(*logs.values())
            store.set(logs["overwritten"], "x")
        for bandit, reason in REASONS.items():
            until(lambda reason=reason: errors(service, reason), what="the log says why")
            slates = [client.recommend(bandit) for _ in range(20)]
            assert all(slate.degraded and len(slate.items) == 2 for slate in slates)
        time.sleep(3.0)  # three looks at each
        assert [len(errors(service, reason)) for reason in REASONS.values()] == [1, 1]
        assert not [record for record in service.records if "exception" in record]
