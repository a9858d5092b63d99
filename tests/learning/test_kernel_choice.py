"""The kernel that its rewards choose: the most likely one, by the textbook, and no other until it settles."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from scipy.stats import multivariate_normal, norm
from tests.learning.believed import Utilities
from tests.learning.dense import CK, WCK, DenseGp, Kind, Sample, assert_close, rankings_of, sample
from tests.learning.happenings import ASK_CONTEXT, CONTEXT_DIM, N_ITEMS, SLATE_SIZE, folded, happenings
from tests.learning.shaped import kind_of
from tests.learning.test_hyperparameters import log_density_over_slopes
from tests.learning.test_policy import EVERYTHING, LIMITS, assert_same

from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.learning.hyperparameters import RELATIVE_NOISE_GRID, best_noise
from topk_bandit.learning.kendall import CONSTANTS, PAIR_SCALES, POWERS, Shape, adaptive_kendall
from topk_bandit.learning.kernel_choice import MOST_ROWS, choice_is_due, choose, condense
from topk_bandit.learning.limits import Limits
from topk_bandit.learning.observed_rows import Observations, ObservedRows
from topk_bandit.learning.policy import State
from topk_bandit.learning.posterior import Moments, Posterior
from topk_bandit.learning.slope_prior import SlopePrior

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from topk_bandit.learning.prior_mean import PriorMean

    FloatArray = NDArray[np.float64]

KERNEL = adaptive_kendall(N_ITEMS, SLATE_SIZE)
GRIDS = (POWERS, PAIR_SCALES, CONSTANTS)
SHAPES = [Shape(*numbers) for numbers in itertools.product(*GRIDS)]
SIZES = [(9, 3), (6, 6), (40, 2), (12, 5)]
FIRST = Shape()
each_power = pytest.mark.parametrize("power", POWERS)
each_shape = pytest.mark.parametrize(
    "shape", [Shape(), Shape(0.0, 1.0, 0.0), Shape(1.0, 0.1, 0.0), Shape(0.5, 0.3, 4.0), Shape(1.0, 1.0, 16.0)]
)


def draw(shape: Shape, seed: int, *, count: int, context_dim: int = CONTEXT_DIM) -> Sample:
    return sample(
        kind_of(shape), np.random.default_rng(seed),
        n_items=N_ITEMS, slate_size=SLATE_SIZE, context_dim=context_dim, count=count, noise_variance=0.01,
    )  # fmt: skip


def observed_rows_of(data: Sample) -> ObservedRows:
    return ObservedRows.of(Observations(*data.rows))


def initial(limits: Limits | None = None, *, prior_mean: PriorMean | None = None) -> State:
    return State.initial(KERNEL, context_dim=CONTEXT_DIM, limits=limits or Limits(), prior_mean=prior_mean)


def taught(state: State, data: Sample, *, prefix: str = "") -> State:
    for place, (context, ranking, reward) in enumerate(zip(*data.rows, strict=True)):
        state = state.rewarded(f"{prefix}{place}", context, ranking, reward=float(reward))
    return state


def shape_of(state: State) -> Shape | None:
    return state.posterior.kernel.shape


def choice(shape: Shape, rows: ObservedRows) -> Shape:
    """Return where the climb from a shape ends."""
    kernel = KERNEL.with_shape(shape)
    chosen = choose(kernel, rows, shared=0.0, noise_variance=0.1, prior_mean=None, prior=None).choice.kernel.shape
    assert chosen is not None
    return chosen


@pytest.mark.parametrize(("shape", "size"), list(zip(SHAPES, itertools.cycle(SIZES))))
def test_the_family_is_what_it_stands_for(shape: Shape, size: tuple[int, int]) -> None:
    n_items, slate_size = size
    rankings = rankings_of(n_items, slate_size, 30, np.random.default_rng(1))
    features = kind_of(shape).features(rankings, n_items)
    kernel = kind_of(shape).make(n_items, slate_size)
    np.testing.assert_allclose(kernel.gram(rankings, rankings), features @ features.T, atol=1e-11)
    assert kernel.variance == pytest.approx(float((features[0] ** 2).sum()))


def test_the_ends_are_ck_and_wck() -> None:
    rankings = EVERYTHING[::17]
    for power, kind in ((0.0, CK), (1.0, WCK)):
        same = kind.make(N_ITEMS, SLATE_SIZE).gram(rankings, rankings)
        own = KERNEL.with_shape(Shape(power, 1.0, 0.0))
        np.testing.assert_allclose(own.gram(rankings, rankings), same, atol=1e-12)


@pytest.mark.parametrize("shape", [Shape(power=0.3), Shape(pair_scale=0.0), Shape(constant=-1.0)])
def test_a_shape_that_is_none_of_the_family_is_named(shape: Shape) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        KERNEL.with_shape(shape)
    assert [getattr(shape, caught.value.field)] != [getattr(FIRST, caught.value.field)]


def test_neighbours_differ_by_one_step_of_one_number_or_have_its_first_value() -> None:
    graph = {shape: {other.shape for other in KERNEL.with_shape(shape).neighbours} for shape in SHAPES}
    for shape, others in graph.items():
        expected = set()
        for other in SHAPES:
            [*differing] = [place for place in range(3) if shape[place] != other[place]]
            if len(differing) == 1:
                [place] = differing
                step = abs(GRIDS[place].index(shape[place]) - GRIDS[place].index(other[place]))
                expected |= {other} if step == 1 or other[place] == FIRST[place] else set()
        assert others == expected
    assert WCK.make(N_ITEMS, SLATE_SIZE).neighbours == ()
    assert {other.shape for other in adaptive_kendall(6, 1).neighbours} == {Shape(constant=0.0), Shape(constant=1.0)}


def log_prior(noise: float) -> float:
    """Return the weak prior of the relative noise: log10 normal, mean 0.1, one decade wide."""
    return -0.5 * (math.log10(noise) + 1.0) ** 2


def densities(data: Sample, shape: Shape) -> FloatArray:
    """Return the log density of rewards and noise by the textbook, at the best offset and scale of each noise."""
    gp = DenseGp(kind_of(shape), N_ITEMS, 1.0, *data.rows)
    n = len(data.rewards)
    unit = float((data.contexts**2).sum()) / n
    found = []
    for noise in RELATIVE_NOISE_GRID.tolist():
        at_noise = replace(gp, noise_variance=noise * unit)
        offset = at_noise.best_offset
        amplitude = at_noise.whitened_square(offset) / n
        likely = multivariate_normal.logpdf(data.rewards, np.full(n, offset), amplitude * at_noise.noisy(gp.rewarded))
        found.append(likely + log_prior(noise))
    return np.array(found)


def amplitude(data: Sample, shape: Shape, noise: float) -> float:
    """Return the best amplitude at a noise by the textbook."""
    gp = DenseGp(kind_of(shape), N_ITEMS, noise, *data.rows)
    return gp.whitened_square(gp.best_offset) / len(data.rewards)


@each_shape
def test_the_noise_is_the_mean_one_over_the_mean_amplitude(shape: Shape) -> None:
    for seed, count in ((0, 8), (1, 25), (2, 60)):
        data = draw(shape, seed, count=count)
        table, fit = densities(data, shape), best_noise(KERNEL.with_shape(shape), observed_rows_of(data))
        assert fit.log_density == pytest.approx(float(table.max()), abs=1e-6)
        unit = float((data.contexts**2).sum()) / count
        noises = RELATIVE_NOISE_GRID * unit
        amplitudes = np.array([amplitude(data, shape, noise) for noise in noises])
        chances = np.exp(table - table.max())
        assert fit.noise_variance == pytest.approx((chances @ (amplitudes * noises)) / (chances @ amplitudes), rel=1e-4)


def log_prior_of_pairs(shape: Shape) -> float:
    """Return the log density of the pair scale, log-normal about 4^-0.4, one factor of four wide."""
    return float(norm(-0.4, 1.0).logpdf(np.log(shape.pair_scale) / np.log(4.0)))


def believed(data: Sample, shape: Shape) -> float:
    return float(densities(data, shape).max()) + log_prior_of_pairs(shape)


@pytest.mark.parametrize(
    ("seed", "count", "start"),
    [(0, 8, FIRST), (1, 25, Shape(0.0, 0.1, 16.0)), (2, 60, FIRST), (2, 60, Shape(0.0, 0.1, 16.0))],
)
def test_the_climb_ends_where_no_neighbour_is_more_likely(start: Shape, seed: int, count: int) -> None:
    data = draw(Shape(1.0, 0.3, 1.0), seed, count=count)
    chosen = choice(start, observed_rows_of(data))
    density = believed(data, chosen)
    assert density >= believed(data, start) - 1e-5
    for other in KERNEL.with_shape(chosen).neighbours:
        assert other.shape is not None
        assert density >= believed(data, other.shape) - 1e-5
    assert choice(chosen, observed_rows_of(data)) == chosen


PRIOR = SlopePrior(2.0, 1.0)


def believed_density(data: Sample, utilities: Utilities, shape: Shape, noise: float) -> float:
    """Return the log density of rewards and noise, integrated over the slope, at the best offset and scale."""
    kind = kind_of(shape)
    gp = DenseGp(kind, N_ITEMS, noise, *data.rows)
    h, noisy = utilities.h(kind, data.contexts, data.rankings), gp.noisy(gp.rewarded)

    def loss(log_amplitude: float) -> float:
        return -log_density_over_slopes(data.rewards, h, noisy, PRIOR, amplitude=math.exp(log_amplitude))

    unit = float((data.contexts**2).sum()) / len(h)
    return float(-minimize_scalar(loss, bracket=(-2.0, 2.0), tol=1e-8).fun) + log_prior(noise / unit)


@pytest.mark.slow
@each_power
def test_kernels_are_compared_with_prior_means_of_their_own(power: float) -> None:
    rng = np.random.default_rng(3)
    shape = Shape(power, 1.0, 0.0)
    utilities = Utilities.draw(rng, n_items=N_ITEMS, context_dim=CONTEXT_DIM, of="contexts")
    data = draw(Shape(0.0, 1.0, 0.0), 4, count=15)
    data.rewards[:] += 2.0 * utilities.h(kind_of(Shape(0.0, 1.0, 0.0)), data.contexts, data.rankings)
    rows = observed_rows_of(data).with_prior_mean(utilities.prior_mean(kind_of(shape), SLATE_SIZE))
    fit = best_noise(KERNEL.with_shape(shape), rows, prior=PRIOR)
    noises = RELATIVE_NOISE_GRID * float((data.contexts**2).sum()) / 15
    densest = max(believed_density(data, utilities, shape, noise) for noise in noises)
    assert fit.log_density == pytest.approx(densest, abs=1e-5)
    prior_mean = utilities.prior_mean(kind_of(shape), SLATE_SIZE)
    chosen = choose(
        KERNEL.with_shape(shape), rows, shared=0.0, noise_variance=0.1, prior_mean=prior_mean, prior=PRIOR
    ).choice.kernel
    own = observed_rows_of(data).with_prior_mean(prior_mean.with_kernel(chosen))
    density = best_noise(chosen, own, prior=PRIOR).log_density + log_prior_of_pairs(chosen.shape)
    assert density >= fit.log_density + log_prior_of_pairs(shape) - 1e-5
    for other in chosen.neighbours:
        seen = observed_rows_of(data).with_prior_mean(prior_mean.with_kernel(other))
        other_density = best_noise(other, seen, prior=PRIOR).log_density + log_prior_of_pairs(other.shape)
        assert density >= other_density - 1e-5


@pytest.mark.slow
@each_power
def test_rewards_made_by_a_kernel_choose_its_rank_weights(power: float) -> None:
    """Mostly: half of the rank weights' power and a third of the pairs is nearly the same kernel."""
    states = [taught(initial(), draw(Shape(power, 1.0, 0.0), seed, count=240)) for seed in range(5)]
    assert all(state.posterior.observed_rows.noise_shape is None for state in states)
    found = [shape.power for shape in map(shape_of, states) if shape is not None]
    assert found.count(power) >= 3


@pytest.mark.slow
@pytest.mark.parametrize("constant", [0.0, 4.0])
@pytest.mark.parametrize("pair_scale", [0.1, 1.0])
def test_rewards_tell_what_contexts_do_to_all_slates_and_what_order_does(constant: float, pair_scale: float) -> None:
    found = [shape_of(taught(initial(), draw(Shape(0.5, pair_scale, constant), seed, count=240))) for seed in range(4)]
    constants = [shape.constant for shape in found if shape is not None]
    assert np.median(constants) <= 0.25 if constant == 0.0 else np.median(constants) >= 1.0
    pair_scales = [shape.pair_scale for shape in found if shape is not None]
    assert np.median(pair_scales) <= 0.3 if pair_scale == 0.1 else np.median(pair_scales) == 1.0


@given(st.integers(0, 10_000), st.floats(1e-6, 1e6), st.floats(-1e3, 1e3))
def test_the_unit_of_the_rewards_does_not_matter(seed: int, unit: float, shift: float) -> None:
    data = draw(Shape(), seed, count=20)
    scaled = replace(data, rewards=unit * (data.rewards + shift))
    one, other = (choice(Shape(), observed_rows_of(each)) for each in (data, scaled))
    assert one == other


@each_shape
def test_rewards_that_say_nothing_leave_what_is_believed_before(shape: Shape) -> None:
    equal = replace(draw(Shape(), 1, count=30), rewards=np.full(30, 0.4))
    assert choice(shape, observed_rows_of(equal)) == shape._replace(pair_scale=1.0)


@pytest.mark.parametrize("kind", [WCK, CK], ids=lambda kind: kind.name)
def test_a_kernel_that_was_asked_for_stays(kind: Kind) -> None:
    kernel = kind.make(N_ITEMS, SLATE_SIZE)
    state = State.initial(kernel, context_dim=CONTEXT_DIM, limits=Limits())
    for power in (0.0, 1.0):
        state = taught(state, draw(Shape(power), 6, count=100), prefix=f"{power}-")
        assert state.posterior.kernel is kernel
    assert state.checkpoint.shape is None


def test_the_state_is_the_posterior_under_the_kernel_that_was_chosen() -> None:
    data = draw(Shape(0.0, 1.0, 1.0), 7, count=60)
    state = taught(initial(), data)
    posterior, shared = state.posterior, np.full((60, 1), math.sqrt(state.shared))
    assert posterior.kernel.shape is not None
    rows = np.hstack([data.contexts, shared]), data.rankings, data.rewards
    dense = DenseGp(kind_of(posterior.kernel.shape), N_ITEMS, posterior.noise_variance, *rows)
    assert posterior.best_offset == pytest.approx(dense.best_offset, abs=1e-8)
    expected = replace(dense, offset=posterior.offset, amplitude=posterior.amplitude)
    asked = np.append(ASK_CONTEXT, math.sqrt(state.shared))
    assert_close(state.predict(ASK_CONTEXT, EVERYTHING), expected.predict(asked, EVERYTHING), atol=1e-8)


def test_the_part_without_the_constant_is_that_of_the_rankings_alone() -> None:
    """f = g + h: the moments of g by the textbook, K holding both; means have the mean of h added."""
    shape = Shape(0.5, 1.0, 4.0)
    data, kind = draw(shape, 7, count=60), kind_of(shape)
    posterior = Posterior.prior(kind.make(N_ITEMS, SLATE_SIZE), context_dim=CONTEXT_DIM, noise_variance=0.1).observe(
        *data.rows
    )
    whole = DenseGp(kind, N_ITEMS, 0.1, *data.rows)
    features = kind.features(data.rankings, N_ITEMS)[:, :-1], kind.features(EVERYTHING, N_ITEMS)[:, :-1]
    cross = (data.contexts @ ASK_CONTEXT)[:, None] * (features[0] @ features[1].T)
    variance = ASK_CONTEXT @ ASK_CONTEXT - np.einsum(
        "ij,ij->j", cross, np.linalg.solve(whole.noisy(whole.rewarded), cross)
    )
    mean = whole.predict(ASK_CONTEXT, EVERYTHING).mean
    assert_close(posterior.predict(ASK_CONTEXT, EVERYTHING, with_constant=False), Moments(mean, variance), atol=1e-8)
    at_context = posterior.at(ASK_CONTEXT, np.arange(N_ITEMS))
    assert_close(at_context.moments(EVERYTHING), Moments(mean, variance), atol=2e-5)


def test_kernels_are_compared_at_every_refit_while_rows_are_few_and_then_as_rewards_grow() -> None:
    rows = observed_rows_of(draw(Shape(), 8, count=65))
    assert choice_is_due(rows.select(np.arange(64)), observations=257, compared=256)
    assert not choice_is_due(rows, observations=383, compared=256)
    assert choice_is_due(rows, observations=384, compared=256)


def test_many_rows_are_compared_by_a_projection_of_them() -> None:
    data = draw(Shape(0.0, 1.0, 0.0), 8, count=MOST_ROWS + 60, context_dim=30)
    assert choice(Shape(1.0), observed_rows_of(data)).power == 0.0


@pytest.mark.slow
def test_rank_weights_go_on_being_learned_when_rows_are_projected() -> None:
    state = taught(initial(Limits(rows=60)), draw(Shape(1.0, 1.0, 0.0), 10, count=150))
    assert state.posterior.observed_rows.noise_shape is not None
    chosen = shape_of(state)
    assert chosen is not None
    assert chosen.power == 1.0
    state = taught(state, draw(Shape(0.0, 1.0, 0.0), 11, count=1500), prefix="later-")
    chosen = shape_of(state)
    assert chosen is not None
    assert chosen.power < 1.0


def test_rows_are_folded_through_no_kernel_s_span_while_there_is_a_choice() -> None:
    """The span has 90 dimensions, two for each pair of nine items and of each with the rest."""
    rows = observed_rows_of(draw(Shape(), 9, count=200))
    assert condense(KERNEL, rows, most_rows=500, noise_variance=0.1).noise_shape is None
    fixed = condense(CK.make(N_ITEMS, SLATE_SIZE), rows, most_rows=500, noise_variance=0.1)
    assert fixed.noise_shape is not None
    assert fixed.n_rows < 90
    assert condense(KERNEL, rows, most_rows=50, noise_variance=0.1).n_rows == 50


def utilities(of: str) -> Utilities:
    return Utilities.draw(np.random.default_rng(12), n_items=N_ITEMS, context_dim=CONTEXT_DIM, of=of)


def played(of: str, limits: Limits | None = None) -> State:
    """Return a state that began with a prior mean between WCK's and CK's, and has turned to CK."""
    kind = kind_of(Shape())
    prior_mean = None if of == "nothing" else utilities(of).prior_mean(kind, SLATE_SIZE)
    state = folded(initial(limits, prior_mean=prior_mean), happenings(13, 12))
    return taught(state, draw(Shape(0.0, 1.0, 0.0), 14, count=70), prefix="taught-").refit()


@pytest.mark.parametrize("of", ["contexts", "items"])
def test_the_prior_mean_is_that_of_the_kernel_that_was_chosen(of: str) -> None:
    posterior = played(of).posterior
    shape = posterior.kernel.shape
    assert shape is not None
    assert shape != Shape()
    expected = utilities(of).prior_mean(kind_of(shape), SLATE_SIZE).with_context_dim(posterior.context_dim)
    found = posterior.prior_mean
    assert found is not None
    for name in ("position_weights", "constants", "slopes", "row_of"):
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), atol=1e-12)
    observed_rows = posterior.observed_rows
    h = expected.of_rows(observed_rows.contexts, observed_rows.rankings, observed_rows.targets[1])
    np.testing.assert_allclose(observed_rows.targets[2], h, atol=1e-10)


@pytest.mark.bits
@pytest.mark.parametrize(
    ("limits", "of"),
    [pytest.param(*limits.values, of) for limits, of in zip(LIMITS, ["contexts", "items", "nothing"], strict=True)],
)
def test_a_restored_state_goes_on_as_the_one_it_was_taken_from(limits: Limits, of: str) -> None:
    live = played(of, limits)
    assert live.checkpoint.shape != Shape()
    restored = State.restore(KERNEL, live.checkpoint, limits=limits, prior_mean=live.posterior.prior_mean)
    assert_same(restored, live)
    assert_same(live.refit(), live)
    for happening in happenings(15, 120, prefix="later-"):
        live, restored = happening.fold(live), happening.fold(restored)
    assert_same(restored, live)
    assert (shape_of(live), live.posterior.slope) == (shape_of(restored), restored.posterior.slope)


@pytest.mark.bits
@pytest.mark.parametrize("limits", LIMITS)
def test_the_same_happenings_give_the_same_state_to_the_bit(limits: Limits) -> None:
    drawn, shapes = happenings(1, 250), []
    one, other = initial(limits), initial(limits)
    for happening in drawn:
        one, other = happening.fold(one), happening.fold(other)
        shapes.append(shape_of(one))
    assert_same(one, other)
    assert len(set(shapes)) > 1
