"""The whole log of a bandit that a service runs, from its first event on."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from topk_bandit.client import FailedPrecondition
from topk_bandit.commands.operate.events import export_log, line
from topk_bandit.domain.errors import CorruptDataError, InvalidArgumentError, NotReadyError
from topk_bandit.store.archives import ArchivedBandit, read_line
from topk_bandit.store.events import LoggedEvent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from topk_bandit.client import Client
    from topk_bandit.domain.bandits import BanditName

__all__ = ["LiveLog", "find_log", "read_log"]


class LiveLog(NamedTuple):
    """Which log is read, up to its event `end`."""

    name: BanditName
    incarnation: str
    end: int


def find_log(client: Client, name: BanditName, *, last: int | None = None) -> LiveLog:
    """Return a bandit's log up to an event, or to its newest.

    Raises
    ------
    NotReadyError
        Its first events are gone.
    InvalidArgumentError
        It ends before `last`.
    """
    head = read_line(next(iter(client.export_state(name.bandit))))
    if not isinstance(head, ArchivedBandit):
        raise CorruptDataError(f"what the service has of {name} does not begin with a bandit")
    newest = _newest_of(client, name)
    if last is not None and last > newest:
        raise InvalidArgumentError("--to", f"the log ends at event {newest}, before {last}")
    return LiveLog(name, head.incarnation, newest if last is None else last)


def _newest_of(client: Client, name: BanditName) -> int:
    """Return the position of the newest event of a log that begins with event 1.

    Raises
    ------
    NotReadyError
        Its first events are gone.
    """
    try:
        return client.export_events(name.bandit, start=1, limit=1).log_position
    except FailedPrecondition as error:
        if error.reason != "LOG_TRIMMED":
            raise
        problem = (
            f"a log is replayed from event 1 on, and of {name} older events are gone: {error.details.message}. "
            "With --cold-log-dir the service keeps them in files"
        )
        raise NotReadyError("LOG_TRIMMED", problem) from None


def read_log(client: Client, log: LiveLog) -> Iterator[tuple[str, LoggedEvent]]:
    """Yield each event of a log as its line and its value.

    Raises
    ------
    NotReadyError
        The log was trimmed or begun anew meanwhile.
    """
    position = 0
    for sent in export_log(client, log.name.bandit, first=1):
        if sent.position > log.end:
            break
        read = read_line(text := line(sent))
        if not isinstance(read, LoggedEvent):
            raise CorruptDataError(f"event {sent.position} of {log.name} is none")
        position = read.position
        yield text, read
    if position != log.end:
        raise NotReadyError("LOG_TRIMMED", f"the log of {log.name} was trimmed or begun anew while it was read")
