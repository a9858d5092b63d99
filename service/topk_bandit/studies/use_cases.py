"""The use cases of studies as a protocol: what `rpc` needs of them.

Arguments arrive well-formed. What needs the study itself to judge, such as the items of an answer, is judged behind
this protocol, by an error of `topk_bandit.domain.errors` that names the field as it is called on the wire.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topk_bandit.domain.errors import TopkBanditError
    from topk_bandit.domain.studies import (
        AnswerOutcome,
        GivenAnswer,
        Preferences,
        QuestionBatch,
        StudyName,
        StudySettings,
    )
    from topk_bandit.store.study_log import StudyRecord

__all__ = ["StudyUseCases"]


class StudyUseCases(Protocol):
    """What can be done with studies."""

    async def create_study(self, name: StudyName, settings: StudySettings) -> StudyRecord:
        """Create a study and begin its design, or return the equal one; its design begins again if it had no result."""
        ...

    async def get_study(self, name: StudyName) -> tuple[StudyRecord, StudySettings]:
        """Return a study with its settings."""
        ...

    async def list_studies(self, tenant: str, *, after: str, limit: int) -> Sequence[StudyRecord]:
        """Return up to `limit` studies of a tenant whose id sorts after `after`."""
        ...

    async def delete_study(self, name: StudyName) -> None:
        """Remove a study with all that was answered."""
        ...

    async def get_design(self, name: StudyName) -> StudyRecord:
        """Return a study; its record says how far the design is."""
        ...

    async def cancel_design(self, name: StudyName) -> None:
        """Cancel an unfinished design; one that has ended stays as it is."""
        ...

    async def wait_for_design(self, name: StudyName, *, seconds: float) -> StudyRecord:
        """Return a study once its design has ended, or as it is after `seconds`."""
        ...

    async def next_questions(self, name: StudyName, *, count: int, request_id: str) -> QuestionBatch:
        """Ask up to `count` more questions, fewer when the budget has no more; the same id gives the same questions.

        An empty `request_id` is replaced by a fresh one.
        """
        ...

    async def submit_answers(
        self, name: StudyName, answers: Sequence[tuple[str, GivenAnswer | None]]
    ) -> Sequence[AnswerOutcome | TopkBanditError]:
        """Record answers by question id; return for each its outcome, or the error for which it was refused.

        An `InvalidArgumentError` names a field below the answer.
        """
        ...

    async def get_preferences(self, name: StudyName, *, after: int, queries: int, items: int) -> Preferences:
        """Return what was learned, from query number `after` on.

        Parameters
        ----------
        queries, items
            For how many queries at most, with how many items together; but at least for one query.
        """
        ...
