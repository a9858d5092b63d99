"""What single items of slates did: what callers say of it, and what has to come of that in the log."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from topk_bandit.domain.slates import ItemValues

__all__ = ["NAMING_SHARE", "draw_item_values", "place"]

NAMING_SHARE = 0.4
"""So many of the rewards, and of the rows of imports, say what items did."""

_NAMED_SHARE = 0.7
_MICRO = 1e6


def draw_item_values(slate: Sequence[str], reward: float) -> dict[str, float]:
    """Return what the items of a slate did, by their ids; nothing for most rewards.

    It is the same for the same slate and reward, and no other draw of a run depends on it.
    """
    rng = np.random.default_rng([len(slate), round(abs(reward) * _MICRO)])
    if rng.random() > NAMING_SHARE:
        return {}
    numbers = rng.normal(size=len(slate)).round(3) + 0.0
    is_named = rng.random(len(slate)) < _NAMED_SHARE
    return {one: float(number) for one, number, named in zip(slate, numbers, is_named, strict=True) if named}


def place(item_values: Mapping[str, float], slate: Sequence[str]) -> ItemValues | None:
    """Return values by the positions of a slate, None without any."""
    return tuple(item_values.get(one) for one in slate) if item_values else None
