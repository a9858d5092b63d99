"""A shop's tests have the real service in their own process: the same calls, the same errors, a time of their own."""

from __future__ import annotations

import asyncio
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from tests.waiting import PATIENCE

from topk_bandit.client import (
    AsyncStorefront,
    Cancelled,
    DeadlineExceeded,
    Group,
    InvalidArgument,
    NotFound,
    RewardOutcome,
    Source,
    Stage,
    Storefront,
    Unavailable,
    vector,
)
from topk_bandit.preferences.warm_up import warm_up
from topk_bandit.testing import LocalService, local_service
from topk_bandit.testing.local_service import BEGIN

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from topk_bandit.client import Client

ITEMS = ["tea", "coffee", "cocoa", "milk", "juice", "water"]


@pytest.fixture
def service() -> Iterator[LocalService]:
    with local_service() as service:
        yield service


def opened(service: LocalService, **settings: object) -> Client:
    client = service.client()
    client.create_bandit("home", slate_size=2, item_capacity=10, **settings)  # type: ignore[arg-type]
    client.upsert_items("home", ITEMS)
    return client


def slates_of(seed: int) -> list[tuple[str, ...]]:
    with local_service(seed=seed) as service:
        client, shown = opened(service), []
        for number in range(20):
            slate = client.recommend("home")
            shown.append(slate.items)
            client.reward("home", slate.id, float(number % 3))
        return shown


def test_the_same_calls_with_the_same_seed_are_given_the_same_slates() -> None:
    first = slates_of(1)
    assert slates_of(1) == first
    assert slates_of(2) != first


def test_each_call_ends_once_what_it_wrote_is_learned(service: LocalService) -> None:
    client = opened(service)
    for number in range(12):
        slate = client.recommend("home")
        assert slate.observations == number
        receipt = client.reward("home", slate.id, 1.0)
        assert receipt.outcome is RewardOutcome.ACCEPTED
        assert client.recommend("home").model_version >= receipt.log_position


def test_a_model_is_that_of_its_log_whatever_the_sign_of_a_zero(service: LocalService) -> None:
    client = service.client()
    taste, look = vector("taste", dimension=2), vector("look", dimension=2)
    client.create_bandit("home", slate_size=2, item_capacity=8, context_schema=[taste], item_schema=[look])
    client.upsert_items("home", {item: {"look": (-0.0, float(place))} for place, item in enumerate(ITEMS)})
    for number in range(14):
        slate = client.recommend("home", features={"taste": (-0.0, 1.0)})
        client.reward("home", slate.id, float(number % 3))
    assert client.verify("home").agrees


def test_time_passes_when_a_test_lets_it(service: LocalService) -> None:
    wait = timedelta(minutes=30)
    client = opened(service, default_reward=0.0, reward_wait=wait)
    assert service.now == BEGIN == datetime(2026, 1, 1, tzinfo=UTC)
    slate = client.recommend("home")
    assert slate.reward_deadline == BEGIN + wait
    service.let_pass(wait - timedelta(milliseconds=1))
    assert client.stats("home").observation_count == 0
    service.let_pass(timedelta(milliseconds=1))
    assert client.recommend("home").observations == 1
    assert client.reward("home", slate.id, 1.0).outcome is RewardOutcome.LATE
    with pytest.raises(ValueError, match="span must not be negative"):
        service.let_pass(timedelta(seconds=-1))


def test_a_guardrail_takes_a_bandit_off_once_time_passes(service: LocalService) -> None:
    client = service.client()
    client.create_bandit(
        "guarded", slate_size=2, item_capacity=8, control_share=0.5, guardrail_margin=0.05, baseline_item_ids=["a", "b"]
    )
    client.upsert_items("guarded", list("abcdef"))
    service.let_pass(timedelta(seconds=1))
    for number in range(300):
        slate = client.recommend("guarded", request_id=f"visit {number}")
        client.reward("guarded", slate.id, float(slate.group is Group.CONTROL) + 0.1 * (number % 3))
    assert client.get_bandit("guarded").stage is Stage.LIVE
    service.let_pass(timedelta(seconds=1))
    assert client.get_bandit("guarded").stage is Stage.SHADOW


def test_errors_are_those_of_the_service(service: LocalService) -> None:
    client = opened(service)
    with pytest.raises(NotFound):
        client.recommend("another")
    with pytest.raises(InvalidArgument) as refused:
        client.recommend("home", [float("nan")])
    assert refused.value.field == "context[0]"
    with pytest.raises(DeadlineExceeded):
        client.stats("home", timeout=1e-9)


def test_a_shop_sees_what_it_shows_while_the_service_is_away(service: LocalService) -> None:
    client = opened(service)
    with service.away():
        assert client.recommend("home", fallback=ITEMS, fallback_size=2).source is Source.FALLBACK
        with pytest.raises(Unavailable):
            client.recommend("home")
    assert client.recommend("home", fallback=ITEMS).source is Source.SERVICE


def test_a_storefront_and_its_outbox_run_on_it(service: LocalService, tmp_path: Path) -> None:
    client = opened(service)
    shop = Storefront(service.client, tmp_path / "rewards.db")
    with shop:
        home = shop.placement("home", fallback=ITEMS)
        slate = home.recommend()
        assert slate.source is Source.SERVICE
        assert home.reward(slate.id, 1.0)
        assert shop.outbox.flush(timeout=PATIENCE) == 0
    assert client.stats("home").observation_count == 1


def test_asynchronous_shops_run_on_it(service: LocalService, tmp_path: Path) -> None:
    opened(service)

    async def visit() -> None:
        async with service.async_client() as client:
            slates = await asyncio.gather(*(client.recommend("home") for _ in range(20)))
            assert len({slate.id for slate in slates}) == 20
            with pytest.raises(NotFound):
                await client.recommend("another")
        shop = AsyncStorefront(service.async_client, tmp_path / "rewards.db")
        async with shop:
            home = shop.placement("home", fallback=ITEMS)
            assert await home.reward((await home.recommend()).id, 1.0)
            assert await shop.outbox.flush(timeout=PATIENCE) == 0

    asyncio.run(visit())


def test_tenants_and_threads_share_a_service(service: LocalService) -> None:
    client = opened(service)
    with pytest.raises(NotFound):
        service.client("another-shop").recommend("home")
    with ThreadPoolExecutor(8) as threads:
        ids = set(threads.map(lambda _: client.recommend("home").id, range(40)))
    assert len(ids) == 40


def test_studies_are_there_too(service: LocalService) -> None:
    warm_up()  # what is not compiled yet would take longer than a call that waits for a design
    client = service.client()
    features = {item: [float(place == number) for number in range(3)] for place, item in enumerate(ITEMS)}
    client.create_study("taste", features, answer_kind="ranking", list_size=3, budget=10)
    assert client.wait_for_design("taste", timeout=PATIENCE).name == "taste"
    assert len(client.next_questions("taste", 2).questions) == 2


def test_nothing_listens_and_nothing_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a socket is bound or connected")

    for name in ("bind", "connect", "connect_ex"):
        monkeypatch.setattr(socket.socket, name, refuse)
    before = threading.active_count()
    with local_service() as service:
        client = opened(service)
        client.recommend("home")
    assert threading.active_count() == before
    with pytest.raises(Cancelled):
        client.recommend("home")
    service.close()


def test_services_know_nothing_of_each_other(service: LocalService) -> None:
    opened(service)
    with local_service() as other, pytest.raises(NotFound):
        other.client().recommend("home")
