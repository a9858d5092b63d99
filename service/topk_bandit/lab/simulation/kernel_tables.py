"""The paper's Table 2: how similar the kernels find [1, 2, 3] and four other rankings of 3 out of 7 items.

Each value is worked out twice: by the learner's kernel, and by its definition, the mean of the weighted Kendall kernel
of full rankings (Eq. 2) over all pairs of full rankings that begin as the two rankings do, (n - k)! each (Eqs. 3 and
4), divided by sqrt(k(pi, pi) k(pi', pi')).

In the paper's rows of WK and CK all ranks weigh the same, in its row of WCK they have DCG's weights. Under WK the ranks
below k weigh nothing.
"""

from __future__ import annotations

import math
from itertools import permutations
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.learning.kendall import (
    convolutional_kendall,
    dcg_weight,
    weighted_convolutional_kendall,
    weighted_kendall,
)
from topk_bandit.learning.rankings import validated_rankings

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import ArrayLike

    from topk_bandit.learning.kendall import KendallKernel

    RankWeight: TypeAlias = Callable[[int, int], float]

__all__ = ["Similarity", "kernel_similarities", "similarity_by_definition"]

FloatArray: TypeAlias = NDArray[np.float64]

_N_ITEMS, _SLATE_SIZE = 7, 3
_FIRST = (1, 2, 3)
_OTHERS = (4, 5, 6), (3, 2, 1), (2, 1, 3), (1, 3, 2)
_MOST_UNSHOWN = 6
"""More items than these have too many orders to compare each with each."""


class Similarity(NamedTuple):
    """One cell of the table.

    Attributes
    ----------
    kernel
        "WK", "CK" or "WCK".
    ranking
        What [1, 2, 3] is compared with, items from 1.
    value, by_definition
        Unit-normalised: what the learner's kernel gives, and what its definition gives.
    paper
        What the paper prints.
    """

    kernel: str
    ranking: tuple[int, ...]
    value: float
    by_definition: float
    paper: float

    @property
    def agrees(self) -> bool:
        """Whether both values are the paper's to two decimals."""
        return round(self.value, 2) == self.paper and round(self.by_definition, 2) == self.paper


class _Row(NamedTuple):
    kernel: KendallKernel
    rank_weight: RankWeight
    paper: tuple[float, ...]


def kernel_similarities() -> list[Similarity]:
    """Return Table 2, row by row."""
    first, cells = np.array(_FIRST) - 1, []
    for name, row in _rows().items():
        for ranking, printed in zip(_OTHERS, row.paper, strict=True):
            other = np.array(ranking) - 1
            value = float(row.kernel.gram(first, other)[0, 0])
            defined = similarity_by_definition(first, other, n_items=_N_ITEMS, rank_weight=row.rank_weight)
            cells.append(Similarity(name, ranking, value, defined, printed))
    return cells


def _rows() -> dict[str, _Row]:
    n, k = _N_ITEMS, _SLATE_SIZE
    wk, wck = weighted_kendall(n, k, rank_weight=_same), weighted_convolutional_kendall(n, k)
    return {
        "WK": _Row(wk, _same_above, (0.00, -1.00, 0.33, 0.33)),
        "CK": _Row(convolutional_kendall(n, k), _same, (-0.60, 0.60, 0.87, 0.87)),
        "WCK": _Row(wck, dcg_weight, (-0.38, 0.09, 0.46, 0.87)),
    }


def _same(_first: int, _second: int) -> float:
    return 1.0


def _same_above(first: int, second: int) -> float:
    return float(max(first, second) <= _SLATE_SIZE)


def similarity_by_definition(left: ArrayLike, right: ArrayLike, *, n_items: int, rank_weight: RankWeight) -> float:
    """Return the unit-normalised kernel of two top-k rankings by enumeration (Eqs. 2 to 5): ((n - k)!)^2 terms.

    Parameters
    ----------
    left, right
        Item indices, best first, shapes (k,).
    n_items
        n, at most k + 6.
    rank_weight
        w_s: a symmetric function of two 1-based ranks, up to n.

    Raises
    ------
    InvalidArgumentError
        `left` or `right` is no ranking, or there are more items.
    """
    size = np.shape(left)[0]
    if n_items > size + _MOST_UNSHOWN:
        raise InvalidArgumentError("n_items", f"expected at most {size + _MOST_UNSHOWN}, got {n_items}")
    pairs = []
    for ranking, field in ((left, "left"), (right, "right")):
        [items] = validated_rankings(ranking, n_items=n_items, slate_size=size, field=field)
        pairs.append(_signed_weights(_completions(items, n_items), rank_weight))
    one, other = pairs
    # Each entry of a product is the kernel of two full rankings, but for 1 / C(n, 2).
    norms = float((one @ one.T).mean()), float((other @ other.T).mean())
    return float((one @ other.T).mean()) / math.sqrt(norms[0] * norms[1])


def _completions(ranking: NDArray[np.int32], n_items: int) -> NDArray[np.intp]:
    """Return the rank of each item, from 1, in each full ranking that begins so, shape ((n - k)!, n)."""
    unshown = [item for item in range(n_items) if item not in set(ranking.tolist())]
    orders = np.array([[*ranking.tolist(), *rest] for rest in permutations(unshown)])
    return np.argsort(orders, axis=1) + 1


def _signed_weights(ranks: NDArray[np.intp], rank_weight: RankWeight) -> FloatArray:
    """Return w_s of the ranks of each pair i < j, negative where j is before i, shape (A, n (n - 1) / 2)."""
    n_items = ranks.shape[1]
    weights = np.array([[rank_weight(a, b) for b in range(1, n_items + 1)] for a in range(1, n_items + 1)])
    first, second = np.triu_indices(n_items, 1)
    left, right = ranks[:, first], ranks[:, second]
    return np.asarray(weights[left - 1, right - 1] * np.sign(right - left))
