"""Mistakes of clients as an experiment: which rounds are compared, and what is found of the bandit's own figures."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING

import numpy as np
import pytest

from topk_bandit.commands.cli import main
from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.lab.experiments import mishap_plans
from topk_bandit.lab.experiments.arguments import QUICK
from topk_bandit.lab.experiments.battery_plans import choose_shops
from topk_bandit.lab.experiments.mishap_plans import window_after
from topk_bandit.lab.simulation.battery.catalogue import SHOPS
from topk_bandit.lab.simulation.battery.playing import make_player, open_shop, play_in
from topk_bandit.lab.simulation.mishaps import MISHAPS, ErringClient
from topk_bandit.lab.simulation.policies import shipped_service

if TYPE_CHECKING:
    from pathlib import Path


def test_rounds_are_looked_at_when_as_many_honest_ones_and_a_hundred_are_over() -> None:
    assert window_after(MISHAPS["tens"]) == (slice(300, 600), slice(300, 600))
    assert window_after(MISHAPS["first reward"]) == (slice(102, 402), slice(102, 402))
    assert window_after(MISHAPS["one in ten"]).erring.start == 391 + 291 + 100


def test_a_change_for_good_is_compared_with_a_new_bandit() -> None:
    assert window_after(MISHAPS["prices times 100"]) == (slice(300, 800), slice(0, 500))


def test_the_figures_are_those_of_lives_with_and_without(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mishap_plans, "_GRACE", 4)
    monkeypatch.setattr(mishap_plans, "_LENGTH", 30)
    words = ("--shops=additive", "--mishaps=test orders", "--seeds=2", "--seed=4", f"--out={tmp_path}")
    assert main(["experiment", "mishaps", *words, "--processes=1"]) == 0
    window = slice(15, 45)
    expected: dict[str, list[float]] = {mishap_plans.WITH: [], mishap_plans.WITHOUT: []}
    for seed in (4, 5):
        shop = open_shop("additive", seed=seed, rounds=45)
        for method, found in expected.items():
            player = make_player(shipped_service(), shop, seed=seed)
            if method == mishap_plans.WITH:
                player = ErringClient(player, MISHAPS["test orders"])
            regret = play_in(shop, player, rounds=45, seed=seed).regret[window]
            found.append(float(regret.mean() / (shop.values.contextual - shop.values.random)))
    with (tmp_path / "mishaps.csv").open(newline="", encoding="utf-8") as file:
        lines = {(line["panel"], line["method"]): line for line in csv.DictReader(file)}
    for method, found in expected.items():
        assert float(lines["regret_share", method]["mean"]) == pytest.approx(np.mean(found), rel=1e-5)
    assert {panel for panel, _ in lines} == {"regret_share", "within_2_sd", "bound_holds"}
    behind = np.subtract(*expected.values())
    error = np.std(behind, ddof=1) / np.sqrt(2)
    printed = " ".join(capsys.readouterr().out.split())
    assert f"{behind.mean():+.3f} ± {error:.3f}, worst {behind.max():+.2f}" in printed


def test_names_that_are_not_there_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="--shops: expected some of films"):
        choose_shops(("shop",))
    with pytest.raises(InvalidArgumentError, match="--shops"):
        choose_shops(("next-day",), without=("next-day",))
    assert choose_shops(None, without=("next-day",)) == tuple(name for name in SHOPS if name != "next-day")
    assert main(["experiment", "mishaps", f"--out={tmp_path}", "--mishaps=fire"]) != 0
    assert set(QUICK["mishaps"]["mishaps"]) <= set(MISHAPS)  # type: ignore[call-overload]
