"""Computes the designs of studies in the background, each by one worker at a time.

A worker claims a design by taking its lease in the store, and renews the lease while it computes. All workers look for
unfinished designs now and then: when a lease has lapsed, another worker claims the design and begins it again from the
start. Of several ends of one attempt the store keeps the first. The computing never runs on the event loop.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from contextlib import suppress
from contextvars import Context
from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np

from topk_bandit.domain.errors import CorruptDataError, InvalidArgumentError, NotFoundError, UnavailableError
from topk_bandit.domain.studies import DesignChosen, DesignFailed, DesignProgress, StudyCreated
from topk_bandit.studies.pool import design_study

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


class _Attempt:
    """An attempt at a design, shared by the thread that computes it and the event loop that reports its progress."""

    def __init__(self, *, most_seconds: float) -> None:
        self.progress: DesignProgress | None = None
        self._abandoned = threading.Event()
        self._ends_at = time.monotonic() + most_seconds

    @property
    def is_abandoned(self) -> bool:
        """Whether the result is not wanted any more."""
        return self._abandoned.is_set()

    def abandon(self) -> None:
        """Make the thread stop soon; its result is not used."""
        self._abandoned.set()

    def watch(self, progress: Progress, target_gap: float) -> bool:
        """Note progress; return whether to stop, because the attempt is abandoned or its time is up."""
        if np.isfinite(progress.gap) and np.isfinite(progress.log_det):
            figures = float(progress.log_det), float(progress.gap), float(target_gap)
            self.progress = DesignProgress(int(progress.steps), *figures)
        return self.is_abandoned or time.monotonic() >= self._ends_at


class Designer:
    """Claims unfinished designs and computes them.

    Parameters
    ----------
    threads
        How many designs are computed at once.
    owner
        Identifies this designer in the store; no other has the same.
    new_reference
        Return the reference id under which an internal failure is logged.
    most_seconds
        A design that takes longer ends as it is then, with its gap.
    look_seconds
        How long after a look for unfinished designs the next one is.
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
        look_seconds: float = LOOK_SECONDS,
    ) -> None:
        self._store = store
        self._executor = executor
        self._threads = threads
        self._hooks = hooks
        self._owner = owner
        self._new_reference = new_reference
        self._most_seconds = most_seconds
        self._look_seconds = look_seconds
        self._attempts: dict[StudyName, _Attempt] = {}
        self._tasks: dict[StudyName, asyncio.Task[None]] = {}
        self._free = asyncio.Semaphore(threads)
        self._search: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to look for unfinished designs."""
        self._search = asyncio.create_task(self._claim_unfinished())

    async def stop(self) -> None:
        """Stop all attempts; other workers claim the designs once their leases have lapsed."""
        tasks = {task for task in (self._search, *self._tasks.values()) if task is not None}
        self._search = None
        left = set(tasks)
        while left:  # a task can miss a cancellation that meets what it waits for just when that is done
            for task in left:
                task.cancel()
            _, left = await asyncio.wait(left, timeout=CANCEL_AGAIN_SECONDS)
        await asyncio.gather(*tasks, return_exceptions=True)

    def begin(self, name: StudyName) -> None:
        """Compute a study's design as soon as a thread is free, unless another worker has claimed it by then."""
        if name not in self._tasks:
            self._tasks[name] = asyncio.create_task(self._claim(name), context=Context())

    def abandon(self, name: StudyName) -> None:
        """Stop computing a design that was ended by someone else."""
        if attempt := self._attempts.get(name):
            attempt.abandon()

    async def _claim_unfinished(self) -> None:
        while True:
            try:
                for name in await self._store.unfinished_designs(limit=DESIGNS_PER_LOOK):
                    if len(self._tasks) < self._threads:
                        self.begin(name)
            except UnavailableError:
                pass
            except Exception:  # noqa: BLE001 - one study must not end the search for good
                _log.exception("unfinished designs can't be looked for")
            await asyncio.sleep(self._look_seconds)

    async def _claim(self, name: StudyName) -> None:
        try:
            async with self._free:
                record = await self._store.claim_design(name, owner=self._owner, lease_ms=LEASE_MS)
                if record is not None:
                    await self._attempt(record)
        except (NotFoundError, UnavailableError):
            pass  # gone, or to be found again once the store is back
        except Exception:  # noqa: BLE001 - nobody waits for this task
            _log.exception("a design broke off", extra={"study": str(name)})
        finally:
            self._tasks.pop(name, None)

    async def _attempt(self, record: StudyRecord) -> None:
        attempt = self._attempts[record.name] = _Attempt(most_seconds=self._most_seconds)
        started = time.perf_counter()
        outcome = "abandoned"
        try:
            end = await self._compute(record, attempt)
            if end is not None:
                outcome = await self._record_end(record, end)
        finally:
            attempt.abandon()
            del self._attempts[record.name]
            self._hooks.designed(outcome, time.perf_counter() - started)

    async def _compute(self, record: StudyRecord, attempt: _Attempt) -> DesignEnd | None:
        """Return how an attempt ended, None when it was abandoned."""
        try:
            settings = await self._read_settings(record)
        except CorruptDataError as error:
            return self._log_internal_failure(record, error)
        loop = asyncio.get_running_loop()
        computing = loop.run_in_executor(self._executor, _design, settings, record, attempt)
        await self._hold_lease(record, attempt, computing)
        return None if attempt.is_abandoned else self._describe_end(record, computing)

    async def _read_settings(self, record: StudyRecord) -> StudySettings:
        part = await self._store.read_study(record.name, start=1, limit=1)
        if part.record.incarnation != record.incarnation:
            raise NotFoundError(str(record.name))
        first = part.events[0].event if part.events else None
        if not isinstance(first, StudyCreated):
            raise CorruptDataError(f"the log of {record.name} does not begin with its creation")
        return first.settings

    async def _hold_lease(self, record: StudyRecord, attempt: _Attempt, computing: asyncio.Future[StudyDesign]) -> None:
        """Renew the lease until the thread is done; abandon the attempt once the lease is lost."""
        try:
            while not computing.done():
                await asyncio.wait({computing}, timeout=REPORT_SECONDS)
                if not computing.done() and not await self._renew_lease(record, attempt):
                    attempt.abandon()
        except BaseException:
            attempt.abandon()
            with suppress(asyncio.CancelledError):
                await asyncio.wait({computing})
            raise

    async def _renew_lease(self, record: StudyRecord, attempt: _Attempt) -> bool:
        """Renew the lease and report progress; return False when the attempt has ended or another worker has it."""
        try:
            return await self._store.report_design(
                record, owner=self._owner, lease_ms=LEASE_MS, progress=attempt.progress
            )
        except UnavailableError:
            return True  # nobody else can claim the design while the store is away

    def _describe_end(self, record: StudyRecord, computing: asyncio.Future[StudyDesign]) -> DesignEnd:
        error = computing.exception()
        if error is None:
            return DesignChosen(record.attempt, computing.result())
        if isinstance(error, InvalidArgumentError):
            return DesignFailed(record.attempt, error.field, error.problem)
        return self._log_internal_failure(record, error)

    def _log_internal_failure(self, record: StudyRecord, error: BaseException) -> DesignFailed:
        reference = self._new_reference()
        _log.error("the design of %s failed, reference %s", record.name, reference, exc_info=error)
        return DesignFailed(record.attempt, "", reference)

    async def _record_end(self, record: StudyRecord, end: DesignEnd) -> str:
        """Record how the attempt ended, however long the store is away; return the state of the design then."""
        while True:
            try:
                return (await self._store.end_design(record, end)).state
            except UnavailableError as error:
                await asyncio.sleep(error.retry_after)


def _design(settings: StudySettings, record: StudyRecord, attempt: _Attempt) -> StudyDesign:
    """Return the design of an attempt, the same one in every process."""
    seed = blake2b(f"{record.attempt}".encode(), key=record.incarnation.encode()[:64], digest_size=16).digest()
    return design_study(settings, rng=np.random.default_rng(int.from_bytes(seed)), watch=attempt.watch)
