"""The experiment on the kernels' order: what is compared with what, and what is said of it."""

from __future__ import annotations

import argparse
import csv
import json
from typing import TYPE_CHECKING

import numpy as np
import pytest

from topk_bandit.commands.cli import main
from topk_bandit.lab.experiments import arguments, lineups, order_plans, plans
from topk_bandit.lab.experiments.factors_file import factors_of
from topk_bandit.lab.simulation.episodes import ProblemSize, play
from topk_bandit.lab.simulation.policies import Policy
from topk_bandit.lab.simulation.scenarios import Batches, Scenario
from topk_bandit.learning.environments import Objective, Shop

if TYPE_CHECKING:
    from pathlib import Path

    from topk_bandit.lab.experiments.plan import Plan
    from topk_bandit.lab.simulation.episodes import Visit

TRIALS, ROUNDS = 2, 6
PANELS = (
    "ndcg_five_users", "ndcg_one_user", "mostly_ndcg_five_users", "mostly_ndcg_one_user", "ndcg_diversity_five_users",
    "ndcg_diversity_one_user", "diversity_five_users", "diversity_one_user",
)  # fmt: skip


def order_of(*words: str) -> Plan:
    parser = argparse.ArgumentParser()
    arguments.add_arguments(parser)
    return plans.make_plan(parser.parse_args(["order", *words, "--out=here"]))


class Noting:
    """Shows one slate always, and notes who came and what was earned."""

    def __init__(self, first: int) -> None:
        self.slate = np.arange(first, first + 3, dtype=np.int32)
        self.contexts: list[list[float]] = []
        self.rewards: list[float] = []

    def choose(self, visit: Visit) -> np.ndarray:
        self.contexts.append(visit.context.tolist())
        return self.slate

    def observe(self, number: int, reward: float) -> None:
        assert number == len(self.rewards)
        self.rewards.append(reward)

    def close(self, number: int) -> None:
        raise AssertionError(number)


def test_kernels_are_compared_with_the_same_customers_and_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    players: list[Noting] = []

    def noting(_known: ProblemSize, _rng: np.random.Generator) -> Noting:
        players.append(Noting(4 * (len(players) // TRIALS % 4)))
        return players[-1]

    names = [policy.name for policy in lineups.the_nine()]
    monkeypatch.setattr(lineups, "the_nine", lambda: tuple(Policy(name, name.split()[0], noting) for name in names))
    monkeypatch.setattr(lineups, "without_kernels", lambda: (Policy("other", "other", noting),))
    plan = order_of(f"--trials={TRIALS}", f"--rounds={ROUNDS}")
    played = len(PANELS) * 4 * TRIALS
    measured = np.array([job.run() for job in plan.jobs[:played]])
    shape = len(PANELS), 4, TRIALS
    noise = np.array([player.rewards for player in players]) - measured[:, 1, : len(players[0].rewards)]
    noise = noise.reshape(*shape, -1)
    # Whatever the objective and the kernel, a trial has its own noise, and its own customers.
    of_trials = noise[0, 0]
    np.testing.assert_allclose(noise[::2], np.broadcast_to(of_trials, noise[::2].shape), atol=1e-12)
    assert np.abs(of_trials[0] - of_trials[1]).min() > 1e-6
    for s in range(len(PANELS)):
        for trial in range(TRIALS):
            met = [players[(4 * s + policy) * TRIALS + trial].contexts for policy in range(4)]
            assert met[0] == met[1] == met[2] == met[3]
            np.testing.assert_allclose(noise[s, :, trial], np.broadcast_to(noise[s, 0, trial], (4, noise.shape[-1])))
    reasons = [np.zeros(5 * 3 + 5 + 3)] * (2 * TRIALS)
    panels = plan.gathered([*measured, *reasons])
    regret = measured[:, 0].reshape(*shape, ROUNDS).cumsum(axis=-1)
    assert np.abs(regret[:, 0] - regret[:, 1]).min() > 1e-9
    for s in range(len(PANELS)):
        wck, ck, wk, other = regret[s]
        differences = {"WCK - CK": wck - ck, "CK - WK": ck - wk, "WK - no kernel": wk - other}
        for m, name in enumerate(plan.methods):
            own = differences.get(name, np.full((TRIALS, ROUNDS), np.nan))
            np.testing.assert_array_equal(panels[s][:, m], own)


def difference_by_hand(*, seed: int, trial: int) -> np.ndarray:
    """Return WCK - CK where the objective is mostly nDCG and one user comes."""
    factors, _ = factors_of(None, None, seed)
    regrets = {}
    for policy in lineups.the_nine():
        shop = Shop.of(
            factors, np.random.default_rng([seed, 11, trial, 0]), n_items=20, slate_size=3, n_customers=1,
            objective=Objective.MOSTLY_NDCG, noise=0.05,
        )  # fmt: skip
        player = policy.make(ProblemSize(20, 3, 5, 1), np.random.default_rng([seed, 11, trial, 1]))
        rng = np.random.default_rng([seed, 11, trial, 2])
        if policy.name in {"WCK 0.05", "CK 0.05"}:
            regrets[policy.family] = play(Scenario(shop, Batches(5)), player, rounds=ROUNDS, rng=rng).regret
    return np.cumsum(regrets["WCK"] - regrets["CK"])


def test_the_command_writes_differences_and_reasons(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("order", f"--trials={TRIALS}", f"--rounds={ROUNDS}", "--seed=4")
    assert main(["experiment", *words, f"--out={tmp_path}", "--processes=1"]) == 0
    with (tmp_path / "order.csv").open(newline="", encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    points = {(line["panel"], line["method"]): [] for line in lines}  # type: dict[tuple[str, str], list[float]]
    for line in lines:
        points[line["panel"], line["method"]].append(float(line["mean"]))
    kernels, sizes, rewards = ("WCK", "CK", "WK"), ("n20_k3", "n50_k6"), 5
    expected = {(panel, name): ROUNDS for panel in PANELS for name in ("WCK - CK", "CK - WK", "WK - no kernel")}
    expected |= {(f"explained_{size}", name): rewards for size in sizes for name in kernels}
    for panel, count in (("order_free_rewards", rewards), ("order_free_kernels", len(kernels))):
        expected |= {(panel, name): count for name in ("n = 20, k = 3", "n = 50, k = 6")}
    assert {which: len(means) for which, means in points.items()} == expected
    by_hand = np.mean([difference_by_hand(seed=4, trial=trial) for trial in range(TRIALS)], axis=0)
    np.testing.assert_allclose(points["mostly_ndcg_one_user", "WCK - CK"], by_hand, rtol=1e-5, atol=1e-9)
    assert points["order_free_rewards", "n = 20, k = 3"][-1] == pytest.approx(1.0)
    wck, ck, wk = points["order_free_kernels", "n = 20, k = 3"]
    assert wk == pytest.approx(0.0, abs=1e-9)
    assert 0.6 < wck < 0.8 < 0.9 < ck < 1.0
    for size in sizes:
        *_, wck_of_diversity = points[f"explained_{size}", "WCK"]
        *_, ck_of_diversity = points[f"explained_{size}", "CK"]
        assert wck_of_diversity + 0.05 < ck_of_diversity < 1.0
    stored = json.loads((tmp_path / "order.json").read_text())
    claims = [target["claim"] for target in stored["targets"]]
    assert len(claims) == 3 * len(PANELS) + 2 * rewards
    assert claims[1] == "(a) nDCG, five users: CK <= WK in the mean, at the end"
    assert claims[-1].endswith("n = 50, k = 6, diversity: WCK >= CK in the mean")
    assert not stored["targets"][-1]["met"]
    assert "Wrote" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("behind", "met", "figure"),
    [
        ([-3.0, -3.0, -4.0, -2.0], True, "-3.00 ± 0.41: holds (7.3 standard errors, so in 4 of 4 trials)"),
        ([3.0, 3.0, 4.0, 2.0], False, "+3.00 ± 0.41: does not hold (7.3 standard errors, so in 0 of 4 trials)"),
        ([3.0, -3.0, 4.0, -2.0], False, "+0.50 ± 1.76: undecided (0.3 standard errors, so in 2 of 4 trials)"),
        ([-0.5], True, "-0.50"),
        ([0.0, 0.0], True, "+0.00"),
    ],
)
def test_a_difference_of_few_standard_errors_is_undecided(behind: list[float], *, met: bool, figure: str) -> None:
    found = order_plans._finding("WCK <= CK", {"": np.array(behind)})
    assert (found.claim, found.met, found.figure) == ("WCK <= CK", met, figure)


def test_the_end_decides() -> None:
    regret = np.zeros((1, 250))
    regret[0, [199, 249]] = -1.0, 2.0
    found = order_plans._finding("WCK <= CK", order_plans._at_times(regret))
    assert (found.met, found.figure) == (False, "after 200 rounds -1.00; after 250 rounds +2.00")
    assert list(order_plans._at_times(regret[:, :200])) == ["after 200 rounds "]
    assert list(order_plans._at_times(regret[:, :7])) == ["after 7 rounds "]


def test_what_is_more_when_better_is_given_with_its_sign() -> None:
    found = order_plans._finding("WCK >= CK", {"": np.array([0.25, 0.25, 0.26, 0.24])}, sign=-1.0, places=3)
    assert not found.met
    assert found.figure == "-0.250 ± 0.004: does not hold (61.2 standard errors, so in 0 of 4 trials)"
