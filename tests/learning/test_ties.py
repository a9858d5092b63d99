"""Choices among equals do not hang on the last digits."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.learning.dense import WCK

from topk_bandit.learning._ties import TIE, leading
from topk_bandit.learning.observed_rows import Observations, ObservedRows, compact, fold_by_ranking, project
from topk_bandit.learning.rankings import random_rankings

if TYPE_CHECKING:
    from topk_bandit.learning.kendall import KendallKernel

ROUNDING = 1e-13


def test_leading_factors_fall_and_stay_close_to_one() -> None:
    factors = leading(64)
    assert factors[0] == 1.0
    assert (np.diff(factors) < -0.9 * TIE).all()
    assert (factors > 0.999).all()


def mirrored(seed: int, *, context: str) -> tuple[KendallKernel, ObservedRows]:
    """Return rows of which many are equally good to fold or to forget: disjoint slates, few contexts of equal norm."""
    rng = np.random.default_rng(seed)
    n_items, count = (40, 60) if context == "one-hot" else (5, 90)
    contexts = np.eye(4)[rng.integers(4, size=count)]
    if context == "one-hot and one":
        contexts[:, 0] = 1.0
    rankings = random_rankings(np.arange(n_items), slate_size=2, count=count, rng=rng)
    rewards = (rng.random(count) < 0.5).astype(float)
    return WCK.make(n_items, 2), ObservedRows.of(Observations(contexts, rankings, rewards))


def rounded(observed_rows: ObservedRows, rng: np.random.Generator) -> ObservedRows:
    """Return the rows as another processor might have them."""

    def other(array: np.ndarray) -> np.ndarray:
        return array * (1.0 + ROUNDING * rng.normal(size=array.shape))

    return replace(observed_rows, contexts=other(observed_rows.contexts), targets=other(observed_rows.targets))


def choices_stay(seed: int, context: str) -> bool:
    """Return whether the same rows are folded and taken for a basis, however numbers are rounded."""
    kernel, observed_rows = mirrored(seed, context=context)
    rng = np.random.default_rng([seed, 1])

    def through(rows: ObservedRows) -> tuple[ObservedRows, ObservedRows, ObservedRows]:
        by_ranking, fewest = fold_by_ranking(rows), compact(kernel, rows)
        return by_ranking, fewest, project(kernel, fewest, most_rows=20, noise_variance=0.3)

    exact = through(observed_rows)
    return all(
        np.array_equal(one.rankings, other.rankings)
        and np.allclose(one.contexts, other.contexts, rtol=0, atol=1e-9)
        and np.allclose(one.targets, other.targets, rtol=0, atol=1e-9)
        for _ in range(4)
        for one, other in zip(exact, through(rounded(observed_rows, rng)), strict=True)
    )


@pytest.mark.parametrize("context", ["one-hot", "one-hot and one"])
def test_the_same_rows_are_folded_and_taken_however_numbers_are_rounded(context: str) -> None:
    assert all(choices_stay(seed, context) for seed in range(6))


@pytest.mark.parametrize("context", ["one-hot", "one-hot and one"])
def test_without_the_rule_for_ties_choices_hang_on_rounding(context: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test above can fail."""
    monkeypatch.setattr("topk_bandit.learning.observed_rows.leading", np.ones)
    assert not all(choices_stay(seed, context) for seed in range(6))
