"""Runs, and what they print."""

from __future__ import annotations

import io
import os
import re
import signal
import subprocess
import sys
import time
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pytest
from rich.console import Console

from topk_bandit.domain.errors import ConfigurationError
from topk_bandit.domain.optional import import_extra
from topk_bandit.lab.experiments.plan import Axis, Job, Panel, Plan, Results, stack_trials
from topk_bandit.lab.experiments.running import run_jobs
from topk_bandit.lab.experiments.stored_results import StoredResults
from topk_bandit.lab.experiments.tables import screen_tables
from topk_bandit.lab.experiments.targets import best_everywhere, first_reaching, growth, questions_saved

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path


def screen(*, terminal: bool, width: int = 120) -> Console:
    return Console(file=io.StringIO(), force_terminal=terminal, width=width)


def printed(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def plan(run: Callable[[int], np.ndarray], *, trials: int, costs: Sequence[float] = ()) -> Plan:
    jobs = tuple(Job(partial(run, n), cost) for n, cost in zip(range(trials), costs or [1.0] * trials, strict=True))
    axis = Axis("round", "round", (1.0, 2.0))
    panels = (Panel("loss", "Panel", "ranking_loss", "loss", axis),)
    return Plan("some", "Some", panels, ("ours",), jobs, stack_trials, {"seed": 0}, lambda _: [])


def run(one: Plan, folder: Path, *, processes: int = 1, console: Console | None = None) -> list[list[float]]:
    with StoredResults(folder, one) as stored:
        console = console or screen(terminal=False)
        measured = run_jobs(one.jobs, {}, stored.store, processes=processes, console=console, title="some")
    return [job.values.tolist() for job in measured]


@pytest.mark.parametrize("processes", [1, 2])
def test_jobs_are_in_their_order_whatever_was_done_first(tmp_path: Path, processes: int) -> None:
    console = screen(terminal=False)
    costs = [float(n * 7 % 25) for n in range(25)]
    values = run(plan(partial(np.full, 2), trials=25, costs=costs), tmp_path, processes=processes, console=console)
    assert values == [[n, n] for n in range(25)]
    lines = printed(console).splitlines()
    assert len(lines) == 10
    assert re.fullmatch(r"some: 3 of 25 jobs, about \d+ s left", lines[0])
    assert lines[-1] == "some: 25 of 25 jobs"


def test_long_jobs_are_begun_first(tmp_path: Path) -> None:
    begun: list[int] = []

    def noted(number: int) -> np.ndarray:
        begun.append(number)
        return np.zeros(2)

    run(plan(noted, trials=5, costs=[1.0, 5.0, 2.0, 5.0, 9.0]), tmp_path)
    assert begun == [4, 1, 3, 2, 0]


def test_a_terminal_gets_a_bar(tmp_path: Path) -> None:
    console = screen(terminal=True)
    run(plan(partial(np.full, 2), trials=3), tmp_path, console=console)
    assert "3/3 jobs" in printed(console)
    assert "━" in printed(console)


def test_what_a_job_raises_in_another_process_is_raised_here(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="negative dimensions"):
        run(plan(partial(np.full, -1), trials=4), tmp_path, processes=2)


def results(values: np.ndarray, *, lower_is_better: bool = True) -> Results:
    n_methods, n_points = values.shape[2:]
    axis = Axis("questions", "questions asked, n", tuple(range(10, 10 * n_points + 1, 10)))
    plan = Plan(
        name="some",
        title="Some",
        panels=(Panel("loss", "Panel", "ranking_loss", "loss", axis, lower_is_better=lower_is_better),),
        methods=("ours", "uniform", "third")[:n_methods],
        jobs=(),
        gathered=stack_trials,
        settings={},
        targets=lambda _: [],
    )
    return Results(plan, stack_trials(values))


def test_means_and_standard_errors_are_over_runs() -> None:
    found = results(np.array([1.0, 2.0, 6.0]).reshape(3, 1, 1, 1))
    assert found.mean[0].item() == pytest.approx(3.0)
    assert found.standard_error[0].item() == pytest.approx(np.sqrt(7.0 / 3.0))


@pytest.mark.parametrize(("better", "won"), [("lower", "at 1 of 3"), ("higher", "at 2 of 3")])
def test_ours_has_to_be_best_at_every_point(better: str, won: str) -> None:
    values = np.array([[3.0, 1.0, 5.0], [2.0, 2.0, 4.0], [2.5, 1.5, 4.5]])[None, None]
    [target] = best_everywhere(results(values, lower_is_better=better == "lower"))
    assert (target.met, target.figure) == (False, won)
    best = np.array([[1.0, 1.0, 1.0], [2.0, 2.0, 4.0], [2.5, 1.5, 4.5]])[None, None]
    assert best_everywhere(results(best))[0].met
    assert not best_everywhere(results(np.ones((1, 1, 2, 3))))[0].met


def test_how_far_ours_is_behind_is_given_in_standard_errors_of_the_difference() -> None:
    ours, other = np.array([5.0, 7.0, 9.0]), np.array([4.0, 7.0, 7.0])
    values = np.stack([ours, other], axis=1)[:, None, :, None]
    [target] = best_everywhere(results(values))
    # Differences 1, 0 and 2: mean 1, standard deviation 1.
    assert target.figure == f"at 0 of 1, elsewhere behind by up to {np.sqrt(3.0):.1f} standard errors of the difference"
    assert best_everywhere(results(values, lower_is_better=False))[0].figure == "at 1 of 1"


@pytest.mark.parametrize(
    ("y", "x"), [([9.0, 6.0, 2.0], 22.5), ([9.0, 4.0, 6.0], 18.0), ([5.0, 9.0, 9.0], 10.0), ([9.0, 8.0, 5.1], None)]
)
def test_where_a_curve_comes_down_to_a_bar_is_found_by_interpolation(y: list[float], x: float | None) -> None:
    assert first_reaching(np.array([10.0, 20.0, 30.0]), np.array(y), 5.0) == x


@pytest.mark.parametrize(
    ("ours", "figure"),
    [
        ([9.0, 6.0, 2.0], "with 22 (75%), by interpolation"),
        ([9.0, 4.0, 4.0], "with 18 (60%), by interpolation"),
        ([9.0, 8.0, 7.0], "not reached"),
    ],
)
def test_questions_saved_are_given_beside_their_target(ours: list[float], figure: str) -> None:
    target = questions_saved(results(np.array([ours, [9.0, 7.0, 5.0]])[None, None]), 0, beside=0)
    assert target.figure == figure
    assert target.met == ("60%" in figure)
    assert target.claim == "Panel: ours reaches with <= 65 % what uniform reaches with 30"


def test_growth_is_more_than_two_standard_errors() -> None:
    values = np.array([[1.0, 1.3], [1.0, 1.0], [1.0, 1.3]])[None, None] + np.array([-0.1, 0.1])[:, None, None, None]
    values[:, 0, 2] = [[1.0, 1.0], [1.0, 1.6]]
    with_features = results(values)
    assert [target.met for target in growth(with_features)] == [False, True, True]
    assert [target.figure for target in growth(with_features)] == ["1.000 to 1.300", "1.000 to 1.000", "1.000 to 1.300"]


def test_the_best_of_each_point_is_bold() -> None:
    console = screen(terminal=True)
    [(heading, table)] = screen_tables(results(np.array([[1.0, 4.0], [2.0, 3.0]])[None, None]), width=console.width)
    assert heading == "Panel: loss"
    console.print(table)
    [ours] = [line for line in printed(console).splitlines() if "ours" in line]
    [uniform] = [line for line in printed(console).splitlines() if "uniform" in line]
    assert "\x1b[1m1.000" in ours
    assert "\x1b[1m4.000" not in ours
    assert "\x1b[1m3.000" in uniform


@pytest.mark.parametrize(("width", "points"), [(40, 2), (80, 3), (100, 4), (300, 9)])
def test_a_table_has_as_many_points_as_fit(width: int, points: int) -> None:
    console = screen(terminal=False, width=width)
    [(_, table)] = screen_tables(results(np.ones((2, 1, 2, 9))), width=width)
    assert len(table.columns) == 1 + points
    console.print(table)
    assert ("…" in printed(console)) == (width < 60)


def test_a_package_that_is_missing_is_named_with_how_to_install_it() -> None:
    with pytest.raises(ConfigurationError) as raised:
        import_extra("matplotless.pyplot", "drawing")
    assert str(raised.value) == "drawing needs matplotless: pip install 'topk-bandit[experiments]'"
    assert import_extra("json.decoder", "reading").__name__ == "json.decoder"


def test_ctrl_c_stops_all_processes_without_a_word(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "topk_bandit", "experiment", "aggregation", "--processes=2", f"--out={tmp_path}"]
    with subprocess.Popen(
        command, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "Preparing aggregation ...\n"
        os.killpg(process.pid, signal.SIGINT)
        try:
            output, complaints = process.communicate(timeout=300)
        except subprocess.TimeoutExpired:  # nothing of it may outlive the test
            os.killpg(process.pid, signal.SIGKILL)
            raise
    assert (process.returncode, output, complaints) == (130, "", "")
    assert list(tmp_path.iterdir()) == []
    while is_there(process.pid):  # what watches over shared memory goes a moment after the others
        time.sleep(0.05)


def is_there(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True
