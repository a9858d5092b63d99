"""A bandit whose catalogue turns over goes on as it began: it knows as much, and takes as much room."""

from __future__ import annotations

import numpy as np
import pytest
from tests.long_forms import usual_or_long

from churn import Churn, live

SHORT = Churn(n_items=50, item_capacity=50, replaced=1, days=6, rounds_an_hour=15, slate_size=4, rows=80, seed=1)
LONG = Churn(rounds_an_hour=30)


@pytest.mark.slow
@pytest.mark.long_form
def test_items_that_come_and_go_cost_neither_regret_nor_room() -> None:
    churn = usual_or_long(SHORT, long=LONG)
    days = list(live(churn))
    first, last = days[: churn.days // 2], days[churn.days // 2 :]
    regrets = [float(np.mean([day.regret for day in half])) for half in (first, last)]
    assert regrets[1] <= 1.25 * regrets[0], "regret a round grows"
    assert regrets[1] < 0.5, "a bandit that loses what it knows has 1"
    assert {day.n_places for day in last} == {first[0].n_places}
    assert first[0].n_places <= churn.n_items + churn.n_items // 4
    assert max(day.memory_bytes for day in last) <= 1.1 * max(day.memory_bytes for day in first)
    assert {day.unlearned for day in days} == {0}
