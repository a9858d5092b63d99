"""What is believed of slates before their rewards: utilities of items, taken through the kernel's own features.

Claim 3's pair feature of a slate, F_ij, says how much item i is shown above item j. A prior mean that gives the weight
a_i(c) - a_j(c) to F_ij, a_i(c) being the utility of item i in context c, makes of a slate with items i_1, ..., i_k

    h(pi, c) = sum_{i < j} F_ij (a_i - a_j) = sum_p g_p a_{i_p}(c)        g = n u + v

when the utilities are centred (`kendall` has u and v). It is a function in the kernel's own space, so it folds as rows
do, and it enters a contraction as an addition to the weights of the items' u and v. Under WCK g falls about as the
weights of DCG do; under WK only pairs that are shown together count, g is not positive, and there is no such prior.

Utilities are known up to their unit, so they are scaled: h has unit variance over slates whose items are drawn
independently, in a context of norm 1 drawn from all directions. The reward's prior mean is b + s h, and b and s are
learned (`hyperparameters`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.learning._layout import lay_out

if TYPE_CHECKING:
    from topk_bandit.learning.kendall import KendallKernel
    from topk_bandit.learning.rankings import Rankings
    from topk_bandit.learning.slope_prior import SlopePrior

__all__ = ["PriorMean", "position_weights", "takes_prior_mean"]

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class PriorMean:
    """h of a study's m utilities, for a bandit with n items.

    Attributes
    ----------
    position_weights
        g by position, shape (k,).
    constants, slopes
        The utility of the study's item j is constants_j + c . slopes_j, centred and scaled; shapes (m + 1,) and
        (m + 1, C). The last row is zero: the mean, for items that the study does not know.
    row_of
        Row of each of the bandit's items, shape (n,).
    covariances
        Of the constant and the slopes of each row, likewise scaled, shape (m + 1, d, d), the last one of what nothing
        is known of; None for utilities that are certain. d is 1 + the numbers of a context that are its own, or 1
        where a context is one number.
    worth
        What is believed of the slope, in units of the rewards; None for what is believed of a study's.
    """

    position_weights: FloatArray
    constants: FloatArray
    slopes: FloatArray
    row_of: NDArray[np.intp]
    covariances: FloatArray | None = None
    worth: SlopePrior | None = None

    @classmethod
    def of(
        cls,
        kernel: KendallKernel,
        constants: FloatArray,
        slopes: FloatArray,
        row_of: NDArray[np.intp],
        *,
        variance: float | None = None,
        covariances: FloatArray | None = None,
        worth: SlopePrior | None = None,
    ) -> PriorMean:
        """Return the prior mean of utilities in whatever unit.

        A bandit whose context is one number has rewards that are proportional to it, and so are its constants.

        Parameters
        ----------
        kernel
            Kernel of the rankings.
        constants, slopes
            Utilities of the study's m items: constants_j + c . slopes_j; shapes (m,) and (m, C).
        row_of
            Row of each of the bandit's items among them, -1 for those that it does not know; shape (n,).
        variance
            Of utilities in contexts of norm 1; None for that of these ones.
        covariances
            Of each utility's coefficients, and of one of which nothing is known, shape (m + 1, d, d).
        worth
            What is believed of the slope of these utilities, each times its position's weight at a length of one.

        Raises
        ------
        InvalidArgumentError
            Naming ``kernel``: it does not compare items that are shown with items that are not.
        """
        if not takes_prior_mean(kernel):
            raise InvalidArgumentError("kernel", "the weighted Kendall kernel takes no prior mean: use another")
        weights = position_weights(kernel)
        constants, slopes = _centre(constants, slopes)
        variance = _variance_of(constants, slopes) if variance is None else variance
        scale = 1.0 / np.sqrt(variance * float(weights @ weights)) if variance > 0.0 else 0.0
        scaled = None if covariances is None else covariances * scale**2
        if worth is not None and variance > 0.0:
            worth = worth.times(math.sqrt(variance))
        return cls.restore(
            kernel,
            np.append(constants * scale, 0.0),
            _with_zero(slopes * scale),
            row_of,
            covariances=scaled,
            worth=worth,
        )

    @classmethod
    def restore(
        cls,
        kernel: KendallKernel,
        constants: FloatArray,
        slopes: FloatArray,
        row_of: NDArray[np.intp],
        *,
        covariances: FloatArray | None = None,
        worth: SlopePrior | None = None,
    ) -> PriorMean:
        """Return the prior mean that all but the kernel are attributes of, to the bit."""
        covariances = None if covariances is None else lay_out(covariances)
        return cls(position_weights(kernel), lay_out(constants), lay_out(slopes), row_of, covariances, worth)

    def with_rows(self, row_of: NDArray[np.intp]) -> PriorMean:
        """Return the prior mean of the same utilities, the bandit's items having other rows."""
        return replace(self, row_of=row_of)

    def with_context_dim(self, context_dim: int) -> PriorMean:
        """Return the same prior mean for contexts with more numbers, which tell nothing of it."""
        missing = context_dim - self.slopes.shape[1]
        return replace(self, slopes=lay_out(np.pad(self.slopes, ((0, 0), (0, missing))))) if missing else self

    def with_kernel(self, kernel: KendallKernel) -> PriorMean:
        """Return the prior mean of the same utilities, taken through another kernel's features.

        The study knows nothing of items that only that kernel has.
        """
        weights = position_weights(kernel)
        scale = float(np.sqrt((self.position_weights @ self.position_weights) / (weights @ weights)))
        row_of = np.pad(self.row_of, (0, max(kernel.n_items - len(self.row_of), 0)), constant_values=-1)
        return replace(
            self,
            position_weights=weights,
            constants=self.constants * scale,
            slopes=self.slopes * scale,
            row_of=row_of,
            covariances=None if self.covariances is None else self.covariances * scale**2,
        )

    @property
    def nbytes(self) -> int:
        """Bytes of its arrays."""
        of_covariances = 0 if self.covariances is None else self.covariances.nbytes
        return self.constants.nbytes + self.slopes.nbytes + self.row_of.nbytes + of_covariances

    @property
    def numbers(self) -> tuple[NDArray[Any] | float, ...]:
        """All numbers that predictions depend on, in a stated order: for digests."""
        of_utilities = self.position_weights, self.constants, self.slopes, self.row_of
        uncertain = () if self.covariances is None else (self.covariances,)
        return *of_utilities, *uncertain, *(() if self.worth is None else self.worth)

    @property
    def grows_with_the_context(self) -> bool:
        """Whether h is proportional to the context's length, as the kernel's standard deviation is."""
        return not self.constants.any()

    def utilities(self, context: FloatArray, items: NDArray[np.integer]) -> FloatArray:
        """Return a of some items in a context, in the shape of `items`."""
        rows = self.row_of[items]
        return np.asarray(self.constants[rows] + self.slopes[rows] @ context, dtype=np.float64)

    def variances(self, context: FloatArray, items: NDArray[np.integer]) -> FloatArray | None:
        """Return the variances of a of some items in a context, in the shape of `items`; None where it is certain."""
        if self.covariances is None:
            return None
        d = self.covariances.shape[1]
        extended = context if len(context) == 1 else np.append(1.0, context[: d - 1])
        return np.asarray(((self.covariances @ extended) @ extended)[self.row_of[items]], dtype=np.float64)

    def of_slates(self, context: FloatArray, rankings: Rankings) -> FloatArray:
        """Return h of rankings (A, k) in one context, shape (A,)."""
        return np.asarray(self.utilities(context, rankings) @ self.position_weights, dtype=np.float64)

    def of_rankings(self, rankings: Rankings) -> FloatArray:
        """Return the part of h that is the same in every context, shape (A,)."""
        return np.asarray(self.constants[self.row_of[rankings]] @ self.position_weights, dtype=np.float64)

    def of_rows(self, contexts: FloatArray, rankings: Rankings, ones: FloatArray) -> FloatArray:
        """Return h of rows (N,), which may be sums of observations of their ranking; `ones` adds up their ones."""
        slopes = np.einsum("k,nkc->nc", self.position_weights, self.slopes[self.row_of[rankings]])
        return np.asarray(self.of_rankings(rankings) * ones + (slopes * contexts).sum(axis=1), dtype=np.float64)


def takes_prior_mean(kernel: KendallKernel) -> bool:
    """Return whether a kernel has a part for single items: whether it compares those shown with those that are not."""
    return kernel.slate_size == kernel.n_items or bool(kernel.item_weight.any())


def _centre(constants: FloatArray, slopes: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return utilities less their means; the constants are slopes where contexts are one number."""
    if slopes.shape[1] == 1:
        constants, slopes = np.zeros_like(constants), slopes + constants[:, None]
    return constants - constants.mean(), slopes - slopes.mean(axis=0)


def _variance_of(constants: FloatArray, slopes: FloatArray) -> float:
    """Return the variance of centred utilities in contexts of norm 1."""
    return float(np.mean(constants**2) + np.mean(slopes**2)) if len(constants) else 0.0


def position_weights(kernel: KendallKernel) -> FloatArray:
    """Return g of a kernel, shape (k,)."""
    return np.asarray(kernel.n_items * kernel.item_weight + kernel.divergence, dtype=np.float64)


def _with_zero(rows: FloatArray) -> FloatArray:
    return np.vstack([rows, np.zeros((1, rows.shape[1]))])
