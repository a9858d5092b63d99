"""The clock of a store under test. It stands still, so that no deadline passes before the test says so."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from hashlib import sha1
from typing import TYPE_CHECKING, Any

from topk_bandit.store.redis.link import Link
from topk_bandit.store.redis.scripts import SentScript

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from topk_bandit.store.redis.scripts import Script

__all__ = ["BEGINNING_MS", "ClockedLink", "StoreClock", "ToldTime"]

BEGINNING_MS = 4_102_444_800_000
"""The next century: no server drops a key by its own clock that has to expire by the test's."""

SERVER_TIME = "redis.call('TIME')"
TOLD_TIME = "{string.sub(told_ms, 1, -4), string.sub(told_ms, -3) .. '000'}"


class StoreClock:
    """A clock that stands still until the test sets it forward."""

    def __init__(self) -> None:
        self.now_ms = BEGINNING_MS

    def read_ms(self) -> int:
        return self.now_ms

    def read_seconds(self) -> float:
        return self.now_ms / 1e3


@dataclass(frozen=True)
class ToldTime:
    """A script that gets the time as its last argument; all else of it is what the service sends."""

    script: Script

    def at(self, version: int) -> SentScript:
        return _assemble(self.script, version)


@cache
def _assemble(script: Script, version: int) -> SentScript:
    declaration, _, body = script.at(version).source.partition("\n")
    assert body.count(SERVER_TIME) == 1
    source = f"{declaration}\nlocal told_ms = table.remove(ARGV)\n{body.replace(SERVER_TIME, TOLD_TIME)}"
    return SentScript(source=source, digest=sha1(source.encode(), usedforsecurity=False).hexdigest())


class ClockedLink(Link):
    """Sends the scripts of the service to a real server, and the time with them."""

    clock: StoreClock

    async def run(self, script: Any, keys: Sequence[str], arguments: Any = ()) -> Any:  # noqa: ANN401
        return await super().run(ToldTime(script), keys, (*arguments, self.clock.now_ms))  # type: ignore[arg-type]

    async def run_all(self, script: Any, keys: Sequence[str], arguments: Any) -> list[Any]:  # noqa: ANN401
        timed = [(*one, self.clock.now_ms) for one in arguments]
        return await super().run_all(ToldTime(script), keys, timed)  # type: ignore[arg-type]

    async def _run_and_wait(
        self,
        script: Any,  # noqa: ANN401
        keys: Sequence[str],
        arguments: Any,  # noqa: ANN401
        *how: Any,  # noqa: ANN401
    ) -> tuple[list[Any], list[Any]]:
        timed = [(*one, self.clock.now_ms) for one in arguments]
        return await super()._run_and_wait(ToldTime(script), keys, timed, *how)  # type: ignore[arg-type]

    async def ask_primaries(self, command: str) -> Mapping[str, Any]:
        replies = await super().ask_primaries(command)
        reply = self.clock.now_ms // 1000, self.clock.now_ms % 1000 * 1000
        return dict.fromkeys(replies, reply) if command == "TIME" else replies
