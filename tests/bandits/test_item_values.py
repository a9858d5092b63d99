"""What single items of a slate did, from the call to the learner."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.bandits.harness import NAME, SETTINGS, request, running_worker
from tests.bandits.test_corrections import ITEMS, begun, recommended, then
from tests.contracts.archives import archived, restore_lines
from tests.contracts.harness import MemoryStores, run
from tests.contracts.samples import HOUR_MS

from topk_bandit.bandits import fold as folds
from topk_bandit.bandits.imports import RowsOfImport
from topk_bandit.domain.bandits import Aggregation, BanditName
from topk_bandit.domain.errors import CorruptDataError, InvalidArgumentError, NotReadyError
from topk_bandit.domain.slates import Reward, RewardReceipt
from topk_bandit.learning.corrections import can_correct
from topk_bandit.learning.policy import State
from topk_bandit.store.events import (
    Expired,
    Imported,
    PastSlate,
    RewardAmended,
    Rewarded,
    RewardRevised,
    Shown,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from tests.bandits.harness import Worker

    from topk_bandit.domain.bandits import BanditSettings
    from topk_bandit.domain.slates import ItemValues, Recommendation
    from topk_bandit.store.events import Event
    from topk_bandit.store.log import Store

NAN = float("nan")
SHOWN = Shown(recommended(1).request.context, recommended(1).recommendation.slate, 1)


class Learner:
    """Hears what the fold teaches, and lets it happen."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.heard: list[tuple[str, dict[str, Any]]] = []
        for place, name in ((State, "rewarded"), (State, "learn_history"), (folds, "correct"), (folds, "revise")):
            monkeypatch.setattr(place, name, self._hearing(name, getattr(place, name)))

    def _hearing(self, name: str, known: Any) -> Any:  # noqa: ANN401 - functions of a state and more
        def hear(state: State, *given: Any, **named: Any) -> Any:  # noqa: ANN401
            outcomes = {key: value for key, value in named.items() if "outcomes" in key}
            if name == "learn_history":
                outcomes = {"outcomes": given[0].outcomes}
            self.heard.append((name, {key: plain(value) for key, value in outcomes.items()}))
            return known(state, *given, **named)

        return hear


def plain(outcomes: np.ndarray | None) -> Any:  # noqa: ANN401 - lists of numbers, however deep
    return None if outcomes is None else outcomes.tolist()


@pytest.fixture
def learner(monkeypatch: pytest.MonkeyPatch) -> Learner:
    return Learner(monkeypatch)


def revised(value: float, before: float | None, *values: ItemValues | None) -> RewardRevised:
    was_learned = before is not None
    return RewardRevised("r1", value, SHOWN, int(was_learned), False, False, False, before, *values)  # noqa: FBT003


@pytest.mark.parametrize(
    ("events", "heard"),
    [
        ([Rewarded("r1", 1.0, SHOWN)], ("rewarded", {"outcomes": None})),
        (
            [Rewarded("r1", 1.0, SHOWN, item_values=(1.0, None, 0.0))],
            ("rewarded", {"outcomes": [1.0, NAN, 0.0]}),
        ),
        ([Expired("r1", 1.0, SHOWN, item_values=(0.5, 0.5, 0.5))], ("rewarded", {"outcomes": [0.5, 0.5, 0.5]})),
        ([revised(1.0, None, (None, None, 2.0))], ("rewarded", {"outcomes": [NAN, NAN, 2.0]})),
        (
            [Rewarded("r1", 1.0, SHOWN, item_values=(1.0, None, 0.0)), RewardAmended("r1", 2.0)],
            ("correct", {"outcomes": None}),
        ),
        (
            [Rewarded("r1", 1.0, SHOWN), RewardAmended("r1", 2.0, item_values=(None, 1.0, None))],
            ("correct", {"outcomes": [NAN, 1.0, NAN]}),
        ),
        (
            [revised(1.0, None), revised(1.0, 1.0, (1.0, None, None), None)],
            ("correct", {"outcomes": [1.0, NAN, NAN]}),
        ),
        (
            [Imported("i", 0, (PastSlate(SHOWN.context, SHOWN.slate, 1.0),))],
            ("learn_history", {"outcomes": None}),
        ),
        (
            [
                Imported(
                    "i",
                    0,
                    (
                        PastSlate(SHOWN.context, SHOWN.slate, 1.0, item_values=(None, 1.0, 2.0)),
                        PastSlate(SHOWN.context, SHOWN.slate, 1.0),
                    ),
                )
            ],
            ("learn_history", {"outcomes": [[NAN, 1.0, 2.0], [NAN, NAN, NAN]]}),
        ),
    ],
)
def test_the_learner_hears_what_each_item_did(
    learner: Learner, events: Sequence[Event], heard: tuple[str, dict[str, Any]]
) -> None:
    then(begun(), recommended(1), *events)
    assert repr(learner.heard[-1]) == repr(heard)


def test_a_revision_after_a_refit_tells_what_was_learned_before(learner: Learner) -> None:
    model = then(begun(), recommended(1), revised(1.0, None, (1.0, None, None)))
    model = replace(model, state=model.state.refit(1.0))
    assert not can_correct(model.state, "r1")
    then(model, revised(1.0, 1.0, (2.0, None, None), (1.0, None, None)))
    assert repr(learner.heard[-1]) == repr(
        ("revise", {"before_outcomes": [1.0, NAN, NAN], "outcomes": [2.0, NAN, NAN]})
    )
    count = len(learner.heard)
    then(model, revised(1.0, 1.0, (1.0, None, None), (1.0, None, None)))
    assert len(learner.heard) == count, "nothing is new"


def test_a_revision_that_can_not_be_learned_is_no_reward_that_was_heard_of() -> None:
    """Its reward is what it was: only what items did is another, and one of them is gone."""
    event = revised(1.0, 1.0, (2.0, None, None), (1.0, None, None))
    model = then(begun(), recommended(1), recommended(2))
    after = then(model, replace(event, shown=replace(SHOWN, slate=("i1", "i2", "gone"))))
    assert after.tally.missed_corrections == 1
    assert after.state.reward_range is model.state.reward_range


def test_values_of_other_items_than_the_slate_has_are_no_log() -> None:
    with pytest.raises(CorruptDataError, match="values of 2 items of a slate of 3"):
        then(begun(), recommended(1), Rewarded("r1", 1.0, SHOWN, item_values=(1.0, None)))


async def shop(worker: Worker, settings: BanditSettings = SETTINGS) -> None:
    await worker.bandits.create_bandit(NAME, settings)
    await worker.bandits.upsert_items(NAME, ITEMS.upserted)


async def slate(worker: Worker, number: int = 1) -> Recommendation:
    return await worker.recommender.recommend(NAME, request(f"q{number}"))


def test_what_is_posted_is_what_the_learner_hears(learner: Learner) -> None:
    async def scenario(store: Store) -> None:
        async with running_worker(store, look_seconds=600.0) as worker:
            await shop(worker, replace(SETTINGS, default_item_value=0.25))
            first = await slate(worker)
            named = {first.slate[2]: 1.0}
            await worker.recommender.reward(NAME, first.recommendation_id, 1.0, item_values=named)
            await worker.models.follow(NAME)
            assert learner.heard[-1] == ("rewarded", {"outcomes": [0.25, 0.25, 1.0]})
            others = [item.item_id for item in ITEMS.upserted if item.item_id not in first.slate]
            second = await worker.recommender.recommend(NAME, request("q2", candidates=others))
            await worker.recommender.reward(NAME, second.recommendation_id, 1.0)
            await worker.recommender.correct_reward(
                NAME, first.recommendation_id, 2.0, item_values={first.slate[0]: 3.0}
            )
            await worker.models.follow(NAME)
            assert learner.heard[-1] == ("correct", {"outcomes": [3.0, 0.25, 0.25]})
            strange = second.slate[0]
            with pytest.raises(InvalidArgumentError) as refused:
                await worker.recommender.correct_reward(NAME, first.recommendation_id, 2.0, item_values={strange: 3.0})
            assert refused.value.field == f'item_values["{strange}"]'

    run(MemoryStores(), scenario)


def test_several_rewards_are_heard_once_they_are_learned(learner: Learner) -> None:
    stores = MemoryStores()

    async def scenario(store: Store) -> None:
        async with running_worker(store, look_seconds=600.0) as worker:
            settings = replace(
                SETTINGS,
                default_reward=0.0,
                default_item_value=0.0,
                reward_aggregation=Aggregation.SUM,
                reward_wait_ms=HOUR_MS,
                provisional_after_ms=1000,
            )
            await shop(worker, settings)
            first = await slate(worker)
            await stores.pass_time(1000)
            await worker.models.expire(NAME)
            for number in range(2):
                await worker.recommender.reward(
                    NAME, first.recommendation_id, 0.0, reward_id=f"click-{number}", item_values={first.slate[1]: 1.0}
                )
            await worker.models.follow(NAME)
            told = [outcomes["outcomes"] for _, outcomes in learner.heard]
            assert told[-3:] == [[0.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 2.0, 0.0]]

    run(stores, scenario)


def test_imported_rows_have_no_default_values(learner: Learner) -> None:
    async def scenario(store: Store) -> None:
        async with running_worker(store, look_seconds=600.0) as worker:
            await shop(worker, replace(SETTINGS, default_item_value=0.0))
            row = PastSlate(SHOWN.context, SHOWN.slate, 1.0, item_values=(None, 1.0, None))
            await worker.bandits.import_rows(NAME, RowsOfImport("year", 0, 1, (row,)))
            await worker.models.follow(NAME)
            assert repr(learner.heard[-1]) == repr(("learn_history", {"outcomes": [[NAN, 1.0, NAN]]}))

    run(MemoryStores(), scenario)


def test_item_values_wait_for_their_data_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a store of the version before nothing says what the program before could not read."""

    async def scenario(store: Store) -> None:
        async with running_worker(store, look_seconds=600.0) as worker:
            await shop(worker)
            first = await slate(worker)
            named = {first.slate[0]: 1.0}
            row = PastSlate(SHOWN.context, SHOWN.slate, 1.0, item_values=(None, 1.0, None))
            calls = (
                worker.recommender.reward(NAME, first.recommendation_id, 1.0, item_values=named),
                worker.recommender.correct_reward(NAME, first.recommendation_id, 1.0, item_values=named),
                worker.bandits.import_rows(NAME, RowsOfImport("year", 0, 1, (row,))),
                worker.bandits.update_bandit(NAME, lambda known: replace(known, default_item_value=0.0)),
            )
            for call in calls:
                with pytest.raises(NotReadyError, match="needs data version 2, and 1 is in force") as refused:
                    await call
                assert refused.value.reason == "DATA_VERSION"
            second = await slate(worker, 2)
            posted = [
                Reward(first.recommendation_id, 1.0, item_values=named),
                Reward(second.recommendation_id, 1.0),
            ]
            bad, good = await worker.recommender.rewards(NAME, posted)
            assert isinstance(bad, NotReadyError)
            assert isinstance(good, RewardReceipt)

    monkeypatch.setattr("topk_bandit.store.memory.bandits.NEWEST", 1)
    run(MemoryStores(), scenario)


@pytest.mark.parametrize("ends", [True, False])
def test_a_bandit_with_item_values_is_not_brought_to_a_store_of_the_version_before(
    monkeypatch: pytest.MonkeyPatch, *, ends: bool
) -> None:
    """Neither its events nor its open slates are."""

    async def scenario(store: Store) -> None:
        async with running_worker(store, look_seconds=600.0) as worker:
            await shop(worker, replace(SETTINGS, reward_aggregation=Aggregation.SUM))
            first = await slate(worker)
            named = {first.slate[0]: 1.0}
            await worker.recommender.reward(
                NAME, first.recommendation_id, 1.0, reward_id="a", final=ends, item_values=named
            )
            lines = await archived(store, NAME)
            copy = BanditName(NAME.tenant, "copy")
            assert (await restore_lines(store, copy, lines, at_once=1)).complete
            monkeypatch.setattr("topk_bandit.store.memory.bandits.NEWEST", 1)
            await store.delete_bandit(copy)
            with pytest.raises(NotReadyError, match="item_values needs data version 2"):
                await restore_lines(store, copy, lines, at_once=1)

    run(MemoryStores(), scenario)
