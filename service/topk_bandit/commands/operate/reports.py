"""A report of a bandit for people who decide about it: what it is worth, what it learned, and what that costs."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from topk_bandit.client import FailedPrecondition, NotFound
from topk_bandit.commands.operate.events import export_log
from topk_bandit.domain.stages import LiftVerdict, Stage

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from topk_bandit.client import Bandit, BanditStats, Client, ConservativeStats, HistoryPoint, LiftStats, Reasons
    from topk_bandit.domain.stages import Interval

__all__ = ["Chart", "Found", "Section", "find", "make_report", "to_markdown"]

NEWEST_EVENTS = 5_000
MOST_ITEMS, MOST_PAIRS, MOST_INTERVALS = 10, 5, 12
_CHANGE = 0.05
"""By so much of the slates an item rises or falls."""


class Chart(NamedTuple):
    """Numbers over time; None where there is none."""

    title: str
    values: tuple[float | None, ...]


class Section(NamedTuple):
    """A part of a report: sentences, a table, and charts. A table without titles is none."""

    title: str
    sentences: tuple[str, ...]
    titles: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    charts: tuple[Chart, ...] = ()


@dataclass(frozen=True, slots=True)
class Found:
    """What a report is made of.

    Attributes
    ----------
    slates
        Those that the newest events of the log say were given out, oldest first.
    reasons
        Those of the newest slate; None if the log has none.
    """

    bandit: Bandit
    stats: BanditStats
    history: Sequence[HistoryPoint]
    slates: Sequence[tuple[str, ...]]
    reasons: Reasons | None


def find(client: Client, bandit: str) -> Found:
    """Ask a service for all that a report of a bandit says."""
    stats = client.stats(bandit)
    given, newest = list[tuple[str, ...]](), ""
    for event in export_log(client, bandit, first=max(stats.log_position - NEWEST_EVENTS, 0) or None):
        read = json.loads(event.event_json)
        if read["type"] == "recommended":
            given.append(tuple(read["recommendation"]["slate"]))
            newest = read["recommendation"]["recommendation_id"]
    return Found(
        bandit=client.get_bandit(bandit),
        stats=stats,
        history=client.history(bandit),
        slates=given,
        reasons=_explain(client, bandit, newest) if newest else None,
    )


def _explain(client: Client, bandit: str, newest: str) -> Reasons | None:
    try:
        return client.explain(bandit, newest).reasons
    except (FailedPrecondition, NotFound):  # it left the log meanwhile
        return None


def make_report(found: Found) -> tuple[Section, ...]:
    """Return the parts of a report."""
    worth = (_worth(found), *_lift_by_day(found))
    return (*worth, _rewards(found), _price(found), _shown(found), _learned(found), _suggestions(found))


def to_markdown(name: str, sections: Sequence[Section]) -> Iterator[str]:
    """Yield the lines of a report as Markdown; charts are tables of their own there."""
    yield f"# What {name} is worth"
    for section in sections:
        yield from ("", f"## {section.title}", "")
        yield from section.sentences
        if section.titles:
            yield ""
            for row in (section.titles, tuple("---" for _ in section.titles), *section.rows):
                yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |"


def _worth(found: Found) -> Section:
    stats, lift = found.stats, found.stats.lift
    said = [f"The bandit is {found.bandit.stage.phrase}."]
    if lift is not None:
        said += _describe_lift(lift)
    if stats.conservative is not None:
        said.append(_describe_conservative(stats.conservative, found.bandit.conservative_share))
    if stats.shadow.slates:
        agreed = stats.shadow.agreements / stats.shadow.slates
        said.append(
            f"In shadow it chose {stats.shadow.slates:,} slates: {agreed:.0%} were the ones that were shown. "
            f"Its own are expected to earn {_interval(stats.shadow.gain)} more a slate."
        )
    if lift is None and not stats.shadow.slates:
        said.append("There is nothing to compare with yet: no control group, and no slate in shadow that counts.")
    groups = () if lift is None else (("bandit", lift.bandit), ("control", lift.control))
    rows = tuple(
        (name, f"{one.drawn:,}", f"{one.counted:,}", _number(one.mean_reward if one.counted else None))
        for name, one in groups
    )
    titles = ("group", "requests", "count by now", "mean reward") if rows else ()
    return Section("What it is worth", tuple(said), titles, rows)


def _describe_conservative(kept: ConservativeStats, share: float) -> str:
    slates = kept.own.drawn + kept.baseline.drawn
    given = f"{kept.baseline.drawn / slates:.0%} of {slates:,} slates were" if slates else "no slate was"
    return f"It loses at most {share:.0%} of what baseline slates would earn: for this, {given} the baseline slate."


def _lift_by_day(found: Found) -> Iterator[Section]:
    """Yield a table of the days, if there are any."""
    lift = found.stats.lift
    if lift is None or not lift.days:
        return
    rows = tuple(
        (
            f"{datetime.fromtimestamp(day.start_ms / 1e3, UTC):%Y-%m-%d}",
            f"{day.bandit.counted:,}",
            _number(day.bandit.mean_reward if day.bandit.counted > 0 else None),
            f"{day.control.counted:,}",
            _number(day.control.mean_reward if day.control.counted > 0 else None),
            "too few" if day.difference is None else _interval(day.difference),
        )
        for day in lift.days
    )
    titles = ("day", "bandit's group", "mean reward", "control group", "mean reward", "difference")
    yield Section("Lift by day", ("A day has what came on it, in UTC.",), titles, rows)


def _describe_lift(lift: LiftStats) -> Iterator[str]:
    verdicts = {
        LiftVerdict.TOO_EARLY: "It is too early to compare: a group has too few slates that count.",
        LiftVerdict.UNDECIDED: "Whether it earns more than the control group is not decided.",
        LiftVerdict.BETTER: "It earns more than the control group, decided.",
        LiftVerdict.WORSE: "It earns less than the control group, decided.",
    }
    yield verdicts[lift.verdict]
    if lift.difference is not None:
        sure = f"with a confidence of {lift.confidence:.0%} at all times"
        yield f"A request earns {_interval(lift.difference)} more, {sure}."
    if lift.ratio is not None:
        yield f"That is {lift.ratio.value - 1:+.1%} ({lift.ratio.low - 1:+.1%} to {lift.ratio.high - 1:+.1%})."
    if lift.verdict is LiftVerdict.UNDECIDED and lift.further_requests is not None:
        yield f"About {lift.further_requests:,} more requests decide it, if all stays as it is."
    if lift.has_odd_groups:
        yield "The groups are not as large as was asked: the lift can't be trusted."
    if lift.guarded_position:
        yield f"The guardrail put it in shadow, at {lift.guarded_position:,} of its log: {lift.guarded_reason}."


def _rewards(found: Found) -> Section:
    points = found.history[-MOST_INTERVALS:]
    said = (
        f"It gave out {found.stats.recommendation_count:,} slates and learned "
        f"{found.stats.observation_count:,} rewards, {_number(found.stats.mean_reward)} in the mean"
        f"{' without outliers, which are not learned' if found.stats.outlier_count else ''}."
    )
    rows = tuple(
        (
            f"{point.end_time:%Y-%m-%d %H:%M}",
            _number(point.mean_reward),
            _share(point.explored_share),
            _share(point.join_rate),
        )
        for point in points
    )
    charts = (Chart("Mean reward", tuple(point.mean_reward for point in found.history)),)
    titles = ("until (UTC)", "mean reward", "explored", "with a reward") if rows else ()
    return Section("What it earned", (said,), titles, rows, charts)


def _price(found: Found) -> Section:
    stats = found.stats
    if not stats.recommendation_count:
        return Section("What exploration costs", ("It gave out no slate yet.",))
    explored = stats.explored_count / stats.recommendation_count
    drawn = f"{explored:.1%} of its slates were drawn to learn."
    said = f"By its own word its slates earned {_number(stats.estimated_regret_sum)} less than the best, all together."
    before, sums = 0.0, list[float]()
    for point in found.history:
        sums.append(point.estimated_regret_sum - before)
        before = point.estimated_regret_sum
    return Section(
        "What exploration costs", (drawn, said), charts=(Chart("Estimated regret by interval", tuple(sums)),)
    )


def _shown(found: Found) -> Section:
    if not found.slates:
        return Section("What it shows", ("Its log has no slate.",))
    half = len(found.slates) // 2
    before, after = (
        Counter(item for slate in part for item in slate) for part in (found.slates[:half], found.slates[half:])
    )
    shares = {
        item: (before[item] / max(half, 1), after[item] / (len(found.slates) - half)) for item in {*before, *after}
    }
    top = sorted(shares, key=lambda item: (-shares[item][1], item))[:MOST_ITEMS]
    rows = tuple((item, f"{shares[item][0]:.0%}", f"{shares[item][1]:.0%}", _arrow(*shares[item])) for item in top)
    said = [f"The newest {len(found.slates):,} slates of its log, by halves."]
    for one in found.stats.exposures:
        kept = f"{one.shown / one.slates:.1%} of {one.slates:,} did" if one.slates else "no slate counts yet"
        said.append(f"It promised that {one.rule}: {kept}.")
    return Section("What it shows", tuple(said), ("item", "earlier", "later", ""), rows)


def _learned(found: Found) -> Section:
    stats, reasons = found.stats, found.reasons
    said = [f"It knows {stats.available_item_count:,} items that can be shown."]
    pairs = [] if reasons is None else sorted(reasons.pairs, key=lambda one: -one.value)[:MOST_PAIRS]
    said += [
        f"{one.first_item_id} above {one.second_item_id} adds {_number(one.value)}." for one in pairs if one.value > 0
    ]
    if stats.item_features and not stats.content_share:
        said.append("The items' features are switched off: they say nothing of rewards now.")
    of_both = (*((one, "request") for one in stats.context_features), *((one, "item") for one in stats.item_features))
    rows = tuple((one.name or "context", of, f"{one.share:.0%}") for one, of in of_both)
    return Section("What it learned", tuple(said), ("feature", "of the", "share of what differs") if rows else (), rows)


def _suggestions(found: Found) -> Section:
    stats, said = found.stats, list[str]()
    if stats.damage:
        said.append(f"Its learner stands still: {stats.damage}.")
    if not stats.has_reward_range:
        said.append("Set a reward_range, so that wrong rewards are refused.")
    if stats.selection_share:
        said.append("Set a default_reward: it learns from visitors who buy alone.")
    if stats.lift is None and found.bandit.stage is Stage.LIVE:
        said.append("Set a control_share, so that its worth is known.")
    if stats.outlier_count + stats.outlier_context_count:
        said.append(
            f"Look at {stats.outlier_count + stats.outlier_context_count:,} rewards that are far from all others:"
            " if they are right, make the reward_range trusted."
        )
    if stats.spread_factor > 1.0:
        said.append(
            "Its latest rewards lie farther from what it expects than it says: add what they depend on to the context."
        )
    return Section("What to do", tuple(f"- {one}" for one in said) or ("Nothing.",))


def _interval(found: Interval | None) -> str:
    return "-" if found is None else f"{found.value:+.4g} ({found.low:+.4g} to {found.high:+.4g})"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def _arrow(before: float, after: float) -> str:
    change = after - before
    if abs(change) <= _CHANGE:
        return ""
    return "rises" if change > 0 else "falls"
