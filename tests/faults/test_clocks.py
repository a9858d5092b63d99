"""Clocks that jump, of the service's machine and of the store's: real processes under a clock that is set.

Deadlines go by the store's clock alone, so that a service whose clock is wrong ends no slate and learns no other age.
"""

from __future__ import annotations

import sys
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.faults.clocks import OwnClock
from tests.faults.service import serving
from tests.long_forms import LONG
from tests.servers import running_server, valkey_binary
from tests.waiting import PATIENCE, until

from topk_bandit.client import Client, RewardOutcome

if TYPE_CHECKING:
    from tests.faults.service import Service

PROGRAM = (sys.executable, str(Path(__file__).with_name("clock_program.py")))
WAIT = timedelta(hours=1)
JUMPS = (timedelta(hours=2), timedelta(hours=-2), timedelta(days=400), timedelta(0))


def open_shop(client: Client) -> None:
    client.create_bandit("home", slate_size=2, item_capacity=6, reward_wait=WAIT)
    client.upsert_items("home", ["a", "b", "c", "d"])


def trade(client: Client, rounds: int) -> None:
    for number in range(rounds):
        receipt = client.reward("home", client.recommend("home").id, number % 3 / 2.0)
        assert receipt.outcome is RewardOutcome.ACCEPTED


def over_http(service: Service) -> Client:
    """Return a client whose calls have no deadline by the clock of gRPC's library, which the test does not set."""
    return Client(f"http://{service.http_address}", tenant="shop", timeout=PATIENCE)


def said(service: Service, part: str) -> bool:
    return any(part in record.get("message", "") for record in service.records)


def is_learned(client: Client, rewards: int) -> bool:
    known = client.stats("home")
    return known.observation_count == rewards and known.model_version == known.log_position


def test_the_services_clock_jumps_and_nothing_comes_of_it(tmp_path: Path) -> None:
    ahead = tmp_path / "ahead"
    ahead.write_text("0")
    with running_server(valkey_binary()) as server:
        flags, variables = (f"--redis-url={server.url}",), {"CLOCK_AHEAD": str(ahead)}
        with serving(tmp_path, *flags, command=PROGRAM, variables=variables) as service, over_http(service) as client:
            open_shop(client)
            waiting = [client.recommend("home").id for _ in JUMPS]
            for jump, slate in zip(JUMPS, waiting, strict=True):
                ahead.with_suffix(".new").write_text(f"{jump.total_seconds():.0f}")
                ahead.with_suffix(".new").rename(ahead)
                trade(client, 5)
                client.upsert_items("home", ["a"])  # which the audit log has
                assert client.reward("home", slate, 1.0).outcome is RewardOutcome.ACCEPTED
            until(lambda: is_learned(client, 6 * len(JUMPS)), what="all is learned")
            assert client.stats("home").late_reward_count == 0
            assert client.verify("home").agrees
            years = {record["time"][:4] for record in service.records if "time" in record}
            assert len(years) > 1, "its clock was another one"


@pytest.mark.long_form
@pytest.mark.skipif(not LONG, reason="the library that sets its clock may hang what forks: make faults does")
def test_the_stores_clock_jumps_and_ends_what_is_due_by_it(tmp_path: Path) -> None:
    clock = OwnClock(tmp_path)
    with running_server(clock.program(valkey_binary())) as server:
        flags = (f"--redis-url={server.url}",)
        with serving(tmp_path / "data", *flags) as service, service.client() as client:
            open_shop(client)
            trade(client, 5)
            early, waiting = client.recommend("home").id, client.recommend("home").id
            clock.set_ahead(timedelta(hours=-2))  # what waits has longer to wait
            assert client.reward("home", early, 1.0).outcome is RewardOutcome.ACCEPTED
            trade(client, 5)
            clock.set_ahead(timedelta(hours=2))
            assert client.reward("home", waiting, 1.0).outcome is RewardOutcome.LATE
            trade(client, 5)
            until(lambda: is_learned(client, 16), what="all is learned")
            until(lambda: said(service, "the store's clock has jumped by"), what="the log says so")
            clock.set_ahead(timedelta(0))
            trade(client, 5)
            until(lambda: is_learned(client, 21), what="all is learned")
            assert client.verify("home").agrees
