"""The words of `topk-bandit holdout`, and its table."""

from __future__ import annotations

import math
import re
import subprocess
import sys
from pathlib import Path

import pytest

from topk_bandit.commands.cli import main
from topk_bandit.learning.holdouts import count_requests

PAGE = Path(__file__).resolve().parents[2] / "docs" / "holdout.md"
TEN_A_DAY = ["holdout", "--requests-per-day", "10"]


def test_each_cell_is_the_days_of_its_lift_and_share(capsys: pytest.CaptureFixture[str]) -> None:
    words = "holdout --requests-per-day 500 --mean 2 --spread 5 --share 0.1,0.5 --lift 0.1,0.2 --confidence 0.9"
    assert main(words.split()) == 0
    first, _, titles, *rows = capsys.readouterr().out.splitlines()
    assert "80 of 100" in first
    assert re.split(r"  +", titles) == ["lift", "control 10 %", "control 50 %"]
    for row, lift in zip(rows, (0.1, 0.2), strict=True):
        days = [
            math.ceil(count_requests(lift, mean=2, spread=5, control_share=share, confidence=0.9) / 500)
            for share in (0.1, 0.5)
        ]
        assert row.split() == [f"{100 * lift:g}", "%", *map(str, days)]


def test_rewards_are_clicks_unless_a_spread_is_given(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["holdout", "--requests-per-day", "900", "--mean", "0.2"]
    assert main(words) == 0
    of_clicks = capsys.readouterr().out
    assert main([*words, "--spread", "0.4"]) == 0
    assert capsys.readouterr().out == of_clicks


def test_what_takes_more_than_ten_years_is_a_dash(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*TEN_A_DAY, "--mean", "0.01", "--lift", "0.01", "--share", "0.1"]) == 0
    *_, row, empty, note = capsys.readouterr().out.splitlines()
    assert (row.split()[-1], empty, note[:20]) == ("-", "", "-  more than 3,650 d")


def test_a_mean_that_no_click_has_needs_a_spread(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*TEN_A_DAY, "--mean", "1"]) == 1
    assert "--spread" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("--share", "0"), ("--share", "1"), ("--share", "0.1;0.2"), ("--share", "0.1,"), ("--lift", "0"), ("--lift",
        "-0.1"), ("--mean", "0"), ("--mean", "nan"), ("--spread", "0"), ("--requests-per-day", "0"), ("--confidence",
        "1"), ("--confidence", "95"),
    ],
)  # fmt: skip
def test_a_number_that_makes_no_plan_is_refused(flag: str, value: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*TEN_A_DAY, "--mean", "0.1", flag, value])
    assert ended.value.code == 2
    assert flag in capsys.readouterr().err


def test_the_page_shows_what_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    pattern = re.compile(r"^```sh\n(topk-bandit holdout [^\n]*)\n```\n+```\n(.*?)^```$", re.MULTILINE | re.DOTALL)
    shown = pattern.findall(PAGE.read_text(encoding="utf-8"))
    assert shown
    for command, printed in shown:
        assert main(command.split()[1:]) == 0
        assert capsys.readouterr().out == printed


def test_it_needs_no_numpy() -> None:
    program = (
        "import sys\nfrom topk_bandit.commands.cli import main\n"
        "main('holdout --requests-per-day 10 --mean 0.1'.split())\nassert 'numpy' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True, stdout=subprocess.DEVNULL)
