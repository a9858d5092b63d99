"""Every kind of bad call over the wire, and a look at every key of the store before and after it."""

from __future__ import annotations

import hashlib
import math
import re
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.field_mask_pb2 import FieldMask
from tests.rpc.harness import channel_to
from tests.rpc.wire import HOME, bandit, create, recommend, refused
from tests.waiting import PATIENCE

from topk_bandit.domain.bandits import MAX_SLATE_SIZE
from topk_bandit.v1 import bandit_service_pb2 as bpb
from topk_bandit.v1 import recommender_service_pb2 as rpb
from topk_bandit.v1.bandit_service_pb2_grpc import BanditServiceStub
from topk_bandit.v1.recommender_service_pb2_grpc import RecommenderServiceStub

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import redis
    from google.protobuf.message import Message
    from tests.faults.service import Service

LONG = "x" * 1_000_000
SCARCE = "tenants/acme/bandits/scarce"
STRANGER = "tenants/stranger/bandits/home"


@pytest.fixture(scope="module")
def channel(shared_service: Service) -> Iterator[grpc.Channel]:
    """A shop with a bandit that has seen everything, and one with fewer items than a slate needs."""
    with channel_to(shared_service.address) as channel:
        create(channel, HOME, context_dimension=2, item_capacity=6)
        create(channel, SCARCE, items="a", context_dimension=2)
        BanditServiceStub(channel).RetireItems(bpb.RetireItemsRequest(bandit=HOME, item_ids=["d"]), timeout=PATIENCE)
        yield channel


@pytest.fixture(scope="module")
def given(channel: grpc.Channel) -> dict[str, str]:
    """Ids of a rewarded recommendation, and of an open one."""
    rewarded = recommend(channel, context=[1.0, 0.0], request_id="rewarded").recommendation_id
    RecommenderServiceStub(channel).Reward(
        rpb.RewardRequest(bandit=HOME, recommendation_id=rewarded, value=1.0), timeout=PATIENCE
    )
    return {
        "rewarded": rewarded,
        "open": recommend(channel, context=[1.0, 0.0], request_id="open").recommendation_id,
    }


def digest(store: redis.Redis) -> dict[bytes, str]:
    """Return a hash of each key, without the signs of life of followers and workers, which time alone changes."""
    keys = [key for key in store.scan_iter(count=1000) if not key.endswith((b":followers", b":programs"))]
    return {key: hashlib.sha256(store.dump(key) or b"").hexdigest() for key in sorted(keys)}


@contextmanager
def unchanged(store: redis.Redis) -> Iterator[None]:
    before = digest(store)
    assert len(before) > 8
    yield
    assert digest(store) == before


@dataclass(frozen=True)
class Bad:
    """A call and how it is refused; "$open" and "$rewarded" in a recommendation id stand for real ones."""

    method: str
    request: Message
    code: str
    told: str = ""
    id: str = field(default="")


def recommends(code: str, told: str = "", **request: object) -> Bad:
    return Bad("Recommend", rpb.RecommendRequest(**{"bandit": HOME, "context": [1.0, 0.0], **request}), code, told)


def rewards(code: str, told: str = "", **request: object) -> Bad:
    wanted = {"bandit": HOME, "recommendation_id": "$open", "value": 1.0, **request}
    return Bad("Reward", rpb.RewardRequest(**wanted), code, told)


def changes(method: str, code: str, told: str = "", **request: object) -> Bad:
    wanted = {"bandit": HOME, "recommendation_id": "$open", **request}
    return Bad(method, getattr(rpb, f"{method}Request")(**wanted), code, told)


def creates(
    told: str, code: str = "INVALID_ARGUMENT", name: str = "tenants/acme/bandits/new", **settings: object
) -> Bad:
    return Bad("CreateBandit", bpb.CreateBanditRequest(bandit=bandit(name, **settings)), code, told)


def updates(told: str, *paths: str, code: str = "INVALID_ARGUMENT", name: str = HOME, **settings: object) -> Bad:
    mask = FieldMask(paths=paths)
    return Bad("UpdateBandit", bpb.UpdateBanditRequest(bandit=bandit(name, **settings), update_mask=mask), code, told)


def upserts(code: str, told: str, *items: str, name: str = HOME) -> Bad:
    added = [bpb.Item(item_id=item) for item in items]
    return Bad("UpsertItems", bpb.UpsertItemsRequest(bandit=name, items=added), code, told)


def retires(code: str, told: str, *items: str, name: str = HOME) -> Bad:
    return Bad("RetireItems", bpb.RetireItemsRequest(bandit=name, item_ids=items), code, told)


INVALID, NONE, EXISTS, EXHAUSTED = "INVALID_ARGUMENT", "NOT_FOUND", "ALREADY_EXISTS", "RESOURCE_EXHAUSTED"
UNMET = "FAILED_PRECONDITION"
NUMBERS = [math.nan, math.inf, -math.inf, 1e308, -1e308]
IDS = ["", LONG, "a\nb", "a\u2028b", "\x00"]

BAD_CALLS = [
    *(recommends(INVALID, "context[1]", context=[0.0, number]) for number in NUMBERS),
    *(recommends(INVALID, "context", context=[1.0] * count) for count in (0, 1, 3, 64, 65)),
    *(recommends(INVALID, "candidate_item_ids[1]", candidate_item_ids=["a", bad, "c"]) for bad in IDS),
    recommends(INVALID, "candidate_item_ids[2]", candidate_item_ids=["a", "b", "a"]),
    recommends(INVALID, "candidate_item_ids", candidate_item_ids=["a"]),
    recommends(NONE, candidate_item_ids=["a", "b", "zebra"], strict_candidates=True),
    recommends(NONE, candidate_item_ids=["a", "b", "d"], strict_candidates=True),
    recommends(UNMET, "TOO_FEW_ITEMS", candidate_item_ids=["a", "zebra", "d"]),
    recommends(UNMET, "TOO_FEW_ITEMS", bandit=SCARCE),
    *(recommends(INVALID, "request_id", request_id=bad) for bad in IDS[1:]),
    *(recommends(INVALID, "bandit", bandit=bad) for bad in ("", "home", LONG, f"{HOME}/more", "tenants//bandits/x")),
    recommends(NONE, bandit=STRANGER),
    recommends(NONE, bandit="tenants/acme/bandits/none"),
    recommends(EXISTS, "REQUEST_ID_REUSED", request_id="rewarded", context=[0.0, 1.0]),
    recommends(EXISTS, "REQUEST_ID_REUSED", request_id="open", candidate_item_ids=["a", "b"]),
    *(rewards(INVALID, "value", value=number) for number in [*NUMBERS, None]),
    *(rewards(INVALID, "recommendation_id", recommendation_id=bad) for bad in IDS),
    rewards(NONE, recommendation_id="none"),
    rewards(NONE, bandit=STRANGER),
    rewards(NONE, bandit=SCARCE),
    rewards(EXISTS, "REWARD_EXISTS", recommendation_id="$rewarded", value=2.0),
    *(rewards(INVALID, "reward_id", reward_id=bad) for bad in IDS[1:]),
    *(changes("Activate", INVALID, "recommendation_id", recommendation_id=bad) for bad in IDS),
    changes("Activate", NONE, recommendation_id="none"),
    changes("Activate", NONE, bandit=STRANGER),
    changes("Activate", INVALID, "shown_item_ids[1]", shown_item_ids=["a", "a"]),
    changes("Activate", EXISTS, "ACTIVATION_EXISTS", shown_item_ids=["e", "f"]),
    *(changes("VoidReward", INVALID, "recommendation_id", recommendation_id=bad) for bad in IDS),
    *(changes("VoidReward", INVALID, "reward_id", reward_id=bad) for bad in IDS[1:]),
    changes("VoidReward", NONE, recommendation_id="none"),
    changes("VoidReward", NONE, bandit=STRANGER),
    *(changes("AmendReward", INVALID, "value", value=number) for number in [*NUMBERS, None]),
    changes("AmendReward", UNMET, "NO_REWARD", value=1.0),
    changes("AmendReward", NONE, bandit=STRANGER, value=1.0),
    Bad("BatchReward", rpb.BatchRewardRequest(bandit=HOME), INVALID, "rewards"),
    Bad("BatchReward", rpb.BatchRewardRequest(bandit=HOME, rewards=[rpb.RewardEntry()] * 1001), INVALID, "rewards"),
    *(creates("bandit.slate_size", slate_size=size) for size in (0, MAX_SLATE_SIZE + 1, -1)),
    *(creates("bandit.item_capacity", item_capacity=capacity) for capacity in (0, 1, 100_001)),
    *(creates("bandit.context_dimension", context_dimension=size) for size in (-1, 65)),
    creates("bandit.kernel", kernel=99),
    *(creates("bandit.exploration.constant_beta", exploration={"constant_beta": bad}) for bad in [*NUMBERS, -1.0]),
    *(creates("bandit.exploration.uniform_share", exploration={"uniform_share": bad}) for bad in [*NUMBERS, 1.5]),
    *(creates("bandit.reward_wait", reward_wait=Duration(seconds=bad)) for bad in (-1, 91 * 86_400)),
    creates("bandit.reward_wait", reward_wait=Duration(nanos=1)),
    *(creates("bandit.default_reward", default_reward=bad) for bad in NUMBERS),
    *(creates("bandit.name", name=bad) for bad in ("", "home", LONG, "tenants/a b/bandits/c")),
    creates("BANDIT_EXISTS", EXISTS, name=HOME, slate_size=3),
    creates("BANDIT_QUOTA", EXHAUSTED, name="tenants/full/bandits/one-more"),
    updates("update_mask"),
    updates("update_mask", "nonsense"),
    updates("update_mask", "slate_size", slate_size=3),
    updates("bandit.item_capacity", "item_capacity", item_capacity=5),
    updates("bandit.baseline_item_ids", "baseline_item_ids", baseline_item_ids=["a"]),
    updates("bandit.exploration.uniform_share", "exploration", exploration={"uniform_share": math.nan}),
    updates("bandit.default_reward", "reward_wait", "default_reward", default_reward=math.inf),
    updates("", "reward_wait", code=NONE, name=STRANGER),
    upserts(INVALID, "items"),
    *(upserts(INVALID, "items[1].item_id", "e", bad) for bad in IDS),
    upserts(INVALID, "items[1].item_id", "e", "e"),
    upserts(INVALID, "items", *map(str, range(10_001))),
    upserts(EXISTS, "ITEM_RETIRED", "e", "d"),
    upserts(EXHAUSTED, "ITEM_CAPACITY", "e", "f", "g", "h"),
    upserts(NONE, "", "e", name=STRANGER),
    retires(INVALID, "item_ids"),
    *(retires(INVALID, "item_ids[1]", "a", bad) for bad in IDS),
    retires(INVALID, "item_ids[1]", "a", "a"),
    retires(NONE, "", "a", "zebra"),
    retires(NONE, "", "a", name=STRANGER),
    Bad("GetBandit", bpb.GetBanditRequest(name=STRANGER), NONE),
    Bad("DeleteBandit", bpb.DeleteBanditRequest(name=STRANGER), NONE),
    Bad("DeleteBandit", bpb.DeleteBanditRequest(name=LONG), INVALID, "name"),
    Bad("GetBanditStats", bpb.GetBanditStatsRequest(bandit=STRANGER), NONE),
    Bad("ListItems", bpb.ListItemsRequest(bandit=HOME, page_token="?"), INVALID, "page_token"),
    Bad("ListItems", bpb.ListItemsRequest(bandit=STRANGER), NONE),
    Bad("ListBandits", bpb.ListBanditsRequest(parent="tenants/acme", page_size=-1), INVALID, "page_size"),
]


SAYS_WHAT_CAME = re.compile(
    r", not \S|got |has \d+ |: '|repeats |but is |names |can't become \d|: 99$|is required|must not be empty"
)
"""What was got, or that there is nothing."""


def filled_in(request: Message, given: dict[str, str]) -> Message:
    chosen = getattr(request, "recommendation_id", "")
    if chosen.startswith("$"):
        request = type(request).FromString(request.SerializeToString())
        request.recommendation_id = given[chosen[1:]]  # type: ignore[attr-defined]
    return request


def method(channel: grpc.Channel, name: str) -> Callable[..., object]:
    stubs = (RecommenderServiceStub(channel), BanditServiceStub(channel))
    return next(getattr(stub, name) for stub in stubs if hasattr(stub, name))


def test_no_bad_call_changes_any_key(channel: grpc.Channel, given: dict[str, str], shared_store: redis.Redis) -> None:
    for number in range(12):
        name = f"tenants/full/bandits/b{number}"
        BanditServiceStub(channel).CreateBandit(bpb.CreateBanditRequest(bandit=bandit(name)), timeout=PATIENCE)
    before = digest(shared_store)
    for bad in BAD_CALLS:
        refusal = refused(method(channel, bad.method), filled_in(bad.request, given), timeout=PATIENCE)
        call = f"{bad.method} {str(bad.request)[:300]}: {refusal}"
        assert refusal.code == bad.code, call
        assert bad.told in [*refusal.fields, refusal.reason, ""], call
        assert (refusal.code == INVALID) == bool(refusal.fields), call
        assert all(SAYS_WHAT_CAME.search(problem) for problem in refusal.fields.values()), call
        # Waiting gives no tenant more bandits.
        assert (refusal.code == EXHAUSTED) <= (refusal.retry_after is not None or bad.told == "BANDIT_QUOTA"), call
        assert len(refusal.message) < 2000
        assert digest(shared_store) == before, call


def test_a_stranger_reads_the_same_text_for_what_is_not_and_what_is_not_theirs(channel: grpc.Channel) -> None:
    def text(name: str) -> str:
        return refused(BanditServiceStub(channel).GetBandit, bpb.GetBanditRequest(name=name)).message.replace(name, "X")

    assert text(STRANGER) == text("tenants/acme/bandits/none") == text("tenants/nobody/bandits/home")


def test_bad_entries_of_a_batch_change_nothing(
    channel: grpc.Channel, given: dict[str, str], shared_store: redis.Redis
) -> None:
    entries = [
        rpb.RewardEntry(recommendation_id="none", value=1.0),
        rpb.RewardEntry(recommendation_id=given["open"], value=math.nan),
        rpb.RewardEntry(recommendation_id=given["open"]),
        rpb.RewardEntry(recommendation_id=given["rewarded"], value=2.0),
        rpb.RewardEntry(recommendation_id=LONG, value=2.0),
    ]
    with unchanged(shared_store):
        reply = RecommenderServiceStub(channel).BatchReward(
            rpb.BatchRewardRequest(bandit=HOME, rewards=entries), timeout=PATIENCE
        )
    codes = [grpc.StatusCode(_pair(result.error.code)).name for result in reply.results]
    assert codes == [NONE, INVALID, INVALID, EXISTS, INVALID]


def _pair(code: int) -> tuple[int, str]:
    return next(status.value for status in grpc.StatusCode if status.value[0] == code)


@pytest.mark.parametrize("payload", [b"\xff", b"\x0a\xff\xff\xff\xff\x0f", b"\x0a\x02\xff\xfe"])
def test_bytes_that_are_no_message_change_nothing(
    channel: grpc.Channel, shared_store: redis.Redis, payload: bytes
) -> None:
    for path in ("topk_bandit.v1.RecommenderService/Reward", "topk_bandit.v1.BanditService/RetireItems"):
        with unchanged(shared_store):
            assert refused(channel.unary_unary(f"/{path}"), payload).code == INVALID


def test_a_message_that_is_too_large_changes_nothing(channel: grpc.Channel, shared_store: redis.Redis) -> None:
    with unchanged(shared_store):
        request = rpb.RecommendRequest(bandit=HOME, request_id="x" * 9_000_000)
        assert refused(RecommenderServiceStub(channel).Recommend, request).code == EXHAUSTED


def test_a_full_store_refuses_and_keeps_what_it_has(
    channel: grpc.Channel, given: dict[str, str], shared_store: redis.Redis
) -> None:
    writes = [
        recommends(EXHAUSTED, "STORE_FULL"),
        rewards(EXHAUSTED, "STORE_FULL"),
        upserts(EXHAUSTED, "STORE_FULL", "e"),
        retires(EXHAUSTED, "STORE_FULL", "a"),
        updates("STORE_FULL", "default_reward", code=EXHAUSTED, default_reward=1.0),
        creates("STORE_FULL", EXHAUSTED),
    ]
    before = digest(shared_store)
    shared_store.config_set("maxmemory", 1)
    try:
        for bad in writes:
            refusal = refused(method(channel, bad.method), filled_in(bad.request, given))
            assert (refusal.code, refusal.reason) == (EXHAUSTED, "STORE_FULL"), bad.method
            assert refusal.retry_after is not None
    finally:
        shared_store.config_set("maxmemory", 0)
    assert digest(shared_store) == before
    assert recommend(channel, context=[1.0, 0.0], request_id="open").recommendation_id == given["open"]


def test_what_nobody_foresaw_is_told_as_a_reference_alone(channel: grpc.Channel, shared_store: redis.Redis) -> None:
    shared_store.set("topk-bandit:{acme/broken}:meta", "secret text")
    try:
        with unchanged(shared_store):
            request = bpb.GetBanditRequest(name="tenants/acme/bandits/broken")
            refusal = refused(BanditServiceStub(channel).GetBandit, request)
    finally:
        shared_store.delete("topk-bandit:{acme/broken}:meta")
    assert refusal.code == "INTERNAL"
    assert refusal.message == f"internal error; reference {refusal.reference}"
    assert len(refusal.reference) == 32
