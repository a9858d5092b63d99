"""The way to a D-optimal design: price all candidates, then climb among the few that matter.

*Pricing* finds candidates whose g_i exceeds the level, and the largest g_i or a bound of it: the certificate.
*Climbing* sets the weights of the support and of what pricing found to their best, one after the other, with an exact
line search and a low-rank update of V^-1 each; weights that fall to zero leave, so that the support stays small. Where
candidates are nearly alike climbing stalls, and Newton's method takes over.

The level is d, and with a prior, V = R + sum_i p_i B_i B_i', the mean l = sum_i p_i g_i = d - tr(V^-1 R): p is best if
and only if no g_i exceeds it, and log det V can gain at most max_i g_i - l. A weight's best is that at the level of the
last V, and weights are scaled to sum to 1 between sweeps.

The climb starts from a part of the average candidate, whose information is at least the identity in the coordinates
used, so that there are others to be found. This *ghost* fades from round to round, and is gone as soon as the support
spans all dimensions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from topk_bandit.preferences.compiled.coordinates import sweep
from topk_bandit.preferences.designs.information import Information
from topk_bandit.preferences.designs.newton import newton

if TYPE_CHECKING:
    from collections.abc import Callable

    Tell = Callable[[int, float, float], bool]

__all__ = ["AscentResult", "Candidates", "Prices", "ascend"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_FADING = 0.1
_REGULAR = 1e-5
"""The ghost leaves when no diagonal entry of C is a smaller share of the largest."""

_ROUNDING = 1e-9
_FEWEST_FINDS = 32
_MOST_SWEEPS = 16
_WORK_AT_ONCE = 4e7
_MOST_COLUMNS_FOR_NEWTON = 1500
_SHARE_OF_THE_NEW = 0.1

_ROUNDS_TO_HALVE_THE_EXCESS = 15
_ROUNDS_WITHOUT_GAIN = 60
_ROUNDS_WITHOUT_FINDS = 6


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

    def merge(self, others: Prices) -> Prices:
        """Return what either found, with the larger bound."""
        return Prices(
            max(self.bound, others.bound),
            np.concatenate([self.keys, others.keys]),
            np.concatenate([self.values, others.values]),
        )


class Candidates(Protocol):
    """What may be asked; each candidate has a key, a row of k integers."""

    @property
    def dimension(self) -> int:
        """How many features there are, d."""
        ...

    @property
    def prior(self) -> FloatArray | None:
        """R, shape (d, d), or None."""
        ...

    @property
    def key_length(self) -> int:
        """Integers of a key, k."""
        ...

    @property
    def work(self) -> float:
        """Multiplications that pricing takes, roughly."""
        ...

    def rows(self, keys: IntArray) -> FloatArray:
        """Return the transposes of the matrices B_i of candidates, shape (S, M, d)."""
        ...

    def price(self, information: Information, *, level: float, target: float) -> Prices:
        """Return candidates whose g_i is above a level, and a bound of all, which need not be sharper than `target`."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class AscentResult:
    """A design.

    Attributes
    ----------
    keys, weights
        The support's, the largest weights first, shapes (S, k) and (S,).
    log_det
        Of V.
    gap
        No candidate's g_i exceeds the level by more.
    steps
        Sweeps and Newton steps that it took.
    """

    keys: IntArray
    weights: FloatArray
    log_det: float
    gap: float
    steps: int


@dataclass(frozen=True, slots=True, eq=False)
class _Iterate:
    """V = R + ghost I + sum_i p_i B_i B_i', with the candidates' keys, their rows (S, M, d), p and R."""

    keys: IntArray
    rows: FloatArray
    weights: FloatArray
    ghost: float
    prior: FloatArray | None

    @property
    def information(self) -> Information:
        """That of the candidates and the ghost."""
        known = 0.0 if self.prior is None else self.prior
        return Information.of(self.rows, self.weights, prior=known + self.ghost * np.eye(self.rows.shape[2]))

    def add(self, keys: IntArray, rows: FloatArray) -> _Iterate:
        """Return this with candidates of weight zero put first."""
        return replace(
            self,
            keys=np.concatenate([keys, self.keys]),
            rows=np.concatenate([rows, self.rows]),
            weights=np.concatenate([np.zeros(len(keys)), self.weights]),
        )

    def drop_unsupported(self) -> _Iterate:
        """Return this without candidates of weight zero, with weights that sum to 1."""
        kept, total = self.weights > 0.0, self.weights.sum() + self.ghost
        return replace(
            self,
            keys=self.keys[kept],
            rows=self.rows[kept],
            weights=self.weights[kept] / total,
            ghost=self.ghost / total,
        )

    def fade(self) -> _Iterate:
        """Return this with less of the ghost, or without it if the rest is regular."""
        if self.ghost == 0.0:
            return self
        alone = replace(self, ghost=0.0)
        return (
            alone.drop_unsupported()
            if alone.is_regular()
            else replace(self, ghost=_FADING * self.ghost).drop_unsupported()
        )

    def is_regular(self) -> bool:
        """Return whether V is positive definite, and clearly so."""
        if not len(self.weights):
            return False
        try:
            pivots = 1.0 / np.diagonal(self.information.whitener)
        except np.linalg.LinAlgError:
            return False
        return bool(pivots.min() > _REGULAR * pivots.max())


def ascend(candidates: Candidates, *, gap_tolerance: float, max_steps: int, tell: Tell) -> AscentResult:
    """Return a design with a gap of at most the tolerance, or the best one that was met.

    It is the latter when `tell` or `max_steps` ends the climb; when nothing more is found though a bound of the gap
    stays above the tolerance; and when rounding errors leave no way up.

    Parameters
    ----------
    max_steps
        Most sweeps over the support and Newton steps.
    tell
        As soon as there is a design, is given the steps so far, and log det V and the gap of the best; true ends it.
    """
    climb = _Climb(candidates, gap_tolerance=gap_tolerance, max_steps=max_steps, tell=tell)
    while climb.best is None or not climb.is_over(climb.best):
        climb.advance()
    return climb.best


class _Climb:
    """One ascent, round by round."""

    def __init__(self, candidates: Candidates, *, gap_tolerance: float, max_steps: int, tell: Tell) -> None:
        self.candidates, self.gap_tolerance, self.max_steps, self.tell = candidates, gap_tolerance, max_steps, tell
        self.best: AscentResult | None = None
        self.gaps: list[float] = []
        self.excesses: list[float] = []
        self.steps, self.is_stopped, self.is_stalled = 0, False, False
        nothing = np.zeros((0, candidates.key_length), dtype=np.int64)
        self._move_to(_Iterate(nothing, candidates.rows(nothing), np.zeros(0), _FADING, candidates.prior))

    def is_over(self, best: AscentResult) -> bool:
        """Return whether the best design is good enough, or nothing better can be expected."""
        last = self.excesses[-_ROUNDS_WITHOUT_FINDS:]
        return (
            self.is_stopped
            or self.steps >= self.max_steps
            or best.gap <= self.gap_tolerance
            or (len(last) == _ROUNDS_WITHOUT_FINDS and max(last) <= self.gap_tolerance)
            or len(self.gaps) - self.gaps.index(best.gap) > _ROUNDS_WITHOUT_GAIN
        )

    def advance(self) -> None:
        """Climb among the support and what was found, and price again."""
        one = self._add_finds()
        is_small = one.rows.shape[0] * one.rows.shape[1] <= _MOST_COLUMNS_FOR_NEWTON
        climb = self._newton if self.is_stalled and is_small else self._sweep
        try:
            self._move_to(replace(one, weights=climb(one)).drop_unsupported().fade())
        except np.linalg.LinAlgError:
            if self.best is None:
                raise
            # No climb ends at a singular V but by rounding: the best design that was met is the answer.
            self.is_stopped = True

    def _move_to(self, one: _Iterate) -> None:
        self.iterate, self.information = one, one.information
        self.level = level = self.information.level(one.prior)
        target = level + self.gap_tolerance * (1.0 - _ROUNDING)  # a bound that is the target leaves a gap in tolerance
        self.prices = self.candidates.price(self.information, level=level, target=target)
        self.excess = float(self.prices.values.max(initial=level)) - level
        if one.ghost == 0.0:
            self._judge()

    def _judge(self) -> None:
        """Keep the iterate if none was better, and see how the climb goes."""
        gap = max(self.prices.bound - self.level, 0.0)
        if self.best is None or gap < self.best.gap:
            order = np.argsort(-self.iterate.weights, kind="stable")
            keys, weights = self.iterate.keys[order], self.iterate.weights[order]
            self.best = AscentResult(keys, weights, self.information.log_det, gap, self.steps)
        self.gaps.append(gap)
        self.excesses.append(self.excess)
        if len(self.excesses) > _ROUNDS_TO_HALVE_THE_EXCESS:
            before = self.excesses[-1 - _ROUNDS_TO_HALVE_THE_EXCESS]
            self.is_stalled = self.is_stalled or self.excess > 0.5 * before
        self._is_asked_to_stop()

    def _add_finds(self) -> _Iterate:
        one, values = self.iterate, self.prices.values
        order = np.argsort(-values, kind="stable")
        order = order[values[order] > self.level + 0.1 * self.gap_tolerance]
        known, most = set(map(tuple, one.keys.tolist())), max(_FEWEST_FINDS, self.candidates.dimension)
        # No more rows than can be needed: making lists of all would keep other threads waiting.
        best = self.prices.keys[order[: len(known) + most]].tolist()
        found = [key for key in best if tuple(key) not in known]
        if not found:
            return one
        keys = np.array(found[:most], dtype=np.int64)
        return one.add(keys, self.candidates.rows(keys))

    def _newton(self, one: _Iterate) -> FloatArray:
        start = np.maximum(one.weights, _SHARE_OF_THE_NEW / len(one.weights))
        weights, taken = newton(
            one.rows,
            start / start.sum(),
            prior=one.prior,
            gap_tolerance=0.1 * self.gap_tolerance,
            stop=self._is_asked_to_stop,
        )
        self.steps += taken
        return weights

    def _sweep(self, one: _Iterate) -> FloatArray:
        """Sweep as long as that is cheaper than pricing, or until the support is far better than the rest."""
        inverse, weights = self.information.inverse, one.weights.copy()
        affordable = self.candidates.work / self._work(one.rows)
        for _ in range(int(min(max(affordable, 1.0), _MOST_SWEEPS))):
            largest = self._sweep_once(inverse, one.rows, weights)
            self.steps += 1
            if largest <= 0.2 * self.excess or self.is_stopped:
                break
        return weights

    def _sweep_once(self, inverse: FloatArray, rows: FloatArray, weights: FloatArray) -> float:
        """Sweep in place; return the largest |g - l| that was met."""
        n, largest, enough = len(weights), 0.0, 0.2 * self.gap_tolerance
        chunk = max(1, int(_WORK_AT_ONCE * n / self._work(rows)))
        for first in range(0, n, chunk):
            largest = max(largest, sweep(inverse, rows, weights, first, min(first + chunk, n), self.level, enough))
            if self._is_asked_to_stop():
                break
        return largest

    def _work(self, rows: FloatArray) -> float:
        """Return the multiplications of one sweep, roughly."""
        return 4.0 * rows.size * self.candidates.dimension

    def _is_asked_to_stop(self) -> bool:
        if self.best is not None:
            self.is_stopped = self.is_stopped or self.tell(self.steps, self.best.log_det, self.best.gap)
        return self.is_stopped
