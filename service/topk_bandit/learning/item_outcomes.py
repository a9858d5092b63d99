"""What became of single items of slates, and what it says of slates before their rewards.

A reward is one number for a slate. A caller may know more: which of its items were clicked, or how long each was
watched. Such an outcome is modelled as

    o = alpha_p + a_p x.phi_i + noise        phi_i ~ N(mu + gamma s_i, sigma^2 D / r)

for item i at position p in context c, with x = (1, c), the discounts of DCG a_p, and the utilities s_i of a study, if
there is one. The intercepts are the positions' means, and mu, gamma, sigma^2, D and r are those of the largest
evidence (empirical Bayes). Then the expected x.phi_i are utilities of items, and so a prior mean of slates
(`prior_mean`): what they are worth for the reward is its slope, which rewards tell.

The noise of outcomes is in the reward of their slate, too. So the prior mean of a row is that of all outcomes but its
own: with the covariance sigma^2 B_i of phi_i and the leverage l = a_p^2 x'B_i x, its utility is less by

    a_p (x'B_i x) e / (1 - l)        e = o - alpha_p - a_p x.phi_i

(leave-one-out residuals: Cook and Weisberg, 1982).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from topk_bandit.learning._layout import lay_out
from topk_bandit.learning.prior_mean import PriorMean, position_weights
from topk_bandit.learning.slope_prior import SlopePrior, unit_of

if TYPE_CHECKING:
    from topk_bandit.learning.kendall import KendallKernel
    from topk_bandit.learning.rankings import Rankings

__all__ = ["ItemOutcomes", "ItemUtilities", "OutcomeRows", "extend_contexts"]

FloatArray = NDArray[np.float64]

_RATIOS = 4.0 ** np.arange(-1, 6)
"""Noise of an outcome over the variance of items, r: from items that differ by twice the noise to hardly any."""

_SHARES_OF_CONTEXTS = (0.1, 1.0, 10.0)
"""How much items differ by contexts, over how much they do on their own."""

_NO_VARIANCE = 1e-9
"""Outcomes that vary by less than this part of their squares are equal, and were rounded."""

_NO_SQUARES = 1e-200
"""Outcomes with a smaller sum of squares around their mean are as good as equal: their products would vanish."""

_FEWEST_SLATES = 8
"""By fewer it is not known what outcomes are worth."""

_DOUBT_OF_WORTH = 0.5
"""What single slates say of it holds but for this part: what items differ by may be worth more, or less."""

_MOST_LEVERAGE = 1.0 - 1e-6


class OutcomeRows(NamedTuple):
    """Outcomes of the items of slates.

    Attributes
    ----------
    extended
        x, shape (R, d).
    rankings
        Item indices, shape (R, k).
    outcomes
        Shape (R, k), NaN where nothing is known.
    weights
        What each slate counts, shape (R,).
    rewards
        Shape (R,).
    """

    extended: FloatArray
    rankings: Rankings
    outcomes: FloatArray
    weights: FloatArray
    rewards: FloatArray


def extend_contexts(contexts: FloatArray, *, context_dim: int) -> FloatArray:
    """Return x of contexts (R, C): a one before each, but where rewards grow with a context that is one number.

    Parameters
    ----------
    context_dim
        Numbers of a context as the posterior has it, with the one that all contexts share.
    """
    return contexts if context_dim == 1 else np.column_stack([np.ones(len(contexts)), contexts])


def _moments_of(rows: OutcomeRows) -> FloatArray:
    """Return what rows add to `ItemOutcomes.with_rewards`."""
    known = np.isfinite(rows.outcomes)
    some = known.any(axis=1)
    of_slates = np.where(known, rows.outcomes, 0.0).sum(axis=1)[some]
    rewards, weights = rows.rewards[some], rows.weights[some]
    powers = np.ones(len(rewards)), of_slates, rewards, of_slates**2, of_slates * rewards, rewards**2
    return np.asarray(np.stack(powers) @ weights, dtype=np.float64)


def _are_equal(varied: float, squares: float) -> bool:
    """Return whether outcomes are equal, from their sum of squares around their means, and around zero."""
    return varied <= max(_NO_VARIANCE * squares, _NO_SQUARES)


@lru_cache(maxsize=16)
def _discounts(slate_size: int) -> FloatArray:
    """Return a_p, shape (k,)."""
    discounts: FloatArray = 1.0 / np.log2(np.arange(slate_size) + 2.0)
    discounts.flags.writeable = False
    return discounts


@dataclass(frozen=True, slots=True, eq=False)
class ItemOutcomes:
    """The sums of the outcomes of m items, which are as good as all of them.

    Attributes
    ----------
    items
        Item indices, ascending, shape (m,).
    squares
        Sums of a_p^2 x x', shape (m, d, d).
    shifts
        Sums of a_p o x, shape (m, d).
    shown
        Sums of a_p x by position, shape (m, k, d).
    by_position
        The number of outcomes at each position, their sum and that of their squares, shape (3, k).
    with_rewards
        The number of slates, and their sums of t, y, t^2, t y and y^2, with the rewards y and the outcomes of a slate's
        items added up, t; shape (6,).
    """

    items: NDArray[np.int32]
    squares: FloatArray
    shifts: FloatArray
    shown: FloatArray
    by_position: FloatArray
    with_rewards: FloatArray

    def __post_init__(self) -> None:
        object.__setattr__(self, "items", lay_out(self.items, np.int32))
        for name in ("squares", "shifts", "shown", "by_position", "with_rewards"):
            object.__setattr__(self, name, lay_out(getattr(self, name)))

    @classmethod
    def none(cls, extended_dim: int, slate_size: int) -> ItemOutcomes:
        """Return those of no item; d = `extended_dim`."""
        d, k = extended_dim, slate_size
        return cls(
            np.zeros(0, dtype=np.int32),
            np.zeros((0, d, d)),
            np.zeros((0, d)),
            np.zeros((0, k, d)),
            np.zeros((3, k)),
            np.zeros(6),
        )

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return self.items.nbytes + self.squares.nbytes + self.shifts.nbytes + self.shown.nbytes

    def plus(self, rows: OutcomeRows, *, most_items: int) -> ItemOutcomes:
        """Return the sums with the outcomes of more slates; weights below zero take some away.

        Parameters
        ----------
        most_items
            Of more items nothing is kept.
        """
        row, position = np.nonzero(np.isfinite(rows.outcomes) & (rows.weights != 0.0)[:, None])
        wider = self._with_items(np.unique(rows.rankings[row, position]), most_items)
        place = np.searchsorted(wider.items, rows.rankings[row, position])
        kept = (
            np.take(wider.items, place, mode="clip") == rows.rankings[row, position] if len(wider.items) else place < 0
        )
        row, position, place = row[kept], position[kept], place[kept]
        weights, outcomes = rows.weights[row], rows.outcomes[row, position]
        scaled = _discounts(rows.outcomes.shape[1])[position, None] * rows.extended[row]
        weighted = weights[:, None] * scaled
        squares, shifts, shown = wider.squares.copy(), wider.shifts.copy(), wider.shown.copy()
        np.add.at(squares, place, weighted[:, :, None] * scaled[:, None, :])
        np.add.at(shifts, place, weighted * outcomes[:, None])
        np.add.at(shown, (place, position), weighted)
        by_position = wider.by_position.copy()
        for power, sums in enumerate(by_position):
            np.add.at(sums, position, weights * outcomes**power)
        return ItemOutcomes(wider.items, squares, shifts, shown, by_position, wider.with_rewards + _moments_of(rows))

    def _with_items(self, items: NDArray[np.int32], most_items: int) -> ItemOutcomes:
        new = np.setdiff1d(items, self.items)[: max(most_items - len(self.items), 0)]
        if not len(new):
            return self
        every = np.concatenate([self.items, new])
        order, more = np.argsort(every, kind="stable"), (0, len(new))
        squares, shifts, shown = (
            np.pad(one, [more, *((0, 0),) * (one.ndim - 1)])[order] for one in (self.squares, self.shifts, self.shown)
        )
        return ItemOutcomes(every[order], squares, shifts, shown, self.by_position, self.with_rewards)

    def without(self, items: NDArray[np.int32]) -> ItemOutcomes:
        """Return the sums of other items; what is known of positions stays."""
        stay = ~np.isin(self.items, items)
        if stay.all():
            return self
        return replace(
            self, items=self.items[stay], squares=self.squares[stay], shifts=self.shifts[stay], shown=self.shown[stay]
        )

    def fade(self, weight: float) -> ItemOutcomes:
        """Return the sums counting for less."""
        if weight == 1.0:
            return self
        squares, shifts, shown = weight * self.squares, weight * self.shifts, weight * self.shown
        sums = weight * self.by_position, weight * self.with_rewards
        return ItemOutcomes(self.items, squares, shifts, shown, *sums)

    def with_contexts(self, images: FloatArray) -> ItemOutcomes:
        """Return the same of other contexts, whose numbers are sums of the old ones'.

        Parameters
        ----------
        images
            What each number of x becomes, shape (d, d').
        """
        return replace(
            self,
            squares=images.T @ self.squares @ images,
            shifts=self.shifts @ images,
            shown=self.shown @ images,
        )

    def learn_utilities(self, study: tuple[NDArray[np.int32], FloatArray] | None = None) -> ItemUtilities | None:
        """Return the utilities of items by their outcomes, None where these do not vary.

        Parameters
        ----------
        study
            Items that a study knows, ascending, shape (s,), and their coefficients for x, shape (s, d).
        """
        counts, totals, squares = self.by_position
        count, worth = float(counts.sum()), self._worth
        means = np.divide(totals, counts, out=np.zeros_like(totals), where=counts > 0.0)
        varied = float(np.maximum(squares - means * totals, 0.0).sum())
        if worth is None or not len(self.items) or count <= 0.0 or _are_equal(varied, float(squares.sum())):
            return None
        shifts = self.shifts - np.einsum("k,mkd->md", means, self.shown)
        return max(
            (
                _Likely.at(
                    self._scales_at(share), self.squares, shifts, self._beliefs_of(study), varied=varied, count=count
                )
                for share in (_SHARES_OF_CONTEXTS if self.shifts.shape[1] > 1 else (1.0,))
            ),
            key=lambda likely: likely.evidence,
        ).utilities(self.items, means, worth, self._others(study))

    @property
    def _worth(self) -> SlopePrior | None:
        """What is believed of the worth of an outcome in rewards: what it is in single slates, give or take a half.

        None while slates are few or their outcomes equal, and where rewards are too large in units of these.
        """
        n, t, y, tt, ty, yy = self.with_rewards.tolist()
        if n < _FEWEST_SLATES:
            return None
        spread, shared, left = tt - t * t / n, ty - t * y / n, yy - y * y / n
        if _are_equal(spread, tt):
            return None
        slope = shared / spread
        error = max(left - slope * shared, 0.0) / (n - 2.0) / spread
        variance = _DOUBT_OF_WORTH**2 * slope * slope + error
        return SlopePrior(slope, variance, in_rewards=True) if math.isfinite(variance) else None

    def _scales_at(self, share: float) -> FloatArray:
        """Return the roots of D, shape (d,), in the unit of the contexts.

        All numbers of a context together differ by `share` of what the one does.
        """
        total, counts = np.einsum("mdd->d", self.squares), self.by_position[0]
        if len(total) == 1:
            return np.array([1.0 / math.sqrt(unit_of(float(total[0]) / float(counts @ _discounts(len(counts)) ** 2)))])
        unit = unit_of(float(total[1:].sum()) / max(float(total[0]), np.finfo(float).tiny))
        return np.append(1.0, np.full(len(total) - 1, math.sqrt(share / unit)))

    def _beliefs_of(self, study: tuple[NDArray[np.int32], FloatArray] | None) -> FloatArray | None:
        """Return a study's coefficients of the items, centred, shape (m, d): zeros of those that it does not know."""
        if study is None or not len(study[0]):
            return None
        known, coefficients = study
        place = np.searchsorted(known, self.items)
        is_known = np.take(known, place, mode="clip") == self.items
        beliefs = np.zeros_like(self.shifts)
        beliefs[is_known] = coefficients[place[is_known]]
        return beliefs if beliefs.any() else None

    def _others(self, study: tuple[NDArray[np.int32], FloatArray] | None) -> tuple[NDArray[np.int32], FloatArray]:
        """Return the items that only a study knows, and their coefficients."""
        if study is None:
            return np.zeros(0, dtype=np.int32), np.zeros((0, self.shifts.shape[1]))
        other = ~np.isin(study[0], self.items)
        return study[0][other], study[1][other]


class _Likely(NamedTuple):
    """The most likely ratio at one share of contexts, and what comes of it.

    Attributes
    ----------
    evidence
        Its log, up to a constant.
    noise, prior
        sigma^2 and D / r, shape (d, d).
    coefficients, covariances
        phi_i and B_i.
    common
        mu, and gamma behind it where there is a study.
    """

    evidence: float
    noise: float
    prior: FloatArray
    coefficients: FloatArray
    covariances: FloatArray
    common: FloatArray

    @classmethod
    def at(
        cls,
        scales: FloatArray,
        squares: FloatArray,
        shifts: FloatArray,
        beliefs: FloatArray | None,
        *,
        varied: float,
        count: float,
    ) -> _Likely:
        """Return the most likely one where the roots of D are `scales`."""
        values, vectors = np.linalg.eigh(squares * np.outer(scales, scales))
        values = np.maximum(values, 0.0)
        found = []
        for ratio in _RATIOS.tolist():
            left = (vectors / (values + ratio)[:, None, :]) @ vectors.transpose(0, 2, 1)
            covariances = left * np.outer(scales, scales)
            common, explained = _common_part(squares, shifts, covariances, beliefs, scales)
            quadratic = max(varied - explained, _NO_VARIANCE * varied)
            evidence = -0.5 * (count * np.log(quadratic) + float(np.log1p(values / ratio).sum()))
            found.append((evidence, quadratic / count, ratio, covariances, common))
        evidence, noise, ratio, covariances, common = max(found, key=lambda one: one[0])
        centres = _centres_of(common, beliefs, shifts)
        residuals = shifts - (squares @ centres[:, :, None])[:, :, 0]
        coefficients = centres + (covariances @ residuals[:, :, None])[:, :, 0]
        return cls(evidence, noise, np.diag(scales**2) / ratio, coefficients, covariances, common)

    def utilities(
        self,
        items: NDArray[np.int32],
        intercepts: FloatArray,
        worth: SlopePrior,
        others: tuple[NDArray[np.int32], FloatArray],
    ) -> ItemUtilities:
        """Return them, with those of other items, which a study knows alone."""
        d = self.coefficients.shape[1]
        of_study = float(self.common[d]) if len(self.common) > d else 0.0
        every = np.concatenate([items, others[0]])
        of_others = self.common[:d] + of_study * others[1]
        order = np.argsort(every, kind="stable")
        return ItemUtilities(
            every[order],
            np.concatenate([self.coefficients, of_others])[order],
            np.concatenate([self.covariances, np.tile(self.prior, (len(of_others), 1, 1))])[order],
            self.prior,
            self.noise,
            intercepts,
            worth,
        )


def _common_part(
    squares: FloatArray, shifts: FloatArray, covariances: FloatArray, beliefs: FloatArray | None, scales: FloatArray
) -> tuple[FloatArray, float]:
    """Return mu, and gamma where there are `beliefs`, by generalised least squares, and which square is explained."""
    whitened = (covariances @ shifts[:, :, None])[:, :, 0]
    right = shifts - (squares @ whitened[:, :, None])[:, :, 0]
    weights = squares - squares @ covariances @ squares
    left, right_sum, units = weights.sum(axis=0), right.sum(axis=0), scales
    if beliefs is not None:
        crossed = (weights @ beliefs[:, :, None])[:, :, 0]
        corner = float((beliefs * crossed).sum())
        left = np.block([[left, crossed.sum(axis=0)[:, None]], [crossed.sum(axis=0)[None], np.array([[corner]])]])
        right_sum = np.append(right_sum, (beliefs * right).sum())
        units = np.append(units, 1.0 / math.sqrt(corner) if corner > 0.0 else 1.0)
    common = units * np.linalg.lstsq(left * np.outer(units, units), right_sum * units, rcond=_NO_VARIANCE)[0]
    return common, float((shifts * whitened).sum()) + float(common @ right_sum)


def _centres_of(common: FloatArray, beliefs: FloatArray | None, shifts: FloatArray) -> FloatArray:
    d = shifts.shape[1]
    centres = np.tile(common[:d], (len(shifts), 1))
    return centres if beliefs is None else centres + common[d] * beliefs


@dataclass(frozen=True, slots=True, eq=False)
class ItemUtilities:
    """Utilities x.phi of m items by their outcomes.

    Attributes
    ----------
    items
        Item indices, ascending, shape (m,).
    coefficients, covariances
        phi_i and B_i, shapes (m, d) and (m, d, d).
    prior
        D / r: B of an item without outcomes, shape (d, d).
    noise
        sigma^2.
    intercepts
        alpha, shape (k,).
    worth
        What is believed of the worth of an outcome in rewards.
    """

    items: NDArray[np.int32]
    coefficients: FloatArray
    covariances: FloatArray
    prior: FloatArray
    noise: float
    intercepts: FloatArray
    worth: SlopePrior

    def prior_mean(self, kernel: KendallKernel, *, context_dim: int) -> PriorMean:
        """Return the prior mean of the utilities under a kernel that `takes_prior_mean`."""
        weights = position_weights(kernel)
        return PriorMean.of(
            kernel,
            *self._split(context_dim),
            self._row_of(kernel.n_items),
            variance=self._variance,
            covariances=self.noise * np.concatenate([self.covariances, self.prior[None]]),
            worth=self.worth.times(float(_discounts(kernel.slate_size) @ weights) / float(np.linalg.norm(weights))),
        )

    @property
    def _variance(self) -> float:
        """The variance of utilities in contexts of norm 1, before any outcome: means and what is uncertain of them."""
        every = self.coefficients - self.coefficients.mean(axis=0)
        squares = (every * every + self.noise * np.einsum("mdd->md", self.covariances)).mean(axis=0)
        return float(squares[0] + squares[1:].sum() / max(len(squares) - 1, 1))

    def own_parts(self, rows: OutcomeRows) -> FloatArray:
        """Return what the utility of each item of some slates is more by that slate's own outcomes, shape (R, k).

        It is in the unit of `prior_mean` times the length of its position weights, as of `RowOutcomes`.
        """
        row, position = np.nonzero(np.isfinite(rows.outcomes))
        place = np.searchsorted(self.items, rows.rankings[row, position])
        is_known = np.take(self.items, place, mode="clip") == rows.rankings[row, position]
        row, position, place = row[is_known], position[is_known], place[is_known]
        extended, discounts = rows.extended[row], _discounts(rows.outcomes.shape[1])[position]
        spread = np.einsum("ed,edf,ef->e", extended, self.covariances[place], extended)
        expected = self.intercepts[position] + discounts * (extended * self.coefficients[place]).sum(axis=1)
        residuals = rows.outcomes[row, position] - expected
        leverage = np.minimum(rows.weights[row] * discounts**2 * spread, _MOST_LEVERAGE)
        own = np.zeros(rows.outcomes.shape)
        own[row, position] = rows.weights[row] * discounts * spread * residuals / (1.0 - leverage)
        return own / math.sqrt(self._variance)

    def _split(self, context_dim: int) -> tuple[FloatArray, FloatArray]:
        """Return the constants (m,) and the slopes (m, C), C being `context_dim`."""
        if context_dim == 1:
            return np.zeros(len(self.items)), self.coefficients
        constants, slopes = self.coefficients[:, 0], self.coefficients[:, 1:]
        return constants, np.pad(slopes, [(0, 0), (0, context_dim - slopes.shape[1])])

    def _row_of(self, n_items: int) -> NDArray[np.intp]:
        row_of = np.full(n_items, -1, dtype=np.intp)
        row_of[self.items] = np.arange(len(self.items))
        return row_of
