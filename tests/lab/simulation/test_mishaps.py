"""A client that errs says what is wrong in its rounds, and what is right in all others."""

from __future__ import annotations

import numpy as np
import pytest

from topk_bandit.lab.simulation.episodes import Visit
from topk_bandit.lab.simulation.mishaps import MISHAPS, ErringClient

CONTEXT, ELIGIBLE = np.array([1.0, 2.0]), np.arange(4, dtype=np.int32)
ROUNDS = 700


class Listener:
    """A player that notes what it hears."""

    def __init__(self) -> None:
        self.contexts: list[list[float]] = []
        self.rewards: list[float] = []
        self.closed: list[int] = []

    def choose(self, visit: Visit) -> np.ndarray:
        self.contexts.append(visit.context.tolist())
        return ELIGIBLE[:2]

    def observe(self, number: int, reward: float) -> None:
        assert number == len(self.rewards)
        self.rewards.append(reward)

    def close(self, number: int) -> None:
        self.closed.append(number)
        self.rewards.append(float("nan"))


@pytest.mark.parametrize("name", MISHAPS)
def test_what_is_wrong_is_said_in_its_rounds_alone(name: str) -> None:
    mishap, heard = MISHAPS[name], Listener()
    client = ErringClient(heard, mishap)  # type: ignore[arg-type]
    for number in range(ROUNDS):
        client.choose(Visit(number, CONTEXT, ELIGIBLE))
        client.observe(number, 0.5)
    wrong = [
        number
        for number, (context, reward) in enumerate(zip(heard.contexts, heard.rewards, strict=True))
        if context != [1.0, 2.0] or reward != 0.5
    ]
    expected = list(mishap.rounds) if not mishap.is_for_good else list(range(mishap.rounds.start, ROUNDS))
    assert wrong == expected
    assert mishap.last == mishap.rounds[-1]
    assert heard.closed == (expected if name == "not posted" else [])


def test_what_has_no_reward_has_none_with_a_mistake() -> None:
    heard = Listener()
    client = ErringClient(heard, MISHAPS["tens"])  # type: ignore[arg-type]
    client.close(120)
    assert (heard.closed, heard.contexts) == ([120], [])
