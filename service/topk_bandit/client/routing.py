"""Which connection of a client a call goes on: the one to the worker that owns its bandit, once that is known.

A service of several workers listens on one port, and the system chooses which of them a connection is at. Each answer
names the worker that gave it and the one that owns the bandit (`topk_bandit.rpc.peers`). This module decides from that:
state in, decision out. Nothing here opens, sends or waits.
"""

from __future__ import annotations

import math
import re
from collections import deque
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from topk_bandit.client.resends import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = [
    "MOST_OWNERS",
    "NAME_HEADER",
    "RETRY_SECONDS",
    "SHARED_SECONDS",
    "SILENT_SECONDS",
    "WORKER_HEADER",
    "Routing",
    "WorkerInfo",
    "metadata_about",
    "read_worker_header",
]

NAME_HEADER = "topk-bandit-name"
"""Which bandit a call is about, for load balancers that choose by it."""

WORKER_HEADER = "topk-bandit-worker"
"""Which worker answered, of how many, of which service, and which one owns the bandit."""

MOST_OWNERS = 10_000
"""A client that knows the owners of more bandits forgets them all, and learns them from answers again."""

SHARED_SECONDS = 1.0
"""So long calls about a bandit of which more is asked than its owner answers go to all workers in turn."""

SILENT_SECONDS = 1.5
"""So long a connection is passed over on which a call's time went by without any answer."""

RETRY_SECONDS = 300.0
"""How often another connection is tried at most where many were tried, and after which time where that is no use."""

HOPE_SECONDS = 30.0
"""After a bandit has moved to another worker, tries for connections start without pauses; at most once in this time."""

_QUICK_ROUNDS = 4
_FIRST_PAUSE_SECONDS = 0.1
_MOST_WORKERS = 64
_MOST_CHANGES = 3.0
_FORGIVEN = 0.125
_LATELY_SECONDS = 60.0
_MOST_MET = 16
_LONGEST_NAME = 200
_HEADER = re.compile(r"(\d{1,4})/(\d{1,4});service=(\w{1,32})(?:;owner=(any|\d{1,4}))?(?:;.*)?", re.ASCII)


class WorkerInfo(NamedTuple):
    """What the header of an answer says of workers.

    Attributes
    ----------
    worker, workers
        The number of the worker that answered, from 1, and how many there are.
    service
        Whose they are: another service's have the same numbers.
    owner
        The number of the bandit's owner; 0 if the header names none.
    is_shared
        Whether more is asked of the bandit than one worker answers.
    """

    worker: int
    workers: int
    service: str
    owner: int
    is_shared: bool


_ALONE = WorkerInfo(worker=0, workers=1, service="", owner=0, is_shared=False)


@lru_cache(maxsize=1024)
def read_worker_header(text: str) -> WorkerInfo | None:
    """Return the content of a header; None for one that can't be read."""
    found = _HEADER.fullmatch(text)
    if found is None:
        return None
    worker, workers, is_shared = int(found[1]), int(found[2]), found[4] == "any"
    owner = 0 if is_shared or found[4] is None else int(found[4])
    if not (1 <= worker <= workers <= _MOST_WORKERS and owner <= workers):
        return None
    return WorkerInfo(worker, workers, found[3], owner, is_shared)


def metadata_about(bandit: str) -> tuple[tuple[str, str], ...]:
    """Return the metadata that names a bandit; none for what is no name, which the service is to refuse."""
    if not bandit or len(bandit) > _LONGEST_NAME or not (bandit.isascii() and bandit.isprintable()):
        return ()
    return ((NAME_HEADER, bandit),)


class _Link:
    """A connection.

    Attributes
    ----------
    worker
        Where it is; 0 if that is not known.
    under_way
        How many calls on it have not ended.
    heard_at, silent_until, owes_since
        By the clock; the last one while calls are under way.
    """

    __slots__ = ("heard_at", "owes_since", "silent_until", "under_way", "worker")

    def __init__(self, worker: int, heard_at: float) -> None:
        self.worker = worker
        self.under_way = 0
        self.heard_at = heard_at
        self.silent_until = self.owes_since = -math.inf

    @property
    def is_silent(self) -> bool:
        """Whether a call's time went by on it, and nothing was answered since."""
        return self.silent_until > -math.inf

    def is_ready(self, now: float) -> bool:
        """Return whether it may be expected to answer; one that said nothing gets one call to begin with."""
        if self.is_silent:
            return self.silent_until <= now and not self.under_way
        return not self.under_way or now - max(self.heard_at, self.owes_since) <= PATIENCE_SECONDS


def _pause_after(tries: int, workers: int) -> float:
    """Return how many seconds no connection is tried after some tries that were of no use.

    Each try is at a worker by chance: of w workers one is missed n times with probability (1 - 1 / w)^n. So the tries
    that it takes grow with w, as does the number of those before the pause has doubled.
    """
    beyond = (tries - _QUICK_ROUNDS * workers) / workers
    return 0.0 if beyond < 0.0 else min(_FIRST_PAUSE_SECONDS * 2.0 ** min(beyond, 60.0), RETRY_SECONDS)


class Routing:
    """What a client knows of its connections, which are numbers here; the first one is 0. Not safe between threads.

    Parameters
    ----------
    clock
        Seconds, monotonic.
    """

    def __init__(self, *, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._links = {0: _Link(0, -math.inf)}
        self._leaving: dict[int, _Link] = {}
        self._left: list[int] = []
        self._main = self._newest = 0
        self._at: dict[int, int] = {}
        self._owners: dict[str, int] = {}
        self._shared: dict[str, float] = {}
        self._service, self._workers = "", 1
        self._met: deque[str] = deque(maxlen=_MOST_MET)
        self._turn = self._tries = 0
        self._changes = 0.0
        self._no_try_before = self._no_hope_before = -math.inf
        self._is_trying = self._is_wanting = False

    @property
    def links(self) -> Sequence[int]:
        """The connections that calls may go on."""
        return tuple(self._links)

    @property
    def count(self) -> int:
        """How many these are."""
        return len(self._links)

    def begin(self, bandit: str, *, avoid: int = -1) -> int:
        """Return the connection that a call goes on, which begins now.

        Parameters
        ----------
        bandit
            Empty for a call about none.
        avoid
            Where the call was before, without an answer: it goes there if there is no other connection.
        """
        number = self._main if len(self._links) == 1 else self._choose(bandit, avoid)
        link = self._links[number]
        if not link.under_way:
            link.owes_since = self._clock()
        link.under_way += 1
        return number

    def _choose(self, bandit: str, avoid: int) -> int:
        now = self._clock()
        ready = [number for number, link in self._links.items() if number != avoid and link.is_ready(now)]
        if now < self._shared.get(bandit, -math.inf):
            self._turn += 1
            return ready[self._turn % len(ready)] if ready else self._heard_last(avoid)
        chosen = self._at.get(self._owners.get(bandit, 0), self._main)
        if chosen in ready or not (ready or chosen == avoid or self._links[chosen].is_silent):
            return chosen
        return ready[0] if ready else self._heard_last(avoid)

    def _heard_last(self, avoid: int) -> int:
        """Return the connection that answered last: of those that owe answers one may be slow, and another hang."""
        links = {number: link for number, link in self._links.items() if number != avoid}
        return max(links, key=lambda number: (not links[number].is_silent, links[number].heard_at))

    def heard(self, number: int, bandit: str, text: str) -> None:
        """Note that a call has ended with an answer, whichever; `text` is its worker header.

        It is empty over HTTP, and from a service of one worker, which one of several may become at a new start.
        """
        link = self._end(number)
        if link is None:
            return
        last_heard_at, link.heard_at, link.silent_until = link.heard_at, self._clock(), -math.inf
        info = read_worker_header(text) if text or not self._service else _ALONE
        if info is None:
            return
        is_same = (info.service, info.workers) == (self._service, self._workers)
        if is_same and info.worker == link.worker:
            self._changes = max(0.0, self._changes - _FORGIVEN)
        else:
            if link.worker and link.heard_at - last_heard_at < _LATELY_SECONDS:
                self._changes += 1.0
            self._move(number, link, info.worker) if is_same else self._meet(number, link, info)
        if self._changes >= _MOST_CHANGES:
            self._give_up()
            return
        # With a second one there is another worker to turn to when the first one hangs.
        self._is_wanting = self._is_wanting or len(self._links) < min(2, self._workers)
        if 0 < len(bandit) <= _LONGEST_NAME:
            self._learn(bandit, info)

    def lost(self, number: int) -> None:
        """Note that a call has ended without an answer, because its connection did."""
        link = self._end(number)
        if link is None:
            return
        self._forget_place(number, link)
        link.worker = 0
        if len(self._links) > 1:
            self._retire(number)

    def silent(self, number: int, begun: float) -> None:
        """Note that a call, begun then by the clock, has ended without an answer, because its time was up."""
        link = self._end(number)
        if link is not None and link.heard_at <= begun:
            link.silent_until = self._clock() + SILENT_SECONDS

    def is_probe(self, number: int) -> bool:
        """Return whether the call that began last on a connection finds out if it answers again, as others do now."""
        link, now = self._links.get(number), self._clock()
        if link is None or not link.is_silent or link.under_way != 1:
            return False
        return any(other is not link and other.is_ready(now) for other in self._links.values())

    def has_another(self, number: int) -> bool:
        """Return whether a call may be sent again on another connection than this: on one that is not known to hang."""
        now = self._clock()
        others = (link for other, link in self._links.items() if other != number)
        return any(not link.is_silent or link.is_ready(now) for link in others)

    def ended(self, number: int) -> None:
        """Note that a call has ended, and nothing is known but that."""
        self._end(number)

    def wants_another(self) -> bool:
        """Return whether another connection is to be tried now; if so, call `found` with the result."""
        if not self._is_wanting or self._is_trying:
            return False
        now = self._clock()
        if now < self._no_try_before:
            return False
        self._is_wanting, self._is_trying = False, True
        self._tries += 1
        self._no_try_before = now + _pause_after(self._tries, self._workers)
        return True

    def found(self, text: str) -> int | None:
        """Return the number of the connection that was tried; None if it is of no use, to be closed.

        Parameters
        ----------
        text
            The worker header of its first answer; empty if there was none.
        """
        self._is_trying = self._is_wanting = False
        info = read_worker_header(text)
        if info is None or (info.service, info.workers) != (self._service, self._workers) or info.worker in self._at:
            return None
        self._tries = 0
        self._newest += 1
        self._links[self._newest] = _Link(info.worker, self._clock())
        self._at[info.worker] = self._newest
        return self._newest

    def take_left(self) -> Sequence[int]:
        """Return the connections on which no call goes any more, to be closed; each is returned once."""
        left, self._left = self._left, []
        return left

    def _end(self, number: int) -> _Link | None:
        """Take a call off its connection; return that if calls still go on it."""
        link = self._links.get(number)
        if link is not None:
            link.under_way -= 1
            return link
        leaving = self._leaving[number]
        leaving.under_way -= 1
        if not leaving.under_way:
            del self._leaving[number]
            self._left.append(number)
        return None

    def _meet(self, number: int, link: _Link, info: WorkerInfo) -> None:
        """Begin with a service's workers: one that was started anew has others.

        Nobody was before, and is met again, but one of several at the same address.
        """
        if info.service != self._service and info.service in self._met:
            self._changes = _MOST_CHANGES
        self._met.append(info.service)
        self._begin_anew(number)
        self._service, self._workers = info.service, info.workers
        link.worker = info.worker
        if info.worker:
            self._at[info.worker] = number

    def _move(self, number: int, link: _Link, worker: int) -> None:
        """Note that a connection is at another worker, as one that was made anew may be."""
        self._forget_place(number, link)
        link.worker = worker
        if worker in self._at:
            self._retire(number)
        else:
            self._at[worker] = number

    def _learn(self, bandit: str, info: WorkerInfo) -> None:
        if info.is_shared:
            if len(self._shared) >= MOST_OWNERS:
                self._shared.clear()
            self._shared[bandit] = self._clock() + SHARED_SECONDS
            if bandit in self._owners:
                self._owners[bandit] = 0  # which may be another one by now
            self._is_wanting = self._is_wanting or len(self._at) < self._workers
        elif info.owner:
            if bandit not in self._owners and len(self._owners) >= MOST_OWNERS:
                self._owners.clear()
            if info.owner not in self._at:
                self._is_wanting = True
                if self._owners.get(bandit, info.owner) != info.owner:
                    self._hope()
            self._owners[bandit] = info.owner

    def _hope(self) -> None:
        """Try again soon, since a bandit has moved: to a worker that is there now, as it was not when tries failed."""
        now = self._clock()
        if self._tries and now >= self._no_hope_before:
            self._no_hope_before = now + HOPE_SECONDS
            self._tries, self._no_try_before = 0, min(self._no_try_before, now)

    def _give_up(self) -> None:
        """Go on with one connection: whatever is between it and the workers sends each call to another one."""
        self._begin_anew(self._main)
        self._changes = _MOST_CHANGES
        self._no_try_before = self._clock() + RETRY_SECONDS

    def _begin_anew(self, number: int) -> None:
        """Forget all but one connection."""
        for other in [one for one in self._links if one != number]:
            self._retire(other)
        self._at.clear()
        self._owners.clear()
        self._shared.clear()
        self._is_wanting = False

    def _forget_place(self, number: int, link: _Link) -> None:
        if self._at.get(link.worker) == number:
            del self._at[link.worker]

    def _retire(self, number: int) -> None:
        """Send no further call on a connection, which is not the only one; those under way go on."""
        link = self._links.pop(number)
        self._forget_place(number, link)
        if self._main == number:
            self._main = next(iter(self._links))
        if link.under_way:
            self._leaving[number] = link
        else:
            self._left.append(number)
