"""What a group of requests earned: how many there are, the sum of their rewards and of the rewards' squares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.learning.exact_sums import NO_SUM, ExactSum

if TYPE_CHECKING:
    from fractions import Fraction

__all__ = ["NO_REQUESTS", "GroupTotals"]


@dataclass(frozen=True, slots=True)
class GroupTotals:
    """The requests of one group, those without a reward included: they earned 0.

    Totals are equal if the same rewards are in them, in whatever order they came and whatever was taken back.

    Attributes
    ----------
    count
        Requests.
    total
        Of their rewards.
    squares
        Of their rewards' squares.
    """

    count: int = 0
    total: ExactSum = NO_SUM
    squares: ExactSum = NO_SUM

    def plus(self, reward: float) -> GroupTotals:
        """Return the totals with one more request, and what it earned."""
        return GroupTotals(self.count + 1, self.total.plus(reward), self.squares.plus_square(reward))

    def minus(self, reward: float) -> GroupTotals:
        """Return the totals without a request that is in them, which earned so much."""
        if not self.count:
            raise InvalidArgumentError("reward", "there is no request to take off")
        return GroupTotals(self.count - 1, self.total.minus(reward), self.squares.minus_square(reward))

    def revise(self, before: float, after: float) -> GroupTotals:
        """Return the totals with another reward of a request that is in them: it came late, was amended or voided."""
        return self.minus(before).plus(after)

    def plus_totals(self, other: GroupTotals) -> GroupTotals:
        """Return the totals of both, such as those of two days."""
        total, squares = self.total.plus_sum(other.total), self.squares.plus_sum(other.squares)
        return GroupTotals(self.count + other.count, total, squares)

    def minus_totals(self, other: GroupTotals) -> GroupTotals:
        """Return what came to totals since they were other ones: where more was taken back, the count is below zero."""
        total, squares = self.total.minus_sum(other.total), self.squares.minus_sum(other.squares)
        return GroupTotals(self.count - other.count, total, squares)

    @property
    def mean(self) -> float:
        """Reward per request, rounded once; there has to be a request."""
        return float(self.total.to_fraction() / self.count)

    @property
    def variance(self) -> float:
        """Of the rewards, with n - 1 below the line, rounded once: exact however far they are from zero; 0 of one."""
        return float(self.squared_deviations / max(self.count - 1, 1))

    @property
    def squared_deviations(self) -> Fraction:
        """The sum of the squares of what rewards differ from their mean by, without rounding."""
        return self.squares.to_fraction() - self.total.to_fraction() ** 2 / max(self.count, 1)


NO_REQUESTS = GroupTotals()
