"""All services of a worker behind one guard, for whichever server a call comes through.

All servers share the limit of calls in flight, the telemetry and the log of failures.
"""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING, Any, NamedTuple

from google.longrunning import operations_pb2
from google.longrunning.operations_pb2_grpc import add_OperationsServicer_to_server

from topk_bandit.rpc.call_quotas import CallQuotas
from topk_bandit.rpc.calls_in_flight import CallsInFlight
from topk_bandit.rpc.failures import FailureReporter
from topk_bandit.rpc.fair_queue import FairQueue
from topk_bandit.rpc.interceptors import CallGuard
from topk_bandit.rpc.operator_servicer import READ_ONLY_OPERATOR_METHODS, OperatorServicer
from topk_bandit.rpc.peers import ALONE
from topk_bandit.rpc.preference_servicer import READ_ONLY_STUDY_METHODS, OperationsServicer, PreferenceServicer
from topk_bandit.rpc.servicers import FEEDBACK_METHODS, READ_ONLY_METHODS, BanditServicer, RecommenderServicer
from topk_bandit.v1 import bandit_service_pb2, operator_service_pb2, preference_service_pb2, recommender_service_pb2
from topk_bandit.v1.bandit_service_pb2_grpc import add_BanditServiceServicer_to_server
from topk_bandit.v1.operator_service_pb2_grpc import add_OperatorServiceServicer_to_server
from topk_bandit.v1.preference_service_pb2_grpc import add_PreferenceServiceServicer_to_server
from topk_bandit.v1.recommender_service_pb2_grpc import add_RecommenderServiceServicer_to_server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    import grpc

    from topk_bandit.bandits.administration import Bandits
    from topk_bandit.bandits.operators import Operators
    from topk_bandit.bandits.recommender import Recommender
    from topk_bandit.domain.quotas import Quotas
    from topk_bandit.rpc.access import Access
    from topk_bandit.rpc.interceptors import Handler, RpcHooks
    from topk_bandit.rpc.peers import Peers
    from topk_bandit.studies.administration import Studies

__all__ = ["DESCRIPTORS", "Services"]

DESCRIPTORS = tuple(
    service
    for module in (
        recommender_service_pb2,
        bandit_service_pb2,
        preference_service_pb2,
        operator_service_pb2,
        operations_pb2,
    )
    for service in module.DESCRIPTOR.services_by_name.values()
)
"""What describes each service on the wire."""

_WAITING_SHARE = 4
"""At most one in so many of the calls in flight may wait for a design."""


class Services:
    """The services of a worker, and the guard around their calls.

    Parameters
    ----------
    access
        Decides who may call.
    quotas
        What calls a tenant may send.
    max_in_flight
        How many calls may be under way, beside as many that report what became of slates; further ones are refused.
    peers
        The other workers of the service, some of which own bandits.
    queue
        Orders the requests; None for a queue of these services alone.
    new_reference
        Makes a reference under which an internal failure is logged.
    clock
        Seconds, monotonic.

    Attributes
    ----------
    guard
        What each call of each server passes.
    max_in_flight
        As above.
    """

    def __init__(
        self,
        recommender: Recommender,
        bandits: Bandits,
        studies: Studies,
        operators: Operators,
        *,
        hooks: RpcHooks,
        access: Access,
        quotas: Quotas,
        max_in_flight: int,
        peers: Peers = ALONE,
        queue: FairQueue | None = None,
        new_reference: Callable[[], str] = lambda: uuid.uuid4().hex,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        failures = FailureReporter(new_reference=new_reference)
        self.max_in_flight = max_in_flight
        self.guard = CallGuard(
            hooks=hooks,
            failures=failures,
            access=access,
            call_quotas=CallQuotas(quotas, clock=clock),
            in_flight=CallsInFlight(limit=max_in_flight, quotas=quotas, clock=clock),
            peers=peers,
            queue=queue or FairQueue(clock=clock),
            feedback_methods=FEEDBACK_METHODS,
            read_only_methods=READ_ONLY_METHODS | READ_ONLY_STUDY_METHODS | READ_ONLY_OPERATOR_METHODS,
            clock=clock,
        )
        self._recommender = RecommenderServicer(recommender, failures=failures, peers=peers)
        self._bandits = BanditServicer(bandits)
        self._studies = PreferenceServicer(studies, failures=failures, call_quotas=self.guard.call_quotas)
        self._operators = OperatorServicer(operators, peers)
        self._operations = OperationsServicer(studies, most_waiting=max(1, max_in_flight // _WAITING_SHARE))

    def add_to(self, server: Any) -> None:  # noqa: ANN401 - a gRPC server, or what collects handlers like one
        """Register all services with a server."""
        add_RecommenderServiceServicer_to_server(self._recommender, server)
        add_BanditServiceServicer_to_server(self._bandits, server)
        add_PreferenceServiceServicer_to_server(self._studies, server)
        add_OperatorServiceServicer_to_server(self._operators, server)
        add_OperationsServicer_to_server(self._operations, server)

    def handlers(self) -> Mapping[str, Handler]:
        """Return the handler of each method by its full name, ``/package.Service/Method``."""
        collected = _Collector()
        self.add_to(collected)
        paths = [f"/{service.full_name}/{method.name}" for service in DESCRIPTORS for method in service.methods]
        return {path: collected.find(path) for path in paths}


class _Details(NamedTuple):
    """What a handler is found by, as `grpc.HandlerCallDetails` has it."""

    method: str
    invocation_metadata: tuple[tuple[str, str], ...] = ()


class _Collector:
    """Takes in handlers as a gRPC server does."""

    def __init__(self) -> None:
        self._of_services: list[grpc.GenericRpcHandler[Any, Any]] = []

    def add_generic_rpc_handlers(self, handlers: Iterable[grpc.GenericRpcHandler[Any, Any]]) -> None:
        """Take in what finds a service's methods."""
        self._of_services.extend(handlers)

    def add_registered_method_handlers(self, _service: str, _handlers: object) -> None:
        """Leave the same methods once more: not all generated code gives them."""

    def find(self, path: str) -> Handler:
        """Return the handler of a method that one of the services has."""
        details: Any = _Details(path)
        return next(found for one in self._of_services if (found := one.service(details)) is not None)
