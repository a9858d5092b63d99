"""An explanation as a person reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from topk_bandit.client import ModelSource
from topk_bandit.commands.tables import facts, number, table
from topk_bandit.domain.stages import Group

if TYPE_CHECKING:
    from collections.abc import Iterator

    from topk_bandit.client import Explanation, RankedSlate, Reasons, Recommendation

__all__ = ["explanation_lines"]

_SOURCES = {
    ModelSource.LIVE: "the one in memory",
    ModelSource.REPLAYED: "folded again from the log",
    ModelSource.TRIMMED: "gone",
}


def explanation_lines(explanation: Explanation) -> Iterator[str]:
    """Yield the lines that describe a recommendation, and why it was what it was."""
    reasons = explanation.reasons
    yield from facts(_describe_record(explanation))
    if explanation.absent_items:
        rows = [(one.item_id, one.reason.replace("_", " "), one.rule or "-") for one in explanation.absent_items]
        yield from ("", *table(("absent item", "why", "rule"), rows))
    if reasons is None:
        yield ""
        yield f"There are no reasons: {explanation.reasons_problem}."
        return
    yield ""
    yield from _parts(reasons)
    yield ""
    yield from _slates(reasons)
    if not reasons.chosen_again:
        yield ""
        yield "The replayed model does not choose the shown slate again: it was folded with another arithmetic, or the"
        yield "model of the worker that chose it was not the fold of the log."


def _describe_record(explanation: Explanation) -> Iterator[tuple[str, object]]:
    given = explanation.recommendation
    yield "recommendation", given.id
    yield "request", explanation.request_id
    yield "recommended", f"{explanation.recommend_time:%Y-%m-%d %H:%M:%S} UTC, event {explanation.log_position}"
    if explanation.features:
        yield "features", ", ".join(f"{name} {value}" for name, value in explanation.features.items())
    else:
        yield "context", ", ".join(f"{value:g}" for value in explanation.context)
    if explanation.candidates is not None:
        yield "candidates", f"{len(explanation.candidates)}, {given.passed_over} passed over"
    yield "slate", ", ".join(given.items)
    if given.relaxed_rules:
        yield "rules given up", "; ".join(given.relaxed_rules)
    if given.paid_exposures:
        yield "promises paid", "; ".join(given.paid_exposures)
    yield "how", _mode(explanation.recommendation)
    if explanation.best_items:
        yield "best slate", ", ".join(explanation.best_items)
    yield "propensity", f"{given.propensity:.6g}"
    yield "expected reward", f"{given.mean:.4f} ± {given.standard_deviation:.4f}"
    yield "regret", f"{given.estimated_regret:.4f} expected, at most {given.regret_bound:.4f}"
    version = f"version {given.model_version}, of {given.observations} rewards"
    yield "model", f"{version}: {_SOURCES[explanation.model_source]}"


def _mode(given: Recommendation) -> str:
    if given.baseline:
        return f"the baseline slate, since {_why_baseline(given)}"
    return "drawn by a share of the exploration" if given.explored else "the best slate that was found"


def _why_baseline(given: Recommendation) -> str:
    if given.group is Group.CONTROL:
        return "the request was in the control group"
    if given.group is Group.CONSERVATIVE:
        return "by its conservative_share the bandit had no more to lose"
    return "too few candidates were left" if given.stage.shows_own else f"the bandit was {given.stage.phrase}"


def _parts(reasons: Reasons) -> Iterator[str]:
    """Yield what adds up to the mean."""
    rows = [("offset", "what rewards are centred on", number(reasons.offset))]
    rows.append(("context", "what it does to every slate", number(reasons.context)))
    for one in reasons.items:
        rows.append((f"item {one.position}", one.item_id, number(one.own)))
        rows.extend((what, one.item_id, number(part)) for what, part in _beside(one.content, one.prior))
    rows.extend(("pair", f"{one.first_item_id} above {one.second_item_id}", number(one.value)) for one in reasons.pairs)
    rows.append(("mean", "", number(reasons.shown.mean)))
    yield from table(("adds to the mean", "", "reward"), rows)


def _beside(content: float, prior: float) -> Iterator[tuple[str, float]]:
    if content:
        yield "  its features", content
    if prior:
        yield "  the study", prior


def _slates(reasons: Reasons) -> Iterator[str]:
    rows = [_row("shown", reasons.shown), *(_row(str(n), one) for n, one in enumerate(reasons.next_best, 1))]
    yield from table(("", "slate", "mean", "± sd", f"bound (beta {reasons.beta:.3g})", "score"), rows)


def _row(name: str, slate: RankedSlate) -> tuple[str, ...]:
    figures = (slate.mean, slate.standard_deviation, slate.upper_bound, slate.score)
    return name, ",".join(slate.slate), *map(number, figures)
