"""Notices that the store is another one than before, has lost all that it had, or is an older copy of itself.

A store has an id from its first use on. Where that is gone or another one, what was acknowledged is not there any more:
the store was emptied, its files were removed, or its address leads elsewhere. Everything is refused then, but slates by
the models that are in memory, so that nothing is made anew over what was. An operator brings the data back, or restarts
the service to go on with the store as it is.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

__all__ = ["IdentityHooks", "StoreIdentity"]

_log = logging.getLogger(__name__)

PROBLEM = (
    "the store is not the one that this service was started with, or has lost all its data; bring the data back, or "
    "restart the service to go on without them"
)


class IdentityHooks(Protocol):
    """Where telemetry attaches. Hooks are cheap and don't raise."""

    def store_replaced(self, *, is_replaced: bool) -> None:
        """Note whether the store is another one than before."""


class StoreIdentity:
    """Knows which store a worker serves from.

    Parameters
    ----------
    known_id
        The store that this service was started with; empty if that is this worker's first.
    refuse_all
        Has calls to the store refused for a problem, or for "" no more.
    is_known
        Returns whether something is in the store that this worker knows, or anything if it knows nothing: then the data
        are there, and only the id is gone.
    count_lost
        Counts all that this worker knows to have been in the store as lost; returns how many events and rewards.
    note_older
        Notes that the store is an older copy of itself.
    """

    def __init__(
        self,
        known_id: str,
        *,
        refuse_all: Callable[[str], None],
        is_known: Callable[[], Awaitable[bool]],
        count_lost: Callable[[], tuple[int, int]],
        note_older: Callable[[], None],
        hooks: IdentityHooks,
    ) -> None:
        self.known_id = known_id
        self._refuse_all = refuse_all
        self._is_known = is_known
        self._count_lost = count_lost
        self._note_older = note_older
        self._hooks = hooks
        self._is_replaced = False

    async def look(self, store_id: str, *, is_older: bool = False) -> None:
        """Note which store there is, and whether it is an older copy of the one that was there before."""
        if not store_id:
            return
        self.known_id = self.known_id or store_id
        if is_older and store_id == self.known_id:
            _log.error("the store is an older copy of itself: what it took since is gone")
            self._note_older()
        if store_id != self.known_id and not self._is_replaced and await self._is_known():
            _log.warning("the store's id was lost, but not its data: it is another one now")
            self.known_id = store_id
        if (store_id != self.known_id) != self._is_replaced:
            self._note(is_replaced=not self._is_replaced)

    def _note(self, *, is_replaced: bool) -> None:
        self._is_replaced = is_replaced
        self._refuse_all(PROBLEM if is_replaced else "")
        self._hooks.store_replaced(is_replaced=is_replaced)
        if is_replaced:
            events, rewards = self._count_lost()
            counted = {"lost_events": events, "lost_rewards": rewards}
            _log.error("%s: %d events, %d of them rewards, were known here", PROBLEM, events, rewards, extra=counted)
        else:
            _log.warning("the store is the one again that this service was started with")
