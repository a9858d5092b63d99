"""Following one bandit's log: from the newest snapshot that fits, and then event by event."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from topk_bandit.bandits.digests import digests_of
from topk_bandit.bandits.model import Model, begin, fold
from topk_bandit.bandits.snapshots import decode_digests, decode_model, encode_model
from topk_bandit.domain.bandits import Rewarded
from topk_bandit.domain.errors import CorruptDataError, TopkBanditError
from topk_bandit.store.log import Snapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Executor

    from topk_bandit.domain.bandits import BanditName, LoggedEvent
    from topk_bandit.domain.hooks import Hooks
    from topk_bandit.learning.policy import Limits
    from topk_bandit.store.log import LogSlice, Store

__all__ = ["Follower"]

_log = logging.getLogger(__name__)

_Result = TypeVar("_Result")

EVENTS_PER_READ = 512
GENERATIONS = 2
SHORT_TAIL = 64
"""So many events after a snapshot are folded before the model is used; of a longer tail none is."""

EVENTS_BETWEEN_SNAPSHOTS = 256
BYTES_PER_EVENT = 1024
"""A snapshot comes after 256 events at the earliest, and later if it is large: it should not outweigh the log."""


@dataclass(frozen=True, slots=True, eq=False)
class _Step:
    """What a slice of the log made of a model: the newest model, and the newest one at a checkpoint."""

    model: Model
    checkpoint: Model | None


class Follower:
    """Keeps one bandit's model up with its log. One task at a time may `catch_up`; `model` may be read at any time.

    Parameters
    ----------
    name
        The bandit.
    store
        Where its log is.
    executor
        Where events are folded, away from the event loop.
    limits
        What the learner may grow to.
    hooks
        Where telemetry listens.
    clock_ms
        This machine's clock, for the model's age only.
    """

    def __init__(
        self,
        name: BanditName,
        store: Store,
        executor: Executor,
        *,
        limits: Limits,
        hooks: Hooks,
        clock_ms: Callable[[], int],
    ) -> None:
        self.name = name
        self.model: Model | None = None
        self._store = store
        self._executor = executor
        self._limits = limits
        self._hooks = hooks
        self._clock_ms = clock_ms
        self._saved = 0
        self._saved_bytes = 0
        self._heard = 0

    async def take_up(self) -> Model:
        """Return a model soon: one at the log's end, published, if that is near; else the newest snapshot's.

        The errors are those of `catch_up`.
        """
        model, part = await self._rebuilt(limit=SHORT_TAIL + 1)
        if model is None or part.log_position <= model.version + SHORT_TAIL:
            return await self._followed_to_the_end(model, part)
        return model

    def publish(self, model: Model) -> None:
        """Let a model be used that `take_up` returned; `catch_up` goes on from it."""
        self.model = model

    async def catch_up(self) -> Model:
        """Fold in all that the log holds, and publish it.

        Raises
        ------
        NotFoundError
            There is no such bandit (any more); the model is gone too.
        UnavailableError
            The store is away; the model stays as it is.
        CorruptDataError
            Neither the log nor a snapshot can be read.
        """
        return await self._followed_to_the_end(*await self._followed_or_rebuilt())

    async def _followed_to_the_end(self, model: Model | None, part: LogSlice) -> Model:
        while True:
            events = tuple(logged for logged in part.events if model is None or logged.position > model.version)
            self.model = await self._advance(model, part.incarnation, events)
            self._report(part)
            if self.model.version >= part.log_position:
                return self.model
            model, part = await self._followed_or_rebuilt()

    async def _followed_or_rebuilt(self) -> tuple[Model | None, LogSlice]:
        return await self._followed() or await self._rebuilt(limit=EVENTS_PER_READ)

    async def _followed(self) -> tuple[Model | None, LogSlice] | None:
        """Return the model and the log from its last event on; None without a model, or if the log is another one."""
        if self.model is None:
            return None
        part = await self._store.read_log(self.name, start=self.model.version, limit=EVENTS_PER_READ)
        if _continues(part, self.model):
            return self.model, part
        _log.warning("the log is not the one that was followed; rebuilding", extra={"bandit": str(self.name)})
        return None

    async def _rebuilt(self, *, limit: int) -> tuple[Model | None, LogSlice]:
        """Return the newest model that a snapshot gives and the log after it; no model for a log that is whole."""
        for snapshot in await self._snapshots():
            model = await self._decoded(snapshot)
            if model is None:
                continue
            part = await self._store.read_log(self.name, start=model.version, limit=limit)
            whole = part.first_position == model.version + 1 and part.incarnation == model.incarnation
            if whole:
                part = await self._store.read_log(self.name, start=part.first_position, limit=limit)
            if whole or _continues(part, model):
                self._saved, self._saved_bytes = snapshot.position, len(snapshot.payload)
                self._heard = part.log_position
                return model, part
        part = await self._store.read_log(self.name, start=1, limit=limit)
        if part.first_position > 1:
            raise CorruptDataError(f"{self.name}: the log begins at {part.first_position} and no snapshot fits")
        self._saved, self._saved_bytes, self._heard = 0, 0, part.log_position
        return None, part

    async def _snapshots(self) -> Sequence[Snapshot]:
        """Return the kept snapshots, newest first, and tell telemetry if the newest that was saved is missing."""
        snapshots = await self._store.load_snapshots(self.name)
        if len(snapshots) < GENERATIONS:
            saved = (await self._store.get_bandit(self.name)).snapshot_position
            snapshots = await self._store.load_snapshots(self.name)
            if saved > max((snapshot.position for snapshot in snapshots), default=0):
                self._hooks.snapshot_failed(str(self.name))
        return snapshots

    async def _decoded(self, snapshot: Snapshot) -> Model | None:
        try:
            model = await self._in_thread(lambda: decode_model(snapshot.payload, limits=self._limits))
            await self._compare(model, snapshot)
        except CorruptDataError:
            where = {"bandit": str(self.name), "position": snapshot.position}
            _log.exception("a snapshot is passed over", extra=where)
            self._hooks.snapshot_failed(str(self.name))
            return None
        return model

    async def _compare(self, model: Model, snapshot: Snapshot) -> None:
        """Tell when a model is not the one that a snapshot of the same position was taken of, though it must be."""
        mine, theirs = await self._in_thread(lambda: (digests_of(model), decode_digests(snapshot.payload)))
        if difference := mine.difference(theirs):
            where = {"bandit": str(self.name), "position": snapshot.position}
            _log.error("this model's %s is not that of the snapshot: %s, %s", difference, mine, theirs, extra=where)
            self._hooks.diverged(str(self.name))

    async def _advance(self, model: Model | None, incarnation: str, events: Sequence[LoggedEvent]) -> Model:
        step = await self._in_thread(lambda: self._folded(model, incarnation, events))
        if step.checkpoint is not None and self._is_worth_saving(step.checkpoint):
            await self._save(step.checkpoint)
        return step.model

    def _is_worth_saving(self, checkpoint: Model) -> bool:
        events = max(EVENTS_BETWEEN_SNAPSHOTS, self._saved_bytes // BYTES_PER_EVENT)
        return checkpoint.version >= self._saved + events

    def _folded(self, model: Model | None, incarnation: str, events: Sequence[LoggedEvent]) -> _Step:
        checkpoint = None
        for logged in events:
            if model is None:
                model = begin(incarnation, logged, limits=self._limits)
                continue
            self._note_delay(model, logged)
            model = fold(model, logged)
            if model.since_checkpoint == 0:
                checkpoint = model
        if model is None:
            raise CorruptDataError(f"{self.name}: the log is empty")
        return _Step(model, checkpoint)

    async def _save(self, checkpoint: Model) -> None:
        payload = await self._in_thread(lambda: encode_model(checkpoint))
        snapshot = Snapshot(position=checkpoint.version, payload=payload)
        try:
            if not await self._store.save_snapshot(self.name, snapshot, incarnation=checkpoint.incarnation):
                await self._compare_with_kept(checkpoint)
        except TopkBanditError as error:  # the next checkpoint is another chance; learning goes on meanwhile
            _log.warning("a snapshot can't be saved: %s", error, extra={"bandit": str(self.name)})
            self._hooks.snapshot_failed(str(self.name))
        else:
            self._saved, self._saved_bytes = checkpoint.version, len(payload)

    async def _compare_with_kept(self, checkpoint: Model) -> None:
        """Compare with the snapshot that another worker kept for the same position, if it did."""
        for kept in await self._store.load_snapshots(self.name):
            if kept.position == checkpoint.version:
                await self._compare(checkpoint, kept)

    def _note_delay(self, model: Model, logged: LoggedEvent) -> None:
        if logged.position > self._heard and isinstance(logged.event, Rewarded):
            slate = model.open.get(logged.event.recommendation_id)
            if slate is not None:
                self._hooks.learned(logged.event.value, (logged.at_ms - slate.at_ms) / 1e3)

    def _report(self, part: LogSlice) -> None:
        model = self.model
        if model is None:
            return
        lag = part.log_position - model.version
        age_ms = max(0, self._clock_ms() - model.last.at_ms) if lag else 0
        self._hooks.followed(str(self.name), lag, age_ms / 1e3)
        self._hooks.posterior(
            str(self.name),
            observations=model.state.observations,
            pending=len(model.open),
            rows=model.state.posterior.n_rows,
            memory_bytes=model.memory_bytes,
        )

    async def _in_thread(self, work: Callable[[], _Result]) -> _Result:
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)


def _continues(part: LogSlice, model: Model) -> bool:
    """Tell whether a part of the log that was read from the model's last event on is the one the model was folded from.

    After a failover a log can be shorter than what was folded, or have other events in the same places.
    """
    return part.incarnation == model.incarnation and part.events[:1] == (model.last,)
