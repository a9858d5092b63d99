"""Rules that every slate of a request keeps, and why a slate does not show an item: values, and their words.

`topk_bandit.learning.slate_rules` compiles them, and says which ones clash.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, TypeAlias

from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.domain.features import Categorical, LabelSet
from topk_bandit.domain.filters import condition_of, parse_filter
from topk_bandit.domain.nearest import find_nearest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topk_bandit.domain.features import FeatureSchema
    from topk_bandit.domain.filters import Condition

__all__ = [
    "MAX_EXCLUDED",
    "MAX_EXPOSURES",
    "MAX_GROUPED",
    "MAX_PINNED",
    "MAX_RULES",
    "Absence",
    "AbsenceReason",
    "Apart",
    "Count",
    "Exclude",
    "Exposure",
    "ExposureStats",
    "Filter",
    "Frequency",
    "Group",
    "Pin",
    "Rule",
    "SlateRule",
    "check_rules",
    "describe_declared",
    "describe_rule",
    "is_about_new",
]

MAX_RULES = 32
"""How many rules a slate may have."""

MAX_EXCLUDED, MAX_PINNED = 10_000, 100
"""How many items a rule may exclude, and how many may be at a position."""

MAX_GROUPED, MAX_EXPOSURES = 100, 8
"""How many items a group may name, and how many exposures a bandit may promise."""

MAX_TIMES, MAX_WITHIN_SECONDS = 100, 30 * 24 * 3600
"""How often one visitor may see an item at most, and in how long: thirty days."""

MAX_SHOWN_FEWER_THAN = 1_000
"""How often an item may have been shown and still be new."""


@dataclass(frozen=True, slots=True)
class Exclude:
    """These items are in no slate."""

    item_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Filter:
    """Items that do not meet a condition are in no slate; it is kept as its text, which the caller can read."""

    text: str

    @property
    def condition(self) -> Condition:
        """The condition that the text states, which was checked before."""
        return condition_of(self.text)


@dataclass(frozen=True, slots=True)
class Pin:
    """One of some items is at a position, from 0. It is shown and learned, and counts for the other rules.

    One alone is pinned, and is in no other position; several may be.
    """

    item_ids: tuple[str, ...]
    position: int


@dataclass(frozen=True, slots=True)
class Group:
    """The items with a value of a categorical feature, or with a label; without one each value has a group.

    Or new items: those that fewer of the learned slates have shown. Or items by their ids.
    """

    feature: str = ""
    value: str | None = None
    shown_fewer_than: int = 0
    item_ids: tuple[str, ...] = ()

    @property
    def is_one(self) -> bool:
        """Whether it is one group, and not one of each value."""
        return self.value is not None or bool(self.shown_fewer_than or self.item_ids)


@dataclass(frozen=True, slots=True)
class Count:
    """A slate has at least and at most so many items of a group; None is no limit. At least needs one value."""

    group: Group
    least: int = 0
    most: int | None = None


@dataclass(frozen=True, slots=True)
class Apart:
    """No two items of a group are beside each other."""

    group: Group


@dataclass(frozen=True, slots=True)
class Exposure:
    """At least a share of the bandit's own slates show an item of a group.

    It is a promise of the bandit and not of each slate: no single slate breaks it.
    """

    group: Group
    share: float


@dataclass(frozen=True, slots=True)
class Frequency:
    """One visitor is shown an item of a group in so many slates at most, in so many seconds.

    A group of no feature and no items is each item by itself. What the visitor has seen often enough is excluded.
    """

    group: Group
    most: int
    within_seconds: int


@dataclass(frozen=True, slots=True)
class ExposureStats:
    """How a promised exposure was kept, since it was promised.

    Attributes
    ----------
    rule
        The promise, in words.
    slates, shown
        How many of the bandit's own slates were recommended, and how many of them show an item of the group.
    owed
        How many slates are still to show one; below 0, so many more than were promised have.
    """

    rule: str
    slates: int
    shown: int
    owed: float


Rule: TypeAlias = Exclude | Filter | Pin | Count | Apart | Exposure | Frequency


@dataclass(frozen=True, slots=True)
class SlateRule:
    """A rule as a bandit or a request declares it: those of the request come after the bandit's.

    Where no slate keeps all rules, those that may be relaxed are given up, from the last one on, until one does.
    """

    rule: Rule
    may_relax: bool = False


class AbsenceReason(StrEnum):
    """Why a slate does not show an item.

    UNKNOWN is an item that the bandit does not have, and NO_CANDIDATE one that the request does not name. FREQUENT is
    one that the visitor has seen often enough. RULE is one that no slate that keeps the rules has; NOT_CHOSEN one that
    could be shown.
    """

    UNKNOWN = "unknown"
    UNAVAILABLE = "unavailable"
    NO_CANDIDATE = "no_candidate"
    EXCLUDED = "excluded"
    FILTERED = "filtered"
    FREQUENT = "frequent"
    RULE = "rule"
    NOT_CHOSEN = "not_chosen"


@dataclass(frozen=True, slots=True)
class Absence:
    """An item that a slate does not show, with the reason; and the rule in words, empty where it is none."""

    item_id: str
    reason: AbsenceReason
    rule: str = ""


def is_about_new(rule: Rule) -> bool:
    """Return whether a rule asks for new items, which change with what is learned."""
    return isinstance(rule, Count | Apart) and rule.group.shown_fewer_than > 0


def describe_rule(rule: Rule) -> str:  # noqa: PLR0911, one for each kind
    """Return a rule in words, for an error."""
    match rule:
        case Exclude(item_ids):
            return f"exclude {_describe_items(item_ids)}"
        case Filter(text):
            return f"filter {text}"
        case Pin(item_ids, position):
            pinned = item_ids[0] if len(item_ids) == 1 else f"one of {len(item_ids)} items"
            return f"pin {pinned} at position {position + 1}"
        case Count(group, least, most):
            bounds = [f"at least {least}"] * (least > 0) + [f"at most {most}"] * (most is not None)
            return f"{' and '.join(bounds)} of {_describe_group(group)}"
        case Apart(group):
            return f"no two of {_describe_group(group)} beside each other"
        case Exposure(group, share):
            return f"at least {share:.6g} of all slates show one of {_describe_group(group)}"
        case Frequency(group, most, within_seconds):
            times = "once" if most == 1 else f"{most} times"
            return f"show one visitor {_describe_group(group)} at most {times} in {_describe_span(within_seconds)}"


def _describe_items(item_ids: Sequence[str]) -> str:
    return ", ".join(item_ids) if len(item_ids) <= 3 else f"{len(item_ids)} items"


def describe_declared(declared: SlateRule) -> str:
    """Return a rule as it was declared in words, for whoever looks a bandit up."""
    return describe_rule(declared.rule) + (" (may be relaxed)" if declared.may_relax else "")


def _describe_group(group: Group) -> str:
    if group.shown_fewer_than:
        return f"items shown fewer than {group.shown_fewer_than} times"
    if group.item_ids:
        return _describe_items(group.item_ids)
    if group.value is None:
        return f"each {group.feature or 'item'}"
    return f"{group.feature} {group.value}"


_UNITS = (("day", 86_400), ("hour", 3_600), ("minute", 60))


def _describe_span(seconds: int) -> str:
    unit, size = next((one for one in _UNITS if seconds % one[1] == 0), ("second", 1))
    count = seconds // size
    return f"{count} {unit}" + ("s" if count > 1 else "")


def check_rules(rules: Sequence[Rule], schema: FeatureSchema, slate_size: int, *, field: str = "rules") -> None:
    """Raise `InvalidArgumentError` for what is no rule of slates of this size and of items with this schema.

    Parameters
    ----------
    rules
        Those of a bandit and of a request together, or one of both.
    field
        What the caller named the rules. An error names the rest as rules.proto does, and positions from 1.
    """
    if len(rules) > MAX_RULES:
        raise InvalidArgumentError(field, f"has {len(rules)} rules, more than {MAX_RULES}")
    for number, rule in enumerate(rules):
        _check_rule(rule, schema, slate_size, f"{field}[{number}]")
    if sum(isinstance(rule, Exposure) for rule in rules) > MAX_EXPOSURES:
        raise InvalidArgumentError(field, f"promise more than {MAX_EXPOSURES} exposures")


def _check_rule(rule: Rule, schema: FeatureSchema, slate_size: int, at: str) -> None:
    match rule:
        case Exclude(item_ids):
            _check_ids(item_ids, MAX_EXCLUDED, f"{at}.exclude.item_ids")
        case Filter(text):
            parse_filter(text, schema, field=f"{at}.filter")
        case Pin(item_ids, position):
            if not 0 <= position < slate_size:
                raise InvalidArgumentError(f"{at}.pin.position", f"must be from 1 to {slate_size}, not {position + 1}")
            _check_ids(item_ids, MAX_PINNED, f"{at}.pin.item_ids")
        case Count(group):
            _check_group(group, schema, f"{at}.count.group")
            _check_bounds(rule, slate_size, f"{at}.count")
        case Apart(group):
            _check_feature_group(group, f"{at}.apart")
            _check_group(group, schema, f"{at}.apart")
        case Exposure(group):
            _check_group(group, schema, f"{at}.exposure.group")
            _check_exposure(rule, f"{at}.exposure")
        case Frequency(group):
            if group != Group():
                _check_group(group, schema, f"{at}.frequency.group")
            _check_frequency(rule, f"{at}.frequency")


def _check_feature_group(group: Group, at: str) -> None:
    for name in ("shown_fewer_than", "item_ids"):
        if getattr(group, name):
            raise InvalidArgumentError(f"{at}.{name}", "is for count and exposure")


def _check_exposure(rule: Exposure, at: str) -> None:
    if not rule.group.is_one:
        raise InvalidArgumentError(f"{at}.group", "needs a value, or items")
    if not 0.0 < rule.share <= 1.0:
        raise InvalidArgumentError(f"{at}.share", f"must be above 0 and at most 1, not {rule.share}")


def _check_frequency(rule: Frequency, at: str) -> None:
    if rule.group.shown_fewer_than:
        raise InvalidArgumentError(f"{at}.group.shown_fewer_than", "is for count and exposure")
    for name, value, most in (
        ("at_most", rule.most, MAX_TIMES),
        ("within_seconds", rule.within_seconds, MAX_WITHIN_SECONDS),
    ):
        if not 1 <= value <= most:
            raise InvalidArgumentError(f"{at}.{name}", f"must be from 1 to {most}, not {value}")


def _check_ids(item_ids: Sequence[str], most: int, at: str) -> None:
    if not item_ids:
        raise InvalidArgumentError(at, "must name an item")
    if len(item_ids) > most:
        raise InvalidArgumentError(at, f"has {len(item_ids)} items, more than {most}")
    named: set[str] = set()
    for item_id in item_ids:
        if item_id in named:
            raise InvalidArgumentError(at, f"names {item_id!r} twice")
        named.add(item_id)


def _check_bounds(rule: Count, slate_size: int, at: str) -> None:
    if not 0 <= rule.least <= slate_size:
        raise InvalidArgumentError(f"{at}.at_least", f"must be from 0 to {slate_size}, not {rule.least}")
    if rule.most is not None and rule.most < rule.least:
        problem = f"must be {rule.least}, which is at_least, or more, not {rule.most}"
        raise InvalidArgumentError(f"{at}.at_most", problem)
    if rule.least and not rule.group.is_one:
        raise InvalidArgumentError(f"{at}.at_least", "needs a group of one value")
    if rule.most is None and not rule.least:
        raise InvalidArgumentError(at, "needs at_least or at_most")


def _check_group(group: Group, schema: FeatureSchema, at: str) -> None:
    if group.shown_fewer_than:
        _check_new(group, at)
        return
    if group.item_ids:
        _check_ids(group.item_ids, MAX_GROUPED, f"{at}.item_ids")
        if group.feature or group.value is not None:
            raise InvalidArgumentError(f"{at}.item_ids", "can't be used with a feature or a value")
        return
    kinds = {feature.name: feature.kind for feature in schema}
    kind = kinds.get(group.feature)
    if not group.feature:
        raise InvalidArgumentError(f"{at}.feature", "must name a feature")
    if kind is None:
        raise InvalidArgumentError(f"{at}.feature", f"items have none {_name(group.feature, list(kinds))}")
    if not isinstance(kind, Categorical):
        raise InvalidArgumentError(f"{at}.feature", f"{group.feature} is neither categorical nor a label set")
    if group.value is not None and kind.values and group.value not in kind.values:
        what = "label" if isinstance(kind, LabelSet) else "value"
        raise InvalidArgumentError(
            f"{at}.value", f"{group.feature} declares no {what} {_name(group.value, kind.values)}"
        )


def _check_new(group: Group, at: str) -> None:
    if not 0 < group.shown_fewer_than <= MAX_SHOWN_FEWER_THAN:
        problem = f"must be from 0 to {MAX_SHOWN_FEWER_THAN}, not {group.shown_fewer_than}"
        raise InvalidArgumentError(f"{at}.shown_fewer_than", problem)
    if group.feature or group.value is not None or group.item_ids:
        raise InvalidArgumentError(f"{at}.shown_fewer_than", "can't be used with a feature, a value or items")


def _name(name: str, names: Sequence[str]) -> str:
    near = find_nearest(name, names)
    return f"{name!r}" + (f", the nearest is {near!r}" if near else "")
