from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import grpc
import pytest
from tests.waiting import PATIENCE

from topk_bandit.client import AsyncClient, Client, ClientError

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def noting_peers() -> Iterator[tuple[str, list[str]]]:
    """Run a server that refuses everything and notes from which address and port."""
    peers: list[str] = []

    def refuse(_request: bytes, context: grpc.ServicerContext) -> bytes:
        peers.append(context.peer())
        context.abort(grpc.StatusCode.NOT_FOUND, "there is nothing here")

    class Handler(grpc.GenericRpcHandler):  # type: ignore[type-arg]  # not subscriptable at run time
        def service(self, _details: object) -> grpc.RpcMethodHandler:  # type: ignore[type-arg]
            return grpc.unary_unary_rpc_method_handler(refuse)

    server = grpc.server(ThreadPoolExecutor(2), handlers=[Handler()])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}", peers
    finally:
        server.stop(None).wait()


def test_each_client_of_a_process_has_a_connection_of_its_own() -> None:
    with noting_peers() as (target, peers), ExitStack() as stack:
        clients = [stack.enter_context(Client(target, tenant="shop", timeout=PATIENCE)) for _ in range(4)]
        for client in clients * 2:
            with pytest.raises(ClientError):
                client.get_bandit("home")
        assert len(set(peers)) == 4
        assert peers[:4] == peers[4:]


def test_each_asynchronous_client_has_one_too() -> None:
    async def scenario(target: str) -> None:
        clients = [AsyncClient(target, tenant="shop", timeout=PATIENCE) for _ in range(4)]
        for client in clients * 2:
            with pytest.raises(ClientError):
                await client.get_bandit("home")
        for client in clients:
            await client.close()

    with noting_peers() as (target, peers):
        asyncio.run(scenario(target))
        assert len(set(peers)) == 4
        assert peers[:4] == peers[4:]
