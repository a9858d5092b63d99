"""Sums of rewards without rounding: the same in any order, in any worker, and taken back exactly.

A float of 64 bits is a whole number times a power of two, and so are its square and sums of such numbers. Python's
whole numbers have any size. So a sum is kept as one of them and a power, and nothing is rounded before somebody reads
it. Floats would differ with the order of their addition, and 1 added to 1e100 and 1e100 taken off again would leave
0.

A slate's reward comes to at most 32 times `MAX_REWARD_MAGNITUDE`. A sum of n of them, however close to zero they are,
has at most 1,074 + 338 + log2(n) binary digits, and one of their squares 2,148 + 675 + log2(n): squares are exact, too.
A sum of clicks has as many as their count.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from fractions import Fraction

from topk_bandit.domain.errors import InvalidArgumentError

__all__ = ["MOST_CHARACTERS", "NO_SUM", "ExactSum"]

MOST_CHARACTERS = 728
"""How long a sum's text is at most: squares of up to 2^63 rewards, in hexadecimal digits, with the power."""

_TEXT = re.compile(r"(-?[0-9a-f]{1,722})p(0|-?[1-9][0-9]{0,3})")


@dataclass(frozen=True, slots=True)
class ExactSum:
    """A sum of numbers: `digits` times two to the power `exponent`.

    Equal sums have equal fields, however they came about: `digits` is odd, or both are 0.

    Attributes
    ----------
    digits
        A whole number of any sign.
    exponent
        A power of two.
    """

    digits: int = 0
    exponent: int = 0

    def plus(self, value: float) -> ExactSum:
        """Return the sum with one more number; a number that is not finite raises `InvalidArgumentError`."""
        return self._plus(*_split(value))

    def minus(self, value: float) -> ExactSum:
        """Return the sum without a number that was added before."""
        digits, exponent = _split(value)
        return self._plus(-digits, exponent)

    def plus_square(self, value: float) -> ExactSum:
        """Return the sum with the square of one more number; the square is exact, however large or small it is."""
        digits, exponent = _split(value)
        return self._plus(digits * digits, 2 * exponent)

    def minus_square(self, value: float) -> ExactSum:
        """Return the sum without the square of a number that was added before."""
        digits, exponent = _split(value)
        return self._plus(-digits * digits, 2 * exponent)

    def plus_sum(self, other: ExactSum) -> ExactSum:
        """Return the sum of both."""
        return self._plus(other.digits, other.exponent)

    def minus_sum(self, other: ExactSum) -> ExactSum:
        """Return the sum without another one."""
        return self._plus(-other.digits, other.exponent)

    def to_fraction(self) -> Fraction:
        """Return the sum as it is, to go on with."""
        return Fraction(self.digits << max(self.exponent, 0), 1 << max(-self.exponent, 0))

    def to_text(self) -> str:
        """Return the sum as ASCII, such as ``-1fp-3`` for -31 / 8; equal sums alone have equal texts."""
        return f"{self.digits:x}p{self.exponent}"

    @classmethod
    def from_text(cls, text: str, *, field: str) -> ExactSum:
        """Return the sum that `to_text` wrote; another text raises `InvalidArgumentError` with the field's name."""
        found = _TEXT.fullmatch(text) if len(text) <= MOST_CHARACTERS else None
        read = NO_SUM if found is None else cls(int(found[1], 16), int(found[2]))
        if read.to_text() != text or (read.digits % 2 == 0 and read != NO_SUM):
            raise InvalidArgumentError(field, f"is no exact sum, such as '-1fp-3': {text[:64]!r}")
        return read

    def _plus(self, digits: int, exponent: int) -> ExactSum:
        least = min(self.exponent, exponent)
        total = (self.digits << (self.exponent - least)) + (digits << (exponent - least))
        if not total:
            return NO_SUM
        zeros = (total & -total).bit_length() - 1
        return ExactSum(total >> zeros, least + zeros)


NO_SUM = ExactSum()


def _split(value: float) -> tuple[int, int]:
    """Return the whole number and the power of two whose product a float is."""
    if not math.isfinite(value):
        raise InvalidArgumentError("reward", f"expected a finite number, got {value}")
    numerator, denominator = float(value).as_integer_ratio()
    return numerator, 1 - denominator.bit_length()
