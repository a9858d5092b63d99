"""The checker of rules finds a slate that breaks one in force, and no other."""

from __future__ import annotations

from dataclasses import replace

from tests.bandits.harness import SETTINGS, request
from tests.contracts.samples import recommendation
from tests.simulation.rules_checker import check_rules_in_force

from topk_bandit.domain.rules import Exclude, Pin, SlateRule
from topk_bandit.store.events import BanditCreated, LoggedEvent, Recommended, SettingsChanged


def test_slates_are_held_to_the_rules_that_were_in_force() -> None:
    given = recommendation()
    first, other = given.slate[0], given.slate[1]
    without = replace(SETTINGS, rules=(SlateRule(Exclude((first,))),))
    pinned = replace(SETTINGS, rules=(SlateRule(Pin((other, "x"), 0), may_relax=True),))

    def found(settings: object, *shown: Recommended) -> int:
        events = [BanditCreated(without), SettingsChanged(settings, None), *shown]  # type: ignore[arg-type]
        return len(check_rules_in_force([LoggedEvent(n, 1, event) for n, event in enumerate(events, 1)]))

    asked = request("r")
    shown = Recommended(asked, given)
    assert (found(SETTINGS, shown), found(without, shown), found(pinned, shown)) == (0, 1, 1)
    relaxed = replace(given, relaxed=("pin one of 2 items at position 1",))
    assert found(pinned, Recommended(asked, relaxed)) == 0
    firm = replace(pinned, rules=(replace(pinned.rules[0], may_relax=False),))
    assert found(firm, Recommended(asked, relaxed)) == 1
    assert found(SETTINGS, Recommended(replace(asked, rules=(SlateRule(Exclude((other,))),)), given)) == 1
