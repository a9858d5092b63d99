"""The learner: a model for each bandit that is in use, kept up with its log in the background."""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from topk_bandit.bandits.budget import MemoryBounds, Residents
from topk_bandit.bandits.follower import Follower
from topk_bandit.bandits.resident import Desk
from topk_bandit.domain.errors import ExhaustedError, NotFoundError, UnavailableError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from concurrent.futures import Executor

    from topk_bandit.bandits.model import Model
    from topk_bandit.domain.bandits import BanditName
    from topk_bandit.domain.hooks import Hooks
    from topk_bandit.learning.policy import Limits
    from topk_bandit.store.log import Store

__all__ = ["Learner"]

_log = logging.getLogger(__name__)

EXPIRIES_PER_CALL = 256
CANCEL_AGAIN_SECONDS = 0.1

GATHER_SECONDS = 0.025
"""How long a bandit's log is left alone after each look: what it grows by meanwhile is read and folded at once."""


class Learner:
    """Follows the logs of the bandits that are asked for, and closes what is overdue in them.

    A model that is not used leaves memory, and comes back from its snapshot when it is asked for. A bandit without a
    model is left alone: what became overdue meanwhile is closed when its model comes back.

    Parameters
    ----------
    store
        Where the logs are.
    executor
        Where events are folded.
    limits
        What one bandit's posterior may grow to.
    bounds
        How much memory models may take, and for how long.
    hooks
        Where telemetry listens.
    clock_ms
        This machine's clock, for telemetry only.
    follower
        What the store is to know this learner by, different from all others.
    look_seconds
        How often each bandit in use is looked at though nothing was heard of it: deadlines pass silently, and hints
        get lost.
    """

    def __init__(
        self,
        store: Store,
        executor: Executor,
        *,
        limits: Limits,
        hooks: Hooks,
        clock_ms: Callable[[], int],
        follower: str,
        bounds: MemoryBounds | None = None,
        look_seconds: float = 1.0,
    ) -> None:
        self._store = store
        self._executor = executor
        self._limits = limits
        self._hooks = hooks
        self._clock_ms = clock_ms
        self._follower = follower
        self._look_seconds = look_seconds
        self._bounds = bounds or MemoryBounds()
        self._residents = Residents(most_bytes=self._bounds.worker_bytes)
        hooks.bounded(self._bounds.model_bytes)
        self._desks: dict[BanditName, Desk] = {}
        self._listener: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to listen for changes."""
        self._listener = asyncio.create_task(self._listen())

    async def stop(self) -> None:
        """Stop following; all models are gone."""
        desks, self._desks = self._desks, {}
        tasks = [task for task in (self._listener, *(desk.task for desk in desks.values())) if task is not None]
        left = set(tasks)
        while left:  # a task can miss a cancellation that meets what it waits for just when that is done
            for task in left:
                task.cancel()
            _, left = await asyncio.wait(left, timeout=CANCEL_AGAIN_SECONDS)
        await asyncio.gather(*tasks, return_exceptions=True)

    def published(self, name: BanditName) -> Model | None:
        """Return the bandit's model as far as it has learned, None if this worker has none: no waiting."""
        desk = self._desks.get(name)
        return desk.follower.model if desk else None

    @property
    def model_bytes(self) -> int:
        """What one bandit's model may take."""
        return self._bounds.model_bytes

    def admit(self, model: Model) -> None:
        """See that a bandit has room for one more open slate, or raise `ExhaustedError`."""
        self._bounds.admit(model)

    async def current(self, name: BanditName) -> Model:
        """Return the bandit's model as far as it has learned.

        If it is not in memory it comes from the newest snapshot, and the log is followed from there: to its end if that
        is near, else in the background.

        After a silence the store is asked first whether the items are known: a change of them may have been answered
        without this learner. While the store is away the model stays the one there is.
        """
        desk = self._desk(name)
        model = desk.follower.model
        if model is None:
            return await self._returned(name, desk)
        if self._was_noted_lately(desk):
            return model
        desk.bell.set()
        try:
            return model if await self._knows_items(name, desk, model) else await self.refreshed(name)
        except UnavailableError:
            return model

    async def refreshed(self, name: BanditName) -> Model:
        """Follow the bandit's log to its end as of now, and return its model; the errors of `Follower.catch_up`."""
        return await self._caught_up(name, self._desk(name))

    async def _returned(self, name: BanditName, desk: Desk) -> Model:
        """Bring a model back into memory; what is not folded yet, and what is overdue, follows in the background."""
        async with self._held(name, desk):
            model = desk.follower.model
            if model is not None:  # another call brought it back meanwhile
                return model
            model = await desk.follower.take_up()
            if await self._knows_items(name, desk, model):
                desk.follower.publish(model)
            else:
                model = await self._known_to_the_end(name, desk)
        desk.bell.set()
        return model

    def _was_noted_lately(self, desk: Desk) -> bool:
        return asyncio.get_running_loop().time() <= desk.note_at + self._look_seconds

    async def _caught_up(self, name: BanditName, desk: Desk) -> Model:
        async with self._held(name, desk):
            return await self._known_to_the_end(name, desk)

    @asynccontextmanager
    async def _held(self, name: BanditName, desk: Desk) -> AsyncIterator[None]:
        """Take the turn at a desk, and clear up: a desk without a model goes, one that grew may oust others."""
        try:
            async with desk.turn:
                yield
        except NotFoundError:
            self._drop(name, desk)
            raise
        finally:
            model = desk.follower.model
            if model is None:
                self._drop(name, desk)
            elif self._desks.get(name) is desk:
                self._make_room(name, model)
            elif name not in self._desks:
                self._hooks.forgotten(str(name))

    def _make_room(self, name: BanditName, model: Model) -> None:
        for leaving in self._residents.resize(name, model.memory_bytes):
            self._rest(leaving, self._desks[leaving], reason="memory")

    def _rest(self, name: BanditName, desk: Desk, *, reason: str) -> None:
        self._hooks.rested(reason)
        self._drop(name, desk)

    async def _known_to_the_end(self, name: BanditName, desk: Desk) -> Model:
        """Follow the log to its end, and tell the store how far the items are known: at news, and regularly."""
        model = await desk.follower.catch_up()
        while desk.noted_position != model.items_position or asyncio.get_running_loop().time() >= desk.note_at:
            if await self._knows_items(name, desk, model):
                break
            model = await desk.follower.catch_up()
        return model

    async def _knows_items(self, name: BanditName, desk: Desk, model: Model) -> bool:
        """Tell the store how far the model knows the items; return whether that is all there is to know."""
        position, now = model.items_position, asyncio.get_running_loop().time()
        newest = await self._store.note_follower(name, follower=self._follower, items_position=position)
        desk.noted_position, desk.note_at = position, now + self._look_seconds
        return newest <= position

    async def expire(self, name: BanditName) -> None:
        """Close what is overdue in a bandit."""
        while count := await self._store.expire_due(name, limit=EXPIRIES_PER_CALL):
            self._hooks.expired(count)
            if count < EXPIRIES_PER_CALL:
                return

    def _desk(self, name: BanditName) -> Desk:
        """Return the bandit's desk, new if it has none, as the one that was used last."""
        now = asyncio.get_running_loop().time()
        desk = self._desks.get(name)
        if desk is None:
            follower = Follower(
                name, self._store, self._executor, limits=self._limits, hooks=self._hooks, clock_ms=self._clock_ms
            )
            desk = self._desks[name] = Desk(follower, look_seconds=self._look_seconds, now=now)
            desk.task = asyncio.create_task(self._follow(name, desk))
        desk.active_at = now
        self._residents.use(name)
        return desk

    def _drop(self, name: BanditName, desk: Desk) -> None:
        if self._desks.get(name) is desk:
            del self._desks[name]
            self._residents.leave(name)
            self._hooks.forgotten(str(name))
            if desk.task is not None and desk.task is not asyncio.current_task():
                desk.task.cancel()

    async def _follow(self, name: BanditName, desk: Desk) -> None:
        while self._desks.get(name) is desk:
            try:
                await self._look(name, desk)
            except NotFoundError:
                return
            except UnavailableError as error:
                await asyncio.sleep(error.retry_after)
            except ExhaustedError:  # the store is full: no deadline can be ended
                await asyncio.sleep(self._look_seconds)
            except Exception:  # noqa: BLE001 - one log must not stop the following for good
                _log.exception("a log can't be followed", extra={"bandit": str(name)})
                await asyncio.sleep(self._look_seconds)

    async def _look(self, name: BanditName, desk: Desk) -> None:
        if not desk.bell.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(desk.bell.wait(), timeout=desk.pause(self._clock_ms()))
        rung = desk.bell.is_set()
        desk.bell.clear()
        if self._desks.get(name) is not desk:
            return
        now = asyncio.get_running_loop().time()
        if now >= desk.active_at + self._bounds.idle_seconds and not rung:
            self._rest(name, desk, reason="idle")
            return
        if now >= desk.expire_at:
            desk.expire_at = now + self._look_seconds
            await self.expire(name)
        desk.looked(await self._caught_up(name, desk), now)
        await asyncio.sleep(GATHER_SECONDS)

    async def _listen(self) -> None:
        async for name in self._store.changes():
            for changed in [name] if name else list(self._desks):
                if desk := self._desks.get(changed):
                    desk.bell.set()
