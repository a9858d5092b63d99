"""Spans of calls, sent by OTLP over HTTP: what the metrics sum up, of each call by itself.

No other module knows OpenTelemetry, and this one is imported only where traces are asked for. OpenTelemetry's variables
say where spans are sent, which are sampled, and how many wait at most; a collector that is away costs no call anything
but its spans. A call is a span under its caller's, and what is measured of it are spans under that. Folding that no
call waits for is a trace of its own; other work without a call makes no spans.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from contextvars import ContextVar
from importlib.metadata import version
from typing import TYPE_CHECKING, NamedTuple

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http import trace_exporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import (
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    format_span_id,
    format_trace_id,
    set_span_in_context,
)

from topk_bandit.domain.calls import CURRENT_CALL, SpanIds
from topk_bandit.domain.errors import ConfigurationError
from topk_bandit.process.metrics import Metrics
from topk_bandit.rpc.unheard_calls import UnheardCalls

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.util.types import AttributeValue
    from prometheus_client import CollectorRegistry

    from topk_bandit.domain.slates import Recommendation
    from topk_bandit.rpc.interceptors import RpcHooks

__all__ = ["TracingMetrics"]

_log = logging.getLogger(__name__)

FLUSH_SECONDS = 3.0
"""How long the end of a worker waits for its last spans to be sent."""

_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_PROTOCOL = "http/protobuf"
_EXEMPT = "grpc."
_OWNER = "owner"
_FAILED = frozenset({"UNKNOWN", "DEADLINE_EXCEEDED", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS"})
"""Codes that are failures of a server, as OpenTelemetry's conventions have it."""


class _Served(NamedTuple):
    """The span of a call, and when it began, in nanoseconds."""

    span: Span
    begun: int


_SERVED: ContextVar[_Served | None] = ContextVar("_SERVED", default=None)


class TracingMetrics(Metrics):
    """Hooks that count, and make spans of what they receive.

    Raises
    ------
    ConfigurationError
        A variable of OpenTelemetry asks for a protocol that spans are not sent by.
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        *,
        methods: Iterable[tuple[str, str]],
        tenants: Sequence[str] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(registry, methods=methods, tenants=tenants, clock=clock)
        _check_protocol(os.environ)
        self._exporter = _Exporter()
        self._provider = TracerProvider(resource=_resource(), shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(self._exporter))
        self._tracer = self._provider.get_tracer("topk_bandit", version("topk-bandit"))

    def close(self) -> None:
        """Send what is left, if the collector takes it soon."""
        sending = threading.Thread(target=self._provider.shutdown, daemon=True)
        sending.start()
        sending.join(FLUSH_SECONDS)
        self._exporter.shutdown()

    def rpc_started(self, service: str, method: str) -> None:
        """Count a call, and begin its span; probes have none."""
        super().rpc_started(service, method)
        if not service.startswith(_EXEMPT):
            self.begin_span(f"{service}/{method}", {"rpc.method": f"{service}/{method}"}, kind=SpanKind.SERVER)

    def begin_span(self, name: str, attributes: Mapping[str, AttributeValue], *, kind: SpanKind) -> None:
        """Begin the span of the current call, under its caller's."""
        call = CURRENT_CALL.get()
        if call is None:
            return
        begun = time.time_ns()
        span = self._tracer.start_span(
            name,
            context=_context_of(call.parent),
            kind=kind,
            attributes={**attributes, "topk_bandit.request_id": call.request_id},
            start_time=begun,
        )
        ids = span.get_span_context()
        call.span = SpanIds(format_trace_id(ids.trace_id), format_span_id(ids.span_id), sampled=ids.trace_flags.sampled)
        _SERVED.set(_Served(span, begun))

    def rpc_handled(self, service: str, method: str, code: str, seconds: float) -> None:
        """Count how a call ended, and end its span."""
        super().rpc_handled(service, method, code, seconds)
        self.end_span(code)

    def end_span(self, code: str) -> None:
        """End the span of the current call, if it has one."""
        served, call = _SERVED.get(), CURRENT_CALL.get()
        if served is None:
            return
        _SERVED.set(None)
        served.span.set_attribute("rpc.response.status_code", code)
        if call is not None and call.resource:
            served.span.set_attribute("topk_bandit.resource", call.resource)
        if code in _FAILED:
            served.span.set_status(Status(StatusCode.ERROR))
        served.span.end()

    def for_peers(self) -> RpcHooks:
        """Return hooks of calls that other workers pass on: those have counted them, and each has a span here."""
        return _OwnersCalls(self)

    def rpc_done(self, queue_seconds: float, encode_seconds: float) -> None:
        """Note how long a call waited in the queue."""
        super().rpc_done(queue_seconds, encode_seconds)
        served = _SERVED.get()
        if served is not None:
            self._add(served, "queue", queue_seconds, end=served.begun + _nanoseconds(queue_seconds))

    def decided(self, recommendation: Recommendation, seconds: float) -> None:
        """Note a decision."""
        super().decided(recommendation, seconds)
        served = _SERVED.get()
        if served is not None and served.span.is_recording():
            attributes: dict[str, AttributeValue] = {
                "topk_bandit.recommendation_id": recommendation.recommendation_id,
                "topk_bandit.model_version": recommendation.model_version,
                "topk_bandit.explored": recommendation.explored,
            }
            self._add(served, "decide", seconds, attributes=attributes)

    def store_called(self, operation: str, seconds: float, *, failed: bool) -> None:
        """Note a call of the store."""
        super().store_called(operation, seconds, failed=failed)
        served = _SERVED.get()
        if served is not None:
            attributes = {"db.system.name": "redis", "db.operation.name": operation}
            self._add(served, f"store {operation}", seconds, attributes=attributes, kind=SpanKind.CLIENT, failed=failed)

    def folded(self, events: int, seconds: float) -> None:
        """Note that a part of a log was folded, for a call or for none."""
        super().folded(events, seconds)
        self._add(_SERVED.get(), "fold", seconds, attributes={"topk_bandit.events": events})

    def _add(
        self,
        served: _Served | None,
        name: str,
        seconds: float,
        *,
        end: int | None = None,
        attributes: Mapping[str, AttributeValue] | None = None,
        kind: SpanKind = SpanKind.INTERNAL,
        failed: bool = False,
    ) -> None:
        """Make a span of what has taken so long, until `end` or until now."""
        if served is not None and not served.span.is_recording():
            return
        ended = time.time_ns() if end is None else end
        span = self._tracer.start_span(
            name,
            context=Context() if served is None else set_span_in_context(served.span, Context()),
            kind=kind,
            attributes=attributes,
            start_time=ended - _nanoseconds(seconds),
        )
        if failed:
            span.set_status(Status(StatusCode.ERROR))
        span.end(end_time=ended)


class _OwnersCalls(UnheardCalls):
    """Hooks that make the span `owner` of a call that was passed on, for what is done for it to be under."""

    def __init__(self, tracing: TracingMetrics) -> None:
        self._tracing = tracing

    def rpc_started(self, service: str, method: str) -> None:  # noqa: ARG002, the span above has them
        """Begin its span."""
        self._tracing.begin_span(_OWNER, {}, kind=SpanKind.INTERNAL)

    def rpc_handled(self, service: str, method: str, code: str, seconds: float) -> None:  # noqa: ARG002
        """End its span."""
        self._tracing.end_span(code)


def _nanoseconds(seconds: float) -> int:
    return round(seconds * 1e9)


def _context_of(parent: SpanIds | None) -> Context:
    """Return what a span is made in: under a caller's, or under none."""
    if parent is None:
        return Context()
    flags = TraceFlags(TraceFlags.SAMPLED if parent.sampled else TraceFlags.DEFAULT)
    remote = SpanContext(int(parent.trace_id, 16), int(parent.span_id, 16), is_remote=True, trace_flags=flags)
    return set_span_in_context(NonRecordingSpan(remote), Context())


def _resource() -> Resource:
    """Return the attributes that identify this service; those from variables go first."""
    ours = Resource.create({"service.name": "topk-bandit", "service.version": version("topk-bandit")})
    return ours.merge(OTELResourceDetector().detect())


def _check_protocol(environ: Mapping[str, str]) -> None:
    variable = next((name for name in _PROTOCOLS if environ.get(name)), None)
    if variable is not None and environ[variable] != _PROTOCOL:
        raise ConfigurationError(f"variable {variable}: {environ[variable]!r} is not {_PROTOCOL}")


class _Exporter(SpanExporter):
    """Sends spans, and logs once when that begins to fail and once when it works again.

    The library would log each try.
    """

    def __init__(self) -> None:
        self._sender = OTLPSpanExporter()
        self._failing = False
        self._reason = ""
        self._closed = False
        logging.getLogger(trace_exporter.__name__).addFilter(self._hear)

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send spans; what can't be sent is lost."""
        self._reason = ""
        result = self._sender.export(spans)
        failed = result is not SpanExportResult.SUCCESS
        if failed and not self._failing:
            _log.warning("spans can't be sent and are lost until they can: %s", self._reason)
        elif self._failing and not failed:
            _log.warning("spans are sent again")
        self._failing = failed
        return result

    def shutdown(self) -> None:
        """Give up what is being sent."""
        if not self._closed:
            self._closed = True
            self._sender.shutdown()  # type: ignore[no-untyped-call]

    def _hear(self, record: logging.LogRecord) -> bool:
        """Keep the first reason of a failure, and let no record pass."""
        self._reason = self._reason or record.getMessage()
        return False
