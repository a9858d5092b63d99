"""The exact Gaussian-process posterior of a slate's reward, as an inverse Cholesky factor and sparse rankings.

With K the covariance of the N rows so far, k((c, pi), (c', pi')) = (c.c') k(pi, pi'), and L L' = K + sigma^2 V, it
keeps

    M = L^-1 (N x N, lower triangular)        alpha = M'M y (N,)

and answers mean(x) = k_x . alpha and variance(x) = k(x, x) - |M k_x|^2. A row is appended in O(N^2): with ell = M k_x
and d^2 = k(x, x) + sigma^2 - ell.ell, the next row of M is (-ell'M, 1) / d, and with z = (its product with y) alpha
grows by z times that row. No array has a dimension for features, items or pairs of them: memory is N^2 whatever the
catalogue.

A slate that is shown and not yet rewarded is a *pending* row: the rows of rewarded slates come first, the pending ones
last, and the z of a pending row is zero, which is its reward hallucinated at the posterior mean (GP-BUCB: Desautels,
Krause and Burdick, 2014). It shrinks the variance and leaves every mean as it is. When its reward arrives the row is
rotated to the front of the pending ones and so becomes the newest of the rewarded; when it is discarded it is rotated
out: O(P (N + P)).

Rewards may be centred on an offset b, or on b + s h with the h of a prior mean (`prior_mean`), and the kernel scaled by
an amplitude without touching a row: alpha is kept for the rewards, for all ones and for h, and every variance is
multiplied by the amplitude.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.domain.replacing import replace
from topk_bandit.learning._layout import lay_out
from topk_bandit.learning._rows import PendingRows, PendingSlates, Rows, Tail
from topk_bandit.learning._triangles import inverse_lower
from topk_bandit.learning.compiled import kendall
from topk_bandit.learning.context_posterior import ContextPosterior, Moments, contract_to_context
from topk_bandit.learning.folded_rewards import Learned, Span, take_out
from topk_bandit.learning.hyperparameters import Products
from topk_bandit.learning.item_parts import KnownAtContext
from topk_bandit.learning.observed_rows import NOISE_FLOOR, Observations, ObservedRows, noisy_covariance, rewards_differ
from topk_bandit.learning.rankings import Rankings, as_array, validated_items, validated_rankings
from topk_bandit.learning.slope_prior import unit_of

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from topk_bandit.learning.content import Content
    from topk_bandit.learning.item_parts import KnownParts
    from topk_bandit.learning.kendall import KendallKernel
    from topk_bandit.learning.prior_mean import PriorMean

__all__ = ["LEAST_NOISE", "Moments", "Observations", "PendingSlates", "Posterior", "capacity_for"]

FloatArray = NDArray[np.float64]

_NOTHING_LEFT = 1e-6
"""Rows of fewer observations than this have lost all that they were made of."""

LEAST_NOISE = 1e-6
"""Least noise of a row that is appended, relative to its c.c: with less, the rounding of each grows in those behind."""


_SHORT = 1e-12
"""In a context that is a smaller part of those before, rewards tell next to nothing beside uncertain utilities."""


_MOST_UNCERTAIN = 1e15
"""So many times as large deviations of utilities leave nothing to what rewards tell, and have a square in float32."""


class _Sums(NamedTuple):
    """What the profile likelihood needs.

    Attributes
    ----------
    products
        y'A^-1 y, y'A^-1 1 and so on of all targets, shape (T, T).
    observations
        How many they stand for.
    context_squares
        c.c of the observations, added up.
    """

    products: FloatArray
    observations: float = 0.0
    context_squares: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class Posterior:
    """A value: every method returns a new one, and an older one stays valid while newer ones are built from it.

    Attributes
    ----------
    kernel
        Kernel of the rankings; the full kernel is its product with the dot product of the contexts (Eq. 6).
    context_dim
        C.
    noise_variance
        sigma^2 for an amplitude of one: the variance of a reward around its expectation is amplitude * noise_variance.
    prior_mean
        h, None for a constant prior mean.
    offset, slope
        b and s: rewards are centred on b + s h, the mean where nothing is known.
    amplitude
        s^2: the variance of a slate's own part of the expected reward before any observation, for a context of norm 1;
        what content adds to it not counted.
    n_rows
        N: rewarded rows.
    """

    kernel: KendallKernel
    context_dim: int
    noise_variance: float
    prior_mean: PriorMean | None
    offset: float
    slope: float
    amplitude: float
    n_rows: int
    _fitted: ObservedRows
    _tail: Tail
    _rows: Rows
    _pending: PendingRows
    _weights: FloatArray
    _sums: _Sums
    _known: KnownParts | None
    _span: Span | None = None

    @classmethod
    def prior(
        cls,
        kernel: KendallKernel,
        *,
        context_dim: int,
        noise_variance: float,
        prior_mean: PriorMean | None = None,
    ) -> Posterior:
        """Return the posterior of no observations: mean 0, variance c.c times the kernel's.

        Parameters
        ----------
        kernel
            Kernel of the rankings.
        context_dim
            C, at least 1.
        noise_variance
            sigma^2 > 0, in units of the kernel. The noise of a row that is appended is at least 1e-6 of its c.c.
        prior_mean
            h, made for this kernel.
        """
        if context_dim < 1:
            raise InvalidArgumentError("context_dim", f"expected at least 1, got {context_dim}")
        if not (np.isfinite(noise_variance) and noise_variance > 0):
            raise InvalidArgumentError("noise_variance", f"expected a positive number, got {noise_variance}")
        nothing = np.zeros((0, context_dim)), np.zeros((0, kernel.slate_size), dtype=np.int32), np.zeros(0)
        n_targets = 2 if prior_mean is None else 3
        return cls(
            kernel=kernel,
            context_dim=context_dim,
            noise_variance=float(noise_variance),
            prior_mean=prior_mean,
            offset=0.0,
            slope=0.0,
            amplitude=1.0,
            n_rows=0,
            _fitted=ObservedRows.of(Observations(*nothing), prior=None if prior_mean is None else np.zeros(0)),
            _tail=Tail(0),
            _rows=Rows.empty(0, **_sizes_of(kernel, context_dim), n_targets=n_targets),
            _pending=PendingRows.none(0, **_sizes_of(kernel, context_dim)),
            _weights=np.zeros((n_targets, 0)),
            _sums=_Sums(np.zeros((n_targets, n_targets))),
            _known=None,
        )

    @classmethod
    def fit(
        cls,
        kernel: KendallKernel,
        observed_rows: ObservedRows,
        pending: PendingSlates,
        *,
        noise_variance: float,
        prior_mean: PriorMean | None = None,
    ) -> Posterior:
        """Return the posterior of all of `observed_rows` and then of the pending slates, at once: O(N^3).

        It agrees with `prior`, `observe` and `show` to rounding, and is the same to the bit for the same rows.

        Parameters
        ----------
        kernel
            Kernel of the rankings.
        observed_rows
            Rewarded rows, valid as the ones of another posterior are; C is read off their contexts.
        pending
            Pending rows, likewise.
        noise_variance, prior_mean
            As for `prior`; the rows have its h.
        """
        prior = cls.prior(
            kernel, context_dim=observed_rows.contexts.shape[1], noise_variance=noise_variance, prior_mean=prior_mean
        )
        return prior._fitted_to(observed_rows).show(*pending)

    @property
    def n_pending(self) -> int:
        """P: rows without a reward."""
        return self._pending.size

    def is_of_one_fit_with(self, other: Posterior) -> bool:
        """Return whether two posteriors were fitted at once to the same rows, whatever came to either later."""
        return self._fitted is other._fitted

    @property
    def observations(self) -> Observations:
        """The rewarded rows, oldest first; views, not to be written to. Folded rows are sums of what was observed."""
        n, rows, known = self.n_rows, self._rows, self._known
        contexts, rankings, rewards = rows.contexts[:n], rows.rankings[:n], rows.targets[0, :n]
        return Observations(
            contexts, rankings, rewards if known is None else rewards + known.of_rows(contexts, rankings)[0]
        )

    @property
    def observed_rows(self) -> ObservedRows:
        """The rewarded rows with all that is known of them."""
        fitted, (contexts, rankings, rewards) = self._fitted.n_rows, self.observations
        later = Observations(contexts[fitted:], rankings[fitted:], rewards[fitted:])
        prior = None if self.prior_mean is None else self._rows.targets[2, fitted : self.n_rows]
        return self._fitted.extend(ObservedRows.of(later, prior=prior))

    @property
    def pending(self) -> PendingSlates:
        """The pending rows, oldest first; views, not to be written to."""
        return PendingSlates(self._pending.contexts, self._pending.rankings)

    @property
    def all_rows(self) -> PendingSlates:
        """Contexts and rankings of the rewarded rows, and then of the pending ones."""
        n, rows, pending = self.n_rows, self._rows, self._pending
        return PendingSlates(
            np.concatenate([rows.contexts[:n], pending.contexts]), np.concatenate([rows.rankings[:n], pending.rankings])
        )

    @property
    def mean_weights(self) -> FloatArray:
        """Weights of the covariances with all rows in the mean, shape (N + P,): those of pending rows are zero."""
        return np.concatenate([self._centre_weights(), np.zeros(self.n_pending)])

    def solve(self, values: FloatArray) -> FloatArray:
        """Return A^-1 times `values` (N + P,), A = K + sigma^2 V of all rows at an amplitude of one: O(N^2)."""
        n, whitener, pending = self.n_rows, self._rows.whitener, self._pending.whitened
        solved = pending @ (pending.T @ values)
        solved[:n] += whitener[:n, :n] @ (values[:n] @ whitener[:n, :n])
        return np.asarray(solved, dtype=np.float64)

    def colour(self, normals: FloatArray) -> FloatArray:
        """Return noise of all rows, shape (N + P,), from standard normal numbers, at an amplitude of one."""
        contexts, shape = self.all_rows.contexts, self._fitted.noise_shape
        noise = np.sqrt(self._noise_of((contexts * contexts).sum(axis=1))) * normals
        if shape is not None:
            folded = self._fitted.n_rows
            floor = np.diag(NOISE_FLOOR * (contexts[:folded] ** 2).sum(axis=1))
            noise[:folded] = np.linalg.cholesky(self.noise_variance * shape + floor) @ normals[:folded]
        return np.asarray(noise, dtype=np.float64)

    @property
    def memory_bytes(self) -> int:
        """Bytes of all arrays that grow with rows."""
        of_items = 0 if self._known is None else self._known.nbytes
        return self._rows.nbytes + self._pending.nbytes + self._weights.nbytes + self._fitted.nbytes + of_items

    @property
    def numbers(self) -> tuple[NDArray[Any] | float | None, ...]:
        """All numbers that predictions depend on, now and after more rewards, in a stated order: for digests."""
        n, rows, pending, kernel, fitted = self.n_rows, self._rows, self._pending, self.kernel, self._fitted
        prior, content = self.prior_mean, self.kernel.content
        return (
            *(kernel.n_items, kernel.slate_size, kernel.item_weight, kernel.pair_weight, kernel.scale, kernel.constant),
            *(self.noise_variance, self.offset, self.slope, self.amplitude),
            *(rows.contexts[:n], rows.rankings[:n], rows.targets[:, :n], rows.whitener[:n, :n], self._weights),
            *(pending.contexts, pending.rankings, pending.factor, pending.whitened),
            *(fitted.n_rows, fitted.leftovers, fitted.noise_shape),
            *(() if fitted.feedback is None else fitted.feedback),
            *(self._sums.products, self._sums.observations, self._sums.context_squares),
            *(() if prior is None else prior.numbers),
            *(() if content is None else (content.features, content.unit)),
            *(() if self._known is None or fitted.parts is None else (*self._known.numbers, fitted.parts.products)),
        )

    @property
    def n_observations(self) -> float:
        """Observations that the rewarded rows stand for; folded rows stand for several."""
        return self._sums.observations

    @property
    def rewards_vary(self) -> bool:
        """Whether the rewards are not all equal."""
        return rewards_differ(self._rows.targets[:, : self.n_rows], self._fitted.leftovers)

    @property
    def context_square(self) -> float:
        """Mean square of the rewarded rows' contexts, or of the pending ones' while there are none; 0 without rows."""
        if self.n_rows and self._sums.observations > 0.0:
            return self._sums.context_squares / self._sums.observations
        return float((self._pending.contexts**2).sum()) / max(self.n_pending, 1)

    @property
    def best_offset(self) -> float:
        """The generalised least squares mean 1'A^-1 y / 1'A^-1 1 of the rewards, A = K + sigma^2 V; 0 without rows."""
        return self._mean_of(0)

    def offset_at(self, slope: float) -> float:
        """Return the best offset beside a slope: the generalised least squares mean of y - s h."""
        return self._mean_of(0) - slope * self._mean_of(2)

    def whitened_square(self, offset: float) -> float:
        """Return z'z of the rewards centred on `offset`, at an amplitude of one."""
        return _square(self._sums.products, offset)

    def surprise_of_newest(self, before: Posterior) -> float:
        """Return the squared distance of the newest reward from its prediction, in units of the predicted variance.

        Parameters
        ----------
        before
            The posterior that learned that reward, by which it is judged.
        """
        products = self._sums.products - before._sums.products
        weights = np.array([1.0, -before.offset, -before.slope])[: len(products)]
        return max(float(weights @ products @ weights), 0.0) / before.amplitude

    @property
    def centred_products(self) -> Products:
        """S_yy, S_yh and S_hh of a posterior with a prior mean, at an amplitude of one."""
        return self._centre_products(self._sums.products)

    @property
    def has_item_parts(self) -> bool:
        """Whether rows have left that gave information on single items."""
        return self._fitted.parts is not None

    @property
    def slope_products(self) -> Products:
        """The same with the products of rows that left, which the slope also depends on."""
        return self._centre_products(self._all_products)

    def _centre_products(self, products: FloatArray) -> Products:
        """Return S_yy, S_yh and S_hh of products of the targets."""
        mean_y, mean_h = self._mean_of(0), self._mean_of(2)
        return Products(
            np.float64(_square(products, mean_y)),
            products[0, 2] - mean_y * products[1, 2],
            products[2, 2] - mean_h * products[1, 2],
            self._sums.observations,
        )

    @property
    def _all_products(self) -> FloatArray:
        """Products of the targets, of rows that are here and of those that left."""
        products, parts = self._sums.products, self._fitted.parts
        return products if parts is None else products + parts.products / self.noise_variance

    def _mean_of(self, target: int) -> float:
        """Return the generalised least squares mean of a target; 0 without rows."""
        products = self._all_products
        return float(products[1, target] / products[1, 1]) if self.n_rows else 0.0

    def observe(self, contexts: ArrayLike, rankings: ArrayLike, rewards: ArrayLike) -> Posterior:
        """Learn from rewarded slates, in order: O(N^2) each.

        Parameters
        ----------
        contexts
            Shape (A, C), or (C,) for one.
        rankings
            Item indices, shape (A, k), or (k,) for one.
        rewards
            Shape (A,), or a scalar for one.

        Raises
        ------
        InvalidArgumentError
            Shapes that do not fit, indices that are no ranking, numbers that are not finite.
        """
        rows, orders = self._validate_rows(contexts, rankings)
        values = np.atleast_1d(_real(rewards, field="rewards"))
        if values.shape != (len(orders),):
            raise InvalidArgumentError("rewards", f"expected shape ({len(orders)},), got {np.shape(rewards)}")
        if not np.isfinite(values).all():
            raise InvalidArgumentError("rewards", "expected finite numbers")
        posterior = self
        for context, ranking, reward in zip(rows, orders, values.tolist(), strict=True):
            shown = posterior._with_pending(context, ranking)
            posterior = shown.reward(shown.n_pending - 1, reward)
        return posterior

    def show(self, contexts: ArrayLike, rankings: ArrayLike) -> Posterior:
        """Count slates that are shown and not yet rewarded: they become the last pending rows. O(N^2) each.

        Parameters
        ----------
        contexts, rankings
            As for `observe`.
        """
        posterior = self
        for context, ranking in zip(*self._validate_rows(contexts, rankings), strict=True):
            posterior = posterior._with_pending(context, ranking)
        return posterior

    def reward(self, chosen: int, value: float) -> Posterior:
        """Learn the reward of the pending row at index `chosen`: O(P (N + P)).

        Parameters
        ----------
        chosen
            0-based index among the pending rows, oldest first.
        value
            Its reward.

        Raises
        ------
        InvalidArgumentError
            There is no such row, or the reward is not finite.
        """
        self._check_pending(chosen)
        if not math.isfinite(value):
            raise InvalidArgumentError("value", f"expected a finite number, got {value}")
        n, old = self.n_rows, self._pending
        factor = old.factor.copy()
        rotations = kendall.rotate_to_front(factor, chosen)
        whitened, first = _rotate_rows(old.whitened, _move_row(len(old.whitened), n + chosen, n), rotations, gone=0)
        row = first[: n + 1]
        context, ranking = old.contexts[chosen], old.rankings[chosen]
        targets = self._targets_of(context, ranking, value)
        z = self._rows.targets[:, :n] @ row[:n] + targets * row[n]
        weights = z[:, None] * row
        weights[:, :n] += self._weights
        products, observations, squares = self._sums
        return replace(
            self._with_row(row, context, ranking, old.content[chosen], targets),
            _pending=old.without(chosen, factor[1:, 1:], whitened),
            _weights=weights,
            _sums=_Sums(products + z[:, None] * z, observations + 1.0, squares + float(context @ context)),
        )

    def without_row(self, row: int) -> Posterior:
        """Return this posterior without one of its rewarded rows, which is of one observation: O(N^3).

        Parameters
        ----------
        row
            0-based index among the rewarded rows.
        """
        others = np.delete(np.arange(self.n_rows), row)
        fitted = self.refit(self.observed_rows.select(others), noise_variance=self.noise_variance)
        context, sums = self._rows.contexts[row], self._sums
        # Where rows were folded together, theirs is not the mean square of the contexts that were observed.
        squares = sums.context_squares - float(context @ context)
        return replace(
            fitted, _sums=fitted._sums._replace(observations=sums.observations - 1.0, context_squares=squares)
        )

    def with_rewards(self, rewards: FloatArray) -> Posterior:
        """Return this posterior with other rewards of its newest rows, each of one observation: O(N^2).

        Parameters
        ----------
        rewards
            Of the last rewarded rows, finite, shape (R,) with R at most N.
        """
        n, rows, fitted, known = self.n_rows, self._rows, self._fitted, self._known
        targets, newest = rows.targets.copy(), slice(n - len(rewards), n)
        targets[0, newest] = rewards
        of_fitted = targets[:, : fitted.n_rows].copy()
        if known is not None:
            targets[0, newest] -= known.of_rows(rows.contexts[newest], rows.rankings[newest])[0]
            of_fitted = targets[:, : fitted.n_rows] + known.of_rows(fitted.contexts, fitted.rankings)
        return self._with_targets(targets, replace(fitted, targets=of_fitted))

    def _with_targets(self, targets: FloatArray, fitted: ObservedRows) -> Posterior:
        """Return this posterior with other targets of its rows, (T, N) or more, centred on what is known of items."""
        n, whitener = self.n_rows, self._rows.whitener[: self.n_rows, : self.n_rows]
        z = targets[:, :n] @ whitener
        return replace(
            self,
            _fitted=fitted,
            _rows=replace(self._rows, targets=targets),
            _weights=z @ whitener.T,
            _sums=self._sums._replace(products=z @ z.T + fitted.left_products / self.noise_variance),
        )

    def amend(
        self,
        context: FloatArray,
        ranking: NDArray[np.int32],
        reward: float,
        *,
        change: float,
        weight: float = 1.0,
        n_latest: int = 0,
    ) -> Posterior:
        """Return this posterior with another reward of an observation that its earlier rows were made of: O(N^2).

        The first one after a fit may cost O(N^3). It is exact where the observation is a row or a sum of rows; else it
        is as exact as what the rows know of it (`folded_rewards`).

        Parameters
        ----------
        context, ranking, reward
            Of the observation as it was learned, shapes (C,) and (k,).
        change
            By how much the reward is larger.
        weight
            What the observation counts now, in (0, 1].
        n_latest
            So many rows at the end have none of it: each of them is another observation.
        """
        fitted, rows, n = self._fitted, self._rows, self.n_rows
        earlier = fitted if fitted.n_rows == n - n_latest else fitted.select(np.arange(n - n_latest))
        if not earlier.n_rows and earlier.parts is None:
            return self
        span = self._span or Span(self.kernel, earlier, noise_variance=self.noise_variance)
        learned = Learned(context, ranking, self._whole_targets_of(context, ranking, reward), weight)
        amended, known = span.amend(earlier, learned, change), self._known
        targets, of_fitted, leftovers = rows.targets.copy(), fitted.targets.copy(), fitted.leftovers.copy()
        if known is not None and amended.parts is not earlier.parts:
            targets[:, :n] += known.of_rows(rows.contexts[:n], rows.rankings[:n])
            known = amended.known_parts(self.kernel, self.noise_variance)
            if known is not None:
                targets[:, :n] -= known.of_rows(rows.contexts[:n], rows.rankings[:n])
        targets[:, : earlier.n_rows] += amended.targets - earlier.targets
        of_fitted[:, : earlier.n_rows], leftovers[: earlier.n_rows] = amended.targets, amended.leftovers
        fitted = replace(fitted, targets=of_fitted, leftovers=leftovers, parts=amended.parts)
        return replace(self, _span=span, _known=known)._with_targets(targets, fitted)

    def remove(
        self,
        context: FloatArray,
        ranking: NDArray[np.int32],
        reward: float,
        *,
        weight: float = 1.0,
        n_latest: int = 0,
    ) -> Posterior:
        """Return this posterior without an observation that its earlier rows were made of: O(N^3).

        The parameters are those of `amend`. Where rows of other rankings, or items' parts, hold some of the observation
        it can't be taken out: there its reward becomes what is expected.
        """
        rows = self.observed_rows
        earlier, latest = (
            rows.select(np.arange(*ends)) for ends in ((rows.n_rows - n_latest,), (rows.n_rows - n_latest, rows.n_rows))
        )
        others = take_out(earlier, Learned(context, ranking, self._whole_targets_of(context, ranking, reward), weight))
        if others is None:
            change = float(self.predict(context, ranking[None], with_pending=False).mean[0]) - reward
            return self.amend(context, ranking, reward, change=change, weight=weight, n_latest=n_latest)
        if others.n_observations < _NOTHING_LEFT:
            others = others.select(np.arange(0))
        fitted = self.refit(others.extend(latest), noise_variance=self.noise_variance)
        squares = max(self._sums.context_squares - weight * float(context @ context), 0.0)
        return replace(fitted, _sums=fitted._sums._replace(context_squares=squares))

    def with_outcomes(
        self, context: FloatArray, ranking: NDArray[np.int32], before: FloatArray | None, outcomes: FloatArray | None
    ) -> Posterior:
        """Return this posterior with other outcomes of the row that is of an observation, if one is: O(N).

        Parameters
        ----------
        context, ranking
            Of the observation, shapes (C,) and (k,).
        before, outcomes
            Those that the row has, and the others, shape (k,); None where nothing is known.
        """
        return replace(self, _fitted=self._fitted.with_outcomes(context, ranking, before, outcomes))

    def discard(self, chosen: int) -> Posterior:
        """Forget a pending row as if it had never been shown: O(P (N + P)); parameter and errors as for `reward`."""
        self._check_pending(chosen)
        n, old = self.n_rows, self._pending
        factor = old.factor.copy()
        rotations = kendall.rotate_out(factor, chosen)
        others = np.delete(np.arange(len(old.whitened)), n + chosen)
        whitened, _ = _rotate_rows(old.whitened, others, rotations, gone=old.size - 1)
        return replace(self, _pending=old.without(chosen, factor[:-1, :-1], whitened))

    def rescale(self, *, offset: float, amplitude: float, slope: float = 0.0) -> Posterior:
        """Return this posterior with its rewards centred on b + s h and its kernel scaled by `amplitude`."""
        if not (math.isfinite(offset + slope) and math.isfinite(amplitude) and amplitude > 0.0):
            raise InvalidArgumentError("amplitude", f"expected a positive number and a finite offset, got {amplitude}")
        return replace(self, offset=offset, slope=slope, amplitude=amplitude)

    def refit(
        self,
        observed_rows: ObservedRows,
        *,
        noise_variance: float,
        kernel: KendallKernel | None = None,
        pending: PendingSlates | None = None,
    ) -> Posterior:
        """Return `fit` of other rows and of the pending rows, or others, under another noise, scaled as before.

        With another kernel the prior mean is taken through that one's features, as the h of `observed_rows` is.
        """
        prior_mean = self.prior_mean
        if kernel is None or kernel is self.kernel:
            kernel = self.kernel
        elif prior_mean is not None:
            prior_mean = prior_mean.with_kernel(kernel)
        pending = self.pending if pending is None else pending
        fitted = Posterior.fit(kernel, observed_rows, pending, noise_variance=noise_variance, prior_mean=prior_mean)
        return fitted.rescale(offset=self.offset, amplitude=self.amplitude, slope=self.slope)

    def with_prior_mean(self, prior_mean: PriorMean | None, *, noise_variance: float) -> Posterior:
        """Return `fit` of the same rows under another prior mean, or none: O(N^3)."""
        observed_rows = self.observed_rows.with_prior_mean(prior_mean)
        return Posterior.fit(
            self.kernel, observed_rows, self.pending, noise_variance=noise_variance, prior_mean=prior_mean
        )

    def with_new_items(self, prior_mean: PriorMean) -> Posterior:
        """Return this posterior with a prior mean that differs for items that no row has shown."""
        return replace(self, prior_mean=prior_mean)

    def with_unshown_features(self, kernel: KendallKernel) -> Posterior:
        """Return this posterior with a kernel that differs for items that no row has shown."""
        return replace(self, kernel=kernel)

    def predict(
        self, context: ArrayLike, rankings: ArrayLike, *, with_constant: bool = True, with_pending: bool = True
    ) -> Moments:
        """Return the moments of the expected reward of `rankings` in one context.

        What the context does to all slates alike is uncertain too, and tells nothing of which is better: without the
        constant the variance is that of the rankings' own part, and the mean is the same.

        Parameters
        ----------
        context
            Shape (C,).
        rankings
            Item indices, shape (A, k).
        with_pending
            Whether slates narrow the variance before their rewards have come; it changes no mean.

        Returns
        -------
        Moments, both of shape (A,).
        """
        point = self._validated_context(context)
        orders = validated_rankings(rankings, n_items=self.kernel.n_items, slate_size=self.kernel.slate_size)
        n, pending = self.n_rows, self._pending
        cross = self._cross(point, orders, with_constant=with_constant)
        whitened = [self._rows.whitener[:n, :n].T @ cross[:n]]
        if with_pending:
            whitened.append(pending.whitened.T @ cross)
        explained = sum((part * part).sum(axis=0) for part in whitened)
        # Rounding can push an almost certain slate a hair below zero.
        prior = self._prior_variances(point, float(point @ point), orders, with_constant=with_constant)
        variance = np.maximum(prior - explained, 0.0)
        mean = self.offset + self._centre_weights() @ cross[:n]
        if self._known is not None:
            mean += self._known.of_slates(point, orders, self._centre, with_constant=with_constant)
        if not with_constant:
            mean += self.constant_mean(point)
        if self.prior_mean is not None:
            mean += self.slope * self.prior_mean.of_slates(point, orders)
        return Moments(mean, self.amplitude * variance + self._variances_of_prior_mean(point, orders))

    def predict_difference(
        self, context: ArrayLike, first: NDArray[np.int32], second: NDArray[np.int32]
    ) -> tuple[float, float]:
        """Return the mean and variance of what one ranking earns more than another in one context, by the rewards.

        Parameters
        ----------
        context
            Shape (C,).
        first, second
            Item indices, shape (k,).
        """
        point, orders = self._validated_context(context), np.stack([first, second])
        signs, n = np.array([1.0, -1.0]), self.n_rows
        cross = self._cross(point, orders, with_constant=False)[:n] @ signs
        whitened = self._rows.whitener[:n, :n].T @ cross
        prior = float(point @ point) * self.kernel.gram(orders, orders)
        if self._known is not None:
            prior -= self._known.cross(np.stack([point, point]), orders, point, orders, with_constant=False)
        variance = self.amplitude * max(float(signs @ prior @ signs - whitened @ whitened), 0.0)
        means = self.predict(point, orders, with_pending=False).mean
        return float(means @ signs), variance + self._variance_of_prior_difference(point, orders, signs)

    def _variance_of_prior_difference(self, context: FloatArray, orders: Rankings, signs: FloatArray) -> float:
        """Return the variance of the difference of s h of two rankings in a context, which rewards do not narrow."""
        items = np.unique(orders)
        of_items = None if self.prior_mean is None else self.prior_mean.variances(context, items)
        if self.prior_mean is None or of_items is None:
            return 0.0
        weights = np.zeros(len(items))
        for sign, order in zip(signs, orders, strict=True):
            weights[np.searchsorted(items, order)] += sign * self.prior_mean.position_weights
        return float(self.slope**2 * (of_items @ weights**2))

    def _variances_of_prior_mean(self, context: FloatArray, orders: Rankings) -> FloatArray | float:
        """Return the variances of s h of rankings (A, k) in a context, which rewards do not narrow; shape (A,)."""
        believed = self.prior_mean
        of_items = None if believed is None else believed.variances(context, orders)
        if believed is None or of_items is None:
            return 0.0
        return np.asarray(self.slope**2 * (of_items @ believed.position_weights**2), dtype=np.float64)

    def at(self, context: ArrayLike, items: ArrayLike) -> ContextPosterior:
        """Contract the posterior to one context and to the rankings of `items`: O(k N^2), whatever the catalogue.

        Parameters
        ----------
        context
            Shape (C,).
        items
            Distinct item indices in ascending order, shape (E,).

        Raises
        ------
        InvalidArgumentError
            The context or the items are not that.
        """
        point = self._validated_context(context)
        chosen = validated_items(items, n_items=self.kernel.n_items)
        n, rows = self.n_rows, self._rows
        norm = self._length_of(point)
        # At unit length, so that no context is too large for float32.
        unit, rankings = norm if norm > 0.0 else 1.0, np.concatenate([rows.rankings[:n], self._pending.rankings])
        contexts = np.concatenate([rows.contexts[:n], self._pending.contexts])
        return contract_to_context(
            self.kernel,
            chosen,
            whitener=rows.whitener,
            pending=self._pending.whitened,
            rankings=rankings,
            content_of_rows=self._content_of_rows(),
            similarities=contexts @ (point / unit) if norm > 0.0 else np.zeros(len(contexts)),
            weights=self._centre_weights() * unit,
            item_values=self._item_values(point, chosen),
            known=self._known_at(point, unit, chosen),
            offset=self.offset + self.constant_mean(point),
            amplitude=self.amplitude * unit * unit,
            prior=float(norm > 0.0),
        )

    def _length_of(self, context: FloatArray) -> float:
        """Return the length of a context; 0 where utilities are so uncertain that nothing beside them counts."""
        square = float(context @ context)
        is_certain = self.prior_mean is None or self.prior_mean.covariances is None
        return math.sqrt(square) if is_certain or square > _SHORT**2 * unit_of(self.context_square) else 0.0

    def _known_at(self, context: FloatArray, unit: float, items: NDArray[np.integer]) -> KnownAtContext | None:
        """Return what a contraction to a context and some items takes of what is known of these beside the rows.

        Utilities that are uncertain make the variances of items' parts larger. `unit` is the context's length.
        """
        known = None
        if self._known is not None:
            rows = self.all_rows
            known = self._known.at(rows.contexts, rows.rankings, context / unit, items)
        variances = None if self.prior_mean is None else self.prior_mean.variances(context, items)
        if variances is None:
            return known
        deviations = np.sqrt(variances) / math.sqrt(self.amplitude) * (abs(self.slope) * self.kernel.n_items / unit)
        more = np.minimum(deviations, _MOST_UNCERTAIN) ** 2
        return KnownAtContext.nothing(-more) if known is None else known._replace(taken=known.taken - more)

    def shown_counts(self) -> NDArray[np.intp]:
        """Return in how many rows, rewarded or pending, each item is, shape (n,).

        Items of rows that left count as one.
        """
        rankings = np.concatenate([self._rows.rankings[: self.n_rows], self._pending.rankings])
        counts = np.asarray(np.bincount(rankings.reshape(-1), minlength=self.kernel.n_items), dtype=np.intp)
        if self._fitted.parts is not None:
            counts[self._fitted.parts.items] += 1
        return counts

    def item_means(self, context: ArrayLike, items: NDArray[np.integer]) -> FloatArray:
        """Return what each of some items adds to the mean of a slate that shows it first, pairs left out, shape (E,).

        O(k N), and O(q (k N + E)) where content counts.
        """
        n, rows, kernel, point = self.n_rows, self._rows, self.kernel, self._validated_context(context)
        alpha = self._centre_weights() * (rows.contexts[:n] @ point) * kernel.scale
        images = kernel.item_weight[0] * (kernel.n_items * kernel.item_weight + kernel.divergence)
        images += kernel.divergence[0] * kernel.item_weight
        parts = alpha[:, None] * images
        shown = rows.rankings[:n].reshape(-1)
        if self._known is not None:
            of_entries = self._known.of_entries(rows.contexts[:n], rows.rankings[:n], point)
            parts -= self._known.weights[0] * self._centre_weights()[:, None] * of_entries
        means = np.bincount(shown, weights=parts.reshape(-1), minlength=kernel.n_items)[items]
        if self._known is not None:
            means = means + self._known.weights[0] * self._known.of_items(point, items, self._centre)
        if (content := kernel.counted_content) is not None:
            means = means + kernel.item_weight[0] * self._weights_of(content, self._centre_weights(), point, items)
        if self.prior_mean is not None:
            of_items = self.prior_mean.utilities(point, items)
            means = means + self.slope * self.prior_mean.position_weights[0] * of_items
        return np.asarray(means, dtype=np.float64)

    def parts_of_mean(self, contexts: FloatArray, rankings: Rankings) -> tuple[FloatArray, FloatArray]:
        """Return what each number of a context, and each of the content's, adds to the means of slates by themselves.

        That is beside the offset, the prior mean and what contexts do to all slates alike.

        Parameters
        ----------
        contexts, rankings
            For the slates, shapes (A, C) and (A, k).

        Returns
        -------
        Shapes (A, C) and (A, q): the first adds up to all of it, the second to what content adds, a part of that.
        """
        n, rows, kernel = self.n_rows, self._rows, self.kernel
        weighted = self._centre_weights()[:, None] * rows.contexts[:n]
        own = kernel.scale * kendall.gram(
            *(rankings, rows.rankings[:n], kernel.n_items),
            *(kernel.item_weight, kernel.pair_weight, kernel.divergence, kernel.total),
        )
        of_content = np.zeros((len(rankings), 0))
        if (content := kernel.counted_content) is not None:
            of_slates = content.of_slates(rankings)
            of_content = of_slates * ((contexts @ weighted.T) @ rows.content[:n])
            own += of_slates @ rows.content[:n].T
        parts = contexts * (own @ weighted)
        if self._known is not None:
            beside = self._known.less_rows(rows.rankings[:n], weighted, self._centre)
            parts += contexts * np.einsum("p,apc->ac", self._known.weights[:-1], beside[self._known.index_of[rankings]])
        return np.asarray(parts, dtype=np.float64), of_content

    def known_item_parts(self, context: FloatArray, ranking: NDArray[np.int32]) -> FloatArray:
        """Return what each item of a slate adds to the mean by rows that left, shape (k,).

        It is what was expected of it before the rows that are kept, less what these would tell if it were not known.
        """
        if self._known is None:
            return np.zeros(len(ranking))
        n, rows, known = self.n_rows, self._rows, self._known
        entries = known.of_entries(rows.contexts[:n], rows.rankings[:n], context)
        of_rows = (self._centre_weights()[:, None] * entries).reshape(-1)
        explained = np.bincount(rows.rankings[:n].reshape(-1), weights=of_rows, minlength=self.kernel.n_items)
        expected = known.of_items(context, ranking, self._centre)
        return np.asarray(known.weights[:-1] * (expected - explained[ranking]), dtype=np.float64)

    def weights_of_slope(self, context: ArrayLike, items: ArrayLike) -> FloatArray:
        """Return what the weights of the u and v of items grow by with the slope, at its best offset: O(k N).

        It is what h adds to a mean, less what the rewards would then explain differently; pairs are left out.

        Parameters
        ----------
        context, items
            As for `at`.

        Returns
        -------
        Shape (2, E): zero without a prior mean.
        """
        point, chosen = self._validated_context(context), validated_items(items, n_items=self.kernel.n_items)
        if self.prior_mean is None:
            return np.zeros((2, len(chosen)))
        n, rows, kernel = self.n_rows, self._rows, self.kernel
        of_rewards = self._mean_of(2) * self._weights[1] - self._weights[2]
        alpha = of_rewards * ((rows.contexts[:n] @ point) * kernel.scale)
        of_positions = kernel.n_items * kernel.item_weight + kernel.divergence, kernel.item_weight
        shown, utilities = rows.rankings[:n].reshape(-1), self.prior_mean.utilities(point, chosen)
        parts = [alpha[:, None] * image for image in of_positions]
        if self._known is not None:
            of_entries = of_rewards[:, None] * self._known.of_entries(rows.contexts[:n], rows.rankings[:n], point)
            parts = [part - share * of_entries for part, share in zip(parts, (1.0, 1.0 / kernel.n_items), strict=True)]
            of_targets = np.array([0.0, self._mean_of(2), -1.0])
            utilities = utilities + self._known.of_items(point, chosen, of_targets) / kernel.n_items
        explained = [np.bincount(shown, weights=part.reshape(-1), minlength=kernel.n_items)[chosen] for part in parts]
        grown = np.asarray(explained + np.multiply.outer([kernel.n_items, 1.0], utilities), dtype=np.float64)
        if (content := kernel.counted_content) is not None:
            grown[0] += self._weights_of(content, of_rewards, point, chosen)
        return grown

    def _weights_of(
        self, content: Content, weights: FloatArray, context: FloatArray, items: NDArray[np.integer]
    ) -> FloatArray:
        """Return what content adds to the weights of items' u (E,) in a context, by `weights` of the rows (N,)."""
        n, rows = self.n_rows, self._rows
        of_rows = (weights * (rows.contexts[:n] @ context)) @ rows.content[:n]
        return np.asarray(content.of_items(items) @ of_rows, dtype=np.float64)

    def _cross(self, context: FloatArray, orders: Rankings, *, with_constant: bool = True) -> FloatArray:
        """Return the covariance of all rows with rankings (A, k) in a context, (N + P, A): the pending rows last.

        Without the constant it is that with the rankings' own part.
        """
        n, rows, kernel = self.n_rows, self._rows, self.kernel
        rankings = np.concatenate([rows.rankings[:n], self._pending.rankings])
        similarities = np.concatenate([rows.contexts[:n], self._pending.contexts]) @ context
        bracket = kendall.gram(
            rankings, orders, kernel.n_items, kernel.item_weight, kernel.pair_weight, kernel.divergence, kernel.total
        )
        own = bracket * (kernel.scale * similarities)[:, None]
        if with_constant and kernel.constant:
            own += (kernel.constant * similarities)[:, None]
        if (content := kernel.counted_content) is not None:
            own += (self._content_of_rows() @ content.of_slates(orders).T) * similarities[:, None]
        if self._known is not None:
            contexts = np.concatenate([rows.contexts[:n], self._pending.contexts])
            own -= self._known.cross(contexts, rankings, context, orders, with_constant=with_constant)
        return np.asarray(own, dtype=np.float64)

    def _prior_variances(
        self, context: FloatArray, square: float, orders: Rankings, *, with_constant: bool = True
    ) -> FloatArray:
        """Return the variances of rankings (A, k) before the rows, in a context and its square, at an amplitude of one.

        Their shape is (A,).
        """
        prior = square * self.kernel.variances(orders, with_constant=with_constant)
        if self._known is not None:
            prior -= self._known.variances_of_slates(context, orders, with_constant=with_constant)
        return prior

    def _item_values(self, context: FloatArray, items: NDArray[np.integer]) -> FloatArray | None:
        """Return what is expected of items for each unit of n u + v before the rows, (E,); None for nothing."""
        believed, known = self.prior_mean, self._known
        if believed is None and known is None:
            return None
        values = np.zeros(len(items)) if believed is None else self.slope * believed.utilities(context, items)
        return values if known is None else values + known.of_items(context, items, self._centre) / self.kernel.n_items

    def _content_of_rows(self) -> FloatArray:
        """Return phi of all rows, rewarded and then pending, shape (N + P, q)."""
        return np.concatenate([self._rows.content[: self.n_rows], self._pending.content])

    def constant_mean(self, context: FloatArray) -> float:
        """Return the posterior mean of what the context does to all slates alike."""
        weights, contexts = self._centre_weights(), self._rows.contexts[: self.n_rows]
        mean = self.kernel.constant * float(weights @ (contexts @ context))
        return mean if self._known is None else mean + self._known.of_all(context, self._centre, weights @ contexts)

    @property
    def _centre(self) -> FloatArray:
        """What each target counts in rewards that are centred: 1, -b and, with a prior mean, -s."""
        return np.array([1.0, -self.offset] if self.prior_mean is None else [1.0, -self.offset, -self.slope])

    def _centre_weights(self) -> FloatArray:
        centred: FloatArray = self._weights[0] - self.offset * self._weights[1]
        if self.prior_mean is not None:
            centred -= self.slope * self._weights[2]
        return centred

    def _targets_of(self, context: FloatArray, ranking: NDArray[np.int32], reward: float) -> FloatArray:
        expected = 0.0 if self._known is None else self._known.of_rows(context[None], ranking[None])[:, 0]
        return self._whole_targets_of(context, ranking, reward) - expected

    def _whole_targets_of(self, context: FloatArray, ranking: NDArray[np.int32], reward: float) -> FloatArray:
        """Return the targets of an observation, shape (T,), with what is expected of its items."""
        targets = [reward, 1.0]
        if self.prior_mean is not None:
            targets.append(float(self.prior_mean.of_slates(context, ranking[None])[0]))
        return np.array(targets)

    def _check_pending(self, chosen: int) -> None:
        if not 0 <= chosen < self.n_pending:
            raise InvalidArgumentError("chosen", f"expected 0 to {self.n_pending - 1}, got {chosen}")

    def _validated_context(self, context: ArrayLike) -> FloatArray:
        point = _real(context, field="context")
        if point.shape != (self.context_dim,) or not np.isfinite(point).all():
            raise InvalidArgumentError(
                "context", f"expected {self.context_dim} finite numbers, got {np.shape(context)}"
            )
        return point

    def _validated_contexts(self, contexts: ArrayLike) -> FloatArray:
        array = _real(contexts, field="contexts")
        array = array[np.newaxis] if array.ndim == 1 else array
        if array.ndim != 2 or array.shape[1] != self.context_dim:
            raise InvalidArgumentError(
                "contexts", f"expected {self.context_dim} numbers each, got {np.shape(contexts)}"
            )
        if not np.isfinite(array).all():
            raise InvalidArgumentError("contexts", "expected finite numbers")
        return array

    def _validate_rows(self, contexts: ArrayLike, rankings: ArrayLike) -> tuple[FloatArray, Rankings]:
        orders = validated_rankings(rankings, n_items=self.kernel.n_items, slate_size=self.kernel.slate_size)
        rows = self._validated_contexts(contexts)
        if len(rows) != len(orders):
            raise InvalidArgumentError("contexts", f"expected one for each of {len(orders)} rankings, got {len(rows)}")
        return rows, orders

    def _noise_of(self, squares: FloatArray | float) -> FloatArray:
        """Return the noise of rows that are appended, from the squares of their contexts."""
        return np.maximum(self.noise_variance + NOISE_FLOOR * squares, LEAST_NOISE * squares)

    def _with_pending(self, context: FloatArray, ranking: NDArray[np.int32]) -> Posterior:
        n, rows, pending = self.n_rows, self._rows, self._pending
        covariance = self._cross(context, ranking[None])[:, 0]
        whitener = rows.whitener[:n, :n]
        ell, beside = covariance[:n] @ whitener, covariance @ pending.whitened
        square = float(context @ context)
        noise = float(self._noise_of(square))
        square = float(self._prior_variances(context, square, ranking[None])[0])
        # At least about the noise is left, since rounding is far below it.
        diagonal = math.sqrt(square + noise - float(ell @ ell) - float(beside @ beside))
        row = np.ones(len(covariance) + 1)
        row[:-1] = -(pending.whitened @ beside)
        row[:n] -= whitener @ ell
        row /= diagonal
        content = _content_of(self.kernel, ranking[None])
        return replace(self, _pending=pending.with_row(row, beside, diagonal, context, ranking, content=content))

    def _with_row(
        self,
        row: FloatArray,
        context: FloatArray,
        ranking: NDArray[np.int32],
        content: FloatArray,
        targets: FloatArray,
    ) -> Posterior:
        n, rows, tail = self.n_rows, self._rows, self._tail
        if n == rows.capacity or not tail.claim(n):
            rows = rows.with_capacity(capacity_for(n) if n == rows.capacity else rows.capacity, used=n)
            tail = Tail(n + 1)
        rows.whitener[: n + 1, n] = row
        rows.contexts[n], rows.rankings[n], rows.targets[:, n] = context, ranking, targets
        rows.content[n] = content
        return replace(self, n_rows=n + 1, _rows=rows, _tail=tail)

    def _fitted_to(self, observed_rows: ObservedRows) -> Posterior:
        """Return the posterior of `observed_rows`, from one with no rows."""
        n, known = observed_rows.n_rows, observed_rows.known_parts(self.kernel, self.noise_variance)
        if n == 0:
            return self if known is None else replace(self, _fitted=observed_rows, _known=known)
        rows = Rows.empty(
            capacity_for(n),
            **_sizes_of(self.kernel, self.context_dim),
            n_targets=len(observed_rows.targets),
        )
        rows.content[:n] = _content_of(self.kernel, observed_rows.rankings)
        rows.contexts[:n], rows.rankings[:n], rows.targets[:, :n] = (
            observed_rows.contexts,
            observed_rows.rankings,
            observed_rows.centre_on(known).targets,
        )
        covariance = noisy_covariance(self.kernel, observed_rows, known, noise_variance=self.noise_variance)
        rows.whitener[:n, :n] = inverse_lower(np.asarray(np.linalg.cholesky(covariance))).T
        z = rows.targets[:, :n] @ rows.whitener[:n, :n]
        return replace(
            self,
            n_rows=n,
            _fitted=observed_rows,
            _rows=rows,
            _tail=Tail(n),
            _pending=PendingRows.none(n, **_sizes_of(self.kernel, self.context_dim)),
            _weights=z @ rows.whitener[:n, :n].T,
            _sums=self._sums_of(observed_rows, z),
            _known=known,
        )

    def _sums_of(self, observed_rows: ObservedRows, z: FloatArray) -> _Sums:
        """Return the sums over rows, and over what was left when observations were folded into them: noise alone."""
        return _Sums(
            z @ z.T + observed_rows.left_products / self.noise_variance,
            observed_rows.n_observations,
            observed_rows.context_square * observed_rows.n_observations,
        )


def _square(products: FloatArray, offset: float) -> float:
    """Return the square of rewards that are centred on an offset, from the products of the targets."""
    return float(products[0, 0] - 2.0 * offset * products[0, 1] + offset * offset * products[1, 1])


def _sizes_of(kernel: KendallKernel, context_dim: int) -> dict[str, int]:
    n_features = 0 if kernel.counted_content is None else kernel.counted_content.features.shape[1]
    return {"context_dim": context_dim, "slate_size": kernel.slate_size, "n_features": n_features}


def _content_of(kernel: KendallKernel, rankings: Rankings) -> FloatArray:
    """Return phi of rankings (A, k), shape (A, q); q = 0 where content does not count."""
    content = kernel.counted_content
    return np.zeros((len(rankings), 0)) if content is None else content.of_slates(rankings)


def _move_row(count: int, source: int, target: int) -> NDArray[np.intp]:
    """Return 0 .. count - 1 with `source` taken out and put in again at index `target`, which is not after it."""
    order = np.arange(count)
    order[target + 1 : source + 1] = order[target:source]
    order[target] = source
    return order


def _rotate_rows(
    whitened: FloatArray, order: NDArray[np.intp], rotations: FloatArray, *, gone: int
) -> tuple[FloatArray, FloatArray]:
    """Return the rows `order` of M', rotated: all columns but `gone`, and that one."""
    others, column = np.empty((len(order), whitened.shape[1] - 1)), np.empty(len(order))
    kendall.rotate_rows(whitened, order, rotations, gone, others, column)
    return others, column


def capacity_for(n_rows: int) -> int:
    """Return the capacity for so many rows: those and the ones that come before the next refit is due."""
    return n_rows + max(8, n_rows // 4) + 1


def _real(values: ArrayLike, *, field: str) -> FloatArray:
    try:
        return lay_out(as_array(values, field=field))
    except (TypeError, ValueError):
        raise InvalidArgumentError(field, "expected numbers") from None
