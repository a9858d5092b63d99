"""The posterior against a dense Gaussian process."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.learning.dense import (
    CK,
    KINDS,
    WCK,
    DenseGp,
    Kind,
    Sample,
    all_but_known,
    assert_close,
    fitted,
    joined,
    newest_rows,
    rankings_of,
    rewards_of,
    same,
    sample,
)

from topk_bandit.learning.observed_rows import Observations, ObservedRows
from topk_bandit.learning.posterior import LEAST_NOISE, PendingSlates, Posterior

if TYPE_CHECKING:
    from numpy.typing import NDArray

N_ITEMS, SLATE_SIZE = 14, 4
TO_ASK = rankings_of(N_ITEMS, SLATE_SIZE, 60, np.random.default_rng(99))
each_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)


def draw(kind: Kind, seed: int, *, count: int, context_dim: int = 2, noise_variance: float = 0.1) -> Sample:
    return sample(
        kind,
        np.random.default_rng(seed),
        n_items=N_ITEMS,
        slate_size=SLATE_SIZE,
        context_dim=context_dim,
        count=count,
        noise_variance=noise_variance,
    )


def dense(kind: Kind, data: Sample, pending: Sample | None = None, *, noise_variance: float = 0.1) -> DenseGp:
    gp = DenseGp(kind, N_ITEMS, noise_variance, *data.rows)
    return gp if pending is None else replace(gp, pending_contexts=pending.contexts, pending_rankings=pending.rankings)


def question(context_dim: int) -> NDArray[np.float64]:
    return np.array([1.0]) if context_dim == 1 else np.linspace(-0.8, 1.1, context_dim)


def empty(kind: Kind, *, context_dim: int = 2, noise_variance: float = 0.1) -> Posterior:
    kernel = kind.make(N_ITEMS, SLATE_SIZE)
    return Posterior.prior(kernel, context_dim=context_dim, noise_variance=noise_variance)


def repeating(kind: Kind, *, context_dim: int, noise_variance: float) -> Sample:
    """Draw 320 rows, a third of them the same slate in the same context, and one in no context at all."""
    rows = draw(kind, 1, count=320, context_dim=context_dim)
    rows.contexts[100:200], rows.rankings[100:200] = rows.contexts[0], rows.rankings[0]
    rows.contexts[-1] *= 0.0 if context_dim > 1 else 1.0
    rng = np.random.default_rng(7)
    rewards = rewards_of(kind, rows.contexts, rows.rankings, rng, n_items=N_ITEMS, noise_variance=noise_variance)
    return replace(rows, rewards=rewards)


@each_kind
@pytest.mark.parametrize("context_dim", [1, 3])
def test_no_observations_leave_the_prior(kind: Kind, context_dim: int) -> None:
    context = question(context_dim)
    moments = empty(kind, context_dim=context_dim).predict(context, TO_ASK)
    assert moments.mean.tolist() == [0.0] * len(TO_ASK)
    np.testing.assert_allclose(moments.variance, context @ context)


@each_kind
@pytest.mark.parametrize("context_dim", [1, 3])
@pytest.mark.parametrize("noise_variance", [1e-4, 10.0])
def test_float64_agrees_with_the_dense_process(kind: Kind, context_dim: int, noise_variance: float) -> None:
    data = repeating(kind, context_dim=context_dim, noise_variance=noise_variance)
    expected = dense(kind, data, noise_variance=noise_variance).predict(question(context_dim), TO_ASK)
    posterior = empty(kind, context_dim=context_dim, noise_variance=noise_variance).observe(*data.rows)
    assert posterior.n_rows == 320
    assert_close(posterior.predict(question(context_dim), TO_ASK), expected, atol=1e-8)
    assert_close(posterior.predict(data.contexts[0], data.rankings[:20]),
                 dense(kind, data, noise_variance=noise_variance).predict(data.contexts[0], data.rankings[:20]),
                 atol=1e-8)  # fmt: skip


@each_kind
@pytest.mark.parametrize(("n_items", "slate_size"), [(2, 2), (5, 5), (30, 2)])
def test_other_sizes_agree_with_the_dense_process(kind: Kind, n_items: int, slate_size: int) -> None:
    rng = np.random.default_rng(4)
    data = sample(kind, rng, n_items=n_items, slate_size=slate_size, context_dim=2, count=40)
    asked = rankings_of(n_items, slate_size, 20, rng)
    expected = DenseGp(kind, n_items, 0.1, *data.rows).predict(question(2), asked)
    assert_close(fitted(kind, data, n_items=n_items).predict(question(2), asked), expected, atol=1e-10)


@pytest.mark.parametrize("kind", [CK, WCK], ids=lambda kind: kind.name)
def test_slates_of_one_item_agree_with_the_dense_process(kind: Kind) -> None:
    rng = np.random.default_rng(5)
    data = sample(kind, rng, n_items=6, slate_size=1, context_dim=2, count=40)
    asked = np.arange(6, dtype=np.int32)[:, None]
    expected = DenseGp(kind, 6, 0.1, *data.rows).predict(question(2), asked)
    assert_close(fitted(kind, data, n_items=6).predict(question(2), asked), expected, atol=1e-10)


@pytest.mark.bits
@each_kind
def test_pending_slates_shrink_the_variance_and_leave_every_mean(kind: Kind) -> None:
    data, waiting = draw(kind, 2, count=50), draw(kind, 3, count=20)
    before = empty(kind).observe(*data.rows)
    after = before.show(waiting.contexts, waiting.rankings)
    assert (after.n_rows, after.n_pending) == (50, 20)
    assert_close(after.predict(question(2), TO_ASK), dense(kind, data, waiting).predict(question(2), TO_ASK), atol=1e-8)
    old, new = before.predict(question(2), TO_ASK), after.predict(question(2), TO_ASK)
    assert new.mean.tolist() == old.mean.tolist()
    assert (new.variance <= old.variance + 1e-12).all()
    assert (new.variance < old.variance - 1e-3).any()


def test_a_pending_reward_counts_as_the_mean_predicted_for_it() -> None:
    data, waiting = draw(WCK, 2, count=30), draw(WCK, 3, count=3)
    posterior = empty(WCK).observe(*data.rows)
    hallucinated = [
        posterior.predict(c, r[None]).mean[0] for c, r in zip(waiting.contexts, waiting.rankings, strict=True)
    ]
    imagined = posterior.observe(waiting.contexts, waiting.rankings, hallucinated)
    shown = posterior.show(waiting.contexts, waiting.rankings)
    assert_close(shown.predict(question(2), TO_ASK), imagined.predict(question(2), TO_ASK), atol=1e-10)


@each_kind
def test_rewards_may_come_in_any_order(kind: Kind) -> None:
    data, waiting = draw(kind, 2, count=30), draw(kind, 3, count=12)
    posterior = empty(kind).observe(*data.rows).show(waiting.contexts, waiting.rankings)
    order = np.random.default_rng(0).permutation(12)
    left = list(range(12))
    for place in order.tolist():
        posterior = posterior.reward(left.index(place), float(waiting.rewards[place]))
        left.remove(place)
    together = joined(data, waiting)
    assert (posterior.n_rows, posterior.n_pending) == (42, 0)
    assert_close(posterior.predict(question(2), TO_ASK), dense(kind, together).predict(question(2), TO_ASK), atol=1e-8)
    assert posterior.observations.rewards[30:].tolist() == waiting.rewards[order].tolist()
    assert posterior.observations.rankings[30:].tolist() == waiting.rankings[order].tolist()


@each_kind
@pytest.mark.parametrize("chosen", [0, 4, 9])
def test_a_discarded_slate_was_never_shown(kind: Kind, chosen: int) -> None:
    data, waiting = draw(kind, 2, count=30), draw(kind, 3, count=10)
    posterior = empty(kind).observe(*data.rows)
    others = waiting[[place for place in range(10) if place != chosen]]
    discarded = posterior.show(waiting.contexts, waiting.rankings).discard(chosen)
    never = posterior.show(others.contexts, others.rankings)
    assert_close(discarded.predict(question(2), TO_ASK), never.predict(question(2), TO_ASK), atol=1e-10)
    assert discarded.pending.rankings.tolist() == others.rankings.tolist()
    assert discarded.pending.contexts.tolist() == others.contexts.tolist()


@each_kind
def test_a_long_life_agrees_with_the_dense_process(kind: Kind) -> None:
    rng = np.random.default_rng(11)
    supply = draw(kind, 12, count=400)
    posterior = empty(kind)
    learned: list[int] = []
    pending: list[int] = []
    for place in range(400):
        posterior = posterior.show(supply.contexts[place], supply.rankings[place])
        pending.append(place)
        while len(pending) > 25 or (pending and rng.random() < 0.45):
            chosen = int(rng.integers(len(pending)))
            gone = pending.pop(chosen)
            if rng.random() < 0.2:
                posterior = posterior.discard(chosen)
            else:
                posterior = posterior.reward(chosen, float(supply.rewards[gone]))
                learned.append(gone)
    assert (posterior.n_rows, posterior.n_pending) == (len(learned), len(pending))
    assert len(learned) > 250
    assert pending
    expected = dense(kind, supply[learned], supply[pending]).predict(question(2), TO_ASK)
    assert_close(posterior.predict(question(2), TO_ASK), expected, atol=1e-8)


@each_kind
def test_fitting_at_once_agrees_with_learning_one_by_one(kind: Kind) -> None:
    data, waiting = draw(kind, 2, count=150), draw(kind, 3, count=15)
    grown = empty(kind).observe(*data.rows).show(waiting.contexts, waiting.rankings)
    at_once = Posterior.fit(
        kind.make(N_ITEMS, SLATE_SIZE),
        ObservedRows.of(Observations(*data.rows)),
        PendingSlates(waiting.contexts, waiting.rankings),
        noise_variance=0.1,
    )
    assert (at_once.n_rows, at_once.n_pending) == (150, 15)
    assert_close(at_once.predict(question(2), TO_ASK), grown.predict(question(2), TO_ASK), atol=1e-8)
    more = draw(kind, 5, count=30)
    assert_close(
        at_once.observe(*more.rows).predict(question(2), TO_ASK),
        grown.observe(*more.rows).predict(question(2), TO_ASK),
        atol=1e-8,
    )


@each_kind
def test_a_refit_on_all_rows_changes_nothing(kind: Kind) -> None:
    data, waiting = draw(kind, 2, count=120), draw(kind, 3, count=10)
    grown = empty(kind).observe(*data.rows).show(waiting.contexts, waiting.rankings)
    for newest in (120, 500):
        refit = grown.refit(newest_rows(grown, newest), noise_variance=0.1)
        assert (refit.n_rows, refit.n_pending) == (120, 10)
        assert_close(refit.predict(question(2), TO_ASK), grown.predict(question(2), TO_ASK), atol=1e-8)


@each_kind
@pytest.mark.parametrize("newest", [0, 1, 70])
def test_a_refit_keeps_the_newest_rows_and_every_pending_slate(kind: Kind, newest: int) -> None:
    data, waiting = draw(kind, 2, count=120), draw(kind, 3, count=10)
    grown = empty(kind).observe(*data.rows).show(waiting.contexts, waiting.rankings)
    refit = grown.refit(newest_rows(grown, newest), noise_variance=0.4)
    assert refit.observations.rewards.tolist() == data.rewards[120 - newest :].tolist()
    assert refit.noise_variance == 0.4
    expected = dense(kind, data[120 - newest :], waiting, noise_variance=0.4).predict(question(2), TO_ASK)
    assert_close(refit.predict(question(2), TO_ASK), expected, atol=1e-8)


@each_kind
def test_forgetting_only_widens_the_variance(kind: Kind) -> None:
    data = draw(kind, 2, count=120)
    posterior = empty(kind).observe(*data.rows)
    variance = posterior.predict(question(2), TO_ASK).variance
    for newest in (90, 60, 30, 0):
        wider = (
            posterior.refit(newest_rows(posterior, newest), noise_variance=0.1).predict(question(2), TO_ASK).variance
        )
        assert (wider >= variance - 1e-10).all()
        assert wider.sum() > variance.sum()
        variance = wider


@each_kind
def test_offset_and_amplitude_are_those_of_centred_rewards_and_a_scaled_kernel(kind: Kind) -> None:
    data, waiting = draw(kind, 2, count=60), draw(kind, 3, count=8)
    posterior = empty(kind).observe(*data.rows).show(waiting.contexts, waiting.rankings)
    scaled = posterior.rescale(offset=1.7, amplitude=2.5)
    expected = replace(dense(kind, data, waiting), offset=1.7, amplitude=2.5)
    assert_close(scaled.predict(question(2), TO_ASK), expected.predict(question(2), TO_ASK), atol=1e-8)
    # s^2 (K + r I) is the covariance; by hand, so that the oracle's own scaling is checked too.
    gram = 2.5 * expected.noisy(expected.rewarded)
    cross = 2.5 * expected.covariance(expected.rewarded, (np.tile(question(2), (len(TO_ASK), 1)), TO_ASK))
    by_hand = 1.7 + cross.T @ np.linalg.solve(gram, data.rewards - 1.7)
    np.testing.assert_allclose(scaled.predict(question(2), TO_ASK).mean, by_hand, atol=1e-8)


@pytest.mark.bits
def test_scale_survives_what_happens_next() -> None:
    data, more = draw(WCK, 2, count=60), draw(WCK, 3, count=8)
    together = joined(data, more)
    expected = replace(dense(WCK, together), offset=-0.6, amplitude=0.3).predict(question(2), TO_ASK)
    scaled = empty(WCK).observe(*data.rows).rescale(offset=-0.6, amplitude=0.3)
    assert_close(scaled.observe(*more.rows).predict(question(2), TO_ASK), expected, atol=1e-8)
    pending = scaled.show(more.contexts, more.rankings)
    for reward in more.rewards.tolist():
        pending = pending.reward(0, reward)
    assert_close(pending.predict(question(2), TO_ASK), expected, atol=1e-8)
    refit = pending.refit(newest_rows(pending, 68), noise_variance=0.1)
    assert (refit.offset, refit.amplitude) == (-0.6, 0.3)
    assert_close(refit.predict(question(2), TO_ASK), expected, atol=1e-8)
    assert same(scaled.rescale(offset=0.0, amplitude=1.0).predict(question(2), TO_ASK),
                empty(WCK).observe(*data.rows).predict(question(2), TO_ASK))  # fmt: skip


@each_kind
def test_likelihood_sums_agree_with_the_dense_process(kind: Kind) -> None:
    data, waiting = draw(kind, 2, count=60), draw(kind, 3, count=8)
    expected = dense(kind, data)
    grown = empty(kind).observe(*data.rows).show(waiting.contexts, waiting.rankings).rescale(offset=3.0, amplitude=2.0)
    for posterior in (grown, grown.refit(newest_rows(grown, 60), noise_variance=0.1)):
        assert posterior.best_offset == pytest.approx(expected.best_offset, abs=1e-8)
        for offset in (0.0, -1.3, expected.best_offset):
            assert posterior.whitened_square(offset) == pytest.approx(expected.whitened_square(offset), rel=1e-8)
    assert empty(kind).best_offset == 0.0
    assert empty(kind).whitened_square(1.0) == 0.0


def test_rounding_pushes_no_variance_below_zero() -> None:
    """All slates are known but for noise that is less than rounding: nearly all would be below without a guard."""
    posterior, every = all_but_known()
    variance = posterior.predict([0.7], every).variance
    assert variance.min() >= 0.0
    assert variance.max() < 1e-10


@pytest.mark.parametrize("noise_variance", [1e-4, 1e-6, 1e-8, 1e-30])
def test_two_slates_shown_over_and_over_leave_everything_finite(noise_variance: float) -> None:
    rng = np.random.default_rng(0)
    rankings = rankings_of(N_ITEMS, SLATE_SIZE, 2, rng)[rng.integers(2, size=300)]
    prior = empty(WCK, context_dim=1, noise_variance=noise_variance)
    moments = prior.observe(np.ones((300, 1)), rankings, rng.normal(size=300)).predict([1.0], rankings[:20])
    assert np.isfinite(moments.mean).all()
    assert np.abs(moments.mean).max() < 1.0
    assert (moments.variance >= 0.0).all()
    assert moments.variance.max() < 0.01


@pytest.mark.parametrize("spread", [1e-8, 1e-5])
def test_long_contexts_that_are_nearly_alike_agree_with_the_dense_process(spread: float) -> None:
    """Beside contexts as long as are allowed there is next to no noise: what rows hardly differ by must not grow."""
    rng = np.random.default_rng(3)
    data = draw(WCK, 4, count=160, context_dim=3)
    alike = rng.integers(4, size=160)
    data = replace(data, rankings=data.rankings[alike], rewards=1e6 * data.rewards)
    data = replace(data, contexts=1e6 * data.contexts[alike] * (1.0 + spread * rng.normal(size=(160, 3))))
    rewarded, waiting = data[:20].rows, data[20:].rows[:2]
    posterior = empty(WCK, context_dim=3).observe(*rewarded).show(*waiting)
    noise = np.maximum(0.1, LEAST_NOISE * (data.contexts**2).sum(axis=1))
    dense = _Noisy(WCK, N_ITEMS, 0.1, *rewarded, *waiting, noise=noise)
    for context in data.contexts[:4]:
        expected, square = dense.predict(context, TO_ASK), context @ context
        moments = posterior.predict(context, TO_ASK)
        np.testing.assert_allclose(moments.variance / square, expected.variance / square, atol=1e-9)
        np.testing.assert_allclose(moments.mean, expected.mean, rtol=1e-5, atol=1.0)


@dataclass(frozen=True)
class _Noisy(DenseGp):
    """The textbook's process with each row's own noise, the rewarded ones first."""

    noise: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))

    def noisy(self, rows: tuple[NDArray[np.float64], NDArray[np.int32]]) -> NDArray[np.float64]:
        return self.covariance(rows, rows) + np.diag(self.noise[: len(rows[1])])


@pytest.mark.bits
def test_single_and_batched_observations_are_the_same() -> None:
    data = draw(WCK, 2, count=40)
    batched = empty(WCK).observe(*data.rows)
    single = empty(WCK)
    for context, ranking, reward in zip(*data.rows, strict=True):
        single = single.observe(context, ranking, float(reward))
    assert same(batched.predict(question(2), TO_ASK), single.predict(question(2), TO_ASK))
    nothing = batched.observe(np.zeros((0, 2)), np.zeros((0, SLATE_SIZE), dtype=int), [])
    assert same(batched.predict(question(2), TO_ASK), nothing.predict(question(2), TO_ASK))


def test_memory_grows_with_rows_and_not_with_the_catalogue() -> None:
    data = draw(WCK, 2, count=100)
    sizes = []
    for n_items in (N_ITEMS, 10_000):
        prior = Posterior.prior(WCK.make(n_items, SLATE_SIZE), context_dim=2, noise_variance=0.1)
        sizes.append(prior.observe(*data.rows).memory_bytes)
    assert sizes[0] == sizes[1]
    assert sizes[0] % np.dtype(np.int32).itemsize == 0, "all arrays are of numbers of four bytes or eight"
    assert 8 * 100**2 < sizes[0] < 4 * 8 * 100**2
    few = prior.observe(*data.rows)
    assert few.show(data.contexts, data.rankings).memory_bytes > few.memory_bytes + 100 * 8


def test_memory_is_that_of_all_arrays_that_grow_with_rows() -> None:
    """What was fitted counts but for what the rows have as well."""
    data, pending = draw(WCK, 2, count=40), draw(WCK, 3, count=5)
    posterior = empty(WCK).observe(*data.rows)
    posterior = posterior.refit(posterior.observed_rows, noise_variance=0.1)
    posterior = posterior.show(pending.contexts, pending.rankings)
    values = [getattr(part, one.name) for part in (posterior._rows, posterior._pending) for one in fields(part)]
    values += [posterior._weights, posterior._fitted.leftovers, posterior._fitted.noise_shape]
    arrays = [one for one in values if isinstance(one, np.ndarray)]
    assert len(arrays) == 12
    assert posterior.memory_bytes == sum(one.nbytes for one in arrays)


@each_kind
def test_the_difference_of_two_slates_is_that_of_the_dense_process(kind: Kind) -> None:
    """Pending slates do not narrow it, and a slate is not uncertain beside itself."""
    data, waiting, context = draw(kind, 2, count=50), draw(kind, 3, count=5), question(2)
    gp = dense(kind, data)
    posterior = empty(kind).observe(*data.rows).show(waiting.contexts, waiting.rankings)
    for first, second in pairwise(TO_ASK):
        asked = np.tile(context, (2, 1)), np.stack([first, second])
        k = gp.covariance(gp.rewarded, asked)
        joint = gp.covariance(asked, asked) - k.T @ np.linalg.solve(gp.noisy(gp.rewarded), k)
        means = gp.predict(context, asked[1]).mean
        mean, variance = posterior.predict_difference(context, first, second)
        assert mean == pytest.approx(means[0] - means[1], abs=1e-9)
        assert variance == pytest.approx(joint[0, 0] + joint[1, 1] - 2 * joint[0, 1], abs=1e-9)
        assert posterior.predict_difference(context, first, first) == (0.0, 0.0)
