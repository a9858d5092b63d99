"""What simulated fleets do beyond theory's reach: owners that move, workers that die, models that rest."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from topk_bandit.lab.fleet.costs import MEASURED
from topk_bandit.lab.fleet.ownership import readers, rendezvous_order
from topk_bandit.lab.fleet.scenario import Death, Fleet, Serving, Traffic
from topk_bandit.lab.fleet.simulation import popularity, simulate

EASY = Traffic(pairs=60.0, bandits=30, seconds=30.0, settling=5.0)


def few(**more: object) -> Fleet:
    return Fleet(**{"costs": MEASURED, "workers": 4, "shards": 2, **more})  # type: ignore[arg-type]


def test_a_worker_that_leaves_moves_its_own_bandits_alone() -> None:
    order = rendezvous_order(3000, 10, depth=10)
    assert (np.sort(order, axis=1) == np.arange(10)).all()
    without = np.array([[worker for worker in row if worker != 3] for row in order])
    moved = order[:, 0] != without[:, 0]
    assert (order[moved, 0] == 3).all()
    for shares in (np.bincount(order[:, 0]), np.bincount(without[moved, 0], minlength=10)[np.arange(10) != 3]):
        mean = shares.sum() / len(shares)
        assert (np.abs(shares - mean) < 4.5 * np.sqrt(mean)).all()


def test_fewer_owners_are_the_first_of_more() -> None:
    np.testing.assert_array_equal(rendezvous_order(50, 6, depth=2), rendezvous_order(50, 6, depth=6)[:, :2])


def test_a_hot_bandit_has_as_many_readers_as_it_needs_and_there_are() -> None:
    rates = np.array([0.1, 30.0, 30.1, 95.0, 1e6])
    assert readers(rates, most_pairs=30.0, workers=8).tolist() == [1, 1, 2, 4, 8]


def test_bandits_are_asked_for_by_zipf_s_law() -> None:
    shares = popularity(Traffic(pairs=1.0, bandits=4, zipf=1.0))
    np.testing.assert_allclose(shares, np.array([12, 6, 4, 3]) / 25)
    results = simulate(few(), replace(EASY, pairs=300.0, zipf=1.0), seed=0)
    asked = np.bincount(results.state.calls["bandit"], minlength=30)
    expected = popularity(replace(EASY, zipf=1.0)) * asked.sum()
    assert ((asked - expected) ** 2 / expected).sum() < 59.7  # chi-square, 29 degrees of freedom, 0.999: 58.3


@pytest.mark.parametrize("serving", Serving)
def test_a_seed_says_all(serving: Serving) -> None:
    first, again, other = (simulate(few(serving=serving), EASY, seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first.state.calls, again.state.calls)
    assert first.state.calls.shape != other.state.calls.shape


@pytest.mark.parametrize("serving", Serving)
def test_every_call_is_answered_and_every_slate_rewarded_and_folded(serving: Serving) -> None:
    results = simulate(few(serving=serving), EASY, seed=3)
    calls, bandits = results.state.calls, results.state.bandits
    assert results.answered == 1.0
    assert (calls["rewarded_at"] > calls["answered_at"] + EASY.reward_seconds).all()
    assert bandits["shown"].sum() == len(calls)
    assert results.behind == 0
    followers = (results.state.resident >= 0).sum(axis=1)
    asked = np.unique(calls["bandit"])
    assert (followers[asked] == (4 if serving is Serving.EVERYONE else 1)).all()


def test_models_leave_when_there_is_no_room() -> None:
    bounded = few(workers=1, worker_bytes=3.3e7)
    results = simulate(bounded, replace(EASY, pairs=20.0), seed=0)
    assert results.models_bytes == bounded.models_of_a_worker * bounded.model_bytes == 3.3e7
    assert results.computed["load"] > 0.0
    roomy = simulate(few(workers=1), replace(EASY, pairs=20.0), seed=0)
    assert roomy.computed["load"] < 0.1 * results.computed["load"]
    assert roomy.percentile(50) < results.percentile(50)


def test_models_rest_that_nobody_asks_for() -> None:
    rare = Traffic(pairs=0.5, bandits=200, zipf=0.0, seconds=400.0, settling=10.0)
    rested, kept = (simulate(few(workers=1, idle=idle), rare, seed=0) for idle in (20.0, 1e4))
    held = [int(results.state.workers["models"][0]) for results in (rested, kept)]
    assert held[0] < 40
    assert held[1] == 200


@pytest.mark.parametrize("serving", Serving)
def test_a_worker_that_dies_costs_its_calls_until_that_is_known(serving: Serving) -> None:
    died_at, noticed, replaced = 20.0, 2.0, 10.0
    many = few(serving=serving, noticed=noticed, replaced=replaced)
    asked = Traffic(pairs=80.0, bandits=400, zipf=0.0, seconds=60.0, settling=5.0)
    results = simulate(many, asked, seed=0, deaths=[Death(died_at, 2)])
    calls = results.state.calls
    failed = calls[calls["status"] == 3]
    assert failed["due"].min() > died_at - 1.0
    away = replaced if serving is Serving.APART else noticed
    assert failed["due"].max() == pytest.approx(died_at + away, abs=0.3)
    expected = asked.pairs * away / many.workers
    assert abs(len(failed) - expected) < 4.0 * np.sqrt(expected) + 10
    slates = calls["status"] == 1
    assert np.isfinite(calls["rewarded_at"][slates]).all()  # rewards come again until they are taken
    assert results.recovery_seconds(died_at) >= away - 1.0
    assert simulate(many, asked, seed=0).failed == 0.0


def test_more_calls_than_a_worker_takes_at_once_are_refused() -> None:
    flooded = simulate(few(workers=1), replace(EASY, pairs=300.0), seed=0)
    assert 0.3 < flooded.refused < 0.95
    assert flooded.percentile(99) < 2.0
    assert flooded.busiest > 0.98


def test_following_is_what_more_workers_cost() -> None:
    """All of four workers follow each bandit; one owner follows its own. Fewer events share a look in either."""
    everyone, owners = (simulate(few(serving=serving), EASY, seed=0) for serving in (Serving.EVERYONE, Serving.OWNERS))
    assert everyone.computed["follow"] == pytest.approx(4.0 * owners.computed["follow"], rel=0.1)
    assert everyone.computed["recommend"] == pytest.approx(owners.computed["recommend"], rel=0.01)
