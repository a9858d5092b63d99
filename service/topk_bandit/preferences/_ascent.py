"""The way to a D-optimal design: price all candidates, then climb among the few that matter.

*Pricing* finds candidates whose g_i exceeds d, and the largest g_i or a bound of it: the certificate. *Climbing* sets
the weights of the working set, the support and what pricing found, to their best one after the other, with exact line
searches and low-rank updates of V^-1; weights that fall to zero leave, so that the support stays small. If climbing
stalls, because candidates are nearly alike, Newton's method takes over.

The climb starts from the average candidate, whose information is the identity in the coordinates used. This *ghost*
fades from round to round, and is gone as soon as the working set spans all dimensions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from topk_bandit.preferences._coordinates import sweep
from topk_bandit.preferences._information import Information
from topk_bandit.preferences._newton import newton

if TYPE_CHECKING:
    from collections.abc import Callable

    Tell = Callable[[int, float, float], bool]

__all__ = ["Candidates", "Found", "Prices", "ascend"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_FADING = 0.1
_REGULAR = 1e-5
"""Least share of the largest diagonal entry that others of C must have for the ghost to leave."""

_MOST_SWEEPS = 16
_WORK_AT_ONCE = 4e7
_ROUNDS_TO_HALVE_THE_EXCESS = 15
_MOST_FOR_NEWTON = 600
_SHARE_OF_THE_NEW = 0.1
_NEGLIGIBLE = 1e-6
_ROUNDS_WITHOUT_GAIN = 60
_ROUNDS_WITHOUT_FINDS = 3
_FEWEST_FINDS = 32


@dataclass(frozen=True, slots=True, eq=False)
class Prices:
    """What pricing found.

    Attributes
    ----------
    bound
        No candidate's g_i is larger.
    keys
        Candidates with a large g_i, shape (F, k).
    values
        Their g_i, shape (F,).
    """

    bound: float
    keys: IntArray
    values: FloatArray


class Candidates(Protocol):
    """What may be asked; each candidate has a key, a row of k integers."""

    @property
    def dimension(self) -> int:
        """d."""
        ...

    @property
    def key_length(self) -> int:
        """k."""
        ...

    @property
    def work(self) -> float:
        """Multiplications that pricing takes, roughly."""
        ...

    def rows(self, keys: IntArray) -> FloatArray:
        """Return the transposes of the matrices B_i of candidates, shape (S, M, d)."""
        ...

    def priced(self, information: Information) -> Prices:
        """Return all that may exceed d."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """A design: weights of candidates, the largest first."""

    keys: IntArray
    weights: FloatArray
    log_det: float
    gap: float
    steps: int


@dataclass(frozen=True, slots=True, eq=False)
class _Iterate:
    keys: IntArray
    rows: FloatArray
    weights: FloatArray
    ghost: float

    @property
    def information(self) -> Information:
        return Information.of(self.rows, self.weights, ridge=self.ghost)

    def joined(self, keys: IntArray, rows: FloatArray) -> _Iterate:
        """Return this with candidates of weight zero put first."""
        return replace(
            self,
            keys=np.concatenate([keys, self.keys]),
            rows=np.concatenate([rows, self.rows]),
            weights=np.concatenate([np.zeros(len(keys)), self.weights]),
        )

    def supported(self) -> _Iterate:
        """Return this without candidates of weight zero, with weights that sum to 1."""
        kept, total = self.weights > 0.0, self.weights.sum() + self.ghost
        return _Iterate(self.keys[kept], self.rows[kept], self.weights[kept] / total, self.ghost / total)

    def faded(self) -> _Iterate:
        """Return this with less of the ghost, or without it if the rest is regular."""
        if self.ghost == 0.0:
            return self
        alone = replace(self, ghost=0.0)
        return alone.supported() if alone.is_regular() else replace(self, ghost=_FADING * self.ghost).supported()

    def is_regular(self) -> bool:
        if not len(self.weights):
            return False
        try:
            pivots = 1.0 / np.diagonal(self.information.whitener)
        except np.linalg.LinAlgError:
            return False
        return bool(pivots.min() > _REGULAR * pivots.max())


def ascend(candidates: Candidates, *, gap_tolerance: float, max_steps: int, tell: Tell) -> Found:
    """Return a design whose gap is at most the tolerance; or the best that was met when `tell` or the steps ended it.

    Parameters
    ----------
    max_steps
        Most sweeps over the working set and Newton steps.
    tell
        Is given the steps so far, log det V and the smallest gap, infinite at first; true ends the climb.
    """
    climb = _Climb(candidates, gap_tolerance, max_steps, tell)
    while climb.best is None or not climb.is_over():
        climb.advance()
    return climb.best


class _Climb:
    """One ascent, round by round."""

    def __init__(self, candidates: Candidates, gap_tolerance: float, max_steps: int, tell: Tell) -> None:
        self.candidates, self.gap_tolerance, self.max_steps, self.tell = candidates, gap_tolerance, max_steps, tell
        nothing = np.zeros((0, candidates.key_length), dtype=np.int64)
        self.iterate = _Iterate(nothing, candidates.rows(nothing), np.zeros(0), 1.0)
        self.information = self.iterate.information
        self.prices = candidates.priced(self.information)
        self.best: Found | None = None
        self.steps, self.stopped, self.stalls = 0, False, False
        self.gaps: list[float] = []
        self.excesses: list[float] = []
        self.rounds_without_finds = 0

    def is_over(self) -> bool:
        """Tell whether there is a design that is good enough, or cannot be improved."""
        return self.best is not None and (
            self.best.gap <= self.gap_tolerance
            or self.stopped
            or self.steps >= self.max_steps
            or self.rounds_without_finds >= _ROUNDS_WITHOUT_FINDS
            or (len(self.gaps) > _ROUNDS_WITHOUT_GAIN and min(self.gaps[-_ROUNDS_WITHOUT_GAIN:]) > self.best.gap)
        )

    def advance(self) -> None:
        """Climb among the support and what was found, and price again."""
        self._take_finds()
        if self._is_stalled():
            self._take_newton_steps()
        else:
            self._sweep()
        self.iterate = self.iterate.supported().faded()
        self.information = self.iterate.information
        self.prices = self.candidates.priced(self.information)
        if self.iterate.ghost == 0.0:
            self._judge()

    def _take_finds(self) -> None:
        d, prices = self.candidates.dimension, self.prices
        order = np.argsort(-prices.values, kind="stable")
        order = order[prices.values[order] > d + 0.1 * self.gap_tolerance]
        known = set(map(tuple, self.iterate.keys.tolist()))
        keys = [key for key in prices.keys[order].tolist() if tuple(key) not in known]
        if keys:
            new = np.array(keys[: max(_FEWEST_FINDS, d)], dtype=np.int64)
            self.iterate = self.iterate.joined(new, self.candidates.rows(new))

    def _is_stalled(self) -> bool:
        """Tell whether Newton's method is to be preferred: once it is, it stays so."""
        if len(self.excesses) > _ROUNDS_TO_HALVE_THE_EXCESS:
            self.stalls = self.stalls or self.excesses[-1] > 0.5 * self.excesses[-1 - _ROUNDS_TO_HALVE_THE_EXCESS]
        return self.stalls and len(self.iterate.weights) <= _MOST_FOR_NEWTON

    def _take_newton_steps(self) -> None:
        one, excess = self.iterate, float(self.prices.values.max()) - self.candidates.dimension
        start = np.maximum(one.weights, _SHARE_OF_THE_NEW / len(one.weights))
        weights, taken = newton(
            one.rows,
            start / start.sum(),
            gap_tolerance=0.1 * min(self.gap_tolerance, excess),
            stop=lambda: self._tell(),
        )
        weights[weights < _NEGLIGIBLE / len(weights)] = 0.0
        inverse=Information.of(one.rows,weights).inverse
        sweep(inverse, one.rows, weights, 0,len(weights),0.0)
        self.iterate = replace(one, weights=weights)
        self.steps += max(taken, 1)

    def _sweep(self) -> None:
        one, d = self.iterate, self.candidates.dimension
        inverse, weights = self.information.inverse, one.weights.copy()
        excess = float(self.prices.values.max(initial=d)) - d
        work = 4.0 * one.rows.size * d
        for _ in range(int(min(max(self.candidates.work / work, 1.0), _MOST_SWEEPS))):
            largest, chunk = 0.0, max(1, int(_WORK_AT_ONCE * len(weights) / work))
            for first in range(0, len(weights), chunk):
                last = min(first + chunk, len(weights))
                met = sweep(inverse, one.rows, weights, first, last, 0.05 * self.gap_tolerance)
                largest = max(largest, met)
                if self._tell():
                    break
            self.steps += 1
            if largest <= 0.2 * excess or self.stopped:
                break
        self.iterate = replace(one, weights=weights)

    def _tell(self) -> bool:
        if self.best is not None:
            self.stopped = self.stopped or self.tell(self.steps, self.best.log_det, self.best.gap)
        return self.stopped

    def _judge(self) -> None:
        d, one = self.candidates.dimension, self.iterate
        gap = max(self.prices.bound - d, 0.0)
        self.gaps.append(gap)
        found = float(self.prices.values.max(initial=d)) - d
        self.excesses.append(found)
        self.rounds_without_finds = 0 if found > self.gap_tolerance else self.rounds_without_finds + 1
        if self.best is None or gap < self.best.gap:
            order = np.argsort(-one.weights, kind="stable")
            self.best = Found(one.keys[order], one.weights[order], self.information.log_det, gap, self.steps)
        self._tell()
