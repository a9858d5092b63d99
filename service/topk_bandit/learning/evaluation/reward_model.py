"""The direct model of rewards: items at positions, times contexts, by ridge regression.

    f(x, s) = alpha . x + sum_j theta[j, s_j] . x + noise,   theta[:, i, :] ~ N(0, P x Q)

x is the context, standardised, with a one. P says how alike an item's effects at different positions are, Q how large
those of each part of the context are; both, and the variance of the noise, are the most likely ones for the rewards
(by expectation maximisation). So positions share what they have in common, and nothing is said of it beforehand.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.learning.evaluation.effect_variances import likely_prior
from topk_bandit.learning.evaluation.equations import solve
from topk_bandit.learning.evaluation.regression import RegressionRows, standardised, values_of_target

if TYPE_CHECKING:
    from collections.abc import Callable

    from scipy.sparse import csr_array

    from topk_bandit.learning.evaluation.equations import EffectPrior
    from topk_bandit.learning.evaluation.slate_log import OtherSlates, ShownSlates, SlateLog
    from topk_bandit.learning.evaluation.targets import Target

__all__ = ["Fold", "RewardModel", "learn_rewards"]

FloatArray = NDArray[np.float64]

FOLDS = 10
"""With more of them a policy that learns changes less within one; but each has less to balance."""

_MOST_COEFFICIENTS, _EXACT = 1_000_000, 1e-6


class Fold(NamedTuple):
    """Requests that follow each other: which, their rows of the regression, and from which others they are foreseen."""

    rows: slice
    features: RegressionRows
    foreseen_from: slice


@dataclass(frozen=True, eq=False)
class RewardModel:
    """What rewards of slates are expected to be.

    Attributes
    ----------
    features
        The rows of the slates that were shown.
    folds
        The log in `FOLDS` parts, one after the other.
    coefficients
        For each fold, learned from those before it: what b was shown in a fold may depend on its own rewards, but those
        before it do not depend on its noise. The first fold's are learned from the second one.
    """

    features: RegressionRows
    folds: tuple[Fold, ...]
    prior: EffectPrior
    coefficients: tuple[FloatArray, ...]

    def residuals(self, log: ShownSlates) -> FloatArray:
        """Return rewards minus what was expected of the slates shown, shape (N,)."""
        pairs = zip(self.folds, self.coefficients, strict=True)
        expected = [fold.features.apply(coefficients[:, None])[:, 0] for fold, coefficients in pairs]
        return np.asarray(log.rewards - np.concatenate(expected))

    def expect_target(self, log: SlateLog, target: Target) -> FloatArray:
        """Return what is expected of the target for each request, shape (N,)."""
        pairs = zip(self.folds, self.coefficients, strict=True)
        return np.concatenate([values_of_target(log, self.features, target, fold.rows, one) for fold, one in pairs])

    def expect_shown(self, shown: Callable[[slice], csr_array]) -> FloatArray:
        """Return what is expected of a policy for each request, shape (N,).

        Parameters
        ----------
        shown
            Returns, for some of the requests, how probably each position shows each item, shape (A, k n).
        """
        pairs = zip(self.folds, self.coefficients, strict=True)
        rows = ((replace(fold.features, shown=shown(fold.rows)), one) for fold, one in pairs)
        return np.concatenate([features.apply(one[:, None])[:, 0] for features, one in rows])


def learn_rewards(log: ShownSlates, others: OtherSlates | None = None) -> RewardModel:
    """Learn the direct model from a log of at least `FOLDS` requests, and from slates that were shown otherwise.

    Raises
    ------
    InvalidArgumentError
        There are fewer requests, or too many coefficients.
    """
    if len(log) < FOLDS:
        raise InvalidArgumentError("log", f"expected at least {FOLDS} requests, got {len(log)}")
    features = RegressionRows.of(log.n_items, standardised(log, log.contexts), log.slates)
    if features.n_coefficients > _MOST_COEFFICIENTS:
        text = f"{features.n_coefficients} coefficients, of positions times items times contexts"
        raise InvalidArgumentError("log", f"{text}, are more than {_MOST_COEFFICIENTS}")
    edges = np.linspace(0, len(log), FOLDS + 1).astype(int).tolist()
    parts = [slice(*pair) for pair in pairwise(edges)]
    folds = tuple(Fold(one, features.part(one), slice(one.start) if one.start else parts[1]) for one in parts)
    learned_from = _LearnedFrom.of(log, features, others)
    prior, z = likely_prior(learned_from.rewards, learned_from.features), None
    coefficients: list[FloatArray] = []
    for fold in folds:
        rows = learned_from.before(fold.rows.start) if fold.rows.start else np.arange(*edges[1:3])
        part = learned_from.features.part(rows)
        right = part.gather(learned_from.rewards[rows, None]) / prior.noise
        z = solve(part, prior, prior.gather(features.shape, right), rounding=_EXACT, start=z)
        coefficients.append(prior.spread(features.shape, z)[:, 0])
        coefficients[-1][features.shape.n_effects] += learned_from.mean  # a context's first number is its one
    return RewardModel(features, folds, prior, tuple(coefficients))


class _LearnedFrom(NamedTuple):
    """Rows, rewards less their mean, and how many requests of the log came before each row."""

    features: RegressionRows
    rewards: FloatArray
    mean: float
    requests_before: NDArray[np.intp]

    @classmethod
    def of(cls, log: ShownSlates, features: RegressionRows, others: OtherSlates | None) -> _LearnedFrom:
        rewards, before = log.rewards, np.arange(len(log))
        if others is not None:
            contexts = standardised(log, others.contexts)
            features = features.with_rows(RegressionRows.of(log.n_items, contexts, others.slates))
            rewards, before = np.concatenate([rewards, others.rewards]), np.concatenate([before, others.before])
        mean = float(rewards.mean())
        return cls(features, rewards - mean, mean, before)

    def before(self, request: int) -> NDArray[np.intp]:
        """Return the rows that came before a request of the log."""
        return np.flatnonzero(self.requests_before < request)
