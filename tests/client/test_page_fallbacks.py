"""A page with fallbacks never breaks, shows no item twice, and says where each of its slates is from."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from topk_bandit.client import (
    BreakerPolicy,
    Exclude,
    InvalidArgument,
    NotFound,
    PagePlacement,
    Recommendation,
    RewardOutcome,
    RewardReceipt,
    Source,
)
from topk_bandit.testing import local_service

if TYPE_CHECKING:
    from collections.abc import Iterator

    from topk_bandit.client import ClientError, SlatePage
    from topk_bandit.testing import LocalService

OWN = ("a", "b", "c", "d", "e", "f", "g", "h")


@pytest.fixture(scope="module")
def service() -> Iterator[LocalService]:
    with local_service() as running:
        client = running.client()
        for name in ("hero", "row"):
            client.create_bandit(name, slate_size=2, item_capacity=20)
            client.upsert_items(name, list("abcd"))
        yield running


def sources_of(page: SlatePage) -> list[Source | type[ClientError]]:
    return [one.source if isinstance(one, Recommendation) else type(one) for one in page.slates]


def items_of(page: SlatePage) -> list[tuple[str, ...]]:
    return [one.items for one in page.slates if isinstance(one, Recommendation)]


def safe(*bandits: str, **named: Any) -> list[PagePlacement]:  # noqa: ANN401 - of placements
    return [PagePlacement(bandit=bandit, fallback=OWN, fallback_size=2, **named) for bandit in bandits]


def test_a_page_of_the_service_has_no_item_twice_and_is_counted(service: LocalService) -> None:
    client = service.client()
    page = client.recommend_page(safe("hero", "row"))
    assert sources_of(page) == [Source.SERVICE] * 2
    assert sorted(item for items in items_of(page) for item in items) == list("abcd")
    assert page.id
    assert (client.slates, client.fallbacks) == ({Source.SERVICE: 2}, {})


def test_a_missing_slate_is_the_shops_own_without_what_the_page_shows_elsewhere(service: LocalService) -> None:
    client = service.client()
    page = client.recommend_page(safe("nowhere", "hero", "elsewhere"))
    assert sources_of(page) == [Source.FALLBACK, Source.SERVICE, Source.FALLBACK]
    first, shown, last = items_of(page)
    left = [item for item in OWN if item not in shown]
    assert (first, last) == (tuple(left[:2]), tuple(left[2:4]))
    assert page.id
    assert page.bandits == ("", "hero", "")
    assert client.fallbacks == {"NOT_FOUND": 2}


def test_a_placement_without_a_fallback_has_its_error(service: LocalService) -> None:
    page = service.client().recommend_page([PagePlacement(bandit="nowhere"), *safe("hero")])
    assert [isinstance(one, Recommendation) for one in page.slates] == [False, True]


def test_a_page_of_errors_alone_has_its_id_and_takes_no_reward(service: LocalService) -> None:
    client = service.client()
    page = client.recommend_page([PagePlacement(bandit="nowhere"), PagePlacement(bandit="gone")], page_id="mine")
    assert page.id == "mine"
    assert [type(one) for one in client.reward_page(page.id, ["nowhere", "gone"], 1.0)] == [NotFound, NotFound]


def test_a_slate_that_nobody_saw_takes_no_reward_of_its_page(service: LocalService) -> None:
    """The service has one of `row`, but the page that was shown did not: its answer came too late, say."""
    client = service.client()
    whole = client.recommend_page(safe("hero", "row"), page_id="seen in part")
    before = [client.stats(name).observation_count for name in ("hero", "row")]
    results = client.reward_page(whole.id, ["hero", ""], 1.0)
    assert [type(one) for one in results] == [RewardReceipt, NotFound]
    assert [client.stats(name).observation_count for name in ("hero", "row")] == [before[0] + 1, before[1]]


def test_late_rewards_of_a_page_are_heard_of() -> None:
    with local_service() as service:
        client, strict = service.client(), service.client(raise_late=True)
        for name in ("hero", "row"):
            client.create_bandit(name, slate_size=2, item_capacity=20, reward_wait=timedelta(seconds=60))
            client.upsert_items(name, list("abcd"))
        pages = [client.recommend_page(safe("hero", "row")) for _ in range(2)]
        service.let_pass(timedelta(seconds=61))
        results = client.reward_page(pages[0].id, pages[0].bandits, 1.0)
        assert [getattr(one, "outcome", None) for one in results] == [RewardOutcome.LATE] * 2
        assert client.late_rewards == {"hero": 1, "row": 1}
        errors = strict.reward_page(pages[1].id, pages[1].bandits, 1.0)
        assert [getattr(one, "reason", None) for one in errors] == ["REWARD_LATE"] * 2
        assert strict.late_rewards == {"hero": 1, "row": 1}


def test_a_service_that_is_away_leaves_the_shops_own_page(service: LocalService) -> None:
    client = service.client(breaker=BreakerPolicy(failures=2, pause=600.0))
    placements = [*safe("hero", "row", rules=[Exclude(["a"])]), PagePlacement(bandit="foot", fallback=OWN)]
    with service.away():
        for reasons in ({"UNAVAILABLE": 3}, {"UNAVAILABLE": 6}, {"UNAVAILABLE": 6, "BREAKER_OPEN": 3}):
            page = client.recommend_page(placements)
            assert items_of(page) == [("b", "c"), ("d", "e"), ("a", "f", "g", "h")]
            assert (page.id, client.fallbacks) == ("", reasons)


@pytest.mark.parametrize(
    "wrong", [{"context": 5}, {"timeout": -1.0}, {"features": 7}, {"page_id": 3}, {"group_key": ["x"]}]
)
def test_a_callers_mistake_breaks_no_page(service: LocalService, wrong: dict[str, Any]) -> None:
    page = service.client().recommend_page(safe("hero", "row"), **wrong)
    assert items_of(page) == [("a", "b"), ("c", "d")]


def test_a_fallback_that_is_none_is_refused_whether_the_service_answers_or_not(service: LocalService) -> None:
    placements = [PagePlacement(bandit="hero"), PagePlacement(bandit="below", fallback=7)]
    with pytest.raises(InvalidArgument, match=r"placements\[1\]\.fallback: must be several"):
        service.client().recommend_page(placements)


def test_what_is_no_placement_breaks_no_page_that_has_a_fallback(service: LocalService) -> None:
    page = service.client().recommend_page([*safe("hero"), "row"])  # type: ignore[list-item]
    assert sources_of(page) == [Source.FALLBACK, InvalidArgument]
    with pytest.raises(InvalidArgument):
        service.client().recommend_page(["row"])  # type: ignore[list-item]
    with pytest.raises(InvalidArgument):
        service.client().recommend_page("row")  # type: ignore[arg-type]
