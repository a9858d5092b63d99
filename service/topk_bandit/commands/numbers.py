"""Numbers as flags have them: decimal, in ASCII, and within what the command can use."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from topk_bandit.domain.values import read_number

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["count", "natural", "number", "position", "real", "whole"]


def whole(least: int, most: int) -> Callable[[str], int]:
    """Return what reads a whole number between two others."""

    def parse(text: str) -> int:
        digits = text.strip().removeprefix("-")
        if not (digits.isascii() and digits.isdigit() and len(digits) <= 20):
            raise argparse.ArgumentTypeError(f"must be a whole number, not {text[:64]!r}")
        number = int(text)
        if not least <= number <= most:
            raise argparse.ArgumentTypeError(f"must be from {least} to {most}, not {text[:64]}")
        return number

    return parse


def real(least: float, most: float) -> Callable[[str], float]:
    """Return what reads a finite number between two others."""
    is_any = (least, most) == (-sys.float_info.max, sys.float_info.max)
    wanted = "a finite number" if is_any else f"a number from {least:g} to {most:g}"

    def parse(text: str) -> float:
        try:
            number = read_number(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"must be {wanted}: {error}") from None
        if number is None or not least <= number <= most:
            raise argparse.ArgumentTypeError(f"must be {wanted}, not {text[:64]!r}")
        return number

    return parse


count = whole(1, 2**31 - 1)
"""How many, as the wire has it."""

natural = whole(0, 2**31 - 1)
"""A number that may be 0, such as that of a run."""

position = whole(0, 2**63 - 1)
"""Where an event stands in a log, as the wire has it; before the first is 0."""

number = real(-sys.float_info.max, sys.float_info.max)
"""A number whose range is a rule of the service."""
