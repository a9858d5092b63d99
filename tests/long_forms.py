"""Tests that are shortened for the sake of time have a long form too: more kills, more rounds, more examples.

``LONG_TESTS=1`` in the environment chooses the long forms: `make faults`. Tests that have one carry the mark
`long_form`, which those that draw examples by hypothesis are given.
"""

from __future__ import annotations

import os
from typing import TypeVar

__all__ = ["LONG", "examples", "usual_or_long"]

T = TypeVar("T")

LONG = os.environ.get("LONG_TESTS") == "1"


def usual_or_long(usual: T, *, long: T) -> T:
    """Return the one of the two that this run takes."""
    return long if LONG else usual


def examples(usual: int) -> int:
    """Return how many examples hypothesis draws in this run."""
    return usual_or_long(usual, long=5 * usual)
