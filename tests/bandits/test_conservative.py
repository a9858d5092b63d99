"""Conservative bandits: whose slate is shown, what counts, and the same after a replay, a snapshot and in batches."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.bandits.harness import HOUR_MS, LIMITS, assert_same, rebuilt, request
from tests.bandits.test_stages import BASELINE, NAME, change, followed, on_a_worker
from tests.bandits.test_stages import recommend as recommend_at_once

from topk_bandit.bandits.batches import Asked
from topk_bandit.bandits.comparison import GroupTally
from topk_bandit.bandits.explanations import explain
from topk_bandit.bandits.lifts import describe_conservative, describe_lift
from topk_bandit.bandits.snapshots import decode_model, encode_model
from topk_bandit.domain.errors import NotReadyError
from topk_bandit.domain.stages import ConservativeStats, Group, GroupStats, Stage

if TYPE_CHECKING:
    from tests.bandits.harness import Worker
    from tests.contracts.harness import Stores

    from topk_bandit.bandits.model import Model
    from topk_bandit.domain.slates import Recommendation

SHARE = 0.25


async def recommend(worker: Worker, number: int, **asked: Any) -> Recommendation:  # noqa: ANN401 - of a request
    """Ask a worker that knows all slates before."""
    await followed(worker)
    return await recommend_at_once(worker, number, **asked)


def kept_by(model: Model) -> ConservativeStats:
    kept = describe_conservative(model)
    assert kept is not None
    return kept


def test_a_share_of_the_first_slates_is_the_bandits_own(stores: Stores) -> None:
    async def scenario(worker: Worker) -> None:
        groups = []
        for number in range(24):
            given = await recommend(worker, number)
            groups.append(given.group)
            assert given.baseline == (given.group is Group.CONSERVATIVE)
            if given.baseline:
                assert (given.slate, given.propensity, given.regret_bound) == (BASELINE, 1.0, 0.0)
            again = await recommend(worker, number)
            assert (again.slate, again.group) == (given.slate, given.group)
        assert groups == ([Group.CONSERVATIVE] * 3 + [Group.BANDIT]) * 6
        kept = kept_by(await followed(worker))
        assert (kept.own, kept.baseline) == (GroupStats(6, 0, 0.0), GroupStats(18, 0, 0.0))
        assert (kept.reserve, kept.shows_own) == (None, False)

    on_a_worker(stores, scenario, conservative_share=SHARE)


def test_own_and_baseline_slates_count_by_what_they_earn(stores: Stores) -> None:
    async def scenario(worker: Worker) -> None:
        earned: dict[Group, list[float]] = {Group.BANDIT: [], Group.CONSERVATIVE: []}
        for number in range(40):
            given = await recommend(worker, number)
            value = -0.25 if number == 38 else 0.5 * (number % 3)
            match number:
                case 0 | 7 | 10 | 20 | 23:  # nobody buys
                    earned[given.group].append(0.0)
                case 2 | 3:  # it is taken back
                    await worker.recommender.reward(NAME, given.recommendation_id, value)
                    await worker.recommender.correct_reward(NAME, given.recommendation_id, None)
                case _:
                    await worker.recommender.reward(NAME, given.recommendation_id, value)
                    earned[given.group].append(value)
        await stores.pass_time(HOUR_MS)
        await worker.models.expire(NAME)
        model = await followed(worker)
        kept = kept_by(model)
        for group, stats in ((Group.BANDIT, kept.own), (Group.CONSERVATIVE, kept.baseline)):
            values = earned[group]
            assert stats.counted == len(values)
            assert stats.mean_reward == pytest.approx(sum(values) / len(values), abs=1e-12)
        assert kept.own.drawn + kept.baseline.drawn == 40
        assert model.comparison.least == -0.25
        assert describe_lift(model) is None
        assert_same(model, await rebuilt(worker.store))
        refit = replace(model, state=model.state.refit(1.0))
        assert decode_model(encode_model(refit, 2), limits=LIMITS).comparison == model.comparison

    on_a_worker(stores, scenario, conservative_share=SHARE)


def test_a_change_of_the_share_and_a_reset_begin_the_account_anew(stores: Stores) -> None:
    async def scenario(worker: Worker) -> None:
        for number in range(8):
            given = await recommend(worker, number)
            await worker.recommender.reward(NAME, given.recommendation_id, 0.5)
        before = kept_by(await followed(worker))
        await change(worker, conservative_share=0.5)
        kept = kept_by(await followed(worker))
        assert (before.own.counted, kept.own.drawn, kept.baseline.drawn) == (2, 0, 0)
        assert [(await recommend(worker, 100 + n)).group for n in range(2)] == [Group.CONSERVATIVE, Group.BANDIT]
        await worker.bandits.reset_bandit(NAME)
        assert (await followed(worker)).comparison.conservative == GroupTally()
        await change(worker, conservative_share=0.0)
        model = await followed(worker)
        assert describe_conservative(model) is None
        assert (await recommend(worker, 200)).group is Group.NONE

    on_a_worker(stores, scenario, conservative_share=SHARE)


def test_slates_of_a_batch_pay_from_one_account(stores: Stores) -> None:
    async def scenario(worker: Worker) -> None:
        asked = [Asked(request(f"b{number}")) for number in range(40)]
        given = await worker.recommender.recommend_all(NAME, asked)
        groups = [one.group for one in given if not isinstance(one, Exception)]
        assert groups == ([Group.CONSERVATIVE] * 3 + [Group.BANDIT]) * 10

    on_a_worker(stores, scenario, conservative_share=SHARE)


def test_a_conservative_bandit_may_have_a_control_group(stores: Stores) -> None:
    """Baseline slates for want of reserve are of the bandit's group: the lift is of what the bandit does as it is."""

    async def scenario(worker: Worker) -> None:
        groups = [(await recommend(worker, number, key=f"visitor-{number}")).group for number in range(60)]
        model = await followed(worker)
        lift, kept = describe_lift(model), kept_by(model)
        assert lift is not None
        assert lift.control.drawn == groups.count(Group.CONTROL) > 0
        assert lift.bandit.drawn == kept.own.drawn + kept.baseline.drawn == 60 - lift.control.drawn
        assert kept.baseline.drawn == groups.count(Group.CONSERVATIVE)
        assert kept.own.drawn == int(SHARE * lift.bandit.drawn)

    on_a_worker(stores, scenario, conservative_share=SHARE, control_share=0.25)


def test_a_request_without_a_baseline_slate_is_refused(stores: Stores) -> None:
    async def scenario(worker: Worker) -> None:
        with pytest.raises(NotReadyError, match="no more to lose by its conservative_share") as refused:
            await recommend(worker, 0)
        assert refused.value.reason == "NO_BASELINE"
        own = ("i3", "i2", "i1")[: len(BASELINE)]
        given = await recommend(worker, 1, own=own)
        assert (given.slate, given.group) == (own, Group.CONSERVATIVE)

    on_a_worker(stores, scenario, conservative_share=SHARE, baseline_item_ids=())


def test_other_stages_pay_nothing(stores: Stores) -> None:
    async def scenario(worker: Worker) -> None:
        for number, stage in enumerate((Stage.SHADOW, Stage.OFF)):
            await change(worker, stage=stage)
            given = await recommend(worker, number)
            assert given.group is Group.NONE
        kept = kept_by(await followed(worker))
        assert kept.own.drawn == kept.baseline.drawn == 0

    on_a_worker(stores, scenario, conservative_share=SHARE)


def test_a_slate_is_explained_in_its_group(stores: Stores) -> None:
    """The model that chose a batch did not know of its slates: by it alone, none of them would be an own one."""

    async def scenario(worker: Worker) -> None:
        model = await followed(worker)
        asked = [request(f"b{number}", context=(1.0, 0.5)) for number in range(4)]
        given = await worker.recommender.recommend_all(NAME, [Asked(one) for one in asked])
        for one, slate in zip(asked, given, strict=True):
            assert not isinstance(slate, Exception)
            assert explain(model, one, slate).chosen_again
        assert not isinstance(given[3], Exception)
        assert given[3].group is Group.BANDIT
        without = replace(model, settings=replace(model.settings, baseline_item_ids=()))
        assert explain(without, asked[3], given[3]).chosen_again

    on_a_worker(stores, scenario, conservative_share=SHARE)
