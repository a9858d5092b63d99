"""The doors of a worker: gRPC, HTTP and the console where they are wanted, and the one that siblings ask at."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from topk_bandit.domain.hosts import is_loopback
from topk_bandit.process.descriptors import most_connections
from topk_bandit.rpc.faces import CALLS, CONSOLE
from topk_bandit.rpc.http_server import HttpServer
from topk_bandit.rpc.server import Server
from topk_bandit.rpc.sibling_door import SiblingDoor

if TYPE_CHECKING:
    from topk_bandit.process.settings import Settings
    from topk_bandit.process.worker_spec import WorkerSpec
    from topk_bandit.rpc.services import Services
    from topk_bandit.rpc.tls import ServerCertificate

__all__ = ["Servers"]

SIBLING_DRAIN_SECONDS = 0.5
"""What is left of a sibling's calls then is answered by itself."""


class Servers(NamedTuple):
    """The servers of a worker.

    Attributes
    ----------
    for_siblings
        None where there is one worker.
    """

    grpc: Server
    over_http: tuple[HttpServer, ...]
    for_siblings: SiblingDoor | None

    @classmethod
    def of(
        cls,
        settings: Settings,
        spec: WorkerSpec,
        services: Services,
        for_siblings: Services,
        *,
        certificate: ServerCertificate | None,
    ) -> Servers:
        """Return the servers of these services; they are not started."""
        addresses = {spec.http_address: CALLS, spec.console_address: CONSOLE}
        faces = {address: face for address, face in addresses.items() if address}
        connections = most_connections() // (1 + len(faces))
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
                face=face,
                max_message_bytes=settings.max_message_bytes,
                max_connections=connections,
                origins=settings.http_origins if face is CALLS else (),
                only_loopback=not settings.knows_callers and is_loopback(address),
                tls=certificate,
                reuse_port=True,
            )
            for address, face in faces.items()
        )
        return cls(grpc, tuple(over_http), _for_siblings(spec, for_siblings))

    async def start(self) -> None:
        """Listen, at the socket for siblings first: they may ask as soon as one of the others does."""
        if self.for_siblings is not None:
            await self.for_siblings.start()
        for one in self.over_http:
            await one.start()
        await self.grpc.start()

    async def drain(self, seconds: float) -> None:
        """Let the calls of all doors end within the same seconds, and then those of siblings."""
        await asyncio.gather(self.grpc.drain(seconds), *(one.drain(seconds) for one in self.over_http))
        if self.for_siblings is not None:
            await self.for_siblings.drain(SIBLING_DRAIN_SECONDS)


def _for_siblings(spec: WorkerSpec, services: Services) -> SiblingDoor | None:
    """Return the door at this worker's own socket, if it has siblings."""
    return SiblingDoor(spec.sibling_paths[spec.number - 1], services=services) if spec.sibling_paths else None
