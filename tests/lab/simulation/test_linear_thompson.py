"""Linear Thompson sampling, against Bayesian linear regression with every indicator written out."""

from __future__ import annotations

import pickle
from functools import partial
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.learning.dense import rankings_of

from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.lab.simulation.episodes import ProblemSize, Visit
from topk_bandit.lab.simulation.linear_thompson import LinearModel, LinearPrior, LinearThompson, Weights
from topk_bandit.learning.rankings import all_rankings

if TYPE_CHECKING:
    from numpy.typing import NDArray

    FloatArray = NDArray[np.float64]

N_ITEMS, SLATE_SIZE, CONTEXT_DIM = 5, 3, 2
PRIOR = LinearPrior(context=0.9, item=0.3, pair=0.2, noise=0.15)
SLATES = all_rankings(np.arange(N_ITEMS), slate_size=SLATE_SIZE)
CONTEXT = np.array([0.4, -0.8])
PAIRS = list(combinations(range(N_ITEMS), 2))


def features(contexts: FloatArray, rankings: NDArray[np.int32]) -> FloatArray:
    """Return one column for each weight, divided by nothing: context, then position-item-context, then pairs."""
    rows = []
    for context, ranking in zip(contexts, rankings.tolist(), strict=True):
        inputs = [1.0, *context.tolist()]
        shown = [
            number if ranking[position] == item else 0.0
            for number in inputs
            for position in range(SLATE_SIZE)
            for item in range(N_ITEMS)
        ]
        rows.append([*inputs, *shown, *(float(i in ranking and j in ranking) for i, j in PAIRS)])
    return np.array(rows)


def prior_variances() -> FloatArray:
    n_inputs = 1 + CONTEXT_DIM
    sizes = (n_inputs, n_inputs * SLATE_SIZE * N_ITEMS, len(PAIRS))
    return np.repeat([PRIOR.context, PRIOR.item, PRIOR.pair], sizes)


def weights_of(flat: FloatArray) -> Weights:
    n_inputs = 1 + CONTEXT_DIM
    pair = np.zeros((N_ITEMS, N_ITEMS))
    for (i, j), number in zip(PAIRS, flat[-len(PAIRS) :], strict=True):
        pair[i, j] = pair[j, i] = number
    return Weights(flat[:n_inputs], flat[n_inputs : -len(PAIRS)].reshape(n_inputs, SLATE_SIZE, N_ITEMS), pair)


def learned(count: int) -> tuple[LinearModel, FloatArray, FloatArray]:
    """Return a model, and mean and covariance of all slates in one context by the normal equations."""
    rng = np.random.default_rng(1)
    model = LinearModel(n_items=N_ITEMS, slate_size=SLATE_SIZE, context_dim=CONTEXT_DIM, prior=PRIOR)
    contexts, rankings = rng.normal(size=(count, CONTEXT_DIM)), rankings_of(N_ITEMS, SLATE_SIZE, count, rng)
    rewards = rng.normal(size=count)
    for row in zip(contexts, rankings, rewards.tolist(), strict=True):
        model.observe(*row)
    x = features(contexts, rankings).reshape(count, len(prior_variances()))
    precision = np.diag(1.0 / prior_variances()) + x.T @ x / PRIOR.noise
    mean = np.linalg.solve(precision, x.T @ rewards / PRIOR.noise)
    asked = features(np.tile(CONTEXT, (len(SLATES), 1)), SLATES)
    return model, asked @ mean, asked @ np.linalg.solve(precision, asked.T)


@pytest.mark.parametrize("count", [0, 1, 12, 70])
def test_draws_have_exactly_the_mean_and_the_covariance_of_the_regression(count: int) -> None:
    model, mean, covariance = learned(count)
    scales, nothing = np.sqrt(prior_variances()), np.zeros(count)
    constant = model.draw_from(CONTEXT, weights_of(0.0 * scales), nothing).values(SLATES)
    columns = [
        *(model.draw_from(CONTEXT, weights_of(row), nothing).values(SLATES) for row in np.diag(scales)),
        *(
            model.draw_from(CONTEXT, weights_of(0.0 * scales), row).values(SLATES)
            for row in np.sqrt(PRIOR.noise) * np.eye(count)
        ),
    ]
    matrix = np.array(columns).T - constant[:, None]
    np.testing.assert_allclose(constant, mean, atol=1e-8)
    np.testing.assert_allclose(matrix @ matrix.T, covariance, atol=1e-8)


def test_draws_of_a_generator_have_the_moments_of_the_regression() -> None:
    model, mean, covariance = learned(12)
    rng, count = np.random.default_rng(2), 2000
    values = np.array([model.draw(CONTEXT, rng).values(SLATES) for _ in range(count)])
    variance = np.diag(covariance)
    assert np.abs((values.mean(axis=0) - mean) / np.sqrt(variance / count)).max() < 4.5
    centred = values - mean
    errors = (centred.T @ centred / count - covariance) / np.sqrt(
        (np.outer(variance, variance) + covariance**2) / count
    )
    assert np.abs(errors).max() < 5.5


def visit(number: int, eligible: range = range(N_ITEMS)) -> Visit:
    return Visit(number, CONTEXT, np.array(eligible, dtype=np.int32))


def test_it_learns_which_slate_is_best() -> None:
    rng = np.random.default_rng(3)
    truth = weights_of(rng.normal(size=len(prior_variances())))
    values = truth.values(np.tile(np.append(1.0, CONTEXT), (len(SLATES), 1)), SLATES)
    worth = dict(zip(map(tuple, SLATES.tolist()), values.tolist(), strict=True))
    prior = LinearPrior(context=1.0, item=1.0, pair=1.0, noise=0.01)
    player = LinearThompson.of(ProblemSize(N_ITEMS, SLATE_SIZE, CONTEXT_DIM, 1), rng, prior=prior)
    earned = []
    for number in range(150):
        earned.append(worth[tuple(player.choose(visit(number)).tolist())])
        player.observe(number, earned[-1] + 0.1 * rng.normal())
    assert np.mean(earned[-30:]) > max(worth.values()) - 0.15
    assert max(worth.values()) - np.mean(list(worth.values())) > 3.0


def test_it_shows_eligible_items_and_learns_nothing_from_what_it_missed() -> None:
    make = partial(LinearThompson.of, prior=PRIOR)
    players = [
        factory(ProblemSize(N_ITEMS, SLATE_SIZE, CONTEXT_DIM, 1), np.random.default_rng(4))
        for factory in (make, pickle.loads(pickle.dumps(make)))
    ]
    slates = [[player.choose(visit(number, range(1, 5))).tolist() for number in range(5)] for player in players]
    assert slates[0] == slates[1]
    assert all(set(slate) <= {1, 2, 3, 4} and len(set(slate)) == SLATE_SIZE for slate in slates[0])
    players[0].close(2)
    # The same numbers are drawn, and nothing else was learned.
    assert players[0].choose(visit(5)).tolist() == players[1].choose(visit(5)).tolist()
    for player in players:
        player.observe(3, 100.0)
    with pytest.raises(KeyError):
        players[0].observe(2, 1.0)


@pytest.mark.parametrize("name", ["context", "item", "pair", "noise"])
@pytest.mark.parametrize("value", [0.0, -1.0, float("inf"), float("nan")])
def test_variances_are_positive(name: str, value: float) -> None:
    with pytest.raises(InvalidArgumentError, match=name):
        LinearPrior(**{name: value})
