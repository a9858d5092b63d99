"""The names by which an event of a log is looked up: its recommendation's id, and the key of its request's group."""

from __future__ import annotations

from hashlib import blake2b
from typing import NamedTuple

import msgspec

from topk_bandit.domain.errors import CorruptDataError

__all__ = ["DIGEST_BYTES", "EventKey", "find_keys", "group_key", "recommendation_key"]

DIGEST_BYTES = 8
"""Digests of one in some billion pairs of names are equal, so that whatever is found by one is compared by its name."""


class EventKey(NamedTuple):
    """A name, and what kind it is of."""

    kind: str
    name: str

    @property
    def digest(self) -> bytes:
        """What stands for it in an index."""
        return blake2b(f"{self.kind}:{self.name}".encode(), digest_size=DIGEST_BYTES).digest()


def recommendation_key(recommendation_id: str) -> EventKey:
    """Return what all events of a recommendation have: itself, its activation, its rewards and its end."""
    return EventKey("recommendation", recommendation_id)


def group_key(name: str) -> EventKey:
    """Return what the recommendations have whose requests gave a group key."""
    return EventKey("group", name)


class _Given(msgspec.Struct, frozen=True):
    recommendation_id: str = ""


class _Asked(msgspec.Struct, frozen=True):
    group_key: str = ""


class _Event(msgspec.Struct):
    recommendation_id: str = ""
    recommendation: _Given = _Given()
    request: _Asked = _Asked()


_read = msgspec.json.Decoder(_Event).decode


def find_keys(text: bytes) -> list[EventKey]:
    """Return the names of an event, which is as `topk_bandit.store.codec` writes it; or raise `CorruptDataError`."""
    try:
        event = _read(text)
    except msgspec.MsgspecError as error:
        raise CorruptDataError(f"no event: {error}") from error
    recommendation_id = event.recommendation_id or event.recommendation.recommendation_id
    keys = [recommendation_key(recommendation_id)] if recommendation_id else []
    return [*keys, group_key(event.request.group_key)] if event.request.group_key else keys
