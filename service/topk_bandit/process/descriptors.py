"""How many files and sockets a process may have open, and how many of them may be connections of clients.

Shells and containers often allow 1,024 at first, and far more to a process that asks.
"""

from __future__ import annotations

import resource
from contextlib import suppress

__all__ = ["most_connections", "raise_limit"]

ENOUGH = 65_536
RESERVED = 256
"""For the store's connections, the log, the metrics and the libraries' own."""


def raise_limit() -> None:
    """Let this process, and those that it starts from now on, open as many files as it may, up to 65,536."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = ENOUGH if hard == resource.RLIM_INFINITY else min(hard, ENOUGH)
    if soft != resource.RLIM_INFINITY and soft < most:
        with suppress(ValueError, OSError):  # some systems refuse what they name as their limit
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def most_connections() -> int:
    """Return how many connections of clients leave enough descriptors for everything else."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = ENOUGH if soft == resource.RLIM_INFINITY else soft
    return max(limit - RESERVED, limit // 2)
