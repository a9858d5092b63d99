"""Keeps the embedded store running, on a thread of its own.

A store that died is started again, as often as it takes: a start that fails, on a full disk for example, ends nothing.
One line of the log says that the store is away and why, and one that it is back.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from topk_bandit.store.embedded import EmbeddedStore

__all__ = ["StoreSupervisor"]

_log = logging.getLogger(__name__)

LOOK_SECONDS = 0.5


class StoreSupervisor:
    """Supervises a running store from `start` on, until `stop` stops them both.

    Parameters
    ----------
    look_seconds
        How long it waits between two looks, and after an attempt that failed.
    """

    def __init__(self, store: EmbeddedStore, *, look_seconds: float = LOOK_SECONDS) -> None:
        self._store = store
        self._look_seconds = look_seconds
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="store", daemon=True)
        self._away_since: float | None = None

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """Look no more, and stop the store; an attempt to start it is given up."""
        self._stopped.set()
        try:
            self._store.stop()
        finally:
            self._thread.join()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _keep(self) -> None:
        while not self._stopped.wait(self._look_seconds):
            self._look()

    def _look(self) -> None:
        began = time.monotonic()
        try:
            restarted = self._store.ensure_running()
        except Exception as error:  # noqa: BLE001 - whatever it is, the service goes on, and the next look may do better
            self._note_away(error)
            return
        if restarted and self._away_since is None:
            _log.error("the embedded store had died and was started again", extra=self._back(began))
        elif self._away_since is not None:
            _log.warning("the embedded store is back", extra=self._back(self._away_since))
        self._away_since = None

    def _back(self, since: float) -> dict[str, object]:
        return {"store_pid": self._store.pid, "seconds": round(time.monotonic() - since, 3)}

    def _note_away(self, error: Exception) -> None:
        if self._away_since is None and not self._stopped.is_set():
            self._away_since = time.monotonic()
            _log.error("the embedded store is away; it is started as soon as that is possible: %s", error)
