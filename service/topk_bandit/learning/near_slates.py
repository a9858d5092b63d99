"""The slates near one: by one item that is replaced, or by two that change places."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from topk_bandit.learning.compiled.allowed_moves import list_near

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from topk_bandit.learning.slate_rules import SlateRules

__all__ = ["NearSlates"]


@dataclass(frozen=True, eq=False)
class NearSlates:
    """All slates near one that may be shown.

    Attributes
    ----------
    centre
        Item indices, best first, shape (k,).
    eligible
        Distinct item indices in ascending order, shape (E,).
    rules
        Over the eligible items; those near are allowed, as the centre is. None: any is.
    """

    centre: NDArray[np.int32]
    eligible: NDArray[np.int32]
    rules: SlateRules | None = None

    def __len__(self) -> int:
        if self.rules is None:
            k = len(self.centre)
            return k * (len(self.eligible) - k) + k * (k - 1) // 2
        return int(np.count_nonzero(self._fits)) + len(self._exchanges)

    @cached_property
    def _moves(self) -> tuple[NDArray[np.bool_], NDArray[np.intp]]:
        """Which items may take the place of each of the centre's, (k, E); which positions may be exchanged, (X, 2)."""
        places, k = np.searchsorted(self.eligible, self.centre), len(self.centre)
        if self.rules is not None:
            fits, exchanges = list_near(self.rules, places)
            return fits, exchanges
        fits = np.ones((k, len(self.eligible)), dtype=np.bool_)
        fits[:, places] = False
        return fits, np.stack(np.triu_indices(k, 1), axis=1)

    @property
    def _fits(self) -> NDArray[np.bool_]:
        return self._moves[0]

    @property
    def _exchanges(self) -> NDArray[np.intp]:
        return self._moves[1]

    @property
    def slates(self) -> NDArray[np.int32]:
        """The slates, as item indices, shape (A, k)."""
        positions, places = np.nonzero(self._fits)
        replaced = np.tile(self.centre, (len(positions), 1))
        replaced[np.arange(len(positions)), positions] = self.eligible[places]
        rows, (first, second) = np.arange(len(self._exchanges)), self._exchanges.T
        exchanged = np.tile(self.centre, (len(rows), 1))
        exchanged[rows, first], exchanged[rows, second] = self.centre[second], self.centre[first]
        return np.concatenate([replaced, exchanged])

    def draw(self, rng: np.random.Generator) -> NDArray[np.int32]:
        """Return one, each as probable; there has to be one."""
        slate, choice = self.centre.copy(), int(rng.integers(len(self)))
        places = np.flatnonzero(self._fits)
        if choice < len(places):
            position, place = divmod(int(places[choice]), len(self.eligible))
            slate[position] = self.eligible[place]
        else:
            pair = self._exchanges[choice - len(places)]
            slate[pair] = slate[pair[::-1]]
        return slate

    def has(self, slate: NDArray[np.int32]) -> bool:
        """Return whether an eligible slate is one of them."""
        differs = np.flatnonzero(slate != self.centre)
        if len(differs) == 1:
            return bool(self._fits[differs[0], np.searchsorted(self.eligible, slate[differs[0]])])
        exchanged = len(differs) == 2 and (slate[differs] == self.centre[differs[::-1]]).all()
        return bool(exchanged and (self._exchanges == differs).all(axis=1).any())

    def count_with(self, slate: NDArray[np.int32]) -> NDArray[np.int64]:
        """Return how many of them have each item of an eligible slate at its position, shape (k,)."""
        stay = self._count_with_centre.copy()
        for position in np.flatnonzero(slate != self.centre).tolist():
            source = np.flatnonzero(self.centre == slate[position])
            if len(source):
                pair = sorted((position, int(source[0])))
                stay[position] = (self._exchanges == pair).all(axis=1).any()
            else:
                stay[position] = self._fits[position, np.searchsorted(self.eligible, slate[position])]
        return stay

    @cached_property
    def _count_with_centre(self) -> NDArray[np.int64]:
        """How many have each of the centre's items at its position, shape (k,)."""
        k = len(self.centre)
        if self.rules is None:
            # One replacement or one exchange puts any other item there.
            return np.full(k, len(self) - (len(self.eligible) - k) - (k - 1))
        touched = np.bincount(self._exchanges.reshape(-1), minlength=k)
        return np.asarray(len(self) - self._fits.sum(axis=1) - touched)
