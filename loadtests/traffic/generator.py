"""The generator: a process of its own, which sends each call when it is due, whether earlier ones are answered or not.

Arrivals are Poisson, so their lateness is a fair sample of how far the process was behind at any time: answers are
noted by the same event loop, and are late by as much.
"""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import time
from typing import TYPE_CHECKING, Self

import grpc
import numpy as np
from google.rpc import error_details_pb2, status_pb2

from topk_bandit.v1.recommender_service_pb2 import RecommendRequest, RewardRequest
from topk_bandit.v1.recommender_service_pb2_grpc import RecommenderServiceStub
from traffic.calls import RECOMMEND, REWARD, Calls, End
from traffic.plans import visits

if TYPE_CHECKING:
    from collections.abc import Iterable
    from multiprocessing.connection import Connection

    from topk_bandit.v1.recommender_service_pb2 import RecommendResponse
    from topk_bandit.v1.recommender_service_pb2_grpc import RecommenderServiceAsyncStub
    from traffic.plans import Plan, Visit

__all__ = ["Generator"]

# A channel of its own is a connection of its own only with a pool of its own.
CHANNEL_OPTIONS = (("grpc.enable_retries", 0), ("grpc.use_local_subchannel_pool", 1))
STATUS_DETAILS = "grpc-status-details-bin"
ENDS = {grpc.StatusCode.RESOURCE_EXHAUSTED: End.REFUSED, grpc.StatusCode.DEADLINE_EXCEEDED: End.TOO_LATE}


class Generator:
    """A process that sends what plans say, one plan after the other; it ends with the block.

    Attributes
    ----------
    pid
        Of the process.
    """

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._line, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()
        self.pid = int(self._process.pid or 0)
        self._answer()  # that it is ready

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._line.close()
        self._process.join()

    def run(self, plan: Plan) -> Calls:
        """Send what a plan says; return what became of it.

        Raises
        ------
        RuntimeError
            The process died; what it wrote is on the screen.
        """
        self._line.send(plan)
        calls = self._answer()
        assert isinstance(calls, Calls)
        return calls

    def _answer(self) -> object:
        try:
            return self._line.recv()
        except (EOFError, OSError):
            raise RuntimeError("the generator died; what it wrote is above") from None


def _serve(line: Connection) -> None:
    gc.freeze()  # what was imported is not looked through again and again while calls are due
    line.send("ready")
    while True:
        try:
            plan = line.recv()
        except EOFError:
            return
        line.send(asyncio.run(_Run(plan).sent()))


class _Run:
    """One plan under way."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._rows: list[tuple[int, int, int, float, float, float, bool]] = []
        self._start = 0.0

    async def sent(self) -> Calls:
        """Send everything, and return what became of it."""
        agenda = [(visit, self._request(visit)) for visit in visits(self._plan)]
        channels = [grpc.aio.insecure_channel(self._plan.address, CHANNEL_OPTIONS) for _ in range(self._plan.channels)]
        await asyncio.gather(*(channel.channel_ready() for channel in channels))
        stubs = [RecommenderServiceStub(channel) for channel in channels]
        self._start = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for number, (visit, request) in enumerate(agenda):
                await asyncio.sleep(max(visit.due - self._now(), 0.0))
                group.create_task(self._visit(stubs[number % len(stubs)], visit, request))
            await asyncio.sleep(max(self._plan.total - self._now(), 0.0))
        await asyncio.gather(*(channel.close(None) for channel in channels))
        return Calls.of(self._rows)

    def _request(self, visit: Visit) -> RecommendRequest:
        customers = self._plan.streams[visit.stream].shop.customers
        return RecommendRequest(bandit=visit.bandit, context=customers[visit.customer].tolist())

    def _now(self) -> float:
        return time.perf_counter() - self._start

    async def _visit(self, stub: RecommenderServiceAsyncStub, visit: Visit, request: RecommendRequest) -> None:
        """Ask for a slate, and post its reward when the customer has made up their mind."""
        sent = self._now()
        try:
            slate = await stub.Recommend(request, timeout=self._plan.deadline)
        except grpc.aio.AioRpcError as error:
            self._note(visit, RECOMMEND, _end_of(error), visit.due, sent, retry=_tells_when(error))
            return
        self._note(visit, RECOMMEND, End.DEGRADED if slate.degraded else End.OK, visit.due, sent)
        if not slate.degraded:
            await self._reward(stub, visit, slate)

    async def _reward(self, stub: RecommenderServiceAsyncStub, visit: Visit, slate: RecommendResponse) -> None:
        due = self._now() + visit.reward_after
        shop, ranking = self._plan.streams[visit.stream].shop, _ranking_of(slate)
        value = shop.draw(visit.customer, ranking, np.random.default_rng(visit.seed))
        posted = RewardRequest(bandit=visit.bandit, recommendation_id=slate.recommendation_id, value=value)
        await asyncio.sleep(due - self._now())
        sent = self._now()
        try:
            await stub.Reward(posted, timeout=self._plan.deadline)
        except grpc.aio.AioRpcError as error:
            self._note(visit, REWARD, _end_of(error), due, sent, retry=_tells_when(error))
            return
        self._note(visit, REWARD, End.OK, due, sent)

    def _note(self, visit: Visit, kind: int, end: End, due: float, sent: float, *, retry: bool = False) -> None:
        self._rows.append((visit.stream, kind, end, due, sent, self._now(), retry))


def _ranking_of(slate: RecommendResponse) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    return np.array([int(item.removeprefix("item-")) for item in slate.item_ids], dtype=np.int32)


def _end_of(error: grpc.aio.AioRpcError) -> End:
    return ENDS.get(error.code(), End.FAILED)


def _tells_when(error: grpc.aio.AioRpcError) -> bool:
    """Return whether the service says when to try again."""
    metadata: Iterable[tuple[str, str | bytes]] = error.trailing_metadata() or ()  # type: ignore[assignment]
    written = next((value for key, value in metadata if key == STATUS_DETAILS), b"")
    status = status_pb2.Status.FromString(written if isinstance(written, bytes) else b"")
    return any(one.Is(error_details_pb2.RetryInfo.DESCRIPTOR) for one in status.details)
