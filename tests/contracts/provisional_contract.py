"""What a store promises about slates whose rewards are learned before they are final (decision 76)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.contracts.harness import run, whole_log
from tests.contracts.samples import HOUR_MS, NAME, recommendation, request, settings

from topk_bandit.domain.bandits import Aggregation
from topk_bandit.domain.errors import ConflictError, NotReadyError
from topk_bandit.domain.slates import ActivationOutcome, RewardOutcome
from topk_bandit.store.events import (
    Expired,
    Lapsed,
    Recommended,
    RewardCollected,
    Rewarded,
    RewardRevised,
)
from topk_bandit.store.log import Correctable

if TYPE_CHECKING:
    from tests.contracts.harness import Stores

    from topk_bandit.domain.bandits import BanditSettings
    from topk_bandit.store.events import Event
    from topk_bandit.store.log import Store

MINUTE_MS = 60_000
PROVISIONAL = replace(settings(default_reward=0.5, reward_aggregation=Aggregation.SUM), provisional_after_ms=MINUTE_MS)
UNKNOWN_MODEL = Correctable("first", 1, 99, 0)
"""A model that can correct nothing: nothing is asked of it."""


async def opened(store: Store, having: BanditSettings = PROVISIONAL) -> None:
    await store.create_bandit(NAME, having, incarnation="first", quota=9)
    await store.record_recommendation(NAME, request(), recommendation(), incarnation="first", items_position=0)


async def reward(store: Store, value: float, reward_id: str = "", *, final: bool = False) -> RewardOutcome:
    written = await store.record_reward(NAME, "rec-1", value, reward_id=reward_id, final=final)
    return written.answer.outcome


async def correct(store: Store, value: float | None, reward_id: str = "") -> None:
    assert await store.correct_reward(NAME, "rec-1", value, reward_id=reward_id, known=UNKNOWN_MODEL) is not None


async def events(store: Store) -> list[Event]:
    """Return what came after the recommendation."""
    log = [logged.event for logged in await whole_log(store, NAME)]
    start = next(place for place, event in enumerate(log) if isinstance(event, Recommended))
    return log[start + 1 :]


async def revisions(store: Store) -> list[tuple[Any, ...]]:
    """Return what was learned: the value and the one before, whether they are defaults, and whether it is final."""
    return [
        (one.value, one.before, one.is_default, one.was_default, one.is_final)
        for one in await events(store)
        if isinstance(one, RewardRevised)
    ]


async def look(store: Store) -> int:
    """Look for what is due; return how many slates ended."""
    return (await store.expire_due(NAME, limit=9)).count


class ProvisionalContract:
    """The part of the contract that `StoreContract` inherits."""

    def test_the_default_is_learned_first_and_each_reward_as_a_change(self, stores: Stores) -> None:
        async def scenario(store: Store) -> None:
            await opened(store)
            assert (await look(store), await revisions(store)) == (0, [])
            await stores.pass_time(MINUTE_MS)
            assert [name async for name in store.find_overdue()] == [NAME]
            assert (await look(store), await look(store)) == (0, 0)
            assert [name async for name in store.find_overdue()] == []
            assert await revisions(store) == [(0.5, None, True, False, False)]
            assert await reward(store, 2.0, "click") == RewardOutcome.ACCEPTED
            assert await reward(store, 30.0, "order") == RewardOutcome.ACCEPTED
            assert await reward(store, 30.0, "order") == RewardOutcome.DUPLICATE
            await correct(store, -1.0, "order")
            assert (await revisions(store))[1:] == [
                (2.0, 0.5, False, True, False),
                (32.0, 2.0, False, False, False),
                (1.0, 32.0, False, False, False),
            ]
            learned = {one.learned_ms for one in await events(store) if isinstance(one, RewardRevised)}
            assert len(learned - {0}) == 1
            await stores.pass_time(HOUR_MS)
            assert await look(store) == 1
            assert not [one for one in await events(store) if isinstance(one, Rewarded | Expired)]
            assert await reward(store, 1.0, "late") == RewardOutcome.LATE
            with pytest.raises(NotReadyError, match="learned before the last refit"):
                await correct(store, 3.0, "order")

        run(stores, scenario)

    def test_rewards_before_the_first_time_are_learned_together_then(self, stores: Stores) -> None:
        async def scenario(store: Store) -> None:
            await opened(store)
            await reward(store, 1.0, "a")
            await reward(store, 2.0, "b")
            assert [type(one) for one in await events(store)] == [RewardCollected] * 2
            await stores.pass_time(MINUTE_MS)
            await look(store)
            assert await revisions(store) == [(3.0, None, False, False, False)]

        run(stores, scenario)

    def test_a_reward_after_the_first_time_is_learned_at_once_though_nobody_has_looked(self, stores: Stores) -> None:
        async def scenario(store: Store) -> None:
            await opened(store, replace(PROVISIONAL, default_reward=None))
            await stores.pass_time(MINUTE_MS)
            await look(store)
            assert await revisions(store) == []
            await reward(store, 4.0, "a")
            assert await revisions(store) == [(4.0, None, False, False, False)]

        run(stores, scenario)

    def test_the_first_of_rewards_is_learned_at_once_and_can_be_amended_until_the_wait_ends(
        self, stores: Stores
    ) -> None:
        async def scenario(store: Store) -> None:
            await opened(store, replace(PROVISIONAL, reward_aggregation=Aggregation.FIRST))
            assert await reward(store, 1.0) == RewardOutcome.ACCEPTED
            assert await reward(store, 1.0) == RewardOutcome.DUPLICATE
            with pytest.raises(ConflictError):
                await reward(store, 2.0)
            await correct(store, 2.0)
            await stores.pass_time(MINUTE_MS)
            await look(store)
            assert await revisions(store) == [(1.0, None, False, False, False), (2.0, 1.0, False, False, False)]
            await stores.pass_time(HOUR_MS)
            assert await look(store) == 1

        run(stores, scenario)

    def test_a_final_reward_ends_the_slate(self, stores: Stores) -> None:
        async def scenario(store: Store) -> None:
            await opened(store)
            await reward(store, 1.0, "a")
            await reward(store, 2.0, "b", final=True)
            with pytest.raises(ConflictError, match="final"):
                await reward(store, 2.0, "c")
            await stores.pass_time(2 * HOUR_MS)
            assert await look(store) == 0
            assert await revisions(store) == [(3.0, None, False, False, True)]

        run(stores, scenario)

    def test_a_reward_that_is_taken_back_leaves_the_default_or_the_others(self, stores: Stores) -> None:
        async def scenario(store: Store) -> None:
            await opened(store)
            await stores.pass_time(MINUTE_MS)
            await look(store)
            await reward(store, 1.0, "a")
            await reward(store, 2.0, "b")
            await correct(store, None, "b")
            await correct(store, None, "a")
            assert (await revisions(store))[3:] == [(1.0, 3.0, False, False, False), (0.5, 1.0, True, False, False)]
            await correct(store, None)
            assert (await revisions(store))[5:] == [(None, 0.5, False, True, True)]
            with pytest.raises(ConflictError, match="final"):
                await reward(store, 1.0, "c")
            await stores.pass_time(2 * HOUR_MS)
            assert await look(store) == 0

        run(stores, scenario)

    def test_a_slate_that_was_not_shown_is_not_learned_until_it_is(self, stores: Stores) -> None:
        async def scenario(store: Store) -> None:
            await opened(store, replace(PROVISIONAL, requires_activation=True))
            await stores.pass_time(MINUTE_MS)
            assert (await look(store), await events(store)) == (0, [])
            assert (await store.activate(NAME, "rec-1")).answer.outcome == ActivationOutcome.ACTIVATED
            await look(store)
            assert await revisions(store) == [(0.5, None, True, False, False)]
            await store.record_recommendation(
                NAME, request("other"), recommendation("rec-2"), incarnation="first", items_position=0
            )
            await stores.pass_time(2 * HOUR_MS)
            assert await look(store) == 2
            assert [type(one) for one in await events(store)][-1] is Lapsed

        run(stores, scenario)

    def test_a_slate_that_was_never_looked_at_ends_as_others_do(self, stores: Stores) -> None:
        async def scenario(store: Store) -> None:
            await opened(store)
            await stores.pass_time(2 * HOUR_MS)
            assert await look(store) == 1
            assert [type(one) for one in await events(store)] == [Expired]

        run(stores, scenario)

    def test_what_is_set_aside_is_learned_at_no_time(self, stores: Stores) -> None:
        async def scenario(store: Store) -> None:
            await store.create_bandit(NAME, PROVISIONAL, incarnation="first", quota=9)
            await store.record_recommendation(
                NAME, request(), recommendation(), incarnation="first", items_position=0, aside=True
            )
            await stores.pass_time(MINUTE_MS)
            await look(store)
            await reward(store, 1.0, "a")
            await stores.pass_time(2 * HOUR_MS)
            assert await look(store) == 1
            assert [type(one) for one in await events(store)] == [RewardCollected, Rewarded]

        run(stores, scenario)

    @pytest.mark.parametrize("requires_activation", [False, True])
    def test_no_slate_ends_early_because_its_bandit_is_no_longer_provisional(
        self, stores: Stores, *, requires_activation: bool
    ) -> None:
        async def scenario(store: Store) -> None:
            having = replace(PROVISIONAL, requires_activation=requires_activation)
            await opened(store, having)
            await store.update_settings(NAME, replace(having, provisional_after_ms=None), revision=1)
            await stores.pass_time(MINUTE_MS)
            assert (await look(store), await look(store)) == (0, 0)
            assert await reward(store, 9.0, "order") == RewardOutcome.ACCEPTED
            await stores.pass_time(HOUR_MS)
            assert await look(store) == 1
            assert isinstance((await events(store))[-1], Rewarded)

        run(stores, scenario)

    def test_a_slate_stays_provisional_though_its_bandit_no_longer_is(self, stores: Stores) -> None:
        async def scenario(store: Store) -> None:
            await opened(store)
            await stores.pass_time(MINUTE_MS)
            await look(store)
            await store.update_settings(NAME, replace(PROVISIONAL, provisional_after_ms=None), revision=1)
            await reward(store, 1.0, "a")
            await stores.pass_time(2 * HOUR_MS)
            assert await look(store) == 1
            assert await revisions(store) == [(0.5, None, True, False, False), (1.0, 0.5, False, True, False)]

        run(stores, scenario)
