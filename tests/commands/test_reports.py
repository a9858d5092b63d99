"""The report of a bandit: its sentences, tables and charts, of a real service and of figures that are given."""

from __future__ import annotations

from dataclasses import replace
from html.parser import HTMLParser
from typing import TYPE_CHECKING

import pytest
from tests.waiting import PATIENCE

from topk_bandit.client import Client, Stage
from topk_bandit.commands.operate.report_pages import to_html
from topk_bandit.commands.operate.reports import Chart, Found, Section, find, make_report, to_markdown
from topk_bandit.domain.stages import (
    ConservativeStats,
    GroupStats,
    Interval,
    LiftDay,
    LiftStats,
    LiftVerdict,
    ShadowStats,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.commands.running import Ask, Running

LIFT = LiftStats(
    since_ms=1,
    bandit=GroupStats(900, 800, 0.5),
    control=GroupStats(100, 90, 0.25),
    verdict=LiftVerdict.UNDECIDED,
    difference=Interval(0.25, -0.125, 0.5),
    ratio=Interval(2.0, 0.75, 3.0),
    further_requests=1234,
    has_odd_groups=True,
    confidence=0.95,
    guarded_position=77,
    guarded_reason="it was worse",
)


@pytest.fixture
def found(running: Running) -> Iterator[Found]:
    with Client(running.address, tenant="acme", timeout=PATIENCE) as client:
        yield find(client, "home")


class Page(HTMLParser):
    """Counts tags, and holds that each is closed in its turn."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.opened: list[str] = []
        self.seen: list[str] = []
        self.words = ""
        self.feed(text)
        assert self.opened == []

    def handle_starttag(self, tag: str, attrs: object) -> None:  # noqa: ARG002
        self.seen.append(tag)
        if tag != "meta":
            self.opened.append(tag)

    def handle_startendtag(self, tag: str, attrs: object) -> None:  # noqa: ARG002
        self.seen.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.opened.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words += data


def test_a_report_says_what_a_service_knows(running: Running, ask: Ask, tmp_path: Path) -> None:
    text = "\n".join(ask("bandits", "report", "acme/home"))
    for title in (
        "What it is worth",
        "What it earned",
        "What exploration costs",
        "What it shows",
        "What it learned",
        "What to do",
    ):
        assert f"\n## {title}\n" in text
    assert "It gave out 20 slates and learned 20 rewards" in text
    assert "There is nothing to compare with yet" in text
    assert "- Set a control_share, so that its worth is known." in text
    page = tmp_path / "report.html"
    assert ask("bandits", "report", "acme/home", f"--html={page}") == []
    shown = Page(page.read_text(encoding="utf-8"))
    assert shown.seen.count("h2") == 6
    assert "It gave out 20 slates" in shown.words
    assert "script" not in shown.seen
    assert "can't be written" in ask("bandits", "report", "acme/home", f"--html={tmp_path}", status=1)[0]
    assert "not found" in ask("bandits", "report", "acme/none", status=1)[0]


def worth_of(found: Found) -> Section:
    return make_report(found)[0]


def test_a_lift_is_said_in_sentences(found: Found) -> None:
    section = worth_of(replace(found, stats=replace(found.stats, lift=LIFT)))
    assert section.sentences == (
        "The bandit is live.",
        "Whether it earns more than the control group is not decided.",
        "A request earns +0.25 (-0.125 to +0.5) more, with a confidence of 95% at all times.",
        "That is +100.0% (-25.0% to +200.0%).",
        "About 1,234 more requests decide it, if all stays as it is.",
        "The groups are not as large as was asked: the lift can't be trusted.",
        "The guardrail put it in shadow, at 77 of its log: it was worse.",
    )
    assert section.rows == (("bandit", "900", "800", "0.5"), ("control", "100", "90", "0.25"))
    early = replace(
        LIFT, verdict=LiftVerdict.TOO_EARLY, difference=None, ratio=None, has_odd_groups=False, guarded_position=0
    )
    said = worth_of(replace(found, stats=replace(found.stats, lift=early))).sentences
    assert said[1:] == ("It is too early to compare: a group has too few slates that count.",)


def test_a_conservative_share_is_said_with_what_it_costs(found: Found) -> None:
    kept = ConservativeStats(1, GroupStats(30, 9, 1.0), GroupStats(90, 80, 0.5), 2.5, shows_own=True)
    none = GroupStats(0, 0, 0.0)
    for one, said in ((kept, "75% of 120 slates were"), (replace(kept, own=none, baseline=none), "no slate was")):
        with_share = replace(found.bandit, conservative_share=0.1)
        section = worth_of(replace(found, bandit=with_share, stats=replace(found.stats, conservative=one)))
        start = "It loses at most 10% of what baseline slates would earn: for this,"
        assert f"{start} {said} the baseline slate." in section.sentences


def test_a_lift_by_day_is_a_table(found: Found) -> None:
    without = make_report(replace(found, stats=replace(found.stats, lift=LIFT)))
    assert "Lift by day" not in [one.title for one in without]
    days = (
        LiftDay(1_795_910_400_000, GroupStats(90, 80, 0.5), GroupStats(10, 0, 0.0), None),
        LiftDay(1_795_996_800_000, GroupStats(90, 800, 0.5), GroupStats(10, 120, 0.25), Interval(0.25, -0.125, 0.5)),
    )
    lifted = replace(found, stats=replace(found.stats, lift=replace(LIFT, days=days)))
    worth, section, *_ = make_report(lifted)
    assert (worth.title, section.title) == ("What it is worth", "Lift by day")
    assert section.rows == (
        ("2026-11-29", "80", "0.5", "0", "-", "too few"),
        ("2026-11-30", "800", "0.5", "120", "0.25", "+0.25 (-0.125 to +0.5)"),
    )


def test_a_shadow_is_said_in_a_sentence(found: Found) -> None:
    shadow = ShadowStats(200, 50, 1.5, Interval(0.5, 0.25, 0.75))
    known = replace(found, bandit=replace(found.bandit, stage=Stage.SHADOW), stats=replace(found.stats, shadow=shadow))
    said, chose = worth_of(known).sentences
    assert said == "The bandit is in shadow."
    assert chose.startswith("In shadow it chose 200 slates: 25% were the ones that were shown. ")
    assert chose.endswith("Its own are expected to earn +0.5 (+0.25 to +0.75) more a slate.")


def test_items_rise_and_fall_by_the_halves_of_the_log(found: Found) -> None:
    shown = make_report(replace(found, slates=[("a", "b")] * 10 + [("b", "c")] * 10))[3]
    assert shown.rows == (("b", "100%", "100%", ""), ("c", "0%", "100%", "rises"), ("a", "100%", "0%", "falls"))
    assert make_report(replace(found, slates=[]))[3].sentences == ("Its log has no slate.",)
    assert make_report(replace(found, slates=[("a", "b")]))[3].rows[0] == ("a", "0%", "100%", "rises")


def test_what_is_to_be_done_follows_from_the_figures(found: Found) -> None:
    stats = replace(
        found.stats,
        lift=LIFT,
        has_reward_range=True,
        selection_share=0.5,
        outlier_count=3,
        spread_factor=1.5,
        damage="bits",
    )
    assert len(make_report(replace(found, stats=stats))[5].sentences) == 4
    well = replace(stats, selection_share=0.0, outlier_count=0, outlier_context_count=0, spread_factor=1.0, damage="")
    assert make_report(replace(found, stats=well))[5].sentences == ("Nothing.",)


def test_texts_of_others_do_no_harm() -> None:
    evil = "<script>|'\""
    section = Section(evil, (evil,), (evil,), ((evil,),), (Chart(evil, (1.0, None, 3.0)), Chart("short", (1.0,))))
    page = Page("\n".join(to_html(evil, [section])))
    assert "script" not in page.seen
    assert page.seen.count("svg") == 1
    [row] = [line for line in to_markdown(evil, [section]) if line.startswith("| <")][1:]
    assert row == "| <script>\\|'\" |"
