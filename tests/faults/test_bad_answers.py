"""Bad calls about studies over the wire, and a look at every key of the store before and after them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest
from google.rpc import code_pb2
from tests.faults.test_bad_calls import unchanged
from tests.rpc.studies import TASTE, study
from tests.rpc.wire import create, refused
from tests.waiting import PATIENCE

from topk_bandit.v1 import preference_service_pb2 as pb
from topk_bandit.v1.preference_service_pb2_grpc import PreferenceServiceStub

if TYPE_CHECKING:
    from collections.abc import Iterator

    import grpc
    import redis
    from tests.faults.service import Service


@pytest.fixture
def stub(
    shared_service: Service, shared_channel: grpc.Channel, shared_store: redis.Redis
) -> Iterator[PreferenceServiceStub]:
    create(shared_channel, "tenants/bystander/bandits/home")
    stub = PreferenceServiceStub(shared_channel)
    stub.CreateStudy(pb.CreateStudyRequest(study=study(kind=pb.ANSWER_KIND_RATINGS, budget=2)), timeout=PATIENCE)
    with shared_service.client(tenant="acme") as client:
        client.wait_for_design("taste", timeout=PATIENCE)
    # Time alone takes what has ended off this list, and other tests look at all keys too.
    shared_store.delete("topk-bandit:designs")
    yield stub
    stub.DeleteStudy(pb.DeleteStudyRequest(name=TASTE), timeout=PATIENCE)


def test_a_bad_call_changes_no_key(stub: PreferenceServiceStub, shared_store: redis.Redis) -> None:
    first, second = stub.NextQuestions(
        pb.NextQuestionsRequest(study=TASTE, count=2, request_id="r"), timeout=PATIENCE
    ).questions

    def rating(question: pb.Question, *values: float) -> pb.Answer:
        ratings = [
            pb.ItemRating(item_id=one, value=value) for one, value in zip(question.item_ids, values, strict=False)
        ]
        return pb.Answer(question_id=question.question_id, ratings=pb.RatingsAnswer(ratings=ratings))

    stub.SubmitAnswers(pb.SubmitAnswersRequest(study=TASTE, answers=[rating(first, 1.0, 2.0, 3.0)]), timeout=PATIENCE)
    bad = {
        "another answer": (rating(first, 1.0, 2.0, 4.0), "ALREADY_EXISTS"),
        "NaN": (rating(second, math.nan, 0.0, 0.0), "INVALID_ARGUMENT"),
        "too few": (rating(second, 1.0), "INVALID_ARGUMENT"),
        "another kind": (pb.Answer(question_id=second.question_id, chosen_item_id="i0"), "INVALID_ARGUMENT"),
        "nobody's": (pb.Answer(question_id="\U0001f600" * 128, chosen_item_id="i0"), "NOT_FOUND"),
        "nothing": (pb.Answer(), "INVALID_ARGUMENT"),
    }
    calls: list[tuple[Any, Any, str]] = [
        (stub.CreateStudy, pb.CreateStudyRequest(study=study(budget=2)), "ALREADY_EXISTS"),
        (stub.CreateStudy, pb.CreateStudyRequest(study=study(f"{TASTE}-2", budget=0)), "INVALID_ARGUMENT"),
        (stub.NextQuestions, pb.NextQuestionsRequest(study=TASTE, count=1, request_id="r"), "ALREADY_EXISTS"),
        (stub.NextQuestions, pb.NextQuestionsRequest(study=TASTE), "RESOURCE_EXHAUSTED"),
        (stub.NextQuestions, pb.NextQuestionsRequest(study="tenants/stranger/studies/taste"), "NOT_FOUND"),
        (stub.SubmitAnswers, pb.SubmitAnswersRequest(study=TASTE), "INVALID_ARGUMENT"),
        (stub.SubmitAnswers, pb.SubmitAnswersRequest(study=TASTE, answers=[pb.Answer()] * 1001), "INVALID_ARGUMENT"),
    ]
    with unchanged(shared_store):
        answers = [answer for answer, _ in bad.values()]
        results = stub.SubmitAnswers(pb.SubmitAnswersRequest(study=TASTE, answers=answers), timeout=PATIENCE).results
        assert [code_pb2.Code.Name(result.error.code) for result in results] == [code for _, code in bad.values()]
        for call, request, code in calls:
            assert refused(call, request).code == code, request
