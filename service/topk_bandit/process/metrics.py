"""What the service measures, as Prometheus metrics that hooks count.

Counters and histograms are summed over the worker processes, and a gauge is the largest value of any living worker.
Each worker folds the log of every bandit that it serves, so `topk_bandit_reward_delay_seconds` counts a reward once in
each of them. What is measured per bandit is shown as a worker's sum (observations, pending, rows, memory) or maximum
(lag, age, largest model). The number of series never depends on the number of tenants, bandits or items.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, Self, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Summary

from topk_bandit.domain.bandits import RewardOutcome
from topk_bandit.domain.hooks import Hooks
from topk_bandit.domain.studies import AnswerOutcome, DesignState
from topk_bandit.process.metrics_folder import share_metrics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from topk_bandit.domain.bandits import Recommendation

__all__ = ["Metrics"]

_Metric = TypeVar("_Metric", Counter, Histogram)

_DECISION_BUCKETS = (0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.025, 0.05, 0.1, 0.25, 1.0)
_CALL_BUCKETS = (0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
_DESIGN_BUCKETS = (0.001, 0.0025, 0.01, 0.025, 0.1, 0.25, 1.0, 2.5, 10.0, 25.0, 60.0, 120.0)
_STORE_BUCKETS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 2.5)
_DELAY_BUCKETS = (1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14400.0, 86400.0, 604800.0)

_REST_REASONS = frozenset({"idle", "memory"})
_ANSWER_OUTCOMES = frozenset({*AnswerOutcome, "not_found", "conflict", "invalid", "unavailable"})
_DESIGN_OUTCOMES = frozenset({*DesignState, "abandoned"})
_REWARD_OUTCOMES = frozenset({*RewardOutcome, "not_found", "conflict", "invalid", "unavailable"})
_RPC_CODES = frozenset(
    {
        "OK",
        "CANCELLED",
        "UNKNOWN",
        "INVALID_ARGUMENT",
        "DEADLINE_EXCEEDED",
        "NOT_FOUND",
        "ALREADY_EXISTS",
        "PERMISSION_DENIED",
        "RESOURCE_EXHAUSTED",
        "FAILED_PRECONDITION",
        "ABORTED",
        "OUT_OF_RANGE",
        "UNIMPLEMENTED",
        "INTERNAL",
        "UNAVAILABLE",
        "DATA_LOSS",
        "UNAUTHENTICATED",
    }
)
_UNKNOWN_METHOD = ("unknown", "unknown")


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


class Metrics(Hooks):
    """Hooks that count.

    Parameters
    ----------
    registry
        Where the metrics are registered; a registry takes one `Metrics`.
    methods
        The (service, method) pairs that the server serves: ``("topk_bandit.v1.RecommenderService", "Reward")``. A call
        of anything else is counted as unknown, since a caller can make up any number of names.
    clock
        Seconds that never go backwards.
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        *,
        methods: Iterable[tuple[str, str]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._registry = registry
        self._methods = frozenset(methods)
        self._clock = clock
        self._lock = threading.Lock()
        self._known_series: dict[tuple[object, tuple[str, ...]], Any] = {}
        self._sums = {name: _NumberPerBandit() for name in ("observations", "pending", "rows", "memory_bytes")}
        self._lags = _NumberPerBandit()
        self._unfolded = _NumberPerBandit()
        self._register_calls()
        self._register_decisions()
        self._register_rewards()
        self._register_models()
        self._register_studies()
        self._register_store()
        self._begin_at_zero()

    @classmethod
    def of_worker(cls, worker: int, folder: Path, *, methods: Iterable[tuple[str, str]]) -> Self:
        """Return hooks that count into the files of a worker in `folder`; see `share_metrics`."""
        share_metrics(folder, worker=worker)
        return cls(CollectorRegistry(), methods=methods)

    def _counter(self, name: str, documentation: str, *labels: str) -> Counter:
        return Counter(name, documentation, labels, registry=self._registry)

    def _histogram(self, name: str, documentation: str, *labels: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(name, documentation, labels, registry=self._registry, buckets=buckets)

    def _gauge(self, name: str, documentation: str) -> Gauge:
        return Gauge(name, documentation, registry=self._registry, multiprocess_mode="livemax")

    def _register_calls(self) -> None:
        call = ("grpc_service", "grpc_method")
        self._started = self._counter("grpc_server_started_total", "Calls that arrived.", *call)
        self._handled = self._counter(
            "grpc_server_handled_total", "Calls that were answered, by status code.", *call, "grpc_code"
        )
        self._handling = self._histogram(
            "grpc_server_handling_seconds", "Time from a call's arrival to its answer.", *call, buckets=_CALL_BUCKETS
        )

    def _register_decisions(self) -> None:
        self._decision = self._histogram(
            "topk_bandit_decision_seconds", "Time to choose a slate, without the store.", buckets=_DECISION_BUCKETS
        )
        self._exploration = self._counter(
            "topk_bandit_exploration_total", "Slates given out, by how they were chosen.", "mode"
        )
        self._passed_over = self._counter(
            "topk_bandit_candidates_passed_over_total",
            "Candidates of slates given out that were unknown, retired or unavailable.",
        )
        self._degraded = self._counter(
            "topk_bandit_degraded_total", "Slates given out that could not be recorded: the store was away."
        )
        self._regret_bound = self._counter(
            "topk_bandit_regret_bound_total", "Sum of the regret bounds of the slates given out, in reward units."
        )
        self._estimated_regret = self._counter(
            "topk_bandit_estimated_regret_total",
            "Sum of the estimated regrets of the slates given out, in reward units.",
        )

        self._odd_features = self._counter(
            "topk_bandit_odd_features_total",
            "Features of requests that were clamped or not declared, and contexts that were shortened.",
            "kind",
        )

    def _register_rewards(self) -> None:
        self._rewards = self._counter("topk_bandit_rewards_total", "Posted rewards, by what became of them.", "outcome")
        self._reward_value = Summary(
            "topk_bandit_reward_value", "Rewards that were accepted, in reward units.", registry=self._registry
        )
        self._reward_delay = self._histogram(
            "topk_bandit_reward_delay_seconds",
            "Time from a recommendation to its reward; counted by each worker that learned it.",
            buckets=_DELAY_BUCKETS,
        )
        self._expired = self._counter("topk_bandit_expired_total", "Recommendations closed when their deadline passed.")

    def _register_studies(self) -> None:
        self._answers = self._counter(
            "topk_bandit_answers_total", "Answers to studies' questions, by what became of them.", "outcome"
        )
        self._designs = self._histogram(
            "topk_bandit_design_seconds",
            "Time that a worker's attempt at a study's design took, by where the design stands after it.",
            "outcome",
            buckets=_DESIGN_BUCKETS,
        )

    def _register_models(self) -> None:
        of_a_worker = "over a worker's bandits, of the worker that has most."
        self._size_gauges = {
            "observations": self._gauge("topk_bandit_observations", f"Rewards learned from: the sum {of_a_worker}"),
            "pending": self._gauge(
                "topk_bandit_pending", f"Recommendations awaiting their reward: the sum {of_a_worker}"
            ),
            "rows": self._gauge("topk_bandit_posterior_rows", f"Rows that the posteriors keep: the sum {of_a_worker}"),
            "memory_bytes": self._gauge(
                "topk_bandit_model_memory_bytes", f"What models take in memory, about: the sum {of_a_worker}"
            ),
        }
        self._register_residence()
        self._lag_gauge = self._gauge(
            "topk_bandit_learner_lag_events",
            "Events that a model has not folded in: the maximum over bandits and workers.",
        )
        self._age_gauge = self._gauge(
            "topk_bandit_model_age_seconds",
            "Age of the newest event that a model has folded in while it lags behind, else 0: the maximum over bandits "
            "and workers.",
        )
        self._snapshot_failures = self._counter(
            "topk_bandit_snapshot_failures_total", "Snapshots that did not verify or could not be saved."
        )
        self._fold_failures = self._counter(
            "topk_bandit_fold_failures_total", "Attempts at an event of a log that could not be folded into its model."
        )
        self._divergences = self._counter(
            "topk_bandit_model_divergences_total",
            "Models whose digest was not that of a snapshot of the same log position, though it must be.",
        )

    def _register_residence(self) -> None:
        self._models_gauge = self._gauge("topk_bandit_models", "Models in memory, of the worker that has most.")
        self._largest_gauge = self._gauge(
            "topk_bandit_largest_model_bytes", "What the largest model of any worker takes in memory, about."
        )
        self._limit_gauge = self._gauge("topk_bandit_model_limit_bytes", "What one bandit's model may take in memory.")
        self._rested = self._counter(
            "topk_bandit_models_rested_total",
            "Models that left memory until they are asked for: idle, or to make room in memory.",
            "reason",
        )

    def _register_store(self) -> None:
        self._store = self._histogram(
            "topk_bandit_store_seconds", "Time of a call of the store.", "operation", "outcome", buckets=_STORE_BUCKETS
        )

        self._store_problems = self._gauge(
            "topk_bandit_store_problems", "What keeps the store from keeping what it acknowledges; `doctor` names it."
        )
        self._store_clock_jumps = self._counter(
            "topk_bandit_store_clock_jumps_total", "Times that the store's clock went on by another time than passed."
        )

    def _begin_at_zero(self) -> None:
        """Show each series that is certain to come before it counts, so that its first increase is seen."""
        for outcome in _REWARD_OUTCOMES:
            self._rewards.labels(outcome)
        for outcome in _ANSWER_OUTCOMES:
            self._answers.labels(outcome)
        for mode in ("explored", "exploited", "baseline"):
            self._exploration.labels(mode)
        for kind in ("clamped", "unknown"):
            self._odd_features.labels(kind)
        for reason in _REST_REASONS:
            self._rested.labels(reason)
        for method in self._methods:
            self._started.labels(*method)
            self._handling.labels(*method)
            self._handled.labels(*method, "OK")

    def _series(self, metric: _Metric, *labels: str) -> _Metric:
        """Return one series of a metric: what `labels` does, without its checks, which take longer than counting."""
        key = (metric, labels)
        known: _Metric | None = self._known_series.get(key)
        if known is None:
            known = self._known_series[key] = metric.labels(*labels)
        return known

    def rpc_started(self, service: str, method: str) -> None:
        """Note that a call arrived."""
        self._series(self._started, *self._known(service, method)).inc()

    def rpc_handled(self, service: str, method: str, code: str, seconds: float) -> None:
        """Note that a call was answered with a status code, by name (``"NOT_FOUND"``), so long after it arrived."""
        call = self._known(service, method)
        self._series(self._handled, *call, code if code in _RPC_CODES else "UNKNOWN").inc()
        self._series(self._handling, *call).observe(seconds)

    def _known(self, service: str, method: str) -> tuple[str, str]:
        return (service, method) if (service, method) in self._methods else _UNKNOWN_METHOD

    def decided(self, recommendation: Recommendation, seconds: float) -> None:  # noqa: ARG002
        """Note how long a decision took; a learner that stands still while slates are asked for is seen to age."""
        self._decision.observe(seconds)
        with self._lock:
            self._show_age()

    def recommended(self, recommendation: Recommendation) -> None:
        """Count a slate and its regrets."""
        chosen = "explored" if recommendation.explored else "exploited"
        self._series(self._exploration, "baseline" if recommendation.baseline else chosen).inc()
        self._passed_over.inc(recommendation.passed_over)
        self._regret_bound.inc(max(0.0, recommendation.regret_bound))
        self._estimated_regret.inc(max(0.0, recommendation.estimated_regret))
        if recommendation.degraded:
            self._degraded.inc()

    def encoded(self, *, clamped: int, unknown: int) -> None:
        """Count features that were not taken as they were."""
        for kind, count in (("clamped", clamped), ("unknown", unknown)):
            if count:
                self._series(self._odd_features, kind).inc(count)

    def rewarded(self, outcome: str, value: float) -> None:
        """Count a posted reward, and its value when it was accepted."""
        self._series(self._rewards, outcome if outcome in _REWARD_OUTCOMES else "other").inc()
        if outcome == RewardOutcome.ACCEPTED:
            self._reward_value.observe(value)

    def answered(self, outcome: str) -> None:
        """Count an answer."""
        self._series(self._answers, outcome if outcome in _ANSWER_OUTCOMES else "other").inc()

    def designed(self, outcome: str, seconds: float) -> None:
        """Note how long an attempt at a design took."""
        self._series(self._designs, outcome if outcome in _DESIGN_OUTCOMES else "other").observe(seconds)

    def learned(self, reward: float, delay_seconds: float) -> None:  # noqa: ARG002
        """Note how long a reward was waited for; its value was counted when it was posted."""
        self._reward_delay.observe(delay_seconds)

    def expired(self, count: int) -> None:
        """Count recommendations closed without a reward."""
        self._expired.inc(count)

    def followed(self, bandit: str, lag_events: int, model_age_seconds: float) -> None:
        """Keep a bandit's lag; while it has one, its age grows with the clock until it is noted anew."""
        with self._lock:
            self._lags.put(bandit, lag_events)
            if lag_events > 0:
                self._unfolded.put(bandit, model_age_seconds - self._clock())
            else:
                self._unfolded.drop(bandit)
            self._show_following()

    def posterior(self, bandit: str, *, observations: int, pending: int, rows: int, memory_bytes: int) -> None:
        """Keep the size of a bandit's model."""
        sizes = {"observations": observations, "pending": pending, "rows": rows, "memory_bytes": memory_bytes}
        with self._lock:
            for name, value in sizes.items():
                self._sums[name].put(bandit, value)
            self._show_sizes()

    def bounded(self, model_bytes: int) -> None:
        """Show what one model may take."""
        self._limit_gauge.set(model_bytes)

    def rested(self, reason: str) -> None:
        """Count a model that left memory until it is asked for."""
        self._rested.labels(reason if reason in _REST_REASONS else "other").inc()

    def forgotten(self, bandit: str) -> None:
        """Leave a bandit out of the sums and maxima."""
        with self._lock:
            for values_of in (*self._sums.values(), self._lags, self._unfolded):
                values_of.drop(bandit)
            self._show_sizes()
            self._show_following()

    def snapshot_failed(self, bandit: str) -> None:  # noqa: ARG002
        """Count a snapshot that failed."""
        self._snapshot_failures.inc()

    def fold_failed(self, bandit: str) -> None:  # noqa: ARG002
        """Count an event that could not be folded."""
        self._fold_failures.inc()

    def diverged(self, bandit: str) -> None:  # noqa: ARG002
        """Count a model that is not what another worker made of the same log."""
        self._divergences.inc()

    def store_called(self, operation: str, seconds: float, *, failed: bool) -> None:
        """Note one call of the store."""
        self._series(self._store, operation, "failed" if failed else "ok").observe(seconds)

    def store_examined(self, problems: int) -> None:
        """Show how many problems the store has."""
        self._store_problems.set(problems)

    def store_clock_jumped(self) -> None:
        """Count a jump of the store's clock."""
        self._store_clock_jumps.inc()

    def _show_sizes(self) -> None:
        for name, values_of in self._sums.items():
            self._size_gauges[name].set(values_of.total)
        memory = self._sums["memory_bytes"]
        self._models_gauge.set(len(memory))
        self._largest_gauge.set(memory.largest if memory else 0)

    def _show_following(self) -> None:
        self._lag_gauge.set(self._lags.largest if self._lags else 0)
        self._show_age()

    def _show_age(self) -> None:
        self._age_gauge.set(max(0.0, self._unfolded.largest + self._clock()) if self._unfolded else 0.0)
