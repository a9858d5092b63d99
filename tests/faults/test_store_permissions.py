"""Somebody takes a right from the store's user while the service runs, and gives it back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.faults.service import serving
from tests.long_forms import LONG
from tests.servers import running_server, valkey_binary
from tests.waiting import until

from topk_bandit.client import Unavailable

if TYPE_CHECKING:
    from pathlib import Path

    from tests.faults.service import Service

RIGHTS = ("+@all", "allkeys", "allchannels")


def lines(service: Service) -> list[tuple[str, str]]:
    """Return what the log says of the store, with its severity, but for what the server gives as the reason."""
    told = [(one["level"], one["message"]) for one in service.records if "the store" in one.get("message", "")]
    return [(level, message.partition(":")[0]) for level, message in told]


def problems(service: Service) -> float:
    told = service.page("/metrics")[1].splitlines()
    return next(float(line.split()[1]) for line in told if line.startswith("topk_bandit_store_problems "))


@pytest.mark.long_form
@pytest.mark.skipif(not LONG, reason="the watch over the store looks every five seconds")
def test_slates_degrade_while_a_right_lacks_and_the_log_names_it(tmp_path: Path) -> None:
    with running_server(valkey_binary()) as server:
        url = server.url_of_a_user(*RIGHTS)
        with (
            serving(tmp_path, f"--redis-url={url}") as service,
            service.client() as client,
        ):
            client.create_bandit("home", slate_size=1, item_capacity=2)
            client.upsert_items("home", ["tea", "milk"])
            waiting = client.recommend("home")
            server.url_of_a_user(*RIGHTS, "-xadd")
            assert client.recommend("home").degraded
            with pytest.raises(Unavailable, match=r"the store's user lacks a permission: .*xadd"):
                client.reward("home", waiting.id, 1.0)
            until(lambda: problems(service) == 1, what="the metric tells")
            server.url_of_a_user(*RIGHTS)
            assert client.reward("home", waiting.id, 1.0).outcome.name == "ACCEPTED"
            until(lambda: problems(service) == 0, what="it is over")
            until(lambda: len(lines(service)) == 4, what="the log says so")
        assert sorted(lines(service)) == [
            ("ERROR", "the store can't keep what it acknowledges any more"),
            ("ERROR", "the store refuses calls"),
            ("WARNING", "the store has no longer this problem"),
            ("WARNING", "the store refuses calls no more"),
        ]
