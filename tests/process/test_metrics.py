"""The metrics as their readers see them: Prometheus's own parser and linter, real sockets, real processes."""

from __future__ import annotations

import http.client
import os
import re
import resource
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from tests.programs import find_program
from tests.servers import free_port
from tests.waiting import PATIENCE

from topk_bandit.domain.errors import ConfigurationError
from topk_bandit.domain.hooks import Hooks, ModelFigures
from topk_bandit.domain.slates import Recommendation
from topk_bandit.process.fleet_metrics import Fleet, render
from topk_bandit.process.metrics import Metrics
from topk_bandit.process.metrics_folder import collect_workers, forget_worker
from topk_bandit.process.metrics_page import MetricsServer

if TYPE_CHECKING:
    from collections.abc import Callable

METHODS = (("topk_bandit.v1.RecommenderService", "Recommend"), ("topk_bandit.v1.RecommenderService", "Reward"))

PROMISED = {
    "grpc_server_started_total": "counter",
    "grpc_server_handled_total": "counter",
    "grpc_server_handling_seconds": "histogram",
    "topk_bandit_decision_seconds": "histogram",
    "topk_bandit_rewards_total": "counter",
    "topk_bandit_reward_value": "summary",
    "topk_bandit_acknowledgements_total": "counter",
    "topk_bandit_regret_bound_total": "counter",
    "topk_bandit_estimated_regret_total": "counter",
    "topk_bandit_regret_slates_total": "counter",
    "topk_bandit_candidates_passed_over_total": "counter",
    "topk_bandit_relaxed_slates_total": "counter",
    "topk_bandit_rules_clashes_total": "counter",
    "topk_bandit_exploration_total": "counter",
    "topk_bandit_odd_features_total": "counter",
    "topk_bandit_outliers_total": "counter",
    "topk_bandit_missing_rewards": "gauge",
    "topk_bandit_outlier_share": "gauge",
    "topk_bandit_spread_factor": "gauge",
    "topk_bandit_lift_shortfall": "gauge",
    "topk_bandit_odd_groups": "gauge",
    "topk_bandit_guarded_total": "counter",
    "topk_bandit_selection_share": "gauge",
    "topk_bandit_reward_settled_seconds": "gauge",
    "topk_bandit_observations": "gauge",
    "topk_bandit_pending": "gauge",
    "topk_bandit_learner_lag_events": "gauge",
    "topk_bandit_model_age_seconds": "gauge",
    "topk_bandit_reward_delay_seconds": "histogram",
    "topk_bandit_posterior_rows": "gauge",
    "topk_bandit_models": "gauge",
    "topk_bandit_model_memory_bytes": "gauge",
    "topk_bandit_largest_model_bytes": "gauge",
    "topk_bandit_model_limit_bytes": "gauge",
    "topk_bandit_models_rested_total": "counter",
    "topk_bandit_store_seconds": "histogram",
    "topk_bandit_answers_total": "counter",
    "topk_bandit_design_seconds": "histogram",
    "topk_bandit_call_phase_seconds": "histogram",
    "topk_bandit_defaults_total": "counter",
    "topk_bandit_event_loop_lag_seconds": "histogram",
    "topk_bandit_tasks": "gauge",
    "topk_bandit_fold_seconds": "histogram",
    "topk_bandit_folded_events_total": "counter",
    "topk_bandit_refit_seconds": "histogram",
    "topk_bandit_logs_replaced_total": "counter",
    "topk_bandit_lost_events_total": "counter",
    "topk_bandit_log_unread_seconds": "gauge",
    "topk_bandit_unsaved_events": "gauge",
    "topk_bandit_snapshots_total": "counter",
    "topk_bandit_snapshot_age_seconds": "gauge",
    "topk_bandit_snapshot_bytes": "gauge",
    "topk_bandit_store_failures_total": "counter",
    "topk_bandit_store_up": "gauge",
    "topk_bandit_store_memory_bytes": "gauge",
    "topk_bandit_store_memory_limit_bytes": "gauge",
}

PROMISED_OF_THE_FLEET = {
    "topk_bandit_build_info": "gauge",
    "topk_bandit_workers": "gauge",
    "topk_bandit_workers_ready": "gauge",
    "topk_bandit_worker_restarts_total": "counter",
    "process_cpu_seconds_total": "counter",
    "process_resident_memory_bytes": "gauge",
    "process_open_fds": "gauge",
    "process_start_time_seconds": "gauge",
}

SLATE = Recommendation(
    recommendation_id="r1",
    slate=("a", "b"),
    propensity=0.5,
    mean=1.0,
    standard_deviation=0.1,
    regret_bound=2.0,
    estimated_regret=0.5,
    explored=False,
    model_version=3,
    observations=2,
)

WORKER = """
import sys
from pathlib import Path
from prometheus_client import CollectorRegistry
from topk_bandit.domain.hooks import ModelFigures
from topk_bandit.process.metrics import Metrics
from topk_bandit.process.metrics_folder import share_metrics
share_metrics(Path(sys.argv[1]), worker=int(sys.argv[2]))
metrics = Metrics(CollectorRegistry(), methods=[("service", "Method")])
for line in sys.stdin:
    exec(line)
    print("done", flush=True)
"""


class Clock:
    """Seconds, moved by hand."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Bench:
    """Metrics of one process, and what they show."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.registry = CollectorRegistry()
        self.metrics = Metrics(self.registry, methods=METHODS, clock=self.clock)

    @property
    def text(self) -> str:
        return generate_latest(self.registry).decode()

    def value(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(name, labels)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def use_everything(metrics: Metrics, *, bandit: str = "tenants/a/bandits/b") -> None:
    metrics.rpc_started(*METHODS[0])
    metrics.rpc_handled(*METHODS[0], "OK", 0.002)
    metrics.rpc_done(0.0001, 0.0002)
    metrics.decided(SLATE, 0.001)
    metrics.recommended(SLATE, in_reward_units=True)
    metrics.rewarded("accepted", 0.5)
    metrics.acknowledged("fsync")
    metrics.learned("r1", 0.5, 12.0)
    metrics.answered("accepted")
    metrics.designed("ready", 0.02)
    metrics.expired(2)
    metrics.defaulted()
    metrics.followed(bandit, 3, 4.0)
    metrics.log_replaced(bandit)
    metrics.events_lost(bandit, events=3, rewards=1)
    metrics.folded(3, 0.01)
    metrics.refitted(0.02)
    metrics.backed(bandit, unsaved_events=3, age_seconds=60.0, n_bytes=4000)
    metrics.snapshot_saved()
    metrics.bounded(2**24)
    metrics.posterior(bandit, figures(5, 1, 4, 2**20))
    metrics.rested("idle")
    metrics.snapshot_failed(bandit)
    metrics.cold_written(4096)
    metrics.cold_failed()
    metrics.cold_missed(1)
    metrics.fold_failed(bandit)
    metrics.diverged(bandit)
    metrics.store_called("record_reward", 0.001, failed=False)
    metrics.store_called("record_reward", 0.001, failed=True)
    metrics.store_examined(0, memory_bytes=2**20, memory_limit_bytes=2**30)
    metrics.damage_examined(2)
    metrics.upgrade_examined(1)
    metrics.note_loop_lag(0.0001, 7)


def series_of(text: str) -> int:
    """Count the series of a page; `_created` is shown by a single process only, and a service never is one."""
    families = text_string_to_metric_families(text)
    return sum(not sample.name.endswith("_created") for family in families for sample in family.samples)


def promtool(*arguments: str, text: str) -> subprocess.CompletedProcess[str]:
    program = find_program("promtool")
    return subprocess.run([program, *arguments], input=text, text=True, capture_output=True, check=False)


def test_every_promised_metric_is_there_with_its_type_and_help(bench: Bench) -> None:
    use_everything(bench.metrics)
    types = dict(re.findall(r"^# TYPE (\S+) (\S+)$", bench.text, re.MULTILINE))
    helps = dict(re.findall(r"^# HELP (\S+) (.+)$", bench.text, re.MULTILINE))
    assert types.items() >= PROMISED.items()
    assert helps.keys() == types.keys()
    assert all(text.endswith(".") for text in helps.values())


def test_all_hooks_are_heard() -> None:
    hooks = {name for name in vars(Hooks) if not name.startswith("_")}
    assert hooks <= vars(Metrics).keys()


def test_promtool_finds_nothing_to_say(bench: Bench) -> None:
    use_everything(bench.metrics)
    check = promtool("check", "metrics", text=bench.text)
    assert (check.returncode, check.stdout, check.stderr) == (0, "", "")


def test_promtool_would_say_something() -> None:
    check = promtool("check", "metrics", text="# TYPE no_help_milliseconds counter\nno_help_milliseconds 1\n")
    assert check.returncode != 0


def test_the_number_of_series_is_bounded(bench: Bench) -> None:
    use_everything(bench.metrics)
    bench.metrics.rewarded("made up", 0.0)
    bench.metrics.answered("made up")
    bench.metrics.designed("made up", 1.0)
    bench.metrics.rpc_started("made", "up")
    bench.metrics.rpc_handled(*METHODS[0], "UNKNOWN", 0.1)
    bench.metrics.rpc_handled("made", "up", "UNIMPLEMENTED", 0.1)
    before = series_of(bench.text)
    for number in range(1000):
        use_everything(bench.metrics, bandit=f"tenants/{number}/bandits/b")
        bench.metrics.rpc_started(f"service{number}", "Method")
        bench.metrics.rpc_handled("service", f"Method{number}", "UNIMPLEMENTED", 0.1)
        bench.metrics.rpc_handled(*METHODS[0], f"CODE{number}", 0.1)
        bench.metrics.rewarded(f"outcome{number}", 0.0)
        bench.metrics.answered(f"outcome{number}")
        bench.metrics.designed(f"outcome{number}", 1.0)
    assert series_of(bench.text) == before < 400


def test_a_histogram_of_a_method_begins_with_its_first_call_and_counts_at_zero(bench: Bench) -> None:
    call = dict(zip(("grpc_service", "grpc_method"), METHODS[0], strict=True))
    assert bench.value("grpc_server_handling_seconds_count", **call) is None
    for code in ("OK", "INTERNAL", "RESOURCE_EXHAUSTED", "UNAVAILABLE"):
        assert bench.value("grpc_server_handled_total", **call, grpc_code=code) == 0
    for name in ("degraded", "store_failures", "fold_failures", "snapshot_failures", "logs_replaced", "defaults"):
        assert bench.value(f"topk_bandit_{name}_total") == 0
    bench.metrics.rpc_handled(*METHODS[0], "OK", 0.002)
    assert bench.value("grpc_server_handling_seconds_count", **call) == 1


def test_the_phases_of_calls_are_timed(bench: Bench) -> None:
    bench.metrics.rpc_done(0.25, 0.5)
    bench.metrics.rpc_done(0.25, 1.0)
    assert bench.value("topk_bandit_call_phase_seconds_sum", phase="queue") == 0.5
    assert bench.value("topk_bandit_call_phase_seconds_sum", phase="encode") == 1.5
    assert bench.value("topk_bandit_call_phase_seconds_count", phase="encode") == 2


def test_calls_are_counted_by_method_and_code(bench: Bench) -> None:
    service, method = METHODS[1]
    bench.metrics.rpc_started(service, method)
    bench.metrics.rpc_started("made", "up")
    bench.metrics.rpc_handled(service, method, "NOT_FOUND", 0.004)
    call = {"grpc_service": service, "grpc_method": method}
    assert bench.value("grpc_server_started_total", **call) == 1
    assert bench.value("grpc_server_started_total", grpc_service="unknown", grpc_method="unknown") == 1
    assert bench.value("grpc_server_handled_total", **call, grpc_code="NOT_FOUND") == 1
    assert bench.value("grpc_server_handled_total", **call, grpc_code="OK") == 0
    assert bench.value("grpc_server_handling_seconds_sum", **call) == 0.004
    assert bench.value("grpc_server_handling_seconds_bucket", **call, le="0.003") == 0
    assert bench.value("grpc_server_handling_seconds_bucket", **call, le="0.005") == 1


def test_slates_without_some_rules_and_clashes_are_counted(bench: Bench) -> None:
    bench.metrics.recommended(SLATE, in_reward_units=True)
    assert bench.value("topk_bandit_relaxed_slates_total") == 0
    bench.metrics.recommended(replace(SLATE, relaxed=("exclude i1",)), in_reward_units=True)
    bench.metrics.rules_clashed()
    assert bench.value("topk_bandit_relaxed_slates_total") == bench.value("topk_bandit_rules_clashes_total") == 1


def test_slates_are_counted_with_their_regrets(bench: Bench) -> None:
    bench.metrics.recommended(SLATE, in_reward_units=True)
    explored = replace(SLATE, explored=True, degraded=True, estimated_regret=-1e-17)
    bench.metrics.recommended(explored, in_reward_units=True)
    unitless = replace(SLATE, baseline=True, passed_over=3, regret_bound=5.0, estimated_regret=2.0)
    bench.metrics.recommended(unitless, in_reward_units=False)
    assert bench.value("topk_bandit_exploration_total", mode="baseline") == 1
    assert bench.value("topk_bandit_candidates_passed_over_total") == 3
    assert bench.value("topk_bandit_exploration_total", mode="exploited") == 1
    assert bench.value("topk_bandit_exploration_total", mode="explored") == 1
    assert bench.value("topk_bandit_degraded_total") == 1
    assert bench.value("topk_bandit_regret_bound_total") == 4
    assert bench.value("topk_bandit_estimated_regret_total") == 0.5
    assert bench.value("topk_bandit_regret_slates_total") == 2


def test_features_that_were_not_taken_as_they_were_are_counted_by_kind(bench: Bench) -> None:
    for kind in ("clamped", "unknown"):
        assert bench.value("topk_bandit_odd_features_total", kind=kind) == 0
    bench.metrics.encoded(clamped=2, unknown=1)
    bench.metrics.encoded(clamped=1, unknown=0)
    assert bench.value("topk_bandit_odd_features_total", kind="clamped") == 3
    assert bench.value("topk_bandit_odd_features_total", kind="unknown") == 1


def test_rewards_are_counted_by_outcome_and_summed_once(bench: Bench) -> None:
    assert bench.value("topk_bandit_rewards_total", outcome="late") == 0
    for outcome, value in (
        ("accepted", 2.0),
        ("accepted", -0.5),
        ("duplicate", 2.0),
        ("late", 7.0),
        ("not_found", 9.0),
    ):
        bench.metrics.rewarded(outcome, value)
    bench.metrics.learned("r1", 2.0, 90.0)
    assert bench.value("topk_bandit_rewards_total", outcome="accepted") == 2
    assert bench.value("topk_bandit_rewards_total", outcome="duplicate") == 1
    assert bench.value("topk_bandit_rewards_total", outcome="late") == 1
    assert bench.value("topk_bandit_reward_value_sum") == 1.5
    assert bench.value("topk_bandit_reward_value_count") == 2
    assert bench.value("topk_bandit_reward_delay_seconds_sum") == 90


def test_what_was_folded_is_counted_and_timed(bench: Bench) -> None:
    bench.metrics.folded(40, 0.5)
    bench.metrics.folded(2, 0.25)
    bench.metrics.refitted(0.125)
    bench.metrics.defaulted()
    assert bench.value("topk_bandit_folded_events_total") == 42
    assert bench.value("topk_bandit_fold_seconds_sum") == 0.75
    assert bench.value("topk_bandit_refit_seconds_sum") == 0.125
    assert bench.value("topk_bandit_defaults_total") == 1


def test_the_store_is_shown_as_it_was_seen_last(bench: Bench) -> None:
    assert bench.value("topk_bandit_store_up") == 0
    bench.metrics.store_examined(2, memory_bytes=5, memory_limit_bytes=7)
    assert bench.value("topk_bandit_store_up") == 1
    bench.metrics.store_away()
    assert bench.value("topk_bandit_store_up") == 0
    assert bench.value("topk_bandit_store_problems") == 2
    assert bench.value("topk_bandit_store_memory_bytes") == 5
    assert bench.value("topk_bandit_store_memory_limit_bytes") == 7


def test_damage_and_what_waits_to_be_finalized_are_shown(bench: Bench) -> None:
    assert bench.value("topk_bandit_damaged_bandits") == bench.value("topk_bandit_unfinalized_data_versions") == 0
    bench.metrics.damage_examined(2)
    bench.metrics.upgrade_examined(1)
    assert bench.value("topk_bandit_damaged_bandits") == 2
    assert bench.value("topk_bandit_unfinalized_data_versions") == 1


def test_the_worst_snapshot_of_any_bandit_is_shown(bench: Bench) -> None:
    bench.metrics.backed("a", unsaved_events=30, age_seconds=100.0, n_bytes=900)
    bench.metrics.backed("b", unsaved_events=80, age_seconds=0.0, n_bytes=0)
    assert bench.value("topk_bandit_unsaved_events") == 80
    assert bench.value("topk_bandit_snapshot_bytes") == 900
    assert bench.value("topk_bandit_snapshot_age_seconds") == 100
    bench.clock.now += 5
    bench.metrics.note_loop_lag(0.0, 7)
    assert bench.value("topk_bandit_snapshot_age_seconds") == 105
    bench.metrics.backed("a", unsaved_events=1, age_seconds=2.0, n_bytes=950)
    assert bench.value("topk_bandit_snapshot_age_seconds") == 2
    bench.metrics.forgotten("a")
    bench.metrics.forgotten("b")
    for name in ("unsaved_events", "snapshot_bytes", "snapshot_age_seconds"):
        assert bench.value(f"topk_bandit_{name}") == 0


def test_store_calls_are_timed_by_operation_and_failures_counted(bench: Bench) -> None:
    bench.metrics.store_called("read_log", 0.25, failed=False)
    bench.metrics.store_called("read_log", 0.5, failed=True)
    assert bench.value("topk_bandit_store_seconds_sum", operation="read_log") == 0.75
    assert bench.value("topk_bandit_store_failures_total") == 1


def test_groups_are_shown_for_the_worst_bandit_until_it_is_forgotten(bench: Bench) -> None:
    bench.metrics.compared("a", shortfall=0.25, has_odd_groups=False)
    bench.metrics.compared("b", shortfall=0.0, has_odd_groups=True)
    bench.metrics.guarded()
    assert bench.value("topk_bandit_lift_shortfall") == 0.25
    assert bench.value("topk_bandit_odd_groups") == 1
    assert bench.value("topk_bandit_guarded_total") == 1
    bench.metrics.forgotten("b")
    assert bench.value("topk_bandit_odd_groups") == 0


def test_sizes_are_summed_over_bandits_until_they_are_forgotten(bench: Bench) -> None:
    bench.metrics.posterior("a", figures(5, 1, 4, 1000, outlier_share=0.25))
    shares = {"outlier_share": 0.5, "spread_factor": 1.5, "missing_rewards": 2.5, "selection_share": 0.75}
    worst = {**shares, "settled_seconds": 86400.0}
    bench.metrics.posterior("b", figures(10, 2, 8, 3000, **worst))
    bench.metrics.posterior("a", figures(6, 0, 4, 1000, outlier_share=0.25, missing_rewards=0.5))
    assert bench.value("topk_bandit_observations") == 16
    assert bench.value("topk_bandit_pending") == 2
    assert bench.value("topk_bandit_posterior_rows") == 12
    assert bench.value("topk_bandit_models") == 2
    assert bench.value("topk_bandit_model_memory_bytes") == 4000
    assert bench.value("topk_bandit_largest_model_bytes") == 3000
    assert bench.value("topk_bandit_outlier_share") == 0.5
    assert bench.value("topk_bandit_spread_factor") == 1.5
    assert bench.value("topk_bandit_missing_rewards") == 2.5
    assert bench.value("topk_bandit_selection_share") == 0.75
    assert bench.value("topk_bandit_reward_settled_seconds") == 86400.0
    bench.metrics.forgotten("b")
    bench.metrics.forgotten("never known")
    assert bench.value("topk_bandit_observations") == 6
    assert bench.value("topk_bandit_models") == 1
    assert bench.value("topk_bandit_model_memory_bytes") == 1000
    assert bench.value("topk_bandit_largest_model_bytes") == 1000
    assert bench.value("topk_bandit_outlier_share") == 0.25
    bench.metrics.forgotten("a")
    assert bench.value("topk_bandit_models") == 0
    assert bench.value("topk_bandit_largest_model_bytes") == 0


def test_models_that_rest_are_counted_by_reason_beside_the_bound(bench: Bench) -> None:
    bench.metrics.bounded(16 * 2**20)
    assert bench.value("topk_bandit_model_limit_bytes") == 16 * 2**20
    assert bench.value("topk_bandit_models_rested_total", reason="memory") == 0
    for reason in ("idle", "memory", "memory"):
        bench.metrics.rested(reason)
    assert bench.value("topk_bandit_models_rested_total", reason="idle") == 1
    assert bench.value("topk_bandit_models_rested_total", reason="memory") == 2


def test_the_lag_is_the_largest_of_any_bandit(bench: Bench) -> None:
    lag = "topk_bandit_learner_lag_events"
    bench.metrics.followed("a", 3, 1.0)
    bench.metrics.followed("b", 7, 1.0)
    assert bench.value(lag) == 7
    bench.metrics.followed("b", 1, 1.0)
    assert bench.value(lag) == 3
    bench.metrics.forgotten("a")
    assert bench.value(lag) == 1
    bench.metrics.forgotten("b")
    assert bench.value(lag) == 0


def test_the_age_grows_while_there_is_work_and_is_zero_when_there_is_none(bench: Bench) -> None:
    age = "topk_bandit_model_age_seconds"
    bench.metrics.followed("idle", 0, 86400.0)
    assert bench.value(age) == 0
    bench.metrics.followed("behind", 5, 2.0)
    assert bench.value(age) == 2
    bench.clock.now += 10
    bench.metrics.note_loop_lag(0.0, 7)
    assert bench.value(age) == 12
    bench.metrics.followed("further behind", 5, 30.0)
    assert bench.value(age) == 30
    bench.metrics.followed("further behind", 0, 0.0)
    assert bench.value(age) == 12
    bench.metrics.followed("behind", 0, 0.0)
    assert bench.value(age) == 0


def test_a_log_that_nobody_reads_is_seen_though_nothing_is_known_to_lack(bench: Bench) -> None:
    unread = "topk_bandit_log_unread_seconds"
    assert bench.value(unread) == 0
    bench.metrics.followed("read", 0, 0.0)
    bench.metrics.followed("stuck", 0, 0.0)
    bench.clock.now += 40
    bench.metrics.followed("read", 0, 0.0)
    bench.metrics.note_loop_lag(0.0, 7)
    assert bench.value(unread) == 40
    bench.metrics.followed("stuck", 7, 3.0)
    assert bench.value(unread) == 0


def fleet_page(fleet: Fleet) -> str:
    with tempfile.TemporaryDirectory() as folder:
        return render(Path(folder), lambda: fleet).decode()


def test_the_fleet_is_in_every_scrape() -> None:
    processes = {"supervisor": os.getpid(), "worker-1": ended_process()}
    text = fleet_page(Fleet(workers=2, ready=1, restarts={"hung": 3}, processes=processes))
    types = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))
    assert types == PROMISED_OF_THE_FLEET
    assert "topk_bandit_workers 2.0" in text
    assert "topk_bandit_workers_ready 1.0" in text
    assert 'topk_bandit_worker_restarts_total{reason="died"} 0.0' in text
    assert 'topk_bandit_worker_restarts_total{reason="hung"} 3.0' in text
    assert f'version="{version("topk-bandit")}"' in text
    assert 'process="worker-1"' not in text
    check = promtool("check", "metrics", text=text)
    assert (check.returncode, check.stdout, check.stderr) == (0, "", "")


def ended_process() -> int:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    return process.pid


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /proc")
def test_what_a_process_takes_is_what_the_system_says() -> None:
    families = text_string_to_metric_families(
        fleet_page(Fleet(workers=1, ready=1, processes={"supervisor": os.getpid()}))
    )
    seen = {family.name: family.samples[0].value for family in families}
    used = resource.getrusage(resource.RUSAGE_SELF)
    assert seen["process_cpu_seconds"] == pytest.approx(used.ru_utime + used.ru_stime, rel=0.1, abs=0.1)
    assert 0.1 * used.ru_maxrss * 1024 < seen["process_resident_memory_bytes"] <= used.ru_maxrss * 1024
    assert time.time() - 24 * 3600 < seen["process_start_time_seconds"] < time.time()
    assert seen["process_open_fds"] >= 3


def figures(*sizes: int, **others: float) -> ModelFigures:
    observations, pending, rows, memory_bytes = sizes
    shares = {"outlier_share": 0.0, "spread_factor": 1.0, "missing_rewards": 0.0, "selection_share": 0.0}
    well = {**shares, "settled_seconds": 0.0}
    return ModelFigures(observations, pending, rows, memory_bytes, **(well | others))


class Worker:
    """A real process that counts into a shared folder."""

    def __init__(self, folder: Path, number: int) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", WORKER, str(folder), str(number)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, *statements: str) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        for statement in statements:
            self.process.stdin.write(statement + "\n")
            self.process.stdin.flush()
            assert self.process.stdout.readline() == "done\n"

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


def rendered(folder: Path) -> bytes:
    return render(folder, lambda: Fleet(workers=2, ready=2))


def samples(folder: Path) -> dict[str, float]:
    families = text_string_to_metric_families(rendered(folder).decode())
    return {
        sample.name + "".join(f",{value}" for _, value in sorted(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }


def test_two_processes_are_added_up_and_a_dead_one_keeps_its_counts(tmp_path: Path) -> None:
    workers = [Worker(tmp_path, 0), Worker(tmp_path, 1)]
    try:
        for worker, size in zip(workers, (5, 9), strict=True):
            worker.run(
                "metrics.rewarded('accepted', 1.5)",
                "metrics.rpc_handled('service', 'Method', 'OK', 0.004)",
                f"metrics.posterior('a', ModelFigures({size}, 1, 2, 9, 0.0, 1.0, 0.0, 0.0, 0.0))",
                f"metrics.followed('a', {size}, {size}.0)",
            )
        text = rendered(tmp_path).decode()
        check = promtool("check", "metrics", text=text)
        assert (check.returncode, check.stdout, check.stderr) == (0, "", "")
        seen = samples(tmp_path)
        assert seen["topk_bandit_rewards_total,accepted"] == 2
        assert seen["topk_bandit_reward_value_sum"] == 3
        assert seen["grpc_server_handling_seconds_count,Method,service"] == 2
        assert seen["grpc_server_handling_seconds_bucket,Method,service,+Inf"] == 2
        assert seen["topk_bandit_observations"] == 9
        assert seen["topk_bandit_learner_lag_events"] == 9

        workers[1].kill()
        forget_worker(tmp_path, worker=1)
        assert samples(tmp_path)["topk_bandit_observations"] == 5
        assert samples(tmp_path)["topk_bandit_rewards_total,accepted"] == 2

        files = sorted(path.name for path in tmp_path.iterdir())
        workers[1] = Worker(tmp_path, 1)
        workers[1].run("metrics.rewarded('accepted', 1.5)", "metrics.followed('a', 0, 0.0)")
        assert samples(tmp_path)["topk_bandit_rewards_total,accepted"] == 3
        assert samples(tmp_path)["topk_bandit_observations"] == 5
        forget_worker(tmp_path, worker=1)
        assert sorted(path.name for path in tmp_path.iterdir()) == files
    finally:
        for worker in workers:
            worker.kill()


def ask(
    port: int, path: str, *, method: str = "GET", host: str = "127.0.0.1", accept: str = ""
) -> tuple[int, str, bytes, str]:
    connection = http.client.HTTPConnection(host, port, timeout=PATIENCE)
    try:
        connection.request(method, path, headers={"Accept": accept})
        answer = connection.getresponse()
        return answer.status, answer.headers["Content-Type"], answer.read(), answer.headers["Content-Length"]
    finally:
        connection.close()


def test_a_file_that_a_worker_is_just_making_has_nothing_to_count(tmp_path: Path) -> None:
    (tmp_path / "counter_7.db").touch()
    registry = CollectorRegistry()
    collect_workers(tmp_path, registry)
    assert list(registry.collect()) == []


def test_the_server_answers_scrapes_and_probes(capfd: pytest.CaptureFixture[str]) -> None:
    ready = [True]
    port = free_port()
    with MetricsServer(port, host="127.0.0.1", render=lambda _: b"up 1\n", ready=lambda: ready[0]) as server:
        assert ask(server.port, "/metrics?x=1")[:3] == (200, "text/plain; version=0.0.4; charset=utf-8", b"up 1\n")
        assert ask(server.port, "/metrics", method="HEAD") == (
            200,
            "text/plain; version=0.0.4; charset=utf-8",
            b"",
            "5",
        )
        assert ask(server.port, "/livez")[0] == 200
        assert ask(server.port, "/readyz")[0] == 200
        ready[0] = False
        assert ask(server.port, "/readyz")[0] == 503
        assert ask(server.port, "/readyz", method="HEAD")[0] == 503
        assert ask(server.port, "/livez")[0] == 200
        assert ask(server.port, "/")[0] == 404
        assert ask(server.port, "/metrics/")[0] == 404
        assert ask(server.port, "/metrics", method="POST")[0] == 501
    assert capfd.readouterr() == ("", "")
    with pytest.raises(ConnectionRefusedError):
        ask(server.port, "/livez")


TEXT = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        ("", TEXT),
        ("*/*", TEXT),
        ("application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1", OPENMETRICS),
        ("application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,text/plain;q=0.5", OPENMETRICS),
        ("text/plain;q=0.5, application/openmetrics-text", OPENMETRICS),
        ("application/openmetrics-text; version=0.0.1", TEXT),
        ("application/openmetrics-text; version=2.0.0", TEXT),
        ("application/openmetrics-text; version=x", TEXT),
        ("text/plain; version=x", TEXT),
    ],
)
def test_a_scraper_gets_the_format_that_it_asks_for(accept: str, content_type: str) -> None:
    def encoded(encode: Callable[[CollectorRegistry], bytes]) -> bytes:
        return encode(CollectorRegistry())

    with MetricsServer(0, host="127.0.0.1", render=encoded, ready=lambda: True) as server:
        status, kind, body, _ = ask(server.port, "/metrics", accept=accept)
    assert (status, kind) == (200, content_type)
    assert body == (b"" if content_type == TEXT else b"# EOF\n")


def test_a_failing_render_or_probe_is_an_answer_and_a_log_line(caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> bool:
        raise RuntimeError("private detail")

    with MetricsServer(0, host="127.0.0.1", render=lambda _: bytes(fail()), ready=fail) as server:
        assert ask(server.port, "/metrics")[0] == 500
        status, _, body, _ = ask(server.port, "/readyz")
        assert (status, body) == (500, b"Internal Server Error\n")
        assert ask(server.port, "/livez")[0] == 200
    assert "answering /metrics failed" in caplog.text


def test_a_scraper_that_hangs_does_not_hold_up_the_others_or_the_stop() -> None:
    with (
        MetricsServer(0, host="127.0.0.1", render=lambda _: b"", ready=lambda: True) as server,
        socket.create_connection(("127.0.0.1", server.port)) as hanging,
    ):
        hanging.sendall(b"GET /met")
        assert ask(server.port, "/readyz")[0] == 200


def test_a_port_in_use_is_a_configuration_error() -> None:
    with (
        MetricsServer(0, host="127.0.0.1", render=lambda _: b"", ready=lambda: True) as server,
        pytest.raises(ConfigurationError, match=rf"127\.0\.0\.1:{server.port}: Address already in use"),
    ):
        MetricsServer(server.port, host="127.0.0.1", render=lambda _: b"", ready=lambda: True)


def test_a_server_that_never_started_stops() -> None:
    MetricsServer(0, host="127.0.0.1", render=lambda _: b"", ready=lambda: True).stop()


@pytest.mark.skipif(not socket.has_ipv6, reason="this machine has no IPv6")
def test_the_server_listens_on_ipv6() -> None:
    with MetricsServer(0, host="::1", render=lambda _: b"", ready=lambda: True) as server:
        assert ask(server.port, "/livez", host="::1")[0] == 200
