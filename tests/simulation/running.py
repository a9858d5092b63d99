"""Runs a plan of calls and faults in virtual time, and checks the promises in the quiet part of each hour."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
from tests.simulation.actions import HOUR, QUIET_SECONDS, plan
from tests.simulation.checker import Replay, check_ledger
from tests.simulation.imports_checker import check_past_slates
from tests.simulation.interviews import STUDY, draw_study
from tests.simulation.learned_checker import check_priors, check_study_of
from tests.simulation.ledger import Response
from tests.simulation.rules_checker import check_rules_in_force
from tests.simulation.server import Server
from tests.simulation.shop import MOST_PATIENCE_SECONDS, NAME, Shop
from tests.simulation.stages_checker import check_groups, check_stages
from tests.simulation.studies_checker import check_studies
from tests.simulation.virtual_time import run
from tests.simulation.worker import LIMITS

from topk_bandit.bandits.digests import digests_of
from topk_bandit.domain.bandits import Aggregation, BanditSettings, ConstantBeta, Exploration, Kernel
from topk_bandit.domain.errors import TopkBanditError
from topk_bandit.store.events import Imported

if TYPE_CHECKING:
    from collections.abc import Callable, Container

    from tests.simulation.actions import Action
    from tests.simulation.server import Stores
    from tests.simulation.worker import Worker

    from topk_bandit.domain.bandits import Prior

__all__ = ["Outcome", "as_it_is", "simulate"]

SETTLE_SECONDS = 60.0
COMPUTING_SECONDS = 0.004
WARM_SHARE = 0.5
"""So many bandits begin with what a study knows."""

RULES_SHARE = 0.4
"""So many bandits have rules, which change as their settings do."""

DEFAULT_VALUE_SHARE, GROUPS_SHARE = 0.5, 0.4
"""So many have a value for items that no reward names."""


@dataclass(frozen=True)
class Outcome:
    """What came of a run.

    Attributes
    ----------
    violations
        The promises that were broken, in sentences; the run ended at the first hour that had any.
    hours
        How many were simulated.
    trace
        What happened, in order: virtual seconds, the number of the action (-1 for the check's own), and words.
    trace_hash
        Of the trace and the log: the same for the same seed.
    calls, events, failovers
        How many there were.
    """

    violations: tuple[str, ...]
    hours: int
    trace: tuple[tuple[float, int, str], ...]
    trace_hash: str
    calls: int
    events: int
    failovers: int


def as_it_is(stores: Stores) -> Stores:
    """Return the stores."""
    return stores


def simulate(
    seed: int,
    *,
    hours: int,
    only: Container[int] | None = None,
    wrap: Callable[[Stores], Stores] = as_it_is,
) -> Outcome:
    """Run what a seed plans for so many hours.

    Parameters
    ----------
    only
        The numbers of the actions that happen; None for all.
    wrap
        What stands before the stores, such as a bug that is to be found.
    """
    actions = [action for action in plan(seed, hours=hours) if only is None or action.number in only]
    computing = np.random.default_rng((seed, 1))
    log = logging.getLogger("topk_bandit")
    level = log.level
    log.setLevel(logging.CRITICAL + 1)  # simulated faults are nothing that an operator should read of
    try:
        return run(
            _simulate(seed, actions, hours=hours, wrap=wrap),
            computing_seconds=lambda: float(computing.exponential(COMPUTING_SECONDS)),
        )
    finally:
        log.setLevel(level)


def _draw_settings(rng: np.random.Generator) -> BanditSettings:
    return BanditSettings(
        item_capacity=16,
        slate_size=int(rng.integers(2, 4)),
        context_dim=2,
        kernel=Kernel.ADAPTIVE if rng.random() < 0.2 else Kernel.CONVOLUTIONAL,
        exploration=Exploration(ConstantBeta(1.0), 0.1, 0.2),
        reward_wait_ms=int(rng.integers(60_000, 3_000_000)),
        default_reward=-5.0,
        reward_aggregation=Aggregation.FIRST if rng.random() < 0.4 else list(Aggregation)[int(rng.integers(1, 5))],
        requires_activation=bool(rng.random() < 0.5),
        provisional_after_ms=int(rng.integers(60_000)) if rng.random() < 0.5 else None,
    )


async def _simulate(seed: int, actions: list[Action], *, hours: int, wrap: Callable[[Stores], Stores]) -> Outcome:
    loop, rng = asyncio.get_running_loop(), np.random.default_rng((seed, 2))
    server, of_study = Server(NAME, STUDY, now=loop.time, wrap=wrap), np.random.default_rng((seed, 3))
    n_workers, settings = 3 if rng.random() < 0.3 else 2, _draw_settings(rng)
    if np.random.default_rng((seed, 4)).random() < DEFAULT_VALUE_SHARE:
        settings = replace(settings, default_item_value=0.25)
    if np.random.default_rng((seed, 5)).random() < GROUPS_SHARE:
        settings = replace(settings, control_share=0.3)
    has_rules = bool(np.random.default_rng((seed, 6)).random() < RULES_SHARE)
    study = draw_study(of_study)
    shop = Shop(server, n_workers=n_workers, settings=settings, study=study, rng=rng, has_rules=has_rules)
    checks, violations, hour = _Checks(), list[str](), 0
    await shop.open(begins_warm=bool(of_study.random() < WARM_SHARE))
    while hour < hours and not violations:
        hour += 1
        for action in [one for one in actions if hour - 1 <= one.at / HOUR < hour]:
            await asyncio.sleep(max(0.0, action.at - loop.time()))
            shop.begin(action)
        await asyncio.sleep(hour * HOUR - QUIET_SECONDS / 2 - loop.time())
        shop.heal()
        await asyncio.sleep(SETTLE_SECONDS)
        violations = await checks.run(shop, hour)
        await asyncio.sleep(max(0.0, hour * HOUR - loop.time()))
    await shop.close()
    return _outcome(shop, violations, hour)


class _Checks:
    """What is checked each hour, and what is known of the log from the hours before."""

    def __init__(self) -> None:
        self._replay = Replay(limits=LIMITS)
        self._priors: dict[tuple[str, int], Prior | None] = {}

    async def run(self, shop: Shop, hour: int) -> list[str]:
        """Return the promises that are broken, now that all faults are over."""
        archive, workers = shop.server.archive, list(shop.workers.values())
        found = [f"{shop.n_calls} calls or faults have not ended"] if shop.n_calls else []
        for worker in workers:
            request = shop.request_of(f"check-{hour}-{worker.number}", (1.0, 0.0))
            asked = await shop.ask(-1, worker, request, patience=MOST_PATIENCE_SECONDS)
            if asked.response is not Response.ANSWER or (asked.answer is not None and asked.answer.degraded):
                found.append(f"worker {worker.number} has not recovered: {asked.response}")
        for worker in workers:
            found += await self._check_model(shop, worker)
        found += await check_study_of(workers, archive)
        incarnation = (await workers[0].bandits.get_bandit(NAME)).incarnation
        broken = check_ledger(shop.ledger, archive, incarnation=incarnation, settings=shop.settings)
        return [
            *found,
            *shop.alarms.raised,
            *broken,
            *check_stages(archive.events),
            *check_rules_in_force(archive.events),
            *check_past_slates(shop.ledger, archive),
            *check_studies(shop.ledger, archive),
            *check_priors(archive, self._priors),
        ]

    async def _check_model(self, shop: Shop, worker: Worker) -> list[str]:
        """Compare a worker's model with one that is folded from nothing: so all are compared with each other."""
        try:
            model = await worker.models.follow(NAME)
        except TopkBanditError as error:
            return [f"worker {worker.number} has no model: {error}"]
        archive = shop.server.archive
        truth = self._replay.model_at(archive, model.incarnation, model.version)
        difference = digests_of(model).difference(digests_of(truth))
        found = [f"worker {worker.number} at {model.version} differs in its {difference}"] if difference else []
        imported = [one.event for one in archive.events[: model.version] if isinstance(one.event, Imported)]
        n_rows = sum(len(event.slates) for event in imported)
        found += check_groups(archive.events[: model.version], model.comparison)
        if model.state.imported != n_rows:
            found.append(f"worker {worker.number} learned {model.state.imported} past slates, and the log has {n_rows}")
        return found


def _outcome(shop: Shop, violations: list[str], hours: int) -> Outcome:
    archive = shop.server.archive
    digest = blake2b(digest_size=8)
    for at, number, words in shop.trace:
        digest.update(f"{at:.6f} {number} {words}\n".encode())
    events = [*archive.events, *chain.from_iterable(study.events for study in archive.studies.values())]
    for logged in events:
        digest.update(f"{logged}\n".encode())
    return Outcome(
        violations=tuple(dict.fromkeys(violations)),
        hours=hours,
        trace=tuple(shop.trace),
        trace_hash=digest.hexdigest(),
        calls=len(shop.trace),
        events=len(events),
        failovers=archive.failovers,
    )
