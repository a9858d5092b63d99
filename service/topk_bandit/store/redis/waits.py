"""What is sent behind a write to wait until disk and replicas have it, and what the answers mean.

WAIT and WAITAOF are about what their own connection wrote, so they travel with the script. WAITAOF is asked about this
server alone: a replica reports once a second how far its own file is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from redis import exceptions as raised

from topk_bandit.domain.durability import Durability
from topk_bandit.domain.errors import NotDurableError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["WAIT_SHARE", "check_achieved", "waits"]

WAIT_SHARE = 1 / 3
"""The share of a call's time that each of the two may wait: the call is answered in time if both wait in vain."""

_Command = tuple[bytes | str | int, ...]


def waits(durability: Durability, *, timeout: float) -> tuple[_Command, ...]:
    """Return the commands that wait for a class; none for the class that awaits nothing.

    Parameters
    ----------
    timeout
        Seconds that the whole call may take.
    """
    wait_ms = max(1, round(1000 * timeout * WAIT_SHARE))
    synced: tuple[_Command, ...] = (("WAITAOF", 1, 0, wait_ms),) if durability.synced else ()
    return (*synced, ("WAIT", durability.replicas, wait_ms)) if durability.replicas else synced


def check_achieved(awaited: Durability, replies: Sequence[Any], *, required: Durability) -> Durability:
    """Return what was achieved by the answers to the `waits` for a class, which is no less than what is required.

    Raises
    ------
    NotDurableError
        It is less.
    """
    for reply in replies:
        if isinstance(reply, raised.ResponseError):
            raise NotDurableError(f"written, but the store can't tell where to: {reply}") from reply
    synced = awaited.synced and replies[0][0] >= 1
    replicas = int(replies[-1]) if awaited.replicas else 0
    if synced < required.synced:
        raise NotDurableError("written, but not to the store's disk in time; the same call again finds out")
    if replicas < required.replicas:
        raise NotDurableError(
            f"written, but only {replicas} of {required.replicas} replicas have it in time; "
            "the same call again finds out"
        )
    return Durability(synced=synced, replicas=replicas)
