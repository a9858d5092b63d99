"""How long contexts usually are, so that one wild number can't undo what all other requests taught.

The kernel is linear in the context: one that is ten thousand times as long as the others counts ten thousand times as
much in each prediction. So a context that is many times as long as is usual is not believed: it is taken for somebody
of whom nothing is known where contexts share a number that can say so, and else shortened to the longest usual one. It
widens what is usual: where such contexts are real, they are believed from about the sixth one on.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Self

__all__ = ["FEWEST_CONTEXTS", "LONGER", "NO_CONTEXTS", "UsualContexts"]

FloatArray = NDArray[np.float64]

FEWEST_CONTEXTS = 16
"""Contexts by whose median norm the first ones are judged, each other one of them included."""

LONGER = 10.0
"""A context is an outlier if it is more than so many times as long as is usual."""

_WIDER = 3.0
"""The longest usual context becomes so many times longer with each outlier."""

_FORGOTTEN = 1e-4

_JUDGED_FROM = 3
"""So many contexts judge the next one, and these themselves once it has come."""


class UsualContexts(NamedTuple):
    """The contexts of a bandit so far; those of norm 0 tell nothing.

    Attributes
    ----------
    first
        Norms of the first few; none once these are enough.
    longest
        Norm of the longest usual one, slowly forgotten: the median of the first few while these are not enough.
    outliers
        How many contexts were outliers.
    """

    first: tuple[float, ...] = ()
    longest: float = 0.0
    outliers: int = 0

    @property
    def contexts_before_judgement(self) -> int | None:
        """With how many more contexts those before are judged anew, None if they never are again."""
        if self.longest and not self.first:
            return None
        known = len(self.first)
        return (FEWEST_CONTEXTS if known > _JUDGED_FROM else _JUDGED_FROM + 1) - known

    @property
    def judges_those_before(self) -> bool:
        """Whether the last context was one with which those before are judged anew."""
        return len(self.first) in {0, _JUDGED_FROM + 1}

    def shorten(self, context: FloatArray) -> FloatArray:
        """Return a context, an outlier as long as the longest usual one."""
        return context * (self.longest / _norm_of(context)) if self.is_outlier(context) else context

    def admit(self, context: FloatArray) -> Self:
        """Return what is usual after one more context."""
        norm = _norm_of(context)
        if not norm:
            return self
        outlier = self.is_outlier(context)
        after = self._replace(outliers=self.outliers + outlier)
        if not self.longest or self.first:
            return after._replace(**_judge((*self.first, norm)))
        if outlier:
            return after._replace(longest=_WIDER * self.longest)
        return after._replace(longest=max((1.0 - _FORGOTTEN) * self.longest, norm))

    def shorten_rows(self, contexts: FloatArray, sizes: FloatArray, *, shares: bool) -> FloatArray:
        """Return contexts of rows, none of them an outlier.

        Parameters
        ----------
        contexts, sizes
            Shape (N, C); and how many times as long as a context each can be, shape (N,).
        shares
            Whether their last number is what all contexts share.
        """
        own = contexts[:, : contexts.shape[1] - shares]
        norms = np.sqrt((own * own).sum(axis=1))
        longest = self.longest * sizes
        factors = np.divide(longest, norms, out=np.ones_like(norms), where=norms > LONGER * longest)
        return np.concatenate([own * factors[:, None], contexts[:, own.shape[1] :]], axis=1)

    def is_outlier(self, context: FloatArray) -> bool:
        """Tell whether a context is too long to be believed."""
        return self.is_too_long(_norm_of(context))

    def is_too_long(self, norm: float) -> bool:
        """Tell whether a context of this norm is too long to be believed."""
        too_few = 0 < len(self.first) < _JUDGED_FROM
        return not too_few and self.longest > 0.0 and norm > LONGER * self.longest


def _judge(first: tuple[float, ...]) -> Mapping[str, Any]:
    """Return what the first norms say is usual, and which of them are kept."""
    median = float(np.median(first))
    if len(first) < FEWEST_CONTEXTS:
        return {"first": first, "longest": median}
    return {"first": (), "longest": max(one for one in first if one <= LONGER * median)}


def _norm_of(context: FloatArray) -> float:
    return math.hypot(*context.reshape(-1).tolist())


NO_CONTEXTS = UsualContexts()
