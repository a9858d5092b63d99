"""Studies while workers and the store are killed: what was acknowledged stays, and a design finds another worker."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import numpy as np
import pytest
from google.longrunning.operations_pb2 import GetOperationRequest
from google.longrunning.operations_pb2_grpc import OperationsStub
from tests.faults.service import serving
from tests.rpc.harness import channel_to
from tests.rpc.wire import refused
from tests.waiting import PATIENCE, until

from topk_bandit.client import AnswerKind, AnswerOutcome, Cancelled
from topk_bandit.v1 import preference_service_pb2 as pb
from topk_bandit.v1.preference_service_pb2_grpc import PreferenceServiceStub

if TYPE_CHECKING:
    from pathlib import Path

    from tests.faults.service import Service

    from topk_bandit.client import Client, Questions

TASTE = "tenants/shop/studies/taste"


def items(count: int, width: int) -> dict[str, list[float]]:
    rng = np.random.default_rng(count)
    return {f"item-{number}": rng.normal(size=width).tolist() for number in range(count)}


def begin_slow_design(client: Client, study: str) -> None:
    """Begin a design that takes as long as one may, a minute: it has as many features and pairs as are allowed."""
    client.create_study(
        study, items(2000, 64), queries=items(5, 4), answer_kind=AnswerKind.RANKING, list_size=10, budget=10
    )


def is_under_way(client: Client, study: str) -> bool:
    design = client.design(study)
    assert not design.done
    return design.progress is not None and design.progress.steps > 0


def kill_worker(service: Service) -> None:
    [before] = service.worker_pids
    os.kill(before, signal.SIGKILL)
    until(lambda: service.worker_pids not in ([], [before]) and service.page("/readyz")[0] == 200, what="a new worker")


def kill_store(service: Service) -> None:
    before = service.store_pid
    os.kill(before, signal.SIGKILL)
    until(lambda: service.store_pid != before, what="a new store")


def kill_everything(service: Service) -> None:
    service.kill_everything()
    service.start()


def orders(asked: Questions) -> dict[str, tuple[str, ...]]:
    return {question.id: tuple(sorted(question.items)) for question in asked.questions}


def test_what_was_acknowledged_outlives_workers_and_store(folder: Path) -> None:
    with serving(folder, "--store-timeout-seconds=2") as service:
        with service.client() as client:
            client.create_study("taste", items(8, 3), answer_kind=AnswerKind.RANKING, list_size=3, budget=30)
            client.wait_for_design("taste", timeout=PATIENCE)
        acknowledged: dict[str, tuple[str, ...]] = {}
        for number, kill in enumerate([kill_worker, kill_store, kill_everything]):
            with service.client() as client:
                asked = client.next_questions("taste", 10, request_id=f"r{number}")
                answers = orders(asked)
                outcome = client.submit_answers("taste", answers)
                assert set(outcome.outcomes.values()) == {AnswerOutcome.ACCEPTED}
            kill(service)
            acknowledged |= answers
            with service.client() as client:
                assert client.next_questions("taste", 10, request_id=f"r{number}").questions == asked.questions
                again = client.submit_answers("taste", acknowledged)
                assert list(again.outcomes.values()) == [AnswerOutcome.DUPLICATE] * len(acknowledged)
        with service.client() as client:
            study = client.get_study("taste")
            assert (study.asked_count, study.answered_count) == (30, 30)
            assert client.next_questions("taste", 10, request_id="r0").gathered == pytest.approx(1.0, abs=0.05)
        check_that_a_store_that_is_away_is_told(service)


def check_that_a_store_that_is_away_is_told(service: Service) -> None:
    answer = pb.Answer(question_id="q", ranking=pb.RankingAnswer(item_ids=["a"]))
    with channel_to(service.address) as channel, service.client() as client:
        studies, operations = PreferenceServiceStub(channel), OperationsStub(channel)
        os.kill(service.store_pid, signal.SIGSTOP)
        try:
            for call, request in (
                (studies.GetStudy, pb.GetStudyRequest(name=TASTE)),
                (studies.NextQuestions, pb.NextQuestionsRequest(study=TASTE, request_id="r9")),
                (studies.SubmitAnswers, pb.SubmitAnswersRequest(study=TASTE, answers=[answer])),
                (studies.GetPreferences, pb.GetPreferencesRequest(study=TASTE)),
                (operations.GetOperation, GetOperationRequest(name=f"{TASTE}/operations/design")),
            ):
                refusal = refused(call, request)
                assert (refusal.code, refusal.retry_after is None) == ("UNAVAILABLE", False)
        finally:
            os.kill(service.store_pid, signal.SIGCONT)
        until(lambda: client.get_study("taste").answered_count == 30, what="the store is back, and all is there")


def test_a_design_is_taken_over_and_can_be_cancelled_and_begun_again(folder: Path) -> None:
    with serving(folder, "--workers=1") as service, service.client() as client:
        begin_slow_design(client, "slow")
        until(lambda: is_under_way(client, "slow"), what="the design is under way")
        kill_worker(service)
        steps = client.design("slow").progress
        # Nobody asks for it, and yet it begins again, which its steps tell.
        until(lambda: client.design("slow").progress != steps, what="somebody took the design over")
        assert client.design("slow").attempt == 1
        client.cancel_design("slow")
        with pytest.raises(Cancelled):
            client.wait_for_design("slow", timeout=PATIENCE)
        # The only thread for designs is free again, so the next one has not to wait for what was cancelled.
        client.create_study("quick", items(8, 3), answer_kind=AnswerKind.PAIR, budget=5)
        assert client.wait_for_design("quick", timeout=PATIENCE).item_count == 8
        begin_slow_design(client, "slow")
        assert (client.design("slow").attempt, client.design("slow").done) == (2, False)
        client.delete_study("slow")
