"""What the service measures, as Prometheus metrics that hooks count.

Counters and histograms are summed over the worker processes, and a gauge is the largest value of any living worker.
Each worker folds the log of every bandit that it serves, so `topk_bandit_reward_delay_seconds` counts a reward once in
each of them. Counters begin at zero, so that their first increase is seen; a histogram of one method, operation or
outcome begins with its first value. The number of series never depends on the number of tenants, bandits or items, but
on that of tenants which the operator names.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Self, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Summary

from topk_bandit.domain.calls import CURRENT_CALL
from topk_bandit.domain.hooks import Hooks
from topk_bandit.domain.quotas import Quota
from topk_bandit.domain.slates import RewardOutcome
from topk_bandit.domain.studies import AnswerOutcome, DesignState
from topk_bandit.process.bandit_gauges import BanditGauges
from topk_bandit.process.latencies import RecentLatencies
from topk_bandit.process.metrics_folder import share_metrics
from topk_bandit.process.tenant_usage import TenantUsage
from topk_bandit.rpc.unheard_calls import UnheardCalls

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from topk_bandit.domain.hooks import ModelFigures
    from topk_bandit.domain.slates import Recommendation
    from topk_bandit.rpc.interceptors import RpcHooks

__all__ = ["Metrics"]

_Metric = TypeVar("_Metric", Counter, Histogram)

_DECISION_BUCKETS = (0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.025, 0.05, 0.1, 0.25, 1.0)
_CALL_BUCKETS = (0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
_DESIGN_BUCKETS = (0.001, 0.0025, 0.01, 0.025, 0.1, 0.25, 1.0, 2.5, 10.0, 25.0, 60.0, 120.0)
_FOLD_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0)
_LOOP_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)
_PHASE_BUCKETS = (0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.25)
_STORE_BUCKETS = (0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.25, 1.0)
_DELAY_BUCKETS = (1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14400.0, 86400.0, 604800.0)

_REST_REASONS = frozenset({"idle", "memory"})
_ANSWER_OUTCOMES = frozenset({*AnswerOutcome, "not_found", "conflict", "invalid", "unavailable"})
_DESIGN_OUTCOMES = frozenset({*DesignState, "abandoned"})
_REWARD_OUTCOMES = frozenset({*RewardOutcome, "not_found", "conflict", "invalid", "unavailable"})
_DURABILITIES = frozenset({"memory", "fsync", "replicated", "missed"})
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
_FIRST_CODES = ("OK", "INTERNAL", "RESOURCE_EXHAUSTED", "UNAVAILABLE")
"""Codes whose counts are shown before the first call: what goes well, and what alerts watch of our own services."""

_WATCHED = "topk_bandit."
_UNKNOWN_METHOD = ("unknown", "unknown")

_LONGEST_ID = 64
"""Characters of a recommendation's id in an exemplar; OpenMetrics allows 128 for all. Ours have 32."""

_PROBES = "grpc."


class Metrics(Hooks):
    """Hooks that count.

    Parameters
    ----------
    registry
        Where the metrics are registered; a registry takes one `Metrics`.
    methods
        The (service, method) pairs that the server serves: ``("topk_bandit.v1.RecommenderService", "Reward")``. A call
        of anything else is counted as unknown, since a caller can make up any number of names.
    tenants
        Those whose use is counted apart; see `TenantUsage`.
    clock
        Seconds that never go backwards.

    Attributes
    ----------
    latencies
        How long this worker's calls took lately.
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        *,
        methods: Iterable[tuple[str, str]],
        tenants: Sequence[str] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.latencies = RecentLatencies(clock)
        self._registry = registry
        self._methods = frozenset(methods)
        self._known_series: dict[tuple[object, tuple[str, ...]], Any] = {}
        self._bandits = BanditGauges(registry, clock=clock)
        self._tenants = TenantUsage(registry, tenants)
        self._register_calls()
        self._register_decisions()
        self._register_rewards()
        self._register_learning()
        self._register_residence()
        self._register_studies()
        self._register_store()
        self._register_loop()
        self._begin_at_zero()

    @classmethod
    def of_worker(
        cls, worker: int, folder: Path, *, methods: Iterable[tuple[str, str]], tenants: Sequence[str] = ()
    ) -> Self:
        """Return hooks that count into the files of a worker in `folder`; see `share_metrics`."""
        share_metrics(folder, worker=worker)
        return cls(CollectorRegistry(), methods=methods, tenants=tenants)

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
        self._quota_refusals = self._counter(
            "topk_bandit_quota_refusals_total", "Calls that were refused because a tenant has used up a quota.", "quota"
        )
        self._passed_on = self._counter(
            "topk_bandit_calls_passed_on_total",
            "Calls about a bandit that another worker owns: answered by it, or not since it was away or busy.",
            "outcome",
        )
        self._phases = self._histogram(
            "topk_bandit_call_phase_seconds",
            "Time that a call waited for its turn (queue), and for its messages to be parsed and written (encode).",
            "phase",
            buckets=_PHASE_BUCKETS,
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
        self._relaxed = self._counter(
            "topk_bandit_relaxed_slates_total",
            "Slates given out for which rules were given up: none keeps all of them.",
        )
        self._clashes = self._counter(
            "topk_bandit_rules_clashes_total", "Requests that were refused because no slate keeps their rules."
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
        self._regretted = self._counter(
            "topk_bandit_regret_slates_total",
            "Slates given out whose regrets are in reward units: the sums have these.",
        )

        self._odd_features = self._counter(
            "topk_bandit_odd_features_total",
            "Features of requests that were clamped or not declared, and contexts too long to be believed.",
            "kind",
        )

    def _register_rewards(self) -> None:
        self._outliers = self._counter(
            "topk_bandit_outliers_total",
            "Rewards that are not learned, since they, or the contexts of their slates, are far from all others.",
            "kind",
        )
        self._rewards = self._counter("topk_bandit_rewards_total", "Posted rewards, by what became of them.", "outcome")
        self._reward_value = Summary(
            "topk_bandit_reward_value", "Rewards that were accepted, in reward units.", registry=self._registry
        )
        self._durability = self._counter(
            "topk_bandit_acknowledgements_total",
            "Rewards and corrections that were written, by what was achieved of their durability.",
            "durability",
        )
        self._reward_delay = self._histogram(
            "topk_bandit_reward_delay_seconds",
            "Time from a recommendation to its reward; counted by each worker that learned it.",
            buckets=_DELAY_BUCKETS,
        )
        self._expired = self._counter(
            "topk_bandit_expired_total", "Recommendations closed without a reward when their deadline passed."
        )
        self._defaults = self._counter(
            "topk_bandit_defaults_total",
            "Default rewards that were learned instead of one; counted by each worker that learned it.",
        )

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

    def _register_learning(self) -> None:
        self._folded = self._histogram(
            "topk_bandit_fold_seconds",
            "Time to fold what was read of a log into its model; each worker folds.",
            buckets=_FOLD_BUCKETS,
        )
        self._folded_events = self._counter(
            "topk_bandit_folded_events_total", "Events of logs that were folded into models; each worker folds."
        )
        self._refits = self._histogram(
            "topk_bandit_refit_seconds", "Time to fold an event that ended in a refit.", buckets=_FOLD_BUCKETS
        )
        self._fold_failures = self._counter(
            "topk_bandit_fold_failures_total", "Attempts at an event of a log that could not be folded into its model."
        )
        self._lost = self._counter(
            "topk_bandit_lost_events_total",
            "Events that the store had and lost, as far as a worker knew them; counted once for all workers.",
            "kind",
        )
        self._logs_replaced = self._counter(
            "topk_bandit_logs_replaced_total",
            "Logs that were not those that had been followed: shorter than the model, or with other events.",
        )
        self._snapshots = self._counter("topk_bandit_snapshots_total", "Snapshots that were saved.")
        self._snapshot_failures = self._counter(
            "topk_bandit_snapshot_failures_total",
            "Snapshots that did not verify or could not be saved, though the store was there.",
        )
        self._cold_events = self._counter("topk_bandit_cold_log_events_total", "Events written to the cold log.")
        self._cold_failures = self._counter(
            "topk_bandit_cold_log_failures_total", "Attempts to write to the cold log that failed."
        )
        self._cold_missed = self._counter(
            "topk_bandit_cold_log_missed_events_total", "Events that were trimmed before the cold log had them."
        )
        self._divergences = self._counter(
            "topk_bandit_model_divergences_total",
            "Models whose digest was not that of a snapshot of the same log position, though it must be.",
        )

    def _register_residence(self) -> None:
        self._guarded = self._counter(
            "topk_bandit_guarded_total", "Bandits that a guardrail took off: they were worse than their control group."
        )
        self._limit_gauge = self._gauge("topk_bandit_model_limit_bytes", "What one bandit's model may take in memory.")
        self._rested = self._counter(
            "topk_bandit_models_rested_total",
            "Models that left memory until they are asked for: idle, or to free memory.",
            "reason",
        )

    def _register_store(self) -> None:
        self._store = self._histogram(
            "topk_bandit_store_seconds", "Time of a call of the store.", "operation", buckets=_STORE_BUCKETS
        )
        self._store_failures = self._counter(
            "topk_bandit_store_failures_total", "Calls of the store that it did not answer, or not in time."
        )
        self._store_up = self._gauge("topk_bandit_store_up", "Whether the store answered when it was looked at last.")
        self._store_memory = self._gauge(
            "topk_bandit_store_memory_bytes", "What the store's data take in memory, of the server that is fullest."
        )
        self._store_limit = self._gauge(
            "topk_bandit_store_memory_limit_bytes", "What that server may take: maxmemory, else its machine's memory."
        )
        self._store_problems = self._gauge(
            "topk_bandit_store_problems", "What keeps the store from keeping what it acknowledges; `doctor` names it."
        )
        self._store_clock_jumps = self._counter(
            "topk_bandit_store_clock_jumps_total", "Times that the store's clock went on by another time than passed."
        )
        self._store_replaced = self._gauge(
            "topk_bandit_store_replaced",
            "Whether the store is another one than this service was started with, or empty.",
        )
        self._damaged = self._gauge(
            "topk_bandit_damaged_bandits",
            "Bandits that can't be served as their keys in the store are; the log names them.",
        )
        self._versions_behind = self._gauge(
            "topk_bandit_unfinalized_data_versions",
            "Data versions that this program has beyond the one in force, until topk-bandit finalize-upgrade.",
        )

    def _register_loop(self) -> None:
        self._loop_lag = self._histogram(
            "topk_bandit_event_loop_lag_seconds",
            "How late the event loop of a worker woke up, looked at four times a second.",
            buckets=_LOOP_BUCKETS,
        )
        self._tasks = self._gauge("topk_bandit_tasks", "Tasks of an event loop, of the worker that has most.")

    def _begin_at_zero(self) -> None:
        """Show each series that is certain to come before it counts, so that its first increase is seen."""
        words: tuple[tuple[Counter, Iterable[str]], ...] = (
            (self._rewards, _REWARD_OUTCOMES),
            (self._durability, _DURABILITIES),
            (self._lost, ("reward", "other")),
            (self._quota_refusals, Quota),
            (self._passed_on, ("answered", "away", "busy")),
            (self._answers, _ANSWER_OUTCOMES),
            (self._exploration, ("explored", "exploited", "baseline")),
            (self._odd_features, ("clamped", "unknown")),
            (self._outliers, ("reward", "context")),
            (self._rested, _REST_REASONS),
        )
        for counter, known in words:
            for word in known:
                counter.labels(word)
        # The calls that ended show that they began: a count of those would be one more series for each method.
        self._started.labels(*_UNKNOWN_METHOD)
        for method in self._methods:
            for code in _FIRST_CODES if method[0].startswith(_WATCHED) else _FIRST_CODES[:1]:
                self._handled.labels(*method, code)

    def _series(self, metric: _Metric, *labels: str) -> _Metric:
        """Return one series of a metric: what `labels` does, without its checks, which take longer than counting."""
        key = (metric, labels)
        known: _Metric | None = self._known_series.get(key)
        if known is None:
            known = self._known_series[key] = metric.labels(*labels)
        return known

    def rpc_started(self, service: str, method: str) -> None:
        """Note that a call was received."""
        self._series(self._started, *self._name_method(service, method)).inc()

    def rpc_handled(self, service: str, method: str, code: str, seconds: float) -> None:
        """Note that a call was answered with a status code, by name (``"NOT_FOUND"``), so long after its receipt."""
        call = self._name_method(service, method)
        self._series(self._handled, *call, code if code in _RPC_CODES else "UNKNOWN").inc()
        self._series(self._handling, *call).observe(seconds, _exemplar_of_call())
        if not service.startswith(_PROBES):
            self.latencies.note("/".join(call), code, seconds)
            current = CURRENT_CALL.get()
            self._tenants.count(current.resource if current else "", service, method, seconds)

    def quota_refused(self, quota: str, tenant: str) -> None:
        """Count a call that was refused for a quota of its tenant."""
        self._series(self._quota_refusals, quota).inc()
        self._tenants.count_refusal(tenant)

    def passed_on(self, outcome: str) -> None:
        """Note what became of a call whose owner was another worker: "answered", "away" or "busy"."""
        self._series(self._passed_on, outcome).inc()

    def for_peers(self) -> RpcHooks:
        """Return hooks of calls that other workers pass on: those have counted them."""
        return UnheardCalls()

    def rpc_done(self, queue_seconds: float, encode_seconds: float) -> None:
        """Note how long a call waited in the queue, and how long its messages took."""
        self._series(self._phases, "queue").observe(queue_seconds)
        self._series(self._phases, "encode").observe(encode_seconds)

    def _name_method(self, service: str, method: str) -> tuple[str, str]:
        return (service, method) if (service, method) in self._methods else _UNKNOWN_METHOD

    def decided(self, recommendation: Recommendation, seconds: float) -> None:  # noqa: ARG002
        """Note how long a decision took."""
        self._decision.observe(seconds)

    def recommended(self, recommendation: Recommendation, *, in_reward_units: bool) -> None:
        """Count a slate and its regrets; the time of its call has it as exemplar."""
        call = CURRENT_CALL.get()
        if call is not None:
            call.recommendation_id = recommendation.recommendation_id
        chosen = "explored" if recommendation.explored else "exploited"
        self._series(self._exploration, "baseline" if recommendation.baseline else chosen).inc()
        self._passed_over.inc(recommendation.passed_over)
        if in_reward_units:
            self._regret_bound.inc(max(0.0, recommendation.regret_bound))
            self._estimated_regret.inc(max(0.0, recommendation.estimated_regret))
            self._regretted.inc()
        self._relaxed.inc(bool(recommendation.relaxed))
        if recommendation.degraded:
            self._degraded.inc()

    def rules_clashed(self) -> None:
        """Count a request that was refused for its rules."""
        self._clashes.inc()

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

    def acknowledged(self, durability: str) -> None:
        """Count a write by what it withstands."""
        self._series(self._durability, durability if durability in _DURABILITIES else "other").inc()

    def answered(self, outcome: str) -> None:
        """Count an answer."""
        self._series(self._answers, outcome if outcome in _ANSWER_OUTCOMES else "other").inc()

    def designed(self, outcome: str, seconds: float) -> None:
        """Note how long an attempt at a design took."""
        self._series(self._designs, outcome if outcome in _DESIGN_OUTCOMES else "other").observe(seconds)

    def learned(self, recommendation_id: str, reward: float, delay_seconds: float) -> None:  # noqa: ARG002
        """Note how long a reward was waited for; its value was counted when it was posted."""
        self._reward_delay.observe(delay_seconds, _exemplar_of(recommendation_id))

    def expired(self, count: int) -> None:
        """Count recommendations closed without a reward."""
        self._expired.inc(count)

    def defaulted(self) -> None:
        """Count a default reward."""
        self._defaults.inc()

    def folded(self, events: int, seconds: float) -> None:
        """Note how long a part of a log took."""
        self._folded_events.inc(events)
        self._folded.observe(seconds)

    def refitted(self, seconds: float) -> None:
        """Note how long a refit took."""
        self._refits.observe(seconds)

    def followed(self, bandit: str, lag_events: int, waiting_seconds: float) -> None:
        """Keep a bandit's lag; while it has one, its age grows with the clock until it is noted anew."""
        self._bandits.note_read(bandit, lag_events=lag_events, waiting_seconds=waiting_seconds)

    def log_replaced(self, bandit: str) -> None:  # noqa: ARG002
        """Count a log that is another one."""
        self._logs_replaced.inc()

    def events_lost(self, bandit: str, *, events: int, rewards: int) -> None:  # noqa: ARG002
        """Count what is gone."""
        self._series(self._lost, "reward").inc(rewards)
        self._series(self._lost, "other").inc(events - rewards)

    def posterior(self, bandit: str, figures: ModelFigures) -> None:
        """Keep the figures of a bandit's model."""
        self._bandits.note_figures(bandit, figures)

    def compared(self, bandit: str, *, shortfall: float, has_odd_groups: bool) -> None:
        """Keep what a bandit's group earns beside its control group."""
        self._bandits.note_comparison(bandit, shortfall=shortfall, has_odd_groups=has_odd_groups)

    def guarded(self) -> None:
        """Count a bandit that a guardrail took off."""
        self._guarded.inc()

    def doubted(self, kind: str, count: int) -> None:
        """Count rewards that are not learned."""
        self._series(self._outliers, kind).inc(count)

    def bounded(self, model_bytes: int) -> None:
        """Show what one model may take."""
        self._limit_gauge.set(model_bytes)

    def rested(self, reason: str) -> None:
        """Count a model that left memory until it is asked for."""
        self._rested.labels(reason if reason in _REST_REASONS else "other").inc()

    def forgotten(self, bandit: str) -> None:
        """Leave a bandit out of the sums and maxima."""
        self._bandits.forget(bandit)

    def backed(self, bandit: str, *, unsaved_events: int, age_seconds: float, n_bytes: int) -> None:
        """Keep what is known of a bandit's newest snapshot."""
        self._bandits.note_snapshot(bandit, unsaved_events=unsaved_events, age_seconds=age_seconds, n_bytes=n_bytes)

    def snapshot_saved(self) -> None:
        """Count a snapshot."""
        self._snapshots.inc()

    def snapshot_failed(self, bandit: str) -> None:  # noqa: ARG002
        """Count a snapshot that failed."""
        self._snapshot_failures.inc()

    def cold_written(self, events: int) -> None:
        """Count events."""
        self._cold_events.inc(events)

    def cold_failed(self) -> None:
        """Count a failure."""
        self._cold_failures.inc()

    def cold_missed(self, events: int) -> None:
        """Count events that are gone."""
        self._cold_missed.inc(events)

    def fold_failed(self, bandit: str) -> None:  # noqa: ARG002
        """Count an event that could not be folded."""
        self._fold_failures.inc()

    def diverged(self, bandit: str) -> None:  # noqa: ARG002
        """Count a model that is not what another worker made of the same log."""
        self._divergences.inc()

    def store_called(self, operation: str, seconds: float, *, failed: bool) -> None:
        """Note one call of the store."""
        self._series(self._store, operation).observe(seconds)
        if failed:
            self._store_failures.inc()

    def store_examined(self, problems: int, *, memory_bytes: int, memory_limit_bytes: int) -> None:
        """Show how many problems the store has, and how full it is."""
        self._store_up.set(1)
        self._store_problems.set(problems)
        self._store_memory.set(memory_bytes)
        self._store_limit.set(memory_limit_bytes)

    def store_away(self) -> None:
        """Show that the store does not answer."""
        self._store_up.set(0)

    def store_clock_jumped(self) -> None:
        """Count a jump of the store's clock."""
        self._store_clock_jumps.inc()

    def store_replaced(self, *, is_replaced: bool) -> None:
        """Show whether the store is another one than before."""
        self._store_replaced.set(is_replaced)

    def damage_examined(self, damaged: int) -> None:
        """Show how many bandits are damaged."""
        self._damaged.set(damaged)

    def upgrade_examined(self, versions_behind: int) -> None:
        """Show how far the data version in force is behind."""
        self._versions_behind.set(versions_behind)

    def note_loop_lag(self, lag_seconds: float, tasks: int) -> None:
        """Note how late the event loop woke up and how many tasks it has; show what grows with time as it is now."""
        self._loop_lag.observe(lag_seconds)
        self._tasks.set(tasks)
        self._bandits.refresh()


def _exemplar_of_call() -> dict[str, str] | None:
    """Return what the call that gave out a slate is found by: the slate, and the trace if its spans are kept."""
    call = CURRENT_CALL.get()
    labels = None if call is None else _exemplar_of(call.recommendation_id)
    if call is None or labels is None:
        return None
    return {**labels, "trace_id": call.span.trace_id} if call.span.sampled else labels


def _exemplar_of(recommendation_id: str) -> dict[str, str] | None:
    return {"recommendation_id": recommendation_id} if 0 < len(recommendation_id) <= _LONGEST_ID else None
