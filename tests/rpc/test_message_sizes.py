"""No message within the limits of its fields is refused for its size: the largest ones, over a real socket."""

from __future__ import annotations

from typing import TYPE_CHECKING

from google.longrunning.operations_pb2_grpc import OperationsStub
from tests.rpc.harness import channel_to, serving
from tests.rpc.studies import TASTE, study_server, wait_for_design
from tests.rpc.wire import longest_id, refused
from tests.waiting import PATIENCE

from topk_bandit.process.settings import Settings
from topk_bandit.v1 import bandit_service_pb2 as bandit_pb
from topk_bandit.v1 import preference_service_pb2 as study_pb
from topk_bandit.v1 import recommender_service_pb2 as recommender_pb
from topk_bandit.v1 import rules_pb2 as rules_pb
from topk_bandit.v1.bandit_service_pb2_grpc import BanditServiceStub
from topk_bandit.v1.preference_service_pb2_grpc import PreferenceServiceStub
from topk_bandit.v1.recommender_service_pb2_grpc import RecommenderServiceStub

if TYPE_CHECKING:
    from google.protobuf.message import Message

HOME = "tenants/acme/bandits/home"
LIMIT = Settings().max_message_bytes
OF_GRPC = 4 * 1024 * 1024
"""The longest message that gRPC takes by default."""


ITEMS = [longest_id(number) for number in range(10_000)]


def is_large(message: Message) -> bool:
    """Return whether gRPC alone would refuse a message, and the service need not."""
    return OF_GRPC < message.ByteSize() < LIMIT


def test_ids_are_as_long_as_an_id_can_be() -> None:
    assert {(len(one), len(one.encode())) for one in ITEMS} == {(128, 512)}


def test_the_largest_recommend_arrives() -> None:
    excluded = rules_pb.SlateRule(exclude=rules_pb.ExcludedItems(item_ids=ITEMS))
    for asked in ({"candidate_item_ids": ITEMS}, {"rules": [excluded]}):
        request = recommender_pb.RecommendRequest(bandit=HOME, request_id=longest_id(0), context=[1e6] * 64, **asked)
        check_it_arrives(request)


def check_it_arrives(request: recommender_pb.RecommendRequest) -> None:
    assert is_large(request)
    with serving(max_message_bytes=LIMIT) as server, channel_to(server.target) as channel:
        assert refused(RecommenderServiceStub(channel).Recommend, request).code == "NOT_FOUND"


def test_the_most_items_arrive_and_are_listed_and_retired() -> None:
    bandit = bandit_pb.Bandit(name=HOME, slate_size=1, item_capacity=len(ITEMS))
    added = bandit_pb.UpsertItemsRequest(
        bandit=HOME, items=[bandit_pb.Item(item_id=one, unavailable=True) for one in ITEMS]
    )
    retired = bandit_pb.RetireItemsRequest(bandit=HOME, item_ids=ITEMS)
    asked = bandit_pb.ListItemsRequest(bandit=HOME, page_size=len(ITEMS))
    limits = {"grpc.max_receive_message_length": LIMIT}
    with serving(max_message_bytes=LIMIT) as server, channel_to(server.target, **limits) as channel:
        stub = BanditServiceStub(channel)
        stub.CreateBandit(bandit_pb.CreateBanditRequest(bandit=bandit), timeout=PATIENCE)
        assert stub.UpsertItems(added, timeout=PATIENCE).item_count == len(ITEMS)
        listed = stub.ListItems(asked, timeout=PATIENCE)
        assert len(listed.items) == len(ITEMS)
        assert stub.RetireItems(retired, timeout=PATIENCE).item_count == 0
    assert [one for one in (added, listed, retired) if not is_large(one)] == []


def test_the_most_questions_and_answers_arrive() -> None:
    count = 1000
    study = study_pb.Study(
        name=TASTE,
        items=[study_pb.StudyItem(item_id=one, features=[float(place), 1.0]) for place, one in enumerate(ITEMS[:12])],
        queries=[study_pb.StudyQuery(query_id=longest_id(0), features=[1.0])],
        answer_kind=study_pb.ANSWER_KIND_RATINGS,
        list_size=12,
        budget=count,
    )
    limits = {"grpc.max_receive_message_length": LIMIT}
    with study_server(max_message_bytes=LIMIT) as server, channel_to(server.target, **limits) as channel:
        stub = PreferenceServiceStub(channel)
        operation = stub.CreateStudy(study_pb.CreateStudyRequest(study=study), timeout=PATIENCE)
        wait_for_design(OperationsStub(channel), operation.name)
        asked = stub.NextQuestions(study_pb.NextQuestionsRequest(study=TASTE, count=count), timeout=PATIENCE)
        assert len(asked.questions) == count
        answers = study_pb.SubmitAnswersRequest(study=TASTE)
        for question in asked.questions:
            rated = [study_pb.ItemRating(item_id=one, value=1.0) for one in question.item_ids]
            answers.answers.add(question_id=question.question_id).ratings.ratings.extend(rated)
        results = stub.SubmitAnswers(answers, timeout=PATIENCE).results
        assert {one.outcome for one in results} == {study_pb.ANSWER_OUTCOME_ACCEPTED}
        assert len(results) == count
    assert [one for one in (asked, answers) if not is_large(one)] == []
