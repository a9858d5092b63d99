"""Models compared by answers that they did not learn from."""

from __future__ import annotations

import numpy as np
import pytest
from tests.preferences.test_study_models import pool_of, ranked, rated, truth_of

from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.domain.studies import MODELS_OF, AnswerKind, PreferenceModel
from topk_bandit.preferences import held_out
from topk_bandit.preferences.designs.optimal import Feedback
from topk_bandit.preferences.held_out import compare_models
from topk_bandit.preferences.study_models import RatedLists, fit
from topk_bandit.preferences.tiers import TieredAnswers

PAIRED = (PreferenceModel.PLACKETT_LUCE, PreferenceModel.PAIRWISE)


def plainly(answer: list[list[int]], utilities: np.ndarray) -> float:
    """Return the log-probability of a ranking, by its definition."""
    order = [tier[0] for tier in answer]
    return float(sum(utilities[item] - np.log(np.exp(utilities[order[n:]]).sum()) for n, item in enumerate(order)))


def test_a_score_is_the_mean_of_answers_left_out_by_their_lists() -> None:
    pool, answers = pool_of(), ranked(truth_of(queries=False), 60, size=2)
    lists = [tuple(sorted(tier[0] for tier in one)) for one in answers.answers]
    numbers = [list(dict.fromkeys(lists)).index(one) for one in lists]
    assert len(set(numbers)) < 60
    expected = {}
    for model in PAIRED:
        each = np.empty(60)
        for fold in range(5):
            kept = [n for n, number in enumerate(numbers) if number % 5 != fold]
            mean = fit(model, pool, answers.take(kept)).utilities.mean
            for n in set(range(60)).difference(kept):
                each[n] = plainly(answers.answers[n], mean)
        expected[model] = each
    scores, count = compare_models(PAIRED, pool, answers)
    assert count == 60
    best = expected[scores[0].model]
    for score in scores:
        own = expected[score.model]
        assert score.log_probability == pytest.approx(own.mean())
        assert score.behind == pytest.approx((best - own).mean())
        sums = np.array([(own - own.mean())[np.array(numbers) == one].sum() for one in sorted(set(numbers))])
        q = len(sums)
        assert score.standard_error == pytest.approx(np.sqrt(q / (q - 1) * (sums**2).sum()) / 60)
    assert scores[0].behind == 0.0
    assert scores[0].behind_standard_error == 0.0


def test_answers_about_few_lists_are_left_out_one_by_one() -> None:
    rng = np.random.default_rng(3)
    truth = truth_of(queries=False)
    answers = [[[row] for row in np.argsort(-(truth + rng.gumbel(size=12))).tolist()] for _ in range(40)]
    scores, count = compare_models(PAIRED, pool_of(), TieredAnswers.of(answers, n_items=12))
    assert count == 40
    at_random = -float(np.log(np.arange(1, 13)).sum())
    assert scores[0].log_probability > at_random + 1.0


def test_a_unit_of_its_own_is_no_disadvantage() -> None:
    """The squared loss has utilities of another scale: without its unit it would be far behind."""
    scores, _ = compare_models(MODELS_OF[AnswerKind.RANKING], pool_of(), ranked(truth_of(queries=False), 120))
    behind = {score.model: score.behind for score in scores}
    assert len(behind) == 8
    assert behind[PreferenceModel.AGGREGATION_SQUARED] < 0.1
    assert list(behind.values()) == sorted(behind.values())


def test_a_stream_of_few_steps_is_shown_to_be_worse() -> None:
    scores, _ = compare_models(
        MODELS_OF[AnswerKind.RATINGS], pool_of(feedback=Feedback.RATING), rated(truth_of(queries=False), 120)
    )
    assert scores[0].model is not PreferenceModel.STREAM_SQUARED
    assert scores[-1].behind > 2.0 * scores[-1].behind_standard_error


def test_ratings_are_judged_by_a_normal_density() -> None:
    answers = rated(truth_of(queries=False), 30)
    pool = pool_of(feedback=Feedback.RATING)
    lists = [tuple(sorted(one)) for one in answers.lists]
    numbers = np.array([list(dict.fromkeys(lists)).index(one) for one in lists])
    each = np.empty(30)
    for fold in range(5):
        kept = answers.take(np.flatnonzero(numbers % 5 != fold))
        mean = fit(PreferenceModel.LEAST_SQUARES, pool, kept).utilities.mean
        known = kept.to_ratings()
        variance = np.mean((known.values - mean[known.items]) ** 2)
        for number in np.flatnonzero(numbers % 5 == fold):
            errors = np.array(answers.values[number]) - mean[answers.lists[number]]
            each[number] = np.sum(-0.5 * errors**2 / variance - 0.5 * np.log(2 * np.pi * variance))
    [score], _ = compare_models([PreferenceModel.LEAST_SQUARES], pool, answers)
    assert score.log_probability == pytest.approx(each.mean())


def test_too_few_answers_compare_nothing_and_too_many_are_thinned(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = ranked(truth_of(queries=False), 30)
    assert compare_models(PAIRED, pool_of(), answers.take(range(9))) == ((), 0)
    monkeypatch.setattr(held_out, "MOST_COMPARED", 15)
    expected = compare_models(PAIRED, pool_of(), answers.take([round(n * 29 / 14 - 0.499) for n in range(15)]))
    assert compare_models(PAIRED, pool_of(), answers) == expected
    assert expected[1] == 15


def test_what_would_take_too_long_is_refused_or_thinned(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = ranked(truth_of(queries=False), 30)
    monkeypatch.setattr(held_out, "_MOST_WORK", 20 * 4 * 9.0)
    assert compare_models(PAIRED, pool_of(), answers)[1] == 20
    monkeypatch.setattr(held_out, "_MOST_WORK", 1.0)
    assert compare_models(PAIRED, pool_of(), answers)[1] == 10
    monkeypatch.setattr(held_out, "MOST_ITEMS_COMPARED", 11)
    with pytest.raises(InvalidArgumentError, match="compare: models are compared for at most 11 items"):
        compare_models(PAIRED, pool_of(), answers)


def test_ratings_of_single_items_are_compared_too() -> None:
    """Nothing is compared with anything else, and all ratings are equal."""
    alike = RatedLists([[n % 12] for n in range(24)], [[2.0]] * 24, 12)
    scores, count = compare_models(MODELS_OF[AnswerKind.RATINGS], pool_of(feedback=Feedback.RATING), alike)
    assert count == 24
    assert all(np.isfinite(score.log_probability) for score in scores)


@pytest.mark.slow
def test_the_standard_error_is_that_of_repeated_studies() -> None:
    """Over studies of new people about the same lists, the mean differs by about what one study says."""
    truth = truth_of(queries=False)
    found = [compare_models(PAIRED[:1], pool_of(), ranked(truth, 60, seed=seed))[0][0] for seed in range(40)]
    spread = np.std([score.log_probability for score in found], ddof=1)
    assert 0.7 < spread / np.mean([score.standard_error for score in found]) < 1.5
