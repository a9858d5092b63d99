"""Links of studies: they are made and ended here, and people answer through them.

A link is in the log of its study, with the digest of its secret alone. Who shows its token may read the next questions
and answer them, within its number and its date, and nothing else. An answer is one commit that asks its question too,
if neither a question nor a link came since the study was read: so no answer counts twice, and none too many.
"""

from __future__ import annotations

import asyncio
import hmac
import re
import secrets
from contextlib import asynccontextmanager
from dataclasses import replace
from hashlib import sha256
from typing import TYPE_CHECKING, TypeVar

from topk_bandit.domain.errors import (
    ConflictError,
    ForbiddenError,
    InvalidArgumentError,
    NotFoundError,
    NotReadyError,
    TopkBanditError,
    UnavailableError,
    errors_below,
)
from topk_bandit.domain.studies import MAX_LINK_DAYS, AnswerOutcome, LinkCreated, LinkPage, LinkRevoked, LinkState
from topk_bandit.store.data_versions import check_answer, check_links
from topk_bandit.store.study_codec import encode_answer
from topk_bandit.store.study_log import MOST_LINKS, AskStatus, KnownLinks
from topk_bandit.store.study_refusals import study_refusal
from topk_bandit.studies.given_answers import label_of, read_answer
from topk_bandit.studies.link_questions import answered_by, next_link_questions, read_question_id

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from concurrent.futures import Executor

    from topk_bandit.domain.hooks import Hooks
    from topk_bandit.domain.studies import Answer, GivenAnswer, LinkSettings, StudyLink, StudyName
    from topk_bandit.store.study_log import StudyStore
    from topk_bandit.studies.model import LinkPlace, StudyModel
    from topk_bandit.studies.study_cache import CachedStudy, StudyCache

__all__ = ["LONGEST_MS", "StudyLinks"]

_T = TypeVar("_T")

LONGEST_MS = MAX_LINK_DAYS * 24 * 3600 * 1000

TRIES = 64
"""So often a call is decided anew when others are faster."""

_NOBODY = sha256().hexdigest()
_TOKEN = re.compile(r"([0-9a-f]{16})\.([A-Za-z0-9_-]{43})", re.ASCII)
_RESPONDENT = re.compile(r"[0-9a-f]{24}", re.ASCII)


_REFUSALS = {
    LinkState.REVOKED: "this link was ended",
    LinkState.EXPIRED: "the time of this link is up",
    LinkState.USED_UP: "as many answers came as were asked for",
}


class StudyLinks:
    """What can be done with links; parameters as those of `Studies`, with its cache and its clock."""

    def __init__(
        self, store: StudyStore, cache: StudyCache, executor: Executor, *, hooks: Hooks, clock_ms: Callable[[], int]
    ) -> None:
        self._store = store
        self._cache = cache
        self._executor = executor
        self._hooks = hooks
        self._clock_ms = clock_ms

    async def create(self, name: StudyName, settings: LinkSettings) -> tuple[StudyLink, LinkState, str]:
        """Make a link; return it with its state and its token, which nobody can find out later.

        Raises
        ------
        InvalidArgumentError
            Naming ``link.expire_time``: it is past, or too far ahead.
        ExhaustedError
            STUDY_LINKS: the study has as many as it may have.
        """
        check_links(self._store.data_version)
        now = self._clock_ms()
        if not now < settings.expire_ms <= now + LONGEST_MS:
            raise InvalidArgumentError("link.expire_time", f"must be in the future, and within {MAX_LINK_DAYS} days")
        link_id, secret = secrets.token_hex(8), secrets.token_urlsafe(32)
        event = LinkCreated(link_id, sha256(secret.encode()).hexdigest(), settings)
        return *await self._record(name, event), f"{link_id}.{secret}"

    async def list(self, name: StudyName) -> tuple[tuple[StudyLink, LinkState], ...]:
        """Return a study's links with their states, in the order in which they were made."""
        async with self._cache.use(name) as entry:
            return tuple((link, self._state(entry.model, link)) for link in entry.model.links.values())

    async def revoke(self, name: StudyName, link_id: str) -> tuple[StudyLink, LinkState]:
        """End a link for good, and return it with its state; `NotFoundError` if there is none."""
        return await self._record(name, LinkRevoked(link_id))

    async def questions(
        self, name: StudyName, token: str, respondent: str, *, count: int, permit: Callable[[], None]
    ) -> LinkPage:
        """Return what a device is asked next; an empty name stands for a new device.

        One that has answered all that it may is asked nothing, also once the link has ended.

        Parameters
        ----------
        permit
            Raises if the study's tenant has sent too many calls; called once the token is known.

        Raises
        ------
        ForbiddenError
            LINK_UNKNOWN.
        NotReadyError
            LINK_REVOKED, LINK_EXPIRED, LINK_USED_UP, or the design is not done.
        """
        respondent = _check_respondent(respondent or secrets.token_hex(12))
        async with self._open(name, token) as (entry, link):
            permit()
            model = entry.model
            answered = len(answered_by(model, link, respondent))
            page = LinkPage(respondent, model.settings.answer_kind, link, answered, ())
            if answered == link.settings.answers_each:
                return page
            self._check(entry, link)
            counts = entry.prepare_counts()
        # Others may use the study meanwhile: its model is a value.
        questions = await self._in_thread(
            lambda: next_link_questions(model, link, respondent, answered=counts(), count=count)
        )
        return replace(page, questions=questions)

    async def answer(
        self,
        name: StudyName,
        token: str,
        respondent: str,
        question: tuple[str, GivenAnswer | None],
        *,
        permit: Callable[[], None],
    ) -> AnswerOutcome:
        """Record a device's answer to a question, by the question's id, once.

        Raises
        ------
        InvalidArgumentError
            Naming a field below ``answer``: the device was not asked this, or it is no answer to it.
        ConflictError
            ANSWER_EXISTS: the device gave another answer to the question of this number.
        ForbiddenError, NotReadyError
            As `questions` has them; an answer that was recorded before is still DUPLICATE.
        ExhaustedError
            STUDY_BUDGET: the study takes no more answers to questions of its own.
        """
        _check_respondent(respondent)
        try:
            outcome = await self._record_answer(name, token, respondent, question, permit)
        except TopkBanditError as error:
            self._hooks.answered(label_of(error))
            raise
        self._hooks.answered(label_of(outcome))
        return outcome

    async def _record_answer(
        self,
        name: StudyName,
        token: str,
        respondent: str,
        question: tuple[str, GivenAnswer | None],
        permit: Callable[[], None],
    ) -> AnswerOutcome:
        for attempt in range(TRIES):
            async with self._open(name, token) as (entry, link):
                if not attempt:
                    permit()
                place, list_number, answer = self._read(entry.model, link, respondent, question)
                if (number := entry.model.question_of(place.request_id)) is not None:
                    return _compare(entry.model, number, list_number, answer)
                self._check(entry, link)
                status = await self._store.record_link_answer(
                    entry.record,
                    request_id=place.request_id,
                    list_number=list_number,
                    answer=answer,
                    known=_known(entry.model),
                )
                if status is AskStatus.ASKED:
                    return AnswerOutcome.ACCEPTED
        raise _too_many(name)

    def _read(
        self, model: StudyModel, link: StudyLink, respondent: str, question: tuple[str, GivenAnswer | None]
    ) -> tuple[LinkPlace, int, Answer]:
        """Return which question is answered, its list, and the answer as the log keeps it."""
        asked = read_question_id(model, link, respondent, question[0])
        if asked is None:
            raise InvalidArgumentError("answer.question_id", "is of no question that this device was asked")
        place, list_number = asked
        shown = [model.settings.items[item].item_id for item in model.chosen_design.lists[list_number].items]
        with errors_below("answer"):
            answer = read_answer(question[1], shown, kind=model.settings.answer_kind)
        check_answer(answer, self._store.data_version)
        return place, list_number, answer

    @asynccontextmanager
    async def _open(self, name: StudyName, token: str) -> AsyncIterator[tuple[CachedStudy, StudyLink]]:
        """Use a study with the link of a token; without one the answer does not show whether there is such a study."""
        match = _TOKEN.fullmatch(token)
        if match is None:
            raise _unknown()
        try:
            async with self._cache.use(name) as entry:
                link = entry.model.links.get(match[1])
                shown, kept = sha256(match[2].encode()).hexdigest(), _NOBODY if link is None else link.digest
                if not hmac.compare_digest(shown, kept) or link is None:
                    raise _unknown()
                yield entry, link
        except NotFoundError:
            raise _unknown() from None

    def _check(self, entry: CachedStudy, link: StudyLink) -> None:
        """Refuse a link that has ended, and a study that can't be asked yet."""
        state = self._state(entry.model, link)
        if state in _REFUSALS:
            raise NotReadyError(f"LINK_{state.name}", _REFUSALS[state])
        if entry.model.design is None:
            raise study_refusal(f"design_{entry.record.state}", entry.record.name)

    def _state(self, model: StudyModel, link: StudyLink) -> LinkState:
        """Return whether people can answer, but for a design that is not there yet."""
        if link.revoked:
            return LinkState.REVOKED
        if self._clock_ms() >= link.settings.expire_ms:
            return LinkState.EXPIRED
        is_full = link.answered >= link.settings.most_answers or len(model.questions) >= model.settings.budget
        return LinkState.USED_UP if is_full else LinkState.OPEN

    async def _record(self, name: StudyName, event: LinkCreated | LinkRevoked) -> tuple[StudyLink, LinkState]:
        for _ in range(TRIES):
            async with self._cache.use(name) as entry:
                model = entry.model
                known = model.links.get(event.link_id)
                if isinstance(event, LinkRevoked) and known is None:
                    raise NotFoundError(f"{name}/links/{event.link_id}")
                if isinstance(event, LinkRevoked) and known is not None and known.revoked:
                    return known, self._state(model, known)
                if isinstance(event, LinkCreated) and len(model.links) >= MOST_LINKS:
                    raise study_refusal("study_links", name)
                if await self._store.record_link(entry.record, event, known=_known(model)):
                    model = await entry.fold_new_events()
                    link = model.links[event.link_id]
                    return link, self._state(model, link)
        raise _too_many(name)

    def _in_thread(self, work: Callable[[], _T]) -> asyncio.Future[_T]:
        return asyncio.get_running_loop().run_in_executor(self._executor, work)


def _known(model: StudyModel) -> KnownLinks:
    return KnownLinks(asked=len(model.questions), link_events=model.link_events)


def _compare(model: StudyModel, number: int, list_number: int, answer: Answer) -> AnswerOutcome:
    """Return DUPLICATE for the answer that was recorded, or refuse another one."""
    same_list = model.questions[number].list_number == list_number
    if same_list and encode_answer(model.answers[number]) == encode_answer(answer):
        return AnswerOutcome.DUPLICATE
    raise ConflictError("ANSWER_EXISTS", "this device has answered this question otherwise")


def _check_respondent(text: str) -> str:
    if not _RESPONDENT.fullmatch(text):  # it may be a person's own, which nothing repeats
        raise InvalidArgumentError("respondent", "must be a name that the service made, or empty for a new one")
    return text


def _unknown() -> ForbiddenError:
    return ForbiddenError("LINK_UNKNOWN", "this is no link of the study")


def _too_many(name: StudyName) -> UnavailableError:
    return UnavailableError(f"others change {name} faster than this can be decided")
