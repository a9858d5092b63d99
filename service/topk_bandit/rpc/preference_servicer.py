"""Studies on the wire: their own service, and their designs as long-running operations."""

from __future__ import annotations

import math
from functools import partial
from itertools import starmap
from typing import TYPE_CHECKING, NoReturn

from google.longrunning import operations_pb2 as operations_pb
from google.longrunning import operations_pb2_grpc as operations_grpc
from google.protobuf.empty_pb2 import Empty
from grpc import StatusCode

from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.domain.quotas import Quota
from topk_bandit.rpc import answer_imports, fields, link_converters, study_archives
from topk_bandit.rpc import study_converters as converters
from topk_bandit.rpc.aside import do_aside
from topk_bandit.rpc.entries import answer_entries
from topk_bandit.rpc.failures import place_failure, status
from topk_bandit.v1 import preference_service_pb2 as pb
from topk_bandit.v1 import preference_service_pb2_grpc as pb_grpc
from topk_bandit.wire.studies import OUTCOMES, QUESTIONS

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    import grpc

    from topk_bandit.domain.studies import AnswerOutcome, StudyName
    from topk_bandit.rpc.call_quotas import CallQuotas
    from topk_bandit.rpc.failures import FailureReporter
    from topk_bandit.studies.administration import Studies

    Context = grpc.aio.ServicerContext[Any, Any]

__all__ = ["READ_ONLY_STUDY_METHODS", "OperationsServicer", "PreferenceServicer"]

READ_ONLY_STUDY_METHODS = frozenset(
    f"/{service.full_name}/{method}"
    for service, methods in (
        (
            pb.DESCRIPTOR.services_by_name["PreferenceService"],
            (
                "GetStudy",
                "ListStudies",
                "ListLinks",
                "GetLinkQuestions",
                "GetAnswerImport",
                "GetPreferences",
                "ExportStudy",
            ),
        ),
        (operations_pb.DESCRIPTOR.services_by_name["Operations"], ("GetOperation", "ListOperations", "WaitOperation")),
    )
    for method in methods
)

LONGEST_WAIT_SECONDS = 10.0
WAIT_SECONDS_BEFORE_THE_DEADLINE = 0.5
"""An answer that a caller waits for must come before the caller's deadline."""


class PreferenceServicer(pb_grpc.PreferenceServiceServicer):
    """Studies.

    Parameters
    ----------
    failures
        Explains the errors of single answers of a batch; those of whole calls are left to the guard around the call.
    call_quotas
        Of the calls that the tenants of links pay for.
    """

    def __init__(self, use_cases: Studies, *, failures: FailureReporter, call_quotas: CallQuotas) -> None:
        self._use_cases = use_cases
        self._failures = failures
        self._call_quotas = call_quotas

    async def CreateStudy(self, request: pb.CreateStudyRequest, _context: Context) -> operations_pb.Operation:
        """Create a study, and begin its design."""
        name, settings = await do_aside(converters.study_creation, request)
        return converters.operation_to_proto(await self._use_cases.create_study(name, settings))

    async def GetStudy(self, request: pb.GetStudyRequest, _context: Context) -> pb.GetStudyResponse:
        """Return a study."""
        record, settings, designed = await self._use_cases.get_study(fields.study_name("name", request.name))
        return pb.GetStudyResponse(study=converters.study_to_proto(record, settings, designed_items=designed))

    async def ListStudies(self, request: pb.ListStudiesRequest, _context: Context) -> pb.ListStudiesResponse:
        """Return a page of studies."""
        tenant, page = converters.study_page(request)
        records = await self._use_cases.list_studies(tenant, after=page.after, limit=page.size + 1)
        return converters.studies_to_proto(records, page)

    async def DeleteStudy(self, request: pb.DeleteStudyRequest, _context: Context) -> pb.DeleteStudyResponse:
        """Remove a study."""
        await self._use_cases.delete_study(fields.study_name("name", request.name))
        return pb.DeleteStudyResponse()

    async def NextQuestions(self, request: pb.NextQuestionsRequest, _context: Context) -> pb.NextQuestionsResponse:
        """Ask questions."""
        name = fields.study_name("study", request.study)
        count = converters.question_count(request)
        asked = await self._use_cases.next_questions(name, count=count, request_id=request.request_id)
        return QUESTIONS.write(asked)

    async def SubmitAnswers(self, request: pb.SubmitAnswersRequest, _context: Context) -> pb.SubmitAnswersResponse:
        """Take in answers, each with a result of its own."""
        name, entries = await do_aside(converters.submitted_answers, request)
        submit = partial(self._use_cases.submit_answers, name)
        return pb.SubmitAnswersResponse(results=starmap(self._result, await answer_entries("answers", entries, submit)))

    def _result(self, path: str, outcome: AnswerOutcome | Exception) -> pb.AnswerResult:
        if isinstance(outcome, Exception):
            failure = self._failures.failure(outcome, call="SubmitAnswers")
            return converters.outcome_to_proto(status(place_failure(failure, path)))
        return converters.outcome_to_proto(outcome)

    async def CreateLink(self, request: pb.CreateLinkRequest, _context: Context) -> pb.CreateLinkResponse:
        """Make a link for people to answer by."""
        link, state, token = await self._use_cases.links.create(*link_converters.link_creation(request))
        return pb.CreateLinkResponse(link=link_converters.link_to_proto(link, state), token=token)

    async def ListLinks(self, request: pb.ListLinksRequest, _context: Context) -> pb.ListLinksResponse:
        """Return the links of a study."""
        links = await self._use_cases.links.list(fields.study_name("study", request.study))
        return pb.ListLinksResponse(links=starmap(link_converters.link_to_proto, links))

    async def RevokeLink(self, request: pb.RevokeLinkRequest, _context: Context) -> pb.RevokeLinkResponse:
        """End a link."""
        revoked = await self._use_cases.links.revoke(*link_converters.link_named(request))
        return pb.RevokeLinkResponse(link=link_converters.link_to_proto(*revoked))

    async def GetLinkQuestions(
        self, request: pb.GetLinkQuestionsRequest, _context: Context
    ) -> pb.GetLinkQuestionsResponse:
        """Return what to ask a person next."""
        call, count = link_converters.link_questions(request)
        page = await self._use_cases.links.questions(*call, count=count, permit=self._paid_by(call.study))
        return link_converters.page_to_proto(page)

    async def SubmitLinkAnswer(
        self, request: pb.SubmitLinkAnswerRequest, _context: Context
    ) -> pb.SubmitLinkAnswerResponse:
        """Take in a person's answer."""
        call, answer = link_converters.link_answer(request)
        outcome = await self._use_cases.links.answer(*call, answer, permit=self._paid_by(call.study))
        return pb.SubmitLinkAnswerResponse(outcome=OUTCOMES.write(outcome))

    def _paid_by(self, study: StudyName) -> Callable[[], None]:
        """Return what charges a study's tenant for a call, once its token is known, or refuses it."""

        def permit() -> None:
            refusal = self._call_quotas.refusal(study.tenant, Quota.CALLS_PER_SECOND)
            if refusal is not None:
                raise refusal

        return permit

    async def ImportAnswers(self, request: pb.ImportAnswersRequest, _context: Context) -> pb.ImportAnswersResponse:
        """Take in answers that were given elsewhere."""
        name, sent = await do_aside(answer_imports.import_request, request)
        return answer_imports.outcome_to_proto(await self._use_cases.import_answers(name, sent))

    async def GetAnswerImport(
        self, request: pb.GetAnswerImportRequest, _context: Context
    ) -> pb.GetAnswerImportResponse:
        """Return how far an import is."""
        name, import_id = answer_imports.import_named(request)
        progress = await self._use_cases.find_import(name, import_id)
        return pb.GetAnswerImportResponse(next_row=progress.next_row)

    async def GetPreferences(self, request: pb.GetPreferencesRequest, _context: Context) -> pb.GetPreferencesResponse:
        """Return the preferences that follow from the answers."""
        name, page = converters.preferences_page(request)
        preferences = await self._use_cases.get_preferences(
            name, after=page.after, queries=page.queries, items=page.items, model=page.model, compare=page.compare
        )
        return converters.preferences_to_proto(preferences, after=page.after)

    async def ExportStudy(self, request: pb.ExportStudyRequest, _context: Context) -> pb.ExportStudyResponse:
        """Return a page of a study."""
        name, place = study_archives.study_place(request)
        return study_archives.page_to_proto(*await self._use_cases.export_study(name, place))

    async def ImportStudy(self, request: pb.ImportStudyRequest, _context: Context) -> pb.ImportStudyResponse:
        """Take in lines of a study."""
        receipt = await self._use_cases.import_study(*study_archives.lines_request(request))
        return pb.ImportStudyResponse(next_line=receipt.next_line, log_position=receipt.log_position)


class OperationsServicer(operations_grpc.OperationsServicer):  # type: ignore[misc]  # its stubs are untyped
    """The designs of studies, as long-running operations.

    Parameters
    ----------
    most_waiting
        How many calls may wait for a design at once; further ones are answered with how it stands.
    """

    def __init__(self, use_cases: Studies, *, most_waiting: int) -> None:
        self._use_cases = use_cases
        self._most_waiting = most_waiting
        self._waiting = 0

    async def GetOperation(
        self, request: operations_pb.GetOperationRequest, _context: Context
    ) -> operations_pb.Operation:
        """Return how a design stands."""
        return converters.operation_to_proto(await self._use_cases.get_design(_study_of(request.name)))

    async def ListOperations(
        self, request: operations_pb.ListOperationsRequest, _context: Context
    ) -> operations_pb.ListOperationsResponse:
        """Return a page of the designs of a tenant's studies, in the order of their names."""
        tenant, page = converters.operation_page(request)
        records = await self._use_cases.list_studies(tenant, after=page.after, limit=page.size + 1)
        token = converters.studies_to_proto(records, page).next_page_token
        return operations_pb.ListOperationsResponse(
            operations=[converters.operation_to_proto(record) for record in records[: page.size]], next_page_token=token
        )

    async def CancelOperation(self, request: operations_pb.CancelOperationRequest, _context: Context) -> Empty:
        """End a design; one that has ended stays as it is."""
        await self._use_cases.cancel_design(_study_of(request.name))
        return Empty()

    async def WaitOperation(
        self, request: operations_pb.WaitOperationRequest, context: Context
    ) -> operations_pb.Operation:
        """Return how a design stands once it has ended, or the time is up."""
        name = _study_of(request.name)
        seconds = _wait_seconds(request, context.time_remaining())
        if self._waiting >= self._most_waiting:
            return converters.operation_to_proto(await self._use_cases.get_design(name))
        self._waiting += 1
        try:
            return converters.operation_to_proto(await self._use_cases.wait_for_design(name, seconds=seconds))
        finally:
            self._waiting -= 1

    async def DeleteOperation(self, request: operations_pb.DeleteOperationRequest, context: Context) -> NoReturn:
        """Refuse: a design goes with its study."""
        await context.abort(StatusCode.UNIMPLEMENTED, f"{request.name[:100]!r} is deleted with its study")


def _study_of(operation: str) -> StudyName:
    return fields.study_name("name", operation, below=converters.OPERATION)


def _wait_seconds(request: operations_pb.WaitOperationRequest, remaining: float | None) -> float:
    asked = request.timeout.seconds + request.timeout.nanos / 1e9 if request.HasField("timeout") else math.inf
    if asked < 0.0:
        raise InvalidArgumentError("timeout", f"must not be negative, but is {asked:g} s")
    before_the_deadline = math.inf if remaining is None else remaining - WAIT_SECONDS_BEFORE_THE_DEADLINE
    return max(0.0, min(asked, before_the_deadline, LONGEST_WAIT_SECONDS))
