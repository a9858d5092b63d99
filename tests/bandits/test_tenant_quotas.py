"""What tenants have in the store, held against their quotas; time goes on as the test says."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from tests.contracts.harness import MemoryStores, RedisStores
from tests.contracts.samples import SETTINGS
from tests.servers import running_server, valkey_binary

from topk_bandit.bandits.tenant_quotas import A_SLATE, MEASURED_SECONDS, MEASURED_SHARE, TenantQuotas
from topk_bandit.domain.bandits import BanditName, Item
from topk_bandit.domain.errors import QuotaError, UnavailableError
from topk_bandit.domain.quotas import Quota, Quotas, TenantUse

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from topk_bandit.store.log import Store

ONE_MORE = {Quota.ITEMS: 1}


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Watched:
    """A store that counts how often it measures, can be slow at it, and can be away."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store, self._clock = store, clock
        self.measured = 0
        self.takes = 0.0
        self.wrong: Exception | None = None
        self.held = asyncio.Event()
        self.held.set()

    async def measure(self, tenant: str) -> TenantUse:
        self.measured += 1
        await self.held.wait()
        self._clock.now += self.takes
        if self.wrong is not None:
            raise self.wrong
        return await self._store.measure(tenant)


async def with_items(store: Store, tenant: str, *counts: int) -> None:
    """Give a tenant bandits with so many items."""
    for number, count in enumerate(counts):
        name = BanditName(tenant, f"b{number}")
        await store.create_bandit(name, SETTINGS, incarnation=f"{number}", quota=999)
        await store.change_items(name, upserted=[Item(f"i{item}") for item in range(count)], retired=[])


def run(scenario: Callable[[Watched, Clock, Store], Awaitable[None]]) -> None:
    async def main() -> None:
        clock = Clock()
        async with MemoryStores().connect() as store:
            await scenario(Watched(store, clock), clock, store)

    asyncio.run(main())


def test_nothing_is_measured_where_nothing_is_limited() -> None:
    async def scenario(store: Watched, clock: Clock, inner: Store) -> None:
        await with_items(inner, "shop", 3)
        quotas = TenantQuotas(store, Quotas({Quota.BANDITS: 1}), now=clock)  # type: ignore[arg-type]
        await quotas.check("shop", {**A_SLATE, **ONE_MORE})
        assert store.measured == 0

    run(scenario)


def test_all_bandits_of_a_tenant_count_and_no_other_s() -> None:
    async def scenario(store: Watched, clock: Clock, inner: Store) -> None:
        await with_items(inner, "shop", 3, 2)
        await with_items(inner, "other", 3)
        quotas = TenantQuotas(store, Quotas({Quota.ITEMS: 7}, {"big": {}}), now=clock)  # type: ignore[arg-type]
        with pytest.raises(QuotaError) as refused:
            await quotas.check("shop", {Quota.ITEMS: 3})
        assert (refused.value.reason, refused.value.used, refused.value.limit) == ("ITEM_QUOTA", 5, 7)
        assert refused.value.retry_after is None
        await quotas.check("shop", {Quota.ITEMS: 2})
        with pytest.raises(QuotaError):  # what was let in counts at once, before it is measured
            await quotas.check("shop", ONE_MORE)
        await quotas.check("shop", {Quota.ITEMS: 0})
        await quotas.check("other", {Quota.ITEMS: 4})
        assert store.measured == 2

    run(scenario)


def test_a_tenant_is_measured_once_at_a_time_and_again_after_a_while() -> None:
    async def scenario(store: Watched, clock: Clock, inner: Store) -> None:
        await with_items(inner, "shop", 2)
        quotas = TenantQuotas(store, Quotas({Quota.ITEMS: 3}), now=clock)  # type: ignore[arg-type]
        store.takes = 0.5
        store.held.clear()
        first = [asyncio.create_task(quotas.check("shop", {Quota.ITEMS: 0})) for _ in range(20)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        first.pop().cancel()  # who gives up takes nobody's figures away
        store.held.set()
        await asyncio.gather(*first)
        assert store.measured == 1
        clock.now += 0.5 / MEASURED_SHARE - 0.001
        await quotas.check("shop", {Quota.ITEMS: 0})
        assert store.measured == 1  # it took half a second, and is not done again within five
        clock.now += 0.002
        await with_items(inner, "shop", 3)
        await quotas.check(
            "shop", ONE_MORE
        )  # waits for nothing: the figures of before hold until the new ones are there
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert store.measured == 2
        with pytest.raises(QuotaError):
            await quotas.check("shop", ONE_MORE)
        await quotas.stop()

    run(scenario)


def test_a_store_that_is_away_refuses_nothing_anew() -> None:
    async def scenario(store: Watched, clock: Clock, inner: Store) -> None:
        await with_items(inner, "shop", 3)
        quotas = TenantQuotas(store, Quotas({Quota.ITEMS: 3}), now=clock)  # type: ignore[arg-type]
        store.wrong = UnavailableError("away")
        for _ in range(5):
            await quotas.check("shop", ONE_MORE)
        assert store.measured == 1
        store.wrong = None
        clock.now += MEASURED_SECONDS
        with pytest.raises(QuotaError):
            await quotas.check("shop", ONE_MORE)
        store.wrong = UnavailableError("away")
        clock.now += MEASURED_SECONDS
        with pytest.raises(QuotaError):  # by the last figures
            await quotas.check("shop", ONE_MORE)
        await quotas.stop()

    run(scenario)


def test_nobody_is_refused_by_an_old_figure() -> None:
    async def scenario(store: Watched, clock: Clock, inner: Store) -> None:
        await with_items(inner, "shop", 4)
        quotas = TenantQuotas(store, Quotas({Quota.ITEMS: 4}), now=clock)  # type: ignore[arg-type]
        with pytest.raises(QuotaError):
            await quotas.check("shop", ONE_MORE)
        await inner.change_items(BanditName("shop", "b0"), upserted=[], retired=["i0", "i1"])
        clock.now += MEASURED_SECONDS
        await quotas.check("shop", {Quota.ITEMS: 2})
        await quotas.stop()

    run(scenario)


def test_names_of_no_tenant_are_not_kept() -> None:
    async def scenario(store: Watched, clock: Clock, _: Store) -> None:
        quotas = TenantQuotas(store, Quotas({Quota.LOG_BYTES: 1}), now=clock)  # type: ignore[arg-type]
        for number in range(5):
            await quotas.check(f"nobody-{number}", A_SLATE)
        assert quotas._measured == {}
        assert quotas._measuring == {}

    run(scenario)


def test_what_goes_wrong_is_logged_and_refuses_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(store: Watched, clock: Clock, _: Store) -> None:
        store.wrong = RuntimeError("odd")
        quotas = TenantQuotas(store, Quotas({Quota.ITEMS: 1}), now=clock)  # type: ignore[arg-type]
        await quotas.check("shop", {Quota.ITEMS: 5})

    run(scenario)
    assert "can't be measured" in caplog.text


def test_a_store_of_many_bandits_is_measured_whole() -> None:
    async def scenario(url: str) -> None:
        async with RedisStores(url).connect() as store:
            await with_items(store, "shop", *[1] * 130, 3)
            use = await store.measure("shop")
            assert (use.items, use.open_slates) == (133, 0)
            assert 131 * 500 < use.log_bytes < 131 * 100_000

    with running_server(valkey_binary(), append_only=False) as server:
        asyncio.run(scenario(server.url))
