"""Whether a shop has changed since earlier rewards came, so that they should count for less.

At a refit, y_r are the rewards since the last one and y_o all before. With the likelihood of what was learned from y_o
to a power w (a power prior, Ibrahim and Chen 2000; stabilised forgetting, Kulhavy and Zarrop 1993) the latest rewards
have the density

    p(y_r | y_o^w) = N(y_r; m_w, s^2 (K_r + sigma^2 I)),     K_r the covariance of the latest rows, given those before

under the kernel, noise, offset, slope and amplitude at hand. In a shop that stays as it was it is largest at w = 1:
what was learned tells the latest rewards best. Where preferences have changed it is wrong with certainty, and less of
it tells more. So the doubt grows by log p(y_r | y_o^w) - log p(y_r | y_o) - a, and is never below 0 (Page's cumulative
sum, 1954). Once it is above a limit, a change is noticed: earlier rows fade by the w of a short list that tells the
latest rewards best, and the doubt is 0 again.

Where preferences change, slates that were good are so no more, and rewards fall. A fall of all rewards alike looks the
same at first, and is taken for it. A rise of all rewards is none: p(y_r | y_o) is that of rewards that rose by the best
constant, if that is larger by what one more number costs (Schwarz 1978).

The Cholesky factor L of the covariance of all rows, the latest ones last, has all of it: the last entries of
L^-1 (y - b 1 - t h) are the latest rewards' standardised surprises, one given those before, and the last entries of its
diagonal their deviations.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.linalg import solve_triangular

from topk_bandit.learning.observed_rows import noisy_covariance

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from topk_bandit.learning.observed_rows import ObservedRows
    from topk_bandit.learning.posterior import Posterior

__all__ = ["Latest", "Noticed", "describe_latest", "notice_change"]

DOUBTED = 0.25
"""w by which doubt is measured."""

WEIGHTS = (DOUBTED, 0.03)
"""w among which the one is chosen once a change is noticed."""

DOUBT_TAKEN_OFF = 0.2
"""a: what an unchanged shop's doubt falls by at each refit beside what its rewards tell."""

MOST_DOUBT = 6.0
"""A change is noticed beyond it (`docs/decisions`)."""

FEWEST_LATEST, FEWEST_BEFORE = 16, 50
"""So many rewards tell of a change, and so many before them tell what it was like."""


class Noticed(NamedTuple):
    """What came of the latest rewards.

    Attributes
    ----------
    weight
        w for all that was learned before them: 1 unless a change was noticed.
    doubt
        In nats, from 0 to `MOST_DOUBT`.
    """

    weight: float
    doubt: float


def notice_change(posterior: Posterior, rows: ObservedRows, *, n_latest: int, doubt: float) -> Noticed:
    """Return whether the shop has changed since the rows before the latest ones.

    Parameters
    ----------
    posterior
        Whose kernel, noise, offset, slope and amplitude are taken.
    rows
        All that there are, the latest ones last.
    n_latest
        How many of them came since the last refit; they have one reward each.
    doubt
        What it was at the last refit.
    """
    if n_latest < FEWEST_LATEST or rows.n_rows - n_latest < FEWEST_BEFORE:
        return Noticed(1.0, doubt)
    as_it_was = describe_latest(posterior, rows, n_latest=n_latest)
    doubted = _describe_faded(posterior, rows, n_latest=n_latest, weight=DOUBTED)
    doubt = max(0.0, doubt + doubted.log_density - as_it_was.log_density - as_it_was.gain_of_rise - DOUBT_TAKEN_OFF)
    if doubt <= MOST_DOUBT:
        return Noticed(1.0, doubt)
    others = [_describe_faded(posterior, rows, n_latest=n_latest, weight=weight) for weight in WEIGHTS[1:]]
    return Noticed(WEIGHTS[int(np.argmax([one.log_density for one in (doubted, *others)]))], 0.0)


class Latest(NamedTuple):
    """How well the earlier rewards predict the latest ones.

    Attributes
    ----------
    log_density
        Up to a constant.
    gain_of_rise
        By how much it is larger if all of the latest rewards rose by the same: 0 if they did not, or too little.
    """

    log_density: float
    gain_of_rise: float


def describe_latest(posterior: Posterior, rows: ObservedRows, *, n_latest: int) -> Latest:
    """Return how well the earlier rewards predict the latest ones; see `notice_change`."""
    known = rows.known_parts(posterior.kernel, posterior.noise_variance)
    factor = np.linalg.cholesky(
        noisy_covariance(posterior.kernel, rows, known, noise_variance=posterior.noise_variance)
    )
    rise = np.where(np.arange(rows.n_rows) < rows.n_rows - n_latest, 0.0, 1.0)
    columns = np.column_stack([_residuals(posterior, rows.centre_on(known).targets), rise])
    surprises, risen = solve_triangular(factor, columns, lower=True, check_finite=False)[-n_latest:].T
    log_density = -0.5 * (surprises @ surprises) / posterior.amplitude - np.log(np.diag(factor)[-n_latest:]).sum()
    together = max(0.0, float(risen @ surprises))
    gain = 0.5 * together**2 / float(risen @ risen) / posterior.amplitude - 0.5 * math.log(n_latest)
    return Latest(float(log_density), max(0.0, gain))


def _describe_faded(posterior: Posterior, rows: ObservedRows, *, n_latest: int, weight: float) -> Latest:
    return describe_latest(posterior, rows.fade_earlier(weight, n_latest=n_latest), n_latest=n_latest)


def _residuals(posterior: Posterior, targets: NDArray[np.float64]) -> NDArray[np.float64]:
    means = [posterior.offset, posterior.slope][: len(targets) - 1]
    return np.asarray(targets[0] - means @ targets[1:], dtype=np.float64)
