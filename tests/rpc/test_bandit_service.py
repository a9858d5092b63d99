from __future__ import annotations

import base64
import itertools
import math
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.field_mask_pb2 import FieldMask
from google.protobuf.timestamp_pb2 import Timestamp
from tests.rpc.shop import START_MS
from tests.rpc.wire import HOME, bandit, create, recommend, refused
from tests.waiting import PATIENCE

from topk_bandit.domain.bandits import (
    Aggregation,
    BanditName,
    BanditSettings,
    ConstantBeta,
    Exploration,
    Kernel,
    PaperBeta,
    RewardRange,
)
from topk_bandit.domain.durability import FSYNC, Durability
from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.domain.rules import Exclude, SlateRule
from topk_bandit.domain.stages import Stage
from topk_bandit.learning.policy import kernel_of
from topk_bandit.rpc.bandit_settings import settings_from_proto
from topk_bandit.v1 import bandit_service_pb2 as pb
from topk_bandit.v1 import features_pb2
from topk_bandit.v1 import recommender_service_pb2 as recommender_pb
from topk_bandit.v1 import rules_pb2 as rules_pb
from topk_bandit.v1.bandit_service_pb2_grpc import BanditServiceStub
from topk_bandit.v1.recommender_service_pb2_grpc import RecommenderServiceStub
from topk_bandit.wire.bandits import KERNELS

if TYPE_CHECKING:
    import grpc
    from tests.rpc.harness import RunningServer

NAME = BanditName("acme", "home")


@pytest.fixture
def stub(channel: grpc.Channel) -> BanditServiceStub:
    return BanditServiceStub(channel)


def created(stub: BanditServiceStub, **settings: object) -> pb.Bandit:
    return stub.CreateBandit(pb.CreateBanditRequest(bandit=bandit(**settings)), timeout=PATIENCE).bandit


def settings_of(server: RunningServer) -> BanditSettings:
    return server.shop.loops[NAME].record.settings


def test_create_fills_in_defaults(server: RunningServer, stub: BanditServiceStub) -> None:
    answer = created(stub)
    assert settings_of(server) == BanditSettings(
        item_capacity=20,
        slate_size=2,
        context_dim=1,
        kernel=Kernel.ADAPTIVE,
        exploration=Exploration(ConstantBeta(4.0), 0.05),
        reward_wait_ms=86_400_000,
        default_reward=None,
    )
    assert (answer.name, answer.context_dimension, answer.kernel) == (HOME, 1, pb.KERNEL_ADAPTIVE)
    assert answer.learned_per_second == 300
    assert (answer.exploration.constant_beta, answer.exploration.uniform_share) == (4.0, 0.05)
    assert answer.reward_wait == Duration(seconds=86_400)
    assert not answer.HasField("default_reward")
    assert answer.create_time.ToMilliseconds() == START_MS


EXCLUDED = rules_pb.SlateRule(exclude=rules_pb.ExcludedItems(item_ids=["a"]), may_relax=True)
EVERYTHING: dict[str, Any] = {
    "slate_size": 30,
    "context_dimension": 64,
    "item_capacity": 10_000,
    "kernel": pb.KERNEL_WEIGHTED,
    "exploration": pb.Exploration(schedule_scale=0.0, uniform_share=0.0),
    "reward_wait": Duration(seconds=1, nanos=5_000_000),
    "half_life": Duration(seconds=86_400),
    "provisional_after": Duration(seconds=1),
    "default_reward": 0.0,
    "prior_study": "tenants/acme/studies/tastes",
    "reward_aggregation": pb.REWARD_AGGREGATION_MEAN,
    "requires_activation": True,
    "durability": "fsync",
    "learned_per_second": 1_000_000,
    "default_item_value": 0.0,
    "stage": recommender_pb.STAGE_FROZEN,
    "control_share": 0.9,
    "guardrail_margin": 0.0,
    "rules": [EXCLUDED],
    "reward_range": pb.RewardRange(min=-1.5, max=0.0, out_of_range=pb.OUT_OF_RANGE_CLAMPED, trusted=True),
}


def test_create_takes_everything_and_get_returns_it(server: RunningServer, stub: BanditServiceStub) -> None:
    answer = created(stub, **EVERYTHING)
    exploration = Exploration(PaperBeta(0.0), 0.0)
    expected = BanditSettings(
        *(10_000, 30, 64, Kernel.WEIGHTED, exploration, 1005, 0.0, "tastes"),
        half_life_ms=86_400_000,
        provisional_after_ms=1000,
        reward_range=RewardRange(-1.5, 0.0, clamp=True, trusted=True),
        reward_aggregation=Aggregation.MEAN,
        requires_activation=True,
        durability=FSYNC,
        learned_per_second=1_000_000,
        default_item_value=0.0,
        stage=Stage.FROZEN,
        control_share=0.9,
        guardrail_margin=0.0,
        rules=(SlateRule(Exclude(("a",)), may_relax=True),),
    )
    assert (answer.stage, answer.control_share) == (recommender_pb.STAGE_FROZEN, 0.9)
    assert answer.HasField("guardrail_margin")
    assert list(answer.rules) == [EXCLUDED]
    assert answer.requires_activation
    assert answer.durability == "fsync"
    assert answer.learned_per_second == 1_000_000
    assert answer.reward_aggregation == pb.REWARD_AGGREGATION_MEAN
    assert settings_of(server) == expected
    assert answer.reward_range == EVERYTHING["reward_range"]
    assert answer.half_life == EVERYTHING["half_life"]
    assert answer.provisional_after == EVERYTHING["provisional_after"]
    assert answer.prior_study == EVERYTHING["prior_study"]
    assert stub.GetBandit(pb.GetBanditRequest(name=HOME), timeout=PATIENCE).bandit == answer
    assert answer.default_reward == 0.0
    assert answer.HasField("default_reward")
    assert answer.HasField("default_item_value")
    assert answer.reward_wait == EVERYTHING["reward_wait"]


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        (pb.KERNEL_UNSPECIFIED, pb.KERNEL_ADAPTIVE),
        (pb.KERNEL_ADAPTIVE, pb.KERNEL_ADAPTIVE),
        (pb.KERNEL_WEIGHTED_CONVOLUTIONAL, pb.KERNEL_WEIGHTED_CONVOLUTIONAL),
        (pb.KERNEL_CONVOLUTIONAL, pb.KERNEL_CONVOLUTIONAL),
        (pb.KERNEL_WEIGHTED, pb.KERNEL_WEIGHTED),
    ],
)
def test_kernels(stub: BanditServiceStub, kernel: pb.Kernel, expected: pb.Kernel) -> None:
    assert created(stub, kernel=kernel).kernel == expected


@pytest.mark.parametrize("wait", [Duration(nanos=1_000_000), Duration(seconds=30 * 86_400)])
def test_the_shortest_and_the_longest_reward_wait(stub: BanditServiceStub, wait: Duration) -> None:
    assert created(stub, reward_wait=wait).reward_wait == wait


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"name": ""}, "bandit.name"),
        ({"name": "tenants/acme/bandits/a b"}, "bandit.name"),
        ({"slate_size": 0}, "bandit.slate_size"),
        ({"slate_size": 31}, "bandit.slate_size"),
        ({"slate_size": -1}, "bandit.slate_size"),
        ({"context_dimension": -1}, "bandit.context_dimension"),
        ({"context_dimension": 65}, "bandit.context_dimension"),
        ({"item_capacity": 0}, "bandit.item_capacity"),
        ({"item_capacity": 1}, "bandit.item_capacity"),
        ({"item_capacity": 100_001}, "bandit.item_capacity"),
        ({"slate_size": 1, "item_capacity": 1}, "bandit.item_capacity"),
        ({"slate_size": 1, "kernel": pb.KERNEL_WEIGHTED}, "bandit.slate_size"),
        ({"baseline_item_ids": ["a"]}, "bandit.baseline_item_ids"),
        ({"baseline_item_ids": ["a", "b\n"]}, "bandit.baseline_item_ids[1]"),
        ({"kernel": 99}, "bandit.kernel"),
        ({"exploration": pb.Exploration(constant_beta=-1e-9)}, "bandit.exploration.constant_beta"),
        ({"exploration": pb.Exploration(constant_beta=math.nan)}, "bandit.exploration.constant_beta"),
        ({"exploration": pb.Exploration(schedule_scale=1.1e6)}, "bandit.exploration.schedule_scale"),
        ({"exploration": pb.Exploration(uniform_share=1.1)}, "bandit.exploration.uniform_share"),
        ({"exploration": pb.Exploration(uniform_share=-0.1)}, "bandit.exploration.uniform_share"),
        ({"exploration": pb.Exploration(near_share=1.1)}, "bandit.exploration.near_share"),
        ({"exploration": pb.Exploration(near_share=math.nan)}, "bandit.exploration.near_share"),
        ({"exploration": pb.Exploration(shares_fall_after=-1)}, "bandit.exploration.shares_fall_after"),
        ({"exploration": pb.Exploration(shares_fall_after=1_000_000_001)}, "bandit.exploration.shares_fall_after"),
        ({"half_life": Duration(nanos=999_999)}, "bandit.half_life"),
        ({"provisional_after": Duration(seconds=-1)}, "bandit.provisional_after"),
        ({"provisional_after": Duration(seconds=90 * 86_400, nanos=1_000_000)}, "bandit.provisional_after"),
        ({"provisional_after": Duration(seconds=86_400)}, "bandit.provisional_after"),
        (
            {"provisional_after": Duration(seconds=60), "reward_wait": Duration(seconds=60)},
            "bandit.provisional_after",
        ),
        ({"stage": 9}, "bandit.stage"),
        ({"control_share": -0.1}, "bandit.control_share"),
        ({"control_share": 0.91}, "bandit.control_share"),
        ({"control_share": math.nan}, "bandit.control_share"),
        ({"guardrail_margin": 0.1}, "bandit.guardrail_margin"),
        ({"guardrail_margin": 1.1, "control_share": 0.1}, "bandit.guardrail_margin"),
        ({"conservative_share": -0.1}, "bandit.conservative_share"),
        ({"conservative_share": 1.0}, "bandit.conservative_share"),
        ({"conservative_share": math.nan}, "bandit.conservative_share"),
        ({"conservative_share": 0.1, "requires_activation": True}, "bandit.conservative_share"),
        ({"default_item_value": math.nan}, "bandit.default_item_value"),
        ({"default_item_value": 1.1e100}, "bandit.default_item_value"),
        ({"half_life": Duration(seconds=-1)}, "bandit.half_life"),
        ({"half_life": Duration(seconds=3650 * 86_400 + 1)}, "bandit.half_life"),
        ({"reward_wait": Duration(nanos=999_999)}, "bandit.reward_wait"),
        ({"reward_wait": Duration(nanos=1_000_001)}, "bandit.reward_wait"),
        ({"reward_wait": Duration(seconds=90 * 86_400, nanos=1_000_000)}, "bandit.reward_wait"),
        ({"reward_wait": Duration(seconds=-1)}, "bandit.reward_wait"),
        ({"reward_wait": Duration(seconds=1, nanos=-1_000_000)}, "bandit.reward_wait"),
        ({"reward_wait": Duration(nanos=1_000_000_000)}, "bandit.reward_wait"),
        ({"reward_aggregation": 9}, "bandit.reward_aggregation"),
        ({"reward_range": pb.RewardRange()}, "bandit.reward_range.min"),
        ({"reward_range": pb.RewardRange(min=0.0)}, "bandit.reward_range.max"),
        ({"reward_range": pb.RewardRange(min=0.0, max=0.0)}, "bandit.reward_range.max"),
        ({"reward_range": pb.RewardRange(min=0.0, max=math.inf)}, "bandit.reward_range.max"),
        ({"reward_range": pb.RewardRange(min=math.nan, max=0.0)}, "bandit.reward_range.min"),
        ({"reward_range": pb.RewardRange(min=0.0, max=1.0, out_of_range=9)}, "bandit.reward_range.out_of_range"),
        ({"reward_range": pb.RewardRange(min=0.0, max=1.0), "default_reward": -1.0}, "bandit.default_reward"),
        ({"default_reward": math.inf}, "bandit.default_reward"),
        ({"default_reward": -2e100}, "bandit.default_reward"),
        ({"prior_study": "tastes"}, "bandit.prior_study"),
        ({"learned_per_second": -1}, "bandit.learned_per_second"),
        ({"learned_per_second": 1_000_001}, "bandit.learned_per_second"),
        ({"prior_study": "tenants/other/studies/tastes"}, "bandit.prior_study"),
    ],
)
def test_create_names_the_bad_field(
    server: RunningServer, stub: BanditServiceStub, wrong: dict[str, Any], field: str
) -> None:
    refusal = refused(stub.CreateBandit, pb.CreateBanditRequest(bandit=bandit(**wrong)))
    assert (refusal.code, list(refusal.fields)) == ("INVALID_ARGUMENT", [field])
    assert not server.shop.loops


@pytest.mark.parametrize("kernel", Kernel)
def test_settings_that_are_taken_have_a_kernel(kernel: Kernel) -> None:
    taken = set()
    for capacity, slate_size in itertools.product(range(5), repeat=2):
        given = bandit(item_capacity=capacity, slate_size=slate_size, kernel=KERNELS.write(kernel))
        with suppress(InvalidArgumentError):
            settings_from_proto(given, Exploration(ConstantBeta(1.0), 0.05))
            taken.add((capacity, slate_size))
    for capacity, slate_size in taken:
        assert kernel_of(kernel, capacity, slate_size).n_items == capacity
    assert len(taken) == (6 if kernel is Kernel.WEIGHTED else 9)


def test_create_needs_a_bandit(stub: BanditServiceStub) -> None:
    assert refused(stub.CreateBandit, pb.CreateBanditRequest()).fields == {"bandit": "is required"}


def test_create_again(stub: BanditServiceStub) -> None:
    assert created(stub) == created(stub)
    refusal = refused(stub.CreateBandit, pb.CreateBanditRequest(bandit=bandit(slate_size=3)))
    assert (refusal.code, refusal.reason, refusal.domain) == ("ALREADY_EXISTS", "BANDIT_EXISTS", "topk-bandit")


def test_a_quota_says_when_to_try_again(stub: BanditServiceStub) -> None:
    for letter in "abc":
        created(stub, name=f"tenants/acme/bandits/{letter}")
    refusal = refused(stub.CreateBandit, pb.CreateBanditRequest(bandit=bandit("tenants/acme/bandits/d")))
    assert (refusal.code, refusal.reason, refusal.retry_after) == ("RESOURCE_EXHAUSTED", "BANDIT_QUOTA", 7.5)


UPDATES: list[tuple[list[str], dict[str, Any], dict[str, Any]]] = [
    (["reward_wait"], {"reward_wait": Duration(seconds=2)}, {"reward_wait_ms": 2000}),
    (["reward_range"], {"reward_range": pb.RewardRange(min=0.0, max=1.0)}, {"reward_range": RewardRange(0.0, 1.0)}),
    (["reward_range"], {}, {"reward_range": None}),
    (["requires_activation"], {"requires_activation": True}, {"requires_activation": True}),
    (["durability"], {"durability": "replicated:2"}, {"durability": Durability(synced=True, replicas=2)}),
    (["durability"], {"durability": ""}, {"durability": None}),
    (["learned_per_second"], {"learned_per_second": 1}, {"learned_per_second": 1}),
    (["learned_per_second"], {}, {"learned_per_second": 300}),
    (
        ["reward_aggregation"],
        {"reward_aggregation": pb.REWARD_AGGREGATION_SUM},
        {"reward_aggregation": Aggregation.SUM},
    ),
    (["reward_wait"], {"default_reward": 9.0}, {"reward_wait_ms": 86_400_000}),
    (["default_reward"], {"default_reward": 0.5}, {"default_reward": 0.5}),
    (["default_reward"], {"reward_wait": Duration(seconds=2)}, {"default_reward": None}),
    (["default_reward", "reward_wait"], {"default_reward": 0.5}, {"default_reward": 0.5, "reward_wait_ms": 86_400_000}),
    (
        ["exploration"],
        {"exploration": pb.Exploration(constant_beta=2.0)},
        {"exploration": Exploration(ConstantBeta(2.0), 0.05)},
    ),
    (["exploration"], {}, {"exploration": Exploration(ConstantBeta(4.0), 0.05)}),
    (
        ["exploration.constant_beta"],
        {"exploration": pb.Exploration(constant_beta=2.0, uniform_share=0.5)},
        {"exploration": Exploration(ConstantBeta(2.0), 0.9)},
    ),
    (
        ["exploration.constant_beta"],
        {"exploration": pb.Exploration(schedule_scale=3.0)},
        {"exploration": Exploration(ConstantBeta(4.0), 0.9)},
    ),
    (
        ["exploration.constant_beta", "exploration.schedule_scale"],
        {"exploration": pb.Exploration(schedule_scale=3.0)},
        {"exploration": Exploration(PaperBeta(3.0), 0.9)},
    ),
    (
        ["exploration.uniform_share"],
        {"exploration": pb.Exploration(constant_beta=math.nan, uniform_share=0.0)},
        {"exploration": Exploration(PaperBeta(7.0), 0.0)},
    ),
    (["exploration.uniform_share"], {}, {"exploration": Exploration(PaperBeta(7.0), 0.05)}),
    (
        ["exploration.near_share"],
        {"exploration": pb.Exploration(near_share=0.25, uniform_share=0.3)},
        {"exploration": Exploration(PaperBeta(7.0), 0.9, 0.25)},
    ),
    (
        ["exploration.shares_fall_after"],
        {"exploration": pb.Exploration(shares_fall_after=9, uniform_share=0.3)},
        {"exploration": Exploration(PaperBeta(7.0), 0.9, 0.0, 9)},
    ),
    (["half_life"], {"half_life": Duration(seconds=60)}, {"half_life_ms": 60_000}),
    (["provisional_after"], {"provisional_after": Duration(nanos=5_000_000)}, {"provisional_after_ms": 5}),
    (["provisional_after"], {"provisional_after": Duration()}, {"provisional_after_ms": 0}),
    (["provisional_after"], {"default_reward": 0.5}, {"provisional_after_ms": None}),
    (["half_life"], {"default_reward": 0.5}, {"half_life_ms": 0}),
    (["stage"], {"stage": recommender_pb.STAGE_OFF}, {"stage": Stage.OFF}),
    (["stage"], {"default_reward": 0.5}, {"stage": Stage.LIVE}),
    (
        ["control_share", "guardrail_margin"],
        {"control_share": 0.25, "guardrail_margin": 0.05},
        {"control_share": 0.25, "guardrail_margin": 0.05},
    ),
    (["control_share"], {"control_share": 0.0}, {"control_share": 0.0}),
    (["conservative_share"], {"conservative_share": 0.1}, {"conservative_share": 0.1}),
    (["conservative_share"], {"default_reward": 0.5}, {"conservative_share": 0.0}),
    (["rules"], {"rules": [EXCLUDED]}, {"rules": (SlateRule(Exclude(("a",)), may_relax=True),)}),
    (["default_item_value"], {"default_item_value": -2.5}, {"default_item_value": -2.5}),
    (["default_item_value"], {"default_reward": 0.5}, {"default_item_value": None}),
    (["prior_study"], {"prior_study": "tenants/acme/studies/tastes"}, {"prior_study": "tastes"}),
    (["prior_study"], {"default_reward": 0.5}, {"prior_study": ""}),
    (["default_reward"], {"prior_study": "nonsense"}, {"default_reward": None}),
    (["item_capacity"], {"item_capacity": 20}, {}),
    (["item_capacity"], {"item_capacity": 10_000}, {"item_capacity": 10_000}),
    (["default_reward"], {"item_capacity": 1}, {"default_reward": None}),
    (["baseline_item_ids"], {"baseline_item_ids": ["b", "a"]}, {"baseline_item_ids": ("b", "a")}),
    (["baseline_item_ids"], {"item_capacity": 1}, {"baseline_item_ids": ()}),
    (["default_reward"], {"baseline_item_ids": ["a"]}, {"default_reward": None}),
]


@pytest.mark.parametrize(("paths", "values", "expected"), UPDATES)
def test_update_changes_what_the_mask_names(
    server: RunningServer, stub: BanditServiceStub, paths: list[str], values: dict[str, Any], expected: dict[str, Any]
) -> None:
    created(
        stub,
        exploration=pb.Exploration(schedule_scale=7.0, uniform_share=0.9),
        reward_wait=Duration(seconds=1),
        default_reward=1.0,
    )
    before = settings_of(server)
    request = pb.UpdateBanditRequest(bandit=pb.Bandit(name=HOME, **values), update_mask=FieldMask(paths=paths))
    answer = stub.UpdateBandit(request, timeout=PATIENCE).bandit
    changed = {name: getattr(before, name) for name in BanditSettings.__slots__} | expected
    assert settings_of(server) == BanditSettings(**changed)
    assert answer == stub.GetBandit(pb.GetBanditRequest(name=HOME), timeout=PATIENCE).bandit


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        (pb.UpdateBanditRequest(), "bandit"),
        (pb.UpdateBanditRequest(bandit=pb.Bandit(), update_mask=FieldMask(paths=["reward_wait"])), "bandit.name"),
        (pb.UpdateBanditRequest(bandit=pb.Bandit(name=HOME)), "update_mask"),
        (pb.UpdateBanditRequest(bandit=bandit(), update_mask=FieldMask(paths=["slate_size"])), "update_mask"),
        (pb.UpdateBanditRequest(bandit=bandit(), update_mask=FieldMask(paths=["*"])), "update_mask"),
        (
            pb.UpdateBanditRequest(bandit=bandit(), update_mask=FieldMask(paths=["reward_wait", "x" * 10**5])),
            "update_mask",
        ),
        (
            pb.UpdateBanditRequest(
                bandit=bandit(exploration=pb.Exploration(uniform_share=2.0)),
                update_mask=FieldMask(paths=["exploration"]),
            ),
            "bandit.exploration.uniform_share",
        ),
        *(
            (
                pb.UpdateBanditRequest(bandit=bandit(prior_study=study), update_mask=FieldMask(paths=["prior_study"])),
                "bandit.prior_study",
            )
            for study in ("tastes", "tenants/other/studies/tastes", "tenants/acme/bandits/home", "x" * 10**5)
        ),
        *(
            (
                pb.UpdateBanditRequest(
                    bandit=bandit(item_capacity=capacity), update_mask=FieldMask(paths=["item_capacity"])
                ),
                "bandit.item_capacity",
            )
            for capacity in (-1, 0, 1, 19, 100_001)
        ),
        *(
            (
                pb.UpdateBanditRequest(
                    bandit=bandit(baseline_item_ids=ids), update_mask=FieldMask(paths=["baseline_item_ids"])
                ),
                f"bandit.baseline_item_ids{place}",
            )
            for ids, place in ((["a"], ""), (["a", "b", "c"], ""), (["a", "a"], "[1]"), (["a", ""], "[1]"))
        ),
    ],
)
def test_update_names_the_bad_field(
    server: RunningServer, stub: BanditServiceStub, request_: pb.UpdateBanditRequest, field: str
) -> None:
    created(stub)
    before = settings_of(server)
    refusal = refused(stub.UpdateBandit, request_)
    assert (refusal.code, list(refusal.fields)) == ("INVALID_ARGUMENT", [field])
    assert settings_of(server) == before


def test_delete(stub: BanditServiceStub) -> None:
    created(stub)
    stub.DeleteBandit(pb.DeleteBanditRequest(name=HOME), timeout=PATIENCE)
    assert refused(stub.GetBandit, pb.GetBanditRequest(name=HOME)).code == "NOT_FOUND"
    assert refused(stub.DeleteBandit, pb.DeleteBanditRequest(name=HOME)).code == "NOT_FOUND"


def test_reset(server: RunningServer, stub: BanditServiceStub) -> None:
    made = created(stub)
    for request_id in ("", "mine"):
        answer = stub.ResetBandit(pb.ResetBanditRequest(name=HOME, request_id=request_id), timeout=PATIENCE)
        assert answer.bandit == made
    assert server.shop.loops[NAME].resets == ["", "mine"]
    for name, request_id, field in (
        (HOME, "a\nb", "request_id"),
        (HOME, "x" * 129, "request_id"),
        ("home", "", "name"),
    ):
        refusal = refused(stub.ResetBandit, pb.ResetBanditRequest(name=name, request_id=request_id))
        assert (refusal.code, list(refusal.fields)) == ("INVALID_ARGUMENT", [field])
    assert refused(stub.ResetBandit, pb.ResetBanditRequest(name=f"{HOME}2")).code == "NOT_FOUND"


def test_bandits_are_listed_in_pages(stub: BanditServiceStub) -> None:
    for letter in "cab":
        created(stub, name=f"tenants/acme/bandits/{letter}")
    created(stub, name="tenants/other/bandits/d")
    first = stub.ListBandits(pb.ListBanditsRequest(parent="tenants/acme", page_size=2), timeout=PATIENCE)
    second = stub.ListBandits(
        pb.ListBanditsRequest(parent="tenants/acme", page_size=2, page_token=first.next_page_token), timeout=PATIENCE
    )
    assert [one.name[-1] for one in first.bandits] == ["a", "b"]
    assert ([one.name[-1] for one in second.bandits], second.next_page_token) == (["c"], "")


def test_a_page_that_is_just_full_is_the_last(stub: BanditServiceStub) -> None:
    created(stub)
    page = stub.ListBandits(pb.ListBanditsRequest(parent="tenants/acme", page_size=1), timeout=PATIENCE)
    assert (len(page.bandits), page.next_page_token) == (1, "")
    nobody = stub.ListBandits(pb.ListBanditsRequest(parent="tenants/nobody"), timeout=PATIENCE)
    assert (len(nobody.bandits), nobody.next_page_token) == (0, "")


BAD_TOKENS = ["!", "a", "YQ==", "Y Q", base64.urlsafe_b64encode(b"\xff\xfe").decode().rstrip("="), "AA", "x" * 10**6]


@pytest.mark.parametrize("token", BAD_TOKENS)
def test_a_page_token_that_nobody_gave_out(channel: grpc.Channel, stub: BanditServiceStub, token: str) -> None:
    create(channel)
    bandits = refused(stub.ListBandits, pb.ListBanditsRequest(parent="tenants/acme", page_token=token))
    items = refused(stub.ListItems, pb.ListItemsRequest(bandit=HOME, page_token=token))
    assert [list(one.fields) for one in (bandits, items)] == [["page_token"], ["page_token"]]


@pytest.mark.parametrize(
    ("wrong", "field"),
    [({"parent": ""}, "parent"), ({"parent": HOME}, "parent"), ({"page_size": -1}, "page_size")],
)
def test_list_bandits_names_the_bad_field(stub: BanditServiceStub, wrong: dict[str, Any], field: str) -> None:
    refusal = refused(stub.ListBandits, pb.ListBanditsRequest(**{"parent": "tenants/acme", **wrong}))
    assert (refusal.code, list(refusal.fields)) == ("INVALID_ARGUMENT", [field])


def item(name: str, *, unavailable: bool = False) -> pb.Item:
    return pb.Item(item_id=name, unavailable=unavailable)


def test_items_are_upserted_retired_and_listed(channel: grpc.Channel, stub: BanditServiceStub) -> None:
    create(channel, items="ca")
    upsert = pb.UpsertItemsRequest(bandit=HOME, items=[item("b"), item("a", unavailable=True), item("日本")])
    assert stub.UpsertItems(upsert, timeout=PATIENCE).item_count == 4
    assert stub.RetireItems(pb.RetireItemsRequest(bandit=HOME, item_ids=["c"]), timeout=PATIENCE).item_count == 3
    everything = stub.ListItems(pb.ListItemsRequest(bandit=HOME), timeout=PATIENCE)
    assert list(everything.items) == [item("a", unavailable=True), item("b"), item("日本")]
    assert everything.next_page_token == ""


def test_items_are_listed_in_pages(channel: grpc.Channel, stub: BanditServiceStub) -> None:
    names = [f"ä{number:02}" for number in range(7)]
    create(channel, items=names)
    seen, token = [], ""
    while True:
        page = stub.ListItems(pb.ListItemsRequest(bandit=HOME, page_size=3, page_token=token), timeout=PATIENCE)
        seen.append([one.item_id for one in page.items])
        token = page.next_page_token
        if not token:
            break
    assert seen == [names[:3], names[3:6], names[6:]]


def test_item_errors_of_the_use_cases(channel: grpc.Channel, stub: BanditServiceStub) -> None:
    create(channel)
    stub.RetireItems(pb.RetireItemsRequest(bandit=HOME, item_ids=["a"]), timeout=PATIENCE)
    retired = refused(stub.UpsertItems, pb.UpsertItemsRequest(bandit=HOME, items=[item("a")]))
    assert (retired.code, retired.reason) == ("ALREADY_EXISTS", "ITEM_RETIRED")
    unknown = refused(stub.RetireItems, pb.RetireItemsRequest(bandit=HOME, item_ids=["b", "x"]))
    assert (unknown.code, unknown.resource) == ("NOT_FOUND", "item x")
    too_many = pb.UpsertItemsRequest(bandit=HOME, items=[item(str(number)) for number in range(20)])
    full = refused(stub.UpsertItems, too_many)
    assert (full.code, full.reason, full.retry_after) == ("RESOURCE_EXHAUSTED", "ITEM_CAPACITY", 1.0)
    assert [one.item_id for one in stub.ListItems(pb.ListItemsRequest(bandit=HOME), timeout=PATIENCE).items] == [
        "b",
        "c",
        "d",
    ]


@pytest.mark.parametrize(
    ("items", "field"),
    [
        ([], "items"),
        ([item("a"), item("")], "items[1].item_id"),
        ([item("a"), item("b"), item("a")], "items[2].item_id"),
        ([item("a\n")], "items[0].item_id"),
        ([item("a" * 10**6)], "items[0].item_id"),
        ([item(str(number)) for number in range(10_001)], "items"),
    ],
)
def test_upsert_names_the_bad_field(
    server: RunningServer, channel: grpc.Channel, stub: BanditServiceStub, items: list[pb.Item], field: str
) -> None:
    create(channel)
    refusal = refused(stub.UpsertItems, pb.UpsertItemsRequest(bandit=HOME, items=items))
    assert (refusal.code, list(refusal.fields)) == ("INVALID_ARGUMENT", [field])
    assert len(server.shop.loops[NAME].items) == 4


@pytest.mark.parametrize(
    ("ids", "field"),
    [([], "item_ids"), (["a", ""], "item_ids[1]"), (["a", "b", "b"], "item_ids[2]"), (["\x9f"], "item_ids[0]")],
)
def test_retire_names_the_bad_field(channel: grpc.Channel, stub: BanditServiceStub, ids: list[str], field: str) -> None:
    create(channel)
    refusal = refused(stub.RetireItems, pb.RetireItemsRequest(bandit=HOME, item_ids=ids))
    assert (refusal.code, list(refusal.fields)) == ("INVALID_ARGUMENT", [field])


def test_stats_arrive_under_their_names(channel: grpc.Channel, stub: BanditServiceStub) -> None:
    create(channel)
    for name in "pqr":
        recommend(channel, request_id=name)
    rewards = RecommenderServiceStub(channel)
    rewards.Reward(recommender_pb.RewardRequest(bandit=HOME, recommendation_id="p", value=0.5), timeout=PATIENCE)
    stats = stub.GetBanditStats(pb.GetBanditStatsRequest(bandit=HOME), timeout=PATIENCE)
    assert stats == pb.GetBanditStatsResponse(
        log_position=5,
        model_version=2,
        recommendation_count=3,
        observation_count=1,
        default_count=3,
        expiration_count=4,
        late_reward_count=5,
        pending_count=2,
        item_count=4,
        available_item_count=4,
        passed_over_count=16,
        place_count=15,
        unplaced_reward_count=17,
        posterior_row_count=6,
        pending_row_count=7,
        mean_reward=0.5,
        regret_bound_sum=6.0,
        estimated_regret_sum=1.5,
        explored_count=1,
        noise_variance=0.25,
        prior_variance=0.75,
        prior_slope=-0.125,
        rank_weight_power=0.5,
        snapshot_position=9,
        memory_bytes=10,
        memory_limit_bytes=11,
        store_bytes=48,
        log_digest="12",
        posterior_digest="13",
        arithmetic="paper and pencil",
        outlier_count=14,
        outlier_context_count=51,
        spread_factor=52.0,
        has_reward_range=True,
        selection_share=55.0,
        reward_times=pb.RewardTimes(
            slate_count=56,
            points=[
                pb.RewardPoint(delay=Duration(seconds=1), share=1.5),
                pb.RewardPoint(delay=Duration(seconds=90), share=0.9375),
                pb.RewardPoint(delay=Duration(seconds=3600), share=1.0),
            ],
            half_by=Duration(seconds=1),
            nine_tenths_by=Duration(seconds=90),
            almost_all_by=Duration(seconds=3600),
            reward_wait=Duration(seconds=86400),
        ),
        shadow=pb.ShadowStats(
            slate_count=57, agreement_count=19, shared_item_mean=1.5, gain=pb.Interval(value=0.25, low=-0.5, high=1.0)
        ),
        lift=pb.Lift(
            since=Timestamp(seconds=START_MS // 1000, nanos=START_MS % 1000 * 1_000_000),
            bandit=pb.GroupStats(drawn_count=90, counted_count=80, mean_reward=0.5),
            control=pb.GroupStats(drawn_count=10, counted_count=9, mean_reward=0.25),
            verdict=pb.LIFT_VERDICT_BETTER,
            difference=pb.Interval(value=0.25, low=0.125, high=0.375),
            ratio=pb.Interval(value=2.0, low=1.5, high=2.5),
            further_request_count=0,
            odd_groups=True,
            confidence=0.95,
            guarded_position=58,
            guarded_reason="it was worse",
            days=[
                pb.LiftDay(
                    start=Timestamp(seconds=START_MS // 1000, nanos=START_MS % 1000 * 1_000_000),
                    bandit=pb.GroupStats(drawn_count=9, counted_count=8, mean_reward=0.75),
                    control=pb.GroupStats(drawn_count=1, counted_count=-2, mean_reward=0.0),
                    difference=pb.Interval(value=0.5, low=-0.5, high=1.5),
                )
            ],
        ),
        exposures=[
            pb.ExposureStats(rule="at least 0.1 of all slates show one of a", slate_count=64, shown_count=65, owed=-0.5)
        ],
        conservative=pb.ConservativeStats(
            since=Timestamp(seconds=START_MS // 1000, nanos=START_MS % 1000 * 1_000_000),
            own=pb.GroupStats(drawn_count=66, counted_count=65, mean_reward=0.5),
            baseline=pb.GroupStats(drawn_count=67, counted_count=64, mean_reward=0.25),
            reserve=-1.5,
            shows_own=True,
        ),
        log_reach=pb.LogReach(
            first_position=61,
            since=Timestamp(seconds=START_MS // 1000, nanos=START_MS % 1000 * 1_000_000),
            stored_position=62,
            missing_event_count=63,
        ),
        rules=["filter price < 20 (may be relaxed)"],
        damage="event 9 does not match its checksum",
        noticed_change_count=34,
        set_aside_count=35,
        pair_scale=0.25,
        constant_variance=4.0,
        shared_context=2.0,
        clamped_reward_count=15,
        lost_event_count=33,
        lost_reward_count=32,
        inactive_count=16,
        lapsed_count=17,
        shown_otherwise_count=18,
        corrected_reward_count=19,
        missed_correction_count=20,
        edges_reached=["noise"],
        context_features=[features_pb2.FeatureStats(scale=2.5, clamped_count=3)],
        item_features=[features_pb2.FeatureStats(name="price", centre=1.0, scale=2.0, frozen=True, missing_count=4)],
        content_share=16.0,
        imported_count=21,
        forgotten_count=22,
    )
