"""Parts of items from rows that left: everything against dense algebra over explicit features."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from scipy.stats import multivariate_normal
from tests.learning.dense import assert_close, rankings_of
from tests.learning.test_context_posterior import replaced

from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.learning import observed_rows
from topk_bandit.learning.digests import digest_state
from topk_bandit.learning.hyperparameters import scaling
from topk_bandit.learning.item_draws import ItemDraws
from topk_bandit.learning.item_parts import ItemParts, LeavingRows
from topk_bandit.learning.kendall import Shape, adaptive_kendall
from topk_bandit.learning.limits import Limits
from topk_bandit.learning.mean_parts import split_mean
from topk_bandit.learning.observed_rows import Observations, ObservedRows, fold_by_ranking, outgrows
from topk_bandit.learning.policy import State
from topk_bandit.learning.posterior import Moments, PendingSlates, Posterior
from topk_bandit.learning.prior_mean import PriorMean
from topk_bandit.learning.rankings import all_rankings
from topk_bandit.learning.recent_observations import PastRows
from topk_bandit.learning.scales import scale_best, slope_prior
from topk_bandit.learning.search import local_search
from topk_bandit.learning.state_changes import change_contexts, change_prior_mean, vacate
from topk_bandit.learning.thompson import draw_function

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from topk_bandit.learning.kendall import KendallKernel

    FloatArray = NDArray[np.float64]

N_ITEMS, SLATE_SIZE, CONTEXT_DIM, NOISE = 8, 3, 2, 0.4
OFFSET, AMPLITUDE = 0.6, 1.7
CONTEXT = np.array([0.6, -1.1])
SLATES = all_rankings(np.arange(N_ITEMS), slate_size=SLATE_SIZE)
NO_PENDING = PendingSlates(np.zeros((0, CONTEXT_DIM)), np.zeros((0, SLATE_SIZE), dtype=np.int32))
SHAPES = [Shape(0.5, 1.0, 0.25), Shape(1.0, 0.3, 0.0), Shape(0.0, 0.1, 4.0)]
each_shape = pytest.mark.parametrize("shape", SHAPES, ids=str)
SINGLE = 3e-6
"""Variances in a contraction are computed from float32 numbers."""


@dataclass(frozen=True)
class Explicit:
    """The kernel as a linear model: Claim 3's pair features, one for the sum over all items, and one for the context.

    Weights are standard normal for each number of the context. theta_i is what the pairs of item i and the sum bring
    in; everything here is a matrix over all weights of all numbers of the context.
    """

    kernel: KendallKernel

    @property
    def first(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        return np.triu_indices(self.kernel.n_items, 1)

    def of_slates(self, rankings: NDArray[np.int32]) -> FloatArray:
        """Return pair features, s and the root of kappa, shape (A, P + 2)."""
        kernel, rows = self.kernel, []
        for ranking in rankings:
            place = {int(item): p for p, item in enumerate(ranking)}
            pairs = []
            for i, j in zip(*self.first, strict=True):
                a, b = place.get(int(i)), place.get(int(j))
                u_i = 0.0 if a is None else kernel.item_weight[a]
                u_j = 0.0 if b is None else kernel.item_weight[b]
                order = 0.0
                if a is not None and b is not None:
                    order = kernel.pair_weight[a, b] if a < b else -kernel.pair_weight[b, a]
                pairs.append(u_i - u_j + order)
            rows.append([*pairs, kernel.item_weight.sum()])
        own = math.sqrt(kernel.scale) * np.array(rows).reshape(len(rankings), len(self.first[0]) + 1)
        return np.column_stack([own, np.full(len(rows), math.sqrt(kernel.constant))])

    def features(self, contexts: FloatArray, rankings: NDArray[np.int32]) -> FloatArray:
        """Return the features of rows, shape (N, C (P + 2))."""
        features = np.einsum("nc,nf->ncf", contexts, self.of_slates(rankings))
        return features.reshape(len(contexts), math.prod(features.shape[1:]))

    @property
    def thetas(self) -> FloatArray:
        """Return theta_all and theta of the items as sums of one context number's weights, shape (1 + n, P + 2)."""
        i, j = self.first
        sums = np.zeros((1 + self.kernel.n_items, len(i) + 2))
        sums[1 + i, np.arange(len(i))], sums[1 + j, np.arange(len(i))] = 1.0, -1.0
        sums[1:, -2] = 1.0
        sums[0, -1] = math.sqrt(self.kernel.constant / self.kernel.scale)
        return math.sqrt(self.kernel.scale) * sums

    def prior(self, means: FloatArray, covariances: FloatArray, dim: int) -> tuple[FloatArray, FloatArray]:
        """Return mean and covariance of all weights where the thetas have these, (1 + n, C) and (1 + n, C, C)."""
        sums = self.thetas
        inverse = np.linalg.pinv(sums @ sums.T)
        to_weights = sums.T @ inverse
        rest = np.eye(sums.shape[1]) - to_weights @ sums
        size = sums.shape[1]
        mean = np.einsum("ft,tc->cf", to_weights, means).reshape(-1)
        covariance = np.einsum("ft,tcd,gt->cfdg", to_weights, covariances, to_weights).reshape(dim * size, dim * size)
        return mean, covariance + np.kron(np.eye(dim), rest)


def kernel_of(shape: Shape, n_items: int = N_ITEMS) -> KendallKernel:
    return adaptive_kendall(n_items, SLATE_SIZE, shape).uncentre()


def random_parts(seed: int, items: list[int], *, dim: int = CONTEXT_DIM) -> ItemParts:
    rng = np.random.default_rng(seed)
    roots = rng.normal(size=(1 + len(items), dim, dim))
    shifts = rng.normal(size=(2, 1 + len(items), dim))
    return ItemParts(np.array(items, dtype=np.int32), roots @ roots.transpose(0, 2, 1), shifts, np.zeros((2, 2)))


def moments_of_thetas(kernel: KendallKernel, parts: ItemParts, offset: float) -> tuple[FloatArray, FloatArray]:
    """Return means and covariances of theta_all and of all items, by the formula, at an amplitude of one."""
    g, dim = float(np.linalg.norm(kernel.part_weight)), parts.context_dim
    units = np.array([kernel.constant] + [kernel.n_items * kernel.scale] * kernel.n_items)
    means, covariances = np.zeros((len(units), dim)), units[:, None, None] * np.eye(dim)
    for place, theta in enumerate([0, *(1 + parts.items)]):
        weight, unit = (1.0, units[0]) if theta == 0 else (g, units[theta])
        if unit == 0.0:
            continue
        precision = np.eye(dim) / unit + weight**2 * parts.precisions[place] / NOISE
        covariances[theta] = np.linalg.inv(precision)
        shift = weight * (parts.shifts[0, place] - offset * parts.shifts[1, place]) / NOISE
        means[theta] = covariances[theta] @ shift
    return means, covariances


@dataclass(frozen=True)
class Dense:
    """The posterior of the weights, by the textbook."""

    model: Explicit
    mean: FloatArray
    covariance: FloatArray

    @classmethod
    def of(
        cls,
        kernel: KendallKernel,
        parts: ItemParts,
        contexts: FloatArray,
        rankings: NDArray[np.int32],
        rewards: FloatArray,
    ) -> Dense:
        model = Explicit(kernel)
        mean, covariance = model.prior(*moments_of_thetas(kernel, parts, OFFSET), contexts.shape[1])
        covariance, x = AMPLITUDE * covariance, model.features(contexts, rankings)
        noisy = x @ covariance @ x.T + AMPLITUDE * NOISE * np.eye(len(x))
        gain = np.linalg.solve(noisy, x @ covariance).T
        return cls(model, mean + gain @ (rewards - OFFSET - x @ mean), covariance - gain @ x @ covariance)

    def predict(self, context: FloatArray, rankings: NDArray[np.int32], *, with_constant: bool = True) -> Moments:
        x = self.model.features(np.tile(context, (len(rankings), 1)), rankings)
        own = x.copy().reshape(len(x), len(context), -1)
        if not with_constant:
            own[:, :, -1] = 0.0
        own = own.reshape(x.shape)
        return Moments(OFFSET + x @ self.mean, np.einsum("nf,fg,ng->n", own, self.covariance, own))


def rows_of(
    seed: int, count: int, n_items: int = N_ITEMS, dim: int = CONTEXT_DIM
) -> tuple[FloatArray, NDArray[np.int32], FloatArray]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(count, dim)), rankings_of(n_items, SLATE_SIZE, count, rng), rng.normal(size=count) + 1.0


def posterior_of(shape: Shape, *, pending: int = 0) -> tuple[Posterior, Dense]:
    """Return a posterior and the same one by the textbook; of two items nothing is known."""
    kernel, parts, (contexts, rankings, rewards) = kernel_of(shape), random_parts(1, [0, 1, 3, 4, 6, 7]), rows_of(2, 9)
    rows = replace(ObservedRows.of(Observations(contexts, rankings, rewards)), parts=parts)
    posterior = Posterior.fit(kernel, rows, NO_PENDING, noise_variance=NOISE)
    posterior = posterior.rescale(offset=OFFSET, amplitude=AMPLITUDE)
    if pending:
        shown = rows_of(3, pending)
        posterior = posterior.show(*shown[:2])
    return posterior, Dense.of(kernel, parts, contexts, rankings, rewards)


@each_shape
def test_without_the_sum_over_all_items_their_parts_are_independent(shape: Shape) -> None:
    kernel, rankings = kernel_of(shape), SLATES[::7]
    model = Explicit(kernel)
    features = model.of_slates(rankings)
    np.testing.assert_allclose(kernel.gram_of(rankings), features @ features.T, atol=1e-12)
    np.testing.assert_allclose(kernel.variances(rankings), 1.0 + kernel.constant)
    thetas = model.thetas
    np.testing.assert_allclose((thetas @ thetas.T)[1:, 1:], kernel.item_variance * np.eye(N_ITEMS), atol=1e-12)
    shown = np.zeros((len(rankings), 1 + N_ITEMS))
    np.put_along_axis(shown, 1 + rankings.astype(int), np.tile(kernel.part_weight, (len(rankings), 1)), axis=1)
    shown[:, 0] = 1.0
    rest = features - shown @ thetas
    np.testing.assert_allclose(rest @ thetas.T, 0.0, atol=1e-12, err_msg="the rest knows of the parts")
    assert kernel.uncentre() is kernel
    assert kernel.with_shape(SHAPES[0]).total == 0.0


@each_shape
def test_moments_are_those_of_the_model_that_has_them(shape: Shape) -> None:
    posterior, dense = posterior_of(shape)
    for with_constant in (True, False):
        expected = dense.predict(CONTEXT, SLATES, with_constant=with_constant)
        assert_close(posterior.predict(CONTEXT, SLATES, with_constant=with_constant), expected, atol=1e-9)


@each_shape
def test_parts_of_items_tell_as_much_without_any_row(shape: Shape) -> None:
    kernel, parts, (contexts, rankings, rewards) = kernel_of(shape), random_parts(1, [0, 1, 3, 4, 6, 7]), rows_of(2, 0)
    rows = replace(ObservedRows.of(Observations(contexts, rankings, rewards)), parts=parts)
    posterior = Posterior.fit(kernel, rows, NO_PENDING, noise_variance=NOISE)
    posterior = posterior.rescale(offset=OFFSET, amplitude=AMPLITUDE)
    expected = Dense.of(kernel, parts, contexts, rankings, rewards).predict(CONTEXT, SLATES)
    assert_close(posterior.predict(CONTEXT, SLATES), expected, atol=1e-9)


@each_shape
def test_a_contraction_has_the_same_moments(shape: Shape) -> None:
    posterior, dense = posterior_of(shape)
    for items in (np.arange(N_ITEMS), np.array([0, 2, 3, 5, 7])):
        at, places = posterior.at(CONTEXT, items), all_rankings(np.arange(len(items)), slate_size=SLATE_SIZE)
        expected = dense.predict(CONTEXT, items[places].astype(np.int32), with_constant=False)
        assert_close(at.moments(places), expected, atol=SINGLE)
        slate = places[11]
        for position in range(SLATE_SIZE):
            around = replaced(slate, position, len(items))
            expected = dense.predict(CONTEXT, items[around].astype(np.int32), with_constant=False)
            found = at.replacements(slate[None], position)
            assert_close(Moments(found.mean[0], found.variance[0]), expected, atol=SINGLE)


@each_shape
def test_items_parts_at_a_context_are_those_of_the_model(shape: Shape) -> None:
    posterior, dense = posterior_of(shape)
    thetas = np.einsum("c,tf->tcf", CONTEXT, dense.model.thetas[1:]).reshape(N_ITEMS, -1)
    draws = ItemDraws(posterior.at(CONTEXT, np.arange(N_ITEMS)))
    expected = thetas @ dense.covariance @ thetas.T
    np.testing.assert_allclose(draws.covariance, expected, atol=1e-5 * expected.max())


@each_shape
@pytest.mark.parametrize("beta", [0.0, 1.0, 9.0])
def test_the_search_ends_at_the_best_slate(shape: Shape, beta: float) -> None:
    """All stages of the climb take the same off the variances."""
    posterior, dense = posterior_of(shape)
    at, none = posterior.at(CONTEXT, np.arange(N_ITEMS)), np.zeros((0, SLATE_SIZE), dtype=np.int32)
    found = local_search(at, ItemDraws(at).covariance, beta=beta, starts=none, rng=np.random.default_rng(0)).ranking
    expected = dense.predict(CONTEXT, SLATES, with_constant=False)
    scores = expected.mean + math.sqrt(beta) * np.sqrt(expected.variance)
    place = int(np.flatnonzero((found == SLATES).all(axis=1))[0])
    assert scores[place] >= scores.max() - 1e-5


def test_no_more_is_drawn_from_them() -> None:
    posterior, _ = posterior_of(SHAPES[0])
    with pytest.raises(InvalidArgumentError) as caught:
        draw_function(posterior, CONTEXT, np.arange(N_ITEMS), np.random.default_rng(0))
    assert caught.value.field == "posterior"


@each_shape
def test_parts_of_a_mean_add_up_to_it(shape: Shape) -> None:
    posterior, _ = posterior_of(shape, pending=2)
    for ranking in SLATES[::41]:
        parts = split_mean(posterior, CONTEXT, ranking)
        assert parts.total == pytest.approx(float(posterior.predict(CONTEXT, ranking[None]).mean[0]), abs=1e-12)


@each_shape
def test_what_each_number_of_a_context_adds_is_all_of_the_mean_that_differs(shape: Shape) -> None:
    posterior, _ = posterior_of(shape, pending=2)
    of_numbers, _ = posterior.parts_of_mean(np.tile(CONTEXT, (len(SLATES), 1)), SLATES)
    alike = OFFSET + posterior.constant_mean(CONTEXT)
    expected = posterior.predict(CONTEXT, SLATES).mean
    np.testing.assert_allclose(of_numbers.sum(axis=1) + alike, expected, atol=1e-9)


def believing(shape: Shape) -> Posterior:
    """Return such a posterior with a prior mean."""
    kernel, rng = kernel_of(shape), np.random.default_rng(3)
    utilities = rng.normal(size=N_ITEMS), rng.normal(size=(N_ITEMS, CONTEXT_DIM))
    prior = PriorMean.of(kernel, *utilities, np.arange(N_ITEMS))
    return posterior_of(shape)[0].with_prior_mean(prior, noise_variance=NOISE)


@each_shape
def test_the_slope_changes_weights_by_the_parts_of_rows_that_left_too(shape: Shape) -> None:
    posterior, items = believing(shape), np.array([0, 2, 3, 5, 7], dtype=np.int32)
    low, high = (
        posterior.rescale(offset=posterior.offset_at(slope), slope=slope, amplitude=AMPLITUDE).at(CONTEXT, items)
        for slope in (-0.5, 1.5)
    )
    difference = (high.contraction.weights - low.contraction.weights)[: 2 * len(items)]
    weights = posterior.weights_of_slope(CONTEXT, items)
    np.testing.assert_allclose(2.0 * weights.reshape(-1), difference, atol=1e-9)


@each_shape
def test_the_slope_is_the_best_for_all_rows_also_for_those_that_left(shape: Shape) -> None:
    """By the closed form, which is held to the textbook elsewhere, with the products of the targets of all rows."""
    believed = believing(shape)
    rows, leaving = believed.observed_rows, np.random.default_rng(4).normal(size=(5, 3))
    assert rows.parts is not None
    rows = replace(rows, parts=replace(rows.parts, products=leaving.T @ leaving))
    scaled = scale_best(believed.refit(rows, noise_variance=NOISE))
    prior = slope_prior(scaled.prior_mean, scaled)
    assert prior is not None
    of_all = scaling(scaled.slope_products, prior, amplitude=scaled.amplitude)
    of_rows_here = scaling(scaled.centred_products, prior, amplitude=scaled.amplitude)
    assert scaled.slope == pytest.approx(float(of_all.slope), rel=1e-9)
    assert abs(scaled.slope - float(of_rows_here.slope)) > 0.01 * abs(scaled.slope)


@each_shape
def test_what_an_item_adds_orders_slates_without_pairs(shape: Shape) -> None:
    posterior, _ = posterior_of(shape)
    at = posterior.at(CONTEXT, np.arange(N_ITEMS))
    kernel, weights = posterior.kernel, at.contraction.weights
    expected = kernel.item_weight[0] * weights[:N_ITEMS] + kernel.divergence[0] * weights[N_ITEMS : 2 * N_ITEMS]
    np.testing.assert_allclose(posterior.item_means(CONTEXT, np.arange(N_ITEMS)), expected, atol=1e-9)


@each_shape
def test_rows_that_come_one_by_one_are_as_if_fitted_at_once(shape: Shape) -> None:
    kernel, parts, (contexts, rankings, rewards) = kernel_of(shape), random_parts(4, [1, 2, 5]), rows_of(5, 12)
    first = Observations(contexts[:6], rankings[:6], rewards[:6])
    posterior = Posterior.fit(kernel, replace(ObservedRows.of(first), parts=parts), NO_PENDING, noise_variance=NOISE)
    posterior = posterior.show(contexts[6:], rankings[6:])
    for row in (9, 6, 11, 8, 7, 10):
        chosen = next(i for i, shown in enumerate(posterior.pending.rankings) if (shown == rankings[row]).all())
        posterior = posterior.reward(chosen, rewards[row])
    order = [*range(6), 9, 6, 11, 8, 7, 10]
    at_once = replace(ObservedRows.of(Observations(contexts[order], rankings[order], rewards[order])), parts=parts)
    expected = Posterior.fit(kernel, at_once, NO_PENDING, noise_variance=NOISE)
    assert posterior.best_offset == pytest.approx(expected.best_offset)
    np.testing.assert_allclose(posterior.observations.rewards, rewards[order])
    np.testing.assert_allclose(posterior.observed_rows.targets, at_once.targets)
    assert_close(posterior.predict(CONTEXT, SLATES), expected.predict(CONTEXT, SLATES), atol=1e-9)
    other = rewards[order] + 1.0
    corrected = posterior.with_rewards(other[-4:]).observed_rows
    np.testing.assert_allclose(corrected.targets[0], [*rewards[order][:-4], *other[-4:]])


@each_shape
def test_each_row_that_leaves_gives_every_item_its_exact_marginal(shape: Shape) -> None:
    """One row after the other: condition all weights densely, keep what each theta is by itself, and go on."""
    kernel, parts = kernel_of(shape), random_parts(6, [0, 2, 5])
    contexts, rankings, rewards = rows_of(7, 5)
    noise = np.array([1.0, 0.5, 2.0, 1.0, 3.0])
    model, (means, covariances) = Explicit(kernel), moments_of_thetas(kernel, parts, OFFSET)
    for context, ranking, reward, own in zip(contexts, rankings, rewards, noise, strict=True):
        mean, covariance = model.prior(means, covariances, CONTEXT_DIM)
        x = model.features(context[None], ranking[None])[0]
        gain = covariance @ x / (x @ covariance @ x + own * NOISE)
        mean, covariance = mean + gain * (reward - OFFSET - x @ mean), covariance - np.outer(gain, x @ covariance)
        for theta in range(1 + N_ITEMS):
            to = np.einsum("cd,f->cdf", np.eye(CONTEXT_DIM), model.thetas[theta]).reshape(CONTEXT_DIM, -1)
            means[theta], covariances[theta] = to @ mean, to @ covariance @ to.T
    leaving = LeavingRows(contexts, rankings, np.stack([rewards, np.ones(5)]), noise)
    absorbed = parts.absorb(kernel, leaving, noise_variance=NOISE, most_items=N_ITEMS)
    known = absorbed.infer_parts(kernel, NOISE)
    present = np.array([theta for theta in range(1 + N_ITEMS) if theta == 0 or theta - 1 in absorbed.items])
    index = known.index_of[present - 1]
    np.testing.assert_allclose(known.means[0, index] - OFFSET * known.means[1, index], means[present], atol=1e-9)
    units = np.where(present == 0, kernel.constant, kernel.item_variance)[:, None, None] * np.eye(CONTEXT_DIM)
    np.testing.assert_allclose(units - known.taken[index], covariances[present], atol=1e-9)
    assert absorbed.observations == 5


def test_what_is_left_of_rows_that_leave_tells_of_the_offset() -> None:
    """Rows of items that are all known: the mean of what is left is what they all have in common."""
    kernel, parts = kernel_of(SHAPES[1]), random_parts(8, list(range(N_ITEMS)))
    sure = replace(parts, precisions=1e9 * parts.precisions, shifts=0.0 * parts.shifts)
    contexts, rankings, _ = rows_of(9, 40)
    leaving = LeavingRows(contexts, rankings, np.stack([np.full(40, 3.5), np.ones(40)]), np.ones(40))
    products = sure.absorb(kernel, leaving, noise_variance=NOISE, most_items=N_ITEMS).products
    assert products[0, 1] / products[1, 1] == pytest.approx(3.5)


def test_the_evidence_is_that_of_gaussian_factors() -> None:
    kernel, parts = kernel_of(SHAPES[0]), random_parts(10, [0, 3, 4])
    parts = replace(parts, products=np.array([[5.0, 1.2], [1.2, 2.0]]), observations=4.0)
    ratios = np.array([0.3, 1.0, 4.0])
    offset = 1.2 / 2.0
    variance = (5.0 - 2.0 * offset * 1.2 + offset**2 * 2.0) / 4.0
    g, expected = float(np.linalg.norm(kernel.part_weight)), []
    for ratio in ratios:
        total = 0.0
        for place in range(4):
            weight, unit = (1.0, kernel.constant) if place == 0 else (g, kernel.item_variance)
            noise = np.linalg.inv(weight**2 * parts.precisions[place])
            pseudo = noise @ (weight * (parts.shifts[0, place] - offset * parts.shifts[1, place]))
            prior = unit / ratio * np.eye(CONTEXT_DIM)
            total += multivariate_normal(cov=variance * (prior + noise)).logpdf(pseudo)
        expected.append(total)
    found = parts.gather_evidence(kernel, NOISE, parts.spectrum).log_evidence(ratios)
    np.testing.assert_allclose(found - found[0], np.array(expected) - expected[0], atol=1e-8)


@each_shape
def test_contexts_in_other_coordinates_change_nothing(shape: Shape) -> None:
    kernel, parts, (contexts, rankings, rewards) = kernel_of(shape), random_parts(11, [0, 1, 4]), rows_of(12, 8)
    turn = np.linalg.qr(np.random.default_rng(0).normal(size=(CONTEXT_DIM, CONTEXT_DIM)))[0]
    moments = []
    for by in (np.eye(CONTEXT_DIM), turn):
        rows = ObservedRows.of(Observations(contexts @ by, rankings, rewards))
        rows = replace(rows, parts=parts.with_contexts(by))
        posterior = Posterior.fit(kernel, rows, NO_PENDING, noise_variance=NOISE)
        moments.append(posterior.predict(CONTEXT @ by, SLATES))
    assert_close(moments[1], moments[0], atol=1e-9)


def test_a_prior_mean_is_taken_off_as_far_as_items_are_known() -> None:
    kernel, rng = kernel_of(SHAPES[0]), np.random.default_rng(3)
    prior = PriorMean.of(kernel, rng.normal(size=N_ITEMS), rng.normal(size=(N_ITEMS, CONTEXT_DIM)), np.arange(N_ITEMS))
    prior = replace(prior, constants=np.zeros_like(prior.constants))
    contexts, rankings, rewards = rows_of(13, 8)
    rows = replace(
        ObservedRows.of(Observations(contexts, rankings, rewards)), parts=random_parts(14, list(range(N_ITEMS)))
    )
    sure = replace(rows, parts=replace(rows.parts, precisions=1e9 * rows.parts.precisions))  # type: ignore[union-attr, arg-type, type-var]
    centred = sure.with_prior_mean(prior)
    centred = centred.centre_on(centred.known_parts(kernel, NOISE))
    np.testing.assert_allclose(centred.targets[2], 0.0, atol=1e-6)
    without = sure.with_prior_mean(prior).with_prior_mean(None)
    assert without.parts is not None
    assert sure.parts is not None
    assert without.parts.shifts.tobytes() == sure.parts.shifts.tobytes()


def test_items_beyond_the_capacity_are_as_unknown_as_at_first() -> None:
    most_items = Limits(part_bytes=8 * CONTEXT_DIM * (CONTEXT_DIM + 1) * 3).most_items(CONTEXT_DIM)
    kernel, (contexts, rankings, rewards) = kernel_of(SHAPES[0]), rows_of(15, 12)
    leaving = LeavingRows(contexts, rankings, np.stack([rewards, np.ones(12)]), np.ones(12))
    parts = ItemParts.none(CONTEXT_DIM, 2).absorb(kernel, leaving, noise_variance=NOISE, most_items=most_items)
    assert len(parts.items) == most_items == 3
    assert (
        parts.absorb(kernel, leaving, noise_variance=NOISE, most_items=most_items).items.tolist()
        == parts.items.tolist()
    )
    fewer = parts.without(parts.items[1:2])
    assert fewer.items.tolist() == [parts.items[0], parts.items[2]]
    assert fewer.precisions.tobytes() == parts.precisions[[0, 1, 3]].tobytes()
    assert parts.fade(0.25).observations == 3.0


LARGE, LARGE_DIM, SMALL_LIMITS = 60, 2, Limits(rows=48, pending_rows=4)


def large_shop(seed: int, count: int) -> tuple[FloatArray, NDArray[np.int32], FloatArray, FloatArray]:
    """Return rows of a shop that is additive in its items, and what each item is worth for each number of a context."""
    rng = np.random.default_rng(seed)
    kernel = kernel_of(Shape(1.0, 0.1, 0.0), LARGE)
    worth = rng.normal(size=(LARGE, LARGE_DIM))
    contexts = np.column_stack([np.ones(count), rng.normal(size=count)])
    rankings = rankings_of(LARGE, SLATE_SIZE, count, rng)
    expected = np.einsum(
        "k,nkc,nc->n", kernel.item_weight / np.linalg.norm(kernel.item_weight), worth[rankings], contexts
    )
    return contexts, rankings, expected + rng.normal(size=count) + 2.0, worth


def learned_from(seed: int, count: int) -> State:
    contexts, rankings, rewards, _ = large_shop(seed, count)
    state = State.initial(adaptive_kendall(LARGE, SLATE_SIZE), context_dim=LARGE_DIM, limits=SMALL_LIMITS)
    for row in range(count):
        state = state.rewarded(str(row), contexts[row], rankings[row], reward=float(rewards[row]))
    return state


def errors_of(state: State, seed: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return errors of means of random slates, their predicted deviations, and the truth, less the common part."""
    rng = np.random.default_rng(99)
    kernel, (*_, worth) = kernel_of(Shape(1.0, 0.1, 0.0), LARGE), large_shop(seed, 1)
    context, slates = np.array([1.0, 0.7]), rankings_of(LARGE, SLATE_SIZE, 200, rng)
    weights = kernel.item_weight / np.linalg.norm(kernel.item_weight)
    truth = (worth[slates] @ context) @ weights + 2.0
    moments = state.predict(context, slates)
    return moments.mean - truth, np.sqrt(moments.variance), truth


@pytest.mark.slow
def test_it_goes_on_learning_where_no_basis_spans_the_items(monkeypatch: pytest.MonkeyPatch) -> None:
    errors, _, truth = errors_of(learned_from(0, 1500), 0)
    monkeypatch.setattr(observed_rows, "_OUTGROWN", math.inf)
    projected, _, _ = errors_of(learned_from(0, 1500), 0)
    assert np.std(errors) < 0.35 * np.std(truth)
    assert np.std(errors) < 0.8 * np.std(projected)


def test_it_counts_the_directions_in_which_contexts_vary() -> None:
    """64 numbers that vary in two directions are two; a common number is one more; folded rows count as they did."""
    rng = np.random.default_rng(0)
    kernel, rankings = adaptive_kendall(40, SLATE_SIZE), rankings_of(40, SLATE_SIZE, 400, rng)
    flat = np.column_stack([rng.normal(size=(400, 2)) @ rng.normal(size=(2, 63)), np.full(400, 5.0)])
    full = np.column_stack([rng.normal(size=(400, 63)), np.full(400, 5.0)])
    for contexts, directions in ((flat, 3.0), (full, 64.0)):
        rows = ObservedRows.of(Observations(contexts, rankings, rng.normal(size=400)))
        for most_rows, outgrown in ((int(directions * 40 / 3), True), (int(directions * 40 / 1.4), False)):
            if most_rows < 400:
                assert outgrows(kernel, rows, most_rows=most_rows) == outgrown
    repeated = ObservedRows.of(Observations(np.tile(full, (2, 1)), np.tile(rankings, (2, 1)), rng.normal(size=800)))
    assert fold_by_ranking(repeated).n_rows < 800
    for most_rows in (100, 300):
        assert outgrows(kernel, fold_by_ranking(repeated), most_rows=most_rows) == outgrows(
            kernel, repeated, most_rows=most_rows
        )


@pytest.mark.parametrize("level", [0.0, 0.7])
def test_rewards_that_differ_for_the_first_time_after_others_left_are_learned(level: float) -> None:
    """Rare clicks: what left was all equal, and tells nothing of noise and of how much items differ."""
    contexts, rankings, _, _ = large_shop(4, 260)
    state = State.initial(adaptive_kendall(LARGE, SLATE_SIZE), context_dim=LARGE_DIM, limits=SMALL_LIMITS)
    for row in range(260):
        reward = level + (row > 200 and 5 in rankings[row])
        state = state.rewarded(str(row), contexts[row], rankings[row], reward=reward)
    posterior = state.refit().posterior
    assert posterior.observed_rows.parts is not None
    assert math.isfinite(posterior.noise_variance)
    assert math.isfinite(posterior.amplitude)
    means = posterior.item_means(state.encode(np.array([1.0, 0.0])), np.arange(LARGE))
    assert int(np.argmax(means)) == 5


@pytest.mark.slow
@pytest.mark.parametrize("since", [0, 400])
def test_a_study_of_a_large_catalogue_leads_nowhere(since: int) -> None:
    """Utilities with as much noise as they tell, from the start or later: no slope runs away, and means are right."""
    contexts, rankings, rewards, worth = large_shop(0, 900)
    kernel, rng = adaptive_kendall(LARGE, SLATE_SIZE), np.random.default_rng(1)
    utilities = worth[:, 0] + rng.normal(size=LARGE), np.column_stack([np.zeros(LARGE), worth[:, 1]])
    prior = PriorMean.of(kernel, *utilities, np.arange(LARGE))
    state = State.initial(kernel, context_dim=LARGE_DIM, limits=SMALL_LIMITS, prior_mean=None if since else prior)
    for row in range(900):
        if since and row == since:
            state = change_prior_mean(state, prior)
        state = state.rewarded(str(row), contexts[row], rankings[row], reward=float(rewards[row]))
    errors, deviations, truth = errors_of(state, 0)
    assert state.posterior.has_item_parts
    assert abs(state.posterior.slope) < 4.0
    assert np.std(errors) < 0.5 * np.std(truth)
    assert (np.abs(errors) < 2.0 * deviations).mean() > 0.85


@pytest.mark.slow
def test_deviations_of_a_large_catalogue_hold() -> None:
    inside, far = [], []
    for seed in range(12):
        errors, deviations, _ = errors_of(learned_from(seed, 600), seed)
        inside.append((np.abs(errors) < deviations).mean())
        far.append((np.abs(errors) < 2.0 * deviations).mean())
    assert 0.55 < np.mean(inside) < 0.85
    assert np.mean(far) > 0.9


@pytest.fixture(scope="module")
def grown() -> State:
    state = learned_from(1, 300)
    assert state.posterior.observed_rows.parts is not None, "the catalogue has not outgrown its rows"
    return state


def test_a_checkpoint_has_it_all(grown: State) -> None:
    state = grown.refit()
    kernel = adaptive_kendall(LARGE, SLATE_SIZE)
    assert digest_state(State.restore(kernel, state.checkpoint, limits=SMALL_LIMITS)) == digest_state(state)
    parts = state.checkpoint.observed_rows.parts
    assert parts is not None
    other = replace(parts, shifts=np.nextafter(parts.shifts, np.inf))
    changed = replace(state.checkpoint, observed_rows=replace(state.checkpoint.observed_rows, parts=other))
    assert digest_state(State.restore(kernel, changed, limits=SMALL_LIMITS)) != digest_state(state)


def test_items_that_are_gone_are_forgotten(grown: State) -> None:
    gone = np.array([3, 17], dtype=np.int32)
    parts = vacate(grown, gone).posterior.observed_rows.parts
    assert parts is not None
    assert not np.isin(parts.items, gone).any()
    assert len(parts.items) > LARGE // 2


def test_items_that_only_rows_that_left_showed_are_no_new_ones(grown: State) -> None:
    posterior = grown.refit().posterior
    parts = posterior.observed_rows.parts
    assert parts is not None
    in_rows = np.unique(posterior.all_rows.rankings)
    assert len(np.setdiff1d(parts.items, in_rows)), "all items are in rows"
    assert (posterior.shown_counts()[parts.items] > 0).all()


def test_rewards_that_age_fade_with_the_rows() -> None:
    state = learned_from(2, 200).with_half_life(10.0)
    aged = replace(state, aged_at=1.0).refit(at=31.0)
    before, after = state.posterior.observed_rows.parts, aged.posterior.observed_rows.parts
    assert before is not None
    assert after is not None
    known = np.searchsorted(after.items, before.items)
    assert (after.precisions[1 + known, 0, 0] < before.precisions[1:, 0, 0] / 4.0).all()


def test_a_history_of_many_rows_is_learned_at_once() -> None:
    contexts, rankings, rewards, _ = large_shop(3, 1500)
    state = State.initial(adaptive_kendall(LARGE, SLATE_SIZE), context_dim=LARGE_DIM, limits=SMALL_LIMITS)
    state = state.learn_history(PastRows(contexts, rankings, rewards, np.zeros(1500)))
    errors, _, truth = errors_of(state, 3)
    assert state.posterior.n_rows <= SMALL_LIMITS.rows
    assert np.std(errors) < 0.5 * np.std(truth)


def test_contexts_that_are_recoded_keep_what_was_learned(grown: State) -> None:
    def twice(contexts: FloatArray, sizes: FloatArray) -> FloatArray:
        assert len(sizes) == len(contexts)
        return contexts * np.array([1.0, 2.0, 1.0])

    halved = change_contexts(grown, lambda contexts, sizes: twice(contexts, sizes) * np.array([1.0, 0.5, 1.0]))
    assert halved is grown
    slates = rankings_of(LARGE, SLATE_SIZE, 50, np.random.default_rng(0))
    before = grown.refit().predict(np.array([1.0, 0.7]), slates).mean
    after = change_contexts(grown, twice).predict(np.array([1.0, 1.4]), slates).mean
    assert np.corrcoef(before, after)[0, 1] > 0.95


def test_contexts_that_are_turned_keep_what_is_known_of_items(grown: State) -> None:
    turn = np.array([[0.8, -0.6], [0.6, 0.8]])
    dim = grown.posterior.context_dim - 1
    slates, state = rankings_of(LARGE, SLATE_SIZE, 50, np.random.default_rng(0)), grown.refit()
    assert state.posterior.has_item_parts
    turned = change_contexts(
        state, lambda contexts, _: np.column_stack([contexts[:, :dim] @ turn.T[:dim, :dim], contexts[:, dim:]])
    )
    one, other = (each.predict(to @ np.array([1.0, 0.7]), slates) for each, to in ((state, np.eye(2)), (turned, turn)))
    # Noise is looked for again, which is as near as the look is fine.
    np.testing.assert_allclose(other.mean, one.mean, atol=0.003 * np.std(one.mean))
    np.testing.assert_allclose(other.variance, one.variance, rtol=0.01)


@each_shape
def test_the_difference_of_two_slates_is_that_of_the_model(shape: Shape) -> None:
    posterior, dense = posterior_of(shape, pending=3)
    x = dense.model.features(np.tile(CONTEXT, (2, 1)), SLATES[[11, 200]])
    apart = x[0] - x[1]
    mean, variance = posterior.predict_difference(CONTEXT, SLATES[11], SLATES[200])
    assert mean == pytest.approx(float(apart @ dense.mean), abs=1e-9)
    assert variance == pytest.approx(float(apart @ dense.covariance @ apart), abs=1e-9)
