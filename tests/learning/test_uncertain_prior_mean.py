"""A prior mean of utilities that are uncertain: what that adds to a Gaussian process, by dense algebra."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.learning.believed import Believer, Utilities, mean_weights, weights_of_places
from tests.learning.dense import CK, WCK, DenseGp, Kind, assert_close, rankings_of
from tests.learning.test_context_posterior import replaced
from tests.learning.test_item_parts import SHAPES, SINGLE, kernel_of, posterior_of
from tests.learning.test_observed_rows import repeating

from topk_bandit.learning.digests import digest_state
from topk_bandit.learning.item_draws import ItemDraws
from topk_bandit.learning.limits import Limits
from topk_bandit.learning.policy import State
from topk_bandit.learning.posterior import Moments, Posterior
from topk_bandit.learning.prior_mean import PriorMean
from topk_bandit.learning.rankings import all_rankings
from topk_bandit.learning.search import local_search
from topk_bandit.learning.slope_prior import SlopePrior

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from tests.learning.dense import IntArray

    from topk_bandit.learning.kendall import Shape

    FloatArray = NDArray[np.float64]

N_ITEMS, SLATE_SIZE, NOISE = 6, 3, 0.1
OFFSET, SLOPE, AMPLITUDE = 0.4, 0.7, 1.3
SLATES = all_rankings(np.arange(N_ITEMS), slate_size=SLATE_SIZE)
ITEMS = np.arange(N_ITEMS, dtype=np.int32)
WORTH = SlopePrior(1.2, 0.3, in_rewards=True)
KINDS = [WCK, CK]
each_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
each_dim = pytest.mark.parametrize("dim", [1, 3])
CONTEXTS = {1: np.array([-1.4]), 3: np.array([0.6, -1.1, 0.9])}


@dataclass(frozen=True)
class Doubted:
    """Utilities with covariances of their coefficients, the last one of items of which nothing is known.

    Contexts of several numbers have a last one of which utilities do not depend.
    """

    kind: Kind
    dim: int
    covariances: FloatArray
    utilities: Utilities
    unknown: int

    @classmethod
    def draw(cls, kind: Kind, dim: int, seed: int = 5, *, unknown: int = 2) -> Doubted:
        rng, d = np.random.default_rng(seed), 1 if dim == 1 else dim
        roots = rng.normal(size=(N_ITEMS - unknown + 1, d, d))
        utilities = Utilities.draw(rng, n_items=N_ITEMS, context_dim=dim, of="contexts")
        return cls(kind, dim, roots @ roots.transpose(0, 2, 1), utilities, unknown)

    @property
    def known(self) -> int:
        return N_ITEMS - self.unknown

    @property
    def row_of(self) -> NDArray[np.intp]:
        """Items in another order than utilities."""
        return np.append(np.full(self.unknown, -1), np.arange(self.known)[::-1]).astype(np.intp)

    def prior_mean(self, *, worth: SlopePrior | None = None) -> PriorMean:
        rows = slice(self.known)
        return PriorMean.of(
            self.kind.make(N_ITEMS, SLATE_SIZE),
            self.utilities.constants[rows],
            self.utilities.slopes[rows],
            self.row_of,
            variance=2.5,
            covariances=self.covariances,
            worth=worth,
        )

    def certain(self) -> PriorMean:
        return replace(self.prior_mean(), covariances=None)

    @property
    def weights(self) -> FloatArray:
        """g by position, from the pair features of Claim 3."""
        return np.array(weights_of_places(self.kind, N_ITEMS, mean_weights(self.kind, SLATE_SIZE, N_ITEMS)))

    def of_items(self, context: FloatArray) -> FloatArray:
        """Return x'Sigma x of all items for utilities as they are."""
        x = context if self.dim == 1 else np.append(1.0, context[: self.dim - 1])
        return np.array([x @ self.covariances[row] @ x for row in self.row_of])

    def added(self, context: FloatArray, slates: IntArray) -> FloatArray:
        """Return s^2 sum g_p^2 x'Sigma x of slates: h is the utilities over the root of 2.5 times the length of g."""
        of_items = self.of_items(context)
        g = self.weights
        return np.array([SLOPE**2 * sum(g**2 * of_items[slate]) / (2.5 * g @ g) for slate in slates])


def scaled(posterior: Posterior) -> Posterior:
    return posterior.rescale(offset=OFFSET, slope=SLOPE, amplitude=AMPLITUDE)


def posterior_with(prior_mean: PriorMean, kind: Kind, dim: int, *, pending: int = 3) -> Posterior:
    data, kernel = repeating(kind, 6, count=20, context_dim=dim), kind.make(N_ITEMS, SLATE_SIZE)
    posterior = Posterior.prior(kernel, context_dim=dim, noise_variance=NOISE, prior_mean=prior_mean)
    return scaled(posterior.observe(*data.rows).show(data.contexts[:pending], data.rankings[:pending]))


@each_kind
@each_dim
def test_items_have_the_variances_of_their_rows(kind: Kind, dim: int) -> None:
    doubted, context = Doubted.draw(kind, dim), CONTEXTS[dim]
    prior_mean = doubted.prior_mean()
    unit = 2.5 * float(doubted.weights @ doubted.weights)
    slates = np.array([[0, 3, 5], [2, 1, 4]], dtype=np.int32)
    found = prior_mean.variances(context, slates)
    assert found is not None
    np.testing.assert_allclose(found, doubted.of_items(context)[slates] / unit, rtol=1e-12)
    assert doubted.certain().variances(context, slates) is None


@each_kind
@each_dim
def test_a_posterior_is_a_gaussian_process_and_what_is_uncertain_of_the_utilities(kind: Kind, dim: int) -> None:
    doubted, context = Doubted.draw(kind, dim, unknown=0), CONTEXTS[dim]
    data = repeating(kind, 6, count=20, context_dim=dim)
    gp = DenseGp(
        kind, N_ITEMS, NOISE, *data.rows, data.contexts[:3], data.rankings[:3], offset=OFFSET, amplitude=AMPLITUDE
    )
    # The dense prior mean has a variance of one by its own utilities.
    order = np.argsort(doubted.row_of)
    utilities = Utilities(doubted.utilities.constants[order], doubted.utilities.slopes[order])
    if dim > 1:
        unit = math.sqrt(np.var(utilities.constants) + utilities.slopes.var(axis=0).mean()) / math.sqrt(2.5)
    else:
        unit = math.sqrt(float(utilities.slopes.var())) / math.sqrt(2.5)
    expected = Believer(gp, utilities, SLOPE * unit).predict(context, SLATES)
    expected = Moments(expected.mean, expected.variance + doubted.added(context, SLATES))
    posterior = posterior_with(doubted.prior_mean(), kind, dim)
    assert_close(posterior.predict(context, SLATES), expected, atol=1e-8)
    assert_close(posterior.at(context, ITEMS).moments(SLATES), expected, atol=1e-5)


@each_kind
@each_dim
@pytest.mark.parametrize("length", [1.0, 1e-3, 1e-10, 1e-14, 1e-160, 0.0])
def test_a_contraction_has_the_same_moments_for_all_and_for_some_items(kind: Kind, dim: int, length: float) -> None:
    doubted = Doubted.draw(kind, dim)
    posterior, context = posterior_with(doubted.prior_mean(), kind, dim), length * CONTEXTS[dim]
    for items in (ITEMS, np.array([0, 2, 3, 5], dtype=np.int32)):
        at, places = posterior.at(context, items), all_rankings(np.arange(len(items)), slate_size=SLATE_SIZE)
        expected = posterior.predict(context, items[places])
        assert_close(at.moments(places), expected, atol=1e-5)
        for position in range(SLATE_SIZE):
            around = replaced(places[5], position, len(items))
            found = at.replacements(places[5][None], position)
            expected = posterior.predict(context, items[around])
            assert_close(Moments(found.mean[0], found.variance[0]), expected, atol=1e-5)


@each_kind
@each_dim
def test_uncertain_utilities_add_to_the_variances_of_items_parts(kind: Kind, dim: int) -> None:
    """Of r_i, whose product with u_p is in the slate's value: n s times the utility, whatever the rewards."""
    doubted, context = Doubted.draw(kind, dim), CONTEXTS[dim]
    with_doubt, without = (
        ItemDraws(posterior_with(prior_mean, kind, dim).at(context, ITEMS)).covariance
        for prior_mean in (doubted.prior_mean(), doubted.certain())
    )
    g = doubted.weights
    expected = (N_ITEMS * SLOPE) ** 2 * doubted.of_items(context) / (2.5 * g @ g)
    np.testing.assert_allclose(with_doubt - without, np.diag(expected), atol=1e-5 * expected.max())


@pytest.mark.parametrize("length", [1.0, 0.0])
def test_draws_of_items_have_that_variance_in_a_context_of_zeros_too(length: float) -> None:
    doubted = Doubted.draw(WCK, 3)
    draws = ItemDraws(posterior_with(doubted.prior_mean(), WCK, 3).at(length * CONTEXTS[3], ITEMS))
    drawn = draws.draw(40_000, np.random.default_rng(1))
    scale = np.sqrt(np.diag(draws.covariance))
    assert scale.min() > 0.0
    np.testing.assert_allclose(drawn.std(axis=0), scale, rtol=0.03)


def parted(shape: Shape, prior_mean: PriorMean) -> Posterior:
    """Return a posterior with items' parts of rows that left."""
    posterior = posterior_of(shape, pending=2)[0].with_prior_mean(prior_mean, noise_variance=NOISE)
    return scaled(posterior)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_what_rows_that_left_said_of_items_is_known_beside_it(shape: Shape) -> None:
    kernel, context, rng = kernel_of(shape), np.array([0.6, -1.1]), np.random.default_rng(3)
    n, slates = kernel.n_items, rankings_of(kernel.n_items, SLATE_SIZE, 40, rng)
    roots = rng.normal(size=(n + 1, 3, 3))
    doubted = PriorMean.of(
        kernel, rng.normal(size=n), rng.normal(size=(n, 2)), np.arange(n), covariances=roots @ roots.transpose(0, 2, 1)
    )
    uncertain, certain = (parted(shape, one) for one in (doubted, replace(doubted, covariances=None)))
    x, g = np.append(1.0, context), doubted.position_weights
    assert doubted.covariances is not None
    of_items = np.array([x @ one @ x for one in doubted.covariances])
    added = SLOPE**2 * (of_items[slates] @ g**2)
    without = certain.predict(context, slates)
    expected = Moments(without.mean, without.variance + added)
    assert_close(uncertain.predict(context, slates), expected, atol=1e-9)
    every = np.arange(n, dtype=np.int32)
    at = uncertain.at(context, every)
    without = certain.at(context, every).moments(slates)
    assert_close(at.moments(slates), Moments(without.mean, without.variance + added), atol=20 * SINGLE)
    around = replaced(slates[0], 1, n)
    moved = at.replacements(slates[:1], 1)
    expected = uncertain.predict(context, around, with_constant=False)
    assert_close(Moments(moved.mean[0], moved.variance[0]), expected, atol=20 * SINGLE)
    difference = ItemDraws(at).covariance - ItemDraws(certain.at(context, every)).covariance
    unit = (n * SLOPE) ** 2 * of_items[:n]
    np.testing.assert_allclose(difference, np.diag(unit), atol=1e-5 * unit.max())


@each_kind
@pytest.mark.parametrize("beta", [1.0, 9.0])
def test_the_search_ends_at_the_best_slate(kind: Kind, beta: float) -> None:
    doubted, context = Doubted.draw(kind, 3), CONTEXTS[3]
    posterior, none = posterior_with(doubted.prior_mean(), kind, 3), np.zeros((0, SLATE_SIZE), dtype=np.int32)
    at = posterior.at(context, ITEMS)
    found = local_search(at, ItemDraws(at).covariance, beta=beta, starts=none, rng=np.random.default_rng(0)).ranking
    moments = posterior.predict(context, SLATES)
    scores = moments.mean + math.sqrt(beta) * np.sqrt(moments.variance)
    place = int(np.flatnonzero((found == SLATES).all(axis=1))[0])
    assert scores[place] >= scores.max() - 1e-5


def test_rewards_do_not_narrow_it_and_no_slope_has_none_of_it() -> None:
    doubted, context = Doubted.draw(WCK, 3), CONTEXTS[3]
    posterior = posterior_with(doubted.prior_mean(), WCK, 3)
    many = posterior
    for _ in range(40):
        many = many.observe(np.tile(context, (len(SLATES), 1))[:30], SLATES[:30], np.zeros(30))
    left = many.predict(context, SLATES[:30]).variance
    assert (left >= doubted.added(context, SLATES[:30])).all()
    flat = posterior.rescale(offset=OFFSET, amplitude=AMPLITUDE)
    certain = posterior_with(doubted.certain(), WCK, 3)
    np.testing.assert_array_equal(flat.predict(context, SLATES).variance, certain.predict(context, SLATES).variance)


@each_kind
@each_dim
def test_another_kernel_has_the_same_utilities_in_the_same_unit(kind: Kind, dim: int) -> None:
    doubted, context = Doubted.draw(WCK, dim), CONTEXTS[dim]
    before = doubted.prior_mean(worth=WORTH)
    after = before.with_kernel(kind.make(N_ITEMS + 3, SLATE_SIZE))
    g, more = before.position_weights, after.position_weights
    every = np.arange(N_ITEMS + 3)
    unit = math.sqrt((g @ g) / (more @ more))
    np.testing.assert_allclose(after.utilities(context, ITEMS), unit * before.utilities(context, ITEMS))
    new, old = after.variances(context, every), before.variances(context, ITEMS)
    assert new is not None
    assert old is not None
    np.testing.assert_allclose(new, unit**2 * np.append(old, np.full(3, old[0])))
    assert after.worth == before.worth
    assert doubted.certain().with_kernel(kind.make(N_ITEMS + 3, SLATE_SIZE)).covariances is None


@pytest.mark.parametrize("slope", [1e10, -1e30, 1e85])
def test_a_slope_of_any_size_leaves_finite_variances(slope: float) -> None:
    """As of rewards without end that are taken for equal by rounding, so that the amplitude is one."""
    context = CONTEXTS[3]
    posterior = posterior_with(Doubted.draw(WCK, 3).prior_mean(), WCK, 3).rescale(
        offset=OFFSET, slope=slope, amplitude=1e-6
    )
    at = posterior.at(context, ITEMS)
    moments = at.moments(SLATES)
    assert np.isfinite(moments.variance).all()
    assert np.isfinite(ItemDraws(at).covariance).all()
    if slope == 1e10:
        np.testing.assert_allclose(moments.variance, posterior.predict(context, SLATES).variance, rtol=1e-5)


def test_more_numbers_of_contexts_say_nothing_of_it() -> None:
    before = Doubted.draw(WCK, 3).prior_mean(worth=WORTH)
    after, longer = before.with_context_dim(5), np.array([0.6, -1.1, 0.9, 40.0, -7.0])
    np.testing.assert_allclose(after.utilities(longer, ITEMS), before.utilities(longer[:3], ITEMS))
    assert before.covariances is not None
    np.testing.assert_array_equal(after.variances(longer, ITEMS), before.variances(longer[:3], ITEMS))  # type: ignore[arg-type]
    assert after.worth == before.worth
    assert before.with_context_dim(3) is before


def test_the_worth_of_utilities_is_in_the_unit_of_the_prior_mean() -> None:
    """That of h is as many times as large as h is small; of utilities that are all equal nothing is worth anything."""
    worth = Doubted.draw(WCK, 3).prior_mean(worth=WORTH).worth
    assert worth is not None
    assert worth.mean == pytest.approx(WORTH.mean * math.sqrt(2.5))
    assert worth.variance == pytest.approx(WORTH.variance * 2.5)
    assert worth.in_rewards
    equal = PriorMean.of(
        WCK.make(6, 2), np.full(6, 3.0), np.zeros((6, 2)), np.arange(6), covariances=np.zeros((7, 3, 3)), worth=WORTH
    )
    assert equal.variances(np.ones(2), np.arange(6)) is not None
    assert not np.any(equal.variances(np.ones(2), np.arange(6)))
    assert not equal.of_slates(np.ones(2), np.array([[0, 1], [5, 2]])).any()


def test_it_is_restored_to_the_bit_and_each_of_its_numbers_counts_for_digests() -> None:
    kernel = WCK.make(N_ITEMS, SLATE_SIZE)
    one = Doubted.draw(WCK, 3).prior_mean(worth=WORTH)
    assert one.covariances is not None
    parts = {"covariances": one.covariances.copy(), "worth": one.worth}
    again = PriorMean.restore(kernel, one.constants.copy(), one.slopes.copy(), one.row_of.copy(), **parts)  # type: ignore[arg-type]
    mine, theirs = one.numbers, again.numbers
    assert len(mine) == len(theirs) == 4 + 1 + 3
    assert all(np.array_equal(left, right) for left, right in zip(mine, theirs, strict=True))
    assert len(replace(one, covariances=None, worth=None).numbers) == 4
    assert one.nbytes == replace(one, covariances=None).nbytes + one.covariances.nbytes
    digests = {
        digest_state(State.initial(kernel, context_dim=3, limits=Limits(), prior_mean=other))
        for other in (
            one,
            replace(one, covariances=None),
            replace(one, covariances=one.covariances * 2.0),
            replace(one, worth=None),
            replace(one, worth=one.worth.times(2.0) if one.worth else None),
        )
    }
    assert len(digests) == 5
    assert not np.shares_memory(again.covariances, parts["covariances"])  # type: ignore[arg-type]


@each_kind
@each_dim
def test_the_difference_of_two_slates_has_what_is_uncertain_of_each_item_once(kind: Kind, dim: int) -> None:
    doubted, context = Doubted.draw(kind, dim), CONTEXTS[dim]
    first, second = np.array([0, 3, 5], dtype=np.int32), np.array([3, 0, 1], dtype=np.int32)
    uncertain = posterior_with(doubted.prior_mean(), kind, dim).predict_difference(context, first, second)
    certain = posterior_with(doubted.certain(), kind, dim).predict_difference(context, first, second)
    weights = np.zeros(N_ITEMS)
    weights[first] += doubted.weights
    weights[second] -= doubted.weights
    added = SLOPE**2 * float(weights**2 @ doubted.of_items(context)) / (2.5 * float(doubted.weights @ doubted.weights))
    assert uncertain[0] == pytest.approx(certain[0], abs=1e-9)
    assert uncertain[1] - certain[1] == pytest.approx(added, rel=1e-8)
