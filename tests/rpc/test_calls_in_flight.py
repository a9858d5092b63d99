"""The calls in flight: which of them go on without a caller."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest
from tests.waiting import PATIENCE, until_async

from topk_bandit.domain.errors import UnavailableError
from topk_bandit.domain.quotas import Quotas
from topk_bandit.rpc.access import Admission, AdmittedElsewhere
from topk_bandit.rpc.calls_in_flight import CallPool, CallsInFlight, Place

PLACE = Place(CallPool.REQUESTS)
NONE: Any = None


def admitted(*, has_begun: bool) -> Admission:
    admission = AdmittedElsewhere().admit("/a.Service/Method", None, NONE)
    admission.has_begun = has_begun
    return admission


@pytest.mark.parametrize(("has_begun", "to_its_end"), [(True, True), (True, False), (False, True), (False, False)])
def test_what_has_begun_goes_on_without_its_caller_and_what_waits_does_not(
    *, has_begun: bool, to_its_end: bool
) -> None:
    async def play() -> None:
        calls, go_on, steps = CallsInFlight(limit=1, quotas=Quotas()), asyncio.Event(), list[str]()

        async def work() -> bytes:
            steps.append("begun")
            try:
                await go_on.wait()
            except asyncio.CancelledError:
                steps.append("cancelled")
                raise
            steps.append("done")
            return b""

        call = asyncio.create_task(calls.run(work(), PLACE.pool, admitted(has_begun=has_begun), to_its_end=to_its_end))
        await until_async(lambda: steps, what="it is under way")
        assert calls.refusal(PLACE) is not None
        call.cancel()
        with suppress(asyncio.CancelledError):
            await call
        goes_on = has_begun and to_its_end
        if not goes_on:
            await until_async(lambda: calls.refusal(PLACE) is None, what="its place is left to others")
        assert (calls.refusal(PLACE) is not None) == goes_on
        go_on.set()
        await until_async(lambda: calls.refusal(PLACE) is None, what="its place is free")
        assert steps == ["begun", "done" if goes_on else "cancelled"]

    asyncio.run(play())


def test_no_work_begins_for_callers_that_were_refused_at_the_end_of_the_service() -> None:
    async def play() -> None:
        calls, go_on = CallsInFlight(limit=2, quotas=Quotas()), asyncio.Event()
        started, done = list[str](), list[str]()

        async def work(name: str) -> bytes:
            started.append(name)
            await go_on.wait()
            done.append(name)
            return b""

        under_way = [
            asyncio.create_task(calls.run(work(name), PLACE.pool, admitted(has_begun=has_begun), to_its_end=True))
            for name, has_begun in (("begun", True), ("waits", False))
        ]
        await until_async(lambda: len(started) == 2, what="both are under way")
        calls.close()
        await calls.finish(timeout=0.01)
        outcomes = await asyncio.gather(*under_way)
        assert [type(one) for one in outcomes] == [UnavailableError] * 2
        go_on.set()
        await calls.settle(timeout=PATIENCE)
        assert done == ["begun"]

    asyncio.run(play())
