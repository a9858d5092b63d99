"""Rewards that come together, where the store goes away or is late between some of them and the others."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.contracts.samples import NAME, recommendation, request, settings

from topk_bandit.domain.bandits import Aggregation
from topk_bandit.domain.errors import NotDurableError, NotReadyError, UnavailableError
from topk_bandit.domain.rules import Exclude, SlateRule
from topk_bandit.domain.slates import Reward, RewardOutcome, RewardReceipt
from topk_bandit.store.memory.bandits import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topk_bandit.store.journaled import Commits

COLLECTING = settings(reward_aggregation=Aggregation.SUM)


async def opened(*slates: str) -> MemoryStore:
    store = MemoryStore(clock_ms=lambda: 1000)
    await store.create_bandit(NAME, COLLECTING, incarnation="first", quota=1)
    for one in slates:
        await store.record_recommendation(NAME, request(), recommendation(one), incarnation="first", items_position=0)
    return store


class FirstVersion(MemoryStore):
    """A store in which the first data version is in force."""

    data_version = 1


def words(outcomes: Sequence[RewardReceipt | Exception]) -> list[str]:
    return [one.outcome.value if isinstance(one, RewardReceipt) else str(one) for one in outcomes]


def test_what_was_committed_before_the_store_went_away_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second reward of a slate is decided after the first one is committed."""

    async def scenario() -> None:
        store, reads = await opened("a", "b"), 0
        read = store._read

        async def read_twice(*asked: Any) -> Any:  # noqa: ANN401
            nonlocal reads
            reads += 1
            if reads == 2:
                raise UnavailableError("away", nothing_sent=True)
            return await read(*asked)

        monkeypatch.setattr(store, "_read", read_twice)
        posted = [Reward("a", 1.0, "one"), Reward("b", 1.0, "one"), Reward("a", 2.0, "two"), Reward("b", 2.0, "two")]
        outcomes = (await store.record_rewards(NAME, posted)).answer
        assert words(outcomes) == ["accepted", "accepted", "away", "away"]
        again = (await store.record_rewards(NAME, posted)).answer
        assert words(again) == ["duplicate", "duplicate", "accepted", "accepted"]

    asyncio.run(scenario())


def test_others_are_not_waited_for_once_one_was_waited_for_in_vain(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        store, waited = await opened("a"), []
        commit = store._commit

        async def commit_late(*decided: Any, is_durable: bool, hands_on: bool) -> Commits:  # noqa: ANN401
            waited.append(is_durable)
            done = await commit(*decided, is_durable=is_durable, hands_on=hands_on)
            return done._replace(durability=NotDurableError("late")) if is_durable else done

        monkeypatch.setattr(store, "_commit", commit_late)
        outcomes = (await store.record_rewards(NAME, [Reward("a", 1.0, f"{number}") for number in range(4)])).answer
        assert waited == [True, False, False, False]
        assert {type(one) for one in outcomes} == {NotDurableError}
        monkeypatch.setattr(store, "_commit", commit)
        (known,) = (await store.record_rewards(NAME, [Reward("a", 1.0, "3")])).answer
        assert isinstance(known, RewardReceipt)
        assert known == replace(known, outcome=RewardOutcome.DUPLICATE)

    asyncio.run(scenario())


def test_of_many_rewards_those_with_item_values_wait_for_their_data_version() -> None:
    async def scenario() -> None:
        store = FirstVersion(clock_ms=lambda: 1000)
        await store.create_bandit(NAME, settings(), incarnation="first", quota=1)
        for one in ("a", "b"):
            shown = recommendation(one)
            await store.record_recommendation(NAME, request(), shown, incarnation="first", items_position=0)
        values = dict.fromkeys(recommendation("a").slate, 1.0)
        posted = [Reward("a", 1.0, item_values=values), Reward("b", 1.0)]
        outcomes = (await store.record_rewards(NAME, posted)).answer
        refused, taken = words(outcomes)
        assert refused.startswith("item_values needs data version 2, and 1 is in force")
        assert taken == "accepted"

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("field", "value"), [("group_key", "visitor"), ("rules", (SlateRule(Exclude(("apple",))),))], ids=["group", "rules"]
)
def test_a_request_waits_for_its_data_version(field: str, value: object) -> None:
    async def scenario() -> None:
        store = FirstVersion(clock_ms=lambda: 1000)
        await store.create_bandit(NAME, settings(), incarnation="first", quota=1)
        asked = replace(request(), **{field: value})
        with pytest.raises(NotReadyError, match=f"{field} needs data version 2"):
            await store.record_recommendation(NAME, asked, recommendation("a"), incarnation="first", items_position=0)

    asyncio.run(scenario())
