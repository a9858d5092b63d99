"""How long calls took lately, beside what numpy says of the same numbers."""

from __future__ import annotations

import numpy as np
import pytest

from topk_bandit.process.latencies import PERIOD_SECONDS, RecentLatencies

METHOD = "a.B/C"


class Clock:
    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


@pytest.mark.parametrize("scale", [3e-5, 0.004, 2.0])
@pytest.mark.parametrize("count", [1, 7, 5000])
def test_quantiles_are_right_to_five_percent(scale: float, count: int) -> None:
    latencies, rng = RecentLatencies(Clock()), np.random.default_rng(3)
    took = scale * (0.5 + rng.exponential(size=count))
    for seconds in took.tolist():
        latencies.note(METHOD, "OK", seconds)
    [summary] = latencies.summarise()
    exact = np.quantile(took, [0.5, 0.9, 0.99], method="inverted_cdf")
    assert (summary.method, summary.call_count, summary.failed_count) == (METHOD, count, 0)
    assert np.allclose([summary.median_seconds, summary.p90_seconds, summary.p99_seconds], exact, rtol=0.05)


@pytest.mark.parametrize("seconds", [-1.0, 0.0, 1e-9, 1e9])
def test_what_no_bin_is_for_is_in_the_first_or_the_last(seconds: float) -> None:
    latencies = RecentLatencies(Clock())
    latencies.note(METHOD, "OK", seconds)
    [summary] = latencies.summarise()
    assert summary.call_count == 1
    assert 0.0 < summary.median_seconds < 400.0


def test_failures_of_the_service_are_counted_and_refusals_are_not() -> None:
    latencies = RecentLatencies(Clock())
    for code in ("OK", "INVALID_ARGUMENT", "RESOURCE_EXHAUSTED", "CANCELLED"):
        latencies.note(METHOD, code, 0.1)
    for code in ("UNAVAILABLE", "DEADLINE_EXCEEDED", "INTERNAL", "UNKNOWN"):
        latencies.note("a.B/D", code, 0.1)
    assert [(one.method, one.call_count, one.failed_count) for one in latencies.summarise()] == [
        (METHOD, 4, 0),
        ("a.B/D", 4, 4),
    ]


def test_calls_are_forgotten_after_one_to_two_periods() -> None:
    clock = Clock()
    latencies = RecentLatencies(clock)
    assert (latencies.window_seconds, latencies.summarise()) == (0.0, ())
    latencies.note(METHOD, "OK", 0.1)
    clock.seconds += PERIOD_SECONDS + 1.0
    latencies.note(METHOD, "OK", 0.1)
    assert (latencies.window_seconds, latencies.summarise()[0].call_count) == (PERIOD_SECONDS + 1.0, 2)
    clock.seconds += PERIOD_SECONDS
    assert (latencies.window_seconds, latencies.summarise()[0].call_count) == (PERIOD_SECONDS, 1)
    clock.seconds += 5 * PERIOD_SECONDS
    assert (latencies.window_seconds, latencies.summarise()) == (0.0, ())
