"""A store of studies that tells telemetry how long each of its calls takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from topk_bandit.serving.observed import timed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topk_bandit.serving.hooks import Hooks
    from topk_bandit.store.study_log import AnswerStatus, AskOutcome, StudyLogSlice, StudyRecord, StudyStore
    from topk_bandit.study_types import Answer, DesignEnd, DesignProgress, StudyName, StudySettings

__all__ = ["ObservedStudies"]


class ObservedStudies:
    """A `StudyStore` that calls another one, and `Hooks.store_called` after each call."""

    def __init__(self, store: StudyStore, hooks: Hooks) -> None:
        self._store = store
        self._hooks = hooks

    async def create_study(
        self, name: StudyName, settings: StudySettings, *, incarnation: str, quota: int
    ) -> StudyRecord:
        """See `StudyStore.create_study`."""
        call = self._store.create_study(name, settings, incarnation=incarnation, quota=quota)
        return await timed(self._hooks, "create_study", call)

    async def get_study(self, name: StudyName) -> StudyRecord:
        """See `StudyStore.get_study`."""
        return await timed(self._hooks, "get_study", self._store.get_study(name))

    async def list_studies(self, tenant: str, *, after: str, limit: int) -> Sequence[StudyRecord]:
        """See `StudyStore.list_studies`."""
        call = self._store.list_studies(tenant, after=after, limit=limit)
        return await timed(self._hooks, "list_studies", call)

    async def delete_study(self, name: StudyName) -> None:
        """See `StudyStore.delete_study`."""
        await timed(self._hooks, "delete_study", self._store.delete_study(name))

    async def unfinished_designs(self, *, limit: int) -> Sequence[StudyName]:
        """See `StudyStore.unfinished_designs`."""
        return await timed(self._hooks, "unfinished_designs", self._store.unfinished_designs(limit=limit))

    async def claim_design(self, name: StudyName, *, owner: str, lease_ms: int) -> StudyRecord | None:
        """See `StudyStore.claim_design`."""
        call = self._store.claim_design(name, owner=owner, lease_ms=lease_ms)
        return await timed(self._hooks, "claim_design", call)

    async def report_design(
        self, record: StudyRecord, *, owner: str, lease_ms: int, progress: DesignProgress | None
    ) -> bool:
        """See `StudyStore.report_design`."""
        call = self._store.report_design(record, owner=owner, lease_ms=lease_ms, progress=progress)
        return await timed(self._hooks, "report_design", call)

    async def end_design(self, record: StudyRecord, end: DesignEnd) -> StudyRecord:
        """See `StudyStore.end_design`."""
        return await timed(self._hooks, "end_design", self._store.end_design(record, end))

    async def ask(
        self, record: StudyRecord, *, request_id: str, count: int, lists: Sequence[int], asked: int
    ) -> AskOutcome:
        """See `StudyStore.ask`."""
        call = self._store.ask(record, request_id=request_id, count=count, lists=lists, asked=asked)
        return await timed(self._hooks, "ask", call)

    async def record_answers(
        self, record: StudyRecord, answers: Sequence[tuple[int, Answer]]
    ) -> Sequence[AnswerStatus]:
        """See `StudyStore.record_answers`."""
        return await timed(self._hooks, "record_answers", self._store.record_answers(record, answers))

    async def read_study(self, name: StudyName, *, start: int, limit: int) -> StudyLogSlice:
        """See `StudyStore.read_study`."""
        return await timed(self._hooks, "read_study", self._store.read_study(name, start=start, limit=limit))
