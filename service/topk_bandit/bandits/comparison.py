"""What a bandit's slates are compared by: what it would have shown in shadow, and what its two groups earn.

Both are functions of the log alone. Groups begin anew where the control share changes, since before another part of
the requests was in each, and with a reset: what was forgotten earned the rewards before. A slate counts in its group
once it has ended or its reward is first learned, with 0 if it earned nothing; what was taken back does not count. A
slate that was shown before counts nowhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

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
    from collections.abc import Iterator, Mapping

    from topk_bandit.domain.bandits import BanditSettings, LoggedEvent, Recommendation

__all__ = ["NOTHING_COMPARED", "Comparison", "DayBegin", "DayTallies", "GroupTally", "ShadowTally"]

DAY_MS = 86_400_000
MOST_DAYS = 60


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

    def since(self, before: GroupTally) -> GroupTally:
        """Return what came to it since it was another one."""
        return GroupTally(self.drawn - before.drawn, self.earned.minus_totals(before.earned))


@dataclass(frozen=True, slots=True)
class DayBegin:
    """What the groups had come to when a day began: a day of UTC by the store's clock, counted from 1970.

    Days without events have none. So a day has what came on it: a reward that is amended or taken back later changes
    the day on which that happens.
    """

    day: int
    bandit: GroupTally
    control: GroupTally


class DayTallies(NamedTuple):
    """What came to the groups on a day that began at a time."""

    start_ms: int
    bandit: GroupTally
    control: GroupTally


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
    days
        The last `MOST_DAYS` days with events since the groups began, oldest first.
    """

    shadow: ShadowTally = ShadowTally()
    bandit: GroupTally = GroupTally()
    control: GroupTally = GroupTally()
    since_ms: int = 0
    since_position: int = 0
    guarded_position: int = 0
    guarded_reason: str = ""
    days: tuple[DayBegin, ...] = ()

    def after(self, logged: LoggedEvent, before: BanditSettings) -> Comparison:
        """Return the comparison after an event of a bandit that had these settings before."""
        days = self._days_at(logged.at_ms)
        known = self if days is self.days else replace(self, days=days)
        return known.take(logged, before)

    def by_day(self) -> Iterator[DayTallies]:
        """Yield what came on each day that is known, oldest first."""
        now = DayBegin(0, self.bandit, self.control)
        for begin, end in zip(self.days, (*self.days, now)[1:], strict=True):
            groups = ((end.bandit, begin.bandit), (end.control, begin.control))
            yield DayTallies(begin.day * DAY_MS, *(after.since(before) for after, before in groups))

    def _days_at(self, at_ms: int) -> tuple[DayBegin, ...]:
        """Return the days, with a new one if an event is the first of it; a clock that is set back begins none."""
        day = at_ms // DAY_MS
        if not self.since_ms or (self.days and day <= self.days[-1].day):
            return self.days
        return (*self.days, DayBegin(day, self.bandit, self.control))[-MOST_DAYS:]

    def take(self, logged: LoggedEvent, before: BanditSettings) -> Comparison:
        """Return the comparison after an event of a day that has begun."""
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
        groups = replace(self, bandit=GroupTally(), control=GroupTally(), days=())
        return replace(groups, since_ms=logged.at_ms, since_position=logged.position)

    def as_document(self) -> dict[str, Any]:
        """Return it as digests have it, and snapshots beside `days_document`."""
        shadow = self.shadow
        return {
            "shadow": [shadow.slates, shadow.agreements, shadow.shared_items, shadow.gain_sum, shadow.deviation_sum],
            "groups": [_group_document(self.bandit), _group_document(self.control)],
            "since": [self.since_ms, self.since_position],
            "guarded": [self.guarded_position, self.guarded_reason],
        }

    def days_document(self) -> dict[str, Any]:
        """Return its days as snapshots have them: digests leave them out, as programs do that came before them."""
        days = [[one.day, _group_document(one.bandit), _group_document(one.control)] for one in self.days]
        return {"days": days} if days else {}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Comparison:
        """Return what `as_document` and `days_document` gave; another document raises `CorruptDataError`."""
        try:
            bandit, control = map(_read_group, document["groups"])
            shadow, guarded = ShadowTally(*document["shadow"]), document["guarded"]
            days = tuple(DayBegin(day, *map(_read_group, groups)) for day, *groups in document.get("days", ()))
            known = cls(shadow, bandit, control, *document["since"], *guarded)
            return replace(known, days=days)
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
