"""Items come and go, and their places with them: no reward is lost, nothing grows, and a replay is exact."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.bandits.harness import LIMITS, SETTINGS, assert_same

from topk_bandit.bandits import places
from topk_bandit.bandits.fold import begin, fold
from topk_bandit.bandits.snapshots import decode_model, encode_model
from topk_bandit.domain.bandits import Item, ItemUtility, Kernel, Prior
from topk_bandit.domain.slates import Recommendation, RecommendationRequest
from topk_bandit.learning.limits import Limits
from topk_bandit.store.events import (
    BanditCreated,
    Expired,
    ItemsChanged,
    LoggedEvent,
    Recommended,
    Rewarded,
    Shown,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topk_bandit.bandits.model import Model
    from topk_bandit.store.events import Event

WAIT_MS = 1000
TIGHT = replace(SETTINGS, item_capacity=8, reward_wait_ms=WAIT_MS)


@dataclass
class Log:
    """A log that is written as a store would, and folded as it grows."""

    model: Model
    events: list[LoggedEvent]
    now_ms: int = 1
    open: dict[str, Shown] = field(default_factory=dict)

    @classmethod
    def of(cls, settings: object = TIGHT, *, prior: Prior | None = None, limits: Limits = LIMITS) -> Log:
        first = LoggedEvent(1, 1, BanditCreated(settings, prior))  # type: ignore[arg-type]
        return cls(begin("birth", first, limits=limits), [first])

    def add(self, event: Event) -> Model:
        logged = LoggedEvent(len(self.events) + 1, self.now_ms, event)
        self.events.append(logged)
        self.model = fold(self.model, logged)
        return self.model

    def change(self, *new: str, retired: Sequence[str] = ()) -> Model:
        return self.add(ItemsChanged(tuple(map(Item, new)), tuple(retired)))

    def show(self, *slate: str, context: tuple[float, ...] = (1.0, 0.5)) -> str:
        recommendation_id = f"slate-{len(self.events)}"
        deadline_ms = self.now_ms + self.model.settings.reward_wait_ms
        numbers = dict.fromkeys(("propensity", "mean", "standard_deviation", "regret_bound", "estimated_regret"), 1.0)
        given = Recommendation(
            recommendation_id,
            slate,
            **numbers,
            explored=False,
            model_version=1,
            observations=0,
            deadline_ms=deadline_ms,
        )
        self.open[recommendation_id] = Shown(context, slate, self.now_ms)
        self.add(Recommended(RecommendationRequest(recommendation_id, context, None), given))
        return recommendation_id

    def reward(self, recommendation_id: str, value: float) -> Model:
        return self.add(Rewarded(recommendation_id, value, self.open.pop(recommendation_id)))

    def expire(self, recommendation_id: str, default: float | None) -> Model:
        shown = self.open.pop(recommendation_id)
        return self.add(Expired(recommendation_id, default, None if default is None else shown))

    def place(self, item_id: str) -> int:
        return int(self.model.items.find_indices([item_id])[0])


def check_places(model: Model) -> None:
    """Hold a model to what its rows and items may refer to."""
    items, posterior = model.items, model.state.posterior
    free = [place for place, item_id in enumerate(items.ids) if item_id is None]
    assert len(items.ids) <= posterior.kernel.n_items
    assert not np.isin(posterior.all_rows.rankings, free).any()
    assert items.places_in_use == items.size + len(items.retired) == len(items.ids) - len(free)
    assert set(items.available) <= set(items.ids)
    np.testing.assert_array_equal(model.state.leaving, items.retired_places)


def values(item_ids: Sequence[str]) -> float:
    """Return what a slate is worth: each item's worth is in its number."""
    return sum(int(item_id[1:]) * 37 % 10 for item_id in item_ids) / 10.0


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Kernel.ADAPTIVE, Kernel.CONVOLUTIONAL])
@pytest.mark.parametrize("seed", range(3))
def test_items_come_and_go_for_ever(kind: Kernel, seed: int) -> None:
    """Rewards before their deadlines are learned, all of them; places stay few; snapshots at any checkpoint go on."""
    rng = np.random.default_rng(seed)
    log = Log.of(replace(TIGHT, kernel=kind), limits=Limits(rows=40, pending_rows=8))
    log.change(*(f"i{n}" for n in range(8)))
    living, born, rewards, kept = [f"i{n}" for n in range(8)], 8, 0, []
    for turn in range(400):
        log.now_ms += int(rng.integers(1, 60))
        slate = rng.permutation(living)[:3].tolist()
        log.show(*slate, context=tuple(rng.normal(size=2)))
        for key in list(log.open):
            late = log.now_ms - log.open[key].at_ms
            if late >= WAIT_MS:
                log.expire(key, None)
            elif rng.random() < 0.15:
                log.reward(key, values(log.open[key].slate) + 0.1 * rng.normal())
                rewards += 1
        if turn % 5 == 4:
            gone = living.pop(int(rng.integers(len(living))))
            log.change(retired=[gone])
            log.change(f"i{born}")
            living, born = [*living, f"i{born}"], born + 1
        check_places(log.model)
        if log.model.since_checkpoint == 0:
            kept.append(log.model)
    assert (log.model.state.observations, log.model.tally.unlearned) == (rewards, 0)
    assert set(log.model.items.available) == set(living)
    # At most the items of the last second have open slates.
    assert log.model.state.posterior.kernel.n_items <= 8 + 12
    assert log.model.state.posterior.n_rows <= 50
    for model in kept[:: max(len(kept) // 6, 1)]:
        restored = decode_model(encode_model(model), limits=Limits(rows=40, pending_rows=8))
        assert_same(restored, model)
        for logged in log.events[model.version :]:
            restored = fold(restored, logged)
        assert_same(restored, log.model)


def test_a_reward_for_an_item_that_was_retired_is_learned_though_others_came() -> None:
    log = Log.of()
    log.change(*(f"i{n}" for n in range(8)))
    known, waits = log.show("i0", "i1", "i2"), log.show("i3", "i1", "i2")
    log.reward(known, 1.0)
    log.change(retired=["i0", "i3", "i4"])
    before = log.place("i4")
    log.change("i8", "i9", "i10")
    check_places(log.model)
    assert log.place("i8") == before, "what was never shown leaves its place at once"
    assert {"i0", "i3"} <= set(log.model.items.retired), "their slates are open, or could be"
    assert log.model.state.posterior.kernel.n_items > 8
    assert log.reward(waits, 2.0).state.observations == 2
    assert log.model.tally.unlearned == 0


def test_a_place_is_taken_back_once_no_slate_can_be_open() -> None:
    log = Log.of()
    log.change(*(f"i{n}" for n in range(8)))
    for turn in range(12):
        log.reward(log.show("i0", f"i{1 + turn % 7}", f"i{1 + (turn + 1) % 7}"), float(turn))
    place = log.place("i0")
    log.change(retired=["i0"])
    log.now_ms += WAIT_MS
    assert log.change("i8").since_checkpoint == 0
    check_places(log.model)
    assert (log.place("i8"), log.model.state.posterior.kernel.n_items) == (place, 8)
    assert "i0" not in log.model.items.retired


@pytest.mark.parametrize("seed", range(4))
def test_what_rows_with_a_gone_item_told_of_others_is_kept(seed: int) -> None:
    def is_known(*, beside: int) -> float:
        """Return how well values of slates are known from few slates, and so many beside an item that is gone then."""
        log, rng = (
            Log.of(replace(TIGHT, context_dim=1, kernel=Kernel.WEIGHTED_CONVOLUTIONAL)),
            np.random.default_rng(seed),
        )
        log.change(*(f"i{n}" for n in range(8)))
        for turn in range(20 + beside):
            slate = [f"i{n}" for n in 1 + rng.permutation(7)[:3]]
            slate[0] = slate[0] if turn < 20 else "i0"
            log.reward(log.show(*slate, context=(1.0,)), values(slate) + rng.normal())
        log.change(retired=["i0"])
        log.now_ms += WAIT_MS
        log.change("i8")
        check_places(log.model)
        slates = np.array([1 + rng.permutation(7)[:3] for _ in range(300)], dtype=np.int32)
        truth = [values([f"i{n}" for n in slate]) for slate in slates.tolist()]
        return float(np.corrcoef(log.model.state.predict(np.ones(1), slates).mean, truth)[0, 1])

    assert is_known(beside=120) > is_known(beside=0)


def test_a_default_reward_that_comes_after_the_place_was_taken_back_is_not_learned() -> None:
    log = Log.of(replace(TIGHT, default_reward=0.0), limits=Limits(rows=40, pending_rows=1))
    log.change(*(f"i{n}" for n in range(8)))
    late, later = log.show("i0", "i1", "i2"), log.show("i3", "i4", "i5")
    log.change(retired=["i0"])
    log.now_ms += 2 * WAIT_MS
    log.change("i8")
    check_places(log.model)
    log.expire(late, 0.0)
    assert (log.model.state.observations, log.model.tally.defaults, log.model.tally.expirations) == (0, 0, 1)
    log.expire(later, 0.0)
    assert (log.model.state.observations, log.model.tally.defaults, log.model.open_slates) == (1, 1, 0)


def test_the_universe_has_an_end_and_what_ends_first_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "MOST_RETIRED", 2)
    log = Log.of()
    log.change(*(f"i{n}" for n in range(8)))
    slates = []
    for n in range(5):
        log.now_ms += 10
        slates.append(log.show(f"i{n}", "i6", "i7"))
    for n in range(5):
        log.change(retired=[f"i{n}"])
        log.change(f"i{8 + n}")
        check_places(log.model)
    assert log.model.state.posterior.kernel.n_items == 8 + 2
    assert log.model.items.retired == ("i3", "i4")
    for n, one in enumerate(slates):
        log.reward(one, float(n))
    assert (log.model.state.observations, log.model.tally.unlearned, log.model.open_slates) == (2, 3, 0)


def test_a_study_is_believed_of_items_in_places_that_others_had() -> None:
    utilities = tuple(ItemUtility(f"i{n}", float(n)) for n in range(12))
    settings = replace(TIGHT, prior_study="tastes", prior_digest="d")
    log = Log.of(settings, prior=Prior("tastes", 9, utilities))
    log.change(*(f"i{n}" for n in range(8)))
    log.reward(log.show("i0", "i1", "i2"), 0.0)
    log.reward(log.show("i5", "i6", "i7"), 1.0)
    log.change(retired=["i0", "i7"])
    log.now_ms += WAIT_MS
    log.change("i11", "unheard-of")
    check_places(log.model)
    prior_mean = log.model.state.posterior.prior_mean
    assert prior_mean is not None
    assert prior_mean.row_of[[log.place("i11"), log.place("unheard-of"), log.place("i5")]].tolist() == [11, -1, 5]
    if log.model.since_checkpoint == 0:
        assert_same(decode_model(encode_model(log.model), limits=LIMITS), log.model)
