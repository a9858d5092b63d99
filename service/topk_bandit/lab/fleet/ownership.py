"""Which workers serve a bandit, where not all do: those with the highest scores of a rendezvous hash.

A worker that leaves moves its own bandits alone, and each to the worker that is next in its order; one that comes
back gets the same ones again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["readers", "rendezvous_order"]

_MIX_1, _MIX_2, _STEP = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB), np.uint64(0x9E3779B97F4A7C15)


def rendezvous_order(bandits: int, workers: int, *, depth: int) -> NDArray[np.int64]:
    """Return the first `depth` workers of each bandit by their scores, highest first, shape (bandits, depth)."""
    depth = min(depth, workers)
    keys = np.arange(bandits * workers, dtype=np.uint64).reshape(bandits, workers)
    ranked = np.argsort(_mix_bits(keys), axis=1, kind="stable")
    return np.ascontiguousarray(ranked[:, :depth].astype(np.int64))


def readers(rates: NDArray[np.float64], *, most_pairs: float, workers: int) -> NDArray[np.int64]:
    """Return how many workers serve each bandit, so that none serves more than `most_pairs` pairs a second of one."""
    wanted = np.ceil(rates / most_pairs)
    return np.asarray(np.clip(wanted, 1, workers), dtype=np.int64)


def _mix_bits(keys: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return numbers that look random, each a function of its key (SplitMix64)."""
    mixed = (keys + np.uint64(1)) * _STEP
    mixed = (mixed ^ (mixed >> np.uint64(30))) * _MIX_1
    mixed = (mixed ^ (mixed >> np.uint64(27))) * _MIX_2
    return np.asarray(mixed ^ (mixed >> np.uint64(31)))
