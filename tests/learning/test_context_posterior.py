from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.learning.dense import CK, KINDS, WCK, Kind, all_but_known, assert_close, fitted, rankings_of, sample

from topk_bandit.learning.posterior import Posterior

if TYPE_CHECKING:
    from numpy.typing import NDArray

N_ITEMS = 13
CONTEXT = np.array([0.9, -0.3])
SINGLE = 5e-6
"""Variances are computed from float32 numbers."""
ITEMS = np.array([0, 2, 3, 7, 8, 10, 12], dtype=np.int32)


def posterior_of(kind: Kind, slate_size: int, *, seed: int = 1, count: int = 40) -> Posterior:
    """Return one with some items that no row has shown, pending slates, an offset and an amplitude."""
    rng = np.random.default_rng(seed)
    data = sample(kind, rng, n_items=N_ITEMS - 3, slate_size=slate_size, context_dim=2, count=count)
    rows = data.contexts, (data.rankings + 1).astype(np.int32), data.rewards
    kernel = kind.make(N_ITEMS, slate_size)
    posterior = Posterior.prior(kernel, context_dim=2, noise_variance=0.1).observe(*rows)
    return posterior.show(rows[0][:5], rows[1][::-1][:5]).rescale(offset=0.4, amplitude=1.7)


CASES = [(kind, k) for kind in KINDS for k in (2, 3, 5)] + [(CK, 1), (WCK, 1), (WCK, len(ITEMS))]
each_case = pytest.mark.parametrize(
    ("kind", "slate_size"), CASES, ids=lambda v: v.name if isinstance(v, Kind) else str(v)
)


def replaced(ranking: NDArray[np.int32], position: int, n_items: int) -> NDArray[np.int32]:
    """Return the ranking with each item in turn at a position; an item that it shows already leaves it as it is."""
    rows = np.tile(ranking, (n_items, 1))
    for item in set(range(n_items)) - set(ranking.tolist()):
        rows[item, position] = item
    return rows


@each_case
@pytest.mark.parametrize("count", [0, 3, 40])
def test_without_pending_rows_the_moments_are_those_of_the_others(kind: Kind, slate_size: int, count: int) -> None:
    posterior = shown = posterior_of(kind, slate_size, count=count)
    while posterior.n_pending:
        posterior = posterior.discard(0)
    rankings = ITEMS[rankings_of(len(ITEMS), slate_size, 9, np.random.default_rng(2))]
    known = shown.predict(CONTEXT, rankings, with_pending=False)
    assert_close(known, posterior.predict(CONTEXT, rankings), atol=1e-9)


@each_case
@pytest.mark.parametrize("count", [0, 40])
def test_replacements_are_the_moments_of_the_replaced_rankings(kind: Kind, slate_size: int, count: int) -> None:
    at_context = posterior_of(kind, slate_size, count=count).at(CONTEXT, ITEMS)
    rankings = rankings_of(len(ITEMS), slate_size, 6, np.random.default_rng(2))
    original = rankings.copy()
    for position in range(slate_size):
        at_once = at_context.replacements(rankings, position)
        assert at_once.mean.shape == at_once.variance.shape == (6, len(ITEMS))
        for row, ranking in enumerate(original):
            one_by_one = at_context.moments(replaced(ranking, position, len(ITEMS)))
            np.testing.assert_allclose(at_once.mean[row], one_by_one.mean, atol=1e-10)
            np.testing.assert_allclose(at_once.variance[row], one_by_one.variance, atol=SINGLE)
    assert rankings.tolist() == original.tolist()


@each_case
def test_positions_among_some_items_stand_for_their_indices(kind: Kind, slate_size: int) -> None:
    posterior = posterior_of(kind, slate_size)
    local = rankings_of(len(ITEMS), slate_size, 30, np.random.default_rng(4))
    at_context = posterior.at(CONTEXT, ITEMS)
    everywhere = posterior.at(CONTEXT, np.arange(N_ITEMS))
    assert at_context.slate_size == slate_size
    assert at_context.items.tolist() == ITEMS.tolist()
    assert_close(at_context.moments(local), posterior.predict(CONTEXT, ITEMS[local]), atol=SINGLE)
    assert_close(at_context.moments(local), everywhere.moments(ITEMS[local]), atol=SINGLE)


@each_case
def test_means_are_the_means_of_the_moments(kind: Kind, slate_size: int) -> None:
    at_context = posterior_of(kind, slate_size).at(CONTEXT, ITEMS)
    local = rankings_of(len(ITEMS), slate_size, 30, np.random.default_rng(4))
    np.testing.assert_allclose(at_context.means(local), at_context.moments(local).mean, atol=1e-12)


@each_case
def test_a_landscape_is_the_posterior_at_its_context(kind: Kind, slate_size: int) -> None:
    posterior = posterior_of(kind, slate_size, count=300)
    local = rankings_of(len(ITEMS), slate_size, 30, np.random.default_rng(4))
    for length in (1e-6, 1.0, 1e30):
        moments, exact = (
            posterior.at(length * CONTEXT, ITEMS).moments(local),
            posterior.predict(length * CONTEXT, ITEMS[local]),
        )
        np.testing.assert_allclose(moments.mean, exact.mean, rtol=1e-9, atol=1e-10)
        np.testing.assert_allclose(moments.variance, exact.variance, rtol=0, atol=SINGLE * length**2)


def test_a_context_of_zeros_is_certain() -> None:
    moments = (
        posterior_of(WCK, 3).at(0.0 * CONTEXT, ITEMS).moments(rankings_of(len(ITEMS), 3, 5, np.random.default_rng(4)))
    )
    assert moments.mean.tolist() == [0.4] * 5
    assert moments.variance.tolist() == [0.0] * 5


def test_rounding_pushes_no_variance_below_zero() -> None:
    posterior, every = all_but_known()
    at_context = posterior.at([0.7], np.arange(9))
    assert at_context.moments(every).variance.min() >= 0.0
    assert at_context.replacements(every, 1).variance.min() >= 0.0


def test_a_landscape_keeps_its_answers_while_its_posterior_grows() -> None:
    data = sample(WCK, np.random.default_rng(1), n_items=N_ITEMS, slate_size=3, context_dim=2, count=80)
    posterior = fitted(WCK, data[:40], n_items=N_ITEMS)
    at_context = posterior.at(CONTEXT, ITEMS)
    local = rankings_of(len(ITEMS), 3, 30, np.random.default_rng(4))
    before = at_context.moments(local)
    posterior.observe(*data[40:].rows)
    after = at_context.moments(local)
    assert before.mean.tolist() == after.mean.tolist()
    assert before.variance.tolist() == after.variance.tolist()
