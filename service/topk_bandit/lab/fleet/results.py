"""What a simulated fleet did for its calls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from topk_bandit.lab.fleet.compiled.state import ANSWERED, FAILED, FOLD, LOAD, READY, RECOMMEND, REFUSED, REWARD

if TYPE_CHECKING:
    from topk_bandit.lab.fleet.compiled.state import State
    from topk_bandit.lab.fleet.scenario import Fleet, Traffic

__all__ = ["Results"]

FloatArray = NDArray[np.float64]

_TIMES_AS_LONG, _MORE_LOST = 2.0, 0.01


@dataclass(frozen=True, slots=True, eq=False)
class Results:
    """What became of the calls that were due while it was measured, and what was computed for them."""

    fleet: Fleet
    traffic: Traffic
    state: State

    @property
    def seconds(self) -> float:
        """How long it was measured."""
        return self.traffic.seconds - self.traffic.settling

    @property
    def waits(self) -> FloatArray:
        """From when a slate was asked for until it was there, of those that were answered."""
        calls, measured = self.state.calls, self._measured
        answered = measured & (calls["status"] == ANSWERED)
        return np.asarray(calls["answered_at"][answered] - calls["due"][answered] + 2.0 * self.fleet.network)

    def percentile(self, rank: float) -> float:
        """Return a percentile of the waits; NaN if nothing was answered."""
        waits = self.waits
        return float(np.percentile(waits, rank)) if len(waits) else float("nan")

    @property
    def answered(self) -> float:
        """The share of requests for slates that was answered, sooner or later."""
        return self._share(ANSWERED)

    @property
    def refused(self) -> float:
        """The share of requests for slates that was refused."""
        return self._share(REFUSED)

    @property
    def failed(self) -> float:
        """The share that a worker's death cost."""
        return self._share(FAILED)

    @property
    def pairs(self) -> float:
        """Rewards that were taken, a second."""
        at = self.state.calls["rewarded_at"]
        return float(((at >= self.traffic.settling) & (at < self.traffic.seconds)).sum() / self.seconds)

    @property
    def cores_used(self) -> float:
        """How many cores of all workers computed, on average."""
        return float(self.state.computed.sum() / self.seconds)

    @property
    def busiest(self) -> float:
        """The share of the time that the cores of the busiest worker computed."""
        by_worker = self.state.computed.sum(axis=1)
        return float(by_worker.max() / (self.seconds * self.fleet.cores))

    @property
    def computed(self) -> dict[str, float]:
        """Cores used by what they did."""
        by_class = self.state.computed.sum(axis=0) / self.seconds
        names = {"recommend": RECOMMEND, "reward": REWARD, "follow": FOLD, "load": LOAD}
        return {name: float(by_class[kind]) for name, kind in names.items()}

    @property
    def store_busy(self) -> float:
        """The share of the time that the busiest shard was computing or syncing."""
        return float(self.state.shards["busy_seconds"].max() / self.seconds)

    @property
    def store_cores(self) -> float:
        """How many cores all shards used; waiting for a disk is not among it."""
        return float(self.state.shards["calls"].sum() * self.fleet.costs.store_call / self.seconds)

    @property
    def behind(self) -> int:
        """How many events of its log the model that lags most had not folded when there were no calls any more."""
        slots, bandits = self.state.slots, self.state.bandits
        held = slots[slots["state"] == READY]
        logged = bandits[held["bandit"]]
        lags = logged["shown"] - held["seen_shown"] + logged["rewarded"] - held["seen_rewarded"]
        return int(lags.max(initial=0))

    @property
    def models_bytes(self) -> float:
        """Memory of the models, in the worker that had most."""
        return float(self.state.workers["most_models"].max() * self.fleet.model_bytes)

    @property
    def all_models_bytes(self) -> float:
        """Memory of all models of all workers, at the most."""
        return float(self.state.workers["most_models"].sum() * self.fleet.model_bytes)

    def recovery_seconds(self, died_at: float) -> float:
        """Return how long after a death the last second ended that was worse than usual.

        Worse is a p99 of twice as long as before, or a hundredth more of the requests that nobody answered.
        """
        calls, settling = self.state.calls, self.traffic.settling
        waited = np.where(calls["status"] == ANSWERED, calls["answered_at"] - calls["due"], np.inf)
        edges = [settling, *np.arange(died_at, self.traffic.seconds)]
        before, *parts = np.split(waited, np.searchsorted(calls["due"], edges))[1:]
        missing, usual = _quality(before)
        later = [_quality(part) for part in parts if len(part)]
        worse = [lost > missing + _MORE_LOST or p99 > _TIMES_AS_LONG * usual for lost, p99 in later]
        return float(1 + np.flatnonzero(worse)[-1]) if any(worse) else 0.0

    @property
    def _measured(self) -> NDArray[np.bool_]:
        return np.asarray(self.state.calls["due"] >= self.traffic.settling)

    def _share(self, status: int) -> float:
        return float((self.state.calls["status"][self._measured] == status).mean())


def _quality(waited: FloatArray) -> tuple[float, float]:
    """Return the share that nobody answered, and the p99 of the rest."""
    answered = waited[np.isfinite(waited)]
    return 1.0 - len(answered) / len(waited), float(np.percentile(answered, 99)) if len(answered) else np.inf
