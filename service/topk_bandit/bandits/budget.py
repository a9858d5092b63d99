"""The memory that models may take, in one bandit and in one worker.

`MemoryBudget` has the limits. `ModelSizes` adds up what the models of a worker take, and names those that have to leave
to keep within the limit: the least recently used first, and never the one that was used last. Nothing here loads,
drops or measures a model.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from topk_bandit.domain.bandits import MAX_CONTEXT_DIMENSION
from topk_bandit.learning.limits import Limits

if TYPE_CHECKING:
    from topk_bandit.domain.bandits import BanditName

__all__ = ["MIB", "MemoryBudget", "ModelSizes"]

MIB = 2**20

USUAL_SLATE_SIZE = 12
"""Rows are budgeted for slates of so many items: longer ones take up to 2 % more than the posterior's share."""


@dataclass(frozen=True, slots=True)
class MemoryBudget:
    """How much memory models may take, and how long they stay unused.

    Attributes
    ----------
    model_bytes
        What one bandit's model may take. Three eighths are for its posterior, the rest for its items and its prior.
    worker_bytes
        What all models of a worker may take together.
    idle_seconds
        A model leaves memory when nobody asks for it and its log does not grow for so long.
    """

    model_bytes: int = 16 * MIB
    worker_bytes: int = 6144 * MIB
    idle_seconds: float = 600.0

    def limits(self, *, context_dim: int = MAX_CONTEXT_DIMENSION, slate_size: int = USUAL_SLATE_SIZE) -> Limits:
        """Return what a posterior may grow to if contexts and slates are no longer than this."""
        return Limits.within(self.model_bytes * 3 // 8, context_dim=context_dim, slate_size=slate_size)


class ModelSizes:
    """The sizes of the models in a worker, ordered by when they were last used.

    Parameters
    ----------
    most_bytes
        What all of them may take together.
    """

    def __init__(self, *, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._bytes: OrderedDict[BanditName, int] = OrderedDict()
        self.total_bytes = 0

    def touch(self, name: BanditName) -> None:
        """Record that a model is used now."""
        self._bytes.setdefault(name, 0)
        self._bytes.move_to_end(name)

    def resize(self, name: BanditName, model_bytes: int) -> list[BanditName]:
        """Record a model's size, and return the models that have to leave, least recently used first."""
        if name not in self._bytes:
            return []
        self.total_bytes += model_bytes - self._bytes[name]
        self._bytes[name] = model_bytes
        leaving, excess = [], self.total_bytes - self._most_bytes
        newest = next(reversed(self._bytes))
        for one, its_bytes in self._bytes.items():
            if excess <= 0 or one == newest:
                break
            leaving.append(one)
            excess -= its_bytes
        return leaving

    def remove(self, name: BanditName) -> None:
        """Record that a model has left; it need not have been there."""
        self.total_bytes -= self._bytes.pop(name, 0)
