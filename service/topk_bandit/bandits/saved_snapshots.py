"""One bandit's snapshots in the store: read, checked against their digests, and written now and then.

A snapshot that can't be read is logged, counted and passed over; one that can't be written is logged, and counted
unless the store is away, and the next checkpoint is another chance. A model that differs from the snapshot of the same
log position, though the arithmetic is the same, is logged and counted. No failure here stops a follower.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from topk_bandit.bandits.contexts import fitting_features
from topk_bandit.bandits.digests import digests_of
from topk_bandit.bandits.snapshots import decode_digests, decode_model, encode_model
from topk_bandit.domain.errors import CorruptDataError, NewerDataError, TopkBanditError, UnavailableError
from topk_bandit.domain.replacing import replace
from topk_bandit.store.log import Snapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Executor

    from topk_bandit.bandits.digests import Digests
    from topk_bandit.bandits.log_retention import Retention
    from topk_bandit.bandits.model import Model
    from topk_bandit.domain.bandits import BanditName
    from topk_bandit.domain.hooks import Hooks
    from topk_bandit.learning.limits import Limits
    from topk_bandit.store.log import Store

__all__ = ["SavedSnapshots", "with_item_features"]

_log = logging.getLogger(__name__)

_Result = TypeVar("_Result")

GENERATIONS = 2

EVENTS_BETWEEN_SNAPSHOTS = 256
BYTES_PER_EVENT = 1024
"""A snapshot comes after 256 events at the earliest, and later if it is large: it should not outweigh the log."""

ROWS_PER_EVENT = 4
"""So many imported rows count as an event: they are shorter."""


async def with_item_features(model: Model, store: Store, name: BanditName) -> Model:
    """Return a model with its items' features, which a snapshot of the first data version does not have.

    The store has them as they are now. What changed since the snapshot is in the log after it, and is folded then.
    """
    if model.items.catalogue is not None:
        return model
    schema = model.settings.item_schema or ()
    features = {one.item_id: fitting_features(schema, one.features) for one in await store.list_items(name)}
    return replace(model, items=model.items.with_features(features))


class SavedSnapshots:
    """Reads and writes the snapshots of one bandit; they are encoded and decoded on `executor`.

    Parameters
    ----------
    retention
        What stays of the log behind the snapshots.

    Attributes
    ----------
    position, n_bytes, at_ms
        Of the newest snapshot that was resumed after or saved: the log position that it stands for, its size, and the
        time of its last event by the store's clock. All 0 without one.
    """

    def __init__(
        self,
        name: BanditName,
        store: Store,
        executor: Executor,
        *,
        limits: Limits,
        hooks: Hooks,
        retention: Retention,
    ) -> None:
        self._retention = retention
        self._name = name
        self._store = store
        self._executor = executor
        self._limits = limits
        self._hooks = hooks
        self.position = 0
        self.n_bytes = 0
        self.at_ms = 0
        self._imported = 0

    async def load(self) -> Sequence[Snapshot]:
        """Return the snapshots in the store, newest first; a missing newest one is counted."""
        snapshots = await self._store.load_snapshots(self._name)
        if len(snapshots) < GENERATIONS:
            saved = (await self._store.get_bandit(self._name)).snapshot_position
            snapshots = await self._store.load_snapshots(self._name)
            if saved > max((snapshot.position for snapshot in snapshots), default=0):
                self._hooks.snapshot_failed(str(self._name))
        return snapshots

    async def decode(self, snapshot: Snapshot) -> Model | None:
        """Return the model that a snapshot holds, None if it can't be read."""
        try:
            model = await self._run(lambda: decode_model(snapshot.payload, limits=self._limits))
            await self._compare(lambda: digests_of(model), snapshot)
        except CorruptDataError:
            where = {"bandit": str(self._name), "position": snapshot.position}
            _log.exception("a snapshot is passed over", extra=where)
            self._hooks.snapshot_failed(str(self._name))
            return None
        return await with_item_features(model, self._store, self._name)

    def resume_after(self, snapshot: Snapshot | None, *, at_ms: int = 0, imported: int = 0) -> None:
        """Count the events until the next snapshot from this one; None means from the beginning of the log."""
        self._imported = imported
        self.position = snapshot.position if snapshot else 0
        self.n_bytes = len(snapshot.payload) if snapshot else 0
        self.at_ms = at_ms

    async def save_if_due(self, checkpoint: Model) -> None:
        """Write a snapshot of a model at a checkpoint, unless the last one is too close."""
        events = max(EVENTS_BETWEEN_SNAPSHOTS, self.n_bytes // BYTES_PER_EVENT)
        imported = checkpoint.state.imported - self._imported
        if checkpoint.version + imported // ROWS_PER_EVENT >= self.position + events:
            await self._save(checkpoint)

    async def _save(self, checkpoint: Model) -> None:
        payload = await self._run(lambda: encode_model(checkpoint, self._store.data_version))
        snapshot, incarnation = Snapshot(position=checkpoint.version, payload=payload), checkpoint.incarnation
        try:
            behind = await self._find_fit(incarnation, before=snapshot.position)
            trim = await self._retention.find_trim(
                self._store, self._name, incarnation=incarnation, behind=behind, at_ms=checkpoint.last.at_ms
            )
            if await self._store.save_snapshot(
                self._name, snapshot, incarnation=incarnation, behind=behind, through=trim.through
            ):
                self._hooks.snapshot_saved()
                self._note_unwritten(trim.unwritten)
            else:
                await self._compare_with_stored(snapshot)
        except TopkBanditError as error:  # the next checkpoint is another chance; learning goes on meanwhile
            _log.warning("a snapshot can't be saved: %s", error, extra={"bandit": str(self._name)})
            if not isinstance(error, UnavailableError):
                self._hooks.snapshot_failed(str(self._name))
        else:
            self.resume_after(snapshot, at_ms=checkpoint.last.at_ms, imported=checkpoint.state.imported)

    def _note_unwritten(self, n_events: int) -> None:
        if n_events:
            where = {"bandit": str(self._name)}
            _log.warning("%d events are trimmed that the cold log does not have", n_events, extra=where)
            self._hooks.cold_missed(n_events)

    async def _find_fit(self, incarnation: str, *, before: int) -> int:
        """Return the position of the newest kept snapshot that the bandit can be rebuilt from, 0 without any.

        Whatever is before it in the log may go: the model comes back from its bytes as they are in the store now, with
        the digests that they have. Where another worker kept one at `before` or later none is looked at: nothing will
        be trimmed by a snapshot that comes after it.
        """
        kept = await self._store.load_snapshots(self._name)
        if any(snapshot.position >= before for snapshot in kept):
            return 0
        for snapshot in kept:
            if await self._run(partial(self._is_fit, snapshot, incarnation)):
                return snapshot.position
            where = {"bandit": str(self._name), "position": snapshot.position}
            _log.error("a snapshot holds no such model: the log is not trimmed behind it", extra=where)
            self._hooks.snapshot_failed(str(self._name))
        return 0

    def _is_fit(self, snapshot: Snapshot, incarnation: str) -> bool:
        try:
            model = decode_model(snapshot.payload, limits=self._limits)
            digests = decode_digests(snapshot.payload)
        except (CorruptDataError, NewerDataError):
            return False
        is_it = (model.incarnation, model.version) == (incarnation, snapshot.position)
        return is_it and not digests_of(model).difference(digests)

    async def _compare_with_stored(self, refused: Snapshot) -> None:
        """Compare a snapshot with the one that another worker saved at the same position, if one did."""
        for stored in await self._store.load_snapshots(self._name):
            if stored.position == refused.position:
                await self._compare(lambda: decode_digests(refused.payload), stored)

    async def _compare(self, find_digests: Callable[[], Digests], snapshot: Snapshot) -> None:
        """Log and count a difference between a model and the snapshot of the same position that must not be there."""
        ours, theirs = await self._run(lambda: (find_digests(), decode_digests(snapshot.payload)))
        if difference := ours.difference(theirs):
            where = {"bandit": str(self._name), "position": snapshot.position}
            _log.error("this model's %s is not that of the snapshot: %s, %s", difference, ours, theirs, extra=where)
            self._hooks.diverged(str(self._name))

    async def _run(self, work: Callable[[], _Result]) -> _Result:
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)
