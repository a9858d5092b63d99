"""The exact Gaussian-process posterior of a slate's reward, without a kernel matrix and without a Cholesky factor.

With x the sparse vector of a ranking (`kendall`), B the fixed matrix with k_r = x' B x, X the N sparse rows so far,
C their contexts and L the Cholesky factor of K + sigma^2 I, it keeps for each context coordinate a

    R_a = L^-1 diag(C[:, a]) X B        (N x F)         z = L^-1 y        (N,)         m_a = R_a' z        (F,)

A slate that is shown and not yet rewarded is a *pending* row: the rows of rewarded slates come first, the pending ones
last, and the z of a pending row is zero, which is its reward hallucinated at the posterior mean (GP-BUCB: Desautels,
Krause and Burdick, 2014). It shrinks the variance and leaves every mean as it is. When its reward arrives the row is
rotated to the front of the pending ones and so becomes the newest of the rewarded; when it is discarded it is rotated
out. Neither depends on N.

Rewards may be centred on an offset b and the kernel scaled by an amplitude s^2 without touching a row: m = m_y - b m_1,
with m_1 the weights for rewards that are all one, and every variance is multiplied by s^2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from topk_bandit.errors import InvalidArgumentError
from topk_bandit.learning import _compiled
from topk_bandit.learning._features import FeatureIndex, SparseVector, count_columns
from topk_bandit.learning._rows import Observations, PendingRows, PendingSlates, Rows, Tail
from topk_bandit.learning.landscape import Landscape, Moments
from topk_bandit.learning.rankings import Rankings, as_array, validated_items, validated_rankings

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, DTypeLike

    from topk_bandit.learning.kendall import KendallKernel

__all__ = ["Moments", "Observations", "PendingSlates", "Posterior"]

FloatArray = NDArray[np.float64]
RealArray = NDArray[np.floating]

_COLUMNS_PER_SOLVE = 64

_NOISE_FLOOR: dict[type[np.floating], float] = {np.float32: 1e-5, np.float64: 1e-13}
"""Smallest noise of a row, relative to the prior variance in its context: with less, repeated slates end in NaN."""


class _Sums(NamedTuple):
    """z'z for the rewards, for all ones, and across: what the profile likelihood needs."""

    yy: float = 0.0
    y1: float = 0.0
    ones: float = 0.0


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
    offset
        b: what rewards are centred on, the mean where nothing is known.
    amplitude
        s^2: the variance of the expected reward before any observation, for a context of norm 1.
    n_rows
        N: rewarded rows.
    """

    kernel: KendallKernel
    context_dim: int
    noise_variance: float
    offset: float
    amplitude: float
    n_rows: int
    _n_columns: int
    _index: FeatureIndex
    _tail: Tail
    _rows: Rows
    _pending: PendingRows
    _weights: FloatArray
    _sums: _Sums

    @classmethod
    def prior(
        cls, kernel: KendallKernel, *, context_dim: int, noise_variance: float, dtype: DTypeLike = np.float64
    ) -> Posterior:
        """Return the posterior of no observations: mean 0, variance c.c.

        Parameters
        ----------
        kernel
            Kernel of the rankings.
        context_dim
            C, at least 1.
        noise_variance
            sigma^2 > 0, in units of the kernel. A row's noise is at least 1e-5 (float32) or 1e-13 (float64) of c.c.
        dtype
            Of the stored rows: float64, or float32 for half the memory and time at about six digits.
        """
        if context_dim < 1:
            raise InvalidArgumentError("context_dim", f"expected at least 1, got {context_dim}")
        if not (np.isfinite(noise_variance) and noise_variance > 0):
            raise InvalidArgumentError("noise_variance", f"expected a positive number, got {noise_variance}")
        return cls(
            kernel=kernel,
            context_dim=context_dim,
            noise_variance=float(noise_variance),
            offset=0.0,
            amplitude=1.0,
            n_rows=0,
            _n_columns=1,
            _index=FeatureIndex(kernel),
            _tail=Tail(0),
            _rows=Rows.empty(1, 0, context_dim=context_dim, slate_size=kernel.slate_size, dtype=dtype),
            _pending=PendingRows(
                factor=np.zeros((0, 0)),
                features=np.zeros((context_dim, 1, 0), dtype=dtype),
                contexts=np.zeros((0, context_dim)),
                rankings=np.zeros((0, kernel.slate_size), dtype=np.int32),
            ),
            _weights=np.zeros((2, context_dim, 1)),
            _sums=_Sums(),
        )

    @classmethod
    def fit(
        cls,
        kernel: KendallKernel,
        data: Observations,
        pending: PendingSlates,
        *,
        noise_variance: float,
        dtype: DTypeLike = np.float64,
    ) -> Posterior:
        """Return the posterior of all of `data` and then of the pending slates, at once, by matrix products.

        It agrees with `prior`, `observe` and `show` to rounding, and is the same to the bit for the same rows.

        Parameters
        ----------
        kernel
            Kernel of the rankings.
        data
            Rewarded rows, valid as the ones of another posterior are; C is read off their contexts.
        pending
            Pending rows, likewise.
        noise_variance, dtype
            As for `prior`.
        """
        prior = cls.prior(kernel, context_dim=data.contexts.shape[1], noise_variance=noise_variance, dtype=dtype)
        return prior._fitted(data).show(*pending)

    @property
    def n_pending(self) -> int:
        """P: rows without a reward."""
        return self._pending.size

    @property
    def observations(self) -> Observations:
        """The rewarded rows, oldest first; views, not to be written to."""
        n, rows = self.n_rows, self._rows
        return Observations(rows.contexts[:n], rows.rankings[:n], rows.rewards[:n])

    @property
    def pending(self) -> PendingSlates:
        """The pending rows, oldest first; views, not to be written to."""
        return PendingSlates(self._pending.contexts, self._pending.rankings)

    @property
    def memory_bytes(self) -> int:
        """Bytes of the arrays that grow with rows and features."""
        arrays = (self._rows.features, self._rows.contexts, self._rows.rankings, self._pending.features, self._weights)
        return sum(array.nbytes for array in arrays)

    def bytes_of(self, rankings: Rankings) -> int:
        """Return the bytes that rows with these rankings (N, k) need for their whitened features."""
        columns = count_columns(rankings, n_items=self.kernel.n_items)
        return len(rankings) * self.context_dim * columns * self._rows.features.dtype.itemsize

    @property
    def best_offset(self) -> float:
        """The generalised least squares mean 1'A^-1 y / 1'A^-1 1 of the rewards, A = K + sigma^2 I; 0 without rows."""
        return self._sums.y1 / self._sums.ones if self.n_rows else 0.0

    def whitened_square(self, offset: float) -> float:
        """Return z'z of the rewards centred on `offset`, at an amplitude of one."""
        return self._sums.yy - 2.0 * offset * self._sums.y1 + offset * offset * self._sums.ones

    def observe(self, contexts: ArrayLike, rankings: ArrayLike, rewards: ArrayLike) -> Posterior:
        """Learn from rewarded slates, in order: O(C F N) each.

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
        rows, orders = self._validated(contexts, rankings)
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
        """Count slates that are shown and not yet rewarded: they become the last pending rows. O(C F N) each.

        Parameters
        ----------
        contexts, rankings
            As for `observe`.
        """
        posterior = self
        for context, ranking in zip(*self._validated(contexts, rankings), strict=True):
            posterior = posterior._with_pending(context, ranking)
        return posterior

    def reward(self, chosen: int, value: float) -> Posterior:
        """Learn the reward of the pending row at index `chosen`: O(C F P), whatever N is.

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
        factor, features = self._pending.factor.copy(), self._pending.features.copy()
        _compiled.rotate_to_front(factor, features, chosen)
        row = features[:, :, 0]
        context, ranking = self._pending.contexts[chosen], self._pending.rankings[chosen]
        # ell.z is the mean that the rows before this one predict for it, so z needs no array of its own.
        x = self._index.sparse(ranking)
        predicted = np.einsum("a,taj,j->t", context, self._weights[:, :, x.columns], x.values)
        z_y, z_1 = (np.array([value, 1.0]) - predicted) / factor[0, 0]
        return replace(
            self._with_row(row, context, ranking, value),
            _pending=self._pending.without(chosen, slice(1, None), factor, features),
            _weights=self._weights + np.array([z_y, z_1])[:, None, None] * row,
            _sums=_Sums(self._sums.yy + z_y * z_y, self._sums.y1 + z_y * z_1, self._sums.ones + z_1 * z_1),
        )

    def discard(self, chosen: int) -> Posterior:
        """Forget the pending row at index `chosen`, as if it had never been shown: O(C F P); errors as for `reward`."""
        self._check_pending(chosen)
        factor, features = self._pending.factor.copy(), self._pending.features.copy()
        _compiled.rotate_out(factor, features, chosen)
        kept = slice(None, self._pending.size - 1)
        return replace(self, _pending=self._pending.without(chosen, kept, factor, features))

    def rescaled(self, *, offset: float, amplitude: float) -> Posterior:
        """Return this posterior with its rewards centred on `offset` and its kernel scaled by `amplitude`."""
        if not (math.isfinite(offset) and math.isfinite(amplitude) and amplitude > 0.0):
            raise InvalidArgumentError("amplitude", f"expected a positive number and a finite offset, got {amplitude}")
        return replace(self, offset=offset, amplitude=amplitude)

    def refit(self, *, noise_variance: float, newest: int) -> Posterior:
        """Return `fit` of the `newest` rewarded rows and of the pending ones under another noise, scaled as before.

        The oldest rows are forgotten first. Forgetting only widens the variance.
        """
        if newest < 0:
            raise InvalidArgumentError("newest", f"expected at least 0, got {newest}")
        fitted = Posterior.fit(
            self.kernel,
            self.observations.newest(newest),
            self.pending,
            noise_variance=noise_variance,
            dtype=self._rows.features.dtype,
        )
        return fitted.rescaled(offset=self.offset, amplitude=self.amplitude)

    def predict(self, context: ArrayLike, rankings: ArrayLike) -> Moments:
        """Return the moments of the expected reward of `rankings` in one context.

        Parameters
        ----------
        context
            Shape (C,).
        rankings
            Item indices, shape (A, k).

        Returns
        -------
        Moments, both of shape (A,).
        """
        orders = validated_rankings(rankings, n_items=self.kernel.n_items, slate_size=self.kernel.slate_size)
        items = np.unique(orders)
        return self.at(context, items).moments(np.searchsorted(items, orders).astype(np.int32))

    def at(self, context: ArrayLike, items: ArrayLike) -> Landscape:
        """Contract the posterior to one context and to the rankings of `items`: O(C F N), F counted over these items.

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
        slots, columns = self._columns_among(chosen)
        n, pending = self.n_rows, self._pending
        features = np.empty((len(columns), n + pending.size), dtype=self._rows.features.dtype)
        _compiled.contract(self._rows.features, n, point, columns, features, 0)
        _compiled.contract(pending.features, pending.size, point, columns, features, n)
        weights = np.where(columns >= 0, np.tensordot(point, self._centred_weights()[:, columns], 1), 0.0)
        return Landscape(
            items=chosen,
            slate_size=self.kernel.slate_size,
            _kernel=self.kernel,
            _features=features,
            _weights=weights,
            _slots=slots,
            _offset=self.offset,
            _amplitude=self.amplitude,
            _prior=float(point @ point),
        )

    def _columns_among(self, items: NDArray[np.int32]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Return the pair slots (E, E) and the columns to contract: u, v, s, then the pairs in use among `items`."""
        u = self._index.item_columns[items]
        u = np.where(u < self._n_columns, u, -1)
        v = np.where(u >= 0, u + 1, -1)
        place = np.full(self.kernel.n_items, -1, dtype=np.int32)
        place[items] = np.arange(len(items), dtype=np.int32)
        pairs = self._index.pairs_below(self._n_columns)
        pairs = pairs[(place[pairs[:, 0]] >= 0) & (place[pairs[:, 1]] >= 0)]
        slots = np.full((len(items), len(items)), -1, dtype=np.int32)
        first_slot = 2 * len(items) + 1
        slots[place[pairs[:, 0]], place[pairs[:, 1]]] = np.arange(first_slot, first_slot + len(pairs), dtype=np.int32)
        return slots, np.concatenate([u, v, np.zeros(1, dtype=np.int32), pairs[:, 2]]).astype(np.int32)

    def _centred_weights(self) -> FloatArray:
        centred: FloatArray = self._weights[0] - self.offset * self._weights[1]
        return centred

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

    def _validated(self, contexts: ArrayLike, rankings: ArrayLike) -> tuple[FloatArray, Rankings]:
        orders = validated_rankings(rankings, n_items=self.kernel.n_items, slate_size=self.kernel.slate_size)
        rows = self._validated_contexts(contexts)
        if len(rows) != len(orders):
            raise InvalidArgumentError("contexts", f"expected one for each of {len(orders)} rankings, got {len(rows)}")
        return rows, orders

    def _with_pending(self, context: FloatArray, ranking: NDArray[np.int32]) -> Posterior:
        x = self._index.sparse(ranking)
        wide = self._widened(self._index.n_columns)
        row, ell, diagonal = wide._whitened_row(context, x)
        old = wide._pending
        factor = np.zeros((old.size + 1, old.size + 1))
        factor[:-1, :-1] = old.factor
        factor[-1] = [*ell, diagonal]
        pending = PendingRows(
            factor=factor,
            features=np.concatenate([old.features, row[:, :, None]], axis=2),
            contexts=np.vstack([old.contexts, context]),
            rankings=np.vstack([old.rankings, ranking]),
        )
        return replace(wide, _pending=pending)

    def _whitened_row(self, context: FloatArray, x: SparseVector) -> tuple[RealArray, RealArray, float]:
        """Return the next row of R, its part of L against the pending rows, and its diagonal of L."""
        dtype = self._rows.features.dtype
        before, beside = np.empty(self.n_rows, dtype=dtype), np.empty(self._pending.size, dtype=dtype)
        _compiled.whiten(self._rows.features, self.n_rows, context, x.columns, x.values, before)
        _compiled.whiten(self._pending.features, self._pending.size, context, x.columns, x.values, beside)
        explained = float(before.astype(np.float64) @ before) + float(beside.astype(np.float64) @ beside)
        noise = float(self._noise_of(context[None])[0])
        left = float(context @ context) + noise - explained
        # In exact arithmetic at least the noise is left.
        diagonal = float(np.sqrt(max(left, 0.5 * noise)))
        row = np.zeros((self.context_dim, self._n_columns), dtype=dtype)
        row[:, x.columns] = np.outer(context, x.images)
        _compiled.residual_row(self._rows.features, self.n_rows, before, row)
        _compiled.residual_row(self._pending.features, self._pending.size, beside, row)
        return row / dtype.type(diagonal), beside, diagonal

    def _noise_of(self, contexts: FloatArray) -> FloatArray:
        """Return the noise of rows in these contexts (N, C), shape (N,): not so small that rounding could swamp it."""
        floor = _NOISE_FLOOR[self._rows.features.dtype.type]
        return np.asarray(np.maximum(self.noise_variance, floor * np.einsum("na,na->n", contexts, contexts)))

    def _widened(self, n_columns: int) -> Posterior:
        """Return the same posterior with `n_columns` columns; the new ones are zero, since no row has used them."""
        if n_columns == self._n_columns:
            return self
        extra = n_columns - self._n_columns
        pending = replace(self._pending, features=np.pad(self._pending.features, ((0, 0), (0, extra), (0, 0))))
        rows, tail = self._rows, self._tail
        if n_columns > rows.features.shape[1]:
            rows = rows.grown(
                n_columns + n_columns // 2, rows.features.shape[2], used_columns=self._n_columns, used_rows=self.n_rows
            )
            tail = Tail(self.n_rows)
        weights = np.pad(self._weights, ((0, 0), (0, 0), (0, extra)))
        return replace(self, _n_columns=n_columns, _rows=rows, _tail=tail, _pending=pending, _weights=weights)

    def _with_row(self, row: RealArray, context: FloatArray, ranking: NDArray[np.int32], reward: float) -> Posterior:
        n, rows, tail = self.n_rows, self._rows, self._tail
        if n == rows.features.shape[2] or not tail.claim(n):
            capacity = max(64, n + n // 2) if n == rows.features.shape[2] else rows.features.shape[2]
            rows = rows.grown(rows.features.shape[1], capacity, used_columns=self._n_columns, used_rows=n)
            tail = Tail(n + 1)
        rows.features[:, : self._n_columns, n] = row
        rows.contexts[n], rows.rankings[n], rows.rewards[n] = context, ranking, reward
        return replace(self, n_rows=n + 1, _rows=rows, _tail=tail)

    def _fitted(self, data: Observations) -> Posterior:
        """Return the posterior of `data`, from one with no rows: R = L^-1 G by a blocked triangular solve."""
        n, dtype = len(data.rewards), self._rows.features.dtype
        if n == 0:
            return self
        images = self._index.image_matrix(data.rankings)
        n_columns = self._index.n_columns
        rows = self._rows.grown(n_columns, n + max(64, n // 2), used_columns=0, used_rows=0)
        rows.contexts[:n], rows.rankings[:n], rows.rewards[:n] = data
        covariance = (data.contexts @ data.contexts.T) * self.kernel.gram(data.rankings, data.rankings)
        covariance[np.diag_indices(n)] += self._noise_of(data.contexts)
        lower = np.asarray(np.linalg.cholesky(covariance), dtype=np.float64)
        targets = _solved(lower, np.column_stack([data.rewards, np.ones(n)]))
        weights = np.zeros((2, self.context_dim, n_columns))
        for a in range(self.context_dim):
            whitened = _solved(lower, data.contexts[:, a, None] * images)
            rows.features[a, :, :n] = whitened.T
            weights[:, a] = targets.T @ whitened
        z_y, z_1 = targets.T
        sums = _Sums(float(z_y @ z_y), float(z_y @ z_1), float(z_1 @ z_1))
        fitted = replace(self, n_rows=n, _rows=rows, _tail=Tail(n), _weights=weights, _sums=sums)
        pending = replace(self._pending, features=np.zeros((self.context_dim, n_columns, 0), dtype=dtype))
        return replace(fitted, _n_columns=n_columns, _pending=pending)


def _solved(lower: FloatArray, right: FloatArray) -> FloatArray:
    """Return L^-1 G, a few columns at a time: one call would keep all other threads waiting."""
    blocks = range(0, right.shape[1], _COLUMNS_PER_SOLVE)
    solved = [
        solve_triangular(lower, right[:, start : start + _COLUMNS_PER_SOLVE], lower=True, check_finite=False)
        for start in blocks
    ]
    return np.concatenate(solved, axis=1)


def _real(values: ArrayLike, *, field: str) -> FloatArray:
    try:
        return np.asarray(as_array(values, field=field), dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidArgumentError(field, "expected numbers") from None
