"""The guard around calls: what it lets go on without a caller, and which calls take turns."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from topk_bandit.domain.quotas import Quotas
from topk_bandit.rpc.interceptors import (
    CallGuard,
    CallsInFlight,
    Place,
    Progress,
    Room,
    _code_of_cancellation,
    _is_too_late,
)
from topk_bandit.rpc.servicers import FEEDBACK_METHODS
from topk_bandit.rpc.services import DESCRIPTORS

PLACE = Place(Room.REQUESTS, "acme")
NONE: Any = None


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


@pytest.mark.parametrize(("has_begun", "to_its_end"), [(True, True), (True, False), (False, True), (False, False)])
def test_what_has_begun_goes_on_without_its_caller_and_what_waits_does_not(
    *, has_begun: bool, to_its_end: bool
) -> None:
    async def play() -> None:
        calls, go_on, done = CallsInFlight(limit=1, quotas=Quotas()), asyncio.Event(), list[str]()

        async def work() -> bytes:
            await go_on.wait()
            done.append("done")
            return b""

        call = asyncio.create_task(calls.run(work(), PLACE, Progress(has_begun), to_its_end=to_its_end))
        await asyncio.sleep(0.01)
        assert calls.refusal(PLACE) is not None
        call.cancel()
        with suppress(asyncio.CancelledError):
            await call
        await asyncio.sleep(0.01)
        goes_on = has_begun and to_its_end
        assert (calls.refusal(PLACE) is not None) == goes_on, "who has gone leaves the place to others"
        go_on.set()
        await asyncio.sleep(0.01)
        assert done == ["done"] * goes_on
        assert calls.refusal(PLACE) is None

    asyncio.run(play())


def test_requests_take_turns_and_neither_feedback_nor_health_checks_do() -> None:
    guard = CallGuard(
        **dict.fromkeys(("hooks", "failures", "access", "call_quotas", "in_flight", "siblings", "turns"), NONE),
        feedback_methods=FEEDBACK_METHODS,
        read_only_methods=frozenset(),
    )
    methods = {f"/{service.full_name}/{method.name}" for service in DESCRIPTORS for method in service.methods}
    taking = {name for name in methods if guard.guard_method(name, NONE).takes_turns}
    assert taking == methods - FEEDBACK_METHODS
    assert not guard.guard_method("/grpc.health.v1.Health/Check", NONE).takes_turns
