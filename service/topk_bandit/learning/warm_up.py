"""Compiling ahead of the first request."""

from __future__ import annotations

import numpy as np

from topk_bandit.domain.bandits import Exploration, Kernel, PaperBeta
from topk_bandit.learning.policy import Limits, State, decide, kernel_of

__all__ = ["warm_up"]


def warm_up() -> None:
    """Compile all that serving calls, or load it from the cache of an earlier start.

    It takes a small bandit through everything that can happen to one: slates shown, rewarded out of order, closed and
    forgotten, and a state taken up again from its memory.
    """
    kernel = kernel_of(Kernel.ADAPTIVE, 20, 3)
    limits = Limits(rows=16, pending_rows=2)
    exploration = Exploration(beta=PaperBeta(0.1), uniform_share=0.5)
    eligible = np.arange(20, dtype=np.int32)
    rng = np.random.default_rng(0)
    state = State.initial(kernel, context_dim=2, limits=limits)
    for number in range(48):
        context = rng.normal(size=2)
        ranking = decide(state, exploration, context=context, eligible=eligible, rng=rng).ranking
        state = state.shown(f"r{number}", context, ranking)
        if number % 4 == 3:
            state = state.closed(f"r{number - 1}")
        state = state.rewarded(f"r{number - number % 2}", context, ranking, reward=float(rng.normal()))
    State.restored(kernel, state.refit().memory, limits=limits)
