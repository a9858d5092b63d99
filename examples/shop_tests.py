"""A shop's own tests, with the real service and without a server: python examples/shop_tests.py."""

from __future__ import annotations

import sys
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from topk_bandit.client import Recommendation, Source
from topk_bandit.testing import LocalService, local_service

if TYPE_CHECKING:
    from collections.abc import Iterator

    from topk_bandit.client import Client

OWN = ["tea", "coffee", "cocoa", "milk"]  # the shop's own ranking
WAIT = timedelta(hours=1)


def page(client: Client) -> tuple[str, Recommendation]:
    """Return what the shop shows: this and `buy` are what is tested."""
    slate = client.recommend("home", fallback=OWN, fallback_size=2)
    return f"<h1>{' and '.join(slate.items)}</h1>", slate


def buy(client: Client, slate: Recommendation, price: float) -> None:
    """Post what a slate has earned."""
    if slate.id:
        client.reward("home", slate.id, price)


@pytest.fixture
def service() -> Iterator[LocalService]:
    """Start a service for each test; `make_client` of a Storefront may be `service.client`."""
    with local_service() as service:
        client = service.client()
        client.create_bandit("home", slate_size=2, item_capacity=10, default_reward=0.0, reward_wait=WAIT)
        client.upsert_items("home", OWN)
        yield service


def test_a_sale_is_learned(service: LocalService) -> None:
    """The next slate knows of a sale as soon as it is posted."""
    client = service.client()
    html, slate = page(client)
    assert all(item in html for item in slate.items)
    buy(client, slate, 9.0)
    assert page(client)[1].observations == 1


def test_who_buys_nothing_counts_too(service: LocalService) -> None:
    """Time stands still, and passes when a test lets it."""
    client = service.client()
    page(client)
    service.let_pass(WAIT)
    assert page(client)[1].observations == 1


def test_the_page_is_there_without_the_service(service: LocalService) -> None:
    """The shop's own ranking is shown while the service is away."""
    with service.away():
        html, slate = page(service.client())
    assert (html, slate.source) == ("<h1>tea and coffee</h1>", Source.FALLBACK)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, "-q", *sys.argv[1:]]))
