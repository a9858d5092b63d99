"""When slices of closed recommendations are to be turned, which `lua/bandit/forget_closed.lua` does."""

from __future__ import annotations

import re

from topk_bandit.store.redis.keys import SLICES

__all__ = ["NOTHING_CLOSED", "must_turn"]

NOTHING_CLOSED = " ".join(["1", *["0 1"] * SLICES])
"""What `meta` has in `closed` before anything is; `lua/closed.lua` says what it means."""

_CLOSED = re.compile(rb"([1-9]\d*)((?: \d+ \d+){%d})" % SLICES)


def must_turn(text: object, *, now_ms: int, retention_ms: int) -> bool:
    """Return whether a slice is to be forgotten, or another one begun, by the `closed` of a bandit's `meta`.

    A text of another form says nothing; the script that reads it reports the damage.
    """
    read = _CLOSED.fullmatch(text) if isinstance(text, bytes) else None
    if read is None:
        return False
    newest, times_ms = int(read[1]) - 1, [int(at_ms) for at_ms in read[2].split()[::2]]
    if newest >= SLICES:
        return False
    began_ms, following = times_ms[newest], times_ms[(newest + 1) % SLICES]
    ended_ms = [at_ms for place, at_ms in enumerate(times_ms) if place != newest and at_ms]
    if any(at_ms < now_ms - retention_ms for at_ms in ended_ms) or max(times_ms) > now_ms:
        return True
    return bool(began_ms) and following == 0 and now_ms - began_ms >= retention_ms / (SLICES - 1)
