"""Notes a worker in the store again and again, and reports which data version is in force there.

Before an upgrade is finalized the worker writes what the version before can read, and says so once. When it is
finalized the worker writes its own version from then on. One that is older than what was finalized ends: it can't read
what others write.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from topk_bandit.domain.errors import OutdatedError, UnavailableError
from topk_bandit.store.data_versions import NEWEST

if TYPE_CHECKING:
    from topk_bandit.process.store_identity import StoreIdentity
    from topk_bandit.store.redis.programs import Programs

__all__ = ["UpgradeHooks", "UpgradeWatch"]

_log = logging.getLogger(__name__)

LOOK_SECONDS = 2.0


class UpgradeHooks(Protocol):
    """Where telemetry attaches. Hooks are cheap and don't raise."""

    def upgrade_examined(self, versions_behind: int) -> None:
        """Note how many data versions the one in force is behind this program's newest."""


class UpgradeWatch:
    """Looks at the data version of a store, one call after the other.

    Parameters
    ----------
    programs
        This worker among the programs of the store.
    look_seconds
        How long it waits between two looks.

    Attributes
    ----------
    identity
        Gets the store's id, once there is a store.
    """

    def __init__(self, programs: Programs, *, hooks: UpgradeHooks, look_seconds: float = LOOK_SECONDS) -> None:
        self._programs = programs
        self._hooks = hooks
        self._look_seconds = look_seconds
        self._known: int | None = None
        self.identity: StoreIdentity | None = None

    @property
    def programs(self) -> Programs:
        """The worker itself among the programs of the store."""
        return self._programs

    async def look(self) -> None:
        """Look once; the errors are those of `Programs.note`."""
        version = await self._programs.note()
        if self.identity is not None:
            await self.identity.look(self._programs.store_id, is_older=self._programs.is_older)
            self._programs.known_id = self.identity.known_id
        self._hooks.upgrade_examined(NEWEST - version)
        if version != self._known and version < NEWEST:
            _log.warning(
                "data version %s is written, which the program before can read, until topk-bandit finalize-upgrade: "
                "then %s is",
                version,
                NEWEST,
            )
        elif self._known is not None and version != self._known:
            _log.warning("the upgrade is finalized: data version %s is written from now on", version)
        self._known = version

    async def run(self) -> OutdatedError:
        """Look until cancelled, or until this program is too old to go on; return what says so."""
        while True:
            await asyncio.sleep(self._look_seconds)
            try:
                await self.look()
            except OutdatedError as error:
                _log.error("this worker ends: %s", error)
                return error
            except UnavailableError:
                _log.debug("the store is away, and its data version can't be looked at")
            except Exception:  # noqa: BLE001 - one look that fails must not stop the looking
                _log.exception("the data version of the store can't be looked at")

    async def leave(self) -> None:
        """Note that this worker has ended, if the store is there: else it is noted by its silence."""
        with suppress(UnavailableError):
            await self._programs.leave()
