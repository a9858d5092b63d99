"""Plain values to fill a store with."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from topk_bandit.domain.bandits import (
    Aggregation,
    BanditName,
    BanditSettings,
    ConstantBeta,
    Exploration,
    Item,
    ItemUtility,
    Kernel,
    Prior,
    RewardRange,
)
from topk_bandit.domain.features import Features
from topk_bandit.domain.slates import Recommendation, RecommendationRequest
from topk_bandit.store.events import PastSlate
from topk_bandit.store.log import ImportPart

if TYPE_CHECKING:
    from topk_bandit.domain.features import Context

__all__ = [
    "HOUR_MS",
    "ITEMS",
    "NAME",
    "NAMED",
    "PAST",
    "PRIOR",
    "SETTINGS",
    "import_part",
    "recommendation",
    "request",
    "settings",
]

HOUR_MS = 3_600_000
NAME = BanditName(tenant="shop", bandit="home")
ITEMS = (Item("apple"), Item("pear"), Item("plum", available=False))
PRIOR = Prior(
    study="tastes",
    answers=60,
    utilities=(ItemUtility("apple", 1 / 3, (0.1, -2.5, 1e-17)), ItemUtility("pear", 0.0, (3.0, 0.0, -1.0))),
)
NAMED = Features.of(
    {
        "price": 5e-324,
        "member": False,
        "country ] é": 'a "b" c\n\u2028{0} %s',
        "tags": ("new thing", "\\", "漢"),
        "none": (),
        "user": (0.1, -2.5, 1e22),
    }
)
PAST = (
    PastSlate((0.1, -2.5, 1e-17), ("pear", "apple"), 1 / 3, -62_135_596_800_000, 5e-324),
    PastSlate(NAMED, ("apple", 'a "b"\u2028'), 0.0),
    PastSlate((), (), 1e22, None, 1.0),
)
SETTINGS = BanditSettings(
    item_capacity=5,
    slate_size=2,
    context_dim=3,
    kernel=Kernel.WEIGHTED_CONVOLUTIONAL,
    exploration=Exploration(beta=ConstantBeta(value=4.0), uniform_share=0.1),
    reward_wait_ms=HOUR_MS,
    default_reward=None,
)


def settings(
    *,
    reward_wait_ms: int = HOUR_MS,
    default_reward: float | None = None,
    item_capacity: int = 5,
    uniform_share: float = 0.1,
    reward_range: RewardRange | None = None,
    reward_aggregation: Aggregation = Aggregation.FIRST,
    requires_activation: bool = False,
) -> BanditSettings:
    return replace(
        SETTINGS,
        reward_wait_ms=reward_wait_ms,
        default_reward=default_reward,
        item_capacity=item_capacity,
        reward_range=reward_range,
        reward_aggregation=reward_aggregation,
        requires_activation=requires_activation,
        exploration=replace(SETTINGS.exploration, uniform_share=uniform_share),
    )


def request(
    request_id: str = "req-1",
    *,
    context: Context = (0.1, -2.5, 1e-17),
    candidates: tuple[str, ...] | None = None,
) -> RecommendationRequest:
    return RecommendationRequest(request_id=request_id, context=context, candidates=candidates)


def import_part(
    first_row: int = 0, count: int = 3, *, import_id: str = "year", fingerprint: str = "0a", clamped: int = 0
) -> ImportPart:
    return ImportPart(import_id, first_row, first_row + count, fingerprint, count, clamped)


def recommendation(recommendation_id: str = "rec-1", *, mean: float = 1 / 3) -> Recommendation:
    return Recommendation(
        recommendation_id=recommendation_id,
        slate=("pear", "apple"),
        propensity=0.1 + 0.2,
        mean=mean,
        standard_deviation=1e-300,
        regret_bound=2.0**0.5,
        estimated_regret=0.0,
        explored=True,
        model_version=7,
        observations=5,
    )
