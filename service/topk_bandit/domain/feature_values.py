"""The value of a feature, read as one of the kind that its schema declares: the same rule at every door.

Files, calls over gRPC and HTTP, and other services' logs bring values in their own forms. `topk_bandit.domain.values`
reads each single value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from topk_bandit.domain.features import (
    MAX_FEATURE_MAGNITUDE,
    MAX_FEATURE_TEXT,
    Boolean,
    Categorical,
    LabelSet,
    Numeric,
    Vector,
)
from topk_bandit.domain.values import list_hint, read_boolean, read_bounded, read_list, read_text, shorten

if TYPE_CHECKING:
    from collections.abc import Callable

    from topk_bandit.domain.features import FeatureKind, FeatureValue

__all__ = ["read_feature"]

_Read = TypeVar("_Read")


def read_feature(
    kind: FeatureKind,
    value: Any,  # noqa: ANN401, whatever a caller has
    *,
    read_category: Callable[[Any], str | None] = read_text,
) -> FeatureValue | None:
    """Return a value as one of its kind, None if it is missing; labels are in order, and none is there twice.

    Parameters
    ----------
    kind
        That the schema declares.
    value
        As it came.
    read_category
        Reads the text of a category or a label: exact in a call, and by `read_label` in a file.

    Raises
    ------
    ValueError
        It is not of the kind; the problem follows the name of the feature.
    """
    value = list(value) if isinstance(value, tuple | frozenset) else value
    match kind:
        case Numeric():
            return read_bounded(value, MAX_FEATURE_MAGNITUDE)
        case Boolean():
            return read_boolean(value)
        case LabelSet():
            parts = read_list(value)
            return (
                None if parts is None else tuple(sorted({_part(_text(part, read_category), value) for part in parts}))
            )
        case Categorical():
            return _text(value, read_category)
        case Vector(size):
            return _vector(value, size)


def _text(value: Any, read: Callable[[Any], str | None]) -> str | None:  # noqa: ANN401
    text = read(value)
    if text is not None and len(text) > MAX_FEATURE_TEXT:
        raise ValueError(f"has {len(text)} characters; at most {MAX_FEATURE_TEXT} are allowed: {shorten(text)}")
    return text


def _vector(value: Any, size: int) -> tuple[float, ...] | None:  # noqa: ANN401
    parts = read_list(value)
    if parts is None:
        return None
    if len(parts) != size:
        raise ValueError(f"expected {size} numbers, got {len(parts)}: {shorten(value)}{list_hint(parts)}")
    return tuple(_part(read_bounded(part, MAX_FEATURE_MAGNITUDE), value) for part in parts)


def _part(read: _Read | None, value: Any) -> _Read:  # noqa: ANN401
    if read is None:
        raise ValueError(f"a part of the list is missing: {shorten(value)}")
    return read
