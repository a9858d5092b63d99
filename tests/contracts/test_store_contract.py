"""The store contract, held by each store.

Two stores hold all of it: the one in memory, and a Valkey that is as strict as a server can be. It is a cluster, so
that it refuses a call about keys of two slots; its user may do nothing but what a start asks for; and each write is
waited for until it is on the disk. The other servers allow more. They hold the part of it that depends on a server: how
it announces, scans, measures, keeps numbers and bytes, and lets go of them. That a Redis keeps what a Valkey keeps, key
by key after each script, is held by tests/store/test_servers_agree.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.contracts.clocks import StoreClock
from tests.contracts.harness import LEAST_RIGHTS, RIGHTS_IN_A_CLUSTER, MemoryStores, RedisStores, run
from tests.contracts.samples import NAME
from tests.contracts.store_contract import StoreContract, create, is_known, record
from tests.servers import redis_binary, running_cluster, running_server, valkey_binary

from topk_bandit.domain.durability import FSYNC, IN_MEMORY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.contracts.harness import Stores

    from topk_bandit.store.log import Store

RETENTION_MS = 500


@pytest.fixture(scope="module")
def valkey() -> Iterator[str]:
    with running_server(valkey_binary()) as server:
        yield server.url_of_a_user(*LEAST_RIGHTS)


@pytest.fixture(scope="module")
def valkey_cluster() -> Iterator[str]:
    with running_cluster(valkey_binary(), "--appendfsync", "always") as server:
        server.url_of_a_user(*LEAST_RIGHTS, *RIGHTS_IN_A_CLUSTER, "+waitaof")
        yield f"redis://shop:secret@127.0.0.1:{server.port}"


@pytest.fixture(scope="module")
def redis_server() -> Iterator[str]:
    with running_server(redis_binary()) as server:
        yield server.url_of_a_user(*LEAST_RIGHTS)


class TestMemoryStore(StoreContract):
    @pytest.fixture
    def stores(self) -> Stores:
        return MemoryStores()

    @pytest.fixture
    def forgetful_stores(self) -> Stores:
        return MemoryStores(record_retention_ms=RETENTION_MS)

    def test_what_is_closed_is_kept_for_its_time_and_no_longer(self, forgetful_stores: Stores) -> None:
        async def scenario(store: Store) -> None:
            await create(store)
            await record(store)
            await store.record_reward(NAME, "rec-1", 1.0)
            await forgetful_stores.pass_time(RETENTION_MS)
            assert [name async for name in store.find_overdue()] == []
            await store.expire_due(NAME, limit=9)
            assert await is_known(store, "rec-1")
            await forgetful_stores.pass_time(1)
            assert [name async for name in store.find_overdue()] == [NAME]
            await store.expire_due(NAME, limit=9)
            assert not await is_known(store, "rec-1")

        run(forgetful_stores, scenario)


class OnAServer:
    """The stores of a class that gives the URL of its server."""

    durability = IN_MEMORY

    @pytest.fixture
    def url(self) -> str:
        raise NotImplementedError

    @pytest.fixture
    def stores(self, url: str) -> Stores:
        return RedisStores(url, durability=self.durability, clock=StoreClock())

    @pytest.fixture
    def forgetful_stores(self, url: str) -> Stores:
        return RedisStores(url, record_retention_ms=RETENTION_MS, durability=self.durability, clock=StoreClock())


class TestValkeyCluster(OnAServer, StoreContract):
    durability = FSYNC

    @pytest.fixture
    def url(self, valkey_cluster: str) -> str:
        return valkey_cluster


class ServerContract(OnAServer):
    """What of the contract depends on the server."""

    test_a_repeated_call_changes_nothing = StoreContract.test_a_repeated_call_changes_nothing
    test_what_a_tenant_has_is_measured = StoreContract.test_what_a_tenant_has_is_measured
    test_tenants_are_listed = StoreContract.test_tenants_are_listed_in_order_while_they_have_bandits
    test_ids_are_opaque_text = StoreContract.test_ids_are_opaque_text
    test_several_rewards_have_ids_and_an_end = StoreContract.test_several_rewards_have_ids_and_an_end
    test_each_of_many_rewards_has_its_outcome = StoreContract.test_each_of_many_rewards_has_its_outcome
    test_what_was_shown = StoreContract.test_what_was_shown_comes_with_whatever_is_learned
    test_one_reward_sent_fifty_times_is_accepted_once = StoreContract.test_one_reward_sent_fifty_times_is_accepted_once
    test_two_snapshots_are_kept = StoreContract.test_two_snapshots_are_kept_and_the_log_below_the_older_one_goes
    test_a_snapshot_is_any_bytes = StoreContract.test_a_snapshot_is_any_bytes
    test_what_is_closed_is_forgotten = StoreContract.test_what_is_closed_all_the_time_is_forgotten_all_the_time
    test_slates_are_scanned = StoreContract.test_slates_and_imports_are_scanned_until_all_have_come_back
    test_a_bandit_comes_back_from_its_lines = StoreContract.test_a_bandit_comes_back_from_its_lines
    test_each_growing_log_is_announced_to_all = StoreContract.test_each_growing_log_is_announced_to_all
    test_changes_end_when_the_store_is_closed = StoreContract.test_changes_end_when_the_store_is_closed
    test_a_report_says_what_the_store_is = StoreContract.test_a_report_says_what_the_store_is


class TestValkey(ServerContract):
    @pytest.fixture
    def url(self, valkey: str) -> str:
        return valkey


class TestRedis(ServerContract):
    @pytest.fixture
    def url(self, redis_server: str) -> str:
        return redis_server
