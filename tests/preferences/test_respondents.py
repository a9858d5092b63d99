"""Respondents: raters' levels against their definition, and people who answer at random against what they did."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.stats import kendalltau, multivariate_normal

from topk_bandit.domain.studies import PreferenceModel
from topk_bandit.preferences.answers import Ratings
from topk_bandit.preferences.designs.optimal import Feedback
from topk_bandit.preferences.held_out import compare_models
from topk_bandit.preferences.inference import RATER_VARIANCES, learn_utilities
from topk_bandit.preferences.questions import QuestionPool
from topk_bandit.preferences.respondents import Carelessness, RespondentNames
from topk_bandit.preferences.study_models import LearnedUtilities, RatedLists, fit
from topk_bandit.preferences.tiers import TieredAnswers

PLACKETT_LUCE, LEAST_SQUARES = PreferenceModel.PLACKETT_LUCE, PreferenceModel.LEAST_SQUARES
N_ITEMS, N_PEOPLE, SIZE = 30, 20, 4
STUDIES = {False: 5, True: 12}
"""Of rankings a study takes ten times as long as of ratings."""


def rated_by_strict_people(n_raters: int) -> tuple[np.ndarray, Ratings]:
    rng = np.random.default_rng(n_raters)
    rows, items = rng.normal(size=(9, 3)), rng.integers(9, size=60)
    raters = rng.integers(-1, n_raters, size=60)
    levels = np.append(1.5 * rng.normal(size=n_raters), 0.0)
    values = rows[items] @ [1.0, -1.0, 0.5] + 0.5 * rng.normal(size=9)[items] + levels[raters]
    return rows, Ratings(items, values + 0.5 * rng.normal(size=60), raters)


@pytest.mark.parametrize("n_raters", [2, 5, 12])
def test_raters_levels_are_normal_about_their_mean(n_raters: int) -> None:
    """The evidence, utilities and spreads are those of a dense Gaussian of all ratings, written down again."""
    rows, ratings = rated_by_strict_people(n_raters)
    found = learn_utilities(rows, ratings)
    assert found.rater_variance in RATER_VARIANCES
    above = ratings.values - ratings.values.mean()
    columns = (ratings.raters[:, None] == np.arange(n_raters)).astype(float)
    centred = columns - columns.sum(axis=1, keepdims=True) / n_raters
    prior = found.prior_variance * rows @ rows.T + found.own_variance * np.eye(9)
    shape = prior[np.ix_(ratings.items, ratings.items)] + found.rater_variance * centred @ centred.T + np.eye(60)

    def surprise(log_noise: float) -> float:
        return -float(multivariate_normal.logpdf(above, cov=np.exp(log_noise) * shape))

    best = minimize_scalar(surprise, bounds=(-6.0, 4.0), method="bounded", options={"xatol": 1e-10})
    assert found.log_marginal_likelihood == pytest.approx(-best.fun, abs=1e-6)


def test_with_one_rater_or_none_that_is_named_nothing_changes() -> None:
    rows, ratings = rated_by_strict_people(2)
    plain = learn_utilities(rows, Ratings(ratings.items, ratings.values)).utilities(rows)
    for raters in (np.zeros(60, dtype=np.int64), np.full(60, -1)):
        one = learn_utilities(rows, Ratings(ratings.items, ratings.values, raters))
        np.testing.assert_allclose(one.utilities(rows).mean, plain.mean, atol=1e-9)
        np.testing.assert_allclose(one.utilities(rows).standard_deviation, plain.standard_deviation, atol=1e-9)


class Study(NamedTuple):
    """Answers of people, some of whom answer at random, and what each model makes of them."""

    utilities: np.ndarray
    is_careless: np.ndarray
    named: LearnedUtilities
    plain: LearnedUtilities

    def tau(self, learned: LearnedUtilities) -> float:
        return float(kendalltau(self.utilities, learned.utilities.mean).statistic)

    def coverage(self, learned: LearnedUtilities, deviations: float) -> float:
        truth = self.utilities - self.utilities.mean()
        off = np.abs(truth - learned.utilities.mean + learned.utilities.mean.mean())
        return float(np.mean(off <= deviations * learned.utilities.standard_deviation))


def study_of(seed: int, *, ratings: bool, careless: float, each: int) -> Study:
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(N_ITEMS, 5))
    utilities = 0.5 * features @ rng.normal(size=5) + 0.5 * rng.normal(size=N_ITEMS)
    is_careless = rng.random(N_PEOPLE) < careless
    people = np.repeat(np.arange(N_PEOPLE), each)
    lists = [rng.choice(N_ITEMS, SIZE, replace=False) for _ in people]
    pool = QuestionPool.of(features, None, feedback=Feedback.RATING if ratings else Feedback.RANKING)
    both = list(zip(people, lists, strict=True))
    felt = [(rng.permutation(utilities)[:SIZE] if is_careless[p] else utilities[one]) for p, one in both]
    if ratings:
        levels = 3.0 + rng.normal(size=N_PEOPLE)
        values = [(levels[p] + one + 0.7 * rng.normal(size=SIZE)).tolist() for p, one in zip(people, felt, strict=True)]
        said = [one.tolist() for one in lists]
        named, plain = RatedLists(said, values, N_ITEMS, people), RatedLists(said, values, N_ITEMS)
        model = LEAST_SQUARES
    else:
        drawn = [(0.0 if is_careless[p] else 1.0) * utilities[one] + rng.gumbel(size=SIZE) for p, one in both]
        orders = [[[row] for row in one[np.argsort(-noisy)].tolist()] for one, noisy in zip(lists, drawn, strict=True)]
        named = TieredAnswers.of(orders, n_items=N_ITEMS, respondents=people)
        plain, model = TieredAnswers.of(orders, n_items=N_ITEMS), PLACKETT_LUCE
    return Study(utilities, is_careless, fit(model, pool, named), fit(model, pool, plain))


@pytest.mark.parametrize("ratings", [False, True])
def test_people_who_answer_at_random_are_found_and_spreads_hold(ratings: bool) -> None:  # noqa: FBT001
    studies = [study_of(seed, ratings=ratings, careless=0.3, each=15) for seed in range(STUDIES[ratings])]
    careless = np.concatenate([one.named.careless for one in studies])
    is_careless = np.concatenate([one.is_careless for one in studies])
    assert (careless[is_careless] > 0.9).mean() > 0.5
    assert (careless[~is_careless] > 0.9).mean() < 0.02
    assert 0.60 <= np.mean([one.coverage(one.named, 1.0) for one in studies]) <= 0.76
    assert 0.91 <= np.mean([one.coverage(one.named, 2.0) for one in studies]) <= 0.99
    assert np.mean([one.coverage(one.plain, 1.0) for one in studies]) < 0.5
    gains = [one.tau(one.named) - one.tau(one.plain) for one in studies]
    assert np.mean(gains) > 2.0 * np.std(gains, ddof=1) / np.sqrt(len(gains))


@pytest.mark.parametrize("ratings", [False, True])
def test_names_of_careful_people_cost_nothing(ratings: bool) -> None:  # noqa: FBT001
    studies = [study_of(seed, ratings=ratings, careless=0.0, each=15) for seed in range(STUDIES[ratings])]
    assert (np.concatenate([one.named.careless for one in studies]) > 0.9).mean() < 0.01
    assert 0.60 <= np.mean([one.coverage(one.named, 1.0) for one in studies]) <= 0.76
    assert np.mean([one.tau(one.named) - one.tau(one.plain) for one in studies]) > -0.005


@pytest.mark.parametrize("model", [one for one in PreferenceModel if one is not LEAST_SQUARES])
def test_every_model_leaves_out_who_answers_at_random(model: PreferenceModel) -> None:
    """Five people agree on an order of six items, and one, who gives most answers, has no order; answers have ties."""
    rng = np.random.default_rng(0)
    pool = QuestionPool.of(np.eye(6), None, feedback=Feedback.RANKING)
    careful = [[[a], [b, c], [d]] for a, b, c, d in (sorted(rng.choice(6, 4, replace=False)) for _ in range(75))]
    random = [[[a], [b, c], [d]] for a, b, c, d in (rng.choice(6, 4, replace=False) for _ in range(75))]
    people = np.concatenate([np.repeat(np.arange(5), 15), np.full(75, 5)])
    learned = fit(model, pool, TieredAnswers.of(careful + random, n_items=6, respondents=people))
    assert learned.careless[5] > 0.99
    assert learned.careless[:5].max() < 0.05
    alone = fit(model, pool, TieredAnswers.of(careful, n_items=6))
    tolerance = 0.15 * np.ptp(alone.utilities.mean)
    np.testing.assert_allclose(learned.utilities.mean, alone.utilities.mean, atol=tolerance)


def test_models_are_compared_by_answers_of_the_careful() -> None:
    rng = np.random.default_rng(1)
    pool = QuestionPool.of(np.eye(5), None, feedback=Feedback.RANKING)
    orders = [[[int(row)] for row in sorted(rng.choice(5, 3, replace=False))] for _ in range(60)]
    orders += [[[int(row)] for row in rng.choice(5, 3, replace=False)] for _ in range(30)]
    people = np.append(np.repeat(np.arange(6), 10), np.full(30, 6))
    models = (PLACKETT_LUCE, PreferenceModel.AGGREGATION_LOGISTIC)
    named = compare_models(models, pool, TieredAnswers.of(orders, n_items=5, respondents=people))
    assert named == compare_models(models, pool, TieredAnswers.of(orders[:60], n_items=5))
    assert named[1] == 60


def test_odds_are_those_of_the_answers_and_of_the_share() -> None:
    """Two respondents of six are judged in the first turn: the others are judged by them."""
    people = np.array([0, 0, 5, -1, 2])
    before = Carelessness.before(people)
    np.testing.assert_allclose(before.careless, 0.1)
    assert before.leave_out(np.arange(5), 0).tolist() == [3, 4]
    agrees, contradicts = np.array([1.0, 2.0, -3.0, -50.0, 7.0]), np.array([-4.0, 1.0, 8.0, 50.0, 7.0])
    after = before.judge(agrees, contradicts, 0)
    for number, odds in ((0, 0.98 * np.exp(3.0) + 0.02 * np.exp(-3.0)), (5, 0.98 * np.exp(-3.0) + 0.02 * np.exp(8.0))):
        assert np.exp(after.nats[number]) == pytest.approx(odds)
    assert after.nats[[1, 2, 3, 4]].tolist() == [0.0] * 4
    judged = 1.0 / (1.0 + 9.0 * np.exp(after.nats))
    assert after.share == pytest.approx((1.0 + judged.sum()) / 16.0)
    assert after.careless == pytest.approx(1.0 / (1.0 + (1.0 / after.share - 1.0) * np.exp(after.nats)))


def test_somebody_is_always_careful_and_answers_of_nobody_always_count() -> None:
    certain = Carelessness(np.array([0, 1, 1, -1]), np.array([-60.0, -30.0]), 0.9)
    rng = np.random.default_rng(0)
    for _ in range(20):
        assert certain.draw_careful(rng).tolist() == [1, 2, 3]
    nobody = Carelessness.before(np.array([-1, -1]))
    assert nobody.draw_careful(rng).tolist() == [0, 1]


def test_few_ratings_accuse_nobody_and_levels_cost_nothing() -> None:
    """60 raters with one or two ratings each, all careful."""
    careless, gains = list[float](), list[float]()
    for seed in range(12):
        rng = np.random.default_rng(seed)
        features = rng.normal(size=(N_ITEMS, 5))
        utilities = 0.5 * features @ rng.normal(size=5) + 0.5 * rng.normal(size=N_ITEMS)
        people, items = np.repeat(np.arange(60), 2), rng.integers(N_ITEMS, size=120)
        values = [[one] for one in (utilities[items] + 0.7 * rng.normal(size=120)).tolist()]
        pool = QuestionPool.of(features, None, feedback=Feedback.RATING)
        lists = [[row] for row in items.tolist()]
        named, plain = (fit(LEAST_SQUARES, pool, RatedLists(lists, values, N_ITEMS, one)) for one in (people, None))
        careless += named.careless.tolist()
        gains.append(float(np.corrcoef(utilities, named.utilities.mean)[0, 1]))
        gains[-1] -= float(np.corrcoef(utilities, plain.utilities.mean)[0, 1])
    assert np.mean(np.array(careless) > 0.5) < 0.03
    assert max(careless) < 0.95
    assert np.mean(gains) > -0.02


def test_nobody_is_judged_by_their_own_answers() -> None:
    """Guesses of one person, or of all, are no evidence against that person, nor for."""
    rng = np.random.default_rng(0)
    pool = QuestionPool.of(np.eye(8), None, feedback=Feedback.RANKING)
    for n_people in (1, 12):
        orders = [[[int(row)] for row in rng.choice(8, 4, replace=False)] for _ in range(20 * n_people)]
        people = np.repeat(np.arange(n_people), 20)
        careless = fit(PLACKETT_LUCE, pool, TieredAnswers.of(orders, n_items=8, respondents=people)).careless
        assert careless[0] == pytest.approx(0.1, abs=1e-9) or n_people > 1
        assert np.median(careless) > 0.05


def test_who_contradicts_all_others_does_not_guess() -> None:
    rng = np.random.default_rng(2)
    pool = QuestionPool.of(np.eye(8), None, feedback=Feedback.RANKING)
    orders = [[[int(row)] for row in sorted(rng.choice(8, 4, replace=False))] for _ in range(150)]
    orders += [[[int(row)] for row in sorted(rng.choice(8, 4, replace=False))[::-1]] for _ in range(15)]
    people = np.repeat(np.arange(11), 15)
    careless = fit(PLACKETT_LUCE, pool, TieredAnswers.of(orders, n_items=8, respondents=people)).careless
    assert careless.max() < 0.1


def test_respondents_are_numbered_by_their_first_answers() -> None:
    names = RespondentNames(["b", "", "a", "b"])
    assert names.numbers is not None
    assert (names.distinct, names.numbers.tolist()) == (("b", "a"), [0, -1, 1, 0])
    described = names.describe(np.array([0.2, 0.7]))
    assert [(one.respondent, one.answered, one.careless) for one in described] == [("a", 1, 0.7), ("b", 2, 0.2)]
    assert RespondentNames(["", ""]).numbers is None
