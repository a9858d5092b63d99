"""The last release's program and this one on one store: an upgrade, its rollback, and both at once.

What either of them wrote the other one reads, goes on from, and learns the same from, to the bit. So a change of what
is stored, or of what is learned from it, fails here unless it has a data version of its own: the two programs meet, and
no recording stands between them that could be made again.
"""

from __future__ import annotations

from contextlib import ExitStack, closing
from typing import TYPE_CHECKING

import pytest
from tests.faults.golden_store import BANDITS, GoldenStore
from tests.faults.last_release import DATA_VERSION, release_command
from tests.faults.service import serving
from tests.faults.test_upgrade import Shop, no_call_failed
from tests.long_forms import usual_or_long
from tests.servers import running_server, valkey_binary
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from pathlib import Path

    from tests.faults.service import Service

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
