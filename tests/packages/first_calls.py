"""Calls a service by each door, with each client: python first_calls.py GRPC_ADDRESS HTTP_ADDRESS."""

from __future__ import annotations

import asyncio
import sys
import warnings
from importlib.metadata import version
from typing import TYPE_CHECKING

from topk_bandit.client import AsyncClient, Client, NotFound, RewardOutcome, categorical, numeric

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

ITEMS = {"tea": [0.1, 0.5], "coffee": [0.2, 1.0], "cocoa": [1.0, 0.4], "milk": [0.4, 0.0]}


def call(client: Client) -> None:
    schema = [numeric("hour", minimum=0.0, maximum=24.0), categorical("shop", buckets=16)]
    client.create_bandit("home", slate_size=2, item_capacity=10, context_schema=schema)
    client.upsert_items("home", list(ITEMS))
    first, second = (client.recommend("home", features={"hour": 12.5, "shop": "north"}) for _ in range(2))
    assert client.reward("home", first.id, 1.0).outcome is RewardOutcome.ACCEPTED
    batch = client.rewards("home", {first.id: 1.0, second.id: 0.0, "none": 0.0})
    assert [one.outcome.name for one in batch.receipts.values()] == ["DUPLICATE", "ACCEPTED"]
    assert isinstance(batch.errors["none"], NotFound)
    assert "nowhere" in str(refused(lambda: client.reward("nowhere", "none", 1.0)))
    assert client.stats("home").recommendation_count == 2
    client.create_study("tastes", items=ITEMS, answer_kind="ranking", list_size=3, budget=30)
    client.wait_for_design("tastes")
    questions = client.next_questions("tastes", 6).questions
    client.submit_answers("tastes", {one.id: sorted(one.items) for one in questions})
    assert len(client.get_preferences("tastes").items) == len(ITEMS)


def refused(call: Callable[[], object]) -> NotFound | None:
    try:
        call()
    except NotFound as error:
        return error
    return None


async def call_side_by_side(address: str, tenant: str) -> None:
    async with AsyncClient(address, tenant=tenant, timeout=100.0) as client:
        await client.create_bandit("home", slate_size=2, item_capacity=10)
        await client.upsert_items("home", list(ITEMS))
        slates = await asyncio.gather(*(client.recommend("home") for _ in range(20)))
        receipts = await asyncio.gather(*(client.reward("home", slate.id, 0.5) for slate in slates))
        assert {one.outcome for one in receipts} == {RewardOutcome.ACCEPTED}
        async for bandit in client.list_bandits():
            assert bandit.name == "home"


def main(addresses: Sequence[str]) -> None:
    warnings.simplefilter("error")
    for address in addresses:
        door = address.partition(":")[0] if "//" in address else "grpc"
        with Client(address, tenant=f"{door}-one-by-one", timeout=100.0) as client:
            call(client)
        asyncio.run(call_side_by_side(address, f"{door}-side-by-side"))
    print("called with grpcio", version("grpcio"), "and protobuf", version("protobuf"))


if __name__ == "__main__":
    main(sys.argv[1:])
