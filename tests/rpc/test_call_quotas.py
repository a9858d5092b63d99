"""Calls a second and calls in flight: the bucket by itself, with a clock of the test's own, and a service with keys."""

from __future__ import annotations

import http.client
import json
from collections import Counter
from typing import TYPE_CHECKING

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.rpc.harness import channel_to, serving
from tests.rpc.keys import bearer, key, ring
from tests.rpc.wire import HOME, Refusal, refusal_of
from tests.waiting import PATIENCE

from topk_bandit.domain.errors import ExhaustedError
from topk_bandit.domain.quotas import UNLIMITED, Quota, Quotas
from topk_bandit.rpc.call_quotas import CallQuotas
from topk_bandit.rpc.calls_in_flight import CallPool, CallsInFlight, Place
from topk_bandit.rpc.http_server import HttpServer
from topk_bandit.v1 import bandit_service_pb2 as bandit_pb
from topk_bandit.v1 import operator_service_pb2 as operator_pb
from topk_bandit.v1 import recommender_service_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from google.protobuf.message import Message
    from tests.rpc.harness import RunningServer

CALLS, REWARDS = Quota.CALLS_PER_SECOND, Quota.REWARDS_PER_SECOND
RECOMMEND = "/topk_bandit.v1.RecommenderService/Recommend"
REWARD = "/topk_bandit.v1.RecommenderService/Reward"
STATS = "/topk_bandit.v1.OperatorService/GetTenantStats"
CREATE = "/topk_bandit.v1.BanditService/CreateBandit"
UNPARSABLE = b"\xff\xff\xff"


class Clock:
    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


# The bucket

rates = st.integers(1, 2000)
starts = st.floats(0.0, 1e7)
gaps = st.lists(st.one_of(st.just(0.0), st.floats(0.0, 3.0), st.floats(0.0, 0.01)), max_size=300)


@given(rate=rates, start=starts, gaps=gaps)
def test_no_time_has_more_than_the_rate_and_one_burst(rate: int, start: float, gaps: list[float]) -> None:
    clock = Clock(start)
    quotas = CallQuotas(Quotas({CALLS: rate}), clock=clock)
    taken = []
    for gap in gaps:
        clock.now += gap
        if quotas.refusal("shop", CALLS) is None:
            taken.append(clock.now)
    for begin, first in enumerate(taken):
        for count, last in enumerate(taken[begin:], start=1):
            assert count <= rate + rate * (last - first) + 1e-2


@given(rate=rates, start=starts, gaps=gaps, sizes=st.lists(st.integers(1, 100), min_size=300, max_size=300))
def test_a_call_that_counts_as_several_is_paid_for_by_those_after_it(
    rate: int, start: float, gaps: list[float], sizes: list[int]
) -> None:
    clock = Clock(start)
    quotas = CallQuotas(Quotas({CALLS: rate}), clock=clock)
    taken = 0
    for gap, size in zip(gaps, sizes, strict=False):
        clock.now += gap
        refusal = quotas.refusal("shop", CALLS)
        if refusal is not None:  # who waits as long as is said has a token
            clock.now += (refusal.retry_after or 0.0) + 1e-3
            assert quotas.refusal("shop", CALLS) is None
        # All before it is paid for, and its own first token.
        assert taken + 1 <= rate + rate * (clock.now - start) + 1e-2
        quotas.charge("shop", CALLS, size - 1)
        taken += size


def test_nothing_is_charged_where_nothing_is_limited() -> None:
    quotas = CallQuotas(Quotas(), clock=Clock())
    for tenant in ("shop", ""):
        assert quotas.refusal(tenant, CALLS) is None
        quotas.charge(tenant, CALLS, 10**6)
        assert quotas.refusal(tenant, CALLS) is None


@given(rate=rates, start=starts, gaps=gaps)
def test_a_caller_who_keeps_to_the_rate_is_never_refused(rate: int, start: float, gaps: list[float]) -> None:
    clock = Clock(start)
    quotas = CallQuotas(Quotas({CALLS: rate}), clock=clock)
    for _ in range(rate):  # what a full bucket holds, at once
        assert quotas.refusal("shop", CALLS) is None
    for gap in gaps:
        clock.now += 1.0 / rate + gap
        assert quotas.refusal("shop", CALLS) is None


@given(rate=rates, start=starts, extra=st.integers(0, 50))
def test_who_waits_for_the_retry_delay_is_let_in_and_no_earlier(rate: int, start: float, extra: int) -> None:
    clock = Clock(start)
    quotas = CallQuotas(Quotas({CALLS: rate}), clock=clock)
    refusals = [quotas.refusal("shop", CALLS) for _ in range(rate + 1 + extra)]
    assert refusals[:rate] == [None] * rate
    for refusal in refusals[rate:]:  # refusals take nothing
        assert refusal is not None
        assert refusal.retry_after == pytest.approx(1.0 / rate, abs=1e-5)
        assert (refusal.reason, refusal.limit, refusal.used) == ("CALL_QUOTA", rate, rate)
    wait = refusals[-1].retry_after  # type: ignore[union-attr]
    assert wait is not None
    clock.now = start + wait / 2
    assert quotas.refusal("shop", CALLS) is not None
    clock.now = start + wait
    assert quotas.refusal("shop", CALLS) is None
    assert quotas.refusal("shop", CALLS) is not None


def test_buckets_are_of_a_tenant_and_a_kind_and_follow_the_limit() -> None:
    clock = Clock()
    limits = Quotas({CALLS: 2}, {"big": {CALLS: 5}})
    quotas = CallQuotas(limits, clock=clock)

    def admitted(tenant: str, quota: Quota = CALLS) -> int:
        return sum(quotas.refusal(tenant, quota) is None for _ in range(20))

    assert [admitted(tenant) for tenant in ("loud", "quiet", "big", "loud")] == [2, 2, 5, 0]
    assert admitted("loud", REWARDS) == 20  # which are not limited
    assert admitted("") == 20  # a key for every tenant has no bucket
    limits.of_tenants = {"loud": {CALLS: 10}}
    clock.now += 0.5
    assert admitted("loud") == 10
    clock.now += 0.5
    assert admitted("loud") == 5
    clock.now += 3600.0
    assert [admitted("loud"), admitted("big")] == [10, 2]
    limits.of_tenants = {"loud": {CALLS: 1}}
    assert admitted("loud") == 0
    clock.now += 1.0
    assert admitted("loud") == 1  # what it owed by the higher limit is forgotten


# The places of calls in flight


def alternating_tenants(calls: CallsInFlight, tenants: Sequence[str], pool: CallPool) -> Counter[str]:
    """Let tenants take places by turns until each is refused; return how many each has."""
    taken, going = Counter[str](), list(tenants)
    while going:
        for tenant in tuple(going):
            place = Place(pool, tenant)
            if calls.refusal(place) is None:
                calls.take(place)
                taken[tenant] += 1
            else:
                going.remove(tenant)
    return taken


@given(n_loud=st.integers(1, 6), more=st.integers(0, 300), pool=st.sampled_from(CallPool))
def test_loud_tenants_leave_a_place_for_who_has_few(n_loud: int, more: int, pool: CallPool) -> None:
    limit = n_loud + 1 + more
    calls = CallsInFlight(limit=limit, quotas=Quotas(), clock=Clock(1000.0))
    for tenant in ("quiet", "loud-0"):
        calls.refusal(Place(CallPool.FEEDBACK, tenant))
    taken = alternating_tenants(calls, [f"loud-{number}" for number in range(n_loud)], pool)
    free = limit - taken.total()
    assert free >= 1
    assert all(free <= count <= free + n_loud for count in taken.values())
    assert max(taken.values()) - min(taken.values()) <= 1
    assert calls.refusal(Place(pool, "quiet")) is None
    assert calls.refusal(Place(pool)) is None  # a key for every tenant
    loud = calls.refusal(Place(pool, "loud-0"))
    assert isinstance(loud, ExhaustedError)
    assert (loud.reason, loud.retry_after) == ("CALLS_IN_FLIGHT", 0.1)


def test_who_is_alone_takes_all_places() -> None:
    clock = Clock(1000.0)
    calls = CallsInFlight(limit=32, quotas=Quotas(), clock=clock)
    assert alternating_tenants(calls, ["acme"], CallPool.REQUESTS) == {"acme": 32}
    assert calls.refusal(Place(CallPool.FEEDBACK, "globex")) is None
    assert alternating_tenants(calls, ["acme"], CallPool.FEEDBACK) == {"acme": 16}
    clock.now += 61.0
    assert alternating_tenants(calls, ["acme"], CallPool.FEEDBACK) == {"acme": 16}  # the other half
    without_keys = CallsInFlight(limit=32, quotas=Quotas(), clock=clock)
    assert alternating_tenants(without_keys, [""], CallPool.REQUESTS) == {"": 32}


# A service


@pytest.fixture
def clock() -> Clock:
    return Clock(1000.0)


@pytest.fixture
def running(clock: Clock) -> Iterator[RunningServer]:
    quotas = Quotas({CALLS: 5, Quota.CALLS_IN_FLIGHT: 3}, {"globex": {CALLS: UNLIMITED}})
    with serving(keys=ring(key("second")), clock=clock, quotas=quotas, max_in_flight=4) as server:
        yield server


@pytest.fixture
def channel(running: RunningServer) -> Iterator[grpc.Channel]:
    with channel_to(running.target) as channel:
        for owner in ("acme", "globex"):
            bandit = bandit_pb.Bandit(name=f"tenants/{owner}/bandits/home", slate_size=2, item_capacity=9)
            assert called(channel, CREATE, bandit_pb.CreateBanditRequest(bandit=bandit), "root") is None
        yield channel


def called(channel: grpc.Channel, path: str, request: Message | bytes, owner: str) -> Refusal | None:
    payload = request if isinstance(request, bytes) else request.SerializeToString()
    try:
        channel.unary_unary(path)(payload, timeout=PATIENCE, metadata=(("authorization", bearer(owner)),))
    except grpc.RpcError as error:
        return refusal_of(error)
    return None


def test_a_call_beyond_the_quota_is_refused_before_it_is_parsed(
    running: RunningServer, channel: grpc.Channel, clock: Clock
) -> None:
    for _ in range(5):
        assert called(channel, RECOMMEND, UNPARSABLE, "acme").code == "INVALID_ARGUMENT"  # type: ignore[union-attr]
    running.shop.calls.clear()
    for owner in ("acme", "second"):  # another key of the same tenant
        refusal = called(channel, RECOMMEND, UNPARSABLE, owner)
        assert refusal is not None
        assert (refusal.code, refusal.reason) == ("RESOURCE_EXHAUSTED", "CALL_QUOTA")
        assert refusal.message == "the quota calls_per_second of tenants/acme is used up: 5 of 5"
        assert refusal.violations == [("tenants/acme", refusal.message)]
        assert refusal.metadata == {"quota": "calls_per_second", "limit": "5", "used": "5"}
        assert refusal.retry_after == pytest.approx(0.2, abs=1e-5)
    assert running.shop.calls == []
    assert running.ledger.quota_refusals == ["calls_per_second"] * 2

    recommend = pb.RecommendRequest(bandit="tenants/globex/bandits/home")
    for _ in range(20):  # another tenant, without a limit of its own
        refused = called(channel, RECOMMEND, recommend, "globex")
        assert refused is None or refused.reason != "CALL_QUOTA"
    clock.now += 0.2
    assert called(channel, RECOMMEND, UNPARSABLE, "acme").code == "INVALID_ARGUMENT"  # type: ignore[union-attr]
    assert called(channel, RECOMMEND, UNPARSABLE, "acme").reason == "CALL_QUOTA"  # type: ignore[union-attr]


def test_rewards_have_a_quota_of_their_own(running: RunningServer, channel: grpc.Channel) -> None:
    codes = Counter(called(channel, RECOMMEND, UNPARSABLE, "acme").code for _ in range(9))  # type: ignore[union-attr]
    assert codes == {"INVALID_ARGUMENT": 5, "RESOURCE_EXHAUSTED": 4}
    for _ in range(20):
        assert called(channel, REWARD, UNPARSABLE, "acme").code == "INVALID_ARGUMENT"  # type: ignore[union-attr]
    running.quotas.of_tenants = {"acme": {REWARDS: 7}}  # while calls come
    codes = Counter(called(channel, REWARD, UNPARSABLE, "acme").code for _ in range(9))  # type: ignore[union-attr]
    assert codes == {"INVALID_ARGUMENT": 7, "RESOURCE_EXHAUSTED": 2}
    assert running.ledger.quota_refusals == ["calls_per_second"] * 4 + ["rewards_per_second"] * 2


def test_a_key_of_every_tenant_counts_for_none(running: RunningServer, channel: grpc.Channel) -> None:
    for _ in range(20):
        assert called(channel, STATS, operator_pb.GetTenantStatsRequest(tenant="tenants/acme"), "root") is None
    assert running.ledger.quota_refusals == []
    for _ in range(5):
        assert called(channel, STATS, operator_pb.GetTenantStatsRequest(tenant="tenants/acme"), "acme") is None
    assert called(channel, STATS, operator_pb.GetTenantStatsRequest(tenant="tenants/acme"), "acme") is not None


def test_a_tenant_leaves_places_among_the_calls_in_flight(running: RunningServer, channel: grpc.Channel) -> None:
    """The limit is four, and three for a tenant: while acme waits in all of them, globex comes in."""
    request = pb.RewardRequest(bandit=HOME, recommendation_id="p", value=1.0).SerializeToString()
    before = len(running.ledger.started)
    running.close_gate()
    shown = (("authorization", bearer("acme")),)
    waiting = [channel.unary_unary(REWARD).future(request, timeout=PATIENCE, metadata=shown) for _ in range(3)]
    running.ledger.wait_started(before + 3)
    refusal = called(channel, REWARD, request, "acme")
    assert refusal is not None
    assert (refusal.reason, refusal.metadata) == (
        "IN_FLIGHT_QUOTA",
        {"quota": "calls_in_flight", "limit": "3", "used": "3"},
    )
    assert refusal.retry_after is not None
    theirs = pb.RewardRequest(bandit="tenants/globex/bandits/home", recommendation_id="p", value=1.0)
    shown = (("authorization", bearer("globex")),)
    other = channel.unary_unary(REWARD).future(theirs.SerializeToString(), timeout=PATIENCE, metadata=shown)
    running.ledger.wait_started(before + 5)
    assert not any(call.done() for call in (*waiting, other))
    running.open_gate()
    for call in (*waiting, other):
        assert call.code().name == "NOT_FOUND"
    assert called(channel, REWARD, request, "acme").code == "NOT_FOUND"  # type: ignore[union-attr]


def test_both_doors_share_a_quota_and_tell_the_same(running: RunningServer, channel: grpc.Channel) -> None:
    listener = HttpServer("127.0.0.1:0", services=running.services, max_message_bytes=1_000_000, max_connections=10)
    port = running.run(listener.start())
    try:
        for _ in range(5):
            assert called(channel, RECOMMEND, UNPARSABLE, "acme").code == "INVALID_ARGUMENT"  # type: ignore[union-attr]
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
        headers = {"Content-Type": "application/json", "Authorization": bearer("acme")}
        connection.request("POST", RECOMMEND, "{}", headers)
        response = connection.getresponse()
        error = json.loads(response.read())
        connection.close()
    finally:
        running.run(listener.drain(0.0))
    assert (response.status, error["code"], response.headers["Retry-After"]) == (429, "resource_exhausted", "1")
    details = {detail["type"].rpartition(".")[2]: detail["debug"] for detail in error["details"]}
    assert details["ErrorInfo"]["metadata"] == {"quota": "calls_per_second", "limit": "5", "used": "5"}
    assert details["QuotaFailure"]["violations"] == [{"subject": "tenants/acme", "description": error["message"]}]
