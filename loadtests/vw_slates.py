"""VowpalWabbit's slates: one action for each slot, from one number for the whole slate.

It learns one weight for each context feature crossed with an item, and a bias for each item; `OPTIONS` gives no other
interactions and no exploration that costs more, so that its predictions are as cheap as it can make them. An action
belongs to one slot there, so "50 actions x 6 slots" is either all 50 items offered in every slot, where it may choose
the same one twice, or the items dealt out to the slots, so that each can be shown in one place alone.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import vowpalwabbit

from topk_bandit.lab.experiments.vowpal import slates_lines

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["OPTIONS", "Slates"]

OPTIONS = "--slates --quadratic ca --quiet"


class Slates:
    """A VowpalWabbit that chooses slates of `slate_size` items.

    Parameters
    ----------
    split
        Whether items are dealt out to the slots; if not, each slot offers them all.
    """

    def __init__(self, n_items: int, slate_size: int, *, split: bool) -> None:
        self._workspace = vowpalwabbit.Workspace(OPTIONS)
        self._offered = [range(slot, n_items, slate_size) if split else range(n_items) for slot in range(slate_size)]

    def learn(self, context: NDArray[np.float64], ranking: NDArray[np.int32], reward: float) -> None:
        """Learn from a slate shown; an item that its slot does not offer is taken for the slot's first one."""
        places = [
            offered.index(item) if item in offered else 0
            for offered, item in zip(self._offered, ranking.tolist(), strict=True)
        ]
        labels = [f"{place}:0.1" for place in places]
        lines = slates_lines(context, self._offered, cost=f"{-reward:.6f}", labels=labels)
        examples = self._workspace.parse(lines, vowpalwabbit.LabelType.SLATES)
        self._workspace.learn(examples)
        self._workspace.finish_example(examples)

    def seconds_parsed(self, context: NDArray[np.float64]) -> float:
        """Return how long the prediction for a context takes whose examples were parsed before."""
        examples = self._workspace.parse(slates_lines(context, self._offered), vowpalwabbit.LabelType.SLATES)
        start = time.perf_counter()
        self._workspace.predict(examples)
        took = time.perf_counter() - start
        self._workspace.finish_example(examples)
        return took

    def seconds_from_text(self, context: NDArray[np.float64]) -> float:
        """Return how long it takes to parse the text of a request, to predict, and to give the examples back."""
        lines = slates_lines(context, self._offered)
        start = time.perf_counter()
        examples = self._workspace.parse(lines, vowpalwabbit.LabelType.SLATES)
        self._workspace.predict(examples)
        self._workspace.finish_example(examples)
        return time.perf_counter() - start
