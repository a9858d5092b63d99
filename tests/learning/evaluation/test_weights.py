"""The logging policy, and weights: against the definition, written out over all slates."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.learning.evaluation.estimators import cascade, doubly_robust, ips, pseudo_inverse, snips
from topk_bandit.learning.evaluation.exploration import expected_margin
from topk_bandit.learning.evaluation.reward_model import learn_rewards
from topk_bandit.learning.evaluation.slate_log import SlateLog, slate_log
from topk_bandit.learning.evaluation.targets import Target, always, make_target, uniform
from topk_bandit.learning.evaluation.weights import importance_weights, pseudo_inverse_weights

from .shops import NEAR, UNIFORM, Enumerated, enumerated, indicators, logged, mixture, small_shop, target_chances

SIZES = [
    (6, [0, 1, 2, 3, 4, 5], [4, 0, 3]),
    (7, [0, 1, 3, 4, 6], [6, 1, 3]),
    (5, [1, 2, 4], [4, 1, 2]),  # all are shown, in some order
    (5, [0, 2, 3, 4], [2, 0, 4]),  # one is not shown
    (4, [0, 1, 3], [3]),
]
KINDS = ["fixed", "listed", "uniform", "twice", "best"]


def target_of(log: SlateLog, kind: str) -> Target:
    rng, (n_slates, k) = np.random.default_rng(5), log.slates.shape
    if kind == "uniform":
        return uniform(log)
    if kind == "best":
        return always(log, log.policy.best)
    places = rng.choice(n_slates, size=3, replace=n_slates < 3)
    chances = {"fixed": [1.0, 0.0, 0.0], "listed": [0.5, 0.2, 0.3], "twice": [0.3, 0.1, 0.2]}[kind]
    if kind == "twice":
        places[2] = places[0]
    slates = np.broadcast_to(log.slates[places], (n_slates, 3, k))
    return make_target(log, slates, np.broadcast_to(chances, (n_slates, 3)))


@pytest.fixture(params=SIZES, ids=str)
def every(request: pytest.FixtureRequest) -> Enumerated:
    return enumerated(*request.param)


def test_propensities_are_those_of_the_definition(every: Enumerated) -> None:
    np.testing.assert_allclose(every.log.policy.propensities(every.log.slates), every.chances, rtol=1e-12)
    assert every.chances.sum() == pytest.approx(1.0)


def test_positions_are_those_of_the_definition(every: Enumerated) -> None:
    log = every.log
    expected = every.chances @ indicators(log.slates, log.n_items)
    found = log.policy.position_probabilities()[0]
    np.testing.assert_allclose(found.ravel(), expected, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_importance_weights_are_those_of_the_definition(every: Enumerated, kind: str) -> None:
    log, target = every.log, target_of(every.log, kind)
    expected = target_chances(target, log.slates) / every.chances
    weights = importance_weights(log, target)
    np.testing.assert_allclose(weights.values, expected, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(weights.second_moments, every.chances @ expected**2, rtol=1e-10)
    assert every.chances @ weights.values == pytest.approx(1.0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("near", [0.0, 0.2])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_pseudo_inverse_weights_are_those_of_the_dense_pseudo_inverse(
    size: tuple[int, list[int], list[int]], kind: str, near: float
) -> None:
    log, chances = enumerated(*size, near=near)
    target = target_of(log, kind)
    rows = indicators(log.slates, log.n_items)
    inverse = np.linalg.pinv(rows.T @ (chances[:, None] * rows), rcond=1e-10, hermitian=True)
    wanted = target_chances(target, log.slates) @ rows
    weights = pseudo_inverse_weights(log, target)
    np.testing.assert_allclose(weights.values, rows @ inverse @ wanted, atol=1e-7)
    np.testing.assert_allclose(weights.second_moments, wanted @ inverse @ wanted, rtol=1e-7)


@pytest.mark.parametrize("kind", KINDS)
def test_estimates_are_unbiased(every: Enumerated, kind: str) -> None:
    """The mean over all slates that could be shown is the truth: of any rewards by IPS, of additive ones by PI."""
    log, target, rng = every.log, target_of(every.log, kind), np.random.default_rng(3)
    rows, wanted = indicators(log.slates, log.n_items), target_chances(target, log.slates)
    any_rewards, additive = rng.normal(size=len(log)), rows @ rng.normal(size=rows.shape[1])
    importance, inverse = importance_weights(log, target).values, pseudo_inverse_weights(log, target).values
    assert every.chances @ (importance * any_rewards) == pytest.approx(wanted @ any_rewards)
    assert every.chances @ (inverse * additive) == pytest.approx(wanted @ additive)


@pytest.mark.parametrize("kind", KINDS)
def test_the_cascade_weighs_each_position_by_what_is_shown_down_to_it(every: Enumerated, kind: str) -> None:
    log, target, k = every.log, target_of(every.log, kind), every.log.slates.shape[1]
    wanted = target_chances(target, log.slates)
    ratios = np.empty((len(log), k))
    for row, slate in enumerate(log.slates):
        for place in range(k):
            alike = (log.slates[:, : place + 1] == slate[: place + 1]).all(axis=1)
            ratios[row, place] = wanted[alike].sum() / every.chances[alike].sum()
    # What an item earns depends on those above it, in any way.
    rng, worth = np.random.default_rng(3), {}
    outcomes = np.array(
        [
            [worth.setdefault(tuple(slate[: place + 1]), rng.normal()) for place in range(k)]
            for slate in log.slates.tolist()
        ]
    )
    log = replace(log, rewards=outcomes.sum(axis=1))
    for place in range(k):
        weights = importance_weights(log.first(place + 1), target.first(place + 1))
        np.testing.assert_allclose(weights.values, ratios[:, place], rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(weights.second_moments, every.chances @ ratios[:, place] ** 2, rtol=1e-10)
    terms = (ratios * outcomes).sum(axis=1)
    assert every.chances @ terms == pytest.approx(wanted @ log.rewards)
    found = cascade(log, target, outcomes)
    assert found.value == pytest.approx(terms.mean())
    products = every.chances @ (ratios[:, :, None] * ratios[:, None, :]).reshape(len(log), -1)
    expected = (products.reshape(k, k) * (outcomes.T @ outcomes)).sum() / len(log)
    assert found.standard_error**2 * len(log) == pytest.approx(max(terms.var(), expected))


def test_outcomes_that_are_not_the_rewards_are_refused() -> None:
    log, _ = enumerated(5, [0, 2, 3, 4], [2, 0])
    for outcomes in (np.ones((len(log), 2)), np.zeros((len(log), 3)), np.full((len(log), 2), np.nan)):
        with pytest.raises(InvalidArgumentError, match="outcomes"):
            cascade(log, uniform(log), outcomes)


def test_estimators_weigh_as_they_say() -> None:
    """Each slate as often as it is shown, so often that the log is its own expectation; a wrong model is corrected."""
    every = enumerated(5, [0, 2, 3, 4], [2, 0, 4])
    times = np.round(every.chances * 12_000).astype(int)
    times = np.repeat(np.arange(len(times)), times)
    np.random.default_rng(1).shuffle(times)
    rows, one = indicators(every.log.slates, every.log.n_items), every.log
    rewards = rows @ np.random.default_rng(2).normal(size=rows.shape[1])
    policy = one.policy
    log = slate_log(
        one.contexts[times], policy.eligible[times], one.slates[times], rewards[times],
        best=policy.best[times], near_share=policy.near_share[times], uniform_share=policy.uniform_share[times],
    )  # fmt: skip
    target = always(log, np.broadcast_to(one.slates[-1], log.slates.shape))
    model = learn_rewards(log)
    wrong = type(model)(model.features, model.folds, model.prior, tuple(one + 0.1 for one in model.coefficients))
    for weights in (importance_weights, pseudo_inverse_weights):
        assert doubly_robust(log, target, wrong, weights).value == pytest.approx(rewards[-1], abs=0.02)
    assert ips(log, target).value == pytest.approx(rewards[-1], rel=1e-3, abs=1e-3)
    assert pseudo_inverse(log, target).value == pytest.approx(rewards[-1], rel=1e-3, abs=1e-3)


def test_shares_and_slates_are_checked() -> None:
    log, _ = enumerated(5, [0, 2, 3, 4], [2, 0])
    policy, count = log.policy, len(log)
    good = {"best": policy.best, "near_share": 0.1, "uniform_share": 0.1}

    def refused(field: str, **changed: object) -> None:
        given = {**good, "slates": log.slates, "rewards": log.rewards, **changed}
        with pytest.raises(InvalidArgumentError) as raised:
            slate_log(log.contexts, policy.eligible, **given)  # type: ignore[arg-type]
        assert raised.value.field == field

    refused("uniform_share", uniform_share=0.0)
    refused("uniform_share", near_share=0.95)
    refused("best", best=np.full((count, 2), [0, 1]))  # the second is not eligible
    refused("slates", slates=log.slates[:-1])
    refused("rewards", rewards=np.full(count, np.nan))
    with pytest.raises(InvalidArgumentError, match="at most one"):
        make_target(log, log.slates[:, None], np.full((count, 1), 1.1))
    with pytest.raises(InvalidArgumentError, match="eligible"):
        always(log, np.full((count, 2), [0, 1]))


def test_the_expected_margin_is_that_of_another_share() -> None:
    """Of all slates that another uniform share could have shown, by their probabilities."""
    log = enumerated(6, [0, 1, 2, 3, 4, 5], [4, 0, 3]).log
    other = enumerated(6, [0, 1, 2, 3, 4, 5], [4, 0, 3], uniform=0.4)
    for kind in ("fixed", "listed", "uniform"):
        values = pseudo_inverse_weights(other.log, target_of(other.log, kind)).values
        expected = 1.959963985 * np.sqrt(other.chances @ values**2 * 0.7 / len(log))
        found = expected_margin(log, target_of(log, kind), noise=0.7, uniform_share=0.4)
        assert found == pytest.approx(expected)


def test_estimates_are_those_of_the_open_bandit_pipeline() -> None:
    """SlateStandardIPS and its self-normalised form: sums over the rounds, as its documentation has them."""
    rng = np.random.default_rng(7)
    log = logged(small_shop(rng), rng, 200, candidates=5)
    target = make_target(log, log.slates[:, None, ::-1], np.full((len(log), 1), 0.4))
    weighted, total = 0.0, 0.0
    for row in range(len(log)):
        eligible = np.flatnonzero(log.policy.eligible[row]).tolist()
        shown = tuple(log.slates[row].tolist())
        behavior = mixture(log.policy.best[row].tolist(), eligible, NEAR, UNIFORM)[shown]
        evaluation = 0.6 / 20 + 0.4 * (shown == shown[::-1])
        weighted += evaluation / behavior * log.rewards[row]
        total += evaluation / behavior
    assert ips(log, target).value == pytest.approx(weighted / len(log), rel=1e-9)
    assert snips(log, target).value == pytest.approx(weighted / total, rel=1e-9)
