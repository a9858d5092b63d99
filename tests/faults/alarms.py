"""Faults and the alerts that each has fire, seen by a real Prometheus that watches a real service.

The modules that use this list their faults as `FAULTS`. docs/runbooks.md tells of these, and `tests/test_deploy.py`
holds the page to them.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from tests.long_forms import LONG

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from contextlib import AbstractContextManager

    from tests.test_watching import Prometheus

__all__ = ["SHORT_HOLD", "TO_SEE_SECONDS", "Fault", "long_only", "name_of", "see_alerts"]

SHORT_HOLD = "2s"
"""How long a condition has to hold where the rules' own times would take too long."""

TO_SEE_SECONDS = 60.0
"""How long it may take, beside what the rule waits for, until a fault is in a metric and the metric in a rule."""


@dataclass(frozen=True)
class Fault:
    """Something that goes wrong, and what is to be heard of it.

    Attributes
    ----------
    cause
        Lets it go wrong for a block; it is given what the module's fixture is.
    alerts
        What fires, without "TopkBandit".
    ending
        Those that end as soon as the fault does. The others are of rates, and end when their windows have passed.
    seconds
        How long it may take until all fire, beside what the rules wait for.
    """

    cause: Callable[[Any], AbstractContextManager[None]]
    alerts: Collection[str]
    ending: Collection[str] = ()
    seconds: float = TO_SEE_SECONDS


def name_of(fault: Fault) -> str:
    """Return what a test of the fault is called."""
    return fault.cause.__name__


def long_only(why: str) -> list[pytest.MarkDecorator]:
    """Return the marks of a module that `make faults` alone runs."""
    return [pytest.mark.long_form, pytest.mark.skipif(not LONG, reason=why), pytest.mark.timeout(600)]


def see_alerts(watched: Any, prometheus: Prometheus, fault: Fault) -> None:  # noqa: ANN401 - what its cause takes
    """Let something go wrong until all of its alerts fire, and see those end that end with it."""
    names, ending = ({f"TopkBandit{name}" for name in some} for some in (fault.alerts, fault.ending))
    assert ending <= names
    assert (early := names & prometheus.firing()) == set(), f"{sorted(early)} fire before the fault"
    longest = max(prometheus.durations()[name] for name in names)
    with fault.cause(watched):
        _wait_until_empty(lambda: names - prometheus.firing(), "do not fire", seconds=longest + fault.seconds)
    _wait_until_empty(lambda: ending & prometheus.firing(), "do not end", seconds=TO_SEE_SECONDS)


def _wait_until_empty(left: Callable[[], set[str]], problem: str, *, seconds: float) -> None:
    end = time.monotonic() + seconds
    while some := left():
        assert time.monotonic() < end, f"{sorted(some)} {problem} within {seconds:g} s"
        time.sleep(0.2)
