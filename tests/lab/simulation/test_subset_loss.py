from __future__ import annotations

import numpy as np
import pytest

from topk_bandit.lab.simulation import subset_loss
from topk_bandit.lab.simulation.subset_loss import METHODS, Items, clumped_answers, designs, losses_and_gains


def test_one_question_s_answers_have_the_rank_of_their_embeddings() -> None:
    items = clumped_answers(np.random.default_rng(0))
    assert items.features.shape == (100, 100)
    assert np.linalg.matrix_rank(items.features) == 10
    assert items.coordinates.shape == (100, 10)
    np.testing.assert_allclose(np.linalg.norm(items.features, axis=1), 1.0)
    biggest = np.linalg.norm(items.features[:, None] - items.features, axis=2)
    assert (biggest < 0.5).sum(axis=1).max() > 20


def test_the_prior_of_coordinates_is_that_of_features() -> None:
    rng = np.random.default_rng(1)
    items = Items.of(rng.normal(size=(12, 5)), [np.arange(6), np.arange(6, 12)])
    assert items.labels.tolist() == [0] * 6 + [1] * 6
    z, y = items.features[2] - items.features[4], items.coordinates[2] - items.coordinates[4]
    assert items.prior_variance * (y @ y) == pytest.approx(z @ z)


def test_known_weights_set_the_prior_s_width() -> None:
    rng = np.random.default_rng(2)
    features, theta = rng.normal(size=(9, 3)), np.array([3.0, -1.0, 0.5])
    items = Items.of(features, [np.arange(9)], theta=theta)
    centred = features @ theta - (features @ theta).mean()
    weights = np.linalg.lstsq(items.coordinates, centred, rcond=None)[0]
    np.testing.assert_allclose(items.coordinates @ weights, centred, atol=1e-9)
    assert items.prior_variance == pytest.approx(np.mean(weights**2))


def test_groups_of_one_size_are_one_block() -> None:
    items = Items.of(np.random.default_rng(0).normal(size=(8, 2)), [np.arange(3), np.arange(3, 5), np.arange(5, 8)])
    assert [block.tolist() for block in items.blocks] == [[[3, 4]], [[0, 1, 2], [5, 6, 7]]]


def test_designs_stay_within_groups_and_medoids_are_as_many_as_ours() -> None:
    rng = np.random.default_rng(3)
    groups = [np.arange(6), np.arange(6, 12)]
    items = Items.of(rng.normal(size=(12, 3)), groups)
    found = designs(items, subset_size=3, rng=rng)
    assert set(found) == set(METHODS) - {"uniform"}
    for design in found.values():
        assert design.weights.sum() == pytest.approx(1.0)
        assert all(len({int(items.labels[row]) for row in one}) == 1 for one in design.lists)
        assert all(len(set(one)) == 3 for one in design.lists.tolist())
    assert len(found["m-medoids"].lists) == np.count_nonzero(found["ours"].weights)


def test_a_run_repeats_and_questions_teach() -> None:
    rng = np.random.default_rng(4)
    items = clumped_answers(rng, n_items=15, side=3, n_clumps=4)
    designed = {2: designs(items, subset_size=2, rng=rng)}

    def run(number: int) -> np.ndarray:
        return losses_and_gains(number, seed=6, items=items, designed=designed, budgets=(5, 2000))

    first = run(0)
    assert first.shape == (2, len(METHODS), 2)
    assert first.tolist() == run(0).tolist()
    losses, gains = first
    taught = [number for number, name in enumerate(METHODS) if name != "DBSCAN"]
    assert losses[taught, 1].max() < 0.12
    assert gains[taught, 1].min() > 0.95
    assert losses[taught, 0].mean() > 2.0 * losses[taught, 1].mean()
    assert ((first >= 0.0) & (first <= 1.0)).all()


def test_known_weights_are_the_same_in_every_run(monkeypatch: pytest.MonkeyPatch) -> None:
    items = Items.of(np.random.default_rng(0).normal(size=(6, 2)), [np.arange(6)], theta=np.array([40.0, -90.0]))
    designed = {3: designs(items, subset_size=3, rng=np.random.default_rng(0))}
    seen: list[list[float]] = []
    rankings = subset_loss.sampling.draw_rankings

    def noted(utilities: np.ndarray, shown: np.ndarray, *, rng: np.random.Generator) -> object:
        seen.append(utilities.tolist())
        return rankings(utilities, shown, rng=rng)

    monkeypatch.setattr(subset_loss.sampling, "draw_rankings", noted)
    for number in range(2):
        losses_and_gains(number, seed=0, items=items, designed=designed, budgets=(3,))
    np.testing.assert_allclose(seen, np.tile(items.features @ [40.0, -90.0], (2 * len(METHODS), 1)))
