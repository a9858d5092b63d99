"""What a bandit owes for the exposures that it promised, and when a slate pays.

A promise is a virtual queue. Each of the bandit's own slates adds the share, and one with an item of the group takes
one off. A slate pays where that costs little expected reward for what is owed, by no draw: its propensities are exact.

Source: Neely, *Stochastic Network Optimization with Application to Communication and Queueing Systems*, 2010, chapter
4.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from topk_bandit.domain.errors import CorruptDataError
from topk_bandit.domain.rules import Count, Exposure, ExposureStats, SlateRule, describe_rule
from topk_bandit.domain.stages import Group as RequestGroup
from topk_bandit.learning.slate_rules import Candidates, shows_group
from topk_bandit.store.events import Recommended, SettingsChanged

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from topk_bandit.bandits.items import Items
    from topk_bandit.domain.bandits import BanditSettings
    from topk_bandit.store.events import LoggedEvent

__all__ = ["NOTHING_PROMISED", "Exposures", "Promise", "can_pay", "describe_exposures", "find_unpaid", "rules_that_pay"]

PRICE = 0.1
"""What a slate may cost for each one that is owed, in units of the spread of what slates are expected to earn. Where it
is smaller, more is owed before the dearest contexts pay; where it is larger, chance decides more which contexts do."""

MOST_OWED, MOST_AHEAD = 1_000.0, 20.0
"""So many slates are owed at most, and so many shown in advance count. So a promise that could not be kept for a while
does not fill each slate afterwards, and a group that did well for a while is owed its share afterwards."""


@dataclass(frozen=True, slots=True)
class Promise:
    """How a promise was kept since it was made.

    Attributes
    ----------
    slates, shown
        How many of the bandit's own slates were given out, and how many of them show an item of the group.
    owed
        How many slates are owed, below 0 for those that were shown in advance.
    """

    rule: Exposure
    slates: int = 0
    shown: int = 0
    owed: float = 0.0

    def after(self, *, is_shown: bool) -> Promise:
        """Return the promise after a slate."""
        owed = min(max(self.owed + self.rule.share - is_shown, -MOST_AHEAD), MOST_OWED)
        return Promise(self.rule, self.slates + 1, self.shown + is_shown, owed)


@dataclass(frozen=True, slots=True)
class Exposures:
    """The promises of a bandit, in the order of its rules; a function of its log."""

    promises: tuple[Promise, ...] = ()

    @classmethod
    def of(cls, settings: BanditSettings, known: Iterable[Promise] = ()) -> Exposures:
        """Return the promises of a bandit's settings; one that was made before goes on."""
        before = {promise.rule: promise for promise in known}
        rules = (one.rule for one in settings.rules)
        return cls(tuple(before.get(rule, Promise(rule)) for rule in rules if isinstance(rule, Exposure)))

    def after(self, logged: LoggedEvent, items: Items) -> Exposures:
        """Return the promises after an event, with the items of then."""
        match logged.event:
            case SettingsChanged(settings):
                return self.of(settings, self.promises)
            case Recommended(recommendation=given) if self.promises and items.catalogue is not None:
                if given.baseline or given.group is RequestGroup.CONTROL or not given.stage.shows_own:
                    return self
                shown = [_shows(promise, given.slate, items) for promise in self.promises]
                both = zip(self.promises, shown, strict=True)
                return Exposures(tuple(promise.after(is_shown=one) for promise, one in both))
        return self

    @property
    def is_anything_owed(self) -> bool:
        """Whether the next slate may have to pay."""
        return any(promise.owed > 0.0 for promise in self.promises)

    def as_document(self) -> list[list[float]]:
        """Return it as snapshots and digests have it, beside the settings."""
        return [[promise.slates, promise.shown, promise.owed] for promise in self.promises]

    @classmethod
    def from_document(cls, document: Sequence[Any], settings: BanditSettings) -> Exposures:
        """Return what `as_document` gave; another document raises `CorruptDataError`."""
        made = cls.of(settings).promises
        try:
            known = zip(made, document, strict=True)
            return cls(tuple(replace(promise, slates=n, shown=m, owed=owed) for promise, (n, m, owed) in known))
        except (TypeError, ValueError) as error:
            raise CorruptDataError(f"exposures can't be read: {error!r}") from error


NOTHING_PROMISED = Exposures()


def describe_exposures(exposures: Exposures) -> tuple[ExposureStats, ...]:
    """Return how each promise was kept."""
    return tuple(ExposureStats(describe_rule(one.rule), one.slates, one.shown, one.owed) for one in exposures.promises)


def find_unpaid(exposures: Exposures, slate: Sequence[str], items: Items) -> tuple[Promise, ...]:
    """Return those promises for which a slate is owed, and of whose groups a slate shows no item."""
    owed = (promise for promise in exposures.promises if promise.owed > 0.0)
    return tuple(promise for promise in owed if not _shows(promise, slate, items))


def rules_that_pay(promises: Iterable[Promise]) -> tuple[SlateRule, ...]:
    """Return the rules of a slate that pays for promises."""
    return tuple(SlateRule(Count(promise.rule.group, least=1)) for promise in promises)


def can_pay(promises: Iterable[Promise], loss: float, *, spread: float) -> bool:
    """Return whether a slate may lose as much expected reward to pay for promises; `spread` is `PRICE`'s unit."""
    return loss <= PRICE * spread * sum(promise.owed for promise in promises)


def _shows(promise: Promise, slate: Sequence[str], items: Items) -> bool:
    if items.catalogue is None or not items.have_places(slate):
        return False
    candidates = Candidates(items.catalogue.table, shown_counts=items.learned_counts)
    return shows_group(promise.rule.group, candidates, items.find_indices(slate))
