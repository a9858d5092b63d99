"""The file of an outbox: several connections, clocks that jump, and an oracle that is a list."""

from __future__ import annotations

import multiprocessing
import sqlite3
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.client.outbox_writers import LEASE, Clock, add, write_many
from tests.long_forms import examples

from topk_bandit.client import ResourceExhausted, Unavailable
from topk_bandit.client.outbox_file import KeptActivation, KeptCall, KeptReward, OutboxFile

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


@contextmanager
def opened(path: Path, clock: Clock, *, count: int = 1, max_waiting: int = 100) -> Iterator[list[OutboxFile]]:
    files = [OutboxFile(path, tenant="acme", max_waiting=max_waiting, lease=LEASE, now=clock) for _ in range(count)]
    try:
        yield files
    finally:
        for file in files:
            file.close()


def taken(file: OutboxFile, limit: int = 100) -> list[str]:
    return [one.recommendation_id for one in file.take(limit)]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "rewards.db"


def test_every_commit_is_synced(path: Path, clock: Clock) -> None:
    with opened(path, clock) as [file]:
        assert file._connection
        assert file._connection.execute("PRAGMA synchronous").fetchall() == [(2,)]
        assert file._connection.execute("PRAGMA journal_mode").fetchall() == [("wal",)]


def test_what_one_has_taken_others_leave_alone_until_its_lease_is_over(path: Path, clock: Clock) -> None:
    with opened(path, clock, count=2) as [one, other]:
        for name in "abc":
            add(one, name)
        assert taken(one, 2) == ["a", "b"]
        assert taken(other) == ["c"]
        assert taken(other) == []
        clock.now += LEASE - 0.001
        assert taken(other) == []
        clock.now += 0.001
        assert taken(other) == ["a", "b", "c"]


def test_one_takes_out_what_two_have_sent(path: Path, clock: Clock) -> None:
    with opened(path, clock, count=2) as [one, other]:
        for name in "ab":
            add(one, name)
        early = one.take(1)
        clock.now += LEASE
        late = other.take(2)
        assert other.remove(late) == {call.number for call in late}
        assert one.remove(early) == set()
        assert one.pending() == 0


def test_a_clock_that_is_set_back_binds_nobody(path: Path, clock: Clock) -> None:
    with opened(path, clock, count=2) as [one, other]:
        add(one, "a")
        assert taken(one) == ["a"]
        clock.now -= 10**6
        assert taken(other) == ["a"]


def test_threads_that_take_at_once_share_no_reward(path: Path) -> None:
    # With the machine's clock, which goes on while a thread waits for its turn.
    with (
        closing(OutboxFile(path, tenant="acme", max_waiting=100, lease=LEASE, now=time.time)) as file,
        ThreadPoolExecutor(8) as pool,
    ):
        for number in range(40):
            add(file, str(number))
        parts = [part.result() for part in [pool.submit(taken, file, 2) for _ in range(30)]]
    assert sorted(chain.from_iterable(parts), key=int) == [str(number) for number in range(40)]


def test_who_wakes_late_does_not_remove_what_others_have_written_since(path: Path, clock: Clock) -> None:
    with opened(path, clock, count=2) as [frozen, other]:
        add(frozen, "a")
        kept = frozen.take(1)
        clock.now += LEASE
        other.remove(other.take(1))
        assert other.pending() == 0
        add(other, "b")
        frozen.remove(kept)
        assert taken(other) == ["b"]


def test_what_is_put_back_comes_again_after_its_pause_and_no_later_than_the_lease(path: Path, clock: Clock) -> None:
    with opened(path, clock) as [file]:
        add(file, "a")
        file.put_back(file.take(1), seconds=3.0)
        assert taken(file) == []
        clock.now += 3.0
        file.put_back(file.take(1), seconds=10**6)
        clock.now += LEASE
        assert taken(file) == ["a"]


def test_a_batch_is_of_one_bandit_and_has_each_slate_once(path: Path, clock: Clock) -> None:
    with opened(path, clock, count=2) as [one, other]:
        for bandit, name in [("x", "a"), ("y", "a"), ("x", "b"), ("x", "a"), ("x", "b")]:
            add(one, name, bandit=bandit)
        first = one.take(100)
        assert [(kept.bandit, kept.recommendation_id) for kept in first] == [("x", "a"), ("x", "b")]
        assert [(kept.bandit, kept.recommendation_id) for kept in other.take(100)] == [("y", "a")]
        assert other.take(100) == []  # the second ones wait for the first ones, which another one has
        one.remove(first)
        assert taken(other) == ["a", "b"]


def test_calls_come_back_as_they_were_written(path: Path, clock: Clock) -> None:
    with opened(path, clock) as [file]:
        file.add_activation("home", "a", ["tea", 'a "word"', "ü"])
        file.add_activation("home", "b", [])
        file.add_reward("home", "c", 0.1, reward_id="click", final=True)
    with opened(path, clock) as [file]:
        activations = [KeptActivation(1, "home", "a", ("tea", 'a "word"', "ü")), KeptActivation(2, "home", "b", ())]
        assert file.take(100) == activations
        assert file.take(100) == [KeptReward(3, "home", "c", 0.1, "click", final=True)]


def test_a_database_of_something_else_stays_as_it_is(path: Path, clock: Clock) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE orders (number INTEGER)")
    before = path.read_bytes()
    with pytest.raises(ValueError, match="is a database of something else"), opened(path, clock):
        pass
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_item_values_come_back_as_they_were_written(path: Path, clock: Clock) -> None:
    values = {"tea": 0.1, 'a "word"': -1e100, "ü": 0.0}
    with opened(path, clock, count=2) as [one, other]:
        add(one, "a")
        other.add_reward("home", "b", 1.0, reward_id="", final=False, item_values=values)
        add(one, "c")
    with opened(path, clock) as [file]:
        assert [kept.item_values for kept in file.take(100)] == [{}, values, {}]  # type: ignore[union-attr]


def test_a_program_that_knows_no_item_values_opens_a_file_until_there_are_some(path: Path, clock: Clock) -> None:
    """It would leave them out; those that have it open go on, and what they write is taken."""
    with opened(path, clock) as [file]:
        add(file, "a")
        assert version_of(path) == 2
        file.add_reward("home", "b", 1.0, reward_id="", final=False, item_values={"tea": 1.0})
        assert version_of(path) == 3
        with closing(sqlite3.connect(path)) as older:
            older.execute(
                "INSERT INTO calls (bandit, recommendation_id, value, reward_id, final, shown, written) "
                "VALUES ('home', 'c', 1.0, '', 0, NULL, 1.0)"
            )
            older.commit()
            assert older.execute("SELECT number, bandit FROM next_calls").fetchall() == [(n, "home") for n in (1, 2, 3)]
        assert taken(file) == ["a", "b", "c"]


def version_of(path: Path) -> int:
    with closing(sqlite3.connect(path)) as file:
        [(version,)] = file.execute("PRAGMA user_version")
        return int(version)


def test_an_activation_is_taken_before_the_rewards_of_its_slate_and_holds_up_no_other(path: Path, clock: Clock) -> None:
    with opened(path, clock, count=2) as [one, other]:
        for name in "ab":
            one.add_activation("home", name, [])
            add(one, name)
        add(one, "c")
        shown = one.take(1)
        assert shown == [KeptActivation(1, "home", "a", ())]
        assert other.take(100) == [KeptActivation(3, "home", "b", ())]  # the oldest that is due waits for what one has
        assert taken(other) == ["c"]
        assert other.take(100) == []
        one.remove(shown)
        assert taken(other) == ["a"]


def test_activations_and_rewards_share_the_capacity(path: Path, clock: Clock) -> None:
    with opened(path, clock, max_waiting=2) as [file]:
        file.add_activation("home", "a", [])
        add(file, "a")
        with pytest.raises(ResourceExhausted, match="holds 2 calls"):
            file.add_activation("home", "b", [])
        assert file.pending() == 2


@pytest.mark.parametrize("replaced", [False, True])
def test_nothing_is_written_to_a_file_that_was_deleted(path: Path, clock: Clock, *, replaced: bool) -> None:
    with opened(path, clock) as [file]:
        add(file, "kept")
        for one in path.parent.glob(f"{path.name}*"):
            one.unlink()
        if replaced:
            with opened(path, clock) as [other]:
                add(other, "elsewhere")
        with pytest.raises(Unavailable, match="deleted or replaced") as caught:
            add(file, "lost")
        assert caught.value.details.reason == "OUTBOX_FAILED"
        assert taken(file) == ["kept"]  # what this process has is delivered all the same


STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["reward", "activate"]), st.integers(0, 1), st.sampled_from("abc")),
        st.tuples(st.just("take"), st.integers(0, 1), st.integers(1, 3)),
        st.tuples(st.just("remove"), st.integers(0, 1), st.just(0)),
        st.tuples(st.just("wait"), st.just(0), st.sampled_from([1, 4, 11])),
    ),
    max_size=25,
)


class Model:
    """The same as a list, slowly: each call's kind, slate, and when it is due."""

    def __init__(self) -> None:
        self.calls: dict[int, tuple[str, str, float]] = {}
        self.written = 0

    def add(self, kind: str, name: str) -> None:
        self.written += 1
        self.calls[self.written] = (kind, name, 0.0)

    def take(self, limit: int, now: float) -> list[int]:
        first: dict[str, int] = {}
        for number in sorted(self.calls):
            first.setdefault(self.calls[number][1], number)
        due = [number for number in sorted(first.values()) if self.calls[number][2] <= now]
        chosen = [number for number in due if self.calls[number][0] == self.calls[due[0]][0]][:limit]
        for number in chosen:
            self.calls[number] = (*self.calls[number][:2], now + LEASE)
        return chosen


@settings(max_examples=examples(15))
@given(steps=STEPS)
def test_it_does_what_a_list_would(steps: list[tuple[str, int, object]]) -> None:
    clock, model = Clock(), Model()
    held: list[Sequence[KeptCall]] = [[], []]
    with (
        tempfile.TemporaryDirectory() as folder,
        opened(Path(folder) / "rewards.db", clock, count=2, max_waiting=6) as files,
    ):
        for what, which, argument in steps:
            file = files[which]
            match what, argument:
                case ("reward" | "activate") as kind, str(name) if len(model.calls) < 6:
                    write(file, kind, name)
                    model.add(kind, name)
                case ("reward" | "activate") as kind, _:
                    with pytest.raises(ResourceExhausted):
                        write(file, kind, "more")
                case "take", int(limit):
                    held[which] = file.take(limit)
                    assert [one.number for one in held[which]] == model.take(limit, clock.now)
                case "remove", _:
                    file.remove(held[which])
                    for one in held[which]:
                        model.calls.pop(one.number, None)
                case _, int(seconds):
                    clock.now += seconds
            assert file.pending() == len(model.calls)
            assert (file.oldest() is None) is (not model.calls)


def write(file: OutboxFile, kind: str, name: str) -> None:
    if kind == "reward":
        add(file, name)
    else:
        file.add_activation("home", name, [])


def test_processes_that_open_one_new_file_at_once_share_it(path: Path, clock: Clock) -> None:
    spawned = multiprocessing.get_context("spawn")
    start = spawned.Barrier(3)
    workers = [spawned.Process(target=write_many, args=(path, str(number), start)) for number in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(300)
    assert [worker.exitcode for worker in workers] == [0, 0, 0]
    with opened(path, clock) as [file]:
        assert file.pending() == 3 * 20 - removed(path)


def removed(path: Path) -> int:
    """Return how many rewards are gone, as the file's own numbers tell."""
    connection = sqlite3.connect(path)
    [(written,)] = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'calls'")
    rows = Counter(row[0] for row in connection.execute("SELECT recommendation_id FROM calls"))
    connection.close()
    assert written == 60
    assert set(rows.values()) <= {1}
    return written - sum(rows.values())
