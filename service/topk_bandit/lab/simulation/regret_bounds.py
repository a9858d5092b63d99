"""Bounds on cumulative regret (the paper's Table 3, Theorem 3 and Proposition 1), the information gain, and its growth.

Over T rounds, with noise of standard deviation xi and I(y; f) = 1/2 log det(I + xi^-2 K) the information gain of what
was played, Proposition 1 bounds the regret with a probability of 1 - delta by::

    sqrt(C_1 T gamma_T beta_T) + 2
    beta_T = 2 log(|X| T^2 pi^2 / (6 delta))            if f is drawn from the prior (Assumption 1)
    beta_T = 2 B^2 + 300 gamma_T ln^3(T / delta)        if the norm of f is at most B (Assumption 2)

gamma_T is the largest gain of any T slates and contexts. The gain of what was played may stand for it: the proof adds
up the variances of what was played, and needs no more than their gain. C_1 = 8 / log(1 + xi^-2) is for k(x, x) <= 1;
where k(x, x) = c.c <= v it is 8 v / log(1 + v xi^-2).

The bounds are for players who use this beta_T and learn each reward before the next choice. The paper plays with a
beta_t that is 4 to 40 times smaller than that of Assumption 1, and learns five rewards at a time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.learning.rankings import log_count, validated_rankings

if TYPE_CHECKING:
    from topk_bandit.lab.simulation.episodes import Player, Visit
    from topk_bandit.learning.kendall import KendallKernel
    from topk_bandit.learning.rankings import Rankings

__all__ = [
    "DELTA",
    "Assumption",
    "BoundSetting",
    "ClosedForms",
    "Growth",
    "Recorder",
    "closed_forms",
    "fitted_exponent",
    "information_gain",
    "least_norm",
    "regret_bound",
]

FloatArray = NDArray[np.float64]

DELTA = 0.1
"""The bounds hold with a probability of 0.9."""


class Assumption(IntEnum):
    """What is known of the expected reward f."""

    DRAWN_FROM_PRIOR = 1
    BOUNDED_NORM = 2


@dataclass(frozen=True, slots=True)
class BoundSetting:
    """What the bounds depend on.

    Attributes
    ----------
    n_items, slate_size, context_dim, n_contexts
        n, k, c and |C|.
    noise
        xi: standard deviation of a reward around its expectation.
    norm
        B; Assumption 1 has no use for it.
    largest_variance
        v: the largest c.c of a context.
    delta
        The bound may fail with this probability.
    """

    n_items: int
    slate_size: int
    context_dim: int
    n_contexts: int
    noise: float
    norm: float
    largest_variance: float = 1.0
    delta: float = DELTA

    def __post_init__(self) -> None:
        for name in ("n_items", "slate_size", "context_dim", "n_contexts", "noise", "largest_variance"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise InvalidArgumentError(name, f"expected a positive number, got {value}")
        if not (math.isfinite(self.norm) and self.norm >= 0.0):
            raise InvalidArgumentError("norm", f"expected at least 0, got {self.norm}")
        if not 0.0 < self.delta < 1.0:
            raise InvalidArgumentError("delta", f"expected more than 0 and less than 1, got {self.delta}")

    @property
    def constant(self) -> float:
        """C_1."""
        return 8.0 * self.largest_variance / math.log1p(self.largest_variance / self.noise**2)


def least_norm(contexts: FloatArray, best: FloatArray) -> float:
    """Return the least B that functions with these values can have: |f(c, pi)| <= B sqrt(c.c).

    Under Assumption 2 the other term of beta_T is a million and more, so that a larger B makes little difference.

    Parameters
    ----------
    contexts
        Shape (U, C), none of them zero.
    best
        The largest expected reward in each, shape (U,).
    """
    return float((np.abs(best) / np.linalg.norm(contexts, axis=1)).max())


def regret_bound(gain: FloatArray, setting: BoundSetting, assumption: Assumption) -> FloatArray:
    """Return Proposition 1's bound on the cumulative regret after 1, 2, ..., T rounds, shape (T,).

    Parameters
    ----------
    gain
        Information gain after as many rounds, shape (T,).
    setting, assumption
        What the bound depends on.
    """
    rounds = np.arange(1, len(gain) + 1)
    if assumption is Assumption.DRAWN_FROM_PRIOR:
        log_arms = math.log(setting.n_contexts) + log_count(setting.n_items, setting.slate_size)
        beta = 2.0 * (log_arms + _log_rounds(rounds, setting.delta))
    else:
        beta = 2.0 * setting.norm**2 + 300.0 * gain * np.log(rounds / setting.delta) ** 3
    return np.asarray(np.sqrt(setting.constant * rounds * gain * beta) + 2.0)


def _log_rounds(rounds: NDArray[np.integer], delta: float) -> FloatArray:
    """Return log(T^2 pi^2 / (6 delta))."""
    return np.asarray(2.0 * np.log(rounds) + math.log(math.pi**2 / (6.0 * delta)))


class ClosedForms(NamedTuple):
    """Table 3 under one assumption: orders, without constants and the logarithms that O~ hides.

    Attributes
    ----------
    this_work
        With the kernels of this work, gamma_T of order n^2 c.
    srinivas
        With the identity kernel (Srinivas et al., 2010), gamma_T of order n^k c, as Table 3 prints it. Under
        Assumption 2 Appendix B.4 derives 300 n^k c where the table has 300 n^2 c.
    """

    this_work: float
    srinivas: float


def closed_forms(setting: BoundSetting, rounds: int, assumption: Assumption) -> ClosedForms:
    """Return Table 3's expressions after so many rounds, T >= 1."""
    if rounds < 1:
        raise InvalidArgumentError("rounds", f"expected at least 1, got {rounds}")
    n, c = float(setting.n_items), setting.context_dim
    if assumption is Assumption.DRAWN_FROM_PRIOR:
        beta = math.log(setting.n_contexts) + setting.slate_size
        beta += float(_log_rounds(np.array([rounds]), setting.delta)[0])
    else:
        beta = 2.0 * setting.norm**2 + 300.0 * n * n * c * math.log(rounds / setting.delta) ** 3
    root = math.sqrt(setting.constant * rounds * c * beta)
    return ClosedForms(n * root, n ** (setting.slate_size / 2.0) * root)


class Recorder:
    """Lets a player play, and keeps what it played.

    Parameters
    ----------
    player
        Does the playing.
    """

    def __init__(self, player: Player) -> None:
        self._player = player
        self._contexts: list[FloatArray] = []
        self._rankings: list[NDArray[np.int32]] = []

    @property
    def contexts(self) -> FloatArray:
        """The contexts of all rounds, shape (T, C)."""
        return np.array(self._contexts)

    @property
    def rankings(self) -> Rankings:
        """The slates of all rounds, shape (T, k)."""
        return np.array(self._rankings, dtype=np.int32)

    def choose(self, visit: Visit) -> NDArray[np.int32]:
        """Return what the player chooses."""
        ranking = self._player.choose(visit)
        self._contexts.append(visit.context)
        self._rankings.append(ranking)
        return ranking

    def observe(self, number: int, reward: float) -> None:
        """Let the player learn the reward."""
        self._player.observe(number, reward)

    def close(self, number: int) -> None:
        """Let the player learn the reward."""
        self._player.close(number)


def information_gain(kernel: KendallKernel, contexts: FloatArray, rankings: Rankings, *, noise: float) -> FloatArray:
    """Return 1/2 log det(I + xi^-2 K_t) of the first t = 1, ..., T slates, shape (T,): O(T^3) for all of them.

    Row by row the Cholesky factor of K_T + xi^2 I is that of each K_t + xi^2 I.

    Parameters
    ----------
    kernel
        Kernel of the rankings; that of slates and contexts is its product with c.c' (Eq. 6).
    contexts, rankings
        What was played, shapes (T, C) and (T, k).
    noise
        xi > 0.
    """
    _check_noise(noise)
    orders = validated_rankings(rankings, n_items=kernel.n_items, slate_size=kernel.slate_size)
    if len(contexts) != len(orders):
        raise InvalidArgumentError("contexts", f"expected one for each of {len(orders)} rankings, got {len(contexts)}")
    covariance = (contexts @ contexts.T) * kernel.gram(orders, orders) / noise**2
    lower = np.linalg.cholesky(covariance + np.eye(len(orders)))
    return np.asarray(np.log(np.diag(lower)).cumsum())


def _check_noise(noise: float) -> None:
    if not (math.isfinite(noise) and noise > 0.0):
        raise InvalidArgumentError("noise", f"expected a positive number, got {noise}")


class Growth(NamedTuple):
    """R_t = exp(intercept) t^exponent, by least squares in logarithms.

    Attributes
    ----------
    exponent, intercept
        Of the fit.
    error
        Standard error of the exponent if rounds were independent. Cumulative regrets are not, so it is too small; what
        exponents of several trials differ by tells more.
    r_squared
        Share of the variance of log R_t that the fit explains.
    from_round
        The fit is of the rounds from this one on, counted from 1.
    """

    exponent: float
    intercept: float
    error: float
    r_squared: float
    from_round: int


def fitted_exponent(cumulative: FloatArray, *, from_round: int) -> Growth:
    """Fit a power of t to cumulative regrets.

    Parameters
    ----------
    cumulative
        R_1, ..., R_T, shape (T,), positive from `from_round` on.
    from_round
        First round of the fit, from 1; at least three rounds must be left.
    """
    if not 1 <= from_round <= len(cumulative) - 2:
        raise InvalidArgumentError("from_round", f"expected 1 to {len(cumulative) - 2}, got {from_round}")
    later = cumulative[from_round - 1 :]
    if not (np.isfinite(later).all() and (later > 0.0).all()):
        raise InvalidArgumentError("cumulative", "expected positive numbers in the rounds that are fitted")
    x, y = np.log(np.arange(from_round, len(cumulative) + 1)), np.log(later)
    x_centred, y_centred = x - x.mean(), y - y.mean()
    spread, total = float(x_centred @ x_centred), float(y_centred @ y_centred)
    exponent = float(x_centred @ y_centred) / spread
    residual = y_centred - exponent * x_centred
    left = float(residual @ residual)
    error = math.sqrt(left / (len(x) - 2) / spread)
    r_squared = 1.0 - left / total if total > 0.0 else 1.0
    return Growth(exponent, float(y.mean() - exponent * x.mean()), error, r_squared, from_round)
