"""Slates that may never be shown: what is activated is learned like any other, and the rest leaves no trace."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.bandits.harness import LIMITS, SETTINGS, assert_same, request
from tests.contracts.samples import recommendation

from topk_bandit.bandits.fold import begin, fold
from topk_bandit.bandits.snapshots import decode_model, encode_model
from topk_bandit.commands.log.dumps import Dump
from topk_bandit.commands.log.slates import LeftOut, read_slates
from topk_bandit.domain.bandits import ConstantBeta, Exploration, Item
from topk_bandit.domain.errors import CorruptDataError
from topk_bandit.learning.digests import digest_state
from topk_bandit.learning.propensities import SlateDistribution
from topk_bandit.store.events import (
    Activated,
    BanditCreated,
    Expired,
    ItemsChanged,
    Lapsed,
    LoggedEvent,
    Recommended,
    Rewarded,
    Shown,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topk_bandit.bandits.model import Model
    from topk_bandit.domain.bandits import BanditSettings
    from topk_bandit.store.events import Event

AHEAD = replace(SETTINGS, requires_activation=True)
ITEMS = ItemsChanged(tuple(Item(f"i{n}") for n in range(8)))
SLATES = [tuple(f"i{n}" for n in np.random.default_rng(seed).permutation(8)[:3]) for seed in range(60)]


def folded(settings: BanditSettings, events: Sequence[Event]) -> Model:
    model = begin("birth", LoggedEvent(1, 1, BanditCreated(settings)), limits=LIMITS)
    for event in (ITEMS, *events):
        model = fold(model, LoggedEvent(model.version + 1, 1, event))
    return model


def recommended(number: int) -> Recommended:
    asked = request(f"q{number}", context=(float(number % 7), 1.0))
    return Recommended(asked, replace(recommendation(f"r{number}"), slate=SLATES[number]))


def shown(number: int, *, instead: int | None = None) -> Shown:
    return Shown(recommended(number).request.context, SLATES[number if instead is None else instead], 1)


def activated(number: int, *, instead: int | None = None) -> Activated:
    return Activated(f"r{number}", shown(number, instead=instead), instead is not None)


def ended(number: int, *, instead: int | None = None) -> Event:
    if number % 5 == 3:
        return Expired(f"r{number}", None, None)
    return Rewarded(f"r{number}", float(np.sin(number)), shown(number, instead=instead))


def test_what_is_activated_is_learned_as_if_it_had_been_shown_at_once() -> None:
    """And what is not leaves the posterior as it is, to the bit, however it comes between."""
    plain: list[Event] = []
    ahead: list[Event] = []
    for number in range(40):
        plain.append(recommended(number))
        ahead += [recommended(number), activated(number)]
        if number % 3 == 0:
            unseen = replace(recommended(number).recommendation, recommendation_id=f"unseen{number}")
            ahead[-1:-1] = [Recommended(request(f"u{number}"), unseen)]
        if number >= 4:
            plain.append(ended(number - 4))
            ahead.append(ended(number - 4))
            ahead += [Lapsed(f"unseen{number - 4}")] if (number - 4) % 3 == 0 else []
    model, other = folded(AHEAD, ahead), folded(SETTINGS, plain)
    assert digest_state(model.state) == digest_state(other.state)
    assert (model.open_slates, other.open_slates) == (4, 4)
    assert (model.tally.inactive, model.tally.lapsed, model.tally.recommendations) == (2, 12, 54)
    assert model.tally.reward_sum == other.tally.reward_sum


def test_what_was_shown_instead_is_learned() -> None:
    model = folded(AHEAD, [recommended(0), activated(0, instead=9)])
    assert model.state.posterior.pending.rankings.tolist() == [[int(one[1:]) for one in SLATES[9]]]
    learned = fold(model, LoggedEvent(model.version + 1, 1, ended(0, instead=9)))
    assert learned.state.posterior.observed_rows.rankings.tolist() == [[int(one[1:]) for one in SLATES[9]]]
    assert learned.tally.shown_otherwise == 1


def test_a_snapshot_knows_what_is_inactive() -> None:
    events: list[Event] = []
    for number in range(30):
        events += [recommended(number), *([activated(number), ended(number)] if number % 2 else [])]
    model = folded(AHEAD, events)
    checkpoint = replace(model, state=model.state.refit(), since_checkpoint=0)
    assert_same(decode_model(encode_model(checkpoint), limits=LIMITS), checkpoint)
    assert checkpoint.tally.inactive == 15


@pytest.mark.parametrize("event", [activated(0), Lapsed("r0"), ended(0)])
def test_a_log_that_says_more_than_was_recommended_is_refused(event: Event) -> None:
    with pytest.raises(CorruptDataError):
        folded(AHEAD, [event])
    with pytest.raises(CorruptDataError):
        folded(AHEAD, [recommended(0), Lapsed("r0"), event])


def test_an_evaluation_leaves_out_what_was_shown_instead() -> None:
    rng, settings = np.random.default_rng(5), replace(AHEAD, item_capacity=8)
    best = np.arange(3, dtype=np.int32)
    drawn = SlateDistribution.of(
        Exploration(ConstantBeta(1.0), uniform_share=0.1, near_share=0.0), best, np.arange(8, dtype=np.int32)
    )
    events: list[Event] = [BanditCreated(settings), ITEMS]
    for number in range(20):
        slate = SLATES[number]
        ranking = np.array([int(one[1:]) for one in slate], dtype=np.int32)
        given = replace(
            recommendation(f"r{number}"),
            slate=slate,
            propensity=drawn.propensity(ranking),
            best_slate=("i0", "i1", "i2"),
            model_version=2,
        )
        events.append(Recommended(request(f"q{number}", context=(float(number % 7), 1.0)), given))
        if number % 4:
            other = 30 + number if number % 4 == 1 else None
            events += [
                activated(number, instead=other),
                Rewarded(f"r{number}", rng.normal(), shown(number, instead=other)),
            ]
        else:
            events.append(Lapsed(f"r{number}"))
    logged = tuple(LoggedEvent(number, 1, event) for number, event in enumerate(events, 1))
    read = read_slates(Dump("tenants/shop/bandits/home", "birth", None, logged))
    assert read.left_out == LeftOut(before_snapshot=0, without_reward=5, without_share=0, shown_otherwise=5)
    assert len(read.log) == 10
    assert read.log.slates.tolist() == [
        [int(one[1:]) for one in SLATES[number]] for number in range(20) if number % 4 in {2, 3}
    ]
