"""Folding loses nothing, a projection what it says: against a dense Gaussian process over every single observation."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.learning.dense import KINDS, WCK, DenseGp, Kind, Sample, assert_close, rankings_of, rewards_of, sample
from tests.long_forms import examples

from topk_bandit.learning import kernel_choice
from topk_bandit.learning.hyperparameters import RELATIVE_NOISE_GRID, best_noise, profile_likelihood
from topk_bandit.learning.kendall import adaptive_kendall, weighted_kendall
from topk_bandit.learning.limits import Limits
from topk_bandit.learning.observed_rows import (
    Observations,
    ObservedRows,
    compact,
    noisy_covariance,
    project,
    project_out,
    rewards_differ,
    rows_needed,
)
from topk_bandit.learning.policy import State
from topk_bandit.learning.posterior import Moments, PendingSlates, Posterior
from topk_bandit.learning.recent_observations import PastRows

if TYPE_CHECKING:
    from topk_bandit.learning.kendall import KendallKernel

N_ITEMS, SLATE_SIZE, NOISE = 6, 3, 0.1
NARROWER = 0.005
"""By so much of the prior variance a projection may be narrower than the posterior of all rows."""
TO_ASK = rankings_of(N_ITEMS, SLATE_SIZE, 40, np.random.default_rng(96))
each_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)


def question(context_dim: int) -> np.ndarray:
    return np.array([1.0]) if context_dim == 1 else np.linspace(-0.8, 1.1, context_dim)


def repeating(
    kind: Kind, seed: int, *, count: int, context_dim: int, n_contexts: int = 0, n_rankings: int = 0
) -> Sample:
    """Draw rows from few contexts and few rankings; 0 for as many as rows."""
    rng = np.random.default_rng(seed)
    drawn = sample(kind, rng, n_items=N_ITEMS, slate_size=SLATE_SIZE, context_dim=context_dim, count=count)
    contexts, rankings = drawn.contexts, drawn.rankings
    if n_contexts:
        contexts = contexts[rng.integers(n_contexts, size=count)]
    if n_rankings:
        rankings = rankings[rng.integers(n_rankings, size=count)]
    rewards = 2.0 + rewards_of(kind, contexts, rankings, rng, n_items=N_ITEMS, noise_variance=NOISE)
    return Sample(contexts, rankings, rewards)


CASES = {
    "the same slates in no context": {"count": 120, "context_dim": 1, "n_rankings": 9},
    "the same slates in few contexts": {"count": 200, "context_dim": 3, "n_contexts": 4, "n_rankings": 8},
    "the same slates in any context": {"count": 120, "context_dim": 4, "n_rankings": 10},
    "the same contexts": {"count": 150, "context_dim": 3, "n_contexts": 2},
    "more rows than features": {"count": 200, "context_dim": 2},
    "nothing twice": {"count": 20, "context_dim": 3},
}
each_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())


def fit(kernel: KendallKernel, observed_rows: ObservedRows, pending: PendingSlates | None = None) -> Posterior:
    c = observed_rows.contexts.shape[1]
    none = PendingSlates(np.zeros((0, c)), np.zeros((0, SLATE_SIZE), dtype=np.int32))
    return Posterior.fit(kernel, observed_rows, pending or none, noise_variance=NOISE)


def scaled(posterior: Posterior) -> Posterior:
    offset = posterior.best_offset
    return posterior.rescale(offset=offset, amplitude=posterior.whitened_square(offset) / posterior.n_observations)


def dense(kind: Kind, data: Sample, pending: PendingSlates | None = None) -> DenseGp:
    gp = DenseGp(kind, N_ITEMS, NOISE, *data.rows)
    if pending is not None:
        gp = replace(gp, pending_contexts=pending.contexts, pending_rankings=pending.rankings)
    offset = gp.best_offset
    return replace(gp, offset=offset, amplitude=gp.whitened_square(offset) / len(data.rewards))


@each_kind
@each_case
def test_folding_changes_no_prediction(kind: Kind, case: dict[str, int]) -> None:
    data, kernel = repeating(kind, 1, **case), kind.make(N_ITEMS, SLATE_SIZE)
    whole = ObservedRows.of(Observations(*data.rows))
    folded = compact(kernel, whole)
    assert folded.n_observations == whole.n_observations == len(data.rewards)
    context = question(case["context_dim"])
    expected = dense(kind, data).predict(context, TO_ASK)
    assert_close(scaled(fit(kernel, folded)).predict(context, TO_ASK), expected, atol=1e-6)
    assert_close(scaled(fit(kernel, whole)).predict(context, TO_ASK), expected, atol=1e-6)


@pytest.mark.parametrize(
    ("case", "rows"),
    [
        ("the same slates in no context", 9),
        ("the same slates in few contexts", 8 * 3),
        ("the same slates in any context", 10 * 4),
        # C(6, 2) coordinates of a ranking, and as many as there are contexts of each.
        ("the same contexts", 2 * 15),
        ("more rows than features", 2 * 15),
        ("nothing twice", 20),
    ],
)
def test_folding_leaves_as_few_rows_as_can_be(case: str, rows: int) -> None:
    data = repeating(WCK, 1, **CASES[case])
    assert compact(WCK.make(N_ITEMS, SLATE_SIZE), ObservedRows.of(Observations(*data.rows))).n_rows == rows


@each_kind
@each_case
def test_folding_changes_nothing_that_is_learned_of_noise_and_offset(kind: Kind, case: dict[str, int]) -> None:
    data, kernel = repeating(kind, 2, **case), kind.make(N_ITEMS, SLATE_SIZE)
    whole = ObservedRows.of(Observations(*data.rows))
    folded = compact(kernel, whole)
    assert best_noise(kernel, folded).noise_variance == pytest.approx(best_noise(kernel, whole).noise_variance)
    profiles = []
    for observed_rows in (whole, folded):
        covariance = (observed_rows.contexts @ observed_rows.contexts.T) * kernel.gram(
            observed_rows.rankings, observed_rows.rankings
        )
        profiles.append(profile_likelihood(covariance, observed_rows, RELATIVE_NOISE_GRID))
    np.testing.assert_allclose(profiles[1].offset, profiles[0].offset, atol=1e-6)
    np.testing.assert_allclose(profiles[1].amplitude, profiles[0].amplitude, rtol=1e-6)
    difference = profiles[1].log_likelihood - profiles[0].log_likelihood
    np.testing.assert_allclose(difference, difference[0], atol=1e-5)


@each_kind
@each_case
def test_life_goes_on_after_folding(kind: Kind, case: dict[str, int]) -> None:
    data, more = repeating(kind, 3, **case), repeating(kind, 4, **(case | {"count": 30}))
    together = Sample(*(np.concatenate(parts) for parts in zip(data.rows, more.rows, strict=True)))
    kernel, context = kind.make(N_ITEMS, SLATE_SIZE), question(case["context_dim"])
    waiting = PendingSlates(more.contexts[:7], more.rankings[::-1][:7])
    posterior = fit(kernel, compact(kernel, ObservedRows.of(Observations(*data.rows))), waiting).observe(*more.rows)
    expected = dense(kind, together, waiting).predict(context, TO_ASK)
    assert_close(scaled(posterior).predict(context, TO_ASK), expected, atol=1e-6)
    for _ in range(3):
        posterior = posterior.refit(compact(kernel, posterior.observed_rows), noise_variance=NOISE)
        assert_close(scaled(posterior).predict(context, TO_ASK), expected, atol=1e-6)


@each_case
def test_what_is_folded_already_stays_as_it_is(case: dict[str, int]) -> None:
    kernel = WCK.make(N_ITEMS, SLATE_SIZE)
    once = compact(kernel, ObservedRows.of(Observations(*repeating(WCK, 5, **case).rows)))
    assert compact(kernel, once) is once


def test_a_folded_row_is_as_new_as_its_newest_observation() -> None:
    data = repeating(WCK, 6, count=5, context_dim=1)
    again = data[[0, 1, 2, 3, 4, 1]]
    folded = compact(WCK.make(N_ITEMS, SLATE_SIZE), ObservedRows.of(Observations(*again.rows)))
    assert folded.rankings.tolist() == data.rankings[[0, 2, 3, 4, 1]].tolist()
    assert folded.leftovers[:, 0].tolist() == [0.0, 0.0, 0.0, 0.0, 1.0]


def basis_of(projected: ObservedRows, data: Sample) -> list[int]:
    """Return which rows a projection took for its basis, by what they are."""
    rows = [
        (context.tobytes(), ranking.tobytes()) for context, ranking in zip(data.contexts, data.rankings, strict=True)
    ]
    taken = zip(projected.contexts, projected.rankings, strict=True)
    return [rows.index((context.tobytes(), ranking.tobytes())) for context, ranking in taken]


def predict_by_definition(kind: Kind, data: Sample, basis: list[int], context: np.ndarray) -> Moments:
    """Return the moments of the model that a projection stands for, by the textbook: y = W f_B + r + noise."""
    gp = DenseGp(kind, N_ITEMS, NOISE, *data.rows)
    prior = gp.covariance(gp.rewarded, gp.rewarded)
    inverse = np.linalg.inv(prior[np.ix_(basis, basis)])
    sums = prior[:, basis] @ inverse
    left = np.diag(prior) - np.einsum("ij,ij->i", sums, prior[:, basis])
    precision = 1.0 / (NOISE + left)
    of_basis = np.linalg.inv(inverse + sums.T @ (precision[:, None] * sums))
    cross = gp.covariance((np.tile(context, (len(TO_ASK), 1)), TO_ASK), (data.contexts[basis], data.rankings[basis]))
    weights = cross @ inverse
    mean = weights @ of_basis @ sums.T @ (precision * data.rewards)
    variance = (
        context @ context - np.einsum("ij,ij->i", weights, cross) + np.einsum("ij,jk,ik->i", weights, of_basis, weights)
    )
    return Moments(mean, variance)


@each_kind
@pytest.mark.parametrize("most_rows", [1, 5, 12, 16])
def test_a_projection_is_the_posterior_of_its_definition(kind: Kind, most_rows: int) -> None:
    data, kernel = repeating(kind, 7, count=30, context_dim=3), kind.make(N_ITEMS, SLATE_SIZE)
    whole, context = ObservedRows.of(Observations(*data.rows)), question(3)
    projected = project(kernel, whole, most_rows=most_rows, noise_variance=NOISE)
    assert projected.n_rows == most_rows
    assert projected.n_observations == 30
    expected = predict_by_definition(kind, data, basis_of(projected, data), context)
    assert_close(fit(kernel, projected).predict(context, TO_ASK), expected, atol=1e-6)


@each_kind
@pytest.mark.parametrize("gone", [[2], [0, 5]])
def test_rows_that_show_items_that_are_gone_are_what_the_others_explain_of_them(kind: Kind, gone: list[int]) -> None:
    data, kernel, context = repeating(kind, 8, count=30, context_dim=3), kind.make(N_ITEMS, SLATE_SIZE), question(3)
    whole, items = ObservedRows.of(Observations(*data.rows)), np.array(gone, dtype=np.int32)
    projected = project_out(kernel, whole, items, noise_variance=NOISE)
    stays = ~np.isin(data.rankings, gone).any(axis=1)
    assert basis_of(projected, data) == np.flatnonzero(stays).tolist()
    assert 0 < projected.n_rows < 30
    assert projected.n_observations == 30
    expected = predict_by_definition(kind, data, basis_of(projected, data), context)
    assert_close(fit(kernel, projected).predict(context, TO_ASK), expected, atol=1e-6)
    fewer = fit(kernel, whole.select(np.flatnonzero(stays))).predict(context, TO_ASK)
    assert fewer.variance.sum() > expected.variance.sum(), "they say nothing of the others"


def test_nothing_is_left_of_rows_that_all_show_what_is_gone() -> None:
    data, kernel = repeating(WCK, 8, count=9, context_dim=2), WCK.make(N_ITEMS, SLATE_SIZE)
    whole = ObservedRows.of(Observations(*data.rows))
    everything, nothing = np.arange(N_ITEMS, dtype=np.int32), np.empty(0, dtype=np.int32)
    assert project_out(kernel, whole, everything, noise_variance=NOISE).n_rows == 0
    assert project_out(kernel, whole, nothing, noise_variance=NOISE) is whole


@each_kind
def test_rows_that_are_to_leave_are_the_first_to_be_projected(kind: Kind) -> None:
    data, kernel = repeating(kind, 9, count=40, context_dim=4), kind.make(N_ITEMS, SLATE_SIZE)
    whole, leaving = ObservedRows.of(Observations(*data.rows)), np.array([1], dtype=np.int32)
    leave = set(np.flatnonzero((data.rankings == 1).any(axis=1)).tolist())
    most_rows = 40 - len(leave) // 2
    projected = project(kernel, whole, most_rows=most_rows, noise_variance=NOISE, leaving=leaving)
    assert set(range(40)) - set(basis_of(projected, data)) < leave


@each_kind
def test_the_basis_is_what_the_others_tell_least_about_for_its_noise(kind: Kind) -> None:
    """Each next row has the largest variance left given those before it, in units of its own noise."""
    kernel, once = kind.make(N_ITEMS, SLATE_SIZE), repeating(kind, 10, count=24, context_dim=3)
    twice = Sample(*(np.concatenate([part, part[:6]]) for part in once.rows))
    folded = compact(kernel, ObservedRows.of(Observations(*twice.rows)))
    assert folded.noise_shape is None
    shape = np.diag(np.linspace(0.02, 1.0, folded.n_rows))
    noisy = replace(folded, noise_shape=shape)
    gp = DenseGp(kind, N_ITEMS, NOISE, folded.contexts, folded.rankings, folded.targets[0])
    prior, taken = gp.covariance(gp.rewarded, gp.rewarded), []
    for most_rows in range(1, 9):
        explained = prior[:, taken] @ np.linalg.pinv(prior[np.ix_(taken, taken)]) @ prior[taken]
        taken.append(int(np.argmax(np.diag(prior - explained) / np.diag(shape))))
        projected = project(kernel, noisy, most_rows=most_rows, noise_variance=NOISE)
        rows = Sample(folded.contexts, folded.rankings, folded.targets[0])
        assert basis_of(projected, rows) == sorted(taken)


@each_kind
@each_case
def test_a_basis_of_full_rank_loses_nothing(kind: Kind, case: dict[str, int]) -> None:
    data, kernel = repeating(kind, 7, **case), kind.make(N_ITEMS, SLATE_SIZE)
    whole, context = ObservedRows.of(Observations(*data.rows)), question(case["context_dim"])
    rank = np.linalg.matrix_rank(noisy_covariance(kernel, whole, None, noise_variance=1e-300), tol=1e-8)
    projected = project(kernel, whole, most_rows=int(rank), noise_variance=NOISE)
    assert_close(
        scaled(fit(kernel, projected)).predict(context, TO_ASK), dense(kind, data).predict(context, TO_ASK), atol=1e-5
    )


@each_kind
@each_case
def test_a_projection_is_never_surer_than_all_rows_but_for_a_little(kind: Kind, case: dict[str, int]) -> None:
    data, kernel = repeating(kind, 11, **case), kind.make(N_ITEMS, SLATE_SIZE)
    whole, context = compact(kernel, ObservedRows.of(Observations(*data.rows))), question(case["context_dim"])
    exact = DenseGp(kind, N_ITEMS, NOISE, *data.rows).predict(context, TO_ASK)
    for most_rows in range(1, whole.n_rows, 3):
        projected = project(kernel, whole, most_rows=most_rows, noise_variance=NOISE)
        moments = fit(kernel, projected).predict(context, TO_ASK)
        assert (moments.variance >= exact.variance - NARROWER * (context @ context)).all()


@pytest.mark.slow
@each_kind
def test_projecting_again_and_again_goes_on_learning(kind: Kind) -> None:
    """With a basis of half the rank the means come nearer to the truth than by the rows that would fit alone."""
    kernel, context, data = kind.make(N_ITEMS, SLATE_SIZE), question(3), repeating(kind, 12, count=3000, context_dim=3)
    rows = ObservedRows.of(Observations(*data[:20].rows))
    for first in range(20, 3000, 10):
        rows = rows.extend(ObservedRows.of(Observations(*data[slice(first, first + 10)].rows)))
        rows = project(kernel, rows, most_rows=24, noise_variance=NOISE)
    assert rows.n_observations == 3000
    truth = dense(kind, data).predict(context, TO_ASK).mean
    last = scaled(fit(kernel, ObservedRows.of(Observations(*data[-24:].rows)))).predict(context, TO_ASK).mean
    learned = scaled(fit(kernel, rows)).predict(context, TO_ASK).mean
    assert np.abs(learned - truth).mean() < np.abs(last - truth).mean()
    assert np.abs(learned - truth).mean() < 0.5 * truth.std()


def test_enough_capacity_projects_nothing() -> None:
    folded = ObservedRows.of(Observations(*repeating(WCK, 7, count=20, context_dim=2).rows))
    assert project(WCK.make(N_ITEMS, SLATE_SIZE), folded, most_rows=20, noise_variance=NOISE) is folded


@pytest.mark.parametrize("value", [0.0, 3.5, -1e9])
@each_case
def test_equal_rewards_stay_equal(case: dict[str, int], value: float) -> None:
    data = repeating(WCK, 8, **case)
    kernel = WCK.make(N_ITEMS, SLATE_SIZE)
    equal = replace(data, rewards=np.full(len(data.rewards), value))
    folded = compact(kernel, ObservedRows.of(Observations(*equal.rows)))
    assert not rewards_differ(folded.targets, folded.leftovers)
    other = compact(kernel, ObservedRows.of(Observations(*data.rows)))
    assert rewards_differ(other.targets, other.leftovers)


@pytest.mark.slow
@each_kind
def test_a_small_bandit_is_exact_for_ever_at_a_fixed_size(kind: Kind) -> None:
    kernel, context = kind.make(N_ITEMS, SLATE_SIZE), question(2)
    data = repeating(kind, 9, count=1500, context_dim=2)
    state = State.initial(kernel, context_dim=2, limits=Limits(rows=64))
    rows = []
    for place, (c, ranking, reward) in enumerate(zip(*data.rows, strict=True)):
        state = state.rewarded(str(place), c, ranking, reward=float(reward))
        rows.append(state.posterior.n_rows)
    assert max(rows) <= 64
    assert state.refit().posterior.n_rows <= 30
    posterior = state.posterior
    gp = replace(
        DenseGp(kind, N_ITEMS, posterior.noise_variance, *data.rows),
        offset=posterior.offset,
        amplitude=posterior.amplitude,
    )
    assert posterior.offset == pytest.approx(gp.best_offset, abs=1e-6)
    assert posterior.amplitude == pytest.approx(gp.whitened_square(gp.best_offset) / 1500, rel=1e-6)
    assert_close(posterior.predict(context, TO_ASK), gp.predict(context, TO_ASK), atol=1e-6)


ROWS = st.lists(
    st.tuples(st.integers(0, 3), st.permutations(range(5)).map(lambda order: tuple(order[:2])), st.floats(-3, 3)),
    min_size=1,
    max_size=40,
)
CONTEXTS = np.array([[1.0, 0.0], [0.3, -0.8], [-0.6, 1.6], [0.0, 0.0]])
"""The second and the third are the same but for their size; one is nothing."""


@given(ROWS, ROWS)
@settings(max_examples=examples(60), deadline=None)
def test_any_rows_fold_without_loss(first: list[tuple[int, tuple[int, int], float]], second: list) -> None:  # type: ignore[type-arg]
    kernel = WCK.make(5, 2)
    asked = np.array([[0, 1], [1, 0], [3, 4], [2, 0]], dtype=np.int32)
    posterior = Posterior.prior(kernel, context_dim=2, noise_variance=NOISE)
    for rows in (first, second):
        posterior = posterior.observe(CONTEXTS[[r[0] for r in rows]], [r[1] for r in rows], [r[2] for r in rows])
        posterior = posterior.refit(compact(kernel, posterior.observed_rows), noise_variance=NOISE)
    every = first + second
    gp = DenseGp(
        WCK, 5, NOISE, CONTEXTS[[r[0] for r in every]], np.array([r[1] for r in every], dtype=np.int32),
        np.array([r[2] for r in every]),
    )  # fmt: skip
    for context in CONTEXTS:
        moments: Moments = posterior.predict(context, asked)
        assert_close(moments, gp.predict(context, asked), atol=1e-6)
    assert posterior.n_observations == len(every)
    assert posterior.best_offset == pytest.approx(gp.best_offset, abs=1e-6)
    assert posterior.whitened_square(0.4) == pytest.approx(gp.whitened_square(0.4), rel=1e-6, abs=1e-9)


def rows_of_shop(n_items: int, n_numbers: int, count: int = 400) -> ObservedRows:
    rng = np.random.default_rng(5)
    contexts = np.column_stack([rng.normal(size=(count, n_numbers)), np.ones(count)])
    rankings = rankings_of(n_items, SLATE_SIZE, count, rng)
    return ObservedRows.of(Observations(contexts, rankings, rng.normal(size=count)))


def test_a_basis_has_a_row_for_each_items_part_in_each_direction_of_contexts() -> None:
    """Few items still have 256, many as many as the capacity allows; and rows that fit are not looked at."""
    kernel = adaptive_kendall(60, SLATE_SIZE)
    needed = rows_needed(kernel, rows_of_shop(60, 4), most_rows=1000)
    assert 0.9 * 60 * 5 <= needed <= 60 * 5
    assert rows_needed(kernel, rows_of_shop(60, 4), most_rows=280) == 280
    assert rows_needed(kernel, rows_of_shop(20, 4), most_rows=1000) == 256
    assert rows_needed(kernel, rows_of_shop(20, 4, count=256), most_rows=1000) == 1000


def test_where_features_of_items_or_pairs_alone_count_all_rows_are_needed() -> None:
    rows = rows_of_shop(20, 4)
    with_features = adaptive_kendall(20, SLATE_SIZE).with_item_features(0.5 * np.eye(20, 3))
    of_pairs = weighted_kendall(20, SLATE_SIZE)
    assert with_features.counted_content is not None
    for kernel in (with_features, of_pairs):
        assert rows_needed(kernel, rows, most_rows=1000) == 1000


def test_a_state_keeps_as_many_rows_as_it_needs() -> None:
    rng, limits = np.random.default_rng(6), Limits(rows=400)
    state = State.initial(adaptive_kendall(20, SLATE_SIZE), context_dim=3, limits=limits)
    most = 0
    for number, ranking in enumerate(rankings_of(20, SLATE_SIZE, 700, rng)):
        state = state.rewarded(str(number), rng.normal(size=3), ranking, reward=float(rng.normal()))
        most = max(most, state.posterior.n_rows)
    assert 256 <= most <= 256 + 256 // 4 + 1


def test_contexts_that_do_not_vary_are_one_direction_in_any_order() -> None:
    rng = np.random.default_rng(7)
    rankings = rankings_of(300, SLATE_SIZE, 400, rng)
    alike, by_name = np.tile(rng.normal(size=7), (400, 1)), np.eye(4)[np.arange(400) % 4]
    kernel = adaptive_kendall(300, SLATE_SIZE)
    for contexts, directions in ((alike, 1), (by_name, 4)):
        needed = set()
        for _ in range(3):
            order = rng.permutation(400)
            rows = ObservedRows.of(Observations(contexts[order], rankings[order], rng.normal(size=400)))
            needed.add(rows_needed(kernel, rows, most_rows=5000))
        assert needed == {directions * len(np.unique(rankings))}


def test_a_history_is_projected_by_a_noise_that_is_fitted_to_rewards(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(8)
    noises: list[float] = []

    def recorded(kernel: KendallKernel, rows: ObservedRows, **named: Any) -> ObservedRows:  # noqa: ANN401 - as given
        if rows.n_rows > named["most_rows"]:
            noises.append(named["noise_variance"])
        return project(kernel, rows, **named)

    monkeypatch.setattr(kernel_choice, "project", recorded)
    state = State.initial(adaptive_kendall(20, SLATE_SIZE), context_dim=3, limits=Limits())
    rankings = rankings_of(20, SLATE_SIZE, 400, rng)
    past = PastRows(rng.normal(size=(400, 3)), rankings, 3.0 * rng.normal(size=400), np.zeros(400))
    assert state.learn_history(past).posterior.n_rows == 256
    assert noises
    assert state.posterior.noise_variance not in noises
