"""Dry runs of the learner on a bandit that is being restored: no event is kept at which every learner would stop.

What a learner takes depends on all that came before: which items have places, which slates are open. A part of the
lines is folded before it is kept, into the model of the parts before it.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from topk_bandit.bandits.fold import begin, fold
from topk_bandit.bandits.snapshots import decode_model
from topk_bandit.domain.errors import CorruptDataError, InvalidArgumentError, NewerDataError, TopkBanditError
from topk_bandit.store.codec import decode_snapshot
from topk_bandit.store.events import LoggedEvent, Recommended

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Executor

    from topk_bandit.bandits.model import Model
    from topk_bandit.domain.bandits import BanditName
    from topk_bandit.learning.limits import Limits
    from topk_bandit.store.archives import Line
    from topk_bandit.store.log import Store
    from topk_bandit.store.restore_state import Restore, RestoreStep

__all__ = ["MOST_KEPT", "DryRuns"]

_Result = TypeVar("_Result")

EVENTS_PER_READ = 256

MOST_KEPT = 2
"""So many imports have their model kept until the next part comes; the restored events of others are folded again."""


class DryRuns:
    """Folds bandits that are being restored.

    Parameters
    ----------
    executor
        Where events are folded.
    limits
        What one bandit's posterior may grow to.
    """

    def __init__(self, store: Store, executor: Executor, *, limits: Limits) -> None:
        self._store = store
        self._executor = executor
        self._limits = limits
        self._kept: dict[BanditName, tuple[str, Model]] = {}

    async def check(self, name: BanditName, before: Restore, step: RestoreStep, parsed: Sequence[Line]) -> None:
        """Check that a learner can fold the events among the lines that come next.

        Without the snapshot that the log begins after nothing is checked here: such a bandit is not ended.

        Raises
        ------
        InvalidArgumentError
            On ``lines[n]``: it can't fold that one.
        """
        places = [place for place, line in enumerate(parsed) if isinstance(line, LoggedEvent)]
        if not places:
            return
        digest, model = self._kept.pop(name, ("", None))
        try:
            if model is None or digest != before.digest:
                model = await self._fold_restored(name, before, step)
            if model is None and step.restore.first_position > 1:
                return
            model = await self._fold(step.restore.incarnation, model, step.events)
        except _UnfoldableError as error:
            place = error.position - step.events[0].position
            raise InvalidArgumentError(f"lines[{places[max(place, 0)]}]", str(error)) from error.__cause__
        if not step.restore.complete:
            self._keep(name, step.restore.digest, model)

    def _keep(self, name: BanditName, digest: str, model: Model) -> None:
        while len(self._kept) >= MOST_KEPT:
            del self._kept[next(iter(self._kept))]
        self._kept[name] = digest, model

    async def _fold_restored(self, name: BanditName, before: Restore, step: RestoreStep) -> Model | None:
        """Return the model of all that is restored, None where nothing is that makes one."""
        restore = step.restore
        known = await self._store.load_restored_snapshot(name) if before.next_line else b""
        model = await self._compute(partial(self._decode, known + step.snapshot))
        if (model.version if model is not None else 0) != restore.first_position - 1:
            return None
        position = restore.first_position
        while before.next_line and position <= before.position:
            events = await self._store.read_restored_log(name, start=position, limit=EVENTS_PER_READ)
            if not events:
                break
            model = await self._fold(restore.incarnation, model, events)
            position = model.version + 1
        return model

    def _decode(self, frame: bytes) -> Model | None:
        try:
            return decode_model(decode_snapshot(frame).payload, limits=self._limits) if frame else None
        except (CorruptDataError, NewerDataError):
            return None

    async def _fold(self, incarnation: str, model: Model | None, events: Sequence[LoggedEvent]) -> Model:
        return await self._compute(partial(self._fold_all, incarnation, model, events))

    def _fold_all(self, incarnation: str, model: Model | None, events: Sequence[LoggedEvent]) -> Model:
        for logged in events:
            try:
                model = begin(incarnation, logged, limits=self._limits) if model is None else fold(model, logged)
                _check_slates(model, logged)
            except Exception as error:  # whatever it is, a learner would stop there
                raise _UnfoldableError(logged.position, error) from error
        return model  # type: ignore[return-value]  # there is an event

    async def _compute(self, work: Callable[[], _Result]) -> _Result:
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)


def _check_slates(model: Model, logged: LoggedEvent) -> None:
    """Check that a slate that is not learned from, and one instead of which another was drawn, can be explained."""
    event = logged.event
    if isinstance(event, Recommended) and not model.skipped:
        for slate in (event.recommendation.slate, event.recommendation.best_slate):
            model.items.find_indices(slate)


class _UnfoldableError(Exception):
    """An event that no learner can fold."""

    def __init__(self, position: int, cause: Exception) -> None:
        super().__init__(str(cause) if isinstance(cause, TopkBanditError) else f"event {position} can't be folded")
        self.position = position
