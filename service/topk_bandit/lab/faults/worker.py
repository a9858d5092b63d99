"""One worker of the service on a simulated line: the use cases as the service assembles them, without a wire."""

from __future__ import annotations

import asyncio
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from topk_bandit.bandits.administration import Bandits
from topk_bandit.bandits.budget import MemoryBudget
from topk_bandit.bandits.recommender import Recommender
from topk_bandit.bandits.residents import Residents
from topk_bandit.bandits.tenant_quotas import TenantQuotas
from topk_bandit.domain.bandits import DEFAULT_EXPLORATION
from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.domain.hooks import Hooks
from topk_bandit.domain.quotas import Quotas
from topk_bandit.learning.policy import Limits

if TYPE_CHECKING:
    from collections.abc import Callable

    from topk_bandit.domain.bandits import Prior
    from topk_bandit.lab.faults.line import Line

__all__ = ["LIMITS", "Alarms", "Worker", "start_worker"]

LIMITS = Limits(rows=32, pending_rows=4)
"""Few rows, so that folding is cheap, and a refit and a snapshot come often."""

IDLE_SECONDS = 600.0


class Alarms(Hooks):
    """Notes what must not happen, whatever the faults are."""

    def __init__(self) -> None:
        self.raised: list[str] = []

    def fold_failed(self, bandit: str) -> None:  # noqa: ARG002 - there is one
        """See `Hooks.fold_failed`."""
        self.raised.append("an event of the log can't be folded")

    def diverged(self, bandit: str) -> None:  # noqa: ARG002 - there is one
        """See `Hooks.diverged`."""
        self.raised.append("a model is not the one that was kept for the same log position")


class _NoStudies:
    """Has no priors."""

    async def prior(self, tenant: str, study: str, *, context_dim: int) -> Prior:  # noqa: ARG002
        raise InvalidArgumentError("prior_study", f"there is no study {study}")


class _NoThreads(Executor):
    """Stands for threads, which a virtual loop does not ask for anything."""

    def submit(self, *_: Any, **__: Any) -> Any:  # noqa: ANN401 - as its parent
        """Refuse work."""
        raise RuntimeError("work is for the loop")


@dataclass
class Worker:
    """A worker that lives until `kill`."""

    number: int
    line: Line
    residents: Residents
    recommender: Recommender
    bandits: Bandits

    async def kill(self) -> None:
        """End without a word to anybody."""
        self.line.die()
        await self.residents.stop()


def start_worker(
    number: int, line: Line, *, hooks: Hooks, clock_ms: Callable[[], int], new_id: Callable[[], str]
) -> Worker:
    """Start a worker; `clock_ms` is its machine's clock."""
    loop, store, threads = asyncio.get_running_loop(), line.as_store(), _NoThreads()
    residents = Residents(
        store,
        threads,
        limits=LIMITS,
        hooks=hooks,
        clock_ms=clock_ms,
        worker_id=new_id(),
        budget=MemoryBudget(idle_seconds=IDLE_SECONDS),
        now=loop.time,
    )
    residents.start()
    quotas = TenantQuotas(store, Quotas({}), now=loop.time)
    return Worker(
        number=number,
        line=line,
        residents=residents,
        recommender=Recommender(store, residents, threads, quotas=quotas, hooks=hooks, new_id=new_id),
        bandits=Bandits(
            store,
            residents,
            default_exploration=DEFAULT_EXPLORATION,
            quotas=quotas,
            new_id=new_id,
            priors=_NoStudies(),
        ),
    )
