"""A prior mean is a function in the kernel's space, and a posterior with one is a Gaussian process with that mean."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.learning.believed import Believer, Utilities
from tests.learning.dense import CK, WCK, WK, DenseGp, Kind, Sample, assert_close, rankings_of
from tests.learning.test_observed_rows import CASES, CONTEXTS, ROWS, question, repeating
from tests.long_forms import examples

from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.learning.observed_rows import Observations, ObservedRows, compact
from topk_bandit.learning.posterior import PendingSlates, Posterior
from topk_bandit.learning.prior_mean import PriorMean

if TYPE_CHECKING:
    from numpy.typing import NDArray

N_ITEMS, SLATE_SIZE, NOISE = 6, 3, 0.1
OFFSET, SLOPE, AMPLITUDE = 0.4, 0.7, 1.3
TO_ASK = rankings_of(N_ITEMS, SLATE_SIZE, 40, np.random.default_rng(96))
each_kind = pytest.mark.parametrize("kind", [WCK, CK], ids=lambda kind: kind.name)
each_of = pytest.mark.parametrize("of", ["contexts", "items"])
FEW_RANKINGS = {"few rankings in any context": {"count": 40, "context_dim": 3, "n_rankings": 5}}
"""Few enough rows that each ranking is folded by itself, and what is left over has ones in it."""
SEVERAL = CASES | FEW_RANKINGS
each_case = pytest.mark.parametrize("case", SEVERAL.values(), ids=SEVERAL.keys())


def drawn(seed: int, *, context_dim: int, of: str, n_items: int = N_ITEMS) -> Utilities:
    rng = np.random.default_rng(seed)
    return Utilities.draw(rng, n_items=n_items, context_dim=context_dim, of=of)


def believing(kind: Kind, utilities: Utilities, *, context_dim: int) -> Posterior:
    prior_mean = utilities.prior_mean(kind, SLATE_SIZE)
    kernel = kind.make(N_ITEMS, SLATE_SIZE)
    return Posterior.prior(kernel, context_dim=context_dim, noise_variance=NOISE, prior_mean=prior_mean)


def scaled(posterior: Posterior) -> Posterior:
    return posterior.rescale(offset=OFFSET, slope=SLOPE, amplitude=AMPLITUDE)


def dense(kind: Kind, data: Sample, utilities: Utilities, pending: PendingSlates | None = None) -> Believer:
    waiting = (None, None) if pending is None else tuple(pending)
    gp = DenseGp(kind, N_ITEMS, NOISE, *data.rows, *waiting, offset=OFFSET, amplitude=AMPLITUDE)  # type: ignore[arg-type]
    return Believer(gp, utilities, SLOPE)


@each_of
@pytest.mark.parametrize(
    ("kind", "n_items", "slate_size"), [(WCK, 7, 3), (CK, 7, 3), (WCK, 4, 4), (CK, 4, 4), (WK, 4, 4), (WCK, 5, 1)]
)
def test_h_adds_up_pairs_by_how_far_apart_their_utilities_are(
    kind: Kind, n_items: int, slate_size: int, of: str
) -> None:
    utilities = drawn(1, context_dim=2, of=of, n_items=n_items)
    prior_mean = utilities.prior_mean(kind, slate_size)
    rankings = rankings_of(n_items, slate_size, 30, np.random.default_rng(2))
    contexts = np.random.default_rng(3).normal(size=(30, 2))
    expected = utilities.h(kind, contexts, rankings)
    np.testing.assert_allclose(prior_mean.of_rows(contexts, rankings, np.ones(30)), expected, atol=1e-12)
    for context, ranking, value in zip(contexts, rankings, expected, strict=True):
        assert prior_mean.of_slates(context, ranking[None])[0] == pytest.approx(value, abs=1e-12)


@each_of
@each_kind
def test_h_has_unit_variance_whatever_the_unit_and_the_zero_of_the_utilities(kind: Kind, of: str) -> None:
    kernel = kind.make(5, 2)
    drawn_ones = drawn(4, context_dim=3, of=of, n_items=5)
    prior_mean = PriorMean.of(kernel, 1e6 * drawn_ones.constants - 7.0, 1e6 * drawn_ones.slopes + 3.0, np.arange(5))
    slates = np.array(list(product(range(5), repeat=2)))
    values = np.array([prior_mean.of_slates(context, slates) for context in np.eye(3)])
    np.testing.assert_allclose(values.mean(axis=1), 0.0, atol=1e-12)
    assert np.mean(values**2) == pytest.approx(1.0)


def test_items_that_nobody_was_asked_about_are_like_the_mean_one() -> None:
    kernel = WCK.make(6, 2)
    prior_mean = PriorMean.of(kernel, np.array([1.0, 5.0, 3.0]), np.zeros((3, 2)), np.array([-1, 0, 1, 2, -1, -1]))
    assert prior_mean.utilities(np.ones(2), np.arange(6)).tolist() == [
        0.0, *prior_mean.constants[:3].tolist(), 0.0, 0.0,
    ]  # fmt: skip
    assert prior_mean.constants[2] == 0.0


def test_utilities_that_are_all_equal_say_nothing() -> None:
    prior_mean = PriorMean.of(WCK.make(6, 2), np.full(6, 3.0), np.zeros((6, 2)), np.arange(6))
    assert not prior_mean.of_slates(np.ones(2), np.array([[0, 1], [5, 2]])).any()


def test_the_weighted_kernel_takes_no_prior_mean() -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        drawn(5, context_dim=1, of="items").prior_mean(WK, 3)
    assert caught.value.field == "kernel"


@each_of
@each_kind
@pytest.mark.parametrize("context_dim", [1, 3])
def test_a_posterior_is_a_gaussian_process_with_that_mean(kind: Kind, context_dim: int, of: str) -> None:
    data = repeating(kind, 6, count=30, context_dim=context_dim)
    utilities = drawn(7, context_dim=context_dim, of=of)
    waiting = PendingSlates(data.contexts[20:26], data.rankings[20:26])
    posterior = believing(kind, utilities, context_dim=context_dim).observe(*data[:15].rows)
    posterior = posterior.show(data.contexts[15:], data.rankings[15:])
    for chosen, row in ((14, 29), (0, 15), (12, 28), (0, 16), (0, 17), (0, 18), (0, 19)):
        posterior = posterior.reward(chosen, float(data.rewards[row]))
    for _ in range(2):
        posterior = posterior.discard(posterior.n_pending - 1)
    learned = data[[*range(15), 29, 15, 28, 16, 17, 18, 19]]
    context, everything = question(context_dim), np.arange(N_ITEMS)
    expected = dense(kind, learned, utilities, waiting).predict(context, TO_ASK)
    assert_close(scaled(posterior).predict(context, TO_ASK), expected, atol=1e-9)
    assert_close(scaled(posterior).at(context, everything).moments(TO_ASK), expected, atol=1e-5)
    few = np.array([0, 2, 3, 5])
    among = rankings_of(4, SLATE_SIZE, 10, np.random.default_rng(8))
    asked = few[among].astype(np.int32)
    some = dense(kind, learned, utilities, waiting).predict(context, asked)
    np.testing.assert_allclose(scaled(posterior).at(context, few).means(among), some.mean, atol=1e-9)


@each_kind
def test_a_posterior_of_nothing_expects_nothing_until_it_is_scaled(kind: Kind) -> None:
    posterior = believing(kind, drawn(20, context_dim=2, of="items"), context_dim=2)
    assert not posterior.predict(question(2), TO_ASK).mean.any()


@each_of
@each_kind
def test_what_scale_and_slope_are_chosen_by_is_left_of_the_generalised_least_squares_means(kind: Kind, of: str) -> None:
    """S_ab = (a - mean a)' A^-1 (b - mean b) of rewards and h, by the textbook."""
    data, utilities = repeating(kind, 21, count=25, context_dim=2), drawn(22, context_dim=2, of=of)
    posterior = believing(kind, utilities, context_dim=2).observe(*data.rows)
    process = dense(kind, data, utilities).gp
    targets = np.column_stack([data.rewards, utilities.h(kind, *process.rewarded), np.ones(25)])
    solved = np.linalg.solve(process.noisy(process.rewarded), targets)
    left = targets[:, :2] - (targets[:, 2] @ solved[:, :2]) / (targets[:, 2] @ solved[:, 2])
    expected = left.T @ np.linalg.solve(process.noisy(process.rewarded), left)
    for products in (posterior.centred_products, posterior.slope_products):
        found = products.yy, products.yh, products.hh
        np.testing.assert_allclose(found, expected[[0, 0, 1], [0, 1, 1]], rtol=1e-7)
        assert products.observations == 25.0


@each_of
@each_kind
@each_case
def test_folding_changes_no_prediction(kind: Kind, case: dict[str, int], of: str) -> None:
    data, c = repeating(kind, 9, **case), case["context_dim"]
    utilities = drawn(10, context_dim=c, of=of)
    prior_mean, kernel = utilities.prior_mean(kind, SLATE_SIZE), kind.make(N_ITEMS, SLATE_SIZE)
    whole = ObservedRows.of(Observations(*data.rows)).with_prior_mean(prior_mean)
    folded = compact(kernel, whole)
    more = repeating(kind, 11, **(case | {"count": 20}))
    none = PendingSlates(np.zeros((0, c)), np.zeros((0, SLATE_SIZE), dtype=np.int32))
    posterior = Posterior.fit(kernel, folded, none, noise_variance=NOISE, prior_mean=prior_mean).observe(*more.rows)
    together = Sample(*(np.concatenate(parts) for parts in zip(data.rows, more.rows, strict=True)))
    context = question(c)
    expected = dense(kind, together, utilities).predict(context, TO_ASK)
    assert_close(scaled(posterior).predict(context, TO_ASK), expected, atol=1e-6)
    unfolded = Posterior.fit(kernel, whole, none, noise_variance=NOISE, prior_mean=prior_mean).observe(*more.rows)
    mine, theirs = posterior.centred_products, unfolded.centred_products
    for one, other in zip(mine, theirs, strict=True):
        assert one == pytest.approx(other, rel=1e-7, abs=1e-7)
    again = posterior.refit(compact(kernel, posterior.observed_rows), noise_variance=NOISE)
    assert_close(scaled(again).predict(context, TO_ASK), expected, atol=1e-6)


@each_of
@each_kind
@each_case
def test_a_prior_mean_that_comes_later_is_as_if_it_had_been_there(kind: Kind, case: dict[str, int], of: str) -> None:
    data, c = repeating(kind, 12, **case), case["context_dim"]
    utilities, earlier = (drawn(seed, context_dim=c, of=of) for seed in (13, 14))
    kernel = kind.make(N_ITEMS, SLATE_SIZE)
    folded = compact(
        kernel, ObservedRows.of(Observations(*data.rows)).with_prior_mean(earlier.prior_mean(kind, SLATE_SIZE))
    )
    if of == "items" and c > 1 and folded.noise_shape is not None:
        later = folded.with_prior_mean(utilities.prior_mean(kind, SLATE_SIZE))
        like_them = utilities.h(kind, folded.contexts, folded.rankings) * folded.targets[1]
        np.testing.assert_allclose(later.targets[2], like_them, atol=1e-9)
        return
    none = PendingSlates(np.zeros((0, c)), np.zeros((0, SLATE_SIZE), dtype=np.int32))
    prior_mean = earlier.prior_mean(kind, SLATE_SIZE)
    before = Posterior.fit(kernel, folded, none, noise_variance=NOISE, prior_mean=prior_mean)
    after = before.with_prior_mean(utilities.prior_mean(kind, SLATE_SIZE), noise_variance=NOISE)
    expected = dense(kind, data, utilities).predict(question(c), TO_ASK)
    assert_close(scaled(after).predict(question(c), TO_ASK), expected, atol=1e-6)
    whole = ObservedRows.of(Observations(*data.rows)).with_prior_mean(utilities.prior_mean(kind, SLATE_SIZE))
    unfolded = Posterior.fit(
        kernel, whole, none, noise_variance=NOISE, prior_mean=utilities.prior_mean(kind, SLATE_SIZE)
    )
    for one, other in zip(after.centred_products, unfolded.centred_products, strict=True):
        assert one == pytest.approx(other, rel=1e-6, abs=1e-6)
    without = after.with_prior_mean(None, noise_variance=NOISE).rescale(offset=OFFSET, amplitude=AMPLITUDE)
    constant = dense(kind, data, utilities).gp.predict(question(c), TO_ASK)
    assert_close(without.predict(question(c), TO_ASK), constant, atol=1e-6)


@given(ROWS, ROWS, st.integers(0, 2**32 - 1), st.sampled_from(["contexts", "items"]))
@settings(max_examples=examples(40), deadline=None)
def test_any_rows_fold_without_loss(first: list, second: list, seed: int, of: str) -> None:  # type: ignore[type-arg]
    utilities = drawn(seed, context_dim=2, of=of, n_items=5)
    kernel, prior_mean = WCK.make(5, 2), utilities.prior_mean(WCK, 2)
    asked = np.array([[0, 1], [1, 0], [3, 4], [2, 0]], dtype=np.int32)
    posterior = Posterior.prior(kernel, context_dim=2, noise_variance=NOISE, prior_mean=prior_mean)
    for rows in (first, second):
        posterior = posterior.observe(CONTEXTS[[r[0] for r in rows]], [r[1] for r in rows], [r[2] for r in rows])
        posterior = posterior.refit(compact(kernel, posterior.observed_rows), noise_variance=NOISE)
    every = first + second
    gp = DenseGp(
        WCK, 5, NOISE, CONTEXTS[[r[0] for r in every]], np.array([r[1] for r in every], dtype=np.int32),
        np.array([r[2] for r in every]), offset=OFFSET, amplitude=AMPLITUDE,
    )  # fmt: skip
    for context in CONTEXTS:
        expected = Believer(gp, utilities, SLOPE).predict(context, asked)
        assert_close(scaled(posterior).predict(context, asked), expected, atol=1e-6)


def contracted_best(posterior: Posterior, context: NDArray[np.float64]) -> list[int]:
    """Return the items by what they add to a slate's mean, best first."""
    return np.argsort(-posterior.item_means(context, np.arange(N_ITEMS)), kind="stable").tolist()


@each_kind
def test_what_an_item_adds_to_the_mean_counts_its_utility(kind: Kind) -> None:
    utilities = drawn(15, context_dim=2, of="contexts")
    posterior = scaled(believing(kind, utilities, context_dim=2))
    context = question(2)
    assert contracted_best(posterior, context) == np.argsort(-(utilities.slopes @ context)).tolist()
    data = repeating(kind, 16, count=25, context_dim=2)
    plain = Posterior.prior(kind.make(N_ITEMS, SLATE_SIZE), context_dim=2, noise_variance=NOISE)
    h = utilities.h(kind, data.contexts, data.rankings)
    rest = plain.observe(data.contexts, data.rankings, data.rewards - SLOPE * h).rescale(offset=OFFSET, amplitude=1.0)
    every = np.arange(N_ITEMS)
    added = scaled(posterior.observe(*data.rows)).item_means(context, every) - rest.item_means(context, every)
    of_items = utilities.prior_mean(kind, SLATE_SIZE)
    expected = SLOPE * of_items.position_weights[0] * of_items.utilities(context, np.arange(N_ITEMS))
    np.testing.assert_allclose(added, expected, atol=1e-9)


@each_kind
@each_of
def test_the_weights_of_the_slope_are_what_another_slope_changes_in_a_contraction(kind: Kind, of: str) -> None:
    utilities = drawn(18, context_dim=2, of=of)
    data, items = repeating(kind, 19, count=25, context_dim=2), np.array([0, 2, 3, 5], dtype=np.int32)
    posterior = believing(kind, utilities, context_dim=2).observe(*data.rows)
    posterior = posterior.show(data.contexts[:3], data.rankings[:3])
    for context in (question(2), 3.0 * question(2)):
        weights = posterior.weights_of_slope(context, items)
        low, high = (
            posterior.rescale(offset=posterior.offset_at(slope), slope=slope, amplitude=AMPLITUDE).at(context, items)
            for slope in (-0.5, 1.5)
        )
        difference = (high.contraction.weights - low.contraction.weights)[: 2 * len(items)]
        np.testing.assert_allclose(2.0 * weights.reshape(-1), difference, atol=1e-9)
    plain = Posterior.prior(kind.make(N_ITEMS, SLATE_SIZE), context_dim=2, noise_variance=NOISE).observe(*data.rows)
    assert not plain.weights_of_slope(question(2), items).any()
