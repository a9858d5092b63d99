"""Each model of a study by its name: against the model's own module, and against what people want."""

from __future__ import annotations

import numpy as np
import pytest

from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.domain.studies import MODELS_OF, STREAMS, AnswerKind, PreferenceModel
from topk_bandit.preferences import study_models
from topk_bandit.preferences.answers import Orderings
from topk_bandit.preferences.designs.optimal import Feedback
from topk_bandit.preferences.inference import learn_utilities
from topk_bandit.preferences.models import aggregation, variational
from topk_bandit.preferences.models.comparisons import Comparisons, Loss
from topk_bandit.preferences.questions import QuestionPool
from topk_bandit.preferences.study_models import LearnedUtilities, RatedLists, fit
from topk_bandit.preferences.tiers import TieredAnswers
from topk_bandit.preferences.utilities import Gaussian

RNG = np.random.default_rng(5)
ITEMS = RNG.normal(size=(12, 3))
QUERIES = RNG.normal(size=(2, 2))
OWN = RNG.normal(scale=0.5, size=12)
THETA = RNG.normal(size=(2, 3))


def pool_of(*, feedback: Feedback = Feedback.RANKING, queries: bool = False) -> QuestionPool:
    return QuestionPool.of(ITEMS, QUERIES if queries else None, feedback=feedback)


def truth_of(*, queries: bool) -> np.ndarray:
    """Return the utilities of all rows, query by query."""
    by_query = QUERIES @ THETA @ ITEMS.T if queries else (THETA[0] @ ITEMS.T)[None, :]
    return (by_query + OWN).reshape(-1)


def ranked(truth: np.ndarray, count: int, *, size: int = 4, seed: int = 1) -> TieredAnswers:
    """Return rankings by Plackett-Luce of random lists, each of one query."""
    rng = np.random.default_rng(seed)
    answers = []
    for number in range(count):
        first = 12 * (number % (len(truth) // 12))
        rows = first + rng.permutation(12)[:size]
        order = np.argsort(-(truth[rows] + rng.gumbel(size=size)))
        answers.append([[row] for row in rows[order].tolist()])
    return TieredAnswers.of(answers, n_items=len(truth))


def rated(truth: np.ndarray, count: int, *, noise: float = 0.5) -> RatedLists:
    rng = np.random.default_rng(2)
    lists = [(12 * (n % (len(truth) // 12)) + rng.permutation(12)[:4]).tolist() for n in range(count)]
    values = [(3.0 + truth[rows] + rng.normal(scale=noise, size=4)).tolist() for rows in lists]
    return RatedLists(lists, values, len(truth))


def correlate(learned: LearnedUtilities, truth: np.ndarray) -> float:
    return float(np.corrcoef(learned.utilities.mean[:12], truth[:12])[0, 1])


@pytest.mark.parametrize("queries", [False, True])
@pytest.mark.parametrize("model", MODELS_OF[AnswerKind.RANKING])
def test_every_model_of_orders_finds_what_people_want(model: PreferenceModel, *, queries: bool) -> None:
    truth, pool = truth_of(queries=queries), pool_of(queries=queries)
    learned = fit(model, pool, ranked(truth, 400))
    assert correlate(learned, truth) > (0.8 if model in STREAMS else 0.9)
    assert (learned.utilities.standard_deviation > 0.0).all()
    # Utilities are those of weights and own parts, but for residuals of an item that differ from query to query.
    made = pool.span.coordinates @ learned.weights + np.tile(learned.own, pool.n_queries)
    assert np.corrcoef(made, learned.utilities.mean)[0, 1] > (0.9 if queries else 1.0 - 1e-9)
    of_query = learned.of_query(pool.n_queries - 1)
    np.testing.assert_array_equal(of_query.mean, learned.utilities.mean[-12:])


@pytest.mark.parametrize("queries", [False, True])
@pytest.mark.parametrize("model", MODELS_OF[AnswerKind.RATINGS])
def test_every_model_of_ratings_finds_them(model: PreferenceModel, *, queries: bool) -> None:
    truth = truth_of(queries=queries)
    learned = fit(model, pool_of(feedback=Feedback.RATING, queries=queries), rated(truth, 200))
    assert correlate(learned, truth) > (0.8 if model in STREAMS else 0.95)
    assert abs(float(np.mean(learned.utilities.mean - 3.0 - truth))) < 0.25


def test_plackett_luce_and_pairwise_are_the_inference_of_orders() -> None:
    pool, answers = pool_of(), ranked(truth_of(queries=False), 80)
    rows = pool.span.coordinates
    whole = Orderings.from_rankings([[tier[0] for tier in one] for one in answers.answers], n_items=12)
    pairs = [(one[a][0], one[b][0]) for one in answers.answers for a in range(4) for b in range(a + 1, 4)]
    for model, orderings in (
        (PreferenceModel.PLACKETT_LUCE, whole),
        (PreferenceModel.PAIRWISE, Orderings.from_pairs(pairs, n_items=12)),
    ):
        expected = learn_utilities(rows, orderings).utilities(rows)
        found = fit(model, pool, answers).utilities
        np.testing.assert_array_equal(found.mean, expected.mean)
        np.testing.assert_array_equal(found.standard_deviation, expected.standard_deviation)


@pytest.mark.parametrize("bound", list(variational.Bound))
def test_a_variational_model_is_the_fit_of_weights_and_own_parts(bound: variational.Bound) -> None:
    pool, answers = pool_of(), ranked(truth_of(queries=False), 80)
    orderings = answers.to_orderings()
    laplace = pool.learn(orderings)
    assert laplace.own_variance > 0.0
    features = np.hstack([pool.span.coordinates, np.eye(12)])
    variances = [laplace.prior_variance] * 3 + [laplace.own_variance] * 12
    expected = variational.fit(features, orderings, prior=Gaussian(np.zeros(15), np.diag(variances)), bound=bound)
    about_the_mean = features.copy()
    about_the_mean[:, 3:] -= 1.0 / 12.0
    utilities = expected.posterior.utilities(about_the_mean)
    found = fit(PreferenceModel(f"variational_{bound}"), pool, answers).utilities
    np.testing.assert_allclose(found.mean, utilities.mean, atol=1e-9)
    np.testing.assert_allclose(found.standard_deviation, utilities.standard_deviation, atol=1e-9)


@pytest.mark.parametrize("loss", list(Loss))
def test_an_aggregation_is_that_of_all_pairs_and_a_stream_takes_a_step_for_each(loss: Loss) -> None:
    pool, answers = pool_of(), ranked(truth_of(queries=False), 60)
    pairs = [(one[b][0], one[a][0]) for one in answers.answers for a in range(4) for b in range(a + 1, 4)]
    comparisons = Comparisons.of(pairs, np.ones(len(pairs)), n_items=12)
    expected = aggregation.fit(pool.span.coordinates, comparisons, loss=loss).utilities(pool.span.coordinates)
    found = fit(PreferenceModel(f"aggregation_{loss}"), pool, answers).utilities
    np.testing.assert_allclose(found.mean, expected.mean - expected.mean.mean(), atol=1e-9)
    np.testing.assert_allclose(found.standard_deviation, expected.standard_deviation, rtol=1e-9)
    state = aggregation.Online.start(pool.span.coordinates, loss=loss, weights_ridge=0.02, residual_ridge=0.2)
    scores = state.observe(comparisons).scores
    found = fit(PreferenceModel(f"stream_{loss}"), pool, answers, stream_rate=0.2).utilities
    np.testing.assert_allclose(found.mean, scores - scores.mean(), atol=1e-9)


def with_ends(truth: np.ndarray, count: int, *, seed: int) -> TieredAnswers:
    """Return the best and the worst of lists of four, which were ranked by Plackett-Luce."""
    whole = ranked(truth, count, seed=seed).answers
    return TieredAnswers.of([[one[0], [*one[1], *one[2]], one[3]] for one in whole], n_items=12)


def test_the_best_and_the_worst_of_lists_are_learned_without_bias() -> None:
    """They are near those of the whole rankings; with independent choices they would be spread a tenth too far."""
    truth, pool = truth_of(queries=False), pool_of()
    learned = fit(PreferenceModel.PLACKETT_LUCE, pool, with_ends(truth, 3000, seed=4)).utilities
    whole = fit(PreferenceModel.PLACKETT_LUCE, pool, ranked(truth, 3000, seed=4)).utilities.mean
    assert abs(float(learned.mean @ whole / (whole @ whole)) - 1.0) < 0.03
    one, other = (fit(PreferenceModel.PLACKETT_LUCE, pool, with_ends(truth, 300, seed=4)).utilities for _ in range(2))
    np.testing.assert_array_equal(one.mean, other.mean)


@pytest.mark.slow
def test_spreads_from_ties_are_those_of_repeated_studies() -> None:
    truth, pool = truth_of(queries=False), pool_of()
    above, within = truth - truth.mean(), []
    for seed in range(40):
        learned = fit(PreferenceModel.PLACKETT_LUCE, pool, with_ends(truth, 200, seed=seed)).utilities
        within.append(np.abs(learned.mean - above) / learned.standard_deviation)
    shares = [float(np.mean(np.array(within) < limit)) for limit in (1.0, 2.0)]
    assert 0.58 < shares[0] < 0.8
    assert shares[1] > 0.88


def test_ratings_are_learned_in_whatever_unit_they_come() -> None:
    pool, plain = pool_of(feedback=Feedback.RATING), rated(truth_of(queries=False), 50)
    large = RatedLists(plain.lists, [[1000.0 * one for one in row] for row in plain.values], plain.n_items)
    for model in MODELS_OF[AnswerKind.RATINGS]:
        one, other = fit(model, pool, plain).utilities, fit(model, pool, large).utilities
        np.testing.assert_allclose(1000.0 * one.mean, other.mean, rtol=1e-6)
        np.testing.assert_allclose(1000.0 * one.standard_deviation, other.standard_deviation, rtol=1e-6)


@pytest.mark.parametrize("model", MODELS_OF[AnswerKind.RANKING])
def test_without_answers_all_items_are_alike(model: PreferenceModel) -> None:
    for answers in ([], [[[0, 1, 2]]]):
        found = fit(model, pool_of(), TieredAnswers.of(answers, n_items=12)).utilities
        np.testing.assert_allclose(found.mean, 0.0, atol=1e-12)
        assert (found.standard_deviation > 0.0).all()


def test_a_model_of_other_answers_and_one_that_is_too_slow_are_refused_by_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    orders, ratings = ranked(truth_of(queries=False), 3), rated(truth_of(queries=False), 3)
    for model, answers in (
        (PreferenceModel.LEAST_SQUARES, orders),
        (PreferenceModel.PLACKETT_LUCE, ratings),
        (PreferenceModel.AGGREGATION_LOGISTIC, ratings),
    ):
        with pytest.raises(InvalidArgumentError, match="model"):
            fit(model, pool_of(), answers)
    monkeypatch.setitem(study_models._MOST_WORK, variational.Bound.TILTED, 1e3)
    with pytest.raises(InvalidArgumentError, match="model: variational_tilted is too slow for 3 orders"):
        fit(PreferenceModel.VARIATIONAL_TILTED, pool_of(), orders)
    fit(PreferenceModel.VARIATIONAL_QUADRATIC, pool_of(), orders)
