"""A running service does not read back what it wrote itself, by the commands that its store counts."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING

from tests.faults.service import serving
from tests.servers import running_server, valkey_binary
from tests.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.servers import RunningServer

    from topk_bandit.client import Client

PAIRS, PAUSE_SECONDS = 60, 0.04


def commands(server: RunningServer) -> Counter[str]:
    with server.client() as client:
        counted = client.info("commandstats").items()
    return Counter({name.removeprefix("cmdstat_"): told["calls"] for name, told in counted})


def trade(client: Client) -> None:
    """Trade so slowly that each event is looked at by itself."""
    for number in range(PAIRS):
        slate = client.recommend("home")
        time.sleep(PAUSE_SECONDS)
        client.reward("home", slate.id, float(number % 3))
        time.sleep(PAUSE_SECONDS)


def test_a_hot_bandit_of_one_worker_is_hardly_read(tmp_path: Path) -> None:
    with running_server(valkey_binary(), config=["appendfsync always"]) as server:
        flags = (f"--redis-url={server.url}", "--workers=1")
        with serving(tmp_path, *flags) as service, service.client(tenant="acme") as client:
            client.create_bandit("home", slate_size=2, item_capacity=9)
            client.upsert_items("home", [f"i{number}" for number in range(6)])
            client.recommend("home")
            before, began = commands(server), time.monotonic()
            trade(client)
            used, seconds = commands(server) - before, time.monotonic() - began
            assert used["xadd"] == 2 * PAIRS
            assert used["xrange"] <= 2 * (seconds + 1.0), "once a second it is read, whatever is known"
            until(lambda: client.stats("home").observation_count == PAIRS, what="all is learned")
            assert client.verify("home").agrees
