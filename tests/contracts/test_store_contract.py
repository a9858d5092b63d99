"""The store contract, held by each store."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.contracts.harness import LEAST_RIGHTS, MemoryStores, RedisStores
from tests.contracts.store_contract import StoreContract
from tests.servers import redis_binary, running_cluster, running_server, valkey_binary

from topk_bandit.domain.durability import FSYNC

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.contracts.harness import Stores
    from tests.servers import RunningServer


@pytest.fixture(scope="module")
def valkey() -> Iterator[RunningServer]:
    with running_server(valkey_binary()) as server:
        yield server


@pytest.fixture(scope="module")
def valkey_cluster() -> Iterator[RunningServer]:
    with running_cluster(valkey_binary()) as server:
        yield server


@pytest.fixture(scope="module")
def syncing_cluster() -> Iterator[RunningServer]:
    with running_cluster(valkey_binary(), "--appendfsync", "always") as server:
        yield server


@pytest.fixture(scope="module")
def redis_server() -> Iterator[RunningServer]:
    with running_server(redis_binary()) as server:
        yield server


class TestMemoryStore(StoreContract):
    @pytest.fixture
    def stores(self) -> Stores:
        return MemoryStores()

    @pytest.fixture
    def forgetful_stores(self) -> Stores:
        return MemoryStores(record_retention_ms=500)


class RedisContract(StoreContract):
    """The contract on a server that a subclass gives the URL of."""

    @pytest.fixture
    def url(self) -> str:
        raise NotImplementedError

    @pytest.fixture
    def stores(self, url: str) -> Stores:
        return RedisStores(url)

    @pytest.fixture
    def forgetful_stores(self, url: str) -> Stores:
        return RedisStores(url, record_retention_ms=500)


class TestValkey(RedisContract):
    """Its user may do what a start asks for and nothing else."""

    @pytest.fixture
    def url(self, valkey: RunningServer) -> str:
        return valkey.url_of_a_user(*LEAST_RIGHTS)


class TestValkeyClusterThatSyncs(RedisContract):
    """Each acknowledged write is waited for."""

    @pytest.fixture
    def stores(self, syncing_cluster: RunningServer) -> Stores:
        return RedisStores(syncing_cluster.url, durability=FSYNC)

    @pytest.fixture
    def forgetful_stores(self, syncing_cluster: RunningServer) -> Stores:
        return RedisStores(syncing_cluster.url, record_retention_ms=500, durability=FSYNC)


class TestValkeyCluster(RedisContract):
    @pytest.fixture
    def url(self, valkey_cluster: RunningServer) -> str:
        return valkey_cluster.url


class TestRedis(RedisContract):
    @pytest.fixture
    def url(self, redis_server: RunningServer) -> str:
        return redis_server.url
