"""What happens in a simulated run, planned before it begins: a list of actions, each with a time and a seed of its own.

An action that is left out changes nothing of what the others draw, so that a run can be repeated with fewer of them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["HOUR", "Action", "plan"]

HOUR = 3600.0
QUIET_SECONDS = 600.0
"""So long before the end of each hour nothing happens: the service recovers, and is checked."""

BURSTS_PER_HOUR = 3
CALLS_PER_BURST = 13
BURST_SECONDS = 25.0

CALLS = {
    "recommend": 40,
    "recommend again": 8,
    "reuse a request id": 1,
    "reward": 26,
    "reward again": 6,
    "reward otherwise": 3,
    "reward late": 4,
    "reward nothing": 1,
    "reward more": 8,
    "activate": 10,
    "activate again": 3,
    "activate otherwise": 2,
    "amend a reward": 5,
    "void a reward": 2,
    "add items": 2,
    "retire an item": 2,
    "hide or show an item": 3,
    "change settings": 2,
    "reset": 1,
    "import rows": 4,
    "go on with rows": 3,
    "repeat rows": 2,
    "import other rows": 1,
    "create the study": 4,
    "delete the study": 1,
    "cancel the design": 1,
    "ask questions": 6,
    "ask questions again": 2,
    "answer questions": 9,
    "answer again": 3,
    "answer otherwise": 1,
    "read preferences": 2,
    "import answers": 3,
    "go on with answers": 2,
    "repeat answers": 2,
    "import other answers": 1,
    "take the study as prior": 1,
}
"""What callers do, and how often."""

FAULTS = {
    "kill a worker": 4,
    "kill all workers": 1,
    "cut a worker off": 3,
    "store away": 3,
    "lose calls": 3,
    "lose replies": 5,
    "slow": 4,
    "send twice": 4,
    "lose hints": 2,
    "fail over": 2,
    "lose a snapshot": 1,
    "spoil a snapshot": 1,
    "set the store's clock": 1,
    "set a worker's clock": 1,
}
"""What goes wrong, and how often."""


@dataclass(frozen=True, slots=True)
class Action:
    """One thing that happens.

    Attributes
    ----------
    number
        Its place in the plan.
    at
        Virtual seconds.
    kind
        A key of `CALLS` or `FAULTS`.
    seed
        Of all that it draws.
    """

    number: int
    at: float
    kind: str
    seed: int

    def __str__(self) -> str:
        minutes, seconds = divmod(self.at, 60.0)
        return f"#{self.number} {int(minutes) // 60}:{int(minutes) % 60:02}:{seconds:06.3f} {self.kind}"


def plan(seed: int, *, hours: int) -> tuple[Action, ...]:
    """Return what happens in so many hours: bursts of calls, most of them with faults among them."""
    rng = np.random.default_rng((seed, 16))
    drawn = [one for hour in range(hours) for _ in range(BURSTS_PER_HOUR) for one in _plan_burst(rng, hour * HOUR)]
    drawn.sort()
    return tuple(Action(number, at, kind, one) for number, (at, kind, one) in enumerate(drawn))


def _plan_burst(rng: np.random.Generator, start: float) -> list[tuple[float, str, int]]:
    begin = start + float(rng.uniform(0.0, HOUR - QUIET_SECONDS - BURST_SECONDS))
    kinds = _draw(rng, CALLS, int(rng.integers(CALLS_PER_BURST // 2, 2 * CALLS_PER_BURST)))
    kinds += _draw(rng, FAULTS, int(rng.integers(0, 4)))
    return [(begin + float(rng.uniform(0.0, BURST_SECONDS)), kind, int(rng.integers(2**62))) for kind in kinds]


def _draw(rng: np.random.Generator, shares: dict[str, int], count: int) -> list[str]:
    weights = np.array(list(shares.values()), dtype=float)
    return [str(kind) for kind in rng.choice(list(shares), size=count, p=weights / weights.sum())]
