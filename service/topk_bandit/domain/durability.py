"""What an acknowledged write withstands: the class that is asked for, and what was achieved.

The classes are nested: each withstands what the one before does. `docs/operations.md` has the table of the faults.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["FSYNC", "IN_MEMORY", "Durability"]


_WORDS = re.compile(r"(memory)|(fsync)|replicated:([1-9])")


@dataclass(frozen=True, slots=True, order=True)
class Durability:
    """Where a write is when it is acknowledged, besides the memory of the server that took it.

    The larger of two classes withstands all that the smaller one does.

    Attributes
    ----------
    synced
        Whether that server's disk has it.
    replicas
        How many replicas have it in memory.
    """

    synced: bool = False
    replicas: int = 0

    @classmethod
    def parse(cls, text: str) -> Durability:
        """Return the class of this name, "memory", "fsync" or "replicated:N", or raise ValueError."""
        match = _WORDS.fullmatch(text)
        if match is None:
            raise ValueError(f"{text!r} is none of memory, fsync, replicated:1 to replicated:9")
        return cls(synced=not match[1], replicas=int(match[3] or 0))

    def __str__(self) -> str:
        """Return the class as settings have it."""
        if self.replicas:
            return f"replicated:{self.replicas}"
        return "fsync" if self.synced else "memory"

    @property
    def word(self) -> str:
        """The class without its number: "memory", "fsync" or "replicated"."""
        return str(self).partition(":")[0]


IN_MEMORY = Durability()
FSYNC = Durability(synced=True)
