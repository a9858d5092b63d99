"""Draws of the items' parts, and the figures of regret, against dense algebra over the pair weights."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.stats import norm
from tests.learning.dense import CK, WCK, WK, DenseGp, Kind, fitted, sample
from tests.learning.shaped import kind_of

from topk_bandit.domain.features import Features
from topk_bandit.domain.rules import Apart, Count, Group, Pin, Rule
from topk_bandit.domain.slates import REGRET_CONFIDENCE
from topk_bandit.learning.item_draws import _BOUND_MARGIN, ItemDraws, _largest
from topk_bandit.learning.item_table import ItemTable
from topk_bandit.learning.kendall import Shape, adaptive_kendall
from topk_bandit.learning.posterior import Posterior
from topk_bandit.learning.rankings import all_rankings
from topk_bandit.learning.slate_rules import Candidates, RuledItems, SlateRules, compile_rules, keep_rules

N_ITEMS, SLATE_SIZE, CONTEXT_DIM, NOISE = 6, 3, 2, 0.3
CONTEXT = np.array([0.6, -0.7])
SLATES = all_rankings(np.arange(N_ITEMS), slate_size=SLATE_SIZE)
ITEMS = np.arange(N_ITEMS, dtype=np.int32)
each_kind = pytest.mark.parametrize("kind", [CK, WCK, kind_of(Shape(0.5, 0.3, 4.0))], ids=lambda kind: kind.name)


def draws_of(kind: Kind, *, seed: int = 0, count: int = 20, amplitude: float = 1.7) -> tuple[ItemDraws, DenseGp]:
    data = sample(
        kind, np.random.default_rng(seed), n_items=N_ITEMS, slate_size=SLATE_SIZE, context_dim=CONTEXT_DIM, count=count
    )
    posterior = fitted(kind, data, n_items=N_ITEMS, noise_variance=NOISE).rescale(offset=0.4, amplitude=amplitude)
    dense = DenseGp(kind, N_ITEMS, NOISE, *data.rows, offset=0.4, amplitude=amplitude)
    return ItemDraws(posterior.at(CONTEXT, ITEMS)), dense


def covariance_of_items(kind: Kind, dense: DenseGp) -> np.ndarray:
    """Return the posterior covariance of r_i = sum_j Z_ij, the Z being the weights of the pair features."""
    pairs = list(itertools.combinations(range(N_ITEMS), 2))
    sums = np.zeros((N_ITEMS, len(pairs)))
    for column, (i, j) in enumerate(pairs):
        sums[i, column], sums[j, column] = 1.0, -1.0
    # The package's features are those of Claim 3 times the root of the kernel's scale.
    sums = sums * np.sqrt(kind.make(N_ITEMS, SLATE_SIZE).scale)
    own = kind.features(dense.rankings, N_ITEMS)[:, : len(pairs)]
    prior = (CONTEXT @ CONTEXT) * sums @ sums.T
    cross = sums @ (own * (dense.contexts @ CONTEXT)[:, None]).T
    known = cross @ np.linalg.solve(dense.noisy(dense.rewarded), cross.T)
    return np.asarray(dense.amplitude * (prior - known))


@each_kind
@pytest.mark.parametrize("count", [0, 5, 40])
def test_the_covariance_is_that_of_the_sums_of_pair_weights(kind: Kind, count: int) -> None:
    draws, dense = draws_of(kind, count=count)
    np.testing.assert_allclose(draws.covariance, covariance_of_items(kind, dense), atol=2e-5)


@each_kind
def test_draws_have_that_covariance(kind: Kind) -> None:
    draws, _ = draws_of(kind)
    drawn = draws.draw(40_000, np.random.default_rng(1))
    assert drawn.shape == (40_000, N_ITEMS)
    scale = np.sqrt(np.diag(draws.covariance))
    spread = 5.0 * np.outer(scale, scale) / np.sqrt(40_000)
    assert (np.abs(np.cov(drawn.T) - draws.covariance) <= 2.0 * spread + 1e-3).all()
    assert (np.abs(drawn.mean(axis=0)) <= 5.0 * scale / np.sqrt(40_000)).all()


@each_kind
def test_a_shift_adds_u_of_the_draw_to_the_means_and_nothing_to_the_variances(kind: Kind) -> None:
    draws, _ = draws_of(kind)
    at, shifted = draws.shift(0.0, np.random.default_rng(2)), draws.shift(0.7, np.random.default_rng(2))
    added = 0.7 * draws.draw(1, np.random.default_rng(2))[0]
    u = kind.make(N_ITEMS, SLATE_SIZE).item_weight
    np.testing.assert_allclose(shifted.means(SLATES), at.means(SLATES) + added[SLATES] @ u, atol=1e-12)
    np.testing.assert_array_equal(shifted.moments(SLATES).variance, at.moments(SLATES).variance)


def joint_draws(dense: DenseGp) -> np.ndarray:
    """Return draws of the joint posterior of all slates, shape (4000, A)."""
    moments = dense.predict(CONTEXT, SLATES)
    features = dense.kind.features(SLATES, N_ITEMS)[:, :15], dense.kind.features(dense.rankings, N_ITEMS)[:, :15]
    across = (dense.contexts @ CONTEXT)[:, None] * (features[1] @ features[0].T)
    own = (CONTEXT @ CONTEXT) * features[0] @ features[0].T
    covariance = dense.amplitude * (own - across.T @ np.linalg.solve(dense.noisy(dense.rewarded), across))
    rng = np.random.default_rng(3)
    return np.asarray(rng.multivariate_normal(moments.mean, covariance, size=4000, method="eigh"))


@each_kind
def test_under_rules_the_figures_are_near_those_of_draws_of_the_allowed_slates(kind: Kind) -> None:
    features = [Features.of({"category": "soup" if n < 3 else "cake"}) for n in range(N_ITEMS)]
    rules: list[list[Rule]] = [
        [Apart(Group("category"))],
        [Count(Group("category", "soup"), most=1)],
        [Pin(("i4",), 0), Count(Group("category", "soup"), least=2)],
    ]
    for seed, some in enumerate(rules):
        draws, dense = draws_of(kind, seed=seed, count=30)
        made = compile_rules(some, Candidates(ItemTable.of([f"i{n}" for n in ITEMS], features)), SLATE_SIZE)
        assert made is not None
        inside = np.isin(SLATES, made.places).all(axis=1)
        kept = np.flatnonzero(inside)[keep_rules(made.rules, np.searchsorted(made.places, SLATES[inside]))]
        wide, anchor = over_all_items(made), SLATES[kept[0]].astype(np.int64)
        joint, means = joint_draws(dense)[:, kept], dense.predict(CONTEXT, SLATES[kept]).mean
        best = int(np.argmax(means))
        for place in (best, int(np.argmin(means))):
            truth = joint.max(axis=1) - joint[:, place]
            shown, best_slate = SLATES[kept[place]], SLATES[kept[best]]
            estimate, bound = np.mean(
                [
                    draws.regret_of(shown, best_slate, np.random.default_rng(n), rules=wide, anchor=anchor)
                    for n in range(40)
                ],
                axis=0,
            )
            # Six slates of nearly the same items differ by their pairs, which are drawn for each slate on its own.
            most = 3.2 if len(kept) == 6 else 1.7
            assert 0.9 * truth.mean() <= estimate <= most * truth.mean() + 0.02
            assert (truth <= bound).mean() >= REGRET_CONFIDENCE


def test_the_only_slate_that_rules_allow_has_no_regret() -> None:
    draws, _ = draws_of(WCK)
    pins: list[Rule] = [Pin((f"i{item}",), position) for position, item in enumerate((4, 0, 2))]
    made = compile_rules(pins, Candidates(ItemTable.of([f"i{n}" for n in ITEMS], [Features()] * N_ITEMS)), SLATE_SIZE)
    assert made is not None
    slate = np.array([4, 0, 2], dtype=np.int32)
    wide, rng = over_all_items(made), np.random.default_rng(0)
    assert draws.regret_of(slate, slate, rng, rules=wide, anchor=slate.astype(np.int64)) == (0.0, 0.0)
    assert draws.regret_of(slate, slate, rng).estimate > 0.0


def over_all_items(made: RuledItems) -> SlateRules:
    """Return rules over all items, of which those that are not left are admitted nowhere."""
    rules = made.rules
    admits = np.zeros((SLATE_SIZE, N_ITEMS), dtype=np.bool_)
    admits[:, made.places] = rules.admits
    groups = np.full((N_ITEMS, rules.groups.shape[1]), -1, dtype=np.int64)
    kinds = np.full((N_ITEMS, rules.kinds.shape[1]), -1, dtype=np.int64)
    groups[made.places], kinds[made.places] = rules.groups, rules.kinds
    return rules._replace(admits=admits, groups=groups, kinds=kinds)


@each_kind
def test_the_figures_are_near_those_of_draws_of_all_slates(kind: Kind) -> None:
    """Draws of the joint posterior of all slates tell the truth; pairs, which are much here, are counted about."""
    for seed in range(4):
        draws, dense = draws_of(kind, seed=seed, count=30)
        joint = joint_draws(dense)
        means = dense.predict(CONTEXT, SLATES).mean
        best = int(np.argmax(means))
        for place in (best, int(np.argmin(means))):
            truth = joint.max(axis=1) - joint[:, place]
            regrets = [draws.regret_of(SLATES[place], SLATES[best], np.random.default_rng(n)) for n in range(40)]
            estimate, bound = np.mean(regrets, axis=0)
            assert 0.9 * truth.mean() <= estimate <= 1.7 * truth.mean() + 0.02
            assert (truth <= bound).mean() >= REGRET_CONFIDENCE
            quantile = estimate + (bound - estimate) / _BOUND_MARGIN
            assert quantile <= 1.7 * np.quantile(truth, REGRET_CONFIDENCE) + 0.02


@each_kind
@pytest.mark.parametrize("count", [0, 5, 40])
def test_without_pending_rows_draws_and_figures_are_those_of_the_others(kind: Kind, count: int) -> None:
    rng = np.random.default_rng(5)
    data = sample(kind, rng, n_items=N_ITEMS, slate_size=SLATE_SIZE, context_dim=CONTEXT_DIM, count=count)
    posterior = fitted(kind, data, n_items=N_ITEMS, noise_variance=NOISE)
    shown = posterior.show(rng.normal(size=(4, CONTEXT_DIM)), SLATES[rng.choice(len(SLATES), 4)])
    waiting, expected = ItemDraws(shown.at(CONTEXT, ITEMS)), ItemDraws(posterior.at(CONTEXT, ITEMS))
    known = waiting.without_pending()
    assert (np.diag(waiting.covariance) < np.diag(expected.covariance)).all()
    np.testing.assert_allclose(known.covariance, expected.covariance, atol=2e-5)
    for place in range(0, len(SLATES), 17):
        regrets = [one.regret_of(SLATES[place], SLATES[3], np.random.default_rng(6)) for one in (known, expected)]
        np.testing.assert_allclose(*regrets, atol=2e-3)
    assert known.without_pending() is known
    assert expected.without_pending() is expected


@pytest.mark.parametrize("kind", [WK, WCK], ids=lambda kind: kind.name)
def test_figures_are_never_negative_and_a_certain_slate_has_none(kind: Kind) -> None:
    draws, _ = draws_of(kind)
    for place in range(0, len(SLATES), 17):
        regret = draws.regret_of(SLATES[place], SLATES[0], np.random.default_rng(place))
        assert regret.estimate >= 0.0
        assert regret.bound >= 0.0
    assert norm.ppf(REGRET_CONFIDENCE) > 0.0


def test_the_same_numbers_give_the_same_figures() -> None:
    draws, _ = draws_of(WCK)
    one, other = (draws.regret_of(SLATES[3], SLATES[9], np.random.default_rng(5)) for _ in range(2))
    assert one == other


def test_a_context_of_zeros_has_no_draws() -> None:
    data = sample(WCK, np.random.default_rng(0), n_items=N_ITEMS, slate_size=SLATE_SIZE, context_dim=2, count=9)
    posterior = fitted(WCK, data, n_items=N_ITEMS, noise_variance=NOISE)
    draws = ItemDraws(posterior.at(np.zeros(2), ITEMS))
    assert not draws.draw(3, np.random.default_rng(0)).any()
    assert draws.regret_of(SLATES[0], SLATES[1], np.random.default_rng(0)) == (0.0, 0.0)


def test_items_that_stand_for_more_are_the_best_of_them() -> None:
    """Regret estimated from 5 of 300 items that were never shown is that of all 300."""
    n_items, k, context = 300, 3, np.array([1.0, -0.4])
    kernel, rng = adaptive_kendall(n_items, k), np.random.default_rng(0)
    shown = np.array([rng.permutation(12)[:k] for _ in range(40)], dtype=np.int32)
    posterior = Posterior.prior(kernel, context_dim=2, noise_variance=0.3)
    posterior = posterior.observe(rng.normal(size=(40, 2)), shown, rng.normal(size=40))
    every, slate = np.arange(n_items, dtype=np.int32), np.array([0, 1, 2], dtype=np.int32)
    few = np.concatenate([every[:12], every[100:105]])
    of_all, of_few = ItemDraws(posterior.at(context, every)), ItemDraws(posterior.at(context, few))
    standing = np.arange(12, 17)
    figures = {
        "all": [of_all.regret_of(slate, slate, np.random.default_rng(seed)) for seed in range(40)],
        "few": [of_few.regret_of(slate, slate, np.random.default_rng(seed), standing, 288) for seed in range(40)],
        "no more": [of_few.regret_of(slate, slate, np.random.default_rng(seed)) for seed in range(40)],
    }
    means = {name: np.mean([figure.estimate for figure in found]) for name, found in figures.items()}
    assert means["few"] == pytest.approx(means["all"], rel=0.1)
    assert means["no more"] < 0.85 * means["all"]
    bounds = {name: np.mean([figure.bound for figure in found]) for name, found in figures.items()}
    assert bounds["few"] == pytest.approx(bounds["all"], rel=0.1)


@pytest.mark.parametrize(("size", "count"), [(1, 1), (3, 3), (5, 40)])
def test_the_largest_of_many_normal_numbers_are_drawn_as_they_are(size: int, count: int) -> None:
    rng = np.random.default_rng(1)
    drawn = _largest(20_000, size, count, rng)
    expected = -np.sort(-rng.standard_normal((20_000, count)), axis=1)[:, :size]
    np.testing.assert_allclose(drawn.mean(axis=0), expected.mean(axis=0), atol=0.04)
    np.testing.assert_allclose(drawn.std(axis=0), expected.std(axis=0), atol=0.03)
    assert (np.diff(drawn, axis=1) <= 0.0).all()
