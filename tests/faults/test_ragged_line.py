"""A line to the store that passes on a few bytes at a time, and ends inside of commands and replies."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from tests.faults.lines import RaggedLine
from tests.faults.load import assert_each_counts_once, shopping, writing
from tests.faults.service import serving
from tests.long_forms import usual_or_long
from tests.servers import running_server, valkey_binary
from tests.waiting import until

from topk_bandit.domain.bandits import BanditName

if TYPE_CHECKING:
    from pathlib import Path

CUTS = usual_or_long(60, long=2000)


@pytest.mark.slow
@pytest.mark.long_form
def test_nothing_that_was_acknowledged_is_lost_or_doubled(folder: Path) -> None:
    with (
        running_server(valkey_binary()) as server,
        RaggedLine(server.port, random.Random(5)) as line,
        serving(folder, f"--redis-url=redis://127.0.0.1:{line.port}") as service,
        service.client() as client,
    ):
        client.create_bandit("home", slate_size=2, item_capacity=6, context_dimension=2)
        client.upsert_items("home", [f"item-{number}" for number in range(6)])
        with writing(server.url, BanditName("shop", "home")) as scribe:
            with shopping(service.address, "home", context_dim=2, waits=scribe.is_behind) as customers:
                line.share = 0.03
                until(lambda: line.cuts >= CUTS, what=f"{CUTS} connections have ended")
                line.share = 0.0
                heard = len(customers.acknowledged)
                until(lambda: len(customers.acknowledged) >= heard + 20, what="business goes on")
            events = scribe.finish()
        stats = client.stats("home")
    assert stats.observation_count == assert_each_counts_once(customers, events)
