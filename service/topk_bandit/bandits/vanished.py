"""Bandits that are gone though nobody deleted them: their keys were removed by hand, or lost with an older copy.

Who deletes a bandit takes it out of its tenant's list. One that is still listed some seconds after it was not found was
lost. So was one that was seen before the store became an older copy of itself: it is listed again, so that an operator
finds it. What this worker knew of it is counted.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING

from topk_bandit.domain.errors import NotFoundError, TopkBanditError

if TYPE_CHECKING:
    from topk_bandit.bandits.model import Model
    from topk_bandit.domain.bandits import BanditName
    from topk_bandit.domain.hooks import Hooks
    from topk_bandit.store.log import Store

__all__ = ["GONE_SECONDS", "VanishedBandits", "count_lost"]

GONE_SECONDS = 2.0
"""So long whoever deletes a bandit has to take it out of the list."""

_log = logging.getLogger(__name__)


def count_lost(name: BanditName, model: Model, hooks: Hooks) -> tuple[int, int]:
    """Count all that a model knows of as lost; return how many events and rewards that is."""
    events, rewards = model.version, model.state.observations
    hooks.events_lost(str(name), events=events, rewards=rewards)
    return events, rewards


class VanishedBandits:
    """Finds out, beside all calls, which bandits that are gone were lost."""

    def __init__(self, store: Store, *, hooks: Hooks) -> None:
        self._store = store
        self._hooks = hooks
        self._suspected: dict[BanditName, asyncio.Task[None]] = {}

    def suspect(self, name: BanditName, model: Model, *, was_in_newer_store: bool) -> None:
        """Have it found out whether a bandit was lost.

        Parameters
        ----------
        model
            The last one.
        was_in_newer_store
            Whether it was found the last time before the store became an older copy of itself.
        """
        if name not in self._suspected:
            task = self._suspected[name] = asyncio.create_task(
                self._count_if_lost(name, model, was_in_newer_store=was_in_newer_store)
            )
            task.add_done_callback(lambda _: self._suspected.pop(name, None))

    async def stop(self) -> None:
        """Find out nothing more."""
        suspected = tuple(self._suspected.values())
        for task in suspected:
            task.cancel()
        await asyncio.gather(*suspected, return_exceptions=True)

    async def _count_if_lost(self, name: BanditName, model: Model, *, was_in_newer_store: bool) -> None:
        await asyncio.sleep(GONE_SECONDS)
        with suppress(TopkBanditError):
            is_lost = was_in_newer_store or await self._store.is_listed(name)
            if is_lost and not await self._is_there(name):
                events, rewards = count_lost(name, model, self._hooks)
                counted = {"bandit": str(name), "lost_events": events, "lost_rewards": rewards}
                _log.error("a bandit is gone, and nobody deleted it: bring its data back", extra=counted)
                if was_in_newer_store:
                    await self._store.list_again(name)

    async def _is_there(self, name: BanditName) -> bool:
        try:
            await self._store.get_bandit(name)
        except NotFoundError:
            return False
        return True
