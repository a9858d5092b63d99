"""Between the wire and `topk_bandit.domain.studies`; see `topk_bandit.rpc.converters`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING

import numpy as np
from google.longrunning.operations_pb2 import Operation
from google.rpc import code_pb2
from grpc import StatusCode

from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.domain.studies import (
    LARGEST_STREAM_RATE,
    MAX_BUDGET,
    MAX_GIVEN_LISTS,
    MAX_LIST_SIZE,
    MAX_STUDY_MAGNITUDE,
    MODELS_OF,
    SMALLEST_STREAM_RATE,
    STREAMS,
    AnswerKind,
    AnswerOutcome,
    DeclineReason,
    DesignState,
    GivenBestWorst,
    GivenChoice,
    GivenDecline,
    GivenRanking,
    GivenRatings,
    GivenTiers,
    PreferenceModel,
    StudyItem,
    StudyQuery,
    StudySettings,
    SubmittedAnswer,
)
from topk_bandit.rpc import fields, study_texts
from topk_bandit.rpc.converters import PageRequest
from topk_bandit.rpc.failures import Failure, internal_failure, status
from topk_bandit.rpc.study_features import encode_named, refuse_named
from topk_bandit.v1 import preference_service_pb2 as pb
from topk_bandit.wire.forms import timestamp
from topk_bandit.wire.studies import (
    DECLINE_REASONS,
    ITEM,
    KINDS,
    MODELS,
    OUTCOMES,
    PREFERENCES,
    PROGRESS,
    QUERY,
    STATES,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from google.longrunning.operations_pb2 import ListOperationsRequest
    from google.rpc import status_pb2

    from topk_bandit.domain.studies import (
        DesignFailed,
        DesignProgress,
        GivenAnswer,
        Preferences,
        StudyName,
    )
    from topk_bandit.store.study_log import StudyRecord

__all__ = [
    "MAX_ANSWERS",
    "MAX_STUDY_QUERIES",
    "OPERATION",
    "QueryPage",
    "given_answer",
    "operation_page",
    "operation_to_proto",
    "outcome_to_proto",
    "preferences_page",
    "preferences_to_proto",
    "question_count",
    "studies_to_proto",
    "study_creation",
    "study_page",
    "study_to_proto",
    "submitted_answers",
]

OPERATION = "/operations/design"
"""What a study's name is followed by in the name of its design's operation."""

MAX_STUDY_ITEMS = 2000
MAX_STUDY_QUERIES = 1000
MAX_FEATURES = 64
MAX_ITEMS_WITHOUT_FEATURES = 128
"""Each is a coordinate of its own, and the time of a design grows with more than the square of their number."""

MAX_CROSSED_FEATURES = 256
MAX_CROSSED_ITEMS = 10_000

_PAIR_SIZE = 2
_MAX_QUESTIONS = 1000
MAX_ANSWERS = 1000
_DEFAULT_STUDIES_PER_PAGE = 100
_MAX_STUDIES_PER_PAGE = 1000
_ITEMS_PER_PAGE = 5000


def study_creation(request: pb.CreateStudyRequest) -> tuple[StudyName, StudySettings]:
    """Return what a CreateStudy creates."""
    if not request.HasField("study"):
        raise InvalidArgumentError("study", "is required")
    study = request.study
    name = fields.study_name("study.name", study.name)
    items, queries = _items(study), _queries(study)
    _check_crossed(items, queries)
    kind = KINDS.values.get(study.answer_kind)
    if kind is None:
        raise InvalidArgumentError(
            "study.answer_kind", f"must be one of ratings, ranking, choice and pair, not {study.answer_kind}"
        )
    list_size = _list_size(study, kind)
    return name, StudySettings(
        items=items,
        queries=queries,
        answer_kind=kind,
        list_size=list_size,
        budget=fields.integer("study.budget", study.budget, low=1, high=MAX_BUDGET),
        features_alone=study.features_alone,
        model=_model(study, kind),
        stream_rate=_stream_rate(study),
        lists=_lists(study, size=list_size),
    )


def _model(study: pb.Study, kind: AnswerKind) -> PreferenceModel | None:
    """Return the model of a study; None is the first that its answers allow, whether it was named or not."""
    model, allowed = _read_model("study.model", study.model), MODELS_OF[kind]
    if model is not None and model not in allowed:
        raise InvalidArgumentError("study.model", f"must be one of {', '.join(allowed)} for {kind}, not {model}")
    return None if model is allowed[0] else model


def _read_model(path: str, number: int) -> PreferenceModel | None:
    """Return the model of a number of the wire; None for zero."""
    if number and number not in MODELS.values:
        raise InvalidArgumentError(path, f"must be one of {', '.join(PreferenceModel)}, not {number}")
    return MODELS.values.get(number)


def _stream_rate(study: pb.Study) -> float | None:
    path = "study.stream_rate"
    if not study.HasField("stream_rate"):
        return None
    if MODELS.values.get(study.model) not in STREAMS:
        raise InvalidArgumentError(path, f"is of a model that is a stream: {', '.join(STREAMS)}")
    return fields.number(path, study.stream_rate, low=SMALLEST_STREAM_RATE, high=LARGEST_STREAM_RATE)


def _items(study: pb.Study) -> tuple[StudyItem, ...]:
    path = "study.items"
    if not 2 <= len(study.items) <= MAX_STUDY_ITEMS:  # one item can't be preferred to another
        raise InvalidArgumentError(path, f"must be 2 to {MAX_STUDY_ITEMS} items, not {len(study.items)}")
    ids = fields.item_ids(path, [item.item_id for item in study.items], member=".item_id")
    titles = [study_texts.title(f"{path}[{n}].title", item.title) for n, item in enumerate(study.items)]
    pictures = [
        study_texts.picture_url(f"{path}[{n}].picture_url", one.picture_url) for n, one in enumerate(study.items)
    ]
    return tuple(map(StudyItem, ids, _features_of_items(study), titles, pictures))


def _features_of_items(study: pb.Study) -> Sequence[tuple[float, ...]]:
    """Return the features of each item; none where each is its own."""
    path = "study.items"
    if study.HasField("item_schema"):
        return encode_named(study)
    refuse_named(study)
    if any(item.features for item in study.items):
        return _features(path, [item.features for item in study.items])
    if (count := len(study.items)) > MAX_ITEMS_WITHOUT_FEATURES:
        problem = f"are {count} without features; at most {MAX_ITEMS_WITHOUT_FEATURES} are allowed, or features"
        raise InvalidArgumentError(path, problem)
    return [()] * count


def _queries(study: pb.Study) -> tuple[StudyQuery, ...]:
    path = "study.queries"
    if len(study.queries) > MAX_STUDY_QUERIES:
        raise InvalidArgumentError(path, f"has {len(study.queries)} entries; at most {MAX_STUDY_QUERIES} are allowed")
    ids = fields.item_ids(path, [query.query_id for query in study.queries], member=".query_id")
    return tuple(map(StudyQuery, ids, _features(path, [query.features for query in study.queries])))


def _features(path: str, rows: Sequence[Sequence[float]]) -> list[tuple[float, ...]]:
    found: list[tuple[float, ...]] = []
    for index, row in enumerate(rows):
        of_row, numbers = f"{path}[{index}].features", tuple(row)
        fields.size(of_row, len(numbers), most=MAX_FEATURES)
        if found and len(numbers) != len(found[0]):
            raise InvalidArgumentError(of_row, f"has {len(numbers)} numbers; the first entry has {len(found[0])}")
        for place, number in enumerate(numbers):
            if not -MAX_STUDY_MAGNITUDE <= number <= MAX_STUDY_MAGNITUDE:
                fields.number(f"{of_row}[{place}]", number, low=-MAX_STUDY_MAGNITUDE, high=MAX_STUDY_MAGNITUDE)
        found.append(numbers)
    return found


def _check_crossed(items: Sequence[StudyItem], queries: Sequence[StudyQuery]) -> None:
    if not queries:
        return
    crossed = len(items) * len(queries)
    if crossed > MAX_CROSSED_ITEMS:
        problem = f"make {crossed} pairs with the items; at most {MAX_CROSSED_ITEMS} are allowed"
        raise InvalidArgumentError("study.queries", problem)
    width = (len(items[0].features) or len(items)) * len(queries[0].features)
    if width > MAX_CROSSED_FEATURES:
        problem = f"make {width} features with those of an item; at most {MAX_CROSSED_FEATURES} are allowed"
        raise InvalidArgumentError("study.queries[0].features", problem)


def _list_size(study: pb.Study, kind: AnswerKind) -> int:
    path = "study.list_size"
    if kind is AnswerKind.PAIR:
        return fields.integer(path, study.list_size or _PAIR_SIZE, low=_PAIR_SIZE, high=_PAIR_SIZE)
    low = 1 if kind is AnswerKind.RATINGS else 2
    size = study.list_size or (len(study.lists[0].item_ids) if study.lists else 0)
    return fields.integer(path, size, low=low, high=min(MAX_LIST_SIZE, len(study.items)))


def _lists(study: pb.Study, *, size: int) -> bytes:
    """Return the lists that are given, as settings have them."""
    path = "study.lists"
    if len(study.lists) > MAX_GIVEN_LISTS:
        raise InvalidArgumentError(path, f"has {len(study.lists)} entries; at most {MAX_GIVEN_LISTS} are allowed")
    items = {item.item_id: number for number, item in enumerate(study.items)}
    queries = {query.query_id: number for number, query in enumerate(study.queries)} or {"": 0}
    explain = partial(_explain_list, study, items=items, queries=queries, size=size)
    rows = [(queries.get(one.query_id, -1), *map(items.get, one.item_ids, repeat(-1))) for one in study.lists]
    if wrong := [index for index, row in enumerate(rows) if len(row) != 1 + size]:
        raise explain(wrong[0])
    lists = np.array(rows, dtype="<i4").reshape(-1, 1 + size)
    has_item_twice = (np.diff(np.sort(lists[:, 1:], axis=1), axis=1) == 0).any(axis=1)
    if (is_wrong := has_item_twice | (lists < 0).any(axis=1)).any():
        raise explain(int(np.argmax(is_wrong)))
    return lists.tobytes()


def _explain_list(
    study: pb.Study, index: int, *, items: Mapping[str, int], queries: Mapping[str, int], size: int
) -> InvalidArgumentError:
    """Return what is wrong with a list."""
    path, one = f"study.lists[{index}]", study.lists[index]
    if one.query_id not in queries:
        problem = "must be empty: the study has no queries" if queries == {"": 0} else "is no query of the study"
        return InvalidArgumentError(f"{path}.query_id", f"{problem}: {fields.quote_text(one.query_id)}")
    if len(one.item_ids) != size:
        return InvalidArgumentError(
            f"{path}.item_ids", f"must have {size} items, as all lists, not {len(one.item_ids)}"
        )
    place, item_id = next(
        (place, item_id)
        for place, item_id in enumerate(one.item_ids)
        if item_id not in items or item_id in one.item_ids[:place]
    )
    problem = "is there twice" if item_id in items else "is no item of the study"
    return InvalidArgumentError(f"{path}.item_ids[{place}]", f"{problem}: {fields.quote_text(item_id)}")


def study_to_proto(record: StudyRecord, settings: StudySettings | None = None, *, designed_items: int = 0) -> pb.Study:
    """Return a study; without its settings, without items and queries, and what its design has of them."""
    shape = record.shape
    study = pb.Study(
        name=str(record.name),
        answer_kind=KINDS.write(shape.answer_kind),
        list_size=shape.list_size,
        budget=shape.budget,
        state=STATES.write(record.state),
        design=_progress(record.progress),
        asked_count=record.asked,
        answered_count=record.answered,
        imported_count=record.imported,
        item_count=shape.items,
        query_count=shape.queries,
        create_time=timestamp(record.created_ms),
    )
    if settings is not None:
        study.features_alone, study.designed_item_count = settings.features_alone, designed_items
        study.model, study.given_list_count = MODELS.write(settings.chosen_model), settings.given_lists
        if settings.stream_rate is not None:
            study.stream_rate = settings.stream_rate
        study.items.extend(map(ITEM.write, settings.items))
        study.queries.extend(map(QUERY.write, settings.queries))
    return study


def _progress(progress: DesignProgress | None) -> pb.DesignProgress | None:
    return None if progress is None else PROGRESS.write(progress)


def study_page(request: pb.ListStudiesRequest) -> tuple[str, PageRequest]:
    """Return whose studies a ListStudies asks for, and which."""
    return fields.tenant_name("parent", request.parent), _page(request)


def operation_page(request: ListOperationsRequest) -> tuple[str, PageRequest]:
    """Return whose designs a ListOperations asks for, and which."""
    if request.filter:
        raise InvalidArgumentError("filter", f"must be empty, not {fields.quote_text(request.filter)}")
    return fields.tenant_name("name", request.name), _page(request)


def _page(request: pb.ListStudiesRequest | ListOperationsRequest) -> PageRequest:
    size = fields.page_size(
        "page_size", request.page_size, default=_DEFAULT_STUDIES_PER_PAGE, most=_MAX_STUDIES_PER_PAGE
    )
    return PageRequest(after=fields.page_token("page_token", request.page_token), size=size)


def studies_to_proto(records: Sequence[StudyRecord], page: PageRequest) -> pb.ListStudiesResponse:
    """Return a page of studies; `records` holds one more than the page if there is one."""
    shown = records[: page.size]
    more = len(records) > page.size
    return pb.ListStudiesResponse(
        studies=[study_to_proto(record) for record in shown],
        next_page_token=fields.to_page_token(shown[-1].name.study) if more else "",
    )


def operation_to_proto(record: StudyRecord) -> Operation:
    """Return a study's design as an operation."""
    name = str(record.name)
    operation = Operation(name=f"{name}{OPERATION}", done=record.state is not DesignState.DESIGNING)
    operation.metadata.Pack(pb.DesignMetadata(study=name, attempt=record.attempt, progress=_progress(record.progress)))
    if record.state is DesignState.READY:
        operation.response.Pack(study_to_proto(record))
    elif record.state is DesignState.CANCELLED:
        operation.error.code, operation.error.message = code_pb2.CANCELLED, "the design was cancelled"
    elif record.failure is not None:
        operation.error.CopyFrom(status(_failure_of_design(record.failure)))
    return operation


def _failure_of_design(failed: DesignFailed) -> Failure:
    """Return what callers hear of a design that failed; without a field its problem is the reference in the log."""
    if failed.field:
        return Failure(StatusCode.INVALID_ARGUMENT, failed.problem, field=failed.field)
    return internal_failure(failed.problem)


def question_count(request: pb.NextQuestionsRequest) -> int:
    """Return how many questions a NextQuestions asks for."""
    if request.request_id:
        fields.opaque_id("request_id", request.request_id)
    return fields.integer("count", request.count or 1, low=1, high=_MAX_QUESTIONS)


def submitted_answers(
    request: pb.SubmitAnswersRequest,
) -> tuple[StudyName, list[SubmittedAnswer | InvalidArgumentError]]:
    """Return what a SubmitAnswers submits: for each answer its question and who gave it, or what is wrong with it."""
    name = fields.study_name("study", request.study)
    fields.size("answers", len(request.answers), most=MAX_ANSWERS)
    return name, list(map(_entry, request.answers))


def _entry(answer: pb.Answer) -> SubmittedAnswer | InvalidArgumentError:
    try:
        question_id = fields.opaque_id("question_id", answer.question_id)
        respondent = fields.respondent("respondent", answer.respondent)
        return SubmittedAnswer(question_id, given_answer(answer), respondent)
    except InvalidArgumentError as error:
        return error


def given_answer(answer: pb.Answer | pb.PastAnswer) -> GivenAnswer | None:  # noqa: PLR0911, one for each kind
    """Return what was said, None if nothing was."""
    match answer.WhichOneof("answer"):
        case "ratings":
            return GivenRatings(tuple(_rating(*one) for one in enumerate(answer.ratings.ratings)))
        case "ranking":
            return GivenRanking(tuple(answer.ranking.item_ids))
        case "chosen_item_id":
            return GivenChoice(answer.chosen_item_id)
        case "tiers":
            return GivenTiers(tuple(tuple(tier.item_ids) for tier in answer.tiers.tiers))
        case "best_worst":
            return GivenBestWorst(answer.best_worst.best_item_id, answer.best_worst.worst_item_id)
        case "declined":
            return GivenDecline(_reason(answer.declined.reason))
        case _:
            return None


def _reason(number: int) -> DeclineReason:
    if number not in DECLINE_REASONS.values:
        raise InvalidArgumentError("declined.reason", f"must be skipped or none_of_these, not {number}")
    return DECLINE_REASONS.values[number]


def _rating(index: int, rating: pb.ItemRating) -> tuple[str, float]:
    path, most = f"ratings.ratings[{index}].value", MAX_STUDY_MAGNITUDE
    if not rating.HasField("value"):
        raise InvalidArgumentError(path, "is required; 0 has to be set like any other value")
    return rating.item_id, fields.number(path, rating.value, low=-most, high=most)


def outcome_to_proto(outcome: AnswerOutcome | status_pb2.Status) -> pb.AnswerResult:
    """Return what became of one answer."""
    if isinstance(outcome, AnswerOutcome):
        return pb.AnswerResult(outcome=OUTCOMES.write(outcome))
    return pb.AnswerResult(error=outcome)


@dataclass(frozen=True, slots=True)
class QueryPage:
    """Queries asked for: up to `queries` of them, with up to `items` items together, from number `after` on.

    `model` is by which model, None for the study's, and `compare` whether models are to be compared.
    """

    after: int
    queries: int
    items: int
    model: PreferenceModel | None
    compare: bool


def preferences_page(request: pb.GetPreferencesRequest) -> tuple[StudyName, QueryPage]:
    """Return whose preferences a GetPreferences asks for, and for which queries."""
    name = fields.study_name("study", request.study)
    size = fields.page_size("page_size", request.page_size, default=_ITEMS_PER_PAGE, most=_ITEMS_PER_PAGE)
    after = fields.page_token("page_token", request.page_token) or "0"
    if not (after.isdecimal() and len(after) <= len(str(MAX_STUDY_QUERIES))):
        raise fields.unknown_token("page_token", request.page_token)
    model = _read_model("model", request.model)
    page = QueryPage(after=int(after), queries=size, items=_ITEMS_PER_PAGE, model=model, compare=request.compare)
    return name, page


def preferences_to_proto(preferences: Preferences, *, after: int) -> pb.GetPreferencesResponse:
    """Return a page of preferences that begins behind query `after`."""
    end = after + len(preferences.queries)
    token = fields.to_page_token(str(end)) if end < preferences.total else ""
    return PREFERENCES.write(preferences, next_page_token=token)
