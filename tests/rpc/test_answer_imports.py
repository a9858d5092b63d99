"""Answers from elsewhere over the wire: what a request may say, and who may send it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.rpc.harness import channel_to
from tests.rpc.studies import TASTE, study, study_server
from tests.rpc.wire import refused
from tests.waiting import PATIENCE

from topk_bandit.domain.access import Scope
from topk_bandit.rpc.access import RULES
from topk_bandit.v1 import preference_service_pb2 as pb
from topk_bandit.v1.preference_service_pb2_grpc import PreferenceServiceStub

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def stub() -> Iterator[PreferenceServiceStub]:
    with study_server() as server, channel_to(server.target) as channel:
        stub = PreferenceServiceStub(channel)
        stub.CreateStudy(pb.CreateStudyRequest(study=study()), timeout=PATIENCE)
        yield stub


def ranked(*items: str) -> pb.PastAnswer:
    return pb.PastAnswer(ranking=pb.RankingAnswer(item_ids=items))


def request(*rows: pb.PastAnswer, **changes: object) -> pb.ImportAnswersRequest:
    return pb.ImportAnswersRequest(**{"study": TASTE, "import_id": "old", "rows": rows, **changes})


def test_rows_are_taken_and_recognised_again(stub: PreferenceServiceStub) -> None:
    sent = request(ranked("i1", "i2"), ranked("i3", "i1", "i0"))
    for outcome in (pb.ANSWER_OUTCOME_ACCEPTED, pb.ANSWER_OUTCOME_DUPLICATE):
        assert stub.ImportAnswers(sent, timeout=PATIENCE) == pb.ImportAnswersResponse(next_row=2, outcome=outcome)
    named = pb.GetAnswerImportRequest(study=TASTE, import_id="old")
    assert stub.GetAnswerImport(named, timeout=PATIENCE).next_row == 2
    found = stub.GetStudy(pb.GetStudyRequest(name=TASTE), timeout=PATIENCE).study
    assert (found.imported_count, found.answered_count, found.asked_count) == (2, 0, 0)


GOOD = ranked("i1", "i2")
UNSET = pb.PastAnswer(item_ids=["i1"], ratings=pb.RatingsAnswer(ratings=[pb.ItemRating(item_id="i1")]))
BAD = {
    "study": request(GOOD, study="taste"),
    "import_id": request(GOOD, import_id=""),
    "first_row": request(GOOD, first_row=-1),
    "rows": request(),
    "rows[1].ranking.item_ids[1]": request(GOOD, ranked("i1", "x")),
    "rows[0].ratings.ratings[0].value": request(UNSET),
    "rows[0].query_id": request(pb.PastAnswer(query_id="q", ranking=GOOD.ranking)),
}


@pytest.mark.parametrize("field", BAD)
def test_a_bad_request_names_its_field_and_changes_nothing(stub: PreferenceServiceStub, field: str) -> None:
    before = stub.GetStudy(pb.GetStudyRequest(name=TASTE), timeout=PATIENCE).study.imported_count
    assert set(refused(stub.ImportAnswers, BAD[field]).fields) == {field}
    assert stub.GetStudy(pb.GetStudyRequest(name=TASTE), timeout=PATIENCE).study.imported_count == before == 0


def test_too_many_rows_are_refused(stub: PreferenceServiceStub) -> None:
    assert set(refused(stub.ImportAnswers, request(*[GOOD] * 1001)).fields) == {"rows"}


def test_whoever_imports_may_manage() -> None:
    for method in ("ImportAnswers", "GetAnswerImport"):
        assert RULES[f"/topk_bandit.v1.PreferenceService/{method}"].scope is Scope.MANAGE
