from __future__ import annotations

import pickle

import numpy as np

from topk_bandit.lab.simulation.episodes import ProblemSize, Visit
from topk_bandit.lab.simulation.thompson import ThompsonSampling
from topk_bandit.learning.kendall import adaptive_kendall
from topk_bandit.learning.limits import Limits
from topk_bandit.learning.policy import State
from topk_bandit.learning.rankings import all_rankings
from topk_bandit.learning.thompson import draw_function

N_ITEMS, SLATE_SIZE = 8, 3
CONTEXT = np.array([0.8, 0.3])
SIZE = ProblemSize(N_ITEMS, SLATE_SIZE, 2, 1)


def visit(number: int, *eligible: int) -> Visit:
    return Visit(number, CONTEXT, np.array(eligible or range(N_ITEMS), dtype=np.int32))


def test_it_shows_the_best_eligible_slate_of_a_draw_from_its_posterior() -> None:
    player, twin = (ThompsonSampling.of(SIZE, np.random.default_rng(1)) for _ in range(2))
    rng = np.random.default_rng(1)
    for number in range(30):
        items = np.array([0, 2, 3, 5, 6, 7] if number % 2 else range(N_ITEMS), dtype=np.int32)
        function = draw_function(player.state.posterior, player.state.encode(CONTEXT), items, rng)
        slates = all_rankings(np.arange(len(items)), slate_size=SLATE_SIZE)
        best = items[slates[int(np.argmax(function.values(slates)))]]
        chosen = [one.choose(visit(number, *items.tolist())).tolist() for one in (player, twin)]
        assert chosen == [best.tolist()] * 2
        for one in (player, twin):
            one.observe(number, float(best[0] % 4) - 0.1 * best[1])


def test_it_folds_what_happens_to_slates_as_the_service_does() -> None:
    player = ThompsonSampling.of(SIZE, np.random.default_rng(2))
    state = State.initial(adaptive_kendall(N_ITEMS, SLATE_SIZE), context_dim=2, limits=Limits())
    slates = []
    for number in range(25):
        slates.append(player.choose(visit(number)))
        state = state.shown(str(number), CONTEXT, slates[-1])
        if number % 5 == 4:
            player.close(number - 1)
            state = state.closed(str(number - 1))
            for old in (number - 3, number):
                player.observe(old, float(slates[old][0]))
                state = state.rewarded(str(old), CONTEXT, slates[old], reward=float(slates[old][0]))
    asked = all_rankings(np.arange(N_ITEMS), slate_size=SLATE_SIZE)
    left, right = (one.predict(CONTEXT, asked) for one in (player.state, state))
    np.testing.assert_array_equal(left.mean, right.mean)
    np.testing.assert_array_equal(left.variance, right.variance)
    assert player.state.pending_ids == state.pending_ids
    assert len(state.pending_ids) == 8, "of the ten that are open, those that count where some end without a reward"


def test_the_factory_can_be_sent_to_other_processes() -> None:
    player = pickle.loads(pickle.dumps(ThompsonSampling.of))(SIZE, np.random.default_rng(3))
    again = ThompsonSampling.of(SIZE, np.random.default_rng(3))
    assert player.choose(visit(0)).tolist() == again.choose(visit(0)).tolist()
