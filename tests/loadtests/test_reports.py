from __future__ import annotations

import io
import math
from typing import TYPE_CHECKING

import pytest
from rich.console import Console
from tests.loadtests.jobs import failing, squared

import runner
import suite
from figures import Bench, Figure, Outcome, exponent
from report import overview, save, save_markdown
from targets import Target, missed, read_targets

if TYPE_CHECKING:
    from pathlib import Path

TARGETS = {"speed": Target(at_least=50.0), "error": Target(at_most=0.01)}
ABOUT = {
    "started": "now",
    "quick": True,
    "commit": "abc",
    "versions": {"numpy": "2", "torch": None},
    "machine": {"processor": "one", "cores": 2, "system": "here"},
}


def outcome(**figures: float) -> Outcome:
    return Outcome([Figure(key, f"the {key}", value) for key, value in figures.items()])


def test_targets_are_met_or_missed() -> None:
    assert not missed(outcome(speed=50.0, error=0.01), TARGETS)
    assert [figure.key for figure in missed(outcome(speed=49.9, error=0.02), TARGETS)] == ["speed", "error"]
    assert [figure.key for figure in missed(outcome(speed=math.nan, error=0.0), TARGETS)] == ["speed"]


def test_what_an_absent_peer_would_have_given_is_not_missed_but_said() -> None:
    without = Outcome([Figure("error", "the error", 0.5)], absent=["torch"])
    assert [figure.key for figure in missed(without, TARGETS)] == ["error"]
    with pytest.raises(KeyError):
        missed(outcome(error=0.5), TARGETS)
    console = Console(width=100, file=io.StringIO())
    with console.capture() as capture:
        console.print(overview({"duel": without}, {"duel": TARGETS}))
    text = capture.get()
    assert "not measured" in text
    assert "MISSED" in text


def test_markdown_holds_every_target_and_every_figure(tmp_path: Path) -> None:
    file = tmp_path / "figures.md"
    save_markdown(file, {"duel": outcome(speed=60.0, error=0.5, other=3.0)}, {"duel": TARGETS}, ABOUT)
    text = file.read_text(encoding="utf-8")
    assert "| duel | the speed | 60.00 | at least 50.00 | met |" in text
    assert "| duel | the error | 0.500 | at most 0.010 | MISSED |" in text
    assert "| the other | 3.000 |" in text


def test_what_is_not_finite_becomes_null(tmp_path: Path) -> None:
    file = tmp_path / "folder" / "figures.json"
    save(file, {"duel": outcome(speed=math.nan)}, {}, ABOUT)
    assert '"value": null' in file.read_text(encoding="utf-8")


def test_every_target_is_of_a_benchmark_that_there_is() -> None:
    targets = read_targets(runner.BUDGETS)
    assert set(targets) <= set(suite.names())
    assert all(figures for figures in targets.values())


def test_exponents_are_fitted() -> None:
    assert exponent([10, 100, 1000], [3 * size**1.7 for size in (10, 100, 1000)]) == pytest.approx(1.7)


@pytest.mark.slow
def test_a_job_alone_reports_from_its_process(capfd: pytest.CaptureFixture[str]) -> None:
    heard: list[tuple[int, int]] = []
    bench = Bench(quick=True, report=lambda done, total: heard.append((done, total)))
    assert bench.alone(squared, 7) == 49
    assert heard == [(7, 14)]
    with pytest.raises(RuntimeError, match="failing"):
        bench.alone(failing, 7)
    assert "on purpose" in capfd.readouterr().err
