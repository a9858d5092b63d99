"""What a bandit's slates are compared by: what it would have shown in shadow, and what its two groups earn.

Both are functions of the log alone. Groups begin anew where the control share changes, since before another part of
the requests was in each, and with a reset: what was forgotten earned the rewards before. A slate counts in its group
once it has ended or its reward is first learned, with 0 if it earned nothing; what was taken back does not count. A
slate that was shown before counts nowhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from topk_bandit.domain.bandits import (
    BanditReset,
    Expired,
    Recommended,
    RewardAmended,
    Rewarded,
    RewardRevised,
    SettingsChanged,
)
from topk_bandit.domain.errors import CorruptDataError
from topk_bandit.domain.replacing import replace
from topk_bandit.domain.stages import Group, Stage
from topk_bandit.learning.exact_sums import ExactSum
from topk_bandit.learning.group_totals import NO_REQUESTS, GroupTotals

if TYPE_CHECKING:
    from collections.abc import Mapping

    from topk_bandit.domain.bandits import BanditSettings, LoggedEvent, Recommendation

__all__ = ["NOTHING_COMPARED", "Comparison", "GroupTally", "ShadowTally"]


@dataclass(frozen=True, slots=True)
class ShadowTally:
    """Slates of a bandit in shadow, since that stage began last.

    Attributes
    ----------
    slates, agreements
        How many were recorded beside what was shown, and how many of them were the same.
    shared_items
        How many of their items were shown, wherever.
    gain_sum, deviation_sum
        Sums of `topk_bandit.domain.stages.Shadow.gain` and its deviation.
    """

    slates: int = 0
    agreements: int = 0
    shared_items: int = 0
    gain_sum: float = 0.0
    deviation_sum: float = 0.0

    def after(self, given: Recommendation) -> ShadowTally:
        """Return the tally after a recommendation."""
        own = given.shadow
        if own is None:
            return self
        return ShadowTally(
            self.slates + 1,
            self.agreements + (own.slate == given.slate),
            self.shared_items + len({*own.slate} & {*given.slate}),
            self.gain_sum + own.gain,
            self.deviation_sum + own.gain_deviation,
        )


@dataclass(frozen=True, slots=True)
class GroupTally:
    """Requests that were drawn to a group, and what those earned whose slates count by now."""

    drawn: int = 0
    earned: GroupTotals = NO_REQUESTS


@dataclass(frozen=True, slots=True)
class Comparison:
    """What a bandit's slates are compared by.

    Attributes
    ----------
    since_ms, since_position
        When the control share was set last, by the store's clock, and where in the log; 0 for a bandit that never had
        one.
    guarded_position, guarded_reason
        Where in the log a guardrail changed the settings last, and why.
    """

    shadow: ShadowTally = ShadowTally()
    bandit: GroupTally = GroupTally()
    control: GroupTally = GroupTally()
    since_ms: int = 0
    since_position: int = 0
    guarded_position: int = 0
    guarded_reason: str = ""

    def after(self, logged: LoggedEvent, before: BanditSettings) -> Comparison:
        """Return the comparison after an event of a bandit that had these settings before."""
        match logged.event:
            case Recommended(recommendation=given):
                return self._draw(given)
            case BanditReset() if self.since_ms:
                return self._begin_anew(logged)
            case SettingsChanged(settings, guarded=reason):
                changed = self._change(settings, before, logged)
                position = logged.position
                return replace(changed, guarded_position=position, guarded_reason=reason) if reason else changed
            case Rewarded() | Expired() | RewardRevised() | RewardAmended() as earned:
                return self if earned.group is Group.NONE else self._earn(earned)
        return self

    def _draw(self, given: Recommendation) -> Comparison:
        known = self._of(given.group)
        drawn = self if known is None else self._with(given.group, replace(known, drawn=known.drawn + 1))
        return drawn if given.shadow is None else replace(drawn, shadow=self.shadow.after(given))

    def _earn(self, event: Rewarded | Expired | RewardRevised | RewardAmended) -> Comparison:
        if self._is_older(event):
            return self
        match event:
            case Rewarded(value=value):
                return self._count(event.group, None, value)
            case Expired(default_reward=default):
                return self._count(event.group, None, default or 0.0)
            case RewardRevised(value=after, before=before) | RewardAmended(value=after, replaced=before):
                return self._count(event.group, before, after)

    def _is_older(self, event: Rewarded | Expired | RewardRevised | RewardAmended) -> bool:
        """Return whether an event's slate was recommended before the groups began."""
        if isinstance(event, RewardAmended) or event.shown is None:
            return 0 < event.given_position < self.since_position
        return event.shown.at_ms < self.since_ms

    def _count(self, group: Group, before: float | None, value: float | None) -> Comparison:
        """Count what a slate earned, None for one that does not count."""
        known = self._of(group)
        if known is None or before == value:
            return self
        earned = known.earned
        if before is not None:
            # Where nobody knows when a slate was recommended, it may be one of before the groups began anew.
            if not earned.count:
                return self
            earned = earned.minus(before)
        return self._with(group, replace(known, earned=earned if value is None else earned.plus(value)))

    def _of(self, group: Group) -> GroupTally | None:
        return None if group is Group.NONE else self.control if group is Group.CONTROL else self.bandit

    def _with(self, group: Group, tally: GroupTally) -> Comparison:
        return replace(self, control=tally) if group is Group.CONTROL else replace(self, bandit=tally)

    def _change(self, settings: BanditSettings, before: BanditSettings, logged: LoggedEvent) -> Comparison:
        changed = self
        if settings.control_share != before.control_share:
            changed = self._begin_anew(logged)
        if settings.stage is Stage.SHADOW and before.stage is not Stage.SHADOW:
            changed = replace(changed, shadow=ShadowTally())
        return changed

    def _begin_anew(self, logged: LoggedEvent) -> Comparison:
        groups = replace(self, bandit=GroupTally(), control=GroupTally())
        return replace(groups, since_ms=logged.at_ms, since_position=logged.position)

    def as_document(self) -> dict[str, Any]:
        """Return it as snapshots and digests have it."""
        shadow = self.shadow
        return {
            "shadow": [shadow.slates, shadow.agreements, shadow.shared_items, shadow.gain_sum, shadow.deviation_sum],
            "groups": [_group_document(self.bandit), _group_document(self.control)],
            "since": [self.since_ms, self.since_position],
            "guarded": [self.guarded_position, self.guarded_reason],
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Comparison:
        """Return what `as_document` gave; another document raises `CorruptDataError`."""
        try:
            bandit, control = map(_read_group, document["groups"])
            shadow, guarded = ShadowTally(*document["shadow"]), document["guarded"]
            return cls(shadow, bandit, control, *document["since"], *guarded)
        except (KeyError, TypeError, ValueError) as error:
            raise CorruptDataError(f"a comparison can't be read: {error!r}") from error


NOTHING_COMPARED = Comparison()


def _group_document(tally: GroupTally) -> list[object]:
    earned = tally.earned
    return [tally.drawn, earned.count, earned.total.to_text(), earned.squares.to_text()]


def _read_group(document: list[Any]) -> GroupTally:
    drawn, count, total, squares = document
    sums = (ExactSum.from_text(text, field="comparison") for text in (total, squares))
    return GroupTally(drawn, GroupTotals(count, *sums))
