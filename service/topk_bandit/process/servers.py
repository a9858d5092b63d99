"""The servers of a worker: gRPC, HTTP and the console where they are wanted, and the one for its peers."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, NamedTuple

from topk_bandit.domain.hosts import is_loopback
from topk_bandit.process.descriptors import most_connections
from topk_bandit.rpc.http_interfaces import CALLS, CALLS_AND_PAGE, CONSOLE, CONSOLE_WITH_CHANGES
from topk_bandit.rpc.http_server import HttpServer
from topk_bandit.rpc.peer_server import PeerServer
from topk_bandit.rpc.server import Server

if TYPE_CHECKING:
    from topk_bandit.process.settings import Settings
    from topk_bandit.process.worker_spec import WorkerSpec
    from topk_bandit.rpc.services import Services
    from topk_bandit.rpc.tls import ServerCertificate

__all__ = ["Servers"]

PEER_DRAIN_SECONDS = 1.5
"""How much longer a draining worker waits for calls of its peers than for those of its own callers.

All workers drain together. A peer answers itself what this worker gives up, but by then nobody waits there.
"""


class Servers(NamedTuple):
    """The servers of a worker.

    Attributes
    ----------
    for_peers
        None where there is one worker.
    """

    grpc: Server
    over_http: tuple[HttpServer, ...]
    for_peers: PeerServer | None

    @classmethod
    def of(
        cls,
        settings: Settings,
        spec: WorkerSpec,
        services: Services,
        for_peers: Services,
        *,
        certificate: ServerCertificate | None,
    ) -> Servers:
        """Return the servers of these services; they are not started."""
        console = CONSOLE_WITH_CHANGES if settings.knows_callers else CONSOLE
        calls = CALLS_AND_PAGE if settings.answer_links else CALLS
        addresses = {spec.http_address: calls, spec.console_address: console}
        interfaces = {address: interface for address, interface in addresses.items() if address}
        connections = most_connections() // (1 + len(interfaces))
        grpc = Server(
            spec.address,
            services=services,
            max_message_bytes=settings.max_message_bytes,
            max_connections=connections,
            tls=certificate,
            so_reuseport=True,
        )
        over_http = (
            HttpServer(
                address,
                services=services,
                interface=interface,
                max_message_bytes=settings.max_message_bytes,
                max_connections=connections,
                origins=settings.http_origins if interface is calls else (),
                only_loopback=not settings.knows_callers and is_loopback(address),
                tls=certificate,
                reuse_port=True,
            )
            for address, interface in interfaces.items()
        )
        return cls(grpc, tuple(over_http), _for_peers(spec, for_peers))

    async def start(self) -> None:
        """Listen, at the socket for peers first: they may ask as soon as one of the others does."""
        if self.for_peers is not None:
            await self.for_peers.start()
        for one in self.over_http:
            await one.start()
        await self.grpc.start()

    async def drain(self, seconds: float) -> None:
        """Let the calls of all listeners end within the same seconds, and then those of peers."""
        last = time.monotonic() + seconds + PEER_DRAIN_SECONDS
        await asyncio.gather(self.grpc.drain(seconds), *(one.drain(seconds) for one in self.over_http))
        if self.for_peers is not None:
            await self.for_peers.drain(max(last - time.monotonic(), 0.0))


def _for_peers(spec: WorkerSpec, services: Services) -> PeerServer | None:
    """Return the server at this worker's own socket, if it has peers."""
    return PeerServer(spec.peer_paths[spec.number - 1], services=services) if spec.peer_paths else None
