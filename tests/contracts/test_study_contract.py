"""The contract of studies, held by each store: all of it by two, as `test_store_contract` has it."""

from __future__ import annotations

import itertools
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from tests.contracts.clocks import StoreClock
from tests.contracts.harness import LEAST_RIGHTS, RIGHTS_IN_A_CLUSTER, RedisStores
from tests.contracts.study_contract import StudyContract
from tests.servers import redis_binary, running_cluster, running_server, valkey_binary

from topk_bandit.store.memory.studies import MemoryStudies

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from tests.contracts.harness import Stores
    from tests.servers import RunningServer

    from topk_bandit.store.study_log import StudyStore


class MemoryStudyStores:
    """A store of studies that all connections share, with a clock of the test's own."""

    def __init__(self) -> None:
        self.births = itertools.count()
        self.clock = StoreClock()
        self._store = MemoryStudies(clock_ms=self.clock.read_ms)

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[StudyStore]:
        yield self._store

    async def pass_time(self, milliseconds: int) -> None:
        self.clock.now_ms += milliseconds


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
def valkey_cluster() -> Iterator[str]:
    with running_cluster(valkey_binary()) as server:
        server.url_of_a_user(*LEAST_RIGHTS, *RIGHTS_IN_A_CLUSTER)
        yield f"redis://shop:secret@127.0.0.1:{server.port}"


@pytest.fixture(scope="module")
def redis_server() -> Iterator[RunningServer]:
    with running_server(redis_binary()) as server:
        yield server


class TestMemoryStudies(StudyContract):
    @pytest.fixture
    def studies(self) -> Stores:
        return MemoryStudyStores()


class TestValkeyClusterStudies(StudyContract):
    @pytest.fixture
    def studies(self, valkey_cluster: str) -> Stores:
        return RedisStudyStores(valkey_cluster, clock=StoreClock())


class ServerContract:
    """What of the contract depends on the server."""

    test_a_repeated_call_changes_nothing = StudyContract.test_a_repeated_call_changes_nothing
    test_every_event_is_in_the_log_as_it_was = StudyContract.test_every_event_is_in_the_log_as_it_was
    test_one_of_many_wins = StudyContract.test_one_of_many_creations_and_one_of_many_ends_wins
    test_a_lease_is_one_owners_until_it_lapses = StudyContract.test_a_lease_is_one_owners_until_it_lapses
    test_a_restored_study_is_the_one_that_was = StudyContract.test_a_restored_study_is_the_one_that_was


class TestValkeyStudies(ServerContract):
    @pytest.fixture
    def studies(self, valkey: RunningServer) -> Stores:
        return RedisStudyStores(valkey.url_of_a_user(*LEAST_RIGHTS), clock=StoreClock())


class TestRedisStudies(ServerContract):
    @pytest.fixture
    def studies(self, redis_server: RunningServer) -> Stores:
        return RedisStudyStores(redis_server.url_of_a_user(*LEAST_RIGHTS), clock=StoreClock())
