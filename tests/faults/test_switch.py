"""A bandit is switched off and on under load, in two services of two workers: at once, with no failed call, no loss."""

from __future__ import annotations

import itertools
import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING, NamedTuple, Self

import pytest
from tests.faults.load import counted, writing
from tests.faults.service import serving
from tests.servers import running_server, valkey_binary
from tests.waiting import PATIENCE, until

from topk_bandit.client import Client, ClientError, Stage
from topk_bandit.domain.bandits import BanditName
from topk_bandit.store.events import Recommended, Rewarded, SettingsChanged

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from topk_bandit.store.events import LoggedEvent

OWN = ("tea", "coffee", "milk")
STAGES = (Stage.OFF, Stage.LIVE, Stage.SHADOW, Stage.OFF, Stage.FROZEN, Stage.LIVE, Stage.OFF)
SLATES_IN_EACH = 40


class Given(NamedTuple):
    """A slate: which change was the last one whose call had returned when it was asked for, and which stage it has."""

    changes: int
    slate: str
    stage: Stage


class Shoppers:
    """Callers over gRPC and HTTP, of each service, that note all that they are given and all that fails."""

    def __init__(self, targets: Sequence[str]) -> None:
        self.changes = 0
        self.given: list[Given] = []
        self.rewarded: list[str] = []
        self.failed: list[str] = []
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=self._shop, args=(target,)) for target in targets]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def _shop(self, target: str) -> None:
        with Client(target, tenant="shop", timeout=PATIENCE) as client:
            while not self._ended.wait(0.01):
                try:
                    self._visit(client)
                except ClientError as error:
                    self.failed.append(f"{type(error).__name__}: {error}")

    def _visit(self, client: Client) -> None:
        changes = self.changes
        slate = client.recommend("home", baseline=OWN)
        if slate.degraded or (slate.stage in {Stage.OFF, Stage.SHADOW} and slate.items != OWN):
            self.failed.append(f"{slate}")
        self.given.append(Given(changes, slate.id, slate.stage))
        outcome = client.reward("home", slate.id, 1.0).outcome
        (self.rewarded if outcome in {"accepted", "duplicate"} else self.failed).append(slate.id)

    def until_more_are_given(self) -> None:
        before = len(self.rewarded)
        until(lambda: len(self.rewarded) >= before + SLATES_IN_EACH or self.failed, what="callers go on")


def check_log(events: Sequence[LoggedEvent], given: Sequence[Given]) -> None:
    """Check that each slate has the stage of the newest change before it, of those at least that its caller knew."""
    stage, changes, known = Stage.LIVE, 0, {one.slate: one for one in given}
    for logged in events:
        if isinstance(logged.event, SettingsChanged):
            stage, changes = logged.event.settings.stage, changes + 1
        elif isinstance(logged.event, Recommended):
            one = known.pop(logged.event.recommendation.recommendation_id)
            assert one.stage is logged.event.recommendation.stage is stage, logged
            assert one.changes <= changes, logged
    assert (changes, known) == (len(STAGES), {})


@pytest.mark.slow
def test_a_switch_is_in_force_everywhere_once_the_call_returns(tmp_path: Path) -> None:
    with ExitStack() as stack:
        server = stack.enter_context(running_server(valkey_binary()))
        flags = (f"--redis-url={server.url}", "--workers=2")
        services = [stack.enter_context(serving(tmp_path / name, *flags)) for name in ("one", "other")]
        first, second = (stack.enter_context(service.client()) for service in services)
        first.create_bandit("home", slate_size=3, item_capacity=8)
        first.upsert_items("home", [*OWN, "cocoa", "juice"])
        scribe = stack.enter_context(writing(server.url, BanditName("shop", "home")))
        targets = [target for one in services for target in (one.address, *2 * [f"http://{one.http_address}"])]
        with Shoppers(targets) as shoppers:
            for client, stage in zip(itertools.cycle([first, second]), STAGES, strict=False):
                shoppers.until_more_are_given()
                client.update_bandit("home", stage=stage)
                shoppers.changes += 1
            shoppers.until_more_are_given()
        events = scribe.finish()
        assert shoppers.failed == []
        check_log(events, shoppers.given)
        in_log = [one.event.recommendation_id for one in events if isinstance(one.event, Rewarded)]
        assert counted(in_log) == {}
        assert {*shoppers.rewarded} == {*in_log}
