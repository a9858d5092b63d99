"""The data versions: one number for the layout of all that a store keeps, events, records, scripts and snapshots alike.

A store has one in force, which `topk_bandit.store.redis.programs` knows. A program reads every version up to its own,
and writes the one in force if that is its own or the one before: so the program before can take over at any time until
the next version is put in force. A number is never used again with another meaning.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from topk_bandit.domain.errors import NotReadyError

if TYPE_CHECKING:
    from topk_bandit.domain.bandits import BanditSettings

__all__ = ["FIRST", "NEWEST", "OLDEST", "check_data_version"]

FIRST = 1
"""As this version has them, digests are taken of values: they are the same whatever version is in force."""

_PROVISIONAL = 2
"""The first with provisional rewards: their settings, their events, and open slates of which something is learned."""

NEWEST = 2
"""This program's own."""

OLDEST = max(FIRST, NEWEST - 1)
"""The oldest that this program writes. All can read it: the default where the version in force is not known."""


def check_data_version(settings: BanditSettings, version: int) -> None:
    """Refuse settings that a data version can't say: the program before could not take the bandit over."""
    if settings.provisional_after_ms is not None and version < _PROVISIONAL:
        raise NotReadyError(
            "DATA_VERSION",
            f"provisional_after needs data version {_PROVISIONAL}, and {version} is in force: once no worker of the "
            "version before is needed any more, topk-bandit finalize-upgrade puts it in force",
        )
