"""A reward that is revised after its observation was folded leaves what the right reward would have left."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from topk_bandit.domain.bandits import Kernel
from topk_bandit.learning.corrections import can_correct, correct, revise
from topk_bandit.learning.folded_rewards import Learned, Span, take_out
from topk_bandit.learning.limits import Limits
from topk_bandit.learning.observed_rows import Observations, ObservedRows, compact, fold_by_ranking, project
from topk_bandit.learning.policy import State, kernel_of
from topk_bandit.learning.posterior import PendingSlates, Posterior
from topk_bandit.learning.prior_mean import PriorMean
from topk_bandit.learning.rankings import random_rankings
from topk_bandit.learning.scales import scale_best

if TYPE_CHECKING:
    from collections.abc import Callable

    from topk_bandit.learning.kendall import KendallKernel

N_ITEMS, SLATE_SIZE, DIM, NOISE = 9, 3, 3, 0.1
ITEMS = np.arange(N_ITEMS, dtype=np.int32)
KERNEL = kernel_of(Kernel.ADAPTIVE, N_ITEMS, SLATE_SIZE)
PRIOR_MEAN = PriorMean.of(
    KERNEL, np.random.default_rng(2).normal(size=N_ITEMS), np.zeros((N_ITEMS, DIM)), np.arange(N_ITEMS)
)
NONE_PENDING = PendingSlates(np.zeros((0, DIM)), np.zeros((0, SLATE_SIZE), dtype=np.int32))


def half_faded(rows: ObservedRows) -> ObservedRows:
    """Fold all rows, of which each counts half."""
    return compact(KERNEL, rows).fade_earlier(0.5, n_latest=0)


FOLDS: dict[str, tuple[Callable[[ObservedRows], ObservedRows], float]] = {
    "rows of their own": (lambda rows: rows, 1.0),
    "sums by ranking": (fold_by_ranking, 1.0),
    "sums of all": (partial(compact, KERNEL), 1.0),
    "sums that fade": (half_faded, 0.5),
    "projected": (lambda rows: project(KERNEL, rows, most_rows=30, noise_variance=NOISE), 1.0),
}


def observed(count: int, seed: int) -> Observations:
    rng = np.random.default_rng(seed)
    few = random_rankings(ITEMS, slate_size=SLATE_SIZE, count=count // 6, rng=rng)
    contexts = np.column_stack([rng.normal(size=(count, DIM - 1)), np.ones(count)])
    return Observations(contexts, few[rng.integers(len(few), size=count)], rng.normal(size=count))


def rows_of(observations: Observations, *, prior: bool) -> ObservedRows:
    return ObservedRows.of(observations).with_prior_mean(PRIOR_MEAN if prior else None)


def fitted(rows: ObservedRows, *, prior: bool) -> Posterior:
    mean = PRIOR_MEAN if prior else None
    return scale_best(Posterior.fit(KERNEL, rows, NONE_PENDING, noise_variance=NOISE, prior_mean=mean))


def assert_alike(one: Posterior, other: Posterior, *, most_apart: float) -> None:
    one = scale_best(one)
    for name in ("amplitude", "offset", "slope", "n_observations"):
        assert getattr(one, name) == pytest.approx(getattr(other, name), rel=most_apart, abs=most_apart), name
    rng = np.random.default_rng(7)
    rankings = random_rankings(ITEMS, slate_size=SLATE_SIZE, count=30, rng=rng)
    for context in rng.normal(size=(4, DIM)):
        mine, theirs = one.predict(context, rankings), other.predict(context, rankings)
        assert np.abs(mine.mean - theirs.mean).max() <= most_apart
        assert np.abs(mine.variance - theirs.variance).max() <= most_apart


@pytest.mark.parametrize("prior", [False, True], ids=["", "prior mean"])
@pytest.mark.parametrize("count", [60, 300])
@pytest.mark.parametrize("fold", FOLDS)
def test_revised_rewards_leave_what_the_right_ones_would_have_left(fold: str, count: int, *, prior: bool) -> None:
    folded, weight = FOLDS[fold]
    wrong, rng = observed(count, seed=count), np.random.default_rng(5)
    right = wrong._replace(rewards=wrong.rewards.copy())
    revised = rng.choice(count, size=count // 5, replace=False)
    right.rewards[revised] += rng.normal(size=len(revised)) * 3.0
    posterior = fitted(folded(rows_of(wrong, prior=prior)), prior=prior)
    for one in revised.tolist():
        change = float(right.rewards[one] - wrong.rewards[one])
        posterior = posterior.amend(
            wrong.contexts[one], wrong.rankings[one], wrong.rewards[one], change=change, weight=weight
        )
    expected = fitted(folded(rows_of(right, prior=prior)), prior=prior)
    assert_alike(posterior, expected, most_apart=1e-9)
    wrongly = fitted(folded(rows_of(wrong, prior=prior)), prior=prior)
    with pytest.raises(AssertionError):
        assert_alike(wrongly, expected, most_apart=1e-3)


@pytest.mark.parametrize("prior", [False, True], ids=["", "prior mean"])
@pytest.mark.parametrize("fold", ["rows of their own", "sums by ranking"])
def test_an_observation_that_is_taken_out_leaves_what_the_others_would_have_left(fold: str, *, prior: bool) -> None:
    folded, _ = FOLDS[fold]
    observations = observed(300, seed=4)
    gone = np.random.default_rng(6).choice(300, size=20, replace=False)
    posterior = fitted(folded(rows_of(observations, prior=prior)), prior=prior)
    for one in gone.tolist():
        posterior = posterior.remove(observations.contexts[one], observations.rankings[one], observations.rewards[one])
    others = Observations(*(np.delete(values, gone, axis=0) for values in observations))
    assert_alike(posterior, fitted(folded(rows_of(others, prior=prior)), prior=prior), most_apart=1e-8)


def test_short_contexts_leave_their_mean_square_when_one_goes() -> None:
    observations = observed(6, seed=4)
    observations = observations._replace(contexts=0.01 * observations.contexts)
    posterior = fitted(rows_of(observations, prior=False), prior=False)
    left = posterior.remove(observations.contexts[0], observations.rankings[0], observations.rewards[0])
    others = Observations(*(values[1:] for values in observations))
    assert left.context_square == pytest.approx(fitted(rows_of(others, prior=False), prior=False).context_square)


@pytest.mark.parametrize("count", [1, 3])
def test_rows_of_nothing_else_go_with_their_observations_and_later_rows_stay(count: int) -> None:
    observations, later = Observations(*(values[:count] for values in observed(6, seed=4))), observed(12, seed=9)
    posterior = fitted(fold_by_ranking(rows_of(observations, prior=False)), prior=False)
    for context, ranking, reward in zip(*later, strict=True):
        posterior = posterior.observe(context, ranking, reward)
    for context, ranking, reward in zip(*observations, strict=True):
        posterior = posterior.remove(context, ranking, reward, n_latest=len(later.rewards))
    assert posterior.n_rows == len(later.rewards)
    assert_alike(posterior, fitted(rows_of(later, prior=False), prior=False), most_apart=1e-9)


@pytest.mark.parametrize("fold", ["sums of all", "projected"])
def test_an_observation_that_others_hold_some_of_counts_as_expected(fold: str) -> None:
    folded, _ = FOLDS[fold]
    observations = observed(300, seed=4)
    rows = folded(rows_of(observations, prior=False))
    posterior = fitted(rows, prior=False)
    of_its_ranking = [(rows.rankings == ranking).all(axis=1).sum() for ranking in observations.rankings]
    context, ranking, reward = (values[int(np.argmin(of_its_ranking))] for values in observations)
    without = posterior.remove(context, ranking, reward)
    expected = posterior.predict(context, ranking[None]).mean[0]
    assert_alike(without, scale_best(posterior.amend(context, ranking, reward, change=expected - reward)), most_apart=0)


def test_rows_that_came_after_the_fold_stay_as_they_are() -> None:
    observations, later = observed(120, seed=8), observed(12, seed=9)
    right = observations._replace(rewards=observations.rewards + (np.arange(120) == 17) * 2.5)
    posterior, expected = (
        fitted(fold_by_ranking(rows_of(one, prior=False)), prior=False) for one in (observations, right)
    )
    for context, ranking, reward in zip(*later, strict=True):
        posterior, expected = (one.observe(context, ranking, reward) for one in (posterior, expected))
    revised = posterior.amend(
        observations.contexts[17], observations.rankings[17], observations.rewards[17], change=2.5, n_latest=12
    )
    assert_alike(revised, scale_best(expected), most_apart=1e-9)
    assert np.array_equal(posterior.observations.rewards[-12:], revised.observations.rewards[-12:])


N_MANY, MOST_ROWS, OBSERVED = 60, 60, 900


def learned_by_parts(kernel: KendallKernel, observations: Observations) -> Posterior:
    """Learn as a bandit does whose rows leave for its items' parts, twenty at a time."""
    rows = ObservedRows.of(Observations(*(values[:MOST_ROWS] for values in observations))).with_parts()
    for start in range(MOST_ROWS, OBSERVED, 20):
        later = Observations(*(values[start : start + 20] for values in observations))
        rows = rows.extend(ObservedRows.of(later))
        rows = project(kernel, rows, most_rows=MOST_ROWS, noise_variance=NOISE, most_items=N_MANY)
    return at_once(kernel, rows)


def at_once(kernel: KendallKernel, rows: ObservedRows) -> Posterior:
    nobody = PendingSlates(np.zeros((0, rows.contexts.shape[1])), np.zeros((0, SLATE_SIZE), dtype=np.int32))
    return scale_best(Posterior.fit(kernel, rows, nobody, noise_variance=NOISE))


@pytest.mark.parametrize(("seed", "dim"), [(0, 1), (1, 3), (2, 3)])
def test_items_parts_are_as_near_to_the_exact_posterior_as_if_they_had_learned_the_right_rewards(
    seed: int, dim: int
) -> None:
    kernel, rng = kernel_of(Kernel.ADAPTIVE, N_MANY, SLATE_SIZE).uncentre(), np.random.default_rng(seed)
    items = np.arange(N_MANY, dtype=np.int32)
    rankings = random_rankings(items, slate_size=SLATE_SIZE, count=OBSERVED, rng=rng)
    contexts = np.column_stack([np.ones(OBSERVED), rng.normal(size=(OBSERVED, dim - 1))])
    expected = np.einsum("nkd,nd->n", rng.normal(size=(N_MANY, dim))[rankings], contexts)
    wrong = Observations(contexts, rankings, expected + 0.3 * rng.normal(size=OBSERVED))
    revised = rng.choice(OBSERVED - MOST_ROWS, size=OBSERVED // 8, replace=False)
    right = wrong._replace(rewards=wrong.rewards.copy())
    right.rewards[revised] -= 4.0 * rng.random(len(revised))
    before, posterior = (learned_by_parts(kernel, wrong),) * 2
    for one in revised.tolist():
        change = float(right.rewards[one] - wrong.rewards[one])
        posterior = posterior.amend(contexts[one], rankings[one], wrong.rewards[one], change=change)
    exact = at_once(kernel, ObservedRows.of(right))
    asked, slates = (
        np.append(1.0, rng.normal(size=dim - 1)),
        random_rankings(items, slate_size=SLATE_SIZE, count=300, rng=rng),
    )
    wanted = exact.predict(asked, slates).mean
    errors = [
        float(np.sqrt(((one.predict(asked, slates).mean - wanted) ** 2).mean()))
        for one in (before, scale_best(posterior), learned_by_parts(kernel, right))
    ]
    assert errors[1] < 1.1 * errors[2]
    assert errors[1] < 0.95 * errors[0]


class Life:
    """Slates that are shown and rewarded."""

    def __init__(self, *, rows: int, half_life: float = np.inf) -> None:
        limits = Limits(rows=rows, pending_rows=8)
        self.state = State.initial(KERNEL, context_dim=DIM, limits=limits, half_life=half_life)
        self.rng = np.random.default_rng(3)
        self.lived: list[tuple[np.ndarray, np.ndarray, float]] = []

    def live(self, rounds: int, *, reward: float | None = None) -> None:
        for _ in range(rounds):
            context = np.append(self.rng.normal(size=DIM - 1), 1.0)
            ranking = random_rankings(ITEMS, slate_size=SLATE_SIZE, count=1, rng=self.rng)[0]
            number, earned = len(self.lived), float(self.rng.normal()) if reward is None else reward
            self.state = self.state.shown(f"s{number}", context, ranking)
            self.state = self.state.rewarded(f"s{number}", context, ranking, reward=earned, at=float(number))
            self.lived.append((context, ranking, earned))

    def revise(self, number: int, reward: float | None) -> None:
        context, ranking, before = self.lived[number]
        revised = revise(self.state, f"s{number}", context, ranking, before=before, reward=reward, at=float(number))
        assert revised is not None
        self.state = revised


def test_a_revised_slate_counts_with_its_other_reward_from_then_on() -> None:
    life = Life(rows=300)
    life.live(90)
    before = life.state
    assert not can_correct(before, "s3")
    life.revise(3, 1.25)
    assert life.state.counted.reward_sum == pytest.approx(before.counted.reward_sum + 1.25 - life.lived[3][2])
    assert life.state.observations == before.observations
    rewards = before.recent.rewards.copy()
    rewards[3] = 1.25
    assert np.array_equal(life.state.recent.rewards, rewards)
    life.revise(4, None)
    assert (life.state.observations, life.state.unrewarded) == (before.observations - 1, before.unrewarded + 1)
    assert len(life.state.recent) == len(before.recent) - 1


@pytest.mark.parametrize("half_life", [np.inf, 40.0])
def test_a_revised_slate_that_others_hold_counts_as_much_as_is_left_of_it(half_life: float) -> None:
    life = Life(rows=20, half_life=half_life)
    life.live(90)
    state, (context, ranking, before) = life.state, life.lived[3]
    expected = state.posterior.amend(
        state.encode(context),
        ranking,
        before,
        change=1.25 - before,
        weight=0.5 ** ((state.aged_at - 3.0) / half_life),
        n_latest=state.since_refit,
    )
    life.revise(3, 1.25)
    rewards = life.state.posterior.observed_rows.targets[0]
    assert np.array_equal(rewards, expected.observed_rows.targets[0])
    assert np.abs(rewards - state.posterior.observed_rows.targets[0]).max() > 0.1 * abs(1.25 - before)


def test_a_slate_that_is_not_among_the_latest_can_be_revised() -> None:
    life = Life(rows=300)
    life.live(400)
    before = life.state
    assert before.recent.find_settled("s3") is None
    life.revise(3, 1.25)
    assert life.state.recent is before.recent
    assert life.state.counted.reward_sum == pytest.approx(before.counted.reward_sum + 1.25 - life.lived[3][2])
    known = life.state
    life.revise(4, None)
    assert life.state.counted.reward_sum == pytest.approx(known.counted.reward_sum - life.lived[4][2])
    assert (life.state.observations, life.state.unrewarded) == (known.observations - 1, known.unrewarded + 1)


@pytest.mark.parametrize("wild", [1e9, -1e9])
def test_a_wild_reward_is_not_learned_and_can_be_corrected(wild: float) -> None:
    life = Life(rows=300)
    life.live(90)
    before = life.state
    life.revise(3, wild)
    assert life.state.counted.wild_rewards == before.counted.wild_rewards + 1
    assert life.state.posterior.n_observations == before.posterior.n_observations - 1
    assert can_correct(life.state, "s3")
    corrected = correct(life.state, "s3", 0.5)
    assert corrected.counted.wild_rewards == before.counted.wild_rewards
    assert corrected.posterior.n_observations == before.posterior.n_observations


def test_of_an_old_slate_a_wild_reward_is_not_taken() -> None:
    life = Life(rows=300)
    life.live(400)
    context, ranking, before = life.lived[3]
    assert revise(life.state, "s3", context, ranking, before=before, reward=1e9, at=3.0) is None


@pytest.mark.parametrize("right", [0.5, None])
def test_a_correction_of_a_later_slate_keeps_what_revisions_said_of_rewards(right: float | None) -> None:
    """One of the latest slates turns out to have earned otherwise, after earlier ones did."""
    life = Life(rows=300)
    life.live(60)
    while life.state.since_refit != 5:
        life.live(1)
    first, last = 3, len(life.lived) - 2
    for number in range(first, first + 12):
        life.revise(number, 30.0 + number)
    known = life.state.reward_range
    corrected = correct(life.state, f"s{last}", right)
    assert corrected.since_refit > 0
    assert corrected.reward_range.count == known.count - (right is None)
    assert corrected.reward_range.reach == pytest.approx(known.reach, rel=0.1)
    again = correct(corrected, f"s{last + 1}", None if right is None else 0.7)
    assert again.reward_range.count == known.count - 2 * (right is None)


def test_a_kind_of_reward_that_only_comes_later_is_believed() -> None:
    """All slates are learned with nothing at first, and one of ten turns out to have sold something."""
    life = Life(rows=300)
    for number in range(200):
        life.live(1, reward=0.0)
        if number > 20 and number % 10 == 0:
            life.revise(number - 15, 30.0)
    assert life.state.counted.wild_rewards == 0
    assert life.state.counted.reward_sum == pytest.approx(30.0 * 17)


def test_what_rows_hold_too_little_of_is_not_taken_out_of_them() -> None:
    """Two rows of one ranking span its contexts, and say little of one that is far from both."""
    observations = observed(40, 3)
    near = np.array([[1.0, 0.1, 1.0], [1.0, 0.12, 1.0], [1.0, 0.1, 1.02]])
    ranking = np.array([8, 7, 6], dtype=np.int32)
    rows = rows_of(
        Observations(
            np.concatenate([observations.contexts, near]),
            np.concatenate([observations.rankings, np.tile(ranking, (3, 1))]),
            np.append(observations.rewards, [0.1, 0.2, 0.3]),
        ),
        prior=False,
    )
    before = fitted(compact(KERNEL, rows), prior=False)
    far, posterior = np.array([-2.0, 3.0, -1.5]), before
    for _ in range(4):
        posterior = posterior.remove(far, ranking, 5.0)
    rankings = random_rankings(ITEMS, slate_size=SLATE_SIZE, count=20, rng=np.random.default_rng(4))
    one, other = (each.predict(near[0], rankings) for each in (posterior, before))
    assert np.isfinite(one.mean).all()
    np.testing.assert_allclose(one.variance, other.variance, rtol=1e-6)


LARGE = np.array([-100.0, 0.0, 1.0])
OTHER = (ITEMS[:3], ITEMS[3:6], ITEMS[6:])


def three_rows(**parts: Any) -> ObservedRows:  # noqa: ANN401 - as given
    """Return three rows of as many rankings, the first of which is the observation of `alone`."""
    contexts = np.array([LARGE, [1.0, 2.0, 0.5], [0.3, 0.1, 1.0]])
    rows = ObservedRows.of(Observations(contexts, np.array(OTHER), np.array([2.0, -1.0, 0.5])))
    return replace(rows, **parts)


def alone(**parts: Any) -> Learned:  # noqa: ANN401 - as given
    return Learned(LARGE, OTHER[0], np.array([2.0, 1.0]), 1.0)._replace(**parts)


def span_of(rows: ObservedRows) -> Span:
    return Span(KERNEL, rows, noise_variance=NOISE)


def first_with(shape: tuple[int, ...], place: tuple[int, ...], value: float, *, filled: float = 0.0) -> np.ndarray:
    array = np.full(shape, filled)
    array[place] = value
    return array


def correlated(first: float, beside: float) -> np.ndarray:
    shape = np.diag([first, 1.0, 1.0])
    shape[0, 1] = shape[1, 0] = beside
    return shape


@pytest.mark.parametrize(
    ("rows", "learned", "is_alone"),
    [
        (three_rows(), alone(), True),
        (three_rows(noise_shape=correlated(0.5, 0.0)), alone(), True),
        (three_rows(), alone(context=LARGE + np.array([0.0, 5e-8, 0.0])), True),
        (three_rows(), alone(targets=np.array([2.0 + 1e-4, 1.0])), False),
        (three_rows(), alone(ranking=np.append(OTHER[0][:1], OTHER[1][1:])), False),
        (three_rows(noise_shape=correlated(0.5, 0.1)), alone(), False),
        (three_rows(leftovers=first_with((3, 4), (0, 0), 1.0)), alone(), False),
        (three_rows(leftovers=first_with((3, 4), (0, 1), 0.25)), alone(), False),
        (three_rows(targets=np.array([[2.0, -1.0, 0.5], [0.5, 1.0, 1.0]])), alone(), False),
    ],
    ids=["it is", "of less noise", "to rounding", "another reward", "another ranking", "noise in common", "of two",
         "with what was left", "faded"],
)  # fmt: skip
def test_a_row_of_one_observation_is_taken_out_as_a_row(
    rows: ObservedRows, learned: Learned, *, is_alone: bool
) -> None:
    left = take_out(rows, learned)
    assert (left is not None and left.n_rows == 2) == is_alone


def rows_of_one_ranking(contexts: np.ndarray) -> ObservedRows:
    """Return rows that are sums already: half of each has faded."""
    count = len(contexts)
    rows = ObservedRows.of(Observations(contexts, np.tile(OTHER[0], (count, 1)), np.zeros(count)))
    return replace(rows, targets=np.array([np.zeros(count), np.full(count, 0.5)]))


TWO = np.eye(DIM)[:2]


@pytest.mark.parametrize(("square", "weight", "is_taken_out"), [(0.8, 0.5, True), (1.5, 1.0, False), (1.5, 0.5, True)])
def test_rows_hold_no_more_than_all_of_an_observation(square: float, weight: float, *, is_taken_out: bool) -> None:
    """An observation whose context is longer than that of the rows together is none of those they were made of."""
    rows, context = rows_of_one_ranking(TWO), np.sqrt(square / 2.0) * TWO.sum(axis=0)
    learned = alone(context=context, weight=weight)
    assert (take_out(rows, learned) is not None) == is_taken_out
    amended = span_of(rows).amend(rows, learned, 3.0)
    counted = weight if is_taken_out else 1.0 / square
    assert amended.targets[0] == pytest.approx(3.0 * counted * context[:2])


def test_products_of_nothing_real_are_not_taken_in() -> None:
    """The rows know of no reward like this one: a little more of it would leave less than nothing."""
    rows = rows_of_one_ranking(TWO)
    learned = alone(context=TWO[0] * 1.2, targets=np.array([-1.0, 0.6]))
    amended = span_of(rows).amend(rows, learned, 0.01)
    assert amended.targets[0, 0] > 0.0
    assert np.array_equal(amended.leftovers, rows.leftovers)


def test_all_that_a_row_says_is_taken_out_but_for_next_to_nothing() -> None:
    rows = rows_of_one_ranking(TWO)
    left = take_out(rows, alone(context=TWO[0], targets=np.array([0.0, 0.5])))
    assert left is not None
    assert left.noise_shape is not None
    assert left.noise_shape[0, 0] == pytest.approx(1e6, rel=1e-3)
    assert np.isfinite(left.noise_shape).all()


def test_a_context_of_zeros_says_nothing() -> None:
    rows = rows_of_one_ranking(np.zeros((2, DIM)))
    for learned in (alone(context=np.zeros(DIM)), alone(context=np.zeros(DIM), ranking=OTHER[1])):
        amended = span_of(rows).amend(rows, learned, 3.0)
        assert np.array_equal(amended.targets, rows.targets)
    left = take_out(rows, alone(context=np.zeros(DIM)))
    assert left is not None
    assert np.array_equal(left.targets, rows.targets)


def test_what_is_nearly_a_sum_of_the_rows_of_its_ranking_is_none() -> None:
    rows = rows_of_one_ranking(1e-3 * TWO[:1])
    learned = alone(context=np.array([1e-3, 1e-7, 0.0]), weight=0.5)
    assert take_out(rows, learned) is None
    assert take_out(rows, learned._replace(context=rows.contexts[0])) is not None


def test_what_an_observation_has_beside_the_rows_stays_with_the_row_that_it_is_most_of() -> None:
    rows = rows_of_one_ranking(TWO)
    learned = alone(context=0.2 * TWO[0] - 0.9 * TWO[1], targets=np.array([5.0, -0.35]), weight=0.5)
    amended = span_of(rows).amend(rows, learned, 3.0)
    assert np.flatnonzero(amended.leftovers.any(axis=1)).tolist() == [1]


def test_products_that_are_less_than_nothing_by_rounding_are_taken_in() -> None:
    rows = replace(rows_of_one_ranking(TWO), targets=np.array([[100.0, 0.0], [0.5, 0.5]]))
    amended = span_of(rows).amend(rows, alone(context=TWO[0], targets=np.array([99.9995, 0.5])), 1.0)
    assert amended.leftovers[0, 1] == pytest.approx(-1e-3)


def test_rows_that_are_the_same_have_a_factor_beside_one_in_no_context() -> None:
    """What keeps their covariance regular is a part of the largest variance, not of the smallest, which is none."""
    contexts = np.array([TWO[0], TWO[0], np.zeros(DIM)])
    rows = ObservedRows.of(Observations(contexts, np.array([OTHER[0], OTHER[0], OTHER[1]]), np.zeros(3)))
    learned = alone(context=TWO[0], ranking=np.array([6, 7, 8], dtype=np.int32), weight=0.5)
    amended = span_of(rows).amend(rows, learned, 3.0)
    assert np.isfinite(amended.targets).all()
