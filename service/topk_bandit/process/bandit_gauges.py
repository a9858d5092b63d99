"""The gauges of what is measured per bandit, each a worker's sum or its largest bandit's.

A worker shows how many events and rows its bandits have together, and the worst of their lags, silences and snapshots.
What grows with time is shown anew whenever `refresh` is called. The number of series never depends on that of bandits.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from prometheus_client import Gauge

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from prometheus_client import CollectorRegistry

    from topk_bandit.domain.hooks import ModelFigures

__all__ = ["BanditGauges"]

_OF_A_WORKER = "over a worker's bandits, of the worker that has most."
_WORST = "the maximum over bandits and workers."

_SUMS = {
    "topk_bandit_observations": f"Rewards learned from: the sum {_OF_A_WORKER}",
    "topk_bandit_pending": f"Recommendations awaiting their reward: the sum {_OF_A_WORKER}",
    "topk_bandit_posterior_rows": f"Rows that the posteriors keep: the sum {_OF_A_WORKER}",
    "topk_bandit_model_memory_bytes": f"What models take in memory, about: the sum {_OF_A_WORKER}",
}
_LARGEST = {
    "topk_bandit_learner_lag_events": f"Events of a log, when it was read last, that its model lacks: {_WORST}",
    "topk_bandit_unsaved_events": f"Events of a model beyond its newest snapshot: {_WORST}",
    "topk_bandit_outlier_share": f"Share of a bandit's latest rewards that are not learned, as outliers: {_WORST}",
    "topk_bandit_spread_factor": f"By how much spreads are widened to hold of the latest rewards: {_WORST}",
    "topk_bandit_missing_rewards": f"Rewards that slates since the newest reward usually get: {_WORST}",
    "topk_bandit_selection_share": f"Share of slates without a reward, where only buyers are learned from: {_WORST}",
    "topk_bandit_lift_shortfall": f"Share that a bandit's group earns less than its control group for sure: {_WORST}",
    "topk_bandit_odd_groups": f"Whether a bandit's groups are not as large as its control share asks: {_WORST}",
    "topk_bandit_reward_settled_seconds": f"After how long 99 % of what slates end up with has come: {_WORST}",
    "topk_bandit_snapshot_bytes": f"Size of a bandit's newest snapshot: {_WORST}",
}
_AGES = {
    "topk_bandit_model_age_seconds": f"How long the oldest event that a model lacks has waited, or 0: {_WORST}",
    "topk_bandit_log_unread_seconds": f"Time since a log that is followed was read: {_WORST}",
    "topk_bandit_snapshot_age_seconds": f"Age of a bandit's newest snapshot, or 0: {_WORST}",
}


class _NumberPerBandit:
    """One number per bandit, with their sum and their maximum."""

    def __init__(self) -> None:
        self._values: dict[str, float] = {}
        self.total = 0.0
        self.largest = float("-inf")

    def put(self, bandit: str, value: float) -> None:
        """Replace a bandit's number."""
        old = self._values.get(bandit, 0.0)
        was_largest = bandit in self._values and old == self.largest
        self._values[bandit] = value
        self.total += value - old
        if value >= self.largest:
            self.largest = value
        elif was_largest:
            self.largest = max(self._values.values())

    def drop(self, bandit: str) -> None:
        """Forget a bandit's number."""
        if bandit in self._values:
            value = self._values.pop(bandit)
            self.total -= value
            if value == self.largest:
                self.largest = max(self._values.values(), default=float("-inf"))

    def __len__(self) -> int:
        return len(self._values)


@dataclass(frozen=True, slots=True)
class _Shown:
    """A number per bandit, and the gauge of its sum or maximum."""

    gauge: Gauge
    numbers: _NumberPerBandit


class BanditGauges:
    """Numbers of a worker's bandits, and gauges of all together; safe to share between threads.

    Parameters
    ----------
    registry
        Where the gauges are registered.
    clock
        Seconds that never go backwards.
    """

    def __init__(self, registry: CollectorRegistry, *, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()

        def make_gauges(helps: Mapping[str, str]) -> dict[str, _Shown]:
            return {name: _Shown(_gauge(registry, name, text), _NumberPerBandit()) for name, text in helps.items()}

        self._sums, self._largest, self._ages = make_gauges(_SUMS), make_gauges(_LARGEST), make_gauges(_AGES)
        self._models = _gauge(registry, "topk_bandit_models", "Models in memory, of the worker that has most.")
        self._largest_model = _gauge(
            registry, "topk_bandit_largest_model_bytes", "What the largest model of any worker takes in memory, about."
        )

    def note_read(self, bandit: str, *, lag_events: int, waiting_seconds: float) -> None:
        """Keep what a bandit's model lacks of its log, which was read just now."""
        with self._lock:
            self._put_largest("topk_bandit_learner_lag_events", bandit, lag_events)
            self._put_age("topk_bandit_log_unread_seconds", bandit, 0.0)
            self._put_age("topk_bandit_model_age_seconds", bandit, waiting_seconds if lag_events else None)

    def note_figures(self, bandit: str, figures: ModelFigures) -> None:
        """Keep the figures of a bandit's model."""
        with self._lock:
            sizes = (figures.observations, figures.pending, figures.rows, figures.memory_bytes)
            for shown, value in zip(self._sums.values(), sizes, strict=True):
                shown.numbers.put(bandit, value)
            self._put_largest("topk_bandit_outlier_share", bandit, figures.outlier_share)
            self._put_largest("topk_bandit_spread_factor", bandit, figures.spread_factor)
            self._put_largest("topk_bandit_missing_rewards", bandit, figures.missing_rewards)
            self._put_largest("topk_bandit_selection_share", bandit, figures.selection_share)
            self._put_largest("topk_bandit_reward_settled_seconds", bandit, figures.settled_seconds)
            self._show_sums()

    def note_comparison(self, bandit: str, *, shortfall: float, has_odd_groups: bool) -> None:
        """Keep what a bandit's group earns beside its control group."""
        with self._lock:
            self._put_largest("topk_bandit_lift_shortfall", bandit, shortfall)
            self._put_largest("topk_bandit_odd_groups", bandit, float(has_odd_groups))

    def note_snapshot(self, bandit: str, *, unsaved_events: int, age_seconds: float, n_bytes: int) -> None:
        """Keep what is known of a bandit's newest snapshot; one of no bytes is none."""
        with self._lock:
            self._put_largest("topk_bandit_unsaved_events", bandit, unsaved_events)
            self._put_largest("topk_bandit_snapshot_bytes", bandit, n_bytes)
            self._put_age("topk_bandit_snapshot_age_seconds", bandit, age_seconds if n_bytes else None)

    def forget(self, bandit: str) -> None:
        """Leave a bandit out from now on."""
        with self._lock:
            for shown in (*self._sums.values(), *self._largest.values(), *self._ages.values()):
                shown.numbers.drop(bandit)
            for shown in self._largest.values():
                _show_largest(shown)
            self._show_sums()
            self._show_ages()

    def refresh(self) -> None:
        """Show what grows with time as it is now."""
        with self._lock:
            self._show_ages()

    def _put_largest(self, name: str, bandit: str, value: float) -> None:
        self._largest[name].numbers.put(bandit, value)
        _show_largest(self._largest[name])

    def _put_age(self, name: str, bandit: str, seconds: float | None) -> None:
        """Let an age grow from so many seconds; None lets it be none."""
        if seconds is None:
            self._ages[name].numbers.drop(bandit)
        else:
            self._ages[name].numbers.put(bandit, seconds - self._clock())
        self._show_age(self._ages[name])

    def _show_sums(self) -> None:
        for shown in self._sums.values():
            shown.gauge.set(shown.numbers.total)
        memory = self._sums["topk_bandit_model_memory_bytes"].numbers
        self._models.set(len(memory))
        self._largest_model.set(memory.largest if memory else 0)

    def _show_ages(self) -> None:
        for shown in self._ages.values():
            self._show_age(shown)

    def _show_age(self, shown: _Shown) -> None:
        shown.gauge.set(max(0.0, shown.numbers.largest + self._clock()) if shown.numbers else 0.0)


def _show_largest(shown: _Shown) -> None:
    shown.gauge.set(shown.numbers.largest if shown.numbers else 0)


def _gauge(registry: CollectorRegistry, name: str, documentation: str) -> Gauge:
    return Gauge(name, documentation, registry=registry, multiprocess_mode="livemax")
