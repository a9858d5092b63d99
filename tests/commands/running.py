"""A service of its own, and the commands that ask it."""

from __future__ import annotations

import asyncio
import threading
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, TypeVar

from tests.rpc.test_operator_service import trade
from tests.rpc.whole import FEW, served
from tests.waiting import PATIENCE

from topk_bandit.commands.cli import main
from topk_bandit.store.memory.bandits import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Coroutine

    import pytest

    from topk_bandit.domain.quotas import Quotas
    from topk_bandit.store.cold_log import ColdLog
    from topk_bandit.store.log import Store

T = TypeVar("T")

__all__ = ["NOON_MS", "Ask", "Running"]

NOON_MS = 1_769_860_800_000
"""What the store's clock always says: nothing lapses, and all of it is in one interval of a history."""


class Running:
    """A service over a store in memory, on a thread of its own, whose bandit acme/home has learned a little."""

    def __init__(self, cold: ColdLog | None = None, quotas: Quotas = FEW) -> None:
        self._cold, self._quotas = cold, quotas
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self.given = self.work(self._start())

    async def _start(self) -> list[str]:
        self._stack = AsyncExitStack()
        self.store = await self._open_store()
        self.client = await self._stack.enter_async_context(served(self.store, cold=self._cold, quotas=self._quotas))
        self.address = self.client._target
        return await trade(self.client, 20)

    async def _open_store(self) -> Store:
        return MemoryStore(clock_ms=lambda: NOON_MS)

    def work(self, work: Coroutine[Any, Any, T]) -> T:
        """Do something where the service runs."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout=PATIENCE)

    def make(self, bandit: str) -> None:
        """Make another bandit."""
        self.work(self.client.create_bandit(bandit, slate_size=1, item_capacity=2))

    def recommend(self, bandit: str, **asked: Any) -> Any:  # noqa: ANN401 - as for the client
        """Ask for a slate."""
        return self.work(self.client.recommend(bandit, **asked))

    def stop(self) -> None:
        self.work(self._stack.aclose())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class Ask:
    """Runs a command, and gives the lines that it prints."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *words: str, status: int = 0) -> list[str]:
        self._capsys.readouterr()
        assert main([*words]) == status
        captured = self._capsys.readouterr()
        return (captured.err if status else captured.out).splitlines()
