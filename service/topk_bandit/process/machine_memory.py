"""What memory this machine, or this container, has, and what of it the models of a worker may take."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from topk_bandit.bandits.budget import MIB

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["memory_bytes", "models_bytes"]

_GROUPS = Path("/sys/fs/cgroup")
_OWN_GROUPS = Path("/proc/self/cgroup")

_SHARE = 0.8
"""The rest is for the supervisor, the embedded store and what calls take."""

_WITHOUT_MODELS_BYTES = 320 * MIB
"""So much a worker takes that has no model yet: compiled code and libraries above all."""


def memory_bytes() -> int:
    """Return what this process may take: its machine's memory, or less where a control group says so."""
    limits = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    for file in _limit_files():
        with suppress(OSError, ValueError):  # "max", or no such group
            limits.append(int(file.read_text(encoding="ascii")))
    return min(limits)


def _limit_files() -> Iterator[Path]:
    """Yield where the limits of this process's control group stand, and of those that it is in.

    A container sees its own group as the root; a service of systemd is in a group below it.
    """
    try:
        groups = _OWN_GROUPS.read_text(encoding="utf-8").splitlines()
    except OSError:
        groups = ["0::/"]
    for line in groups:
        _, controllers, path = line.split(":", 2)
        if controllers in {"", "memory"}:
            root, name = (_GROUPS / "memory", "memory.limit_in_bytes") if controllers else (_GROUPS, "memory.max")
            own = root / path.lstrip("/")
            yield from (folder / name for folder in (own, *own.parents) if folder == root or root in folder.parents)


def models_bytes(wanted: int, *, one_model: int, workers: int, memory: int) -> int:
    """Return what all models of one worker may take: what is wanted, or the memory that is free, and one at least.

    Parameters
    ----------
    wanted, one_model
        What the settings say, in bytes, of all models and of one.
    memory
        What all workers have, in bytes.
    """
    available = int(_SHARE * memory / workers) - _WITHOUT_MODELS_BYTES
    return max(one_model, min(wanted, available))
