"""The direct model: against a dense regression, and a density of all rewards."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.learning.evaluation import reward_model
from topk_bandit.learning.evaluation.estimators import balanced
from topk_bandit.learning.evaluation.reward_model import EffectPrior, learn_rewards
from topk_bandit.learning.evaluation.slate_log import SlateLog, slate_log
from topk_bandit.learning.evaluation.targets import always, make_target, uniform
from topk_bandit.learning.rankings import all_rankings, random_rankings

from .shops import indicators, logged, small_shop


def small_log(count: int = 120, *, n: int = 5) -> SlateLog:
    rng = np.random.default_rng(4)
    return logged(small_shop(rng, n=n), rng, count, candidates=4)


def dense_rows(log: SlateLog, slates: np.ndarray) -> np.ndarray:
    standard = (log.contexts[:, 1:] - log.contexts[:, 1:].mean(axis=0)) / log.contexts[:, 1:].std(axis=0)
    contexts = np.column_stack([np.ones(len(log)), standard])  # the log's own one tells nothing
    effects = indicators(slates, log.n_items)[:, :, None] * contexts[:, None, :]
    return np.column_stack([effects.reshape(len(log), -1), contexts])


def prior_covariance(prior: EffectPrior, n: int) -> np.ndarray:
    effects = np.kron(prior.positions, np.kron(np.eye(n), prior.parts))
    whole = np.eye(len(effects) + len(prior.parts)) * prior.level
    whole[: len(effects), : len(effects)] = effects
    return whole


def test_a_fold_is_predicted_from_those_before_it() -> None:
    """The mean of a joint normal distribution."""
    log = small_log()
    model, rows = learn_rewards(log), dense_rows(log, log.slates)
    covariance = prior_covariance(model.prior, log.n_items)
    for fold, learned in zip(model.folds, model.coefficients, strict=True):
        before = slice(0, fold.rows.start) if fold.rows.start else model.folds[1].rows
        gram = rows[before] @ covariance @ rows[before].T + model.prior.noise * np.eye(len(rows[before]))
        expected = covariance @ rows[before].T @ np.linalg.solve(gram, log.rewards[before])
        np.testing.assert_allclose(rows @ learned, rows @ expected, atol=1e-6)


def test_learning_the_prior_makes_rewards_more_likely(monkeypatch: pytest.MonkeyPatch) -> None:
    log = small_log()
    rows, likelihoods = dense_rows(log, log.slates), []
    for steps in (0, 1, 2, 4, 10):
        monkeypatch.setattr(reward_model, "_STEPS", steps)
        prior = learn_rewards(log).prior
        assert np.trace(prior.parts) == pytest.approx(len(prior.parts))
        covariance = rows @ prior_covariance(prior, log.n_items) @ rows.T + prior.noise * np.eye(len(log))
        likelihoods.append(multivariate_normal(cov=covariance).logpdf(log.rewards))
    assert (np.diff(likelihoods) > 0.0).all()


def test_the_mean_of_a_target_is_that_over_its_slates() -> None:
    log = small_log()
    rng, model = np.random.default_rng(0), learn_rewards(log)
    coefficients = rng.normal(size=model.features.n_coefficients)
    slates = log.slates[:, None, ::-1]
    target = make_target(log, slates, np.full((len(log), 1), 0.3))
    found = model.features.of_target(coefficients, log, target)
    for row in range(0, len(log), 7):
        each = all_rankings(np.flatnonzero(log.policy.eligible[row]), slate_size=2)
        of_each = [dense_rows(log, np.repeat(one[None], len(log), axis=0))[row] @ coefficients for one in each]
        of_listed = dense_rows(log, slates[:, 0])[row] @ coefficients
        assert found[row] == pytest.approx(0.3 * of_listed + 0.7 * np.mean(of_each))
    assert model.features.mean_of_target(log, target) @ coefficients == pytest.approx(found.mean())


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


def test_rewards_that_only_count_items_are_predicted_whatever_was_shown() -> None:
    """Without noise, and alike at every position: the likelihood wants a covariance of positions that is singular."""
    for seed in range(44):
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
    with pytest.raises(InvalidArgumentError, match="more than 20"):
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
