"""Made shops in which a conservative bandit is played: in some it is worse than the shop, in others better."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from tests.bandits.harness import LIMITS

from topk_bandit.bandits.choices import choose_slate
from topk_bandit.bandits.fold import begin, fold
from topk_bandit.domain.bandits import BanditSettings, Exploration, Item, Kernel, PaperBeta
from topk_bandit.domain.slates import RecommendationRequest
from topk_bandit.store.events import (
    BanditCreated,
    ItemsChanged,
    LoggedEvent,
    Recommended,
    Rewarded,
    Shown,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from topk_bandit.store.events import Event

N_ITEMS, SLATE_SIZE = 8, 2
EXPLORATION = Exploration(PaperBeta(0.1), 0.05, 0.05, shares_fall_after=500)
SETTINGS = BanditSettings(N_ITEMS, SLATE_SIZE, 2, Kernel.ADAPTIVE, EXPLORATION, 10**6, 0.0)
POSITIONS = np.array([0.6, 0.4])


class Played(NamedTuple):
    """What a shop's visits were expected to earn, one by one: by what was shown, and by the baseline slates."""

    shown: NDArray[np.float64]
    baseline: NDArray[np.float64]
    is_baseline: NDArray[np.bool_]

    @property
    def worst(self) -> float:
        """The least part of what the baseline slates would have earned that was earned, from visit 100 on.

        Before that, it depends on which visitors came: the promise is of their mean.
        """
        return float(np.min((np.cumsum(self.shown) / np.cumsum(self.baseline))[100:]))

    @property
    def gain(self) -> float:
        return float(np.sum(self.shown - self.baseline))


@dataclass
class Shop:
    """A shop of clicks, whose visitors are of two kinds.

    Attributes
    ----------
    kind
        ``hidden``: the shop knows which kind a visitor is and shows what it likes, and the bandit does not know.
        ``best``: the shop shows the best slate of all, and the bandit can only lose. ``rare``: that, with few clicks.
        ``better``: the shop shows always the same, middling slate, and the bandit knows the kind. ``weekly``: as
        ``hidden``, and what all slates earn goes up and down by a fifth.
    """

    seed: int
    kind: str

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng([self.seed, 5])
        by_kind = np.sort(self.rng.uniform(0.02, 0.8, size=(2, N_ITEMS)), axis=1)
        self.likes = np.stack([self.rng.permutation(one) for one in by_kind])
        if self.kind == "rare":
            self.likes *= 0.1
        if self.kind in {"best", "rare"}:
            self.likes[1] = self.likes[0]

    def show(self, visitor: int) -> NDArray[np.intp]:
        """Return the shop's own slate."""
        if self.kind == "better":
            return np.argsort(self.likes.mean(axis=0))[-4:-2][::-1]
        return np.argsort(-self.likes[visitor])[:SLATE_SIZE]

    def worth(self, slate: NDArray[np.intp], visitor: int, visit: int) -> float:
        level = 1.0 + 0.2 * np.sin(visit / 40.0) if self.kind == "weekly" else 1.0
        return float(POSITIONS @ self.likes[visitor, slate] * level)


def play(shop: Shop, visits: int, *, share: float, delay: int = 0) -> Played:
    """Return what a bandit with a conservative share earns in a shop; rewards come so many visits later."""
    settings = replace(SETTINGS, conservative_share=share)
    model = begin(f"birth {shop.seed}", LoggedEvent(1, 1, BanditCreated(settings)), limits=LIMITS)
    waiting: list[Event] = []
    shown, baseline, is_baseline = [], [], []

    def take(event: Event) -> None:
        nonlocal model
        model = fold(model, LoggedEvent(model.version + 1, 1000 * model.version, event))

    take(ItemsChanged(tuple(Item(f"i{number}") for number in range(N_ITEMS))))
    for visit in range(visits):
        visitor = int(shop.rng.integers(2))
        own = shop.show(visitor)
        known = float(2 * visitor - 1) if shop.kind == "better" else float(shop.rng.normal())
        request = RecommendationRequest(f"r{visit}", (1.0, known), None, tuple(f"i{item}" for item in own))
        given = choose_slate(model, request)
        slate = np.array([int(item[1:]) for item in given.slate])
        shown.append(shop.worth(slate, visitor, visit))
        baseline.append(shop.worth(own, visitor, visit))
        is_baseline.append(given.baseline)
        take(Recommended(request, given))
        reward = float(shop.rng.random() < shown[-1])
        waiting.append(
            Rewarded(given.recommendation_id, reward, Shown(request.context, given.slate, visit + 2), group=given.group)
        )
        if len(waiting) > delay:
            take(waiting.pop(0))
    return Played(np.array(shown), np.array(baseline), np.array(is_baseline))
