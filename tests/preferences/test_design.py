"""Designs against slow ones: a general optimiser, all subsets written down, and optima that are known."""

from __future__ import annotations

import math
from itertools import combinations, pairwise
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.preferences.plain_designs import all_matrices, best_log_det, gradients, log_det, scatter_matrix

from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.preferences.designs.information import Information
from topk_bandit.preferences.designs.optimal import (
    Feedback,
    ListDesign,
    Progress,
    SubsetDesign,
    d_optimal_lists,
    d_optimal_subsets,
    ranking_matrices,
    rating_matrices,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]


def dope_features(rng: np.random.Generator, lists: int, *, size: int = 4, width: int = 3) -> Floats:
    """Lists as in Dope's synthetic experiments: x = vec(q a')."""
    queries = rng.uniform(0.0, 1.0, (lists, width))
    answers = rng.uniform(1.0, 2.0, (lists, size, width))
    queries /= np.linalg.norm(queries, axis=1, keepdims=True)
    answers /= np.linalg.norm(answers, axis=2, keepdims=True)
    return np.einsum("li,lkj->lkij", queries, answers).reshape(lists, size, -1)


def grid(points: int, degree: int) -> Floats:
    """Lists of one item, the powers of a point of [-1, 1]."""
    return np.polynomial.chebyshev.chebvander(np.linspace(-1.0, 1.0, points), degree)[:, None, :]


def check_certificate(matrices: Floats, design: ListDesign) -> None:
    values = gradients(matrices, design.weights)
    assert design.weights.min() >= 0.0
    assert design.weights.sum() == pytest.approx(1.0, abs=1e-12)
    assert design.log_det == pytest.approx(log_det(matrices, design.weights), abs=1e-8)
    assert design.weights @ values == pytest.approx(matrices.shape[1], rel=1e-9)
    assert design.gap == pytest.approx(values.max() - matrices.shape[1], abs=1e-7)


def weights_of(design: SubsetDesign, subsets: list[tuple[int, ...]]) -> Floats:
    """The weights of a design in the order of all subsets."""
    place = {subset: number for number, subset in enumerate(subsets)}
    weights = np.zeros(len(subsets))
    for subset, weight in zip(design.subsets.tolist(), design.weights, strict=True):
        weights[place[tuple(subset)]] = weight
    assert np.count_nonzero(weights) == len(design.weights)
    return weights


# -- matrices


def test_rating_matrices_hold_features_and_ranking_matrices_all_differences() -> None:
    features = np.random.default_rng(0).normal(size=(3, 4, 2))
    rating, ranking = rating_matrices(features), ranking_matrices(features)
    assert rating.shape == (3, 2, 4)
    assert ranking.shape == (3, 2, 6)
    for i in range(3):
        assert np.array_equal(rating[i], features[i].T)
        pairs = [features[i, j] - features[i, k] for j, k in combinations(range(4), 2)]
        assert np.array_equal(ranking[i], np.array(pairs).T)
        assert ranking[i] @ ranking[i].T == pytest.approx(scatter_matrix(features[i], np.arange(4)), abs=1e-12)


# -- lists


@pytest.mark.parametrize("seed", range(2))
def test_lists_are_weighed_as_a_general_optimiser_weighs_them(seed: int) -> None:
    matrices = np.random.default_rng(seed).normal(size=(9, 3, 2))
    design = d_optimal_lists(matrices, gap_tolerance=1e-7)
    check_certificate(matrices, design)
    assert design.gap <= 1e-7
    assert design.log_det == pytest.approx(best_log_det(matrices), abs=1e-6)


@pytest.mark.parametrize("lists", [12, 150, 2000])
def test_the_gap_is_what_the_definition_says(lists: int) -> None:
    matrices = ranking_matrices(dope_features(np.random.default_rng(lists), lists))
    design = d_optimal_lists(matrices, gap_tolerance=0.009)
    check_certificate(matrices, design)
    assert 0.0 <= design.gap <= 0.009
    tight = d_optimal_lists(matrices, gap_tolerance=1e-6)
    assert -1e-9 <= tight.log_det - design.log_det <= design.gap
    assert np.count_nonzero(design.weights) <= 9 * 10 // 2  # d (d + 1) / 2: Dope, Theorem 1


def test_a_parabola_is_learned_from_its_ends_and_its_middle() -> None:
    design = d_optimal_lists(rating_matrices(grid(101, 2)), gap_tolerance=1e-9)
    expected = np.zeros(101)
    expected[[0, 50, 100]] = 1.0 / 3.0
    assert design.weights == pytest.approx(expected, abs=1e-6)


def test_lists_that_are_nearly_alike_are_distinguished() -> None:
    # The optimum of degree 5 has support at the ends and at the zeros of the derivative of Legendre's polynomial.
    design = d_optimal_lists(rating_matrices(grid(4001, 5)), gap_tolerance=1e-8)
    check_certificate(rating_matrices(grid(4001, 5)), design)
    assert design.gap <= 1e-8
    zeros = np.polynomial.Legendre.basis(5).deriv().roots()
    points = np.linspace(-1.0, 1.0, 4001)
    for zero in [-1.0, *zeros, 1.0]:
        near = np.abs(points - zero) < 1e-3
        assert design.weights[near].sum() == pytest.approx(1.0 / 6.0, abs=1e-3)


def test_lists_of_nothing_and_copies_of_lists_change_nothing() -> None:
    matrices = np.random.default_rng(1).normal(size=(10, 3, 2))
    more = np.concatenate([np.zeros((4, 3, 2)), matrices, matrices[:5], matrices[:5]])
    plain, crowded = (d_optimal_lists(one, gap_tolerance=1e-7) for one in (matrices, more))
    check_certificate(more, crowded)
    assert crowded.log_det == pytest.approx(plain.log_det, abs=1e-6)
    assert not crowded.weights[:4].any()


@pytest.mark.parametrize("copies", [1, 5])
def test_one_list_that_spans_gets_all_the_weight(copies: int) -> None:
    matrices = np.repeat(np.random.default_rng(2).normal(size=(1, 3, 5)), copies, axis=0)
    design = d_optimal_lists(matrices, gap_tolerance=1e-6)
    assert design.weights.sum() == 1.0
    check_certificate(matrices, design)
    assert design.gap == pytest.approx(0.0, abs=1e-9)


def test_features_of_very_different_scales_do_no_harm() -> None:
    matrices = np.random.default_rng(3).normal(size=(30, 4, 2))
    scales = np.array([1e-9, 1.0, 1e5, 1e12])
    plain, scaled = (d_optimal_lists(one, gap_tolerance=1e-6) for one in (matrices, scales[:, None] * matrices))
    assert scaled.weights == pytest.approx(plain.weights, abs=1e-6)
    assert scaled.log_det == pytest.approx(plain.log_det + 2.0 * np.log(scales).sum(), abs=1e-6)


@pytest.mark.parametrize("copies", [1, 3])
def test_a_tolerance_below_rounding_errors_still_ends(copies: int) -> None:
    matrices = np.repeat(np.random.default_rng(4).normal(size=(40, 3, 2)), copies, axis=0)
    design = d_optimal_lists(matrices, gap_tolerance=1e-300)
    check_certificate(matrices, design)
    assert design.gap <= 1e-9


# -- subsets


@pytest.mark.parametrize("feedback", Feedback)
@pytest.mark.parametrize(("size", "n_items"), [(2, 12), (3, 12), (4, 10), (5, 9)])
def test_subsets_are_weighed_as_if_all_were_written_down(feedback: Feedback, size: int, n_items: int) -> None:
    features = np.random.default_rng(size).normal(size=(n_items, 4))
    subsets, matrices = all_matrices(features, size, is_ranking=feedback is Feedback.RANKING)
    design = d_optimal_subsets(
        features, subset_size=size, gap_tolerance=1e-3, rng=np.random.default_rng(0), feedback=feedback
    )
    written = d_optimal_lists(matrices, gap_tolerance=1e-6)
    weights = weights_of(design, subsets)
    largest = gradients(matrices, weights).max() - 4.0
    assert design.gap <= 1e-3 + 1e-12
    assert largest - 1e-9 <= design.gap
    assert design.log_det == pytest.approx(log_det(matrices, weights), abs=1e-8)
    assert -1e-9 <= written.log_det - design.log_det <= design.gap + 1e-6


def test_ratings_of_single_items_are_the_classic_design() -> None:
    features = np.random.default_rng(5).normal(size=(40, 3))
    subsets = d_optimal_subsets(
        features, subset_size=1, gap_tolerance=1e-6, rng=np.random.default_rng(0), feedback=Feedback.RATING
    )
    lists = d_optimal_lists(rating_matrices(features[:, None, :]), gap_tolerance=1e-6)
    weights = np.zeros(40)
    weights[subsets.subsets[:, 0]] = subsets.weights
    assert weights == pytest.approx(lists.weights, abs=1e-4)


def test_a_triple_of_many_items_is_searched_for_exactly() -> None:
    # Beyond the size up to which all triples are looked at in every round.
    features = np.random.default_rng(6).normal(size=(160, 5))
    design = d_optimal_subsets(features, subset_size=3, gap_tolerance=0.02, rng=np.random.default_rng(0))
    inverse = np.linalg.inv(
        sum(p * scatter_matrix(features, one) for one, p in zip(design.subsets, design.weights, strict=True))
    )
    gram = features @ inverse @ features.T
    pairs = np.diag(gram)[:, None] + np.diag(gram) - 2.0 * gram
    largest = max((pairs[i] + pairs[i][:, None] + pairs).max() for i in range(160))
    assert design.gap == pytest.approx(largest - 5.0, abs=1e-8)
    assert design.gap <= 0.02


@pytest.mark.parametrize("size", [2, 3, 5])
def test_items_as_far_apart_as_a_simplex_are_asked_about_evenly(size: int) -> None:
    # N - 1 features of N items are a simplex but for a linear map, so that all subsets alike is optimal.
    n_items, d = 11, 10
    features = np.random.default_rng(7).normal(size=(n_items, d))
    design = d_optimal_subsets(features, subset_size=size, gap_tolerance=1e-3, rng=np.random.default_rng(0))
    share = math.comb(size, 2) / math.comb(n_items, 2)
    even = np.linalg.slogdet(share * scatter_matrix(features, np.arange(n_items)))[1]
    assert -1e-9 <= even - design.log_det <= design.gap + 1e-9


@pytest.mark.parametrize("feedback", Feedback)
def test_subsets_stay_within_their_group(feedback: Feedback) -> None:
    rng = np.random.default_rng(8)
    features, groups = rng.normal(size=(16, 3)), np.array([4, 4, 4, 4, 4, 0, 0, 0, 0, 9, 9, 4, 0, 0, 7, 4])
    subsets, matrices = all_matrices(features, 3, is_ranking=feedback is Feedback.RANKING, groups=groups)
    design = d_optimal_subsets(
        features, subset_size=3, gap_tolerance=1e-3, rng=rng, feedback=feedback, groups=groups.tolist()
    )
    weights = weights_of(design, subsets)
    assert design.gap == pytest.approx(gradients(matrices, weights).max() - 3.0, abs=1e-8)
    assert design.log_det == pytest.approx(d_optimal_lists(matrices, gap_tolerance=1e-6).log_det, abs=1e-3)


@pytest.mark.parametrize("most", [1, 3, 6, 12])
def test_a_design_that_is_not_finished_bounds_its_gap_over_all_groups(most: int) -> None:
    features, groups = np.random.default_rng(16).normal(size=(24, 4)), np.repeat([0, 1, 2], 8)
    features[groups == 0] *= 3.0  # the first group tells most
    subsets, matrices = all_matrices(features, 4, is_ranking=True, groups=groups)
    rng = np.random.default_rng(0)
    design = d_optimal_subsets(features, subset_size=4, gap_tolerance=1e-6, rng=rng, groups=groups, max_steps=most)
    assert gradients(matrices, weights_of(design, subsets)).max() - 4.0 <= design.gap + 1e-9


def test_a_gap_that_cannot_be_found_is_bounded() -> None:
    features = np.random.default_rng(9).normal(size=(60, 6))
    design = d_optimal_subsets(features, subset_size=9, gap_tolerance=1e-9, rng=np.random.default_rng(0))
    inverse = np.linalg.inv(
        sum(p * scatter_matrix(features, one) for one, p in zip(design.subsets, design.weights, strict=True))
    )
    tried = np.random.default_rng(1).permuted(np.tile(np.arange(60), (300, 1)), axis=1)[:, :9]
    found = [np.trace(inverse @ scatter_matrix(features, one)) for one in [*design.subsets, *tried]]
    assert max(found) - 6.0 <= design.gap <= 0.5


def test_a_design_is_repeatable_and_depends_on_nothing_but_its_arguments() -> None:
    features = np.random.default_rng(10).normal(size=(30, 5))
    first, second = (
        d_optimal_subsets(features, subset_size=4, gap_tolerance=0.05, rng=np.random.default_rng(3)) for _ in range(2)
    )
    assert np.array_equal(first.subsets, second.subsets)
    assert np.array_equal(first.weights, second.weights)
    assert (np.diff(first.weights) <= 0.0).all()
    assert (np.diff(first.subsets, axis=1) > 0).all()


# -- watching


def test_a_watch_sees_the_gap_fall_and_can_end_the_climb() -> None:
    matrices = ranking_matrices(dope_features(np.random.default_rng(11), 300))
    seen: list[Progress] = []

    def watch(progress: Progress) -> bool:
        seen.append(progress)
        return progress.gap < 1.0

    stopped = d_optimal_lists(matrices, gap_tolerance=1e-6, watch=watch)
    check_certificate(matrices, stopped)
    assert 1e-6 < stopped.gap < 1.0
    assert all(later.gap <= earlier.gap for earlier, later in pairwise(seen))
    assert all(later.steps >= earlier.steps for earlier, later in pairwise(seen))
    assert stopped.steps < d_optimal_lists(matrices, gap_tolerance=1e-6, watch=lambda _: False).steps
    assert (stopped.log_det, stopped.gap) == (seen[-1].log_det, seen[-1].gap)


def test_the_best_design_so_far_is_kept_when_the_next_has_a_larger_gap() -> None:
    matrices, seen = rating_matrices(grid(2001, 6)), list[float]()

    def watch(progress: Progress) -> bool:
        seen.append(progress.gap)
        return len(seen) == 150

    stopped = d_optimal_lists(matrices, gap_tolerance=1e-12, watch=watch)
    assert all(later <= earlier for earlier, later in pairwise(seen))
    assert stopped.gap <= seen[-1]
    check_certificate(matrices, stopped)


def test_a_climb_that_is_stopped_at_once_still_gives_a_design() -> None:
    matrices = ranking_matrices(dope_features(np.random.default_rng(12), 200))
    check_certificate(matrices, d_optimal_lists(matrices, gap_tolerance=1e-6, watch=lambda _: True))


def test_steps_can_be_limited() -> None:
    features = np.random.default_rng(13).normal(size=(40, 20))
    short, long = (
        d_optimal_subsets(features, subset_size=3, gap_tolerance=1e-3, rng=np.random.default_rng(0), max_steps=most)
        for most in (1, 1000)
    )
    assert short.steps < long.steps
    assert long.gap <= 1e-3 < short.gap
    assert short.log_det + short.gap >= long.log_det


# -- questions


def test_draws_follow_the_weights() -> None:
    design = ListDesign(np.array([0.5, 0.0, 0.3, 0.2]), 0.0, 0.0, 1)
    drawn = np.bincount(design.draw(40_000, np.random.default_rng(0)), minlength=4) / 40_000
    assert drawn == pytest.approx(design.weights, abs=0.01)
    assert drawn[1] == 0.0
    subsets = SubsetDesign(np.array([[0, 1], [1, 2]]), np.array([0.75, 0.25]), 0.0, 0.0, 1)
    assert np.array_equal(np.bincount(subsets.allocate(8)), [0, 0, 1, 0, 0, 0, 1])
    assert subsets.draw(8, np.random.default_rng(0)).max() <= 1


def test_fewer_questions_than_the_support_go_to_the_largest_weights() -> None:
    design = ListDesign(np.array([0.1, 0.4, 0.0, 0.2, 0.3]), 0.0, 0.0, 1)
    assert design.allocate(2).tolist() == [0, 1, 0, 0, 1]
    assert design.allocate(0).tolist() == [0, 0, 0, 0, 0]
    with pytest.raises(InvalidArgumentError, match=r"^n: "):
        design.allocate(-1)


# -- what is refused

GOOD = np.random.default_rng(14).normal(size=(8, 3, 2))
ITEMS = np.random.default_rng(15).normal(size=(8, 3))


def with_nan(array: Floats) -> Floats:
    broken = array.copy()
    broken.flat[4] = np.nan
    return broken


@pytest.mark.parametrize(
    ("matrices", "field", "problem"),
    [
        (GOOD[0], "matrices", "expected shape"),
        (GOOD[:0], "matrices", "expected shape"),
        (with_nan(GOOD), "matrices[0][2][0]", "finite"),
        (np.full((2, 3, 4), np.inf), "matrices[0][0][0]", "finite"),
        ([["a"]], "matrices", "numbers"),
        (GOOD * np.array([1.0, 0.0, 1.0])[:, None], "matrices", "span 2 of 3"),
        (np.repeat(GOOD[:, :1], 3, axis=1), "matrices", "span 1 of 3"),
        (np.zeros((4, 3, 2)), "matrices", "span 0 of 3"),
    ],
)
def test_lists_that_make_no_design_are_refused(matrices: Floats, field: str, problem: str) -> None:
    with pytest.raises(InvalidArgumentError, match=problem) as caught:
        d_optimal_lists(matrices, gap_tolerance=0.1)
    assert caught.value.field == field


@pytest.mark.parametrize("tolerance", [0.0, -1.0, math.nan, math.inf])
def test_a_tolerance_must_be_positive(tolerance: float) -> None:
    for make in (
        lambda: d_optimal_lists(GOOD, gap_tolerance=tolerance),
        lambda: d_optimal_subsets(ITEMS, subset_size=2, gap_tolerance=tolerance, rng=np.random.default_rng(0)),
    ):
        with pytest.raises(InvalidArgumentError) as caught:
            make()
        assert caught.value.field == "gap_tolerance"


@pytest.mark.parametrize(
    ("features", "changes", "field", "problem"),
    [
        (ITEMS[:, 0], {}, "features", "expected shape"),
        (with_nan(ITEMS), {}, "features[1][1]", "finite"),
        (ITEMS, {"subset_size": 1}, "subset_size", "expected 2 to 8"),
        (ITEMS, {"subset_size": 9}, "subset_size", "expected 2 to 8"),
        (ITEMS, {"subset_size": 0, "feedback": Feedback.RATING}, "subset_size", "expected 1 to 8"),
        (ITEMS, {"groups": [0, 0, 0, 1, 1, 1, 2, 2], "subset_size": 4}, "subset_size", "expected 2 to 3"),
        (ITEMS, {"groups": [0, 1]}, "groups", "shape"),
        (ITEMS, {"groups": [0.5] * 8}, "groups", "integers"),
        (ITEMS, {"max_steps": 0}, "max_steps", "at least 1"),
        (ITEMS[:3], {}, "features", "span 2 of 3 .* coordinates of their span"),
        (np.column_stack([ITEMS, np.ones(8)]), {}, "features", "span 3 of 4"),
        (ITEMS, {"groups": [0, 0, 1, 1, 2, 3, 4, 5]}, "features", "span 2 of 3"),
        (np.zeros((8, 3)), {"feedback": Feedback.RATING}, "features", "they span 0 of 3"),
    ],
)
def test_items_that_make_no_design_are_refused(
    features: Floats, changes: dict[str, object], field: str, problem: str
) -> None:
    arguments: dict[str, object] = {"subset_size": 2, "gap_tolerance": 0.1, "rng": np.random.default_rng(0)}
    with pytest.raises(InvalidArgumentError, match=problem) as caught:
        d_optimal_subsets(features, **(arguments | changes))  # type: ignore[arg-type]
    assert caught.value.field == field


@pytest.mark.parametrize("features", [np.zeros((3, 4)), np.full((2, 3, 4), np.nan), [[["x"]]]])
def test_features_of_lists_are_checked(features: Floats) -> None:
    for make in (rating_matrices, ranking_matrices):
        with pytest.raises(InvalidArgumentError, match="features"):
            make(features)


def test_a_list_to_be_ranked_has_two_items() -> None:
    with pytest.raises(InvalidArgumentError, match="at least 2 items"):
        ranking_matrices(np.ones((3, 1, 4)))


def test_a_climb_that_rounding_ends_gives_the_best_design_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    whole, reported = Information.of, list[Progress]()

    def of(rows: Floats, weights: Floats, *, prior: Floats) -> Information:
        if len(reported) > 2:
            raise np.linalg.LinAlgError("Matrix is not positive definite")
        return whole(rows, weights, prior=prior)

    def watch(progress: Progress) -> bool:
        reported.append(progress)
        return False

    monkeypatch.setattr(Information, "of", of)
    rng = np.random.default_rng(3)
    design = d_optimal_subsets(rng.normal(size=(40, 6)), subset_size=4, gap_tolerance=1e-9, rng=rng, watch=watch)
    assert design.weights.sum() == pytest.approx(1.0)
    assert design.gap == min(one.gap for one in reported) > 1e-9
