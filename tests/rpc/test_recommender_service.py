from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest
from tests.rpc.shop import START_MS
from tests.rpc.wire import HOME, create, recommend, refused
from tests.waiting import PATIENCE

from topk_bandit.domain.bandits import MAX_SLATE_SIZE, BanditName
from topk_bandit.v1 import recommender_service_pb2 as pb
from topk_bandit.v1.recommender_service_pb2_grpc import RecommenderServiceStub

if TYPE_CHECKING:
    import grpc
    from tests.rpc.harness import RunningServer

NAME = BanditName("acme", "home")


@pytest.fixture
def stub(channel: grpc.Channel) -> RecommenderServiceStub:
    create(channel)
    return RecommenderServiceStub(channel)


def test_recommend_returns_the_whole_recommendation(channel: grpc.Channel, stub: RecommenderServiceStub) -> None:
    recommend(channel, request_id="r0")
    answer = recommend(channel, request_id="r1", context=[1.5], candidate_item_ids=["d", "b"])
    assert list(answer.item_ids) == ["b", "d"]
    assert answer.recommendation_id == "r1"
    assert (answer.propensity, answer.mean, answer.standard_deviation) == (0.95, 0.0, 1.0)
    assert (answer.regret_bound, answer.estimated_regret, answer.mode) == (2.0, 0.5, pb.MODE_EXPLORED)
    assert (answer.model_version, answer.observation_count, answer.degraded) == (1, 0, False)
    assert answer.reward_deadline.ToMilliseconds() == START_MS + 86_400_000


def test_recommend_passes_on_what_was_asked(server: RunningServer, channel: grpc.Channel, stub: object) -> None:
    recommend(channel, request_id="r1", context=[1e6], candidate_item_ids=["a", "b"])
    recommend(channel)
    first, second = (request for request, _ in server.shop.loops[NAME].given.values())
    assert (first.request_id, first.context, first.candidates) == ("r1", (1e6,), ("a", "b"))
    assert (second.context, second.candidates) == ((), None)


def test_recommend_is_repeated_by_request_id(channel: grpc.Channel, stub: RecommenderServiceStub) -> None:
    assert recommend(channel, request_id="r1") == recommend(channel, request_id="r1")
    reused = refused(stub.Recommend, pb.RecommendRequest(bandit=HOME, request_id="r1", context=[2.0]))
    assert (reused.code, reused.reason, reused.domain) == ("ALREADY_EXISTS", "REQUEST_ID_REUSED", "topk-bandit")


BAD_RECOMMENDS: list[tuple[dict[str, Any], str]] = [
    ({"bandit": ""}, "bandit"),
    ({"bandit": "tenants/acme"}, "bandit"),
    ({"bandit": HOME + "/"}, "bandit"),
    ({"bandit": HOME + "\n"}, "bandit"),
    ({"bandit": "tenants/acme/bandits/" + "x" * 65}, "bandit"),
    ({"bandit": "tenants/ä/bandits/home"}, "bandit"),
    ({"bandit": "x" * 10**6}, "bandit"),
    ({"context": [1.0, math.nan]}, "context[1]"),
    ({"context": [math.inf]}, "context[0]"),
    ({"context": [0.0, 0.0, 0.0, -math.inf]}, "context[3]"),
    ({"context": [1e308]}, "context[0]"),
    ({"context": [0.0, -1e7]}, "context[1]"),
    ({"context": [1.0] * 65}, "context"),
    ({"context": [1.0, 1.0]}, "context"),
    ({"candidate_item_ids": ["a", ""]}, "candidate_item_ids[1]"),
    ({"candidate_item_ids": ["a\x00", "b"]}, "candidate_item_ids[0]"),
    ({"candidate_item_ids": ["a", "b", "c\x7f"]}, "candidate_item_ids[2]"),
    ({"candidate_item_ids": ["a", "b\x85"]}, "candidate_item_ids[1]"),
    ({"candidate_item_ids": ["a", "b\u2028"]}, "candidate_item_ids[1]"),
    ({"candidate_item_ids": ["a", "b" * 129]}, "candidate_item_ids[1]"),
    ({"candidate_item_ids": ["a", "b" * 10**6]}, "candidate_item_ids[1]"),
    ({"candidate_item_ids": ["a", "b", "c", "b"]}, "candidate_item_ids[3]"),
    ({"candidate_item_ids": [str(i) for i in range(10_001)]}, "candidate_item_ids"),
    ({"request_id": "r" * 129}, "request_id"),
    ({"request_id": "r" * 10**6}, "request_id"),
    ({"request_id": "r\t"}, "request_id"),
    ({"min_model_version": -1}, "min_model_version"),
    ({"min_model_version": -(2**63)}, "min_model_version"),
]


@pytest.mark.parametrize(("wrong", "field"), BAD_RECOMMENDS)
def test_recommend_names_the_bad_field(
    server: RunningServer, stub: RecommenderServiceStub, wrong: dict[str, Any], field: str
) -> None:
    refusal = refused(stub.Recommend, pb.RecommendRequest(**{"bandit": HOME, **wrong}))
    assert (refusal.code, list(refusal.fields)) == ("INVALID_ARGUMENT", [field])
    assert refusal.message.startswith(f"{field}: ")
    assert len(refusal.message) <= 200
    assert not server.shop.loops[NAME].given


def test_a_duplicate_names_the_earlier_one(stub: RecommenderServiceStub) -> None:
    refusal = refused(stub.Recommend, pb.RecommendRequest(bandit=HOME, candidate_item_ids=["a", "b", "c", "b"]))
    assert refusal.fields == {"candidate_item_ids[3]": "repeats candidate_item_ids[1]: 'b'"}


def test_the_largest_valid_recommend_is_taken(channel: grpc.Channel, stub: RecommenderServiceStub) -> None:
    four_bytes = "\U0001f600"
    candidates = [f"{i:05}{four_bytes * 123}" for i in range(10_000)]
    refusal = refused(stub.Recommend, pb.RecommendRequest(bandit=HOME, candidate_item_ids=candidates))
    assert (refusal.code, refusal.fields) == ("FAILED_PRECONDITION", {})


def test_candidates_that_are_not_there_are_passed_over_or_refused(
    channel: grpc.Channel, stub: RecommenderServiceStub
) -> None:
    answer = recommend(channel, candidate_item_ids=["a", "x", "b", "y"])
    assert (list(answer.item_ids), answer.passed_over_count, answer.mode) == (["a", "b"], 2, pb.MODE_EXPLOITED)
    strict = pb.RecommendRequest(bandit=HOME, candidate_item_ids=["a", "x", "b"], strict_candidates=True)
    assert refused(stub.Recommend, strict).code == "NOT_FOUND"
    few = refused(stub.Recommend, pb.RecommendRequest(bandit=HOME, candidate_item_ids=["a", "x", "y"]))
    assert (few.code, few.reason, few.domain) == ("FAILED_PRECONDITION", "TOO_FEW_ITEMS", "topk-bandit")
    assert few.metadata == {"items_left": "1", "slate_size": "2"}


def test_a_baseline_slate_has_a_mode_of_its_own(channel: grpc.Channel) -> None:
    create(channel, baseline_item_ids=["d", "a"])
    answer = recommend(channel, candidate_item_ids=["a", "x", "y"])
    assert (list(answer.item_ids), answer.passed_over_count, answer.mode) == (["d", "a"], 2, pb.MODE_BASELINE)


def test_text_of_the_largest_characters_fits_into_the_trailers(stub: RecommenderServiceStub) -> None:
    refusal = refused(stub.Recommend, pb.RecommendRequest(bandit="\U0001f600" * 10**5))
    assert list(refusal.fields) == ["bandit"]


@pytest.mark.parametrize(
    "name", ["tenants/acme/bandits/none", "tenants/other/bandits/home", "tenants/none/bandits/home"]
)
def test_missing_and_foreign_bandits_read_the_same(stub: RecommenderServiceStub, name: str) -> None:
    refusal = refused(stub.Recommend, pb.RecommendRequest(bandit=name))
    assert (refusal.code, refusal.message, refusal.resource) == ("NOT_FOUND", "bandit not found", "bandit")


def test_a_request_that_is_not_its_message_is_refused(channel: grpc.Channel) -> None:
    raw = channel.unary_unary("/topk_bandit.v1.RecommenderService/Recommend")
    refusal = refused(raw, b"\xff\xff\xff")
    assert (refusal.code, list(refusal.fields)) == ("INVALID_ARGUMENT", ["request"])


def test_a_lone_surrogate_is_refused(channel: grpc.Channel) -> None:
    raw = channel.unary_unary("/topk_bandit.v1.RecommenderService/Recommend")
    surrogate = b"\xed\xa0\x80"
    refusal = refused(raw, b"\x1a" + bytes([len(surrogate)]) + surrogate)
    assert (refusal.code, list(refusal.fields)) == ("INVALID_ARGUMENT", ["request"])


def test_reward_outcomes(server: RunningServer, channel: grpc.Channel, stub: RecommenderServiceStub) -> None:
    recommend(channel, request_id="r1")
    recommend(channel, request_id="r2")
    reward = pb.RewardRequest(bandit=HOME, recommendation_id="r1", value=0.0)
    for outcome in (pb.REWARD_OUTCOME_ACCEPTED, pb.REWARD_OUTCOME_DUPLICATE):
        response = pb.RewardResponse(outcome=outcome, log_position=2, durability=pb.DURABILITY_MEMORY)
        assert stub.Reward(reward, timeout=PATIENCE) == response
    server.shop.now_ms += 86_400_001
    reward.recommendation_id = "r2"
    late = pb.RewardResponse(outcome=pb.REWARD_OUTCOME_LATE, durability=pb.DURABILITY_MEMORY)
    assert stub.Reward(reward, timeout=PATIENCE) == late


def test_reward_conflict_and_unknown_id(channel: grpc.Channel, stub: RecommenderServiceStub) -> None:
    recommend(channel, request_id="r1")
    stub.Reward(pb.RewardRequest(bandit=HOME, recommendation_id="r1", value=1.0), timeout=PATIENCE)
    conflict = refused(stub.Reward, pb.RewardRequest(bandit=HOME, recommendation_id="r1", value=2.0))
    assert (conflict.code, conflict.reason) == ("ALREADY_EXISTS", "REWARD_EXISTS")
    unknown = refused(stub.Reward, pb.RewardRequest(bandit=HOME, recommendation_id="r2", value=2.0))
    assert (unknown.code, unknown.message) == ("NOT_FOUND", "recommendation not found")


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"bandit": "home"}, "bandit"),
        ({"recommendation_id": ""}, "recommendation_id"),
        ({"recommendation_id": "x" * 129}, "recommendation_id"),
        ({"recommendation_id": "x\r"}, "recommendation_id"),
        ({"value": None}, "value"),
        ({"value": math.nan}, "value"),
        ({"value": -math.inf}, "value"),
        ({"value": 1.1e100}, "value"),
        ({"item_values": {"soup": math.nan}}, 'item_values["soup"]'),
        ({"item_values": {"pie": 1.0, "soup": -math.inf}}, 'item_values["soup"]'),
        ({"item_values": {"a b": 1.1e100}}, 'item_values["a b"]'),
        ({"item_values": {"": 1.0}}, "item_values"),
        ({"item_values": {"x" * 129: 1.0}}, "item_values"),
        ({"item_values": {"x\r": math.nan}}, "item_values"),
        ({"item_values": {str(n): 1.0 for n in range(MAX_SLATE_SIZE + 1)}}, "item_values"),
    ],
)
def test_reward_names_the_bad_field(
    server: RunningServer, stub: RecommenderServiceStub, wrong: dict[str, Any], field: str
) -> None:
    request = pb.RewardRequest(**{"bandit": HOME, "recommendation_id": "r1", "value": 1.0, **wrong})
    refusal = refused(stub.Reward, request)
    assert (refusal.code, list(refusal.fields)) == ("INVALID_ARGUMENT", [field])
    assert "reward" not in server.shop.calls


def test_an_item_value_without_an_id_is_named_as_such(server: RunningServer, stub: RecommenderServiceStub) -> None:
    request = pb.RewardRequest(bandit=HOME, recommendation_id="r1", value=1.0, item_values={"soup": 1.0, "": 1.0})
    problem = refused(stub.Reward, request).fields["item_values"]
    assert problem == "has an empty text where an item's id is required"
    assert "reward" not in server.shop.calls


def test_item_values_are_passed_on(server: RunningServer, channel: grpc.Channel, stub: RecommenderServiceStub) -> None:
    recommend(channel, request_id="r1")
    told = {"bandit": HOME, "recommendation_id": "r1", "value": 1.0}
    stub.Reward(pb.RewardRequest(**told, item_values={"soup": 1.0, "pie": -0.0}), timeout=PATIENCE)
    stub.AmendReward(pb.AmendRewardRequest(**told, item_values={"pie": 2.5}), timeout=PATIENCE)
    entry = pb.RewardEntry(recommendation_id="r1", value=1.0, item_values={"soup": 3.0})
    bad = pb.RewardEntry(recommendation_id="r1", value=1.0, item_values={"soup": math.inf})
    results = stub.BatchReward(pb.BatchRewardRequest(bandit=HOME, rewards=[entry, bad]), timeout=PATIENCE).results
    assert results[1].error.field == 'rewards[1].item_values["soup"]'
    stub.Reward(pb.RewardRequest(**told), timeout=PATIENCE)
    assert repr(server.shop.item_values) == repr([{"pie": 0.0, "soup": 1.0}, {"pie": 2.5}, {"soup": 3.0}, {}])


def test_an_amendment_names_the_bad_item(stub: RecommenderServiceStub) -> None:
    request = pb.AmendRewardRequest(bandit=HOME, recommendation_id="r1", value=1.0, item_values={"soup": math.nan})
    assert list(refused(stub.AmendReward, request).fields) == ['item_values["soup"]']


def entries(*rewards: tuple[str, float | None]) -> pb.BatchRewardRequest:
    return pb.BatchRewardRequest(
        bandit=HOME, rewards=[pb.RewardEntry(recommendation_id=name, value=value) for name, value in rewards]
    )


def test_batch_reward_gives_each_entry_its_own_result(
    server: RunningServer, channel: grpc.Channel, stub: RecommenderServiceStub, caplog: pytest.LogCaptureFixture
) -> None:
    for name in "pqr":
        recommend(channel, request_id=name)
    server.shop.faults["q"] = ZeroDivisionError("a secret")
    batch = entries(
        ("p", 1.0),
        ("p", 1.0),
        ("p", 2.0),
        ("", 1.0),
        ("q", 1.0),
        ("r", None),
        ("none", 0.0),
        ("r", math.inf),
        ("r", -1.0),
    )
    results = stub.BatchReward(batch, timeout=PATIENCE).results
    assert [result.outcome for result in results] == [1, 2, 0, 0, 0, 0, 0, 0, 1]
    assert [result.error.code for result in results] == [0, 0, 6, 3, 13, 3, 5, 3, 0]
    assert [result.error.field for result in results if result.error.field] == [
        "rewards[3].recommendation_id",
        "rewards[5].value",
        "rewards[7].value",
    ]
    assert results[2].error.reason == "REWARD_EXISTS"
    assert "secret" not in results[4].error.message
    assert "a secret" in caplog.text
    assert all(result.error.message for result in results if result.HasField("error"))


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        (pb.BatchRewardRequest(bandit=HOME), "rewards"),
        (entries(*[("p", 1.0)] * 1001), "rewards"),
        (pb.BatchRewardRequest(bandit="x", rewards=[pb.RewardEntry()]), "bandit"),
    ],
)
def test_batch_reward_names_the_bad_field(
    stub: RecommenderServiceStub, request_: pb.BatchRewardRequest, field: str
) -> None:
    refusal = refused(stub.BatchReward, request_)
    assert (refusal.code, list(refusal.fields)) == ("INVALID_ARGUMENT", [field])


def test_batch_reward_takes_a_thousand(channel: grpc.Channel, stub: RecommenderServiceStub) -> None:
    recommend(channel, request_id="p")
    results = stub.BatchReward(entries(*[("p", 1.0)] * 1000), timeout=PATIENCE).results
    assert [result.outcome for result in results] == [1] + [2] * 999
