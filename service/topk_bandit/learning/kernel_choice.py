"""Which kernel of the adaptive family a bandit gets: the one that the marginal likelihood prefers.

Eq. 5 asks of the rank weights only that they are symmetric and positive. How much more the upper ranks count, how much
the order inside a slate, how much of a reward is due to the context alone, how much the items' features tell, and how
much all contexts have in common, are matters of the shop, and its rewards tell (`kendall.Shape`, `Choice`). The choice
climbs: it goes to the neighbour with the largest density, each at its own best noise, offset, slope and scale
(`hyperparameters`) and with the prior mean that is its own, until none is better. What the first rewards can't tell has
a prior, which keeps it from the ends of its range. The first value of each is a neighbour of all others, so that no
choice, such as that features count for nothing, is for good.

While every ranking has rows of its own the densities are exact. Rows that were folded or projected are sums under the
kernel that there was; under another they are taken for the same sums. Few rows are compared at every refit, more
whenever the rewards have grown by half, and more than `MOST_ROWS` by a projection onto so many.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from topk_bandit.learning.hyperparameters import fit_noise, noise_factor
from topk_bandit.learning.observed_rows import compact, fold_by_ranking, project
from topk_bandit.learning.rankings import NO_ITEMS

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    from numpy.typing import NDArray

    from topk_bandit.learning.hyperparameters import NoiseFit
    from topk_bandit.learning.item_parts import Spectrum
    from topk_bandit.learning.kendall import FloatArray, KendallKernel, Shape
    from topk_bandit.learning.observed_rows import ObservedRows
    from topk_bandit.learning.prior_mean import PriorMean
    from topk_bandit.learning.slope_prior import SlopePrior

__all__ = [
    "FIRST_SHARED",
    "LEAST_SHARED",
    "MOST_ROWS",
    "MOST_SHARED",
    "Choice",
    "Chosen",
    "choice_is_due",
    "choose",
    "condense",
]

MOST_ROWS = 256
"""Rows by which kernels are compared."""

FIRST_SHARED, LEAST_SHARED, MOST_SHARED = 1.0, 4.0**-4, 4.0**8
"""lambda: what all contexts share, in the unit of their dot products."""

_SHARED_STEP = 4.0
_FEW_ROWS = 64
_GROWTH = 1.5

_TIE = 1e-6
"""A kernel whose log density is larger by no more than this is no better: it may be the same one, rounded."""


class _Prior(NamedTuple):
    """A normal prior of a parameter's logarithm to base four; zero stands where `nothing` is."""

    middle: float
    spread: float
    nothing: float = -math.inf

    def log_density(self, value: float) -> float:
        exponent = math.log(value, 4.0) if value else self.nothing
        return -0.5 * ((exponent - self.middle) / self.spread) ** 2


_OF_SHARED = _Prior(0.0, 1.5)
_OF_PAIRS = _Prior(-0.4, 1.0)
_OF_CONTENT = _Prior(0.5, 1.5, nothing=-2.5)
"""Few rewards hardly tell the ends of these ranges from what is inside, and all slates depend on them."""


class Choice(NamedTuple):
    """A kernel of the rankings, and what all contexts share, lambda (`policy.State`)."""

    kernel: KendallKernel
    shared: float

    def ratio_to(self, shared: float) -> float:
        """Return how many times as much contexts share as before; 1 for those that share nothing."""
        return self.shared / shared if shared else 1.0

    @property
    def neighbours(self) -> Iterator[Choice]:
        """The choices that are one step away: of the kernel's shape, or of what contexts share."""
        for kernel in self.kernel.neighbours:
            yield Choice(kernel, self.shared)
        beside = {self.shared / _SHARED_STEP, self.shared * _SHARED_STEP, FIRST_SHARED} if self.shared else set()
        for shared in sorted(beside - {self.shared}):
            if LEAST_SHARED <= shared <= MOST_SHARED:
                yield Choice(self.kernel, shared)

    @property
    def log_prior(self) -> float:
        """The log density of the choice before any reward, up to a constant."""
        density, shape = _OF_SHARED.log_density(self.shared) if self.shared else 0.0, self.kernel.shape
        if shape is not None:
            density += _OF_PAIRS.log_density(shape.pair_scale)
        if shape is not None and self.kernel.content is not None:
            density += _OF_CONTENT.log_density(shape.content)
        return density


def condense(
    kernel: KendallKernel,
    rows: ObservedRows,
    *,
    most_rows: int,
    noise_variance: float,
    leaving: NDArray[np.int32] = NO_ITEMS,
    most_items: int = 0,
) -> ObservedRows:
    """Return at most `most_rows` rows that say as much as so many can: all of it, where that is known to be possible.

    Rows of an adaptive kernel are the same under the whole family up to `MOST_ROWS` of them. `leaving` and `most_items`
    are as for `project`.
    """
    if rows.noise_shape is None:
        rows = fold_by_ranking(rows)
        if kernel.shape is not None and rows.n_rows <= min(MOST_ROWS, most_rows):
            return rows
    if rows.n_rows <= most_rows:
        return compact(kernel, rows)
    return project(
        kernel, rows, most_rows=most_rows, noise_variance=noise_variance, leaving=leaving, most_items=most_items
    )


def choice_is_due(rows: ObservedRows, *, observations: int, compared: int) -> bool:
    """Return whether kernels are compared after so many observations, the last time having been after `compared`."""
    return rows.n_rows <= _FEW_ROWS or observations >= _GROWTH * compared


class Chosen(NamedTuple):
    """Where a climb ended, and the noise there; None if that was compared by fewer rows than there are."""

    choice: Choice
    noise: NoiseFit | None


class _Compared:
    """Rows that kernels are compared by; what several candidates have in common is computed once.

    Parameters
    ----------
    rows
        Rows under `first`, with the h of `prior_mean`.
    first, prior_mean, prior, noise_variance
        Where the climb begins, and as for `choose`.
    """

    def __init__(
        self,
        rows: ObservedRows,
        first: Choice,
        prior_mean: PriorMean | None,
        prior: SlopePrior | None,
        noise_variance: float,
    ) -> None:
        self._rows, self._first, self._prior_mean, self._prior = rows, first, prior_mean, prior
        self._noise_variance = noise_variance
        self._factor = noise_factor(rows)
        self._grams: dict[tuple[float, float], FloatArray] = {}
        self._spectra: dict[float, Spectrum] = {}
        self._fits: dict[tuple[Shape | None, float], NoiseFit] = {}

    def fit(self, choice: Choice) -> NoiseFit:
        """Return the best noise of a choice, with the prior mean that is its own."""
        key = choice.kernel.shape, choice.shared
        if key not in self._fits:
            rows = self._rows.with_shared(choice.ratio_to(self._first.shared))
            if self._prior_mean is not None and choice.kernel is not self._first.kernel:
                rows = rows.with_prior_mean(self._prior_mean.with_kernel(choice.kernel))
            gram, to_own = self._gram(choice.kernel), choice.kernel.variance_to_own(rows.rankings)
            evidence = rows.kernel_evidence(choice.kernel, self._noise_variance, self._spectrum(rows, choice.shared))
            fitted = fit_noise(gram, rows, self._factor, to_own=to_own, prior=self._prior, evidence=evidence)
            self._fits[key] = fitted._replace(log_density=fitted.log_density + choice.log_prior)
        return self._fits[key]

    def _spectrum(self, rows: ObservedRows, shared: float) -> Spectrum | None:
        """Return that of what is known of the items of rows whose contexts share so much."""
        if rows.parts is None:
            return None
        if shared not in self._spectra:
            self._spectra[shared] = rows.parts.spectrum
        return self._spectra[shared]

    def _gram(self, kernel: KendallKernel) -> FloatArray:
        """Return the kernel's values; kernels that differ by constant and content alone have the others in common."""
        if kernel.shape is None:
            return kernel.gram_of(self._rows.rankings)
        key = kernel.shape.power, kernel.shape.pair_scale
        if key not in self._grams:
            own = kernel.with_shape(kernel.shape._replace(constant=0.0, content=0.0))
            self._grams[key] = own.gram_of(self._rows.rankings)
        gram = self._grams[key] + kernel.constant
        if (content := kernel.counted_content) is not None:
            of_slates = content.of_slates(self._rows.rankings)
            gram += of_slates @ of_slates.T
        return gram


def choose(
    kernel: KendallKernel,
    rows: ObservedRows,
    *,
    shared: float,
    noise_variance: float,
    prior_mean: PriorMean | None,
    prior: SlopePrior | None,
) -> Chosen:
    """Return where the climb from `kernel` and `shared` ends.

    Parameters
    ----------
    kernel, shared
        Where it begins; contexts that share nothing stay as they are.
    rows
        At least one row, with the h of `prior_mean`.
    noise_variance
        The noise at which more than `MOST_ROWS` rows are projected, and what is known of single items.
    prior_mean
        h, made for `kernel`; None for a constant prior mean.
    prior
        The slope's, if there is a prior mean.
    """
    fewer = project(kernel, rows, most_rows=MOST_ROWS, noise_variance=noise_variance)
    best = Choice(kernel, shared)
    compared = _Compared(fewer, best, prior_mean, prior, noise_variance)
    density = compared.fit(best).log_density
    while True:
        found, beside = best, density + _TIE
        for other in best.neighbours:
            other_density = compared.fit(other).log_density
            if other_density > beside:
                found, beside = other, other_density
        if found is best:
            return Chosen(best, compared.fit(best) if fewer is rows else None)
        best, density = found, beside
