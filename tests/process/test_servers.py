"""The end of a worker's servers: its peers' calls have as long as those of its own callers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

from tests.rpc.test_peers import Heard, Owner, ask, bandit_of, folder, patient, peer_server, worker_1
from tests.waiting import PATIENCE, until_async

from topk_bandit.process import servers
from topk_bandit.process.servers import Servers

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

__all__ = ["folder", "patient"]


class Idle:
    """A server without a call under way: its drain is over at once."""

    async def drain(self, seconds: float) -> None:
        """Do nothing."""


def test_an_owner_without_calls_of_its_own_drains_as_long_as_its_peers(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its peer answers nothing again that the owner has begun, however long that takes within the drain."""
    monkeypatch.setattr(servers, "PEER_DRAIN_SECONDS", 0.0)
    owner, heard = Owner(), Heard()

    async def scene() -> Any:  # noqa: ANN401 - a message, or None
        owner.gate = asyncio.Event()
        async with worker_1(folder, heard) as view, peer_server(folder / "2", owner) as for_peers:
            await until_async(lambda: not view.owns(bandit_of(2)), what="its owner is found")
            asked = asyncio.create_task(ask(view, bandit_of(2)))
            await until_async(lambda: owner.asked, what="the owner is asked")
            drained = asyncio.create_task(Servers(cast("Any", Idle()), (), for_peers).drain(PATIENCE))
            await until_async(lambda: for_peers._in_flight._closed, what="only what is under way is answered")
            owner.gate.set()
            await drained
            return await asked

    assert asyncio.run(scene()) is not None
    assert heard.outcomes == {"answered": 1}
