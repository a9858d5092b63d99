"""The network between one worker and the store: a `Store` whose calls and replies travel, and may not arrive.

The calls of a `StudyStore` travel on the same line.

A call that is carried out though its reply is lost, or comes after the worker has given up, is what a real network
does too: the worker knows nothing then. A call that is under way when its worker dies arrives all the same.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from tests.simulation.server import NOT_AWAITED, READS, STUDY_CALL

from topk_bandit.domain.errors import UnavailableError
from topk_bandit.store.data_versions import NEWEST

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import numpy as np
    from tests.simulation.server import Server

    from topk_bandit.domain.bandits import BanditName
    from topk_bandit.store.log import Store
    from topk_bandit.store.study_log import StudyStore

__all__ = ["Line", "Trouble"]

TIMEOUT_SECONDS = 1.0


@dataclass
class Trouble:
    """What goes wrong on a line, each as a probability for one call.

    Attributes
    ----------
    refused
        Nothing listens at the other end: the worker knows at once that nothing was done.
    call_lost, reply_lost
        The call, or its reply, does not arrive.
    slow
        Either takes up to three seconds.
    sent_twice
        The call arrives twice, perhaps in the other order; the reply is that to the second.
    hint_lost
        The worker does not hear that the log has grown.
    """

    refused: float = 0.0
    call_lost: float = 0.0
    reply_lost: float = 0.0
    slow: float = 0.0
    sent_twice: float = 0.0
    hint_lost: float = 0.0


class Line:
    """A worker's connection to the server.

    Attributes
    ----------
    trouble
        What goes wrong now.
    read_at
        When the worker was given part of the log last.
    data_version
        What the worker writes: all are of one program.
    """

    data_version = NEWEST

    def __init__(self, server: Server, lines: list[Line], rng: np.random.Generator) -> None:
        self.trouble = Trouble()
        self.read_at = -1.0
        self._heard_at: list[float] = []
        self._server = server
        self._lines = lines
        self._rng = rng
        self._hints: asyncio.Queue[BanditName | None] = asyncio.Queue()
        self._is_dead = False

    def as_store(self) -> Store:
        """Return the line as what a worker takes."""
        return cast("Store", self)

    def as_study_store(self) -> StudyStore:
        """Return the line as what a worker takes for its studies."""
        return cast("StudyStore", _Studies(self))

    def was_heard(self, start: float, end: float) -> bool:
        """Whether the server heard between two times how far this worker's items are."""
        return any(start <= heard_at <= end for heard_at in self._heard_at)

    def die(self) -> None:
        """Let nothing through to the worker, which is dead."""
        self._is_dead = True

    def __getattr__(self, method: str) -> Any:  # noqa: ANN401 - all calls of a store travel alike
        if method.startswith("_"):
            raise AttributeError(method)

        async def call(*given: object, **named: object) -> object:
            return await self.send(method, given, named)

        return call

    async def changes(self) -> AsyncIterator[BanditName | None]:
        """Yield hints, as far as they arrive."""
        yield None
        while True:
            yield await self._hints.get()

    async def send(self, method: str, given: tuple[object, ...], named: dict[str, object]) -> object:
        """Return what the server answers to a call, or raise its error, or that nothing came."""
        loop, trouble = asyncio.get_running_loop(), self.trouble
        reply: asyncio.Future[object] = loop.create_future()
        if self._server.is_away or self._happens(trouble.refused):
            await asyncio.sleep(0.001)
            raise UnavailableError("the store is away: nothing listens", nothing_sent=True)
        if self._happens(trouble.sent_twice):
            loop.call_later(self._travel(), self._arrive, method, given, named, None)
        if not self._happens(trouble.call_lost):
            loop.call_later(self._travel(), self._arrive, method, given, named, reply)
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                outcome = await reply
        except TimeoutError:
            raise UnavailableError("the store is away: no reply") from None
        if method == "read_log":
            self.read_at = loop.time()
        return outcome

    def _happens(self, probability: float) -> bool:
        return probability > 0.0 and float(self._rng.random()) < probability

    def _travel(self) -> float:
        """Draw how long a message is under way."""
        return float(self._rng.uniform(0.0, 3.0) if self._happens(self.trouble.slow) else self._rng.uniform(1e-4, 2e-3))

    def _arrive(
        self,
        method: str,
        given: tuple[object, ...],
        named: dict[str, object],
        reply: asyncio.Future[object] | None,
    ) -> None:
        """Carry out a call, and send its reply once it is as durable as its kind has to be."""
        server = self._server
        if server.is_away:
            return
        before = server.archive.failovers, len(server.archive.events)
        outcome: object = None
        error: Exception | None = None
        try:
            outcome = server.carry_out(method, given, named)
        except Exception as raised:  # noqa: BLE001 - errors travel back, too
            error = raised
        if method == "note_follower":
            self._heard_at.append(asyncio.get_running_loop().time())
        if (server.archive.failovers, len(server.archive.events)) != before:
            self._tell_all(cast("BanditName", given[0]))
        if reply is not None and not self._happens(self.trouble.reply_lost):
            waits = float(self._rng.uniform(0.0, 0.02)) if _is_awaited(method, outcome) else 0.0
            end = server.journal_end if waits else 0
            asyncio.get_running_loop().call_later(waits, self._leave, (outcome, error, server.life, end), reply)

    def _leave(self, answer: tuple[object, Exception | None, int, int], reply: asyncio.Future[object]) -> None:
        """Send a reply back, unless the server that has it is gone."""
        outcome, error, life, end = answer
        if life == self._server.life:
            self._server.make_safe(end)
            asyncio.get_running_loop().call_later(self._travel(), self._deliver, outcome, error, reply)

    def _deliver(self, outcome: object, error: Exception | None, reply: asyncio.Future[object]) -> None:
        if self._is_dead or reply.done():
            return
        if error is None:
            reply.set_result(outcome)
        else:
            reply.set_exception(error)

    def _tell_all(self, name: BanditName) -> None:
        for line in self._lines:
            if not line._is_dead and not line._happens(line.trouble.hint_lost):
                line._hints.put_nowait(name)


class _Studies:
    """The calls of a `StudyStore` on a line."""

    def __init__(self, line: Line) -> None:
        self._line = line

    def __getattr__(self, method: str) -> Any:  # noqa: ANN401 - all calls of a store travel alike
        if method.startswith("_"):
            raise AttributeError(method)

        async def call(*given: object, **named: object) -> object:
            return await self._line.send(f"{STUDY_CALL}{method}", given, named)

        return call


def _is_awaited(method: str, outcome: object) -> bool:
    """Return whether a reply waits until what it reports is durable, also of a part that was there before."""
    if method == "find_import_part":
        return outcome is not None
    return method not in READS and method not in NOT_AWAITED
