"""The contract of studies, held by each store."""

from __future__ import annotations

import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from tests.contracts.harness import LEAST_RIGHTS, RedisStores
from tests.contracts.study_contract import StudyContract
from tests.servers import redis_binary, running_cluster, running_server, valkey_binary

from topk_bandit.store.memory.studies import MemoryStudies

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from tests.contracts.harness import Stores
    from tests.servers import RunningServer

    from topk_bandit.store.study_log import StudyStore


class MemoryStudyStores:
    """A store of studies that all connections share; its clock can be set forward."""

    def __init__(self) -> None:
        self._ahead_ms = 0
        self._store = MemoryStudies(clock_ms=lambda: time.time_ns() // 1_000_000 + self._ahead_ms)

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[StudyStore]:
        yield self._store

    async def pass_time(self, milliseconds: int) -> None:
        self._ahead_ms += milliseconds


class RedisStudyStores(RedisStores):
    """Connections of their own to one server's studies."""

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[StudyStore]:  # type: ignore[override]
        async with super().connect() as store:
            yield store.studies()


@pytest.fixture(scope="module")
def valkey() -> Iterator[RunningServer]:
    with running_server(valkey_binary()) as server:
        yield server


@pytest.fixture(scope="module")
def valkey_cluster() -> Iterator[RunningServer]:
    with running_cluster(valkey_binary()) as server:
        yield server


@pytest.fixture(scope="module")
def redis_server() -> Iterator[RunningServer]:
    with running_server(redis_binary()) as server:
        yield server


class TestMemoryStudies(StudyContract):
    @pytest.fixture
    def studies(self) -> Stores:
        return MemoryStudyStores()


class TestValkeyStudies(StudyContract):
    @pytest.fixture
    def studies(self, valkey: RunningServer) -> Stores:
        return RedisStudyStores(valkey.url_of_a_user(*LEAST_RIGHTS))


class TestValkeyClusterStudies(StudyContract):
    @pytest.fixture
    def studies(self, valkey_cluster: RunningServer) -> Stores:
        return RedisStudyStores(valkey_cluster.url)


class TestRedisStudies(StudyContract):
    @pytest.fixture
    def studies(self, redis_server: RunningServer) -> Stores:
        return RedisStudyStores(redis_server.url)
