"""Lemmas 1 to 6, against general optimisers and quadrature."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import minimize

from topk_bandit.lab.paper.quadratic_bound import (
    fit_paper_posterior,
    local_parameter_of_pair,
    local_parameters_of_choice,
)
from topk_bandit.preferences.answers import Orderings
from topk_bandit.preferences.utilities import Gaussian

PRIOR = Gaussian(np.array([0.3, -0.2]), np.array([[0.8, 0.1], [0.1, 0.5]]))
ROWS = np.array([[0.4, 1.0], [-0.7, 0.2], [1.3, -0.5], [0.1, 0.1]])
ANSWERS = Orderings.from_choices([0, 2, 1, 0], [[0, 1], [0, 1, 2, 3], [1, 2, 3], [0, 2]], n_items=4)


def log_sigmoid(x: np.ndarray) -> np.ndarray:
    return np.log(1.0 / (1.0 + np.exp(-x)))


def curvature(xi: np.ndarray) -> np.ndarray:
    return np.tanh(xi / 2.0) / (4.0 * xi)


def of_pair(rows: np.ndarray, theta: np.ndarray, zeta: float) -> float:
    """Eq. 30."""
    y = (rows[0] - rows[1]) @ theta
    return float(log_sigmoid(zeta) + (y - zeta) / 2.0 - curvature(zeta) * (y**2 - zeta**2))


def of_choice(rows: np.ndarray, theta: np.ndarray, alpha: float, xi: np.ndarray) -> float:
    """Eq. 34."""
    y = rows @ theta
    terms = log_sigmoid(xi) + (alpha - y - xi) / 2.0 - curvature(xi) * ((y - alpha) ** 2 - xi**2)
    return float(y[0] - alpha + terms.sum())


def expectation(function: object, q: Gaussian) -> float:
    """E_q of a quadratic function, by the four symmetric points that have the moments of q."""
    lower = np.linalg.cholesky(q.covariance) * math.sqrt(len(q.mean))
    points = [q.mean + sign * column for column in lower.T for sign in (1.0, -1.0)]
    return float(np.mean([function(point) for point in points]))


def choices() -> list[np.ndarray]:
    return [ROWS[ANSWERS.items[a:b]] for a, b in zip(ANSWERS.starts[:-1], ANSWERS.starts[1:], strict=True)]


def log_probability(theta: np.ndarray) -> float:
    return float(sum(rows[0] @ theta - np.log(np.exp(rows @ theta).sum()) for rows in choices()))


def test_lemma_1_both_bounds_are_below_the_log_probability() -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        theta, alpha, xi = 2.0 * rng.normal(size=2), rng.normal(), rng.uniform(0.1, 4.0, size=4)
        exact = ROWS[0] @ theta - np.log(np.exp(ROWS @ theta).sum())
        assert of_choice(ROWS, theta, alpha, xi) <= exact + 1e-12
        exact = ROWS[0] @ theta - np.log(np.exp(ROWS[:2] @ theta).sum())
        assert of_pair(ROWS[:2], theta, float(xi[0])) <= exact + 1e-12


def test_lemma_4_gives_the_best_zeta() -> None:
    def cost(log_zeta: np.ndarray) -> float:
        return -expectation(lambda theta: of_pair(ROWS[:2], theta, math.exp(log_zeta[0])), PRIOR)

    best = minimize(cost, [0.0], method="BFGS", options={"gtol": 1e-9})
    assert local_parameter_of_pair(ROWS[:2], PRIOR) == pytest.approx(math.exp(best.x[0]), rel=1e-5)


def test_lemma_5_goes_to_the_best_alpha_and_xi() -> None:
    def cost(free: np.ndarray) -> float:
        return -expectation(lambda theta: of_choice(ROWS, theta, free[0], np.exp(free[1:])), PRIOR)

    best = minimize(cost, np.zeros(5), method="BFGS", options={"gtol": 1e-9})
    alpha, xi = local_parameters_of_choice(ROWS, PRIOR, np.ones(4), steps=200)
    assert alpha == pytest.approx(best.x[0], abs=1e-5)
    np.testing.assert_allclose(xi, np.exp(best.x[1:]), rtol=1e-5)


def test_lemmas_3_and_6_no_gaussian_and_no_local_parameters_have_a_greater_bound() -> None:
    """By one general optimiser over the mean, a root of the covariance, and every zeta, alpha and xi."""
    sizes = [len(rows) for rows in choices()]

    def cost(free: np.ndarray) -> float:
        root = np.array([[math.exp(free[2]), 0.0], [free[3], math.exp(free[4])]])
        q, rest = Gaussian(free[:2], root @ root.T), free[5:]
        ratio = np.linalg.inv(PRIOR.covariance) @ q.covariance
        away = q.mean - PRIOR.mean
        value = -0.5 * (
            np.trace(ratio) - 2.0 - np.linalg.slogdet(ratio)[1] + away @ np.linalg.inv(PRIOR.covariance) @ away
        )
        for rows, size in zip(choices(), sizes, strict=True):
            own, rest = (rest[:1], rest[1:]) if size == 2 else (rest[: size + 1], rest[size + 1 :])
            if size == 2:
                value += expectation(lambda theta, r=rows, o=own: of_pair(r, theta, math.exp(o[0])), q)
            else:
                value += expectation(lambda theta, r=rows, o=own: of_choice(r, theta, o[0], np.exp(o[1:])), q)
        return -float(value)

    width = 5 + sum(1 if size == 2 else size + 1 for size in sizes)
    best = minimize(cost, np.zeros(width), method="BFGS", options={"gtol": 1e-7})
    found = fit_paper_posterior(ROWS, ANSWERS, prior=PRIOR)
    assert found.bounds[-1] == pytest.approx(-best.fun, abs=1e-6)
    np.testing.assert_allclose(found.posterior.mean, best.x[:2], atol=1e-3)
    assert (np.diff(found.bounds) >= -1e-12).all()


def test_the_bound_is_below_the_log_of_the_answers_probability() -> None:
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    lower = np.linalg.cholesky(PRIOR.covariance)
    evidence = sum(
        u * v * math.exp(log_probability(PRIOR.mean + lower @ np.array([a, b])))
        for a, u in zip(nodes, weights, strict=True)
        for b, v in zip(nodes, weights, strict=True)
    ) / (2.0 * math.pi)
    found = fit_paper_posterior(ROWS, ANSWERS, prior=PRIOR).bounds
    assert found[0] < found[-1] < math.log(evidence)


def test_a_ranking_is_its_successive_choices() -> None:
    ranking = Orderings.from_rankings([[2, 0, 3]], n_items=4)
    successive = Orderings.from_choices([2, 0], [[2, 0, 3], [0, 3]], n_items=4)
    one, other = (fit_paper_posterior(ROWS, these, prior=PRIOR) for these in (ranking, successive))
    np.testing.assert_array_equal(one.bounds, other.bounds)
