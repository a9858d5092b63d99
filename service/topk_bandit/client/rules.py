"""Rules of a slate, as a caller writes them. No I/O here.

A rule is one of the dataclasses here; a text stands for a `Filter`. Each may be relaxed: with ``may_relax`` a slate may
break it where no slate keeps all rules.
"""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from topk_bandit.client.arguments import WRONG, refuse, several, texts
from topk_bandit.domain import rules as domain
from topk_bandit.domain.rules import Absence, AbsenceReason, SlateRule
from topk_bandit.wire.forms import Pair
from topk_bandit.wire.rules import RULE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from topk_bandit.v1 import rules_pb2 as pb

__all__ = [
    "READ_RULE",
    "Absence",
    "AbsenceReason",
    "Apart",
    "Count",
    "Exclude",
    "Exposure",
    "Filter",
    "Frequency",
    "Pin",
    "Rule",
    "allowed_of",
    "in_words",
    "rule_messages",
    "rule_of",
]


@dataclass(frozen=True, slots=True)
class Exclude:
    """These items are in no slate, such as those in the basket: at most 10,000. It is kept by a fallback, too."""

    item_ids: Collection[str]
    may_relax: bool = False


@dataclass(frozen=True, slots=True)
class Filter:
    """Items that do not meet a condition on their features are in no slate.

    Attributes
    ----------
    text
        Such as ``price < 20 and not (category in ["wine", "beer"])``.
    """

    text: str
    may_relax: bool = False


@dataclass(frozen=True, slots=True)
class Pin:
    """One of some items is at a position.

    Attributes
    ----------
    position
        From 1 to the slate size.
    item_ids
        One item that is pinned, or those that the bandit chooses from, such as a supplier's: at most 100.
    """

    position: int
    item_ids: Collection[str]
    may_relax: bool = False


@dataclass(frozen=True, slots=True)
class Count:
    """A slate has at least and at most so many items of a group.

    Attributes
    ----------
    feature, value
        The group: items with a value of a categorical feature, or with a label. None as `value` means that each value
        has a group of its own, which `at_least` can't be used with.
    at_least, at_most
        How many items of the group a slate has. One of the two is needed; None means no limit.
    shown_fewer_than
        In place of a feature: the group is new items, those that fewer of the learned slates have shown.
    item_ids
        In place of a feature: the group is these items, at most 100.
    """

    feature: str = ""
    value: str | None = None
    at_least: int = 0
    at_most: int | None = None
    shown_fewer_than: int = 0
    item_ids: Collection[str] = ()
    may_relax: bool = False


@dataclass(frozen=True, slots=True)
class Apart:
    """No two items of a group are beside each other.

    Attributes
    ----------
    feature, value
        The group: items with a value of a categorical feature, or with a label. None as `value` means any two items
        that have the same one.
    """

    feature: str
    value: str | None = None
    may_relax: bool = False


@dataclass(frozen=True, slots=True)
class Exposure:
    """A bandit promises that at least a share of its slates show an item of a group. No request has such a rule.

    Attributes
    ----------
    share
        Above 0, at most 1.
    feature, value
        The group: items with a value of a categorical feature, or with a label.
    item_ids
        In place of a feature: these items, at most 100.
    shown_fewer_than
        In place of a feature: new items, those that fewer of the learned slates have shown.
    """

    share: float
    feature: str = ""
    value: str | None = None
    item_ids: Collection[str] = ()
    shown_fewer_than: int = 0

    @property
    def may_relax(self) -> bool:
        """False: no slate breaks a promise, so none gives it up."""
        return False


@dataclass(frozen=True, slots=True)
class Frequency:
    """One visitor is shown an item in so many slates at most, for requests with a `frequency_key`.

    Attributes
    ----------
    at_most
        In how many slates, from 1 to 100.
    within_seconds
        How long a slate counts: up to 30 days.
    feature, value
        What is counted together: items with a value of a categorical feature, or with a label. None as `value` means
        each value by itself. Without a feature it is each item by itself.
    item_ids
        In place of a feature: these items together, at most 100.
    """

    at_most: int
    within_seconds: int
    feature: str = ""
    value: str | None = None
    item_ids: Collection[str] = ()
    may_relax: bool = False


Rule: TypeAlias = Exclude | Filter | Pin | Count | Apart | Exposure | Frequency


def rule_messages(field: str, rules: Iterable[Rule | str] | None) -> list[pb.SlateRule]:
    """Return the messages of rules, none for None; `InvalidArgument` names the one that is no rule below `field`."""
    return [] if rules is None else [_message(f"{field}[{n}]", rule) for n, rule in enumerate(several(field, rules))]


def _message(path: str, rule: Rule | str) -> pb.SlateRule:
    declared = Filter(rule) if isinstance(rule, str) else rule
    if not isinstance(declared, Rule):
        raise refuse(path, rule)
    try:
        message: pb.SlateRule = RULE.write(SlateRule(_declare(path, declared), declared.may_relax))
    except WRONG:
        raise refuse(path, rule) from None
    return message


def _declare(path: str, rule: Rule) -> domain.Rule:  # noqa: PLR0911, one for each kind
    match rule:
        case Exclude(item_ids):
            return domain.Exclude(_ids(f"{path}.exclude.item_ids", item_ids))
        case Filter(text):
            return domain.Filter(text)
        case Pin(position, item_ids):
            return domain.Pin(_ids(f"{path}.pin.item_ids", item_ids), position - 1)
        case Count(feature, value, at_least, at_most, shown_fewer_than, item_ids):
            named = _ids(f"{path}.count.group.item_ids", item_ids)
            return domain.Count(domain.Group(feature, value, shown_fewer_than, named), at_least, at_most)
        case Exposure(share, feature, value, item_ids, shown_fewer_than):
            named = _ids(f"{path}.exposure.group.item_ids", item_ids)
            return domain.Exposure(domain.Group(feature, value, shown_fewer_than, named), share)
        case Frequency(at_most, within_seconds, feature, value, item_ids):
            named = _ids(f"{path}.frequency.group.item_ids", item_ids)
            return domain.Frequency(domain.Group(feature, value, item_ids=named), at_most, within_seconds)
        case Apart(feature, value):
            return domain.Apart(domain.Group(feature, value))


def _ids(path: str, ids: Collection[str]) -> tuple[str, ...]:
    """Return ids in their order, those of a set in one that is the same each time: a request may be sent again."""
    found = texts(path, ids)
    return tuple(sorted(found) if isinstance(ids, AbstractSet) else found)


def allowed_of(ranking: Iterable[str], rules: object) -> tuple[str, ...]:
    """Return what `Exclude` rules leave of the shop's own ranking, each item once.

    Whatever is no rule excludes nothing.
    """
    several_rules = rules if isinstance(rules, list | tuple) else ()
    given: list[Any] = [one.item_ids for one in several_rules if isinstance(one, Exclude)]
    groups = [ids for ids in given if isinstance(ids, Collection) and not isinstance(ids, str)]
    excluded = {item_id for ids in groups for item_id in ids if isinstance(item_id, str)}
    return tuple(item_id for item_id in dict.fromkeys(ranking) if item_id not in excluded)


def in_words(rule: Rule) -> str:
    """Return a rule in words, such as an answer has it."""
    return domain.describe_declared(SlateRule(_declare("rule", rule), rule.may_relax))


def rule_of(declared: SlateRule) -> Rule:  # noqa: PLR0911, one for each kind
    """Return a rule as a caller has it."""
    may_relax = declared.may_relax
    match declared.rule:
        case domain.Exclude(item_ids):
            return Exclude(item_ids, may_relax)
        case domain.Filter(text):
            return Filter(text, may_relax)
        case domain.Pin(item_ids, position):
            return Pin(position + 1, item_ids, may_relax)
        case domain.Count(group, least, most):
            return Count(group.feature, group.value, least, most, group.shown_fewer_than, group.item_ids, may_relax)
        case domain.Apart(group):
            return Apart(group.feature, group.value, may_relax)
        case domain.Exposure(group, share):
            return Exposure(share, group.feature, group.value, group.item_ids, group.shown_fewer_than)
        case domain.Frequency(group, most, within_seconds):
            return Frequency(most, within_seconds, group.feature, group.value, group.item_ids, may_relax)


READ_RULE = Pair(read=lambda message: rule_of(RULE.read(message)))
"""A rule of a message, as a caller has it."""
