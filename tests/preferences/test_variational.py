from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import multivariate_normal, spearmanr

from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.lab.paper.quadratic_bound import fit_paper_posterior
from topk_bandit.preferences import sampling
from topk_bandit.preferences.answers import Orderings
from topk_bandit.preferences.models import plackett_luce
from topk_bandit.preferences.models.variational import Bound, Variational, fit, predictive_log_likelihood
from topk_bandit.preferences.utilities import Gaussian

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

pytestmark = pytest.mark.slow

BOUNDS = pytest.mark.parametrize("bound", list(Bound))


def stages(orderings: Orderings) -> Iterator[NDArray[np.int64]]:
    """Yield the items of every choice, the chosen one first."""
    for answer, places in enumerate(orderings.places):
        items = orderings.items[orderings.starts[answer] : orderings.starts[answer + 1]]
        for place in range(places):
            yield items[place:]


def curvature(xi: Floats) -> Floats:
    return np.tanh(xi / 2.0) / (4.0 * xi)


def log_sigmoid(values: Floats) -> Floats:
    return -np.logaddexp(0.0, -values)


def pair_bound(rows: Floats, q: Gaussian) -> float:
    """E_q of Eq. 45, term by term, at the zeta of Lemma 4."""
    x = rows[0] - rows[1]
    square = x @ (q.covariance + np.outer(q.mean, q.mean)) @ x
    zeta = math.sqrt(square)
    return float(log_sigmoid(zeta) + (x @ q.mean - zeta) / 2.0 - curvature(zeta) * (square - zeta**2))


def choice_bound(rows: Floats, q: Gaussian, direction: Floats, alpha: float, xi: Floats) -> float:
    """E_q of the log of Eq. 34 for alpha + direction'theta in the place of its alpha."""
    moved = rows - direction
    mean = moved @ q.mean - alpha
    squares = np.einsum("ja,ab,jb->j", moved, q.covariance, moved) + mean**2
    terms = log_sigmoid(xi) + (-mean - xi) / 2.0 - curvature(xi) * (squares - xi**2)
    return float(mean[0] + terms.sum())


def best_choice_bound(rows: Floats, q: Gaussian) -> float:
    """The greatest of these, by a general optimiser over everything that is free."""
    d, k = rows.shape[1], len(rows)

    def cost(free: Floats) -> float:
        return -choice_bound(rows, q, free[:d], free[d], np.exp(free[d + 1 :]))

    start = np.concatenate([rows.mean(axis=0), [rows.mean(axis=0) @ q.mean * 0.0 + 0.5], np.zeros(k)])
    return -minimize(cost, start, method="BFGS", options={"gtol": 1e-8}).fun


def tilted_bound(rows: Floats, q: Gaussian) -> float:
    """The tilted bound, by a general optimiser over the direction a'X = z in feature space."""

    def cost(z: Floats) -> float:
        moved = rows - z
        exponents = moved @ q.mean + 0.5 * np.einsum("ja,ab,jb->j", moved, q.covariance, moved)
        largest = exponents.max()
        return float(z @ q.mean + largest + np.log(np.exp(exponents - largest).sum()))

    found = minimize(cost, rows.mean(axis=0), method="BFGS", options={"gtol": 1e-8})
    return float(rows[0] @ q.mean) - found.fun


def divergence(q: Gaussian, prior: Gaussian) -> float:
    precision, away = np.linalg.inv(prior.covariance), q.mean - prior.mean
    ratio = np.linalg.slogdet(prior.covariance)[1] - np.linalg.slogdet(q.covariance)[1]
    return 0.5 * float(np.trace(precision @ q.covariance) + away @ precision @ away - len(away) + ratio)


def literal_bound(features: Floats, orderings: Orderings, prior: Gaussian, q: Gaussian, bound: Bound) -> float:
    total = -divergence(q, prior)
    for items in stages(orderings):
        rows = features[items]
        if bound is Bound.TILTED:
            total += tilted_bound(rows, q)
        else:
            total += pair_bound(rows, q) if len(rows) == 2 else best_choice_bound(rows, q)
    return total


def mixed(seed: int, *, d: int = 2, n: int = 9, each: int = 4) -> tuple[Floats, Orderings]:
    """Pairs, choices from 4 and rankings of 4."""
    rng = np.random.default_rng(seed)
    features = rng.standard_normal((n, d))
    utilities = features @ rng.standard_normal(d)

    def lists(size: int) -> NDArray[np.int64]:
        return np.array([rng.choice(n, size, replace=False) for _ in range(each)])

    answers = sampling.draw_pairs(utilities, lists(2), rng=rng)
    answers = answers.join(sampling.draw_choices(utilities, lists(4), rng=rng))
    return features, answers.join(sampling.draw_rankings(utilities, lists(4), rng=rng))


def some(
    seed: int, answers: int, size: int, *, d: int, n: int = 60, scale: float = 1.5
) -> tuple[Floats, Floats, Orderings]:
    """Return features, true utilities and choices (pairs, for size 2)."""
    rng = np.random.default_rng(seed)
    features = rng.standard_normal((n, d))
    utilities = features @ rng.standard_normal(d) * scale / math.sqrt(d)
    shown = np.array([rng.choice(n, size, replace=False) for _ in range(answers)])
    return features, utilities, sampling.draw_choices(utilities, shown, rng=rng)


@pytest.mark.slow
@BOUNDS
@pytest.mark.parametrize("seed", [0, 1])
def test_the_bound_is_the_sum_of_its_terms(bound: Bound, seed: int) -> None:
    features, answers = mixed(seed)
    prior = Gaussian(np.array([0.3, -0.2]), np.array([[1.5, 0.4], [0.4, 0.8]]))
    found = fit(features, answers, prior=prior, bound=bound, tolerance=1e-9)
    assert found.converged
    assert found.bound == pytest.approx(literal_bound(features, answers, prior, found.posterior, bound), abs=1e-6)


@pytest.mark.slow
@BOUNDS
def test_no_gaussian_has_a_greater_bound(bound: Bound) -> None:
    features, answers = mixed(2, each=1)
    prior = Gaussian.isotropic(2, variance=2.0)
    found = fit(features, answers, prior=prior, bound=bound, tolerance=1e-9)

    def gaussian(free: Floats) -> Gaussian:
        root = np.array([[math.exp(free[2]), 0.0], [free[3], math.exp(free[4])]])
        return Gaussian(free[:2], root @ root.T)

    def cost(free: Floats) -> float:
        return -literal_bound(features, answers, prior, gaussian(free), bound)

    best = minimize(cost, np.array([0.0, 0.0, -0.5, 0.0, -0.5]), method="BFGS", options={"gtol": 1e-4})
    assert found.bound == pytest.approx(-best.fun, abs=1e-5)
    np.testing.assert_allclose(found.posterior.mean, gaussian(best.x).mean, atol=2e-3)
    np.testing.assert_allclose(found.posterior.covariance, gaussian(best.x).covariance, atol=2e-3)


def moments_by_quadrature(features: Floats, answers: Orderings, prior: Gaussian) -> tuple[float, Floats, Floats]:
    """Return the log of the answers' probability, and the mean and covariance of the true posterior, for d = 2."""
    axis = np.linspace(-7.0, 7.0, 281)
    grid = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
    log_density = multivariate_normal(prior.mean, prior.covariance).logpdf(grid)
    for items in stages(answers):
        utilities = grid @ features[items].T
        log_density += utilities[:, 0] - np.logaddexp.reduce(utilities, axis=1)
    weights = np.exp(log_density) * (axis[1] - axis[0]) ** 2
    mean = weights @ grid / weights.sum()
    return float(np.log(weights.sum())), mean, (grid - mean).T @ ((grid - mean) * weights[:, None]) / weights.sum()


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_bounds_are_below_the_log_of_the_answers_probability_and_the_tilted_one_is_close(seed: int) -> None:
    features, answers = mixed(seed)
    prior = Gaussian.isotropic(2, variance=1.0)
    evidence, mean, covariance = moments_by_quadrature(features, answers, prior)
    tilted, quadratic = (fit(features, answers, prior=prior, bound=one) for one in (Bound.TILTED, Bound.QUADRATIC))
    assert quadratic.bound < tilted.bound < evidence
    assert evidence - tilted.bound < 0.25
    spread = np.sqrt(np.diag(covariance))
    assert (np.abs(tilted.posterior.mean - mean) < 0.15 * spread).all()
    np.testing.assert_allclose(np.sqrt(np.diag(tilted.posterior.covariance)), spread, rtol=0.12)


def test_a_quadratic_bound_is_the_papers_for_pairs_and_above_it_for_choices() -> None:
    features, utilities, pairs = some(3, 40, 2, d=3)
    prior = Gaussian.isotropic(3, variance=1.0)
    theirs = fit_paper_posterior(features, pairs, prior=prior)
    ours = fit(features, pairs, prior=prior, bound=Bound.QUADRATIC, tolerance=1e-10)
    assert ours.bound == pytest.approx(theirs.bounds[-1], abs=1e-8)
    np.testing.assert_allclose(ours.posterior.mean, theirs.posterior.mean, atol=1e-7)
    np.testing.assert_allclose(ours.posterior.covariance, theirs.posterior.covariance, atol=1e-7)
    lists = np.array([np.random.default_rng(one).choice(60, 5, replace=False) for one in range(30)])
    choices = sampling.draw_choices(utilities, lists, rng=np.random.default_rng(5))
    value = fit_paper_posterior(features, choices, prior=prior).bounds[-1]
    assert fit(features, choices, prior=prior, bound=Bound.QUADRATIC).bound > value + 0.1
    shifted = fit_paper_posterior(features + 3.0, choices, prior=prior).bounds[-1]
    assert fit(features + 3.0, choices, prior=prior, bound=Bound.QUADRATIC).bound > shifted + 1.0


@BOUNDS
def test_a_constant_added_to_the_features_changes_nothing(bound: Bound) -> None:
    features, answers = mixed(4)
    prior = Gaussian.isotropic(2, variance=1.0)
    here = fit(features, answers, prior=prior, bound=bound)
    there = fit(features + np.array([30.0, -7.0]), answers, prior=prior, bound=bound)
    np.testing.assert_allclose(there.posterior.mean, here.posterior.mean, atol=1e-9)
    np.testing.assert_allclose(there.posterior.covariance, here.posterior.covariance, atol=1e-9)
    np.testing.assert_allclose(there.bounds, here.bounds, atol=1e-8)


@BOUNDS
def test_a_ranking_is_its_successive_choices(bound: Bound) -> None:
    features, answers = mixed(5)
    prior = Gaussian.isotropic(2, variance=1.0)
    apart = list(stages(answers))
    starts = np.concatenate([[0], np.cumsum([len(items) for items in apart])])
    choices = Orderings(np.concatenate(apart), starts, np.ones(len(apart), dtype=np.int64))
    one, other = (fit(features, these, prior=prior, bound=bound) for these in (answers, choices))
    np.testing.assert_allclose(one.bounds, other.bounds, atol=1e-9)
    np.testing.assert_allclose(one.posterior.covariance, other.posterior.covariance, atol=1e-10)


@BOUNDS
def test_with_many_pairs_the_mean_is_the_mode(bound: Bound) -> None:
    features, _, answers = some(6, 10_000, 2, d=8)
    prior = Gaussian.isotropic(8, variance=1.0)
    mode = plackett_luce.fit(features, answers, prior=prior).posterior
    found = fit(features, answers, prior=prior, bound=bound).posterior
    assert (np.abs(found.mean - mode.mean) < 0.1 * np.sqrt(np.diag(mode.covariance))).all()


def test_with_many_choices_the_posterior_is_laplaces() -> None:
    features, _, answers = some(7, 4_000, 6, d=8)
    prior = Gaussian.isotropic(8, variance=1.0)
    mode = plackett_luce.fit(features, answers, prior=prior).posterior
    found = fit(features, answers, prior=prior).posterior
    assert (np.abs(found.mean - mode.mean) < 0.1 * np.sqrt(np.diag(mode.covariance))).all()
    np.testing.assert_allclose(found.covariance, mode.covariance, rtol=0.05, atol=0.02 * np.diag(mode.covariance).min())
    assert spearmanr(features @ found.mean, features @ mode.mean).statistic >= 0.98


def test_the_papers_bound_spreads_utilities_too_far_after_choices() -> None:
    features, utilities, answers = some(7, 4_000, 6, d=8)
    prior = Gaussian.isotropic(8, variance=1.0)
    found = fit(features, answers, prior=prior, bound=Bound.QUADRATIC).utilities(features)
    assert spearmanr(found.mean, utilities).statistic >= 0.98
    assert np.std(found.mean) > 1.2 * np.std(utilities)


def test_long_rankings_and_blocks_of_answers_are_taken_in_whole() -> None:
    rng = np.random.default_rng(8)
    features = rng.standard_normal((3_000, 2))
    utilities = features @ np.array([1.0, -0.5])
    long = sampling.draw_rankings(utilities, rng.permutation(3_000)[None, :60], rng=rng)
    many = sampling.draw_choices(utilities, rng.permutation(3_000).reshape(-1, 3), rng=rng)
    prior = Gaussian.isotropic(2, variance=1.0)
    whole = fit(features, many.join(long).join(many), prior=prior, tolerance=1e-8)
    mode = plackett_luce.fit(features, many.join(long).join(many), prior=prior).posterior
    assert (np.abs(whole.posterior.mean - mode.mean) < 0.05 * np.sqrt(np.diag(mode.covariance))).all()


@BOUNDS
def test_answers_may_come_in_batches(bound: Bound) -> None:
    features, _, answers = some(9, 400, 4, d=5)
    prior = Gaussian.isotropic(5, variance=1.0)
    whole = fit(features, answers, prior=prior, bound=bound).posterior
    streamed = prior
    for first in range(0, 400, 100):
        some_items = answers.items[4 * first : 4 * (first + 100)]
        batch = Orderings(some_items, answers.starts[:101], answers.places[:100])
        streamed = fit(features, batch, prior=streamed, bound=bound).posterior
    spread = np.sqrt(np.diag(whole.covariance))
    assert (np.abs(streamed.mean - whole.mean) < (0.1 if bound is Bound.TILTED else 1.0) * spread).all()
    np.testing.assert_allclose(np.sqrt(np.diag(streamed.covariance)), spread, rtol=0.1)


def added_by_pairs(features: Floats, pairs: Orderings, q: Gaussian) -> tuple[Floats, Floats]:
    """What Lemma 3 adds to S^-1 and to S^-1 mu, at the zeta of q."""
    rows = features[pairs.items[0::2]] - features[pairs.items[1::2]]
    zeta = np.sqrt(np.einsum("la,ab,lb->l", rows, q.covariance + np.outer(q.mean, q.mean), rows))
    return 2.0 * (rows.T * curvature(zeta)) @ rows, rows.sum(axis=0) / 2.0


def test_pairs_in_two_batches_are_one_batch_at_the_same_local_parameters() -> None:
    features, _, first = some(14, 80, 2, d=3)
    second = some(14, 160, 2, d=3)[2]
    second = Orderings(second.items[160:], second.starts[:81], second.places[80:])
    prior = Gaussian(np.array([0.2, 0.0, -0.1]), np.diag([1.0, 2.0, 0.5]))
    before = fit(features, first, prior=prior, bound=Bound.QUADRATIC, tolerance=1e-11).posterior
    after = fit(features, second, prior=before, bound=Bound.QUADRATIC, tolerance=1e-11).posterior
    added = [added_by_pairs(features, first, before), added_by_pairs(features, second, after)]
    precision = np.linalg.inv(prior.covariance) + added[0][0] + added[1][0]
    linear = np.linalg.inv(prior.covariance) @ prior.mean + added[0][1] + added[1][1]
    np.testing.assert_allclose(np.linalg.inv(after.covariance), precision, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(after.mean, np.linalg.solve(precision, linear), atol=1e-6)


def test_without_answers_the_prior_stays() -> None:
    prior = Gaussian(np.array([1.0, 2.0]), np.diag([0.5, 2.0]))
    found = fit(np.eye(2), Orderings.from_pairs([], n_items=2), prior=prior)
    assert (found.posterior, found.sweeps, found.bound, found.converged) == (prior, 0, 0.0, True)


@BOUNDS
def test_what_no_answer_tells_stays_as_it_was(bound: Bound) -> None:
    features = np.array([[1.0, 0.0, 1.0], [0.0, 1.0, 1.0], [-1.0, 0.5, 1.0]])
    answers = Orderings.from_rankings([[0, 1, 2]] * 30, n_items=3)  # separable, too
    found = fit(features, answers, prior=Gaussian.isotropic(3, variance=4.0), bound=bound)
    assert found.posterior.mean[2] == pytest.approx(0.0, abs=1e-9)
    assert found.posterior.covariance[2, 2] == pytest.approx(4.0, rel=1e-9)
    assert found.utilities(features).ranks.tolist() == [1, 2, 3]


@BOUNDS
def test_contradictory_answers_say_that_items_are_alike(bound: Bound) -> None:
    found = fit(
        np.eye(2),
        Orderings.from_pairs([(0, 1), (1, 0)] * 50, n_items=2),
        prior=Gaussian.isotropic(2, variance=9.0),
        bound=bound,
    )
    mean = found.posterior.mean
    assert abs(mean[0] - mean[1]) < 1e-9
    assert np.diff(np.diag(found.posterior.covariance)) == pytest.approx(0.0, abs=1e-9)


@BOUNDS
@pytest.mark.parametrize("scale", [1e-6, 1e3, 1e6])
def test_features_of_any_size_are_taken(bound: Bound, scale: float) -> None:
    features, _, answers = some(10, 50, 4, d=3)
    found = fit(scale * features, answers, prior=Gaussian.isotropic(3, variance=1.0), bound=bound, max_sweeps=50)
    assert np.isfinite(found.bounds).all()
    assert np.linalg.eigvalsh(found.posterior.covariance).min() > 0.0


def test_features_too_large_are_refused() -> None:
    with pytest.raises(InvalidArgumentError, match=r"^features: "):
        fit(1e200 * np.eye(3), Orderings.from_pairs([(0, 1)], n_items=3), prior=Gaussian.isotropic(3, variance=1.0))


def test_sweeps_end_at_their_limit() -> None:
    features, _, answers = some(11, 200, 5, d=4)
    prior = Gaussian.isotropic(4, variance=1.0)
    short = fit(features, answers, prior=prior, max_sweeps=1)
    assert (short.sweeps, short.converged) == (1, False)
    rough, fine = (fit(features, answers, prior=prior, tolerance=one) for one in (1.0, 1e-8))
    assert rough.sweeps < fine.sweeps
    assert fine.converged
    assert rough.bound <= fine.bound


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"features": np.full((3, 2), np.nan)}, r"features\[0\]\[0\]"),
        ({"features": np.ones(3)}, "features"),
        ({"features": np.eye(2)}, "orderings"),
        ({"prior": Gaussian.isotropic(3, variance=1.0)}, "prior"),
        ({"prior": Gaussian(np.zeros(2), -np.eye(2))}, "prior"),
        ({"tolerance": 0.0}, "tolerance"),
        ({"tolerance": math.nan}, "tolerance"),
        ({"max_sweeps": 0}, "max_sweeps"),
    ],
)
def test_bad_arguments_are_named(changed: dict[str, object], field: str) -> None:
    good: dict[str, object] = {
        "features": np.arange(6.0).reshape(3, 2),
        "orderings": Orderings.from_pairs([(2, 0)], n_items=3),
        "prior": Gaussian.isotropic(2, variance=1.0),
    }
    arguments = good | changed
    with pytest.raises(InvalidArgumentError, match=rf"^{field}: "):
        fit(arguments.pop("features"), arguments.pop("orderings"), **arguments)


def test_predictions_are_expectations_over_the_posterior() -> None:
    """Pairs by Gauss-Hermite quadrature, a choice of three and its rankings by adding up to one."""
    posterior = Gaussian(np.array([0.4, -0.3]), np.array([[1.0, 0.3], [0.3, 2.0]]))
    features = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.5]])
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    pairs = list(itertools.permutations(range(3), 2))
    expected = []
    for i, j in pairs:
        x = features[i] - features[j]
        z = x @ posterior.mean + math.sqrt(x @ posterior.covariance @ x) * nodes
        expected.append(math.log(weights @ np.exp(log_sigmoid(z)) / weights.sum()))
    answers = Orderings.from_pairs(pairs, n_items=3)
    found = predictive_log_likelihood(posterior, features, answers, rng=np.random.default_rng(0), draws=40_000)
    np.testing.assert_allclose(found, expected, atol=0.01)
    rankings = Orderings.from_rankings(list(itertools.permutations(range(3))), n_items=3)
    choices = Orderings.from_choices([0, 1, 2], [(0, 1, 2)] * 3, n_items=3)
    by_ranking = predictive_log_likelihood(posterior, features, rankings, rng=np.random.default_rng(1), draws=64)
    by_choice = predictive_log_likelihood(posterior, features, choices, rng=np.random.default_rng(1), draws=64)
    np.testing.assert_allclose(np.exp(by_choice), np.exp(by_ranking).reshape(3, 2).sum(axis=1), rtol=1e-12)
    assert np.exp(by_ranking).sum() == pytest.approx(1.0, abs=1e-12)


def test_predictions_depend_on_the_seed_alone_and_are_those_of_the_mean_where_nothing_is_uncertain() -> None:
    features, _, answers = some(12, 5_000, 4, d=3)
    theta = np.array([0.5, -1.0, 0.2])
    sure = Gaussian(theta, 1e-18 * np.eye(3))
    first, second = (predictive_log_likelihood(sure, features, answers, rng=np.random.default_rng(3)) for _ in range(2))
    assert first.tobytes() == second.tobytes()
    assert first.shape == (5_000,)
    assert first.sum() == pytest.approx(plackett_luce.log_likelihood(theta, features, answers), rel=1e-9)


@pytest.mark.parametrize("size", [2, 5])
def test_after_50_answers_others_are_predicted_no_worse_than_by_the_mode(size: int) -> None:
    gains = []
    for seed in range(12):
        features, _, answers = some(20 + seed, 1_050, size, d=10, scale=2.0)
        cut = 50 * size
        learned = Orderings(answers.items[:cut], answers.starts[:51], answers.places[:50])
        others = Orderings(answers.items[cut:], answers.starts[:1_001], answers.places[50:])
        prior = Gaussian.isotropic(10, variance=0.4)
        found = fit(features, learned, prior=prior).posterior
        mode = plackett_luce.fit(features, learned, prior=prior).posterior.mean
        averaged = predictive_log_likelihood(found, features, others, rng=np.random.default_rng(seed)).mean()
        gains.append(averaged - plackett_luce.log_likelihood(mode, features, others) / 1_000)
    assert np.mean(gains) > 0.0


@pytest.mark.parametrize(
    ("draws", "features", "field"),
    [(3, np.eye(2), "draws"), (0, np.eye(2), "draws"), (2, np.eye(3), "features"), (2, np.ones((1, 2)), "orderings")],
)
def test_bad_arguments_of_predictions_are_named(draws: int, features: Floats, field: str) -> None:
    answers = Orderings.from_pairs([(1, 0)], n_items=2)
    with pytest.raises(InvalidArgumentError, match=rf"^{field}: "):
        predictive_log_likelihood(
            Gaussian.isotropic(2, variance=1.0), features, answers, rng=np.random.default_rng(0), draws=draws
        )


def test_a_fit_is_the_same_every_time() -> None:
    features, _, answers = some(13, 300, 5, d=4)
    first, second = (fit(features, answers, prior=Gaussian.isotropic(4, variance=1.0)) for _ in range(2))
    assert isinstance(first, Variational)
    assert first.posterior.mean.tobytes() == second.posterior.mean.tobytes()
    assert first.bounds.tobytes() == second.bounds.tobytes()
