"""How large a state may grow, and what it then takes of memory."""

from __future__ import annotations

import math
from dataclasses import dataclass

from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.learning.posterior import capacity_for

__all__ = ["Limits", "most_bytes_of"]


@dataclass(frozen=True, slots=True)
class Limits:
    """What a state may grow to.

    Attributes
    ----------
    rows
        Rewarded rows kept at a refit; before the next one come a quarter as many, and eight at least.
    pending_rows
        Pending slates that count for the variance; the oldest stop counting first, and are still learned from when
        their reward comes.
    part_bytes
        Beside all that: what is kept of single items, and again as much for what predictions take of it; and once more
        for what became of items, where somebody says so.
    """

    rows: int = 512
    pending_rows: int = 128
    part_bytes: int = 3 * 2**19

    def __post_init__(self) -> None:
        for name in ("rows", "pending_rows", "part_bytes"):
            if getattr(self, name) < 1:
                raise InvalidArgumentError(name, f"expected at least 1, got {getattr(self, name)}")

    @classmethod
    def within(
        cls, memory_bytes: int, *, context_dim: int, slate_size: int, n_features: int = 0, pending_rows: int = 128
    ) -> Limits:
        """Return the limits with the most rows whose state fits into so many bytes.

        Where items are many, what is known of single ones takes up to half as much beside them (`item_parts`).

        Raises
        ------
        InvalidArgumentError
            Not even one row fits beside the pending ones.
        """
        fits, too_many = 0, math.isqrt(memory_bytes // 8) + 1
        while too_many - fits > 1:
            rows = (fits + too_many) // 2
            most = most_bytes_of(
                cls(rows, pending_rows), context_dim=context_dim, slate_size=slate_size, n_features=n_features
            )
            if most <= memory_bytes:
                fits = rows
            else:
                too_many = rows
        if not fits:
            raise InvalidArgumentError("memory_bytes", f"{memory_bytes} bytes leave no space for rows")
        return cls(fits, pending_rows, memory_bytes // 4)

    def most_items(self, context_dim: int) -> int:
        """Return of how many items parts may be kept, in contexts of so many numbers with what all share."""
        return self.part_bytes // (8 * context_dim * (context_dim + 1))

    def most_outcome_items(self, context_dim: int, slate_size: int) -> int:
        """Return of how many items outcomes may be added up, in contexts of so many numbers with what all share."""
        d = context_dim + 1
        return self.part_bytes // (8 * d * (2 * d + 2 + slate_size))


def most_bytes_of(limits: Limits, *, context_dim: int, slate_size: int, n_features: int = 0) -> int:
    """Return the most bytes that a state's arrays take: whitener, pending rows, shape of the noise, rows and sums.

    Items with features, of `n_features` numbers, have these in the rows. The features themselves are not the state's.
    """
    rows, pending = capacity_for(limits.rows), limits.pending_rows
    # A shown slate is pending for a moment before the oldest stops counting.
    numbers = rows * rows + (rows + pending) * pending + pending * pending + limits.rows * limits.rows
    # A context may have one number more, which is shared by all.
    numbers += (rows + pending) * (context_dim + 1 + slate_size + n_features) + rows * 13
    return 8 * numbers
