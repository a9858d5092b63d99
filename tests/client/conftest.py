from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING, Any

import pytest
from tests.rpc.harness import RunningServer, serving
from tests.waiting import PATIENCE

from topk_bandit.client import AsyncClient, Client, RetryPolicy, resends

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from typing import Self


class Blocking:
    """An `AsyncClient` called from synchronous code, so that every test runs on both clients."""

    def __init__(self, target: str, **options: object) -> None:
        self._runner = asyncio.Runner()
        self._client = self._runner.run(self._make(target, options))

    async def _make(self, target: str, options: dict[str, Any]) -> AsyncClient:
        if "sleep" in options:
            sleep = options["sleep"]
            options["sleep"] = lambda seconds: asyncio.to_thread(sleep, seconds)
        return AsyncClient(target, **options)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        if not callable(getattr(self._client, name)):
            return getattr(self._client, name)

        def call(*arguments: object, **options: object) -> object:
            answer = getattr(self._client, name)(*arguments, **options)
            return self._runner.run(answer if inspect.isawaitable(answer) else collected(answer))

        return call

    def close(self) -> None:
        self._runner.run(self._client.close())
        self._runner.close()

    def __enter__(self) -> Self:
        self._runner.run(self._client.__aenter__())
        return self

    def __exit__(self, *error: object) -> None:
        self._runner.run(self._client.__aexit__(None, None, None))
        self._runner.close()


EitherClient = Client | Blocking

BY_ONE_WAY = pytest.mark.parametrize(
    ("client_class", "way"), [(Client, "grpc"), (Blocking, "http")], ids=["Client-grpc", "AsyncClient-http"]
)
"""Each client, and each way to call: for what is the same by the other way."""

ONCE = RetryPolicy(initial_backoff=10.0 * PATIENCE, max_backoff=10.0 * PATIENCE)
"""The first pause is longer than any call may take: none is tried again."""


async def collected(answers: AsyncIterator[Any]) -> list[Any]:
    return [answer async for answer in answers]


@pytest.fixture(autouse=True)
def slow_calls_go_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have no slow call sent again: on a busy machine a test would see a duplicate of what it sent once."""
    monkeypatch.setattr(resends, "MOST_RESENDS", 0.0)


@pytest.fixture(params=[Client, Blocking], ids=["Client", "AsyncClient"])
def client_class(request: pytest.FixtureRequest) -> Callable[..., EitherClient]:
    return request.param


@pytest.fixture(params=["grpc", "http"])
def way(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def make(client_class: Callable[..., EitherClient]) -> Iterator[Callable[..., EitherClient]]:
    opened = []

    def make(target: str, **options: object) -> EitherClient:
        patient = {"tenant": "acme", "timeout": PATIENCE, "fallback_timeout": PATIENCE}
        opened.append(client_class(target, **{**patient, **options}))
        return opened[-1]

    yield make
    for client in opened:
        client.close()


@pytest.fixture
def server() -> Iterator[RunningServer]:
    with serving() as running:
        yield running


@pytest.fixture
def shop(server: RunningServer) -> RunningServer:
    """Have a bandit of 40 items at the server, item-0 to item-39."""
    with Client(server.target, tenant="acme", timeout=PATIENCE) as client:
        client.create_bandit("home", slate_size=2, item_capacity=50)
        client.upsert_items("home", [f"item-{number}" for number in range(40)])
    return server


@pytest.fixture
def target(way: str, server: RunningServer) -> str:
    """Where a client finds the server, by either way to call it."""
    return server.target if way == "grpc" else server.open_http()


@pytest.fixture
def client(make: Callable[..., EitherClient], target: str) -> EitherClient:
    return make(target)
