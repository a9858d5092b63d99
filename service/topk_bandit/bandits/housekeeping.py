"""Closes and forgets what is overdue of bandits that nobody asks for.

A bandit with a model in some worker has that done at each look at its log. One that rests would keep its open slates
and closed records until somebody asks for it again: this goes through all bandits, however long they rest, and asks
many of them at once whether there is anything to do.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from topk_bandit.domain.errors import CorruptDataError, ExhaustedError, UnavailableError

if TYPE_CHECKING:
    from topk_bandit.bandits.model_cache import ModelCache
    from topk_bandit.domain.bandits import BanditName
    from topk_bandit.store.log import Store

__all__ = ["Housekeeper"]

_log = logging.getLogger(__name__)

ROUND_SECONDS = 60.0
PAUSE_SECONDS = 0.02


class Housekeeper:
    """Goes through all bandits, round after round.

    Parameters
    ----------
    round_seconds
        How long it rests after each round.
    pause_seconds
        How long it leaves the store alone after each look at many bandits.
    """

    def __init__(
        self,
        store: Store,
        models: ModelCache,
        *,
        round_seconds: float = ROUND_SECONDS,
        pause_seconds: float = PAUSE_SECONDS,
    ) -> None:
        self._store = store
        self._models = models
        self._round_seconds = round_seconds
        self._pause_seconds = pause_seconds

    async def run(self) -> None:
        """Go round until cancelled; a store that is away or full is gone through when it is neither."""
        while True:
            try:
                await self.go_round()
            except (UnavailableError, ExhaustedError):
                _log.debug("the store is away or full, and can't be tidied")
            except Exception:  # noqa: BLE001 - one round that fails must not stop those after it
                _log.exception("the store can't be tidied")
            await asyncio.sleep(self._round_seconds)

    async def go_round(self) -> None:
        """Close what is overdue of every bandit that has no model here, and forget what was closed long ago.

        Raises
        ------
        UnavailableError
            The store is away.
        ExhaustedError
            The store is full, so that no slate can be closed.
        """
        async for name in self._store.find_overdue(pause_seconds=self._pause_seconds):
            if self._models.peek_model(name) is None:
                await self._tidy(name)

    async def _tidy(self, name: BanditName) -> None:
        try:
            await self._models.expire(name)
        except CorruptDataError:  # an operator's look for damage reports it
            _log.debug("a damaged bandit is not tidied", extra={"bandit": str(name)})
