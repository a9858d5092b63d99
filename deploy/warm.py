"""Compile what serving calls, into NUMBA_CACHE_DIR, so that a container's first recommendation does not wait for it."""  # noqa: INP001

import numpy as np

from topk_bandit.learning.policy import Limits, State, decide, kernel_of
from topk_bandit.types import Exploration, Kernel, PaperBeta


def warm() -> None:
    """Show, reward and close slates of a small bandit until it has forgotten rows, and take it up from its memory."""
    kernel = kernel_of(Kernel.WEIGHTED_CONVOLUTIONAL, 20, 3)
    limits = Limits(rows=16, pending_rows=2)
    exploration = Exploration(beta=PaperBeta(0.1), uniform_share=0.5)
    rng = np.random.default_rng(0)
    state = State.initial(kernel, context_dim=2, limits=limits)
    for number in range(48):
        context = rng.normal(size=2)
        eligible = np.arange(20, dtype=np.int32)
        ranking = decide(state, exploration, context=context, eligible=eligible, rng=rng).ranking
        state = state.shown(f"r{number}", context, ranking)
        if number % 4 == 3:
            state = state.closed(f"r{number - 1}")
        state = state.rewarded(f"r{number - number % 2}", context, ranking, reward=rng.normal())
    State.restored(kernel, state.refit().memory, limits=limits)


if __name__ == "__main__":
    warm()
