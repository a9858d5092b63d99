"""The direct model: against a dense regression, and a density of all rewards."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from scipy.linalg import block_diag
from scipy.stats import multivariate_normal
from tests.long_forms import usual_or_long

from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.learning.evaluation import effect_variances, reward_model
from topk_bandit.learning.evaluation.estimators import balanced
from topk_bandit.learning.evaluation.regression import (
    RegressionRows,
    columns_of_target,
    standardised,
    target_row,
    values_of_target,
)
from topk_bandit.learning.evaluation.reward_model import learn_rewards
from topk_bandit.learning.evaluation.slate_log import OtherSlates, SlateLog, slate_log
from topk_bandit.learning.evaluation.targets import Target, always, make_target, uniform
from topk_bandit.learning.rankings import all_rankings, random_rankings

from .shops import indicators, logged, small_shop

if TYPE_CHECKING:
    from topk_bandit.learning.evaluation.equations import EffectPrior


def small_log(count: int = 120, *, n: int = 5) -> SlateLog:
    rng = np.random.default_rng(4)
    return logged(small_shop(rng, n=n), rng, count, candidates=4)


def dense_rows(log: SlateLog, slates: np.ndarray) -> np.ndarray:
    standard = (log.contexts[:, 1:] - log.contexts[:, 1:].mean(axis=0)) / log.contexts[:, 1:].std(axis=0)
    contexts = np.column_stack([np.ones(len(log)), standard])  # the log's own one tells nothing
    effects = indicators(slates, log.n_items)[:, :, None] * contexts[:, None, :]
    return np.column_stack([effects.reshape(len(log), -1), contexts])


def prior_covariance(prior: EffectPrior, n: int, *, selections: int = 0) -> np.ndarray:
    """Return the covariance of effects, of alpha, and of what items gain that a policy selects: so many policies."""
    effects = np.kron(prior.positions, np.kron(np.eye(n), prior.parts))
    level = np.eye(len(prior.parts)) * prior.level
    selected = np.kron(np.eye(selections), prior.positions) * 4.0 * len(prior.parts)
    return np.asarray(block_diag(effects, level, selected))


def test_a_fold_is_predicted_from_those_before_it() -> None:
    """The mean of a joint normal distribution."""
    log = small_log()
    model, rows = learn_rewards(log), dense_rows(log, log.slates)
    covariance = prior_covariance(model.prior, log.n_items)
    for fold, learned in zip(model.folds, model.coefficients, strict=True):
        before = slice(0, fold.rows.start) if fold.rows.start else model.folds[1].rows
        gram = rows[before] @ covariance @ rows[before].T + model.prior.noise * np.eye(len(rows[before]))
        expected = covariance @ rows[before].T @ np.linalg.solve(gram, log.rewards[before] - log.rewards.mean())
        np.testing.assert_allclose(rows @ learned, log.rewards.mean() + rows @ expected, atol=1e-4)


def test_learning_the_prior_makes_rewards_more_likely(monkeypatch: pytest.MonkeyPatch) -> None:
    log = small_log()
    rows, likelihoods = dense_rows(log, log.slates), []
    for steps in (0, 1, 2, 4):
        monkeypatch.setattr(effect_variances, "_STEPS", steps)
        prior = learn_rewards(log).prior
        assert np.trace(prior.parts) == pytest.approx(len(prior.parts))
        covariance = rows @ prior_covariance(prior, log.n_items) @ rows.T + prior.noise * np.eye(len(log))
        likelihoods.append(multivariate_normal(cov=covariance).logpdf(log.rewards - log.rewards.mean()))
    assert (np.diff(likelihoods) > 0.0).all()


def test_the_mean_of_a_target_is_that_over_its_slates() -> None:
    log = small_log()
    rng, features = np.random.default_rng(0), learn_rewards(log).features
    coefficients = rng.normal(size=features.n_coefficients)
    slates = log.slates[:, None, ::-1]
    target = make_target(log, slates, np.full((len(log), 1), 0.3))
    found = values_of_target(log, features, target, slice(None), coefficients)
    doubted, means = rng.random(5), []
    for row in range(len(log)):
        every = all_rankings(np.flatnonzero(log.policy.eligible[row]), slate_size=2)
        chances = target_chances_of(target, every, row)
        of_each = [dense_rows(log, np.repeat(one[None], len(log), axis=0))[row] @ coefficients for one in every]
        assert found[row] == pytest.approx(chances @ of_each)
        # What a slate shows of the one listed, times a doubt of the item.
        means.append(chances @ (0.3 * np.isin(every, slates[row, 0]) * doubted[every]))
    assert target_row(log, features, target) @ coefficients == pytest.approx(found.mean())
    columns = columns_of_target(target, lambda some: doubted[some])
    np.testing.assert_allclose(columns, np.mean(means, axis=0))


def target_chances_of(target: Target, every: np.ndarray, row: int) -> np.ndarray:
    """Return the probabilities of all slates (A, k) of one request."""
    chances = np.full(len(every), float(target.uniform_share[row]) / len(every))
    for slate, chance in zip(target.slates[row], target.probabilities[row], strict=True):
        chances[(every == slate).all(axis=1)] += chance
    return chances


def test_balanced_weights_are_those_of_the_least_square_error() -> None:
    """In a dense system: noise, and what is left of the target's row times what the effects may be."""
    log = small_log()
    model, target = learn_rewards(log), always(log, log.policy.best[:, ::-1])
    every, prior = dense_rows(log, log.slates), model.prior
    contexts, n, size = every[:, -3:], log.n_items, 2
    wanted_slates, root, parts = target.slates[:, 0], np.linalg.eigh(prior.positions), np.linalg.cholesky(prior.parts)
    common = root.eigenvectors[:, -1] * np.sqrt(root.eigenvalues[-1])
    covariance = prior_covariance(prior, n, selections=1)
    missed, found = model.residuals(log), []
    for fold, coefficients in zip(model.folds, model.coefficients, strict=True):
        # What is not known of an item, were only it unknown, and the same at all positions.
        doubt = np.empty((len(log), n))
        of_parts = contexts @ parts
        for item in range(n):
            gram = np.eye(3)
            for row in range(*fold.foreseen_from.indices(len(log))):
                for place in np.flatnonzero(log.slates[row] == item):
                    gram += common[place] ** 2 * np.outer(of_parts[row], of_parts[row]) / prior.noise
            left = np.einsum("ac,cd,ad->a", of_parts, np.linalg.inv(gram), of_parts)
            doubt[:, item] = left / (of_parts**2).sum(axis=1)
        shows = np.take_along_axis(doubt, log.slates, axis=1)
        shows = shows * (log.slates[:, :, None] == wanted_slates[:, None, :]).any(axis=2)
        rows = np.column_stack([every, shows])[fold.rows]
        of_target = np.take_along_axis(doubt, wanted_slates, axis=1)
        wanted = np.column_stack([dense_rows(log, wanted_slates), of_target]).mean(axis=0)
        count, noise, residuals = len(rows), prior.noise, missed[fold.rows]
        gram = rows @ covariance @ rows.T + noise * np.eye(count)
        weights = count * np.linalg.solve(gram, rows @ covariance @ wanted)
        left = wanted - rows.T @ weights / count
        square, bias = (weights**2).mean(), left @ covariance @ left
        error = max(((weights * residuals) ** 2).mean(), square * (residuals**2).mean()) / count
        value = wanted[:-size] @ coefficients + (weights * residuals).mean()
        found.append((value, error, bias, square * noise / count + bias, left))
    values, errors, biases, expected = np.array([one[:4] for one in found]).T
    shares = 1.0 / expected / (1.0 / expected).sum()
    left = shares @ np.array([one[4] for one in found])
    error = np.sqrt(shares**2 @ errors + (shares @ np.sqrt(biases)) ** 2)
    gain = np.sqrt(left[-size:] @ covariance[-size:, -size:] @ left[-size:])
    estimate = balanced(log, target, model)
    assert estimate.value == pytest.approx(shares @ values, abs=1e-2 * error)
    assert estimate.standard_error == pytest.approx(error, rel=1e-2)
    assert estimate.high - estimate.low == pytest.approx(2.0 * (1.959963985 * error + gain), rel=1e-2)


def test_slates_that_were_shown_otherwise_are_learned_from_once_they_came() -> None:
    log = small_log()
    rng = np.random.default_rng(3)
    others = OtherSlates(log.contexts[:40], log.slates[40:80], rng.normal(size=40), np.full(40, 60))
    alone, beside = learn_rewards(log), learn_rewards(log, others)
    rows = dense_rows(log, log.slates)
    more = RegressionRows.of(5, standardised(log, others.contexts), others.slates)
    more_rows = more.apply(np.eye(more.n_coefficients))
    covariance = prior_covariance(beside.prior, 5)
    mean = np.concatenate([log.rewards, others.rewards]).mean()
    for fold, learned in zip(beside.folds, beside.coefficients, strict=True):
        if not fold.rows.start > 0:
            continue
        known, rewards = rows[fold.foreseen_from], log.rewards[fold.foreseen_from]
        if fold.rows.start > 60:
            known, rewards = np.vstack([known, more_rows]), np.concatenate([rewards, others.rewards])
        gram = known @ covariance @ known.T + beside.prior.noise * np.eye(len(known))
        expected = covariance @ known.T @ np.linalg.solve(gram, rewards - mean)
        np.testing.assert_allclose(rows @ learned, mean + rows @ expected, atol=1e-4)
    assert len(alone.features) == len(beside.features) == len(log)


def test_rewards_without_noise_are_predicted_in_full() -> None:
    rng = np.random.default_rng(9)
    shop = small_shop(rng, noise=0.0)
    log = logged(shop, rng, 3000)
    model = learn_rewards(log)
    for target in (uniform(log), always(log, log.slates[::-1])):
        slates = target.slates[:, 0] if target.slates.shape[1] else None
        truth = 0.0
        if slates is not None:
            truth = shop.expected(log.contexts, slates).mean()
        else:
            drawn = [random_rankings(np.arange(8), slate_size=2, count=len(log), rng=rng) for _ in range(200)]
            truth = np.mean([shop.expected(log.contexts, one).mean() for one in drawn])
        assert model.expect_target(log, target).mean() == pytest.approx(truth, abs=0.03)


@pytest.mark.long_form
def test_rewards_that_only_count_items_are_predicted_whatever_was_shown() -> None:
    """Without noise, and alike at every position: the likelihood wants a covariance of positions that is singular."""
    for seed in usual_or_long([1, 7, 19, 43], long=range(200)):  # 7 is singular but for what is done about it
        rng = np.random.default_rng(seed)
        count = int(rng.integers(40, 215))
        cut = int(rng.integers(count))
        best = np.array([rng.permutation(6)[:3]] * count, dtype=np.int32)
        best[cut:] = rng.permutation(6)[:3]
        slates = best.copy()
        for row in slates:
            if rng.random() < 0.05:
                row[:] = rng.permutation(6)[:3]
            elif rng.random() < 0.2:
                row[rng.integers(3)] = rng.choice([item for item in range(6) if item not in row])
        rewards = np.isin(slates, rng.permutation(6)[:2]).sum(axis=1).astype(float)
        shown = {"best": best, "near_share": 0.04, "uniform_share": 0.01}
        log = slate_log(np.ones((count, 1)), np.ones((count, 6), dtype=bool), slates, rewards, **shown)
        model = learn_rewards(log)
        assert np.abs(model.residuals(log)[count // 2 :]).mean() <= rewards.std() + 1e-9


def test_what_is_too_little_or_too_much_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidArgumentError, match="at least 10 requests"):
        learn_rewards(small_log(9))
    monkeypatch.setattr(reward_model, "_MOST_COEFFICIENTS", 20)
    with pytest.raises(InvalidArgumentError, match=r"33 coefficients.* more than 20"):
        learn_rewards(small_log())


def test_rewards_that_are_all_equal_are_expected_of_every_slate() -> None:
    log, policy = small_log(), small_log().policy
    equal = slate_log(
        log.contexts,
        policy.eligible,
        log.slates,
        np.ones(len(log)),
        best=policy.best,
        near_share=0.1,
        uniform_share=0.1,
    )
    model = learn_rewards(equal)
    np.testing.assert_allclose(model.expect_target(equal, uniform(equal)), 1.0, atol=1e-3)
    assert balanced(equal, uniform(equal), model).value == pytest.approx(1.0, abs=1e-3)
