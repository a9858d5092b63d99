"""Storefronts and their placements: what a view is given, what it writes, and when both are opened and closed."""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING

import pytest
from tests.rpc.harness import serving
from tests.servers import free_port
from tests.waiting import PATIENCE

from topk_bandit.client import AsyncClient, AsyncStorefront, Client, Recommendation, Source, Storefront

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

OWN = ["b", "a"]


@pytest.fixture
def target() -> Iterator[str]:
    with serving() as server:
        with Client(server.target, tenant="acme", timeout=PATIENCE) as client:
            client.create_bandit("home", slate_size=1, item_capacity=4)
            client.upsert_items("home", OWN)
        yield server.target


def test_a_view_is_given_a_slate_and_rewards_it_in_a_line(target: str, tmp_path: Path) -> None:
    shop = Storefront(lambda: Client(target, tenant="acme", fallback_timeout=PATIENCE), tmp_path / "outbox.db")
    home = shop.placement("home", fallback=OWN)

    @home.with_slate()
    def page(title: str, slate: Recommendation, *, size: int = 1) -> tuple[str, Recommendation, int]:
        return title, slate, size

    with shop:
        title, slate, size = page("tea", size=2)
        assert (title, size, slate.source) == ("tea", 2, Source.SERVICE)
        assert home.activate(slate.id)
        assert home.reward(slate.id, 0.5)
        assert shop.outbox.flush(PATIENCE) == 0
        assert shop.outbox.status().delivered == 2


def test_a_coroutine_too(target: str, tmp_path: Path) -> None:
    async def shows() -> None:
        shop = AsyncStorefront(lambda: AsyncClient(target, tenant="acme", fallback_timeout=PATIENCE), tmp_path / "o.db")
        home = shop.placement("home", fallback=OWN)

        @home.with_slate()
        async def page(slate: Recommendation) -> Recommendation:
            return slate

        for _ in range(2):  # an application may be started again, as its tests do
            async with shop:
                slate = await page()
                assert slate.source is Source.SERVICE
                assert await home.activate(slate.id)
                assert await home.reward(slate.id, 0.5)
                assert await shop.outbox.flush(PATIENCE) == 0

    asyncio.run(shows())


def test_without_a_service_the_own_ranking_is_shown_and_nothing_is_written(tmp_path: Path) -> None:
    with_nobody = f"127.0.0.1:{free_port()}"
    shop = Storefront(lambda: Client(with_nobody, tenant="acme"), tmp_path / "outbox.db")
    home = shop.placement("home", fallback=OWN, fallback_size=1)
    with shop:
        slate = home.recommend()
        assert (slate.source, slate.items) == (Source.FALLBACK, ("b",))
        assert not home.reward(slate.id, 1.0)
        assert shop.client.slates[Source.FALLBACK] == 1


def test_features_are_read_from_what_the_view_is_called_with(target: str, tmp_path: Path) -> None:
    asked: list[tuple[object, ...]] = []

    def features(*arguments: object, **named: object) -> None:
        asked.append((*arguments, named))

    with Storefront(lambda: Client(target, tenant="acme"), tmp_path / "outbox.db") as nothing:
        assert nothing is None  # Starlette would make it the application's state
    shop = Storefront(lambda: Client(target, tenant="acme"), tmp_path / "outbox.db")

    @shop.placement("home", fallback=OWN).with_slate(features)
    def page(request: str, slate: Recommendation, item: str = "") -> str:
        return request + item

    with shop:
        assert page("request", item="a") == "requesta"
    assert asked == [("request", {"item": "a"})]
    assert list(inspect.signature(page).parameters) == ["request", "item"]


def test_what_was_left_is_delivered_once_the_next_process_opens(target: str, tmp_path: Path) -> None:
    def shop_at(address: str) -> Storefront:
        return Storefront(lambda: Client(address, tenant="acme", fallback_timeout=PATIENCE), tmp_path / "outbox.db")

    with Client(target, tenant="acme", timeout=PATIENCE) as client:
        slate = client.recommend("home")
    shop = shop_at(f"127.0.0.1:{free_port()}")
    with shop:
        assert shop.placement("home", fallback=OWN).reward(slate.id, 0.5)
    later = shop_at(target)
    assert later.open().flush(PATIENCE) == 0
    later.close()
