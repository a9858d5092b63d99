"""Takes files in again when they change, such as keys and certificates that somebody renews.

Files are compared by what they hold, since a mounted secret may change without their names or times. What can't be used
is logged once, and what was good before stays in use.
"""

from __future__ import annotations

import asyncio
import logging
from hashlib import sha256
from typing import TYPE_CHECKING

from topk_bandit.domain.errors import ConfigurationError
from topk_bandit.rpc.regular_files import read_regular

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

__all__ = ["FileWatch"]

_log = logging.getLogger(__name__)

LOOK_SECONDS = 1.0


class FileWatch:
    """Looks at files, one time after the other.

    Parameters
    ----------
    setting
        What names the files.
    take
        Takes them in as they are now; a `ConfigurationError` says that they can't be used. It is called on a thread.
    look_seconds
        How long it waits between two looks.
    """

    def __init__(
        self, setting: str, files: Sequence[Path], take: Callable[[], None], *, look_seconds: float = LOOK_SECONDS
    ) -> None:
        self._setting = setting
        self._files = tuple(files)
        self._take = take
        self._look_seconds = look_seconds
        self._seen: tuple[bytes, ...] | None = None
        self._problem: str | None = None

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            try:
                await asyncio.to_thread(self.look)
            except Exception:  # noqa: BLE001 - one look that fails must not stop the looking
                _log.exception("%s can't be looked at", self._setting)
            await asyncio.sleep(self._look_seconds)

    def look(self) -> None:
        """Look once; the first look takes in silently what may have changed since somebody else read it."""
        seen, before = tuple(_digest(file) for file in self._files), self._seen
        if seen == before and self._problem is None:
            return
        self._seen = seen
        try:
            self._take()
        except ConfigurationError as error:
            # It is tried again: its mode or its owner may be what is wrong with it, and a disk may fail for a while.
            if str(error) != self._problem:
                _log.error("%s; what was read before stays in use", error)
            self._problem = str(error)
        else:
            self._problem = None
            if before is not None:
                _log.info("%s was read again", self._setting)


def _digest(file: Path) -> bytes:
    try:
        return sha256(read_regular(file)).digest()
    except OSError as error:
        return str(error.errno).encode()
