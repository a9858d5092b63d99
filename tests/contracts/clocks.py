"""The clock of a store under test. It stands still, so that no deadline passes before the test says so."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha1
from typing import TYPE_CHECKING, Any

from topk_bandit.store.redis.link import Link
from topk_bandit.store.redis.scripts import SentScript

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from topk_bandit.store.redis.scripts import Script

__all__ = ["BEGINNING_MS", "ClockedLink", "ScriptAt", "StoreClock"]

BEGINNING_MS = 4_102_444_800_000
"""The next century: no server drops a key by its own clock that has to expire by the test's."""

SERVER_TIME = "redis.call('TIME')"


class StoreClock:
    """A clock that stands still until the test sets it forward."""

    def __init__(self) -> None:
        self.now_ms = BEGINNING_MS

    def read_ms(self) -> int:
        return self.now_ms

    def read_server(self) -> tuple[int, int]:
        """Return the time as a server tells it, in seconds and microseconds."""
        return self.now_ms // 1000, self.now_ms % 1000 * 1000


@dataclass(frozen=True)
class ScriptAt:
    """A script whose server has a given time; all else of it is what the service sends."""

    script: Script
    server_time: tuple[int, int]

    def at(self, version: int) -> SentScript:
        return _assemble(self, version)


@lru_cache(maxsize=256)
def _assemble(timed: ScriptAt, version: int) -> SentScript:
    sent = timed.script.at(version).source
    assert sent.count(SERVER_TIME) == 1
    seconds, microseconds = timed.server_time
    source = sent.replace(SERVER_TIME, f"{{'{seconds}', '{microseconds}'}}")
    return SentScript(source=source, digest=sha1(source.encode(), usedforsecurity=False).hexdigest())


class ClockedLink(Link):
    """Sends the scripts of the service to a real server, and the time with them."""

    clock: StoreClock

    async def run(self, script: Any, keys: Sequence[str], arguments: Any = ()) -> Any:  # noqa: ANN401
        return await super().run(self._timed(script), keys, arguments)

    async def run_all(self, script: Any, keys: Sequence[str], arguments: Any) -> list[Any]:  # noqa: ANN401
        return await super().run_all(self._timed(script), keys, arguments)

    async def _run_and_wait(self, script: Any, *arguments: Any) -> tuple[list[Any], list[Any]]:  # noqa: ANN401
        return await super()._run_and_wait(self._timed(script), *arguments)

    async def ask_primaries(self, command: str) -> Mapping[str, Any]:
        replies = await super().ask_primaries(command)
        return dict.fromkeys(replies, self.clock.read_server()) if command == "TIME" else replies

    def _timed(self, script: Script) -> Any:  # noqa: ANN401 - as a script to whoever sends it
        return ScriptAt(script, self.clock.read_server())
