"""Jobs for a process of its own, in a module that imports nothing: the process begins sooner."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["failing", "squared"]


def squared(number: int, report: Callable[[int, int], None]) -> int:
    report(number, 2 * number)
    return number**2


def failing(_: int, _report: object) -> int:
    raise ValueError("on purpose")
