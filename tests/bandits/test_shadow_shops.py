"""In made shops the interval of a shadow's gain holds the truth, whether or not the shop knows what it shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.bandits.harness import LIMITS

from topk_bandit.bandits.choices import choose_slate
from topk_bandit.bandits.fold import begin, fold
from topk_bandit.bandits.lifts import describe_shadow
from topk_bandit.domain.bandits import DEFAULT_EXPLORATION, BanditSettings, Item, Kernel
from topk_bandit.domain.slates import RecommendationRequest
from topk_bandit.domain.stages import Stage
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

    from topk_bandit.domain.stages import Interval
    from topk_bandit.store.events import Event

N_ITEMS, SLATE_SIZE = 12, 3
SETTINGS = BanditSettings(N_ITEMS, SLATE_SIZE, 2, Kernel.ADAPTIVE, DEFAULT_EXPLORATION, 10**6, None, stage=Stage.SHADOW)
SHOPS, VISITS = 16, 150


class Shop:
    """A shop whose items are worth something at each position, more in some contexts."""

    def __init__(self, seed: int, kind: str) -> None:
        self.rng = np.random.default_rng(seed)
        self.constants, self.slopes = self.rng.normal(size=N_ITEMS), 0.7 * self.rng.normal(size=N_ITEMS)
        self.believed = self.constants + 0.7 * self.rng.normal(size=N_ITEMS)
        self.kind = kind

    def show(self) -> NDArray[np.intp]:
        """Return the shop's own slate: always its best one, one that varies around it, or any."""
        noise = {"fixed": 0.0, "varied": 0.5, "random": 1e3}[self.kind] * self.rng.gumbel(size=N_ITEMS)
        return np.argsort(-(self.believed + noise))[:SLATE_SIZE]

    def worth(self, slate: NDArray[np.intp], context: float) -> float:
        return float(np.array([1.0, 0.7, 0.5]) @ (self.constants[slate] + self.slopes[slate] * context))


def play(seed: int, kind: str) -> tuple[float, Interval]:
    """Return what a shadow's slates would have earned more, in the mean, and what it says of that."""
    shop, gains = Shop(seed, kind), []
    model = begin(f"birth {seed}", LoggedEvent(1, 1, BanditCreated(SETTINGS)), limits=LIMITS)

    def take(event: Event) -> None:
        nonlocal model
        model = fold(model, LoggedEvent(model.version + 1, 1000 * model.version, event))

    take(ItemsChanged(tuple(Item(f"i{number}") for number in range(N_ITEMS))))
    for visit in range(VISITS):
        context, own = float(shop.rng.normal()), shop.show()
        request = RecommendationRequest(f"r{visit}", (1.0, context), None, tuple(f"i{item}" for item in own))
        given = choose_slate(model, request)
        assert given.shadow is not None
        chosen = np.array([int(item[1:]) for item in given.shadow.slate])
        gains.append(shop.worth(chosen, context) - shop.worth(own, context))
        reward = shop.worth(own, context) + float(shop.rng.normal())
        take(Recommended(request, given))
        take(Rewarded(given.recommendation_id, reward, Shown(request.context, given.slate, 1)))
    gain = describe_shadow(model).gain
    assert gain is not None
    return float(np.mean(gains)), gain


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["fixed", "varied", "random"])
def test_the_interval_of_the_gain_holds(kind: str) -> None:
    held = [low <= truth <= high for truth, (_, low, high) in (_figures(seed, kind) for seed in range(SHOPS))]
    assert sum(held) >= SHOPS - 1


def _figures(seed: int, kind: str) -> tuple[float, tuple[float, float, float]]:
    truth, gain = play(seed, kind)
    return truth, (gain.value, gain.low, gain.high)
