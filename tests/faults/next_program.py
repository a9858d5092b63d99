"""The command as the program after this one could be: the next data version is its own, and this one's the one before.

The version differs, and the name of one part of a snapshot: what it writes under its own version this program can't
read, and what it writes under this program's has to be what this program writes. Worker processes run this file too,
before anything else of the package.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from topk_bandit.store import data_versions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from topk_bandit.bandits.model import Model
    from topk_bandit.learning.policy import Checkpoint

THIS = data_versions.NEWEST
data_versions.OLDEST, data_versions.NEWEST = THIS, THIS + 1

from topk_bandit.bandits import snapshots  # noqa: E402 - what is imported from here on has the versions

_make_header = snapshots._make_header


_read_header = snapshots._read_header


def _make_header_of_next(model: Model, checkpoint: Checkpoint, version: int) -> dict[str, Any]:
    header = _make_header(model, checkpoint, version)
    return header if version == THIS else {**header, "counts": header.pop("tally")}


def _read_header_of_next(arrays: Mapping[str, Any]) -> Mapping[str, Any]:
    header = _read_header(arrays)
    return {**header, "tally": header["counts"]} if "counts" in header else header


snapshots._make_header, snapshots._read_header = _make_header_of_next, _read_header_of_next

if __name__ == "__main__":
    from topk_bandit.commands.cli import main

    sys.exit(main())
