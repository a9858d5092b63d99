"""Answers of the store that are long: reading them does not hold up those who wait for the event loop."""

from __future__ import annotations

import asyncio

from topk_bandit.store.codec import encode_event
from topk_bandit.store.data_versions import OLDEST
from topk_bandit.store.events import Lapsed
from topk_bandit.store.redis.replies import checksum_of, read_texts

ENTRIES = 128


def entry(position: int) -> bytes:
    """Return an entry of a log as its script returns it."""
    text = f"{position}-0 1764000000000 - ".encode() + encode_event(Lapsed(f"slate-{position}"))
    return f"{checksum_of(text)} ".encode() + text


def test_others_have_their_turn_while_a_long_part_of_a_log_is_read() -> None:
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def scenario() -> None:
        counting = asyncio.create_task(count())
        parts = [b"first", b"1", b"%d" % ENTRIES, [entry(position) for position in range(1, ENTRIES + 1)]]
        part = await read_texts(parts, start=1, version=OLDEST)
        counting.cancel()
        assert [event.position for event in part.events] == list(range(1, ENTRIES + 1))

    asyncio.run(scenario())
    assert turns >= ENTRIES // 32
