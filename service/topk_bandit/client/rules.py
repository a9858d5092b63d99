"""Rules of a slate, as a caller writes them. No I/O here.

A rule is one of the dataclasses here; a text stands for a `Filter`. Each may be relaxed: with ``may_relax`` a slate may
break it where no slate keeps all rules.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from topk_bandit.domain import rules as domain
from topk_bandit.domain.rules import Absence, AbsenceReason, SlateRule
from topk_bandit.wire.forms import Pair
from topk_bandit.wire.rules import RULE

if TYPE_CHECKING:
    from topk_bandit.v1 import rules_pb2 as pb

__all__ = ["WRITTEN_RULE", "Absence", "AbsenceReason", "Apart", "Count", "Exclude", "Filter", "Pin", "Rule"]


@dataclass(frozen=True, slots=True)
class Exclude:
    """These items are in no slate, such as those in the basket: at most 10,000."""

    item_ids: tuple[str, ...]
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
    item_ids: tuple[str, ...]
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
    """

    feature: str = ""
    value: str | None = None
    at_least: int = 0
    at_most: int | None = None
    shown_fewer_than: int = 0
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


Rule: TypeAlias = Exclude | Filter | Pin | Count | Apart


def _declare(rule: Rule) -> SlateRule:
    match rule:
        case Exclude(item_ids):
            said: domain.Rule = domain.Exclude(item_ids)
        case Filter(text):
            said = domain.Filter(text)
        case Pin(position, item_ids):
            said = domain.Pin(item_ids, position - 1)
        case Count(feature, value, at_least, at_most, shown_fewer_than):
            said = domain.Count(domain.Group(feature, value, shown_fewer_than), at_least, at_most)
        case Apart(feature, value):
            said = domain.Apart(domain.Group(feature, value))
    return SlateRule(said, rule.may_relax)


def _state(declared: SlateRule) -> Rule:
    may_relax = declared.may_relax
    match declared.rule:
        case domain.Exclude(item_ids):
            return Exclude(item_ids, may_relax)
        case domain.Filter(text):
            return Filter(text, may_relax)
        case domain.Pin(item_ids, position):
            return Pin(position + 1, item_ids, may_relax)
        case domain.Count(group, least, most):
            return Count(group.feature, group.value, least, most, group.shown_fewer_than, may_relax)
        case domain.Apart(group):
            return Apart(group.feature, group.value, may_relax)


def _write(rule: Rule) -> pb.SlateRule:
    message: pb.SlateRule = RULE.write(_declare(rule))
    return message


WRITTEN_RULE = Pair(_write, lambda message: _state(RULE.read(message)))
"""A rule as a caller has it, and its message."""
