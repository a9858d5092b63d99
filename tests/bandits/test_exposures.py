"""Promised exposures: kept where that costs least, with exact propensities, and the same after a replay."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import permutations
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.bandits.harness import LIMITS
from tests.long_forms import usual_or_long

from topk_bandit.bandits.choices import choose_slate
from topk_bandit.bandits.digests import digests_of
from topk_bandit.bandits.explanations import explain
from topk_bandit.bandits.exposures import (
    NOTHING_PROMISED,
    Exposures,
    Promise,
    can_pay,
    describe_exposures,
    find_unpaid,
    rules_that_pay,
)
from topk_bandit.bandits.fold import begin, fold
from topk_bandit.bandits.snapshots import decode_model, encode_model
from topk_bandit.domain.bandits import BanditSettings, ConstantBeta, Exploration, Item, Kernel, PaperBeta
from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.domain.features import Boolean, Categorical, Feature, Features, width_of
from topk_bandit.domain.rules import Count, Exclude, Exposure, ExposureStats, Group, SlateRule
from topk_bandit.domain.slates import RecommendationRequest
from topk_bandit.domain.stages import Stage
from topk_bandit.store.data_versions import NEWEST
from topk_bandit.store.events import (
    BanditCreated,
    ItemsChanged,
    LoggedEvent,
    Recommended,
    Rewarded,
    SettingsChanged,
    Shown,
)

if TYPE_CHECKING:
    from topk_bandit.bandits.model import Model
    from topk_bandit.domain.slates import Recommendation
    from topk_bandit.store.events import Event

N_ITEMS, SIZE = 6, 2
SCHEMA = (Feature("brand", Categorical(("acme", "other"))),)
OF_ACME = Group("brand", "acme")
SETTINGS = BanditSettings(
    N_ITEMS, SIZE, 2, Kernel.ADAPTIVE, Exploration(PaperBeta(0.1), 0.02, 0.02), 10**6, None, item_schema=SCHEMA
)
WEIGHTS = np.array([1.0, 0.6])
EVERY = np.array(list(permutations(range(N_ITEMS), SIZE)))
HAS_ACME = EVERY.min(axis=1) < 2
AT_ZERO = np.array([-0.6, -0.8, 1.0, 0.8, 0.5, 0.3])
SLOPES = np.array([0.8, 0.6, 0.0, 0.0, 0.0, 0.0])


@dataclass
class Shop:
    """A shop with two items of a brand that nobody likes, in some contexts less than in others."""

    rules: tuple[SlateRule, ...] = ()
    settings: BanditSettings = SETTINGS
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(3))
    lost: float = 0.0
    at_best: list[float] = field(default_factory=list)
    with_acme: list[bool] = field(default_factory=list)

    def __post_init__(self) -> None:
        created = BanditCreated(replace(self.settings, rules=self.rules))
        self.model = begin("birth", LoggedEvent(1, 1, created), limits=LIMITS)
        brands = ["acme"] * 2 + ["other"] * (N_ITEMS - 2)
        features = [Features.of({"brand": brand}) for brand in brands]
        self.happen(ItemsChanged(tuple(Item(f"i{n}", features=one) for n, one in enumerate(features))))

    def happen(self, event: Event) -> None:
        self.model = fold(self.model, LoggedEvent(self.model.version + 1, 1, event))

    def visit(self, number: int, features: Features | None = None) -> Recommendation:
        """Show a slate and reward it; with features the context says nothing of what is liked."""
        context = 0.0 if features is not None else float(self.rng.uniform(-1.0, 1.0))
        request = RecommendationRequest(f"r{number}", features or (1.0, context), None)
        self.before, self.asked = self.model, request
        given = choose_slate(self.model, request)
        slate = tuple(int(item[1:]) for item in given.slate)
        worth = (AT_ZERO + SLOPES * context)[EVERY] @ WEIGHTS
        [place] = np.flatnonzero((slate == EVERY).all(axis=1))
        self.lost += worth.max() - worth[place]
        self.at_best.append(worth.max() - worth[HAS_ACME].max())
        self.with_acme.append(bool(HAS_ACME[place]))
        reward = float(worth[place] + 0.1 * self.rng.standard_normal())
        self.happen(Recommended(request, given))
        self.happen(Rewarded(given.recommendation_id, reward, Shown(request.context, given.slate, 1)))
        return given


def promise(share: float, group: Group = OF_ACME) -> SlateRule:
    return SlateRule(Exposure(group, share))


def price_of(rules: tuple[SlateRule, ...], *, visits: int, learned: int) -> tuple[Shop, float]:
    """Return a shop after some visits, and what it lost since it had learned."""
    shop = Shop(rules, replace(SETTINGS, exploration=Exploration(PaperBeta(0.1), 0.0, 0.0)))
    for number in range(learned):
        shop.visit(number)
    before = shop.lost
    for number in range(learned, visits):
        shop.visit(number)
    return shop, shop.lost - before


@pytest.mark.long_form
def test_a_promise_is_kept_where_it_costs_least() -> None:
    """Beside the best policy that knows all: it shows the brand in the fifth of the contexts where that costs least."""
    visits, learned, share = usual_or_long(500, long=100_000), 150, 0.2
    shop, lost = price_of((promise(share),), visits=visits, learned=learned)
    (kept,) = shop.model.exposures.promises
    assert (kept.slates, kept.shown) == (visits, sum(shop.with_acme))
    assert kept.shown == pytest.approx(share * visits - kept.owed)
    assert kept.owed < 30
    free, lost_without = price_of((), visits=visits, learned=learned)
    n_after, costs = visits - learned, np.sort(shop.at_best[learned:])
    cheapest, evenly, paid = costs[: round(share * n_after)].sum(), share * costs.sum(), lost - lost_without
    print(f"{kept.shown} of {kept.slates} slates, {share:.0%} promised; regret {lost:.1f}")
    print(f"paid {paid:.1f}; the best policy pays {cheapest:.1f}, one that looks at no context {evenly:.1f}")
    assert np.mean(free.with_acme[learned:]) < share / 2
    assert paid < (cheapest + evenly) / 2
    assert lost <= 1.1 * cheapest or visits < 100_000


def test_a_promise_is_kept_where_contexts_say_nothing() -> None:
    """What all contexts share is then most of what slates are expected to earn, and a price is in that unit."""
    schema = (Feature("mobile", Boolean()),)
    settings = replace(SETTINGS, context_dim=width_of(schema), context_schema=schema)
    shop = Shop((promise(0.2),), settings)
    for number in range(300):
        shop.visit(number, Features.of({"mobile": bool(number % 3)}))
    assert shop.model.state.shared > 10.0
    (kept,) = shop.model.exposures.promises
    assert kept.owed < 30


def test_what_is_owed_is_a_queue_with_bounds() -> None:
    queue = Promise(Exposure(OF_ACME, 0.25))
    for is_shown, owed in ((False, 0.25), (False, 0.5), (True, -0.25), (True, -1.0)):
        queue = queue.after(is_shown=is_shown)
        assert queue.owed == pytest.approx(owed)
    for _ in range(5_000):
        queue = queue.after(is_shown=False)
    assert queue.owed == 1000.0
    for _ in range(5_000):
        queue = queue.after(is_shown=True)
    assert (queue.owed, queue.slates, queue.shown) == (-20.0, 10_004, 5_002)


def test_propensities_of_slates_that_pay_are_those_of_the_slates_with_an_item_of_the_group() -> None:
    exploration = Exploration(ConstantBeta(0.0), uniform_share=0.3, near_share=0.0)
    shop = Shop((promise(1.0),), replace(SETTINGS, exploration=exploration))
    shop.visit(0)
    every = list(permutations(range(N_ITEMS), SIZE))
    of_acme, paid = [one for one in every if min(one) < 2], 0
    for number in range(1, 80):
        given = shop.visit(number)
        best = [int(item[1:]) for item in given.best_slate or given.slate]
        free = choose_slate(replace(shop.before, exposures=NOTHING_PROMISED), shop.asked)
        pays = given != free
        allowed = of_acme if pays else every
        assert tuple(int(item[1:]) for item in given.slate) in allowed
        assert given.paid == (("at least 1 of all slates show one of brand acme",) if pays else ())
        assert not (pays and {"i0", "i1"} & {*(free.best_slate or free.slate)})
        is_best = given.slate == tuple(f"i{item}" for item in best)
        assert given.propensity == pytest.approx(0.3 / len(allowed) + 0.7 * is_best, abs=1e-12)
        paid += pays
        if pays:
            others = explain(shop.before, shop.asked, given).next_best
            assert others
            assert all({"i0", "i1"} & {*one.slate} for one in others)
    assert paid > 10


def test_no_other_rule_gives_way_and_what_can_not_be_paid_is_owed() -> None:
    hidden = SlateRule(Exclude(("i0", "i1")), may_relax=True)
    shop = Shop((hidden, promise(0.5)))
    given = [shop.visit(number) for number in range(6)]
    assert not any(one.relaxed for one in given)
    assert not any(shop.with_acme)
    assert shop.model.exposures.promises[0].owed == 3.0


def test_slates_that_are_not_the_bandits_own_count_nowhere() -> None:
    baseline = replace(SETTINGS, baseline_item_ids=("i4", "i5"), rules=(promise(0.5),))
    for changed in (replace(baseline, stage=Stage.SHADOW), replace(baseline, stage=Stage.OFF)):
        shop = Shop((promise(0.5),), changed)
        shop.visit(0)
        assert shop.model.exposures.promises == (Promise(Exposure(OF_ACME, 0.5)),)
    control = Shop((promise(0.5),), replace(baseline, control_share=0.5))
    groups = [control.visit(number).group for number in range(30)]
    assert control.model.exposures.promises[0].slates == sum(one.value == "bandit" for one in groups) < 30


def test_a_promise_goes_on_through_other_changes_of_rules() -> None:
    shop = Shop((promise(0.5),))
    for number in range(4):
        shop.visit(number)
    (kept,) = shop.model.exposures.promises
    more = (promise(0.25, Group(item_ids=("i5",))), SlateRule(Count(OF_ACME, most=1)), promise(0.5))
    shop.happen(SettingsChanged(replace(shop.model.settings, rules=more)))
    assert shop.model.exposures.promises == (Promise(Exposure(Group(item_ids=("i5",)), 0.25)), kept)
    shop.happen(SettingsChanged(replace(shop.model.settings, rules=(promise(0.4),))))
    assert shop.model.exposures.promises == (Promise(Exposure(OF_ACME, 0.4)),)


def test_a_snapshot_has_what_is_owed_and_the_same_slates_follow() -> None:
    shop = Shop((promise(0.3), promise(0.2, Group(item_ids=("i5", "i4")))))
    for number in range(40):
        shop.visit(number)
    shop.model = _at_checkpoint(shop)
    again = decode_model(encode_model(shop.model, NEWEST), limits=LIMITS)
    assert again.exposures == shop.model.exposures
    assert digests_of(again) == digests_of(shop.model)
    for number in range(100, 110):
        request = RecommendationRequest(f"r{number}", (1.0, 0.1 * (number - 105)), None)
        assert choose_slate(again, request) == choose_slate(shop.model, request)


def _at_checkpoint(shop: Shop) -> Model:
    number = 40
    while shop.model.since_checkpoint:
        shop.visit(number)
        number += 1
    return shop.model


def test_a_request_promises_nothing() -> None:
    shop = Shop()
    with pytest.raises(InvalidArgumentError, match=r"rules\[0\]\.exposure: is a rule of a bandit"):
        choose_slate(shop.model, RecommendationRequest("r", (1.0, 0.0), None, rules=(promise(0.5),)))


def owing(*owed: float) -> Exposures:
    rules = (Exposure(Group(item_ids=(f"i{n}",)), 0.1) for n in range(len(owed)))
    return Exposures(tuple(Promise(rule, 9, 4, one) for rule, one in zip(rules, owed, strict=True)))


@pytest.mark.parametrize(("owed", "is_owed"), [((), False), ((0.0, -1.0), False), ((0.5, -1.0), True)])
def test_something_is_owed_as_soon_as_any_promise_is(owed: tuple[float, ...], *, is_owed: bool) -> None:
    assert owing(*owed).is_anything_owed is is_owed


def test_a_slate_pays_for_what_is_owed_and_what_it_does_not_show() -> None:
    exposures, items = owing(0.5, 0.0, 2.0, 1.0), Shop().model.items
    first, _, third, fourth = exposures.promises
    assert find_unpaid(exposures, ("i4", "i5"), items) == (first, third, fourth)
    assert find_unpaid(exposures, ("i2", "i5"), items) == (first, fourth)
    assert find_unpaid(exposures, ("i2", "gone"), items) == (first, third, fourth)
    assert rules_that_pay((first, third)) == (
        SlateRule(Count(Group(item_ids=("i0",)), least=1)),
        SlateRule(Count(Group(item_ids=("i2",)), least=1)),
    )
    assert can_pay((first, third), 0.1 * 4.0 * 2.5, spread=4.0)
    assert not can_pay((first, third), 0.1 * 4.0 * 2.5 + 1e-9, spread=4.0)


def test_a_promise_is_described_as_it_was_kept() -> None:
    assert describe_exposures(owing(0.5, -2.0)) == (
        ExposureStats("at least 0.1 of all slates show one of i0", 9, 4, 0.5),
        ExposureStats("at least 0.1 of all slates show one of i1", 9, 4, -2.0),
    )


def test_where_features_of_items_are_unknown_nothing_is_counted_and_none_is_shown() -> None:
    shop, exposures = Shop(), owing(0.5)
    unknown = replace(shop.model.items, catalogue=None)
    given = shop.visit(0)
    recommended = LoggedEvent(9, 1, Recommended(shop.asked, given))
    assert exposures.after(recommended, unknown) is exposures
    assert find_unpaid(exposures, ("i0", "i1"), unknown) == exposures.promises
