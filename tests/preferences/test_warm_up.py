"""What is compiled ahead is all that a study calls."""

from __future__ import annotations

import subprocess
import sys

import pytest

STUDY = """
import sys
import numpy as np
from numba.core.dispatcher import Dispatcher
from topk_bandit.preferences.warm_up import warm_up
from topk_bandit.preferences.answers import Orderings, Ratings
from topk_bandit.preferences.designs.optimal import Feedback
from topk_bandit.domain.studies import MODELS_OF, AnswerKind
from topk_bandit.preferences.held_out import compare_models
from topk_bandit.preferences.inference import learn_utilities
from topk_bandit.preferences.tiers import TieredAnswers
from topk_bandit.preferences.questions import QuestionPool, choose_next_lists


def known():
    return {
        (module.__name__, name): len(value.signatures)
        for module in list(sys.modules.values())
        if module.__name__.startswith("topk_bandit.preferences")
        for name, value in vars(module).items()
        if isinstance(value, Dispatcher)
    }


warm_up()
before = known()
assert len(before) > 5, before
rng = np.random.default_rng(1)
queries = rng.normal(size=(3, 2))
for feedback in Feedback:
    for size in (2, 3, 4, 7):
        pool = QuestionPool.of(rng.normal(size=(9, 4)), queries, feedback=feedback)
        design = pool.design(list_size=size, budget=20, rng=rng)
        choose_next_lists(pool, design, asked=np.zeros(len(design.weights), dtype=np.int64), count=3)
        rows = pool.span.coordinates
        learn_utilities(rows, Orderings.from_choices([0, 4], [[0, 1, 2], [3, 4]], n_items=27))
        learn_utilities(rows, Ratings.of([0, 5], [1.0, 2.0], n_items=27))
        if feedback is Feedback.RANKING:
            answers = TieredAnswers.of([[[0, 4], [2]], [[7], [3], [5, 6]]] * 6, n_items=27)
            assert len(compare_models(MODELS_OF[AnswerKind.CHOICE], pool, answers)[0]) == 8
after = known()
assert after == before, {one: count for one, count in after.items() if count != before[one]}
"""


@pytest.mark.slow
def test_a_study_after_it_compiles_nothing() -> None:
    run = subprocess.run([sys.executable, "-c", STUDY], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
