"""What is compiled ahead is all that a bandit calls, whether its items have features or not."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from tests.long_forms import LONG

if TYPE_CHECKING:
    from pathlib import Path

BANDITS = """
import sys
import numpy as np
from numba.core.dispatcher import Dispatcher
from topk_bandit.learning.state_changes import change_item_features
from topk_bandit.domain.bandits import DEFAULT_EXPLORATION, Kernel
from topk_bandit.learning.decisions import decide
from topk_bandit.learning.limits import Limits
from topk_bandit.learning.policy import State, kernel_of
from topk_bandit.learning.warm_up import _OF_EACH_KIND, _allow, warm_up, warm_up_rules


def known():
    return {
        (module.__name__, name): len(value.signatures)
        for module in list(sys.modules.values())
        if module.__name__.startswith("topk_bandit.learning")
        for name, value in vars(module).items()
        if isinstance(value, Dispatcher)
    }


warm_up()
warm_up_rules()
before = known()
left, allowed = _allow(_OF_EACH_KIND, 3)
assert len(before) > 20, before
rng = np.random.default_rng(1)
for features, size in ((None, 4), (None, 3), (np.eye(300, 5), 4), (np.eye(300, 5), 3), (-np.eye(300, 64), 4)):
    kernel = kernel_of(Kernel.ADAPTIVE, 300, size)
    state = State.initial(kernel, context_dim=3, limits=Limits(rows=20, pending_rows=3))
    state = change_item_features(state, features)
    for number in range(40):
        context, some = rng.normal(size=3), np.sort(rng.permutation(300)[: 30 + 7 * number]).astype(np.int32)
        ranking = decide(state, DEFAULT_EXPLORATION, context=context, eligible=some, rng=rng).ranking
        if kernel.slate_size == 3:
            decide(state, DEFAULT_EXPLORATION, context=context, eligible=left, rng=rng, allowed=allowed)
        state = state.shown(f"{number}", context, ranking)
        state = state.rewarded(f"{number - 2}", context, ranking, reward=float(ranking[0] + rng.normal()))
    change_item_features(state, np.eye(300, 3)).predict(context, ranking[None])
after = known()
assert after == before, {one: count for one, count in after.items() if count != before[one]}
"""


@pytest.mark.slow
def test_a_bandit_after_it_compiles_nothing() -> None:
    run = subprocess.run([sys.executable, "-c", BANDITS], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr


COMPILED = """
import sys
from collections import Counter
from numba.core import event
from topk_bandit.learning.warm_up import warm_up


class Counted(event.Listener):
    def on_start(self, event):
        pass

    def on_end(self, event):
        counts[event.data["dispatcher"].py_func] += 1


counts = Counter()
with event.install_listener("numba:compile", Counted()):
    warm_up()
ours = {one.__name__: count for one, count in counts.items() if one.__module__.startswith("topk_bandit.")}
assert len(ours) > 60, ours
several = {name: count for name, count in ours.items() if count > 1}
assert several == {"copy": 4, "add": 2, "are_equal": 2}, several
"""


@pytest.mark.skipif(not LONG, reason="compiles everything: make faults runs it")
@pytest.mark.slow
@pytest.mark.long_form
def test_loops_are_compiled_once_but_for_those_that_take_arrays_of_several_kinds(tmp_path: Path) -> None:
    # What the compiler does not optimise it compiles in a third of the time, and as often.
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "NUMBA_OPT": "0"}
    run = subprocess.run([sys.executable, "-c", COMPILED], capture_output=True, text=True, check=False, env=environment)
    assert run.returncode == 0, run.stderr
