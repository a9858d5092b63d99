"""Checks of rules: no recorded slate breaks a rule in force, judged by what the log says of items and of rules.

Rules of the simulated shop exclude items and pin them, so that they are judged without the service's own code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from topk_bandit.domain.rules import Exclude, Pin, describe_rule
from topk_bandit.store.events import BanditCreated, Recommended, SettingsChanged

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topk_bandit.domain.rules import SlateRule
    from topk_bandit.store.events import LoggedEvent

__all__ = ["check_rules_in_force"]


def check_rules_in_force(events: Sequence[LoggedEvent]) -> list[str]:
    """Return which slates of a log, from its first event on, break a rule that was not given up, and may not be."""
    own: tuple[SlateRule, ...] = ()
    found = list[str]()
    for logged in events:
        match logged.event:
            case BanditCreated(settings) | SettingsChanged(settings):
                own = settings.rules
            case Recommended(request=request, recommendation=given):
                for declared in (*own, *request.rules):
                    is_given_up = declared.may_relax and describe_rule(declared.rule) in given.relaxed
                    if not (is_given_up or _keeps(declared, given.slate)):
                        found.append(f"{given.recommendation_id} breaks a rule: {describe_rule(declared.rule)}")
    return found


def _keeps(declared: SlateRule, slate: Sequence[str]) -> bool:
    match declared.rule:
        case Exclude(item_ids):
            return not set(item_ids) & set(slate)
        case Pin(item_ids, position):
            return slate[position] in item_ids
    return False
