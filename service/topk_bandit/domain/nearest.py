"""Which name is meant by one that is written a little otherwise."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["find_nearest"]

_LONGEST = 128
"""Names may be a caller's, and longer ones are none."""


def find_nearest(name: str, names: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """Return the nearest of some names, in capitals or not; None if none is as near as `cutoff`, of at most 1."""
    lower = {one.lower(): one for one in sorted(names)}
    found = get_close_matches(name[:_LONGEST].lower(), lower, n=1, cutoff=cutoff)
    return lower[found[0]] if found else None
