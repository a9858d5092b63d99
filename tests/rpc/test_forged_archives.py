"""Imports of forged exports, over the wire and into a real store: what was taken makes no call INTERNAL."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.contracts.harness import RedisStores, run
from tests.long_forms import usual_or_long
from tests.rpc.forged_archives import forge, plain_archive, rich_archive
from tests.rpc.whole import served
from tests.servers import running_server, valkey_binary

from topk_bandit.client import ClientError, Internal, InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

    from topk_bandit.client import AsyncClient
    from topk_bandit.store.log import Store

FORGED = usual_or_long(6, long=300)
FIRST = {False: 55, True: 8}
"""With these begins the search: they were taken once, and made most calls INTERNAL."""

ASKED: dict[bool, dict[str, Any]] = {False: {"context": [0.1, 0.2]}, True: {"features": {"age": 3.0, "kind": "tea"}}}


async def archives(*, rich: bool) -> list[list[str]]:
    """Return the lines of a bandit whose log is whole, and of one whose log was trimmed."""
    return [await (rich_archive if rich else plain_archive)(trimmed=trimmed) for trimmed in (False, True)]


def slates_in(lines: Sequence[str]) -> list[str]:
    """Return the ids of the newest slates of an archive."""
    events = [json.loads(line).get("event", {}) for line in lines]
    return [event["recommendation"]["recommendation_id"] for event in events if event.get("type") == "recommended"][-3:]


async def use(client: AsyncClient, lines: Sequence[str], *, rich: bool) -> list[str]:
    """Make the calls of a storefront, a shop and an operator; return those that were INTERNAL."""
    found = []

    async def call(name: str, called: Awaitable[Any]) -> Any:  # noqa: ANN401 - whatever it is answered with
        try:
            return await called
        except Internal as error:
            found.append(f"{name}: {error}")
        except ClientError:
            return None

    await call("GetBanditStats", client.stats("home"))
    for slate_id in slates_in(lines):
        await call("Activate", client.activate("home", slate_id))
        await call("Reward", client.reward("home", slate_id, 1.0, reward_id="one more", final=True))
    shown = await call("Recommend", client.recommend("home", **ASKED[rich]))
    if shown is not None and shown.id:
        await call("Activate", client.activate("home", shown.id))
        await call("Reward", client.reward("home", shown.id, 1.0, reward_id="one more", final=True))
    await call("UpsertItems", client.upsert_items("home", ["new"]))
    await call("VerifyBandit", client.verify("home"))
    await call("Recommend", client.recommend("home", **ASKED[rich]))
    await call("GetBanditStats", client.stats("home"))
    return found


async def send(client: AsyncClient, lines: Sequence[str], *, at_once: int) -> bool:
    """Return False for an archive that is refused by its line."""
    for place in range(0, len(lines), at_once):
        try:
            await client.import_events("home", lines[place : place + at_once], import_id="one", first_line=place)
        except InvalidArgument as error:
            return "lines[" not in str(error)
    return True


@pytest.mark.long_form
@pytest.mark.parametrize("rich", [False, True])
def test_no_forged_archive_that_is_taken_makes_a_call_internal(*, rich: bool) -> None:
    async def scenario(store: Store) -> None:
        sources = await archives(rich=rich)
        async with served(store) as client:
            for lines in sources:
                assert await send(client, lines, at_once=20)
                assert await use(client, lines, rich=rich) == []
                await client.delete_bandit("home")
            for number in range(FIRST[rich], FIRST[rich] + FORGED):
                rng = np.random.default_rng([int(rich), number])
                lines = forge(sources[number % 2], rng)
                if await send(client, lines, at_once=20):
                    assert await use(client, lines, rich=rich) == [], number
                with suppress(ClientError):
                    await client.delete_bandit("home")

    with running_server(valkey_binary(), append_only=False) as server:
        run(RedisStores(server.url), scenario)
