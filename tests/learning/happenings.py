"""What may happen to a bandit's slates, drawn at random, and folded into a state."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from tests.learning.dense import WCK, sample

from topk_bandit.learning.limits import Limits
from topk_bandit.learning.policy import State

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from numpy.typing import NDArray

    Lie: TypeAlias = Callable[[NDArray[Any]], NDArray[Any]]

N_ITEMS, SLATE_SIZE, CONTEXT_DIM = 9, 3, 2
KERNEL = WCK.make(N_ITEMS, SLATE_SIZE)
ASK_CONTEXT = np.array([0.6, -0.7])


@dataclass(frozen=True)
class Shown:
    slate_id: str
    context: NDArray[np.float64]
    ranking: NDArray[np.int32]

    def fold(self, state: State) -> State:
        return state.shown(self.slate_id, self.context, self.ranking)

    def lying(self, lie: Lie) -> Shown:
        """Return the same with arrays that lie otherwise in memory."""
        return replace(self, context=lie(self.context), ranking=lie(self.ranking))


@dataclass(frozen=True)
class Earned:
    slate: Shown
    reward: float

    def fold(self, state: State) -> State:
        return state.rewarded(self.slate.slate_id, self.slate.context, self.slate.ranking, reward=self.reward)

    def lying(self, lie: Lie) -> Earned:
        return replace(self, slate=self.slate.lying(lie))


@dataclass(frozen=True)
class Closed:
    slate_id: str

    def fold(self, state: State) -> State:
        return state.closed(self.slate_id)

    def lying(self, lie: Lie) -> Closed:  # noqa: ARG002
        return self


Happening: TypeAlias = Shown | Earned | Closed


def happenings(seed: int, count: int, *, prefix: str = "", context_dim: int = CONTEXT_DIM) -> list[Happening]:
    """Draw `count` slates; half of those outstanding are rewarded or closed after each, in any order."""
    rng = np.random.default_rng(seed)
    data = sample(WCK, rng, n_items=N_ITEMS, slate_size=SLATE_SIZE, context_dim=context_dim, count=count)
    drawn: list[Happening] = []
    outstanding: list[tuple[Shown, float]] = []
    for place, (context, ranking, reward) in enumerate(zip(*data.rows, strict=True)):
        slate = Shown(f"{prefix}{place}", context, ranking)
        drawn.append(slate)
        outstanding.append((slate, float(reward)))
        while outstanding and rng.random() < 0.47:
            gone, earned = outstanding.pop(int(rng.integers(len(outstanding))))
            drawn.append(Closed(gone.slate_id) if rng.random() < 0.15 else Earned(gone, earned))
    return drawn


def initial(limits: Limits | None = None) -> State:
    return State.initial(KERNEL, context_dim=CONTEXT_DIM, limits=limits or Limits())


def folded(state: State, drawn: Iterable[Happening]) -> State:
    return reduce(lambda before, happening: happening.fold(before), drawn, state)
