"""What one visitor was shown lately: what rules of frequency count, and nothing else knows.

A visitor is a digest, which differs from bandit to bandit; each slate is forgotten after the longest of the rules that
it was counted for. See decision 96.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from topk_bandit.domain.rules import Frequency
from topk_bandit.domain.slates import rules_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from topk_bandit.domain.bandits import BanditSettings
    from topk_bandit.domain.features import FeatureValue
    from topk_bandit.domain.slates import RecommendationRequest

    ValuesOf: TypeAlias = Callable[[str, Sequence[str]], Mapping[str, Sequence[FeatureValue]]]

__all__ = [
    "BYTES_OF_VISITOR",
    "MOST_CHARACTERS",
    "MOST_SLATES",
    "MOST_VISITORS",
    "SeenSlate",
    "Visits",
    "find_reached",
    "frequencies_of",
    "visitor_of",
]

MOST_SLATES, MOST_CHARACTERS = 500, 50_000
"""So many slates of a visitor are counted, the newest, and so many characters of their items' ids."""

BYTES_OF_VISITOR = 1024
"""So much a visitor counts for a tenant's quota: what a few slates take in a store."""

MOST_VISITORS = 1_000_000
"""So many visitors of a bandit are counted at a time: what another one sees is not."""


class SeenSlate(NamedTuple):
    """A slate that a visitor was shown: when, until when that counts, and its items."""

    at_ms: int
    until_ms: int
    item_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Visits:
    """What is known of a visitor, as of one moment.

    Attributes
    ----------
    visitor
        A digest.
    slates
        The earliest first.
    now_ms
        The store's clock when they were read.
    n_visitors
        How many visitors of the bandit are counted.
    """

    visitor: str
    slates: tuple[SeenSlate, ...] = ()
    now_ms: int = 0
    n_visitors: int = 0

    @property
    def is_counted(self) -> bool:
        """Whether what the visitor is shown next is counted: there is space for it."""
        return bool(self.slates) or self.n_visitors < MOST_VISITORS

    @property
    def until_ms(self) -> int:
        """When all of it is forgotten."""
        return max((one.until_ms for one in self.slates), default=0)

    def after(self, item_ids: tuple[str, ...], *, keep_ms: int) -> Visits:
        """Return what is known once a slate is shown that counts for so long."""
        shown = SeenSlate(self.now_ms, self.now_ms + keep_ms, item_ids)
        newest = [one for one in (*self.slates, shown) if one.until_ms > self.now_ms][-MOST_SLATES:]
        size, kept = 0, 0
        for one in reversed(newest):
            size += sum(map(len, one.item_ids))
            if kept and size > MOST_CHARACTERS:
                break
            kept += 1
        return replace(self, slates=tuple(newest[len(newest) - kept :]))


def frequencies_of(settings: BanditSettings, request: RecommendationRequest) -> list[Frequency]:
    """Return the rules of frequency that a request's slate keeps, in the order of its rules."""
    return [one.rule for one in rules_of(settings, request) if isinstance(one.rule, Frequency)]


def visitor_of(incarnation: str, settings: BanditSettings, request: RecommendationRequest) -> str:
    """Return the digest of a request's visitor, 32 hexadecimal digits; empty where no rule counts what they see."""
    if not (request.frequency_key and frequencies_of(settings, request)):
        return ""
    key = blake2b(incarnation.encode(), digest_size=32).digest()
    return blake2b(request.frequency_key.encode(), key=key, digest_size=16).hexdigest()


def find_reached(rules: Iterable[Frequency], visits: Visits, values_of: ValuesOf) -> tuple[tuple[str, ...], ...]:
    """Return what a visitor has seen as often as each of some rules allows; nothing where that is so of none.

    Parameters
    ----------
    values_of
        Returns the values or labels that some items have of a feature, by their ids.

    Returns
    -------
    Values of the rule's feature, or ids of items where it has none, in order.
    """
    found = tuple(_find_reached(rule, visits, values_of) for rule in rules)
    return found if any(found) else ()


def _find_reached(rule: Frequency, visits: Visits, values_of: ValuesOf) -> tuple[str, ...]:
    since_ms = visits.now_ms - 1000 * rule.within_seconds
    counted = (one for one in visits.slates if one.until_ms > visits.now_ms)
    shown = [one.item_ids for one in counted if one.at_ms > since_ms]
    group = rule.group
    if group.item_ids:
        named = {*group.item_ids}
        times = sum(not named.isdisjoint(slate) for slate in shown)
        return group.item_ids if times >= rule.most else ()
    if not group.feature:
        counts = Counter(item_id for slate in shown for item_id in slate)
    else:
        values = values_of(group.feature, [*dict.fromkeys(item_id for slate in shown for item_id in slate)])
        of_slates = ({str(value) for item_id in slate for value in values.get(item_id, ())} for slate in shown)
        counts = Counter(value for of_slate in of_slates for value in of_slate)
    reached = (key for key, times in counts.items() if times >= rule.most)
    return tuple(sorted(key for key in reached if group.value in {None, key}))
