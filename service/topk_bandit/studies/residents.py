"""Studies in memory: each is folded from its log when it is asked for, and stays while there is room."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from topk_bandit.domain.errors import CorruptDataError, NotFoundError
from topk_bandit.studies.model import StudyModel

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from topk_bandit.domain.studies import StudyName
    from topk_bandit.preferences.inference import Learned
    from topk_bandit.store.study_log import StudyLogSlice, StudyRecord, StudyStore

__all__ = ["StudyDesk", "StudyDesks"]

EVENTS_PER_READ = 1024


class StudyDesk:
    """One study in memory; whoever uses `model` has the `turn`.

    Attributes
    ----------
    learning
        Held while what the answers tell is computed, so that it is computed once.
    learned
        Incarnation and number of answers, and what they tell; None until somebody asked.
    """

    def __init__(self, name: StudyName, store: StudyStore) -> None:
        self.turn = asyncio.Lock()
        self.learning = asyncio.Lock()
        self.learned: tuple[tuple[str, int], Learned] | None = None
        self._name = name
        self._store = store
        self._model: StudyModel | None = None
        self._record: StudyRecord | None = None

    @property
    def model(self) -> StudyModel:
        """The study as far as it was followed."""
        if self._model is None:
            raise CorruptDataError(f"{self._name} was not followed")
        return self._model

    @property
    def record(self) -> StudyRecord:
        """The study as the store last told."""
        if self._record is None:
            raise CorruptDataError(f"{self._name} was not read")
        return self._record

    @property
    def is_empty(self) -> bool:
        """Whether nothing was followed yet."""
        return self._model is None

    async def catch_up(self) -> StudyModel:
        """Fold in all that the log holds.

        After a failover a log can be shorter than what was folded, or hold other events in the same places: what is
        read begins with the last event that was folded, and if that is another one the study is folded from the start.
        """
        part = await self._read(_start(self._model))
        if self._model is None or not _continues(part, self._model):
            part = await self._begun(part)
        while True:
            for logged in part.events:
                if logged.position > self.model.version:
                    self.model.fold(logged)
            self._record = part.record
            if self.model.version >= part.record.log_position:
                return self.model
            part = await self._read(_start(self._model))

    async def _begun(self, part: StudyLogSlice) -> StudyLogSlice:
        if self._model is not None:
            part = await self._read(1)
        if not part.events:
            raise CorruptDataError(f"the log of {self._name} is empty")
        self._model = StudyModel(part.record.incarnation, part.events[0])
        return part

    async def _read(self, start: int) -> StudyLogSlice:
        return await self._store.read_study(self._name, start=start, limit=EVENTS_PER_READ)


def _start(model: StudyModel | None) -> int:
    """Return where to read on: at the last event, but the first one, which is large and never another, only once."""
    return 1 if model is None else max(model.version, 2)


def _continues(part: StudyLogSlice, model: StudyModel) -> bool:
    same = model.version == 1 or part.events[:1] == (model.last,)
    return same and part.record.incarnation == model.incarnation


class StudyDesks:
    """The studies in memory, those used least recently leaving first when they take more than `most_bytes`."""

    def __init__(self, store: StudyStore, *, most_bytes: int) -> None:
        self._store = store
        self._most_bytes = most_bytes
        self._desks: OrderedDict[StudyName, StudyDesk] = OrderedDict()

    @asynccontextmanager
    async def followed(self, name: StudyName, *, newest: bool = True) -> AsyncIterator[StudyDesk]:
        """Take the turn at a study, followed to its log's end, or if not `newest` as far as it was followed before.

        Raises
        ------
        NotFoundError
            There is no such study.
        """
        desk = self._desks.setdefault(name, StudyDesk(name, self._store))
        self._desks.move_to_end(name)
        async with desk.turn:
            try:
                if newest or desk.is_empty:
                    await desk.catch_up()
                yield desk
            except NotFoundError:
                self._drop(name, desk)
                raise
            finally:
                if desk.is_empty:
                    self._drop(name, desk)
                self._make_room()

    def _drop(self, name: StudyName, desk: StudyDesk) -> None:
        if self._desks.get(name) is desk:
            del self._desks[name]

    def _make_room(self) -> None:
        sizes = {name: desk.model.memory_bytes for name, desk in self._desks.items() if not desk.is_empty}
        total = sum(sizes.values())
        for name in list(sizes)[:-1]:
            if total <= self._most_bytes:
                return
            total -= sizes[name]
            del self._desks[name]
