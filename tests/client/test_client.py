from __future__ import annotations

import asyncio
import inspect
import pickle
import subprocess
import sys
from array import array
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from google.rpc import code_pb2
from tests.client.conftest import BY_ONE_WAY, ONCE
from tests.rpc.certificates import certify
from tests.rpc.harness import channel_to, serving
from tests.rpc.keys import bearer, ring, shown
from tests.rpc.shop import START_MS
from tests.waiting import PATIENCE

from topk_bandit import client as client_module
from topk_bandit.client import (
    ActivationOutcome,
    ActivationReceipt,
    Aggregation,
    AlreadyExists,
    Bandit,
    BanditStats,
    Cancelled,
    Client,
    ClientError,
    FailedPrecondition,
    Internal,
    InvalidArgument,
    Item,
    Kernel,
    NotFound,
    PermissionDenied,
    Recommendation,
    ResourceExhausted,
    RewardOutcome,
    RewardPoint,
    RewardRange,
    RewardReceipt,
    RewardTimes,
    Source,
    Stage,
    Tls,
    Unauthenticated,
    Unavailable,
    Unexpected,
    operations,
)
from topk_bandit.client.errors import error_of_call, error_of_entry
from topk_bandit.domain import errors
from topk_bandit.domain.bandits import BanditName, ConstantBeta, Exploration, PaperBeta
from topk_bandit.domain.durability import FSYNC, Durability
from topk_bandit.v1 import bandit_service_pb2 as bandit_pb
from topk_bandit.v1 import recommender_service_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.client.conftest import EitherClient
    from tests.rpc.harness import RunningServer

NAME = BanditName("acme", "home")
START = datetime.fromtimestamp(START_MS / 1000, tz=UTC)


@pytest.fixture
def home(client: EitherClient) -> str:
    client.create_bandit("home", slate_size=2, item_capacity=20)
    client.upsert_items("home", ["a", "b", "c", Item("d", available=False)])
    return "home"


def test_recommend(client: EitherClient, home: str) -> None:
    assert client.recommend(home, [1.5], candidates=["c", "a", "d"], request_id="r1") == Recommendation(
        id="r1",
        items=("a", "c"),
        propensity=0.95,
        mean=0.0,
        standard_deviation=1.0,
        regret_bound=2.0,
        estimated_regret=0.5,
        explored=False,
        baseline=False,
        model_version=1,
        observations=0,
        reward_deadline=START.replace(microsecond=123_000) + timedelta(hours=24),
        source=Source.SERVICE,
        position_propensities=(0.975, 0.95),
        regret_confidence=0.9,
        passed_over=1,
    )
    assert client.recommend(home, request_id="r2").explored


def test_candidates_that_are_not_there_are_refused_if_that_is_asked_for(client: EitherClient, home: str) -> None:
    assert client.recommend(home, candidates=["a", "b", "zebra"]).passed_over == 1
    with pytest.raises(NotFound):
        client.recommend(home, candidates=["a", "b", "zebra"], strict_candidates=True)
    client.update_bandit(home, baseline_item_ids=["c", "b"])
    given = client.recommend(home, candidates=["a", "zebra"])
    assert (given.items, given.baseline, given.passed_over) == (("c", "b"), True, 1)


def test_recommend_makes_its_own_request_ids(server: RunningServer, client: EitherClient, home: str) -> None:
    ids = {client.recommend(home).id for _ in range(3)}
    assert len(ids) == 3
    assert ids == set(server.shop.loops[NAME].given)
    assert not any(one.startswith("made-") for one in ids)


def test_recommend_asks_for_a_version(server: RunningServer, client: EitherClient, home: str) -> None:
    client.recommend(home)
    client.recommend(home, min_model_version=2**62)
    assert server.shop.asked_versions == [0, 2**62]
    with pytest.raises(InvalidArgument) as caught:
        client.recommend(home, min_model_version=-1)
    assert caught.value.field == "min_model_version"


def test_recommend_takes_any_numbers(server: RunningServer, client: EitherClient, home: str) -> None:
    client.recommend(home, array("f", [0.5]), request_id="r1")
    client.recommend(home, (number for number in [2]), request_id="r2")
    assert [request.context for request, _ in server.shop.loops[NAME].given.values()] == [(0.5,), (2.0,)]


def test_recommend_does_not_take_no_candidates_for_all(server: RunningServer, client: EitherClient, home: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        client.recommend(home, candidates=[])
    assert "candidate_item_ids: must not be empty; None stands for every available item" in str(caught.value)
    assert "recommend" not in server.shop.calls


def test_rewards_one_by_one(client: EitherClient, home: str) -> None:
    recommendation = client.recommend(home)
    assert client.reward(home, recommendation.id, 0) == RewardReceipt(RewardOutcome.ACCEPTED, 2)
    assert client.reward(home, recommendation.id, 0.0) == RewardReceipt(RewardOutcome.DUPLICATE, 2)
    with pytest.raises(AlreadyExists) as caught:
        client.reward(home, recommendation.id, 1.0)
    assert caught.value.reason == "REWARD_EXISTS"


def test_one_of_several_rewards_has_an_id(server: RunningServer, client: EitherClient, home: str) -> None:
    ids = [client.recommend(home).id for _ in range(3)]
    client.reward(home, ids[0], 1.0, reward_id="order", final=True)
    client.rewards(home, dict.fromkeys(ids[1:], 2.0), reward_id="click")
    assert server.shop.reward_ids == [("order", True), ("click", False), ("click", False)]
    assert client.rewards(home, {"x": 1.0}, reward_id="a\nb").errors["x"].field == "rewards[0].reward_id"
    with pytest.raises(InvalidArgument) as caught:
        client.reward(home, "x", 1.0, reward_id="a\nb")
    assert caught.value.field == "reward_id"


def test_a_slate_is_activated(server: RunningServer, client: EitherClient, home: str) -> None:
    one, other = (client.recommend(home).id for _ in range(2))
    assert client.activate(home, one) == ActivationReceipt(ActivationOutcome.ACTIVATED, 7)
    with pytest.raises(
        InvalidArgument, match="shown_item_ids: must not be empty; None stands for the recommended slate"
    ):
        client.activate(home, other, shown=[])
    client.activate(home, other, shown=(item for item in ("d", "a")))
    assert server.shop.activated == {one: (), other: ("d", "a")}
    with pytest.raises(AlreadyExists) as caught:
        client.activate(home, other)
    assert caught.value.reason == "ACTIVATION_EXISTS"
    with pytest.raises(InvalidArgument) as twice:
        client.activate(home, one, shown=["a", "a"])
    assert twice.value.field == "shown_item_ids[1]"
    server.shop.now_ms += 86_400_001
    assert client.activate(home, one).outcome is ActivationOutcome.LATE


def test_rewards_are_amended_and_voided(server: RunningServer, client: EitherClient, home: str) -> None:
    slate = client.recommend(home).id
    with pytest.raises(FailedPrecondition) as caught:
        client.void_reward(home, slate)
    assert caught.value.reason == "NO_REWARD"
    client.reward(home, slate, 1.0)
    assert client.amend_reward(home, slate, 2) == RewardReceipt(RewardOutcome.ACCEPTED, 9)
    assert client.amend_reward(home, slate, 2.0).outcome is RewardOutcome.DUPLICATE
    assert client.void_reward(home, slate, reward_id="order") == RewardReceipt(RewardOutcome.ACCEPTED, 9)
    assert server.shop.reward_ids[-2:] == [("", False), ("order", False)]
    assert server.shop.loops[NAME].rewards == {}
    with pytest.raises(InvalidArgument) as bad:
        client.amend_reward(home, slate, float("nan"))
    assert bad.value.field == "value"


def test_rewards_say_what_each_item_did(server: RunningServer, client: EitherClient, home: str) -> None:
    slate = client.recommend(home).id
    client.reward(home, slate, 1, item_values={"a": 1, "b": "0.5"})
    client.amend_reward(home, slate, 2, item_values={"a": 0})
    client.reward(home, slate, 2, item_values={})
    assert server.shop.item_values == [{"a": 1.0, "b": 0.5}, {"a": 0.0}, {}]
    with pytest.raises(InvalidArgument) as bad:
        client.reward(home, slate, 2.0, item_values={"a": float("nan")})
    assert bad.value.field == 'item_values["a"]'


def test_rewards_in_a_batch(server: RunningServer, client: EitherClient, home: str) -> None:
    late = client.recommend(home, request_id="late").id
    server.shop.now_ms += 86_400_001
    first = client.recommend(home, request_id="first").id
    batch = client.rewards(home, {first: 1.0, late: 2.0, "none": 0.0, "bad\n": 1.0})
    assert batch.receipts == {
        first: RewardReceipt(RewardOutcome.ACCEPTED, 2),
        late: RewardReceipt(RewardOutcome.LATE),
    }
    assert {one: type(error) for one, error in batch.errors.items()} == {"none": NotFound, "bad\n": InvalidArgument}
    assert batch.errors["bad\n"].field == "rewards[3].recommendation_id"


def test_late_rewards_are_heard_of_once(
    server: RunningServer, client: EitherClient, home: str, caplog: pytest.LogCaptureFixture
) -> None:
    ids = [client.recommend(home).id for _ in range(4)]
    server.shop.now_ms += 86_400_001
    assert client.late_rewards == {}
    assert client.reward(home, ids[0], 1.0).outcome is RewardOutcome.LATE
    [message] = caplog.messages
    assert "home" in message
    assert client.reward(home, ids[0], 1.0).outcome is RewardOutcome.DUPLICATE
    client.rewards(home, dict.fromkeys(ids[1:], 1.0))
    assert client.late_rewards == {home: 4}
    assert len(caplog.messages) == 1


def test_late_rewards_are_errors_if_wanted(server: RunningServer, home: str, target: str) -> None:
    with Client(target, tenant="acme", raise_late=True, timeout=PATIENCE) as strict:
        late = strict.recommend(home).id
        server.shop.now_ms += 86_400_001
        with pytest.raises(FailedPrecondition) as caught:
            strict.reward(home, late, 1.0)
        assert caught.value.reason == "REWARD_LATE"
        assert strict.late_rewards == {home: 1}
        other = strict.recommend(home).id
        assert strict.reward(home, other, 1.0).outcome is RewardOutcome.ACCEPTED


@BY_ONE_WAY
def test_a_batch_of_any_size(server: RunningServer, client: EitherClient, home: str) -> None:
    empty = client.rewards(home, {})
    assert (empty.receipts, empty.errors) == ({}, {})
    ids = [client.recommend(home, request_id="first").id, *(f"none-{number}" for number in range(2000)), "last"]
    client.recommend(home, request_id="last")
    batch = client.rewards(home, dict.fromkeys(ids, 1.0))
    assert batch.receipts == {
        "first": RewardReceipt(RewardOutcome.ACCEPTED, 2),
        "last": RewardReceipt(RewardOutcome.ACCEPTED, 3),
    }
    assert list(batch.errors) == ids[1:-1]
    assert [method for _, method in server.ledger.started].count("BatchReward") == 3


def test_bandits_are_created_and_read(server: RunningServer, client: EitherClient) -> None:
    bandit = client.create_bandit(
        "home",
        slate_size=3,
        item_capacity=30,
        context_dimension=4,
        kernel=Kernel.WEIGHTED,
        schedule_scale=0.0,
        uniform_share=0.0,
        near_share=0.25,
        shares_fall_after=40,
        reward_wait=timedelta(seconds=1.5),
        default_reward=0.0,
        prior_study="tastes",
        half_life=timedelta(days=7),
        reward_range=RewardRange(-1.0, 1.0, clamp=True, trusted=True),
        reward_aggregation=Aggregation.MAX,
        requires_activation=True,
        baseline_item_ids=("c", "a", "b"),
        durability=Durability(synced=True, replicas=2),
        learned_per_second=40,
        provisional_after=timedelta(seconds=0.5),
        default_item_value=0.0,
        stage=Stage.SHADOW,
        control_share=0.25,
        guardrail_margin=0.0,
    )
    assert bandit == Bandit(
        name="home",
        slate_size=3,
        item_capacity=30,
        context_dimension=4,
        kernel=Kernel.WEIGHTED,
        constant_beta=None,
        schedule_scale=0.0,
        uniform_share=0.0,
        near_share=0.25,
        shares_fall_after=40,
        reward_wait=timedelta(seconds=1.5),
        default_reward=0.0,
        create_time=START,
        prior_study="tastes",
        half_life=timedelta(days=7),
        reward_range=RewardRange(-1.0, 1.0, clamp=True, trusted=True),
        reward_aggregation=Aggregation.MAX,
        requires_activation=True,
        baseline_item_ids=("c", "a", "b"),
        context_schema=None,
        item_schema=None,
        durability=Durability(synced=True, replicas=2),
        learned_per_second=40,
        provisional_after=timedelta(seconds=0.5),
        default_item_value=0.0,
        stage=Stage.SHADOW,
        control_share=0.25,
        guardrail_margin=0.0,
        conservative_share=0.0,
        rules=(),
    )
    assert server.shop.loops[NAME].record.settings.exploration == Exploration(PaperBeta(0.0), 0.0, 0.25, 40)
    assert client.get_bandit("home") == bandit


def test_a_reset_has_a_request_id(server: RunningServer, client: EitherClient) -> None:
    made = client.create_bandit("home", slate_size=1, item_capacity=2)
    assert client.reset_bandit("home") == client.reset_bandit("home", request_id="mine") == made
    fresh, mine = server.shop.loops[NAME].resets
    assert (len(fresh), mine) == (32, "mine")


@BY_ONE_WAY
@pytest.mark.parametrize("kernel", Kernel)
def test_kernels(client: EitherClient, kernel: Kernel) -> None:
    assert client.create_bandit("home", slate_size=2, item_capacity=2, kernel=kernel).kernel is kernel


def test_updates_change_what_is_given(server: RunningServer, client: EitherClient) -> None:
    before = client.create_bandit("home", slate_size=1, item_capacity=2, schedule_scale=7.0, default_reward=1.0)
    after = client.update_bandit("home", uniform_share=0.5, reward_wait=timedelta(seconds=3))
    assert (before.uniform_share, before.reward_wait) == (0.05, timedelta(hours=24))
    assert (after.uniform_share, after.reward_wait) == (0.5, timedelta(seconds=3))
    assert (after.schedule_scale, after.constant_beta, after.default_reward) == (7.0, None, 1.0)
    reset = client.update_bandit("home", schedule_scale=None, default_reward=None, reward_wait=None)
    assert (reset.schedule_scale, reset.constant_beta, reset.default_reward) == (None, 4.0, None)
    assert (reset.reward_wait, reset.uniform_share) == (timedelta(hours=24), 0.5)
    assert (before.prior_study, reset.prior_study) == (None, None)
    assert (before.default_item_value, reset.default_item_value) == (None, None)
    assert client.update_bandit("home", default_item_value=-0.5).default_item_value == -0.5
    assert client.update_bandit("home", uniform_share=0.5).default_item_value == -0.5
    assert client.update_bandit("home", default_item_value=None).default_item_value is None
    assert client.update_bandit("home", prior_study="tastes").prior_study == "tastes"
    assert client.update_bandit("home", uniform_share=0.5).prior_study == "tastes"
    assert client.update_bandit("home", prior_study=None).prior_study is None
    assert client.update_bandit("home", half_life=timedelta(hours=1)).half_life == timedelta(hours=1)
    assert client.update_bandit("home", near_share=0.5, shares_fall_after=9).half_life == timedelta(hours=1)
    assert client.get_bandit("home").shares_fall_after == 9
    assert client.update_bandit("home", near_share=0.0, shares_fall_after=None, half_life=None).half_life is None
    taken = RewardRange(0.0, 5.0)
    assert client.update_bandit("home", reward_range=taken).reward_range == taken
    assert client.update_bandit("home", half_life=None).reward_range == taken
    assert client.update_bandit("home", reward_range=None).reward_range is None
    for kind in Aggregation:
        assert client.update_bandit("home", reward_aggregation=kind).reward_aggregation is kind
    assert client.update_bandit("home", requires_activation=True).requires_activation
    assert not client.update_bandit("home", requires_activation=None).requires_activation
    assert client.update_bandit("home", durability=FSYNC).durability == FSYNC
    assert client.update_bandit("home", durability=None).durability is None
    assert client.update_bandit("home", learned_per_second=7).learned_per_second == 7
    assert client.update_bandit("home", learned_per_second=None).learned_per_second == 300
    assert client.update_bandit("home", reward_aggregation=None).reward_aggregation is Aggregation.FIRST
    assert (before.baseline_item_ids, after.baseline_item_ids) == ((), ())
    assert client.update_bandit("home", baseline_item_ids=["a"]).baseline_item_ids == ("a",)
    assert client.update_bandit("home", near_share=0.0).baseline_item_ids == ("a",)
    assert client.update_bandit("home", baseline_item_ids=None).baseline_item_ids == ()
    assert client.update_bandit("home", item_capacity=5).item_capacity == 5
    assert client.update_bandit("home", near_share=0.0).item_capacity == 5
    client.update_bandit("home", constant_beta=0.0)
    assert server.shop.loops[NAME].record.settings.exploration == Exploration(ConstantBeta(0.0), 0.5)


def test_an_update_of_nothing_is_refused(client: EitherClient, home: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        client.update_bandit(home)
    assert caught.value.field == "update_mask"


def test_a_setting_that_there_is_not_is_named_and_nothing_is_sent(client: EitherClient, home: str) -> None:
    before = client.get_bandit(home)
    with pytest.raises(TypeError, match="no setting 'uniform_shares'"):
        client.update_bandit(home, uniform_shares=0.5)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="no setting 'halflife'"):
        client.create_bandit("other", slate_size=1, item_capacity=2, halflife=None)  # type: ignore[call-arg]
    assert client.get_bandit(home) == before
    assert "other" not in {bandit.name for bandit in client.list_bandits()}


def test_a_range_that_is_none_is_refused_by_name(client: EitherClient, home: str) -> None:
    with pytest.raises(InvalidArgument, match="RewardRange") as caught:
        client.update_bandit(home, reward_range=(1, 0))  # type: ignore[arg-type]
    assert caught.value.field == "reward_range"


def test_two_betas_are_refused(client: EitherClient, home: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        client.update_bandit(home, constant_beta=1.0, schedule_scale=1.0)
    assert caught.value.field == "exploration"


def test_bandits_are_listed_and_deleted(client: EitherClient) -> None:
    for name in ("b", "a"):
        client.create_bandit(name, slate_size=1, item_capacity=2)
    assert [bandit.name for bandit in client.list_bandits()] == ["a", "b"]
    client.delete_bandit("a")
    assert [bandit.name for bandit in client.list_bandits()] == ["b"]
    with pytest.raises(NotFound):
        client.get_bandit("a")


@BY_ONE_WAY
def test_items_are_listed_over_pages(
    server: RunningServer, client: EitherClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operations, "ITEMS_PER_PAGE", 1000)
    client.create_bandit("home", slate_size=1, item_capacity=3000)
    names = [f"{number:05}" for number in range(2500)]
    assert client.upsert_items("home", names) == 2500
    assert client.retire_items("home", names[:1]) == 2499
    assert [item.item_id for item in client.items("home")] == names[1:]
    assert server.shop.calls.count("list_items") == 3


@BY_ONE_WAY
def test_the_largest_page_arrives(server: RunningServer, client: EitherClient) -> None:
    client.create_bandit("home", slate_size=1, item_capacity=10_000)
    names = [f"{number:05}" + "\U0001f600" * 123 for number in range(10_000)]
    client.upsert_items("home", names, timeout=PATIENCE)
    asked = client._client._operations if hasattr(client, "_client") else client._operations
    page = client._run(asked.list_items("home", ""), 30.0)
    assert [item.item_id for item in page.entries] == names


def test_an_item_is_made_unavailable(client: EitherClient, home: str) -> None:
    client.upsert_items(home, [Item("a", available=False)])
    assert [(item.item_id, item.available) for item in client.items(home)] == [
        ("a", False),
        ("b", True),
        ("c", True),
        ("d", False),
    ]


def test_stats_have_every_field_of_the_wire(client: EitherClient, home: str) -> None:
    client.reward(home, client.recommend(home).id, 0.5)
    stats = client.stats(home)
    assert (stats.recommendation_count, stats.observation_count, stats.mean_reward) == (1, 1, 0.5)
    assert (stats.available_item_count, stats.snapshot_position, stats.prior_variance) == (3, 9, 0.75)
    assert stats.prior_slope == -0.125
    assert stats.rank_weight_power == 0.5
    assert (stats.outlier_count, stats.pair_scale, stats.edges_reached) == (14, 0.25, ("noise",))
    assert stats.noticed_change_count == 34
    assert stats.set_aside_count == 35
    assert stats.outlier_context_count == 51
    assert stats.spread_factor == 52.0
    assert stats.has_reward_range
    assert stats.selection_share == 55.0
    assert stats.reward_times == RewardTimes(
        56,
        (
            RewardPoint(timedelta(seconds=1), 1.5),
            RewardPoint(timedelta(seconds=90), 0.9375),
            RewardPoint(timedelta(hours=1), 1.0),
        ),
        half_by=timedelta(seconds=1),
        nine_tenths_by=timedelta(seconds=90),
        almost_all_by=timedelta(hours=1),
        reward_wait=timedelta(days=1),
    )
    assert list(BanditStats.__slots__) == list(bandit_pb.GetBanditStatsResponse.DESCRIPTOR.fields_by_name)


def test_tenants_do_not_meet(
    make: Callable[..., EitherClient], server: RunningServer, client: EitherClient, home: str, target: str
) -> None:

    with pytest.raises(NotFound):
        make(target, tenant="other").get_bandit(home)
    assert list(make(target, tenant="other").list_bandits()) == []


def test_a_degraded_recommendation_has_no_deadline(server: RunningServer, client: EitherClient, home: str) -> None:
    loop = server.shop.loops[NAME]
    answer = client.recommend(home, request_id="r1")
    request, recommendation = loop.given["r1"]
    fields = {name: getattr(recommendation, name) for name in recommendation.__slots__}
    loop.given["r1"] = (
        request,
        type(recommendation)(**{**fields, "recommendation_id": "", "deadline_ms": 0, "degraded": True}),
    )
    degraded = client.recommend(home, request_id="r1")
    assert (degraded.id, degraded.source, degraded.reward_deadline) == ("", Source.DEGRADED, None)
    assert degraded.items == answer.items


FAULTS: list[tuple[Exception, type[ClientError], dict[str, Any]]] = [
    (errors.UnauthenticatedError(), Unauthenticated, {}),
    (errors.ForbiddenError("SCOPE_NEEDED", "more"), PermissionDenied, {"reason": "SCOPE_NEEDED"}),
    (errors.InvalidArgumentError("value", "is odd"), InvalidArgument, {"field": "value"}),
    (errors.NotFoundError("recommendation"), NotFound, {}),
    (errors.ConflictError("REWARD_EXISTS", "other"), AlreadyExists, {"reason": "REWARD_EXISTS"}),
    (
        errors.ExhaustedError("FULL", "full", retry_after=99.5),
        ResourceExhausted,
        {"reason": "FULL", "retry_after": 99.5},
    ),
    (errors.UnavailableError("away", retry_after=99.5), Unavailable, {"retry_after": 99.5}),
    (
        errors.NotReadyError("TOO_FEW_ITEMS", "2 items", items_left=2, slate_size=3),
        FailedPrecondition,
        {"reason": "TOO_FEW_ITEMS", "numbers": {"items_left": 2, "slate_size": 3}},
    ),
    (ZeroDivisionError("secret"), Internal, {}),
]


@BY_ONE_WAY
@pytest.mark.parametrize(("fault", "kind", "attributes"), FAULTS)
def test_errors_are_typed(
    server: RunningServer,
    make: Callable[..., EitherClient],
    target: str,
    fault: Exception,
    kind: type[ClientError],
    attributes: dict[str, Any],
) -> None:
    client = make(target, retry=ONCE)
    server.shop.faults["reward"] = fault
    with pytest.raises(ClientError) as caught:
        client.reward("home", "r1", 1.0)
    assert type(caught.value) is kind
    assert {name: getattr(caught.value, name) for name in attributes} == attributes
    assert "secret" not in str(caught.value)
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (type(copy), copy.details) == (kind, caught.value.details)


def test_an_internal_error_has_the_reference_of_the_log(
    server: RunningServer, client: EitherClient, caplog: pytest.LogCaptureFixture
) -> None:
    server.shop.faults["reward"] = ZeroDivisionError()
    with pytest.raises(Internal) as caught:
        client.reward("home", "r1", 1.0)
    assert caught.value.reference
    assert caught.value.reference in caplog.text


class Failed:
    """A failed call as a proxy might answer it."""

    def __init__(self, code: grpc.StatusCode, metadata: tuple[tuple[str, bytes], ...] | None) -> None:
        self.code = lambda: code
        self.details = lambda: None
        self.trailing_metadata = lambda: metadata


@pytest.mark.parametrize("metadata", [None, (), (("x", b""),), (("grpc-status-details-bin", b"\xff\xff"),)])
def test_what_does_not_come_from_the_service_is_understood_too(
    metadata: tuple[tuple[str, bytes], ...] | None,
) -> None:
    error = error_of_call(Failed(grpc.StatusCode.OUT_OF_RANGE, metadata), target="here:1")
    assert type(error) is Unexpected
    assert str(error) == "OUT_OF_RANGE: no message"
    unavailable = error_of_call(Failed(grpc.StatusCode.UNAVAILABLE, metadata), target="here:1")
    assert type(unavailable) is Unavailable


def test_a_call_that_was_cancelled_by_the_other_side_is_unavailable() -> None:
    """A server that ends cancels the calls that reach it meanwhile; this side's own end is reported as it is."""
    failed = Failed(grpc.StatusCode.CANCELLED, None)
    assert isinstance(error_of_call(failed, target="here:1"), Unavailable)
    failed.details = lambda: "Channel closed!"
    assert isinstance(error_of_call(failed, target="here:1"), Cancelled)


def test_entries_with_codes_that_nobody_knows() -> None:
    assert type(error_of_entry(pb.RewardError(code=99, message="new"))) is Unexpected
    assert type(error_of_entry(pb.RewardError(code=code_pb2.NOT_FOUND, message="none"))) is NotFound


@pytest.mark.parametrize("timeout", [0.0, -1.0, float("inf"), float("nan"), "5"])
def test_a_call_without_an_end_is_not_offered(
    make: Callable[..., EitherClient], client: EitherClient, timeout: float
) -> None:
    with pytest.raises(ValueError, match="timeout"):
        client.get_bandit("home", timeout=timeout)


def test_the_clients_have_the_same_methods_and_parameters() -> None:
    def signatures(kind: type) -> dict[str, list[str]]:
        names = [name for name in vars(kind) if not name.startswith("_") or name == "__init__"]
        members = {name: getattr(kind, name) for name in names}
        calls = {name: member.fget if isinstance(member, property) else member for name, member in members.items()}
        return {name: list(inspect.signature(call).parameters) for name, call in calls.items()}

    assert signatures(Client) == signatures(client_module.AsyncClient)


def test_a_client_closes_with_its_block(make: Callable[..., EitherClient], server: RunningServer) -> None:
    with type(make(server.target))(server.target, tenant="acme") as client:
        assert list(client.list_bandits()) == []


@pytest.mark.parametrize("target", ["127.0.0.1:9", "http://127.0.0.1:9"])
def test_a_call_of_a_client_that_is_closed_is_an_error_of_the_client(target: str) -> None:
    client = Client(target, tenant="acme")
    client.close()
    with pytest.raises(Cancelled):
        client.get_bandit("home")

    async def call_closed() -> None:
        other = client_module.AsyncClient(target, tenant="acme")
        await other.close()
        with pytest.raises(Cancelled):
            await other.get_bandit("home")

    asyncio.run(call_closed())


def test_the_client_imports_nothing_heavy() -> None:
    code = """
import sys
import topk_bandit.client
heavy = {"numpy", "scipy", "numba", "redis", "prometheus_client", "topk_bandit.rpc", "topk_bandit.store"}
heavy &= set(sys.modules)
assert not heavy, heavy
"""
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)


def test_all_names_are_there() -> None:
    assert all(hasattr(client_module, name) for name in client_module.__all__)
    drawn = [line.split("──")[1].split()[0] for line in client_module.errors.__doc__.splitlines() if "──" in line]
    assert {kind.__name__ for kind in ClientError.__subclasses__()} == set(drawn)
    assert set(drawn) <= set(client_module.__all__)


def test_tls(make: Callable[..., EitherClient], tmp_path: Path) -> None:
    certificate = certify(tmp_path)
    pair = certificate.pair
    with serving(tls=certificate, address="127.0.0.1:0") as server:
        target = f"127.0.0.1:{server.port}"
        assert list(make(target, tls=Tls(root_certificates=pair.certificate)).list_bandits()) == []
        with pytest.raises(Unavailable):
            make(target, retry=ONCE).get_bandit("home")
        with channel_to(target):
            assert "PRIVATE" not in repr(Tls(private_key=pair.private_key, certificate_chain=pair.certificate))
    for half in ({"private_key": pair.private_key}, {"certificate_chain": pair.certificate}):
        with pytest.raises(ValueError, match="private_key and certificate_chain: one needs the other"):
            Tls(**half)
    for name in ("root_certificates", "private_key", "certificate_chain"):
        with pytest.raises(TypeError, match=f"{name} must be the bytes of a PEM file, not str: read the file"):
            Tls(**{name: "ca.pem"})  # type: ignore[arg-type]  # the mistake
        with pytest.raises(ValueError, match=f"{name} has no PEM"):
            Tls(**{name: b"ca.pem"})


@pytest.mark.parametrize("tenant", [None, "", "a/b", "*"])
def test_a_client_is_of_a_tenant(tenant: str) -> None:
    with pytest.raises(ValueError, match="tenant must be 1 to 64 characters"):
        Client("127.0.0.1:1", tenant=tenant)


def test_a_key_is_shown_with_each_call(make: Callable[..., EitherClient]) -> None:
    with serving(keys=ring()) as server:
        client = make(server.target, key=shown("acme"))
        client.create_bandit("home", slate_size=1, item_capacity=2)
        assert [bandit.name for bandit in client.list_bandits()] == ["home"]
        with pytest.raises(PermissionDenied, match="a key for tenants/acme is needed") as denied:
            make(server.target, key=shown("globex")).get_bandit("home")
        assert denied.value.reason == "TENANT_NEEDED"
        for key in (None, "nobody.secret"):
            with pytest.raises(Unauthenticated):
                make(server.target, key=key).get_bandit("home")


@pytest.mark.parametrize("key", ["", "acme", "acme.", ".acme", "a.b.c", bearer("acme"), "a.b\n", "a.\xe9"])
def test_what_is_no_key_is_refused_and_not_repeated(key: str) -> None:
    with pytest.raises(ValueError, match=r"key must be id\.secret, as") as refused:
        Client("127.0.0.1:1", tenant="acme", key=key)
    assert len(key) < 2 or key not in str(refused.value)


def test_an_async_client_over_grpc_is_made_inside_its_event_loop() -> None:
    with pytest.raises(RuntimeError, match="make it inside that, in a coroutine"):
        client_module.AsyncClient("127.0.0.1:1", tenant="acme")
