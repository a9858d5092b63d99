"""The simulation is the same for the same seed, finds what is planted, and finds nothing in the service."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from tests.long_forms import usual_or_long
from tests.simulation.actions import CALLS, FAULTS, plan
from tests.simulation.bugs import (
    always_doubled_reward,
    default_for_a_slate_of_nobody,
    doubled_answer,
    doubled_past_answers,
    doubled_revision,
    doubled_reward,
    doubled_rows,
    forgotten_reward,
    kept_study,
    learned_though_frozen,
    learned_though_not_shown,
    lost_activation,
    lost_amendment,
    lost_answer,
    lost_item_values,
    lost_past_answers,
    lost_revision,
    lost_reward,
    lost_rows,
    other_group,
    other_items,
    other_prior,
    other_slate,
    revision_of_another,
    stale_commit,
    unfenced_items,
    wrong_amendment,
)
from tests.simulation.campaign import describe_violation, show
from tests.simulation.running import simulate

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.server import Stores

HOURS = usual_or_long(15, long=1000)


@pytest.mark.long_form
@pytest.mark.timeout(1500)
def test_no_promise_is_broken(capsys: pytest.CaptureFixture[str]) -> None:
    status = show(seed=usual_or_long(0, long=1000), hours=HOURS)
    printed = capsys.readouterr().out
    assert status == 0, printed
    assert re.search(rf"^{HOURS} hours, .* no promise broken", printed, flags=re.MULTILINE)


# The seed chooses what the bandit is like: how many rewards a slate may have, and whether it has to be activated.
@pytest.mark.parametrize(
    ("bug", "seed", "expected"),
    [
        (doubled_reward, 0, "ended 2 times"),
        (stale_commit, 0, "ended 2 times"),
        (doubled_revision, 1, "ends a recommendation, and none is open"),
        (lost_revision, 2, "has a reward that is not learned, though others were"),
        (revision_of_another, 1, "is learned for another slate"),
        (lost_reward, 0, "was acknowledged, and is lost"),
        (default_for_a_slate_of_nobody, 0, "is recorded, and may be learned from"),
        (forgotten_reward, 9, "which what was posted does not come to"),
        (lost_item_values, 2, ", with None, which nobody posted"),
        (lost_item_values, 10, "which what was posted does not come to"),
        (other_items, 0, "which what was posted does not come to"),
        (lost_activation, 0, "was acknowledged, and is lost"),
        (other_slate, 3, "is learned for another slate"),
        (learned_though_not_shown, 0, "is learned from, and was never activated"),
        (other_group, 1, "the group control has"),
        (learned_though_frozen, 1, "is first learned while it is off"),
        (lost_amendment, 1, "was acknowledged, and is lost"),
        (wrong_amendment, 1, "which no correction makes of it"),
        (doubled_answer, 0, "of the study is answered 2 times"),
        (lost_answer, 0, "was acknowledged, and is lost"),
        (doubled_past_answers, 0, "are learned twice"),
        (lost_past_answers, 0, "were acknowledged, and are lost"),
        (doubled_rows, 2, "are learned twice"),
        (lost_rows, 2, "were acknowledged, and are lost"),
        (kept_study, 2, "deletions of the study were acknowledged, and 0 took place"),
        (other_prior, 0, "is not what 4 answers to the study come to"),
        *usual_or_long([], long=[(unfenced_items, 0, "which was retired before")]),
    ],
)
def test_a_planted_bug_is_found(bug: Callable[[Stores], Stores], seed: int, expected: str) -> None:
    outcome = simulate(seed, hours=20, wrap=bug)
    assert any(expected in violation for violation in outcome.violations)


@pytest.mark.long_form
@pytest.mark.parametrize(
    ("bug", "seed", "promise", "kinds"),
    [
        (always_doubled_reward, 0, "ended 2 times", {"recommend", "reward"}),
        *usual_or_long([], long=[(doubled_rows, 1, "are learned twice", {"import rows", "repeat rows"})]),
    ],
)
def test_a_violation_is_reported_with_the_fewest_actions_and_the_command_that_repeats_it(
    capsys: pytest.CaptureFixture[str], bug: Callable[[Stores], Stores], seed: int, promise: str, kinds: set[str]
) -> None:
    assert show(seed=seed, hours=20, wrap=bug) == 1
    printed = capsys.readouterr().out
    command = rf"^again: python -m tests.simulation --seed {seed} --hours (\d+) --only ([\d,]+)$"
    again = re.search(command, printed, flags=re.MULTILINE)
    assert again, printed
    hours, numbers = int(again[1]), [int(one) for one in again[2].split(",")]
    assert f"{len(numbers)} of " in printed
    of_plan = {action.number: action.kind for action in plan(seed, hours=hours)}
    assert len(numbers) == 2
    assert {of_plan[one] for one in numbers} == kinds
    repeated = simulate(seed, hours=hours, only=numbers, wrap=bug)
    assert any(promise in violation for violation in repeated.violations)


def test_the_same_seed_is_the_same_run_in_any_process() -> None:
    mine = simulate(3, hours=2)
    assert mine == simulate(3, hours=2)
    assert mine.trace_hash != simulate(4, hours=2).trace_hash
    command = [sys.executable, "-m", "tests.simulation", "--seed", "3", "--hours", "2"]
    for hash_seed in ("1", "2"):
        environment = os.environ | {"PYTHONHASHSEED": hash_seed}
        run = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        assert f"trace {mine.trace_hash}" in run.stdout


def test_every_kind_of_action_is_planned_and_leaving_some_out_moves_no_other() -> None:
    actions = plan(0, hours=40)
    assert {action.kind for action in actions} == {*CALLS, *FAULTS}
    assert [action.number for action in actions] == list(range(len(actions)))
    assert [action.at for action in actions] == sorted(action.at for action in actions)
    outcome = simulate(0, hours=1, only=[0, 2])
    assert {number for _, number, _ in outcome.trace} <= {-1, 0, 2}


@pytest.mark.long_form
def test_runs_have_faults_that_matter() -> None:
    outcomes = [simulate(seed, hours=usual_or_long(8, long=20)) for seed in (0, 5, 6)]
    trace = "\n".join(words for outcome in outcomes for _, _, words in outcome.trace)
    for word in (
        "is killed",
        "fails over",
        "degraded",
        "accepted",
        "duplicate",
        "late",
        "REWARD_EXISTS",
        "nothing",
        "retires",
        "activated",
        "ACTIVATION_EXISTS",
        "REWARD_FOLDED",
        "NO_REWARD",
        "REWARD_FINAL",
        ", the last for",
        " items for",
        "instead of the reward",
        "of rows-",
        "of answers-",
        "is asked how far rows-",
        "IMPORT_REUSED",
        "IMPORT_GAP",
        "ANSWER_EXISTS",
        "deletes the study: an answer",
        "cancels the design of the study: an answer",
        "takes taste as the prior of a bandit of the study: an answer",
    ):
        assert word in trace, word
    assert all(outcome.failovers > 0 for outcome in outcomes)
    assert not [violation for outcome in outcomes for violation in outcome.violations]
    assert describe_violation(1, simulate(1, hours=1), only=[]).startswith("seed 1")
