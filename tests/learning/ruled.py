"""Random rules of random shops, and what they mean by the words of `topk_bandit.domain.rules`, one slate at a time."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from topk_bandit.domain.features import Boolean, Categorical, Feature, Features, FeatureSchema, LabelSet, Numeric
from topk_bandit.domain.filters import accepts
from topk_bandit.domain.rules import Apart, Count, Exclude, Filter, Group, Pin
from topk_bandit.learning.item_table import ItemTable
from topk_bandit.learning.slate_rules import Candidates

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from topk_bandit.domain.rules import Rule

CATEGORIES, LABELS = ("soup", "salad", "cake"), ("vegan", "new", "hot")
SCHEMA: FeatureSchema = (
    Feature("category", Categorical(CATEGORIES)),
    Feature("tags", LabelSet(LABELS)),
    Feature("price", Numeric()),
    Feature("stock", Boolean()),
)


class Shop(NamedTuple):
    """Items by name, with their features."""

    item_ids: list[str]
    features: list[Features]

    @property
    def candidates(self) -> Candidates:
        """All items; the first was shown once, the next twice, and so on, but for every third, which is new."""
        counts = np.array([0 if n % 3 == 0 else n for n in range(len(self.item_ids))])
        return Candidates(ItemTable.of(*self), shown_counts=counts)

    @classmethod
    def draw(cls, n_items: int, rng: np.random.Generator) -> Shop:
        return cls([f"i{n}" for n in range(n_items)], [draw_features(rng) for _ in range(n_items)])


def draw_features(rng: np.random.Generator) -> Features:
    values = {
        "category": str(rng.choice(CATEGORIES)),
        "tags": tuple(sorted(label for label in LABELS if rng.random() < 0.35)),
        "price": float(rng.integers(10)),
        "stock": bool(rng.random() < 0.9),
    }
    # A feature may be missing.
    return Features.of({name: value for name, value in values.items() if rng.random() < 0.95})


def draw_group(rng: np.random.Generator) -> Group:
    feature, values = ("category", CATEGORIES) if rng.random() < 0.6 else ("tags", LABELS)
    return Group(feature, None if rng.random() < 0.3 else str(rng.choice(values)))


def draw_counted(rng: np.random.Generator) -> Group:
    return Group(shown_fewer_than=int(rng.integers(1, 6))) if rng.random() < 0.2 else draw_group(rng)


def draw_rule(shop: Shop, slate_size: int, rng: np.random.Generator) -> Rule:
    chance = rng.random()
    if chance < 0.15:
        return Exclude(tuple(map(str, rng.choice(shop.item_ids, size=2, replace=False))))
    if chance < 0.3:
        text = f"price < {rng.integers(4, 11)} or stock == true"
        return Filter(text if rng.random() < 0.5 else "stock == true")
    if chance < 0.45:
        several = rng.choice(shop.item_ids, size=1 if rng.random() < 0.5 else int(rng.integers(2, 4)), replace=False)
        return Pin(tuple(map(str, several)), int(rng.integers(slate_size)))
    if chance < 0.65:
        return Count(draw_counted(rng), most=int(rng.integers(3)))
    if chance < 0.8:
        least = min(int(rng.integers(1, 3)), slate_size)
        group = draw_counted(rng)
        if group.value is None and not group.shown_fewer_than:
            group = Group("category", "soup")
        return Count(group, least=least, most=None if rng.random() < 0.5 else least)
    return Apart(draw_group(rng))


def draw_rules(shop: Shop, slate_size: int, rng: np.random.Generator, *, most: int = 4) -> list[Rule]:
    return [draw_rule(shop, slate_size, rng) for _ in range(int(rng.integers(1, most + 1)))]


def judge_of(rule: Rule, shop: Shop) -> Callable[[Sequence[int]], bool]:
    """Return a function that says whether a slate of items, by number, keeps a rule."""
    number_of = {item_id: number for number, item_id in enumerate(shop.item_ids)}
    match rule:
        case Exclude(item_ids):
            gone = {number_of[item_id] for item_id in item_ids if item_id in number_of}
            return gone.isdisjoint
        case Filter():
            met = {item for item, features in enumerate(shop.features) if accepts(rule.condition, features)}
            return met.issuperset
        case Pin(item_ids, position):
            pinned = {number_of[item_id] for item_id in item_ids if item_id in number_of}
            return lambda slate: slate[position] in pinned
        case Count(group, least, most):
            counted = [members_of(one, shop) for one in single_groups(group)]
            limit = 99 if most is None else most
            return lambda slate: all(least <= len(one & set(slate)) <= limit for one in counted)
        case Apart(group):
            kept_apart = [members_of(one, shop) for one in single_groups(group)]
            return lambda slate: not any(a in one and b in one for one in kept_apart for a, b in pairwise(slate))


def single_groups(group: Group) -> list[Group]:
    if group.is_one:
        return [group]
    return [Group(group.feature, value) for value in (CATEGORIES if group.feature == "category" else LABELS)]


def members_of(group: Group, shop: Shop) -> set[int]:
    if group.item_ids:
        return {item for item, name in enumerate(shop.item_ids) if name in group.item_ids}
    if group.shown_fewer_than:
        return {item for item in range(len(shop.item_ids)) if item % 3 == 0 or item < group.shown_fewer_than}
    values = [dict(features.values).get(group.feature, ()) for features in shop.features]
    return {
        item
        for item, value in enumerate(values)
        if value == group.value or (isinstance(value, tuple) and group.value in value)
    }


def allowed(rule: Rule, shop: Shop, slates: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Return which of some slates keep a rule."""
    return np.array(list(map(judge_of(rule, shop), slates.tolist())), dtype=np.bool_)
