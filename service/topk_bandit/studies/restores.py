"""Restores studies, line by line as `topk_bandit.store.study_archives` has them.

A study is there once its last line has come, and its events were folded from the first to the last; until then no other
call finds it. Whoever sends goes on where an import stands, also at another worker.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from topk_bandit.domain.errors import CorruptDataError, InvalidArgumentError
from topk_bandit.domain.quotas import Quota
from topk_bandit.domain.studies import (
    DesignCancelled,
    DesignChosen,
    DesignFailed,
    DesignProgress,
    DesignRestarted,
    DesignState,
    StudyName,
)
from topk_bandit.store.data_versions import check_answer, check_links, check_study_version
from topk_bandit.store.line_imports import LineImports
from topk_bandit.store.study_codec import settings_digest, shape_of
from topk_bandit.store.study_log import StudyRecord
from topk_bandit.store.study_restores import StudyRestore, take_study
from topk_bandit.studies.model import begin, fold
from topk_bandit.studies.pool import build_pool

if TYPE_CHECKING:
    from collections.abc import Sequence
    from concurrent.futures import Executor

    from topk_bandit.domain.quotas import Quotas
    from topk_bandit.domain.studies import LoggedStudyEvent, StudyEvent
    from topk_bandit.store.line_imports import Lines
    from topk_bandit.store.study_log import StudyStore
    from topk_bandit.store.study_restores import StudyRestoreStep
    from topk_bandit.studies.model import StudyModel

__all__ = ["StudyRestores"]

EVENTS_PER_READ = 256


class StudyRestores(LineImports[StudyName, StudyRestore, StudyRecord]):
    """Restores studies.

    Parameters
    ----------
    executor
        Where lines are read, and events folded.
    quotas
        How many studies a tenant may have.
    """

    def __init__(self, store: StudyStore, executor: Executor, *, quotas: Quotas) -> None:
        super().__init__(store, executor, StudyRestore)
        self._store = store
        self._quotas = quotas

    async def read(self, name: StudyName, before: StudyRestore, sent: Lines) -> StudyRestoreStep:  # noqa: ARG002
        """Return what lines bring."""
        return await self.compute(partial(take_study, before, sent))

    async def finish(self, name: StudyName, restore: StudyRestore, sent: Lines) -> StudyRecord:
        """Make the study, unless the tenant has as many as it may have: then that is STUDY_QUOTA."""
        quota = self._quotas.limit(name.tenant, Quota.STUDIES)
        record = await self._standing(name, restore, last=max(len(sent.lines) - 1, 0))
        return await self._store.finish_restore(record, restore, quota=quota)

    async def _standing(self, name: StudyName, restore: StudyRestore, *, last: int) -> StudyRecord:
        """Return the restored study once its events are folded; or refuse to make it of the last line."""
        found: tuple[StudyRecord, StudyModel] | None = None
        try:
            while found is None or found[0].log_position < restore.position:
                start = 1 if found is None else found[0].log_position + 1
                events = await self._store.read_restored_log(name, start=start, limit=EVENTS_PER_READ)
                found = await self.compute(partial(_fold_events, name, restore.incarnation, found, events))
            await self.compute(partial(build_pool, found[1].settings))
        except (CorruptDataError, InvalidArgumentError) as error:
            raise InvalidArgumentError(f"lines[{last}]", str(error)) from None
        check_study_version(found[1].settings, self._store.data_version)
        if found[0].link_events:
            check_links(self._store.data_version)
        for answer in found[1].newer_answers():
            check_answer(answer, self._store.data_version)
        return found[0]


def _fold_events(
    name: StudyName,
    incarnation: str,
    found: tuple[StudyRecord, StudyModel] | None,
    events: Sequence[LoggedStudyEvent],
) -> tuple[StudyRecord, StudyModel]:
    """Return a study, and its model, with the events that come next."""
    if not events:
        raise CorruptDataError("a study without events can't be")
    if found is None:
        model = begin(incarnation, events[0])
        found, events = (_create_record(name, model), model), events[1:]
    record, model = found
    for logged in events:
        model = fold(model, logged)
        record = _end_design(record, logged.event)
    asked, answered, imported = len(model.questions), len(model.answers), len(model.imported)
    return replace(
        record,
        asked=asked,
        answered=answered,
        imported=imported,
        link_events=model.link_events,
        log_position=model.version,
    ), model


def _create_record(name: StudyName, model: StudyModel) -> StudyRecord:
    return StudyRecord(
        name=name,
        incarnation=model.incarnation,
        settings_digest=settings_digest(model.settings),
        shape=shape_of(model.settings),
        created_ms=model.last.at_ms,
        attempt=1,
        state=DesignState.DESIGNING,
        progress=None,
        failure=None,
        asked=0,
        answered=0,
        imported=0,
        log_position=1,
    )


def _end_design(record: StudyRecord, event: StudyEvent) -> StudyRecord:
    """Return the study after an event about its design; other events leave it as it is."""
    match event:
        case DesignRestarted(attempt):
            return replace(record, attempt=attempt, state=DesignState.DESIGNING, progress=None, failure=None)
        case DesignChosen(design=design):
            figures = DesignProgress(design.steps, design.log_det, design.gap, design.target_gap)
            return replace(record, state=DesignState.READY, progress=figures)
        case DesignCancelled():
            return replace(record, state=DesignState.CANCELLED)
        case DesignFailed():
            return replace(record, state=DesignState.FAILED, failure=event)
        case _:
            return record
