"""What a bandit has learned from, in as few rows as hold all of it.

The posterior depends on observations y = T f + b 1 + noise only through T'T, T'y and T'1, with f the expected rewards
of some of the rows and T the weights by which all other rows are sums of these. So rows that are sums of others can be
folded into them, and nothing is lost:

- observations of one ranking, in whatever contexts, fold into at most C rows (a QR factor of their contexts);
- all observations together fold into rank(Psi) rows, Psi the rows c (x) phi(pi), once there are more of them than that.

What is left of the rewards beside f, and how many observations it comes from, still tells about noise and offset, and
is kept as sums. Folding keeps every prediction. Beyond a budget rows are projected onto the others (`project`): what
these explain of them is kept, the rest counts as noise, which widens the variance. Where items are so many that most
would be noise, what is left of them is kept item by item (`item_parts`).

With a prior mean b + s h, the h of the observations is folded as their rewards and ones are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import qr
from scipy.linalg.lapack import dpstrf

from topk_bandit.learning._layout import lay_out
from topk_bandit.learning._rows import scale_shared
from topk_bandit.learning._ties import leading
from topk_bandit.learning._triangles import inverse_lower
from topk_bandit.learning.item_parts import ItemParts, LeavingRows
from topk_bandit.learning.rankings import NO_ITEMS

if TYPE_CHECKING:
    from collections.abc import Callable

    from topk_bandit.learning.item_parts import KernelEvidence, KnownParts, Spectrum
    from topk_bandit.learning.kendall import KendallKernel
    from topk_bandit.learning.prior_mean import PriorMean
    from topk_bandit.learning.rankings import Rankings

__all__ = [
    "FEWEST_ROWS",
    "NOISE_FLOOR",
    "Observations",
    "ObservedRows",
    "RowOutcomes",
    "compact",
    "covariance_of",
    "fold_by_ranking",
    "leftover",
    "noisy_covariance",
    "outgrows",
    "project",
    "project_out",
    "rewards_differ",
    "rows_needed",
]

FloatArray = NDArray[np.float64]

NOISE_FLOOR = 1e-13
"""Least noise of a row, relative to the prior variance in its context: with less, repeated slates end in NaN."""

_SAME_CONTEXT = 1e-10
"""Contexts that differ by less than this part of the largest one are sums of the others."""

_SAME_ROW = 1e-12
"""A row of which this part of the largest prior variance is new is a sum of the others."""

_LAST = 1e-5
"""Rows that are to leave are weighed by this where a basis is chosen: they come after next to all others."""

_OUTGROWN = 2
"""Rows span too little of items' parts that have so many times as many directions as there are rows."""

FEWEST_ROWS = 256
"""So many rows are kept if the capacity allows, however few items they show: pairs of these may count, too."""

_FADED = 1e-4
"""A row of less weight than this counts for next to nothing."""

_EQUAL_REWARDS = 1e-9
_EQUAL_SQUARES = 1e-13
"""Rewards and their squares that differ by less than these parts are equal, and were rounded when they were folded."""

_NO_SQUARES = 1e-200
"""Rewards with a smaller sum of squares are as good as zeros: sums of their products would vanish."""


class Observations(NamedTuple):
    """Rewarded slates: contexts (N, C), rankings (N, k), rewards (N,)."""

    contexts: FloatArray
    rankings: Rankings
    rewards: FloatArray


class RowOutcomes(NamedTuple):
    """What became of the items of N rows, shapes (N, k).

    Attributes
    ----------
    outcomes
        NaN where nothing is known.
    own
        By how much the utility of each item is larger because of the row's own outcomes: for position weights of unit
        length.
    """

    outcomes: FloatArray
    own: FloatArray

    @classmethod
    def of(cls, outcomes: FloatArray) -> RowOutcomes:
        """Return those of which it is not known yet what they say of utilities."""
        return cls(outcomes, np.zeros_like(outcomes))

    @classmethod
    def none(cls, n_rows: int, slate_size: int) -> RowOutcomes:
        """Return those of rows of which nothing is known."""
        return cls.of(np.full((n_rows, slate_size), np.nan))

    def select(self, rows: NDArray[np.intp]) -> RowOutcomes:
        """Return those of some rows."""
        return RowOutcomes(lay_out(self.outcomes[rows]), lay_out(self.own[rows]))

    def without(self, rows: NDArray[np.intp]) -> RowOutcomes:
        """Return them with nothing known of some rows."""
        outcomes, own = self.outcomes.copy(), self.own.copy()
        outcomes[rows], own[rows] = np.nan, 0.0
        return RowOutcomes(outcomes, own)


@dataclass(frozen=True, slots=True, eq=False)
class ObservedRows:
    """N rows: reward = f(context, ranking) + b one + s h + noise, the noise with covariance sigma^2 V.

    Its arrays are its own, in one layout: a posterior is fitted to the same bits whichever way the rows came here.

    Attributes
    ----------
    contexts, rankings
        Shapes (N, C) and (N, k), oldest first.
    targets
        Rewards, ones and, if there is a prior mean, h: shape (T, N), T being 2 or 3. A row of one observation has the
        one 1.
    leftovers
        Of what was folded into each row: observations beyond one (less than none in a row that fades), and the products
        of the targets beside f, y'y, y'1, 1'1 and, if there is a prior mean, h'y, h'1 and h'h; shape (N, 4) or (N, 7).
    noise_shape
        V, shape (N, N), or None for the identity.
    parts
        The information on single items from rows that left; None where the rows have all information.
    feedback
        What became of the rows' items; None where nobody says so.
    """

    contexts: FloatArray
    rankings: Rankings
    targets: FloatArray
    leftovers: FloatArray
    noise_shape: FloatArray | None = None
    parts: ItemParts | None = None
    feedback: RowOutcomes | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "rankings", lay_out(self.rankings, np.int32))
        for name in ("contexts", "targets", "leftovers"):
            object.__setattr__(self, name, lay_out(getattr(self, name)))
        if self.noise_shape is not None:
            object.__setattr__(self, "noise_shape", lay_out(self.noise_shape))

    @classmethod
    def of(cls, observed: Observations, *, prior: FloatArray | None = None) -> ObservedRows:
        """Return observations as they are, one row each; `prior` is their h, shape (N,)."""
        n = len(observed.rewards)
        targets = [observed.rewards, np.ones(n)] if prior is None else [observed.rewards, np.ones(n), prior]
        return cls(
            contexts=observed.contexts,
            rankings=observed.rankings,
            targets=np.vstack(targets),
            leftovers=np.zeros((n, 1 + len(targets) * (len(targets) + 1) // 2)),
        )

    @property
    def n_rows(self) -> int:
        """N."""
        return len(self.rankings)

    @property
    def n_observations(self) -> float:
        """Observations that the rows stand for."""
        return self.n_rows + float(self.leftovers[:, 0].sum())

    @property
    def left_products(self) -> FloatArray:
        """Products of all targets beside f, added up, shape (T, T)."""
        size = len(self.targets)
        lower = np.zeros((size, size))
        lower[_lower_half(size)] = self.leftovers[:, 1:].sum(axis=0)
        return lower + np.tril(lower, -1).T

    @property
    def context_square(self) -> float:
        """Mean square of the observations' contexts; about that, where all were folded together."""
        squares = float((self.contexts * self.contexts).sum())
        exact = self.noise_shape is None and self.parts is None
        count = self.n_observations if exact else float(self.n_rows)
        return squares / count if count else 0.0

    @property
    def sizes(self) -> FloatArray:
        """How many times as long as a single context each row can be, shape (N,): 1 for a row of one observation."""
        single = (self.targets[1] == 1.0) & (self.leftovers[:, 0] == 0.0)
        return np.where(single, 1.0, math.sqrt(max(self.n_observations, 1.0)))

    @property
    def nbytes(self) -> int:
        """Bytes of what is kept beside the posterior's own arrays."""
        of_shape = 0 if self.noise_shape is None else self.noise_shape.nbytes
        of_feedback = 0 if self.feedback is None else 2 * self.feedback.own.nbytes
        return self.leftovers.nbytes + of_shape + of_feedback + (0 if self.parts is None else self.parts.nbytes)

    def select(self, rows: NDArray[np.intp]) -> ObservedRows:
        """Return the rows at these indices, in ascending order, as if nothing else had been seen."""
        return ObservedRows(
            self.contexts[rows],
            self.rankings[rows],
            self.targets[:, rows],
            self.leftovers[rows],
            None if self.noise_shape is None else self.noise_shape[np.ix_(rows, rows)],
            self.parts,
            None if self.feedback is None else self.feedback.select(rows),
        )

    def extend(self, later: ObservedRows) -> ObservedRows:
        """Return these rows and then others, whose noise does not depend on theirs."""
        shape = self.noise_shape
        if shape is not None or later.noise_shape is not None:
            shape = np.eye(self.n_rows + later.n_rows)
            for of_rows, block in ((self, slice(self.n_rows)), (later, slice(self.n_rows, None))):
                if of_rows.noise_shape is not None:
                    shape[block, block] = of_rows.noise_shape
        return ObservedRows(
            np.concatenate([self.contexts, later.contexts]),
            np.concatenate([self.rankings, later.rankings]),
            np.concatenate([self.targets, later.targets], axis=1),
            np.concatenate([self.leftovers, later.leftovers]),
            shape,
            self.parts,
            self._extend_feedback(later),
        )

    def _extend_feedback(self, later: ObservedRows) -> RowOutcomes | None:
        if self.feedback is None and later.feedback is None:
            return None
        both = (rows.feedback or RowOutcomes.none(*rows.rankings.shape) for rows in (self, later))
        return RowOutcomes(*(np.concatenate(arrays) for arrays in zip(*both, strict=True)))

    def with_shared(self, ratio: float) -> ObservedRows:
        """Return the same rows with `ratio` times as much shared by all contexts, of which it is the last number."""
        if ratio == 1.0:
            return self
        images = scale_shared(np.eye(self.contexts.shape[1]), ratio)
        parts = None if self.parts is None else self.parts.with_contexts(images)
        return replace(self, contexts=scale_shared(self.contexts, ratio), parts=parts)

    def with_parts(self) -> ObservedRows:
        """Return the same rows with space for information from other rows on single items."""
        return (
            self
            if self.parts is not None
            else replace(self, parts=ItemParts.none(self.contexts.shape[1], len(self.targets)))
        )

    def known_parts(self, kernel: KendallKernel, noise_variance: float) -> KnownParts | None:
        """Return what is known of single items under a kernel and sigma^2, if anything is."""
        return None if self.parts is None else self.parts.infer_parts(kernel, noise_variance)

    def kernel_evidence(
        self, kernel: KendallKernel, noise_variance: float, spectrum: Spectrum | None = None
    ) -> KernelEvidence | None:
        """Return `known_parts` with their evidence; `spectrum` is that of the parts, where it is known already."""
        if self.parts is None:
            return None
        return self.parts.gather_evidence(kernel, noise_variance, spectrum or self.parts.spectrum)

    def centre_on(self, known: KnownParts | None) -> ObservedRows:
        """Return the same rows with targets less what is expected of them."""
        if known is None:
            return self
        return replace(self, targets=self.targets - known.of_rows(self.contexts, self.rankings))

    def fade(self, weights: FloatArray) -> ObservedRows:
        """Return the same rows counting for less, without those that count for next to nothing.

        A row of weight w has the likelihood of its observations to the power w: noise 1 / w times as large, and w times
        as many observations.

        Parameters
        ----------
        weights
            In (0, 1], shape (N,).
        """
        shape = np.eye(self.n_rows) if self.noise_shape is None else self.noise_shape
        leftovers = self.leftovers * weights[:, None]
        leftovers[:, 0] = weights * self._left_counts() + (weights - 1.0)
        fading = 1.0 / np.sqrt(weights)
        shape = shape * np.outer(fading, fading)
        faded = replace(self, leftovers=leftovers, noise_shape=shape)
        counts = np.diag(shape) < 1.0 / _FADED
        return faded if counts.all() else _drop(faded, ~counts)

    def _left_counts(self) -> FloatArray:
        """Return how many observations more than one rows stand for, shape (N,).

        What folds leave over is that of one row, which may then stand for fewer than none: the others have too many.
        """
        left = self.leftovers[:, 0]
        if left.min(initial=0.0) >= -1.0:
            return left
        positive = np.maximum(1.0 + left, 0.0)
        total = max(float((1.0 + left).sum()), 0.0)
        return positive * (total / float(positive.sum()) if positive.any() else 0.0) - 1.0

    def fade_earlier(self, weight: float, *, n_latest: int, of_latest: float = 1.0) -> ObservedRows:
        """Return the same rows, those before the latest ones and what is known beside the rows counting for less.

        Parameters
        ----------
        weight, of_latest
            As of `fade`, of the earlier rows and of the latest ones.
        n_latest
            How many rows are the latest ones, at the end.
        """
        weights = np.full(self.n_rows, weight)
        weights[max(self.n_rows - n_latest, 0) :] = of_latest
        parts = None if self.parts is None else self.parts.fade(weight)
        return replace(self, parts=parts).fade(weights)

    def with_outcomes(
        self, context: FloatArray, ranking: NDArray[np.int32], before: FloatArray | None, outcomes: FloatArray | None
    ) -> ObservedRows:
        """Return the same rows with other outcomes of the one that is of an observation, if one is.

        Parameters
        ----------
        context, ranking
            Of the observation, shapes (C,) and (k,).
        before, outcomes
            Those that the row has, and the others, shape (k,); None where nothing is known.
        """
        if self.feedback is None and outcomes is None:
            return self
        feedback = self.feedback or RowOutcomes.none(*self.rankings.shape)
        nothing = np.full(len(ranking), np.nan)
        known, instead = (nothing if one is None else one for one in (before, outcomes))
        near = np.abs(self.contexts - context).max(axis=1, initial=0.0) <= _SAME_CONTEXT * np.abs(context).max()
        same = ((feedback.outcomes == known) | (np.isnan(feedback.outcomes) & np.isnan(known))).all(axis=1)
        found = np.flatnonzero(near & same & (self.rankings == ranking).all(axis=1))
        if not len(found):
            return self
        every = feedback.outcomes.copy()
        every[found[-1]] = instead
        return replace(self, feedback=feedback._replace(outcomes=every))

    def with_prior_mean(self, prior_mean: PriorMean | None) -> ObservedRows:
        """Return the same observations with the h of another prior mean, or of none.

        It is exact for rows that are sums of observations of one ranking, and for any rows when h is linear in the
        context. Where rankings were folded together and h is not, rows get the h of an observation like them. What a
        row's own outcomes say is left out.
        """
        targets, leftovers, parts = self.targets[:2], self.leftovers[:, :4], self.parts
        if parts is not None:
            parts = parts.with_prior_mean(prior_mean, np.linalg.lstsq(self.contexts, targets[1], rcond=None)[0])
        if prior_mean is not None:
            exact = self.noise_shape is None and self.parts is None
            own = prior_mean.of_rankings(self.rankings) if exact else np.zeros(self.n_rows)
            _, _, left_y1, left_11 = leftovers.T
            of_rows = prior_mean.of_rows(self.contexts, self.rankings, targets[1])
            if self.feedback is not None:
                weights = prior_mean.position_weights
                of_rows -= self.feedback.own @ (weights / np.linalg.norm(weights))
            targets = np.vstack([targets, of_rows])
            leftovers = np.column_stack([leftovers, own * left_y1, own * left_11, own * own * left_11])
        return replace(self, targets=targets, leftovers=leftovers, parts=parts)


def _drop(rows: ObservedRows, faded: NDArray[np.bool_]) -> ObservedRows:
    """Return the rows without some that count for next to nothing; how many observations there are stays."""
    kept = rows.select(np.flatnonzero(~faded))
    if kept.n_rows:
        # After a fold one row has the leftovers of all.
        kept.leftovers[-1] += rows.leftovers[faded].sum(axis=0)
        kept.leftovers[-1, 0] += faded.sum()
    return kept


def covariance_of(kernel: KendallKernel, rows: ObservedRows, *, noise_variance: float) -> FloatArray:
    """Return K, (N, N), smaller by what is known of the rows' items."""
    covariance = (rows.contexts @ rows.contexts.T) * kernel.gram_of(rows.rankings)
    if (known := rows.known_parts(kernel, noise_variance)) is not None:
        covariance -= known.gram(rows.contexts, rows.rankings)
    return np.asarray(covariance, dtype=np.float64)


def noisy_covariance(
    kernel: KendallKernel, observed_rows: ObservedRows, known: KnownParts | None, *, noise_variance: float
) -> FloatArray:
    """Return K + sigma^2 V, (N, N), smaller by what is known of the rows' items: their `known_parts`."""
    dots = observed_rows.contexts @ observed_rows.contexts.T
    covariance = dots * kernel.gram_of(observed_rows.rankings)
    diagonal = np.diag_indices(len(dots))
    covariance[diagonal] += NOISE_FLOOR * dots[diagonal]
    if known is not None:
        covariance -= known.gram(observed_rows.contexts, observed_rows.rankings)
    if observed_rows.noise_shape is None:
        covariance[diagonal] += noise_variance
    else:
        covariance += noise_variance * observed_rows.noise_shape
    return np.asarray(covariance, dtype=np.float64)


def project(
    kernel: KendallKernel,
    rows: ObservedRows,
    *,
    most_rows: int,
    noise_variance: float,
    leaving: NDArray[np.int32] = NO_ITEMS,
    most_items: int = 0,
) -> ObservedRows:
    """Return at most `most_rows` rows, the basis B: those of `rows` that the others tell least about, for their noise.

    With W = K_.B K_BB^-1 the expected rewards of all rows are f = W f_B + r, and r has the variances
    R = diag(K - W K_B.), zero for the basis. So rewards are W f_B plus noise with covariance sigma^2 V + R (FITC:
    Snelson and Ghahramani, 2006; Csato and Opper, 2002, for streams), and fold into the basis as exact sums do. What
    W f_B explains is kept exactly; the rest counts as noise, each row's on its own.

    Where rows have `parts` items are so many that f_B tells little of most of them. Then what a row tells goes to the
    parts of its items (`item_parts`), but for rows that were folded before: their noise is not their own.

    Parameters
    ----------
    kernel
        Kernel of the rankings.
    rows
        N rows.
    most_rows
        At least 1.
    noise_variance
        sigma^2 > 0.
    leaving
        Items that are never shown again: rows that show them come into the basis after all others.
    most_items
        Of so many items parts may be kept, if there are any; with 0 all rows are projected, and parts stay as they are.
    """
    if rows.n_rows <= most_rows:
        return rows
    if most_items and rows.parts is not None:
        parts = partial(rows.parts.absorb, kernel, noise_variance=noise_variance, most_items=most_items)
        rows = _absorb_oldest(rows, parts, rows.n_rows - most_rows)
        if rows.n_rows <= most_rows:
            return rows
    covariance = covariance_of(kernel, rows, noise_variance=noise_variance)
    chosen = _choose_basis(covariance, _weights_of(rows, _show(rows, leaving)), most_rows)
    return _project_onto(kernel, covariance, rows, _or_one(chosen, rows.n_rows - 1), noise_variance)


def outgrows(kernel: KendallKernel, rows: ObservedRows, *, most_rows: int) -> bool:
    """Return whether rows have to leave and a basis of the others could not span the parts of all of their items."""
    if rows.n_rows <= most_rows or not kernel.item_weight.any() or kernel.counted_content is not None:
        return False
    return _count_parts(rows) > _OUTGROWN * most_rows


def rows_needed(kernel: KendallKernel, rows: ObservedRows, *, most_rows: int) -> int:
    """Return how many rows a basis needs, at most `most_rows`: one for each item's part in each direction of contexts.

    More of them cost time and memory, and tell no more (decision 66). Where items' features count, or pairs alone, it
    is not known how many are enough.
    """
    if rows.n_rows <= FEWEST_ROWS or not kernel.item_weight.any() or kernel.counted_content is not None:
        return most_rows
    return min(most_rows, max(FEWEST_ROWS, math.ceil(round(_count_parts(rows), 6))))


def _count_parts(rows: ObservedRows) -> float:
    """Return how many parts of items there are: the items that rows show, times the directions of their contexts."""
    return _count_directions(rows) * len(np.unique(rows.rankings))


def _count_directions(rows: ObservedRows) -> float:
    """Return in how many directions contexts vary, one more for what they have in common.

    It is the participation ratio of their covariance: that many of equal variance, fewer where some vary more.
    """
    ones = rows.targets[1]
    weight = max(float(ones @ ones), 1.0)
    mean = ones @ rows.contexts / weight
    around = rows.contexts - ones[:, None] * mean
    covariance = around.T @ around
    spread = float(np.trace(covariance))
    in_common = weight * math.fsum(number * number for number in mean.tolist())
    if spread <= _SAME_CONTEXT * in_common:
        return 1.0  # what is left is rounding
    # The squares of long contexts' covariances may have no end: `hypot` takes none.
    return 1.0 + (spread / math.hypot(*covariance.reshape(-1).tolist())) ** 2


def _absorb_oldest(rows: ObservedRows, absorb: Callable[[LeavingRows], ItemParts], count: int) -> ObservedRows:
    """Return the rows without the oldest ones whose noise is their own, which tell of their items from then on."""
    folded = 0 if rows.noise_shape is None else _count_shared(rows.noise_shape)
    leave = np.arange(folded, min(folded + count, rows.n_rows))
    own = np.ones(rows.n_rows) if rows.noise_shape is None else np.diag(rows.noise_shape)
    parts = absorb(LeavingRows(rows.contexts[leave], rows.rankings[leave], rows.targets[:, leave], own[leave]))
    return replace(rows.select(np.delete(np.arange(rows.n_rows), leave)), parts=parts)


def project_out(
    kernel: KendallKernel, rows: ObservedRows, items: NDArray[np.int32], *, noise_variance: float
) -> ObservedRows:
    """Return rows that show none of these items: `project` with a basis of rows that do not.

    Where all rows show one of them nothing is left.
    """
    if rows.parts is not None:
        rows = replace(rows, parts=rows.parts.without(items))
    leave = _show(rows, items)
    if not leave.any() or leave.all():
        return rows.select(np.flatnonzero(~leave)) if leave.any() else rows
    covariance = covariance_of(kernel, rows, noise_variance=noise_variance)
    chosen = _choose_basis(covariance, _weights_of(rows, leave), rows.n_rows, barred=leave)
    return _project_onto(kernel, covariance, rows, _or_one(chosen, int(np.argmin(leave))), noise_variance)


def _or_one(chosen: tuple[NDArray[np.intp], FloatArray], row: int) -> tuple[NDArray[np.intp], FloatArray]:
    """Return a basis and its sums; one row where contexts are all zeros, so that rewards are nothing but noise."""
    basis, sums = chosen
    return (basis, sums) if len(basis) else (np.array([row]), np.eye(len(sums))[:, [row]])


def _show(rows: ObservedRows, items: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Return which rows show any of these items, (N,)."""
    return np.asarray(np.isin(rows.rankings, items).any(axis=1))


def _weights_of(rows: ObservedRows, last: NDArray[np.bool_]) -> FloatArray:
    """Return the weights by which rows come into a basis, those of `last` after the others; shape (N,)."""
    weights = leading(rows.n_rows)
    weights[last] *= _LAST
    return weights if rows.noise_shape is None else weights / np.sqrt(np.diag(rows.noise_shape))


def _project_onto(
    kernel: KendallKernel,
    covariance: FloatArray,
    rows: ObservedRows,
    chosen: tuple[NDArray[np.intp], FloatArray],
    noise_variance: float,
) -> ObservedRows:
    """Return rows projected onto the basis of `_choose_basis`."""
    basis, sums = chosen
    explained = (sums * covariance[:, basis]).sum(axis=1)
    left = np.maximum(np.diag(covariance) - explained, 0.0)
    left[basis] = 0.0
    shape = np.eye(rows.n_rows) if rows.noise_shape is None else rows.noise_shape
    noisier = replace(rows, noise_shape=shape + np.diag(left / noise_variance))
    if rows.parts is None:
        return _fold_into_basis(noisier, basis, sums)
    # What is expected of the items is no sum of what is expected of those of the basis.
    centred = noisier.centre_on(rows.known_parts(kernel, noise_variance))
    folded = _fold_into_basis(centred, basis, sums)
    return replace(folded, targets=folded.targets + (noisier.targets - centred.targets)[:, basis])


def rewards_differ(targets: FloatArray, leftovers: FloatArray) -> bool:
    """Return whether rewards are not all equal, from rows' targets (T, N) and the leftovers of some of them."""
    rewards, ones = targets[:2]
    _, left_yy, left_y1, left_11 = leftovers[:, :4].sum(axis=0).tolist()
    weight = float(ones @ ones) + left_11
    mean = (float(rewards @ ones) + left_y1) / weight if weight > 0.0 else 0.0
    beside = left_yy - 2.0 * mean * left_y1 + mean * mean * left_11
    spread, squares = float(np.abs(rewards - mean * ones).max(initial=0.0)), float(rewards @ rewards)
    if squares + left_yy < _NO_SQUARES:
        return False
    return spread > _EQUAL_REWARDS * math.sqrt(squares) or beside > _EQUAL_SQUARES * (squares + left_yy)


def compact(kernel: KendallKernel, observed_rows: ObservedRows) -> ObservedRows:
    """Return what says the same in fewer rows, as far as that is known to be possible.

    A folded row takes the place of the newest that went into it.

    Parameters
    ----------
    kernel
        Kernel of the rankings.
    observed_rows
        Rows whose noise shape, if they have one, came from here.
    """
    if observed_rows.noise_shape is not None or observed_rows.n_rows > _most_rank(observed_rows):
        return _collapse(kernel, observed_rows)
    return fold_by_ranking(observed_rows)


def _most_rank(observed_rows: ObservedRows) -> int:
    """Return a bound on rank(Psi): that of the contexts, times pairs of the m items shown and of each with the rest."""
    m = len(np.unique(observed_rows.rankings))
    return min(observed_rows.contexts.shape) and int(
        np.linalg.matrix_rank(observed_rows.contexts, rtol=_SAME_CONTEXT)
    ) * (m * (m + 1) // 2)


def fold_by_ranking(observed_rows: ObservedRows) -> ObservedRows:
    """Return as much in at most C rows of each ranking, whatever the kernel; none was folded otherwise."""
    _, group_of = np.unique(observed_rows.rankings, axis=0, return_inverse=True)
    order = np.argsort(group_of.reshape(-1), kind="stable")
    ends = np.cumsum(np.bincount(group_of.reshape(-1)))
    new = replace(observed_rows)
    stays, mixed = np.ones(observed_rows.n_rows, dtype=bool), np.zeros(observed_rows.n_rows, dtype=bool)
    for group in np.split(order, ends[:-1]):
        if len(group) > 1:
            stays[group] = _fold(new, group)
            mixed[group] = not stays[group].all()
    if stays.all():
        return observed_rows
    if new.feedback is not None:
        new = replace(new, feedback=new.feedback.without(np.flatnonzero(mixed)))
    return new.select(np.flatnonzero(stays))


def _fold(new: ObservedRows, group: NDArray[np.intp]) -> NDArray[np.bool_]:
    """Fold rows of one ranking into the last few of them, in place; return which stay."""
    q, r, order = _factor_with_pivots(new.contexts[group])
    sizes = np.diag(r)
    rank = max(int((sizes > _SAME_CONTEXT * sizes[0]).sum()), 1)
    stays = np.arange(len(group)) >= len(group) - rank
    if rank == len(group):
        return stays
    into, basis, targets = group[-rank:], q[:, :rank], new.targets[:, group]
    new.contexts[np.ix_(into, order)] = r[:rank]
    folded = targets @ basis
    left = targets - folded @ basis.T
    sums = new.leftovers[group].sum(axis=0) + leftover(len(group) - rank, left @ left.T)
    new.targets[:, into] = folded
    new.leftovers[into] = 0.0
    new.leftovers[into[-1]] = sums
    return stays


def _factor_with_pivots(contexts: FloatArray) -> tuple[FloatArray, FloatArray, NDArray[np.integer]]:
    """Return Q, R and the order of the columns, equal ones as they stand, with a diagonal of R that is not negative."""
    weights = leading(contexts.shape[1])
    q, r, order = qr(contexts * weights, mode="economic", pivoting=True)
    signs = np.where(np.diag(r) < 0.0, -1.0, 1.0)
    return q * signs, r * signs[:, None] / weights[order], order


def leftover(count: float, products: FloatArray) -> FloatArray:
    """Return so many observations and products of targets (T, T), as a row of leftovers has them."""
    return np.append(count, products[_lower_half(len(products))])


@lru_cache(maxsize=4)
def _lower_half(size: int) -> tuple[NDArray[np.intp], ...]:
    return np.tril_indices(size)


def _collapse(kernel: KendallKernel, rows: ObservedRows) -> ObservedRows:
    """Fold all rows into as many as their rank."""
    if not rows.n_rows:
        return rows
    covariance = (rows.contexts @ rows.contexts.T) * kernel.gram_of(rows.rankings)
    basis, sums = _choose_basis(covariance, leading(rows.n_rows), rows.n_rows)
    return rows if len(basis) in {0, rows.n_rows} else _fold_into_basis(rows, basis, sums)


def _choose_basis(
    covariance: FloatArray, weights: FloatArray, most_rows: int, *, barred: NDArray[np.bool_] | None = None
) -> tuple[NDArray[np.intp], FloatArray]:
    """Return rows that all others are nearly sums of, ascending, and the weights of the sums, (N, rank).

    They are the first pivots of a Cholesky factor of the covariance of the rows times `weights`, (N,), which never
    takes a row that is a sum of those before it. The basis ends before the first row that is `barred`, (N,).
    """
    scaled = covariance * np.outer(weights, weights)
    factor, pivots, rank, _ = dpstrf(scaled, tol=_SAME_ROW * float(np.diag(scaled).max()), lower=1)
    rank, order = min(rank, most_rows), pivots - 1
    if barred is not None:
        rank = min(rank, int(np.argmax(barred[order])))
    factor = factor / weights[order, None]
    sums, chosen = np.zeros((len(covariance), rank)), order[:rank]
    sums[chosen] = np.eye(rank)
    sums[order[rank:]] = factor[rank:, :rank] @ inverse_lower(np.tril(factor[:rank, :rank]))
    return np.sort(chosen), sums[:, np.argsort(chosen)]


def _fold_into_basis(observed_rows: ObservedRows, basis: NDArray[np.intp], sums: FloatArray) -> ObservedRows:
    """Return `observed_rows` folded into rows `basis`, all rows being `sums` (N, rank) of these."""
    targets = observed_rows.targets
    if observed_rows.noise_shape is not None:
        sums, targets = _whiten(observed_rows.noise_shape, sums, targets)
    precision = sums.T @ sums
    inverse = inverse_lower(np.asarray(np.linalg.cholesky(precision)))
    noise_shape = inverse.T @ inverse
    folded = targets @ sums @ noise_shape
    left = targets - folded @ sums.T
    kept = observed_rows.select(basis)
    leftovers = np.zeros((len(basis), observed_rows.leftovers.shape[1]))
    leftovers[-1] = observed_rows.leftovers.sum(axis=0) + leftover(observed_rows.n_rows - len(basis), left @ left.T)
    return replace(kept, targets=folded, leftovers=leftovers, noise_shape=noise_shape)


def _whiten(shape: FloatArray, sums: FloatArray, targets: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return W^-1 `sums` and `targets` W^-T, W being a factor of V.

    Only the first rows have noise in common: those that were folded before. It takes their number cubed, and no more.
    """
    n_shared = _count_shared(shape)
    whitener = inverse_lower(np.asarray(np.linalg.cholesky(shape[:n_shared, :n_shared])))
    own = 1.0 / np.sqrt(np.diag(shape)[n_shared:])
    return (
        np.concatenate([whitener @ sums[:n_shared], sums[n_shared:] * own[:, None]]),
        np.concatenate([targets[:, :n_shared] @ whitener.T, targets[:, n_shared:] * own], axis=1),
    )


def _count_shared(shape: FloatArray) -> int:
    """Return how many of the first rows all noise that rows have in common is among."""
    others = np.count_nonzero(shape, axis=1) > 1
    return int(np.flatnonzero(others)[-1]) + 1 if others.any() else 0
