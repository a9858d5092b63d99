"""What each feature adds to the mean of slates is what the mean of its numbers alone is, and shares are its squares."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.learning.believed import Utilities
from tests.learning.contents import attributes, content_kind
from tests.learning.dense import CK, WCK, WK
from tests.learning.shaped import kind_of
from tests.learning.test_item_parts import posterior_of as posterior_with_item_parts

from topk_bandit.domain.features import Boolean, Categorical, Feature, Numeric, Vector
from topk_bandit.learning.feature_shares import find_shares
from topk_bandit.learning.kendall import Shape
from topk_bandit.learning.mean_parts import split_mean
from topk_bandit.learning.posterior import Posterior
from topk_bandit.learning.rankings import random_rankings

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from tests.learning.dense import Kind

    from topk_bandit.domain.features import FeatureSchema

N_ITEMS, SLATE_SIZE, N_ROWS, NOISE = 9, 3, 60, 0.2
SCHEMA: FeatureSchema = (
    Feature("age", Numeric()),
    Feature("land", Categorical(("DE", "FR"))),
    Feature("new", Boolean()),
)
WIDTHS = (2, 4, 2)
CONTEXT_DIM = 9
"""That of the schema, and what all contexts share."""

ITEM_SCHEMA: FeatureSchema = (Feature("price", Numeric()), Feature("text", Vector(3)))
WITH_CONTENT = content_kind(Shape(1.0, 1.0, 0.25, 4.0), attributes(N_ITEMS, 4))
KINDS = [WCK, CK, WK, kind_of(Shape(0.5, 0.3, 4.0)), WITH_CONTENT]


def draw(rng: np.random.Generator, count: int) -> tuple[NDArray[np.float64], NDArray[np.int32]]:
    rankings = random_rankings(np.arange(N_ITEMS), slate_size=SLATE_SIZE, count=count, rng=rng)
    return rng.normal(size=(count, CONTEXT_DIM)), rankings


def posterior_of(kind: Kind, rng: np.random.Generator, *, believes: bool = False) -> Posterior:
    utilities = Utilities.draw(rng, n_items=N_ITEMS, context_dim=CONTEXT_DIM, of="contexts") if believes else None
    prior_mean = None if utilities is None else utilities.prior_mean(kind, SLATE_SIZE)
    contexts, rankings = draw(rng, N_ROWS)
    posterior = Posterior.prior(
        kind.make(N_ITEMS, SLATE_SIZE), context_dim=CONTEXT_DIM, noise_variance=NOISE, prior_mean=prior_mean
    ).observe(contexts, rankings, rng.normal(3.0, 2.0, size=N_ROWS))
    return posterior.show(*draw(rng, 4)).rescale(offset=2.5, amplitude=1.7, slope=0.8 if believes else 0.0)


def own_mean(posterior: Posterior, context: NDArray[np.float64], ranking: NDArray[np.int32]) -> float:
    """Return the mean of a slate's own part by what predicts it."""
    mean = (
        float(posterior.predict(context, ranking[None]).mean[0]) - posterior.offset - posterior.constant_mean(context)
    )
    if posterior.prior_mean is not None:
        mean -= posterior.slope * float(posterior.prior_mean.of_slates(context, ranking[None])[0])
    return mean


def check_parts(posterior: Posterior, contexts: NDArray[np.float64], rankings: NDArray[np.int32]) -> None:
    parts, of_content = posterior.parts_of_mean(contexts, rankings)
    for context, ranking, of_numbers, of_features in zip(contexts, rankings, parts, of_content, strict=True):
        alone = [own_mean(posterior, context * (np.arange(len(context)) == n), ranking) for n in range(len(context))]
        np.testing.assert_allclose(of_numbers, alone, atol=1e-9)
        assert abs(of_numbers.sum() - own_mean(posterior, context, ranking)) < 1e-9
        assert abs(of_features.sum() - split_mean(posterior, context, ranking).content.sum()) < 1e-9


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
@pytest.mark.parametrize("believes", [False, True])
def test_parts_of_a_mean_are_the_means_of_single_numbers(kind: Kind, believes: bool) -> None:  # noqa: FBT001
    rng = np.random.default_rng(2)
    check_parts(posterior_of(kind, rng, believes=believes and kind is not WK), *draw(rng, 12))


@pytest.mark.parametrize("shape", [Shape(1.0, 1.0, 0.0), Shape(0.5, 0.3, 4.0)])
def test_parts_have_what_is_known_of_items_beside_the_rows(shape: Shape) -> None:
    posterior, _ = posterior_with_item_parts(shape, pending=2)
    rows = posterior.observations
    check_parts(posterior, rows.contexts, rows.rankings)


@pytest.mark.parametrize("kind", [WCK, WITH_CONTENT], ids=lambda kind: kind.name)
def test_shares_are_those_of_dense_linear_algebra(kind: Kind) -> None:
    posterior = posterior_of(kind, np.random.default_rng(5))
    contexts, rankings, rewards = posterior.observations
    kernel = posterior.kernel
    own = kernel.gram(rankings, rankings) - kernel.constant
    covariance = (own + kernel.constant) * (contexts @ contexts.T)
    weights = np.linalg.solve(covariance + NOISE * np.eye(N_ROWS), rewards - posterior.offset)

    def squares(means: list[NDArray[np.float64]]) -> NDArray[np.float64]:
        found = np.array([float(mean @ mean) for mean in means])
        return found / found.sum()

    starts = np.cumsum([0, *WIDTHS, 1])
    blocks = [contexts[:, start:end] for start, end in pairwise(starts)]
    shares = find_shares(posterior, SCHEMA, ITEM_SCHEMA)
    expected = squares([((block @ block.T) * own) @ weights for block in blocks])
    np.testing.assert_allclose(shares.of_contexts, expected[:-1], atol=1e-6)
    if kernel.counted_content is None:
        assert shares.of_items == (0.0, 0.0)
        return
    phi, alike = kernel.counted_content.of_slates(rankings), contexts @ contexts.T
    of_items = [(alike * (part @ part.T)) @ weights for part in (phi[:, :1], phi[:, 1:])]
    expected = squares([*of_items, (alike * (own - phi @ phi.T)) @ weights])
    np.testing.assert_allclose(shares.of_items, expected[:-1], atol=1e-6)


def test_shares_are_zero_before_the_first_reward() -> None:
    empty = Posterior.prior(WCK.make(N_ITEMS, SLATE_SIZE), context_dim=CONTEXT_DIM, noise_variance=NOISE)
    assert find_shares(empty, SCHEMA, None) == ((0.0, 0.0, 0.0), ())
    assert find_shares(empty, None, None) == ((), ())


def test_what_decides_has_the_larger_share() -> None:
    rng = np.random.default_rng(8)
    contexts, rankings = draw(rng, 400)
    taste = rng.normal(size=N_ITEMS)
    taste -= taste.mean()
    rewards = contexts[:, 0] * taste[rankings].sum(axis=1) + 0.1 * rng.normal(size=400)
    posterior = Posterior.prior(WCK.make(N_ITEMS, SLATE_SIZE), context_dim=CONTEXT_DIM, noise_variance=0.05)
    age, land, new = find_shares(posterior.observe(contexts, rankings, rewards), SCHEMA, None).of_contexts
    assert age > 0.6
    assert max(land, new) < 0.2
