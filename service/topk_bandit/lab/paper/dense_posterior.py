"""The posterior of rewards by its textbook formulas (GP-TopK, Eqs. 34 and 35), with explicit features, in float64.

It shares no code with `learning`: a ranking's features are those of Claim 3, written out over all pairs of items, and
the kernel matrix is factorised anew for each posterior. Others are checked against it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.linalg import cho_factor, cho_solve, solve_triangular

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Rankings = NDArray[np.int32]

__all__ = ["DenseAtContext", "PairWeights", "pair_features", "pair_index"]


@dataclass(frozen=True, slots=True, eq=False)
class PairWeights:
    """The weights of the weighted convolutional kernel: w_s(a, b) for two shown items, wbar(a) for one; 0-based here.

    Attributes
    ----------
    both
        Shape (k, k).
    outside
        Shape (k,).
    norm
        Square norm of every ranking's features.
    """

    both: Floats
    outside: Floats
    norm: float

    @classmethod
    def of(cls, n_items: int, slate_size: int) -> PairWeights:
        """Return them for DCG's discounts."""
        discount = 1.0 / np.log(np.arange(2, n_items + 2))
        shown, hidden = discount[:slate_size], discount[slate_size:]
        both, outside = np.outer(shown, shown), shown * (hidden.mean() if len(hidden) else 0.0)
        norm = float(np.triu(both**2, 1).sum() + (n_items - slate_size) * (outside**2).sum())
        return cls(both, outside, norm)


def pair_index(n_items: int) -> NDArray[np.intp]:
    """Return the place of each pair of items i < j among all of them, shape (n, n); it is symmetric."""
    index = np.zeros((n_items, n_items), dtype=np.intp)
    first, second = np.triu_indices(n_items, 1)
    index[first, second] = index[second, first] = np.arange(len(first))
    return index


def pair_features(rankings: Rankings, n_items: int) -> Floats:
    """Return phi of each ranking (A, k), shape (A, n(n-1)/2), of norm 1: F_ij for all i < j (Claim 3)."""
    slate_size = rankings.shape[1]
    weights, first, second = PairWeights.of(n_items, slate_size), *np.triu_indices(n_items, 1)
    features = np.zeros((len(rankings), len(first)))
    for row, ranking in enumerate(rankings):
        place = np.full(n_items, slate_size)
        place[ranking] = np.arange(slate_size)
        low, high = np.minimum(place[first], place[second]), np.maximum(place[first], place[second])
        value = np.zeros(len(first))
        one = (low < slate_size) & (high == slate_size)
        both = high < slate_size
        value[one], value[both] = weights.outside[low[one]], weights.both[low[both], high[both]]
        features[row] = np.where(place[first] < place[second], value, -value)
    return features / math.sqrt(weights.norm)


@dataclass(frozen=True, slots=True, eq=False)
class DenseAtContext:
    """Mean offset + weights.phi and variance amplitude (prior - phi' explained phi) of rankings, in one context.

    Attributes
    ----------
    weights
        Shape (P,), for P pairs of items.
    whitened
        A with explained = A'A, shape (N, P): N rows of an observed or pending slate each.
    """

    weights: Floats
    whitened: Floats
    prior: float
    offset: float
    amplitude: float

    @classmethod
    def of(
        cls,
        contexts: Floats,
        features: Floats,
        rewards: Floats,
        *,
        context: Floats,
        noise_variance: float,
        offset: float = 0.0,
        amplitude: float = 1.0,
    ) -> DenseAtContext:
        """Return the posterior of N slates, of which the first ones are rewarded and the others pending.

        A pending slate has no reward, and counts for the variance only.

        Parameters
        ----------
        contexts
            Contexts of the slates, shape (N, C).
        features
            Features of the slates, shape (N, P).
        rewards
            Rewards of the first slates, at most N.
        context
            The context to predict for, shape (C,).
        noise_variance
            Variance of a reward's noise, as a part of the amplitude.
        offset
            Mean of the prior.
        amplitude
            Variance of the prior where context and features have norm 1.
        """
        n, gram = len(rewards), (contexts @ contexts.T) * (features @ features.T)
        noisy = gram + noise_variance * np.eye(len(gram))
        relevant = (contexts @ context)[:, None] * features
        residual = cho_solve(cho_factor(noisy[:n, :n], lower=True), rewards - offset)
        whitened = solve_triangular(np.linalg.cholesky(noisy), relevant, lower=True)
        return cls(residual @ relevant[:n], whitened, float(context @ context), offset, amplitude)

    def moments(self, features: Floats) -> tuple[Floats, Floats]:
        """Return mean and variance of rankings with these features (A, P), both of shape (A,)."""
        explained = ((features @ self.whitened.T) ** 2).sum(axis=1)
        return self.offset + features @ self.weights, self.amplitude * (self.prior - explained)
