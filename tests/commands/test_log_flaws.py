"""`topk-bandit log evaluate` says what is wrong with a log: sound ones are drawn here slate by slate, and spoiled."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.bandits.harness import NAME, SETTINGS

from topk_bandit.commands.cli import main
from topk_bandit.commands.log.dumps import Dump, lines
from topk_bandit.commands.log.flaws import _is_odd, describe_changes, find_changes
from topk_bandit.commands.log.slates import read_slates
from topk_bandit.domain.bandits import ConstantBeta, Exploration, Item
from topk_bandit.domain.errors import TopkBanditError
from topk_bandit.domain.slates import Recommendation, RecommendationRequest
from topk_bandit.store.events import (
    BanditCreated,
    BanditReset,
    Expired,
    ItemsChanged,
    LoggedEvent,
    Recommended,
    Rewarded,
    SettingsChanged,
    Shown,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from topk_bandit.store.events import Event

ITEMS = "abcde"
SLATES = list(itertools.permutations(ITEMS, 2))
LOGS = 40


@dataclass
class Slate:
    """A slate with its kind, its reward, None for none, and the events that it makes."""

    recommended: Recommended
    kind: str
    reward: float | None

    def ends(self) -> list[Event]:
        given, asked = self.recommended.recommendation, self.recommended.request
        if self.reward is None:
            return [Expired(given.recommendation_id, None, None)]
        return [Rewarded(given.recommendation_id, self.reward, Shown(asked.context, given.slate, 1))]


@dataclass
class Made:
    """A log before it is written down: its exploration, its slates, and what is done to its events at the end."""

    exploration: Exploration
    slates: list[Slate]
    change: Callable[[list[Event]], list[Event]] = lambda events: events
    at_ms: Callable[[int], int] = lambda position: 1000 * position

    def dump(self) -> Dump:
        settings = replace(SETTINGS, item_capacity=5, slate_size=2, context_dim=2, exploration=self.exploration)
        events: list[Event] = [BanditCreated(settings), ItemsChanged(tuple(map(Item, ITEMS)))]
        events += [event for one in self.slates for event in (one.recommended, *one.ends())]
        logged = enumerate(self.change(events), 1)
        return Dump(str(NAME), "birth", None, tuple(LoggedEvent(at, self.at_ms(at), event) for at, event in logged))


def kind_of(slate: tuple[str, ...], best: tuple[str, ...]) -> str:
    differing = sum(mine != its for mine, its in zip(slate, best, strict=True))
    return "best" if not differing else "near" if differing == 1 or set(slate) == set(best) else "far"


def drawn(rng: np.random.Generator, exploration: Exploration, number: int, *, claimed: Exploration) -> Slate:
    """Draw a slate from the list of all, each with its probability, and log what another exploration would claim."""
    best = SLATES[int(rng.integers(len(SLATES)))]
    kinds = [kind_of(slate, best) for slate in SLATES]

    def probabilities(shares: Exploration) -> list[float]:
        near = (1.0 - shares.uniform_share) * shares.near_share
        of_kind = {"best": 1.0 - near - shares.uniform_share, "near": near / kinds.count("near"), "far": 0.0}
        return [of_kind[kind] + shares.uniform_share / len(SLATES) for kind in kinds]

    place = int(rng.choice(len(SLATES), p=probabilities(exploration)))
    given = Recommendation(
        f"id{number}", SLATES[place], probabilities(claimed)[place], 0.0, 1.0, 0.0, 0.0, kinds[place] != "best", 1, 0
    )
    asked = RecommendationRequest(f"asked{number}", (1.0, float(rng.normal())), None)
    return Slate(Recommended(asked, replace(given, best_slate=best)), kinds[place], None)


def sound(seed: int) -> tuple[Made, np.random.Generator]:
    """Return a log as it should be, whose shares, length and rewards differ from others'."""
    rng = np.random.default_rng(seed)
    shares = Exploration(ConstantBeta(1.0), float(rng.uniform(0.1, 0.3)), float(rng.uniform(0.1, 0.4)), 0)
    share, count = rng.uniform(0.5, 0.98), int(rng.integers(500, 900))
    slates = [drawn(rng, shares, number, claimed=shares) for number in range(count)]
    clicks = rng.random() < 0.5
    for one in slates:
        if rng.random() < share:
            one.reward = float(rng.random() < 0.3) if clicks else float(rng.normal())
    return Made(shares, slates), rng


def without_propensity(made: Made, rng: np.random.Generator) -> None:
    spoil_propensities(made, rng, lambda _: 0.0)


def with_wrong_propensities(made: Made, rng: np.random.Generator) -> None:
    spoil_propensities(made, rng, lambda value: min(1.0, 1.5 * value))


def spoil_propensities(made: Made, rng: np.random.Generator, to: Callable[[float], float]) -> None:
    for one in rng.choice(np.array(made.slates, dtype=object), size=9, replace=False):
        given = one.recommended.recommendation
        one.recommended = replace(one.recommended, recommendation=replace(given, propensity=to(given.propensity)))


def without_slates_that_were_explored(made: Made, rng: np.random.Generator) -> None:
    made.slates = [one for one in made.slates if one.kind == "best" or rng.random() < 0.5]


def with_another_policy_in_between(made: Made, rng: np.random.Generator) -> None:
    """From the middle on nothing is drawn uniformly any more, and what is logged still says so."""
    half = len(made.slates) // 2
    other = replace(made.exploration, uniform_share=0.0, near_share=0.0)
    for number in range(half, len(made.slates)):
        made.slates[number] = replace(
            drawn(rng, other, number, claimed=made.exploration), reward=made.slates[number].reward
        )


def with_a_change_of_settings(made: Made, rng: np.random.Generator) -> None:
    at = int(rng.integers(100, 400))

    def change(events: list[Event]) -> list[Event]:
        created = events[0]
        assert isinstance(created, BanditCreated)
        changed = replace(created.settings, exploration=replace(made.exploration, beta=ConstantBeta(2.0)))
        return [*events[:at], SettingsChanged(changed), *events[at:]]

    made.change = change


def without_rewards_of_slates_that_were_explored(made: Made, rng: np.random.Generator) -> None:
    for one in made.slates:
        if one.kind != "best" and rng.random() < 0.5:
            one.reward = None


def without_rewards_of_a_time(made: Made, rng: np.random.Generator) -> None:
    begin = int(rng.integers(20, 300))
    for one in made.slates[begin : begin + 60]:
        one.reward = None


def with_duplicates(made: Made, rng: np.random.Generator) -> None:
    for one in rng.choice(np.array(made.slates, dtype=object), size=5, replace=False):
        made.slates.insert(int(rng.integers(len(made.slates))), one)


def with_times_that_go_back(made: Made, rng: np.random.Generator) -> None:
    at = int(rng.integers(100, 900))
    made.at_ms = lambda position: 1000 * position - (3_600_000 if position > at else 0) + 10**7


def without_some_recommendations(made: Made, rng: np.random.Generator) -> None:
    gone = {one.recommended.recommendation.recommendation_id for one in made.slates[30:60]}

    def change(events: list[Event]) -> list[Event]:
        return [
            one for one in events if not (isinstance(one, Recommended) and one.recommendation.recommendation_id in gone)
        ]

    made.change = change


SPOILED = {
    without_propensity: "the propensity 0.0; its settings",
    with_wrong_propensities: "logged with the propensity",
    without_slates_that_were_explored: "not drawn with their propensities, or some are missing",
    with_another_policy_in_between: "not drawn with their propensities, or some are missing",
    with_a_change_of_settings: "the policy changed at event",
    without_rewards_of_slates_that_were_explored: "missing has to do with the slate",
    without_rewards_of_a_time: "rewards of a time are missing",
    with_duplicates: "more than once",
    with_times_that_go_back: "times go back once, first by 3,599 s",
    without_some_recommendations: "some recommendations are missing",
}


def flaws_of(made: Made) -> Sequence[str]:
    try:
        return read_slates(made.dump()).flaws
    except TopkBanditError as error:
        return [str(error)]


@pytest.mark.slow
def test_bad_logs_are_flagged_and_sound_ones_are_not() -> None:
    sound_ones = [flaws_of(sound(seed)[0]) for seed in range(LOGS)]
    bad = []
    for number, (spoil, said) in enumerate(SPOILED.items()):
        for seed in range(LOGS // len(SPOILED)):
            made, rng = sound(1000 + 10 * number + seed)
            spoil(made, rng)
            bad.append(any(said in flaw for flaw in flaws_of(made)))
    flagged = sum(map(bool, sound_ones))
    print(f"{sum(bad)} of {len(bad)} bad logs are flagged, {flagged} of {LOGS} sound ones")
    assert sum(bad) >= 0.95 * len(bad)
    assert flagged <= 0.05 * LOGS


def test_a_policy_changes_where_slates_of_two_are_shown() -> None:
    one, other = (replace(SETTINGS, exploration=Exploration(ConstantBeta(beta), 0.1)) for beta in (1.0, 2.0))
    slate = sound(1)[0].slates[0].recommended
    a, b, reset = SettingsChanged(one), SettingsChanged(other), BanditReset("again")
    for events, changes in (
        ([b, a, slate, slate], []),  # nothing was shown before
        ([slate, b, slate, a, slate], [3, 5]),
        ([slate, b, a, slate], []),  # it is the same again
        ([slate, b, reset, slate], [4]),
        ([slate, b], [3]),
        ([slate, SettingsChanged(replace(one, item_capacity=99)), slate], []),
    ):
        logged = [LoggedEvent(at, at, event) for at, event in enumerate([BanditCreated(one), *events], 1)]
        assert find_changes(logged, None) == changes, events
        assert bool([*describe_changes(logged, changes)]) == (bool(changes) and events[-1] is slate)


@pytest.mark.parametrize("n_events", [40, 4000])
def test_counts_of_chance_are_odd_no_more_often_than_said(n_events: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("topk_bandit.commands.log.flaws._CHANCE", 0.05)
    rng = np.random.default_rng(3)
    likely = rng.uniform(0.01, 0.2, size=n_events)
    odd = [_is_odd(int((rng.random(n_events) < likely).sum()), likely) for _ in range(2000)]
    assert np.mean(odd) <= 0.05 + 3.0 * np.sqrt(0.05 * 0.95 / 2000)
    twice = [_is_odd(int((rng.random(n_events) < 2.5 * likely).sum()), likely) for _ in range(200)]
    assert np.mean(twice) > 0.5


def test_what_is_wrong_is_said_before_the_estimates(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made, rng = sound(7)
    with_times_that_go_back(made, rng)
    file = tmp_path / "log.jsonl"
    file.write_text("".join(f"{line}\n" for line in lines(made.dump())), encoding="utf-8")
    assert main(["log", "evaluate", str(file)]) == 0
    told = capsys.readouterr().out.splitlines()
    (warning,) = [line for line in told[: told.index("the slates that were shown")] if line.startswith("warning: ")]
    assert warning.startswith("warning: times go back once, first by 3,599 s at event ")
    head, *rest = file.read_text(encoding="utf-8").splitlines()
    fields = json.loads(rest[2])
    del fields["event"]["recommendation"]["propensity"]
    file.write_text("\n".join([head, *rest[:2], json.dumps(fields), *rest[3:]]), encoding="utf-8")
    assert main(["log", "evaluate", str(file)]) == 1
    assert "line 4: no event: " in (said := capsys.readouterr().err)
    assert "propensity" in said
