"""The connections of a client: several where that spares the service a hop, opened and closed beside the calls."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import grpc
from google.longrunning.operations_pb2_grpc import OperationsStub

from topk_bandit.client.hedging import AsyncHedged, Hedged
from topk_bandit.client.loops import answer_of
from topk_bandit.client.resends import Resends
from topk_bandit.client.routing import WORKER_HEADER, Routing, metadata_about
from topk_bandit.v1.bandit_service_pb2_grpc import BanditServiceStub
from topk_bandit.v1.operator_service_pb2_grpc import OperatorServiceStub
from topk_bandit.v1.preference_service_pb2_grpc import PreferenceServiceStub
from topk_bandit.v1.recommender_service_pb2_grpc import RecommenderServiceStub

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from topk_bandit.client.operations import Operation

__all__ = ["AsyncConnections", "Connections"]

TRY_SECONDS = 5.0
"""So long a connection has to say which worker it is at."""

_FORK_SECONDS = 1.0
"""So long a fork waits at most for a try to end."""

_HEALTH = "/grpc.health.v1.Health/Check"
"""What each connection is asked first: it needs no key, and does nothing."""


_NOT_SENT_AGAIN = frozenset({"AmendReward", "BatchRecommend"})
"""Calls about slates that are not sent once more because they are not answered soon."""

_STUBS: tuple[type[Any], ...] = (
    BanditServiceStub,
    RecommenderServiceStub,
    PreferenceServiceStub,
    OperatorServiceStub,
    OperationsStub,
)


def _worker_header_of(metadata: Any) -> str:
    """Return the header of an answer that names its worker; empty if there is none, as over HTTP."""
    for name, value in metadata or ():
        if name == WORKER_HEADER:
            return str(value)
    return ""


class _Opened:
    """A channel and its stubs, which are made at once: gRPC crashes where one is made of a channel that was closed."""

    def __init__(self, channel: Any) -> None:
        self.channel = channel
        self._stubs = {stub: stub(channel) for stub in _STUBS}

    def method(self, operation: Operation[Any]) -> Any:
        """Return what calls an operation's method on it."""
        return getattr(self._stubs[operation.stub], operation.method)


class _Attempt(NamedTuple):
    """One sending of a call.

    Attributes
    ----------
    number
        The connection.
    seconds
        How long it may take.
    tries
        How often the call was sent before.
    is_last
        Whether it has all that is left of the call's time, and is not sent again.
    is_probe
        Whether it finds out if a connection answers again.
    """

    number: int
    seconds: float
    tries: int
    is_last: bool
    is_probe: bool


class _Both:
    """What connections of both kinds do.

    Parameters
    ----------
    open_channel
        Opens a channel, which has subchannels of its own.
    hedge_after
        Seconds after which what may be hedged is sent once more, over a channel that is for nothing else.
    clock
        Seconds, monotonic.
    """

    def __init__(
        self, open_channel: Callable[[], Any], *, hedge_after: float | None, clock: Callable[[], float]
    ) -> None:
        self._open = open_channel
        self._hedge_after = hedge_after
        self._clock = clock
        self._routing = Routing(clock=clock)
        self._resends = Resends()
        first = open_channel()
        self._connects_anew = getattr(first, "connects_anew", False)
        self._opened = {0: _Opened(first)}
        self._spare = None if hedge_after is None else _Opened(open_channel())
        self._is_closed = False

    @property
    def count(self) -> int:
        """How many connections calls may go on, but for the one for hedging."""
        return self._routing.count

    def _begin(self, operation: Operation[Any], left: float, *, before: _Attempt | None = None) -> _Attempt:
        """Begin a call: the second time on another connection than before, the third time where one answered last."""
        tries = 0 if before is None else before.tries + 1
        avoid = -1 if before is None or before.tries or self._resends.are_spent else before.number
        number = self._routing.begin(operation.bandit, avoid=avoid)
        is_probe = self._routing.is_probe(number)
        # Who was late once already may only be slow; before that a connection that said nothing is none to turn to.
        has_another = self._routing.has_another(number) if tries == 0 else self.count > 1
        seconds, anew = left, self._connects_anew
        if self._is_quick(operation) and (has_another or anew):
            seconds = self._resends.patience(left, is_probe=is_probe, tries=tries, connects_anew=anew)
        return _Attempt(number, seconds, tries, is_last=seconds == left, is_probe=is_probe)

    def _is_quick(self, operation: Operation[Any]) -> bool:
        is_quick = operation.stub is RecommenderServiceStub and operation.repeatable
        # An amendment that is late could undo a later one, and a batch takes its time; what is hedged is sent twice.
        is_hedged = self._spare is not None and operation.hedged
        return is_quick and operation.method not in _NOT_SENT_AGAIN and not is_hedged

    def _begin_again(
        self, operation: Operation[Any], error: grpc.RpcError, *, before: _Attempt, left: float
    ) -> _Attempt | None:
        """Begin a call again that was not answered in time, or return None if its error is what came of it."""
        if before.is_last or left <= 0.0 or error.code() is not grpc.StatusCode.DEADLINE_EXCEEDED:
            return None
        if not before.is_probe:
            self._resends.sent()
        return self._begin(operation, left, before=before)

    def _note_answer(self, number: int, bandit: str, header: str | None, begun: float) -> None:
        """Note that a call was answered; `header` is None if that was over the connection for hedging."""
        self._resends.answered(self._clock() - begun)
        if header is None:
            self._routing.ended(number)
        else:
            self._routing.heard(number, bandit, header)

    def _note_failure(self, number: int, bandit: str, error: grpc.RpcError, begun: float) -> None:
        """Note how a call ended that was not answered with a message."""
        header = _worker_header_of(error.trailing_metadata())
        if header:
            self._routing.heard(number, bandit, header)
        elif error.code() is grpc.StatusCode.UNAVAILABLE:
            self._routing.lost(number)
        elif error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
            self._routing.silent(number, begun)
        else:
            self._routing.ended(number)

    def _found(self, channel: Any, header: str) -> bool:
        """Take in a channel that says where it is, or return False if it is of no use."""
        number = self._routing.found(header)
        if number is not None:
            self._opened[number] = _Opened(channel)
        return number is not None

    def _left(self) -> list[Any]:
        """Return the channels on which no call goes any more."""
        return [self._opened.pop(number).channel for number in self._routing.take_left()]

    def _all(self) -> list[Any]:
        """Return all channels."""
        spare = () if self._spare is None else (self._spare,)
        return [one.channel for one in (*self._opened.values(), *spare)]


class AsyncConnections(_Both):
    """Those of an asynchronous client; see `_Both`."""

    def __init__(
        self, open_channel: Callable[[], Any], *, hedge_after: float | None, clock: Callable[[], float]
    ) -> None:
        super().__init__(open_channel, hedge_after=hedge_after, clock=clock)
        self._beside: set[asyncio.Task[None]] = set()

    async def call(self, operation: Operation[Any], *, timeout: float, metadata: tuple[tuple[str, str], ...]) -> Any:
        """Return the answer to a call, or raise `grpc.RpcError`."""
        begun, attempt = self._clock(), self._begin(operation, timeout)
        while True:
            try:
                return await self._send(attempt.number, operation, timeout=attempt.seconds, metadata=metadata)
            except grpc.RpcError as error:
                left = timeout - (self._clock() - begun)
                again = self._begin_again(operation, error, before=attempt, left=left)
                if again is None:
                    raise
                attempt = again

    async def _send(
        self, number: int, operation: Operation[Any], *, timeout: float, metadata: tuple[tuple[str, str], ...]
    ) -> Any:
        bandit, begun = operation.bandit, self._clock()
        method = self._opened[number].method(operation)
        named = (*metadata, *metadata_about(bandit))
        try:
            if self._spare is not None and self._hedge_after is not None and operation.hedged:
                hedged = AsyncHedged(method, self._spare.method(operation), after=self._hedge_after)
                answer, sent = await answer_of(hedged.with_call(operation.request, timeout=timeout, metadata=named))
            else:
                sent = method(operation.request, timeout=timeout, metadata=named)
                answer = await answer_of(sent)
            header = None if sent is None else ""
            if isinstance(sent, grpc.aio.Call):
                header = _worker_header_of(await sent.trailing_metadata())
        except grpc.RpcError as error:
            self._note_failure(number, bandit, error, begun)
            self._go_on()
            raise
        except BaseException:
            self._routing.ended(number)
            raise
        self._note_answer(number, bandit, header, begun)
        self._go_on()
        return answer

    def _go_on(self) -> None:
        """Try another connection where one is wanted, and close those that are not any more, beside the calls."""
        if self._is_closed:
            return
        for channel in self._left():
            self._do_beside(channel.close(None))
        if self._routing.wants_another():
            self._do_beside(self._try_another())

    def _do_beside(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._beside.add(task)
        task.add_done_callback(self._beside.discard)

    async def _try_another(self) -> None:
        channel, header = self._open(), ""
        try:
            with suppress(grpc.RpcError):
                asked = channel.unary_unary(_HEALTH)(b"", timeout=TRY_SECONDS)
                await asked
                header = _worker_header_of(await asked.trailing_metadata())
        finally:
            if self._is_closed or not self._found(channel, header):
                await channel.close(None)

    async def close(self) -> None:
        """Close all; calls under way are cancelled."""
        self._is_closed = True
        beside = tuple(self._beside)
        for task in beside:
            task.cancel()
        await asyncio.gather(*beside, return_exceptions=True)
        for channel in self._all():
            await channel.close(None)


class Connections(_Both):
    """Those of a synchronous client; see `_Both`. Safe to share between threads."""

    def __init__(
        self, open_channel: Callable[[], Any], *, hedge_after: float | None, clock: Callable[[], float]
    ) -> None:
        super().__init__(open_channel, hedge_after=hedge_after, clock=clock)
        self._lock = threading.Lock()
        self._tried: tuple[Any, threading.Thread] | None = None
        self._ended_tries: deque[tuple[Any, str]] = deque()

    def call(self, operation: Operation[Any], *, timeout: float, metadata: tuple[tuple[str, str], ...]) -> Any:
        """Return the answer to a call, or raise `grpc.RpcError`."""
        begun = self._clock()
        with self._lock:
            attempt = self._begin(operation, timeout)
        while True:
            try:
                return self._send(attempt.number, operation, timeout=attempt.seconds, metadata=metadata)
            except grpc.RpcError as error:
                left = timeout - (self._clock() - begun)
                with self._lock:
                    again = self._begin_again(operation, error, before=attempt, left=left)
                if again is None:
                    raise
                attempt = again

    def _send(
        self, number: int, operation: Operation[Any], *, timeout: float, metadata: tuple[tuple[str, str], ...]
    ) -> Any:
        bandit, begun = operation.bandit, self._clock()
        with self._lock:
            method = self._opened[number].method(operation)
        if self._spare is not None and self._hedge_after is not None and operation.hedged:
            method = Hedged(method, self._spare.method(operation), after=self._hedge_after)
        try:
            named = (*metadata, *metadata_about(bandit))
            answer, sent = method.with_call(operation.request, timeout=timeout, metadata=named)
        except grpc.RpcError as error:
            with self._lock:
                self._note_failure(number, bandit, error, begun)
                left = self._go_on()
            _close(left)
            raise
        except BaseException:
            with self._lock:
                self._routing.ended(number)
            raise
        header = None if sent is None else _worker_header_of(sent.trailing_metadata())
        with self._lock:
            self._note_answer(number, bandit, header, begun)
            left = self._go_on()
        _close(left)
        return answer

    def _go_on(self) -> list[Any]:
        """Try another connection where one is wanted; return the channels that are to be closed."""
        if self._is_closed:
            return []
        left = self._left()
        while self._ended_tries:
            channel, header = self._ended_tries.popleft()
            self._tried = None
            if not self._found(channel, header):
                left.append(channel)
        if self._routing.wants_another():
            self._try_another(self._open())
        return left

    def _try_another(self, channel: Any) -> None:
        """Ask a channel where it is, in a thread of its own.

        gRPC's own would be waited for by who closes the channel, for ever if it could not be started.
        """
        asking = threading.Thread(target=self._ask, args=(channel,), name="topk-bandit-try", daemon=True)
        try:
            asking.start()
        except RuntimeError:  # the process has as many threads as it may
            self._ended_tries.append((channel, ""))
        else:
            self._tried = channel, asking

    def _ask(self, channel: Any) -> None:
        header = ""
        try:
            with suppress(grpc.RpcError, ValueError):  # closed meanwhile
                _, asked = channel.unary_unary(_HEALTH).with_call(b"", timeout=TRY_SECONDS)
                header = _worker_header_of(asked.trailing_metadata())
        finally:
            self._ended_tries.append((channel, header))

    def before_fork(self) -> None:
        """End what goes on in other threads, which a forked process does not have."""
        if not self._lock.acquire(timeout=_FORK_SECONDS):  # by the very thread that forks, in a signal's handler
            return
        try:
            if self._tried is not None:
                channel, asking = self._tried
                channel.close()
                asking.join(_FORK_SECONDS)
                self._tried = None
                self._ended_tries.clear()
                self._routing.found("")
        finally:
            self._lock.release()

    def close(self) -> None:
        """Close all; calls under way are cancelled."""
        with self._lock:
            self._is_closed = True
            tried, self._tried = self._tried, None
            ended = [channel for channel, _ in self._ended_tries]
            _close([*self._all(), *ended, *([] if tried is None else [tried[0]])])


def _close(channels: Iterable[Any]) -> None:
    for channel in channels:
        channel.close()
