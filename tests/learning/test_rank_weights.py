"""The kernel that its rewards choose: the most likely one, by the textbook, and no other until it settles."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from scipy.stats import multivariate_normal
from tests.learning.believed import Utilities
from tests.learning.dense import CK, WCK, DenseGp, Kind, Sample, assert_close, dcg, rankings_of, sample
from tests.learning.happenings import ASK_CONTEXT, CONTEXT_DIM, N_ITEMS, SLATE_SIZE, folded, happenings
from tests.learning.test_hyperparameters import log_density_over_slopes
from tests.learning.test_policy import EVERYTHING, LIMITS, assert_same

from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.learning.hyperparameters import RELATIVE_NOISE_GRID, SlopePrior, best_noise
from topk_bandit.learning.kendall import RANK_WEIGHT_POWERS, adaptive_kendall
from topk_bandit.learning.observed_rows import Observations, ObservedRows
from topk_bandit.learning.policy import Limits, State
from topk_bandit.learning.rank_weights import MOST_ROWS, choose, condense

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from topk_bandit.learning.prior_mean import PriorMean

    FloatArray = NDArray[np.float64]

pytestmark = pytest.mark.bits

KERNEL = adaptive_kendall(N_ITEMS, SLATE_SIZE)
each_power = pytest.mark.parametrize("power", RANK_WEIGHT_POWERS)


def kind_of(power: float) -> Kind:
    """Return the candidate with this power, and its definition."""
    return Kind(
        f"dcg^{power:g}",
        lambda n_items, slate_size: adaptive_kendall(n_items, slate_size).at_power(power),
        lambda first, second: dcg(first, second) ** power,
        counts_unshown=True,
    )


def draw(power: float, seed: int, *, count: int, context_dim: int = CONTEXT_DIM) -> Sample:
    return sample(
        kind_of(power), np.random.default_rng(seed),
        n_items=N_ITEMS, slate_size=SLATE_SIZE, context_dim=context_dim, count=count, noise_variance=0.01,
    )  # fmt: skip


def evidence_of(data: Sample) -> ObservedRows:
    return ObservedRows.of(Observations(*data.rows))


def initial(limits: Limits | None = None, *, prior_mean: PriorMean | None = None) -> State:
    return State.initial(KERNEL, context_dim=CONTEXT_DIM, limits=limits or Limits(), prior_mean=prior_mean)


def taught(state: State, data: Sample, *, prefix: str = "") -> State:
    for place, (context, ranking, reward) in enumerate(zip(*data.rows, strict=True)):
        state = state.rewarded(f"{prefix}{place}", context, ranking, reward=float(reward))
    return state


def power_of(state: State) -> float | None:
    return state.posterior.kernel.power


@each_power
@pytest.mark.parametrize(("n_items", "slate_size"), [(9, 3), (6, 6), (40, 2), (12, 5)])
def test_candidates_are_what_they_stand_for(power: float, n_items: int, slate_size: int) -> None:
    rankings = rankings_of(n_items, slate_size, 30, np.random.default_rng(1))
    features = kind_of(power).features(rankings, n_items)
    kernel = kind_of(power).make(n_items, slate_size)
    np.testing.assert_allclose(kernel.gram(rankings, rankings), features @ features.T, atol=1e-12)
    assert [candidate.power for candidate in kernel.candidates] == list(RANK_WEIGHT_POWERS)


def test_the_ends_are_ck_and_wck_and_it_begins_between_them() -> None:
    rankings = EVERYTHING[::17]
    for power, kind in ((0.0, CK), (1.0, WCK)):
        same = kind.make(N_ITEMS, SLATE_SIZE).gram(rankings, rankings)
        np.testing.assert_allclose(KERNEL.at_power(power).gram(rankings, rankings), same, atol=1e-12)
    assert KERNEL.power == 0.5


def test_a_power_that_is_none_of_the_candidates_is_named() -> None:
    for kernel, power in ((KERNEL, 0.3), (WCK.make(N_ITEMS, SLATE_SIZE), 1.0)):
        with pytest.raises(InvalidArgumentError) as caught:
            kernel.at_power(power)
        assert caught.value.field == "power"


def log_prior(noise: float) -> float:
    """Return the weak prior of the relative noise: log10 normal, mean 0.1, one decade wide."""
    return -0.5 * (math.log10(noise) + 1.0) ** 2


def densities(data: Sample, power: float) -> FloatArray:
    """Return the log density of rewards and noise by the textbook, at the best offset and scale of each noise."""
    gp = DenseGp(kind_of(power), N_ITEMS, 1.0, *data.rows)
    covariance, n = gp.covariance(gp.rewarded, gp.rewarded), len(data.rewards)
    unit = float(np.trace(covariance)) / n
    found = []
    for noise in RELATIVE_NOISE_GRID.tolist():
        at_noise = replace(gp, noise_variance=noise * unit)
        offset = at_noise.best_offset
        amplitude = at_noise.whitened_square(offset) / n
        likely = multivariate_normal.logpdf(data.rewards, np.full(n, offset), amplitude * at_noise.noisy(gp.rewarded))
        found.append(likely + log_prior(noise))
    return np.array(found)


@each_power
def test_the_choice_is_the_most_likely_kernel_and_noise(power: float) -> None:
    for seed, count in ((0, 8), (1, 25), (2, 60)):
        data = draw(power, seed, count=count)
        table = np.array([densities(data, other) for other in RANK_WEIGHT_POWERS])
        for line, other in zip(table, RANK_WEIGHT_POWERS, strict=True):
            assert best_noise(KERNEL.at_power(other), evidence_of(data)).log_density == pytest.approx(
                float(line.max()), abs=1e-6
            )
        kernel, noise = np.unravel_index(int(np.argmax(table)), table.shape)
        unit = float((data.contexts**2).sum()) / count
        for start in RANK_WEIGHT_POWERS:
            chosen = choose(KERNEL.at_power(start), evidence_of(data), prior_mean=None, prior=None)
            assert chosen.kernel.power == RANK_WEIGHT_POWERS[kernel]
            assert chosen.noise_variance == pytest.approx(RELATIVE_NOISE_GRID[noise] * unit)


PRIOR = SlopePrior(2.0, 1.0)


def believed_density(data: Sample, utilities: Utilities, power: float, noise: float) -> float:
    """Return the log density of rewards and noise, integrated over the slope, at the best offset and scale."""
    kind = kind_of(power)
    gp = DenseGp(kind, N_ITEMS, noise, *data.rows)
    h, noisy = utilities.h(kind, data.contexts, data.rankings), gp.noisy(gp.rewarded)

    def loss(log_amplitude: float) -> float:
        return -log_density_over_slopes(data.rewards, h, noisy, PRIOR, amplitude=math.exp(log_amplitude))

    unit = float((data.contexts**2).sum()) / len(h)
    return float(-minimize_scalar(loss, bracket=(-2.0, 2.0), tol=1e-8).fun) + log_prior(noise / unit)


def test_candidates_are_compared_with_prior_means_of_their_own() -> None:
    rng = np.random.default_rng(3)
    utilities = Utilities.draw(rng, n_items=N_ITEMS, context_dim=CONTEXT_DIM, of="contexts")
    data = draw(0.0, 4, count=15)
    data.rewards[:] += 2.0 * utilities.h(kind_of(0.0), data.contexts, data.rankings)
    found = []
    for power in RANK_WEIGHT_POWERS:
        evidence = evidence_of(data).with_prior_mean(utilities.prior_mean(kind_of(power), SLATE_SIZE))
        fit = best_noise(KERNEL.at_power(power), evidence, prior=PRIOR)
        assert fit.log_density == pytest.approx(believed_density(data, utilities, power, fit.noise_variance), abs=1e-5)
        found.append(fit.log_density)
    prior_mean = utilities.prior_mean(kind_of(1.0), SLATE_SIZE)
    chosen = choose(
        KERNEL.at_power(1.0), evidence_of(data).with_prior_mean(prior_mean), prior_mean=prior_mean, prior=PRIOR
    )
    assert chosen.kernel.power == RANK_WEIGHT_POWERS[int(np.argmax(found))] != 1.0
    h = utilities.h(kind_of(float(chosen.kernel.power or 0.0)), data.contexts, data.rankings)
    np.testing.assert_allclose(chosen.evidence.targets[2], h, atol=1e-10)


@each_power
def test_rewards_made_by_a_kernel_choose_it(power: float) -> None:
    for seed in range(4):
        state = taught(initial(), draw(power, seed, count=240))
        assert state.posterior.evidence.noise_shape is None
        assert power_of(state) == power


@given(st.integers(0, 10_000), st.floats(1e-6, 1e6), st.floats(-1e3, 1e3))
def test_the_unit_of_the_rewards_does_not_matter(seed: int, unit: float, shift: float) -> None:
    data = draw(0.5, seed, count=20)
    scaled = replace(data, rewards=unit * (data.rewards + shift))
    one, other = (choose(KERNEL, evidence_of(each), prior_mean=None, prior=None) for each in (data, scaled))
    assert one.kernel.power == other.kernel.power


@each_power
def test_rewards_that_say_nothing_change_nothing(power: float) -> None:
    equal = replace(draw(0.0, 1, count=30), rewards=np.full(30, 0.4))
    assert choose(KERNEL.at_power(power), evidence_of(equal), prior_mean=None, prior=None).kernel.power == power


@pytest.mark.parametrize(("n_items", "slate_size"), [(6, 1), (2, 2)])
def test_kernels_that_are_the_same_are_no_choice(n_items: int, slate_size: int) -> None:
    state = State.initial(adaptive_kendall(n_items, slate_size), context_dim=CONTEXT_DIM, limits=Limits())
    rng = np.random.default_rng(5)
    data = Sample(rng.normal(size=(90, 2)), rankings_of(n_items, slate_size, 90, rng), rng.normal(size=90))
    assert power_of(taught(state, data)) == 0.5


@pytest.mark.parametrize("kind", [WCK, CK], ids=lambda kind: kind.name)
def test_a_kernel_that_was_asked_for_stays(kind: Kind) -> None:
    kernel = kind.make(N_ITEMS, SLATE_SIZE)
    state = State.initial(kernel, context_dim=CONTEXT_DIM, limits=Limits())
    for power in (0.0, 1.0):
        state = taught(state, draw(power, 6, count=100), prefix=f"{power}-")
        assert state.posterior.kernel is kernel
    assert state.checkpoint.power is None


def test_the_state_is_the_posterior_under_the_kernel_that_was_chosen() -> None:
    data = draw(0.0, 7, count=60)
    state = taught(initial(), data)
    posterior = state.posterior
    assert power_of(state) == 0.0
    dense = DenseGp(CK, N_ITEMS, posterior.noise_variance, *data.rows)
    assert posterior.best_offset == pytest.approx(dense.best_offset, abs=1e-8)
    expected = replace(dense, offset=posterior.offset, amplitude=posterior.amplitude)
    assert_close(posterior.predict(ASK_CONTEXT, EVERYTHING), expected.predict(ASK_CONTEXT, EVERYTHING), atol=1e-8)


def test_beyond_so_many_rows_a_kernel_is_settled() -> None:
    data = draw(0.0, 8, count=MOST_ROWS + 1, context_dim=30)
    for count, power in ((MOST_ROWS, 0.0), (MOST_ROWS + 1, 1.0)):
        evidence = condense(KERNEL, evidence_of(data[:count]))
        assert evidence.n_rows == count
        assert choose(KERNEL.at_power(1.0), evidence, prior_mean=None, prior=None).kernel.power == power


def test_rows_are_folded_through_no_kernel_s_span_while_there_is_a_choice() -> None:
    """The span has 90 dimensions, two for each pair of nine items and of each with the rest."""
    evidence = evidence_of(draw(0.0, 9, count=200))
    assert condense(KERNEL, evidence).noise_shape is None
    fixed = condense(CK.make(N_ITEMS, SLATE_SIZE), evidence)
    assert fixed.noise_shape is not None
    assert fixed.n_rows < 90


def test_a_kernel_stays_when_rows_were_folded_through_its_span() -> None:
    state = taught(initial(), draw(0.0, 10, count=400))
    assert state.posterior.evidence.noise_shape is not None
    assert power_of(state) == 0.0
    state = taught(state, draw(1.0, 11, count=400), prefix="later-")
    assert state.posterior.n_rows < 200
    assert power_of(state) == 0.0


def utilities(of: str) -> Utilities:
    return Utilities.draw(np.random.default_rng(12), n_items=N_ITEMS, context_dim=CONTEXT_DIM, of=of)


def played(of: str, limits: Limits | None = None) -> State:
    """Return a state that began with a prior mean between WCK's and CK's, and has turned to CK."""
    kind = kind_of(0.5)
    prior_mean = None if of == "nothing" else utilities(of).prior_mean(kind, SLATE_SIZE)
    state = folded(initial(limits, prior_mean=prior_mean), happenings(13, 12))
    return taught(state, draw(0.0, 14, count=70), prefix="taught-").refit()


@pytest.mark.parametrize("of", ["contexts", "items"])
def test_the_prior_mean_is_that_of_the_kernel_that_was_chosen(of: str) -> None:
    posterior = played(of).posterior
    assert posterior.kernel.power == 0.0
    expected = utilities(of).prior_mean(CK, SLATE_SIZE)
    found = posterior.prior_mean
    assert found is not None
    for name in ("position_weights", "constants", "slopes", "row_of"):
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), atol=1e-12)
    evidence = posterior.evidence
    h = expected.of_rows(evidence.contexts, evidence.rankings, evidence.targets[1])
    np.testing.assert_allclose(evidence.targets[2], h, atol=1e-10)


@pytest.mark.parametrize("of", ["nothing", "contexts", "items"])
@pytest.mark.parametrize("limits", LIMITS)
def test_a_restored_state_goes_on_as_the_one_it_was_taken_from(limits: Limits, of: str) -> None:
    live = played(of, limits)
    assert live.checkpoint.power == 0.0
    restored = State.restored(KERNEL, live.checkpoint, limits=limits, prior_mean=live.posterior.prior_mean)
    assert_same(restored, live)
    assert_same(live.refit(), live)
    for happening in happenings(15, 120, prefix="later-"):
        live, restored = happening.fold(live), happening.fold(restored)
    assert_same(restored, live)
    assert (power_of(live), live.posterior.slope) == (power_of(restored), restored.posterior.slope)


@pytest.mark.parametrize("limits", LIMITS)
def test_the_same_happenings_give_the_same_state_to_the_bit(limits: Limits) -> None:
    drawn, powers = happenings(1, 250), []
    one, other = initial(limits), initial(limits)
    for happening in drawn:
        one, other = happening.fold(one), happening.fold(other)
        powers.append(power_of(one))
    assert_same(one, other)
    assert len(set(powers)) > 1
