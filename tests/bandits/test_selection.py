"""A bandit that learns from buyers alone says so."""

from __future__ import annotations

import pytest
from tests.bandits.test_corrections import begun, recommended, rewarded, then

from topk_bandit.store.events import Event, Expired, Shown


def ended(number: int, *, buys: bool, default: float | None = None, reward: float = 5.0) -> list[Event]:
    """Return a slate, and a reward for it, or its end without one."""
    shown = recommended(number)
    expired = Expired(
        f"r{number}",
        default,
        None if default is None else Shown(shown.request.context, shown.recommendation.slate, 1),
    )
    return [shown, rewarded(number, reward) if buys else expired]


def share(*, of_buyers: int, default: float | None = None, reward: float = 5.0, visits: int = 200) -> float:
    """Return the share that a bandit reports where one visitor of so many buys."""
    model = begun()
    for number in range(visits):
        model = then(model, *ended(number, buys=number % of_buyers == 0, default=default, reward=reward))
    return model.selection_share


def test_the_share_is_that_of_slates_without_a_reward() -> None:
    assert share(of_buyers=4) == 0.75
    assert share(of_buyers=10) == 0.9


@pytest.mark.parametrize("default", [0.0, -1.0])
def test_with_a_default_reward_all_are_learned_from(default: float) -> None:
    assert share(of_buyers=4, default=default) == 0.0


def test_a_shop_that_posts_zeros_selects_nobody() -> None:
    assert share(of_buyers=4, reward=0.0) == 0.0


def test_few_slates_tell_nothing() -> None:
    assert share(of_buyers=4, visits=60) == 0.0
    assert share(of_buyers=1) == 0.0
