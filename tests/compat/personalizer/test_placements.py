"""Placements against all permutations."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topk_bandit.compat.personalizer.messages import Slot
from topk_bandit.compat.personalizer.placements import baseline_slate, place, probabilities

ACTIONS = tuple("abcde")
exclusions = st.lists(st.frozensets(st.sampled_from(ACTIONS)), min_size=1, max_size=4)


@given(exclusions, st.permutations(ACTIONS))
def test_a_placement_is_found_whenever_there_is_one(excluded: list[frozenset[str]], order: list[str]) -> None:
    slots = [Slot(str(number), one) for number, one in enumerate(excluded)]
    slate = tuple(order[: len(slots)])
    found = place(slate, slots, ACTIONS)
    feasible = [
        one
        for one in permutations(ACTIONS, len(slots))
        if all(a not in s.excluded for a, s in zip(one, slots, strict=True))
    ]
    assert (found is None) == (not feasible)
    assert found is None or found in feasible
    if slate in feasible:
        assert found == slate


@given(exclusions, st.lists(st.sampled_from([*ACTIONS, "z", None]), min_size=4, max_size=4))
def test_a_baseline_has_each_action_once(excluded: list[frozenset[str]], wanted: list[str | None]) -> None:
    slots = [Slot(str(n), one, own) for n, (one, own) in enumerate(zip(excluded, wanted, strict=False))]
    slate = baseline_slate(slots, ACTIONS)
    assert len(set(slate)) == len(slate) == len(slots)
    assert set(slate) <= set(ACTIONS)


def test_a_baseline_is_what_the_shop_names() -> None:
    slots = [Slot("x", frozenset(), "c"), Slot("y", frozenset(), None), Slot("z", frozenset({"b"}), "b")]
    assert baseline_slate(slots, ACTIONS) == ("c", "a", "d")


def test_probabilities_add_up_and_the_rest_is_shared() -> None:
    assert probabilities(ACTIONS, {"a", "c", "d"}, "c", 0.9) == {
        "c": 0.9,
        "a": pytest.approx(0.05),
        "b": 0.0,
        "d": pytest.approx(0.05),
        "e": 0.0,
    }
    assert list(probabilities(ACTIONS, ACTIONS, "c", 0.9)) == ["c", "a", "b", "d", "e"]
    assert probabilities(["a"], ["a"], "a", 1.0) == {"a": 1.0}
