"""A mapping that grows: like a dict that is copied at every step, for less."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topk_bandit.studies.growing import GrowingMap

Map = GrowingMap[int, str]


@given(st.lists(st.integers(0, 9), max_size=40))
def test_it_is_a_dict_that_older_values_keep(sizes: list[int]) -> None:
    now, expected = Map(), dict[int, str]()
    steps = [(now, dict(expected))]
    for size in sizes:
        entries = {len(expected) + place: f"v{len(expected) + place}" for place in range(size)}
        now, expected = now.add(entries), {**expected, **entries}
        steps.append((now, dict(expected)))
    for value, meant in steps:
        assert (list(value), len(value), value) == (list(meant), len(meant), meant)
        assert list(value.merge().items()) == list(meant.items())
        assert all(value[key] == meant[key] for key in meant)
        assert value.get(len(meant)) is None


def test_two_values_that_grow_from_one_do_not_meet() -> None:
    both = Map().add({0: "a", 1: "b"})
    one, other = both.add({2: "c"}), both.add({2: "d"})
    assert (dict(both), one[2], other[2]) == ({0: "a", 1: "b"}, "c", "d")
    both.merge()[0] = "changed"
    assert both[0] == one[0] == "a"


def test_a_key_comes_once() -> None:
    with pytest.raises(ValueError, match="already"):
        Map().add({0: "a"}).add({1: "b", 0: "a"})


def copied(before: Map, after: Map) -> int:
    """Return how many entries one step copied."""
    known = {id(block) for block in before.blocks}
    return sum(len(block) for block in after.blocks if id(block) not in known)


def work(count: int) -> tuple[int, int]:
    """Return the entries copied by adding so many one by one, and the most blocks that were there."""
    now, total, blocks = Map(), 0, 0
    for key in range(count):
        after = now.add({key: ""})
        total, blocks, now = total + copied(now, after), max(blocks, len(after.blocks)), after
    return total, blocks


def test_adding_costs_little_more_than_in_proportion() -> None:
    few, many = work(5_000), work(20_000)
    assert many[0] <= 20_000 * 16
    assert many[0] <= 4 * 1.25 * few[0]  # a dict copied at every step would take 16 times as much
    assert many[1] <= 15
