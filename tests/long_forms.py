"""Tests that are shortened for the sake of time have a long form too: more kills, more rounds, more examples.

``LONG_TESTS=1`` in the environment chooses the long forms, and leaves out all tests that have none: `make faults`.
Those that have one draw examples by hypothesis, or are marked `long_form`.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, TypeVar

from hypothesis import is_hypothesis_test

if TYPE_CHECKING:
    import pytest

__all__ = ["LONG", "examples", "has_long_form", "usual_or_long"]

T = TypeVar("T")

LONG = os.environ.get("LONG_TESTS") == "1"


def usual_or_long(usual: T, *, long: T) -> T:
    """Return the one of the two that this run takes."""
    return long if LONG else usual


def examples(usual: int) -> int:
    """Return how many examples hypothesis draws in this run."""
    return usual_or_long(usual, long=5 * usual)


def has_long_form(test: pytest.Item) -> bool:
    """Return whether a collected test does more in a long run than in the usual one."""
    return is_hypothesis_test(getattr(test, "obj", None)) or test.get_closest_marker("long_form") is not None
