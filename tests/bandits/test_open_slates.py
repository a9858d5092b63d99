"""The open slates behave like plain dicts, and each stays as it was whatever is built from it."""

from __future__ import annotations

import time
import tracemalloc

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, multiple, rule
from tests.long_forms import examples

from topk_bandit.bandits.open_slates import OpenSlate, OpenSlates

KEYS = st.integers(0, 60).map(str)


def slate(number: int, *, context_dim: int = 5, slate_size: int = 6) -> OpenSlate:
    ranking = np.arange(number, number + slate_size, dtype=np.int32)
    return OpenSlate(np.full(context_dim, number / 7), ranking, 10**12 + number)


def test_a_slate_gives_back_what_it_was_made_of() -> None:
    context, ranking = np.array([0.1, -1e300, 5e-324]), np.array([9999, 0], dtype=np.int32)
    packed = OpenSlate(context, ranking, 1_795_253_075_232)
    assert (packed.context.tolist(), packed.ranking.tolist(), packed.at_ms) == (
        context.tolist(),
        [9999, 0],
        1_795_253_075_232,
    )
    assert (packed.context.dtype, packed.ranking.dtype) == (np.float64, np.int32)
    assert packed.context.flags.writeable


class SlatesAndDicts(RuleBasedStateMachine):
    """Every version that was ever made, beside the plain dict that it should be like."""

    versions = Bundle("versions")

    def __init__(self) -> None:
        super().__init__()
        self.known: list[tuple[OpenSlates, dict[str, OpenSlate]]] = []

    def _keep(self, slates: OpenSlates, like: dict[str, OpenSlate]) -> tuple[OpenSlates, dict[str, OpenSlate]]:
        self.known.append((slates, like))
        return slates, like

    @rule(target=versions, count=st.integers(0, 40))
    def start(self, count: int) -> tuple[OpenSlates, dict[str, OpenSlate]]:
        like = {str(number): slate(number) for number in range(count)}
        return self._keep(OpenSlates(dict(like)), like)

    @rule(target=versions, version=versions, key=KEYS, number=st.integers(0, 1000))
    def open(self, version: tuple[OpenSlates, dict[str, OpenSlate]], key: str, number: int) -> object:
        slates, like = version
        if key in like:
            with pytest.raises(ValueError, match="open already"):
                slates.add(key, slate(number))
            return multiple()
        new = slate(number)
        return self._keep(slates.add(key, new), {**like, key: new})

    @rule(target=versions, version=versions, keys=st.lists(KEYS, min_size=1, max_size=30))
    def close(self, version: tuple[OpenSlates, dict[str, OpenSlate]], keys: list[str]) -> object:
        slates, like = version[0], dict(version[1])
        for key in keys:
            if key in like:
                slates = slates.remove(key)
                del like[key]
            else:
                with pytest.raises(KeyError):
                    slates.remove(key)
        return self._keep(slates, like)

    @invariant()
    def all_versions_are_what_they_were(self) -> None:
        for slates, like in self.known:
            assert list(slates.items()) == list(like.items())
            assert len(slates) == len(like)
            assert all((key in slates) == (key in like) for key in map(str, range(61)))


TestSlatesAndDicts = SlatesAndDicts.TestCase
TestSlatesAndDicts.settings = settings(max_examples=examples(40), stateful_step_count=30, deadline=None)


@pytest.mark.parametrize(("context_dim", "slate_size"), [(1, 3), (5, 6), (64, 12)])
def test_the_memory_is_about_what_is_taken(context_dim: int, slate_size: int) -> None:
    rng = np.random.default_rng(0)
    tracemalloc.start()
    try:
        slates = OpenSlates()
        for number in range(5000):
            slates = slates.add(rng.bytes(16).hex(), slate(number, context_dim=context_dim, slate_size=slate_size))
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert slates.memory_bytes == pytest.approx(taken, rel=0.2)
    assert OpenSlates().memory_bytes == 0


def test_a_change_of_many_slates_costs_little() -> None:
    slates = OpenSlates({f"{number:032x}": slate(number) for number in range(50_000)})
    oldest = list(slates)[:2000]
    start = time.process_time()
    for number, key in enumerate(oldest):
        slates = slates.add(f"new{number}", slates[key]).remove(key)
    assert (time.process_time() - start) / 4000 < 0.0001, "copying them all takes a millisecond"
