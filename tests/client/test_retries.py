from __future__ import annotations

import random
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from tests.client.conftest import ONCE
from tests.long_forms import usual_or_long
from tests.rpc.harness import RunningServer, serving
from tests.rpc.shop import Shop
from tests.servers import free_port
from tests.waiting import PATIENCE

from topk_bandit.client import (
    Client,
    ClientError,
    DeadlineExceeded,
    ErrorDetails,
    NotFound,
    ResourceExhausted,
    RetryPolicy,
    Unavailable,
)
from topk_bandit.client.retries import Attempts
from topk_bandit.domain import errors
from topk_bandit.domain.bandits import BanditName

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.client.conftest import EitherClient

    from topk_bandit.domain.slates import Recommendation, RecommendationRequest

NAME = BanditName("acme", "home")
CALLERS = 24
RESTARTS = usual_or_long(3, long=30)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def attempts(clock: Clock, *, timeout: float = 60.0, repeatable: bool = True, draw: float = 1.0) -> Attempts:
    policy = RetryPolicy(initial_backoff=0.1, multiplier=2.0, max_backoff=1.0)
    return Attempts(policy, repeatable=repeatable, timeout=timeout, clock=clock, random=lambda: draw)


def unavailable(retry_after: float | None = None) -> ClientError:
    return Unavailable(ErrorDetails("UNAVAILABLE", "away", retry_after=retry_after))


def exhausted(retry_after: float | None) -> ClientError:
    return ResourceExhausted(ErrorDetails("RESOURCE_EXHAUSTED", "full", retry_after=retry_after))


@pytest.mark.parametrize(
    ("draw", "pauses"), [(1.0, [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]), (0.0, [0.05, 0.1, 0.2, 0.4, 0.5, 0.5])]
)
def test_pauses_grow_to_a_cap_within_the_jitter(draw: float, pauses: list[float]) -> None:
    tries = attempts(Clock(), draw=draw)
    assert [tries.pause_after(unavailable()) for _ in pauses] == pytest.approx(pauses)


def test_the_service_is_given_the_time_it_asks_for() -> None:
    assert attempts(Clock()).pause_after(exhausted(5.0)) == pytest.approx(5.1)
    assert attempts(Clock()).pause_after(unavailable(0.5)) == pytest.approx(0.6)


def test_nothing_goes_beyond_the_deadline() -> None:
    clock = Clock()
    tries = attempts(clock, timeout=1.0)
    assert tries.remaining() == pytest.approx(1.0)
    clock.now += 0.85
    assert tries.pause_after(unavailable()) == pytest.approx(0.1)
    assert tries.pause_after(unavailable()) is None
    clock.now += 5.0
    assert tries.remaining() == 0.0


def test_what_is_not_tried_again() -> None:
    assert attempts(Clock()).pause_after(exhausted(None)) is None
    assert attempts(Clock()).pause_after(NotFound(ErrorDetails("NOT_FOUND", "none"))) is None
    assert attempts(Clock()).pause_after(DeadlineExceeded(ErrorDetails("DEADLINE_EXCEEDED", "late"))) is None
    assert attempts(Clock(), repeatable=False).pause_after(unavailable(0.1)) is None


def test_thousands_of_retries_stay_at_the_cap() -> None:
    assert RetryPolicy().pause(100_000, random=lambda: 1.0) == 1.0


@pytest.mark.parametrize(
    "wrong", [{"initial_backoff": 0.0}, {"initial_backoff": 2.0}, {"multiplier": 0.9}, {"multiplier": float("nan")}]
)
def test_a_policy_that_does_not_back_off_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        RetryPolicy(**wrong)


class Forgetful(Shop):
    """A shop that loses the first reply of every writing call, after it had its effect."""

    def __init__(self) -> None:
        super().__init__()
        self.lost: set[str] = set()

    def __getattribute__(self, name: str) -> object:
        attribute = super().__getattribute__(name)
        if name not in {
            "recommend",
            "reward",
            "create_bandit",
            "update_bandit",
            "delete_bandit",
            "upsert_items",
            "retire_items",
        }:
            return attribute

        async def lossy(*arguments: object, **named: object) -> object:
            answer = await attribute(*arguments, **named)
            if name not in self.lost:
                self.lost.add(name)
                raise errors.UnavailableError("the reply was lost", retry_after=0.01)
            return answer

        return lossy


def test_repeatable_calls_have_one_effect_when_replies_are_lost(make: Callable[..., EitherClient]) -> None:
    shop = Forgetful()
    with serving(shop) as server:
        client = make(server.target)
        client.create_bandit("home", slate_size=1, item_capacity=9)
        assert client.upsert_items("home", ["a", "b"]) == 2
        assert client.retire_items("home", ["b"]) == 1
        recommendation = client.recommend("home")
        assert client.reward("home", recommendation.id, 1.0).outcome == "duplicate"
        loop = shop.loops[NAME]
    assert list(loop.given) == [recommendation.id]
    assert loop.rewards == {recommendation.id: 1.0}
    assert shop.lost == {"create_bandit", "upsert_items", "retire_items", "recommend", "reward"}
    assert [shop.calls.count(call) for call in sorted(shop.lost)] == [2] * 5


def test_calls_that_are_not_repeatable_are_sent_once(make: Callable[..., EitherClient]) -> None:
    shop = Forgetful()
    with serving(shop) as server:
        client = make(server.target)
        client.create_bandit("home", slate_size=1, item_capacity=9)
        with pytest.raises(Unavailable):
            client.update_bandit("home", uniform_share=0.5)
        with pytest.raises(Unavailable):
            client.delete_bandit("home")
    assert [shop.calls.count(call) for call in ("update_bandit", "delete_bandit")] == [1, 1]


def test_a_store_that_comes_back_is_waited_for(
    make: Callable[..., EitherClient], server: RunningServer, target: str
) -> None:
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        server.shop.away = len(pauses) < 3

    client = make(target, sleep=sleep, random=lambda: 1.0)
    client.create_bandit("home", slate_size=1, item_capacity=9)
    server.shop.away = True
    assert client.get_bandit("home").name == "home"
    assert pauses == pytest.approx([0.3, 0.35, 0.45])
    assert server.shop.calls.count("get_bandit") == 4


def test_errors_that_will_not_pass_are_raised_at_once(
    make: Callable[..., EitherClient], server: RunningServer, target: str
) -> None:
    client = make(target, sleep=pytest.fail)
    with pytest.raises(NotFound):
        client.get_bandit("none")
    with pytest.raises(ResourceExhausted) as caught:
        client.recommend("x" * 9_000_000)
    assert caught.value.retry_after is None


def test_a_refused_call_waits_for_the_retry_delay(make: Callable[..., EitherClient]) -> None:
    with serving(max_in_flight=1) as server:
        pauses: list[float] = []

        def sleep(seconds: float) -> None:
            pauses.append(seconds)
            server.open_gate()
            server.ledger.wait_handled(3)

        other, client = make(server.target), make(server.target, sleep=sleep, random=lambda: 0.0)
        other.create_bandit("home", slate_size=1, item_capacity=9)
        server.close_gate()
        holder = threading.Thread(target=other.get_bandit, args=("home",))
        holder.start()
        server.ledger.wait_started(2)
        assert client.get_bandit("home").name == "home"
        holder.join()
    assert pauses == pytest.approx([0.125])


def test_a_server_that_comes_up_late_is_found(make: Callable[..., EitherClient]) -> None:
    address = f"127.0.0.1:{free_port()}"
    client = make(address)
    started: list[RunningServer] = []
    timer = threading.Timer(0.7, lambda: started.append(RunningServer(address=address)))
    begin = time.monotonic()
    timer.start()
    try:
        assert list(client.list_bandits()) == []
    finally:
        timer.join()
        for server in started:
            server.stop()
    assert time.monotonic() - begin > 0.7


def test_a_server_that_restarts_is_found_again(make: Callable[..., EitherClient]) -> None:
    address = f"127.0.0.1:{free_port()}"
    with serving(address=address) as first:
        client = make(first.target)
        client.create_bandit("home", slate_size=1, item_capacity=9)
    with serving(first.shop, address=address):
        assert client.get_bandit("home").name == "home"


@pytest.mark.long_form
def test_no_restart_is_seen_by_calls_with_time_left() -> None:
    address, shop, ended = f"127.0.0.1:{free_port()}", Shop(), threading.Event()
    with serving(shop, address=address), Client(address, tenant="acme", timeout=PATIENCE) as client:
        client.create_bandit("home", slate_size=1, item_capacity=9)
        client.upsert_items("home", ["a"])
    with ThreadPoolExecutor(CALLERS) as pool:
        failures = [pool.submit(call_until, ended, address) for _ in range(CALLERS)]
        for _ in range(RESTARTS):
            with serving(shop, address=address):
                time.sleep(0.25)
        with serving(shop, address=address):
            ended.set()
            assert [failure.result() for failure in failures] == [[]] * CALLERS


def call_until(ended: threading.Event, address: str) -> list[ClientError]:
    """Ask for slates through a client of its own; return what was raised."""
    failures = []
    with Client(address, tenant="acme", timeout=PATIENCE) as client:
        while not ended.is_set():
            try:
                client.recommend("home")
            except ClientError as error:
                failures.append(error)
    return failures


@pytest.mark.parametrize("timeout", [0.05, 0.6])
def test_the_deadline_holds_when_nobody_answers(make: Callable[..., EitherClient], timeout: float) -> None:
    client = make(f"127.0.0.1:{free_port()}")
    with pytest.raises((Unavailable, DeadlineExceeded)):
        client.recommend("home", timeout=timeout)


@pytest.mark.parametrize("listener", ["127.0.0.1:{port}", "localhost:{port}", "unix:{folder}/none.sock"])
def test_an_address_without_a_listener_is_one_error_that_says_so(
    make: Callable[..., EitherClient], tmp_path: Path, listener: str
) -> None:
    target = listener.format(port=free_port(), folder=tmp_path)
    with pytest.raises(Unavailable) as caught:
        make(target, retry=ONCE).get_bandit("home")
    printed = "".join(traceback.format_exception(caught.value))
    assert printed.count("Traceback") == 1
    assert printed.rstrip().endswith(
        f"UNAVAILABLE: nothing listens at {target}: start the service with `make serve` or `topk-bandit serve`"
    )


def test_errors_of_the_service_are_one_traceback_too(make: Callable[..., EitherClient], server: RunningServer) -> None:
    with pytest.raises(NotFound) as caught:
        make(server.target).get_bandit("none")
    assert "".join(traceback.format_exception(caught.value)).count("Traceback") == 1


def test_the_deadline_holds_when_the_answer_is_slow(
    make: Callable[..., EitherClient], server: RunningServer, target: str
) -> None:
    client = make(target, timeout=0.3, sleep=pytest.fail)
    server.close_gate()
    begin = time.monotonic()
    with pytest.raises(DeadlineExceeded):
        client.recommend("home")
    assert time.monotonic() - begin > 0.25
    assert len(server.shop.calls) <= 1, "a machine that stands still may not have sent it at all"


def test_the_same_request_is_sent_again(make: Callable[..., EitherClient], server: RunningServer, target: str) -> None:
    seen: list[tuple[RecommendationRequest, int]] = []

    async def recommend(
        name: BanditName, request: RecommendationRequest, *, min_model_version: int, strict_candidates: bool
    ) -> Recommendation:
        assert not strict_candidates
        seen.append((request, min_model_version))
        if len(seen) < 4:
            raise errors.UnavailableError("away", retry_after=0.0)
        return await Shop.recommend(server.shop, name, request, min_model_version=min_model_version)

    client = make(target, random=random.Random(7).random)
    client.create_bandit("home", slate_size=1, item_capacity=9)
    client.upsert_items("home", ["a"])
    server.shop.recommend = recommend
    assert client.recommend("home", min_model_version=7).items == ("a",)
    assert len(seen) == 4
    assert len(set(seen)) == 1
    assert seen[0][1] == 7
