"""Whose slate is shown by stage and group, what is learned meanwhile, and what is counted of both."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from unittest.mock import AsyncMock

import pytest
from tests.bandits.harness import LIMITS, NAME, SETTINGS, assert_same, rebuilt, request, running_worker
from tests.bandits.test_corrections import begun
from tests.contracts.harness import MemoryStores, run, whole_log
from tests.contracts.samples import HOUR_MS

from topk_bandit.bandits.choices import choose_slate
from topk_bandit.bandits.guardrails import Guardrails
from topk_bandit.bandits.lifts import describe_lift, describe_shadow
from topk_bandit.bandits.snapshots import decode_model, encode_model
from topk_bandit.bandits.stages import group_of
from topk_bandit.domain.bandits import Aggregation, Item
from topk_bandit.domain.errors import (
    CorruptDataError,
    InvalidArgumentError,
    NotFoundError,
    NotReadyError,
    UnavailableError,
)
from topk_bandit.domain.stages import Group, GroupStats, Stage
from topk_bandit.store.events import Recommended, SettingsChanged

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.bandits.harness import Worker
    from tests.contracts.harness import Stores

    from topk_bandit.bandits.model import Model
    from topk_bandit.domain.bandits import BanditSettings
    from topk_bandit.domain.slates import Recommendation
    from topk_bandit.domain.stages import LiftStats
    from topk_bandit.store.log import Store

BASELINE, OWN = ("i0", "i1", "i2"), ("i7", "i6", "i5")
WITH_BASELINE = replace(SETTINGS, baseline_item_ids=BASELINE)


def on_a_worker(stores: Stores, scenario: Callable[[Worker], Awaitable[None]], **settings: Any) -> None:  # noqa: ANN401
    async def play(store: Store) -> None:
        async with running_worker(store) as worker:
            await worker.bandits.create_bandit(NAME, replace(WITH_BASELINE, **settings))
            await worker.bandits.upsert_items(NAME, [Item(f"i{n}") for n in range(8)])
            await scenario(worker)

    run(stores, play)


async def change(worker: Worker, **settings: Any) -> None:  # noqa: ANN401 - of settings
    def changed(known: BanditSettings) -> BanditSettings:
        return replace(known, **settings)

    await worker.bandits.update_bandit(NAME, changed)


async def recommend(worker: Worker, number: int, *, own: tuple[str, ...] = (), key: str = "") -> Recommendation:
    asked = replace(request(f"q{number}", context=(1.0, float(number % 3))), baseline_item_ids=own, group_key=key)
    return await worker.recommender.recommend(NAME, asked)


async def learned(worker: Worker, count: int, *, start: int = 0) -> None:
    """Reward so many slates by whether they begin with an item of a high number."""
    for number in range(start, start + count):
        given = await recommend(worker, number)
        value = float(given.slate[0][1:]) / 8
        await worker.recommender.reward(NAME, given.recommendation_id, value, reward_id="a", final=True)


async def followed(worker: Worker) -> Model:
    return await worker.models.follow(NAME)


def lift_of(model: Model) -> LiftStats:
    lift = describe_lift(model)
    assert lift is not None
    return lift


def test_each_stage_shows_whose_slates_it_says(stores: Stores) -> None:
    async def scenario(worker: Worker) -> None:
        await learned(worker, 12)
        live = await recommend(worker, 100)
        for stage in (Stage.SHADOW, Stage.OFF):
            await change(worker, stage=stage)
            shown, own = await recommend(worker, 300 + len(stage)), await recommend(worker, 400 + len(stage), own=OWN)
            assert (shown.slate, shown.stage, shown.baseline, shown.propensity) == (BASELINE, stage, True, 1.0)
            assert (own.slate, own.position_propensities) == (OWN, (1.0, 1.0, 1.0))
            assert (own.shadow is not None) == (stage is Stage.SHADOW)
        await change(worker, stage=Stage.FROZEN)
        frozen = await recommend(worker, 100)
        assert frozen == live  # the same request again, whatever the stage was
        other = await recommend(worker, 103)
        assert (other.stage, other.baseline, other.group) == (Stage.FROZEN, False, Group.NONE)
        await change(worker, stage=Stage.LIVE)
        assert (await recommend(worker, 104)).stage is Stage.LIVE
        assert_same(await followed(worker), await rebuilt(worker.store))

    on_a_worker(stores, scenario)


def test_a_shadow_is_what_the_bandit_would_have_shown(stores: Stores) -> None:
    async def scenario(worker: Worker) -> None:
        await learned(worker, 20)
        await change(worker, stage=Stage.SHADOW, exploration=replace(SETTINGS.exploration, uniform_share=0.0))
        shadows = []
        for number in range(40, 50):
            model = await followed(worker)
            live = replace(model, settings=replace(model.settings, stage=Stage.LIVE))
            given = await recommend(worker, number, own=OWN if number % 2 else BASELINE)
            assert given.shadow is not None
            asked = (await whole_log(worker.store, NAME))[-1].event
            assert isinstance(asked, Recommended)
            assert given.shadow.slate == choose_slate(live, asked.request).slate
            means = model.state.predict(
                model.encode(asked.request.context),
                [model.items.find_indices(slate) for slate in (given.shadow.slate, given.slate)],
            ).mean
            assert given.shadow.gain == pytest.approx(means[0] - means[1], abs=1e-9)
            shadows.append((given.slate, given.shadow))
        stats = describe_shadow(await followed(worker))
        assert (stats.slates, stats.agreements) == (10, sum(one.slate == shown for shown, one in shadows))
        assert stats.shared_items == sum(len({*one.slate} & {*shown}) for shown, one in shadows) / 10
        assert stats.gain is not None
        assert stats.gain.value == pytest.approx(sum(one.gain for _, one in shadows) / 10)
        mean_deviation = sum(one.gain_deviation for _, one in shadows) / 10
        assert stats.gain.high - stats.gain.value == pytest.approx(1.959964 * mean_deviation, rel=1e-6)
        assert stats.gain.value - stats.gain.low == pytest.approx(3.5 * mean_deviation, rel=1e-6)
        assert (await followed(worker)).state.observations == 20
        await worker.recommender.reward(NAME, given.recommendation_id, 0.5)
        assert (await followed(worker)).state.observations == 21  # it learns from what is shown
        await change(worker, stage=Stage.LIVE)
        assert describe_shadow(await followed(worker)) == stats
        await change(worker, stage=Stage.SHADOW)
        assert describe_shadow(await followed(worker)).slates == 0

    on_a_worker(stores, scenario)


@pytest.mark.parametrize(
    ("stage", "provisional_after_ms", "kind"),
    [
        (Stage.FROZEN, None, Aggregation.FIRST),
        (Stage.FROZEN, 1000, Aggregation.SUM),
        (Stage.OFF, None, Aggregation.SUM),
        (Stage.OFF, 1000, Aggregation.FIRST),
    ],
)
def test_frozen_and_off_learn_nothing_and_count_everything(
    stores: Stores, stage: Stage, provisional_after_ms: int | None, kind: Aggregation
) -> None:
    async def scenario(worker: Worker) -> None:
        before = [await recommend(worker, number) for number in range(6)]
        for given in before[:2]:
            await worker.recommender.reward(NAME, given.recommendation_id, 0.5, reward_id="a", final=True)
        await stores.pass_time(2000)
        await worker.models.expire(NAME)
        await change(worker, stage=stage)
        known = await followed(worker)
        during = [await recommend(worker, number) for number in range(10, 14)]
        for given in (*before[2:4], *during[:2]):
            await worker.recommender.reward(NAME, given.recommendation_id, 1.0, reward_id="a", final=True)
        model = await followed(worker)
        assert model.state.observations == known.state.observations
        assert model.state.posterior.n_rows == known.state.posterior.n_rows
        await stores.pass_time(HOUR_MS)
        await worker.models.expire(NAME)
        ended = await followed(worker)
        assert ended.state.posterior.n_rows == known.state.posterior.n_rows
        assert (ended.open_slates, ended.state.pending_ids) == (0, ())
        assert ended.tally.recommendations == 10
        assert ended.state.observations == known.state.observations
        await change(worker, stage=Stage.LIVE)
        await learned(worker, 1, start=90)
        await stores.pass_time(2 * HOUR_MS)
        await worker.models.expire(NAME)
        assert (await followed(worker)).state.observations == known.state.observations + 1
        assert_same(await followed(worker), await rebuilt(worker.store))

    on_a_worker(
        stores, scenario, provisional_after_ms=provisional_after_ms, default_reward=0.0, reward_aggregation=kind
    )


def test_a_slate_of_another_stage_is_chosen_again(stores: Stores) -> None:
    """The worker that chooses does not know of the change yet: what it chose is not recorded."""

    async def scenario(chosen: Store, changing: Store) -> None:
        slow = running_worker(chosen, look_seconds=3600.0)
        async with slow as worker, running_worker(changing) as other:
            await worker.bandits.create_bandit(NAME, WITH_BASELINE)
            await worker.bandits.upsert_items(NAME, [Item(f"i{n}") for n in range(8)])
            await learned(worker, 3)
            before = worker.models.peek_model(NAME)
            await change(other, stage=Stage.OFF)
            given = await recommend(worker, 7)
            assert before is not None
            assert before.settings.stage is Stage.LIVE
            assert (given.stage, given.slate) == (Stage.OFF, BASELINE)

    run(stores, scenario, connections=2)


def test_a_request_that_is_to_get_a_baseline_slate_needs_one(stores: Stores) -> None:
    async def scenario(worker: Worker) -> None:
        for stage in (Stage.SHADOW, Stage.OFF):
            await change(worker, stage=stage, baseline_item_ids=())
            with pytest.raises(NotReadyError, match="neither of them has one") as caught:
                await recommend(worker, 1)
            assert caught.value.reason == "NO_BASELINE"
            with pytest.raises(NotReadyError, match="'i9' of it can't be shown"):
                await recommend(worker, 2, own=("i0", "i9", "i1"))
            with pytest.raises(InvalidArgumentError, match="has 2 items") as refused:
                await recommend(worker, 3, own=("i0", "i1"))
            assert refused.value.field == "baseline_item_ids"
            assert (await recommend(worker, 4 + len(stage), own=OWN)).slate == OWN

    on_a_worker(stores, scenario)


def test_a_callers_own_slate_is_shown_where_too_few_candidates_are_left(stores: Stores) -> None:
    async def scenario(worker: Worker) -> None:
        asked = request("q", candidates=("i0", "nothing", "nobody"))
        given = await worker.recommender.recommend(NAME, replace(asked, baseline_item_ids=OWN))
        assert (given.slate, given.baseline, given.stage) == (OWN, True, Stage.LIVE)
        with pytest.raises(Exception, match="request"):
            await worker.recommender.recommend(NAME, replace(asked, baseline_item_ids=BASELINE))

    on_a_worker(stores, scenario)


def model_with(share: float, *, incarnation: str = "birth") -> Model:
    model = begun()
    return replace(model, incarnation=incarnation, settings=replace(WITH_BASELINE, control_share=share))


def test_a_key_stays_in_its_group_and_only_the_difference_moves() -> None:
    keys = [f"visitor-{number}" for number in range(20_000)]

    def control(share: float, **other: Any) -> set[str]:  # noqa: ANN401
        model = model_with(share, **other)
        asked = (replace(request(f"q{place}"), group_key=key) for place, key in enumerate(keys))
        return {one.group_key for one in asked if group_of(model, one) is Group.CONTROL}

    tenth, quarter = control(0.1), control(0.25)
    assert tenth < quarter
    assert len(tenth) / len(keys) == pytest.approx(0.1, abs=4 * (0.09 / len(keys)) ** 0.5)
    assert len(quarter) / len(keys) == pytest.approx(0.25, abs=4 * (0.1875 / len(keys)) ** 0.5)
    # Another bandit draws others: what one shows does not tell of what the other does.
    assert len(control(0.25, incarnation="another") & quarter) / len(keys) == pytest.approx(0.0625, abs=0.007)


def test_without_a_control_group_nobody_is_in_one() -> None:
    model = model_with(0.5)
    for settings in (
        replace(model.settings, control_share=0.0),
        *(replace(model.settings, stage=one) for one in (Stage.OFF, Stage.SHADOW)),
    ):
        assert group_of(replace(model, settings=settings), request("q")) is Group.NONE


def test_groups_are_shown_their_slates_and_count_what_they_earn(stores: Stores) -> None:
    async def scenario(worker: Worker) -> None:
        earned: dict[Group, list[float]] = {Group.BANDIT: [], Group.CONTROL: []}
        drawn = dict.fromkeys(earned, 0)
        for number in range(60):
            given = await recommend(worker, number, key=f"visitor-{number % 30}")
            again = await recommend(worker, 500 + number, key=f"visitor-{number % 30}")
            assert given.group is again.group is not Group.NONE
            assert given.baseline == (given.group is Group.CONTROL) == (given.slate == BASELINE and given.baseline)
            drawn[given.group] += 2
            value = 0.25 * (number % 5)
            match number % 6:
                case 0:  # nobody buys: neither of both slates has a reward
                    earned[given.group] += [0.0, 0.0]
                    continue
                case 1:
                    await worker.recommender.reward(NAME, given.recommendation_id, value)
                    await worker.recommender.correct_reward(NAME, given.recommendation_id, None)
                case 2:
                    await worker.recommender.reward(NAME, given.recommendation_id, value)
                    await worker.recommender.correct_reward(NAME, given.recommendation_id, 9.0)
                    earned[given.group].append(9.0)
                case _:
                    await worker.recommender.reward(NAME, given.recommendation_id, value)
                    earned[given.group].append(value)
            earned[given.group].append(0.0)
        await stores.pass_time(HOUR_MS)
        await worker.models.expire(NAME)
        lift = lift_of(await followed(worker))
        for group, stats in ((Group.BANDIT, lift.bandit), (Group.CONTROL, lift.control)):
            values = earned[group]
            assert stats == GroupStats(drawn[group], len(values), pytest.approx(sum(values) / len(values), abs=1e-12))
        model = await followed(worker)
        assert_same(model, await rebuilt(worker.store))
        refit = replace(model, state=model.state.refit(1.0))
        assert decode_model(encode_model(refit, 2), limits=LIMITS).comparison == model.comparison
        await worker.bandits.reset_bandit(NAME)
        assert lift_of(await followed(worker)).control == GroupStats(0, 0, 0.0)
        await recommend(worker, 999)
        await change(worker, control_share=0.25)
        assert lift_of(await followed(worker)).bandit == GroupStats(0, 0, 0.0)
        assert lift_of(await followed(worker)).control == GroupStats(0, 0, 0.0)

    on_a_worker(stores, scenario, control_share=0.5)


@pytest.mark.parametrize("kind", [Aggregation.FIRST, Aggregation.SUM])
def test_provisional_rewards_count_once_and_as_they_are_last(stores: Stores, kind: Aggregation) -> None:
    async def scenario(worker: Worker) -> None:
        given = [await recommend(worker, number) for number in range(12)]
        await stores.pass_time(2000)
        await worker.models.expire(NAME)
        assert sum((one.counted for one in groups(await followed(worker))), 0) == 12
        for place, one in enumerate(given[:6]):
            await worker.recommender.reward(NAME, one.recommendation_id, 1.0 + place, reward_id="order")
        await worker.recommender.correct_reward(NAME, given[0].recommendation_id, 5.0, reward_id="order")
        await worker.recommender.correct_reward(NAME, given[1].recommendation_id, None)
        await stores.pass_time(HOUR_MS)
        await worker.models.expire(NAME)
        # The reward that was taken back is the default one again, of a slate that others may still earn for.
        totals = sum(one.counted * one.mean_reward for one in groups(await followed(worker)))
        assert totals == pytest.approx(5.0 + 3.0 + 4.0 + 5.0 + 6.0)
        assert_same(await followed(worker), await rebuilt(worker.store))

    def groups(model: Model) -> tuple[GroupStats, GroupStats]:
        lift = lift_of(model)
        return lift.bandit, lift.control

    on_a_worker(
        stores, scenario, control_share=0.5, provisional_after_ms=1000, default_reward=0.0, reward_aggregation=kind
    )


def test_a_guardrail_takes_a_bandit_off_that_is_worse(stores: Stores) -> None:
    async def scenario(worker: Worker) -> None:
        guardrails = Guardrails(worker.models, worker.bandits, hooks=worker.hooks)
        for start, end in ((0, 150), (150, ENOUGH)):
            assert (await followed(worker)).settings.stage is Stage.LIVE
            await make_worse(worker, start, end)
            await guardrails.go_round()
        model = await followed(worker)
        assert model.settings.stage is Stage.SHADOW
        lift = lift_of(model)
        [taken] = [one for one in await whole_log(worker.store, NAME) if isinstance(one.event, SettingsChanged)]
        assert isinstance(taken.event, SettingsChanged)
        assert (lift.guarded_position, lift.guarded_reason) == (taken.position, taken.event.guarded)
        assert "less than the control group by more than 0.1" in lift.guarded_reason
        await guardrails.go_round()
        assert (await followed(worker)).version == model.version
        assert (await recommend(worker, 1000)).slate == BASELINE

    on_a_worker(stores, scenario, control_share=0.5, guardrail_margin=0.1)


def test_what_one_bandit_fails_with_stops_no_other(stores: Stores, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(worker: Worker) -> None:
        model = await followed(worker)

        class Broken:
            is_mended = False

            def find_own(self) -> dict[Any, Any]:
                return {"broken": model if self.is_mended else None, NAME: model}

            async def follow(self, _name: object) -> Model:
                return model

        broken = Broken()
        guardrails = Guardrails(broken, worker.bandits, hooks=worker.hooks)
        for _ in range(3):
            await guardrails.go_round()
        assert caplog.text.count("can't be compared") == 1
        broken.is_mended = True
        await guardrails.go_round()
        broken.is_mended = False
        await guardrails.go_round()
        assert caplog.text.count("can't be compared") == 2

    on_a_worker(stores, scenario, control_share=0.5)


ENOUGH = 260
"""Requests after which a guardrail is sure that the bandit's group earns less: it is after 219."""


async def make_worse(worker: Worker, start: int = 0, end: int = ENOUGH) -> None:
    for number in range(start, end):
        given = await recommend(worker, number)
        value = float(given.group is Group.CONTROL and number % 3 == 0)
        await worker.recommender.reward(NAME, given.recommendation_id, value)
    await followed(worker)


def test_a_guardrail_that_can_not_take_a_bandit_off_tries_again_and_logs_nothing(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors = [UnavailableError("away"), CorruptDataError("damaged"), NotFoundError("gone")]

    async def scenario(worker: Worker) -> None:
        await make_worse(worker)
        guardrails = Guardrails(worker.models, worker.bandits, hooks=worker.hooks)

        for error in errors:
            fail = AsyncMock(side_effect=error)
            with monkeypatch.context() as away:
                away.setattr(worker.bandits, "take_off", fail)
                for _ in range(3):
                    await guardrails.go_round()
            assert fail.await_count == 3
            assert caplog.records == [], error
            assert (await followed(worker)).settings.stage is Stage.LIVE
        await guardrails.go_round()
        assert (await followed(worker)).settings.stage is Stage.SHADOW

    on_a_worker(MemoryStores(), scenario, control_share=0.5, guardrail_margin=0.1)


def test_of_two_workers_one_takes_a_bandit_off(stores: Stores) -> None:
    async def scenario(worker: Worker) -> None:
        both = await asyncio.gather(*(worker.bandits.take_off(NAME, "worse") for _ in range(2)))
        assert sorted(both) == [False, True]
        [taken] = [one for one in await whole_log(worker.store, NAME) if isinstance(one.event, SettingsChanged)]
        assert isinstance(taken.event, SettingsChanged)
        assert taken.event.settings.stage is Stage.SHADOW

    on_a_worker(stores, scenario, control_share=0.5, guardrail_margin=0.1)


def test_a_guardrail_does_not_judge_by_groups_that_have_begun_anew() -> None:
    """Its worker does not know of the new share yet."""

    async def scenario(worker: Worker) -> None:
        await make_worse(worker)
        old = await followed(worker)

        class Behind:
            follow = staticmethod(worker.models.follow)

            def find_own(self) -> dict[Any, Model]:
                return {NAME: old}

        guardrails = Guardrails(Behind(), worker.bandits, hooks=worker.hooks)
        await change(worker, control_share=0.25)
        await guardrails.go_round()
        assert (await followed(worker)).settings.stage is Stage.LIVE

    on_a_worker(MemoryStores(), scenario, control_share=0.5, guardrail_margin=0.1)


@pytest.mark.parametrize("default", [None, 0.0])
@pytest.mark.parametrize("kind", [Aggregation.FIRST, Aggregation.SUM])
def test_slates_of_before_a_change_of_the_share_count_nowhere(
    stores: Stores, kind: Aggregation, default: float | None
) -> None:
    """Nor do their rewards, their amendments, or what is taken back, however wild they were.

    While a bandit is frozen all of them can be amended: none is learned.
    """

    async def scenario(worker: Worker) -> None:
        async def reward(given: Recommendation, value: float) -> None:
            await worker.recommender.reward(NAME, given.recommendation_id, value, reward_id="a", final=True)

        before = [await recommend(worker, number) for number in range(6)]
        for given in before[:4]:
            await reward(given, 1e100)
        await stores.pass_time(10)
        await change(worker, control_share=0.25)
        after = [await recommend(worker, number) for number in range(100, 106)]
        for given in after:
            await reward(given, 0.5)
        await reward(before[4], 1e100)
        known = (await followed(worker)).comparison
        for place, given in enumerate(before[:5]):
            await worker.recommender.correct_reward(NAME, given.recommendation_id, None if place % 2 else 1.0)
        await stores.pass_time(HOUR_MS)
        await worker.models.expire(NAME)
        model = await followed(worker)
        assert model.comparison == known
        assert known.bandit.earned.count + known.control.earned.count == 6
        assert_same(model, await rebuilt(worker.store))

    on_a_worker(
        stores,
        scenario,
        stage=Stage.FROZEN,
        control_share=0.5,
        default_reward=default,
        reward_aggregation=kind,
    )
