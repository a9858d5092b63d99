"""The guard around each call, over gRPC, over HTTP or from a peer, in three steps.

*Admit*: who calls, may they, and is there a place? Strangers take none, and what is refused here was not parsed.
*Run*: the call waits for its turn, and is answered here or by the bandit's owner. This is a task of its own, which may
go on without the client.
*Report*: errors become statuses, the hooks hear of the outcome before the caller does, and the trailers tell the call's
ids and its worker.

One coroutine and one task do all of it, because each layer costs every call an await. The services under ``grpc.``,
which are health and reflection, are never refused. Their streams pass by and are not counted. Other services have none.
"""

from __future__ import annotations

import asyncio
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import grpc
from google.protobuf.message import DecodeError
from grpc_status import rpc_status

from topk_bandit.domain.calls import CURRENT_CALL
from topk_bandit.domain.errors import (
    ExhaustedError,
    ForbiddenError,
    InvalidArgumentError,
    TopkBanditError,
    UnauthenticatedError,
)
from topk_bandit.domain.quotas import Quotas
from topk_bandit.rpc.access import LONGEST_NAME, MOST_FROM_PEOPLE, RULES, Admission
from topk_bandit.rpc.aside import do_aside
from topk_bandit.rpc.call_ids import call_of, metadata_of
from topk_bandit.rpc.calls_in_flight import CallPool, CallsInFlight, Place, no_place
from topk_bandit.rpc.failures import Failure, status
from topk_bandit.rpc.peers import PASSED_ON, PeerRefusedError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from topk_bandit.domain.calls import Call
    from topk_bandit.rpc.access import Access
    from topk_bandit.rpc.call_quotas import CallQuotas
    from topk_bandit.rpc.failures import FailureReporter
    from topk_bandit.rpc.fair_queue import FairQueue
    from topk_bandit.rpc.peers import Peers

    Handler = Any  # grpc.RpcMethodHandler, whose stub takes every attribute for optional and synchronous
    Context = grpc.aio.ServicerContext[Any, Any]

__all__ = ["CallGuard", "GuardedMethod", "RpcHooks"]

_EXEMPT = "/grpc."
# A deadline reaches the server rounded up, by a hundredth at most, and the client stops waiting before that.
_DEADLINE_SLACK_SECONDS = 0.05
_DEADLINE_SLACK_SHARE = 0.01
_LEAST_SECONDS = 0.01
"""A call that has waited in the queue and has less left is not answered in time: most take some 10 ms."""


class RpcHooks(Protocol):
    """Where telemetry attaches. Hooks are cheap and don't raise; `code` is the name of a gRPC status code."""

    def rpc_started(self, service: str, method: str) -> None:
        """Note that a call was received; it is current, and its span may be replaced by one that is kept elsewhere."""

    def rpc_handled(self, service: str, method: str, code: str, seconds: float) -> None:
        """Note that a call ended: with its status, or because its client stopped waiting."""

    def quota_refused(self, quota: str, tenant: str) -> None:
        """Note that a call was refused because its tenant has used up a quota."""

    def rpc_done(self, queue_seconds: float, encode_seconds: float) -> None:
        """Note how long a call with a response waited in the queue, and how long its messages took."""


@dataclass(kw_only=True, eq=False)
class CallGuard(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]  # not subscriptable at run time
    """Stands around each unary call.

    A call that may write is run to its end once it has begun, whether or not its client still waits: nothing is left
    half done. It holds its place among the calls in flight until then.

    Attributes
    ----------
    access
        Decides who may call.
    call_quotas, in_flight
        Refuse calls beyond their limits, before their request is parsed.
    peers
        Answer calls about bandits of which another worker is the owner.
    queue
        Orders the requests of all servers of a worker.
    feedback_methods
        Full names of methods that report what became of slates, and have a pool of their own.
    read_only_methods
        Full names of methods that stop at once when their client stops waiting.
    clock
        Seconds, monotonic.
    """

    hooks: RpcHooks
    failures: FailureReporter
    access: Access
    call_quotas: CallQuotas
    in_flight: CallsInFlight
    peers: Peers
    queue: FairQueue
    feedback_methods: frozenset[str]
    read_only_methods: frozenset[str]
    clock: Callable[[], float] = time.monotonic
    _handlers: dict[str, Handler] = field(init=False, default_factory=dict)
    _requests: set[str] = field(init=False, default_factory=set)

    async def intercept_service(
        self, continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler]], details: grpc.HandlerCallDetails
    ) -> Handler:
        """Return the method's handler with the guard around it."""
        if details.method in self._requests:
            self.queue.note_arrival()
        known = self._handlers.get(details.method)
        return known or self._guard_handler(details.method, await continuation(details))

    def _guard_handler(self, method: str, handler: Handler) -> Handler:
        streams = handler is not None and (handler.request_streaming or handler.response_streaming)
        if handler is None or (streams and method.startswith(_EXEMPT)):
            return handler
        # Without (de)serialisers of its own gRPC hands over bytes, so that a refused call is not parsed.
        guarded = self.guard_method(method, handler)
        self._handlers[method] = grpc.unary_unary_rpc_method_handler(guarded.call)
        if guarded.is_queued:
            self._requests.add(method)
        return self._handlers[method]

    def guard_method(self, method: str, handler: Handler, *, may_wait: bool = True) -> GuardedMethod:
        """Return a unary method, by its full name, behind the guard.

        Parameters
        ----------
        may_wait
            Whether its calls go through the queue if they are requests.
        """
        return GuardedMethod(self, method, handler, may_wait=may_wait)


class GuardedMethod:
    """One method behind the guard: bytes in, bytes out.

    Attributes
    ----------
    is_queued
        Whether its calls wait in the queue, and so begin one after the other.
    """

    def __init__(self, guard: CallGuard, full_name: str, handler: Handler, *, may_wait: bool) -> None:
        is_exempt = full_name.startswith(_EXEMPT)
        self._guard, self._full_name, self._handler = guard, full_name, handler
        _, self._service, self._method = full_name.split("/")
        self._rule = None if is_exempt else RULES[full_name]
        self._in_flight = CallsInFlight(limit=sys.maxsize, quotas=Quotas()) if is_exempt else guard.in_flight
        self._pool = CallPool.FEEDBACK if full_name in guard.feedback_methods else CallPool.REQUESTS
        self._rate = self._pool.rate
        self._to_its_end = not is_exempt and full_name not in guard.read_only_methods
        self.is_queued = may_wait and not is_exempt and self._pool is CallPool.REQUESTS
        self._is_passed_on = full_name in PASSED_ON and guard.peers.has_others
        self._respond = self._ask_owner if self._is_passed_on else self._answer_here

    async def call(self, payload: bytes, context: Context, call: Call | None = None) -> bytes:
        """Admit a call, run it, and report its outcome.

        Its ids are in its metadata where its server has not read them.
        """
        guard = self._guard
        started = guard.clock()
        call = call or call_of(context.invocation_metadata())
        call.worker = guard.peers.worker_header()
        token = CURRENT_CALL.set(call)
        guard.hooks.rpc_started(self._service, self._method)
        code = grpc.StatusCode.OK
        try:
            context.set_trailing_metadata(metadata_of(call))
            outcome: bytes | Failure | Admission | TopkBanditError = self._admit(context, len(payload))
            if isinstance(outcome, Admission):
                work = self._run(payload, context, outcome, call, started)
                outcome = await self._in_flight.run(work, self._pool, outcome, to_its_end=self._to_its_end)
            if isinstance(outcome, TopkBanditError):
                outcome = self._failure(outcome)
            if self._is_passed_on:
                call.worker = guard.peers.worker_header(call.resource)
                context.set_trailing_metadata(metadata_of(call))
            if isinstance(outcome, Failure):
                code = outcome.code
        except grpc.aio.AbortError:
            code = context.code()
            raise
        except asyncio.CancelledError:
            code = _code_of_cancellation(context.time_remaining(), elapsed=guard.clock() - started)
            raise
        finally:
            guard.hooks.rpc_handled(self._service, self._method, code.name, guard.clock() - started)
            CURRENT_CALL.reset(token)
        if isinstance(outcome, Failure):  # reported by now: who has the answer may stop the service, or read its counts
            rich = rpc_status.to_status(status(outcome))
            await context.abort(rich.code, rich.details, (*rich.trailing_metadata, *metadata_of(call)))
        return outcome

    def _admit(self, context: Context, size: int) -> Admission | TopkBanditError:
        """Return a call's admission before its message is parsed, or why it is refused."""
        guard = self._guard
        try:
            admission = guard.access.admit(self._full_name, self._rule, context)
        except (UnauthenticatedError, ForbiddenError) as error:
            return error
        if self._rule is not None and self._rule.scope is None and size > MOST_FROM_PEOPLE:
            text = f"a message of somebody with a link may have {MOST_FROM_PEOPLE} bytes"
            return ExhaustedError("MESSAGE_SIZE", text, retry_after=None)
        refusal = self._in_flight.refusal(Place(self._pool, admission.tenant))
        return refusal or guard.call_quotas.refusal(admission.tenant, self._rate) or admission

    async def _run(
        self, payload: bytes, context: Context, admission: Admission, call: Call, started: float
    ) -> bytes | Failure:
        """Return what becomes of an admitted call, and note it in the audit log."""
        outcome: bytes | Failure | None = None
        try:
            outcome = await self._answer(payload, context, admission, started)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            # Nobody cancelled this call, something inside it was: its client must not wait for an answer in vain.
            outcome = self._failure(error)
        except grpc.aio.AbortError:
            raise
        except Exception as error:  # noqa: BLE001, every error becomes a status here
            outcome = self._failure(error)
        finally:
            # The audit log has what was done, whether or not the client still waited for the answer.
            call.resource = admission.resource[:LONGEST_NAME]
            given_up = grpc.StatusCode.CANCELLED if outcome is None else grpc.StatusCode.OK
            admission.end((outcome.code if isinstance(outcome, Failure) else given_up).name)
        return outcome

    async def _answer(self, payload: bytes, context: Context, admission: Admission, started: float) -> bytes:
        """Wait for the call's turn, and answer it: here, or by the bandit's owner."""
        guard, clock = self._guard, self._guard.clock
        if self.is_queued:
            queued = clock()
            await guard.queue.wait(admission.tenant)
            # Its answer would come too late, and another call's would not.
            if _is_too_late(context.time_remaining(), waited=clock() - queued):
                raise no_place("others were before it, and its time is all but up")
        begun = clock()
        request = await do_aside(self._parse, payload)
        admission.permit(request)
        if self._rule is not None and self._rule.counted:
            guard.call_quotas.charge(admission.tenant, self._rate, self._rule.count(request) - 1)
        parsed = clock()
        response = await self._respond(request, context, admission)
        handled = clock()
        serialized: bytes = self._handler.response_serializer(response)
        guard.hooks.rpc_done(begun - started, parsed - begun + clock() - handled)
        return serialized

    def _parse(self, payload: bytes) -> Any:  # noqa: ANN401, a message of the method's own type
        try:
            return self._handler.request_deserializer(payload)
        except DecodeError as error:
            problem = f"is not the message that {self._method} takes, or holds text that is not UTF-8"
            raise InvalidArgumentError("request", problem) from error

    def _answer_here(self, request: Any, context: Context, admission: Admission) -> Awaitable[Any]:  # noqa: ANN401
        admission.has_begun = True
        answer: Awaitable[Any] = self._handler.unary_unary(request, context)
        return answer

    async def _ask_owner(self, request: Any, context: Context, admission: Admission) -> Any:  # noqa: ANN401, messages
        """Return what the bandit's owner answers, or this worker if no other is asked."""
        # The owner hears when the caller gives up, and knows whether it has begun; the audit log needs its answer.
        admission.has_begun = admission.is_audited
        return await self._guard.peers.answer(
            self._full_name, admission.resource, request, lambda: self._answer_here(request, context, admission)
        )

    def _failure(self, error: BaseException) -> Failure:
        if isinstance(error, PeerRefusedError):
            failure = error.failure
        else:
            failure = self._guard.failures.failure(error, call=self._full_name)
        if failure.quota:
            self._guard.hooks.quota_refused(failure.quota, failure.subject.removeprefix("tenants/"))
        return failure


def _is_too_late(remaining: float | None, *, waited: float) -> bool:
    """Return whether a call that has waited would be answered when its time is up; who has not waited gets a try."""
    return remaining is not None and remaining < min(waited, _LEAST_SECONDS)


def _code_of_cancellation(remaining: float | None, *, elapsed: float) -> grpc.StatusCode:
    """Return why a call's client stopped waiting: its deadline, if what remained of it is within the rounding."""
    if remaining is None or remaining > max(_DEADLINE_SLACK_SECONDS, _DEADLINE_SLACK_SHARE * (elapsed + remaining)):
        return grpc.StatusCode.CANCELLED
    return grpc.StatusCode.DEADLINE_EXCEEDED
