"""Items that were never shown: a few of them stand for all, where nothing tells them apart."""

from __future__ import annotations

import numpy as np
import pytest
from tests.learning.contents import attributes
from tests.learning.dense import WCK, rankings_of
from tests.learning.test_believing_policy import utilities

from topk_bandit.domain.bandits import ConstantBeta, Exploration
from topk_bandit.learning import decisions
from topk_bandit.learning.decisions import NEW_PER_PLACE, Search, search_best
from topk_bandit.learning.kendall import Shape, adaptive_kendall
from topk_bandit.learning.limits import Limits
from topk_bandit.learning.policy import State

N_ITEMS, SLATE_SIZE, CONTEXT = 60, 3, np.array([0.6, -0.7])
ELIGIBLE = np.arange(4, N_ITEMS, dtype=np.int32)
PLAIN = State.initial(WCK.make(N_ITEMS, SLATE_SIZE), context_dim=2, limits=Limits())
BELIEVED = State.initial(
    WCK.make(N_ITEMS, SLATE_SIZE),
    context_dim=2,
    limits=Limits(),
    prior_mean=utilities(1, n_items=N_ITEMS).prior_mean(WCK, SLATE_SIZE),
)
WITH_CONTENT = State.initial(
    adaptive_kendall(N_ITEMS, SLATE_SIZE, Shape(0.5, 1.0, 0.25, 1.0)).with_item_features(attributes(N_ITEMS, 4)),
    context_dim=2,
    limits=Limits(),
)


def after_some_slates(state: State) -> tuple[State, set[int]]:
    """Return the state after a few slates of the first ten items, and the items that they showed."""
    rankings = rankings_of(10, SLATE_SIZE, 5, np.random.default_rng(2))
    for place, ranking in enumerate(rankings[:-1]):
        state = state.rewarded(str(place), CONTEXT, ranking, reward=float(place))
    return state.shown("pending", CONTEXT, rankings[-1]), set(rankings.reshape(-1).tolist())


def searched(state: State) -> Search:
    return search_best(state, Exploration(ConstantBeta(1.0), uniform_share=0.0), state.encode(CONTEXT), ELIGIBLE)


def test_as_many_as_a_slate_shows_stand_for_all_that_were_never_shown() -> None:
    state, shown = after_some_slates(PLAIN)
    found = searched(state)
    looked_at, known = set(found.items.tolist()), shown & set(ELIGIBLE.tolist())
    assert known <= looked_at
    assert sorted(found.unseen.items.tolist()) == sorted(looked_at - shown)
    assert len(looked_at - shown) == SLATE_SIZE
    assert found.unseen.total == len(set(ELIGIBLE.tolist()) - shown)
    assert found.items[found.places].tolist() == found.ranking.tolist()


@pytest.mark.parametrize("state", [BELIEVED, WITH_CONTENT], ids=["utilities", "features"])
def test_none_stands_for_others_where_something_tells_them_apart(state: State) -> None:
    assert searched(after_some_slates(state)[0]).unseen.items.tolist() == []


def test_of_items_with_utilities_those_with_the_largest_are_looked_at() -> None:
    state, shown = after_some_slates(BELIEVED)
    new = np.array(sorted(set(ELIGIBLE.tolist()) - shown), dtype=np.int32)
    means = state.posterior.item_means(CONTEXT, new)
    largest = new[np.argsort(-means)][:SLATE_SIZE].tolist()
    assert set(searched(state).items.tolist()) - shown == set(largest)


def test_of_items_with_features_more_are_looked_at_and_a_quarter_are_any() -> None:
    state, shown = after_some_slates(WITH_CONTENT)
    new = np.array(sorted(set(ELIGIBLE.tolist()) - shown), dtype=np.int32)
    means = state.posterior.item_means(state.encode(CONTEXT), new)
    best = new[np.argsort(-means)][: NEW_PER_PLACE * SLATE_SIZE].tolist()
    looked_at = set(searched(state).items.tolist()) - shown
    assert len(looked_at) == NEW_PER_PLACE * SLATE_SIZE
    assert set(best[: 3 * len(best) // 4]) < looked_at
    assert looked_at != set(best)


def test_of_more_known_items_than_a_search_looks_at_the_best_and_the_rarest_are_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(decisions, "MOST_ITEMS_TO_SEARCH", most := 19)
    state, rng = PLAIN, np.random.default_rng(3)
    for number in range(90):
        # The larger an item's index, the rarer it is.
        ranking = np.unique((N_ITEMS * rng.random(9) ** 2).astype(np.int32))[:SLATE_SIZE]
        state = state.rewarded(str(number), CONTEXT, rng.permutation(ranking), reward=float(rng.normal()))
    known = ELIGIBLE[state.posterior.shown_counts()[ELIGIBLE] > 0]
    most_known = most - SLATE_SIZE
    by_mean = known[np.argsort(-state.posterior.item_means(CONTEXT, known))]
    rest = by_mean[3 * most_known // 4 :]
    rarest = rest[np.argsort(state.posterior.shown_counts()[rest], kind="stable")][: most_known - 3 * most_known // 4]
    assert set(searched(state).items.tolist()) & set(known.tolist()) == {*by_mean[: 3 * most_known // 4], *rarest}
