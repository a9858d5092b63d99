"""What an acknowledged write withstands: the class that is asked for, and what was achieved.

The classes are nested: each withstands what the one before does. `docs/operations.md` has the table of the faults.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["FSYNC", "IN_MEMORY", "Durability"]


@dataclass(frozen=True, slots=True)
class Durability:
    """Where a write is when it is acknowledged, besides the memory of the server that took it.

    Attributes
    ----------
    synced
        Whether that server's disk has it.
    replicas
        How many replicas have it in memory.
    """

    synced: bool = False
    replicas: int = 0

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
