"""What items and pairs add to a posterior mean: they add up to it, and are what the kernel's definition says."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.learning.believed import Utilities
from tests.learning.contents import attributes, content_kind
from tests.learning.dense import CK, WCK, WK, pair_features
from tests.learning.shaped import kind_of

from topk_bandit.learning.kendall import Shape
from topk_bandit.learning.limits import Limits
from topk_bandit.learning.mean_parts import split_mean
from topk_bandit.learning.policy import State
from topk_bandit.learning.posterior import Posterior
from topk_bandit.learning.rankings import random_rankings

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from tests.learning.dense import Kind

    from topk_bandit.learning.prior_mean import PriorMean

N_ITEMS, SLATE_SIZE, CONTEXT_DIM, N_ROWS = 9, 3, 2, 40
FEATURES = attributes(N_ITEMS, 4)
KINDS = [WCK, CK, WK, kind_of(Shape(0.5, 0.3, 4.0)), content_kind(Shape(1.0, 1.0, 0.25, 4.0), FEATURES)]


def posterior_of(kind: Kind, rng: np.random.Generator, prior_mean: PriorMean | None = None) -> Posterior:
    """Return a posterior of random rewards, with slates that wait, an offset, a slope and an amplitude."""
    rankings = random_rankings(np.arange(N_ITEMS), slate_size=SLATE_SIZE, count=N_ROWS + 5, rng=rng)
    contexts = rng.normal(size=(N_ROWS + 5, CONTEXT_DIM))
    empty = Posterior.prior(
        kind.make(N_ITEMS, SLATE_SIZE), context_dim=CONTEXT_DIM, noise_variance=0.2, prior_mean=prior_mean
    )
    learned = empty.observe(contexts[:N_ROWS], rankings[:N_ROWS], rng.normal(3.0, 2.0, size=N_ROWS))
    shown = learned.show(contexts[N_ROWS:], rankings[N_ROWS:])
    return shown.rescale(offset=2.5, amplitude=1.7, slope=0.0 if prior_mean is None else 0.8)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
@pytest.mark.parametrize("of", ["nothing", "items", "contexts"])
def test_parts_add_up_to_the_mean(kind: Kind, of: str) -> None:
    rng = np.random.default_rng(3)
    prior_mean = None
    if of != "nothing" and kind is not WK:
        utilities = Utilities.draw(rng, n_items=N_ITEMS, context_dim=CONTEXT_DIM, of=of)
        prior_mean = utilities.prior_mean(kind, SLATE_SIZE)
    posterior = posterior_of(kind, rng, prior_mean)
    rankings = random_rankings(np.arange(N_ITEMS), slate_size=SLATE_SIZE, count=50, rng=rng)
    for context in rng.normal(size=(4, CONTEXT_DIM)):
        parts = [split_mean(posterior, context, ranking) for ranking in rankings]
        means = posterior.predict(context, rankings).mean
        assert np.abs([part.total for part in parts] - means).max() < 1e-9
        assert any(part.prior.any() for part in parts) == (prior_mean is not None)
        assert any(part.content.any() for part in parts) == (kind is KINDS[-1])


@pytest.mark.parametrize("kind", [WCK, CK, WK], ids=lambda kind: kind.name)
def test_parts_are_what_the_pair_weights_of_the_mean_say(kind: Kind) -> None:
    rng = np.random.default_rng(4)
    posterior, context = posterior_of(kind, rng), rng.normal(size=CONTEXT_DIM)
    kernel, rows = posterior.kernel, posterior.observations
    features = pair_features(
        rows.rankings, n_items=N_ITEMS, rank_weight=kind.rank_weight, counts_unshown=kind.counts_unshown
    )
    weights = kernel.scale * posterior.mean_weights[:N_ROWS] * (rows.contexts @ context)
    z = np.zeros((N_ITEMS, N_ITEMS))
    for (i, j), weight in zip(itertools.combinations(range(N_ITEMS), 2), weights @ features, strict=True):
        z[i, j], z[j, i] = weight, -weight
    ranking = np.array([4, 0, 7], dtype=np.int32)
    parts = split_mean(posterior, context, ranking)
    assert np.allclose(parts.items, kernel.item_weight * z.sum(axis=1)[ranking], atol=1e-12)
    assert np.allclose(parts.pairs, kernel.pair_weight * z[np.ix_(ranking, ranking)], atol=1e-12)


def test_parts_of_rows_that_are_sums_of_others_add_up_too() -> None:
    rng, state = np.random.default_rng(5), State.initial(
        content_kind(Shape(), FEATURES).make(N_ITEMS, SLATE_SIZE), context_dim=CONTEXT_DIM, limits=Limits(rows=20)
    )  # fmt: skip
    for number in range(120):
        ranking: NDArray[np.int32] = random_rankings(np.arange(N_ITEMS), slate_size=SLATE_SIZE, count=1, rng=rng)[0]
        state = state.rewarded(f"{number}", rng.normal(size=CONTEXT_DIM), ranking, reward=float(rng.normal()))
    assert state.posterior.n_rows < 40
    context = state.encode(rng.normal(size=CONTEXT_DIM))
    for ranking in random_rankings(np.arange(N_ITEMS), slate_size=SLATE_SIZE, count=20, rng=rng):
        mean = state.posterior.predict(context, ranking[None]).mean[0]
        assert abs(split_mean(state.posterior, context, ranking).total - mean) < 1e-9
