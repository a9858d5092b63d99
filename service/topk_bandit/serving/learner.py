"""The learner: a model for each bandit that is in use, kept up with its log in the background."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING

from topk_bandit.errors import NotFoundError, UnavailableError
from topk_bandit.serving.follower import Follower

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Executor

    from topk_bandit.learning.policy import Limits
    from topk_bandit.serving.hooks import Hooks
    from topk_bandit.serving.model import Model
    from topk_bandit.store.log import Store
    from topk_bandit.types import BanditName

__all__ = ["Learner"]

_log = logging.getLogger(__name__)

EXPIRIES_PER_CALL = 256
CANCEL_AGAIN_SECONDS = 0.1


class _Desk:
    """One bandit's follower, the task that runs it, and the bell that wakes it."""

    def __init__(self, follower: Follower) -> None:
        self.follower = follower
        self.bell = asyncio.Event()
        self.turn = asyncio.Lock()
        self.task: asyncio.Task[None] | None = None
        self.expire_at = 0.0
        self.noted_position = -1
        self.note_at = 0.0


class Learner:
    """Follows the logs of the bandits that are asked for, and closes what is overdue in them.

    Parameters
    ----------
    store
        Where the logs are.
    executor
        Where events are folded: one thread.
    limits
        What one bandit's learner may grow to.
    hooks
        Where telemetry listens.
    clock_ms
        This machine's clock, for telemetry only.
    follower
        What the store is to know this learner by, different from all others.
    look_seconds
        How often each bandit is looked at though nothing was heard of it: deadlines pass silently, and hints get lost.
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
        look_seconds: float = 1.0,
    ) -> None:
        self._store = store
        self._executor = executor
        self._limits = limits
        self._hooks = hooks
        self._clock_ms = clock_ms
        self._follower = follower
        self._look_seconds = look_seconds
        self._desks: dict[BanditName, _Desk] = {}
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

    async def current(self, name: BanditName) -> Model:
        """Return the bandit's model as far as it has learned; the first time, follow its log to the end.

        After a silence the store is asked first whether the items are known: a change of them may have been answered
        without this learner. While the store is away the model stays the one there is.
        """
        desk = self._desks.get(name)
        if desk is None or desk.follower.model is None:
            return await self.refreshed(name)
        model = desk.follower.model
        if asyncio.get_running_loop().time() <= desk.note_at + self._look_seconds:
            return model
        try:
            return model if await self._knows_items(name, desk, model) else await self.refreshed(name)
        except UnavailableError:
            return model

    async def refreshed(self, name: BanditName) -> Model:
        """Follow the bandit's log to its end as of now, and return its model; the errors of `Follower.catch_up`."""
        return await self._caught_up(name, self._desk(name))

    async def _caught_up(self, name: BanditName, desk: _Desk) -> Model:
        try:
            async with desk.turn:
                return await self._known_to_the_end(name, desk)
        except NotFoundError:
            self._drop(name, desk)
            raise
        finally:
            if desk.follower.model is None:
                self._drop(name, desk)

    async def _known_to_the_end(self, name: BanditName, desk: _Desk) -> Model:
        """Follow the log to its end, and tell the store how far the items are known: at news, and regularly."""
        model = await desk.follower.catch_up()
        while desk.noted_position != model.items_position or asyncio.get_running_loop().time() >= desk.note_at:
            if await self._knows_items(name, desk, model):
                break
            model = await desk.follower.catch_up()
        return model

    async def _knows_items(self, name: BanditName, desk: _Desk, model: Model) -> bool:
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

    def _desk(self, name: BanditName) -> _Desk:
        desk = self._desks.get(name)
        if desk is None:
            follower = Follower(
                name, self._store, self._executor, limits=self._limits, hooks=self._hooks, clock_ms=self._clock_ms
            )
            desk = self._desks[name] = _Desk(follower)
            desk.task = asyncio.create_task(self._follow(name, desk))
        return desk

    def _drop(self, name: BanditName, desk: _Desk) -> None:
        if self._desks.get(name) is desk:
            del self._desks[name]
            self._hooks.forgotten(str(name))
            if desk.task is not None and desk.task is not asyncio.current_task():
                desk.task.cancel()

    async def _follow(self, name: BanditName, desk: _Desk) -> None:
        while self._desks.get(name) is desk:
            try:
                await self._look(name, desk)
            except NotFoundError:
                return
            except UnavailableError as error:
                await asyncio.sleep(error.retry_after)
            except Exception:  # noqa: BLE001 - one log must not stop the following for good
                _log.exception("a log can't be followed", extra={"bandit": str(name)})
                await asyncio.sleep(self._look_seconds)

    async def _look(self, name: BanditName, desk: _Desk) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(desk.bell.wait(), timeout=self._look_seconds)
        desk.bell.clear()
        if self._desks.get(name) is not desk:
            return
        now = asyncio.get_running_loop().time()
        if now >= desk.expire_at:
            desk.expire_at = now + self._look_seconds
            await self.expire(name)
        await self._caught_up(name, desk)

    async def _listen(self) -> None:
        async for name in self._store.changes():
            for changed in [name] if name else list(self._desks):
                if desk := self._desks.get(changed):
                    desk.bell.set()
