"""The variational posterior of Plackett-Luce weights, as its paper writes it (Lemmas 1 to 6).

A choice of c from m items has the log-probability x_c'theta - log sum_j exp(x_j'theta). With lambda(xi) =
tanh(xi / 2) / (4 xi) it is at least the quadratic function of theta (Lemma 1)::

    m = 2:  log s(zeta) + (x'theta - zeta) / 2 - lambda(zeta) ((x'theta)^2 - zeta^2),    x = x_c - x_other       Eq. 30
    m > 2:  x_c'theta - alpha + sum_j log s(xi_j) + (alpha - x_j'theta - xi_j) / 2
                                      - lambda(xi_j) ((x_j'theta - alpha)^2 - xi_j^2)                            Eq. 34

s being the logistic function. A sweep gives each choice its best zeta (Lemma 4), or alpha and xi in turns (Lemma 5),
and then takes the best q = N(mu, S) for all of them (Lemma 3). No sweep lowers the bound of the evidence (Lemma 6).

`preferences.models.variational` has the same bound with an alpha that is affine in theta, which is tighter and does not
change when all features of a choice are shifted, and a bound that is tighter still, which is its default.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from topk_bandit.preferences.utilities import Gaussian

if TYPE_CHECKING:
    from collections.abc import Iterator

    from topk_bandit.preferences.answers import Orderings

__all__ = ["PaperPosterior", "fit_paper_posterior", "local_parameter_of_pair", "local_parameters_of_choice"]

Floats = NDArray[np.float64]

_INNER_STEPS = 10


@dataclass(frozen=True, slots=True, eq=False)
class PaperPosterior:
    """A Gaussian posterior, and the bound of the log of the answers' probability after each sweep, in nats."""

    posterior: Gaussian
    bounds: Floats


@dataclass(frozen=True, slots=True, eq=False)
class _Quadratic:
    """linear'theta - theta'curvature theta / 2 + constant: the bound of one choice, or of many."""

    linear: Floats
    curvature: Floats
    constant: float

    def __add__(self, other: _Quadratic) -> _Quadratic:
        return _Quadratic(self.linear + other.linear, self.curvature + other.curvature, self.constant + other.constant)


def fit_paper_posterior(
    features: Floats, orderings: Orderings, *, prior: Gaussian, sweeps: int = 150
) -> PaperPosterior:
    """Return the posterior after a number of sweeps.

    Parameters
    ----------
    features
        For all items, shape (n, d).
    orderings
        The answers: choices and rankings, of which each is a number of choices.
    prior
        N(mu0, S0).
    sweeps
        How many, at least 1.
    """
    choices = [features[items] for items in _successive_choices(orderings)]
    xis = [np.ones(len(rows)) for rows in choices]
    q, bounds = prior, []
    for _ in range(sweeps):
        total = _Quadratic(np.zeros(features.shape[1]), np.zeros((features.shape[1],) * 2), 0.0)
        for number, rows in enumerate(choices):
            quadratic, xis[number] = (
                _bound_of_pair(rows, q) if len(rows) == 2 else _bound_of_choice(rows, q, xis[number])
            )
            total += quadratic
        q, bound = _best_gaussian(total, prior)
        bounds.append(bound)
    return PaperPosterior(q, np.array(bounds))


def local_parameter_of_pair(rows: Floats, q: Gaussian) -> float:
    """Return zeta = E_q[(x'theta)^2]^1/2 of a choice from two items (Lemma 4), the chosen one first."""
    x = rows[0] - rows[1]
    return math.sqrt(x @ q.covariance @ x + (x @ q.mean) ** 2)


def local_parameters_of_choice(
    rows: Floats, q: Gaussian, xi: Floats, *, steps: int = _INNER_STEPS
) -> tuple[float, Floats]:
    """Return alpha and xi of a choice from more than two items, after a number of steps from `xi` (Lemma 5).

    A step is alpha = ((m - 2) / 4 + sum_j lambda(xi_j) x_j'mu) / sum_j lambda(xi_j) (Eq. 22) and then
    xi_j = E_q[(x_j'theta - alpha)^2]^1/2 (Eq. 23).
    """
    means, variances = rows @ q.mean, np.einsum("ja,ab,jb->j", rows, q.covariance, rows)
    alpha = 0.0
    for _ in range(steps):
        weights = _curvature(xi)
        alpha = float(((len(rows) - 2) / 4.0 + weights @ means) / weights.sum())
        xi = np.sqrt(variances + (means - alpha) ** 2)
    return alpha, xi


def _bound_of_pair(rows: Floats, q: Gaussian) -> tuple[_Quadratic, Floats]:
    """Return Eq. 30 at its best zeta."""
    x, zeta = rows[0] - rows[1], np.array([local_parameter_of_pair(rows, q)])
    weight = _curvature(zeta)
    constant = _log_sigmoid(zeta) - zeta / 2.0 + weight * zeta**2
    return _Quadratic(x / 2.0, 2.0 * weight * np.outer(x, x), float(constant[0])), zeta


def _bound_of_choice(rows: Floats, q: Gaussian, xi: Floats) -> tuple[_Quadratic, Floats]:
    """Return Eq. 34 at the alpha and xi of Lemma 5, and that xi."""
    alpha, xi = local_parameters_of_choice(rows, q, xi)
    weights = _curvature(xi)
    linear = rows[0] + rows.T @ (2.0 * weights * alpha - 0.5)
    terms = _log_sigmoid(xi) + (alpha - xi) / 2.0 - weights * (alpha**2 - xi**2)
    return _Quadratic(linear, 2.0 * (rows.T * weights) @ rows, float(terms.sum()) - alpha), xi


def _best_gaussian(total: _Quadratic, prior: Gaussian) -> tuple[Gaussian, float]:
    """Return the best q (Lemma 3): S^-1 = S0^-1 + curvature, S^-1 mu = S0^-1 mu0 + linear; and its bound (Eq. 47)."""
    before = np.linalg.inv(prior.covariance)
    precision = before + total.curvature
    covariance = np.asarray(np.linalg.inv(precision), dtype=np.float64)
    mean = covariance @ (before @ prior.mean + total.linear)
    log_ratio = np.linalg.slogdet(covariance)[1] - np.linalg.slogdet(prior.covariance)[1]
    bound = total.constant + 0.5 * (log_ratio + mean @ precision @ mean - prior.mean @ before @ prior.mean)
    return Gaussian(np.asarray(mean, dtype=np.float64), covariance), float(bound)


def _successive_choices(orderings: Orderings) -> Iterator[NDArray[np.int64]]:
    """Yield the items of every choice, the chosen one first."""
    for answer, places in enumerate(orderings.places):
        items = orderings.items[orderings.starts[answer] : orderings.starts[answer + 1]]
        for place in range(places):
            yield items[place:]


def _curvature(xi: Floats) -> Floats:
    """Return lambda(xi)."""
    return np.asarray(np.tanh(xi / 2.0) / (4.0 * xi))


def _log_sigmoid(values: Floats) -> Floats:
    return -np.logaddexp(0.0, -values)
