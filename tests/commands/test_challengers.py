"""`topk-bandit log evaluate --under` on the log of a shop whose truth is known."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.bandits.harness import LIMITS
from tests.commands.test_log_evaluate import recommended, ruled, traded, worth, worth_of

from topk_bandit.bandits.choices import choose_slate
from topk_bandit.commands.cli import main
from topk_bandit.commands.log.challengers import play_challengers, settings_under, title_of
from topk_bandit.commands.log.dumps import Dump, lines
from topk_bandit.commands.log.models import replay_dump
from topk_bandit.commands.log.slates import read_slates
from topk_bandit.commands.log.verdicts import describe_best
from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.learning.evaluation.estimators import Estimate
from topk_bandit.store.events import BanditCreated, SettingsChanged
from topk_bandit.store.log import Snapshot

if TYPE_CHECKING:
    from pathlib import Path

EAGER, UNIFORM = "--uniform-share 0 --near-share 0", "--uniform-share 1 --near-share 0"


@pytest.mark.slow
def test_a_challenger_chooses_by_what_its_fork_knew_by_then() -> None:
    dump = traded().dump
    [played] = play_challengers(dump, {"": {"half_life": timedelta(minutes=10)}}, limits=LIMITS)
    forked = []
    for logged in dump.events:
        event = logged.event
        if isinstance(event, BanditCreated | SettingsChanged):
            event = replace(event, settings=replace(event.settings, half_life_ms=600_000))
        forked.append(replace(logged, event=event))
    assert len(played.slates) == len(recommended(dump))
    for position, event in recommended(dump)[5::160]:
        model = replay_dump(replace(dump, events=tuple(forked)), limits=LIMITS, last=position - 1)
        own = replace(model, incarnation=f"challenger of {model.incarnation}")
        assert played.slates[event.recommendation.recommendation_id] == choose_slate(own, event.request).slate


@pytest.mark.slow
def test_the_table_has_the_truth_and_says_which_is_best(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "log.jsonl"
    file.write_text("".join(f"{line}\n" for line in lines(traded().dump)), encoding="utf-8")
    assert main(["log", "evaluate", str(file), f"--under={EAGER}", f"--under={UNIFORM}"]) == 0
    *_, table = capsys.readouterr().out.split("\n\n")
    title, _, *rows, said = table.strip().splitlines()
    asked = read_slates(traded().dump).asked
    assert title == f"which does best, by doubly robust where ips and snips agree, on {len(asked)} requests"
    assert said.strip() == f"the bandit under {EAGER} earns most"
    assert [row.strip() for row in rows[::2]] == [f"the bandit under {EAGER}", f"the bandit under {UNIFORM}"]
    played = play_challengers(traded().dump, settings_under([EAGER, UNIFORM]), limits=LIMITS)
    for one, row in zip(played, rows[1::2], strict=True):
        slates = one.slates
        truth = np.mean([worth(slates[one.recommendation_id], one.context) for one in asked.requests])
        _, low, high = map(float, re.findall(r"[\d.]+", row))
        assert low <= truth <= high


@pytest.mark.slow
def test_challengers_are_compared_under_rules_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, dump = tmp_path / "log.jsonl", ruled()[1]
    file.write_text("".join(f"{line}\n" for line in lines(dump)), encoding="utf-8")
    assert main(["log", "evaluate", str(file), f"--under={EAGER}", f"--under={UNIFORM}"]) == 0
    *_, table = capsys.readouterr().out.split("\n\n")
    read, played = read_slates(dump), play_challengers(dump, settings_under([EAGER, UNIFORM]), limits=LIMITS)
    assert read.ruled is not None
    counts = [sum(one.policy(part).could) for part in (read.asked, read.ruled.asked) for one in played]
    assert counts[::2] == counts[1::2]
    title, _, *rows, _ = table.strip().splitlines()
    assert title == f"which does best, by doubly robust where ips and snips agree, on {sum(counts[::2])} requests"
    asked = [*read.asked.requests, *read.ruled.asked.requests]
    by_title = {title_of(one.flags): one.slates for one in played}
    for name, row in zip(rows[::2], rows[1::2], strict=True):
        slates = by_title[name.strip()]
        truth = np.mean([worth_of(slates[one.recommendation_id]) for one in asked if one.recommendation_id in slates])
        _, low, high = map(float, re.findall(r"-?[\d.]+", row))
        assert low <= truth <= high


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        ([""], "names no setting"),
        (["--half-life"], "expected one argument"),
        (["--half 60"], "unrecognized"),
        (["--half-life '60"], "No closing quotation"),
        (["--half-life 60"] * 5, "at most 4 can be compared, not 5"),
    ],
)
def test_flags_that_are_wrong_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: list[str], problem: str
) -> None:
    """They are read before the log is."""
    assert main(["log", "evaluate", str(tmp_path / "none"), *(f"--under={one}" for one in flags)]) == 1
    told = capsys.readouterr()
    assert problem in told.err
    assert "--under" in told.err
    assert not told.out


def test_a_log_without_its_beginning_has_no_challengers() -> None:
    cut = Dump("home", "id", Snapshot(9, b""), ())
    with pytest.raises(InvalidArgumentError, match="needs a log from event 1 on"):
        play_challengers(cut, {UNIFORM: {}}, limits=LIMITS)


@pytest.mark.parametrize(
    ("others", "said"),
    [
        ([(3.0, 2.5, 3.5), (1.0, 0.5, 2.4)], "a earns most"),
        ([(3.0, 2.5, 3.5), (2.0, 1.5, 2.5)], "a earns more than what was shown; the log can't tell it from b"),
        ([(3.0, 1.2, 3.5), (2.0, 1.5, 2.5)], "the log can't tell whether any of them earns more"),
        ([(0.5, 0.2, 0.7)], "what was shown earns most"),
    ],
)
def test_the_best_one_is_named_only_where_the_log_can_tell(others: list[tuple[float, float, float]], said: str) -> None:
    found = [(name, Estimate(one[0], 0.1, *one[1:])) for name, one in zip("ab", others, strict=False)]
    assert describe_best(Estimate(1.0, 0.1, 0.8, 1.2), found).startswith(said)
