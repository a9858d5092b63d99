"""The data versions: one number for the layout of all that a store keeps, events, records, scripts and snapshots alike.

A store has one in force, which `topk_bandit.store.redis.programs` knows. A program reads every version up to its own,
and writes the one in force if that is its own or the one before: so the program before can take over at any time until
the next version is put in force. A number is never used again with another meaning.
"""

from __future__ import annotations

__all__ = ["FIRST", "NEWEST", "OLDEST"]

FIRST = 1
"""As this version has them, digests are taken of values: they are the same whatever version is in force."""

NEWEST = 1
"""This program's own."""

OLDEST = max(FIRST, NEWEST - 1)
"""The oldest that this program writes; what nobody tells the version in force is written so, since all can read it."""
