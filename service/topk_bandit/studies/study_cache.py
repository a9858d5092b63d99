"""The cache of studies: each is folded from its log when it is asked for, and stays while there is space.

Whoever uses a study has it alone, and finds it folded to the end of its log unless they ask for less. A study whose log
was replaced (deleted and created again, or shortened by a failover) is folded anew from its first event. The module
never writes to the store.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from typing import TYPE_CHECKING

from topk_bandit.domain.errors import CorruptDataError, NotFoundError
from topk_bandit.studies.analysis import StudyAnalysis, count_imported
from topk_bandit.studies.model import begin, fold
from topk_bandit.studies.pool import build_pool

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    import numpy as np
    from numpy.typing import NDArray

    from topk_bandit.domain.studies import ModelScore, PreferenceModel, StudyName
    from topk_bandit.preferences.agreement import Agreement
    from topk_bandit.preferences.questions import QuestionPool
    from topk_bandit.preferences.study_models import LearnedUtilities
    from topk_bandit.store.study_log import StudyLogSlice, StudyRecord, StudyStore
    from topk_bandit.studies.analysis import Gathered
    from topk_bandit.studies.model import StudyModel

__all__ = ["CachedStudy", "Learned", "StudyCache"]

EVENTS_PER_READ = 1024


@dataclass(slots=True)
class Learned:
    """What was learned from as many answers as `key` says, as far as it was asked for.

    Attributes
    ----------
    key
        Incarnation, and numbers of answers and of imported ones.
    utilities
        By model.
    scores
        How well models predict the answers, and how many were predicted; None before that was asked for.
    agreement
        How far the answers agree; None likewise.
    """

    key: tuple[str, int, int]
    utilities: dict[PreferenceModel, LearnedUtilities] = field(default_factory=dict)
    scores: tuple[tuple[ModelScore, ...], int] | None = None
    agreement: Agreement | None = None


class CachedStudy:
    """One study in memory.

    Attributes
    ----------
    in_use
        Held by whoever uses the study.
    learning
        Held while utilities are learned from the answers, so that this is done once.
    comparing
        Held while models are compared, likewise.
    """

    def __init__(self, name: StudyName, store: StudyStore) -> None:
        self.in_use = asyncio.Lock()
        self.learning = asyncio.Lock()
        self.comparing = asyncio.Lock()
        self._learned: Learned | None = None
        self._name = name
        self._store = store
        self._model: StudyModel | None = None
        self._record: StudyRecord | None = None
        self._pool: Callable[[], QuestionPool] | None = None
        self._imported: tuple[tuple[str, bool, int], Callable[[], Gathered]] | None = None
        self._counted: tuple[tuple[str, int, int], Callable[[], NDArray[np.int64]]] | None = None

    @property
    def model(self) -> StudyModel:
        """The study as far as its log was folded."""
        if self._model is None:
            raise CorruptDataError(f"{self._name} was not folded")
        return self._model

    @property
    def record(self) -> StudyRecord:
        """The study as the store returned it with the last events read."""
        if self._record is None:
            raise CorruptDataError(f"{self._name} was not read")
        return self._record

    @property
    def is_empty(self) -> bool:
        """Whether nothing was folded yet."""
        return self._model is None

    def learned_from(self, model: StudyModel) -> Learned:
        """Return what was learned from a model's answers so far; that from others is forgotten."""
        key = model.incarnation, len(model.answers), len(model.imported)
        if self._learned is None or self._learned.key != key:
            self._learned = Learned(key)
        return self._learned

    def prepare_analysis(self) -> Callable[[], StudyAnalysis]:
        """Return a function that makes the analysis of the study as it is now.

        It may take seconds the first time, and may be called on any thread.
        """
        model, pool = self.model, self._pool or partial(build_pool, self.model.settings)
        key = model.incarnation, model.design is not None, len(model.imported)
        if self._imported is None or self._imported[0] != key:
            # As many of a study are always the same ones, so what they show is computed once.
            self._imported = key, cache(lambda: count_imported(model, pool()))
        imported = self._imported[1]
        return lambda: StudyAnalysis(model, pool(), imported)

    def prepare_counts(self) -> Callable[[], NDArray[np.int64]]:
        """Return a function that counts the answers about each list of the design, once for as many answers.

        It may be called on any thread.
        """
        key = self.model.incarnation, len(self.model.answers), len(self.model.imported)
        if self._counted is None or self._counted[0] != key:
            prepared = self.prepare_analysis()
            self._counted = key, cache(lambda: prepared().count_answers_by_list())
        return self._counted[1]

    async def fold_new_events(self) -> StudyModel:
        """Fold the log to its end, and return the model.

        After a failover a log can be shorter than what was folded, or hold other events in the same places. So reading
        begins with the last event that was folded, and if the log has another one there the study is folded anew.
        """
        part = await self._read(_first_to_read(self._model))
        if self._model is None or not _continues(part, self._model):
            part = await self._begin_anew(part)
        while True:
            model = self.model
            for logged in part.events:
                if logged.position > model.version:
                    model = fold(model, logged)
            self._model, self._record = model, part.record
            if model.version >= part.record.log_position:
                return model
            part = await self._read(_first_to_read(model))

    async def _begin_anew(self, part: StudyLogSlice) -> StudyLogSlice:
        if self._model is not None:
            part = await self._read(1)
        if not part.events:
            raise CorruptDataError(f"the log of {self._name} is empty")
        self._model = begin(part.record.incarnation, part.events[0])
        self._imported = None
        self._pool = cache(partial(build_pool, self._model.settings))
        return part

    async def _read(self, start: int) -> StudyLogSlice:
        return await self._store.read_study(self._name, start=start, limit=EVENTS_PER_READ)


def _first_to_read(model: StudyModel | None) -> int:
    """Return the position to read from: the last event's, but the first event, which is large, is read only once."""
    return 1 if model is None else max(model.version, 2)


def _continues(part: StudyLogSlice, model: StudyModel) -> bool:
    same = model.version == 1 or part.events[:1] == (model.last,)
    return same and part.record.incarnation == model.incarnation


class StudyCache:
    """The studies in memory: when they take more than `most_bytes` together, those used least recently leave."""

    def __init__(self, store: StudyStore, *, most_bytes: int) -> None:
        self._store = store
        self._most_bytes = most_bytes
        self._entries: OrderedDict[StudyName, CachedStudy] = OrderedDict()

    @asynccontextmanager
    async def use(self, name: StudyName, *, newest: bool = True) -> AsyncIterator[CachedStudy]:
        """Use a study alone, folded to its log's end; if not `newest`, only as far as it was folded before.

        Raises
        ------
        NotFoundError
            There is no such study.
        """
        entry = self._entries.setdefault(name, CachedStudy(name, self._store))
        self._entries.move_to_end(name)
        async with entry.in_use:
            try:
                if newest or entry.is_empty:
                    await entry.fold_new_events()
                yield entry
            except NotFoundError:
                self._drop(name, entry)
                raise
            finally:
                if entry.is_empty:
                    self._drop(name, entry)
                self._evict()

    def _drop(self, name: StudyName, entry: CachedStudy) -> None:
        if self._entries.get(name) is entry:
            del self._entries[name]

    def _evict(self) -> None:
        sizes = {name: one.model.memory_bytes for name, one in self._entries.items() if not one.is_empty}
        total = sum(sizes.values())
        for name in list(sizes)[:-1]:
            if total <= self._most_bytes:
                return
            total -= sizes[name]
            del self._entries[name]
