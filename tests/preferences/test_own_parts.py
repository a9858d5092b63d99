"""Own parts of items beside what features tell: against dense algebra, and in made studies."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from scipy.stats import kendalltau
from tests.long_forms import usual_or_long

from topk_bandit.preferences import sampling
from topk_bandit.preferences.answers import Orderings
from topk_bandit.preferences.designs.optimal import Feedback
from topk_bandit.preferences.inference import UtilityPosterior, learn_utilities
from topk_bandit.preferences.models import plackett_luce
from topk_bandit.preferences.models.own_parts import OwnPartsAnswers
from topk_bandit.preferences.questions import QuestionPool
from topk_bandit.preferences.utilities import Gaussian

STUDIES = usual_or_long(12, long=50)


@pytest.mark.parametrize("spread", [1.0, 80.0], ids=["usual", "beyond exponentials"])
def test_the_mode_and_its_spread_are_those_of_a_feature_for_each_item(spread: float) -> None:
    """With queries: 3 rows of each of 7 items, of which two are never asked about."""
    rng = np.random.default_rng(1)
    items = np.tile(np.arange(7), 3)
    rows = spread * rng.normal(size=(21, 2))
    shown = [query * 7 + rng.permutation(5)[: 2 + number % 3] for query in range(3) for number in range(12)]
    rankings = Orderings.from_rankings([one.tolist() for one in shown], n_items=21)
    choices = Orderings.from_choices([int(one[-1]) for one in shown], [one.tolist() for one in shown], n_items=21)
    answers = rankings.join(choices)
    found = OwnPartsAnswers(rows, items, answers)
    mode = found.maximise(0.7, 0.4, start=rng.normal(size=7))
    np.testing.assert_array_equal(found.asked, np.arange(5))
    features = np.hstack([rows, np.eye(7)[items][:, :5]])
    dense = plackett_luce.fit(features, answers, prior=Gaussian(np.zeros(7), np.diag([0.7] * 2 + [0.4] * 5)))
    np.testing.assert_allclose(mode.beta, dense.posterior.mean, atol=1e-6)
    np.testing.assert_allclose(mode.covariance, dense.posterior.covariance, atol=1e-6)
    away = dense.posterior.mean**2 @ np.repeat([1 / 0.7, 1 / 0.4], [2, 5])
    log_det = np.linalg.slogdet(dense.posterior.covariance)[1] - 2 * np.log(0.7) - 5 * np.log(0.4)
    assert mode.log_marginal_likelihood == pytest.approx(dense.log_likelihood - 0.5 * away + 0.5 * log_det, abs=1e-5)


def study(
    residual: float, seed: int, *, n_items: int = 40, count: int = 300
) -> tuple[QuestionPool, np.ndarray, Orderings]:
    """Return a pool of items with 8 features, true utilities about their mean, and rankings of four drawn uniformly.

    The features' part of the utilities has a spread of 1, what they do not tell one of `residual`.
    """
    rng = np.random.default_rng([seed, n_items, count])
    features = rng.normal(size=(n_items, 8))
    told = features @ rng.normal(size=8)
    utilities = told / told.std() + residual * rng.normal(size=n_items)
    shown = rng.permuted(np.tile(np.arange(n_items), (count, 1)), axis=1)[:, :4]
    pool = QuestionPool.of(features, None, feedback=Feedback.RANKING)
    return pool, utilities - utilities.mean(), sampling.draw_rankings(utilities, shown, rng=rng)


@cache
def learned(residual: float, seed: int) -> UtilityPosterior:
    """Return what is learned of a study by features and own parts."""
    pool, _, answers = study(residual, seed)
    return pool.learn(answers)


def within(pool: QuestionPool, truth: np.ndarray, found: UtilityPosterior) -> tuple[float, float]:
    """Return the shares of utilities within one and two standard deviations."""
    utilities = found.utilities(pool.span.coordinates)
    off = np.abs(utilities.mean - truth) / utilities.standard_deviation
    return float((off < 1.0).mean()), float((off < 2.0).mean())


@pytest.mark.long_form
@pytest.mark.parametrize("residual", [0.3, 0.7, 1.0])
def test_true_utilities_are_as_near_as_is_said(residual: float) -> None:
    shares = []
    for seed in range(STUDIES):
        pool, truth, _ = study(residual, seed)
        shares.append(within(pool, truth, learned(residual, seed)))
    one, two = np.mean(shares, axis=0)
    assert 0.60 <= one <= 0.76
    assert 0.91 <= two <= 0.99


@pytest.mark.long_form
def test_where_features_tell_all_nothing_is_claimed_that_is_not_so() -> None:
    """The answers can't tell a small own part from none, so that spreads are rather too wide than too narrow."""
    shares, own = [], []
    for seed in range(STUDIES):
        pool, truth, answers = study(0.0, seed, count=1000)
        found = pool.learn(answers)
        own.append(found.own_variance)
        shares.append(within(pool, truth, found))
    one, two = np.mean(shares, axis=0)
    assert one >= 0.55  # errors of eight weights in each study, so that shares vary much
    assert two >= 0.91
    assert np.median(own) == 0.0


@pytest.mark.long_form
@pytest.mark.parametrize("residual", [0.3, 0.7])
def test_items_are_ordered_better_than_with_features_alone_and_without_features(residual: float) -> None:
    taus = []
    for seed in range(STUDIES):
        pool, truth, answers = study(residual, seed)
        without = QuestionPool.of(np.eye(40), None, feedback=Feedback.RANKING)
        alone = learn_utilities(pool.span.coordinates, answers, own_parts=False)
        ways = [(pool, learned(residual, seed)), (pool, alone), (without, without.learn(answers))]
        means = [found.utilities(of.span.coordinates).mean for of, found in ways]
        taus.append([kendalltau(mean, truth).statistic for mean in means])
    both, features, items = np.mean(taus, axis=0)
    assert both >= max(features, items)


def test_ranks_of_what_was_never_asked_about_follow_features_and_are_said_to_be_unsure() -> None:
    pool, truth, answers = study(0.7, 3)
    known = np.array([one for one in answers.items.reshape(-1, 4).tolist() if max(one) < 30])
    found = pool.learn(Orderings.from_rankings(known.tolist(), n_items=40)).utilities(pool.span.coordinates)
    assert np.corrcoef(found.mean[30:], truth[30:])[0, 1] > 0.5
    assert found.standard_deviation[30:].min() > 1.5 * found.standard_deviation[:30].mean()


@pytest.mark.parametrize("feedback", list(Feedback))
def test_items_without_features_have_no_parts_beside_their_own_coordinate(feedback: Feedback) -> None:
    queries = np.array([[1.0, 0.3], [1.0, -1.0]])
    assert not QuestionPool.of(np.eye(6), None, feedback=feedback).has_own_parts
    assert not QuestionPool.of(np.eye(6), queries, feedback=feedback).has_own_parts
    assert QuestionPool.of(np.eye(6)[:, :3], None, feedback=feedback).has_own_parts
    assert QuestionPool.of(np.eye(6), np.array([[-1.0], [1.0]]), feedback=feedback).has_own_parts
