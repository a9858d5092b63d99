"""Utilities by what became of single items, against a dense mixed model of all outcomes."""

from __future__ import annotations

import math
from dataclasses import fields, replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from scipy.stats import linregress
from tests.learning.outcomes import MANY, MixedModel, added_up, drawn_rows, drawn_study, part_of

from topk_bandit.learning.item_outcomes import ItemOutcomes, ItemUtilities, OutcomeRows, extend_contexts
from topk_bandit.learning.kendall import weighted_convolutional_kendall

if TYPE_CHECKING:
    from typing import Any

    from numpy.typing import NDArray
    from tests.learning.outcomes import Fit, Study

    FloatArray = NDArray[np.float64]

EXACT = 1e-12
KNOWN, UNSHOWN = [0, 2, 3, 5], 20
"""Items that a study knows, one of which no slate shows."""
CASES: dict[str, dict[str, Any]] = {
    "contexts of two numbers": {},
    "contexts of one number of several": {"context_dim": 2},
    "with gaps": {"gaps": 0.3},
    "that fade": {"faded": True},
    "with gaps, that fade": {"gaps": 0.3, "faded": True, "context_dim": 4},
    "items that hardly differ": {"differ": 0.15},
    "items that differ much": {"differ": 6.0},
    "more positions": {"slate_size": 5, "n_items": 9},
    "one position": {"slate_size": 1, "count": 60},
    "contexts that are one number": {"context_dim": 1},
    "contexts that are one large number, with gaps": {"context_dim": 1, "length": 300.0, "gaps": 0.2},
}
each_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
with_study = pytest.mark.parametrize("with_study", [False, True], ids=["no study", "a study"])


def rows_of(case: dict[str, Any], seed: int = 3) -> OutcomeRows:
    return drawn_rows(seed, **{"count": 40, "n_items": 7} | case)


def study_of(rows: OutcomeRows, *, with_study: bool) -> Study | None:
    return drawn_study(1, [*KNOWN, UNSHOWN], rows.extended.shape[1]) if with_study else None


def learned(rows: OutcomeRows, study: Study | None = None) -> ItemUtilities:
    utilities = added_up(rows).learn_utilities(study)
    assert utilities is not None
    return utilities


def assert_agree(utilities: ItemUtilities, model: MixedModel, fit: Fit, *, rtol: float = EXACT) -> None:
    """Hold utilities to be those of a dense model, for the items that have outcomes."""
    shown = np.isin(utilities.items, model.items)
    assert utilities.items[shown].tolist() == model.items
    unit = np.abs(fit.coefficients).max()
    np.testing.assert_allclose(utilities.coefficients[shown], fit.coefficients, rtol=0, atol=rtol * unit)
    np.testing.assert_allclose(utilities.covariances[shown], fit.covariances, rtol=0, atol=rtol * fit.prior.max())
    np.testing.assert_allclose(utilities.prior, fit.prior, rtol=rtol)
    assert utilities.noise == pytest.approx(fit.noise, rel=rtol)
    np.testing.assert_allclose(utilities.intercepts, model.intercepts, rtol=rtol)


def assert_same_sums(one: ItemOutcomes, other: ItemOutcomes, *, atol: float = 1e-11) -> None:
    for name in (field.name for field in fields(ItemOutcomes)):
        np.testing.assert_allclose(getattr(one, name), getattr(other, name), rtol=0, atol=atol, err_msg=name)


@with_study
@each_case
def test_utilities_are_those_of_the_most_likely_mixed_model(case: dict[str, Any], *, with_study: bool) -> None:
    rows = rows_of(case)
    study = study_of(rows, with_study=with_study)
    model = MixedModel(rows, study)
    assert_agree(learned(rows, study), model, model.best())


def test_the_cases_reach_both_shares_and_several_ratios() -> None:
    best = [MixedModel(rows_of(case)).best() for case in CASES.values()]
    assert {fit.share for fit in best} == {0.1, 1.0}
    assert {fit.ratio for fit in best} >= {0.25, 1.0, 4.0}


@pytest.mark.parametrize("seed", range(12))
def test_how_much_items_differ_is_found_from_enough_outcomes(seed: int) -> None:
    """Items differ twice as much as the noise, or a quarter as much: what is found is next to the truth."""
    for differ, ratio in ((2.0, 0.25), (0.25, 16.0)):
        rows = drawn_rows(seed, count=2000, n_items=30, context_dim=2, differ=differ)
        utilities = learned(rows)
        assert utilities.noise == pytest.approx(1.0, rel=0.1)
        assert ratio / 4.0 <= 1.0 / utilities.prior[0, 0] <= ratio * 4.0


@with_study
@pytest.mark.parametrize("length", [1e-6, 0.01, 1e3, 1e6])
@pytest.mark.parametrize("context_dim", [1, 3])
def test_the_unit_of_contexts_does_not_matter(context_dim: int, length: float, *, with_study: bool) -> None:
    rows = rows_of({"context_dim": context_dim})
    units = np.array([length] if context_dim == 1 else [1.0, length, length])
    study = study_of(rows, with_study=with_study)
    in_units = None if study is None else (study[0], study[1] / units)
    found, expected = learned(rows._replace(extended=rows.extended * units), in_units), learned(rows, study)
    np.testing.assert_allclose(found.coefficients * units, expected.coefficients, rtol=1e-9)
    np.testing.assert_allclose(found.covariances * np.outer(units, units), expected.covariances, atol=1e-9)
    assert found.noise == pytest.approx(expected.noise, rel=1e-9)


@pytest.mark.parametrize("length", [0.0, 5e-324, 1e-200, 1e-160, 1e-60])
def test_contexts_of_zeros_say_nothing_of_items_but_what_these_are_in_any_context(length: float) -> None:
    rows = rows_of({"gaps": 0.1})
    zeros = rows._replace(extended=rows.extended * np.array([1.0, length, length]))
    utilities = learned(zeros)
    alone = learned(rows._replace(extended=np.ones((len(rows.rewards), 1))))
    np.testing.assert_allclose(utilities.coefficients[:, 0], alone.coefficients[:, 0], rtol=1e-9)
    np.testing.assert_allclose(utilities.covariances[:, 0, 0], alone.covariances[:, 0, 0], rtol=1e-9)
    np.testing.assert_allclose(utilities.coefficients[:, 1:], 0.0, atol=1e-50)
    nothing = learned(rows._replace(extended=length * np.ones((len(rows.rewards), 1))))
    assert np.isfinite(nothing.own_parts(rows._replace(extended=np.ones((len(rows.rewards), 1))))).all()


def test_an_item_that_only_a_study_knows_is_what_the_study_says_of_all() -> None:
    rows = rows_of({})
    study = drawn_study(1, [*KNOWN, UNSHOWN])
    utilities, fit = learned(rows, study), MixedModel(rows, study).best()
    assert utilities.items.tolist() == [*range(7), UNSHOWN]
    np.testing.assert_allclose(utilities.coefficients[-1], fit.common[:3] + fit.common[3] * study[1][-1], rtol=EXACT)
    np.testing.assert_allclose(utilities.covariances[-1], fit.prior, rtol=EXACT)


def test_a_study_of_other_items_says_nothing_of_these() -> None:
    rows, study = rows_of({}), drawn_study(1, [UNSHOWN, UNSHOWN + 1])
    utilities, without = learned(rows, study), learned(rows)
    assert utilities.items.tolist() == [*range(7), UNSHOWN, UNSHOWN + 1]
    np.testing.assert_array_equal(utilities.coefficients[:7], without.coefficients)
    np.testing.assert_allclose(utilities.coefficients[7:], np.tile(MixedModel(rows).best().common, (2, 1)), rtol=1e-9)


def test_a_study_of_nobody_is_none() -> None:
    rows = rows_of({})
    for nothing in (drawn_study(1, []), (np.arange(7, dtype=np.int32), np.zeros((7, 3)))):
        np.testing.assert_array_equal(learned(rows, nothing).coefficients, learned(rows).coefficients)


def test_a_study_that_is_right_is_believed() -> None:
    """What it says of items, in whatever unit, is the centre of their utilities."""
    rows = drawn_rows(5, count=600, n_items=30)
    every, found = np.arange(30, dtype=np.int32), learned(rows)
    study = every, found.coefficients / 7.0 - 3.0
    assert np.trace(learned(rows, study).prior) < 0.02 * np.trace(found.prior)
    few = part_of(rows, slice(14))
    unshown = np.setdiff1d(every, few.rankings)
    guessed = learned(few, study).coefficients[unshown, 0]
    assert len(unshown) > 5
    assert np.corrcoef(guessed, found.coefficients[unshown, 0])[0, 1] > 0.95


@pytest.mark.parametrize("seed", range(3))
def test_outcomes_come_in_any_parts(seed: int) -> None:
    rows = rows_of({"gaps": 0.2, "faded": True}, seed)
    whole, parts = added_up(rows), ItemOutcomes.none(3, 3)
    for number in range(len(rows.rewards)):
        parts = parts.plus(part_of(rows, slice(number, number + 1)), most_items=MANY)
    assert_same_sums(parts, whole)
    halves = added_up(part_of(rows, slice(25))).plus(part_of(rows, slice(25, None)), most_items=MANY)
    assert_same_sums(halves, whole)


def test_sums_are_what_their_names_say() -> None:
    rows = rows_of({"gaps": 0.3, "faded": True})
    sums, model = added_up(rows), MixedModel(rows)
    squares, shifts, shown = np.zeros((7, 3, 3)), np.zeros((7, 3)), np.zeros((7, 3, 3))
    of_positions, of_slates = np.zeros((3, 3)), np.zeros(6)
    for row, p in model.entries:
        item, outcome, weight = rows.rankings[row, p], rows.outcomes[row, p], rows.weights[row]
        scaled = rows.extended[row] / math.log2(p + 2)
        squares[item] += weight * np.outer(scaled, scaled)
        shifts[item] += weight * outcome * scaled
        shown[item, p] += weight * scaled
        of_positions[:, p] += weight * outcome ** np.arange(3)
    for row, reward in enumerate(rows.rewards.tolist()):
        if not np.isnan(rows.outcomes[row]).all():
            t = np.nansum(rows.outcomes[row])
            of_slates += rows.weights[row] * np.array([1.0, t, reward, t * t, t * reward, reward * reward])
    expected = ItemOutcomes(np.arange(7, dtype=np.int32), squares, shifts, shown, of_positions, of_slates)
    assert_same_sums(sums, expected)
    assert np.isnan(rows.outcomes).all(axis=1).any(), "no slate of which nothing is known"


def test_weights_below_zero_take_outcomes_away() -> None:
    rows = rows_of({"gaps": 0.2, "faded": True})
    first, last = part_of(rows, slice(30)), part_of(rows, slice(30, None))
    left = added_up(rows).plus(last._replace(weights=-last.weights), most_items=MANY)
    assert_same_sums(left, added_up(first))
    before, after = learned(first), left.learn_utilities()
    assert after is not None
    np.testing.assert_allclose(after.coefficients, before.coefficients, atol=1e-9)
    nothing = added_up(rows).plus(rows._replace(weights=-rows.weights), most_items=MANY)
    assert_same_sums(nothing, added_up(rows).fade(0.0))
    assert nothing.learn_utilities() is None


def test_a_slate_of_no_weight_adds_nothing_at_all() -> None:
    rows = rows_of({})
    more = OutcomeRows(np.ones((1, 3)), np.array([[30, 31, 32]]), np.ones((1, 3)), np.zeros(1), np.ones(1))
    assert_same_sums(added_up(rows).plus(more, most_items=MANY), added_up(rows), atol=0.0)


@pytest.mark.parametrize("weight", [1.0, 0.25])
def test_what_fades_is_as_if_each_slate_had_counted_for_less(weight: float) -> None:
    rows = rows_of({"gaps": 0.2})
    faded = added_up(rows).fade(weight)
    assert_same_sums(faded, added_up(rows._replace(weights=weight * rows.weights)))


def test_without_some_items_the_others_and_the_positions_stay() -> None:
    rows = rows_of({"gaps": 0.2})
    gone = np.array([1, 4, 30], dtype=np.int32)
    whole, left = added_up(rows), added_up(rows).without(gone)
    assert left.items.tolist() == [0, 2, 3, 5, 6]
    for name in ("squares", "shifts", "shown"):
        np.testing.assert_array_equal(getattr(left, name), getattr(whole, name)[left.items])
    np.testing.assert_array_equal(left.by_position, whole.by_position)
    np.testing.assert_array_equal(left.with_rewards, whole.with_rewards)
    assert whole.without(np.array([30], dtype=np.int32)) is whole


def test_other_contexts_are_as_if_outcomes_had_come_in_these() -> None:
    rows = rows_of({"gaps": 0.2, "faded": True})
    images = np.random.default_rng(4).normal(size=(3, 5))
    assert_same_sums(added_up(rows).with_contexts(images), added_up(rows._replace(extended=rows.extended @ images)))


@pytest.mark.parametrize("context_dim", [1, 2])
def test_contexts_of_one_number_are_taken_as_they_are_and_others_get_a_one(context_dim: int) -> None:
    contexts = np.array([[2.0], [3.0]])
    extended = extend_contexts(contexts, context_dim=context_dim)
    assert extended.tolist() == ([[2.0], [3.0]] if context_dim == 1 else [[1.0, 2.0], [1.0, 3.0]])


def test_of_more_items_than_there_is_space_for_nothing_is_kept() -> None:
    rows, first = rows_of({"gaps": 0.1}), 0
    known = np.unique(rows.rankings[first][~np.isnan(rows.outcomes[first])])
    sums = added_up(part_of(rows, slice(first, first + 1)), most_items=len(known))
    sums = sums.plus(part_of(rows, slice(first + 1, None)), most_items=len(known) + 1)
    kept = [*known.tolist(), min(set(range(7)) - set(known.tolist()))]
    assert sums.items.tolist() == sorted(kept)
    among = np.where(np.isin(rows.rankings, kept), rows.outcomes, np.nan)
    expected = added_up(rows._replace(outcomes=among))
    assert_same_sums(
        ItemOutcomes(*(getattr(sums, one.name) for one in fields(sums)[:5]), expected.with_rewards), expected
    )
    np.testing.assert_allclose(sums.with_rewards, added_up(rows).with_rewards)


@pytest.mark.parametrize("value", [0.0, 1.0, 1000.1, -3e99])
def test_outcomes_that_are_all_equal_say_nothing(value: float) -> None:
    rows = rows_of({"gaps": 0.2})
    equal = np.where(np.isnan(rows.outcomes), np.nan, value)
    assert added_up(rows._replace(outcomes=equal)).learn_utilities() is None
    by_position = np.where(np.isnan(rows.outcomes), np.nan, value + np.arange(3.0))
    assert added_up(rows._replace(outcomes=by_position)).learn_utilities() is None


SIZES = (5e-324, 1e-320, 1e-200, 1e-161, 1e-150, 1e-101, 1e-99, 1e-30, 1e30, 1e99, 1e100)


@pytest.mark.parametrize("of_rewards", [1e-100, 1.0, 1e100])
@pytest.mark.parametrize("size", SIZES)
def test_outcomes_of_any_size_give_finite_utilities_or_none(size: float, of_rewards: float) -> None:
    rows = rows_of({"gaps": 0.2})
    sized = rows._replace(outcomes=size * rows.outcomes, rewards=of_rewards * rows.rewards)
    utilities = added_up(sized).learn_utilities()
    if size > 1e-40 and of_rewards == 1.0:
        assert utilities is not None
        np.testing.assert_allclose(utilities.coefficients / size, learned(rows).coefficients, rtol=1e-6)
    if utilities is not None:
        prior_mean = utilities.prior_mean(weighted_convolutional_kendall(9, 3), context_dim=2)
        assert all(np.isfinite(number).all() for number in prior_mean.numbers)
        assert np.isfinite(utilities.own_parts(sized)).all()
    assert utilities is None or size > 1e-150


def test_items_that_all_left_have_no_utilities() -> None:
    assert added_up(rows_of({})).without(np.arange(7, dtype=np.int32)).learn_utilities(drawn_study(1, KNOWN)) is None
    assert added_up(rows_of({}), most_items=0).learn_utilities() is None


def test_nothing_is_learned_from_nothing_nor_from_a_few_slates() -> None:
    rows = rows_of({})
    assert ItemOutcomes.none(3, 3).learn_utilities() is None
    assert added_up(part_of(rows, slice(7))).learn_utilities() is None
    assert added_up(part_of(rows, slice(8))).learn_utilities() is not None


def test_intercepts_of_positions_are_no_utility() -> None:
    """That upper positions have larger outcomes says nothing of the items that are shown there."""
    rows = rows_of({})
    higher = rows._replace(outcomes=rows.outcomes + np.array([50.0, -20.0, 3.0]))
    one, other = learned(rows), learned(higher)
    np.testing.assert_allclose(one.coefficients, other.coefficients, atol=1e-9)
    np.testing.assert_allclose(other.intercepts - one.intercepts, [50.0, -20.0, 3.0])
    assert one.noise == pytest.approx(other.noise, rel=1e-9)


@with_study
@pytest.mark.parametrize("weight", [1.0, 0.3])
@pytest.mark.parametrize("case", [{"gaps": 0.2}, {"context_dim": 2, "count": 15}], ids=["many", "few"])
def test_a_slate_s_own_part_is_what_utilities_are_larger_by_with_its_outcomes(
    case: dict[str, Any], weight: float, *, with_study: bool
) -> None:
    """Utilities by all outcomes but the slate's, with centres, intercepts and noise as they are."""
    rows = rows_of(case)
    rows = rows._replace(weights=np.where(np.arange(len(rows.weights)) % 2, 1.0, weight))
    study = study_of(rows, with_study=with_study)
    utilities, fit, sums = learned(rows, study), MixedModel(rows, study).best(), added_up(rows)
    own, beliefs = utilities.own_parts(rows), MixedModel(rows, study).beliefs
    expected = np.zeros(own.shape)
    for row, p in MixedModel(rows).entries:
        item, d = int(rows.rankings[row, p]), rows.extended.shape[1]
        scaled, centre = rows.extended[row] / math.log2(p + 2), fit.common[:d].copy()
        if with_study:
            centre += fit.common[d] * beliefs[item]
        others = sums.squares[item] - rows.weights[row] * np.outer(scaled, scaled)
        shifts = sums.shifts[item] - utilities.intercepts @ sums.shown[item]
        shifts = shifts - rows.weights[row] * scaled * (rows.outcomes[row, p] - utilities.intercepts[p])
        without = centre + np.linalg.solve(others + np.linalg.inv(fit.prior), shifts - others @ centre)
        expected[row, p] = rows.extended[row] @ (fit.coefficients[item] - without)
    np.testing.assert_allclose(own, expected / unit_of(utilities), atol=1e-9)
    assert not own[np.isnan(rows.outcomes)].any()


def unit_of(utilities: ItemUtilities) -> float:
    """Return how many times as large utilities are as those of a prior mean for position weights of length one."""
    kernel = weighted_convolutional_kendall(30, 3)
    dim = utilities.coefficients.shape[1]
    prior_mean = utilities.prior_mean(kernel, context_dim=dim)
    in_context = prior_mean.constants[:-1] * float(np.linalg.norm(prior_mean.position_weights))
    first, last = np.argmin(utilities.coefficients[:, 0]), np.argmax(utilities.coefficients[:, 0])
    raw = utilities.coefficients[last, 0] - utilities.coefficients[first, 0]
    return float(raw / (in_context[last] - in_context[first]))


def test_items_of_which_no_outcome_is_known_have_no_own_part() -> None:
    rows = rows_of({})
    other = OutcomeRows(np.ones((1, 3)), np.array([[30, 2, 31]]), np.full((1, 3), 5.0), np.ones(1), np.ones(1))
    own = learned(rows).own_parts(other)
    assert own[0, [0, 2]].tolist() == [0.0, 0.0]
    assert own[0, 1] != 0.0


def test_a_leverage_of_one_is_no_division_by_nothing() -> None:
    """Rounding may make it that where an outcome is nearly all that is known of its item."""
    utilities = learned(rows_of({}))
    alone = OutcomeRows(np.eye(3)[:1], np.array([[0, 30, 31]]), np.full((1, 3), 5.0), np.ones(1), np.ones(1))
    for covariance in (1.0, 1.0 + 1e-15):
        certain = replace(utilities, covariances=np.tile(covariance * np.eye(3), (7, 1, 1)))
        residual = 5.0 - utilities.intercepts[0] - utilities.coefficients[0, 0]
        own = certain.own_parts(alone)[0, 0] * unit_of(certain)
        assert own == pytest.approx(1e6 * residual)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("gaps", [0.0, 0.3])
def test_the_worth_is_the_regression_of_rewards_on_outcomes_give_or_take_a_half(seed: int, gaps: float) -> None:
    rows = rows_of({"gaps": gaps}, seed)
    some = ~np.isnan(rows.outcomes).all(axis=1)
    line = linregress(np.nansum(rows.outcomes, axis=1)[some], rows.rewards[some])
    worth = learned(rows).worth
    assert worth.in_rewards
    assert worth.mean == pytest.approx(line.slope)
    assert worth.variance == pytest.approx((0.5 * line.slope) ** 2 + line.stderr**2)


def test_a_slate_that_counts_twice_is_two_of_it() -> None:
    rows = rows_of({})
    twice = OutcomeRows(*(np.concatenate([array, array[:9]]) for array in rows))
    weighted = rows._replace(weights=np.where(np.arange(40) < 9, 2.0, 1.0))
    one, other = learned(weighted), learned(twice)
    assert one.worth.mean == pytest.approx(other.worth.mean)
    assert one.worth.variance == pytest.approx(other.worth.variance)
    np.testing.assert_allclose(one.coefficients, other.coefficients, atol=1e-9)


def test_rewards_that_are_their_outcomes_have_a_worth_of_one() -> None:
    rows = rows_of({})
    worth = learned(rows._replace(rewards=3.0 + rows.outcomes.sum(axis=1))).worth
    assert worth.mean == pytest.approx(1.0)
    assert worth.variance == pytest.approx(0.25)
    other = learned(rows._replace(rewards=np.full(40, 2.0))).worth
    assert other.mean == pytest.approx(0.0, abs=1e-12)
    assert other.variance == pytest.approx(0.0, abs=1e-12)


def test_outcomes_that_add_up_to_the_same_in_each_slate_have_no_worth_that_is_known() -> None:
    rows = rows_of({})
    level = rows.outcomes - rows.outcomes.mean(axis=1, keepdims=True) + 1.0
    assert added_up(rows._replace(outcomes=level)).learn_utilities() is None


@with_study
def test_a_prior_mean_has_unit_variance_before_any_outcome(*, with_study: bool) -> None:
    """Utilities and what is uncertain of them, drawn in contexts of norm 1 from all directions."""
    rows = rows_of({"n_items": 12})
    utilities = learned(rows, study_of(rows, with_study=with_study))
    prior_mean = utilities.prior_mean(weighted_convolutional_kendall(30, 3), context_dim=2)
    angles = np.linspace(0.0, 2.0 * np.pi, 13)[:-1]
    g = prior_mean.position_weights
    of_items = []
    for context in np.column_stack([np.cos(angles), np.sin(angles)]):
        variances = prior_mean.variances(context, utilities.items)
        assert variances is not None
        of_items.append(np.mean(prior_mean.utilities(context, utilities.items) ** 2 + variances))
    assert np.mean(of_items) * (g @ g) == pytest.approx(1.0)


@pytest.mark.parametrize("context_dim", [1, 3, 4])
def test_a_prior_mean_is_the_utilities_in_its_own_unit(context_dim: int) -> None:
    """Of four numbers the last one is shared by all contexts, and tells nothing of it."""
    rows = rows_of({"context_dim": 1 if context_dim == 1 else 4})
    utilities, kernel = learned(rows), weighted_convolutional_kendall(10, 3)
    prior_mean = utilities.prior_mean(kernel, context_dim=context_dim)
    contexts = np.random.default_rng(2).normal(size=(5, context_dim))
    raw = extend_contexts(contexts[:, :3], context_dim=context_dim) @ utilities.coefficients.T
    for context, of_items in zip(contexts, raw, strict=True):
        found = prior_mean.utilities(context, np.arange(7))
        unit = np.ptp(of_items) / np.ptp(found)
        np.testing.assert_allclose((found - found[0]) * unit, of_items - of_items[0], atol=1e-9)
        extended = context if context_dim == 1 else np.append(1.0, context[:3])
        expected = [utilities.noise * extended @ one @ extended for one in utilities.covariances]
        variances = prior_mean.variances(context, np.arange(10))
        assert variances is not None
        np.testing.assert_allclose(variances[:7] * unit**2, expected, rtol=1e-9)
        np.testing.assert_allclose(variances[7:] * unit**2, utilities.noise * extended @ utilities.prior @ extended)
        assert prior_mean.utilities(context, np.arange(7, 10)).tolist() == [0.0] * 3


@pytest.mark.parametrize("seed", range(3))
def test_the_worth_of_a_prior_mean_is_what_outcomes_are_worth_in_rewards(seed: int) -> None:
    """Rewards are w times the outcomes, whose expectation is a_p u_p: so w sum a_p u_p is the slope times h."""
    rows = rows_of({}, seed)
    utilities, kernel = learned(rows), weighted_convolutional_kendall(2000, 3)
    prior_mean = utilities.prior_mean(kernel, context_dim=2)
    assert prior_mean.worth is not None
    slates = np.array([np.random.default_rng(n).permutation(7)[:3] for n in range(50)], dtype=np.int32)
    context = np.array([0.4, -1.2])
    discounts = 1.0 / np.log2(np.arange(3) + 2.0)
    expected = utilities.worth.mean * (utilities.coefficients @ np.append(1.0, context))[slates] @ discounts
    found = prior_mean.worth.mean * prior_mean.of_slates(context, slates)
    # Under this kernel g falls nearly as the discounts do, so that the two lines are nearly one.
    line = linregress(found, expected)
    assert line.rvalue > 0.99
    assert line.slope == pytest.approx(1.0, abs=0.1)
    assert prior_mean.worth.variance / prior_mean.worth.mean**2 == pytest.approx(
        utilities.worth.variance / utilities.worth.mean**2
    )
