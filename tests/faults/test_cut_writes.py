"""A worker that is killed inside of one write: at points between what it sends to the store and the store's reply."""

from __future__ import annotations

import os
import signal
from itertools import product
from typing import TYPE_CHECKING

import pytest
from tests.faults.lines import CutLine, Place
from tests.faults.load import assert_each_counts_once, shopping, writing
from tests.faults.service import serving
from tests.long_forms import usual_or_long
from tests.servers import free_port, running_server, valkey_binary
from tests.waiting import until

from topk_bandit.domain.bandits import BanditName
from topk_bandit.store.data_versions import NEWEST
from topk_bandit.store.redis.scripts import COMMIT, SAVE_SNAPSHOT

if TYPE_CHECKING:
    from pathlib import Path

CUTS = list(product((COMMIT, SAVE_SNAPSHOT), Place))
ROUNDS = usual_or_long(1, long=10)


@pytest.mark.slow
@pytest.mark.long_form
@pytest.mark.timeout(3600)
def test_nothing_that_was_acknowledged_is_lost_or_doubled(folder: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    with (
        running_server(valkey_binary()) as server,
        CutLine(server.port) as line,
        serving(folder, f"--listen={address}", f"--redis-url=redis://127.0.0.1:{line.port}") as service,
        service.client() as client,
    ):
        client.create_bandit("home", slate_size=2, item_capacity=6)
        client.upsert_items("home", [f"item-{number}" for number in range(6)])
        with writing(server.url, BanditName("shop", "home")) as scribe:
            with shopping(address, "home", waits=scribe.is_behind) as customers:
                for script, place in CUTS * ROUNDS:
                    line.cut(script.at(NEWEST).digest.encode(), place)
                    until(lambda: line.is_cut, what="the write is cut")
                    [worker] = service.worker_pids
                    os.kill(worker, signal.SIGKILL)
                    line.mend()
                    heard = len(customers.acknowledged)
                    until(lambda heard=heard: len(customers.acknowledged) >= heard + 5, what="business goes on")
            events = scribe.finish()
        until(lambda: client.stats("home").model_version == events[-1].position, what="all is learned")
        stats = client.stats("home")
    assert stats.observation_count == assert_each_counts_once(customers, events)
