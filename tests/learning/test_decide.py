"""A decision: what is chosen, how probable it was, and what is said about it."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
import pytest
from scipy.stats import chisquare
from tests.learning.dense import WCK, Sample, rankings_of, sample

from topk_bandit.domain.bandits import ConstantBeta, Exploration, PaperBeta
from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.learning.acquisition import paper_beta
from topk_bandit.learning.decisions import DRAW_WIDTH, FEW_ITEMS, Decision, decide, search_best
from topk_bandit.learning.item_draws import ItemDraws
from topk_bandit.learning.limits import Limits
from topk_bandit.learning.policy import State
from topk_bandit.learning.rankings import all_rankings

if TYPE_CHECKING:
    from numpy.typing import NDArray

CONTEXT = np.array([0.6, -0.7])


def learned(n_items: int, slate_size: int, *, count: int = 25, seed: int = 0) -> State:
    rng = np.random.default_rng(seed)
    data: Sample = sample(WCK, rng, n_items=n_items, slate_size=slate_size, context_dim=2, count=count)
    state = State.initial(WCK.make(n_items, slate_size), context_dim=2, limits=Limits())
    for place, (context, ranking, reward) in enumerate(zip(*data.rows, strict=True)):
        state = state.rewarded(str(place), context, ranking, reward=float(reward))
    for place, ranking in enumerate(rankings_of(n_items, slate_size, 3, rng)):
        state = state.shown(f"waiting-{place}", CONTEXT, ranking)
    return state


def ask(
    state: State, *, share: float, seed: int, eligible: NDArray[np.int32] | None = None, beta: float = 1.0
) -> Decision:
    items = np.arange(state.posterior.kernel.n_items, dtype=np.int32) if eligible is None else eligible
    exploration = Exploration(ConstantBeta(beta), uniform_share=share)
    return decide(state, exploration, context=CONTEXT, eligible=items, rng=np.random.default_rng(seed))


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.3, 1.0])
def test_slates_are_as_frequent_as_their_propensities_say(share: float) -> None:
    state = learned(4, 2)
    best = tuple(ask(state, share=0.0, seed=0).ranking.tolist())
    decisions = [ask(state, share=share, seed=seed) for seed in range(2000)]
    counts = Counter(tuple(decision.ranking.tolist()) for decision in decisions)
    said = {tuple(decision.ranking.tolist()): decision.propensity for decision in decisions}
    slates = [tuple(row) for row in all_rankings(np.arange(4), slate_size=2).tolist()]
    assert set(counts) == set(slates)
    for decision in decisions:
        assert decision.propensity == said[tuple(decision.ranking.tolist())]
    for slate in slates:
        assert said[slate] == pytest.approx(share / 12 + (1.0 - share) * (slate == best))
    assert math.fsum(said.values()) == pytest.approx(1.0)
    test = chisquare([counts[slate] for slate in slates], [2000 * said[slate] for slate in slates])
    assert test.pvalue > 1e-3
    explored = sum(decision.explored for decision in decisions)
    assert abs(explored - 2000 * share) <= 4.0 * math.sqrt(2000 * share * (1.0 - share)) + 1e-9


def test_without_a_share_the_same_slate_is_certain() -> None:
    state = learned(4, 2)
    decisions = [ask(state, share=0.0, seed=seed) for seed in range(200)]
    assert len({tuple(decision.ranking.tolist()) for decision in decisions}) == 1
    assert {decision.propensity for decision in decisions} == {1.0}
    assert not any(decision.explored for decision in decisions)


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_the_best_slate_does_not_depend_on_the_generator(share: float) -> None:
    state = learned(20, 4, count=60)
    best = ask(state, share=0.0, seed=0)
    exploited = [each for seed in range(40) if not (each := ask(state, share=share, seed=seed)).explored]
    assert len(exploited) >= 10
    for decision in exploited:
        assert decision.ranking.tolist() == best.ranking.tolist()
        assert (decision.mean, decision.standard_deviation) == (best.mean, best.standard_deviation)
        assert (decision.regret_bound, decision.evaluations) == (best.regret_bound, best.evaluations)


def test_the_same_generator_repeats_the_decision() -> None:
    state = learned(20, 4, count=60)
    for seed in range(10):
        one, other = ask(state, share=0.5, seed=seed), ask(state, share=0.5, seed=seed)
        assert one.ranking.tolist() == other.ranking.tolist()
        assert (one.propensity, one.explored) == (other.propensity, other.explored)


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_only_eligible_items_are_shown(share: float) -> None:
    state = learned(20, 3, count=60)
    eligible = np.array([1, 4, 5, 13, 19], dtype=np.int32)
    shown = set()
    for seed in range(200):
        decision = ask(state, share=share, seed=seed, eligible=eligible)
        assert len(set(decision.ranking.tolist())) == 3
        shown.update(decision.ranking.tolist())
        assert decision.propensity == pytest.approx(1.0 / 60.0 if share else 1.0)
    assert shown == set(eligible.tolist()) if share else shown <= set(eligible.tolist())


def test_a_slate_of_every_eligible_item_is_an_order_of_them() -> None:
    eligible = np.array([2, 3, 9], dtype=np.int32)
    decision = ask(learned(12, 3), share=0.0, seed=0, eligible=eligible)
    assert sorted(decision.ranking.tolist()) == [2, 3, 9]


@pytest.mark.parametrize("share", [0.0, 1.0])
@pytest.mark.parametrize("beta", [0.0, 1.0, 9.0])
def test_the_figures_are_those_of_the_slate_shown(share: float, beta: float) -> None:
    everything = all_rankings(np.arange(4), slate_size=2)
    for seed in range(5):
        state = learned(4, 2, seed=seed)
        decision = ask(state, share=share, seed=seed, beta=beta)
        moments = state.predict(CONTEXT, everything, with_pending=False)
        place = everything.tolist().index(decision.ranking.tolist())
        assert decision.mean == pytest.approx(moments.mean[place])
        assert decision.standard_deviation == pytest.approx(math.sqrt(moments.variance[place]))
        # What is known to be lost is part of both.
        assert decision.estimated_regret >= 0.5 * (moments.mean.max() - moments.mean[place])
        assert decision.regret_bound >= 0.5 * (moments.mean.max() - moments.mean[place])


@pytest.mark.parametrize("beta", [0.0, 1.0])
def test_slates_that_wait_for_their_rewards_tell_nothing_yet(beta: float) -> None:
    """What is on screen narrows what to explore next; a slate's figures depend on rewards alone."""
    state = learned(4, 2)
    before = ask(state, share=0.0, seed=0, beta=beta)
    waiting = state
    for count in range(30):
        waiting = waiting.shown(f"more-{count}", CONTEXT, before.ranking)
    after = ask(waiting, share=0.0, seed=0, beta=0.0)
    known = state.predict(CONTEXT, after.ranking[None], with_pending=False)
    assert after.standard_deviation == pytest.approx(math.sqrt(known.variance[0]))
    assert waiting.predict(CONTEXT, before.ranking[None]).variance[0] < 0.5 * before.standard_deviation**2
    figures = [ask(one, share=0.0, seed=0, beta=0.0) for one in (state, waiting)]
    assert figures[0].ranking.tolist() == figures[1].ranking.tolist()
    assert figures[1].regret_bound == pytest.approx(figures[0].regret_bound, rel=0.5)


def test_the_bound_does_not_hang_on_how_much_is_explored() -> None:
    state = learned(20, 4, count=60)
    figures = [ask(state, share=1.0, seed=3, beta=beta) for beta in (0.0, 1.0, 25.0)]
    assert len({tuple(decision.ranking.tolist()) for decision in figures}) == 1
    bounds = [decision.regret_bound for decision in figures]
    assert max(bounds) <= 1.25 * min(bounds)


def test_the_slate_is_the_best_of_a_draw_and_a_bound() -> None:
    """The exhaustive optimum of what the state's own numbers draw."""
    everything, eligible = all_rankings(np.arange(9), slate_size=3), np.arange(9, dtype=np.int32)
    reached = 0
    for seed in range(20):
        state = learned(9, 3, seed=seed)
        draws = ItemDraws(state.posterior.at(CONTEXT, eligible))
        rng = np.random.default_rng([state.observations, state.posterior.n_pending, 9])
        drawn = draws.shift(DRAW_WIDTH * 1.5, rng).moments(everything)
        values = drawn.mean + 1.5 * np.sqrt(drawn.variance)
        shown = everything.tolist().index(ask(state, share=0.0, seed=seed, beta=2.25).ranking.tolist())
        reached += values[shown] >= values.max() - 1e-5
    assert reached >= 18


def test_another_state_draws_anew_and_the_first_slate_is_what_is_believed() -> None:
    state, shown = learned(20, 4, count=60), set()
    for number in range(12):
        shown.add(tuple(ask(state, share=0.0, seed=0).ranking.tolist()))
        state = state.rewarded(f"more-{number}", 1e-9 * CONTEXT, np.arange(4, dtype=np.int32), reward=0.0)
    assert len(shown) >= 2
    nothing = State.initial(WCK.make(9, 3), context_dim=2, limits=Limits())
    assert ask(nothing, share=0.0, seed=0).mean == 0.0


def test_no_regret_is_negative() -> None:
    for seed in range(30):
        state = learned(15, 3, seed=seed, count=seed)
        for share in (0.0, 1.0):
            for beta in (0.0, 1.0):
                decision = ask(state, share=share, seed=seed, beta=beta)
                assert decision.regret_bound >= 0.0
                assert decision.estimated_regret >= 0.0
                assert decision.standard_deviation >= 0.0
                assert decision.evaluations > 0


def test_nothing_learned_still_gives_a_slate() -> None:
    state = State.initial(WCK.make(8, 3), context_dim=2, limits=Limits())
    decision = ask(state, share=0.0, seed=0)
    assert len(set(decision.ranking.tolist())) == 3
    assert decision.mean == 0.0
    assert decision.standard_deviation == pytest.approx(float(np.linalg.norm(CONTEXT)))


def test_the_paper_s_width_grows_with_the_slates_and_the_rewards() -> None:
    state = learned(4, 2)
    exploration = Exploration(PaperBeta(0.5), uniform_share=0.0)
    eligible = np.arange(4, dtype=np.int32)
    decision = decide(state, exploration, context=CONTEXT, eligible=eligible, rng=np.random.default_rng(0))
    beta = paper_beta(0.5, log_n_arms=math.log(12), round_number=26)
    constant = ask(state, share=0.0, seed=0, beta=beta)
    assert decision.ranking.tolist() == constant.ranking.tolist()
    assert decision.regret_bound == pytest.approx(constant.regret_bound)


@pytest.mark.parametrize(
    ("capacity", "shown", "eligible", "n_items"),
    [
        pytest.param(12, 12, range(12), 12, id="few"),
        pytest.param(5000, 12, range(20), 20, id="few-of-many-places"),
        pytest.param(200, 40, range(40, 50), 50, id="as-many-as-are-few"),
        pytest.param(200, 40, range(30, 200), 200, id="many"),
        pytest.param(200, 180, range(100, 110), 180, id="few-of-many-that-were-shown"),
    ],
)
def test_the_schedule_is_narrower_where_there_are_many_items(
    capacity: int, shown: int, eligible: range, n_items: int
) -> None:
    """Items are the first ones, which rows show, and the eligible ones; places without an item are none."""
    state, rng = State.initial(WCK.make(capacity, 4), context_dim=2, limits=Limits()), np.random.default_rng(0)
    for number, ranking in enumerate(np.arange(shown, dtype=np.int32).reshape(-1, 4)):
        state = state.rewarded(str(number), CONTEXT, ranking, reward=float(rng.normal()))
    items = np.array(eligible, dtype=np.int32)
    constant, growing = (
        search_best(state, Exploration(beta, uniform_share=0.0), state.encode(CONTEXT), items).beta
        for beta in (ConstantBeta(4.0), PaperBeta(0.5))
    )
    paper = paper_beta(0.5, log_n_arms=math.log(math.perm(len(items), 4)), round_number=shown // 4 + 1)
    assert constant == 4.0
    assert growing == pytest.approx(paper * math.sqrt(min(1.0, FEW_ITEMS / n_items)))


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_equal_rewards_do_not_stop_exploration(value: float) -> None:
    state = State.initial(WCK.make(6, 2), context_dim=1, limits=Limits())
    exploration = Exploration(ConstantBeta(1.0), uniform_share=0.0)
    shown: list[tuple[int, ...]] = []
    for place in range(60):
        rng = np.random.default_rng(place)
        decision = decide(state, exploration, context=np.ones(1), eligible=np.arange(6, dtype=np.int32), rng=rng)
        assert decision.standard_deviation > 0.0
        shown.append(tuple(decision.ranking.tolist()))
        state = state.rewarded(str(place), np.ones(1), decision.ranking, reward=value)
    assert len(set(shown)) >= 15
    assert {item for slate in shown[-30:] for item in slate} == set(range(6))


def test_slates_on_screen_are_not_shown_again_at_once() -> None:
    state = State.initial(WCK.make(10, 3), context_dim=1, limits=Limits())
    exploration = Exploration(ConstantBeta(1.0), uniform_share=0.0)
    shown = []
    for place in range(20):
        rng = np.random.default_rng(0)
        decision = decide(state, exploration, context=np.ones(1), eligible=np.arange(10, dtype=np.int32), rng=rng)
        shown.append(tuple(decision.ranking.tolist()))
        state = state.shown(str(place), np.ones(1), decision.ranking)
    assert len(set(shown)) == 20


@pytest.mark.parametrize(("n_items", "slate_size"), [(3, 2), (6, 3)])
@pytest.mark.parametrize(("norm", "spread"), [(1e-3, 0.0), (1.0, 1e-5), (1e6, 0.0), (1e6, 1e-5)])
def test_contexts_of_any_size_leave_every_figure_finite(
    n_items: int, slate_size: int, norm: float, spread: float
) -> None:
    state = State.initial(WCK.make(n_items, slate_size), context_dim=3, limits=Limits())
    exploration = Exploration(ConstantBeta(1.0), uniform_share=0.0)
    eligible, customers = np.arange(n_items, dtype=np.int32), np.random.default_rng(0).normal(size=(4, 3))
    customers *= norm / np.linalg.norm(customers, axis=1, keepdims=True)
    for place in range(64):
        rng = np.random.default_rng(place)
        context = customers[place % 4] * (1.0 + spread * rng.normal(size=3))
        decision = decide(state, exploration, context=context, eligible=eligible, rng=rng)
        assert math.isfinite(decision.mean)
        assert 0.0 <= decision.standard_deviation <= norm * (1.0 + 1e-4)
        assert 0.0 <= decision.regret_bound < math.inf
        state = state.shown(str(place), context, decision.ranking)


def test_too_few_eligible_items_are_refused_by_name() -> None:
    state = learned(8, 3)
    for eligible in ([], [2, 5]):
        with pytest.raises(InvalidArgumentError) as caught:
            ask(state, share=0.0, seed=0, eligible=np.array(eligible, dtype=np.int32))
        assert caught.value.field == "eligible"


@pytest.mark.parametrize(
    "eligible", [[3, 1, 2, 0], [0, 1, 1, 2], [-1, 0, 1, 2], [0, 1, 2, 8]], ids=["order", "twice", "negative", "range"]
)
def test_eligible_items_that_are_none_are_refused_by_name(eligible: list[int]) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        ask(learned(8, 3), share=0.0, seed=0, eligible=np.array(eligible, dtype=np.int32))
    assert caught.value.field in {"eligible", "items"}


@pytest.mark.parametrize("context", [[1.0], [1.0, 2.0, 3.0], [1.0, np.nan], [[1.0, 0.0], [0.0, 1.0]]])
def test_a_context_that_cannot_be_used_is_refused_by_name(context: object) -> None:
    state, exploration = learned(8, 3), Exploration(ConstantBeta(1.0), 0.0)
    items, rng = np.arange(8, dtype=np.int32), np.random.default_rng(0)
    with pytest.raises(InvalidArgumentError) as caught:
        decide(state, exploration, context=np.array(context), eligible=items, rng=rng)
    assert caught.value.field == "context"


@pytest.mark.usefixtures("without_draws")
def test_items_that_were_never_shown_stand_for_each_other() -> None:
    everything = all_rankings(np.arange(30), slate_size=2)
    eligible = np.arange(30, dtype=np.int32)
    for seed in range(20):
        few = learned(6, 2, seed=seed, count=seed)
        state = State.initial(WCK.make(30, 2), context_dim=2, limits=Limits())
        for place, (context, ranking, reward) in enumerate(zip(*few.posterior.observations, strict=True)):
            state = state.rewarded(str(place), context, ranking, reward=float(reward))
        moments = state.predict(CONTEXT, everything)
        for width in (0.0, 1.0, 4.0):
            asked = ask(state, share=0.0, seed=seed, eligible=eligible, beta=width)
            optimum = float((moments.mean + math.sqrt(width) * np.sqrt(moments.variance)).max())
            assert asked.mean + math.sqrt(width) * asked.standard_deviation == pytest.approx(
                optimum, rel=1e-5, abs=1e-9
            )


@pytest.mark.usefixtures("without_draws")
def test_new_items_all_get_their_turn() -> None:
    state = State.initial(WCK.make(40, 4), context_dim=2, limits=Limits())
    shown: set[int] = set()
    for place in range(25):
        decision = ask(state, share=0.0, seed=0)
        shown.update(decision.ranking.tolist())
        state = state.shown(str(place), CONTEXT, decision.ranking)
    assert len(shown) >= 36


@pytest.mark.usefixtures("without_draws")
def test_a_catalogue_of_ten_thousand_items_is_searched_in_part() -> None:
    n_items, rng = 10_000, np.random.default_rng(0)
    state = State.initial(WCK.make(n_items, 6), context_dim=3, limits=Limits(rows=200))
    for place in range(200):
        context, ranking = rng.normal(size=3), rng.permutation(n_items)[:6].astype(np.int32)
        state = state.rewarded(str(place), context, ranking, reward=float(rng.normal()))
    assert state.memory_bytes < 2**20
    exploration = Exploration(ConstantBeta(1.0), uniform_share=0.0)
    for eligible in (
        np.arange(n_items, dtype=np.int32),
        np.sort(rng.choice(n_items, 200, replace=False)).astype(np.int32),
    ):
        decision = decide(state, exploration, context=np.ones(3), eligible=eligible, rng=rng)
        assert set(decision.ranking.tolist()) <= set(eligible.tolist())
        drawn = np.array([rng.choice(eligible, 6, replace=False) for _ in range(2000)], dtype=np.int32)
        moments = state.predict(np.ones(3), drawn)
        assert decision.mean + decision.standard_deviation > (moments.mean + np.sqrt(moments.variance)).max()


def test_what_an_item_adds_to_the_mean_is_found_without_a_search() -> None:
    posterior = learned(12, 1, count=40).posterior
    every = np.arange(12, dtype=np.int32)[:, None]
    # With slates of one item there is nothing else but what all slates have in common.
    differences = posterior.predict(CONTEXT, every).mean - posterior.item_means(CONTEXT, every[:, 0])
    np.testing.assert_allclose(differences, differences[0], atol=1e-9)
