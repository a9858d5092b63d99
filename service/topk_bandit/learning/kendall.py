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

An *adaptive* kernel is one of a family (`Shape`), and rewards choose which (`kernel_choice`): with rank weights dcg^p,
with D and v times tau (F = grad u + tau D is a feature for every tau, so it stays a kernel), and with a constant kappa
beside the ranking's own part, k = k_r + kappa: what a context does to the reward of every slate alike. Where items have
features it has a content part too (`content`): k = k_r + kappa + rho k_content.

Source: *Gaussian Process Bandits for Top-k Recommendations*, Claims 1 to 3 and Theorem 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.learning.compiled import kendall
from topk_bandit.learning.content import Content, validated_features
from topk_bandit.learning.rankings import validated_rankings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import ArrayLike

    from topk_bandit.learning.rankings import Rankings

    RankWeight: TypeAlias = Callable[[int, int], float]

__all__ = [
    "CONSTANTS",
    "CONTENTS",
    "PAIR_SCALES",
    "POWERS",
    "KendallKernel",
    "Shape",
    "adaptive_kendall",
    "convolutional_kendall",
    "dcg_weight",
    "weighted_convolutional_kendall",
    "weighted_kendall",
]

FloatArray: TypeAlias = NDArray[np.float64]

POWERS = (0.0, 0.5, 1.0)
"""Rank weights dcg^p: from CK's to WCK's."""

PAIR_SCALES = (0.1, 0.3, 1.0)
"""What D and v are multiplied by: from nearly additive in the items to Kendall's own."""

CONSTANTS = (0.0, 0.25, 1.0, 4.0, 16.0)
"""kappa: the variance of what a context does to all slates alike, in units of what slates differ by."""

CONTENTS = (0.0, 0.25, 1.0, 4.0, 16.0, 64.0)
"""rho: the variance of what the items' features say of a slate, in the same units, if it shows items that are alike."""


class Shape(NamedTuple):
    """Which kernel of the adaptive family: p, tau, kappa and rho, which counts where items have features."""

    power: float = 0.5
    pair_scale: float = 1.0
    constant: float = 0.25
    content: float = 1.0


_FIRST_SHAPE = Shape()
_GRIDS = (POWERS, PAIR_SCALES, CONSTANTS, CONTENTS)


def dcg_weight(first: int, second: int) -> float:
    """Return 1 / (log(a + 1) log(b + 1)) for two 1-based rank positions: the weights of discounted cumulative gain."""
    return 1.0 / (math.log(first + 1) * math.log(second + 1))


@dataclass(frozen=True, slots=True, eq=False)
class KendallKernel:
    """A kernel of top-k rankings, k = k_r + kappa + rho k_content, with k_r(pi, pi) = 1 for every pi.

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
    shape
        Which of the adaptive family it is; None for a kernel that stays as it is, and has no constant.
    content
        rho k_content; None for items without features.
    centred
        Whether the parts of all items add up to nothing, as those of pairs' features do. Without that they are
        independent of each other, s is 0, and what any ranking shows of all of them counts, too (`item_parts`).
    """

    n_items: int
    slate_size: int
    item_weight: FloatArray
    pair_weight: FloatArray
    divergence: FloatArray
    total: float
    scale: float
    shape: Shape | None = None
    content: Content | None = None
    centred: bool = True

    @property
    def constant(self) -> float:
        """Kappa."""
        return 0.0 if self.shape is None else self.shape.constant

    @property
    def variance(self) -> float:
        """k(pi, pi) without the content part, the same for every pi."""
        return 1.0 + self.constant

    @property
    def counted_content(self) -> Content | None:
        """The content part, if there is one and rho is not 0: what counts for nothing costs nothing."""
        return None if self.content is None or not self.content.unit else self.content

    def with_shape(self, shape: Shape) -> KendallKernel:
        """Return the kernel of the adaptive family for the same rankings and features with this shape."""
        kernel = adaptive_kendall(self.n_items, self.slate_size, shape)
        kernel = kernel if self.centred else kernel.uncentre()
        return kernel if self.content is None else _with_content(kernel, self.content.features)

    def with_first_shape(self) -> KendallKernel:
        """Return the kernel that a bandit begins with, for the same rankings and features."""
        return self if self.shape is None else self.with_shape(_FIRST_SHAPE)

    def uncentre(self) -> KendallKernel:
        """Return this kernel with parts of the items that are independent of each other."""
        if not self.centred:
            return self
        scale = 1.0 / (1.0 / self.scale + self.total * self.total)
        return replace(self, total=0.0, scale=scale, centred=False)

    @property
    def item_variance(self) -> float:
        """kappa_0, of the part of an item in a context of norm 1."""
        return self.n_items * self.scale

    @property
    def part_weight(self) -> FloatArray:
        """By how much the part of the item at each position counts: g = u + v / n, shape (k,)."""
        return self.item_weight + self.divergence / self.n_items

    def with_item_features(self, features: FloatArray | None) -> KendallKernel:
        """Return the kernel of the same shape for items with these features, or none.

        Parameters
        ----------
        features
            z, shape (n, q), q up to `content.MOST_FEATURES`; no row longer than 1, zeros for an item without features.

        Raises
        ------
        InvalidArgumentError
            The features are not that, or the kernel is not of the adaptive family, which is where rho is chosen.
        """
        if features is None:
            return replace(self, content=None)
        if self.shape is None:
            raise InvalidArgumentError("kernel", "only the adaptive kernel takes features of items")
        return _with_content(self, validated_features(features, n_items=self.n_items))

    @property
    def neighbours(self) -> tuple[KendallKernel, ...]:
        """The kernels of the family that are one step away; none for a kernel that stays as it is."""
        if self.shape is None:
            return ()
        fixed = set() if self.slate_size > 1 else {"power", "pair_scale"}
        if self.content is None or not self.item_weight.any():
            fixed.add("content")
        return tuple(self.with_shape(shape) for shape in _shapes_beside(self.shape, fixed=fixed))

    def variances(self, rankings: Rankings, *, with_constant: bool = True) -> FloatArray:
        """Return k(pi, pi) of valid rankings (A, k), with or without kappa, shape (A,)."""
        variances = np.full(len(rankings), self.variance if with_constant else 1.0)
        if (content := self.counted_content) is not None:
            variances += (content.of_slates(rankings) ** 2).sum(axis=1)
        return variances

    def variance_to_own(self, rankings: Rankings) -> float:
        """Return how many times as large the variance of rankings (A, k) is as without kappa, by their means."""
        if self.counted_content is None:
            return self.variance
        own = float(self.variances(rankings, with_constant=False).mean())
        return (own + self.constant) / own

    def gram(self, left: ArrayLike, right: ArrayLike) -> FloatArray:
        """Return the kernel's values for all pairs of rankings.

        Parameters
        ----------
        left, right
            Item indices, shapes (A, k) and (B, k).

        Returns
        -------
        Shape (A, B), values in [kappa - rho - 1, kappa + rho + 1].

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
        values = bracket * self.scale + self.constant
        if (content := self.counted_content) is not None:
            values += content.of_slates(rows) @ content.of_slates(columns).T
        return np.asarray(values, dtype=np.float64)

    def gram_of(self, rankings: Rankings) -> FloatArray:
        """Return the kernel's values for all pairs of these valid rankings (N, k), shape (N, N), symmetric."""
        bracket = kendall.gram_of(
            rankings, self.n_items, self.item_weight, self.pair_weight, self.divergence, self.total
        )
        values = bracket * self.scale + self.constant
        if (content := self.counted_content) is not None:
            of_slates = content.of_slates(rankings)
            values += of_slates @ of_slates.T
        return np.asarray(values, dtype=np.float64)


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


@lru_cache(maxsize=256)
def adaptive_kendall(n_items: int, slate_size: int, shape: Shape = _FIRST_SHAPE) -> KendallKernel:
    """Return a kernel of the adaptive family: O(n + k^2).

    p = 1 is WCK with the weights of DCG, p = 0 is CK. With k = 1 neither p nor tau makes a difference.

    Parameters
    ----------
    n_items, slate_size
        n and k, with 1 <= k <= n and n >= 2.
    shape
        p, tau, kappa and rho, each of its grid.

    Raises
    ------
    InvalidArgumentError
        The sizes or the shape are not that.
    """
    _check_sizes(n_items, slate_size)
    for name, grid in zip(Shape._fields, _GRIDS, strict=True):
        if getattr(shape, name) not in grid:
            raise InvalidArgumentError(name, f"expected one of {grid}, got {getattr(shape, name)}")
    discounts = [math.log(position + 1) ** -shape.power for position in range(1, n_items + 1)]
    # w_s is a product, so that wbar takes one sum.
    outside = discounts[slate_size:]
    mean = math.fsum(outside) / len(outside) if outside else 0.0
    kernel = _kernel(
        n_items,
        slate_size,
        lambda first, second: dcg_weight(first, second) ** shape.power,
        outside_weight=np.array(discounts[:slate_size]) * mean,
        pair_scale=shape.pair_scale,
    )
    return replace(kernel, shape=shape)


def _with_content(kernel: KendallKernel, features: FloatArray) -> KendallKernel:
    share = 0.0 if kernel.shape is None else kernel.shape.content
    return replace(kernel, content=Content.of(features, kernel.item_weight, share))


def _shapes_beside(shape: Shape, *, fixed: set[str]) -> Iterator[Shape]:
    """Give the shapes that differ by one number that is not fixed: by one step, or because it is as at first."""
    for name, grid, first in zip(Shape._fields, _GRIDS, _FIRST_SHAPE, strict=True):
        if name in fixed:
            continue
        index = grid.index(getattr(shape, name))
        for beside in sorted({index - 1, index + 1, grid.index(first)} - {index}):
            if 0 <= beside < len(grid):
                yield shape._replace(**{name: grid[beside]})


def _check_sizes(n_items: int, slate_size: int) -> None:
    if n_items < 2:
        raise InvalidArgumentError("n_items", "at least 2 items are needed to compare rankings")
    if not 1 <= slate_size <= n_items:
        raise InvalidArgumentError("slate_size", f"expected 1 to n_items = {n_items}, got {slate_size}")


def _kernel(
    n_items: int,
    slate_size: int,
    rank_weight: RankWeight,
    *,
    outside_weight: FloatArray,
    pair_scale: float = 1.0,
) -> KendallKernel:
    _check_sizes(n_items, slate_size)
    positions = range(slate_size)
    u = outside_weight
    weights = np.array([[rank_weight(a + 1, b + 1) if a < b else 0.0 for b in positions] for a in positions])
    # Weights whose squares are not finite give no kernel; that is said below, not warned of here.
    with np.errstate(over="ignore", invalid="ignore"):
        d = pair_scale * np.triu(weights - (u[:, None] - u[None, :]), 1)
        v = d.sum(axis=1) - d.sum(axis=0)
        s = float(u.sum())
        self_bracket = float((d * d).sum() + n_items * (u @ u) + 2.0 * (u @ v) - s * s)
    if not self_bracket > 0.0 or not math.isfinite(self_bracket):
        raise InvalidArgumentError("rank_weight", "gives every ranking the norm zero, or one that is not finite")
    return KendallKernel(n_items, slate_size, u, d, v, s, 1.0 / self_bracket)
