"""What a bandit's slates are compared by: what it would have shown in shadow, and what its two groups earn.

All of it is a function of the log. Groups begin anew with a reset, and where the control share or the conservative
share changes, since before another part of the requests was in each. A slate counts in its group once it has ended or
its reward is first learned, with 0 if it earned nothing, unless it was taken back, or shown before the groups began.
Baseline slates of a conservative bandit are of its group, and counted by themselves besides: the others are its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from topk_bandit.domain.errors import CorruptDataError
from topk_bandit.domain.replacing import replace
from topk_bandit.domain.stages import Group, Stage
from topk_bandit.learning.conservative import Arm, find_reserve, may_show_own
from topk_bandit.learning.exact_sums import ExactSum
from topk_bandit.learning.group_totals import NO_REQUESTS, GroupTotals
from topk_bandit.store.events import (
    BanditReset,
    Expired,
    Recommended,
    RewardAmended,
    Rewarded,
    RewardRevised,
    SettingsChanged,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import TypeAlias

    from topk_bandit.domain.bandits import BanditSettings
    from topk_bandit.domain.slates import Recommendation
    from topk_bandit.store.events import LoggedEvent

    _HasUnit: TypeAlias = Callable[[Recommendation], bool]

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
    bandit, control
        The groups; slates of `conservative` are in `bandit`, too.
    conservative
        Requests that got the baseline slate because the bandit had no more to lose.
    least
        The smallest reward since the first of these, 0 where none is below.
    since_ms, since_position
        When the control share or the conservative share was set last, by the store's clock, and where in the log; 0 for
        a bandit that never had one.
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
    conservative: GroupTally = GroupTally()
    least: float = 0.0

    @property
    def own(self) -> GroupTally:
        """The requests of the bandit's group that got its own slates."""
        return self.bandit.since(self.conservative)

    def may_show_own(self, share: float) -> bool:
        """Return whether a bandit with this conservative share may show its own slate next."""
        return may_show_own(*self._arms, share=share, least=self.least)

    def find_reserve(self, share: float) -> float | None:
        """Return what is earned for sure above what this conservative share promises; None while it is too early."""
        return find_reserve(*self._arms, share=share, least=self.least)

    @property
    def _arms(self) -> tuple[Arm, Arm]:
        own, baseline = self.own, self.conservative
        return Arm(own.drawn, own.earned), Arm(baseline.drawn, baseline.earned)

    def after(self, logged: LoggedEvent, before: BanditSettings, *, has_unit: _HasUnit) -> Comparison:
        """Return the comparison after an event of a bandit that had these settings before.

        A slate whose gain has no unit does not count for the shadow.
        """
        days = self._days_at(logged.at_ms)
        known = self if days is self.days else replace(self, days=days)
        return known.take(logged, before, has_unit=has_unit)

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

    def take(self, logged: LoggedEvent, before: BanditSettings, *, has_unit: _HasUnit) -> Comparison:
        """Return the comparison after an event of a day that has begun."""
        match logged.event:
            case Recommended(recommendation=given):
                return self.draw(given if given.shadow is None or has_unit(given) else replace(given, shadow=None))
            case BanditReset() if self.since_ms:
                return self._begin_anew(logged)
            case SettingsChanged(settings, guarded=reason):
                changed = self._change(settings, before, logged)
                position = logged.position
                return replace(changed, guarded_position=position, guarded_reason=reason) if reason else changed
            case Rewarded() | Expired() | RewardRevised() | RewardAmended() as earned:
                return self if earned.group is Group.NONE else self._earn(earned)
        return self

    def draw(self, given: Recommendation) -> Comparison:
        """Return the comparison after a recommendation."""
        drawn = self._add(given.group, lambda known: replace(known, drawn=known.drawn + 1))
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
        if before == value:
            return self
        # Where nobody knows when a slate was recommended, it may be one of before the groups began anew.
        is_strange = before is not None and not self._of(group).earned.count
        if is_strange:
            return self
        counted = self._add(group, lambda known: _with_reward(known, before, value))
        if value is None or value >= self.least or not self.conservative.drawn:
            return counted
        return replace(counted, least=value)

    def _of(self, group: Group) -> GroupTally:
        match group:
            case Group.CONTROL:
                return self.control
            case Group.CONSERVATIVE:
                return self.conservative
        return self.bandit

    def _add(self, group: Group, change: Callable[[GroupTally], GroupTally]) -> Comparison:
        """Return the comparison with a change of a group's tally, and of those that have it, too."""
        match group:
            case Group.NONE:
                return self
            case Group.CONTROL:
                return replace(self, control=change(self.control))
            case Group.BANDIT:
                return replace(self, bandit=change(self.bandit))
            case Group.CONSERVATIVE:
                return replace(self, bandit=change(self.bandit), conservative=change(self.conservative))

    def _change(self, settings: BanditSettings, before: BanditSettings, logged: LoggedEvent) -> Comparison:
        changed = self
        if _shares_of(settings) != _shares_of(before):
            changed = self._begin_anew(logged)
        if settings.stage is Stage.SHADOW and before.stage is not Stage.SHADOW:
            changed = replace(changed, shadow=ShadowTally())
        return changed

    def _begin_anew(self, logged: LoggedEvent) -> Comparison:
        none = GroupTally()
        groups = replace(self, bandit=none, control=none, conservative=none, least=0.0, days=())
        return replace(groups, since_ms=logged.at_ms, since_position=logged.position)

    def as_document(self) -> dict[str, Any]:
        """Return it as digests have it, and snapshots beside `days_document`."""
        shadow = self.shadow
        return {
            "shadow": [shadow.slates, shadow.agreements, shadow.shared_items, shadow.gain_sum, shadow.deviation_sum],
            "groups": [_group_document(self.bandit), _group_document(self.control)],
            "since": [self.since_ms, self.since_position],
            "guarded": [self.guarded_position, self.guarded_reason],
            **self._conservative_document(),
        }

    def _conservative_document(self) -> dict[str, Any]:
        """Return what most bandits don't have: they leave it out."""
        if self.conservative == GroupTally() and not self.least:
            return {}
        return {"conservative": [*_group_document(self.conservative), self.least]}

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
            *conservative, least = document.get("conservative", (*_group_document(GroupTally()), 0.0))
            return replace(known, days=days, conservative=_read_group(conservative), least=least)
        except (KeyError, TypeError, ValueError) as error:
            raise CorruptDataError(f"a comparison can't be read: {error!r}") from error


NOTHING_COMPARED = Comparison()


def _shares_of(settings: BanditSettings) -> tuple[float, float]:
    return settings.control_share, settings.conservative_share


def _with_reward(tally: GroupTally, before: float | None, value: float | None) -> GroupTally:
    """Return a tally in which a slate earned another reward; None for one that does not count."""
    earned = tally.earned if before is None else tally.earned.minus(before)
    return replace(tally, earned=earned if value is None else earned.plus(value))


def _group_document(tally: GroupTally) -> list[object]:
    earned = tally.earned
    return [tally.drawn, earned.count, earned.total.to_text(), earned.squares.to_text()]


def _read_group(document: list[Any]) -> GroupTally:
    drawn, count, total, squares = document
    sums = (ExactSum.from_text(text, field="comparison") for text in (total, squares))
    return GroupTally(drawn, GroupTotals(count, *sums))
