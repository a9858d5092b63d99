"""Faults and the alerts that each has fire, seen by a real Prometheus that watches a real service.

The modules that use this list their faults as `FAULTS`. docs/runbooks.md tells of these, and `tests/test_deploy.py`
holds the page to them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from tests.long_forms import LONG, usual_or_long
from tests.waiting import PATIENCE, until

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from contextlib import AbstractContextManager

    from tests.test_watching import Prometheus

__all__ = ["OF_SPEED", "SHORT_HOLD", "Fault", "long_only", "name_of", "see_alerts"]

SHORT_HOLD = "2s"
"""How long a condition has to hold where the rules' own times would take too long."""


OF_SPEED = {
    f"TopkBandit{name}"
    for name in usual_or_long(
        [
            *("SlowBurn", "SlowLeak", "EventLoopBlocked", "ErrorsBurn", "ErrorsLeak", "Overloaded", "Down"),
            *("StoreAway", "StoreFailing", "Degraded", "WorkersMissing", "Restarts"),
            *("LogUnread", "LearnerLags", "ModelOld", "RewardsLate", "JoinRateDropped", "DefaultsRose"),
        ],
        long=[],
    )
}
"""They fire rightly where the machine is slow."""


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
    """

    cause: Callable[[Any], AbstractContextManager[None]]
    alerts: Collection[str]
    ending: Collection[str] = ()


def name_of(fault: Fault) -> str:
    """Return what a test of the fault is called."""
    return fault.cause.__name__


def long_only(why: str) -> list[pytest.MarkDecorator]:
    """Return the marks of a module that `make faults` alone runs."""
    return [pytest.mark.long_form, pytest.mark.skipif(not LONG, reason=why), pytest.mark.timeout(3600)]


def see_alerts(watched: Any, prometheus: Prometheus, fault: Fault) -> None:  # noqa: ANN401 - what its cause takes
    """Let something go wrong until all of its alerts fire, and see those end that end with it."""
    names, ending = ({f"TopkBandit{name}" for name in some} for some in (fault.alerts, fault.ending))
    assert ending <= names
    assert (early := (names & prometheus.firing()) - OF_SPEED) == set(), f"{sorted(early)} fire before the fault"
    longest = max(prometheus.durations()[name] for name in names)
    with fault.cause(watched):
        until(lambda: names <= prometheus.firing(), what=f"{sorted(names)} fire", seconds=longest + PATIENCE)
    until(lambda: not ending & prometheus.firing(), what=f"{sorted(ending)} end")
