"""What a state keeps of the outcomes of single items, and the prior mean that comes of it (`item_outcomes`).

The latest observations keep their outcomes, and each refit adds them up anew: so a correction, a verdict that is taken
back and a wild value cost nothing. Those of older ones are in sums. A value far from all others is not learned; one
robust range judges the outcome of each slate that is farthest from their median.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from topk_bandit.learning.item_outcomes import ItemOutcomes, OutcomeRows, extend_contexts
from topk_bandit.learning.observed_rows import RowOutcomes
from topk_bandit.learning.prior_mean import takes_prior_mean
from topk_bandit.learning.robust_ranges import NO_VALUES

if TYPE_CHECKING:
    from topk_bandit.learning.item_outcomes import ItemUtilities
    from topk_bandit.learning.kendall import KendallKernel
    from topk_bandit.learning.observed_rows import ObservedRows
    from topk_bandit.learning.prior_mean import PriorMean
    from topk_bandit.learning.recent_observations import RecentObservations
    from topk_bandit.learning.robust_ranges import RobustRange

__all__ = ["ItemFeedback", "extend_images"]

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class ItemFeedback:
    """Outcomes of items.

    Attributes
    ----------
    settled
        The sums of those that the latest observations do not have.
    outcome_range, range_at_refit
        The robust range of outcomes around their centre, and as it was at the last refit, but for what was heard since
        of slates that came before.
    context_dim
        Numbers of a context as the posterior has it.
    study
        The prior mean of a study, if there is one.
    """

    settled: ItemOutcomes
    outcome_range: RobustRange
    range_at_refit: RobustRange
    context_dim: int
    study: PriorMean | None

    @classmethod
    def none(cls, *, context_dim: int, own_dim: int, slate_size: int, study: PriorMean | None) -> ItemFeedback:
        """Return that of nothing; `own_dim` is how many numbers of a context are not shared by all."""
        extended_dim = own_dim if context_dim == 1 else 1 + own_dim
        return cls(ItemOutcomes.none(extended_dim, slate_size), NO_VALUES, NO_VALUES, context_dim, study)

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return self.settled.nbytes

    @property
    def numbers(self) -> tuple[NDArray[Any] | float, ...]:
        """All numbers that later utilities depend on, in a stated order: for digests."""
        of_study = () if self.study is None else self.study.numbers
        ranges = [getattr(self.outcome_range, one.name) for one in fields(self.outcome_range)]
        return *(getattr(self.settled, one.name) for one in fields(self.settled)), *ranges, *of_study

    def hear(self, recent: RecentObservations, *, count: int) -> ItemFeedback:
        """Return the same that judges by the outcomes of the newest observations, too."""
        outcome_range = self.outcome_range
        for end in range(len(recent) - count + 1, len(recent) + 1):
            if recent.outcomes is not None:
                outcome_range = _after(outcome_range, recent.outcomes[end - 1], recent.outcome_centre_at(end))
        return replace(self, outcome_range=outcome_range)

    def hear_again(self, recent: RecentObservations, *, count: int) -> ItemFeedback:
        """Return the same where the outcomes of the newest observations, all since the last refit, are others."""
        return replace(self, outcome_range=self.range_at_refit).hear(recent, count=count)

    def hear_late(self, outcomes: FloatArray, centre: float) -> ItemFeedback:
        """Return the same that judges by other outcomes of a slate, too, which came before the last refit."""
        outcome_range = _after(self.outcome_range, outcomes, centre)
        is_first = self.range_at_refit is self.outcome_range
        return replace(
            self,
            outcome_range=outcome_range,
            range_at_refit=outcome_range if is_first else _after(self.range_at_refit, outcomes, centre),
        )

    def rows_of(self, recent: RecentObservations, *, at: float, half_life: float, centre: float) -> OutcomeRows:
        """Return the outcomes of observations that are believed, as they count at a time: none of a wild value."""
        outcomes = np.full(recent.rankings.shape, np.nan) if recent.outcomes is None else recent.outcomes
        weights = recent.believed * 0.5 ** (np.maximum(at - recent.times, 0.0) / half_life)
        judged = self.judge(outcomes, centre)
        extended = extend_contexts(recent.contexts, context_dim=self.context_dim)
        return OutcomeRows(extended, recent.rankings, judged, weights, recent.rewards)

    def judge(self, outcomes: FloatArray, centre: float) -> FloatArray:
        """Return outcomes without those that are too far from their centre."""
        return np.where(np.abs(outcomes - centre) <= self.outcome_range.reach, outcomes, np.nan)

    def absorb(self, rows: OutcomeRows, *, most_items: int) -> ItemFeedback:
        """Return the same with the outcomes of more slates in the sums."""
        return replace(self, settled=self.settled.plus(rows, most_items=most_items))

    def fade(self, weight: float) -> ItemFeedback:
        """Return the same with sums that count for less."""
        return replace(self, settled=self.settled.fade(weight))

    def without(self, items: NDArray[np.int32]) -> ItemFeedback:
        """Return the same without some items."""
        return replace(self, settled=self.settled.without(items))

    def with_contexts(self, images: FloatArray, *, context_dim: int) -> ItemFeedback:
        """Return the same of other contexts; see `ItemOutcomes.with_contexts`."""
        study = None if self.study is None else self.study.with_context_dim(context_dim)
        return replace(self, settled=self.settled.with_contexts(images), context_dim=context_dim, study=study)

    def with_kernel(self, kernel: KendallKernel) -> ItemFeedback:
        """Return the same under another kernel."""
        return self if self.study is None else replace(self, study=self.study.with_kernel(kernel))

    def settle(self, kernel: KendallKernel) -> ItemFeedback:
        """Return the same after a refit that chose a kernel."""
        return replace(self.with_kernel(kernel), range_at_refit=self.outcome_range)

    def anew(self) -> ItemFeedback:
        """Return the same with nothing in the sums."""
        d, k = self.settled.shifts.shape[1], self.settled.by_position.shape[1]
        return replace(self, settled=ItemOutcomes.none(d, k))

    def learn(
        self,
        kernel: KendallKernel,
        rows: ObservedRows,
        latest: OutcomeRows,
        *,
        centre: float,
        most_items: int,
    ) -> tuple[ObservedRows, PriorMean | None]:
        """Return the prior mean that all outcomes give, and the rows with its h; a study's where they give none.

        Parameters
        ----------
        rows
            The posterior's, with the outcomes that went into them.
        latest
            Outcomes that are not in the sums.
        centre
            The latest outcomes' own.
        """
        study = None if self.study is None else self.study.with_kernel(kernel)
        known = None if study is None else self._coefficients_of(study)
        every = self.settled.plus(latest, most_items=most_items)
        utilities = every.learn_utilities(known) if takes_prior_mean(kernel) else None
        prior_mean = study if utilities is None else utilities.prior_mean(kernel, context_dim=self.context_dim)
        if rows.feedback is not None:
            outcomes = rows.feedback.outcomes
            own = None if utilities is None else self._own_parts(utilities, rows, self.judge(outcomes, centre))
            rows = replace(rows, feedback=RowOutcomes.of(outcomes) if own is None else RowOutcomes(outcomes, own))
        return rows.with_prior_mean(prior_mean), prior_mean

    def _own_parts(self, utilities: ItemUtilities, rows: ObservedRows, outcomes: FloatArray) -> FloatArray:
        """Return `RowOutcomes.own` of rows: of one that fades less of it is in the utilities.

        A row into which several were folded is the outcomes' own by as much as it is that observation.
        """
        noise = np.ones(rows.n_rows) if rows.noise_shape is None else np.diag(rows.noise_shape)
        extended = extend_contexts(rows.contexts[:, : self._own_dim], context_dim=self.context_dim)
        weights = np.minimum(1.0 / noise, 1.0)
        own = utilities.own_parts(OutcomeRows(extended, rows.rankings, outcomes, weights, rows.targets[0]))
        return np.minimum(noise, 1.0)[:, None] * own

    @property
    def _own_dim(self) -> int:
        """How many numbers of a context are its own."""
        return int(self.settled.shifts.shape[1]) - (self.context_dim > 1)

    def _coefficients_of(self, study: PriorMean) -> tuple[NDArray[np.int32], FloatArray]:
        """Return the items that a study knows, and their coefficients for x."""
        known = np.flatnonzero(study.row_of >= 0).astype(np.int32)
        constants, slopes = study.constants[study.row_of[known]], study.slopes[study.row_of[known]]
        if self.context_dim == 1:
            return known, slopes
        return known, np.column_stack([constants, slopes[:, : self._own_dim]])


def _after(robust_range: RobustRange, outcomes: FloatArray, centre: float) -> RobustRange:
    """Return a robust range after the outcomes of one more slate: the one that is farthest from the centre."""
    known = outcomes[np.isfinite(outcomes)]
    return robust_range.after(float(known[np.argmax(np.abs(known - centre))]), centre) if len(known) else robust_range


def extend_images(images: FloatArray, shared: float) -> FloatArray:
    """Return what each number of x becomes where contexts are others.

    Parameters
    ----------
    images
        What each number of a context becomes as the posterior has them, shape (C, C').
    shared
        lambda: its root is the last number of each context; 0 where they share nothing.
    """
    if not shared:
        return images if len(images) == 1 else np.pad(images, [(1, 0), (1, 0)]) + _corner(images.shape)
    root = float(np.sqrt(shared))
    ordered = np.roll(np.roll(images, 1, axis=0), 1, axis=1)
    ordered[0] *= root
    ordered[:, 0] /= root
    return ordered


def _corner(shape: tuple[int, ...]) -> FloatArray:
    corner = np.zeros((shape[0] + 1, shape[1] + 1))
    corner[0, 0] = 1.0
    return corner
