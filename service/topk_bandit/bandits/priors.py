"""The utilities that a bandit takes from a study as its prior.

A prior is checked against the bandit's settings and budget before it is logged. Its utilities are matched to the
bandit's items by id, and items that the study does not know have none. Nothing here reads a study: `Priors` is
implemented elsewhere.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np

from topk_bandit.domain.bandits import Kernel
from topk_bandit.domain.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from topk_bandit.bandits.items import Items
    from topk_bandit.domain.bandits import BanditSettings, Prior

__all__ = ["FIELD", "PriorItems", "Priors", "check_kernel", "check_prior", "tabulate_utilities"]

ITEM_BYTES = 120
"""About what an item takes in memory, beside its id and its utility."""

FIELD = "bandit.prior_study"
"""What a prior is called on the wire."""


class Priors(Protocol):
    """Where priors come from: a tenant's studies."""

    async def prior(self, tenant: str, study: str, *, context_dim: int) -> Prior:
        """Return the newest utilities of a study, for contexts of `context_dim` numbers.

        Raises
        ------
        InvalidArgumentError
            There is no such study, or its utilities do not fit such a bandit.
        """
        ...


@dataclass(frozen=True, slots=True)
class PriorItems:
    """The items that a prior knows, in its order; none without a prior."""

    ids: tuple[str, ...] = ()
    _rows: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, ids: Sequence[str]) -> PriorItems:
        """Return the items with these ids."""
        return cls(tuple(ids), {item_id: row for row, item_id in enumerate(ids)})

    @property
    def memory_bytes(self) -> int:
        """About how much memory they take."""
        return sum(ITEM_BYTES + sys.getsizeof(item_id) for item_id in self.ids)

    def find_rows(self, items: Items, *, n_items: int) -> NDArray[np.intp]:
        """Return the row of each of a bandit's items, -1 for those that the prior does not know; shape (n,)."""
        rows, ids = np.full(n_items, -1, dtype=np.intp), items.ids
        rows[: len(ids)] = [-1 if item_id is None else self._rows.get(item_id, -1) for item_id in ids]
        return rows


def check_kernel(settings: BanditSettings) -> None:
    """Check that a bandit's kernel takes a prior, or raise `InvalidArgumentError`."""
    if settings.kernel is Kernel.WEIGHTED and settings.slate_size < settings.item_capacity:
        raise InvalidArgumentError(FIELD, "can't be used with KERNEL_WEIGHTED, which has no part for single items")


def check_prior(prior: Prior, settings: BanditSettings, *, most_bytes: int) -> None:
    """Check that a bandit can take a prior.

    Raises
    ------
    InvalidArgumentError
        The utilities do not go with its contexts, or they take more than `most_bytes`.
    """
    sizes = {len(utility.slopes) for utility in prior.utilities}
    if settings.context_schema is not None and sizes - {0}:
        raise InvalidArgumentError(FIELD, "has utilities for contexts of numbers, and the bandit's have named features")
    if sizes - {0, settings.context_dim}:
        raise InvalidArgumentError(FIELD, f"has utilities for contexts of other than {settings.context_dim} numbers")
    ids = PriorItems(tuple(utility.item_id for utility in prior.utilities))
    taken = ids.memory_bytes + 8 * (1 + settings.context_dim) * len(prior.utilities)
    if taken > most_bytes:
        raise InvalidArgumentError(FIELD, f"takes {taken} bytes of the bandit's memory, at most {most_bytes} can be")


def tabulate_utilities(prior: Prior, *, context_dim: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the constants (m,) and the slopes (m, C) of a prior's utilities."""
    constants = np.array([utility.constant for utility in prior.utilities], dtype=np.float64)
    slopes = np.zeros((len(constants), context_dim))
    for row, utility in enumerate(prior.utilities):
        if utility.slopes:
            slopes[row] = utility.slopes
    return constants, slopes
