"""Draws from the posterior: affine functions of normal numbers, with the posterior's mean and covariance."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.learning.believed import Utilities
from tests.learning.dense import KINDS, WCK, WK, DenseGp, Kind, rankings_of, sample
from tests.learning.shaped import kind_of

from topk_bandit.learning.kendall import Shape
from topk_bandit.learning.observed_rows import compact
from topk_bandit.learning.posterior import Posterior
from topk_bandit.learning.rankings import all_rankings
from topk_bandit.learning.thompson import Normals, draw_from, draw_function

if TYPE_CHECKING:
    from numpy.typing import NDArray

    FloatArray = NDArray[np.float64]

N_ITEMS, SLATE_SIZE, CONTEXT_DIM, NOISE = 6, 3, 2, 0.2
EVERYTHING = np.arange(N_ITEMS)
SLATES = all_rankings(EVERYTHING, slate_size=SLATE_SIZE)
CONTEXT = np.array([0.6, -1.1])


def posterior_of(kind: Kind, *, count: int = 9, pending: int = 3, seed: int = 0) -> tuple[Posterior, DenseGp]:
    """Return a posterior, and the same one by the textbook."""
    rng = np.random.default_rng(seed)
    rows = sample(kind, rng, n_items=N_ITEMS, slate_size=SLATE_SIZE, context_dim=CONTEXT_DIM, count=count)
    contexts, rankings = rng.normal(size=(pending, CONTEXT_DIM)), rankings_of(N_ITEMS, SLATE_SIZE, pending, rng)
    start = Posterior.prior(kind.make(N_ITEMS, SLATE_SIZE), context_dim=CONTEXT_DIM, noise_variance=NOISE)
    posterior = start.observe(*rows.rows).show(contexts, rankings).rescale(offset=0.4, amplitude=2.5)
    gp = DenseGp(kind, N_ITEMS, NOISE, *rows.rows, contexts, rankings, offset=0.4, amplitude=2.5)
    return posterior, gp


def dense_covariance(gp: DenseGp) -> FloatArray:
    """Return the posterior covariance of all slates."""
    asked = np.tile(CONTEXT, (len(SLATES), 1)), SLATES
    prior, across = gp.covariance(asked, asked), gp.covariance(gp.shown, asked)
    return np.asarray(gp.amplitude * (prior - across.T @ np.linalg.solve(gp.noisy(gp.shown), across)))


def affine(posterior: Posterior) -> tuple[FloatArray, FloatArray]:
    """Return constant (A,) and matrix (A, normals) of what a draw's values at all slates are of its normals."""
    shapes = Normals.of(posterior, np.random.default_rng(0))
    columns = []
    for part in range(len(shapes)):
        for cell in np.ndindex(shapes[part].shape):
            unit = Normals(*map(np.zeros_like, shapes))
            unit[part][cell] = 1.0
            columns.append(draw_from(posterior, CONTEXT, EVERYTHING, unit).values(SLATES))
    zero = Normals(*map(np.zeros_like, shapes))
    constant = draw_from(posterior, CONTEXT, EVERYTHING, zero).values(SLATES)
    return constant, np.array(columns).T - constant[:, None]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_draws_have_exactly_the_mean_and_the_covariance_of_the_posterior(kind: Kind) -> None:
    posterior, gp = posterior_of(kind)
    constant, matrix = affine(posterior)
    np.testing.assert_allclose(constant, gp.predict(CONTEXT, SLATES).mean, atol=1e-10)
    np.testing.assert_allclose(matrix @ matrix.T, dense_covariance(gp), atol=1e-10)


def test_a_draw_has_the_constant_s_share_too() -> None:
    kind = kind_of(Shape(0.5, 0.3, 4.0))
    posterior, gp = posterior_of(kind)
    constant, matrix = affine(posterior)
    np.testing.assert_allclose(constant, gp.predict(CONTEXT, SLATES).mean, atol=1e-10)
    np.testing.assert_allclose(matrix @ matrix.T, dense_covariance(gp), atol=1e-10)


def test_a_draw_from_nothing_is_one_from_the_prior() -> None:
    posterior, gp = posterior_of(WCK, count=0, pending=0)
    constant, matrix = affine(posterior)
    np.testing.assert_array_equal(constant, np.full(len(SLATES), 0.4))
    np.testing.assert_allclose(matrix @ matrix.T, dense_covariance(gp), atol=1e-12)


def test_draws_are_affine_in_their_normals() -> None:
    posterior, _ = posterior_of(WCK)
    constant, matrix = affine(posterior)
    normals = Normals.of(posterior, np.random.default_rng(5))
    flat = np.concatenate([part.reshape(-1) for part in normals])
    values = draw_from(posterior, CONTEXT, EVERYTHING, normals).values(SLATES)
    np.testing.assert_allclose(values, constant + matrix @ flat, atol=1e-10)


@pytest.mark.parametrize("of", ["items", "contexts"])
def test_a_prior_mean_moves_draws_by_itself(of: str) -> None:
    rng = np.random.default_rng(1)
    utilities = Utilities.draw(rng, n_items=N_ITEMS, context_dim=CONTEXT_DIM, of=of)
    believed = utilities.prior_mean(WCK, SLATE_SIZE)
    kernel, rows = WCK.make(N_ITEMS, SLATE_SIZE), rankings_of(N_ITEMS, SLATE_SIZE, 8, rng)
    start = Posterior.prior(kernel, context_dim=CONTEXT_DIM, noise_variance=NOISE, prior_mean=believed)
    posterior = start.observe(rng.normal(size=(8, CONTEXT_DIM)), rows, rng.normal(size=8))
    posterior = posterior.rescale(offset=-0.3, amplitude=1.7, slope=0.8)
    moments = posterior.predict(CONTEXT, SLATES)
    constant, matrix = affine(posterior)
    np.testing.assert_allclose(constant, moments.mean, atol=1e-10)
    np.testing.assert_allclose((matrix * matrix).sum(axis=1), moments.variance, atol=1e-10)


def test_rows_that_are_sums_of_others_are_drawn_with_their_noise() -> None:
    rng = np.random.default_rng(2)
    # Three items have few slates: what was observed of them all folds into fewer rows with noise in common.
    rankings = rankings_of(3, SLATE_SIZE, 30, rng)
    kernel = WCK.make(N_ITEMS, SLATE_SIZE)
    plain = Posterior.prior(kernel, context_dim=CONTEXT_DIM, noise_variance=NOISE)
    plain = plain.observe(rng.normal(size=(30, CONTEXT_DIM)), rankings, rng.normal(size=30))
    folded = plain.refit(compact(kernel, plain.observed_rows), noise_variance=NOISE)
    assert folded.observed_rows.noise_shape is not None
    later = rng.normal(size=(2, CONTEXT_DIM)), rankings_of(N_ITEMS, SLATE_SIZE, 2, rng)
    answers = [affine(posterior.observe(*later, [0.1, 0.2]).show(*later)) for posterior in (plain, folded)]
    np.testing.assert_allclose(answers[0][0], answers[1][0], atol=1e-8)
    covariances = [matrix @ matrix.T for _, matrix in answers]
    np.testing.assert_allclose(covariances[0], covariances[1], atol=1e-8)


def test_draws_of_a_generator_have_the_moments_of_the_posterior() -> None:
    posterior, gp = posterior_of(WK)
    rng, count = np.random.default_rng(3), 2000
    values = np.array([draw_function(posterior, CONTEXT, EVERYTHING, rng).values(SLATES) for _ in range(count)])
    expected, covariance = gp.predict(CONTEXT, SLATES).mean, dense_covariance(gp)
    variance = np.diag(covariance)
    mean_errors = (values.mean(axis=0) - expected) / np.sqrt(variance / count)
    assert np.abs(mean_errors).max() < 4.5
    centred = values - expected
    errors = (centred.T @ centred / count - covariance) / np.sqrt(
        (np.outer(variance, variance) + covariance**2) / count
    )
    assert np.abs(errors).max() < 5.5


def test_some_items_have_the_values_of_all_items_and_the_same_draw() -> None:
    posterior, _ = posterior_of(WCK)
    some = np.array([0, 2, 3, 5])
    slates = all_rankings(np.arange(4), slate_size=SLATE_SIZE)
    left = draw_function(posterior, CONTEXT, some, np.random.default_rng(4))
    right = draw_function(posterior, CONTEXT, EVERYTHING, np.random.default_rng(4))
    np.testing.assert_array_equal(left.values(slates), right.values(some[slates]))
