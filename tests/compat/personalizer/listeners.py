"""Personalizer's listener before a real service, over sockets, and calls as its clients make them."""

from __future__ import annotations

import io
import itertools
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import aiohttp
from tests.rpc.whole import served

from topk_bandit.compat.personalizer.bandits import BanditProvisioner, Defaults
from topk_bandit.compat.personalizer.events import EventsFile
from topk_bandit.compat.personalizer.loop import Loop
from topk_bandit.compat.personalizer.server import KEY_HEADER, PersonalizerServer
from topk_bandit.domain.quotas import Quota, Quotas
from topk_bandit.store.memory.bandits import MemoryStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from topk_bandit.client import AsyncClient

__all__ = ["KEY", "Answer", "PersonalizerListener", "opened", "rank_body", "slots_body"]

KEY = "shop.secret"
QUOTAS = Quotas({Quota.BANDITS: 20})


@dataclass
class Clock:
    """The time for all parts: of a day in 2026, and only a test makes it go on."""

    seconds: float = 1_769_860_800.0

    def __call__(self) -> float:
        return self.seconds

    def milliseconds(self) -> int:
        return round(self.seconds * 1000.0)


@dataclass(frozen=True)
class Answer:
    status: int
    body: Any
    headers: Any

    @property
    def error(self) -> dict[str, Any]:
        """The error, of which every answer that is one has the same shape."""
        assert self.headers["Content-Type"].startswith("application/json")
        [(name, error)] = self.body.items()
        assert name == "error"
        assert error["code"]
        assert error["message"]
        return dict(error)


@dataclass
class PersonalizerListener:
    client: AsyncClient
    base: str
    session: aiohttp.ClientSession
    clock: Clock

    async def post(self, path: str, body: object = None, *, raw: bytes | None = None, key: str | None = KEY) -> Answer:
        headers = {} if key is None else {KEY_HEADER: key}
        sent: dict[str, Any] = {"data": None if raw is None else io.BytesIO(raw)} if body is None else {"json": body}
        async with self.session.post(f"{self.base}/{path}", headers=headers, **sent) as answer:
            text = await answer.read()
            return Answer(answer.status, await answer.json() if text else None, answer.headers)

    async def rank(self, body: object) -> dict[str, Any]:
        answer = await self.post("v1.0/rank", body)
        assert answer.status == 201, answer
        return dict(answer.body)

    async def rank_slots(self, body: object) -> dict[str, str]:
        """Return the actions by slot."""
        answer = await self.post("v1.1-preview.1/multislot/rank", body)
        assert answer.status == 201, answer
        return {slot["id"]: slot["rewardActionId"] for slot in answer.body["slots"]}

    async def done(self, path: str, body: object = None) -> None:
        answer = await self.post(path, body)
        assert (answer.status, answer.body) == (204, None), answer


@asynccontextmanager
async def opened(
    *, apprentice: bool = False, keep_schema: bool = False, file: Path | None = None
) -> AsyncIterator[PersonalizerListener]:
    """Open a listener before a service of its own until the end of the block."""
    ids, clock = itertools.count(), Clock()
    async with AsyncExitStack() as stack:
        store = MemoryStore(clock_ms=clock.milliseconds)
        stack.push_async_callback(store.close)
        client = await stack.enter_async_context(served(store, quotas=QUOTAS))
        events = EventsFile(file, now=clock)
        stack.callback(events.close)
        provisioner = BanditProvisioner(client, Defaults(0.25, timedelta(minutes=10), keep_schema), clock=clock)
        loop = Loop(
            client, provisioner, events, bandit="home", apprentice=apprentice, new_id=lambda: f"made-{next(ids)}"
        )
        server = PersonalizerServer(loop, key=KEY)
        port = await server.start("127.0.0.1", 0)
        stack.push_async_callback(server.stop)
        session = await stack.enter_async_context(aiohttp.ClientSession())
        yield PersonalizerListener(client, f"http://127.0.0.1:{port}/personalizer", session, clock)


def rank_body(**changed: object) -> dict[str, Any]:
    """Return a single-slot Rank with all that the API describes: nested, dense and missing features, an exclusion."""
    return {
        "contextFeatures": [
            {"timeOfDay": "Morning"},
            {"user": {"kind": "guest", "visits": 3, "member": False, "age": None}},
            {"page": {"tags": ["tea", "garden"], "taste": [0.5, -1.0, 2], "from": {"campaign name": "may sale"}}},
        ],
        "actions": [
            {"id": "tea pot", "features": [{"kind": "pot", "price": 12.5}, {"colour": {"main": "blue"}}]},
            {"id": "cup", "features": [{"kind": "cup", "price": 4}]},
            {"id": "sieve", "features": []},
        ],
        "excludedActions": ["cup"],
        "eventId": "0C9A6C2E-5F57-4E9C-9A0F-6A8BB6F3A001",
        "deferActivation": False,
        **changed,
    }


def slots_body(**changed: object) -> dict[str, Any]:
    """Return a multi-slot Rank with all that the API describes."""
    return {
        "contextFeatures": [{"device": {"mobile": True}}, {"recent": {"itemsInCart": 3}}],
        "actions": [{"id": one, "features": [{"type": one.title()}]} for one in ("news", "sports", "films")],
        "slots": [
            {
                "id": "Main Article",
                "features": [{"size": "Large", "position": "Top"}],
                "positionFeatures": [{"row": 1}],
                "excludedActions": ["sports"],
                "baselineAction": "films",
            },
            {"id": "Side Bar", "features": [{"size": "Small"}], "baselineAction": "news"},
        ],
        "eventId": "0C9A6C2E-5F57-4E9C-9A0F-6A8BB6F3A001",
        "deferActivation": False,
        **changed,
    }
