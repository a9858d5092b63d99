"""The content part of the kernel: everything against explicit features and dense algebra."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import multivariate_normal
from tests.learning.believed import Utilities
from tests.learning.contents import attributes, content_kind
from tests.learning.dense import DenseGp, assert_close, fitted, rankings_of, same, sample
from tests.learning.test_context_posterior import replaced

from topk_bandit.domain.bandits import ConstantBeta, Exploration
from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.learning.acquisition import UpperConfidenceBound
from topk_bandit.learning.content import MOST_FEATURES
from topk_bandit.learning.decisions import decide
from topk_bandit.learning.digests import digest_state
from topk_bandit.learning.hyperparameters import RELATIVE_NOISE_GRID, profile_likelihood
from topk_bandit.learning.item_draws import ItemDraws
from topk_bandit.learning.kendall import CONTENTS, Shape, adaptive_kendall, weighted_convolutional_kendall
from topk_bandit.learning.kernel_choice import choose
from topk_bandit.learning.limits import Limits, most_bytes_of
from topk_bandit.learning.observed_rows import Observations, ObservedRows, compact, project
from topk_bandit.learning.policy import State
from topk_bandit.learning.posterior import PendingSlates, Posterior
from topk_bandit.learning.rankings import all_rankings
from topk_bandit.learning.state_changes import change_item_features, change_kernel
from topk_bandit.learning.thompson import Normals, draw_from

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from tests.learning.contents import ContentKind
    from tests.learning.dense import Sample

    FloatArray = NDArray[np.float64]

N_ITEMS, SLATE_SIZE, CONTEXT_DIM, NOISE = 9, 3, 2, 0.2
CONTEXT = np.array([0.6, -1.1])
SLATES = all_rankings(np.arange(N_ITEMS), slate_size=SLATE_SIZE)
Z = attributes(N_ITEMS, 4)
SHAPES = [Shape(0.5, 1.0, 0.25, 1.0), Shape(1.0, 0.3, 0.0, 16.0), Shape(0.0, 0.1, 4.0, 0.25), Shape(0.5, 0.3, 1.0, 0.0)]
each_shape = pytest.mark.parametrize("shape", SHAPES, ids=str)
ASKED = np.array([0.6, -1.1, 1.0])
NO_PENDING = PendingSlates(np.zeros((0, CONTEXT_DIM)), np.zeros((0, SLATE_SIZE), dtype=np.int32))
SINGLE = 1e-5
"""Variances in a contraction are computed from float32 numbers, times the largest prior variance."""


def drawn(kind: ContentKind, count: int, *, seed: int = 0, n_items: int = N_ITEMS) -> Sample:
    return sample(
        kind, np.random.default_rng(seed),
        n_items=n_items, slate_size=SLATE_SIZE, context_dim=CONTEXT_DIM, count=count, noise_variance=NOISE,
    )  # fmt: skip


def posterior_of(kind: ContentKind, *, count: int = 20, pending: int = 3) -> tuple[Posterior, DenseGp]:
    """Return a posterior, and the same one by the textbook; two items were never shown."""
    rng = np.random.default_rng(1)
    rows = sample(
        kind,
        rng,
        n_items=N_ITEMS - 2,
        slate_size=SLATE_SIZE,
        context_dim=CONTEXT_DIM,
        count=count,
        noise_variance=NOISE,
    )
    contexts, rankings = rng.normal(size=(pending, CONTEXT_DIM)), rankings_of(N_ITEMS - 2, SLATE_SIZE, pending, rng)
    posterior = fitted(kind, rows, n_items=N_ITEMS, noise_variance=NOISE).show(contexts, rankings)
    gp = DenseGp(kind, N_ITEMS, NOISE, *rows.rows, contexts, rankings, offset=0.4, amplitude=2.5)
    return posterior.rescale(offset=0.4, amplitude=2.5), gp


@each_shape
@pytest.mark.parametrize(("n_items", "slate_size"), [(9, 3), (6, 6), (30, 2), (12, 1)])
def test_the_kernel_is_the_product_of_its_features(shape: Shape, n_items: int, slate_size: int) -> None:
    if slate_size == n_items:
        assert (
            adaptive_kendall(n_items, slate_size, shape).with_item_features(attributes(n_items, 5)).counted_content
            is None
        )
        return
    kind = content_kind(shape, attributes(n_items, 5))
    rankings = rankings_of(n_items, slate_size, 30, np.random.default_rng(1))
    features = kind.features(rankings, n_items)
    kernel = kind.make(n_items, slate_size)
    np.testing.assert_allclose(kernel.gram(rankings[:7], rankings), features[:7] @ features.T, atol=1e-11)
    np.testing.assert_allclose(kernel.gram_of(rankings), features @ features.T, atol=1e-11)
    np.testing.assert_allclose(kernel.variances(rankings), (features**2).sum(axis=1), atol=1e-11)
    own = kernel.variances(rankings, with_constant=False)
    np.testing.assert_allclose(own, (features**2).sum(axis=1) - shape.constant, atol=1e-11)
    assert kernel.variance_to_own(rankings) == pytest.approx((own.mean() + shape.constant) / own.mean())


@given(
    seed=st.integers(0, 2**32 - 1),
    n_features=st.integers(1, 6),
    sizes=st.integers(2, 12).flatmap(lambda n: st.tuples(st.just(n), st.integers(1, n))),
    share=st.sampled_from(CONTENTS),
)
def test_it_is_a_kernel(seed: int, n_features: int, sizes: tuple[int, int], share: float) -> None:
    rng = np.random.default_rng(seed)
    z = attributes(sizes[0], n_features, seed) * rng.integers(0, 2, size=(sizes[0], 1))
    kernel = adaptive_kendall(*sizes, Shape(content=share)).with_item_features(z)
    gram = kernel.gram_of(rankings_of(*sizes, 20, rng))
    assert np.linalg.eigvalsh(gram).min() >= -1e-10 * gram.max()
    assert np.diag(gram).max() <= kernel.variance + share + 1e-9


@pytest.mark.parametrize(
    "features",
    [
        np.ones((N_ITEMS, 1)) * 1.1,
        np.full((N_ITEMS, 2), np.nan),
        Z[:-1],
        Z[:, :0],
        np.zeros((N_ITEMS, MOST_FEATURES + 1)),
    ],
    ids=["long", "nan", "few items", "no numbers", "many numbers"],
)
def test_features_that_are_none_are_named(features: FloatArray) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        adaptive_kendall(N_ITEMS, SLATE_SIZE).with_item_features(features)
    assert caught.value.field == "features"


def test_a_kernel_that_stays_as_it_is_takes_no_features() -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        weighted_convolutional_kendall(N_ITEMS, SLATE_SIZE).with_item_features(Z)
    assert caught.value.field == "kernel"


def test_the_share_is_one_of_the_neighbours_only_where_items_have_features() -> None:
    plain = adaptive_kendall(N_ITEMS, SLATE_SIZE)
    shares = {kernel.shape.content for kernel in plain.with_item_features(Z).neighbours if kernel.shape is not None}
    assert shares == {0.25, 1.0, 4.0}
    assert all(kernel.content is not None for kernel in plain.with_item_features(Z).neighbours)
    assert {kernel.shape.content for kernel in plain.neighbours if kernel.shape is not None} == {1.0}
    everything = adaptive_kendall(4, 4).with_item_features(Z[:4])
    assert {kernel.shape.content for kernel in everything.neighbours if kernel.shape is not None} == {1.0}


@each_shape
@pytest.mark.parametrize("count", [0, 30])
def test_moments_are_those_of_the_textbook(shape: Shape, count: int) -> None:
    posterior, gp = posterior_of(content_kind(shape, Z), count=count)
    assert_close(posterior.predict(CONTEXT, SLATES), gp.predict(CONTEXT, SLATES), atol=1e-9)


@each_shape
@pytest.mark.parametrize("count", [0, 30])
@pytest.mark.parametrize("items", [list(range(N_ITEMS)), [0, 2, 3, 5, 7, 8]])
def test_a_contraction_has_the_moments_of_the_posterior(shape: Shape, count: int, items: list[int]) -> None:
    posterior, _ = posterior_of(content_kind(shape, Z), count=count)
    chosen, unit = np.array(items, dtype=np.int32), 2.5 * (CONTEXT @ CONTEXT) * (1.0 + shape.content)
    local = all_rankings(np.arange(len(chosen)), slate_size=SLATE_SIZE)
    at, expected = posterior.at(CONTEXT, chosen), posterior.predict(CONTEXT, chosen[local], with_constant=False)
    moments = at.moments(local)
    np.testing.assert_allclose(moments.mean, expected.mean, atol=1e-9)
    np.testing.assert_allclose(moments.variance, expected.variance, atol=SINGLE * unit)
    for position in range(SLATE_SIZE):
        at_once = at.replacements(local[:4], position)
        for row in range(4):
            one_by_one = at.moments(replaced(local[row], position, len(chosen)))
            np.testing.assert_allclose(at_once.mean[row], one_by_one.mean, atol=1e-9)
            np.testing.assert_allclose(at_once.variance[row], one_by_one.variance, atol=SINGLE * unit)


def test_slates_of_more_than_six_items_have_them_too() -> None:
    z = attributes(14, 3)
    kind = content_kind(Shape(0.5, 1.0, 0.0, 4.0), z)
    rng = np.random.default_rng(2)
    data = sample(kind, rng, n_items=14, slate_size=8, context_dim=2, count=20)
    at = fitted(kind, data, n_items=14).at(CONTEXT, np.arange(14, dtype=np.int32))
    ranking = rankings_of(14, 8, 1, rng)
    for position in range(8):
        one_by_one = at.moments(replaced(ranking[0], position, 14))
        np.testing.assert_allclose(at.replacements(ranking, position).variance[0], one_by_one.variance, atol=1e-4)


@pytest.mark.parametrize("slate_size", [1, 3])
def test_what_an_item_adds_to_the_mean_counts_its_features(slate_size: int) -> None:
    kind = content_kind(Shape(0.5, 0.3, 1.0, 4.0), Z)
    data = sample(kind, np.random.default_rng(3), n_items=7, slate_size=slate_size, context_dim=2, count=12)
    posterior = Posterior.prior(kind.make(N_ITEMS, slate_size), context_dim=2, noise_variance=NOISE).observe(*data.rows)
    items = np.array([0, 3, 4, 7, 8])
    means = posterior.item_means(CONTEXT, items)
    at = posterior.at(CONTEXT, items)
    k = posterior.kernel
    expected = k.item_weight[0] * at.contraction.weights[:5] + k.divergence[0] * at.contraction.weights[5:10]
    np.testing.assert_allclose(means, expected, atol=1e-10)


def dense_covariance(gp: DenseGp) -> FloatArray:
    """Return the posterior covariance of all slates."""
    asked = np.tile(CONTEXT, (len(SLATES), 1)), SLATES
    prior, across = gp.covariance(asked, asked), gp.covariance(gp.shown, asked)
    return np.asarray(gp.amplitude * (prior - across.T @ np.linalg.solve(gp.noisy(gp.shown), across)))


@each_shape
def test_draws_have_exactly_the_mean_and_the_covariance_of_the_posterior(shape: Shape) -> None:
    posterior, gp = posterior_of(content_kind(shape, Z))
    every, shapes = np.arange(N_ITEMS), Normals.of(posterior, np.random.default_rng(0))
    zero = Normals(*map(np.zeros_like, shapes))
    constant = draw_from(posterior, CONTEXT, every, zero).values(SLATES)
    columns = []
    for part, numbers in enumerate(shapes):
        for cell in np.ndindex(numbers.shape):
            unit = Normals(*map(np.zeros_like, shapes))
            unit[part][cell] = 1.0
            columns.append(draw_from(posterior, CONTEXT, every, unit).values(SLATES) - constant)
    np.testing.assert_allclose(constant, gp.predict(CONTEXT, SLATES).mean, atol=1e-10)
    np.testing.assert_allclose(np.array(columns).T @ np.array(columns), dense_covariance(gp), atol=1e-9)


@each_shape
@pytest.mark.parametrize("count", [0, 30])
def test_the_items_parts_have_the_covariance_that_slates_of_one_item_have(shape: Shape, count: int) -> None:
    """With one place there are no pairs: a slate is u times its item's part, and what all slates have in common."""
    kind = content_kind(shape, Z)
    data = sample(kind, np.random.default_rng(4), n_items=7, slate_size=1, context_dim=2, count=count)
    posterior = Posterior.prior(kind.make(N_ITEMS, 1), context_dim=2, noise_variance=NOISE)
    posterior = posterior.observe(*data.rows).rescale(offset=0.0, amplitude=1.7) if count else posterior
    draws = ItemDraws(posterior.at(CONTEXT, np.arange(N_ITEMS, dtype=np.int32)))
    u, v = posterior.kernel.item_weight[0], posterior.kernel.divergence[0]
    assert v == 0.0
    ones = np.arange(N_ITEMS)[:, None]
    asked = np.tile(CONTEXT, (N_ITEMS, 1)), ones
    gp = DenseGp(kind, N_ITEMS, NOISE, *data.rows, amplitude=posterior.amplitude)
    prior = (CONTEXT @ CONTEXT) * (posterior.kernel.gram(ones, ones) - shape.constant)
    known: FloatArray | float = 0.0
    if count:
        across = gp.covariance(gp.rewarded, asked) - shape.constant * (gp.contexts @ asked[0].T)
        known = across.T @ np.linalg.solve(gp.noisy(gp.rewarded), across)
    np.testing.assert_allclose(
        u * u * draws.covariance, gp.amplitude * (prior - known), atol=1e-4 * (1 + shape.content)
    )
    drawn_parts = draws.draw(40_000, np.random.default_rng(1))
    scale = np.sqrt(np.diag(draws.covariance))
    spread = 10.0 * np.outer(scale, scale) / np.sqrt(40_000)
    assert (np.abs(np.cov(drawn_parts.T) - draws.covariance) <= spread + 1e-3).all()


@pytest.mark.usefixtures("without_draws")
@pytest.mark.parametrize(("n_items", "share"), [(9, 16.0), (18, 1.0)])
def test_a_decision_reaches_the_exhaustive_optimum(n_items: int, share: float) -> None:
    kind = content_kind(Shape(0.5, 1.0, 0.25, share), attributes(n_items, 3, 5))
    everything, eligible = all_rankings(np.arange(n_items), slate_size=3), np.arange(n_items, dtype=np.int32)
    reached = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        data = sample(kind, rng, n_items=n_items, slate_size=3, context_dim=2, count=int(rng.integers(1, 120)))
        posterior = fitted(kind, data, n_items=n_items)
        bounds = UpperConfidenceBound(1.0)(posterior.predict(CONTEXT, everything, with_constant=False))
        state = State(posterior=posterior, limits=Limits(), observations=posterior.n_rows)
        exploration = Exploration(ConstantBeta(1.0), uniform_share=0.0)
        ranking = decide(state, exploration, context=CONTEXT, eligible=eligible, rng=rng).ranking
        value = float(UpperConfidenceBound(1.0)(posterior.predict(CONTEXT, ranking[None], with_constant=False))[0])
        reached += value >= bounds.max() - 1e-4 * (1.0 + abs(bounds.max()))
    assert reached >= 18


def observed_rows_of(data: Sample) -> ObservedRows:
    return ObservedRows.of(Observations(*data.rows))


def chosen_share(kind: ContentKind, rows: ObservedRows) -> float:
    found = choose(
        kind.make(N_ITEMS, SLATE_SIZE), rows, shared=0.0, noise_variance=0.1, prior_mean=None, prior=None
    ).choice.kernel
    assert found.shape is not None
    assert found.content is not None
    return found.shape.content


def test_the_share_is_the_one_that_the_textbook_prefers() -> None:
    """The densities of two shares differ as those of the textbook do, each at its own best scale and noise."""
    data = drawn(content_kind(Shape(0.5, 1.0, 0.0, 4.0), Z), 60)
    rows, ratios = observed_rows_of(data), RELATIVE_NOISE_GRID
    found = []
    for share in (0.0, 4.0):
        kind = content_kind(Shape(0.5, 1.0, 0.0, share), Z)
        kernel = kind.make(N_ITEMS, SLATE_SIZE)
        profile = profile_likelihood(rows.contexts @ rows.contexts.T * kernel.gram_of(rows.rankings), rows, ratios)
        best = int(np.argmax(profile.log_likelihood))
        covariance = DenseGp(kind, N_ITEMS, ratios[best], *data.rows).noisy(data.rows[:2])
        log_density = multivariate_normal(
            np.full(60, profile.offset[best]), profile.amplitude[best] * covariance
        ).logpdf(data.rewards)
        assert profile.log_likelihood[best] == pytest.approx(log_density, abs=1e-6)
        found.append(log_density)
    assert found[1] > found[0] + 2.0


def test_features_that_tell_of_the_rewards_count_and_others_do_not() -> None:
    kind = content_kind(Shape(0.5, 0.3, 0.25, 16.0), Z)
    useless = content_kind(Shape(0.5, 0.3, 0.25, 1.0), attributes(N_ITEMS, 4, seed=9))
    for seed in range(4):
        rows = observed_rows_of(drawn(kind, 150, seed=seed))
        assert chosen_share(content_kind(Shape(), Z), rows) >= 4.0
        own = observed_rows_of(drawn(content_kind(Shape(0.5, 0.3, 0.25, 0.0), Z), 150, seed=seed))
        assert chosen_share(useless, own) <= 1.0


@pytest.mark.slow
def test_rows_that_are_projected_keep_what_their_features_tell() -> None:
    """Of many items, each shown seldom, few rows tell nearly as well as all: what the features explain is kept."""
    n_items, rng = 400, np.random.default_rng(0)
    z = attributes(n_items, 5)
    kind = content_kind(Shape(0.5, 0.3, 0.0, 16.0), z)
    data = sample(kind, rng, n_items=n_items, slate_size=3, context_dim=2, count=300, noise_variance=NOISE)
    kernel, rows = kind.make(n_items, 3), observed_rows_of(data)
    asked = rankings_of(n_items, 3, 60, rng)
    exact = Posterior.fit(kernel, rows, NO_PENDING, noise_variance=NOISE)
    less = project(kernel, rows, most_rows=60, noise_variance=NOISE)
    moments = (
        exact.predict(CONTEXT, asked),
        Posterior.fit(kernel, less, NO_PENDING, noise_variance=NOISE).predict(CONTEXT, asked),
    )
    assert less.n_rows == 60
    assert np.corrcoef(moments[0].mean, moments[1].mean)[0, 1] > 0.97
    assert (moments[1].variance >= moments[0].variance - 1e-9).all()


def test_rows_that_are_folded_say_as_much() -> None:
    kind = content_kind(Shape(0.5, 0.3, 0.25, 4.0), attributes(5, 3))
    data = sample(
        kind, np.random.default_rng(5), n_items=5, slate_size=3, context_dim=2, count=120, noise_variance=NOISE
    )
    kernel, rows = kind.make(5, 3), observed_rows_of(data)
    fewer = compact(kernel, rows)
    asked = all_rankings(np.arange(5), slate_size=3)
    moments = [
        Posterior.fit(kernel, each, NO_PENDING, noise_variance=NOISE).predict(CONTEXT, asked) for each in (rows, fewer)
    ]
    assert fewer.n_rows < 60
    assert_close(moments[1], moments[0], atol=1e-8)


def initial(features: FloatArray | None = None, *, n_items: int = N_ITEMS) -> State:
    state = State.initial(adaptive_kendall(n_items, SLATE_SIZE), context_dim=CONTEXT_DIM, limits=Limits(rows=100))
    return state if features is None else change_item_features(state, features)


def taught(state: State, count: int, *, seed: int = 0, n_items: int = N_ITEMS - 2) -> State:
    """Return the state after slates of the first few items, some of them still pending."""
    kind = content_kind(Shape(0.5, 0.3, 0.25, 64.0), attributes(n_items, 4))
    data = sample(kind, np.random.default_rng(seed), n_items=n_items, slate_size=3, context_dim=2, count=count)
    for place, (context, ranking, reward) in enumerate(zip(*data.rows, strict=True)):
        state = state.shown(f"{place}", context, ranking)
        if place % 5:
            state = state.rewarded(f"{place}", context, ranking, reward=float(reward))
    return state


def decided(state: State, eligible: NDArray[np.int32] | None = None) -> list[int]:
    items = np.arange(state.posterior.kernel.n_items, dtype=np.int32) if eligible is None else eligible
    exploration = Exploration(ConstantBeta(1.0), uniform_share=0.0)
    rng = np.random.default_rng(0)
    return decide(state, exploration, context=CONTEXT, eligible=items, rng=rng).ranking.tolist()


def test_memory_stays_within_what_its_limits_allow() -> None:
    for count in (0, 30, 130):
        state = taught(initial(Z), count)
        most = most_bytes_of(state.limits, context_dim=CONTEXT_DIM, slate_size=SLATE_SIZE, n_features=Z.shape[1])
        assert state.memory_bytes <= most


def test_the_rows_within_a_memory_leave_space_for_features() -> None:
    few, many = (
        Limits.within(2**21, context_dim=5, slate_size=6, n_features=n_features) for n_features in (0, MOST_FEATURES)
    )
    assert few.rows > many.rows
    assert most_bytes_of(many, context_dim=5, slate_size=6, n_features=MOST_FEATURES) <= 2**21


@pytest.mark.parametrize("count", [0, 12])
def test_weights_follow_a_drawn_slope_through_the_content(count: int) -> None:
    """The weights change with the slope as those of a posterior that is contracted at another slope do."""
    kind = content_kind(Shape(0.5, 0.3, 0.25, 4.0), Z)
    utilities = Utilities.draw(np.random.default_rng(2), n_items=N_ITEMS, context_dim=CONTEXT_DIM, of="contexts")
    kernel = kind.make(N_ITEMS, SLATE_SIZE)
    prior_mean = utilities.prior_mean(kind, SLATE_SIZE)
    posterior = Posterior.prior(kernel, context_dim=CONTEXT_DIM, noise_variance=NOISE, prior_mean=prior_mean)
    posterior = posterior.observe(*drawn(kind, count).rows) if count else posterior
    items = np.array([0, 2, 5, 8], dtype=np.int32)
    at = [
        posterior.rescale(offset=posterior.offset_at(slope), slope=slope, amplitude=1.0).at(CONTEXT, items)
        for slope in (0.3, 1.3)
    ]
    change = at[1].contraction.weights[:8] - at[0].contraction.weights[:8]
    np.testing.assert_allclose(posterior.weights_of_slope(CONTEXT, items).reshape(-1), change, atol=1e-9)


def test_without_features_nothing_changes() -> None:
    plain, none = taught(initial(), 90), taught(change_item_features(initial(), None), 90)
    assert digest_state(plain) == digest_state(none)
    back = change_item_features(taught(initial(Z), 3), None)
    assert back.posterior.kernel.content is None


@pytest.mark.parametrize("count", [0, 4, 90])
def test_a_restored_state_is_the_one_that_was_kept_to_the_bit(count: int) -> None:
    state = taught(initial(Z), count).refit()
    kernel = adaptive_kendall(N_ITEMS, SLATE_SIZE).with_item_features(Z)
    restored = State.restore(kernel, state.checkpoint, limits=state.limits)
    assert digest_state(restored) == digest_state(state)
    assert same(restored.predict(CONTEXT, SLATES), state.predict(CONTEXT, SLATES))
    assert decided(restored) == decided(state)
    later = [taught(each, 30, seed=1) for each in (restored, state)]
    assert digest_state(later[0]) == digest_state(later[1])


def test_items_that_were_never_shown_get_other_features_without_a_refit() -> None:
    state = taught(initial(Z), 60, seed=1)
    other = Z.copy()
    other[-2:] = attributes(2, 4, seed=3)
    changed = change_item_features(state, other)
    known = SLATES[(SLATES < N_ITEMS - 2).all(axis=1)]
    assert same(changed.predict(CONTEXT, known), state.predict(CONTEXT, known))
    assert changed.posterior.n_rows == state.posterior.n_rows
    assert changed.since_refit == state.since_refit
    assert not same(changed.predict(CONTEXT, SLATES), state.predict(CONTEXT, SLATES))
    # As if they had had them from the beginning.
    assert digest_state(changed) == digest_state(taught(initial(other), 60, seed=1))
    assert digest_state(changed) != digest_state(state)


def test_items_that_were_shown_get_other_features_with_a_refit() -> None:
    state, other = taught(initial(Z), 30), Z[::-1]
    changed = change_item_features(state, other)
    assert changed.since_refit == 0
    rows, kernel = changed.posterior.observed_rows, changed.posterior.kernel
    expected = Posterior.fit(
        kernel, rows, changed.posterior.pending, noise_variance=changed.posterior.noise_variance
    ).rescale(offset=changed.posterior.offset, amplitude=changed.posterior.amplitude)
    assert same(changed.posterior.predict(ASKED, SLATES), expected.predict(ASKED, SLATES))
    np.testing.assert_array_equal(kernel.content.features if kernel.content is not None else None, other)


def test_what_was_learned_of_like_items_is_believed_of_one_that_was_never_shown() -> None:
    """An item with the features of one that is good is believed to be good; without features it is like any."""
    z = np.repeat(np.eye(3), 3, axis=0)
    state, rng = initial(z), np.random.default_rng(0)
    for number in range(60):
        ranking = rng.permutation(8)[:SLATE_SIZE].astype(np.int32)
        reward = float(z[ranking, 0].sum() - z[ranking, 2].sum() + 0.1 * rng.normal())
        state = state.rewarded(f"{number}", CONTEXT, ranking, reward=reward)
    state = change_item_features(state, np.vstack([z[:8], z[:1]]))
    like_the_best, like_the_middle = state.predict(CONTEXT, np.array([[8, 3, 4], [5, 3, 4]], dtype=np.int32)).mean
    assert like_the_best > like_the_middle + 0.3
    assert 8 in decided(state)


@pytest.mark.parametrize("n_candidates", [40, 300])
def test_of_many_new_items_those_with_good_features_are_searched(n_candidates: int) -> None:
    n_items, rng = 600, np.random.default_rng(1)
    z = attributes(n_items, 3)
    state = initial(z, n_items=n_items)
    for number in range(120):
        ranking = rng.permutation(n_items)[:SLATE_SIZE].astype(np.int32)
        state = state.rewarded(f"{number}", CONTEXT, ranking, reward=float(z[ranking, 0].sum() + 0.1 * rng.normal()))
    eligible = np.sort(rng.permutation(n_items)[:n_candidates]).astype(np.int32)
    shown = decided(state, eligible)
    rank = np.argsort(np.argsort(-z[eligible, 0]))[np.searchsorted(eligible, shown)]
    assert rank.max() < n_candidates // 4


def test_items_keep_their_features_when_there_is_space_for_more() -> None:
    state = taught(initial(Z), 30)
    wider = change_kernel(state, adaptive_kendall(N_ITEMS + 3, SLATE_SIZE))
    content = wider.posterior.kernel.content
    assert content is not None
    np.testing.assert_array_equal(content.features, np.concatenate([Z, np.zeros((3, Z.shape[1]))]))
