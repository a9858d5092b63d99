"""Two policies beside each other: what their difference is, how well it is known, and with how many seeds."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest

from topk_bandit.commands.cli import main
from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.lab.experiments import comparison_plans, policy_names
from topk_bandit.lab.experiments.arguments import POLICY_NAMES
from topk_bandit.lab.experiments.comparison_plans import find_differences, seeds_needed
from topk_bandit.lab.experiments.policy_names import read_policy
from topk_bandit.lab.simulation.battery.playing import play

if TYPE_CHECKING:
    from pathlib import Path

    from topk_bandit.lab.simulation.policies import Policy


def drawn(rng: np.random.Generator, *, seeds: int, more: float = 0.0) -> np.ndarray:
    """Return regrets of three shops, which differ, and of two policies, which share most of a seed's luck."""
    luck = rng.normal(size=(seeds, 3, 1, 2)) * [[[0.05]], [[0.1]], [[0.2]]]
    own = 0.05 * rng.normal(size=(seeds, 3, 2, 2))
    return np.array([0.2, 0.5, 0.8])[:, None, None] * np.array([1.0, 1.0 + more])[:, None] + luck + own


def test_the_difference_and_its_error_are_those_of_paired_means() -> None:
    regrets = drawn(np.random.default_rng(0), seeds=7)
    found = find_differences(regrets)
    for horizon, one in enumerate(found):
        difference = regrets[:, :, 1, horizon] - regrets[:, :, 0, horizon]
        unit = float(np.mean([regrets[:, shop, 0, horizon].mean() for shop in range(3)]))
        errors = [difference[:, shop].std(ddof=1) / np.sqrt(7) for shop in range(3)]
        assert one.mean == pytest.approx(difference.mean() / unit)
        assert one.error == pytest.approx(np.sqrt(np.sum(np.square(errors))) / 3 / unit)


def test_a_difference_that_is_there_is_within_two_errors_as_often_as_it_should() -> None:
    rng, hits = np.random.default_rng(1), []
    for _ in range(400):
        one = find_differences(drawn(rng, seeds=12, more=0.1))[0]
        hits.append(abs(one.mean - 0.1) <= 2.0 * one.error)
    # 95 %, less what the unit's own luck adds; the standard error is 1.1 %.
    assert 0.91 <= np.mean(hits) <= 0.98


def test_as_many_seeds_are_needed_as_make_the_error_small_enough_but_at_most_twice_as_many() -> None:
    regrets = drawn(np.random.default_rng(2), seeds=20)
    worst = max(one.error for one in find_differences(regrets))
    assert seeds_needed(regrets, worst, 100) == 20
    assert seeds_needed(regrets, worst / np.sqrt(1.5), 100) == pytest.approx(30, abs=1)
    assert seeds_needed(regrets, worst / 10.0, 100) == 40
    assert seeds_needed(regrets, worst / 10.0, 33) == 33


def compare(out: Path, *words: str) -> int:
    return main(["experiment", "compare", f"--out={out}", "--processes=1", *words])


def test_it_plays_until_the_difference_is_known(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("random", "popularity", "--shops=additive,noisy", "--rounds=5,40", "--precision=0.04", "--seed=3")
    assert compare(tmp_path, *words) == 0
    stored, printed = json.loads((tmp_path / "compare.json").read_text()), capsys.readouterr().out
    seeds = stored["trials"]
    assert 4 < seeds < 64
    regrets = np.empty((seeds, 2, 2, 2))
    for seed, shop, policy in np.ndindex(seeds, 2, 2):
        played = play(("additive", "noisy")[shop], read_policy(words[policy]), 40, 3 + seed)
        regrets[seed, shop, policy] = comparison_plans.regret_so_far(
            played,
            (5, 40),
            values=comparison_plans.open_shop(("additive", "noisy")[shop], seed=3 + seed, rounds=40).values,
        )
    expected = find_differences(regrets)
    assert [target["met"] for target in stored["targets"]] == [True, True]
    assert max(one.error for one in expected) <= 0.04
    assert max(one.error for one in find_differences(regrets[:4])) > 0.04
    assert f"{expected[1].mean:+.1%} ± {expected[1].error:.1%}" in printed
    assert "popularity has less regret than Random" in printed


def test_it_says_that_it_cannot_tell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("linear:width=0.3", "linear:width=0.31", "--shops=noisy", "--rounds=20", "--most-seeds=4")
    assert compare(tmp_path, *words) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "MISSED 20 rounds: standard error <= 1.5%: can't tell" in printed
    assert "with 4 seeds of at most 4; some" in printed


def test_a_policy_is_read_with_its_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    made: dict[str, object] = {}

    def shipped(name: str, **settings: object) -> Policy:
        made.update(settings, name=name)
        return read_policy("random")

    monkeypatch.setattr(policy_names, "shipped_service", shipped)
    read_policy("service:near-share=0,rows=64,half-life=100,beta-scale=0.05")
    exploration = made["exploration"]
    assert (made["name"], made["rows"], made["half_life"]) == (
        "service:near-share=0,rows=64,half-life=100,beta-scale=0.05",
        64,
        100.0,
    )
    assert (exploration.near_share, exploration.uniform_share, exploration.beta.scale) == (0.0, 0.01, 0.05)  # type: ignore[attr-defined]


def test_settings_change_how_a_policy_plays() -> None:
    one, other = (play("additive", read_policy(text), 30, 0) for text in ("linear:width=0.1", "linear:width=3"))
    assert not np.array_equal(one.expected, other.expected)
    of_items = [
        play("clicks-40", read_policy(f"{name}{more}"), 60, 0)
        for name in ("service", "linear")
        for more in ("", ":item-values=1")
    ]
    assert all(
        not np.array_equal(without.expected, with_items.expected)
        for without, with_items in (of_items[:2], of_items[2:])
    )
    service = [play("additive", read_policy(text), 12, 0) for text in ("service", "service:uniform-share=0.45")]
    assert not np.array_equal(service[0].expected, service[1].expected)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("best", "expected one of service, random, popularity, linear, vw-ccb, vw-slates, got 'best'"),
        ("random:width=1", "random has no setting 'width': expected none"),
        ("linear:widht=1", "linear has no setting 'widht': expected one of ridge, width, item-values"),
        ("linear:width=wide", "expected a number that is not negative for width, got 'wide'"),
        ("linear:width=-1", "expected a number that is not negative for width, got '-1'"),
    ],
)
def test_what_is_no_policy_is_refused(text: str, reason: str) -> None:
    with pytest.raises(InvalidArgumentError) as raised:
        read_policy(text)
    assert str(raised.value) == f"POLICY: {reason}"


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("linear", "linear"), "POLICY: expected two that differ, got linear and linear"),
        (("linear", "random", "--most-seeds=3"), "--most-seeds: expected at least 4, got 3"),
        (("linear", "random", "--shops=shop"), "--shops: expected some of"),
    ],
)
def test_a_comparison_that_says_nothing_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], reason: str
) -> None:
    assert compare(tmp_path, *words) != 0
    assert reason in capsys.readouterr().err


def test_every_policy_that_a_flag_names_is_there() -> None:
    assert tuple(policy_names._NAMED) == POLICY_NAMES
