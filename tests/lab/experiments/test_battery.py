"""The battery as a command: the files, the table beside the best rivals in hindsight, and coverage."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING

import numpy as np
import pytest

from topk_bandit.commands.cli import main
from topk_bandit.lab.experiments import battery_plans, battery_results, lineups, policy_names
from topk_bandit.lab.experiments.battery_plans import measure
from topk_bandit.lab.experiments.battery_results import COVERAGE, PRICES, Layout, rivalry, summaries, targets
from topk_bandit.lab.experiments.plan import Plan, Results
from topk_bandit.lab.experiments.report import section_of, write_report
from topk_bandit.lab.simulation.battery.catalogue import SHOPS
from topk_bandit.lab.simulation.battery.playing import Rounds, open_shop, play
from topk_bandit.lab.simulation.battery.shop import Values
from topk_bandit.lab.simulation.policies import SERVICE, random_slates, shipped_service

if TYPE_CHECKING:
    from pathlib import Path

LINEAR = [f"linear Thompson {one}" for one in ("1/0.1", "1/0.3", "10/0.1", "10/0.3", "100/0.3", "100/1")]


def shops(folder: Path, *words: str) -> int:
    return main(["experiment", "shops", *words, "--out", str(folder), "--processes=1"])


def lines(folder: Path) -> dict[tuple[str, str, str], float]:
    with (folder / "shops.csv").open(newline="", encoding="utf-8") as file:
        return {(line["panel"], line["method"], line["round"]): float(line["mean"]) for line in csv.DictReader(file)}


def test_from_the_command_to_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--quick", "--rounds=6,17", "--shops=clicks-8,additive", "--seeds=2", "--seed=4")
    assert shops(tmp_path, *words) == 0
    printed = capsys.readouterr().out
    assert "Regret of a round so far, as a share of the gain" in printed
    assert "additive, best rival in hindsight" in printed
    assert f"How often {SERVICE}'s figures hold, 17 rounds" in printed
    assert "all shops, 17 rounds: >= 20% less regret than the best rivals in hindsight: " in printed
    assert (tmp_path / "shops.png").stat().st_size > 10_000
    found = lines(tmp_path)
    methods = [SERVICE, "Random", "popularity", *LINEAR, "VW CCB", "VW slates"]
    assert {method for _, method, _ in found} == set(methods)
    assert {panel for panel, _, _ in found} == {
        f"{shop}{what}"
        for shop in ("additive", "clicks-8")
        for what in ("", "_so_far", "_best_fixed_slate", *(f"_{key}" for key in COVERAGE))
    }
    # The figures of the service are those of a game that is played by name.
    gains = [open_shop("additive", seed=seed, rounds=17).values for seed in (4, 5)]
    played = [play("additive", shipped_service(), 17, seed) for seed in (4, 5)]
    shares = [one.regret / (gain.contextual - gain.random) for one, gain in zip(played, gains, strict=True)]
    for rounds in (6, 17):
        mean = np.mean([share[:rounds].mean() for share in shares])
        assert found["additive_so_far", SERVICE, str(rounds)] == pytest.approx(mean, rel=1e-5)
    assert found["additive", SERVICE, "3"] == pytest.approx(np.mean([share[:3].mean() for share in shares]), rel=1e-5)
    within = [np.mean((np.abs(one.expected - one.mean) <= one.deviation)[1:]) for one in played]
    assert found["additive_within_1_sd", SERVICE, "17"] == pytest.approx(np.mean(within), rel=1e-5)
    write_report([section_of("shops", tmp_path)], tmp_path / "report.html", command="again")
    page = (tmp_path / "report.html").read_text()
    assert "ours - its regret" in page
    assert "true regret &lt;= bound" in page
    assert "What exploration gives up" in page


def test_it_goes_on_where_it_was_stopped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("--rounds=4,9", "--shops=additive", "--seeds=2", "--policies=random,popularity")
    assert shops(tmp_path / "whole", *words) == 0
    done = []

    def stopping(*given: object, real: object = battery_plans.play_in, **named: object) -> Rounds:
        if len(done) == 3:
            raise KeyboardInterrupt
        done.append(given)
        return real(*given, **named)  # type: ignore[operator,no-any-return]

    with monkeypatch.context() as patched:
        patched.setattr(battery_plans, "play_in", stopping)
        with pytest.raises(KeyboardInterrupt):
            shops(tmp_path / "parts", *words)
    capsys.readouterr()
    assert shops(tmp_path / "parts", *words) == 0
    assert "shops: 3 of 4 jobs are done" in capsys.readouterr().out
    assert (tmp_path / "parts" / "shops.csv").read_bytes() == (tmp_path / "whole" / "shops.csv").read_bytes()


def test_without_the_service_there_is_no_coverage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--rounds=4", "--shops=regulars", "--seeds=1", "--policies=random,popularity")
    assert shops(tmp_path, *words) == 0
    assert "figures hold" not in capsys.readouterr().out
    assert json.loads((tmp_path / "shops.json").read_text())["targets"] == []


def test_vw_slates_is_left_out_where_there_are_very_many_items(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--rounds=2", "--shops=thousand,additive", "--seeds=1", "--policies=random,vw-slates")
    assert shops(tmp_path, *words) == 0
    assert "VW slates is left out of shops with more than 500 items: minutes a trial." in capsys.readouterr().out
    found = lines(tmp_path)
    assert ("additive", "VW slates", "1") in found
    assert ("thousand", "Random", "1") in found
    assert ("thousand", "VW slates", "1") not in found


def test_without_vowpalwabbit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy_names, "find_spec", lambda name: None if name == "vowpalwabbit" else find_spec(name))
    policies, notes = lineups.of_battery(lineups.OF_BATTERY)
    assert [policy.name for policy in policies] == [SERVICE, "Random", "popularity", *LINEAR]
    assert len(notes) == 1
    assert "vowpalwabbit is not installed" in notes[0]
    assert lineups.of_battery(["random"])[1] == ()


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("--shops=additive,flight",), "--shops: expected some of films, "),
        (("--policies=service,luck",), "--policies: expected some of service, random, "),
        (("--rounds=20,10",), "argument --rounds: expected increasing numbers"),
        (("--seeds=0",), "argument --seeds: expected at least 1"),
    ],
)
def test_a_wrong_call_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], problem: str
) -> None:
    try:
        assert shops(tmp_path, *words) != 0
    except SystemExit as end:
        assert end.code != 0  # noqa: PT017 - argparse or the command, whoever finds it
    assert problem in capsys.readouterr().err


def test_one_s_own_ratings(tmp_path: Path) -> None:
    pytest.importorskip("implicit")
    rng = np.random.default_rng(0)
    text = "".join(f"{u}\t{i}\t{rng.integers(1, 6)}\t0\n" for u in range(40) for i in rng.choice(70, 20, replace=False))
    (tmp_path / "u.data").write_text(text)
    words = ("--rounds=3,5", "--shops=additive,candidates", "--seeds=1", "--policies=random,linear")
    assert shops(tmp_path, *words, f"--ratings={tmp_path / 'u.data'}") == 0
    settings = json.loads((tmp_path / "shops.json").read_text())["settings"]
    assert settings["factors"] == "of 800 ratings in u.data"
    assert settings["factor_shapes"] == [[40, 5], [70, 5]]


def test_what_is_measured_of_an_episode() -> None:
    rng = np.random.default_rng(0)
    played = Rounds(*rng.random((12, 20)))
    played = played._replace(best=played.expected + rng.random(20), heard=np.maximum(np.arange(20.0) - 1.0, 0.0))
    values = Values(random=1.0, fixed=2.5, contextual=3.0)
    row = measure(played, (5, 20), values=values)
    assert row.shape == (8 + 2 + 1 + 2 * (4 + 4),)
    assert row[0] == pytest.approx(played.regret[:3].mean() / 2.0)
    assert row[7] == pytest.approx(played.regret[-2:].mean() / 2.0)
    assert row[8:10] == pytest.approx([played.regret[:5].mean() / 2.0, played.regret.mean() / 2.0])
    assert row[10] == 0.25
    within, twice, bound, ratio = row[11:15]
    # Before the third round nothing was heard of.
    off = [abs(played.expected[t] - played.mean[t]) / played.deviation[t] for t in range(2, 5)]
    assert within == np.mean([one <= 1.0 for one in off])
    assert twice == np.mean([one <= 2.0 for one in off])
    assert bound == np.mean([played.regret[t] <= played.regret_bound[t] for t in range(2, 5)])
    assert ratio == pytest.approx(played.estimated_regret[2:5].mean() / played.regret[2:5].mean())
    # In the last half of the rounds, as far as it was looked at.
    assert row[15:19] == pytest.approx([getattr(played, name)[2:5].mean() / 2.0 for name in PRICES])
    some = played._replace(**{name: np.where(np.arange(20) % 3 == 0, getattr(played, name), np.nan) for name in PRICES})
    priced = measure(some, (5, 20), values=values)
    assert priced[23:] == pytest.approx([getattr(played, name)[[12, 15, 18]].mean() / 2.0 for name in PRICES])
    none = measure(played._replace(**dict.fromkeys(PRICES, np.full(20, np.nan))), (5, 20), values=values)
    assert np.isnan(none[[*range(15, 19), *range(23, 27)]]).all()
    silent = measure(played._replace(mean=np.full(20, np.nan)), (5, 20), values=values)
    assert np.isnan(silent[[*range(11, 15), *range(19, 23)]]).all()
    late = measure(played._replace(heard=np.maximum(np.arange(20.0) - 9.0, 0.0)), (5, 20), values=values)
    assert np.isnan(late[11:15]).all()
    assert np.isfinite(late[19:]).all()


def results_of(so_far: np.ndarray, coverage: np.ndarray) -> tuple[Layout, Results]:
    """Results of shops a and b after 10 and 20 rounds; `so_far` (shops, trials, methods, 2), `coverage` (shops, 4)."""
    methods = (SERVICE, "Random", "linear Thompson 1/0.1", "linear Thompson 1/0.3")
    families = (SERVICE, "Random", "linear Thompson", "linear Thompson")
    names, horizons = ("a", "b"), (10, 20)
    trials = so_far.shape[1]
    figures = np.full((trials, len(methods), 2), np.nan)
    panels = battery_plans._panels(("additive", "noisy"), horizons)
    of_figures = []
    for s in range(2):
        for c in range(len(COVERAGE)):
            values = figures.copy()
            values[:, 0] = coverage[s, c]
            of_figures.append(values)
        for price in (0.01, 0.02, 0.03, 0.05):
            values = figures.copy()
            values[:, 0] = price
            of_figures.append(values)
    parts, fixed = np.ones((trials, len(methods), 8)), np.full((trials, len(methods), 1), 0.25)
    plan = Plan("shops", "t", panels, methods, (), lambda _: (), {}, lambda _: [], families=families)
    return Layout(names, horizons), Results(plan, (parts, parts, *so_far, fixed, fixed, *of_figures))


SO_FAR = np.array(
    [
        [[[0.5, 0.3], [1.0, 1.0], [0.6, 0.5], [0.7, 0.2]], [[0.7, 0.5], [1.0, 1.0], [0.6, 0.5], [0.9, 0.2]]],
        [[[0.2, 0.1], [1.0, 1.0], [0.6, 0.5], [0.7, 0.2]], [[0.2, 0.1], [1.0, 1.0], [0.6, 0.5], [0.9, 0.4]]],
    ]
)
GOOD = np.array([[0.7, 0.95, 0.9, 1.0]] * 2)


def test_the_best_rival_in_hindsight() -> None:
    _, results = results_of(SO_FAR, GOOD)
    first, last = (rivalry(results, SO_FAR[0, :, :, h]) for h in range(2))
    assert (first.rival, last.rival) == (2, 3)
    assert first.behind == pytest.approx(0.0)
    assert first.error == pytest.approx(0.1)
    assert not first.is_lost
    assert last.behind == pytest.approx(0.2)
    assert last.error == pytest.approx(0.1)
    assert last.is_lost
    assert last.ratio == pytest.approx(2.0)
    one_trial = rivalry(results, SO_FAR[0, :1, :, 1])
    assert np.isnan(one_trial.error)
    assert one_trial.is_lost


def test_targets_are_of_shops_sums_and_figures() -> None:
    coverage = GOOD.copy()
    coverage[1, 2] = 0.8
    layout, results = results_of(SO_FAR, coverage)
    met = {target.claim.partition(":")[0]: target.met for target in targets(layout, results)[:4]}
    # In 10 rounds .6 + .2 of .6 + .6; in 20 .4 + .1 of .2 + .3.
    assert met == {"all shops, 10 rounds": True, "all shops, 20 rounds": False, "a": False, "b": True}
    figures = targets(layout, results)[4:]
    assert len(targets(*results_of(SO_FAR, np.where(np.arange(2)[:, None] == 0, np.nan, coverage)))) == 5
    assert [target.met for target in figures] == [True, False]
    assert figures[1].figure == "70%, 95%, 80%"
    regret, shown, given_up = summaries(layout, results)
    assert given_up.rows[1] == ("b", *(f"{price} ± 0.000" for price in ("0.010", "0.020", "0.030", "0.050", "0.110")))
    assert regret.heads == ("shop, policy", "10", "20")
    assert [row[0] for row in regret.rows[:6]] == [
        f"a, {SERVICE}",
        "a, Random",
        "a, linear Thompson 1/0.3 *",
        "a, best fixed slate",
        "a, best rival in hindsight",
        "a, ours - its regret",
    ]
    assert regret.rows[3][1:] == ("0.250 ± 0.000",) * 2
    assert regret.rows[5] == ("a, ours - its regret", "+0.000 ± 0.100", "+0.200 ± 0.100")
    assert shown.rows[1][:2] == ("b", "0.700 ± 0.000")


def test_the_words_of_the_help_are_the_policies() -> None:
    assert battery_results.COVERAGE == COVERAGE
    assert len(SHOPS) == 22  # as the help says
    policies, _ = lineups.of_battery(["random"])
    assert policies == (random_slates(),)
    assert replace(policies[0], name="x").family == "Random"
