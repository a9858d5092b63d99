"""The gRPC server: services, health, reflection and TLS on one port, from start to drain."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from topk_bandit.domain.errors import ConfigurationError
from topk_bandit.rpc.services import DESCRIPTORS

if TYPE_CHECKING:
    from collections.abc import Callable

    from topk_bandit.rpc.services import Services
    from topk_bandit.rpc.tls import HandshakeCredentials, ServerCertificate

    Context = grpc.aio.ServicerContext[Any, Any]

__all__ = ["SERVICE_NAMES", "Server", "served_methods"]

SERVICE_NAMES = tuple(service.full_name for service in DESCRIPTORS)

_SERVING = health_pb2.HealthCheckResponse.SERVING
_NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
_NOTICE_SECONDS = 0.05
_SETTLE_SECONDS = 1.0
HANDSHAKE_SECONDS = 5
LEAST_STREAMS = 2000
"""As many calls as come at once on a connection are refused with a reason; gRPC itself refuses more without one."""


def served_methods() -> frozenset[tuple[str, str]]:
    """Return every method of our services and of the health service, as (service, method) pairs."""
    services = (*DESCRIPTORS, *health_pb2.DESCRIPTOR.services_by_name.values())
    return frozenset((service.full_name, method.name) for service in services for method in service.methods)


def _credentials(certificate: ServerCertificate) -> grpc.ServerCredentials:
    """Return credentials that follow a certificate: gRPC asks for the newest at each handshake."""
    given = certificate.shown

    def newer() -> grpc.ServerCertificateConfiguration | None:
        nonlocal given
        before, given = given, certificate.shown
        # A new configuration resumes no session of before: nobody would look at the caller's certificate again.
        return None if given is before and given.client_roots is None else _configuration(given)

    return grpc.dynamic_ssl_server_credentials(
        _configuration(given),
        newer,  # type: ignore[arg-type]  # None: no newer one
        require_client_authentication=given.client_roots is not None,
    )


def _configuration(shown: HandshakeCredentials) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration([shown.pair], shown.client_roots)


class Server:
    """One gRPC server; lives on the event loop that it is made on.

    Parameters
    ----------
    address
        ``host:port``, port 0 for a free one, or ``unix:path``.
    services
        What is served.
    max_message_bytes
        Largest request accepted and response sent. The largest that the limits of the fields allow, 1,000 questions of
        12 ids of 128 four-byte characters, has 6.7 MB.
    max_connections
        How many connections may be open; further ones are closed at once.
    tls
        None serves plain text.
    so_reuseport
        Whether other processes may listen on the same port, each getting a share of the connections.
    """

    def __init__(
        self,
        address: str,
        *,
        services: Services,
        max_message_bytes: int,
        max_connections: int,
        tls: ServerCertificate | None = None,
        so_reuseport: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._address = address
        self._tls = tls
        self._clock = clock
        self._in_flight = services.guard.in_flight
        options = [
            ("grpc.so_reuseport", int(so_reuseport)),
            *_sizes(max_in_flight=services.max_in_flight, max_message_bytes=max_message_bytes),
            *_connections(max_connections=max_connections),
        ]
        self._server = grpc.aio.server(interceptors=[services.guard], options=options)
        self._health = _Health()
        services.add_to(self._server)
        self._register_health()

    def _register_health(self) -> None:
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        names = (*SERVICE_NAMES, health.SERVICE_NAME, reflection.SERVICE_NAME)
        reflection.enable_server_reflection(names, self._server)

    async def start(self) -> int:
        """Listen, serve, and say so; return the port.

        Raises
        ------
        ConfigurationError
            The address can't be listened on.
        """
        await self.set_serving(False)
        port = self._bind()
        await self._server.start()
        await self.set_serving(True)
        return port

    def _bind(self) -> int:
        try:
            if self._tls is None:
                return self._server.add_insecure_port(self._address)
            return self._server.add_secure_port(self._address, _credentials(self._tls))
        except RuntimeError as error:
            raise ConfigurationError(f"can't listen on {self._address}: {error}") from error

    async def set_serving(self, serving: bool, /) -> None:  # noqa: FBT001, it is what is set
        """Set what health checks answer: whether to send calls here; calls are answered either way."""
        for service in ("", *SERVICE_NAMES):
            await self._health.set(service, _SERVING if serving else _NOT_SERVING)

    async def drain(self, grace: float) -> None:
        """Say NOT_SERVING, refuse more calls, let those under way finish within `grace` seconds, and stop.

        Calls that are not finished then are answered with UNAVAILABLE. What they had begun to write is given a second
        more. A call that arrives while gRPC reports to its client that the connection ends is cancelled by gRPC.
        """
        deadline = self._clock() + grace
        self._in_flight.close()
        await self._health.enter_graceful_shutdown()
        await self._health.end_watches()
        await asyncio.sleep(min(grace, _NOTICE_SECONDS))
        stopping = asyncio.create_task(self._server.stop(grace + _SETTLE_SECONDS))
        await self._in_flight.finish(timeout=max(deadline - self._clock(), 0.0))
        await stopping
        await self._in_flight.settle(timeout=max(deadline - self._clock(), _SETTLE_SECONDS))


def _sizes(*, max_in_flight: int, max_message_bytes: int) -> list[tuple[str, int]]:
    return [
        ("grpc.max_receive_message_length", max_message_bytes),
        ("grpc.max_send_message_length", max_message_bytes),
        # Many more streams than calls in flight: a call beyond those is refused here, with a delay for another try.
        ("grpc.max_concurrent_streams", max(LEAST_STREAMS, 3 * max_in_flight)),
    ]


def _connections(*, max_connections: int) -> list[tuple[str, int]]:
    return [
        ("grpc.max_allowed_incoming_connections", max_connections),
        # Who connects must say what HTTP/2 and TLS begin with, and acknowledge our settings.
        ("grpc.server_handshake_timeout_ms", HANDSHAKE_SECONDS * 1000),
        ("grpc.http2.settings_timeout", HANDSHAKE_SECONDS * 1000),
        ("grpc.max_connection_idle_ms", 5 * 60_000),
        ("grpc.keepalive_time_ms", 60_000),
        ("grpc.keepalive_timeout_ms", 20_000),
        ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
        ("grpc.keepalive_permit_without_calls", 1),
        # Connections are renewed now and then, so that they spread over workers and replicas that were added later.
        ("grpc.max_connection_age_ms", 10 * 60_000),
        ("grpc.max_connection_age_grace_ms", 60_000),
    ]


class _Health(health.aio.HealthServicer):  # type: ignore[misc, name-defined]  # unknown to its stubs
    """Health whose watches end with a drain instead of holding it up."""

    def __init__(self) -> None:
        super().__init__()
        self._watches: set[asyncio.Task[None]] = set()

    async def Watch(self, request: health_pb2.HealthCheckRequest, context: Context) -> None:  # noqa: N802
        watch = asyncio.create_task(super().Watch(request, context))
        self._watches.add(watch)
        try:
            await asyncio.wait({watch})
        finally:
            watch.cancel()
            self._watches.discard(watch)

    async def end_watches(self) -> None:
        """Give the last status a moment to be sent, then end all watches."""
        if self._watches:
            await asyncio.sleep(_NOTICE_SECONDS)
        for watch in self._watches:
            watch.cancel()
