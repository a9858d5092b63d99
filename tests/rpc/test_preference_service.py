"""Studies over the wire, with the real use cases behind it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from google.longrunning import operations_pb2
from google.longrunning.operations_pb2_grpc import OperationsStub
from google.rpc import code_pb2, error_details_pb2, status_pb2
from tests.rpc.harness import channel_to
from tests.rpc.studies import (
    FEATURES,
    QUOTA,
    TASTE,
    HeldExecutor,
    answer_to,
    study,
    study_server,
    utilities,
    wait_for_design,
)
from tests.rpc.wire import refused
from tests.waiting import PATIENCE, until

from topk_bandit.client import Client, DesignState, FailedPrecondition, Internal, InvalidArgument
from topk_bandit.domain.studies import DesignFailed
from topk_bandit.rpc import preference_servicer
from topk_bandit.v1 import preference_service_pb2 as pb
from topk_bandit.v1.preference_service_pb2_grpc import PreferenceServiceStub

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import grpc
    from tests.rpc.harness import RunningServer

    from topk_bandit.store.memory.studies import MemoryStudies

DESIGN = f"{TASTE}/operations/design"
OTHER = "tenants/other/studies/taste"
KINDS = [pb.ANSWER_KIND_RATINGS, pb.ANSWER_KIND_RANKING, pb.ANSWER_KIND_CHOICE, pb.ANSWER_KIND_PAIR]
UNIT = [pb.StudyQuery(query_id=f"q{n}", features=row) for n, row in enumerate(np.eye(2))]


@pytest.fixture
def server() -> Iterator[RunningServer]:
    with study_server() as running:
        yield running


@pytest.fixture
def channel(server: RunningServer) -> Iterator[grpc.Channel]:
    with channel_to(server.target) as opened:
        yield opened


@pytest.fixture
def held() -> Iterator[grpc.Channel]:
    """A channel to a server that works at no design: one ends when it is cancelled."""
    with (
        HeldExecutor(1) as designs,
        study_server(designs=designs) as server,
        channel_to(server.target) as opened,
    ):
        yield opened


@pytest.fixture
def client(server: RunningServer) -> Iterator[Client]:
    with Client(server.target, tenant="acme", timeout=PATIENCE) as opened:
        yield opened


@pytest.fixture
def stub(channel: grpc.Channel) -> PreferenceServiceStub:
    return PreferenceServiceStub(channel)


@pytest.fixture
def operations(channel: grpc.Channel) -> OperationsStub:
    return OperationsStub(channel)


def create(stub: PreferenceServiceStub, **fields: Any) -> operations_pb2.Operation:  # noqa: ANN401
    return stub.CreateStudy(pb.CreateStudyRequest(study=study(**fields)), timeout=PATIENCE)


def wait(operations: OperationsStub, name: str = DESIGN) -> operations_pb2.Operation:
    return wait_for_design(operations, name)


def ask(stub: PreferenceServiceStub, **fields: Any) -> pb.NextQuestionsResponse:  # noqa: ANN401
    return stub.NextQuestions(pb.NextQuestionsRequest(**{"study": TASTE, **fields}), timeout=PATIENCE)


def submit(stub: PreferenceServiceStub, *answers: pb.Answer) -> list[pb.AnswerResult]:
    return list(stub.SubmitAnswers(pb.SubmitAnswersRequest(study=TASTE, answers=answers), timeout=PATIENCE).results)


def preferences(stub: PreferenceServiceStub, **fields: Any) -> pb.GetPreferencesResponse:  # noqa: ANN401
    return stub.GetPreferences(pb.GetPreferencesRequest(**{"study": TASTE, **fields}), timeout=PATIENCE)


def get(stub: PreferenceServiceStub) -> pb.Study:
    return stub.GetStudy(pb.GetStudyRequest(name=TASTE), timeout=PATIENCE).study


def field_of(error: status_pb2.Status) -> str:
    detail = error_details_pb2.BadRequest()
    assert error.details[0].Unpack(detail)
    return detail.field_violations[0].field


def agreement(learned: pb.QueryPreferences, liked: dict[str, float]) -> float:
    """Return the rank correlation of what was learned with what is liked."""
    truth = sorted(liked, key=lambda one: -liked[one])
    return float(
        np.corrcoef([item.rank for item in learned.items], [truth.index(i.item_id) for i in learned.items])[0, 1]
    )


@pytest.mark.parametrize("kind", KINDS)
def test_from_items_to_preferences(stub: PreferenceServiceStub, operations: OperationsStub, kind: int) -> None:
    begun = create(stub, kind=kind)
    assert begun.name == DESIGN
    ended = wait(operations)
    metadata, made = pb.DesignMetadata(), pb.Study()
    assert ended.metadata.Unpack(metadata)
    assert ended.response.Unpack(made)
    assert (metadata.study, metadata.attempt, metadata.progress) == (TASTE, 1, made.design)
    assert 0.0 <= made.design.gap <= made.design.target_gap
    assert (made.state, made.item_count, len(made.items)) == (pb.STUDY_STATE_READY, len(FEATURES), 0)
    liked = utilities()
    asked = ask(stub, count=60, request_id="all")
    assert (len(asked.questions), asked.asked_count, asked.answered_count, asked.gathered) == (60, 60, 0, 0.0)
    assert len({question.question_id for question in asked.questions}) == 60
    answers = [answer_to(question, kind, liked) for question in asked.questions]
    assert {result.outcome for result in submit(stub, *answers)} == {pb.ANSWER_OUTCOME_ACCEPTED}
    assert {result.outcome for result in submit(stub, *answers)} == {pb.ANSWER_OUTCOME_DUPLICATE}
    learned = preferences(stub)
    assert (learned.answered_count, learned.next_page_token) == (60, "")
    assert learned.gathered == pytest.approx(1.0, abs=0.05)
    assert (learned.agreement, learned.agreement_count > 10) == (1.0, True)
    [only] = learned.preferences
    assert agreement(only, liked) > 0.8
    assert [item.rank for item in only.items] == list(range(1, len(liked) + 1))
    assert all(item.standard_deviation > 0.0 for item in only.items)
    if kind == pb.ANSWER_KIND_RATINGS:
        expected = {item.item_id: 4.0 + liked[item.item_id] for item in only.items}
        assert {item.item_id: item.utility for item in only.items} == pytest.approx(expected, abs=1e-2)


def test_a_study_is_returned_as_it_was_created(stub: PreferenceServiceStub, operations: OperationsStub) -> None:
    create(stub, queries=UNIT, budget=7)
    wait(operations)
    ask(stub, count=2)
    made = get(stub)
    expected = study(queries=UNIT, budget=7)
    assert (made.items, made.queries) == (expected.items, expected.queries)
    assert (made.answer_kind, made.list_size, made.budget) == (pb.ANSWER_KIND_RANKING, 3, 7)
    assert (made.item_count, made.query_count, made.asked_count, made.answered_count) == (9, 2, 2, 0)
    assert made.create_time.seconds > 0
    [listed] = stub.ListStudies(pb.ListStudiesRequest(parent="tenants/acme"), timeout=PATIENCE).studies
    made.ClearField("items")
    made.ClearField("queries")
    assert 0 < made.designed_item_count <= len(FEATURES)
    made.ClearField("designed_item_count")
    assert made.model == pb.PREFERENCE_MODEL_PLACKETT_LUCE
    made.ClearField("model")
    assert listed == made


def test_a_study_says_whether_its_design_is_of_features_alone(
    stub: PreferenceServiceStub, operations: OperationsStub
) -> None:
    create(stub, features_alone=True)
    wait(operations)
    assert get(stub).features_alone
    assert refused(stub.CreateStudy, pb.CreateStudyRequest(study=study())).reason == "STUDY_EXISTS"


def test_utilities_are_learned_for_each_query_in_pages(stub: PreferenceServiceStub, operations: OperationsStub) -> None:
    create(stub, queries=UNIT)
    wait(operations)
    liked = {"q0": utilities(), "q1": {one: -value for one, value in utilities().items()}}
    asked = ask(stub, count=60)
    assert {question.query_id for question in asked.questions} == {"q0", "q1"}
    submit(stub, *(answer_to(one, pb.ANSWER_KIND_RANKING, liked[one.query_id]) for one in asked.questions))
    first = preferences(stub, page_size=1)
    second = preferences(stub, page_size=1, page_token=first.next_page_token)
    assert (len(first.preferences), len(second.preferences), second.next_page_token) == (1, 1, "")
    both = preferences(stub)
    assert list(both.preferences) == [first.preferences[0], second.preferences[0]]
    assert all(agreement(of_query, liked[of_query.query_id]) > 0.8 for of_query in both.preferences)


def test_questions_are_of_the_lists_that_a_study_is_given(
    stub: PreferenceServiceStub, operations: OperationsStub
) -> None:
    given = [
        ("q0", ["i0", "i1", "i2"]),
        ("q0", ["i3", "i4", "i0"]),
        ("q1", ["i5", "i6", "i7"]),
        ("q1", ["i8", "i5", "i0"]),
    ]
    lists = [pb.StudyList(query_id=query, item_ids=shown) for query, shown in given]
    create(stub, queries=UNIT, lists=lists, list_size=0)
    wait(operations)
    made = get(stub)
    assert (made.given_list_count, made.list_size, len(made.lists)) == (4, 3, 0)
    asked = {(one.query_id, frozenset(one.item_ids)) for one in ask(stub, count=60).questions}
    assert asked == {(query, frozenset(shown)) for query, shown in given}
    create(stub, queries=UNIT, lists=lists)
    assert refused(stub.CreateStudy, pb.CreateStudyRequest(study=study(queries=UNIT))).reason == "STUDY_EXISTS"


def of_lists(*lists: Sequence[str], query: str = "", **fields: object) -> dict[str, Any]:
    return {"lists": [pb.StudyList(query_id=query, item_ids=one) for one in lists], **fields}


GOOD_LIST = ("i0", "i1", "i2")

WRONG: list[tuple[dict[str, Any], str]] = [
    ({"name": ""}, "study.name"),
    ({"name": "tenants/acme/bandits/taste"}, "study.name"),
    ({"items": []}, "study.items"),
    ({"items": [pb.StudyItem(item_id="a", features=[1.0])]}, "study.items"),
    ({"items": [pb.StudyItem(item_id=str(n), features=[n]) for n in range(2001)]}, "study.items"),
    ({"items": [pb.StudyItem(item_id="a", features=[n]) for n in range(3)]}, "study.items[1].item_id"),
    ({"items": [pb.StudyItem(item_id="\n", features=[n]) for n in range(3)]}, "study.items[0].item_id"),
    ({"items": [pb.StudyItem(item_id=str(n), features=[0.0] * n) for n in range(3)]}, "study.items[0].features"),
    ({"items": [pb.StudyItem(item_id=str(n), features=[0.0] * (2 - n)) for n in range(3)]}, "study.items[1].features"),
    ({"items": [pb.StudyItem(item_id=str(n)) for n in range(129)]}, "study.items"),
    (
        {
            "items": [pb.StudyItem(item_id=str(n)) for n in range(60)],
            "queries": [pb.StudyQuery(query_id="q", features=[1.0] * 5)],
        },
        "study.queries[0].features",
    ),
    ({"items": [pb.StudyItem(item_id=str(n), features=[0.0] * (n + 1)) for n in range(3)]}, "study.items[1].features"),
    ({"items": [pb.StudyItem(item_id=str(n), features=[n] * 65) for n in range(3)]}, "study.items[0].features"),
    ({"items": [pb.StudyItem(item_id=str(n), features=[n, math.nan]) for n in range(3)]}, "study.items[0].features[1]"),
    ({"items": [pb.StudyItem(item_id=str(n), features=[n * 1e6]) for n in range(3)]}, "study.items[2].features[0]"),
    ({"items": [pb.StudyItem(item_id=str(n), features=[7.0, -1.0]) for n in range(3)]}, "study.items"),
    ({"queries": [pb.StudyQuery(query_id="q", features=[0.0, 0.0])]}, "study.items"),
    ({"queries": [UNIT[0], UNIT[0]]}, "study.queries[1].query_id"),
    ({"queries": [pb.StudyQuery(query_id="q")]}, "study.queries[0].features"),
    ({"queries": [pb.StudyQuery(query_id="", features=[1.0])]}, "study.queries[0].query_id"),
    ({"queries": [pb.StudyQuery(query_id=f"q{n}", features=[n]) for n in range(1001)]}, "study.queries"),
    (
        {
            "items": [pb.StudyItem(item_id=str(n), features=[n]) for n in range(200)],
            "queries": [pb.StudyQuery(query_id=f"q{n}", features=[n]) for n in range(51)],
        },
        "study.queries",
    ),
    (
        {
            "items": [pb.StudyItem(item_id=str(n), features=[n] * 64) for n in range(3)],
            "queries": [pb.StudyQuery(query_id="q", features=[1.0] * 5)],
        },
        "study.queries[0].features",
    ),
    ({"kind": 0, "list_size": 2}, "study.answer_kind"),
    ({"kind": 9, "list_size": 2}, "study.answer_kind"),
    ({"list_size": 0}, "study.list_size"),
    ({"list_size": 1}, "study.list_size"),
    ({"list_size": 10}, "study.list_size"),
    ({"kind": pb.ANSWER_KIND_PAIR, "list_size": 3}, "study.list_size"),
    ({"kind": pb.ANSWER_KIND_RATINGS, "list_size": -1}, "study.list_size"),
    ({"budget": 0}, "study.budget"),
    ({"budget": 100_001}, "study.budget"),
    (of_lists(GOOD_LIST, ("i0", "i1")), "study.lists[1].item_ids"),
    (of_lists(GOOD_LIST, ()), "study.lists[1].item_ids"),
    (of_lists(GOOD_LIST, list_size=2), "study.lists[0].item_ids"),
    (of_lists(("i0",), list_size=0), "study.list_size"),
    (of_lists((), list_size=0), "study.list_size"),
    (of_lists(GOOD_LIST, kind=pb.ANSWER_KIND_PAIR, list_size=0), "study.lists[0].item_ids"),
    (of_lists(GOOD_LIST, ("i0", "i1", "i0")), "study.lists[1].item_ids[2]"),
    (of_lists(("i0", "zebra", "i2")), "study.lists[0].item_ids[1]"),
    (of_lists(GOOD_LIST, query="q0"), "study.lists[0].query_id"),
    (of_lists(GOOD_LIST, queries=UNIT), "study.lists[0].query_id"),
    (of_lists(GOOD_LIST, query="q7", queries=UNIT), "study.lists[0].query_id"),
    (of_lists(*[GOOD_LIST] * 100_001), "study.lists"),
    (
        of_lists(GOOD_LIST, items=[pb.StudyItem(item_id=f"i{n}", features=[float(n == 8)]) for n in range(9)]),
        "study.lists",
    ),
    ({"model": 99}, "study.model"),
    ({"model": pb.PREFERENCE_MODEL_LEAST_SQUARES}, "study.model"),
    ({"kind": pb.ANSWER_KIND_RATINGS, "model": pb.PREFERENCE_MODEL_PAIRWISE}, "study.model"),
    ({"stream_rate": 0.1}, "study.stream_rate"),
    ({"model": pb.PREFERENCE_MODEL_AGGREGATION_SQUARED, "stream_rate": 0.1}, "study.stream_rate"),
    ({"model": pb.PREFERENCE_MODEL_STREAM_SQUARED, "stream_rate": 0.0}, "study.stream_rate"),
    ({"model": pb.PREFERENCE_MODEL_STREAM_SQUARED, "stream_rate": math.nan}, "study.stream_rate"),
]


def test_a_study_that_can_not_be_is_refused_by_the_field_that_is_to_blame(stub: PreferenceServiceStub) -> None:
    for wrong, field in WRONG:
        refusal = refused(stub.CreateStudy, pb.CreateStudyRequest(study=study(**wrong)))
        assert (refusal.code, list(refusal.fields)) == ("INVALID_ARGUMENT", [field]), wrong
    assert list(refused(stub.CreateStudy, pb.CreateStudyRequest()).fields) == ["study"]
    assert not stub.ListStudies(pb.ListStudiesRequest(parent="tenants/acme"), timeout=PATIENCE).studies


def test_the_largest_and_the_smallest_study_are_taken(held: grpc.Channel) -> None:
    stub = PreferenceServiceStub(held)
    rows = np.random.default_rng(0).normal(size=(2000, 64))
    large = [pb.StudyItem(item_id=f"{n:0128d}", features=row) for n, row in enumerate(rows)]
    create(stub, name=f"{TASTE}-large", items=large, list_size=12, budget=100_000)
    made = stub.GetStudy(pb.GetStudyRequest(name=f"{TASTE}-large"), timeout=PATIENCE).study
    assert (len(made.items), made.items[-1]) == (2000, large[-1])
    stub.DeleteStudy(pb.DeleteStudyRequest(name=f"{TASTE}-large"), timeout=PATIENCE)
    small = [pb.StudyItem(item_id=str(n), features=[n]) for n in range(2)]
    rng, ids = np.random.default_rng(1), [f"i{n}" for n in range(2000)]
    made = [pb.StudyItem(item_id=one, features=row[:8]) for one, row in zip(ids, rows, strict=True)]
    drawn = np.argpartition(rng.random((100_000, 50)), 4, axis=1)[:, :4] * 40 + np.arange(100_000)[:, None] % 40
    lists = [pb.StudyList(item_ids=[ids[item] for item in one]) for one in drawn.tolist()]
    create(stub, name=f"{TASTE}-given", items=made, lists=lists, list_size=0)
    create(stub, name=f"{TASTE}-small", items=small, kind=pb.ANSWER_KIND_RATINGS, list_size=1, budget=1)


def test_a_name_of_a_respondent_is_an_id(stub: PreferenceServiceStub, operations: OperationsStub) -> None:
    create(stub)
    wait(operations)
    [question] = ask(stub, count=1).questions
    answer = answer_to(question, pb.ANSWER_KIND_RANKING, utilities())
    for name in ("x" * 129, "a\nb"):
        answer.respondent = name
        [refusal] = submit(stub, answer)
        assert field_of(refusal.error) == "answers[0].respondent"
        assert name not in refusal.error.message
        row = pb.PastAnswer(ranking=answer.ranking, respondent=name)
        request = pb.ImportAnswersRequest(study=TASTE, import_id="a", rows=[row])
        assert list(refused(stub.ImportAnswers, request).fields) == ["rows[0].respondent"]
    twice = [pb.Answer(), pb.Answer()]
    for one, name in zip(twice, ("ann", "bob"), strict=True):
        one.CopyFrom(answer)
        one.respondent = name
    assert [one.outcome for one in submit(stub, *twice)] == [pb.ANSWER_OUTCOME_ACCEPTED, pb.ANSWER_OUTCOME_DUPLICATE]
    assert [one.respondent for one in preferences(stub).respondents] == ["ann"]


BAD_ANSWERS: dict[str, tuple[dict[str, Any], str, str]] = {
    "an unknown question": ({"question_id": "nil", "ranking": ["$0", "$1", "$2"]}, "NOT_FOUND", ""),
    "no question": ({"question_id": "", "ranking": ["$0", "$1", "$2"]}, "INVALID_ARGUMENT", "question_id"),
    "no answer": ({}, "INVALID_ARGUMENT", "ranking"),
    "another kind": ({"chosen_item_id": "$0"}, "INVALID_ARGUMENT", "ranking"),
    "an empty ranking": ({"ranking": []}, "INVALID_ARGUMENT", "ranking"),
    "a tie, written by leaving one out": ({"ranking": ["$0", "$1"]}, "INVALID_ARGUMENT", "ranking"),
    "an item twice": ({"ranking": ["$0", "$1", "$0"]}, "INVALID_ARGUMENT", "ranking.item_ids[2]"),
    "one item too many": ({"ranking": ["$0", "$1", "$2", "$2"]}, "INVALID_ARGUMENT", "ranking.item_ids[3]"),
    "an unknown item": ({"ranking": ["$0", "zebra", "$2"]}, "INVALID_ARGUMENT", "ranking.item_ids[1]"),
    "an item of another question": ({"ranking": ["$0", "$1", "$other"]}, "INVALID_ARGUMENT", "ranking.item_ids[2]"),
    "another answer": ({"ranking": ["$2", "$1", "$0"], "question_id": "$first"}, "ALREADY_EXISTS", ""),
}

BAD_RATINGS: dict[str, tuple[list[tuple[str, float | None]], str]] = {
    "NaN": ([("$0", math.nan), ("$1", 0.0), ("$2", 0.0)], "ratings.ratings[0].value"),
    "infinity": ([("$0", 0.0), ("$1", math.inf), ("$2", 0.0)], "ratings.ratings[1].value"),
    "too large": ([("$0", 0.0), ("$1", 0.0), ("$2", 1.1e6)], "ratings.ratings[2].value"),
    "no number": ([("$0", 0.0), ("$1", None), ("$2", 0.0)], "ratings.ratings[1].value"),
    "an item twice": ([("$0", 0.0), ("$1", 0.0), ("$1", 0.0)], "ratings.ratings[2].item_id"),
    "an item left out": ([("$0", 0.0), ("$1", 0.0)], "ratings"),
    "an unknown item": ([("zebra", 0.0), ("$1", 0.0), ("$2", 0.0)], "ratings.ratings[0].item_id"),
    "none": ([], "ratings"),
}


def named(text: str, shown: list[str]) -> str:
    return shown[int(text[1:])] if text[:1] == "$" and text[1:].isdigit() else text


def test_bad_answers_are_refused_one_by_one_and_change_nothing(
    stub: PreferenceServiceStub, operations: OperationsStub
) -> None:
    create(stub)
    wait(operations)
    first, question = ask(stub, count=2).questions
    shown = list(question.item_ids)
    other = next(one for one in utilities() if one not in shown)
    ordered = pb.Answer(question_id=first.question_id, ranking=pb.RankingAnswer(item_ids=first.item_ids))
    submit(stub, ordered)
    before, learned = get(stub), preferences(stub)
    bad = []
    for wrong, _, _ in BAD_ANSWERS.values():
        fields = {"question_id": question.question_id, **wrong}
        if fields["question_id"] == "$first":
            fields |= {"question_id": first.question_id, "ranking": list(reversed(first.item_ids))}
        if "ranking" in fields:
            ids = [other if one == "$other" else named(one, shown) for one in fields["ranking"]]
            fields["ranking"] = pb.RankingAnswer(item_ids=ids)
        if "chosen_item_id" in fields:
            fields["chosen_item_id"] = shown[0]
        bad.append(pb.Answer(**fields))
    good = pb.Answer(question_id=question.question_id, ranking=pb.RankingAnswer(item_ids=shown))
    results = submit(stub, *bad)
    for number, ((what, (_, code, field)), result) in enumerate(zip(BAD_ANSWERS.items(), results, strict=True)):
        assert (result.outcome, result.error.code) == (0, code_pb2.Code.Value(code)), what
        assert not field or field_of(result.error) == f"answers[{number}].{field}", what
    assert results[-1].error.message.endswith("has another answer already")
    assert (get(stub), preferences(stub)) == (before, learned)
    # One that is good among them counts.
    results = submit(stub, *bad[:5], good, *bad[5:])
    assert [result.outcome for result in results].count(pb.ANSWER_OUTCOME_ACCEPTED) == 1
    assert get(stub).answered_count == 2


def test_bad_ratings_are_refused(stub: PreferenceServiceStub, operations: OperationsStub) -> None:
    create(stub, kind=pb.ANSWER_KIND_RATINGS)
    wait(operations)
    [question] = ask(stub).questions
    shown = list(question.item_ids)
    bad = [
        pb.Answer(
            question_id=question.question_id,
            ratings=pb.RatingsAnswer(
                ratings=[pb.ItemRating(item_id=named(one, shown), value=value) for one, value in ratings]
            ),
        )
        for ratings, _ in BAD_RATINGS.values()
    ]
    results = submit(stub, *bad)
    for number, ((what, (_, field)), result) in enumerate(zip(BAD_RATINGS.items(), results, strict=True)):
        assert field_of(result.error) == f"answers[{number}].{field}", what
    assert get(stub).answered_count == 0
    # Equal ratings are no error, and a first answer can be given after all.
    even = [pb.ItemRating(item_id=one, value=0.0) for one in reversed(shown)]
    [result] = submit(stub, pb.Answer(question_id=question.question_id, ratings=pb.RatingsAnswer(ratings=even)))
    assert result.outcome == pb.ANSWER_OUTCOME_ACCEPTED


def test_the_same_request_gets_the_same_questions_and_the_budget_ends_them(
    stub: PreferenceServiceStub, operations: OperationsStub
) -> None:
    create(stub, budget=5)
    wait(operations)
    first = ask(stub, count=3, request_id="r1")
    assert ask(stub, count=3, request_id="r1") == first
    reused = refused(stub.NextQuestions, pb.NextQuestionsRequest(study=TASTE, count=2, request_id="r1"))
    assert (reused.code, reused.reason) == ("ALREADY_EXISTS", "REQUEST_ID_REUSED")
    rest = ask(stub, count=3, request_id="r2")
    assert (len(rest.questions), rest.asked_count, rest.budget) == (2, 5, 5)
    assert ask(stub, count=3, request_id="r2") == rest
    spent = refused(stub.NextQuestions, pb.NextQuestionsRequest(study=TASTE))
    assert (spent.code, spent.reason, spent.retry_after) == ("RESOURCE_EXHAUSTED", "STUDY_BUDGET", None)
    assert ask(stub, count=3, request_id="r1").questions == first.questions
    for wrong, field in (({"count": -1}, "count"), ({"count": 1001}, "count"), ({"request_id": "\n"}, "request_id")):
        refusal = refused(stub.NextQuestions, pb.NextQuestionsRequest(study=TASTE, **wrong))
        assert list(refusal.fields) == [field]
    assert get(stub).asked_count == 5


def test_creating_again_finds_the_same_design_or_begins_it_again(held: grpc.Channel) -> None:
    stub, operations = PreferenceServiceStub(held), OperationsStub(held)
    assert not create(stub).done
    assert not create(stub).done
    early = refused(stub.NextQuestions, pb.NextQuestionsRequest(study=TASTE))
    assert (early.code, early.reason, early.domain) == ("FAILED_PRECONDITION", "DESIGN_UNFINISHED", "topk-bandit")
    operations.CancelOperation(operations_pb2.CancelOperationRequest(name=DESIGN), timeout=PATIENCE)
    cancelled = wait(operations)
    assert (cancelled.error.code, cancelled.HasField("response")) == (code_pb2.CANCELLED, False)
    assert refused(stub.NextQuestions, pb.NextQuestionsRequest(study=TASTE)).reason == "DESIGN_CANCELLED"
    other = refused(stub.CreateStudy, pb.CreateStudyRequest(study=study(budget=59)))
    assert (other.code, other.reason) == ("ALREADY_EXISTS", "STUDY_EXISTS")
    again = create(stub)
    metadata = pb.DesignMetadata()
    again.metadata.Unpack(metadata)
    assert (again.done, metadata.attempt) == (False, 2)
    stub.DeleteStudy(pb.DeleteStudyRequest(name=TASTE), timeout=PATIENCE)
    assert refused(operations.GetOperation, operations_pb2.GetOperationRequest(name=DESIGN)).code == "NOT_FOUND"


def test_a_design_that_failed_tells_why(server: RunningServer, stub: PreferenceServiceStub, client: Client) -> None:
    create(stub)
    client.wait_for_design("taste")
    blamed, own = DesignFailed(2, "study.items", "are alike"), DesignFailed(3, "", "r-17")
    for failed, kind, text in (
        (blamed, InvalidArgument, "INVALID_ARGUMENT: study.items: are alike"),
        (own, Internal, "INTERNAL: internal error; reference r-17"),
    ):
        server.run(fail(server.studies._store, failed))
        error = client.design("taste").error
        assert isinstance(error, kind)
        assert str(error) == text
        assert error.field == "study.items" if failed is blamed else error.reference == "r-17"
        assert client.get_study("taste").state is DesignState.FAILED
        with pytest.raises(FailedPrecondition) as early:
            client.next_questions("taste")
        assert early.value.reason == "DESIGN_FAILED"


async def fail(store: MemoryStudies, failed: DesignFailed) -> None:
    """Let the store's only study be one whose newest attempt failed."""
    [known] = store._studies.values()
    known.state = replace(known.state, attempt=failed.attempt, state=DesignState.DESIGNING)
    await store.end_design(known.record(), failed)


def wait_request(seconds: float | None = None) -> operations_pb2.WaitOperationRequest:
    request = operations_pb2.WaitOperationRequest(name=DESIGN)
    if seconds is not None:
        request.timeout.FromNanoseconds(round(seconds * 1e9))
    return request


@pytest.fixture
def waiting(held: grpc.Channel) -> OperationsStub:
    """Operations of a server that is asked for a design, and works at none."""
    create(PreferenceServiceStub(held))
    return OperationsStub(held)


def test_a_wait_ends_with_its_time(waiting: OperationsStub) -> None:
    assert not waiting.WaitOperation(wait_request(0.001), timeout=PATIENCE).done
    assert list(refused(waiting.WaitOperation, wait_request(-1.0)).fields) == ["timeout"]


def test_nobody_waits_beyond_the_deadline_of_the_call(waiting: OperationsStub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preference_servicer, "LONGEST_WAIT_SECONDS", 2 * PATIENCE)
    monkeypatch.setattr(preference_servicer, "WAIT_SECONDS_BEFORE_THE_DEADLINE", PATIENCE - 0.5)
    assert not waiting.WaitOperation(wait_request(), timeout=PATIENCE).done


def test_few_may_wait_and_all_who_wait_are_answered(waiting: OperationsStub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preference_servicer, "LONGEST_WAIT_SECONDS", 2 * PATIENCE)
    many = [waiting.WaitOperation.future(wait_request()) for _ in range(40)]
    # A quarter of the calls in flight may wait; the others are answered as soon as the server comes to them.
    until(lambda: sum(call.done() for call in many) == 24, what="24 of 40 are answered")
    assert not any(call.result().done for call in many if call.done())
    waiting.CancelOperation(operations_pb2.CancelOperationRequest(name=DESIGN), timeout=PATIENCE)
    assert [call.result(timeout=PATIENCE).done for call in many].count(True) == 16


def test_operations_are_listed_and_never_deleted_alone(stub: PreferenceServiceStub, operations: OperationsStub) -> None:
    for letter in "abc":
        create(stub, name=f"{TASTE}-{letter}")
    wait(operations, f"{TASTE}-b/operations/design")
    page = operations.ListOperations(
        operations_pb2.ListOperationsRequest(name="tenants/acme", page_size=2), timeout=PATIENCE
    )
    rest = operations.ListOperations(
        operations_pb2.ListOperationsRequest(name="tenants/acme", page_token=page.next_page_token), timeout=PATIENCE
    )
    names = [operation.name for operation in (*page.operations, *rest.operations)]
    assert names == [f"{TASTE}-{letter}/operations/design" for letter in "abc"]
    filtered = operations_pb2.ListOperationsRequest(name="tenants/acme", filter="done")
    assert list(refused(operations.ListOperations, filtered).fields) == ["filter"]
    delete = operations_pb2.DeleteOperationRequest(name=names[0])
    assert refused(operations.DeleteOperation, delete).code == "UNIMPLEMENTED"
    # Cancelling what has ended is no error, and changes nothing.
    before = operations.GetOperation(operations_pb2.GetOperationRequest(name=names[1]), timeout=PATIENCE)
    operations.CancelOperation(operations_pb2.CancelOperationRequest(name=names[1]), timeout=PATIENCE)
    assert operations.GetOperation(operations_pb2.GetOperationRequest(name=names[1]), timeout=PATIENCE) == before


def test_another_tenant_finds_nothing_and_gets_the_same_error(
    stub: PreferenceServiceStub, operations: OperationsStub
) -> None:
    create(stub)
    wait(operations)
    calls = {
        "get": (stub.GetStudy, lambda name: pb.GetStudyRequest(name=name)),
        "delete": (stub.DeleteStudy, lambda name: pb.DeleteStudyRequest(name=name)),
        "ask": (stub.NextQuestions, lambda name: pb.NextQuestionsRequest(study=name)),
        "submit": (
            stub.SubmitAnswers,
            lambda name: pb.SubmitAnswersRequest(study=name, answers=[pb.Answer(question_id="q")]),
        ),
        "learn": (stub.GetPreferences, lambda name: pb.GetPreferencesRequest(study=name)),
        "operation": (
            operations.GetOperation,
            lambda name: operations_pb2.GetOperationRequest(name=f"{name}/operations/design"),
        ),
        "cancel": (
            operations.CancelOperation,
            lambda name: operations_pb2.CancelOperationRequest(name=f"{name}/operations/design"),
        ),
        "wait": (
            operations.WaitOperation,
            lambda name: operations_pb2.WaitOperationRequest(name=f"{name}/operations/design"),
        ),
    }
    for what, (call, request) in calls.items():
        foreign, absent = (refused(call, request(name)) for name in (OTHER, "tenants/other/studies/none"))
        assert (foreign.code, absent.code) == ("NOT_FOUND", "NOT_FOUND"), what
        assert foreign.message.replace(OTHER, "") == absent.message.replace("tenants/other/studies/none", ""), what
        assert refused(call, request("tenants/acme/bandits/taste")).code == "INVALID_ARGUMENT", what
    assert not stub.ListStudies(pb.ListStudiesRequest(parent="tenants/other"), timeout=PATIENCE).studies
    assert get(stub).name == TASTE


def test_a_tenant_has_a_quota_of_studies(stub: PreferenceServiceStub) -> None:
    for number in range(QUOTA):
        create(stub, name=f"{TASTE}-{number}")
    refusal = refused(stub.CreateStudy, pb.CreateStudyRequest(study=study()))
    assert (refusal.code, refusal.reason, refusal.retry_after) == ("RESOURCE_EXHAUSTED", "STUDY_QUOTA", None)
    page = stub.ListStudies(pb.ListStudiesRequest(parent="tenants/acme", page_size=3), timeout=PATIENCE)
    rest = stub.ListStudies(
        pb.ListStudiesRequest(parent="tenants/acme", page_token=page.next_page_token), timeout=PATIENCE
    )
    names = [one.name for one in (*page.studies, *rest.studies)]
    assert names == [f"{TASTE}-{number}" for number in range(QUOTA)]


@pytest.mark.parametrize("token", ["x", "eA", "LTE"])
def test_a_made_up_page_token_is_refused(stub: PreferenceServiceStub, operations: OperationsStub, token: str) -> None:
    create(stub)
    wait(operations)
    assert list(refused(stub.GetPreferences, pb.GetPreferencesRequest(study=TASTE, page_token=token)).fields) == [
        "page_token"
    ]


def test_before_any_answer_all_items_are_alike(stub: PreferenceServiceStub, operations: OperationsStub) -> None:
    create(stub)
    wait(operations)
    learned = preferences(stub)
    assert (learned.answered_count, learned.gathered) == (0, 0.0)
    assert {item.utility for item in learned.preferences[0].items} == {0.0}
