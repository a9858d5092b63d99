"""Real faults of stores, and of services that share one, before a real Prometheus."""

from __future__ import annotations

import contextlib
import signal
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from tests.faults.alarms import SHORT_HOLD, Fault, long_only, name_of, see_alerts
from tests.faults.clocks import OwnClock, has_faketime
from tests.faults.load import shopping
from tests.faults.service import serving
from tests.programs import find_program
from tests.servers import free_port, running_server, valkey_binary
from tests.test_watching import watching

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.servers import RunningServer
    from tests.test_watching import Prometheus

pytestmark = long_only("it waits for minutes: make faults does")


@dataclass(frozen=True)
class Pair:
    """A store with a clock of its own, its replica, and who watches the service on them."""

    primary: RunningServer
    replica: RunningServer
    clock: OwnClock | None
    prometheus: Prometheus


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    target = f"127.0.0.1:{free_port()}"
    clock = OwnClock(tmp_path_factory.mktemp("clock")) if has_faketime() else None
    program = valkey_binary() if clock is None else clock.program(valkey_binary())
    with contextlib.ExitStack() as stack:
        options = ("--appendfsync", "always", "--repl-diskless-sync-delay", "0", "--min-replicas-to-write", "1")
        primary = stack.enter_context(running_server(program, *options))
        following = ("--replicaof", "127.0.0.1", str(primary.port))
        replica = stack.enter_context(running_server(valkey_binary(), *options, *following))
        flags = (f"--redis-url={primary.url}", f"--metrics-listen={target}", "--durability=replicated:1")
        flags += ("--store-timeout-seconds=1",)
        service = stack.enter_context(serving(tmp_path_factory.mktemp("unused"), *flags))
        with service.client() as client:
            client.create_bandit("home", slate_size=2, item_capacity=6, context_dimension=1)
            client.upsert_items("home", [f"i{number}" for number in range(6)])
        stack.enter_context(shopping(service.address, "home", threads=1))
        prometheus = stack.enter_context(watching(tmp_path_factory.mktemp("prometheus"), target, hold=SHORT_HOLD))
        yield Pair(primary, replica, clock, prometheus)


@contextlib.contextmanager
def frozen_replica(pair: Pair) -> Iterator[None]:
    pair.replica.send_signal(signal.SIGSTOP)
    yield
    pair.replica.send_signal(signal.SIGCONT)


@contextlib.contextmanager
def clock_set(pair: Pair) -> Iterator[None]:
    """The clock of the store's machine is set a minute ahead, and set right again."""
    if pair.clock is None:
        find_program("faketime")
    else:
        pair.clock.set_ahead(timedelta(minutes=1))
        yield
        pair.clock.set_ahead(timedelta(0))


FAULTS = [
    Fault(frozen_replica, {"NotDurable"}),
    Fault(clock_set, {"StoreClockJumped", "StoreUnsafe"}, {"StoreUnsafe"}),
]


@pytest.mark.parametrize("fault", FAULTS, ids=name_of)
def test_a_fault_has_its_alerts_fire(pair: Pair, fault: Fault) -> None:
    see_alerts(pair, pair.prometheus, fault)
