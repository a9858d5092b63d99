"""Utilities under a prior whose width the answers choose."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import log_expit
from scipy.stats import multivariate_normal, norm

from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.preferences import sampling
from topk_bandit.preferences.answers import Orderings, Ratings
from topk_bandit.preferences.designs.spans import span_of_differences, span_of_values
from topk_bandit.preferences.inference import OWN_VARIANCES, PRIOR_VARIANCES, learn_utilities
from topk_bandit.preferences.models.own_parts import OwnPartsAnswers


def answered(utilities: np.ndarray, count: int, rng: np.random.Generator) -> Orderings:
    shown = rng.permuted(np.tile(np.arange(len(utilities)), (count, 1)), axis=1)[:, :4]
    return sampling.draw_rankings(utilities, shown, rng=rng)


def test_evidence_of_pairs_is_near_the_integral() -> None:
    rows = np.array([[0.8], [-0.3], [-1.1]])
    pairs = np.array([[0, 1], [0, 2], [1, 2], [2, 1], [0, 2], [0, 1]] * 8)
    found = learn_utilities(rows, Orderings.from_pairs(pairs, n_items=3), own_parts=False)

    def likelihood(theta: float) -> float:
        return float(np.exp(log_expit((rows[pairs[:, 0], 0] - rows[pairs[:, 1], 0]) * theta).sum()))

    exact = {
        variance: quad(lambda t, v=variance: likelihood(t) * norm.pdf(t, scale=np.sqrt(v)), -8, 8, points=[0, 1, 2])[0]
        for variance in PRIOR_VARIANCES
    }
    assert found.prior_variance == max(exact, key=exact.__getitem__)
    np.testing.assert_allclose(found.log_marginal_likelihood, np.log(exact[found.prior_variance]), atol=0.05)


def test_evidence_of_pairs_of_two_items_with_own_parts_is_near_the_integral() -> None:
    """The one difference of utilities has the variance v |z1 - z2|^2 + 2 w."""
    rows, won, lost = np.array([[0.8], [-0.5]]), 45, 15
    pairs = np.array([[0, 1]] * won + [[1, 0]] * lost)
    answers = OwnPartsAnswers(rows, np.arange(2), Orderings.from_pairs(pairs, n_items=2))
    for variance in PRIOR_VARIANCES:
        for own in OWN_VARIANCES[1:6]:
            spread = np.sqrt(variance * 1.3**2 + 2.0 * own)
            exact = quad(
                lambda t, sd=spread: np.exp(won * log_expit(t) + lost * log_expit(-t)) * norm.pdf(t, scale=sd),
                *(-4, 4),
                points=[1.1],
            )[0]
            assert answers.maximise(variance, own).log_marginal_likelihood == pytest.approx(np.log(exact), abs=0.02)


@pytest.mark.parametrize("own_parts", [False, True])
def test_utilities_from_ratings_are_the_mixture_over_all_priors(*, own_parts: bool) -> None:
    """By densities and conditional distributions of the ratings themselves; two of the items are never rated."""
    rng = np.random.default_rng(5)
    rows, items = rng.normal(size=(9, 2)), rng.integers(7, size=40)
    values = rows[items] @ [1.0, -2.0] + rng.normal(size=9)[items] + 0.5 * rng.normal(size=40)
    found = learn_utilities(rows, Ratings.of(items.tolist(), values.tolist(), n_items=9), own_parts=own_parts)
    above, parts = values - values.mean(), []
    for ratio, own in product(PRIOR_VARIANCES, OWN_VARIANCES if own_parts else (0.0,)):
        prior = ratio * rows @ rows.T + own * np.eye(9)
        shape = np.eye(40) + prior[np.ix_(items, items)]
        noise = float(above @ np.linalg.solve(shape, above)) / 40
        density = multivariate_normal(np.zeros(40), noise * shape).logpdf(above) + np.log(np.sqrt(own) if own else 1.1)
        gain = np.linalg.solve(shape, prior[items]).T
        variances = noise * np.diag(prior - gain @ prior[items])
        parts.append((density, gain @ above, variances))
    densities, means, variances = (np.array(one) for one in zip(*parts, strict=True))
    weights = np.exp(densities - densities.max())[:, None] / np.exp(densities - densities.max()).sum()
    mean = (weights * means).sum(axis=0)
    spread = np.sqrt((weights * (variances + (means - mean) ** 2)).sum(axis=0))
    utilities = found.utilities(rows)
    np.testing.assert_allclose(utilities.mean, values.mean() + mean, atol=1e-2)
    np.testing.assert_allclose(utilities.standard_deviation, spread, rtol=2e-2)


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
