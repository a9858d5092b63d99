"""What a store promises about rewards that say what single items of their slate did."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.contracts.archives import archived, restore_lines
from tests.contracts.harness import dump, run, whole_log
from tests.contracts.provisional_contract import MINUTE_MS, PROVISIONAL, events, look, opened
from tests.contracts.samples import HOUR_MS, ITEMS, NAME, recommendation, request, settings

from topk_bandit.domain.bandits import Aggregation, Item
from topk_bandit.domain.errors import ConflictError, InvalidArgumentError
from topk_bandit.domain.paths import entry_of
from topk_bandit.domain.slates import NOTHING_NAMED, Reward, RewardOutcome
from topk_bandit.store.events import Expired, RewardAmended, RewardCollected, Rewarded, RewardRevised
from topk_bandit.store.log import Correctable, Snapshot

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.contracts.harness import Stores

    from topk_bandit.domain.bandits import BanditSettings
    from topk_bandit.domain.slates import ItemValues
    from topk_bandit.store.log import Store

SLATE = recommendation().slate  # ("pear", "apple")
FIRST = settings()
DEFAULTED = replace(settings(default_reward=0.5), default_item_value=-0.0)
SEVERAL = settings(reward_aggregation=Aggregation.SUM)

# What the values 1 and 3 of pear, and 5 of apple, which one reward of three names, come to.
COME_TO = {
    Aggregation.LAST: (3.0, 5.0),
    Aggregation.SUM: (4.0, 5.0),
    Aggregation.MEAN: (2.0, 5.0),
    Aggregation.MAX: (3.0, 5.0),
}


async def reward(
    store: Store,
    value: float,
    item_values: Mapping[str, float] = NOTHING_NAMED,
    reward_id: str = "",
    *,
    final: bool = False,
) -> RewardOutcome:
    written = await store.record_reward(NAME, "rec-1", value, reward_id=reward_id, final=final, item_values=item_values)
    return written.answer.outcome


async def correct(
    store: Store,
    value: float | None,
    item_values: Mapping[str, float] = NOTHING_NAMED,
    reward_id: str = "",
    *,
    slate: tuple[str, ...] = SLATE,
) -> RewardOutcome:
    """Correct a reward as one whose model knows this slate, none where it can't, and is exact."""
    now = await store.get_bandit(NAME)
    known = Correctable(now.incarnation, now.revision, now.log_position, now.log_position + 9, slate)
    receipt = await store.correct_reward(
        NAME, "rec-1", value, reward_id=reward_id, item_values=item_values, known=known
    )
    assert receipt is not None
    return receipt.outcome


async def trim(store: Store) -> None:
    """Trim the log below its newest event."""
    await store.reset_bandit(NAME, request_id="again")
    last = (await store.get_bandit(NAME)).log_position
    await store.save_snapshot(NAME, Snapshot(last - 1, b"older"), incarnation="first")
    await store.save_snapshot(NAME, Snapshot(last, b"newer"), incarnation="first", behind=last - 1)


async def learned(store: Store) -> list[ItemValues | None]:
    """Return the item values of the events that the learner learns from."""
    kinds = Rewarded | Expired | RewardRevised | RewardAmended
    return [one.item_values for one in await events(store) if isinstance(one, kinds)]


async def collected(store: Store) -> list[ItemValues | None]:
    return [one.item_values for one in await events(store) if isinstance(one, RewardCollected)]


class ItemValuesContract:
    """The part of the contract that `StoreContract` inherits."""

    @pytest.mark.parametrize(
        ("having", "named", "expected"),
        [
            (FIRST, {"apple": 1.5}, (None, 1.5)),
            (FIRST, {"apple": 1.0, "pear": -1e100}, (-1e100, 1.0)),
            (FIRST, {}, None),
            (DEFAULTED, {"apple": 1.5}, (0.0, 1.5)),
            (DEFAULTED, {}, (0.0, 0.0)),
        ],
    )
    def test_a_reward_has_the_value_of_each_item(
        self, stores: Stores, having: BanditSettings, named: Mapping[str, float], expected: ItemValues | None
    ) -> None:
        async def scenario(store: Store) -> None:
            await opened(store, having)
            assert await reward(store, 1.0, named) is RewardOutcome.ACCEPTED
            [event] = await events(store)
            assert isinstance(event, Rewarded)
            assert repr(event.item_values) == repr(expected)

        run(stores, scenario)

    def test_the_same_item_values_are_the_same_reward_and_others_are_another(self, stores: Stores) -> None:
        async def scenario(store: Store) -> None:
            await opened(store)
            await store.update_settings(NAME, FIRST, revision=1)
            assert await reward(store, 1.0, {"apple": 0.0, "pear": 1 / 3}) is RewardOutcome.ACCEPTED
            before = await dump(store, NAME)
            assert await reward(store, 1.0, {"pear": 1 / 3, "apple": -0.0}) is RewardOutcome.DUPLICATE
            others = ({}, {"apple": 0.0}, {"apple": 0.0, "pear": math.nextafter(1 / 3, 1)}, {"fig": 1.0})
            for other in others:
                with pytest.raises(ConflictError) as refused:
                    await reward(store, 1.0, other)
                assert refused.value.reason == "REWARD_EXISTS"
            assert await dump(store, NAME) == before

        run(stores, scenario)

    def test_a_reward_without_item_values_gets_none_afterwards(self, stores: Stores) -> None:
        async def scenario(store: Store) -> None:
            await opened(store, FIRST)
            await reward(store, 1.0)
            with pytest.raises(ConflictError):
                await reward(store, 1.0, {"apple": 1.0})
            assert await reward(store, 1.0) is RewardOutcome.DUPLICATE

        run(stores, scenario)

    def test_an_item_that_was_not_shown_is_refused_and_nothing_changes(self, stores: Stores) -> None:
        async def scenario(store: Store) -> None:
            await opened(store, replace(FIRST, requires_activation=True))
            await store.change_items(NAME, upserted=[*ITEMS, Item("fig")], retired=[])
            before = await dump(store, NAME)
            for named in ({"fig": 1.0}, {"pear": 1.0, 'a "b"': 2.0}, {"pear": math.nan}, {"pear": math.inf}):
                with pytest.raises(InvalidArgumentError) as refused:
                    await reward(store, 1.0, named)
                assert refused.value.field == entry_of("item_values", [*named][-1])
            assert await dump(store, NAME) == before
            await store.activate(NAME, "rec-1", ("fig", "apple"))
            with pytest.raises(InvalidArgumentError) as gone:
                await reward(store, 1.0, {"pear": 1.0})
            assert gone.value.field == 'item_values["pear"]'
            assert await reward(store, 1.0, {"fig": 1.0}) is RewardOutcome.ACCEPTED
            assert await learned(store) == [(1.0, None)]

        run(stores, scenario)

    def test_each_of_many_rewards_has_its_item_values_or_its_error(self, stores: Stores) -> None:
        async def scenario(store: Store) -> None:
            await opened(store, FIRST)
            for key in ("rec-2", "rec-3"):
                await store.record_recommendation(
                    NAME, request(key), recommendation(key), incarnation="first", items_position=0
                )
            posted = [
                Reward("rec-1", 1.0, item_values={"pear": 1.0}),
                Reward("rec-2", 1.0, item_values={"fig": 1.0}),
                Reward("rec-3", 1.0),
                Reward("rec-1", 1.0, item_values={"pear": 2.0}),
            ]
            first, second, third, fourth = (await store.record_rewards(NAME, posted)).answer
            assert [first.outcome, third.outcome] == [RewardOutcome.ACCEPTED] * 2  # type: ignore[union-attr]
            assert isinstance(second, InvalidArgumentError)
            assert isinstance(fourth, ConflictError)
            assert [one.item_values for one in await events(store) if isinstance(one, Rewarded)] == [(1.0, None), None]
            before = await dump(store, NAME)
            with pytest.raises(InvalidArgumentError) as odd:
                await store.record_rewards(NAME, [posted[0], Reward("rec-2", 1.0, item_values={"pear": math.nan})])
            assert odd.value.field == 'item_values["pear"]'
            assert await dump(store, NAME) == before
            [last] = (await store.record_rewards(NAME, [Reward("rec-2", 1.0, item_values={"pear": -0.0})])).answer
            assert last.outcome is RewardOutcome.ACCEPTED  # type: ignore[union-attr]
            assert repr((await events(store))[-1].item_values) == "(0.0, None)"  # type: ignore[union-attr]

        run(stores, scenario)

    @pytest.mark.parametrize("kind", COME_TO)
    @pytest.mark.parametrize("final", [True, False])
    def test_several_rewards_come_to_one_value_of_each_item(
        self, stores: Stores, kind: Aggregation, *, final: bool
    ) -> None:
        async def scenario(store: Store) -> None:
            await opened(store, settings(reward_aggregation=kind))
            await reward(store, 1.0, {"pear": 1.0}, "a")
            assert await reward(store, 1.0, {"pear": 1.0}, "a") is RewardOutcome.DUPLICATE
            with pytest.raises(ConflictError):
                await reward(store, 1.0, {"pear": 1.0, "apple": 1.0}, "a")
            await reward(store, 2.0, {"apple": 5.0}, "b")
            await reward(store, 3.0, {}, "c")
            await reward(store, 4.0, {"pear": 3.0}, "d", final=final)
            await stores.pass_time(HOUR_MS)
            await look(store)
            expected = [(1.0, None), (None, 5.0), None, (3.0, None)]
            assert await collected(store) == expected[: 4 - final]
            assert await learned(store) == [COME_TO[kind]]
            with pytest.raises(ConflictError):
                await reward(store, 2.0, {"apple": 6.0}, "b")
            assert await reward(store, 2.0, {"apple": 5.0}, "b") is RewardOutcome.DUPLICATE

        run(stores, scenario)

    def test_the_default_value_is_the_one_in_place_when_the_slate_ends(self, stores: Stores) -> None:
        async def scenario(store: Store) -> None:
            await opened(store, replace(SEVERAL, default_item_value=1.0))
            await reward(store, 1.0, {"pear": 3.0}, "a")
            await store.update_settings(NAME, replace(SEVERAL, default_item_value=2.0), revision=1)
            await reward(store, 1.0, {}, "b", final=True)
            assert await learned(store) == [(3.0, 2.0)]

        run(stores, scenario)

    @pytest.mark.parametrize("default", [None, 0.5])
    def test_a_slate_that_ends_without_a_reward_has_default_values_with_the_default_reward(
        self, stores: Stores, default: float | None
    ) -> None:
        async def scenario(store: Store) -> None:
            await opened(store, replace(settings(default_reward=default), default_item_value=0.25))
            await stores.pass_time(HOUR_MS)
            await look(store)
            [event] = await events(store)
            assert isinstance(event, Expired)
            assert event.item_values == (None if default is None else (0.25, 0.25))
            with pytest.raises(InvalidArgumentError):
                await reward(store, math.nan, {"pear": 1.0})
            assert await reward(store, 1.0, {"fig": 1.0}) is RewardOutcome.LATE, "nothing is learned of it"
            assert await reward(store, 1.0, {"fig": 1.0}) is RewardOutcome.LATE
            with pytest.raises(ConflictError):
                await reward(store, 1.0, {"fig": 2.0})

        run(stores, scenario)

    def test_an_open_reward_is_amended_with_its_items_and_voided_with_them(self, stores: Stores) -> None:
        async def scenario(store: Store) -> None:
            await opened(store, SEVERAL)
            await reward(store, 1.0, {"pear": 1.0, "apple": 2.0}, "a")
            await reward(store, 2.0, {"pear": 4.0}, "b")
            assert await correct(store, 3.0, {}, "a") is RewardOutcome.ACCEPTED
            assert await correct(store, 3.0, {"apple": 7.0}, "a", slate=()) is RewardOutcome.ACCEPTED
            assert await correct(store, 3.0, {"apple": 7.0}, "a", slate=()) is RewardOutcome.DUPLICATE
            assert await correct(store, 3.0, {}, "a") is RewardOutcome.DUPLICATE
            with pytest.raises(InvalidArgumentError):
                await correct(store, 3.0, {"fig": 7.0}, "a", slate=("fig",))
            assert await correct(store, None, {}, "b") is RewardOutcome.ACCEPTED
            assert (await collected(store))[2:] == [(1.0, 2.0), (None, 7.0), None]
            assert await reward(store, 1.0, {"pear": 1.0, "apple": 2.0}, "a") is RewardOutcome.DUPLICATE
            await reward(store, 1.0, {}, "c", final=True)
            assert await learned(store) == [(None, 7.0)]

        run(stores, scenario)

    def test_a_learned_reward_is_amended_with_its_items_and_voided_with_them(self, stores: Stores) -> None:
        async def scenario(store: Store) -> None:
            await opened(store, replace(FIRST, default_item_value=0.5))
            await reward(store, 1.0, {"pear": 1.0})
            assert await correct(store, 2.0) is RewardOutcome.ACCEPTED
            assert await correct(store, 2.0, {"apple": 3.0}) is RewardOutcome.ACCEPTED
            assert await correct(store, 2.0, {"apple": 3.0}) is RewardOutcome.DUPLICATE
            with pytest.raises(InvalidArgumentError) as refused:
                await correct(store, 2.0, {"apple": 3.0, "fig": 7.0})
            assert refused.value.field == 'item_values["fig"]'
            assert await reward(store, 1.0, {"pear": 1.0}) is RewardOutcome.DUPLICATE
            assert await correct(store, None) is RewardOutcome.ACCEPTED
            assert await learned(store) == [(1.0, 0.5), (1.0, 0.5), (0.5, 3.0), None]

        run(stores, scenario)

    def test_one_of_several_learned_rewards_is_amended(self, stores: Stores) -> None:
        async def scenario(store: Store) -> None:
            await opened(store, SEVERAL)
            await reward(store, 1.0, {"pear": 1.0}, "a")
            await reward(store, 2.0, {"pear": 4.0, "apple": 8.0}, "b", final=True)
            await correct(store, 1.0, {"apple": 16.0}, "a")
            await correct(store, None, {}, "b")
            assert await learned(store) == [(5.0, 8.0), (4.0, 24.0), (None, 16.0)]

        run(stores, scenario)

    def test_item_values_are_learned_and_revised_as_provisional_rewards_are(self, stores: Stores) -> None:
        async def scenario(store: Store) -> None:
            await opened(store, replace(PROVISIONAL, default_item_value=0.0))
            await stores.pass_time(MINUTE_MS)
            await look(store)
            await reward(store, 1.0, {"pear": 1.0}, "a")
            await correct(store, 1.0, {"pear": 2.0}, "a")
            await reward(store, 0.0, {"apple": 1.0}, "b")
            await reward(store, 0.0, {"apple": 2.0}, "c", final=True)
            found: list[Any] = [
                (one.value, one.item_values, one.item_values_before)
                for one in await events(store)
                if isinstance(one, RewardRevised)
            ]
            assert found == [
                (0.5, (0.0, 0.0), None),
                (1.0, (1.0, 0.0), (0.0, 0.0)),
                (1.0, (2.0, 0.0), (1.0, 0.0)),
                (1.0, (2.0, 1.0), (2.0, 0.0)),
                (1.0, (2.0, 3.0), (2.0, 1.0)),
            ]

        run(stores, scenario)

    def test_what_a_provisional_slate_is_taken_back_with_says_what_was_learned(self, stores: Stores) -> None:
        async def scenario(store: Store) -> None:
            await opened(store, replace(PROVISIONAL, default_reward=None))
            await stores.pass_time(MINUTE_MS)
            await reward(store, 1.0, {"pear": 1.0}, "a")
            await correct(store, None)
            [first, last] = [one for one in await events(store) if isinstance(one, RewardRevised)]
            assert (first.item_values, first.item_values_before) == ((1.0, None), None)
            assert (last.item_values, last.item_values_before) == (None, (1.0, None))

        run(stores, scenario)

    def test_the_items_of_a_slate_that_was_set_aside_are_not_amended(self, stores: Stores) -> None:
        async def scenario(store: Store) -> None:
            await store.create_bandit(NAME, FIRST, incarnation="first", quota=9)
            await store.record_recommendation(
                NAME, request(), recommendation(), incarnation="first", items_position=0, aside=True
            )
            await reward(store, 1.0, {"pear": 1.0})
            assert await correct(store, 1.0, {"apple": 1.0}, slate=()) is RewardOutcome.ACCEPTED
            assert await correct(store, 1.0, {"apple": 1.0}, slate=()) is RewardOutcome.DUPLICATE
            assert await learned(store) == [(1.0, None), None]

        run(stores, scenario)

    @pytest.mark.parametrize("at_once", [1, 100])
    def test_item_values_come_back_from_the_lines_of_a_bandit(self, stores: Stores, at_once: int) -> None:
        async def scenario(store: Store) -> None:
            await opened(store, SEVERAL)
            await reward(store, 1.0, {"pear": 1.0}, "a")
            await reward(store, 1.0, {"pear": 3.0}, "b")
            await correct(store, 1.0, {"apple": 1.0}, "b")
            await correct(store, None, {}, "a")
            await reward(store, 1.0, {"pear": 1.0}, "c")
            seen, lines = await whole_log(store, NAME), await archived(store, NAME)
            await store.delete_bandit(NAME)
            await store.finish_restore(NAME, await restore_lines(store, NAME, lines, at_once=at_once), quota=1)
            assert await whole_log(store, NAME) == seen
            assert await reward(store, 1.0, {"pear": 1.0}, "a") is RewardOutcome.DUPLICATE
            assert await reward(store, 1.0, {"pear": 1.0}, "c") is RewardOutcome.DUPLICATE
            with pytest.raises(ConflictError):
                await reward(store, 1.0, {"pear": 3.0, "apple": 1.0}, "b")
            await reward(store, 1.0, {}, "d", final=True)
            assert await learned(store) == [(1.0, 1.0)]

        run(stores, scenario)

    @pytest.mark.parametrize("default", [None, 0.0])
    def test_a_slate_that_has_ended_comes_back_with_its_item_values(
        self, stores: Stores, default: float | None
    ) -> None:
        async def scenario(store: Store) -> None:
            await opened(store, replace(FIRST, default_item_value=default))
            await reward(store, 1.0, {"pear": 1.0})
            for value, named in ((2.0, {}), (3.0, {"apple": 4.0}), (5.0, {})):
                if named:
                    await correct(store, value, named)
                lines = await archived(store, NAME)
                await store.delete_bandit(NAME)
                await store.finish_restore(NAME, await restore_lines(store, NAME, lines, at_once=9), quota=1)
                assert await reward(store, 1.0, {"pear": 1.0}) is RewardOutcome.DUPLICATE
                assert await correct(store, value + 0.5) is RewardOutcome.ACCEPTED
            with pytest.raises(ConflictError):
                await reward(store, 2.0, {"pear": 1.0})
            assert await learned(store) == [(1.0, default)] * 2 + [(default, 4.0)] * 3

        run(stores, scenario)

    @pytest.mark.parametrize("is_trimmed", [False, True])
    def test_a_provisional_slate_comes_back_with_the_item_values_that_are_learned(
        self, stores: Stores, *, is_trimmed: bool
    ) -> None:
        """Of a log that is trimmed the slate is in a line of its own, and its events are gone."""

        async def scenario(store: Store) -> None:
            await opened(store, replace(PROVISIONAL, default_item_value=0.0))
            await stores.pass_time(MINUTE_MS)
            await reward(store, 1.0, {"pear": 1.0}, "a")
            await reward(store, 1.0, {}, "b")
            if is_trimmed:
                await trim(store)
            lines = await archived(store, NAME)
            await store.delete_bandit(NAME)
            await store.finish_restore(NAME, await restore_lines(store, NAME, lines, at_once=9), quota=1)
            assert await reward(store, 1.0, {"pear": 1.0}, "a") is RewardOutcome.DUPLICATE
            assert await reward(store, 1.0, {}, "b") is RewardOutcome.DUPLICATE
            with pytest.raises(ConflictError):
                await reward(store, 1.0, {"pear": 2.0}, "a")
            await correct(store, None, {}, "a")
            await correct(store, None, {}, "b")
            found = [one for one in await whole_log(store, NAME) if isinstance(one.event, RewardRevised)][-2:]
            assert [(one.event.item_values, one.event.item_values_before) for one in found] == [
                ((0.0, 0.0), (1.0, 0.0)),
                ((0.0, 0.0), (0.0, 0.0)),
            ]

        run(stores, scenario)
