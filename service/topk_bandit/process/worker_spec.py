"""Where a worker process is put, and the words it exchanges with its supervisor.

The first that a worker is told is the store's URL, once the store is there; it makes itself ready meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["READY", "STOP", "Post"]

READY = "ready"
"""What a worker says once it serves; any other word is why it gave up."""

STOP = "stop"
"""What a worker is told to make it drain and end; a pipe that breaks means the same."""


@dataclass(frozen=True, slots=True)
class Post:
    """Where a worker is put.

    Attributes
    ----------
    number
        Its number among the workers, from 1.
    address
        Where it serves, together with all others.
    metrics_folder
        Where it counts.
    """

    number: int
    address: str
    metrics_folder: Path
