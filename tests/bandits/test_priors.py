"""A study's utilities as a bandit's prior: named, taken again, taken away; learned beside rewards."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.bandits.harness import LIMITS, NAME, SETTINGS, Worker, assert_same, rebuilt, request, running_worker
from tests.contracts.harness import run, whole_log

from topk_bandit.bandits.budget import MemoryBudget
from topk_bandit.bandits.fold import begin, fold
from topk_bandit.domain.bandits import ConstantBeta, Exploration, Item, Kernel
from topk_bandit.domain.errors import ConflictError, CorruptDataError, InvalidArgumentError
from topk_bandit.store.events import BanditCreated, LoggedEvent, SettingsChanged

if TYPE_CHECKING:
    from tests.contracts.harness import Stores

    from topk_bandit.domain.bandits import BanditSettings
    from topk_bandit.store.log import BanditRecord, Store

SURE = replace(SETTINGS, exploration=Exploration(ConstantBeta(1.0), uniform_share=0.0))
CONSTANTS = {"i0": -2.0, "i1": 5.0, "i2": 0.0, "i3": 7.0, "i4": 1.0, "i5": 3.0, "later": 9.0}


async def set_up(worker: Worker, settings: BanditSettings = SURE) -> None:
    worker.notebook.write("tastes", CONSTANTS)
    await worker.bandits.create_bandit(NAME, settings)
    await worker.bandits.upsert_items(NAME, [Item(f"i{n}") for n in range(6)])


async def named(worker: Worker, study: str = "tastes") -> BanditRecord:
    return await worker.bandits.update_bandit(
        NAME, lambda settings: replace(settings, prior_study=study, prior_digest="")
    )


async def shown(worker: Worker, request_id: str, **asked: object) -> list[str]:
    await worker.models.follow(NAME)
    return list((await worker.recommender.recommend(NAME, request(request_id, **asked))).slate)  # type: ignore[arg-type]


def test_a_prior_that_is_named_is_followed_and_its_newest_utilities_are_taken_when_it_is_named_again(
    stores: Stores,
) -> None:
    async def scenario(store: Store) -> None:
        async with running_worker(store) as worker:
            await set_up(worker)
            record = await named(worker)
            assert (record.settings.prior_study, record.revision) == ("tastes", 2)
            assert record == await worker.bandits.get_bandit(NAME)
            assert await shown(worker, "one") == ["i3", "i1", "i5"]
            worker.notebook.write("tastes", {item_id: -value for item_id, value in CONSTANTS.items()})
            await named(worker)
            assert await shown(worker, "two", context=(-0.3, 1.0)) == ["i0", "i2", "i4"]
            assert_same(await worker.models.follow(NAME), await rebuilt(store))

    run(stores, scenario)


def test_naming_what_is_there_already_changes_nothing(stores: Stores) -> None:
    async def scenario(store: Store) -> None:
        async with running_worker(store) as worker:
            await set_up(worker)
            assert await named(worker) == await named(worker)
            other = await worker.bandits.update_bandit(NAME, lambda settings: replace(settings, default_reward=0.0))
            log = await whole_log(store, NAME)
            assert log[-1].event == SettingsChanged(other.settings)
            assert await shown(worker, "one") == ["i3", "i1", "i5"]

    run(stores, scenario)


def test_utilities_of_contexts_are_followed_in_each_context(stores: Stores) -> None:
    async def scenario(store: Store) -> None:
        async with running_worker(store) as worker:
            await set_up(worker)
            worker.notebook.write("by context", {f"i{n}": (float(n), -float(n)) for n in range(6)})
            await named(worker, "by context")
            assert await shown(worker, "one", context=(1.0, 0.0)) == ["i5", "i4", "i3"]
            assert await shown(worker, "two", context=(0.0, 0.5)) == ["i0", "i1", "i2"]

    run(stores, scenario)


def test_a_bandit_may_be_created_with_a_prior_and_items_that_come_later_have_their_place(stores: Stores) -> None:
    async def scenario(store: Store) -> None:
        async with running_worker(store) as worker:
            await set_up(worker, replace(SURE, prior_study="tastes"))
            assert await shown(worker, "one") == ["i3", "i1", "i5"]
            await worker.bandits.upsert_items(NAME, [Item("unheard-of"), Item("later")])
            assert await shown(worker, "two", context=(5.0, -9.0)) == ["later", "i3", "i1"]
            async with running_worker(store) as other:
                assert_same(await other.models.follow(NAME), await rebuilt(store))

    run(stores, scenario)


def test_to_create_it_again_is_no_conflict_after_the_study_went_on(stores: Stores) -> None:
    async def scenario(store: Store) -> None:
        async with running_worker(store) as worker:
            wanted = replace(SURE, prior_study="tastes")
            await set_up(worker, wanted)
            made = await worker.bandits.get_bandit(NAME)
            worker.notebook.write("tastes", {"i0": 1.0, "i1": 2.0})
            assert await worker.bandits.create_bandit(NAME, wanted) == made
            for other in (SURE, replace(wanted, slate_size=2)):
                with pytest.raises(ConflictError):
                    await worker.bandits.create_bandit(NAME, other)

    run(stores, scenario)


def test_what_was_learned_stays_when_the_prior_changes_or_goes(stores: Stores) -> None:
    async def scenario(store: Store) -> None:
        async with running_worker(store) as worker:
            await set_up(worker)
            for number in range(20):
                given = await worker.recommender.recommend(NAME, request(f"r{number}", context=(1.0, number / 10)))
                await worker.recommender.reward(NAME, given.recommendation_id, 1.0 * ("i4" in given.slate))
                await worker.models.follow(NAME)
            before = await worker.models.follow(NAME)
            await named(worker)
            believing = await worker.models.follow(NAME)
            assert believing.state.observations == before.state.observations == 20
            assert believing.since_checkpoint == 0
            assert believing.memory_bytes > before.memory_bytes
            assert (await worker.bandits.stats(NAME)).mean_reward == before.tally.reward_sum / 20
            await named(worker, "")
            after = await worker.models.follow(NAME)
            assert after.settings == before.settings
            differing = {one: getattr(before, one) for one in ("last", "since_checkpoint", "history", "state")}
            assert_same(replace(after, **differing), before)
            assert after.state.posterior.observed_rows.targets.shape[0] == 2
            assert after.state.refit().posterior.offset == before.state.refit().posterior.offset

    run(stores, scenario)


@pytest.mark.parametrize(
    ("settings", "study", "problem"),
    [
        (SURE, "nothing", "there is no study nothing"),
        (replace(SURE, kernel=Kernel.WEIGHTED), "tastes", "KERNEL_WEIGHTED"),
        (SURE, "of three numbers", "contexts of other than 2 numbers"),
        (SURE, "huge", "of the bandit's memory"),
    ],
)
def test_a_prior_that_can_not_be_used_is_refused_by_name_and_changes_nothing(
    stores: Stores, settings: BanditSettings, study: str, problem: str
) -> None:
    async def scenario(store: Store) -> None:
        async with running_worker(store, budget=MemoryBudget(model_bytes=2**20)) as worker:
            await set_up(worker, settings)
            worker.notebook.write("of three numbers", {"i0": (1.0, 2.0, 3.0)})
            worker.notebook.write("huge", {f"i{n}": (1.0, 2.0) for n in range(2000)})
            before = await store.get_bandit(NAME)
            with pytest.raises(InvalidArgumentError, match=problem) as caught:
                await named(worker, study)
            assert caught.value.field == "bandit.prior_study"
            assert await store.get_bandit(NAME) == before
            elsewhere = replace(NAME, bandit="elsewhere")
            with pytest.raises(InvalidArgumentError, match=problem):
                await worker.bandits.create_bandit(elsewhere, replace(settings, prior_study=study))
            assert len(await store.list_bandits(NAME.tenant, after="", limit=9)) == 1

    run(stores, scenario)


def test_a_log_that_tells_of_a_prior_that_it_does_not_have_is_corrupt() -> None:
    believed = replace(SURE, prior_study="tastes", prior_digest="d")
    model = begin("birth", LoggedEvent(1, 0, BanditCreated(SURE)), limits=LIMITS)
    with pytest.raises(CorruptDataError, match="the prior 'd'"):
        fold(model, LoggedEvent(2, 0, SettingsChanged(believed)))
    with pytest.raises(CorruptDataError, match="the prior 'd'"):
        begin("birth", LoggedEvent(1, 0, BanditCreated(believed)), limits=LIMITS)
