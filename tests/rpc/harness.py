"""A real server on a thread of its own, so that tests may call it with whatever client they like."""

from __future__ import annotations

import asyncio
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import grpc
from tests.rpc.shop import Shop
from tests.waiting import PATIENCE

from topk_bandit.domain.quotas import Quotas
from topk_bandit.rpc.access import Access
from topk_bandit.rpc.http_interfaces import CALLS_AND_PAGE
from topk_bandit.rpc.http_server import HttpServer
from topk_bandit.rpc.server import Server
from topk_bandit.rpc.services import Services

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator

    from topk_bandit.rpc.http_interfaces import HttpInterface
    from topk_bandit.rpc.tls import ServerCertificate

T = TypeVar("T")


class Ledger:
    """RPC hooks that keep what they receive."""

    def __init__(self) -> None:
        self.started: list[tuple[str, str]] = []
        self.handled: list[tuple[str, str, str]] = []
        self.seconds: list[float] = []
        self.quota_refusals: list[str] = []
        self.phases: list[tuple[float, float]] = []
        self._changed = threading.Condition()

    def rpc_started(self, service: str, method: str) -> None:
        with self._changed:
            self.started.append((service, method))
            self._changed.notify_all()

    def rpc_handled(self, service: str, method: str, code: str, seconds: float) -> None:
        with self._changed:
            self.handled.append((service, method, code))
            self.seconds.append(seconds)
            self._changed.notify_all()

    def quota_refused(self, quota: str, tenant: str) -> None:  # noqa: ARG002
        with self._changed:
            self.quota_refusals.append(quota)

    def rpc_done(self, queue_seconds: float, encode_seconds: float) -> None:
        self.phases.append((queue_seconds, encode_seconds))

    def wait_started(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.started) >= count, timeout=PATIENCE), self.started

    def wait_handled(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.handled) >= count, timeout=PATIENCE), self.handled

    @property
    def codes(self) -> list[str]:
        return [code for _, _, code in self.handled]


class RunningServer:
    """A `Server` over a `Shop`, on its own thread and event loop."""

    def __init__(self, shop: Shop | None = None, *, address: str = "127.0.0.1:0", **options: object) -> None:
        self.shop = shop or Shop()
        self.ledger = Ledger()
        self.http: HttpServer | None = None
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever)
        self._thread.start()
        options.setdefault("max_in_flight", 64)
        options.setdefault("max_message_bytes", 8 * 1024 * 1024)
        options.setdefault("max_connections", 1000)
        try:
            self.server = self.run(self._make(address, options))
            self.port = self.run(self.server.start())
        except BaseException:
            self._end_loop()
            raise

    async def _make(self, address: str, options: dict[str, Any]) -> Server:
        make_studies = options.pop("make_studies", None)
        studies = self.studies = await make_studies() if make_studies else self.shop
        named = {name: options.pop(name) for name in ("max_in_flight", "new_reference", "clock") if name in options}
        links = options.pop("serves_links", True)
        self.access = Access(options.pop("keys", None), options.pop("identities", None), serves_links=links)
        self.quotas = options.pop("quotas", None) or Quotas()
        self.services = Services(
            self.shop,
            self.shop,
            studies,
            self.shop,
            hooks=self.ledger,
            access=self.access,
            quotas=self.quotas,
            **named,
        )
        return Server(address, services=self.services, **options)

    @property
    def target(self) -> str:
        return f"127.0.0.1:{self.port}"

    def open_http(self, *, tls: ServerCertificate | None = None, interface: HttpInterface = CALLS_AND_PAGE) -> str:
        """Open the HTTP listener too; return its address."""
        self.http_port = self.run(self._open_http(tls, interface))
        return f"http{'s' if tls else ''}://127.0.0.1:{self.http_port}"

    async def _open_http(self, tls: ServerCertificate | None, interface: HttpInterface) -> int:
        self.http = HttpServer(
            "127.0.0.1:0",
            services=self.services,
            interface=interface,
            max_message_bytes=8 * 1024 * 1024,
            max_connections=1000,
            tls=tls,
        )
        return await self.http.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(timeout=PATIENCE)

    async def _set_gate(self, gate: asyncio.Event | None) -> None:
        self.shop.gate = gate

    def close_gate(self) -> None:
        self.run(self._set_gate(asyncio.Event()))

    def open_gate(self) -> None:
        self.run(self._open())

    async def _open(self) -> None:
        if self.shop.gate is not None:
            self.shop.gate.set()
        self.shop.gate = None

    def stop(self, grace: float = 0.0) -> None:
        if self._thread.is_alive():
            if self.http is not None:
                self.run(self.http.drain(grace))
            self.run(self.server.drain(grace))
            self._end_loop()

    def _end_loop(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


class StandingClock:
    """The seconds of a running server's event loop, which go on when the test has them go on."""

    def __init__(self, server: RunningServer) -> None:
        self._server = server
        self.now = server.loop.time()

    def __call__(self) -> float:
        return self.now

    def go_on(self, seconds: float) -> None:
        """Let time pass, and return once what is due by then was begun."""
        self._server.run(self._go_on(seconds))

    async def _go_on(self, seconds: float) -> None:
        self.now += seconds
        for _ in range(2):  # what is due is found in one round of the loop, and runs in the next one at the latest
            await asyncio.sleep(0)


@contextmanager
def standing_clock(server: RunningServer) -> Iterator[StandingClock]:
    """Let no time pass for a server's event loop until the end of the block, but what the test lets pass."""
    clock = StandingClock(server)
    server.loop.time = clock  # type: ignore[method-assign]
    try:
        yield clock
    finally:
        del server.loop.time  # type: ignore[attr-defined]
        server.loop.call_soon_threadsafe(lambda: None)  # it may wait by the other clock


@contextmanager
def serving(shop: Shop | None = None, **options: object) -> Iterator[RunningServer]:
    """Run a server for the length of a test."""
    server = RunningServer(shop, **options)
    try:
        yield server
    finally:
        if server.loop.is_running():
            server.open_gate()
        server.stop()


@contextmanager
def channel_to(target: str, **options: int) -> Iterator[grpc.Channel]:
    """Open a plain channel that retries nothing by itself."""
    arguments = [("grpc.enable_retries", 0), ("grpc.use_local_subchannel_pool", 1)]
    with grpc.insecure_channel(target, options=[*arguments, *options.items()]) as channel:
        yield channel
