"""Designs studies in the background, one worker at a time for each.

A design is a piece of work that must be done by somebody: whoever has its lease works at it, and takes the lease anew
while it lives. The store's list of unfinished designs is looked through now and then; a lease that lapsed is taken
over, and the design begins again from the start.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from contextlib import suppress
from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np

from topk_bandit.domain.errors import CorruptDataError, InvalidArgumentError, NotFoundError, UnavailableError
from topk_bandit.domain.studies import DesignChosen, DesignFailed, DesignProgress, StudyCreated
from topk_bandit.studies.model import designed

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Executor

    from topk_bandit.domain.hooks import Hooks
    from topk_bandit.domain.studies import DesignEnd, StudyDesign, StudyName, StudySettings
    from topk_bandit.preferences.designs.optimal import Progress
    from topk_bandit.store.study_log import StudyRecord, StudyStore

__all__ = ["Designer"]

_log = logging.getLogger(__name__)

LEASE_MS = 3000
LOOK_SECONDS = 1.0
REPORT_SECONDS = 0.5
DESIGNS_PER_LOOK = 64
CANCEL_AGAIN_SECONDS = 0.1


class _Work:
    """One attempt at a design, as the thread that computes and the loop that reports see it."""

    def __init__(self, *, most_seconds: float) -> None:
        self.progress: DesignProgress | None = None
        self._abandoned = threading.Event()
        self._ends_at = time.monotonic() + most_seconds

    @property
    def is_abandoned(self) -> bool:
        """Whether the attempt is over, or somebody else's."""
        return self._abandoned.is_set()

    def abandon(self) -> None:
        """Make the thread stop, and what it found be of no use."""
        self._abandoned.set()

    def watch(self, progress: Progress, target_gap: float) -> bool:
        """Note progress; tell whether to stop, because the attempt is abandoned or its time is up."""
        if np.isfinite(progress.gap) and np.isfinite(progress.log_det):
            figures = float(progress.log_det), float(progress.gap), float(target_gap)
            self.progress = DesignProgress(int(progress.steps), *figures)
        return self.is_abandoned or time.monotonic() >= self._ends_at


class Designer:
    """Works at the designs that nobody else works at.

    Parameters
    ----------
    store
        Where studies are.
    executor
        Where designs are computed.
    threads
        How many at once.
    hooks
        Where telemetry listens.
    owner
        What the store is to know this designer by, different from all others.
    new_reference
        Makes what the log has a failure under that is the service's own fault.
    most_seconds
        A design that takes longer is taken as it is then, with its gap.
    """

    def __init__(
        self,
        store: StudyStore,
        executor: Executor,
        *,
        threads: int,
        hooks: Hooks,
        owner: str,
        new_reference: Callable[[], str],
        most_seconds: float = 60.0,
    ) -> None:
        self._store = store
        self._executor = executor
        self._threads = threads
        self._hooks = hooks
        self._owner = owner
        self._new_reference = new_reference
        self._most_seconds = most_seconds
        self._works: dict[StudyName, _Work] = {}
        self._tasks: dict[StudyName, asyncio.Task[None]] = {}
        self._free = asyncio.Semaphore(threads)
        self._looking: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to look for designs."""
        self._looking = asyncio.create_task(self._look())

    async def stop(self) -> None:
        """Leave all designs as they are; others take them over."""
        tasks = {task for task in (self._looking, *self._tasks.values()) if task is not None}
        self._looking = None
        left = set(tasks)
        while left:  # a task can miss a cancellation that meets what it waits for just when that is done
            for task in left:
                task.cancel()
            _, left = await asyncio.wait(left, timeout=CANCEL_AGAIN_SECONDS)
        await asyncio.gather(*tasks, return_exceptions=True)

    def begin(self, name: StudyName) -> None:
        """Work at a study's design as soon as there is a free thread, unless somebody else does by then."""
        if name not in self._tasks:
            self._tasks[name] = asyncio.create_task(self._attend(name))

    def ended(self, name: StudyName) -> None:
        """Stop computing a design that this worker has been told is over."""
        if work := self._works.get(name):
            work.abandon()

    async def _look(self) -> None:
        while True:
            try:
                for name in await self._store.unfinished_designs(limit=DESIGNS_PER_LOOK):
                    if len(self._tasks) < self._threads:
                        self.begin(name)
            except UnavailableError:
                pass
            except Exception:  # noqa: BLE001 - one study must not stop the looking for good
                _log.exception("unfinished designs can't be looked for")
            await asyncio.sleep(LOOK_SECONDS)

    async def _attend(self, name: StudyName) -> None:
        try:
            async with self._free:
                record = await self._store.claim_design(name, owner=self._owner, lease_ms=LEASE_MS)
                if record is not None:
                    await self._work_at(record)
        except (NotFoundError, UnavailableError):
            pass  # gone, or to be found again once the store is back
        except Exception:  # noqa: BLE001 - nobody waits for this task
            _log.exception("a design broke off", extra={"study": str(name)})
        finally:
            self._tasks.pop(name, None)

    async def _work_at(self, record: StudyRecord) -> None:
        work = self._works[record.name] = _Work(most_seconds=self._most_seconds)
        started = time.perf_counter()
        outcome = "abandoned"
        try:
            end = await self._worked_at(record, work)
            if end is not None:
                outcome = await self._end(record, end)
        finally:
            work.abandon()
            del self._works[record.name]
            self._hooks.designed(outcome, time.perf_counter() - started)

    async def _worked_at(self, record: StudyRecord, work: _Work) -> DesignEnd | None:
        """Return how an attempt ended, None when it was abandoned."""
        try:
            settings = await self._settings(record)
        except CorruptDataError as error:
            return self._own_fault(record, error)
        computing = asyncio.get_running_loop().run_in_executor(self._executor, _computed, settings, record, work)
        await self._report(record, work, computing)
        return None if work.is_abandoned else self._how_it_ended(record, computing)

    async def _settings(self, record: StudyRecord) -> StudySettings:
        part = await self._store.read_study(record.name, start=1, limit=1)
        if part.record.incarnation != record.incarnation:
            raise NotFoundError(str(record.name))
        first = part.events[0].event if part.events else None
        if not isinstance(first, StudyCreated):
            raise CorruptDataError(f"the log of {record.name} does not begin with its creation")
        return first.settings

    async def _report(self, record: StudyRecord, work: _Work, computing: asyncio.Future[StudyDesign]) -> None:
        """Take the lease anew until the thread is done; abandon the work once it is over or somebody else's."""
        try:
            while not computing.done():
                await asyncio.wait({computing}, timeout=REPORT_SECONDS)
                if not computing.done() and not await self._is_ours(record, work):
                    work.abandon()
        except BaseException:
            work.abandon()
            with suppress(asyncio.CancelledError):
                await asyncio.wait({computing})
            raise

    async def _is_ours(self, record: StudyRecord, work: _Work) -> bool:
        try:
            return await self._store.report_design(record, owner=self._owner, lease_ms=LEASE_MS, progress=work.progress)
        except UnavailableError:
            return True  # as far as anybody knows

    def _how_it_ended(self, record: StudyRecord, computing: asyncio.Future[StudyDesign]) -> DesignEnd:
        error = computing.exception()
        if error is None:
            return DesignChosen(record.attempt, computing.result())
        if isinstance(error, InvalidArgumentError):
            return DesignFailed(record.attempt, error.field, error.problem)
        return self._own_fault(record, error)

    def _own_fault(self, record: StudyRecord, error: BaseException) -> DesignFailed:
        reference = self._new_reference()
        _log.error("the design of %s failed, reference %s", record.name, reference, exc_info=error)
        return DesignFailed(record.attempt, "", reference)

    async def _end(self, record: StudyRecord, end: DesignEnd) -> str:
        """Write down how the attempt ended, however long the store is away; return where the design stands then."""
        while True:
            try:
                return (await self._store.end_design(record, end)).state
            except UnavailableError as error:
                await asyncio.sleep(error.retry_after)


def _computed(settings: StudySettings, record: StudyRecord, work: _Work) -> StudyDesign:
    seed = blake2b(f"{record.attempt}".encode(), key=record.incarnation.encode()[:64], digest_size=16).digest()
    return designed(settings, rng=np.random.default_rng(int.from_bytes(seed)), watch=work.watch)
