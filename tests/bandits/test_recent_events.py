"""What is gone of a log, by what a worker remembers of it, compared with the two logs side by side."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.long_forms import examples

from topk_bandit.bandits.recent_events import MOST, Gone, RecentEvents
from topk_bandit.store.events import Lapsed, LoggedEvent, Rewarded, Shown

SHOWN = Shown((1.0,), ("a", "b"), 0)


def log_of(rewards: list[bool], *, at_ms: int, start: int = 1) -> list[LoggedEvent]:
    """Return a log with such events, rewards or others."""
    return [
        LoggedEvent(position, at_ms, Rewarded(name, 1.0, SHOWN) if is_reward else Lapsed(name))
        for position, is_reward in enumerate(rewards, start)
        for name in [f"{at_ms}-{position}"]
    ]


@settings(max_examples=examples(100), deadline=None)
@given(
    old=st.lists(st.booleans(), min_size=1, max_size=30),
    kept=st.integers(0, 30),
    new=st.lists(st.booleans(), max_size=8),
    first=st.integers(1, 12),
    unread=st.integers(0, 5),
    trimmed=st.integers(0, 12),
)
def test_what_is_gone_is_what_the_two_logs_do_not_share(
    old: list[bool], kept: int, new: list[bool], first: int, unread: int, trimmed: int
) -> None:
    """The newest `unread` events were returned to a caller, and the log was never read so far.

    Of the other log the first `trimmed` are in a snapshot only.
    """
    kept, first, unread = min(kept, len(old)), min(first, len(old)), min(unread, len(old) - 1)
    before = log_of(old, at_ms=1000)
    after = before[:kept] + log_of(new, at_ms=5000, start=kept + 1)
    recent = RecentEvents()
    read = before[first - 1 : len(old) - unread]
    recent.note_read(read)
    for logged in reversed(before[max(first, len(old) - unread + 1) - 1 :]):
        recent.note_written(logged.position, f"1000-{logged.position}", is_reward=old[logged.position - 1])
    trimmed = min(trimmed, len(after))
    gone = recent.find_gone(
        after[max(recent.start - 1, trimmed) :], first_position=trimmed + 1, log_position=len(after)
    )
    assert recent.contradicts(after) == any(kept < p <= len(old) for p in range(max(first, kept + 1), len(after) + 1))
    # What came before all that is remembered is not reported, nor what was trimmed.
    shared = max(kept, min(first - 1, len(after)), trimmed)
    expected = [p for p in range(max(shared + 1, recent.start), len(old) + 1) if old[p - 1]]
    assert gone == Gone(after=shared, end=max(len(old), shared), rewards=tuple(expected))


def test_only_the_newest_events_are_remembered() -> None:
    recent, log = RecentEvents(), log_of([True] * (5 * MOST), at_ms=1000)
    recent.note_read(log)
    assert 3 * MOST <= recent.start <= 4 * MOST + 1
    gone = recent.find_gone(log[recent.start - 1 : -10], first_position=1, log_position=5 * MOST - 10)
    assert (gone.after, gone.end, len(gone.rewards)) == (5 * MOST - 10, 5 * MOST, 10)
    # Of a log that ends before what is remembered, all that it lacks is gone.
    gone = recent.find_gone([], first_position=1, log_position=7)
    assert (gone.after, gone.end) == (7, 5 * MOST)
    recent.forget()
    assert recent.find_gone(log, first_position=1, log_position=len(log)).rewards == ()
