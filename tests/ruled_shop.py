"""A shop whose slates keep rules, and a judge of them: each rule is there twice, for the service and in plain Python.

Nothing of the service's own code judges. A slate is a tuple of item ids, and what items are like is a dict.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress, pairwise, permutations
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from topk_bandit.domain.bandits import Item
from topk_bandit.domain.features import Boolean, Categorical, Feature, Features, LabelSet, Numeric
from topk_bandit.domain.rules import Apart, Count, Exclude, Filter, Group, Pin, SlateRule, describe_rule

if TYPE_CHECKING:
    import numpy as np

__all__ = [
    "KINDS",
    "SCHEMA",
    "Left",
    "Told",
    "broken_rules",
    "check_mended",
    "draw_item",
    "draw_rule",
    "is_entangled",
    "least_given_up",
    "slates_left",
]

CATEGORIES, LABELS = ("soup", "salad", "cake"), ("vegan", "new", "hot")
SCHEMA = (
    Feature("category", Categorical(CATEGORIES)),
    Feature("tags", LabelSet(LABELS)),
    Feature("price", Numeric()),
    Feature("stock", Boolean()),
)

Likeness: TypeAlias = Mapping[str, object]
Shelf: TypeAlias = Mapping[str, Likeness]
"""What each item is like, by its id."""

Judge: TypeAlias = Callable[[Sequence[str], Shelf, Mapping[str, int]], bool]
"""Whether a slate keeps a rule, for items that are like this and were learned of so often."""


@dataclass(frozen=True)
class Told:
    """A rule as the service is told it, and as the judge understands it."""

    rule: SlateRule
    keeps: Judge = field(compare=False)
    is_new: bool = False

    @property
    def words(self) -> str:
        return describe_rule(self.rule.rule)


def draw_item(item_id: str, rng: np.random.Generator) -> tuple[Item, Likeness]:
    """Return an item of which something may be missing, and what it is like."""
    values: dict[str, object] = {
        "category": str(rng.choice(CATEGORIES)),
        "tags": tuple(sorted(label for label in LABELS if rng.random() < 0.35)),
        "price": float(rng.integers(10)),
        "stock": bool(rng.random() < 0.8),
    }
    like = {name: value for name, value in values.items() if rng.random() < 0.95}
    return Item(item_id, features=Features.of(like)), like  # type: ignore[arg-type]


def draw_rule(item_ids: Sequence[str], slate_size: int, rng: np.random.Generator, *, kind: str = "") -> Told:
    """Return a rule of a kind, one of `KINDS`, or of any."""
    draw = KINDS[kind or list(KINDS)[int(rng.integers(len(KINDS)))]]
    rule, keeps = draw(item_ids, slate_size, rng)
    return Told(
        SlateRule(rule, may_relax=bool(rng.random() < 0.5)),
        keeps,
        is_new="shown_fewer" in repr(rule) and _is_news(rule),
    )


def _is_news(rule: object) -> bool:
    return isinstance(rule, Count) and rule.group.shown_fewer_than > 0


def _exclusion(item_ids: Sequence[str], _size: int, rng: np.random.Generator) -> tuple[Exclude, Judge]:
    out = tuple(map(str, rng.choice(item_ids, size=2, replace=False)))
    return Exclude(out), lambda slate, _shelf, _shown: not {*out} & {*slate}


def _filter(_ids: Sequence[str], _size: int, rng: np.random.Generator) -> tuple[Filter, Judge]:
    most, category = int(rng.integers(3, 9)), str(rng.choice(CATEGORIES))

    def cheap(like: Likeness) -> bool:
        return isinstance(price := like.get("price"), float) and price < most

    def hot(like: Likeness) -> bool:
        return "hot" in tuple(like.get("tags", ()))  # type: ignore[arg-type]

    known: list[tuple[str, Callable[[Likeness], bool]]] = [
        (f"price < {most}", cheap),
        (f"price < {most} or stock == true", lambda like: cheap(like) or like.get("stock") is True),
        (
            f'not (category in ["{category}"]) and stock == true',
            lambda like: like.get("category") != category and like.get("stock") is True,
        ),
        ('not (tags has "hot")', lambda like: not hot(like)),
    ]
    text, meets = known[int(rng.integers(len(known)))]
    return Filter(text), lambda slate, shelf, _shown: all(meets(shelf[one]) for one in slate)


def _pin(item_ids: Sequence[str], size: int, rng: np.random.Generator) -> tuple[Pin, Judge]:
    there = tuple(map(str, rng.choice(item_ids, size=1 if rng.random() < 0.5 else 3, replace=False)))
    position = int(rng.integers(size))
    return Pin(there, position), lambda slate, _shelf, _shown: slate[position] in there


def _group(rng: np.random.Generator) -> tuple[Group, list[Callable[[Likeness], bool]]]:
    """Return a group, and of each single one that it stands for whether an item is in it."""
    if rng.random() < 0.6:
        name, values = "category", CATEGORIES
    else:
        name, values = "tags", LABELS
    one = None if rng.random() < 0.4 else str(rng.choice(values))

    def is_in(value: str) -> Callable[[Likeness], bool]:
        return lambda like: value == like.get(name) or value in (like.get(name, ()) if name == "tags" else ())  # type: ignore[operator]

    return Group(name, one), [is_in(value) for value in (values if one is None else (one,))]


def _most(_ids: Sequence[str], _size: int, rng: np.random.Generator) -> tuple[Count, Judge]:
    (group, single), most = _group(rng), int(rng.integers(3))
    return Count(group, most=most), lambda slate, shelf, _shown: all(
        sum(is_in(shelf[one]) for one in slate) <= most for is_in in single
    )


def _least(_ids: Sequence[str], size: int, rng: np.random.Generator) -> tuple[Count, Judge]:
    value, least = str(rng.choice(CATEGORIES)), int(rng.integers(1, size))
    return Count(
        Group("category", value), least=least
    ), lambda slate, shelf, _shown: sum(shelf[one].get("category") == value for one in slate) >= least


def _apart(_ids: Sequence[str], _size: int, rng: np.random.Generator) -> tuple[Apart, Judge]:
    group, single = _group(rng)
    return (
        Apart(group),
        lambda slate, shelf, _shown: (
            not any(is_in(shelf[above]) and is_in(shelf[below]) for is_in in single for above, below in pairwise(slate))
        ),
    )


def _news(_ids: Sequence[str], _size: int, rng: np.random.Generator) -> tuple[Count, Judge]:
    fewer = int(rng.integers(1, 8))
    return Count(Group(shown_fewer_than=fewer), least=1), lambda slate, _shelf, shown: any(
        shown.get(one, 0) < fewer for one in slate
    )


KINDS = {
    "exclude": _exclusion,
    "filter": _filter,
    "pin": _pin,
    "at most": _most,
    "at least": _least,
    "apart": _apart,
    "new": _news,
}
"""How a rule of each kind is drawn."""


def broken_rules(told: Sequence[Told], slate: Sequence[str], shelf: Shelf, shown: Mapping[str, int]) -> list[Told]:
    """Return the rules that a slate breaks."""
    return [one for one in told if not one.keeps(slate, shelf, shown)]


class Left(NamedTuple):
    """All slates that may be shown, and the words of the rules that were given up for it."""

    slates: list[tuple[str, ...]]
    given_up: list[str]


def slates_left(
    told: Sequence[Told], item_ids: Sequence[str], size: int, shelf: Shelf, shown: Mapping[str, int]
) -> Left | None:
    """Return what rules leave, without the last ones of those that may be relaxed if it has to be; None for nothing."""
    slates = list(permutations(item_ids, size))
    kept = [[one.keeps(slate, shelf, shown) for one in told] for slate in slates]
    may_relax = [place for place, one in enumerate(told) if one.rule.may_relax]
    for count in range(len(may_relax) + 1):
        gone = may_relax[len(may_relax) - count :]
        are_kept = [all(keeps or place in gone for place, keeps in enumerate(row)) for row in kept]
        if any(are_kept):
            return Left(list(compress(slates, are_kept)), [told[place].words for place in gone])
    return None


def least_given_up(
    told: Sequence[Told], item_ids: Sequence[str], size: int, shelf: Shelf, shown: Mapping[str, int]
) -> list[str] | None:
    """Return the words of the rules that have to be given up, the last ones that may be; None if that does not help."""
    left = slates_left(told, item_ids, size, shelf, shown)
    return None if left is None else left.given_up


def is_entangled(left: Left, told: Sequence[Told], pool: Sequence[str], shelf: Shelf) -> bool:
    """Return whether an item is in no slate for a reason that several items make together.

    Whether the service notices is not promised. If not, the item is among those whose parts are drawn.
    """
    firm = [one for one in told if _leaves_out(one.rule.rule) and one.words not in left.given_up]
    alone = {item for item in pool if all(one.keeps((item,), shelf, {}) for one in firm)}
    return alone != {item for slate in left.slates for item in slate}


def _leaves_out(rule: object) -> bool:
    return isinstance(rule, Exclude | Filter) or (isinstance(rule, Count) and not rule.least)


def check_mended(slate: tuple[str, ...], baseline: tuple[str, ...], allowed: Sequence[tuple[str, ...]]) -> None:
    """Hold a slate to be an allowed one that keeps the most of another at its positions, the earliest first."""

    def kept(one: tuple[str, ...]) -> tuple[int, tuple[bool, ...]]:
        same = tuple(mine == other for mine, other in zip(one, baseline, strict=True))
        return sum(same), same

    assert slate in allowed
    assert kept(slate) == max(map(kept, allowed))
