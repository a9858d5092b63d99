"""One worker of the service on a simulated line: the use cases as the service assembles them, without a wire."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.simulation.virtual_time import Pace

from topk_bandit.bandits.administration import Bandits
from topk_bandit.bandits.budget import MemoryBudget
from topk_bandit.bandits.log_retention import AS_SNAPSHOTS_ALLOW
from topk_bandit.bandits.model_cache import ModelCache
from topk_bandit.bandits.recommender import Recommender
from topk_bandit.bandits.tenant_quotas import TenantQuotas
from topk_bandit.domain.bandits import DEFAULT_EXPLORATION
from topk_bandit.domain.hooks import Hooks
from topk_bandit.domain.quotas import Quotas
from topk_bandit.learning.limits import Limits
from topk_bandit.store.whole_logs import WholeLogs
from topk_bandit.studies.administration import Studies
from topk_bandit.studies.designer import Designer

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.line import Line

__all__ = ["LIMITS", "Alarms", "Worker", "start_worker"]

LIMITS = Limits(rows=32, pending_rows=4)
"""Few rows, so that folding is cheap, and a refit and a snapshot come often."""

IDLE_SECONDS = 600.0
STUDY_BYTES = 2**20
LOOK_SECONDS = 10.0
"""Workers look for unfinished designs so rarely, because each look costs as much as a call."""


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


@dataclass
class Worker:
    """A worker that lives until `kill`."""

    number: int
    line: Line
    models: ModelCache
    recommender: Recommender
    bandits: Bandits
    studies: Studies
    designer: Designer

    async def kill(self) -> None:
        """End without a word to anybody."""
        self.line.die()
        await asyncio.gather(self.models.stop(), self.designer.stop())


def start_worker(
    number: int,
    line: Line,
    *,
    hooks: Hooks,
    clock_ms: Callable[[], int],
    new_id: Callable[[], str],
    design_seconds: Callable[[], float],
) -> Worker:
    """Start a worker; `clock_ms` is its machine's clock, and `design_seconds` draws how long a design takes."""
    loop, store, threads = asyncio.get_running_loop(), line.as_store(), Pace()
    models = ModelCache(
        store,
        threads,
        limits=LIMITS,
        hooks=hooks,
        clock_ms=clock_ms,
        worker_id=new_id(),
        retention=AS_SNAPSHOTS_ALLOW,
        budget=MemoryBudget(idle_seconds=IDLE_SECONDS),
        now=loop.time,
    )
    models.start()
    quotas = TenantQuotas(store, Quotas({}), now=loop.time)
    designer = _start_designer(line, Pace(design_seconds), hooks=hooks, new_id=new_id)
    studies = Studies(
        line.as_study_store(),
        designer,
        threads,
        hooks=hooks,
        quotas=Quotas({}),
        new_id=new_id,
        most_bytes=STUDY_BYTES,
        clock_ms=lambda: round(loop.time() * 1000),
    )
    return Worker(
        number=number,
        line=line,
        models=models,
        recommender=Recommender(store, models, threads, quotas=quotas, hooks=hooks, new_id=new_id),
        bandits=Bandits(
            store,
            models,
            logs=WholeLogs(store, None),
            default_exploration=DEFAULT_EXPLORATION,
            quotas=quotas,
            new_id=new_id,
            priors=studies,
        ),
        studies=studies,
        designer=designer,
    )


def _start_designer(line: Line, threads: Pace, *, hooks: Hooks, new_id: Callable[[], str]) -> Designer:
    designer = Designer(
        line.as_study_store(),
        threads,
        threads=1,
        hooks=hooks,
        owner=new_id(),
        new_reference=new_id,
        look_seconds=LOOK_SECONDS,
    )
    designer.start()
    return designer
