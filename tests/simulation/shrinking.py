"""Shrinks a list to a short one that still fails, by leaving out ever smaller parts of it (delta debugging).

Zeller and Hildebrandt, "Simplifying and isolating failure-inducing input", IEEE Transactions on Software Engineering
28(2), 2002: the complements of their algorithm ddmin.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["shrink"]

T = TypeVar("T")


def shrink(failing: Sequence[T], fails: Callable[[Sequence[T]], bool], *, most_trials: int) -> Sequence[T]:
    """Return a part of a list that fails, in its order; no single element can be left out, if the trials last.

    Parameters
    ----------
    failing
        A list that fails.
    fails
        Whether a part of it fails; the same part always does or never.
    most_trials
        How often `fails` may be called.
    """
    parts, trials = 2, 0
    while failing and trials < most_trials:
        size = -(-len(failing) // parts)
        for start in range(0, len(failing), size):
            rest, trials = [*failing[:start], *failing[start + size :]], trials + 1
            if fails(rest):
                failing, parts = rest, max(2, parts - 1)
                break
            if trials >= most_trials:
                return failing
        else:
            if size == 1:
                return failing
            parts = min(len(failing), 2 * parts)
    return failing
