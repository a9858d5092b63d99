from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest
from scipy.optimize import minimize

from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.preferences.losses import kendall_tau_distance
from topk_bandit.preferences.models.aggregation import Comparisons, Loss, Online, fit
from topk_bandit.preferences.models.laplacian import DENSE, RidgedLaplacian

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

pytestmark = pytest.mark.slow

LOSSES = pytest.mark.parametrize("loss", list(Loss))


def compared(
    rng: np.random.Generator, scores: Floats, count: int, *, flips: float = 0.0, last: int | None = None
) -> Comparisons:
    """Return signs of the score differences of random pairs of the items before `last`, some turned round."""
    pairs = rng.integers(0, last or len(scores), (2 * count, 2))
    pairs = pairs[pairs[:, 0] != pairs[:, 1]][:count]
    signs = np.sign(scores[pairs[:, 1]] - scores[pairs[:, 0]])
    return Comparisons.of(pairs, np.where(rng.random(count) < flips, -signs, signs), n_items=len(scores))


class Dense:
    """Eq. 6 as it is written: one vector (w, r), one matrix of the rows (x_j - x_i, e_j - e_i)."""

    def __init__(self, features: Floats, given: Comparisons, loss: Loss, ridges: tuple[float, float]) -> None:
        n, d = features.shape
        unit = np.eye(n)
        self.rows = np.hstack([features, unit])[given.second] - np.hstack([features, unit])[given.first]
        self.ridges, self.values, self.loss = np.repeat(ridges, (d, n)), given.values, loss
        self.scores_of = np.hstack([features, unit])
        theta = minimize(self.objective, np.zeros(n + d), jac=self.gradient, method="BFGS", options={"gtol": 1e-10}).x
        self.theta = theta

    def objective(self, theta: Floats) -> float:
        t = self.rows @ theta
        losses = (t - self.values) ** 2 if self.loss is Loss.SQUARED else np.logaddexp(0.0, -self.values * t)
        return float(losses.sum() + self.ridges @ theta**2)

    def gradient(self, theta: Floats) -> Floats:
        t = self.rows @ theta
        by_t = 2.0 * (t - self.values)
        if self.loss is Loss.LOGISTIC:
            by_t = -self.values / (1.0 + np.exp(self.values * t))
        return self.rows.T @ by_t + 2.0 * self.ridges * theta

    def deviations(self) -> Floats:
        """From the inverse of the Hessian, of J / 2 over the noise variance for the squared loss."""
        t = self.rows @ self.theta
        if self.loss is Loss.SQUARED:
            noise = (1.0 + self.objective(self.theta)) / (1.0 + len(self.values))
            hessian = (self.rows.T @ self.rows + np.diag(self.ridges)) / noise
        else:
            share = 1.0 / (1.0 + np.exp(-t))
            hessian = (self.rows.T * (share * (1.0 - share))) @ self.rows + 2.0 * np.diag(self.ridges)
        return np.sqrt(np.diag(self.scores_of @ np.linalg.inv(hessian) @ self.scores_of.T))


@LOSSES
@pytest.mark.parametrize("d", [0, 3])
@pytest.mark.parametrize("ridges", [(0.3, 0.7), (5.0, 0.05)])
def test_scores_and_spreads_are_those_of_the_dense_problem(loss: Loss, d: int, ridges: tuple[float, float]) -> None:
    rng = np.random.default_rng(d)
    features = rng.standard_normal((14, d))
    given = compared(rng, rng.standard_normal(14), 25, flips=0.1, last=12)  # two items are never compared
    dense = Dense(features, given, loss, ridges)
    found = fit(features, given, loss=loss, weights_ridge=ridges[0], residual_ridge=ridges[1], tolerance=1e-14)
    utilities = found.utilities(features)
    assert found.objective == pytest.approx(dense.objective(dense.theta), rel=1e-9)
    np.testing.assert_allclose(found.weights, dense.theta[:d], atol=1e-6)
    np.testing.assert_allclose(found.residuals, dense.theta[d:], atol=1e-6)
    np.testing.assert_allclose(utilities.mean, dense.scores_of @ dense.theta, atol=1e-6)
    np.testing.assert_allclose(utilities.standard_deviation, dense.deviations(), rtol=1e-5)


def test_values_are_taken_as_they_are_by_the_squared_loss() -> None:
    features = np.array([[0.0], [1.0], [3.0]])
    given = Comparisons.of([(0, 1), (0, 2), (1, 2)], [2.0, 6.0, 4.0], n_items=3)
    found = fit(features, given, weights_ridge=1e-9, residual_ridge=1.0)
    np.testing.assert_allclose(np.diff(found.utilities(features).mean), [2.0, 4.0], atol=1e-6)
    np.testing.assert_allclose(found.residuals, 0.0, atol=1e-6)


@LOSSES
def test_the_scale_of_features_is_that_of_their_ridge(loss: Loss) -> None:
    """Eq. 6: one ridge, once the features are scaled."""
    rng = np.random.default_rng(3)
    features, scores = rng.standard_normal((20, 4)), rng.standard_normal(20)
    given = compared(rng, scores, 40)
    one = fit(features, given, loss=loss, weights_ridge=0.5, residual_ridge=2.0, tolerance=1e-12)
    scaled = fit(2.0 * features, given, loss=loss, weights_ridge=2.0, residual_ridge=2.0, tolerance=1e-12)
    np.testing.assert_allclose(scaled.weights, one.weights / 2.0, atol=1e-8)
    np.testing.assert_allclose(scaled.residuals, one.residuals, atol=1e-8)


def test_flipped_signs_only_shrink_the_scores_of_the_squared_loss() -> None:
    """The source's Lemma 5: the unbiased estimator of the loss without flips has the same scores / (1 - 2 flips)."""
    rng, flips = np.random.default_rng(11), 0.2
    features = rng.standard_normal((8, 2))
    given = compared(rng, rng.standard_normal(8), 40, flips=flips)
    dense = Dense(features, given, Loss.SQUARED, (0.5, 2.0))

    def unbiased(theta: Floats) -> float:
        t = dense.rows @ theta
        kept, flipped = (t - given.values) ** 2, (t + given.values) ** 2
        return float((((1.0 - flips) * kept - flips * flipped) / (1.0 - 2.0 * flips)).sum() + dense.ridges @ theta**2)

    theta = minimize(unbiased, np.zeros(10), method="BFGS", options={"gtol": 1e-9}).x
    found = fit(features, given, loss=Loss.SQUARED, weights_ridge=0.5, residual_ridge=2.0)
    np.testing.assert_allclose(found.weights, (1.0 - 2.0 * flips) * theta[:2], atol=1e-5)
    np.testing.assert_allclose(found.residuals, (1.0 - 2.0 * flips) * theta[2:], atol=1e-5)


@LOSSES
def test_an_item_whose_features_mislead_is_corrected_by_its_residual(loss: Loss) -> None:
    rng = np.random.default_rng(4)
    features = rng.standard_normal((30, 2))
    scores = features @ np.array([1.0, -2.0])
    features[7] = -features[7] - 3.0
    found = fit(features, compared(rng, scores, 2_000), loss=loss, residual_ridge=0.1)
    assert np.argmax(np.abs(found.residuals)) == 7
    assert kendall_tau_distance(found.utilities(features).mean, scores) < kendall_tau_distance(
        features @ found.weights, scores
    )


@LOSSES
def test_repeated_and_contradictory_comparisons_count_one_by_one(loss: Loss) -> None:
    features = np.eye(3)[:, :1]
    once = Comparisons.of([(0, 1), (1, 2), (0, 1), (0, 1)], [1.0, 1.0, -1.0, 1.0], n_items=3)
    turned = Comparisons.of([(1, 0), (2, 1), (1, 0), (1, 0)], [-1.0, -1.0, 1.0, -1.0], n_items=3)
    one, other = fit(features, once, loss=loss), fit(features, turned, loss=loss)
    np.testing.assert_allclose(one.utilities(features).mean, other.utilities(features).mean, atol=1e-12)
    even = Comparisons.of([(0, 1), (0, 1)], [1.0, -1.0], n_items=3)
    np.testing.assert_allclose(fit(features, even, loss=loss).utilities(features).mean, 0.0, atol=1e-12)


@pytest.mark.parametrize(("loss", "part"), [(Loss.SQUARED, 1.0), (Loss.LOGISTIC, 0.5)])
def test_without_comparisons_the_ridges_speak(loss: Loss, part: float) -> None:
    features = np.array([[1.0, 2.0], [0.0, 1.0], [0.0, 0.0]])
    nothing = Comparisons.of([], [], n_items=3)
    found = fit(features, nothing, loss=loss, weights_ridge=2.0, residual_ridge=4.0).utilities(features)
    np.testing.assert_array_equal(found.mean, np.zeros(3))
    np.testing.assert_allclose(found.standard_deviation**2, part * np.array([0.25 + 2.5, 0.25 + 0.5, 0.25]))


@LOSSES
def test_groups_that_nothing_connects_differ_by_features_alone(loss: Loss) -> None:
    features = np.array([[0.0], [1.0], [10.0], [11.0]])
    given = Comparisons.of([(0, 1), (2, 3)], [1.0, 1.0], n_items=4)
    found = fit(features, given, loss=loss).utilities(features)
    assert found.ranks.tolist() == [4, 3, 2, 1]
    without = fit(np.zeros((4, 0)), given, loss=loss).utilities(np.zeros((4, 0)))
    np.testing.assert_allclose(without.mean[:2], without.mean[2:], atol=1e-12)


@LOSSES
@pytest.mark.parametrize("scale", [1e-6, 1e100])
@pytest.mark.parametrize("ridges", [(1e-8, 1e-8), (1e8, 1e8), (1e-8, 1e8)])
def test_features_and_ridges_of_any_size_are_taken(loss: Loss, scale: float, ridges: tuple[float, float]) -> None:
    rng = np.random.default_rng(8)
    features = rng.standard_normal((30, 2))
    scores = features @ np.array([1.0, -2.0])
    given = compared(rng, scores, 400)
    found = fit(scale * features, given, loss=loss, weights_ridge=ridges[0], residual_ridge=ridges[1])
    utilities = found.utilities(scale * features)
    assert np.corrcoef(utilities.mean, scores)[0, 1] > 0.7
    assert (utilities.standard_deviation > 0.0).all()


def test_new_items_have_the_score_of_their_features_and_the_spread_of_a_residual_nobody_has_seen() -> None:
    rng = np.random.default_rng(5)
    features = rng.standard_normal((12, 2))
    found = fit(features[:10], compared(rng, features[:10, 0], 60), loss=Loss.LOGISTIC, residual_ridge=0.5)
    utilities = found.utilities(features)
    np.testing.assert_allclose(utilities.mean[10:], features[10:] @ found.weights)
    assert (utilities.standard_deviation[10:] > 1.0).all()
    np.testing.assert_array_equal(utilities.mean[:10], found.utilities(features[:10]).mean)


def test_separable_comparisons_have_scores() -> None:
    given = Comparisons.of([(0, 1)] * 1_000, [1.0] * 1_000, n_items=2)
    found = fit(np.zeros((2, 0)), given, loss=Loss.LOGISTIC, residual_ridge=1e-6)
    gap = np.diff(found.utilities(np.zeros((2, 0))).mean)[0]
    # At the minimum 1,000 sigma(-gap) = 2 lambda r, r being half the gap.
    assert 1_000.0 / (1.0 + math.exp(gap)) == pytest.approx(1e-6 * gap, rel=1e-3)


@pytest.mark.parametrize(("components", "ridge"), [(1, 0.01), (40, 0.1)])
def test_a_large_graph_is_solved_as_a_small_one_is(components: int, ridge: float) -> None:
    rng = np.random.default_rng(6)
    n = DENSE + 152
    first = rng.integers(0, n, 3 * n)
    second = (first + components * rng.integers(1, n // components, 3 * n)) % n  # within a component
    weights = rng.uniform(0.1, 1.0, 3 * n)
    large = RidgedLaplacian(first, second, weights, ridge=ridge, n_nodes=n)
    dense = np.zeros((n, n))
    np.add.at(dense, (first, second), -weights)
    dense += dense.T
    dense[np.diag_indices(n)] -= dense.sum(axis=1) - ridge
    vectors = np.column_stack([rng.standard_normal(n), np.ones(n), np.zeros(n)])
    inverse = np.linalg.inv(dense)
    np.testing.assert_allclose(large.solve(vectors), inverse @ vectors, rtol=1e-7, atol=1e-8)
    ratio = np.sqrt(large.inverse_diagonal() / np.diag(inverse))
    assert np.sqrt(np.mean((ratio - 1.0) ** 2)) < 0.03
    assert np.abs(ratio - 1.0).max() < 0.15


def appendix_d(seed: int, n: int, *, flips: float, loss: Loss) -> tuple[float, float]:
    """Return the Kendall tau distance, as a share of all pairs, with and without features."""
    rng = np.random.default_rng(seed)
    features = rng.standard_normal((n, 10))
    scores = features @ rng.standard_normal(10) / math.sqrt(10.0)
    count = round(50 * math.log(n))
    corrupted = rng.choice(n, count, replace=False)
    features[corrupted] += rng.standard_normal((count, 10))
    given = compared(rng, scores, count, flips=flips)
    shares = []
    for rows in (features, np.zeros((n, 0))):
        found = fit(rows, given, loss=loss)
        learned = rows @ found.weights + found.residuals
        shares.append(float(kendall_tau_distance(scores, learned)) / (n * (n - 1) / 2))
    return shares[0], shares[1]


@LOSSES
@pytest.mark.parametrize("flips", [0.0, 0.2])
def test_with_features_a_logarithm_of_comparisons_is_enough(loss: Loss, flips: float) -> None:
    few, many = (
        np.mean([appendix_d(seed, n, flips=flips, loss=loss) for seed in range(3)], axis=0) for n in (500, 4_000)
    )
    assert many[0] <= few[0] < 0.25
    assert many[1] > few[1] + 0.03
    assert many[0] < 0.5 * many[1]


@LOSSES
@pytest.mark.parametrize("d", [0, 3])
def test_one_step_per_comparison_comes_to_the_batchs_scores(loss: Loss, d: int) -> None:
    rng = np.random.default_rng(7)
    n, m = 25, 150
    features = rng.standard_normal((n, d))
    given = compared(rng, rng.standard_normal(n), m, flips=0.1)
    batch = fit(features, given, loss=loss, weights_ridge=m * 0.02, residual_ridge=m * 0.1, tolerance=1e-12)
    expected = features @ batch.weights + batch.residuals
    online, errors = Online.start(features, loss=loss, weights_ridge=0.04, residual_ridge=0.2), []
    for steps in (500, 20_000):
        drawn = rng.integers(0, m, steps)
        online = online.observe(Comparisons(given.first[drawn], given.second[drawn], given.values[drawn]))
        errors.append(np.linalg.norm(online.scores - expected) / np.linalg.norm(expected))
    assert errors[1] < 0.06
    assert errors[1] < 0.5 * errors[0]
    assert online.steps == 20_500


@LOSSES
def test_a_step_is_the_gradient_step_of_the_source(loss: Loss) -> None:
    features = np.array([[1.0, 0.0], [0.5, -1.0], [2.0, 2.0]])
    before = Online.start(features, loss=loss, weights_ridge=0.3, residual_ridge=0.3)
    before = before.observe(Comparisons.of([(2, 0)], [1.0], n_items=3))
    after = before.observe(Comparisons.of([(0, 1)], [-1.0], n_items=3))

    def cost(theta: Floats) -> float:
        scores = features @ theta[:2] + theta[2:]
        t = scores[1] - scores[0]
        of_t = (t + 1.0) ** 2 if loss is Loss.SQUARED else math.log1p(math.exp(t))
        return of_t + 0.15 * float(theta @ theta)

    h = 1e-6
    gradient = [(cost(before.last + h * e) - cost(before.last - h * e)) / (2.0 * h) for e in np.eye(5)]
    size = 2.0 / (0.3 * before.steps + 2.0 * before.steepest)
    np.testing.assert_allclose(after.last, before.last - size * np.array(gradient), atol=1e-8)
    assert before.steps == 1


def test_steps_leave_the_state_before_as_it_was() -> None:
    online = Online.start(np.eye(3))
    given = Comparisons.of([(0, 1), (1, 2)], [1.0, 1.0], n_items=3)
    after = online.observe(given)
    assert (online.steps, after.steps) == (0, 2)
    assert not online.scores.any()
    by_one = online.observe(Comparisons.of([(0, 1)], [1.0], n_items=3)).observe(
        Comparisons.of([(1, 2)], [1.0], n_items=3)
    )
    np.testing.assert_array_equal(by_one.scores, after.scores)


@pytest.mark.parametrize(
    ("pairs", "values", "field"),
    [
        ([(0, 1), (1, 1)], [1.0, 1.0], r"pairs\[1\]"),
        ([(0, 3)], [1.0], r"pairs\[0\]"),
        ([(-1, 2)], [1.0], r"pairs\[0\]"),
        ([(0.0, 1.0)], [1.0], "pairs"),
        ([(0, 1, 2)], [1.0], "pairs"),
        ([(0, 1), (1, 2)], [1.0, math.nan], r"values\[1\]"),
        ([(0, 1)], [1e200], r"values\[0\]"),
        ([(0, 1)], [1.0, 1.0], "values"),
        ([(0, 1)], ["better"], "values"),
    ],
)
def test_bad_comparisons_are_named(pairs: object, values: object, field: str) -> None:
    with pytest.raises(InvalidArgumentError, match=rf"^{field}: "):
        Comparisons.of(pairs, values, n_items=3)


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"features": np.array([[0.0], [math.inf], [0.0]])}, r"features\[1\]\[0\]"),
        ({"features": np.ones(3)}, "features"),
        ({"features": np.full((3, 1), 1e200)}, "features"),
        ({"features": np.ones((2, 1))}, "comparisons"),
        ({"loss": Loss.LOGISTIC}, r"values\[1\]"),
        ({"weights_ridge": 0.0}, "weights_ridge"),
        ({"residual_ridge": math.inf}, "residual_ridge"),
        ({"tolerance": -1.0}, "tolerance"),
    ],
)
def test_bad_arguments_are_named(changed: dict[str, object], field: str) -> None:
    given = Comparisons.of([(0, 1), (2, 1)], [1.0, 0.5], n_items=3)
    arguments: dict[str, object] = {"features": np.ones((3, 1))} | changed
    with pytest.raises(InvalidArgumentError, match=rf"^{field}: "):
        fit(arguments.pop("features"), given, **arguments)


def test_scores_are_asked_for_with_the_features_of_all_items() -> None:
    found = fit(np.ones((3, 2)), Comparisons.of([(0, 1)], [1.0], n_items=3))
    for rows in (np.ones((2, 2)), np.ones((3, 1)), np.zeros((3, 0))):
        with pytest.raises(InvalidArgumentError, match=r"^features: "):
            found.utilities(rows)


def test_bad_arguments_online_are_named() -> None:
    with pytest.raises(InvalidArgumentError, match=r"^residual_ridge: "):
        Online.start(np.eye(2), residual_ridge=-1.0)
    with pytest.raises(InvalidArgumentError, match=r"^comparisons: "):
        Online.start(np.eye(2)).observe(Comparisons.of([(0, 2)], [1.0], n_items=3))
    with pytest.raises(InvalidArgumentError, match=r"^values\[0\]: "):
        Online.start(np.eye(2), loss=Loss.LOGISTIC).observe(Comparisons.of([(0, 1)], [0.0], n_items=2))
