"""Kendall kernels of top-k rankings in one symmetric sparse form.

For a ranking with item ranks p, the pair feature of Claim 3 is the antisymmetric matrix F with
F_ij = w_s(p_i, p_j) sgn(p_j - p_i) for two shown items, wbar(p_i) when only i is shown, -wbar(p_j) when only j is, and
0 otherwise. It splits into a gradient and a correction inside the slate::

    u_i  = wbar(p_i) for shown items, else 0
    D_ij = F_ij - (u_i - u_j) for shown pairs, else 0
    v_i  = sum_j D_ij
    s    = sum_i u_i

    k(pi, pi') = [ D.D' + n u.u' + u.v' + v.u' - s s' ] / C(n, 2)

so that a ranking is O(k^2) numbers whose values depend on the positions only, and a kernel value costs O(k^2) whatever
n is.

Source: *Gaussian Process Bandits for Top-k Recommendations*, Claims 1 to 3 and Theorem 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.learning.compiled import kendall
from topk_bandit.learning.rankings import validated_rankings

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import ArrayLike

    RankWeight: TypeAlias = Callable[[int, int], float]

__all__ = [
    "RANK_WEIGHT_POWERS",
    "KendallKernel",
    "adaptive_kendall",
    "convolutional_kendall",
    "dcg_weight",
    "weighted_convolutional_kendall",
    "weighted_kendall",
]

FloatArray: TypeAlias = NDArray[np.float64]

RANK_WEIGHT_POWERS = (0.0, 0.5, 1.0)
"""Powers p of the rank weights dcg^p that are compared where they are learned: from CK's to WCK's."""

_FIRST_POWER = 0.5


def dcg_weight(first: int, second: int) -> float:
    """Return 1 / (log(a + 1) log(b + 1)) for two 1-based rank positions: the weights of discounted cumulative gain."""
    return 1.0 / (math.log(first + 1) * math.log(second + 1))


@dataclass(frozen=True, slots=True, eq=False)
class KendallKernel:
    """A unit-normalised kernel of top-k rankings: k(pi, pi) = 1 for every pi.

    Attributes
    ----------
    n_items, slate_size
        n and k.
    item_weight
        u by position, shape (k,).
    pair_weight
        D by two positions a < b (the item at a before the one at b), shape (k, k), zero elsewhere.
    divergence
        v by position, shape (k,).
    total
        s, a scalar.
    scale
        What the bracket of the sum is multiplied by: 1 / C(n, 2), normalised.
    power
        p, where the rank weights dcg^p are learned; None for a kernel that stays as it is.
    """

    n_items: int
    slate_size: int
    item_weight: FloatArray
    pair_weight: FloatArray
    divergence: FloatArray
    total: float
    scale: float
    power: float | None = None
    _candidates: tuple[KendallKernel, ...] = field(default=(), repr=False)

    @property
    def candidates(self) -> tuple[KendallKernel, ...]:
        """The kernels that this one can turn into, itself included; none for a kernel that stays as it is."""
        return tuple(replace(candidate, _candidates=self._candidates) for candidate in self._candidates)

    def at_power(self, power: float) -> KendallKernel:
        """Return the candidate with this power.

        Raises
        ------
        InvalidArgumentError
            There is none.
        """
        for candidate in self.candidates:
            if candidate.power == power:
                return candidate
        raise InvalidArgumentError("power", f"{power} is none of this kernel's")

    def gram(self, left: ArrayLike, right: ArrayLike) -> FloatArray:
        """Return the kernel's values for all pairs of rankings.

        Parameters
        ----------
        left, right
            Item indices, shapes (A, k) and (B, k).

        Returns
        -------
        Shape (A, B), values in [-1, 1].

        Raises
        ------
        InvalidArgumentError
            `left` or `right` is not an array of rankings.
        """
        rows = validated_rankings(left, n_items=self.n_items, slate_size=self.slate_size, field="left")
        columns = validated_rankings(right, n_items=self.n_items, slate_size=self.slate_size, field="right")
        bracket = kendall.gram(
            rows, columns, self.n_items, self.item_weight, self.pair_weight, self.divergence, self.total
        )
        return np.asarray(bracket * self.scale, dtype=np.float64)


def weighted_kendall(n_items: int, slate_size: int, *, rank_weight: RankWeight = dcg_weight) -> KendallKernel:
    """Return the weighted Kendall kernel (WK): only pairs that both rankings show count.

    Parameters
    ----------
    n_items, slate_size
        n and k, with 1 <= k <= n. A single shown item makes no pair, so k >= 2.
    rank_weight
        w_s: a symmetric function of two 1-based positions.
    """
    if slate_size < 2:
        raise InvalidArgumentError("slate_size", "the weighted Kendall kernel compares pairs and needs at least 2")
    return _kernel(n_items, slate_size, rank_weight, outside_weight=np.zeros(slate_size))


def convolutional_kendall(n_items: int, slate_size: int) -> KendallKernel:
    """Return the convolutional Kendall kernel (CK, Eq. 3): all pairs count, every rank the same (w_s = 1)."""
    return weighted_convolutional_kendall(n_items, slate_size, rank_weight=lambda _first, _second: 1.0)


def weighted_convolutional_kendall(
    n_items: int, slate_size: int, *, rank_weight: RankWeight = dcg_weight
) -> KendallKernel:
    """Return the weighted convolutional Kendall kernel (WCK, Eq. 4): all pairs count, by the weight of their ranks.

    Parameters
    ----------
    n_items, slate_size
        n and k, with 1 <= k <= n and n >= 2.
    rank_weight
        w_s: a symmetric function of two 1-based positions.
    """
    _check_sizes(n_items, slate_size)
    outside = range(slate_size + 1, n_items + 1)
    wbar = [
        math.fsum(rank_weight(position, rank) for rank in outside) / len(outside) if outside else 0.0
        for position in range(1, slate_size + 1)
    ]
    return _kernel(n_items, slate_size, rank_weight, outside_weight=np.array(wbar))


def adaptive_kendall(n_items: int, slate_size: int) -> KendallKernel:
    """Return the weighted convolutional Kendall kernel whose rank weights are still to be chosen: w_s = dcg^p.

    p = 1 is WCK with the weights of DCG, p = 0 is CK, and it begins between them, at p = 1/2. With k = 1 they are all
    the same, and there is nothing to choose.

    Parameters
    ----------
    n_items, slate_size
        n and k, with 1 <= k <= n and n >= 2.
    """
    powers = RANK_WEIGHT_POWERS if slate_size > 1 else (_FIRST_POWER,)
    candidates = tuple(_kernel_of_power(n_items, slate_size, power) for power in powers)
    return replace(candidates[powers.index(_FIRST_POWER)], _candidates=candidates)


def _kernel_of_power(n_items: int, slate_size: int, power: float) -> KendallKernel:
    """Return WCK with w_s = dcg^p; w_s is a product, so that wbar takes one sum: O(n + k^2)."""
    _check_sizes(n_items, slate_size)
    discounts = [math.log(position + 1) ** -power for position in range(1, n_items + 1)]
    outside = discounts[slate_size:]
    mean = math.fsum(outside) / len(outside) if outside else 0.0
    kernel = _kernel(
        n_items,
        slate_size,
        lambda first, second: dcg_weight(first, second) ** power,
        outside_weight=np.array(discounts[:slate_size]) * mean,
    )
    return replace(kernel, power=power)


def _check_sizes(n_items: int, slate_size: int) -> None:
    if n_items < 2:
        raise InvalidArgumentError("n_items", "at least 2 items are needed to compare rankings")
    if not 1 <= slate_size <= n_items:
        raise InvalidArgumentError("slate_size", f"expected 1 to n_items = {n_items}, got {slate_size}")


def _kernel(n_items: int, slate_size: int, rank_weight: RankWeight, *, outside_weight: FloatArray) -> KendallKernel:
    _check_sizes(n_items, slate_size)
    positions = range(slate_size)
    u = outside_weight
    weights = np.array([[rank_weight(a + 1, b + 1) if a < b else 0.0 for b in positions] for a in positions])
    # Weights whose squares are not finite give no kernel; that is said below, not warned of here.
    with np.errstate(over="ignore", invalid="ignore"):
        d = np.triu(weights - (u[:, None] - u[None, :]), 1)
        v = d.sum(axis=1) - d.sum(axis=0)
        s = float(u.sum())
        self_bracket = float((d * d).sum() + n_items * (u @ u) + 2.0 * (u @ v) - s * s)
    if not self_bracket > 0.0 or not math.isfinite(self_bracket):
        raise InvalidArgumentError("rank_weight", "gives every ranking the norm zero, or one that is not finite")
    return KendallKernel(n_items, slate_size, u, d, v, s, 1.0 / self_bracket)
