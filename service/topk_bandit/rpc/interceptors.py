"""The guard around each call: it counts the call, admits or refuses it, lets it finish, and turns errors into statuses.

One interceptor does all of it, because each layer costs every call an await. Who calls is looked at first, so that
strangers take no place among the calls in flight. The services under ``grpc.``, which are health and reflection, are
never refused; their streams pass by and are not counted. Other services have none.
"""

from __future__ import annotations

import asyncio
import sys
import time
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

import grpc
from google.protobuf.message import DecodeError
from grpc_status import rpc_status

from topk_bandit.domain.calls import CURRENT_CALL
from topk_bandit.domain.errors import (
    ForbiddenError,
    InvalidArgumentError,
    QuotaError,
    UnauthenticatedError,
    UnavailableError,
)
from topk_bandit.domain.quotas import Quotas
from topk_bandit.rpc.access import LONGEST_NAME, RULES
from topk_bandit.rpc.aside import do_aside
from topk_bandit.rpc.call_ids import call_of, metadata_of
from topk_bandit.rpc.calls_in_flight import CallPool, CallsInFlight, Place, no_place
from topk_bandit.rpc.failures import Failure, status
from topk_bandit.rpc.peers import PASSED_ON, PeerRefusedError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from topk_bandit.domain.calls import Call
    from topk_bandit.rpc.access import Access, Admission, Rule
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


class CallGuard(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]  # not subscriptable at run time
    """Stands around each unary call.

    A call that may write is run to its end once it has begun, whether or not its client still waits: nothing is left
    half done. It holds its place among the calls in flight until then.

    Parameters
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

    def __init__(
        self,
        *,
        hooks: RpcHooks,
        failures: FailureReporter,
        access: Access,
        call_quotas: CallQuotas,
        in_flight: CallsInFlight,
        peers: Peers,
        queue: FairQueue,
        feedback_methods: frozenset[str],
        read_only_methods: frozenset[str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.hooks = hooks
        self.failures = failures
        self.access = access
        self.call_quotas = call_quotas
        self.in_flight = in_flight
        self.peers = peers
        self.clock = clock
        self.queue = queue
        self._exempt = CallsInFlight(limit=sys.maxsize, quotas=Quotas())
        self._feedback_methods = feedback_methods
        self._read_only_methods = read_only_methods
        self._handlers: dict[str, Handler] = {}
        self._requests: set[str] = set()

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
        exempt = method.startswith(_EXEMPT)
        return GuardedMethod(
            self,
            method,
            handler,
            rule=None if exempt else RULES[method],
            in_flight=self._exempt if exempt else self.in_flight,
            pool=CallPool.FEEDBACK if method in self._feedback_methods else CallPool.REQUESTS,
            to_its_end=not exempt and method not in self._read_only_methods,
            may_wait=may_wait,
        )


class GuardedMethod:
    """One method behind the guard: bytes in, bytes out.

    Attributes
    ----------
    is_queued
        Whether its calls wait in the queue, and so begin one after the other.
    """

    def __init__(
        self,
        guard: CallGuard,
        full_name: str,
        handler: Handler,
        *,
        rule: Rule | None,
        in_flight: CallsInFlight,
        pool: CallPool,
        to_its_end: bool,
        may_wait: bool,
    ) -> None:
        self._guard = guard
        self._full_name = full_name
        _, self._service, self._method = full_name.split("/")
        self._handler = handler
        self._rule = rule
        self._in_flight = in_flight
        self._pool = pool
        self._to_its_end = to_its_end
        self.is_queued = may_wait and rule is not None and pool is CallPool.REQUESTS
        self._is_passed_on = full_name in PASSED_ON

    async def call(self, payload: bytes, context: Context, call: Call | None = None) -> bytes:
        """Answer one call, whose ids are in its metadata where its server has not read them."""
        guard = self._guard
        started = guard.clock()
        call = call or call_of(context.invocation_metadata())
        call.worker = guard.peers.worker_header()
        token = CURRENT_CALL.set(call)
        guard.hooks.rpc_started(self._service, self._method)
        code = grpc.StatusCode.OK
        try:
            context.set_trailing_metadata(metadata_of(call))
            outcome = await self._outcome(payload, context, started, call)
            if self._is_passed_on and call.worker:
                call.worker = guard.peers.worker_header(call.resource)
                context.set_trailing_metadata(metadata_of(call))
            if isinstance(outcome, Failure):
                await _abort(context, outcome, call)
        except grpc.aio.AbortError:
            code = context.code()
            raise
        except asyncio.CancelledError:
            code = _code_of_cancellation(context.time_remaining(), elapsed=guard.clock() - started)
            raise
        finally:
            guard.hooks.rpc_handled(self._service, self._method, code.name, guard.clock() - started)
            CURRENT_CALL.reset(token)
        return outcome

    async def _outcome(self, payload: bytes, context: Context, started: float, call: Call) -> bytes | Failure:
        try:
            admission = self._guard.access.admit(self._full_name, self._rule, context)
        except (UnauthenticatedError, ForbiddenError) as error:
            return self._failure(error)
        place = Place(self._pool, admission.tenant)
        refusal = self._in_flight.refusal(place) or self._beyond_rate(admission.tenant)
        if refusal is not None:
            return self._failure(refusal)
        try:
            work = self._work(payload, context, admission, started, call)
            return await self._in_flight.run(work, place, admission, to_its_end=self._to_its_end)
        except UnavailableError as error:
            return self._failure(error)

    def _beyond_rate(self, tenant: str) -> QuotaError | None:
        return self._guard.call_quotas.refusal(tenant, self._pool.rate) if tenant else None

    async def _work(
        self, payload: bytes, context: Context, admission: Admission, started: float, call: Call
    ) -> bytes | Failure:
        outcome: bytes | Failure | None = None
        try:
            outcome = await self._answer_call(payload, context, admission, started)
        finally:
            # The audit log has what was done, whether or not the client still waited for the answer.
            call.resource = admission.resource[:LONGEST_NAME]
            given_up = grpc.StatusCode.CANCELLED if outcome is None else grpc.StatusCode.OK
            admission.end((outcome.code if isinstance(outcome, Failure) else given_up).name)
        return outcome

    async def _answer_call(
        self, payload: bytes, context: Context, admission: Admission, started: float
    ) -> bytes | Failure:
        try:
            return await self._handle_request(payload, context, admission, started)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            # Nobody cancelled this call, something inside it was: its client must not wait for an answer in vain.
            return self._failure(error)
        except grpc.aio.AbortError:
            raise
        except Exception as error:  # noqa: BLE001, every error becomes a status here
            return self._failure(error)

    async def _handle_request(self, payload: bytes, context: Context, admission: Admission, started: float) -> bytes:
        clock = self._guard.clock
        if self.is_queued:
            await self._wait_in_queue(context, admission.tenant)
        begun = clock()
        request = await self._parse_request(payload)
        admission.permit(request)
        parsed = clock()
        response = await self._respond(request, context, admission)
        handled = clock()
        serialized: bytes = self._handler.response_serializer(response)
        self._guard.hooks.rpc_done(begun - started, parsed - begun + clock() - handled)
        return serialized

    async def _wait_in_queue(self, context: Context, tenant: str) -> None:
        """Wait until the call may begin, unless its answer would come too late then: somebody else's does not."""
        clock = self._guard.clock
        began = clock()
        await self._guard.queue.wait(tenant)
        if _is_too_late(context.time_remaining(), waited=clock() - began):
            raise no_place("others were before it, and its time is all but up")

    async def _respond(self, request: Any, context: Context, admission: Admission) -> Any:  # noqa: ANN401, messages
        """Return what the bandit's owner answers, or this worker if no other is asked."""
        if not self._is_passed_on:
            admission.has_begun = True
            return await self._handler.unary_unary(request, context)
        # The owner hears when the caller gives up, and knows whether it has begun; the audit log needs its answer.
        admission.has_begun = admission.is_audited
        peers, bandit = self._guard.peers, admission.resource
        answer = await peers.ask(self._full_name, bandit, request)
        if answer is not None:
            return answer
        admission.has_begun = True
        return await peers.answer_here(bandit, self._handler.unary_unary(request, context))

    def _failure(self, error: BaseException) -> Failure:
        if isinstance(error, PeerRefusedError):
            failure = error.failure
        else:
            failure = self._guard.failures.failure(error, call=self._full_name)
        if failure.quota:
            self._guard.hooks.quota_refused(failure.quota, failure.subject.removeprefix("tenants/"))
        return failure

    async def _parse_request(self, payload: bytes) -> Any:  # noqa: ANN401, a message of the method's own type
        try:
            return await do_aside(self._handler.request_deserializer, payload)
        except DecodeError as error:
            problem = f"is not the message that {self._method} takes, or holds text that is not UTF-8"
            raise InvalidArgumentError("request", problem) from error


async def _abort(context: Context, failure: Failure, call: Call) -> NoReturn:
    rich = rpc_status.to_status(status(failure))
    await context.abort(rich.code, rich.details, (*rich.trailing_metadata, *metadata_of(call)))


def _is_too_late(remaining: float | None, *, waited: float) -> bool:
    """Return whether a call that has waited would be answered when its time is up; who has not waited gets a try."""
    return remaining is not None and remaining < min(waited, _LEAST_SECONDS)


def _code_of_cancellation(remaining: float | None, *, elapsed: float) -> grpc.StatusCode:
    """Return why a call's client stopped waiting: its deadline, if what remained of it is within the rounding."""
    if remaining is None or remaining > max(_DEADLINE_SLACK_SECONDS, _DEADLINE_SLACK_SHARE * (elapsed + remaining)):
        return grpc.StatusCode.CANCELLED
    return grpc.StatusCode.DEADLINE_EXCEEDED
