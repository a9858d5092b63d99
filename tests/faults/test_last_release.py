"""The last release's program and this one on one store: an upgrade, its rollback, and both at once.

What either of them wrote the other one reads, goes on from, and learns the same from, to the bit. So a change of what
is stored, or of what is learned from it, fails here unless it has a data version of its own: the two programs meet, and
no recording stands between them that could be made again.
"""

from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING

import pytest
from tests.faults.golden_store import BANDITS, GoldenStore
from tests.faults.last_release import DATA_VERSION, release_command
from tests.faults.service import clean_environment, serving
from tests.faults.test_upgrade import Shop, no_call_failed
from tests.long_forms import usual_or_long
from tests.servers import running_server, valkey_binary
from tests.waiting import PATIENCE

from topk_bandit.bandits.choices import choose_slate
from topk_bandit.bandits.fold import begin, fold
from topk_bandit.commands.log.dumps import Dump, lines
from topk_bandit.domain.bandits import DEFAULT_EXPLORATION, BanditSettings, Item, Kernel
from topk_bandit.domain.slates import RecommendationRequest
from topk_bandit.learning.limits import Limits
from topk_bandit.store.events import (
    BanditCreated,
    ItemsChanged,
    LoggedEvent,
    Recommended,
    Rewarded,
    Shown,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.faults.service import Service

    from topk_bandit.bandits.model import Model
    from topk_bandit.store.events import Event

ROUNDS = usual_or_long(400, long=20_000)


@pytest.mark.long_form
@pytest.mark.parametrize("first", ["release", "this"])
def test_each_program_goes_on_from_what_the_other_one_wrote(tmp_path: Path, first: str) -> None:
    with running_server(valkey_binary()) as server, ExitStack() as stack:
        url = f"--redis-url={server.url}"
        with server.client() as keys:
            keys.hset("topk-bandit:programs", "data_version", DATA_VERSION)
        release = stack.enter_context(serving(tmp_path, url, start=False, command=release_command()))
        this = stack.enter_context(serving(tmp_path, url, start=False))
        before, after = (release, this) if first == "release" else (this, release)
        golden = GoldenStore()
        before.start()
        with closing(before.client()) as client:
            golden.write(client)
            seen = golden.seen_by(client)
        stop(before)
        after.start()
        with closing(after.client()) as client:
            assert golden.seen_by(client) == seen
            golden.go_on(client)
            seen = golden.seen_by(client)
        before.start()
        with closing(before.client()) as client:
            assert golden.seen_by(client) == seen
        serve_beside_each_other(before, after)
        assert no_call_failed(release)
        assert no_call_failed(this)


def test_both_programs_learn_the_same_from_a_long_life(tmp_path: Path) -> None:
    """A second kind of rewards begins late, and is judged for long: a program that judges otherwise fails."""
    file = tmp_path / "log.jsonl"
    file.write_text("".join(f"{line}\n" for line in lines(long_life(1_800))), encoding="utf-8")
    seen = [digests(command, file) for command in (release_command(), (sys.executable, "-m", "topk_bandit"))]
    assert seen[0] == seen[1]


def long_life(rounds: int) -> Dump:
    """Return the log of a shop in which each fourth slate earns twenty times as much, but not before the 300th."""
    model: Model | None = None
    events = list[LoggedEvent]()

    def happen(event: Event) -> None:
        nonlocal model
        logged = LoggedEvent(len(events) + 1, 1 + 20 * len(events), event)
        model = begin("id", logged, limits=Limits()) if model is None else fold(model, logged)
        events.append(logged)

    happen(BanditCreated(BanditSettings(4, 2, 1, Kernel.ADAPTIVE, DEFAULT_EXPLORATION, 3_600_000, None)))
    happen(ItemsChanged(tuple(map(Item, ("tea", "coffee", "cocoa", "milk"))), ()))
    for number in range(rounds):
        assert model is not None
        request = RecommendationRequest(f"asked {number}", (1.0,), None)
        given = choose_slate(model, request)
        happen(Recommended(request, given))
        earned = float("tea" in given.slate) + number % 7 / 10.0 + (20.0 if number > 300 and number % 4 == 0 else 0.0)
        happen(Rewarded(given.recommendation_id, earned, Shown(request.context, given.slate, events[-1].at_ms)))
    return Dump("tenants/shop/bandits/home", "id", None, tuple(events))


def digests(command: Sequence[str], file: Path) -> list[str]:
    """Return what a program says of the digests of a log that it replays."""
    done = subprocess.run(
        [*command, "log", "replay", str(file)], capture_output=True, text=True, env=clean_environment(), check=True
    )
    found = [line for line in done.stdout.splitlines() if "digest" in line]
    assert len(found) == 2
    return found


def stop(service: Service) -> None:
    service.running.terminate()
    assert service.wait(PATIENCE) == 0


def serve_beside_each_other(*services: Service) -> None:
    """Give out slates by turns, and post each one's reward to the other program; nothing is lost, and all agree."""
    with ExitStack() as stack:
        clients = [stack.enter_context(closing(one.client())) for one in services]
        shop = Shop(clients)
        shop.create()
        shop.trade(ROUNDS)
        shop.agree()
        counted = [
            client.stats("home").observation_count + client.stats("cart").observation_count for client in clients
        ]
        assert counted == [ROUNDS, ROUNDS]
        seen = [GoldenStore.seen_by(client) for client in clients]
        assert seen[0] == seen[1]
        assert all(seen[0][bandit]["lost_event_count"] == 0 for bandit in BANDITS)
