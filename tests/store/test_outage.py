from __future__ import annotations

import pytest

from topk_bandit.store.redis.outage import QUIET_SECONDS, Outage


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def outage(clock: Clock) -> Outage:
    return Outage("away", ends="back", monotonic=clock)


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


def test_a_long_outage_is_two_lines(clock: Clock, outage: Outage, caplog: pytest.LogCaptureFixture) -> None:
    outage.note_success()
    for _ in range(50):
        outage.note_failure(OSError("no route"))
        clock.now += 1.0
    clock.now += QUIET_SECONDS
    for _ in range(3):
        outage.note_success()
    assert said(caplog) == ["away: no route", "back"]
    assert vars(caplog.records[1])["seconds"] == 49.0


def test_calls_that_succeed_in_between_do_not_end_it(
    clock: Clock, outage: Outage, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(50):
        outage.note_failure(TimeoutError())
        clock.now += 0.9 * QUIET_SECONDS
        outage.note_success()
    assert said(caplog) == ["away: TimeoutError"]


def test_what_is_part_of_another_outage_is_not_told(
    clock: Clock, outage: Outage, caplog: pytest.LogCaptureFixture
) -> None:
    part = Outage("deaf", ends="hears", monotonic=clock, within=outage)
    for _ in range(2):
        part.note_failure(OSError("gone"))  # it may be the first to notice
        for _ in range(50):
            clock.now += 1.0
            outage.note_failure(OSError("gone"))
            part.note_failure(OSError("gone"))
        part.note_success()
        clock.now += QUIET_SECONDS
        outage.note_success()
        clock.now += 1000.0
    assert said(caplog) == ["away: gone", "back"] * 2


def test_what_lasts_alone_is_told(clock: Clock, outage: Outage, caplog: pytest.LogCaptureFixture) -> None:
    part = Outage("deaf", ends="hears", monotonic=clock, within=outage)
    for _ in range(20):
        part.note_failure(OSError("refused"))
        clock.now += 1.0
    part.note_success()
    part.note_success()
    assert said(caplog) == ["deaf: refused", "hears"]
