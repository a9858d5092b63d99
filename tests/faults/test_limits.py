"""What one call takes, no other refuses later: the largest bandit that the wire allows, through a whole life."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.faults.service import serving
from tests.rpc.wire import longest_id
from tests.waiting import PATIENCE

from topk_bandit.domain.bandits import MAX_SLATE_SIZE

if TYPE_CHECKING:
    from pathlib import Path

    from topk_bandit.client import Client


ITEMS = [longest_id(number) for number in range(10_000)]
CONTEXT = [-1e6 + 0.123456789 * number for number in range(64)]


def shop(client: Client, *, rounds: int) -> None:
    for number in range(rounds):
        slate = client.recommend("home", CONTEXT, candidates=ITEMS if number % 2 else None)
        assert not slate.degraded
        assert len(set(slate.items)) == MAX_SLATE_SIZE
        # On a busy machine the client may have to ask twice: then it was the first call that counted.
        assert client.reward("home", slate.id, float(number)).outcome in {"accepted", "duplicate"}


def test_the_largest_bandit_is_served(folder: Path) -> None:
    with serving(folder) as service:
        with service.client(timeout=PATIENCE) as client:
            client.create_bandit("home", slate_size=MAX_SLATE_SIZE, item_capacity=10_000, context_dimension=64)
            for start in (0, 5_000):
                assert client.upsert_items("home", ITEMS[start : start + 5_000]) == start + 5_000
            assert client.upsert_items("home", ITEMS) == 10_000
            shop(client, rounds=6)
            assert {item.item_id for item in client.items("home")} == set(ITEMS)
            assert client.stats("home").observation_count == 6
        service.kill_everything()
        service.start()
        with service.client(timeout=PATIENCE) as client:
            shop(client, rounds=2)
            assert client.stats("home").observation_count == 8
            assert client.retire_items("home", ITEMS[:5_000]) == 5_000
            assert client.retire_items("home", ITEMS[5_000:]) == 0
