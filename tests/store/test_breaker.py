"""The breaker, by its clock."""

from __future__ import annotations

import pytest

from topk_bandit.domain.errors import UnavailableError
from topk_bandit.store.redis.breaker import Breaker


class Clock:
    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


def refused(breaker: Breaker) -> bool:
    try:
        breaker.admit()
    except UnavailableError:
        return True
    return False


def test_calls_pass_while_the_server_answers() -> None:
    breaker = Breaker(cooldown=0.25, monotonic=Clock())
    for _ in range(3):
        assert not refused(breaker)
        breaker.note_answer()


def test_calls_are_refused_after_a_failure_then_one_probes() -> None:
    clock = Clock()
    breaker = Breaker(cooldown=0.25, monotonic=clock)
    breaker.admit()
    breaker.note_failure()
    assert refused(breaker)
    clock.seconds += 0.25
    assert [refused(breaker), refused(breaker)] == [False, True]
    breaker.note_failure()
    clock.seconds += 0.24
    assert refused(breaker)
    clock.seconds += 0.02
    assert not refused(breaker)
    breaker.note_answer()
    assert [refused(breaker), refused(breaker)] == [False, False]


def test_an_abandoned_probe_lets_another_one_through() -> None:
    clock = Clock()
    breaker = Breaker(cooldown=0.25, monotonic=clock)
    breaker.note_failure()
    clock.seconds += 1
    breaker.admit()
    breaker.note_abandoned()
    assert [refused(breaker), refused(breaker)] == [False, True]


def test_a_refusal_says_when_to_come_again() -> None:
    breaker = Breaker(cooldown=0.25, monotonic=Clock())
    breaker.note_failure()
    with pytest.raises(UnavailableError) as caught:
        breaker.admit()
    assert caught.value.retry_after == 0.25
