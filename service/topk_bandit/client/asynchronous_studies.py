"""The asynchronous client's calls about studies."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, TypeVar

from topk_bandit.client.base import WAIT_PAUSE_SECONDS, BaseClient
from topk_bandit.client.errors import DeadlineExceeded, ResourceExhausted
from topk_bandit.client.study_operations import merged_answers, merged_imports, merged_preferences

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
    from datetime import datetime

    from topk_bandit.client.operations import Operation, Page
    from topk_bandit.client.operator_values import ImportedLines
    from topk_bandit.client.study_values import (
        AnswerKind,
        AnswersOutcome,
        Design,
        GivenAnswer,
        ImportedAnswers,
        PastAnswer,
        PreferenceModel,
        Preferences,
        Questions,
        Study,
        StudyLink,
        StudyList,
    )
    from topk_bandit.domain.features import Feature

__all__ = ["AsyncStudies"]

T = TypeVar("T")


class AsyncStudies(BaseClient):
    """Asks people what they prefer, and returns what was learned; part of `topk_bandit.client.AsyncClient`."""

    _sleep: Callable[[float], Awaitable[object]]

    @abstractmethod
    async def _run(self, operation: Operation[T], timeout: float | None) -> T: ...

    @abstractmethod
    def _pages(self, page_after: Callable[[str], Operation[Page[T]]], timeout: float | None) -> AsyncIterator[T]: ...

    async def create_study(
        self,
        study: str,
        items: Mapping[str, Any] | Iterable[str],
        *,
        answer_kind: AnswerKind | str,
        budget: int,
        list_size: int = 0,
        queries: Mapping[str, Iterable[float]] | None = None,
        item_schema: Iterable[Feature] | None = None,
        features_alone: bool = False,
        model: PreferenceModel | str | None = None,
        stream_rate: float | None = None,
        titles: Mapping[str, str] | None = None,
        pictures: Mapping[str, str] | None = None,
        lists: Iterable[StudyList] | None = None,
        timeout: float | None = None,
    ) -> Design:
        """Create a study and begin its design, or return the design of the equal one that is there.

        Parameters
        ----------
        items, queries
            Features by id, as numbers; items may be ids alone. Without queries utilities do not depend on one.
        answer_kind
            What people say about a list: "ratings", "ranking", "choice" or "pair".
        budget
            How many questions are asked at most.
        list_size
            How many items a question shows; may be left out for pairs, and where lists are given.
        item_schema
            As of a bandit: then items have named features, each a mapping by name or a dataclass, as for
            `Client.upsert_items`. The study has them as the numbers that a bandit makes of them.
        features_alone
            Ask for what features tell alone: then many items may never be asked about, and what is particular to them
            stays unknown. By default a design of at most 300 items is for their own parts, too: each is asked about as
            soon as the budget has about four places for it.
        model
            How utilities are learned, such as "variational_tilted"; see `PreferenceModel`. None: "plackett_luce", and
            "least_squares" for ratings.
        stream_rate
            How fast the steps of "stream_squared" and "stream_logistic" shrink; None is 0.1.
        titles, pictures
            What people see of items on the page of a link, by item id: texts instead of the id, and addresses of
            pictures, which begin with https://.
        lists
            Those to choose questions among, such as the results of each query, all of one size; None for all lists.
        """
        operation = self._studies.create_study(
            study,
            items,
            answer_kind=answer_kind,
            list_size=list_size,
            budget=budget,
            queries=queries,
            item_schema=item_schema,
            features_alone=features_alone,
            model=model,
            stream_rate=stream_rate,
            titles=titles,
            pictures=pictures,
            lists=lists,
        )
        return await self._run(operation, timeout)

    async def get_study(self, study: str, *, timeout: float | None = None) -> Study:
        """Return a study with its items and queries."""
        return await self._run(self._studies.get_study(study), timeout)

    def list_studies(self, *, timeout: float | None = None) -> AsyncIterator[Study]:
        """Iterate over the tenant's studies by name, without items and queries; `timeout` is for each page."""
        return self._pages(self._studies.list_studies, timeout)

    async def delete_study(self, study: str, *, timeout: float | None = None) -> None:
        """Remove a study with all its questions and answers, for good."""
        await self._run(self._studies.delete_study(study), timeout)

    async def create_study_link(
        self,
        study: str,
        *,
        most_answers: int,
        expire_time: datetime,
        answers_each: int = 0,
        title: str = "",
        thanks: str = "",
        accent_color: str = "",
        background_color: str = "",
        text_color: str = "",
        timeout: float | None = None,
    ) -> StudyLink:
        """Make a link by which people answer questions on the service's own page; its token is in this value alone.

        Parameters
        ----------
        most_answers, answers_each
            How many answers come through it at most, and how many questions one device is asked; 0 is 10.
        expire_time
            When it ends, at most 400 days ahead, with a time zone.
        title, thanks
            The page's heading, and what is read at the end.
        accent_color, background_color, text_color
            As #rrggbb; the last two go together.
        """
        operation = self._studies.create_link(
            study,
            most_answers=most_answers,
            expire_time=expire_time,
            answers_each=answers_each,
            title=title,
            thanks=thanks,
            accent_color=accent_color,
            background_color=background_color,
            text_color=text_color,
        )
        return await self._run(operation, timeout)

    async def list_study_links(self, study: str, *, timeout: float | None = None) -> tuple[StudyLink, ...]:
        """Return the links of a study and what came through each, in the order in which they were made."""
        return await self._run(self._studies.list_links(study), timeout)

    async def revoke_study_link(self, study: str, link_id: str, *, timeout: float | None = None) -> StudyLink:
        """End a link for good; one that was ended stays as it is."""
        return await self._run(self._studies.revoke_link(study, link_id), timeout)

    def export_study(self, study: str, *, timeout: float | None = None) -> AsyncIterator[str]:
        """Iterate over a study as lines for `import_study`.

        `timeout` is for each page. `FailedPrecondition` (STUDY_REPLACED) if the study was created anew meanwhile.
        """

        def page_after(token: str) -> Operation[Page[str]]:
            return self._studies.lines(study, token)

        return self._pages(page_after, timeout)

    async def import_study(
        self, study: str, lines: Iterable[str], *, import_id: str, first_line: int, timeout: float | None = None
    ) -> ImportedLines:
        """Bring lines of a study, the last of which makes it; none ask how far the import is.

        Parameters
        ----------
        lines
            At most 1,000: what `export_study` gave, then the line that ends them; see ``preference_service.proto``.
        import_id
            What all parts of an import have in common.
        first_line
            Where the lines stand, from 0.
        """
        work = self._studies.import_lines(study, lines, import_id=import_id, first_line=first_line)
        return await self._run(work, timeout)

    async def design(self, study: str, *, timeout: float | None = None) -> Design:
        """Return how a study's design stands."""
        return await self._run(self._studies.get_design(study), timeout)

    async def wait_for_design(
        self, study: str, *, watch: Callable[[Design], object] | None = None, timeout: float = 60.0
    ) -> Study:
        """Return a study once its design is there; raise its error when it was cancelled or failed.

        Parameters
        ----------
        watch
            Is called now and then with the state of the design.
        timeout
            Seconds to wait in all; `DeadlineExceeded` after that, and the design goes on.
        """
        waiting = self._waiting(timeout)
        while True:
            seconds = waiting.seconds()
            try:
                design = await self._run(self._studies.await_design(study), seconds)
            except (ResourceExhausted, DeadlineExceeded):
                # As long as there is time it is asked again, and then the time is what was exceeded.
                await self._sleep(WAIT_PAUSE_SECONDS)
                continue
            if watch is not None:
                watch(design)
            if design.done:
                return waiting.result(design)
            await self._sleep(WAIT_PAUSE_SECONDS)

    async def cancel_design(self, study: str, *, timeout: float | None = None) -> None:
        """End a study's design; one that has ended stays as it is."""
        await self._run(self._studies.cancel_design(study), timeout)

    async def next_questions(
        self, study: str, count: int = 1, request_id: str | None = None, *, timeout: float | None = None
    ) -> Questions:
        """Return up to `count` questions to ask; there are fewer when the budget has no more.

        Parameters
        ----------
        request_id
            The same id, with the same count, gives the same questions again; None makes a new id.
        """
        return await self._run(self._studies.next_questions(study, count, request_id=request_id), timeout)

    async def submit_answers(
        self, study: str, answers: Mapping[str, GivenAnswer], *, respondent: str = "", timeout: float | None = None
    ) -> AnswersOutcome:
        """Submit answers by question id; return what became of each.

        They go in calls of up to 1,000, each with its own `timeout`. When a call fails, its error is raised, and
        submitting everything again does no harm.

        Parameters
        ----------
        respondent
            Who gave all of these, the same name in all calls; empty for nobody in particular.
        """
        parts = self._studies.submit_answers(study, answers, respondent=respondent)
        return merged_answers([await self._run(part, timeout) for part in parts])

    async def import_answers(
        self,
        study: str,
        answers: Iterable[PastAnswer],
        *,
        import_id: str,
        first_row: int = 0,
        timeout: float = 60.0,
    ) -> ImportedAnswers:
        """Teach a study from answers to questions that it did not ask; return what became of them.

        They go in calls of up to 1,000, each with its own `timeout`. When a call fails, its error is raised, and
        importing the same answers again under the same id takes what is left: those that were taken before change
        nothing, and others in their place are `AlreadyExists` (IMPORT_REUSED). See `docs/preferences.md`.

        Parameters
        ----------
        import_id
            Tells this import from others: what was imported under another id is learned once more.
        first_row
            Number of the first answer in the import.
        """
        parts = self._studies.import_answers(study, answers, import_id=import_id, first_row=first_row)
        return merged_imports([await self._run(part, timeout) for part in parts], first_row=first_row)

    async def get_answer_import(self, study: str, import_id: str, *, timeout: float | None = None) -> int:
        """Return with which row an import of answers goes on; 0 for one that has not begun."""
        return await self._run(self._studies.get_answer_import(study, import_id), timeout)

    async def get_preferences(
        self,
        study: str,
        *,
        model: PreferenceModel | str | None = None,
        compare: bool = False,
        timeout: float = 60.0,
    ) -> Preferences:
        """Return what the answers say of each item, for each query; `timeout` is for each page of it.

        Parameters
        ----------
        model
            How to learn from the answers; None is the study's own model.
        compare
            Also return how well each model that the answers allow predicts answers that it did not learn from. This may
            take some seconds.
        """

        def page_after(token: str) -> Operation[Page[Preferences]]:
            return self._studies.preferences(study, token, model=model, compare=compare)

        return merged_preferences([page async for page in self._pages(page_after, timeout)])
