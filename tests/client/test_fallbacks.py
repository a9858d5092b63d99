"""A page with a fallback never breaks: whatever happens, there is a slate, and somebody hears of it."""

from __future__ import annotations

import asyncio
import logging
import math
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from tests.client.conftest import BY_ONE_WAY, ONCE
from tests.servers import free_port
from tests.waiting import PATIENCE

from topk_bandit.client import AsyncClient, BreakerPolicy, Cancelled, Client, InvalidArgument, Recommendation, Source
from topk_bandit.client.breakers import Breaker
from topk_bandit.domain import errors

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.client.conftest import EitherClient
    from tests.rpc.harness import RunningServer

    from topk_bandit.domain.bandits import BanditName
    from topk_bandit.domain.slates import Recommendation as Given
    from topk_bandit.domain.slates import RecommendationRequest

OWN = ["z", "y", "x", "w"]


@pytest.fixture
def home(client: EitherClient) -> str:
    client.create_bandit("home", slate_size=2, item_capacity=20)
    client.upsert_items("home", ["a", "b", "c"])
    return "home"


def test_the_services_slate_is_marked_and_counted(client: EitherClient, home: str) -> None:
    slate = client.recommend(home, fallback=OWN, timeout=PATIENCE)
    assert (slate.source, set(slate.items) <= set("abc"), slate.id != "") == (Source.SERVICE, True, True)
    assert not slate.degraded
    assert (client.slates, client.fallbacks) == ({Source.SERVICE: 1}, {})


@pytest.mark.parametrize("away", [False, True])
def test_a_fallback_that_is_none_is_refused(
    server: RunningServer, client: EitherClient, home: str, *, away: bool
) -> None:
    server.shop.away = away
    for fallback, problem in (
        (7, "fallback: must be several"),
        ("zy", "fallback: must be several"),
        ([["z"]], r"fallback\[0\]: can't be list"),
    ):
        with pytest.raises(InvalidArgument, match=problem):
            client.recommend(home, fallback=fallback)


def test_a_fallback_is_marked_cut_and_counted_and_has_no_id(
    server: RunningServer, make: Callable[..., EitherClient], target: str, home: str
) -> None:
    client = make(target, retry=ONCE)
    client.recommend(home, fallback=OWN, timeout=PATIENCE)
    server.shop.away = True
    slate = client.recommend(home, fallback=OWN)
    assert (slate.source, slate.items, slate.id) == (Source.FALLBACK, ("z", "y"), "")
    assert slate.degraded
    assert (slate.propensity, slate.mean, slate.model_version, slate.reward_deadline) == (0.0, 0.0, 0, None)
    assert client.recommend(home, fallback=OWN, fallback_size=3).items == ("z", "y", "x")
    assert client.recommend(home, fallback=OWN[:1]).items == ("z",)
    assert client.recommend(home, fallback=[]).items == ()
    assert client.slates == {Source.SERVICE: 1, Source.FALLBACK: 4}
    assert client.fallbacks == {"UNAVAILABLE": 4}


def test_nothing_listens_before_the_first_connection(make: Callable[..., EitherClient]) -> None:
    client = make(f"127.0.0.1:{free_port()}", fallback_timeout=0.15)
    assert client.recommend("home", fallback=OWN, fallback_size=2).items == ("z", "y")
    assert client.recommend("home", fallback=OWN).items == tuple(OWN)  # nobody ever said how large slates are
    assert sum(client.fallbacks.values()) == 2


@pytest.mark.parametrize("named", [{"timeout": 0.05}, {}])
def test_a_service_that_hangs_is_not_waited_for(
    make: Callable[..., EitherClient], server: RunningServer, home: str, named: dict[str, float], target: str
) -> None:

    client = make(target, fallback_timeout=0.1)
    server.close_gate()
    began = time.monotonic()
    assert client.recommend(home, fallback=OWN, **named).source is Source.FALLBACK
    seconds = time.monotonic() - began
    assert named.get("timeout", 0.1) * 0.9 < seconds < PATIENCE / 2
    assert client.fallbacks == {"DEADLINE_EXCEEDED": 1}


MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"context": [1.0, 2.0, math.nan]}, "INVALID_ARGUMENT"),
    ({"context": ["much"]}, "INVALID_ARGUMENT"),
    ({"context": 5}, "INVALID_ARGUMENT"),
    ({"timeout": -1.0}, "ValueError"),
    ({"candidates": []}, "INVALID_ARGUMENT"),
    ({"candidates": ["a", "nobody"]}, "TOO_FEW_ITEMS"),
    ({"candidates": ["a", "b", "nobody"], "strict_candidates": True}, "NOT_FOUND"),
]


@BY_ONE_WAY
@pytest.mark.parametrize(("wrong", "reason"), MISTAKES)
def test_a_callers_mistake_breaks_no_page_and_is_heard_of_once(
    make: Callable[..., EitherClient],
    target: str,
    home: str,
    wrong: dict[str, Any],
    reason: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    client = make(target, fallback_timeout=PATIENCE)
    for _ in range(7):  # more than open the breaker: the service is well
        assert client.recommend(home, fallback=OWN, **wrong).source is Source.FALLBACK
    assert client.fallbacks == {reason: 7}
    [record] = [record for record in caplog.records if record.name == "topk_bandit.client"]
    assert record.levelno == logging.ERROR
    assert record.getMessage().startswith("home shows the shop's own ranking: ")
    assert client.recommend(home, fallback=OWN).source is Source.SERVICE


@BY_ONE_WAY
@pytest.mark.parametrize("size", ["2", 1.5, -1, [2]])
def test_a_size_that_is_none_shows_the_whole_ranking(client: EitherClient, size: Any) -> None:  # noqa: ANN401
    assert client.recommend("nowhere", fallback=OWN, fallback_size=size).items == tuple(OWN)


@BY_ONE_WAY
def test_an_item_that_is_named_twice_is_shown_once(client: EitherClient) -> None:
    assert client.recommend("nowhere", fallback=["b", "a", "b", "c"], fallback_size=3).items == ("b", "a", "c")


@BY_ONE_WAY
@pytest.mark.parametrize("bandit", [None, 5, ["home"], {"name": "home"}])
def test_what_is_no_name_breaks_no_page(client: EitherClient, bandit: Any) -> None:  # noqa: ANN401
    assert client.recommend(bandit, fallback=OWN).source is Source.FALLBACK


@BY_ONE_WAY
@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (errors.UnauthenticatedError(), "KEY_NEEDED"),
        (errors.ForbiddenError("SCOPE_NEEDED", "more"), "SCOPE_NEEDED"),
        (RuntimeError("a bug of the service"), "INTERNAL_ERROR"),
        (errors.ExhaustedError("CALLS_IN_FLIGHT", "full", retry_after=9.0), "CALLS_IN_FLIGHT"),
    ],
)
def test_what_the_service_refuses(
    server: RunningServer, make: Callable[..., EitherClient], target: str, home: str, fault: Exception, reason: str
) -> None:
    client = make(target, retry=ONCE)
    server.shop.faults["recommend"] = fault
    assert client.recommend(home, fallback=OWN).source is Source.FALLBACK
    assert client.fallbacks == {reason: 1}


def test_an_unknown_bandit(client: EitherClient) -> None:
    assert client.recommend("nowhere", fallback=OWN).source is Source.FALLBACK
    assert client.fallbacks == {"NOT_FOUND": 1}


def test_a_closed_client(server: RunningServer) -> None:
    with Client(server.target, tenant="acme") as client:
        pass
    assert client.recommend("home", fallback=OWN).source is Source.FALLBACK
    assert client.fallbacks == {"CANCELLED": 1}


@pytest.mark.parametrize("hedge_after", [None, 0.01])
def test_a_client_that_is_closed_while_it_asks(
    server: RunningServer, home: str, hedge_after: float | None, target: str
) -> None:
    async def run() -> None:
        client = AsyncClient(target, tenant="acme", fallback_timeout=PATIENCE, hedge_after=hedge_after)
        await client.recommend(home, fallback=OWN)
        server.close_gate()
        pages = [asyncio.create_task(client.recommend(home, fallback=OWN)) for _ in range(2)]
        bare = asyncio.create_task(client.recommend(home, timeout=PATIENCE))
        await asyncio.to_thread(server.ledger.wait_started, len(server.ledger.handled) + 3)
        pages[1].cancel()
        await asyncio.sleep(0)
        await client.close()
        ended = await asyncio.gather(*pages, bare, return_exceptions=True)
        server.open_gate()
        assert [type(one) for one in ended] == [Recommendation, asyncio.CancelledError, Cancelled]
        assert client.fallbacks == {"CANCELLED": 1}

    asyncio.run(run())


def test_without_a_fallback_errors_are_raised_and_not_counted(server: RunningServer, client: EitherClient) -> None:
    with pytest.raises(Exception, match="NOT_FOUND"):
        client.recommend("nowhere")
    assert (client.fallbacks, client.slates) == ({}, {})


def test_a_breaker_spares_the_service_until_it_answers(
    make: Callable[..., EitherClient], server: RunningServer, home: str, caplog: pytest.LogCaptureFixture, target: str
) -> None:

    now = [100.0]
    client = make(target, breaker=BreakerPolicy(failures=3, pause=2.0), clock=lambda: now[0])

    def shown() -> Source:
        return client.recommend(home, fallback=OWN).source

    server.shop.faults["recommend"] = RuntimeError("again and again")
    for _ in range(6):
        assert shown() is Source.FALLBACK
    assert server.shop.calls.count("recommend") == 3
    now[0] += 2.1
    assert [shown(), shown()] == [Source.FALLBACK, Source.FALLBACK]
    assert server.shop.calls.count("recommend") == 4  # one try
    del server.shop.faults["recommend"]
    assert shown() is Source.FALLBACK
    now[0] += 2.1
    assert [shown(), shown()] == [Source.SERVICE, Source.SERVICE]
    assert client.fallbacks["BREAKER_OPEN"] == 5
    messages = [record.getMessage() for record in caplog.records if record.name == "topk_bandit.client"]
    assert [line.partition(",")[0].partition(":")[0] for line in messages] == [
        "home shows the shop's own ranking",
        "the service did not answer 3 calls in a row",
        "the service answers again",
    ]


def test_a_breaker_lets_one_caller_through_in_each_pause() -> None:
    now = [0.0]
    breaker = Breaker(BreakerPolicy(failures=1, pause=1.0), clock=lambda: now[0])
    breaker.note(answered=False)
    passed = []
    for _ in range(1000):
        now[0] += 0.01
        passed.append(breaker.lets_through())  # and is never heard of again
    assert 9 <= sum(passed) <= 10
    breaker.note(answered=True)
    assert all(breaker.lets_through() for _ in range(10))


def test_without_a_breaker_every_call_is_made(server: RunningServer, home: str, target: str) -> None:
    server.shop.faults["recommend"] = RuntimeError("again and again")
    with Client(target, tenant="acme", breaker=None, fallback_timeout=PATIENCE) as client:
        for _ in range(8):
            client.recommend(home, fallback=OWN)
    assert server.shop.calls.count("recommend") == 8


@pytest.mark.parametrize("wrong", [{"failures": 0}, {"pause": 0.0}, {"pause": math.inf}])
def test_a_breaker_that_never_asks_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        BreakerPolicy(**wrong)


def test_a_second_attempt_has_the_same_request_id(
    make: Callable[..., EitherClient], server: RunningServer, target: str
) -> None:
    client = make(target, hedge_after=0.05)
    client.create_bandit("home", slate_size=1, item_capacity=9)
    client.upsert_items("home", ["a"])
    asked: list[object] = []
    answer = server.shop.recommend

    second = asyncio.Event()

    async def first_is_held(name: BanditName, request: RecommendationRequest, **named: int) -> Given:
        asked.append(request.request_id)
        if len(asked) == 1:
            await second.wait()
        given = await answer(name, request, **named)
        second.set()  # or the server would wait for the first call when it stops
        return given

    server.shop.recommend = first_is_held
    slate = client.recommend("home", timeout=PATIENCE)
    assert (slate.items, len(asked), set(asked)) == (("a",), 2, {slate.id})


def test_no_second_attempt_while_the_first_is_quick(
    make: Callable[..., EitherClient], server: RunningServer, target: str
) -> None:
    client = make(target, hedge_after=PATIENCE)
    client.create_bandit("home", slate_size=1, item_capacity=9)
    client.upsert_items("home", ["a"])
    for _ in range(5):
        client.recommend("home")
    assert server.shop.calls.count("recommend") == 5


def test_both_attempts_end_at_the_deadline(
    make: Callable[..., EitherClient], server: RunningServer, target: str
) -> None:
    client = make(target, hedge_after=0.05, fallback_timeout=1.0)
    client.create_bandit("home", slate_size=1, item_capacity=9)
    server.close_gate()
    assert client.recommend("home", fallback=OWN).source is Source.FALLBACK
    assert server.shop.calls.count("recommend") <= 2
    assert client.fallbacks == {"DEADLINE_EXCEEDED": 1}


def test_a_second_attempt_that_can_not_be_sent_leaves_it_to_the_first(
    server: RunningServer, home: str, target: str
) -> None:
    """A client can be closed by others just when its second attempt is due."""
    opening = threading.Timer(0.3, server.open_gate)
    with Client(target, tenant="acme", hedge_after=0.05) as client:
        client._connections._spare.channel.close()
        server.close_gate()
        opening.start()
        assert client.recommend(home, timeout=PATIENCE).source is Source.SERVICE
    opening.join()


def test_nor_does_an_asynchronous_one(server: RunningServer, home: str, target: str) -> None:
    async def run() -> None:
        async with AsyncClient(target, tenant="acme", hedge_after=0.05) as client:
            await client._connections._spare.channel.close()
            server.close_gate()
            asked = asyncio.create_task(client.recommend(home, timeout=PATIENCE))
            await asyncio.sleep(0.3)
            server.open_gate()
            assert (await asked).source is Source.SERVICE

    asyncio.run(run())


@pytest.mark.parametrize("seconds", [0.0, -1.0, math.inf, math.nan])
def test_a_delay_that_is_none_is_refused(seconds: float) -> None:
    with pytest.raises(ValueError, match="hedge_after"):
        Client("127.0.0.1:1", tenant="acme", hedge_after=seconds)
