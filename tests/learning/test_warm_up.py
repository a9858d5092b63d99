"""What is compiled ahead is all that a bandit calls, whether its items have features or not."""

from __future__ import annotations

import subprocess
import sys

import pytest

BANDITS = """
import sys
import numpy as np
from numba.core.dispatcher import Dispatcher
from topk_bandit.domain.bandits import DEFAULT_EXPLORATION, Kernel
from topk_bandit.learning.policy import Limits, State, decide, kernel_of
from topk_bandit.learning.warm_up import warm_up


def known():
    return {
        (module.__name__, name): len(value.signatures)
        for module in list(sys.modules.values())
        if module.__name__.startswith("topk_bandit.learning")
        for name, value in vars(module).items()
        if isinstance(value, Dispatcher)
    }


warm_up()
before = known()
assert len(before) > 20, before
rng = np.random.default_rng(1)
for features in (None, np.eye(300, 5), -np.eye(300, 64)):
    kernel = kernel_of(Kernel.ADAPTIVE, 300, 4)
    state = State.initial(kernel, context_dim=3, limits=Limits(rows=20, pending_rows=3)).with_item_features(features)
    for number in range(40):
        context, some = rng.normal(size=3), np.sort(rng.permutation(300)[: 30 + 7 * number]).astype(np.int32)
        ranking = decide(state, DEFAULT_EXPLORATION, context=context, eligible=some, rng=rng).ranking
        state = state.shown(f"{number}", context, ranking)
        state = state.rewarded(f"{number - 2}", context, ranking, reward=float(ranking[0] + rng.normal()))
    state.with_item_features(np.eye(300, 3)).predict(context, ranking[None])
after = known()
assert after == before, {one: count for one, count in after.items() if count != before[one]}
"""


@pytest.mark.slow
def test_a_bandit_after_it_compiles_nothing() -> None:
    run = subprocess.run([sys.executable, "-c", BANDITS], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
