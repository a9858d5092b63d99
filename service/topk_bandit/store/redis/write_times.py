"""How long the store takes to acknowledge a write, as whoever calls it sees it.

What is written is removed by the same script, in one step: nothing is left behind, also if nobody comes to the end of
this. Each write is to a key of its own, so that those of a cluster reach several of its servers.
"""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING

from topk_bandit.store.redis import scripts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topk_bandit.store.redis.keys import KeySpace
    from topk_bandit.store.redis.link import Link

__all__ = ["time_writes"]

_BYTES = 512


async def time_writes(link: Link, keys: KeySpace, *, count: int) -> Sequence[float]:
    """Return the seconds that each of some writes took until it was as durable as is awaited, in their order.

    Raises
    ------
    NotDurableError
        One was not, in time.
    UnavailableError, ExhaustedError
        The store did not take one.
    """
    took = []
    for _ in range(count):
        key = keys.probe(uuid.uuid4().hex)
        for _ in range(2):  # the first one opens a connection, and brings the script to a server that does not know it
            start = time.perf_counter()
            await link.run_durably(scripts.PROBE, (key,), ("." * _BYTES,), meta=key)
            seconds = time.perf_counter() - start
        took.append(seconds)
    return took
