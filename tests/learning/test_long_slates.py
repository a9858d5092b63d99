"""Slates that are too long to be searched by their pairs: where climbs end, and how near that is to the best."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.learning.contents import attributes, content_kind
from tests.learning.dense import CK, WCK, WK, Kind
from tests.learning.ruled import Shop, allowed, draw_rules
from tests.learning.test_search import CONTEXT, bounds, neighbours, random_posterior, search

from topk_bandit.learning.acquisition import UpperConfidenceBound
from topk_bandit.learning.compiled.long_slates import climb_by_items
from topk_bandit.learning.item_draws import ItemDraws
from topk_bandit.learning.kendall import Shape
from topk_bandit.learning.rankings import random_rankings
from topk_bandit.learning.search import (
    LONG_SEEN,
    LONG_STARTS,
    LONG_STARTS_OF_PAIRS,
    LONGEST_FINE,
    OTHERS_TO_SETTLE_BY,
    SETTLED_ITEMS,
    best_seen,
    local_search,
    variance_beside_items,
)
from topk_bandit.learning.slate_rules import compile_rules, find_slate, keep_rules

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from topk_bandit.learning.context_posterior import ContextPosterior
    from topk_bandit.learning.posterior import Posterior

N_ITEMS, SIZE, BETA = 20, LONGEST_FINE + 1, 2.0
ITEMS = np.arange(N_ITEMS, dtype=np.int32)


def climb(
    at: ContextPosterior, covariance: NDArray[np.float64], starts: NDArray[np.int32], uniforms: NDArray[np.float64]
) -> tuple[NDArray[np.int32], int]:
    """Return the slates that are climbed to by items, and how many are scored."""
    of_items, spread = (covariance / at.amplitude, variance_beside_items(at)), math.sqrt(BETA * at.amplitude)
    reached, tried = climb_by_items(
        at.contraction, None, None, of_items, starts.astype(np.int64), uniforms, spread, *at.position_weights
    )
    return reached.astype(np.int32), tried


def values_by_items(
    at: ContextPosterior, covariance: NDArray[np.float64], rankings: NDArray[np.int32]
) -> NDArray[np.float64]:
    """Return mean + sqrt(beta) sd of each ranking, with the variance of its items' parts, and what all slates have."""
    weights = np.zeros((len(rankings), N_ITEMS))
    np.put_along_axis(
        weights, rankings.astype(np.intp), at.kernel.item_weight[None].repeat(len(rankings), axis=0), axis=1
    )
    variance = np.einsum("ai,ij,aj->a", weights, covariance, weights) + at.amplitude * variance_beside_items(at)
    return at.moments(rankings).mean + math.sqrt(BETA) * np.sqrt(np.maximum(variance, 0.0))


@pytest.mark.parametrize("kind", [WCK, CK, WK], ids=lambda kind: kind.name)
def test_no_replacement_and_no_exchange_gains_where_a_climb_ends(kind: Kind) -> None:
    for seed in range(6):
        rng = np.random.default_rng(seed)
        posterior = random_posterior(seed, kind=kind, n_items=N_ITEMS, slate_size=SIZE)
        at = posterior.at(CONTEXT, ITEMS)
        covariance, starts = ItemDraws(at).covariance, random_rankings(ITEMS, slate_size=SIZE, count=2, rng=rng)
        reached, _ = climb(at, covariance, starts, rng.random((2, SIZE)))
        begun, ended = (values_by_items(at, covariance, slates) for slates in (starts, reached))
        assert (ended[:2] >= begun).all()
        for slate, value in zip(reached, ended.tolist(), strict=True):
            assert len(set(slate.tolist())) == SIZE
            around = values_by_items(at, covariance, neighbours(slate, N_ITEMS))
            assert around.max() <= value + 2e-6 * (1.0 + abs(value))


def climb_exactly(posterior: Posterior, slate: NDArray[np.int32]) -> float:
    """Return the bound of the slate that steepest ascent over all neighbours reaches."""
    value = float(bounds(posterior, slate[None], BETA)[0])
    while True:
        around = neighbours(slate, N_ITEMS)
        values = bounds(posterior, around, BETA)
        best = int(values.argmax())
        if values[best] <= value + 1e-9 * (1.0 + abs(value)):
            return value
        slate, value = around[best], float(values[best])


@pytest.mark.parametrize("kind", [WCK, CK, WK], ids=lambda kind: kind.name)
def test_what_is_found_gains_nearly_all_that_exact_climbs_gain(kind: Kind) -> None:
    shares = []
    for seed in range(8):
        posterior = random_posterior(seed, kind=kind, n_items=N_ITEMS, slate_size=SIZE)
        found = search(posterior, beta=BETA, seed=seed)
        some = random_rankings(ITEMS, slate_size=SIZE, count=200, rng=np.random.default_rng(seed))
        at_random = float(bounds(posterior, some, BETA).mean())
        most = max(climb_exactly(posterior, slate) for slate in (found.ranking, *some[:3]))
        shares.append((float(bounds(posterior, found.ranking[None], BETA)[0]) - at_random) / (most - at_random))
    assert min(shares) > 0.95
    assert float(np.mean(shares)) > 0.99


def test_slates_that_are_not_long_are_searched_by_their_pairs() -> None:
    for seed in range(6):
        posterior = random_posterior(seed, n_items=N_ITEMS, slate_size=LONGEST_FINE)
        found = search(posterior, beta=BETA, seed=seed).ranking
        value = float(bounds(posterior, found[None], BETA)[0])
        assert bounds(posterior, neighbours(found, N_ITEMS), BETA).max() <= value + 1e-5 * (1.0 + abs(value))


def scaled(seed: int, kind: Kind) -> Posterior:
    """Return a posterior whose rewards are in another unit than its kernel."""
    fitted = random_posterior(seed, kind=kind, n_items=N_ITEMS, slate_size=SIZE)
    return fitted.rescale(offset=fitted.offset, slope=fitted.slope, amplitude=9.0)


@pytest.mark.parametrize(("kind", "n_random"), [(WCK, LONG_STARTS), (WK, LONG_STARTS_OF_PAIRS)])
def test_the_best_that_is_reached_is_settled_and_all_that_is_looked_at_counted(kind: Kind, n_random: int) -> None:
    for seed in range(8):
        posterior = scaled(seed, kind)
        at = posterior.at(CONTEXT, ITEMS)
        covariance, starts = ItemDraws(at).covariance, best_seen(at)
        found = local_search(at, covariance, beta=BETA, starts=starts, rng=np.random.default_rng(1))
        uniforms = np.random.default_rng(1).random((n_random, SIZE))
        reached, climbed = climb(at, covariance, starts[:LONG_SEEN], uniforms)
        highest = float(bounds(posterior, reached, BETA).max())
        assert float(bounds(posterior, found.ranking[None], BETA)[0]) >= highest - 1e-5 * (1.0 + abs(highest))
        turn, settled = SIZE * (N_ITEMS - SIZE) + SIZE * (SIZE - 1) // 2, SETTLED_ITEMS // SIZE
        turns, rest = divmod(found.evaluations - climbed - len(reached) - settled, turn)
        assert turns >= settled
        assert rest == 0


@pytest.mark.parametrize(
    "kind",
    [WCK, CK, WK, content_kind(Shape(0.5, 1.0, 0.25, 1.0), attributes(N_ITEMS, 3))],
    ids=["wck", "ck", "wk", "features"],
)
def test_no_neighbour_gains_where_all_others_may_come_in(kind: Kind) -> None:
    assert N_ITEMS - SIZE <= OTHERS_TO_SETTLE_BY
    for seed in range(6):
        posterior = scaled(seed, kind)
        found = search(posterior, beta=BETA, seed=seed).ranking
        around = np.concatenate((found[None], neighbours(found, N_ITEMS)))
        values = UpperConfidenceBound(BETA)(posterior.predict(CONTEXT, around, with_constant=False))
        assert values.max() <= values[0] + 2e-5 * (1.0 + abs(values[0]))


def test_long_slates_keep_the_rules() -> None:
    searched = 0
    for seed in range(20):
        rng = np.random.default_rng([seed, SIZE])
        posterior, shop = random_posterior(seed, n_items=2 * N_ITEMS, slate_size=SIZE), Shop.draw(2 * N_ITEMS, rng)
        rules = draw_rules(shop, SIZE, rng)
        compiled = compile_rules(rules, shop.candidates, SIZE)
        anchor = None if compiled is None else find_slate(compiled.rules)
        if compiled is None or anchor is None:
            continue
        searched += 1
        at = posterior.at(CONTEXT, compiled.places.astype(np.int32))
        covariance, starts = ItemDraws(at).covariance, best_seen(at)
        found = local_search(at, covariance, compiled.rules, anchor, beta=BETA, starts=starts, rng=rng).ranking
        assert keep_rules(compiled.rules, found[None]).all()
        slate = compiled.places[found].astype(np.int32)
        assert all(allowed(rule, shop, slate[None]).all() for rule in rules)
        value = float(bounds(posterior, slate[None], BETA)[0])
        assert value >= float(bounds(posterior, compiled.places[anchor][None].astype(np.int32), BETA)[0]) - 1e-6
    assert searched >= 5
