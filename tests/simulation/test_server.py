"""A failover of the simulated server begins from all that changed what the store knows, with an event or without."""

from __future__ import annotations

from typing import Any

import pytest
from tests.contracts.provisional_contract import PROVISIONAL
from tests.contracts.samples import HOUR_MS, NAME, recommendation, request
from tests.simulation.running import as_it_is
from tests.simulation.server import Server

from topk_bandit.domain.errors import ConflictError, NotReadyError
from topk_bandit.domain.studies import StudyName
from topk_bandit.store.log import Correctable


def server(seconds: list[float]) -> Server:
    return Server(NAME, StudyName("acme", "taste"), now=lambda: seconds[0], wrap=as_it_is)


def call(of: Server, method: str, *given: Any, **named: Any) -> Any:  # noqa: ANN401 - as calls are
    return of.carry_out(method, (NAME, *given), named)


def begin(of: Server) -> None:
    call(of, "create_bandit", PROVISIONAL, incarnation="first", quota=9)
    call(of, "record_recommendation", request(), recommendation(), incarnation="first", items_position=0)
    call(of, "record_reward", "rec-1", 2.0, reward_id="order")


def test_the_end_of_a_provisional_slate_outlives_a_failover() -> None:
    """It appends no event: a journal that leaves it out would have the slate open again, and corrected."""
    seconds = [0.0]
    simulated = server(seconds)
    begin(simulated)
    seconds[0] = 120.0
    call(simulated, "expire_due", limit=9)  # the reward so far is learned
    seconds[0] = HOUR_MS / 1e3 + 1.0
    call(simulated, "expire_due", limit=9)  # the slate ends with it
    simulated.make_safe(simulated.journal_end)
    simulated.fail_over(1.0)
    seconds[0] = 0.0  # the clock of the new server is behind
    with pytest.raises((ConflictError, NotReadyError)):
        call(simulated, "record_reward", "rec-1", 9.0, reward_id="another")
    known = Correctable("first", 1, 99, 0)
    with pytest.raises(NotReadyError):
        call(simulated, "correct_reward", "rec-1", 1.0, reward_id="order", known=known)


def test_a_copy_with_another_log_is_an_error() -> None:
    """So a fault of the simulated server is never taken for one of the service."""
    seconds = [0.0]
    simulated = server(seconds)
    begin(simulated)
    simulated.archive.events[-1] = simulated.archive.events[-2]
    with pytest.raises(RuntimeError, match="leaves something out"):
        simulated.fail_over(1.0)


def test_looks_that_find_nothing_are_not_kept() -> None:
    seconds = [0.0]
    simulated = server(seconds)
    begin(simulated)
    before = simulated.journal_end
    for _ in range(3):
        call(simulated, "expire_due", limit=9)
    assert simulated.journal_end == before
