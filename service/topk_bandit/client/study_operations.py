"""Each call about studies as a value; see `topk_bandit.client.operations`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from google.longrunning import operations_pb2
from google.longrunning.operations_pb2_grpc import OperationsStub

from topk_bandit.client.arguments import choice, message, number, numbers, several, texts
from topk_bandit.client.errors import error_of_status, invalid_argument
from topk_bandit.client.features import feature_values, schema_message
from topk_bandit.client.imports import timestamp_of
from topk_bandit.client.operations import LAST_ID, Operation, Page
from topk_bandit.client.operator_values import ImportedLines
from topk_bandit.client.study_values import (
    AnswerKind,
    AnswerOutcome,
    AnswersOutcome,
    BestWorst,
    Declined,
    Design,
    ImportedAnswers,
    ItemPreference,
    PreferenceModel,
    Preferences,
    QueryPreferences,
    Question,
    Questions,
    Respondent,
    Study,
    StudyLink,
    StudyList,
    Tiers,
)
from topk_bandit.v1 import preference_service_pb2 as pb
from topk_bandit.v1.preference_service_pb2_grpc import PreferenceServiceStub
from topk_bandit.wire.forms import TIME, Form, Pair
from topk_bandit.wire.studies import (
    DECLINE_REASONS,
    KINDS,
    LINK_STATES,
    MODEL_SCORE,
    MODELS,
    OUTCOMES,
    PROGRESS,
    STATES,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from datetime import datetime

    from topk_bandit.client.errors import ClientError
    from topk_bandit.client.study_values import GivenAnswer, PastAnswer
    from topk_bandit.domain.features import Feature

__all__ = ["StudyOperations", "merged_answers", "merged_imports", "merged_preferences"]

_MAX_BATCH = 1000

_MODEL = Pair(MODELS.write, MODELS.values.get)
_STUDY = Form(
    Study,
    pb.Study,
    parts={
        "name": LAST_ID,
        "answer_kind": KINDS,
        "state": STATES,
        "design": PROGRESS,
        "create_time": TIME,
        "model": _MODEL,
    },
    beside={"items", "queries"},
)
_DESIGN = Form(Design, pb.DesignMetadata, parts={"study": LAST_ID, "progress": PROGRESS}, beside={"result", "error"})
_QUESTION = Form(Question, pb.Question, names={"id": "question_id", "query": "query_id", "items": "item_ids"})
_QUESTIONS = Form(Questions, pb.NextQuestionsResponse, parts={"questions": _QUESTION})
_ITEM_PREFERENCE = Form(ItemPreference, pb.ItemPreference, names={"id": "item_id"})
_OF_QUERY = Form(QueryPreferences, pb.QueryPreferences, names={"query": "query_id"}, parts={"items": _ITEM_PREFERENCE})
_RESPONDENT = Form(Respondent, pb.Respondent, names={"name": "respondent"})
_PREFERENCES = Form(
    Preferences,
    pb.GetPreferencesResponse,
    names={"queries": "preferences"},
    parts={"queries": _OF_QUERY, "model": _MODEL, "scores": MODEL_SCORE, "respondents": _RESPONDENT},
)
_LINK = Form(
    StudyLink,
    pb.StudyLink,
    names={"id": "link_id"},
    parts={"expire_time": TIME, "create_time": TIME, "last_answer_time": TIME, "state": LINK_STATES},
    beside={"study", "token"},
)
_IMPORTED = Form(ImportedLines, pb.ImportStudyResponse)


class StudyOperations:
    """The calls of one tenant about its studies.

    Parameters
    ----------
    new_request_id
        Makes an id that is different each time, so that a NextQuestions may be sent again.
    """

    def __init__(self, tenant: str, *, new_request_id: Callable[[], str]) -> None:
        self._parent = f"tenants/{tenant}"
        self._new_request_id = new_request_id

    def _name(self, study: str) -> str:
        return f"{self._parent}/studies/{study}"

    def _operation_name(self, study: str) -> str:
        return f"{self._name(study)}/operations/design"

    def create_study(
        self,
        study: str,
        items: Mapping[str, Any] | Iterable[str],
        *,
        answer_kind: AnswerKind | str,
        list_size: int,
        budget: int,
        queries: Mapping[str, Iterable[float]] | None,
        item_schema: Iterable[Feature] | None,
        features_alone: bool,
        model: PreferenceModel | str | None,
        stream_rate: float | None,
        titles: Mapping[str, str] | None,
        pictures: Mapping[str, str] | None,
        lists: Iterable[StudyList] | None,
    ) -> Operation[Design]:
        """Create a study."""
        made = message(
            pb.Study,
            name=self._name(study),
            items=_with_texts(_items(items, named=item_schema is not None), titles or {}, pictures or {}),
            item_schema=schema_message("item_schema", item_schema),
            queries=[_query(one, row) for one, row in (queries or {}).items()],
            answer_kind=choice("answer_kind", answer_kind, KINDS),
            list_size=list_size,
            budget=budget,
            features_alone=features_alone,
            model=_model_number(model),
            stream_rate=stream_rate,
            lists=_lists(lists),
        )
        return Operation(PreferenceServiceStub, "CreateStudy", pb.CreateStudyRequest(study=made), _design)

    def get_study(self, study: str) -> Operation[Study]:
        """Return a study."""
        request = pb.GetStudyRequest(name=self._name(study))
        return Operation(PreferenceServiceStub, "GetStudy", request, lambda response: _study(response.study))

    def list_studies(self, token: str) -> Operation[Page[Study]]:
        """Return a page of studies."""
        request = pb.ListStudiesRequest(parent=self._parent, page_token=token)
        return Operation(PreferenceServiceStub, "ListStudies", request, _studies)

    def delete_study(self, study: str) -> Operation[None]:
        """Remove a study. Sent again it would not be found, or be one that was created in between."""
        request = pb.DeleteStudyRequest(name=self._name(study))
        return Operation(PreferenceServiceStub, "DeleteStudy", request, lambda _: None, repeatable=False)

    def get_design(self, study: str) -> Operation[Design]:
        """Return how a design stands."""
        request = operations_pb2.GetOperationRequest(name=self._operation_name(study))
        return Operation(OperationsStub, "GetOperation", request, _design)

    def await_design(self, study: str) -> Operation[Design]:
        """Return how a design stands once it has ended, or the call's time is nearly up."""
        request = operations_pb2.WaitOperationRequest(name=self._operation_name(study))
        return Operation(OperationsStub, "WaitOperation", request, _design)

    def cancel_design(self, study: str) -> Operation[None]:
        """End a design."""
        request = operations_pb2.CancelOperationRequest(name=self._operation_name(study))
        return Operation(OperationsStub, "CancelOperation", request, lambda _: None)

    def next_questions(self, study: str, count: int, *, request_id: str | None) -> Operation[Questions]:
        """Ask for questions."""
        request = message(
            pb.NextQuestionsRequest,
            study=self._name(study),
            count=count,
            request_id=request_id or self._new_request_id(),
        )
        return Operation(PreferenceServiceStub, "NextQuestions", request, _QUESTIONS.read)

    def submit_answers(
        self, study: str, answers: Mapping[str, GivenAnswer], *, respondent: str
    ) -> Iterator[Operation[AnswersOutcome]]:
        """Submit answers, as many to a call as the service takes."""
        ids = list(answers)
        for start in range(0, len(ids), _MAX_BATCH):
            part = {one: answers[one] for one in ids[start : start + _MAX_BATCH]}
            yield self._batch(study, part, respondent=respondent)

    def _batch(self, study: str, answers: Mapping[str, GivenAnswer], *, respondent: str) -> Operation[AnswersOutcome]:
        given = [_answer(question_id, answer) for question_id, answer in answers.items()]
        named = message(pb.Answer, respondent=respondent)
        for one in given:
            one.MergeFrom(named)
        request = pb.SubmitAnswersRequest(study=self._name(study), answers=given)
        return Operation(
            PreferenceServiceStub, "SubmitAnswers", request, lambda response: _answers_outcome(answers, response)
        )

    def create_link(self, study: str, *, expire_time: datetime, **settings: Any) -> Operation[StudyLink]:  # noqa: ANN401, as they were given
        """Make a link. Sent again it would be another one."""
        link = message(pb.StudyLink, "link", expire_time=timestamp_of("link.expire_time", expire_time), **settings)
        request = pb.CreateLinkRequest(study=self._name(study), link=link)
        return Operation(
            PreferenceServiceStub,
            "CreateLink",
            request,
            lambda response: _LINK.read(response.link, study=study, token=response.token),
            repeatable=False,
        )

    def list_links(self, study: str) -> Operation[tuple[StudyLink, ...]]:
        """Return the links of a study."""
        request = pb.ListLinksRequest(study=self._name(study))
        return Operation(
            PreferenceServiceStub,
            "ListLinks",
            request,
            lambda response: tuple(_LINK.read(one, study=study) for one in response.links),
        )

    def revoke_link(self, study: str, link_id: str) -> Operation[StudyLink]:
        """End a link."""
        request = message(pb.RevokeLinkRequest, study=self._name(study), link_id=link_id)
        return Operation(
            PreferenceServiceStub, "RevokeLink", request, lambda response: _LINK.read(response.link, study=study)
        )

    def import_answers(
        self, study: str, answers: Iterable[PastAnswer], *, import_id: str, first_row: int
    ) -> Iterator[Operation[ImportedAnswers]]:
        """Bring answers that were given elsewhere, as many to a call as the service takes."""
        left = iter(answers)
        while part := list(islice(left, _MAX_BATCH)):
            request = pb.ImportAnswersRequest(
                study=self._name(study), import_id=import_id, first_row=first_row, rows=map(_past_answer, part)
            )
            yield Operation(PreferenceServiceStub, "ImportAnswers", request, partial(_count_imported, len(part)))
            first_row += len(part)

    def get_answer_import(self, study: str, import_id: str) -> Operation[int]:
        """Ask with which row an import goes on."""
        request = pb.GetAnswerImportRequest(study=self._name(study), import_id=import_id)
        return Operation(PreferenceServiceStub, "GetAnswerImport", request, lambda response: response.next_row)

    def preferences(
        self, study: str, token: str, *, model: PreferenceModel | str | None = None, compare: bool = False
    ) -> Operation[Page[Preferences]]:
        """Return a page of preferences; models are compared with the first one."""
        request = message(
            pb.GetPreferencesRequest,
            study=self._name(study),
            page_token=token,
            model=_model_number(model),
            compare=compare and not token,
        )
        return Operation(PreferenceServiceStub, "GetPreferences", request, _preferences)

    def lines(self, study: str, cursor: str) -> Operation[Page[str]]:
        """Return a page of a study."""
        request = pb.ExportStudyRequest(study=self._name(study), cursor=cursor)
        return Operation(
            PreferenceServiceStub, "ExportStudy", request, lambda page: Page(tuple(page.lines), page.next_cursor)
        )

    def import_lines(
        self, study: str, lines: Iterable[str], *, import_id: str, first_line: int
    ) -> Operation[ImportedLines]:
        """Bring lines of a study."""
        request = pb.ImportStudyRequest(
            study=self._name(study), import_id=import_id, first_line=first_line, lines=lines
        )
        return Operation(PreferenceServiceStub, "ImportStudy", request, _IMPORTED.read)


def _model_number(model: PreferenceModel | str | None) -> Any:  # noqa: ANN401, the wire's enumeration
    return 0 if model is None else choice("model", model, MODELS)


def _items(items: Mapping[str, Any] | Iterable[str], *, named: bool) -> list[pb.StudyItem]:
    if isinstance(items, Mapping) and named:
        return [_named_item(one, features) for one, features in items.items()]
    if isinstance(items, Mapping):
        return [_item(one, row) for one, row in items.items()]
    return [_item(one, ()) for one in texts("items", items)]


def _with_texts(
    items: list[pb.StudyItem], titles: Mapping[str, str], pictures: Mapping[str, str]
) -> list[pb.StudyItem]:
    """Return items with their titles and pictures; `InvalidArgument` for those of an item that is not there."""
    ids = {item.item_id for item in items}
    for field, texts_of in (("titles", titles), ("pictures", pictures)):
        for item_id in texts_of:
            if item_id not in ids:
                raise invalid_argument(f'{field}["{item_id}"]', "is of no item of the study")
    made = (
        (one, message(pb.StudyItem, title=titles.get(one.item_id), picture_url=pictures.get(one.item_id)))
        for one in items
    )
    for item, shown in made:
        item.MergeFrom(shown)
    return items


def _item(item_id: str, row: Iterable[float]) -> pb.StudyItem:
    values = numbers(f'items["{item_id}"].features', row)
    return message(pb.StudyItem, f'items["{item_id}"]', item_id=item_id, features=values)


def _named_item(item_id: str, features: object) -> pb.StudyItem:
    values = feature_values(features, field=f'items["{item_id}"].named_features')
    return message(pb.StudyItem, f'items["{item_id}"]', item_id=item_id, named_features=values)


def _query(query_id: str, row: Iterable[float]) -> pb.StudyQuery:
    values = numbers(f'queries["{query_id}"].features', row)
    return message(pb.StudyQuery, f'queries["{query_id}"]', query_id=query_id, features=values)


def _lists(lists: Iterable[StudyList] | None) -> list[pb.StudyList]:
    if lists is None:
        return []
    found = [_list(f"lists[{number}]", one) for number, one in enumerate(several("lists", lists))]
    if not found:  # on the wire as good as none, the opposite of what is meant
        raise invalid_argument("lists", "is empty: leave it out to choose among all lists")
    return found


def _list(at: str, one: StudyList) -> pb.StudyList:
    if not isinstance(one, StudyList):
        raise invalid_argument(at, f"expected a StudyList, got {one!r:.60}")
    return message(pb.StudyList, at, query_id=one.query, item_ids=texts(f"{at}.items", one.items))


def _features(entries: Iterable[tuple[str, Sequence[float]]]) -> dict[str, tuple[float, ...]]:
    return {one: tuple(features) for one, features in entries}


def _study(study: pb.Study) -> Study:
    items = _features((item.item_id, item.features) for item in study.items)
    queries = _features((query.query_id, query.features) for query in study.queries)
    return _STUDY.read(study, items=items, queries=queries)


def _studies(response: pb.ListStudiesResponse) -> Page[Study]:
    return Page(tuple(map(_study, response.studies)), response.next_page_token)


def _design(operation: Any) -> Design:  # noqa: ANN401, google.longrunning.operations_pb2.Operation
    metadata, study = pb.DesignMetadata(), pb.Study()
    operation.metadata.Unpack(metadata)
    ready = operation.response.Unpack(study)
    error = error_of_status(operation.error) if operation.HasField("error") else None
    return _DESIGN.read(metadata, result=_study(study) if ready else None, error=error)


def _answer(question_id: str, answer: GivenAnswer) -> pb.Answer:
    path = f'answers["{question_id}"]'
    if isinstance(answer, Tiers):
        tiers = [pb.Tier(item_ids=texts(f"{path}.tiers", tier)) for tier in answer.tiers]
        return message(pb.Answer, path, question_id=question_id, tiers=pb.TiersAnswer(tiers=tiers))
    if isinstance(answer, BestWorst):
        ends = message(pb.BestWorstAnswer, f"{path}.best_worst", best_item_id=answer.best, worst_item_id=answer.worst)
        return message(pb.Answer, path, question_id=question_id, best_worst=ends)
    if isinstance(answer, Declined):
        reason = choice(f"{path}.reason", answer.reason, DECLINE_REASONS)
        return message(pb.Answer, path, question_id=question_id, declined=pb.DeclinedAnswer(reason=reason))
    if isinstance(answer, str):
        return message(pb.Answer, path, question_id=question_id, chosen_item_id=answer)
    if isinstance(answer, Mapping):
        ratings = [_rating(f'{path}.ratings["{one}"]', one, value) for one, value in answer.items()]
        return message(pb.Answer, path, question_id=question_id, ratings=pb.RatingsAnswer(ratings=ratings))
    ranking = message(pb.RankingAnswer, f"{path}.ranking", item_ids=texts(f"{path}.ranking", answer))
    return message(pb.Answer, path, question_id=question_id, ranking=ranking)


def _rating(path: str, item_id: str, value: float) -> pb.ItemRating:
    return message(pb.ItemRating, path, item_id=item_id, value=number(path, value))


def _past_answer(past: PastAnswer) -> pb.PastAnswer:
    said = _answer("", past.answer)
    answer = {field.name: value for field, value in said.ListFields() if field.name != "question_id"}
    shown = texts("item_ids", past.shown)
    return message(pb.PastAnswer, query_id=past.query, item_ids=shown, respondent=past.respondent, **answer)


def _count_imported(count: int, response: pb.ImportAnswersResponse) -> ImportedAnswers:
    accepted = count if response.outcome == pb.ANSWER_OUTCOME_ACCEPTED else 0
    return ImportedAnswers(response.next_row, accepted, count - accepted)


def merged_imports(parts: Iterable[ImportedAnswers], *, first_row: int) -> ImportedAnswers:
    """Return what became of the answers of several calls, one after the other, from `first_row` on."""
    merged = ImportedAnswers(first_row, 0, 0)
    for part in parts:
        accepted, duplicates = merged.accepted + part.accepted, merged.duplicates + part.duplicates
        merged = ImportedAnswers(part.next_row, accepted, duplicates)
    return merged


def _answers_outcome(ids: Iterable[str], response: pb.SubmitAnswersResponse) -> AnswersOutcome:
    results = dict(zip(ids, response.results, strict=True))
    failed = {one: result.error for one, result in results.items() if result.HasField("error")}
    return AnswersOutcome(
        outcomes={one: OUTCOMES.read(result.outcome) for one, result in results.items() if one not in failed},
        errors={one: error_of_status(error) for one, error in failed.items()},
    )


def merged_answers(parts: Iterable[AnswersOutcome]) -> AnswersOutcome:
    """Return what became of the answers of several calls."""
    outcomes: dict[str, AnswerOutcome] = {}
    errors: dict[str, ClientError] = {}
    for part in parts:
        outcomes |= part.outcomes
        errors |= part.errors
    return AnswersOutcome(outcomes, errors)


def _preferences(response: pb.GetPreferencesResponse) -> Page[Preferences]:
    return Page((_PREFERENCES.read(response),), response.next_page_token)


def merged_preferences(pages: Sequence[Preferences]) -> Preferences:
    """Return what all pages have together, with the counts of the last one and the scores of the first."""
    queries = tuple(of_query for page in pages for of_query in page.queries)
    return replace(pages[-1], queries=queries, scores=pages[0].scores, compared_count=pages[0].compared_count)
