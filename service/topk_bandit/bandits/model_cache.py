"""The cache of models in this worker: each is loaded when it is asked for, and followed in the background.

Each look at a bandit also closes the slates whose deadline has passed. A model leaves memory when it is not used for
long or when others need its memory, and it is the same when it comes back. Nothing here looks at a bandit that has no
model in this worker: `topk_bandit.bandits.housekeeping` closes the overdue slates of those.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from contextlib import asynccontextmanager
from contextvars import Context
from typing import TYPE_CHECKING, TypeVar

from topk_bandit.bandits.budget import MemoryBudget, ModelSizes
from topk_bandit.bandits.cached_model import CachedModel
from topk_bandit.bandits.follower import Follower
from topk_bandit.bandits.vanished import VanishedBandits, count_lost
from topk_bandit.domain.errors import CorruptDataError, ExhaustedError, NotFoundError, UnavailableError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from concurrent.futures import Executor

    from topk_bandit.bandits.log_retention import Retention
    from topk_bandit.bandits.model import Model
    from topk_bandit.domain.bandits import BanditName
    from topk_bandit.domain.hooks import Hooks
    from topk_bandit.learning.limits import Limits
    from topk_bandit.store.log import Appended, Store, Written

__all__ = ["ModelCache"]

_Answer = TypeVar("_Answer")

_log = logging.getLogger(__name__)

VISIT_SECONDS = 10.0
"""So long after it was asked for last a model rests of which another worker is the owner, though its log may grow."""

EXPIRIES_PER_CALL = 256
CANCEL_AGAIN_SECONDS = 0.1

GATHER_SECONDS = 0.025
"""How long a bandit's log is left alone after each look: what it grows by meanwhile is read and folded at once."""

DAMAGED_LOOKS = 10.0
"""A log that is damaged is looked at so many times as rarely: it will not mend by itself."""


async def _look_at_nothing() -> None:
    """Look at no store: nothing is known of its id."""


class ModelCache:
    """Loads, follows and drops the models of a worker; `topk_bandit.bandits.follower.Follower` draws a model's states.

    Parameters
    ----------
    executor
        Where events are folded.
    limits
        What one bandit's posterior may grow to.
    clock_ms
        This machine's clock, for telemetry only.
    worker_id
        What the store knows this worker by, different from all others.
    retention
        What stays of each log behind its snapshots.
    look_seconds
        How often each bandit in use is looked at though nothing was heard of it: deadlines pass silently, and hints
        get lost.
    now
        A clock in seconds, by which a model is unused for long and a look is due.
    owns
        Whether this worker is the owner of a bandit, by its full name: the one that follows its log for all.

    Attributes
    ----------
    limits
        As above.
    budget
        How much memory models may take, and for how long.
    look_for_loss
        Finds out whether the store is still the one that it was.
    ranks_first
        Whether this worker is the owner of a bandit while all are there, so that of several one alone counts it.
    """

    def __init__(
        self,
        store: Store,
        executor: Executor,
        *,
        limits: Limits,
        hooks: Hooks,
        clock_ms: Callable[[], int],
        worker_id: str,
        retention: Retention,
        budget: MemoryBudget | None = None,
        look_seconds: float = 1.0,
        now: Callable[[], float] = time.monotonic,
        owns: Callable[[str], bool] = lambda _bandit: True,
    ) -> None:
        self._retention = retention
        self._store = store
        self._executor = executor
        self.limits = limits
        self._hooks = hooks
        self._clock_ms = clock_ms
        self._worker_id = worker_id
        self._look_seconds = look_seconds
        self._now = now
        self._owns = owns
        self.budget = budget or MemoryBudget()
        self._sizes = ModelSizes(most_bytes=self.budget.worker_bytes)
        hooks.bounded(self.budget.model_bytes)
        self._entries: dict[BanditName, CachedModel] = {}
        self.look_for_loss: Callable[[], Awaitable[None]] = _look_at_nothing
        self.ranks_first: Callable[[str], bool] = lambda _bandit: True
        self._older_at = -math.inf
        self._vanished = VanishedBandits(store, hooks=hooks)
        self._listener: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to listen for changes."""
        self._listener = asyncio.create_task(self._listen())

    async def stop(self) -> None:
        """Stop following; all models are gone."""
        await self._vanished.stop()
        entries, self._entries = self._entries, {}
        for entry in entries.values():
            entry.follower.leave()
        tasks = [task for task in (self._listener, *(one.task for one in entries.values())) if task is not None]
        left = set(tasks)
        while left:  # a task can miss a cancellation that meets what it waits for just when that is done
            for task in left:
                task.cancel()
            _, left = await asyncio.wait(left, timeout=CANCEL_AGAIN_SECONDS)
        await asyncio.gather(*tasks, return_exceptions=True)

    def peek_model(self, name: BanditName) -> Model | None:
        """Return the bandit's model as it is here, None if there is none: nothing is loaded, nothing waited for."""
        entry = self._entries.get(name)
        return entry.follower.model if entry else None

    def peek_fresh_model(self, name: BanditName) -> Model | None:
        """Return the bandit's model as `peek_model` does, if whoever changes items still waits for this worker."""
        entry = self._entries.get(name)
        return entry.follower.model if entry and entry.follower.has_announced else None

    async def confirm_gone(self, name: BanditName) -> None:
        """Find out whether a bandit that is known here, and is not found any more, was lost.

        One that was lost alone is found out beside the call.

        Raises
        ------
        UnavailableError
            It was, with the whole store: its model stays, and calls are refused.
        """
        entry, model = self._entries.get(name), self.peek_model(name)
        if entry is not None and model is not None:
            await self.look_for_loss()
            try:
                await self._store.get_bandit(name)
            except NotFoundError:
                if self.ranks_first(str(name)):
                    self._vanished.suspect(name, model, was_in_newer_store=entry.seen_at < self._older_at)

    def note_older(self) -> None:
        """Note that the store is an older copy of itself: bandits that were seen before, and are gone, were lost."""
        self._older_at = self._now()

    async def find_known(self) -> bool:
        """Return whether the store still has one of the bandits that are known here; any tenant if none is known."""
        known = self._known()
        for name, model in known.items():
            try:
                if (await self._store.get_bandit(name)).incarnation == model.incarnation:
                    return True
            except NotFoundError:
                continue
        return not known and bool(await self._store.list_tenants(after="", limit=1))

    def count_lost(self) -> tuple[int, int]:
        """Count all that is known here of this worker's own bandits as lost; return how many events and rewards."""
        counted = [count_lost(name, model, self._hooks) for name, model in self.find_own().items()]
        return sum(events for events, _ in counted), sum(rewards for _, rewards in counted)

    def find_own(self) -> dict[BanditName, Model]:
        """Return the models that are here of bandits that this worker owns."""
        return {name: model for name, model in self._known().items() if self.ranks_first(str(name))}

    def _known(self) -> dict[BanditName, Model]:
        """Return the models that are here."""
        models = {name: one.follower.model for name, one in self._entries.items()}
        return {name: model for name, model in models.items() if model is not None}

    def note_written(self, name: BanditName, position: int, recommendation_id: str, *, is_reward: bool = False) -> None:
        """Note where in a bandit's log the store has written something that a caller is answered with; 0 is nowhere."""
        entry = self._entries.get(name)
        if entry is not None and position:
            entry.follower.note_written(position, recommendation_id, is_reward=is_reward)

    def note_slate(self, name: BanditName, position: int) -> None:
        """Note where in a bandit's log a slate was recorded: so its rate is known."""
        entry = self._entries.get(name)
        if entry is not None and (model := entry.follower.model) is not None:
            slates = model.tally.recommendations
            entry.rate.observe(self._now(), position=position, version=model.version, slates=slates)

    def find_slate_rate(self, name: BanditName) -> float:
        """Return how many slates a second a bandit gives out, 0 where that is not known."""
        entry = self._entries.get(name)
        return 0.0 if entry is None else entry.rate.per_second

    def find_snapshot_position(self, name: BanditName) -> int:
        """Return up to which log position a snapshot stands for a bandit's events, 0 where that is not known."""
        entry = self._entries.get(name)
        return 0 if entry is None else entry.follower.snapshot_position

    async def take_in(self, name: BanditName, call: Awaitable[Written[_Answer]]) -> _Answer:
        """Await a call to the store, have what it appended folded, and return its answer.

        The log is read only where the call's events are not known: it failed, or its answer lacks them.
        """
        begun = self._entries.get(name)
        if begun is not None:
            begun.follower.own.begin()
        appended: tuple[Appended | None, ...] = ()
        try:
            written = await call
            appended = written.appended
            return written.answer
        finally:
            if begun is not None:
                begun.follower.own.end()
            if (entry := self._entries.get(name)) is not None:
                for one in appended:
                    if one is not None:
                        entry.follower.own.hold(one)
                entry.wake(reads=not appended or None in appended)

    async def get_model(self, name: BanditName) -> Model:
        """Return the bandit's model as it is here, loaded if there is none; the errors of `Follower.load`.

        After a silence the store is asked first whether the items are known: a change of them may have been answered
        without this worker. While the store is away the model stays the one there is.
        """
        entry = self._admit(name)
        model = entry.follower.model
        if model is None:
            return await self._load(entry)
        if entry.follower.has_announced:
            return model
        entry.wake()
        try:
            return model if await entry.follower.announce_items(model) else await self.follow(name)
        except (UnavailableError, CorruptDataError):
            return model

    async def follow(self, name: BanditName) -> Model:
        """Fold the bandit's log to its end as of now, and return the model; the errors of `Follower.follow`."""
        return await self._follow(self._admit(name))

    async def follow_as_far_as_possible(self, name: BanditName) -> tuple[Model, str]:
        """Return a model as `follow` does, or the one before what can't be folded, and what that is; empty for nothing.

        Raises
        ------
        CorruptDataError
            There is no model to fall back to.
        """
        try:
            return await self.follow(name), ""
        except CorruptDataError as error:
            model = self.peek_model(name)
            if model is None:
                raise
            return model, str(error)

    async def catch_up(self, name: BanditName, version: int) -> Model:
        """Return the bandit's model once it knows the log up to `version`, or to its end if that comes first.

        The errors are those of `Follower.follow`.
        """
        entry = self._admit(name)
        async with self._hold(entry):
            model = entry.follower.model
            if model is None or model.version < version:
                model = await entry.follower.follow(reads=False)
            return model if model.version >= version else await entry.follower.follow()

    async def expire(self, name: BanditName) -> int | None:
        """Close a bandit's overdue slates, and forget what was closed long ago; return the next deadline, if any."""
        while True:
            expiry = await self._store.expire_due(name, limit=EXPIRIES_PER_CALL)
            if expiry.without_reward:
                self._hooks.expired(expiry.without_reward)
            if expiry.count + expiry.filed < EXPIRIES_PER_CALL:
                return expiry.next_deadline_ms

    def _admit(self, name: BanditName) -> CachedModel:
        """Return the bandit's entry, new if there is none, as the one that was used last."""
        now = self._now()
        entry = self._entries.get(name)
        if entry is None:
            entry = CachedModel(self._new_follower(name), look_seconds=self._look_seconds, now=now)
            self._entries[name] = entry
            entry.task = asyncio.create_task(self._run(entry), context=Context())
        entry.used_at = entry.asked_at = now
        self._sizes.touch(name)
        return entry

    def _new_follower(self, name: BanditName) -> Follower:
        return Follower(
            name,
            self._store,
            self._executor,
            limits=self.limits,
            hooks=self._hooks,
            clock_ms=self._clock_ms,
            worker_id=self._worker_id,
            announce_seconds=self._look_seconds,
            retention=self._retention,
        )

    async def _load(self, entry: CachedModel) -> Model:
        """Load a model; what is not folded yet, and what is overdue, follows in the background."""
        async with self._hold(entry):
            model = entry.follower.model
            if model is not None:  # another call loaded it meanwhile
                return model
            model = await entry.follower.load()
        entry.wake()
        return model

    async def _follow(self, entry: CachedModel, *, reads: bool = True) -> Model:
        async with self._hold(entry):
            return await entry.follower.follow(reads=reads)

    @asynccontextmanager
    async def _hold(self, entry: CachedModel) -> AsyncIterator[None]:
        """Hold an entry's lock, and clear up after it."""
        try:
            async with entry.lock:
                yield
        except NotFoundError:
            await self.confirm_gone(entry.follower.name)
            self._drop(entry)
            raise
        finally:
            self._clear_up(entry)

    def _clear_up(self, entry: CachedModel) -> None:
        """Drop an entry that could not be loaded; let models rest if one that was folded has outgrown the budget."""
        follower = entry.follower
        if follower.model is None:
            self._drop(entry)
        elif follower.is_present:
            for leaving in self._sizes.resize(follower.name, follower.model.memory_bytes):
                self._rest(self._entries[leaving], reason="memory")
        elif follower.name not in self._entries:
            # A call that ended after its entry was removed has reported the model's size once more.
            self._hooks.forgotten(str(follower.name))

    def _rest(self, entry: CachedModel, *, reason: str) -> None:
        self._hooks.rested(reason)
        entry.follower.rest()
        self._remove(entry)

    def _drop(self, entry: CachedModel) -> None:
        if entry.follower.is_present:
            entry.follower.leave()
            self._remove(entry)

    def _remove(self, entry: CachedModel) -> None:
        name = entry.follower.name
        del self._entries[name]
        self._sizes.remove(name)
        self._hooks.forgotten(str(name))
        if entry.task is not None and entry.task is not asyncio.current_task():
            entry.task.cancel()

    async def _run(self, entry: CachedModel) -> None:
        """Look at a bandit's log again and again, until its follower leaves."""
        while entry.follower.is_present:
            try:
                await self._look(entry)
            except NotFoundError:
                return
            except UnavailableError as error:
                await asyncio.sleep(error.retry_after)
            except ExhaustedError:  # the store is full: no deadline can be ended
                await asyncio.sleep(self._look_seconds)
            except CorruptDataError as error:
                self._say_damaged(entry, error)
                await asyncio.sleep(DAMAGED_LOOKS * self._look_seconds)
            except Exception:  # noqa: BLE001 - one log must not stop the following for good
                _log.exception("a log can't be followed", extra={"bandit": str(entry.follower.name)})
                await asyncio.sleep(self._look_seconds)

    def _say_damaged(self, entry: CachedModel, error: CorruptDataError) -> None:
        """Log why a bandit can't be followed, once as long as the reason is the same."""
        if entry.damage != str(error):
            _log.error("a log can't be followed: %s", error, extra={"bandit": str(entry.follower.name)})
        entry.damage = str(error)

    async def _look(self, entry: CachedModel) -> None:
        """Wait until it is time, close what is overdue, and follow; or let a model rest that is not used."""
        woken = await entry.wait(clock_ms=self._clock_ms())
        if not entry.follower.is_present:
            return
        now = self._now()
        if self._is_unused(entry, now=now, woken=woken):
            self._rest(entry, reason="idle")
            return
        reads, entry.must_read = entry.must_read or not woken, False
        if now >= entry.expire_at:  # and then the log is read, whatever the hints were
            entry.expire_at, reads = now + self._look_seconds, True
            entry.next_deadline_ms = await self.expire(entry.follower.name)
        entry.record_look(await self._follow(entry, reads=reads), now=now)
        entry.damage = ""
        await asyncio.sleep(GATHER_SECONDS)

    def _is_unused(self, entry: CachedModel, *, now: float, woken: bool) -> bool:
        if now >= entry.used_at + self.budget.idle_seconds and not woken:
            # One whose learner stands still is looked at, so that its lag is reported until somebody mends it.
            return not entry.damage
        return now >= entry.asked_at + VISIT_SECONDS and not self._owns(str(entry.follower.name))

    async def _listen(self) -> None:
        """Wake the entries whose logs have changed."""
        async for name in self._store.changes():
            for changed in [name] if name else list(self._entries):
                if entry := self._entries.get(changed):
                    entry.wake()
