"""What holds for every D-optimal design, whatever the lists are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.long_forms import examples
from tests.preferences.plain_designs import all_matrices, gradients, log_det

from topk_bandit.preferences.designs.optimal import Feedback, d_optimal_lists, d_optimal_subsets
from topk_bandit.preferences.designs.rounding import allocate

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

SEEDS = st.integers(0, 2**32 - 1)
TOLERANCE = 1e-5


@st.composite
def lists(draw: st.DrawFn) -> Floats:
    """Matrices (L, d, M) that span; some are alike, some are zero, some only a direction."""
    rng = np.random.default_rng(draw(SEEDS))
    d, width = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    matrices = rng.normal(size=(draw(st.integers(d, 15)), d, width))
    odd = draw(st.sampled_from(["plain", "copies", "zeros", "narrow", "integers"]))
    half = len(matrices) // 2
    match odd:
        case "copies":
            matrices = np.concatenate([matrices, matrices[:half]])
        case "zeros":
            matrices = np.concatenate([matrices, np.zeros((2, d, width))])
        case "narrow":
            matrices = np.concatenate([matrices, np.repeat(rng.normal(size=(half, d, 1)), width, axis=2)])
        case "integers":
            matrices = np.concatenate(
                [np.rint(matrices), np.eye(d, width)[None], np.eye(d)[:, :, None] * np.ones(width)]
            )
    return matrices


@given(lists())
def test_a_gap_below_the_tolerance_is_certified(matrices: Floats) -> None:
    design = d_optimal_lists(matrices, gap_tolerance=TOLERANCE)
    d, values = matrices.shape[1], gradients(matrices, design.weights)
    assert design.weights @ values == pytest.approx(d, rel=1e-9)
    assert values.max() - d == pytest.approx(design.gap, abs=1e-7)
    assert design.gap <= TOLERANCE


@given(lists(), SEEDS, st.floats(0.05, 20.0))
def test_no_other_weights_have_a_larger_log_det_than_the_gap_allows(matrices: Floats, seed: int, spread: float) -> None:
    rough = d_optimal_lists(matrices, gap_tolerance=0.5)
    other = np.random.default_rng(seed).dirichlet(np.full(len(matrices), spread)) + 1e-9
    other = 0.5 * other / other.sum() + 0.5 * rough.weights
    assert log_det(matrices, other) <= rough.log_det + rough.gap + 1e-9


@given(lists(), SEEDS)
def test_order_and_coordinates_do_not_matter(matrices: Floats, seed: int) -> None:
    rng = np.random.default_rng(seed)
    d = matrices.shape[1]
    change = rng.normal(size=(d, d)) + 3.0 * np.eye(d)
    turn = np.linalg.qr(rng.normal(size=(matrices.shape[2],) * 2))[0]
    other = (change @ matrices @ turn)[rng.permutation(len(matrices))]
    plain, changed = (d_optimal_lists(one, gap_tolerance=TOLERANCE) for one in (matrices, other))
    shift = 2.0 * np.linalg.slogdet(change)[1]
    assert changed.log_det - shift == pytest.approx(plain.log_det, abs=2.0 * TOLERANCE)


@given(lists(), st.data())
def test_more_lists_are_never_worse(matrices: Floats, data: st.DataObject) -> None:
    few = d_optimal_lists(matrices, gap_tolerance=TOLERANCE)
    extra = np.random.default_rng(data.draw(SEEDS)).normal(size=(3, *matrices.shape[1:]))
    many = d_optimal_lists(np.concatenate([matrices, extra]), gap_tolerance=TOLERANCE)
    assert many.log_det >= few.log_det - TOLERANCE


@given(SEEDS, st.integers(1, 5), st.sampled_from(Feedback), st.data())
@settings(max_examples=examples(30))
def test_a_design_over_subsets_is_one_over_all_of_them_as_lists(
    seed: int, size: int, feedback: Feedback, data: st.DataObject
) -> None:
    size = max(size, 2) if feedback is Feedback.RANKING else size
    n_items, d = data.draw(st.integers(size + 3, 9)), data.draw(st.integers(1, 3))
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(n_items, d))
    # As many items stay apart as it takes for their differences to span.
    features[: data.draw(st.integers(0, min(2, n_items - d - 1)))] = features[-1]
    _, matrices = all_matrices(features, size, is_ranking=feedback is Feedback.RANKING)
    tolerance = 1e-3
    design = d_optimal_subsets(features, subset_size=size, gap_tolerance=tolerance, rng=rng, feedback=feedback)
    written = d_optimal_lists(matrices, gap_tolerance=1e-6)
    assert design.log_det <= written.log_det + 2e-6
    assert written.log_det - design.log_det <= design.gap + 1e-9
    assert design.gap <= tolerance + 1e-12


@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=12), st.integers(0, 60))
def test_rounded_counts_are_an_efficient_apportionment(values: list[float], n: int) -> None:
    weights = np.array(values) + (1.0 if not any(value > 1e-6 for value in values) else 0.0)
    weights[weights <= 1e-6] = 0.0
    weights /= weights.sum()
    counts, support = allocate(weights, n), weights > 0.0
    assert counts.sum() == n
    assert not counts[~support].any()
    if n >= support.sum():
        # One multiplier serves all: n_i - 1 <= m w_i <= n_i (Pukelsheim, Section 12.5).
        assert ((counts - 1)[support] / weights[support]).max() <= (counts / np.where(support, weights, 1.0))[
            support
        ].min() * (1.0 + 1e-12)
        assert counts[support].min() >= 1
    else:
        assert counts.max() <= 1
        assert weights[counts == 1].min(initial=1.0) >= weights[support & (counts == 0)].max()
