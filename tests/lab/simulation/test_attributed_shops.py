"""Shops whose items have attributes: what their rewards are, and what knowing the attributes is worth."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.testing import assert_allclose

from topk_bandit.domain.bandits import DEFAULT_EXPLORATION, Kernel
from topk_bandit.lab.simulation.attributed_shops import (
    AttributedShop,
    AttributeThompson,
    Customs,
    draw_attributes,
    play,
    requests_until_known,
)
from topk_bandit.lab.simulation.episodes import GpTopK
from topk_bandit.learning.limits import Limits
from topk_bandit.learning.policy import State, kernel_of
from topk_bandit.learning.state_changes import change_item_features

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from tests.learning.dense import FloatArray

    from topk_bandit.lab.simulation.episodes import Visit

SMALL = Customs(n_items=400, slate_size=3, context_dim=2, n_attributes=4, n_candidates=12)


def shop_of(seed: int, customs: Customs = SMALL) -> AttributedShop:
    return AttributedShop.draw(customs, np.random.default_rng([seed, 1]))


def bandit(shop: AttributedShop, features: FloatArray | None, *, rows: int = 150) -> GpTopK:
    size = shop.customs
    kernel = kernel_of(Kernel.ADAPTIVE, size.n_items, size.slate_size)
    state = change_item_features(
        State.initial(kernel, context_dim=size.context_dim, limits=Limits(rows=rows)), features
    )
    return GpTopK(state, DEFAULT_EXPLORATION, rng=np.random.default_rng(3))


class Clairvoyant:
    """Shows the best slate, or the worst."""

    def __init__(self, shop: AttributedShop, *, worst: bool) -> None:
        self._shop, self._worst = shop, worst
        self.rewards: list[float] = []

    def choose(self, visit: Visit) -> NDArray[np.int32]:
        order = np.argsort(-(self._shop.worth[visit.eligible] @ visit.context))
        return visit.eligible[order[::-1][:3] if self._worst else order[:3]]

    def observe(self, number: int, reward: float) -> None:  # noqa: ARG002
        self.rewards.append(reward)

    def close(self, number: int) -> None:  # noqa: ARG002
        raise AssertionError


def regret(shop: AttributedShop, player: GpTopK | AttributeThompson | Clairvoyant, *, rounds: int) -> float:
    """Return the mean regret of the last half."""
    return float(play(shop, player, rounds=rounds, rng=np.random.default_rng(2))[rounds // 2 :].mean())


def test_worth_is_explained_by_attributes_but_for_the_items_own_share() -> None:
    for own in (0.0, 0.3, 1.0):
        shop = shop_of(0, Customs(n_items=20_000, own=own))
        fitted = shop.attributes @ np.linalg.lstsq(shop.attributes, shop.worth, rcond=None)[0]
        left = ((shop.worth - fitted) ** 2).mean(axis=0) / (shop.worth**2).mean(axis=0)
        assert_allclose(left[0], own, atol=0.05)
        assert_allclose(np.linalg.norm(shop.attributes, axis=1), 1.0)
        assert shop.worth[:, 0].std() == np.clip(shop.worth[:, 0].std(), 0.9, 1.1)


def test_rewards_are_the_discounted_worth_and_noise() -> None:
    shop, best = shop_of(1), Clairvoyant(shop_of(1), worst=False)
    assert_allclose(shop.discounts * np.log2([2, 3, 4]), shop.discounts[0])
    assert_allclose(shop.discounts.sum(), 1.0)
    regrets = play(shop, best, rounds=300, rng=np.random.default_rng(2))
    assert_allclose(regrets, 0.0, atol=1e-12)
    rng = np.random.default_rng(2)
    errors = []
    for number in range(300):
        visit = shop.visit(number, rng)
        expected = sum(
            shop.discounts[place] * (shop.worth[item] @ visit.context) for place, item in enumerate(best.choose(visit))
        )
        errors.append(best.rewards[number] - expected)
        rng.normal()
    assert abs(np.std(errors) - shop.customs.noise) < 0.06
    assert regret(shop, Clairvoyant(shop, worst=True), rounds=100) > 1.0


def test_attributes_make_up_for_items_that_are_seldom_seen() -> None:
    """With true attributes regret is less than half, as it is for linear sampling; useless ones do little harm."""
    for seed in range(2):
        shop = shop_of(seed)
        useless = draw_attributes(SMALL, np.random.default_rng([seed, 5]))
        without, true, other = (
            regret(shop, bandit(shop, features), rounds=240) for features in (None, shop.attributes, useless)
        )
        linear = regret(shop, AttributeThompson(shop, np.random.default_rng(3)), rounds=240)
        assert true < 0.5 * without
        assert linear < 0.5 * without
        assert other < 1.3 * without


def test_a_good_item_that_arrives_is_known_by_its_attributes() -> None:
    shop = shop_of(0, SMALL._replace(n_items=120, own=0.05))
    taken = [
        requests_until_known(shop, player, rounds=200, arriving=10, most=150, rng=np.random.default_rng(2))
        for player in (bandit(shop, shop.attributes), Clairvoyant(shop, worst=True), Clairvoyant(shop, worst=False))
    ]
    assert taken[0] < 50
    assert taken[1:] == [150, 1]
