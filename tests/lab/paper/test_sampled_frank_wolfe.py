"""DopeWolfe as its paper writes it, against dense inverses, a general optimiser and the exact design."""

from __future__ import annotations

import copy
import itertools

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from tests.preferences.plain_designs import scatter_matrix

from topk_bandit.lab.paper import sampled_frank_wolfe
from topk_bandit.lab.paper.sampled_frank_wolfe import GAMMA, SampledFrankWolfe, random_subsets
from topk_bandit.preferences.designs.optimal import d_optimal_subsets


def information(features: np.ndarray, weights: dict[tuple[int, ...], float]) -> np.ndarray:
    return sum(p * scatter_matrix(features, np.array(one)) for one, p in weights.items())


def gradient(features: np.ndarray, subset: tuple[int, ...], inverse: np.ndarray) -> float:
    differences = [features[j] - features[k] for j, k in itertools.combinations(subset, 2)]
    return sum(float(d @ inverse @ d) for d in differences)


def best_share(before: np.ndarray, scatter: np.ndarray) -> float:
    return minimize_scalar(
        lambda share: -np.linalg.slogdet((1.0 - share) * before + share * scatter)[1],
        bounds=(0.0, 1.0 - 1e-9),
        method="bounded",
        options={"xatol": 1e-12},
    ).x


def test_dopewolfe_as_written_keeps_its_inverse_and_climbs_to_the_optimum() -> None:
    features = np.random.default_rng(0).normal(size=(9, 3))
    run = SampledFrankWolfe(features, 4, np.random.default_rng(1))
    log_dets = []
    for _ in range(150):
        run.iterate()
        log_dets.append(np.linalg.slogdet(information(features, run.weights) + GAMMA * np.eye(3))[1])
    assert sum(run.weights.values()) == pytest.approx(1.0)
    # The ridge shrinks with the weights that it began beside, so that little of it is left.
    assert run.inverse == pytest.approx(np.linalg.inv(information(features, run.weights)), rel=1e-4, abs=1e-6)
    assert (np.diff(log_dets) >= -1e-5).all()
    best = d_optimal_subsets(features, subset_size=4, gap_tolerance=1e-3, rng=np.random.default_rng(0))
    assert best.log_det - 0.05 <= log_dets[-1] <= best.log_det + best.gap + 3 * GAMMA * np.trace(run.inverse)


@pytest.mark.parametrize("d", [6, 30, 50])
def test_after_a_thousand_steps_the_inverse_and_the_gap_are_those_of_dense_algebra(
    monkeypatch: pytest.MonkeyPatch, d: int
) -> None:
    monkeypatch.setattr(sampled_frank_wolfe, "MOST_SAMPLED", 2000)
    features = np.random.default_rng(d).normal(size=(100, d))
    run = SampledFrankWolfe(features, 3, np.random.default_rng(1))
    for _ in range(1000):
        run.iterate()
    dense = information(features, run.weights)
    assert np.abs(run.inverse @ dense - np.eye(d)).max() <= 1e-6
    assert gap(features, run.inverse) == pytest.approx(gap(features, np.linalg.inv(dense)), abs=1e-6)


def gap(features: np.ndarray, inverse: np.ndarray) -> float:
    """Return the largest gradient of all triples, less d."""
    gram = features @ inverse @ features.T
    pairs = np.diag(gram)[:, None] + np.diag(gram) - gram - gram.T
    return float((pairs[:, :, None] + pairs[:, None] + pairs[None]).max()) - len(inverse)


def test_a_step_moves_to_the_best_subset_that_was_drawn_by_the_best_share() -> None:
    """By forms written out pair by pair, and Brent's method on a dense determinant."""
    features = np.random.default_rng(5).normal(size=(6, 3))
    run = SampledFrankWolfe(features, 3, np.random.default_rng(6))
    for _ in range(6):
        run.iterate()
        before, inverse = dict(run.weights), run.inverse.copy()
        drawn = random_subsets(copy.deepcopy(run.rng), 6, 3, run.sampled)
        run.iterate()
        chosen = max(map(tuple, np.sort(drawn).tolist()), key=lambda one: gradient(features, one, inverse))
        share = best_share(np.linalg.inv(inverse), scatter_matrix(features, np.array(chosen)))
        expected = {one: (1.0 - share) * weight for one, weight in before.items()}
        expected[chosen] = expected.get(chosen, 0.0) + share
        assert run.weights == pytest.approx(expected, abs=1e-6)


def test_random_subsets_are_uniform_and_repeat_no_item() -> None:
    drawn = np.sort(random_subsets(np.random.default_rng(2), 5, 3, 20_000), axis=1)
    assert (np.diff(drawn, axis=1) > 0).all()
    _, counts = np.unique(drawn, axis=0, return_counts=True)
    assert counts / 20_000 == pytest.approx(np.full(10, 0.1), abs=0.01)
