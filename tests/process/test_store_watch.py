"""A store whose clock jumps; what changes of its settings are seen is tested on a real one."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from topk_bandit.process.store_watch import LARGEST_CLOCK_DIFFERENCE_SECONDS, StoreWatch
from topk_bandit.store.memory.bandits import MemoryStore

if TYPE_CHECKING:
    from topk_bandit.domain.durability import Durability
    from topk_bandit.store.log import StoreReport

START = 1_700_000_000.0


class Clocks:
    """What is counted, and three clocks that go on together until one is set."""

    def __init__(self) -> None:
        self.store = START
        self.wall = START
        self.steady = 50.0
        self.problems: list[int] = []
        self.memory: set[tuple[int, int]] = set()
        self.jumps = 0

    def store_examined(self, problems: int, *, memory_bytes: int, memory_limit_bytes: int) -> None:
        self.problems.append(problems)
        self.memory.add((memory_bytes, memory_limit_bytes))

    def store_away(self) -> None:
        self.problems.append(-1)

    def store_clock_jumped(self) -> None:
        self.jumps += 1

    def go_on(self, seconds: float) -> None:
        self.store += seconds
        self.wall += seconds
        self.steady += seconds


@pytest.fixture
def clocks() -> Clocks:
    return Clocks()


@pytest.fixture
def watch(clocks: Clocks) -> StoreWatch:
    store = MemoryStore(clock_ms=lambda: round(clocks.store * 1000))
    return StoreWatch(store, hooks=clocks, wall=lambda: clocks.wall, steady=lambda: clocks.steady)


def look(watch: StoreWatch, clocks: Clocks, *, times: int = 3) -> None:
    for _ in range(times):
        clocks.go_on(5.0)
        asyncio.run(watch.look())


def test_time_that_passes_is_no_jump(watch: StoreWatch, clocks: Clocks, caplog: pytest.LogCaptureFixture) -> None:
    look(watch, clocks)
    clocks.go_on(100_000.0)
    look(watch, clocks)
    assert (clocks.jumps, set(clocks.problems), clocks.memory) == (0, {0}, {(0, 0)})
    assert caplog.records == []


@pytest.mark.parametrize("seconds", [7200.0, -7200.0, 1.1 * LARGEST_CLOCK_DIFFERENCE_SECONDS])
def test_a_jump_is_logged_once_and_the_difference_as_long_as_it_lasts(
    watch: StoreWatch, clocks: Clocks, caplog: pytest.LogCaptureFixture, seconds: float
) -> None:
    look(watch, clocks)
    clocks.store += seconds
    look(watch, clocks)
    assert (clocks.jumps, clocks.problems) == (1, [0] * 3 + [1] * 3)
    assert [record.levelname for record in caplog.records] == ["ERROR", "ERROR"]
    assert f"{seconds:+.1f} s" in caplog.text
    clocks.store -= seconds
    look(watch, clocks)
    assert (clocks.jumps, clocks.problems[-3:]) == (2, [0] * 3)
    assert [record.levelname for record in caplog.records[2:]] == ["WARNING", "ERROR"]


def test_a_jump_of_one_machine_with_both_clocks_is_seen(watch: StoreWatch, clocks: Clocks) -> None:
    look(watch, clocks)
    clocks.store += 7200.0
    clocks.wall += 7200.0
    look(watch, clocks)
    assert (clocks.jumps, set(clocks.problems)) == (1, {0})


def test_small_corrections_are_passed_over(watch: StoreWatch, clocks: Clocks) -> None:
    for _ in range(5):
        look(watch, clocks)
        clocks.store += 0.5
    assert (clocks.jumps, set(clocks.problems), clocks.memory) == (0, {0}, {(0, 0)})


class SlowStore(MemoryStore):
    """A store that the machine stands still for, before and after its clock is read."""

    def __init__(self, clocks: Clocks, *, before: float, after: float) -> None:
        super().__init__(clock_ms=lambda: round(clocks.store * 1000))
        self._clocks = clocks
        self._before = before
        self._after = after

    async def check(self, durability: Durability | None = None) -> StoreReport:
        self._clocks.go_on(self._before)
        report = await super().check(durability)
        self._clocks.go_on(self._after)
        return report


@pytest.mark.parametrize(("before", "after"), [(0.0, 60.0), (60.0, 0.0), (7.0, 7.0)])
def test_a_machine_that_stands_still_is_no_jump(clocks: Clocks, before: float, after: float) -> None:
    slow, quick = SlowStore(clocks, before=before, after=after), SlowStore(clocks, before=0.0, after=0.0)
    for stores in ((slow, slow, slow), (quick, slow, quick), (slow, quick, slow)):
        watch = StoreWatch(slow, hooks=clocks, wall=lambda: clocks.wall, steady=lambda: clocks.steady)
        for store in stores:
            watch._store = store
            look(watch, clocks, times=1)
    assert (clocks.jumps, set(clocks.problems)) == (0, {0})
