"""Metrics, attached as hooks, and the small HTTP server that shows them.

Every worker process counts into files of its own in one folder (`share_metrics`); the process that supervises them adds
the files up (`render`) and answers scrapes. Counters and histograms are summed over the workers. Each worker folds the
log of every bandit that it serves, so a sum of what they hold would count one bandit several times: these gauges are
the largest value that any living worker has. For the same reason `topk_bandit_reward_delay_seconds` counts a reward
once per worker that learned it: its quantiles are meant to be read, not its count.

The number of series does not depend on the number of tenants, bandits or items. What is measured per bandit is exported
as the sum over a worker's bandits (observations, pending, rows, memory) or as their maximum (lag, age, largest model).
"""

from __future__ import annotations

import logging
import os
import socketserver
import threading
import time
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import AF_INET, AF_INET6
from typing import TYPE_CHECKING, Any, Self, TypeVar

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Summary,
    generate_latest,
    multiprocess,
    values,
)

from topk_bandit.domain.bandits import RewardOutcome
from topk_bandit.domain.errors import ConfigurationError
from topk_bandit.domain.hooks import Hooks
from topk_bandit.domain.studies import AnswerOutcome, DesignState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path
    from types import TracebackType

    from topk_bandit.domain.bandits import Recommendation

__all__ = ["Metrics", "MetricsServer", "forget_worker", "render", "share_metrics"]

_Metric = TypeVar("_Metric", Counter, Histogram)

_logger = logging.getLogger(__name__)

_TEXT_FORMAT = "text/plain; version=0.0.4; charset=utf-8"

_DECISION_BUCKETS = (0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.025, 0.05, 0.1, 0.25, 1.0)
_CALL_BUCKETS = (0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
_DESIGN_BUCKETS = (0.001, 0.0025, 0.01, 0.025, 0.1, 0.25, 1.0, 2.5, 10.0, 25.0, 60.0, 120.0)
_STORE_BUCKETS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 2.5)
_DELAY_BUCKETS = (1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14400.0, 86400.0, 604800.0)

_REST_REASONS = frozenset({"idle", "memory"})
_ANSWER_OUTCOMES = frozenset({*AnswerOutcome, "not_found", "conflict", "invalid", "unavailable"})
_DESIGN_OUTCOMES = frozenset({*DesignState, "abandoned"})
_REWARD_OUTCOMES = frozenset({*RewardOutcome, "not_found", "conflict", "unavailable"})
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


class _Values:
    """One number per bandit, with their sum and their maximum at hand."""

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
        self._sums = {name: _Values() for name in ("observations", "pending", "rows", "memory_bytes")}
        self._lags = _Values()
        self._unfolded = _Values()
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

    def _begin_at_zero(self) -> None:
        """Show each series that is certain to come before it counts, so that its first increase is seen."""
        for outcome in _REWARD_OUTCOMES:
            self._rewards.labels(outcome)
        for outcome in _ANSWER_OUTCOMES:
            self._answers.labels(outcome)
        for mode in ("explored", "exploited"):
            self._exploration.labels(mode)
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
        self._series(self._exploration, "explored" if recommendation.explored else "exploited").inc()
        self._regret_bound.inc(max(0.0, recommendation.regret_bound))
        self._estimated_regret.inc(max(0.0, recommendation.estimated_regret))
        if recommendation.degraded:
            self._degraded.inc()

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


def share_metrics(folder: Path, *, worker: int) -> None:
    """Make all metrics that this process creates from now on count into its own files in `folder`.

    Parameters
    ----------
    folder
        Exists, is the same for all workers, and was empty when the first of them began.
    worker
        This worker's number, different from those of all workers that run. One that takes the place of a dead worker
        takes its number and counts on from where it was: no count goes back, and the files do not pile up.
    """
    os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(folder)
    values.ValueClass = values.MultiProcessValue(process_identifier=lambda: worker)  # type: ignore[no-untyped-call]


def forget_worker(folder: Path, *, worker: int) -> None:
    """Drop the gauges of a worker that has died; what it counted stays counted."""
    multiprocess.mark_process_dead(worker, str(folder))  # type: ignore[no-untyped-call]


def render(folder: Path) -> bytes:
    """Add up what all workers counted into `folder`, in the text format of Prometheus."""
    registry = CollectorRegistry()
    multiprocess.MultiProcessCollector(registry, path=str(folder))  # type: ignore[no-untyped-call]
    return generate_latest(registry)


class _HttpServer(ThreadingHTTPServer):
    """Binds without looking a name up, and keeps a scraper's broken connection out of the log."""

    def __init__(self, address: tuple[str, int], *, render: Callable[[], bytes], ready: Callable[[], bool]) -> None:
        self.address_family = AF_INET6 if ":" in address[0] else AF_INET
        self.render = render
        self.ready = ready
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[:2]  # type: ignore[assignment]

    def handle_error(self, request: object, client_address: object) -> None:  # noqa: ARG002
        _logger.debug("connection of a scraper broke", exc_info=True)  # noqa: LOG014


class _Handler(BaseHTTPRequestHandler):
    server: _HttpServer
    timeout = 10.0

    def do_GET(self) -> None:
        status, content_type, body = self._answer()
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    do_HEAD = do_GET  # noqa: N815

    def _answer(self) -> tuple[HTTPStatus, str, bytes]:
        path = self.path.partition("?")[0]
        try:
            if path == "/metrics":
                return HTTPStatus.OK, _TEXT_FORMAT, self.server.render()
            return self._probe(path)
        except Exception:
            _logger.exception("answering %s failed", path)
            return self._word(HTTPStatus.INTERNAL_SERVER_ERROR)

    def _probe(self, path: str) -> tuple[HTTPStatus, str, bytes]:
        if path == "/livez":
            return self._word(HTTPStatus.OK)
        if path == "/readyz":
            return self._word(HTTPStatus.OK if self.server.ready() else HTTPStatus.SERVICE_UNAVAILABLE)
        return self._word(HTTPStatus.NOT_FOUND)

    def _word(self, status: HTTPStatus) -> tuple[HTTPStatus, str, bytes]:
        return status, "text/plain; charset=utf-8", f"{status.phrase}\n".encode()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Log no request."""


class MetricsServer:
    """Answers ``/metrics``, ``/livez`` (200 while it runs) and ``/readyz`` (200 or 503), from `start` to `stop`.

    Parameters
    ----------
    port
        0 for any free one.
    host
        Address of this machine to listen on.
    render
        Returns the metrics in the text format.
    ready
        Returns whether the service takes calls. Both are called from many threads.

    Attributes
    ----------
    port
        The port that it listens on.

    Raises
    ------
    ConfigurationError
        It can't listen there.
    """

    def __init__(self, port: int, *, host: str, render: Callable[[], bytes], ready: Callable[[], bool]) -> None:
        try:
            self._server = _HttpServer((host, port), render=render, ready=ready)
        except OSError as error:
            raise ConfigurationError(f"metrics can't be served on {host}:{port}: {error.strerror}") from error
        self.port = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), name="metrics", daemon=True)

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def stop(self) -> None:
        """Answer no more, and close the port."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self.stop()
