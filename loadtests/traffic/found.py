"""What a scenario found: figures, charts and histograms, from the calls of a run."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from figures import Chart, Curve, Figure
from traffic.calls import RECOMMEND, REWARD, End

if TYPE_CHECKING:
    from traffic.calls import Calls
    from traffic.histogram import Histogram

__all__ = ["Found", "answered", "milliseconds", "timeline", "usual"]

RANKS = (50, 99, 99.9)


@dataclass(slots=True)
class Found:
    """What one play of a scenario came to.

    Attributes
    ----------
    problem
        Why it says nothing, beside a late generator; empty when it does.
    """

    figures: list[Figure] = field(default_factory=list)
    charts: list[Chart] = field(default_factory=list)
    histograms: dict[str, Histogram] = field(default_factory=dict)
    problem: str = ""


def answered(calls: Calls) -> Calls:
    """Return the slates that came in time and were recorded."""
    return calls.of_kind(RECOMMEND).ended(End.OK)


def milliseconds(key: str, label: str, times: Histogram, ranks: tuple[float, ...] = RANKS) -> list[Figure]:
    """Return percentiles; NaN without any."""
    named = [(rank, f"{rank:g}".replace(".", "_")) for rank in ranks]
    return [Figure(f"{key}_p{name}", f"{label}, p{rank:g}", times.percentile(rank) * 1e3, "ms") for rank, name in named]


def usual(calls: Calls, seconds: float, *, cpu: float) -> Found:
    """Return what is told of calls at one rate."""
    slates, rewards, good = calls.of_kind(RECOMMEND), calls.of_kind(REWARD), answered(calls)
    posted = rewards.ended(End.OK)
    figures = [
        Figure("offered", "Recommend: sent", len(slates) / seconds, "/s"),
        Figure("goodput", "Recommend: answered in time", len(good) / seconds, "/s"),
        *milliseconds("recommend", "Recommend", good.latency),
        *milliseconds("reward", "Reward", posted.latency, (50, 99)),
        *_ends(slates, rewards),
        Figure(
            "cpu", "worker CPU for a Recommend and its Reward", cpu * 1e3 / len(good) if len(good) else math.nan, "ms"
        ),
    ]
    return Found(figures, timeline(calls, seconds), {"recommend": good.latency, "reward": posted.latency})


def _ends(slates: Calls, rewards: Calls) -> list[Figure]:
    return [
        Figure("refused", "Recommend: refused", slates.share(End.REFUSED), "share"),
        Figure("too_late", "Recommend: not answered in time", slates.share(End.TOO_LATE), "share"),
        Figure("errors", "Recommend: other errors and degraded answers", len(slates.ended(End.FAILED, End.DEGRADED))),
        Figure("reward_refused", "Reward: refused", len(rewards.ended(End.REFUSED))),
        Figure(
            "reward_errors", "Reward: not answered in time, or failed", len(rewards.ended(End.TOO_LATE, End.FAILED))
        ),
    ]


def timeline(calls: Calls, seconds: float) -> list[Chart]:
    """Return the calls over time, in parts of a second or more."""
    width = seconds / min(max(round(seconds), 1), 120)
    starts = np.arange(0.0, seconds - width / 2.0, width).tolist()
    parts = [calls.of_kind(RECOMMEND).between(start, start + width) for start in starts]
    times = [part.ended(End.OK).latency for part in parts]
    middle = [start + width / 2.0 for start in starts]
    latency = [Curve(f"p{rank}", middle, [one.percentile(rank) * 1e3 for one in times]) for rank in (50, 99)]
    rates = [
        Curve(label, middle, [len(part.ended(*ends)) / width for part in parts])
        for label, ends in (("sent", tuple(End)), ("answered", (End.OK,)), ("refused", (End.REFUSED,)))
    ]
    return [
        Chart("Recommend, from when it was meant to be sent", "seconds", "ms", latency, log=True),
        Chart("calls", "seconds", "calls a second", rates),
    ]
