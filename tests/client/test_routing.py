"""Where a client's calls go, from what answers tell: the state alone, without a socket."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from topk_bandit.client.resends import PATIENCE_SECONDS
from topk_bandit.client.routing import (
    MOST_OWNERS,
    RETRY_SECONDS,
    SHARED_SECONDS,
    SILENT_SECONDS,
    Routing,
    WorkerInfo,
    metadata_about,
    read_worker_header,
)

if TYPE_CHECKING:
    from collections.abc import Callable

HOME, SALE = "tenants/acme/bandits/home", "tenants/acme/bandits/sale"


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def routing(clock: Clock) -> Routing:
    return Routing(clock=clock)


def worker_header(worker: int, owner: int | str = "", *, workers: int = 4, service: str = "ab12cd34") -> str:
    return f"{worker}/{workers};service={service}" + (f";owner={owner}" if owner else "")


def call(routing: Routing, bandit: str, answer: str) -> int:
    """Make a call that is answered; return the connection that it went on."""
    link = routing.begin(bandit)
    routing.heard(link, bandit, answer)
    return link


def know_all(routing: Routing, *, workers: int = 4) -> dict[int, int]:
    """Have a connection at each worker, the first one at the first; return them by worker."""
    links = {1: 0}
    call(routing, "", worker_header(1, workers=workers))
    for worker in range(2, workers + 1):
        call(routing, f"tenants/acme/bandits/of-{worker}", worker_header(1, worker, workers=workers))
        assert routing.wants_another()
        found = routing.found(worker_header(worker, workers=workers))
        assert found is not None
        links[worker] = found
    return links


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("2/4;service=ab12cd34;owner=1", WorkerInfo(2, 4, "ab12cd34", 1, is_shared=False)),
        ("2/4;service=ab12cd34", WorkerInfo(2, 4, "ab12cd34", 0, is_shared=False)),
        ("2/4;service=ab12cd34;owner=any", WorkerInfo(2, 4, "ab12cd34", 0, is_shared=True)),
        ("2/4;service=ab12cd34;owner=1;more=said", WorkerInfo(2, 4, "ab12cd34", 1, is_shared=False)),
        *(
            (text, None)
            for text in ("", "5/4;service=a", "0/4;service=a", "2/4", "2/4;service=a;owner=5", "2/99;service=a")
        ),
    ],
)
def test_what_an_answer_tells(text: str, meaning: WorkerInfo | None) -> None:
    assert read_worker_header(text) == meaning


@given(st.text("0123456789/+-_ .\u0663"))
def test_any_other_header_is_unreadable_or_what_it_says(text: str) -> None:
    meaning = read_worker_header(text)
    assert meaning is None or text.startswith(f"{int(text.partition('/')[0]):0{len(text.partition('/')[0])}}/")


def test_a_service_of_one_worker_has_one_connection(routing: Routing) -> None:
    for _ in range(20):
        assert call(routing, HOME, "") == 0
        assert not routing.wants_another()


def test_where_there_are_several_workers_there_is_a_second_one_to_turn_to(routing: Routing) -> None:
    assert call(routing, HOME, worker_header(2, 2)) == 0
    assert routing.wants_another()
    assert routing.found(worker_header(1)) is not None
    assert call(routing, HOME, worker_header(2, 2)) == 0
    assert not routing.wants_another(), "more are for owners alone"
    link = routing.begin(HOME)
    assert routing.has_another(link)


def test_a_call_goes_to_the_owner_once_there_is_a_connection_to_it(routing: Routing) -> None:
    assert call(routing, HOME, worker_header(2, 3)) == 0
    assert routing.wants_another()
    assert call(routing, HOME, worker_header(2, 3)) == 0, "nothing waits for another connection"
    assert not routing.wants_another(), "one is tried at a time"
    link = routing.found(worker_header(3))
    assert link is not None
    assert [call(routing, HOME, worker_header(3, 3)) for _ in range(3)] == [link] * 3
    assert call(routing, SALE, worker_header(2, 2)) == 0
    assert not routing.wants_another()


@pytest.mark.parametrize(
    "found", [worker_header(2), worker_header(3, service="other"), worker_header(3, workers=5), ""]
)
def test_a_connection_that_is_of_no_use_is_closed(routing: Routing, found: str) -> None:
    call(routing, HOME, worker_header(2, 3))
    assert routing.wants_another()
    assert routing.found(found) is None
    assert routing.links == (0,)


def test_connections_are_tried_seldom_where_that_is_no_use(routing: Routing, clock: Clock) -> None:
    tries = []
    for second in range(3600):
        clock.now = 1000.0 + second
        call(routing, HOME, worker_header(2, 3))
        if routing.wants_another():
            tries.append(second)
            routing.found(worker_header(2))
    assert tries[:16] == list(range(16)), "four times as many as there are workers, and then ever more seldom"
    assert len(tries) < 16 * 4 + 3600 / RETRY_SECONDS
    call(routing, HOME, worker_header(2, 3))
    clock.now += RETRY_SECONDS
    assert routing.wants_another()


@pytest.mark.parametrize("workers", [2, 4, 16])
def test_an_owner_is_found_in_a_minute_though_each_try_is_at_a_worker_by_chance(workers: int) -> None:
    """The chance to miss it is 1e-4 of 16 workers, and 1e-7 of two; with pauses that doubled each time it was 1e-2."""
    random, missed = Random(workers), 0
    for _ in range(300):
        clock = Clock()
        routing, end, places = Routing(clock=clock), clock.now + 60.0, {0: 1}
        while 2 not in places.values() and clock.now < end:
            link = routing.begin(HOME)
            routing.heard(link, HOME, worker_header(places[link], 2, workers=workers))
            if routing.wants_another():
                place = random.randint(1, workers)
                found = routing.found(worker_header(place, workers=workers))
                places |= {} if found is None else {found: place}
            clock.now += 0.02
        missed += 2 not in places.values()
    assert missed == 0


def test_a_bandit_that_has_moved_makes_tries_begin_anew(routing: Routing, clock: Clock) -> None:
    for _ in range(40):  # a worker that starts answers nobody
        call(routing, HOME, worker_header(2, 2))
        call(routing, SALE, worker_header(2, 3))
        if routing.wants_another():
            routing.found(worker_header(2))
        clock.now += 0.1
    call(routing, SALE, worker_header(2, 3))
    assert not routing.wants_another(), "in a while"
    call(routing, HOME, worker_header(2, 3))
    assert routing.wants_another(), "it has moved to a worker that answers now"
    routing.found(worker_header(2))
    call(routing, HOME, worker_header(2, 4))
    for _ in range(16):
        if routing.wants_another():
            routing.found(worker_header(2))
        call(routing, HOME, worker_header(2, 4))
    call(routing, HOME, worker_header(2, 3))
    assert not routing.wants_another(), "moves that each answer names are no reason"


def test_a_connection_that_said_nothing_is_tried_by_one_call_while_others_answer(
    routing: Routing, clock: Clock
) -> None:
    links = know_all(routing)
    call(routing, HOME, worker_header(1, 3))
    assert not routing.is_probe(routing.begin(HOME)), "it was heard of"
    routing.silent(links[3], begun=clock.now + 0.5)
    clock.now += SILENT_SECONDS
    assert routing.begin(HOME) == links[3]
    assert routing.is_probe(links[3])
    assert routing.begin(HOME) != links[3], "one finds out"
    routing.heard(links[3], HOME, worker_header(3, 3))
    assert not routing.is_probe(routing.begin(HOME))


def test_a_call_that_is_sent_again_goes_elsewhere_though_others_were_just_answered_there(
    routing: Routing, clock: Clock
) -> None:
    links = know_all(routing)
    call(routing, HOME, worker_header(1, 3))
    first, second = routing.begin(HOME), routing.begin(HOME)
    assert first == second == links[3]
    clock.now += 0.4
    routing.heard(second, HOME, worker_header(3, 3))
    clock.now += 0.1
    routing.silent(first, begun=clock.now - 0.5)
    assert routing.begin(HOME) == links[3], "for all that is known it answers"
    assert routing.begin(HOME, avoid=first) != links[3]


def test_the_only_connection_is_gone_on_with(routing: Routing) -> None:
    assert routing.begin(HOME, avoid=routing.begin(HOME)) == 0


def test_where_all_say_nothing_no_call_is_a_probe(routing: Routing, clock: Clock) -> None:
    begun = [routing.begin(f"tenants/acme/bandits/of-{worker}") for worker in know_all(routing)]
    assert len(set(begun)) == len(begun)
    for link in begun:
        routing.silent(link, begun=clock.now + 0.5)
    assert not routing.is_probe(routing.begin(HOME))


def test_when_the_owner_dies_calls_go_on_elsewhere(routing: Routing) -> None:
    links = know_all(routing)
    call(routing, HOME, worker_header(1, 3))
    assert routing.begin(HOME) == links[3]
    routing.lost(links[3])
    assert routing.take_left() == [links[3]]
    assert call(routing, HOME, worker_header(1, 2)) == links[1]
    assert call(routing, HOME, worker_header(2, 2)) == links[2], "who owns it now"
    call(routing, HOME, worker_header(2, 3))
    assert routing.wants_another(), "it is back"
    found = routing.found(worker_header(3))
    assert found not in {None, *links.values()}
    assert call(routing, HOME, worker_header(3, 3)) == found


def test_when_the_first_connection_ends_another_one_takes_its_place(routing: Routing) -> None:
    links = know_all(routing)
    routing.begin(SALE)
    routing.lost(routing.begin(""))
    assert 0 not in routing.links
    assert routing.take_left() == []
    assert routing.begin("") == links[2]
    routing.heard(0, SALE, worker_header(1, 1))
    assert routing.take_left() == [0], "not before the last call on it has ended"


def test_the_only_connection_stays(routing: Routing) -> None:
    for _ in range(10):
        routing.lost(routing.begin(HOME))
    assert routing.links == (0,)
    assert routing.take_left() == []


def test_a_connection_that_was_made_anew_may_be_at_another_worker(routing: Routing) -> None:
    links = know_all(routing, workers=3)
    call(routing, HOME, worker_header(1, 3, workers=3))
    assert call(routing, HOME, worker_header(2, 3, workers=3)) == links[3], "which is at the second worker now"
    assert routing.take_left() == [links[3]], "where there is one already"
    assert call(routing, HOME, worker_header(1, 3, workers=3)) == 0
    assert routing.wants_another()
    call(routing, "", worker_header(3, workers=3))
    assert call(routing, HOME, worker_header(3, 3, workers=3)) == 0, "now the first one is at the owner"


def test_a_proxy_that_sends_each_call_elsewhere_is_noticed(routing: Routing, clock: Clock) -> None:
    tries = 0
    for number in range(400):
        clock.now += 0.1
        link = routing.begin(HOME)
        routing.heard(link, HOME, worker_header(1 + number % 4, 3))
        if routing.wants_another():
            tries += 1
            routing.found(worker_header(1 + (number + 1) % 4))
    assert routing.links == (routing.begin(HOME),)
    assert tries <= 8


@pytest.mark.parametrize("seconds", [0.1, 10.0])
def test_services_behind_one_name_are_taken_for_such_a_proxy(routing: Routing, clock: Clock, seconds: float) -> None:
    tries = 0
    for number in range(400):
        clock.now += seconds
        call(routing, HOME, worker_header(1, 2, service=f"service{number % 3}"))
        if routing.wants_another():
            tries += 1
            routing.found(worker_header(2, service=f"service{number % 3}"))
    assert len(routing.links) == 1
    assert tries <= 8 + 400 * seconds / RETRY_SECONDS


def test_services_that_have_a_bandit_each_are_too(routing: Routing, clock: Clock) -> None:
    tries = 0
    for number in range(400):
        clock.now += 1.0
        bandit, service = ((HOME, "first"), (SALE, "second"))[number // 20 % 2]
        call(routing, bandit, worker_header(1, 2, service=service))
        if routing.wants_another():
            tries += 1
            routing.found(worker_header(1 + number % 2, service="second"))
    assert len(routing.links) == 1
    assert tries <= 32


def test_a_service_that_was_started_anew_is_met_anew(routing: Routing) -> None:
    links = know_all(routing)
    call(routing, HOME, worker_header(1, 3))
    assert call(routing, HOME, worker_header(2, 1, workers=2, service="another")) == links[3]
    assert routing.links == (links[3],)
    assert sorted(routing.take_left()) == sorted({*links.values()} - {links[3]})
    assert routing.wants_another()
    assert routing.found(worker_header(1, workers=2, service="another")) is not None


def test_one_that_was_started_anew_with_one_worker_has_one_connection(routing: Routing) -> None:
    links = know_all(routing)
    call(routing, HOME, worker_header(1, 3))
    assert call(routing, HOME, "") == links[3]
    assert routing.links == (links[3],)
    assert sorted(routing.take_left()) == sorted({*links.values()} - {links[3]})
    for _ in range(20):
        assert call(routing, HOME, "") == links[3]
        assert not routing.wants_another()
    call(routing, HOME, worker_header(2, 3, service="another"))
    assert routing.wants_another()
    assert routing.found(worker_header(3, service="another")) is not None


def test_a_hot_bandit_is_anybodys_for_a_while(routing: Routing, clock: Clock) -> None:
    links = know_all(routing)
    call(routing, HOME, worker_header(1, 3))
    call(routing, HOME, worker_header(3, "any"))
    workers, counts = {link: worker for worker, link in links.items()}, Counter[int]()
    for _ in range(8):
        link = routing.begin(HOME)
        routing.heard(link, HOME, worker_header(workers[link], 3))
        counts[link] += 1
    assert counts == dict.fromkeys(workers, 2)
    clock.now += SHARED_SECONDS
    assert call(routing, HOME, worker_header(3, 3)) == links[3]


def test_a_hot_bandit_is_worth_connections(routing: Routing) -> None:
    call(routing, HOME, worker_header(1, "any"))
    assert routing.wants_another()
    assert routing.found(worker_header(4)) is not None
    assert {routing.begin(HOME), routing.begin(HOME)} == set(routing.links) == {0, 1}


def test_a_connection_on_which_nothing_is_answered_is_passed_over(routing: Routing, clock: Clock) -> None:
    links = know_all(routing)
    call(routing, HOME, worker_header(1, 3))
    clock.now += 1.0
    begun = clock.now
    assert routing.begin(HOME) == links[3]
    clock.now += 0.15
    routing.silent(links[3], begun)
    assert call(routing, HOME, worker_header(1, 3)) == 0
    clock.now += SILENT_SECONDS
    begun = clock.now
    assert routing.begin(HOME) == links[3]
    assert call(routing, HOME, worker_header(1, 3)) == 0, "one call looks whether it answers again"
    clock.now += 0.1
    routing.heard(links[3], HOME, worker_header(3, 3))
    begun = clock.now
    assert [routing.begin(HOME), routing.begin(HOME)] == [links[3]] * 2
    clock.now += 0.1
    routing.heard(links[3], HOME, worker_header(3, 3))
    routing.silent(links[3], begun)
    assert routing.begin(HOME) == links[3], "it has answered meanwhile: that one call was slow"


def test_one_that_owes_an_answer_for_long_is_passed_over(routing: Routing, clock: Clock) -> None:
    links = know_all(routing)
    clock.now += 100.0
    call(routing, HOME, worker_header(1, 3))
    assert routing.begin(HOME) == links[3], "it had nothing to answer before"
    clock.now += PATIENCE_SECONDS
    assert routing.begin(HOME) == links[3]
    clock.now += 0.1
    assert call(routing, HOME, worker_header(1, 3)) == 0
    routing.heard(links[3], HOME, worker_header(3, 3))
    assert routing.begin(HOME) == links[3]


def test_where_all_owe_an_answer_the_one_that_answered_last_is_asked(routing: Routing, clock: Clock) -> None:
    links = know_all(routing, workers=3)
    call(routing, HOME, worker_header(1, 3, workers=3))
    for _ in range(2):
        for bandit, worker in (("", 1), ("tenants/acme/bandits/of-2", 2), (HOME, 3)):
            assert routing.begin(bandit) == links[worker]
    for worker in (1, 2):
        clock.now += PATIENCE_SECONDS + 0.1
        routing.heard(links[worker], "", worker_header(worker, workers=3))
    clock.now += PATIENCE_SECONDS + 0.1
    assert routing.begin(HOME) == links[3], "the first time it is the owner's"
    assert routing.begin(HOME, avoid=links[3]) == links[2]
    begun = clock.now
    clock.now += PATIENCE_SECONDS
    routing.heard(links[1], "", worker_header(1, workers=3))
    routing.silent(links[3], begun)
    routing.heard(links[2], "", worker_header(2, workers=3))
    routing.silent(links[2], clock.now)
    clock.now += PATIENCE_SECONDS + 0.1
    assert routing.begin(HOME) == links[1], "both others let a call's time go by"


def test_owners_of_so_many_bandits_are_known(routing: Routing) -> None:
    links = know_all(routing)
    names = [f"tenants/acme/bandits/{number}" for number in range(MOST_OWNERS + 1)]
    for name in names[:-10]:
        call(routing, name, worker_header(1, 3))
    assert routing.begin(names[0]) == links[3]
    for name in names[-10:]:
        call(routing, name, worker_header(1, 3))
    assert len(routing._owners) < 10
    assert routing.begin(names[0]) == 0


def test_names_that_are_too_long_are_not_kept(routing: Routing) -> None:
    for answer in (worker_header(1, 3), worker_header(1, "any")):
        call(routing, "x" * 100_000, answer)
    assert not routing._owners
    assert not routing._shared


def test_load_balancers_get_the_name_of_the_bandit() -> None:
    assert metadata_about(HOME) == (("topk-bandit-name", HOME),)


@pytest.mark.parametrize("name", ["", "x" * 201, "caf\u00e9", "a\nb: c"])
def test_what_can_be_no_metadata_is_left_out(name: str) -> None:
    assert metadata_about(name) == ()


class AnyLife(RuleBasedStateMachine):
    """Connections to workers that live, die, hang and are started anew, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.routing = Routing(clock=self.clock)
        self.under_way: list[tuple[int, str]] = []
        self.closed: set[int] = set()
        self.is_trying = False

    def _end(self, place: int, end: Callable[[int, str], None]) -> None:
        if self.under_way:
            end(*self.under_way.pop(place % len(self.under_way)))

    @rule(bandit=st.sampled_from(["", HOME, SALE]))
    def begin(self, bandit: str) -> None:
        link = self.routing.begin(bandit)
        assert link in self.routing.links
        assert link not in self.closed
        self.under_way.append((link, bandit))

    @rule(
        place=st.integers(0, 9),
        worker=st.integers(1, 3),
        owner=st.sampled_from(["", "any", 1, 2, 3]),
        service=st.sampled_from(["a", "b", ""]),
    )
    def heard(self, place: int, worker: int, owner: int | str, service: str) -> None:
        answer = worker_header(worker, owner, workers=3, service=service) if service else ""
        self._end(place, lambda link, bandit: self.routing.heard(link, bandit, answer))

    @rule(place=st.integers(0, 9))
    def lost(self, place: int) -> None:
        self._end(place, lambda link, _: self.routing.lost(link))

    @rule(place=st.integers(0, 9))
    def silent(self, place: int) -> None:
        self._end(place, lambda link, _: self.routing.silent(link, self.clock.now - 0.1))

    @rule(place=st.integers(0, 9))
    def ended(self, place: int) -> None:
        self._end(place, lambda link, _: self.routing.ended(link))

    @rule()
    def wants_another(self) -> None:
        wanted = self.routing.wants_another()
        assert not (wanted and self.is_trying)
        self.is_trying = self.is_trying or wanted

    @rule(worker=st.integers(0, 3), service=st.sampled_from("ab"))
    def found(self, worker: int, service: str) -> None:
        if self.is_trying:
            self.routing.found(worker_header(worker, workers=3, service=service) if worker else "")
            self.is_trying = False

    @rule(seconds=st.floats(0.0, 400.0))
    def passes(self, seconds: float) -> None:
        self.clock.now += seconds

    @rule()
    def close(self) -> None:
        left = self.routing.take_left()
        assert not set(left) & self.closed
        assert not set(left) & {link for link, _ in self.under_way}, "a call goes on there"
        self.closed.update(left)

    @invariant()
    def there_is_one_and_no_more_than_workers(self) -> None:
        assert 1 <= len(self.routing.links) <= 3 + 1
        assert not set(self.routing.links) & self.closed

    @invariant()
    def each_worker_has_one(self) -> None:
        assert set(self.routing._at.values()) <= set(self.routing.links)
        assert len(set(self.routing._at.values())) == len(self.routing._at)


TestAnyLife = AnyLife.TestCase
