"""A worker that starts on a store whose replicas are away, or that can't keep the class at all."""

from __future__ import annotations

import asyncio
import logging

import pytest
from prometheus_client import CollectorRegistry
from tests.servers import running_server, valkey_binary
from tests.waiting import PATIENCE, until_async

from topk_bandit.domain.errors import ConfigurationError
from topk_bandit.process.assembly import _connect
from topk_bandit.process.metrics import Metrics
from topk_bandit.process.settings import Settings


def metrics() -> Metrics:
    return Metrics(CollectorRegistry(), methods=())


def settings(url: str) -> Settings:
    return Settings(redis_url=url, durability="replicated:1", store_timeout_seconds=60.0)  # type: ignore[arg-type]


def test_a_start_waits_for_the_replicas_of_its_class(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    binary, always = valkey_binary(), ("--appendfsync", "always")
    with (
        running_server(binary, *always, "--min-replicas-to-write", "1", "--repl-diskless-sync-delay", "0") as primary,
        running_server(binary, *always) as other,
        other.client() as client,
    ):

        async def start() -> None:
            task = asyncio.create_task(_connect(settings(primary.url), primary.url, asyncio.Event(), metrics()))
            await until_async(lambda: caplog.messages or task.done(), what="it waits")
            assert not task.done()
            await asyncio.to_thread(client.replicaof, "127.0.0.1", primary.port)
            async with asyncio.timeout(PATIENCE):
                connected = await task
            assert connected is not None
            store, _ = connected
            assert (await store.check()).shortages == ()
            await store.close()

        asyncio.run(start())
    assert "0 of 1 replicas follow" in caplog.messages[0]
    assert caplog.messages[-1] == "the store is there"


def test_a_store_that_can_not_keep_the_class_is_refused() -> None:
    with running_server(valkey_binary()) as server, pytest.raises(ConfigurationError) as refusal:
        asyncio.run(_connect(settings(server.url), server.url, asyncio.Event(), metrics()))
    assert "min-replicas-to-write is 0" in str(refusal.value)
    assert "appendfsync is everysec" in str(refusal.value)
