from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from topk_bandit.lab.simulation import graded_answers
from topk_bandit.lab.simulation.graded_answers import (
    METHODS,
    Feedback,
    choose_lists,
    embedded_answers,
    losses_and_gains,
)

SMALL = (Feedback("graded", is_graded=True, lists=8), Feedback("ranked", is_graded=False, lists=12))


def test_features_have_full_rank_and_a_spectrum_that_falls() -> None:
    items = embedded_answers(np.random.default_rng(0))
    assert items.features.shape == (100, 78)
    assert items.rank == 78
    variances = items.features.var(axis=0)
    assert variances[:8].mean() > 5 * variances[-8:].mean()


@pytest.mark.parametrize("size", [2, 4])
def test_no_method_asks_about_a_list_twice(size: int) -> None:
    rng = np.random.default_rng(1)
    items = embedded_answers(rng, n_items=9, dimension=3)
    found = choose_lists(items, size=size, count=30, rng=rng)
    assert set(found) == set(METHODS[:2])
    for lists in found.values():
        assert len({frozenset(row) for row in lists.tolist()}) == len(lists) == 30
        assert all(len(set(row)) == size for row in lists.tolist())


def test_the_first_of_ours_leaves_the_smallest_mean_variance() -> None:
    """Of all lists, by the definition: the covariance after one answer, and each pair's variance by its length."""
    rng = np.random.default_rng(2)
    items = embedded_answers(rng, n_items=8, dimension=3)
    x, v = items.coordinates, items.prior_variance
    pairs = [(x[a] - x[b]) / np.linalg.norm(x[a] - x[b]) for a, b in combinations(range(8), 2)]

    def left(chosen: tuple[int, ...]) -> float:
        # The expected information at equal utilities, stage by stage of Plackett-Luce over all subsets that are left.
        information = np.eye(3) / v
        for remaining in range(2, len(chosen) + 1):
            subsets = list(combinations(chosen, remaining))
            for subset in subsets:
                rows = x[list(subset)] - x[list(subset)].mean(axis=0)
                information += rows.T @ rows / remaining / len(subsets)
        covariance = np.linalg.inv(information)
        return float(np.mean([z @ covariance @ z for z in pairs]))

    best = min(combinations(range(8), 3), key=left)
    assert set(choose_lists(items, size=3, count=1, rng=rng)["ours"][0].tolist()) == set(best)


def test_grades_are_shared_out_and_ties_are_no_pairs() -> None:
    utilities = np.arange(20.0)
    grades = graded_answers._grade(utilities)
    assert np.bincount(grades.astype(int)).tolist() == [12, 5, 3]
    lists = np.array([[0, 19, 1, 13], [2, 3, 4, 5]])
    answers = graded_answers._answer(grades, lists, is_graded=True)
    asked = {tuple(pair) for pair in answers.items.reshape(-1, 2).tolist()}
    assert asked == {(19, 13), (19, 0), (19, 1), (13, 0), (13, 1)}
    whole = graded_answers._answer(utilities, lists, is_graded=False)
    assert whole.items.reshape(2, 4).tolist() == [[19, 13, 1, 0], [5, 4, 3, 2]]


def test_a_run_repeats_and_longer_lists_teach_more() -> None:
    rng = np.random.default_rng(3)
    items = embedded_answers(rng, n_items=14, dimension=4)
    designed = {
        one.key: {size: choose_lists(items, size=size, count=one.lists, rng=rng) for size in (2, 6)} for one in SMALL
    }
    runs = [losses_and_gains(n, seed=0, items=items, designed=designed, feedbacks=SMALL) for n in (0, 0, *range(1, 9))]
    assert (runs[0] == runs[1]).all()
    mean = np.mean(runs[1:], axis=0)
    assert mean.shape == (4, 3, 2)
    losses, gains = mean[:2], mean[2:]
    assert (losses[..., 1] < losses[..., 0]).all()
    assert (losses[..., 0] < 0.45).all()
    assert (gains[..., 1] > 0.9).all()
