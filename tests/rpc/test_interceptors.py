"""The guard around calls: why clients stop waiting, what an owner hears of it, and which calls are queued."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn

import grpc
import pytest
from tests.rpc.harness import Ledger
from tests.waiting import PATIENCE, until_async

from topk_bandit.domain.errors import NotFoundError
from topk_bandit.domain.quotas import Quotas
from topk_bandit.rpc.access import Access
from topk_bandit.rpc.call_context import CallContext
from topk_bandit.rpc.call_quotas import CallQuotas
from topk_bandit.rpc.calls_in_flight import CallsInFlight
from topk_bandit.rpc.failures import FailureReporter
from topk_bandit.rpc.fair_queue import FairQueue
from topk_bandit.rpc.interceptors import (
    CallGuard,
    _code_of_cancellation,
    _is_too_late,
)
from topk_bandit.rpc.peers import ALONE
from topk_bandit.rpc.servicers import FEEDBACK_METHODS
from topk_bandit.rpc.services import DESCRIPTORS
from topk_bandit.rpc.unheard_calls import UnheardCalls
from topk_bandit.v1 import bandit_service_pb2 as bpb
from topk_bandit.v1 import recommender_service_pb2 as pb

if TYPE_CHECKING:
    from google.protobuf.message import Message

NONE: Any = None
HOME = "tenants/acme/bandits/home"


@pytest.mark.parametrize(
    ("remaining", "elapsed", "code"),
    [
        (None, 1.0, "CANCELLED"),
        (0.0, 1.0, "DEADLINE_EXCEEDED"),
        (0.04, 1.0, "DEADLINE_EXCEEDED"),
        (0.06, 1.0, "CANCELLED"),
        (0.1, 10.0, "DEADLINE_EXCEEDED"),
        (0.2, 10.0, "CANCELLED"),
        (0.9, 100.0, "DEADLINE_EXCEEDED"),
        (1.2, 100.0, "CANCELLED"),
    ],
)
def test_why_a_client_stopped_waiting(remaining: float | None, elapsed: float, code: str) -> None:
    assert _code_of_cancellation(remaining, elapsed=elapsed).name == code


@pytest.mark.parametrize(
    ("remaining", "waited", "is_late"),
    [(None, 9.0, False), (0.005, 0.2, True), (0.015, 0.2, False), (0.005, 0.001, False), (0.0, 0.001, True)],
)
def test_which_calls_come_to_their_turn_too_late(remaining: float | None, waited: float, *, is_late: bool) -> None:
    assert _is_too_late(remaining, waited=waited) == is_late


class SlowOwner:
    """Peers of which one owns every bandit, and does not answer until `go_on` is set."""

    def __init__(self) -> None:
        self.asked = False
        self.go_on = asyncio.Event()
        self.given_up = False

    has_others = True

    def worker_header(self, _bandit: str = "") -> str:
        return ""

    async def answer(self, _method: str, _bandit: str, _request: Message, _here: object) -> Message:
        self.asked = True
        try:
            await self.go_on.wait()
        except asyncio.CancelledError:
            self.given_up = True
            raise
        return pb.RecommendResponse()


@pytest.mark.parametrize(
    ("method", "request_", "given_up"),
    [
        ("/topk_bandit.v1.RecommenderService/Recommend", pb.RecommendRequest(bandit=HOME), True),
        ("/topk_bandit.v1.BanditService/RetireItems", bpb.RetireItemsRequest(bandit=HOME, item_ids=["a"]), False),
    ],
)
def test_the_owner_hears_of_a_caller_who_gives_up_unless_the_audit_log_needs_its_answer(
    method: str, request_: Message, *, given_up: bool
) -> None:
    async def play() -> None:
        peers = SlowOwner()
        guard = CallGuard(
            hooks=UnheardCalls(),
            failures=FailureReporter(new_reference=lambda: "reference"),
            access=Access(None),
            call_quotas=CallQuotas(Quotas(), clock=time.monotonic),
            in_flight=CallsInFlight(limit=1, quotas=Quotas()),
            peers=peers,  # type: ignore[arg-type]
            queue=FairQueue(clock=time.monotonic),
            feedback_methods=FEEDBACK_METHODS,
            read_only_methods=frozenset(),
        )
        handler = grpc.unary_unary_rpc_method_handler(
            NONE,
            request_deserializer=type(request_).FromString,
            response_serializer=pb.RecommendResponse.SerializeToString,
        )
        guarded = guard.guard_method(method, handler)
        context: Any = CallContext(None, clock=time.monotonic)
        call = asyncio.create_task(guarded.call(request_.SerializeToString(), context))
        await until_async(lambda: peers.asked, what="the owner is asked")
        call.cancel()
        with suppress(asyncio.CancelledError):
            await call
        if given_up:
            await until_async(lambda: peers.given_up, what="the owner hears of it")
        peers.go_on.set()
        await guard.in_flight.settle(timeout=PATIENCE)
        assert peers.given_up == given_up

    asyncio.run(play())


class Answered(CallContext):
    """A call's context that keeps what the hooks had received when its caller was answered."""

    def __init__(self, ledger: Ledger) -> None:
        super().__init__(None, clock=time.monotonic)
        self._ledger = ledger
        self.reported: list[str] = []

    async def abort(
        self, code: grpc.StatusCode, details: str = "", trailing_metadata: tuple[tuple[str, Any], ...] = ()
    ) -> NoReturn:
        self.reported = list(self._ledger.codes)
        await super().abort(code, details, trailing_metadata)


@pytest.mark.parametrize("payload", [b"no message", pb.RecommendRequest(bandit=HOME).SerializeToString()])
def test_a_failure_is_reported_before_its_caller_is_answered(payload: bytes) -> None:
    """So the span of a call that its caller knows of is there when the service stops."""

    async def fail(_request: Message, _context: object) -> NoReturn:
        raise NotFoundError(HOME)

    async def play() -> tuple[list[str], list[str]]:
        ledger = Ledger()
        guard = CallGuard(
            hooks=ledger,
            failures=FailureReporter(new_reference=lambda: "reference"),
            access=Access(None),
            call_quotas=CallQuotas(Quotas(), clock=time.monotonic),
            in_flight=CallsInFlight(limit=1, quotas=Quotas()),
            peers=ALONE,
            queue=FairQueue(clock=time.monotonic),
            feedback_methods=FEEDBACK_METHODS,
            read_only_methods=frozenset(),
        )
        handler = grpc.unary_unary_rpc_method_handler(
            fail,
            request_deserializer=pb.RecommendRequest.FromString,
            response_serializer=pb.RecommendResponse.SerializeToString,
        )
        context: Any = Answered(ledger)
        with pytest.raises(grpc.aio.AbortError):
            await guard.guard_method("/topk_bandit.v1.RecommenderService/Recommend", handler).call(payload, context)
        return context.reported, ledger.codes

    reported, codes = asyncio.run(play())
    assert reported == codes
    assert len(codes) == 1


def test_requests_are_queued_and_neither_feedback_nor_health_checks_are() -> None:
    guard = CallGuard(
        **dict.fromkeys(("hooks", "failures", "access", "call_quotas", "in_flight", "queue"), NONE),
        peers=ALONE,
        feedback_methods=FEEDBACK_METHODS,
        read_only_methods=frozenset(),
    )
    methods = {f"/{service.full_name}/{method.name}" for service in DESCRIPTORS for method in service.methods}
    taking = {name for name in methods if guard.guard_method(name, NONE).is_queued}
    assert taking == methods - FEEDBACK_METHODS
    assert not guard.guard_method(min(taking), NONE, may_wait=False).is_queued
    assert not guard.guard_method("/grpc.health.v1.Health/Check", NONE).is_queued
