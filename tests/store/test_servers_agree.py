"""A Redis keeps what a Valkey keeps, key by key, after each script that a store has called."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from tests.contracts.clocks import ClockedLink
from tests.servers import redis_binary, running_server, valkey_binary
from tests.store.test_damaged_keys import SCRIPTS, use_everything

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    import redis

    from topk_bandit.store.redis.scripts import Script

READ: Mapping[bytes, Callable[[redis.Redis, bytes], Any]] = {
    b"string": lambda client, key: client.get(key),
    b"hash": lambda client, key: client.hgetall(key),
    b"zset": lambda client, key: client.zrange(key, 0, -1, withscores=True),
    b"stream": lambda client, key: client.xrange(key),
}


def kept_by(client: redis.Redis) -> dict[bytes, Any]:
    """Return what all keys hold and when they expire, by their names without the prefix of a test."""
    return {
        key.partition(b":")[2]: (READ[client.type(key)](client, key), client.pexpiretime(key))
        for key in client.keys("*")
    }


def life_on(binary: Path) -> tuple[list[str], list[tuple[str, dict[bytes, Any]]]]:
    """Use all of a store; return a bandit's lines, and each script that was called with what was there after it."""
    after: list[tuple[str, dict[bytes, Any]]] = []
    names = {script: name for name, script in SCRIPTS.items()}
    with (
        running_server(binary, append_only=False) as server,
        server.client() as client,
        pytest.MonkeyPatch.context() as patch,
    ):
        run, run_and_wait = ClockedLink.run, ClockedLink._run_and_wait

        async def noted(link: ClockedLink, script: Script, *arguments: Any) -> Any:  # noqa: ANN401
            answer = await run(link, script, *arguments)
            after.append((names[script], kept_by(client)))
            return answer

        async def noted_too(link: ClockedLink, script: Script, *arguments: Any) -> Any:  # noqa: ANN401
            answer = await run_and_wait(link, script, *arguments)
            after.append((names[script], kept_by(client)))
            return answer

        patch.setattr("topk_bandit.store.redis.programs._new_id", lambda: "store")
        patch.setattr(ClockedLink, "run", noted)
        patch.setattr(ClockedLink, "_run_and_wait", noted_too)
        lines = asyncio.run(use_everything(server.unix_url))
    return list(lines), after


def test_a_redis_keeps_what_a_valkey_keeps() -> None:
    lines, after = life_on(valkey_binary())
    others_lines, others = life_on(redis_binary())
    assert [name for name, _ in others] == [name for name, _ in after]
    for (name, kept), (_, others_kept) in zip(after, others, strict=True):
        assert others_kept == kept, name
    assert others_lines == lines
    assert {name for name, _ in after} == set(SCRIPTS)
