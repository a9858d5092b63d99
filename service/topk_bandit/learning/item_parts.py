"""Information from rewards on single items, beside the rows: for catalogues that a few hundred rows do not span.

With g = u + v / n (`kendall`), the kernel is that of independent parts of the items, of what a context does to all
slates, and of a rest that knows nothing of these, once the sum over all items is not taken off
(`KendallKernel.uncentre`)::

    f(c, pi) = sum_p g_p c.theta_{pi_p} + c.theta_all + rest
    theta_i ~ N(0, kappa_0 I), kappa_0 = n scale        theta_all ~ N(0, kappa I)

A row that leaves the posterior tells of theta_i as an observation of g_p c.theta_i does, whose noise is that of the row
and all that is uncertain about the others in it. The information of all such rows is a Gaussian factor, a precision
P_i (C, C) and a shift h_i, so that before the rows that are kept

    theta_i ~ N(S_i h_i, S_i)        S_i = kappa_0 (I + kappa_0 P_i)^-1

which is a prior mean, and a kernel that is smaller by sum g_p g'_q c' (kappa_0 I - S_i) c' over the items that two
slates have in common. That items were observed together is what is given up: O(C^2) an item instead of the square of
all (assumed density filtering: Maybeck, 1982; Minka, 2001).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from topk_bandit.learning._layout import lay_out
from topk_bandit.learning.compiled import item_parts as compiled

if TYPE_CHECKING:
    from topk_bandit.learning.kendall import KendallKernel
    from topk_bandit.learning.prior_mean import PriorMean
    from topk_bandit.learning.rankings import Rankings

__all__ = ["ItemParts", "KernelEvidence", "KnownAtContext", "KnownParts", "LeavingRows", "Spectrum"]

FloatArray = NDArray[np.float64]


_LEAST_SQUARE_OF_H = 0.05
"""h has unit variance: where parts leave less than this of it, slopes are taken for small."""

_EQUAL_SQUARES = 1e-12
"""So much of their squares is left by rounding of rewards that were all equal."""


class LeavingRows(NamedTuple):
    """Rows that leave the posterior, oldest first, shapes (A, C), (A, k), (T, A) and (A,).

    `targets` are as of `ObservedRows`; `noise` is the variance of the noise in units of sigma^2.
    """

    contexts: FloatArray
    rankings: Rankings
    targets: FloatArray
    noise: FloatArray


class KnownAtContext(NamedTuple):
    """`KnownParts.of_entries` of rows (N, k) and `KnownParts.variances_taken` of items (E,) at a context."""

    entries: FloatArray
    taken: FloatArray

    @classmethod
    def nothing(cls, taken: FloatArray) -> KnownAtContext:
        """Return that of no rows, with variances that are another ones nevertheless."""
        return cls(np.zeros((0, 0)), taken)


class Spectrum(NamedTuple):
    """Eigenvalues of precisions, (1 + m, C), and shifts in the coordinates of their vectors, (T, 1 + m, C)."""

    values: FloatArray
    shifts: FloatArray


class KernelEvidence(NamedTuple):
    """What a kernel is chosen by: what is known of items under it, and what that comes from.

    Attributes
    ----------
    known
        As of `ItemParts.infer_parts`.
    spectrum
        Of the precisions of the kernel's own parts.
    units
        Their prior variances, shape (1 + m,).
    products
        As of `ItemParts`, for each row.
    """

    known: KnownParts
    spectrum: Spectrum
    units: FloatArray
    products: FloatArray

    def log_evidence(self, ratios: FloatArray) -> FloatArray:
        """Return the log evidence at some ratios of noise to amplitude, up to a constant: shape (G,).

        The density of a Gaussian factor under a prior of variance kappa_0 / r in units of the noise: without it nothing
        but the rows that are kept would tell how much items differ. Rewards that were all equal tell nothing.

        Parameters
        ----------
        ratios
            r, shape (G,).
        """
        if self.products[1, 1] <= 0.0:
            return np.zeros(len(ratios))
        centre = self._centre()
        variance = float(centre @ self.products @ centre)
        if variance <= _EQUAL_SQUARES * self.products[0, 0]:
            return np.zeros(len(ratios))
        units, (values, shifts) = self.units[:, None], self.spectrum
        evidence, squares = np.empty(len(ratios)), np.tensordot(centre, shifts, 1) ** 2 / variance
        for g, ratio in enumerate(ratios):
            explained = (squares * units / (units * values + ratio)).sum()
            evidence[g] = 0.5 * (explained - np.log1p(units * values / ratio).sum())
        return evidence

    def _centre(self) -> FloatArray:
        """Return what each target counts at the offset and the slope that these rows tell of."""
        (_, y1, *_), (_, one, *_), *of_h = self.products
        if not of_h:
            return np.array([1.0, -y1 / one])
        yh, h1, hh = of_h[0]
        slope = (yh - y1 * h1 / one) / (hh - h1 * h1 / one + _LEAST_SQUARE_OF_H)
        return np.array([1.0, -(y1 - slope * h1) / one, -slope])


@dataclass(frozen=True, slots=True, eq=False)
class ItemParts:
    """The information from rows that left on m items, and on the effect of contexts on all slates.

    Attributes
    ----------
    items
        Item indices, ascending, shape (m,).
    precisions
        sigma^2 P of theta_all and of |g| theta_i, shape (1 + m, C, C): in units of observations, so that they hold at
        another noise, and under a kernel whose g is of another length.
    shifts
        sigma^2 h of these, of rewards, of ones and, if there is a prior mean, of its h, shape (T, 1 + m, C): offset and
        slope go on being learned.
    products
        Products of the targets' residuals after all parts, rows in units of their noise, shape (T, T). Offsets depend
        on them, too. Noise and the kernel's amplitude are estimated from rows that are kept.
    observations
        How many rows there were.
    """

    items: NDArray[np.int32]
    precisions: FloatArray
    shifts: FloatArray
    products: FloatArray
    observations: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "items", lay_out(self.items, np.int32))
        for name in ("precisions", "shifts", "products"):
            object.__setattr__(self, name, lay_out(getattr(self, name)))
        object.__setattr__(self, "observations", float(self.observations))

    @classmethod
    def none(cls, context_dim: int, n_targets: int) -> ItemParts:
        """Return those of no item."""
        nothing = np.zeros((1, context_dim, context_dim)), np.zeros((n_targets, 1, context_dim))
        return cls(np.zeros(0, dtype=np.int32), *nothing, np.zeros((n_targets, n_targets)))

    @property
    def context_dim(self) -> int:
        """C."""
        return int(self.shifts.shape[2])

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return self.items.nbytes + self.precisions.nbytes + self.shifts.nbytes

    def infer_parts(self, kernel: KendallKernel, noise_variance: float) -> KnownParts:
        """Return what is known under an uncentred kernel and sigma^2, at an amplitude of one."""
        eye, units = np.eye(self.context_dim), _units(kernel, len(self.precisions))[:, None, None]
        precisions, shifts = _weigh(self.precisions, self.shifts, float(np.linalg.norm(kernel.part_weight)))
        left = units * np.linalg.inv(eye + units / noise_variance * precisions)
        left = 0.5 * (left + left.transpose(0, 2, 1))
        means = (left @ (shifts / noise_variance)[:, :, :, None])[:, :, :, 0]
        index_of = np.full(kernel.n_items + 1, -1, dtype=np.int32)
        index_of[self.items] = np.arange(1, len(self.items) + 1, dtype=np.int32)
        index_of[-1] = 0
        taken = np.concatenate([units * eye - left, np.zeros((1, *left.shape[1:]))])
        means = np.concatenate([means, np.zeros((len(means), 1, self.context_dim))], axis=1)
        return KnownParts(index_of, taken, means, np.append(kernel.part_weight, 1.0))

    @property
    def spectrum(self) -> Spectrum:
        """That of the precisions: it takes the cube of C for each item, and is the same for all kernels."""
        values, vectors = np.linalg.eigh(self.precisions)
        shifts = (vectors.transpose(0, 2, 1) @ self.shifts[:, :, :, None])[:, :, :, 0]
        return Spectrum(np.maximum(values, 0.0), shifts)

    def gather_evidence(self, kernel: KendallKernel, noise_variance: float, spectrum: Spectrum) -> KernelEvidence:
        """Return what `infer_parts` does, and what it comes from."""
        own = Spectrum(*_weigh(spectrum.values, spectrum.shifts, float(np.linalg.norm(kernel.part_weight))))
        products = self.products / max(self.observations, 1.0)
        return KernelEvidence(
            self.infer_parts(kernel, noise_variance), own, _units(kernel, len(self.precisions)), products
        )

    def absorb(self, kernel: KendallKernel, rows: LeavingRows, *, noise_variance: float, most_items: int) -> ItemParts:
        """Return these and what some rows tell, one after the other.

        Parameters
        ----------
        kernel
            Uncentred.
        rows
            Each of observations of one ranking.
        noise_variance
            sigma^2.
        most_items
            Of more items nothing is kept: they stay as unknown as at first.
        """
        wider = self._with_items(np.unique(rows.rankings), most_items)
        known = wider.infer_parts(kernel, noise_variance)
        weight, unit = kernel.part_weight, kernel.item_variance
        norm = float(np.linalg.norm(weight))
        precisions, shifts = _weigh(wider.precisions, wider.shifts, norm)
        s_of_items = _units(kernel, len(wider.precisions))[:, None, None] * np.eye(self.context_dim) - known.taken[:-1]
        beside = max(1.0 - unit * float(weight @ weight), 0.0)
        left = compiled.absorb(
            *(precisions, shifts, s_of_items, np.ascontiguousarray(known.means[:, :-1])),
            *(known.index_of[known.with_all(rows.rankings)], rows.contexts, rows.targets),
            *(noise_variance * rows.noise, noise_variance, known.weights, beside, unit),
        )
        precisions, shifts = _weigh(precisions, shifts, 1.0 / norm)
        count = self.observations + len(rows.rankings)
        return ItemParts(wider.items, precisions, shifts, self.products + left, count)

    def amend(
        self, kernel: KendallKernel, context: FloatArray, ranking: NDArray[np.int32], *, change: float
    ) -> ItemParts:
        """Return these with another reward of a row that left.

        The parts do not hold how much that row said of each item. So it counts as much as all that left do in the mean:
        their precisions, as a share of what they would be if each row's noise were that of its reward alone. What is
        the same for all items counts less, as least squares has it: a row shows several of them. The products, which
        say how large the noise is, stay.

        Parameters
        ----------
        kernel
            Uncentred.
        context, ranking
            Of the row, shapes (C,) and (k,).
        change
            By how much the reward is larger.
        """
        most = self.observations * float(context @ context)
        if not len(self.items) or most <= 0.0:
            return self
        share = min(float(np.trace(self.precisions[1:].sum(axis=0))) / most, 1.0)
        weights, counts = kernel.part_weight / np.linalg.norm(kernel.part_weight), np.zeros(len(self.items))
        place = np.searchsorted(self.items, ranking)
        is_known = np.take(self.items, place, mode="clip") == ranking
        counts[place[is_known]] = weights[is_known]
        common = float(weights.sum())  # its square is how much more a row says of what all items have in common
        counts -= (common - 1.0 / common) / len(self.items)
        shifts = self.shifts.copy()
        shifts[0, 1:] += share * change * counts[:, None] * context
        return replace(self, shifts=shifts)

    def _with_items(self, items: NDArray[np.int32], most_items: int) -> ItemParts:
        """Return these with slots for more items, as far as the capacity allows."""
        new = np.setdiff1d(items, self.items)[: max(most_items - len(self.items), 0)]
        every = np.concatenate([self.items, new])
        order, more = np.argsort(every, kind="stable"), (0, len(new))
        precisions, shifts = (
            np.pad(self.precisions, [more, (0, 0), (0, 0)]),
            np.pad(self.shifts, [(0, 0), more, (0, 0)]),
        )
        indices = np.append(0, 1 + order)
        return replace(self, items=every[order], precisions=precisions[indices], shifts=shifts[:, indices])

    def without(self, items: NDArray[np.int32]) -> ItemParts:
        """Return those of other items."""
        stay = ~np.isin(self.items, items)
        if stay.all():
            return self
        kept = np.append(True, stay)
        return replace(self, items=self.items[stay], precisions=self.precisions[kept], shifts=self.shifts[:, kept])

    def fade(self, weight: float) -> ItemParts:
        """Return these counting for less."""
        faded = weight * self.precisions, weight * self.shifts
        return ItemParts(self.items, *faded, weight * self.products, weight * self.observations)

    def with_prior_mean(self, prior_mean: PriorMean | None, ones: FloatArray) -> ItemParts:
        """Return these with the information that the same rows had given on the h of a prior mean, or of none.

        Each item's comes from the values of h for it. `ones` is what contexts are multiplied with to make one, shape
        (C,).
        """
        if prior_mean is None:
            return replace(self, shifts=self.shifts[:2], products=self.products[:2, :2])
        rows = prior_mean.row_of[self.items]
        of_items = prior_mean.slopes[rows] + np.multiply.outer(prior_mean.constants[rows], ones)
        of_items = float(np.linalg.norm(prior_mean.position_weights)) * of_items
        of_h = np.zeros((1, *self.shifts.shape[1:]))
        of_h[0, 1:] = (self.precisions[1:] @ of_items[:, :, None])[:, :, 0]
        products = np.zeros((3, 3))
        products[:2, :2] = self.products[:2, :2]
        return replace(self, shifts=np.concatenate([self.shifts[:2], of_h]), products=products)

    def with_contexts(self, images: FloatArray) -> ItemParts:
        """Return the same of other contexts, whose numbers are sums of the old ones'.

        Parameters
        ----------
        images
            What a context becomes that is one in one number and zero in the others, shape (C, C').
        """
        precisions = images.T @ self.precisions @ images
        return replace(self, precisions=precisions, shifts=self.shifts @ images)


@dataclass(frozen=True, slots=True, eq=False)
class KnownParts:
    """What is known of items under one kernel and noise, at an amplitude of one.

    Attributes
    ----------
    index_of
        Each item's index among the m, from 1 on, -1 for the others, and 0 for theta_all; shape (n + 1,).
    taken
        kappa I - S of theta_all, kappa_0 I - S_i of the items, and zeros for all others, shape (m + 2, C, C).
    means
        For rewards, ones and h, likewise, shape (T, m + 2, C).
    weights
        g by position, and 1, shape (k + 1,).
    """

    index_of: NDArray[np.int32]
    taken: FloatArray
    means: FloatArray
    weights: FloatArray

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return self.index_of.nbytes + self.taken.nbytes + self.means.nbytes

    def with_all(self, rankings: Rankings) -> Rankings:
        """Return rankings (A, k) that also show what stands for theta_all, last; shape (A, k + 1)."""
        last = np.full((len(rankings), 1), len(self.index_of) - 1, dtype=np.int32)
        return np.concatenate([rankings, last], axis=1)

    def at(
        self, contexts: FloatArray, rankings: Rankings, context: FloatArray, items: NDArray[np.integer]
    ) -> KnownAtContext:
        """Return what of this a contraction of rows (N,) to one context and some items (E,) needs."""
        return KnownAtContext(self.of_entries(contexts, rankings, context), self.variances_taken(context, items))

    @property
    def numbers(self) -> tuple[NDArray[np.int32] | FloatArray, ...]:
        """All numbers that predictions depend on, in a stated order: for digests."""
        return self.index_of, self.taken, self.means

    def of_rows(self, contexts: FloatArray, rankings: Rankings) -> FloatArray:
        """Return what is expected of the targets of rows (N,), shape (T, N)."""
        return np.asarray(
            compiled.expect_targets(self.with_all(rankings), contexts, self.means, self.index_of, self.weights)
        )

    def of_items(self, context: FloatArray, items: NDArray[np.integer], centre: FloatArray) -> FloatArray:
        """Return what is expected of the parts of some items in a context, in the shape of `items`.

        `centre` is what each target counts: 1, -b and, if there is a prior mean, -s.
        """
        means = np.tensordot(centre, self.means @ context, 1)
        return np.asarray(means[self.index_of[items]], dtype=np.float64)

    def of_slates(
        self, context: FloatArray, rankings: Rankings, centre: FloatArray, *, with_constant: bool
    ) -> FloatArray:
        """Return what is expected of rankings (A, k) in one context, with theta_all or not, shape (A,)."""
        shown = self.with_all(rankings) if with_constant else rankings
        return np.asarray(self.of_items(context, shown, centre) @ self.weights[: shown.shape[1]], dtype=np.float64)

    def less_rows(self, rankings: Rankings, weighted: FloatArray, centre: FloatArray) -> FloatArray:
        """Return what is expected of the parts before the rows, less what these tell anew of them, (m + 2, C).

        Parameters
        ----------
        rankings, weighted
            For the rows, and their contexts times their weights in the mean: shapes (N, k) and (N, C).
        centre
            As in `of_items`.
        """
        explained = np.zeros(self.means.shape[1:])
        np.add.at(explained, self.index_of[rankings], self.weights[:-1, None] * weighted[:, None, :])
        return np.asarray(np.tensordot(centre, self.means, 1) - np.einsum("mcd,md->mc", self.taken, explained))

    def of_all(self, context: FloatArray, centre: FloatArray, of_rows: FloatArray) -> float:
        """Return what all slates have in common in a context before the rows, less what these tell anew of it.

        `of_rows` is the sum of the rows' contexts by their weights in the mean, shape (C,).
        """
        return float(centre @ (self.means[:, 0] @ context)) - float(of_rows @ (self.taken[0] @ context))

    def variances_taken(self, context: FloatArray, items: NDArray[np.integer]) -> FloatArray:
        """Return by how much the variance of the parts of some items in a context is smaller, in the shape of `items`.

        It is zero for items of which nothing is known.
        """
        taken = self._images(context) @ context
        return np.asarray(np.maximum(taken[self.index_of[items]], 0.0), dtype=np.float64)

    def variances_of_slates(self, context: FloatArray, rankings: Rankings, *, with_constant: bool) -> FloatArray:
        """Return by how much the variance of rankings (A, k) in a context is smaller, with theta_all or not, (A,)."""
        shown = self.with_all(rankings) if with_constant else rankings
        return self.variances_taken(context, shown) @ self.weights[: shown.shape[1]] ** 2

    def of_entries(self, contexts: FloatArray, rankings: Rankings, context: FloatArray) -> FloatArray:
        """Return g_p c' (kappa_0 I - S_i) c_0 of each item of each row, c_0 being a context; shape (N, k)."""
        return np.asarray(compiled.entries(rankings, contexts, self._images(context), self.index_of, self.weights))

    def cross(
        self, contexts: FloatArray, rankings: Rankings, context: FloatArray, orders: Rankings, *, with_constant: bool
    ) -> FloatArray:
        """Return by how much the covariance of rows (N,) with rankings (A, k) in one context is smaller, (N, A)."""
        if with_constant:
            rankings, orders = self.with_all(rankings), self.with_all(orders)
        entries = self.of_entries(contexts, rankings, context)
        return np.asarray(compiled.add_up_shared(rankings, entries, orders, self.weights, len(self.index_of)))

    def gram(self, contexts: FloatArray, rankings: Rankings) -> FloatArray:
        """Return by how much the covariance of rows is smaller, (N, N)."""
        shown = self.with_all(rankings)
        return np.asarray(compiled.gram_of_parts(shown, contexts, self.taken, self.index_of, self.weights))

    def _images(self, context: FloatArray) -> FloatArray:
        """Return `taken` times a context, shape (m + 2, C)."""
        return np.asarray((self.taken.reshape(-1, len(context)) @ context).reshape(-1, len(context)), dtype=np.float64)


def _weigh(precisions: FloatArray, shifts: FloatArray, norm: float) -> tuple[FloatArray, FloatArray]:
    """Return precisions and shifts of items' parts that count by so much more, and those of theta_all as they are."""
    precisions, shifts = precisions.copy(), shifts.copy()
    precisions[1:] *= norm * norm
    shifts[:, 1:] *= norm
    return precisions, shifts


def _units(kernel: KendallKernel, count: int) -> FloatArray:
    """Return the prior variances of theta_all and of items' parts under a kernel, shape (count,)."""
    units = np.full(count, kernel.item_variance)
    units[0] = kernel.constant
    return units
