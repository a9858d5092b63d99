"""What becomes of a slate that nobody rewards in time."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.waiting import until

from topk_bandit.client import AlreadyExists, Client, RewardOutcome

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.faults.service import Service

    from topk_bandit.client import Recommendation

SHORT = timedelta(milliseconds=300)


@pytest.fixture
def client(shared_service: Service) -> Iterator[Client]:
    with shared_service.client(tenant="wait") as client:
        yield client
        for bandit in list(client.list_bandits()):
            client.delete_bandit(bandit.name)


def opened(client: Client, name: str = "home", **settings: float) -> None:
    client.create_bandit(
        name, slate_size=2, item_capacity=4, context_dimension=2, uniform_share=0.0, near_share=0.0, **settings
    )
    client.upsert_items(name, list("abcd"))


def test_the_default_is_learned_when_the_wait_is_over(client: Client) -> None:
    opened(client, default_reward=0.25)
    client.update_bandit("home", reward_wait=SHORT)
    shown = client.recommend("home", [1.0, 0.0])
    until(lambda: client.recommend("home", [0.0, 1.0], candidates=["a", "b"]).observations >= 1, what="learned unasked")
    stats = client.stats("home")
    assert (stats.default_count, stats.mean_reward, stats.late_reward_count) == (stats.observation_count, 0.25, 0)
    assert client.reward("home", shown.id, 1.0).outcome is RewardOutcome.LATE
    assert client.reward("home", shown.id, 1.0).outcome is RewardOutcome.LATE
    with pytest.raises(AlreadyExists) as other:
        client.reward("home", shown.id, 2.0)
    assert other.value.reason == "REWARD_EXISTS"
    after = client.stats("home")
    assert (after.late_reward_count, after.mean_reward) == (1, 0.25)
    assert after.observation_count == after.default_count == after.expiration_count


def test_a_real_zero_is_no_default(client: Client) -> None:
    opened(client, default_reward=0.0)
    shown = client.recommend("home", [1.0, 0.0])
    assert client.reward("home", shown.id, 0.0).outcome is RewardOutcome.ACCEPTED
    stats = client.stats("home")
    assert (stats.observation_count, stats.default_count, stats.expiration_count) == (1, 0, 0)


def test_without_a_default_a_slate_is_closed_without_a_trace(client: Client) -> None:
    """Two bandits live the same life, but one of them also shows slates that are never rewarded."""
    rng = np.random.default_rng(5)
    contexts = rng.normal(size=(8, 2)).tolist()
    for name in ("touched", "untouched"):
        opened(client, name)
        for context in contexts:
            client.reward(name, abreast(client, name, context).id, sum(context))
    shown, other = (abreast(client, name, [0.6, -0.8]) for name in ("touched", "untouched"))
    assert (shown.items, shown.mean, shown.standard_deviation) == (other.items, other.mean, other.standard_deviation)
    client.update_bandit("touched", reward_wait=SHORT)
    missed = [client.recommend("touched", context).id for context in contexts]
    until(lambda: client.stats("touched").expiration_count == len(missed), what="the missed are closed")
    assert client.reward("touched", missed[0], 9.0).outcome is RewardOutcome.LATE
    client.update_bandit("touched", reward_wait=timedelta(hours=1))

    touched, untouched = client.stats("touched"), client.stats("untouched")
    for figure in ("observation_count", "default_count", "mean_reward", "noise_variance", "prior_variance"):
        assert getattr(touched, figure) == getattr(untouched, figure)
    assert (touched.pending_row_count, untouched.pending_row_count) == (1, 1)
    # Only the next one: of what is shown from then on less counts as pending, since half of all was missed.
    one, other = (abreast(client, name, contexts[0]) for name in ("touched", "untouched"))
    assert one.items == other.items
    assert one.mean == pytest.approx(other.mean, rel=1e-12, abs=1e-14)
    assert one.standard_deviation == pytest.approx(other.standard_deviation, rel=1e-5)


def abreast(client: Client, name: str, context: list[float]) -> Recommendation:
    """Recommend from a model that knows the whole log: stats wait for it."""
    client.stats(name)
    return client.recommend(name, context)


def test_a_longer_wait_does_not_move_deadlines_that_were_given(client: Client) -> None:
    opened(client)
    client.update_bandit("home", reward_wait=timedelta(hours=1))
    shown = client.recommend("home", [1.0, 0.0])
    client.update_bandit("home", reward_wait=timedelta(milliseconds=1))
    assert client.recommend("home", [1.0, 0.0]).reward_deadline < shown.reward_deadline
    until(lambda: client.stats("home").expiration_count == 1, what="the second is closed")
    assert client.reward("home", shown.id, 1.0).outcome is RewardOutcome.ACCEPTED
