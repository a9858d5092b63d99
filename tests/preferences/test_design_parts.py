"""The parts that designs are made with, each against its slow and plain version."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from tests.preferences.plain_designs import best_log_det, gradients, information, log_det, scatter_matrix

from topk_bandit.preferences.compiled.combinations import (
    best_pairs,
    best_subset,
    best_triples,
    exchange,
    pair_gradients,
)
from topk_bandit.preferences.compiled.coordinates import best_change, diagonalise, sweep
from topk_bandit.preferences.designs.bounds import gradient_bound, largest_sums
from topk_bandit.preferences.designs.information import Information
from topk_bandit.preferences.designs.newton import newton
from topk_bandit.preferences.designs.rounding import allocate
from topk_bandit.preferences.designs.subsets import RankedSubsets, RatedSubsets
from topk_bandit.preferences.designs.whitening import RankError, whiten

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]


def random_candidates(seed: int, *, count: int = 12, width: int = 3, d: int = 4) -> tuple[Floats, Floats]:
    """Rows (S, M, d), and positive weights with sum 1."""
    rng = np.random.default_rng(seed)
    weights = rng.uniform(0.2, 1.0, count)
    return rng.normal(size=(count, width, d)), weights / weights.sum()


def random_pairs(seed: int, *, n_items: int, d: int) -> tuple[Floats, Floats]:
    """Items y, and D_jk by its definition."""
    items = np.random.default_rng(seed).normal(size=(n_items, d))
    return items, np.square(items[:, None] - items).sum(axis=2)


def best_of_all(pairs: Floats, size: int) -> tuple[float, tuple[int, ...]]:
    return max(
        (sum(pairs[j, k] for j, k in combinations(one, 2)), one) for one in combinations(range(len(pairs)), size)
    )


# -- one coordinate at a time


@pytest.mark.parametrize("size", [1, 2, 5, 9])
def test_diagonalise_agrees_with_lapack(size: int) -> None:
    root = np.random.default_rng(size).normal(size=(size, max(1, size - 1)))
    matrix, basis = root @ root.T, np.zeros((size, size))
    diagonal = matrix.copy()
    diagonalise(diagonal, basis)
    assert np.sort(np.diag(diagonal)) == pytest.approx(np.linalg.eigvalsh(matrix), abs=1e-12)
    assert basis @ np.diag(np.diag(diagonal)) @ basis.T == pytest.approx(matrix, abs=1e-12)
    assert basis.T @ basis == pytest.approx(np.eye(size), abs=1e-13)


def test_matrices_that_are_diagonal_or_zero_stay_as_they_are() -> None:
    for diagonal in ([0.0, 0.0], [3.0, 0.0], [1.0, 1.0]):
        matrix, basis = np.diag(diagonal), np.zeros((2, 2))
        diagonalise(matrix, basis)
        assert np.array_equal(matrix, np.diag(diagonal))
        assert np.array_equal(basis, np.eye(2))


@pytest.mark.parametrize("eigenvalues", [[3.0], [0.5], [2.0, 5.0, 0.0], [1e-3, 1e3], [0.7, 0.7], [0.0]])
@pytest.mark.parametrize("weight", [0.0, 0.01, 0.3])
def test_the_change_of_a_weight_is_the_best_there_is(eigenvalues: list[float], weight: float) -> None:
    e, d = np.array(eigenvalues), 2.0
    weight = min(weight, 0.9 / max(e.max(), 1e-9))

    def loss(t: float) -> float:
        return float(d * t - np.log1p(t * e).sum())

    found = minimize_scalar(loss, bounds=(-weight, 5.0), method="bounded", options={"xatol": 1e-12})
    change = best_change(e, d, weight)
    assert change >= -weight
    assert loss(change) <= loss(found.x) + 1e-12


@pytest.mark.parametrize("width", [1, 2, 4])
def test_a_sweep_climbs_and_keeps_the_inverse(width: int) -> None:
    rows, weights = random_candidates(width, width=width)
    matrices, d = rows.transpose(0, 2, 1), rows.shape[2]
    inverse, before = np.linalg.inv(information(matrices, weights)), log_det(matrices, weights) - d * weights.sum()
    for _ in range(4):
        sweep(inverse, rows, weights, 0, 7, rows.shape[2], 0.0)
        sweep(inverse, rows, weights, 7, len(rows), rows.shape[2], 0.0)
        after = log_det(matrices, weights) - d * weights.sum()
        assert after >= before - 1e-12
        before = after
    assert weights.min() >= 0.0
    assert inverse == pytest.approx(np.linalg.inv(information(matrices, weights)), rel=1e-9, abs=1e-12)
    last = gradients(matrices, weights)[-1]
    assert last == pytest.approx(d, abs=1e-9) or (weights[-1] == 0.0 and last < d)


def test_a_sweep_leaves_what_is_good_enough_and_tells_what_was_not() -> None:
    rows, weights = random_candidates(3)
    matrices, d = rows.transpose(0, 2, 1), rows.shape[2]
    excess = np.abs(gradients(matrices, weights) - d)
    inverse, start = np.linalg.inv(information(matrices, weights)), weights.copy()
    assert sweep(inverse, rows, weights, 0, len(rows), rows.shape[2], float(excess.max()) + 1e-9) == 0.0
    assert np.array_equal(weights, start)
    first = sweep(inverse, rows, weights, 0, 1, rows.shape[2], 0.0)
    assert first == pytest.approx(excess[0], rel=1e-9)
    assert np.array_equal(weights[1:], start[1:])


# -- all weights at once


@pytest.mark.parametrize("seed", range(3))
def test_newtons_method_finds_the_optimum(seed: int) -> None:
    rows, weights = random_candidates(seed, count=10)
    found, steps = newton(rows, weights, gap_tolerance=1e-9, stop=lambda: False)
    matrices = rows.transpose(0, 2, 1)
    values = gradients(matrices, found)
    assert steps <= 25
    assert values.max() <= 4.0 + 1e-6
    assert log_det(matrices, found) == pytest.approx(best_log_det(matrices), abs=1e-8)
    assert (found[values < 4.0 - 1e-3] == 0.0).all()


def test_newtons_method_can_be_stopped() -> None:
    rows, weights = random_candidates(4)
    calls = iter([False, False, True])
    found, steps = newton(rows, weights, gap_tolerance=1e-9, stop=lambda: next(calls))
    assert steps == 2
    assert found.sum() == pytest.approx(1.0)


# -- coordinates


def test_whitened_rows_add_up_to_the_identity() -> None:
    rng = np.random.default_rng(5)
    rows = rng.normal(size=(9000, 3)) @ np.array([[1e6, 0.0, 0.0], [3.0, 1e-3, 0.0], [1.0, 0.0, 1.0]])
    white, log_det_of_sum, basis = whiten(rows, 50)
    assert white.T @ white / 50 == pytest.approx(np.eye(3), abs=1e-9)
    assert log_det_of_sum == pytest.approx(np.linalg.slogdet(rows.T @ rows / 50)[1], rel=1e-9)
    assert rows @ basis == pytest.approx(white, abs=1e-9)


@pytest.mark.parametrize(("rank", "d"), [(0, 2), (2, 5), (4, 5)])
def test_rows_that_do_not_span_are_refused_with_their_rank(rank: int, d: int) -> None:
    rng = np.random.default_rng(rank)
    with pytest.raises(RankError) as caught:
        whiten(rng.normal(size=(20, rank)) @ rng.normal(size=(rank, d)), 20)
    assert caught.value.rank == rank


def test_information_knows_its_log_det_inverse_and_norms() -> None:
    rows, weights = random_candidates(6)
    one = Information.of(rows, weights, prior=0.3 * np.eye(4))
    dense = information(rows.transpose(0, 2, 1), weights) + 0.3 * np.eye(4)
    assert one.log_det == pytest.approx(np.linalg.slogdet(dense)[1])
    assert one.inverse == pytest.approx(np.linalg.inv(dense))
    norms = np.square(one.whiten(rows)).sum(axis=2)
    assert norms == pytest.approx(np.einsum("smd,de,sme->sm", rows, np.linalg.inv(dense), rows))


@pytest.mark.parametrize("size", [2, 3, 6])
def test_contrasts_stand_for_all_differences(size: int) -> None:
    features = np.random.default_rng(size).normal(size=(9, 3))
    candidates = RankedSubsets.of(features, groups=[np.arange(9)], size=size, rng=np.random.default_rng(0))
    subset = np.random.default_rng(1).permutation(9)[None, :size]
    rows = candidates.rows(subset)[0]
    assert rows.shape == (size - 1, 3)
    assert rows.T @ rows == pytest.approx(scatter_matrix(candidates.items, subset[0]), abs=1e-12)


# -- subsets with a large gradient


def test_pair_gradients_are_squared_distances() -> None:
    items, pairs = random_pairs(0, n_items=9, d=3)
    assert pair_gradients(items @ items.T) == pytest.approx(pairs, abs=1e-12)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("size", [2, 3])
def test_every_item_gets_the_best_subset_that_it_is_in(size: int, seed: int) -> None:
    _, pairs = random_pairs(seed, n_items=13, d=3)
    keys, values = np.zeros((13, size), dtype=np.int64), np.full(13, -np.inf)
    if size == 2:
        best_pairs(pairs, keys, values)
    else:
        best_triples(pairs, 0.0, keys, values)
    for item in range(13):
        having = [one for one in combinations(range(13), size) if item in one]
        best = max(sum(pairs[j, k] for j, k in combinations(one, 2)) for one in having)
        assert item in keys[item]
        assert values[item] == pytest.approx(best)
        assert sum(pairs[j, k] for j, k in combinations(keys[item], 2)) == pytest.approx(best)


def test_triples_below_the_floor_are_left_out() -> None:
    _, pairs = random_pairs(4, n_items=20, d=2)
    best, subset = best_of_all(pairs, 3)
    keys, values = np.zeros((20, 3), dtype=np.int64), np.full(20, -np.inf)
    best_triples(pairs, 0.999 * best, keys, values)
    assert np.flatnonzero(np.isfinite(values)).tolist() == list(subset)


@pytest.mark.parametrize("size", [3, 5])
def test_no_exchange_improves_what_exchanges_found(size: int) -> None:
    _, pairs = random_pairs(size, n_items=15, d=4)
    rng = np.random.default_rng(0)
    subsets = np.stack([rng.choice(15, size, replace=False) for _ in range(6)])
    before = [sum(pairs[j, k] for j, k in combinations(one, 2)) for one in subsets]
    values = np.zeros(6)
    exchange(pairs, subsets, values)
    for one, value, start in zip(subsets, values, before, strict=True):
        assert len(set(one)) == size
        assert value == pytest.approx(sum(pairs[j, k] for j, k in combinations(one, 2)))
        assert value >= start
        for out in range(size):
            for item in set(range(15)) - set(one):
                other = [*np.delete(one, out), item]
                assert sum(pairs[j, k] for j, k in combinations(other, 2)) <= value * (1.0 + 1e-9)


@pytest.mark.parametrize("size", [3, 4, 5])
@pytest.mark.parametrize("d", [1, 3, 11])
def test_branch_and_bound_finds_the_best_subset(size: int, d: int) -> None:
    _, pairs = random_pairs(10 * size + d, n_items=12, d=d)
    best, expected = best_of_all(pairs, size)
    subset = np.zeros(size, dtype=np.int64)
    value, settled = best_subset(pairs, largest_sums(pairs, size), 0.0, 1e8, subset)
    assert settled
    assert value == pytest.approx(best)
    assert subset.tolist() == list(expected)
    assert best_subset(pairs, largest_sums(pairs, size), best * (1 + 1e-9), 1e8, subset) == (best * (1 + 1e-9), True)
    assert not best_subset(pairs, largest_sums(pairs, size), 0.0, 5.0, subset)[1]


@pytest.mark.parametrize("size", [3, 4, 6])
@pytest.mark.parametrize("d", [1, 2, 5, 11])
def test_no_gradient_exceeds_the_bound(size: int, d: int) -> None:
    for seed in range(4):
        items, pairs = random_pairs(seed, n_items=12, d=d)
        best = best_of_all(pairs, size)[0]
        bound = gradient_bound(items, largest_sums(pairs, size), enough=0.0)
        assert best <= bound * (1.0 + 1e-12)
        assert bound <= 1.8 * best
        assert best <= gradient_bound(items, largest_sums(pairs, size), enough=1.1 * best) <= bound * 1.5


def test_bounds_are_tight_where_they_can_be() -> None:
    simplex = np.eye(8)
    pairs = 2.0 * (1.0 - np.eye(8))
    assert gradient_bound(simplex, largest_sums(pairs, 4), enough=0.0) == pytest.approx(best_of_all(pairs, 4)[0])
    two = np.repeat([[-1.0], [1.0]], 4, axis=0)  # the best four: two on either side
    pairs = np.square(two - two.T)
    assert gradient_bound(two, largest_sums(pairs, 4), enough=0.0) == pytest.approx(best_of_all(pairs, 4)[0], rel=1e-3)


@pytest.mark.parametrize("size", [1, 3])
def test_the_best_rated_subset_has_the_largest_norms(size: int) -> None:
    features = np.random.default_rng(size).normal(size=(10, 3))
    groups = [np.array([0, 2, 4, 6]), np.array([1, 3, 5, 7, 8, 9])]
    candidates = RatedSubsets.of(features, groups=groups, size=size)
    one = Information.of(candidates.items[None] * 0.01, np.ones(1))
    prices = candidates.price(one, level=candidates.dimension, target=0.0)
    norms = np.einsum("nd,de,ne->n", candidates.items, one.inverse, candidates.items)
    assert prices.bound == pytest.approx(max(np.sort(norms[group])[-size:].sum() for group in groups))
    assert prices.values == pytest.approx(norms[prices.keys].sum(axis=1))
    assert {item for key in prices.keys for item in key} == set(range(10))


# -- rounding


@pytest.mark.parametrize("n", range(3, 12))
def test_no_rounding_loses_less_than_the_efficient_one(n: int) -> None:
    weights = np.array([0.55, 0.0, 0.27, 0.18])
    counts = allocate(weights, n)
    assert counts.sum() == n
    assert counts[1] == 0
    others = ((a, b, n - a - b) for a in range(n + 1) for b in range(n + 1 - a))
    shares = weights[[0, 2, 3]]
    best = max(min(np.array(one) / shares) for one in others)
    assert min(counts[[0, 2, 3]] / shares) == pytest.approx(best)
