"""Checks of stages and groups: what each stage may record and learn, and what groups earn.

Each slate's last value counts once, in the group that it was drawn to: the sums are worked out anew, slate by slate,
from what the log says of each.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from topk_bandit.domain.stages import Group, Stage
from topk_bandit.store.events import (
    BanditCreated,
    BanditReset,
    Expired,
    Recommended,
    RewardAmended,
    Rewarded,
    RewardRevised,
    SettingsChanged,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topk_bandit.bandits.comparison import Comparison, GroupTally
    from topk_bandit.store.events import Event, LoggedEvent

__all__ = ["check_groups", "check_stages"]


class _Slates:
    """The slates of a log, and what they are worth by now."""

    def __init__(self) -> None:
        self.share = 0.0
        self.groups: dict[str, Group] = {}
        self.values: dict[str, float] = {}

    def take(self, event: Event) -> None:
        """Take in an event."""
        match event:
            case BanditCreated(settings) | SettingsChanged(settings):
                if settings.control_share != self.share:
                    self.groups.clear()
                    self.values.clear()
                self.share = settings.control_share
            case BanditReset():
                self.groups.clear()
                self.values.clear()
            case Recommended(recommendation=given):
                self.groups[given.recommendation_id] = given.group
            case Rewarded(key, value):
                self._count(key, value)
            case Expired(key, default, group=group):
                # One that is taken back names no group.
                self._count(key, None if group is Group.NONE else default or 0.0)
            case RewardRevised(key, value) | RewardAmended(key, value):
                self._count(key, value)

    def _count(self, key: str, value: float | None) -> None:
        if value is None:
            self.values.pop(key, None)
        else:
            self.values[key] = value

    def of(self, group: Group) -> tuple[int, int, Fraction]:
        """Return how many slates a group has, how many of them count, and what these earned."""
        keys = {key for key, known in self.groups.items() if known is group}
        earned = [Fraction(value) for key, value in self.values.items() if key in keys]
        return len(keys), len(earned), sum(earned, Fraction(0))


def check_groups(events: Sequence[LoggedEvent], comparison: Comparison) -> list[str]:
    """Return where groups have other sums than the slates of a log, from its first event on."""
    slates = _Slates()
    for logged in events:
        slates.take(logged.event)
    found = {Group.BANDIT: comparison.bandit, Group.CONTROL: comparison.control}
    return [
        f"the group {group} has {_figures(tally)}, and its slates {slates.of(group)}"
        for group, tally in found.items()
        if _figures(tally) != slates.of(group)
    ]


def check_stages(events: Sequence[LoggedEvent]) -> list[str]:
    """Return which slates of a log, from its first event on, were recorded or learned against the stage."""
    stage, found = Stage.LIVE, list[str]()
    for logged in events:
        match logged.event:
            case BanditCreated(settings) | SettingsChanged(settings):
                stage = settings.stage
            case Recommended(recommendation=given, aside=aside):
                if given.stage is not stage or not (aside or stage.learns):
                    found.append(f"{given.recommendation_id} is recorded as {given.stage} while it is {stage}")
            case Rewarded(key, aside=aside) | Expired(key, aside=aside):
                if not (aside or stage.learns):
                    found.append(f"{key} ends while it is {stage}, and is learned")
            case RewardRevised(key, before=None) if not stage.learns:
                found.append(f"{key} is first learned while it is {stage}")
    return found


def _figures(tally: GroupTally) -> tuple[int, int, Fraction]:
    return tally.drawn, tally.earned.count, tally.earned.total.to_fraction()
