from __future__ import annotations

from base64 import b64encode
from dataclasses import replace
from typing import TYPE_CHECKING

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2
from tests.rpc.wire import HOME, create, refused

from topk_bandit.domain import errors
from topk_bandit.rpc.failures import FAILURES, FailureReporter, failure_of, reward_error, status
from topk_bandit.v1 import recommender_service_pb2 as pb
from topk_bandit.v1.recommender_service_pb2_grpc import RecommenderServiceStub

if TYPE_CHECKING:
    from tests.rpc.harness import RunningServer


def test_the_table_is_total() -> None:
    there = {kind for name in errors.__all__ if isinstance(kind := getattr(errors, name), type)}
    assert set(FAILURES) == there - {errors.TopkBanditError}


def test_what_is_not_durable_may_be_repeated() -> None:
    error = errors.NotDurableError("written, but only 0 of 1 replicas have it in time", retry_after=0.5)
    failure = FailureReporter(new_reference=lambda: "r").failure(error, call="Reward")
    assert (failure.code, failure.reason) == (grpc.StatusCode.UNAVAILABLE, "NOT_DURABLE")
    assert failure.retry_after == 0.5
    assert "written" in failure.message


def test_fields_that_do_not_go_together_are_named_and_fit_into_trailers() -> None:
    fields = tuple(f"bandit.rules[{place}]" for place in range(32))
    error = errors.NotReadyError("RULES_CLASH", "\N{GRINNING FACE}" * 400, fields=fields)
    failure = FailureReporter(new_reference=lambda: "r").failure(error, call="Recommend")
    packed = status(failure)
    assert [one.field for one in blamed(packed)] == [*fields]
    assert failure_of(packed) == replace(failure, problem=failure.message)
    assert len(b64encode(packed.SerializeToString())) + 3 * len(failure.message.encode()) < 8000
    assert reward_error(failure).field == "bandit.rules[0]"


def blamed(packed: status_pb2.Status) -> list[error_details_pb2.BadRequest.FieldViolation]:
    found = error_details_pb2.BadRequest()
    assert packed.details[0].Unpack(found)
    return list(found.field_violations)


@pytest.fixture
def stub(channel: grpc.Channel) -> RecommenderServiceStub:
    create(channel)
    return RecommenderServiceStub(channel)


REWARD = pb.RewardRequest(bandit=HOME, recommendation_id="p", value=1.0)


def test_a_store_that_is_away(server: RunningServer, stub: RecommenderServiceStub) -> None:
    server.shop.away = True
    refusal = refused(stub.Reward, REWARD)
    assert (refusal.code, refusal.retry_after) == ("UNAVAILABLE", 0.25)


class SubError(errors.UnavailableError):
    pass


def test_a_subclass_is_reported_like_its_parent(server: RunningServer, stub: RecommenderServiceStub) -> None:
    server.shop.faults["reward"] = SubError("gone", retry_after=2)
    refusal = refused(stub.Reward, REWARD)
    assert (refusal.code, refusal.message, refusal.retry_after) == ("UNAVAILABLE", "gone", 2.0)


@pytest.mark.parametrize(
    "error",
    [
        ZeroDivisionError("secret"),
        KeyError("secret"),
        grpc.aio.UsageError("secret"),
        errors.CorruptDataError("secret"),
        errors.ConfigurationError("secret"),
        errors.TopkBanditError("secret"),
    ],
)
def test_what_is_unforeseen_gives_a_reference_and_nothing_else(
    server: RunningServer, stub: RecommenderServiceStub, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    server.shop.faults["reward"] = error
    refusal = refused(stub.Reward, REWARD)
    assert (refusal.code, refusal.reason, refusal.domain) == ("INTERNAL", "INTERNAL_ERROR", "topk-bandit")
    assert refusal.message == f"internal error; reference {refusal.reference}"
    [record] = [one for one in caplog.records if refusal.reference in one.getMessage()]
    if isinstance(error, errors.CorruptDataError):
        assert record.exc_info is None
        assert record.getMessage().endswith(": secret")
    else:
        assert record.exc_info is not None
        assert record.exc_info[1] is error
    assert "/topk_bandit.v1.RecommenderService/Reward" in record.getMessage()


def test_references_differ(server: RunningServer, stub: RecommenderServiceStub) -> None:
    server.shop.faults["reward"] = ZeroDivisionError()
    assert refused(stub.Reward, REWARD).reference != refused(stub.Reward, REWARD).reference


def test_a_long_message_is_cut(server: RunningServer, stub: RecommenderServiceStub) -> None:
    server.shop.faults["reward"] = errors.NotFoundError("\U0001f600" * 10**5)
    refusal = refused(stub.Reward, REWARD)
    assert (refusal.code, len(refusal.message), len(refusal.resource)) == ("NOT_FOUND", 200, 200)


def test_every_use_of_the_longest_text_fits(server: RunningServer, stub: RecommenderServiceStub) -> None:
    server.shop.faults["reward"] = errors.InvalidArgumentError("f" * 60, "\U0001f600" * 10**5)
    assert refused(stub.Reward, REWARD).code == "INVALID_ARGUMENT"
