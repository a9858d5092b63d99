"""How much memory models may take, in one bandit and in one worker, and which of them leave first."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from topk_bandit.domain.errors import ExhaustedError
from topk_bandit.learning.policy import Limits

if TYPE_CHECKING:
    from topk_bandit.bandits.model import Model
    from topk_bandit.domain.bandits import BanditName

__all__ = ["MIB", "MemoryBounds", "Residents"]

MIB = 2**20
WAITING_RETRY_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class MemoryBounds:
    """How much memory models may take, and how long.

    Attributes
    ----------
    model_bytes
        What one bandit's model may take. Three eighths are for its posterior, the rest for its items and for slates
        that await their reward.
    worker_bytes
        What all models of a worker may take together; those that were used least recently leave first.
    idle_seconds
        When a model leaves that nobody asks for and that nothing happens to.
    """

    model_bytes: int = 16 * MIB
    worker_bytes: int = 6144 * MIB
    idle_seconds: float = 600.0

    def limits(self, *, context_dim: int, slate_size: int) -> Limits:
        """Return what a posterior may grow to if contexts and slates are no longer than this."""
        return Limits.within(self._posterior_bytes, context_dim=context_dim, slate_size=slate_size)

    def admit(self, model: Model) -> None:
        """See that there is room for one more open slate, or raise `ExhaustedError`: BANDIT_MEMORY."""
        if model.waiting_bytes < self.model_bytes - self._posterior_bytes:
            return
        raise ExhaustedError(
            "BANDIT_MEMORY",
            f"{len(model.open)} recommendations await their reward, and the bandit's memory is used up: reward sooner, "
            "shorten its reward wait, or raise bandit_memory_mib",
            retry_after=WAITING_RETRY_SECONDS,
        )

    @property
    def _posterior_bytes(self) -> int:
        return self.model_bytes * 3 // 8


class Residents:
    """The models that a worker holds, by when they were last used, and what they take.

    Parameters
    ----------
    most_bytes
        What they may take together.
    """

    def __init__(self, *, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._bytes: OrderedDict[BanditName, int] = OrderedDict()
        self.total_bytes = 0

    def use(self, name: BanditName) -> None:
        """Note that a model is used now."""
        self._bytes.setdefault(name, 0)
        self._bytes.move_to_end(name)

    def resize(self, name: BanditName, memory_bytes: int) -> list[BanditName]:
        """Note what a model takes; return those that have to leave, used least recently first: never the last used."""
        if name not in self._bytes:
            return []
        self.total_bytes += memory_bytes - self._bytes[name]
        self._bytes[name] = memory_bytes
        leaving, excess = [], self.total_bytes - self._most_bytes
        newest = next(reversed(self._bytes))
        for one, its_bytes in self._bytes.items():
            if excess <= 0 or one == newest:
                break
            leaving.append(one)
            excess -= its_bytes
        return leaving

    def leave(self, name: BanditName) -> None:
        """Note that a model has left."""
        self.total_bytes -= self._bytes.pop(name, 0)
