"""Contexts and items against a bandit's settings: how they are read, which are refused, and how a schema may grow.

Errors name the field as the wire does. Nothing here encodes: `topk_bandit.learning.encoding` does.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from topk_bandit.domain.bandits import Kernel
from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.domain.feature_values import read_feature
from topk_bandit.domain.features import Boolean, Categorical, Features, LabelSet, Numeric, Vector
from topk_bandit.domain.nearest import find_nearest
from topk_bandit.domain.replacing import replace
from topk_bandit.domain.rules import check_rules
from topk_bandit.domain.values import shorten
from topk_bandit.learning.content import MOST_FEATURES
from topk_bandit.learning.item_features import bytes_an_item, content_width

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topk_bandit.domain.bandits import BanditSettings, Item, ItemMask
    from topk_bandit.domain.features import Context, FeatureKind, FeatureSchema, FeatureValue

__all__ = [
    "ITEM_SCHEMA_FIELD",
    "SCHEMA_FIELD",
    "check_context",
    "check_features",
    "check_growth",
    "check_item_schema",
    "check_own_rules",
    "complete_context",
    "fitting_features",
    "known_context",
    "read_features",
    "take_items",
    "take_mask",
]

SCHEMA_FIELD = "bandit.context_schema"
"""What a schema of contexts is called on the wire."""

ITEM_SCHEMA_FIELD = "bandit.item_schema"
"""What a schema of items is called on the wire."""


def check_context(settings: BanditSettings, context: Context) -> None:
    """Check that a bandit takes a context.

    Raises
    ------
    InvalidArgumentError
        It has features and the bandit no schema, or the other way round; a feature is not in the schema, or its value
        is of another kind; or there are more or fewer numbers than the bandit takes.
    """
    schema = settings.context_schema
    if isinstance(context, Features):
        if schema is None:
            raise InvalidArgumentError("features", "can't be used: the bandit has no context_schema, so give a context")
        check_features(schema, context)
    elif schema is not None:
        raise InvalidArgumentError("context", "can't be used: the bandit has a context_schema, so give features")
    elif len(context) != settings.context_dim:
        raise InvalidArgumentError("context", f"expected {settings.context_dim} numbers, got {len(context)}")


def known_context(settings: BanditSettings, context: Context) -> Context:
    """Return a request's context without those features that a bandit does not know: all, if it has no schema."""
    if not isinstance(context, Features):
        return context
    names = {feature.name for feature in settings.context_schema or ()}
    return Features(tuple(one for one in context.values if one[0] in names)) if names else ()


def complete_context(settings: BanditSettings, context: Context) -> Context:
    """Return the context of a request as a bandit takes it: what says nothing is filled in, and features are read.

    Without features all are missing, and without numbers there is the one that is always the same. `check_context`
    refuses what can't be read.
    """
    if not context:
        if settings.context_schema is not None:
            return Features()
        return (1.0,) if settings.context_dim == 1 else ()
    if isinstance(context, Features) and settings.context_schema is not None:
        return read_features(settings.context_schema, context)
    return context


def read_features(schema: FeatureSchema, features: Features) -> Features:
    """Return features, each read as one of its kind; what can't be read stays as it is, for `check_features`."""
    kinds = {feature.name: feature.kind for feature in schema}
    read = ((name, _read(kinds.get(name), value)) for name, value in features.values)
    return Features(tuple((name, value) for name, value in read if value is not None))


def _read(kind: FeatureKind | None, value: FeatureValue) -> FeatureValue | None:
    if kind is None or (not isinstance(kind, Categorical) and _is_of_kind(kind, value)):
        return value  # most values are of their kind, but a text may be blank, and labels are in no order
    try:
        return read_feature(kind, value)
    except ValueError:
        return value


def fitting_features(schema: FeatureSchema, features: Features) -> Features:
    """Return those of an item's features that are of a schema.

    All are, but where a bandit was deleted and created anew while its items were changed.
    """
    kinds = {feature.name: feature.kind for feature in schema}
    fits = {name: value for name, value in features.values if name in kinds and _is_of_kind(kinds[name], value)}
    return features if len(fits) == len(features.values) else Features.of(fits)


def take_items(schema: FeatureSchema | None, items: Sequence[Item]) -> list[Item]:
    """Return items as a bandit with this item schema takes them: their features are read as it has them.

    Raises
    ------
    InvalidArgumentError
        As for `check_features`, naming the item by its place.
    """
    taken = list(items)
    for place, item in enumerate(items):
        field = f"items[{place}].features"
        if schema is not None:
            taken[place] = replace(item, features=read_features(schema, item.features))
            check_features(schema, taken[place].features, field=field)
        elif item.features.values:
            raise InvalidArgumentError(field, "can't be used: the bandit has no item_schema")
    return taken


def take_mask(schema: FeatureSchema | None, mask: ItemMask) -> ItemMask:
    """Return a mask with the features as a bandit's item schema names them.

    In JSON the paths of a mask are in camel case, so that ``features.isNew`` comes as ``features.is_new``: a feature is
    found by that form of its name, too.

    Raises
    ------
    InvalidArgumentError
        It names a feature that is not in the schema, or the bandit has none.
    """
    if mask.features is None:
        return mask
    by_name = {_in_snake_case(feature.name): feature.name for feature in schema or ()}
    by_name |= {feature.name: feature.name for feature in schema or ()}
    for name in sorted(mask.features - by_name.keys()):
        problem = _unknown_name(name, schema) if schema else "can't be used: the bandit has no item_schema"
        raise InvalidArgumentError("update_mask", f"features.{name} {problem}")
    return replace(mask, features=frozenset(by_name[name] for name in mask.features))


def _in_snake_case(name: str) -> str:
    return re.sub("[A-Z]", lambda found: f"_{found[0].lower()}", name)


def check_item_schema(settings: BanditSettings, *, most_bytes: int) -> None:
    """Check that a bandit with these settings can learn from features of its items.

    Raises
    ------
    InvalidArgumentError
        Its kernel has no part for them, or not for so many, or they would take more memory than `most_bytes`.
    """
    schema = settings.item_schema
    if schema is None:
        return
    if settings.kernel is not Kernel.ADAPTIVE:
        raise InvalidArgumentError(
            ITEM_SCHEMA_FIELD, "needs KERNEL_ADAPTIVE: no other kernel learns how much it counts"
        )
    width = content_width(schema)
    if width > MOST_FEATURES:
        problem = f"gives each item {width} numbers, not counting what is missing; at most {MOST_FEATURES} are allowed"
        raise InvalidArgumentError(ITEM_SCHEMA_FIELD, problem)
    needed = settings.item_capacity * bytes_an_item(schema)
    if needed > most_bytes:
        problem = f"takes {needed} bytes for {settings.item_capacity} items; {most_bytes} are allowed"
        raise InvalidArgumentError(ITEM_SCHEMA_FIELD, f"{problem}: use fewer features, or a lower item_capacity")


def check_own_rules(settings: BanditSettings, *, field: str = "bandit.rules") -> None:
    """Raise `InvalidArgumentError` unless a bandit's rules are some of its slates and of items with its schema."""
    check_rules([one.rule for one in settings.rules], settings.item_schema or (), settings.slate_size, field=field)


def check_features(schema: FeatureSchema, features: Features, *, field: str = "features") -> None:
    """Check that features are of a schema.

    Raises
    ------
    InvalidArgumentError
        Naming the feature in `field`, as of `check_context`.
    """
    kinds = {feature.name: feature.kind for feature in schema}
    for name, value in features.values:
        path = f'{field}["{name}"]'
        if name not in kinds:
            raise InvalidArgumentError(path, _unknown_name(name, schema))
        if not _is_of_kind(kinds[name], value):
            raise InvalidArgumentError(path, _other_kind(kinds[name], value))


_MOST_CHARACTERS = 60


def _unknown_name(name: str, schema: FeatureSchema) -> str:
    names = [feature.name for feature in schema]
    near = find_nearest(name, names)
    hint = "" if near is None else f": is it {near}?"
    return f"is not in the schema, which has {_shorten(', '.join(names))}{hint}"


def _other_kind(kind: FeatureKind, value: FeatureValue) -> str:
    try:
        read_feature(kind, value)
    except ValueError as error:
        return f"{error} (the feature is {_describe(kind)})"
    return f"is {_describe(kind)}, got {shorten(value)}"


def _shorten(text: str) -> str:
    return text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}..."


def _is_of_kind(kind: FeatureKind, value: FeatureValue) -> bool:
    match kind:
        case Numeric():
            return isinstance(value, float)
        case Boolean():
            return isinstance(value, bool)
        case LabelSet():
            return isinstance(value, tuple) and all(isinstance(one, str) for one in value)
        case Categorical():
            return isinstance(value, str)
        case Vector(size):
            return isinstance(value, tuple) and len(value) == size and all(isinstance(one, float) for one in value)


def _describe(kind: FeatureKind) -> str:
    match kind:
        case Numeric():
            return "numeric"
        case Boolean():
            return "boolean"
        case LabelSet():
            return "a label set"
        case Categorical():
            return "categorical"
        case Vector(size):
            return f"a vector of {size} numbers"


def check_growth(
    before: FeatureSchema | None, after: FeatureSchema | None, *, field: str = SCHEMA_FIELD, may_begin: bool = False
) -> None:
    """Check that what was learned with a schema can be kept with another: it may have more features and values.

    Parameters
    ----------
    may_begin
        Whether there may be a schema where there was none.

    Raises
    ------
    InvalidArgumentError
        Something is gone or is another.
    """
    if before == after or (before is None and may_begin):
        return
    if before is None or after is None:
        had, has = ("none", "one") if before is None else ("one", "none")
        problem = f"can't be {'added' if before is None else 'removed'}: what was learned with {had} is of no use"
        raise InvalidArgumentError(field, f"{problem} with {has}; create another bandit")
    kinds = {feature.name: (place, feature.kind) for place, feature in enumerate(after)}
    for feature in before:
        if feature.name not in kinds:
            raise InvalidArgumentError(field, f'lacks the feature "{feature.name}", which can\'t be removed')
        place, kind = kinds[feature.name]
        _check_kind(feature.kind, kind, f"{field}.features[{place}]", feature.name)


def _check_kind(before: FeatureKind, after: FeatureKind, path: str, name: str) -> None:
    if before == after:
        return
    if not isinstance(before, Categorical) or type(before) is not type(after):
        raise InvalidArgumentError(path, f'changes "{name}", of which what was learned could not be kept')
    if before.buckets or after.buckets:
        raise InvalidArgumentError(path, f'changes the buckets of "{name}": its values would be taken for others')
    gone = [value for value in before.values if value not in after.values]
    if gone:
        raise InvalidArgumentError(
            path, f'lacks {_shorten(repr(gone[0]))} of "{name}": values can be added, not removed'
        )
