"""Looks through a store again and again for bandits whose keys are damaged, and for those that lists have lost.

Each damaged one is one line of the log when it is first seen and one when it is well again or gone, and how many there
are is a metric. Nothing of it is changed: an operator deletes it, or restores it. A bandit that has lost its entry in
the index of its tenant is put back, and one line and the metric's next value report it.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Protocol

from topk_bandit.domain.errors import UnavailableError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topk_bandit.domain.bandits import BanditName
    from topk_bandit.store.redis.bandits import RedisStore

__all__ = ["DamageHooks", "DamageWatch"]

_log = logging.getLogger(__name__)

LOOK_SECONDS = 30.0
LOOKS_PER_SEARCH = 10
"""In how many looks all keys of the store are searched once for bandits that lists have lost, 1,000 in a call."""
PAUSE_SECONDS = 0.05
"""How long the store is left alone after each few bandits: 10,000 of them take a quarter of a minute."""


class DamageHooks(Protocol):
    """Where telemetry attaches. Hooks are cheap and don't raise."""

    def damage_examined(self, damaged: int) -> None:
        """Note how many bandits were found damaged, or missing in lists, when the whole store was looked through."""


class DamageWatch:
    """Looks through a store, one time after the other.

    Parameters
    ----------
    look_seconds
        How long it waits after it has looked at all bandits.
    pause_seconds
        As `RedisStore.find_damaged` and `RedisStore.find_unlisted` have it.
    looks_per_search
        In how many looks it searches once for bandits that lists have lost; the first one does.
    """

    def __init__(
        self,
        store: RedisStore,
        *,
        hooks: DamageHooks,
        look_seconds: float = LOOK_SECONDS,
        pause_seconds: float = PAUSE_SECONDS,
        looks_per_search: int = LOOKS_PER_SEARCH,
    ) -> None:
        self._store = store
        self._hooks = hooks
        self._look_seconds = look_seconds
        self._pause_seconds = pause_seconds
        self._looks_per_search = looks_per_search
        self._looks = 0
        self._known: frozenset[BanditName] = frozenset()

    async def run(self) -> None:
        """Look until cancelled; a store that is away is looked through when it is back."""
        while True:
            try:
                await self.look()
            except UnavailableError:
                _log.debug("the store is away, and can't be looked through for damage")
            except Exception:  # noqa: BLE001 - one look that fails must not stop the looking
                _log.exception("the store can't be looked through for damage")
            await asyncio.sleep(self._look_seconds)

    async def look(self) -> None:
        """Look at every bandit once, and before that search for those that lists have lost if it is time to.

        Raises
        ------
        UnavailableError
            The store is away.
        """
        lost = await self._list_again() if self._looks % self._looks_per_search == 0 else ()
        self._looks += 1
        found = {damage.name: damage async for damage in self._store.find_damaged(pause_seconds=self._pause_seconds)}
        for name in found.keys() - self._known:
            _log.error(
                "a bandit can't be served until it is deleted or restored: %s",
                found[name].problem,
                extra={"bandit": str(name)},
            )
        for name in self._known - found.keys():
            _log.warning("a bandit that was damaged is well again, or deleted", extra={"bandit": str(name)})
        self._known = frozenset(found)
        self._hooks.damage_examined(len({*found, *lost}))

    async def _list_again(self) -> Sequence[BanditName]:
        """Put the bandits back that lists have lost, and return them."""
        lost = [name async for name in self._store.find_unlisted(pause_seconds=self._pause_seconds)]
        for name in lost:
            await self._store.list_again(name)
            _log.error("a bandit was missing in its tenant's list, and is put back", extra={"bandit": str(name)})
        return lost
