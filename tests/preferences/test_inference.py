"""Utilities under a prior whose width the answers choose."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import log_expit
from scipy.stats import multivariate_normal, norm

from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.preferences import sampling
from topk_bandit.preferences.answers import Orderings, Ratings
from topk_bandit.preferences.designs.spans import span_of_differences, span_of_values
from topk_bandit.preferences.inference import PRIOR_VARIANCES, learn_utilities


def answered(utilities: np.ndarray, count: int, rng: np.random.Generator) -> Orderings:
    shown = rng.permuted(np.tile(np.arange(len(utilities)), (count, 1)), axis=1)[:, :4]
    return sampling.draw_rankings(utilities, shown, rng=rng)


def test_evidence_of_pairs_is_near_the_integral() -> None:
    rows = np.array([[0.8], [-0.3], [-1.1]])
    pairs = np.array([[0, 1], [0, 2], [1, 2], [2, 1], [0, 2], [0, 1]] * 8)
    found = learn_utilities(rows, Orderings.from_pairs(pairs, n_items=3))

    def likelihood(theta: float) -> float:
        return float(np.exp(log_expit((rows[pairs[:, 0], 0] - rows[pairs[:, 1], 0]) * theta).sum()))

    exact = {
        variance: quad(lambda t, v=variance: likelihood(t) * norm.pdf(t, scale=np.sqrt(v)), -8, 8, points=[0, 1, 2])[0]
        for variance in PRIOR_VARIANCES
    }
    assert found.prior_variance == max(exact, key=exact.__getitem__)
    np.testing.assert_allclose(found.log_marginal_likelihood, np.log(exact[found.prior_variance]), atol=0.05)


def test_evidence_of_ratings_is_the_density_of_the_ratings() -> None:
    rng = np.random.default_rng(5)
    rows = rng.normal(size=(6, 2))
    items = rng.integers(6, size=15)
    values = rows[items] @ [1.0, -2.0] + 0.5 * rng.normal(size=15)
    found = learn_utilities(rows, Ratings.of(items.tolist(), values.tolist(), n_items=6))
    above = values - values.mean()
    shape = np.eye(15) + found.prior_variance * rows[items] @ rows[items].T
    noise = float(above @ np.linalg.solve(shape, above)) / 15
    np.testing.assert_allclose(
        found.log_marginal_likelihood, multivariate_normal(np.zeros(15), noise * shape).logpdf(above)
    )
    expected = np.linalg.solve(rows[items].T @ rows[items] + np.eye(2) / found.prior_variance, rows[items].T @ above)
    np.testing.assert_allclose(found.utilities(rows).mean, values.mean() + rows @ expected)


def test_people_who_agree_get_a_wider_prior_than_people_who_toss_coins() -> None:
    rng = np.random.default_rng(1)
    span = span_of_differences(rng.normal(size=(20, 4)))
    theta = rng.normal(size=4)
    strong = learn_utilities(span.coordinates, answered(6.0 * span.coordinates @ theta, 200, rng))
    weak = learn_utilities(span.coordinates, answered(np.zeros(20), 200, rng))
    assert strong.prior_variance > 1.0 > weak.prior_variance
    assert np.corrcoef(strong.utilities(span.coordinates).mean, span.coordinates @ theta)[0, 1] > 0.98
    assert np.ptp(weak.utilities(span.coordinates).mean) < 1.0


def test_ratings_are_predicted_at_their_own_level() -> None:
    rng = np.random.default_rng(2)
    features = rng.normal(size=(30, 3)) + 10.0
    span = span_of_values(features)
    truth = 4.0 + (features - 10.0) @ [0.5, -0.3, 0.0]
    items = rng.integers(30, size=200)
    found = learn_utilities(span.coordinates, Ratings.of(items.tolist(), truth[items].tolist(), n_items=30))
    np.testing.assert_allclose(found.utilities(span.coordinates).mean, truth, atol=2e-3)


@pytest.mark.parametrize("answers", [Orderings.from_rankings([], n_items=3), Ratings.of([], [], n_items=3)])
def test_without_answers_nothing_is_preferred(answers: Orderings | Ratings) -> None:
    found = learn_utilities(np.eye(3), answers).utilities(np.eye(3))
    np.testing.assert_array_equal(found.mean, 0.0)
    assert (found.standard_deviation > 0.0).all()


def test_ratings_that_are_all_equal_are_no_error() -> None:
    found = learn_utilities(np.eye(2), Ratings.of([0, 1, 0], [3.0, 3.0, 3.0], n_items=2)).utilities(np.eye(2))
    np.testing.assert_allclose(found.mean, 3.0)


def test_an_item_without_coordinates_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match=r"^orderings: "):
        learn_utilities(np.eye(2), Orderings.from_pairs([[0, 2]], n_items=3))
