"""What can be asked about studies, as a protocol; see `topk_bandit.bandits.use_cases`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topk_bandit.domain.errors import TopkBanditError
    from topk_bandit.domain.studies import (
        AnswerOutcome,
        AskedQuestions,
        GivenAnswer,
        Preferences,
        StudyName,
        StudySettings,
    )
    from topk_bandit.store.study_log import StudyRecord

__all__ = ["StudyUseCases"]


class StudyUseCases(Protocol):
    """Studies: what to ask, what was answered, what is learned."""

    async def create_study(self, name: StudyName, settings: StudySettings) -> StudyRecord:
        """Create a study and begin its design, or return the equal one, its design begun again if it had no result."""
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
        """Return a study, for where its design stands."""
        ...

    async def cancel_design(self, name: StudyName) -> None:
        """End an unfinished design; one that has ended stays as it is."""
        ...

    async def wait_for_design(self, name: StudyName, *, seconds: float) -> StudyRecord:
        """Return a study once its design has ended, or as it is after `seconds`."""
        ...

    async def next_questions(self, name: StudyName, *, count: int, request_id: str) -> AskedQuestions:
        """Ask up to `count` more questions, fewer when the budget has no more; the same id gives the same questions.

        An empty `request_id` is replaced by a fresh one.
        """
        ...

    async def submit_answers(
        self, name: StudyName, answers: Sequence[tuple[str, GivenAnswer | None]]
    ) -> Sequence[AnswerOutcome | TopkBanditError]:
        """Take in answers by question id; return for each what became of it, or why it was refused.

        An `InvalidArgumentError` names a field below the answer.
        """
        ...

    async def preferences(self, name: StudyName, *, after: int, queries: int, items: int) -> Preferences:
        """Return what was learned, from query number `after` on.

        Parameters
        ----------
        queries, items
            For how many queries at most, with how many items together; but at least for one query.
        """
        ...
