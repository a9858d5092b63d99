"""Clients over a fork: servers often load a shop's application once, and fork the processes that answer its pages.

A process that was forked has its parent's connections, on which calls of both would mix; its parent's opened files,
whose locks it takes for its own and does not have; locks that a thread of its parent held, which nobody lets go of; and
none of its parent's threads.
"""

from __future__ import annotations

import os
import threading
import weakref
from contextlib import suppress
from typing import Protocol

__all__ = ["Forked", "follow_forks"]


class Forked(Protocol):
    """What gets ready for a fork, and does without what it shares with its process's parent after one."""

    def _before_fork(self) -> None:
        """Hear that this process is about to be forked."""

    def _after_fork(self, *, is_child: bool) -> None:
        """Hear that it was, in both processes."""


_followers: weakref.WeakSet[Forked] = weakref.WeakSet()
_one_at_a_time = threading.Lock()
_notified: list[Forked] = []


def follow_forks(one: Forked) -> None:
    """Notify it of each fork of this process, as long as anybody has it."""
    _followers.add(one)


def _before() -> None:
    _one_at_a_time.acquire()
    for one in list(_followers):
        _notified.append(one)
        one._before_fork()  # noqa: SLF001 - for this module, and not for who uses a client


def _after(*, is_child: bool) -> None:
    try:
        while _notified:
            _notified.pop()._after_fork(is_child=is_child)  # noqa: SLF001 - see above
    finally:
        with suppress(RuntimeError):  # this module was imported between the two
            _one_at_a_time.release()


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(
        before=_before,
        after_in_parent=lambda: _after(is_child=False),
        after_in_child=lambda: _after(is_child=True),
    )
