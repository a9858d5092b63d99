"""Shrinking leaves exactly what is needed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.long_forms import examples
from tests.simulation.shrinking import shrink

if TYPE_CHECKING:
    from collections.abc import Sequence


@given(length=st.integers(1, 60), data=st.data())
@settings(max_examples=examples(60), deadline=None)
def test_what_is_needed_is_left_in_its_order(length: int, data: st.DataObject) -> None:
    needed = data.draw(st.sets(st.integers(0, length - 1)))
    assert list(shrink(range(length), lambda part: needed <= set(part), most_trials=10_000)) == sorted(needed)


def test_no_single_element_can_be_left_out_where_parts_stand_for_each_other() -> None:
    def fails(part: Sequence[int]) -> bool:
        return sum(part) % 7 == 0 and len(part) > 0

    left = shrink(range(1, 14), fails, most_trials=10_000)
    assert fails(left)
    assert not any(fails([one for one in left if one != out]) for out in left)


def test_it_ends_after_so_many_trials() -> None:
    trials: list[int] = []

    def fails(part: Sequence[int]) -> bool:
        trials.append(len(part))
        return len(part) > 50

    assert len(shrink(range(100), fails, most_trials=7)) > 50
    assert len(trials) == 7
