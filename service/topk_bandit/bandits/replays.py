"""Models as they were: folded again from a snapshot or from the beginning of a log, up to a position.

The log is read from the files of the cold log and the store as one.

A replay is made in steps of few events, so that other work gets its thread between them, and it keeps nothing. What it
comes to is the model that workers had there, to the bit where the arithmetic is the same.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from topk_bandit.bandits.fold import begin, fold
from topk_bandit.bandits.saved_snapshots import with_item_features
from topk_bandit.bandits.snapshots import decode_model
from topk_bandit.domain.errors import CorruptDataError, NotFoundError, NotReadyError, UnavailableError
from topk_bandit.store.codec import decode_event
from topk_bandit.store.event_keys import recommendation_key
from topk_bandit.store.events import LoggedEvent, Recommended

if TYPE_CHECKING:
    from collections.abc import Sequence
    from concurrent.futures import Executor

    from topk_bandit.bandits.model import Model
    from topk_bandit.domain.bandits import BanditName
    from topk_bandit.domain.operators import EventText
    from topk_bandit.learning.limits import Limits
    from topk_bandit.store.log import Snapshot, Store
    from topk_bandit.store.whole_logs import WholeLogs

__all__ = ["Replays"]

EVENTS_PER_STEP = 64

EVENTS_PER_FILE_READ = 1024
"""So many events of files are read together: each time files are listed."""

MOST_FROM_FILES = 20_000
"""So many events are folded at most for a model whose log begins in files: about ten seconds of work."""


class Replays:
    """Replays the logs of a store, and finds recommendations in them.

    Parameters
    ----------
    executor
        Where events are folded.
    limits
        What a posterior may grow to: those of the workers whose models are to be had again.
    logs
        Where recommendations are looked up and events are read, also those that the store has no more.
    """

    def __init__(self, store: Store, executor: Executor, *, limits: Limits, logs: WholeLogs) -> None:
        self._store = store
        self._logs = logs
        self._executor = executor
        self._limits = limits

    async def find_recommendation(
        self, name: BanditName, recommendation_id: str
    ) -> tuple[str, LoggedEvent, Recommended]:
        """Return the log's incarnation and where a recommendation is in it.

        Raises
        ------
        NotFoundError
            No such bandit, or no such recommendation in a log that is whole.
        NotReadyError
            LOG_TRIMMED: it is not in what is left of the log, in the store or in files.
        """
        incarnation = (await self._store.read_log(name, start=1, limit=0)).incarnation
        async for found in self._logs.find(name, recommendation_key(recommendation_id)):
            event = decode_event(found.text)
            if isinstance(event, Recommended):
                return incarnation, LoggedEvent(found.position, found.at_ms, event), event
        reach = await self._logs.find_reach(name)
        if reach.first_position > 1:
            problem = f"the log begins at {reach.first_position}, and what is left of it has no such recommendation"
            if reach.missing_events:
                problem += (
                    f"; of the events before, {reach.missing_events} are in no file of the cold log, as where services"
                    " have folders of their own"
                )
            raise NotReadyError("LOG_TRIMMED", problem, first_position=reach.first_position)
        raise NotFoundError(f"recommendation {recommendation_id}")

    async def model_at(self, name: BanditName, version: int, *, incarnation: str) -> Model:
        """Return an incarnation's model at a log position.

        Raises
        ------
        NotReadyError
            LOG_TRIMMED: log and snapshots do not go back so far. LOG_TOO_LONG: too much would have to be folded.
        CorruptDataError
            A file of the cold log is damaged, or an event can't be folded.
        NotFoundError
            There is no such bandit.
        UnavailableError
            The store is away, or the log was trimmed or begun anew meanwhile: another try may help.
        """
        snapshots = list(await self._store.load_snapshots(name))
        model = await self._fold_from(name, snapshots, version, incarnation)
        if model is not None:
            return model
        first = (await self._logs.read_texts(name, start=1, limit=0)).first_position
        if first == 1:
            problem = f"{version} events would have to be folded, which are more than {MOST_FROM_FILES}"
            raise NotReadyError("LOG_TOO_LONG", f"{problem}: topk-bandit log dump and log replay have no such limit")
        oldest = min((one.position for one in snapshots), default=0)
        has = f"the oldest snapshot is of version {oldest}" if oldest else "there is no snapshot"
        problem = (
            f"the model that decided is of version {version}, {has}, and the log can be read from event {first} on"
        )
        raise NotReadyError("LOG_TRIMMED", problem, first_position=first)

    async def longest_replay(self, name: BanditName, version: int, *, incarnation: str) -> tuple[int, Model] | None:
        """Return where an incarnation's longest replay begins, and the model that it comes to at a log position.

        It begins at 0, which is the beginning of the log, or with the oldest snapshot. None where neither is left. The
        errors are those of `model_at`.
        """
        snapshots = list(await self._store.load_snapshots(name))
        part = await self._store.read_log(name, start=1, limit=0)
        snapshots = [] if part.first_position == 1 else snapshots[::-1]
        start = next((one.position for one in snapshots if one.position <= version), 0)
        model = await self._fold_from(name, snapshots, version, incarnation)
        return None if model is None else (start, model)

    async def _fold_from(
        self, name: BanditName, snapshots: Sequence[Snapshot], version: int, incarnation: str
    ) -> Model | None:
        """Return the model at a position, from the first of some snapshots that fits, or from a log that is whole."""
        model = await self._first_before(snapshots, version)
        model = None if model is None else await with_item_features(model, self._store, name)
        part = await self._store.read_log(name, start=1, limit=0)
        if part.incarnation != incarnation or (model is not None and model.incarnation != incarnation):
            raise _lost_meanwhile(name)
        if model is None and part.first_position > 1:
            whole = await self._logs.read_texts(name, start=1, limit=0)
            if whole.first_position > 1 or version > MOST_FROM_FILES:
                return None
        return await self._fold_to(name, model, incarnation, version, first_in_store=part.first_position)

    async def _first_before(self, snapshots: Sequence[Snapshot], version: int) -> Model | None:
        for snapshot in snapshots:
            if snapshot.position <= version and (model := await self._decode(snapshot)) is not None:
                return model
        return None

    async def _decode(self, snapshot: Snapshot) -> Model | None:
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(
                self._executor, lambda: decode_model(snapshot.payload, limits=self._limits)
            )
        except CorruptDataError:  # followers report it, loudly
            return None

    async def _fold_to(
        self, name: BanditName, model: Model | None, incarnation: str, version: int, *, first_in_store: int
    ) -> Model:
        loop = asyncio.get_running_loop()
        while model is None or model.version < version:
            start = 1 if model is None else model.version + 1
            most = EVENTS_PER_STEP if start >= first_in_store else EVENTS_PER_FILE_READ
            part = await self._logs.read_texts(name, start=start, limit=min(most, version - start + 1))
            if part.incarnation != incarnation or not part.events or part.events[0].position != start:
                raise _lost_meanwhile(name)
            for at in range(0, len(part.events), EVENTS_PER_STEP):
                step = part.events[at : at + EVENTS_PER_STEP]
                model = await loop.run_in_executor(self._executor, self._fold, model, incarnation, step)
        return model

    def _fold(self, model: Model | None, incarnation: str, events: Sequence[EventText]) -> Model:
        for text in events:
            logged = LoggedEvent(text.position, text.at_ms, decode_event(text.text))
            model = begin(incarnation, logged, limits=self._limits) if model is None else fold(model, logged)
        if model is None:
            raise CorruptDataError("the log is empty")
        return model


def _lost_meanwhile(name: BanditName) -> UnavailableError:
    return UnavailableError(f"the log of {name} was trimmed or begun anew while it was replayed")
