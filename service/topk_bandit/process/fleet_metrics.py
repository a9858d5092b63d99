"""What the supervisor itself measures: its version, its workers, and what the service's processes take.

It is collected when it is asked for, so that it is true at every scrape, also while no worker runs. It reports the
processes that Linux shows in ``/proc``, and elsewhere none.
"""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from topk_bandit.process.metrics_folder import collect_workers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from prometheus_client import Metric

__all__ = ["REASONS", "Fleet", "RestartReason", "render"]

RestartReason: TypeAlias = Literal["died", "hung"]
REASONS: tuple[RestartReason, ...] = ("died", "hung")


@dataclass(frozen=True, slots=True)
class Fleet:
    """The processes of a service at a moment.

    Attributes
    ----------
    workers, ready
        How many workers there should be, and how many take calls.
    restarts
        How often a worker was replaced, by reason.
    processes
        The process id of each part of the service.
    """

    workers: int
    ready: int
    restarts: Mapping[RestartReason, int] = field(default_factory=dict)
    processes: Mapping[str, int] = field(default_factory=dict)


def render(folder: Path, fleet: Callable[[], Fleet], encode: Callable[[Collector], bytes] = generate_latest) -> bytes:
    """Return what all workers counted into `folder`, and what there is to say of the fleet, encoded."""
    registry = CollectorRegistry()
    collect_workers(folder, registry)
    registry.register(_FleetCollector(fleet()))
    return encode(registry)


class _FleetCollector(Collector):
    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    def collect(self) -> Iterator[Metric]:
        fleet = self._fleet
        info = GaugeMetricFamily("topk_bandit_build_info", "What runs; always 1.", labels=("version", "python"))
        info.add_metric((version("topk-bandit"), platform.python_version()), 1)
        yield info
        yield GaugeMetricFamily("topk_bandit_workers", "Workers that there should be.", fleet.workers)
        yield GaugeMetricFamily("topk_bandit_workers_ready", "Workers that take calls.", fleet.ready)
        restarts = CounterMetricFamily(
            "topk_bandit_worker_restarts_total",
            "Workers that were replaced, because they died or hung.",
            labels=("reason",),
        )
        for reason in REASONS:
            restarts.add_metric((reason,), fleet.restarts.get(reason, 0))
        yield restarts
        yield from _processes(fleet.processes)


def _processes(processes: Mapping[str, int]) -> Iterator[Metric]:
    """Yield what processes take, under the names that Prometheus's own clients give it."""
    labels = ("process",)
    families: tuple[CounterMetricFamily | GaugeMetricFamily, ...] = (
        CounterMetricFamily("process_cpu_seconds_total", "Processor time of a process.", labels=labels),
        GaugeMetricFamily("process_resident_memory_bytes", "Memory that a process has resident.", labels=labels),
        GaugeMetricFamily("process_open_fds", "File descriptors that a process has open.", labels=labels),
        GaugeMetricFamily("process_start_time_seconds", "When a process began, since the epoch.", labels=labels),
    )
    for name, pid in processes.items():
        for family, value in zip(families, _measure(pid), strict=False):
            family.add_metric((name,), value)
    yield from families


def _measure(pid: int) -> tuple[float, ...]:
    """Return a process's processor seconds, resident bytes, open descriptors and start; nothing of one that is gone."""
    folder = Path("/proc") / str(pid)
    try:
        fields = (folder / "stat").read_text().rpartition(")")[2].split()
        open_files = len(os.listdir(folder / "fd"))  # noqa: PTH208 - a listing is all that is wanted
        return _read_stat(fields, open_files)
    except (OSError, ValueError, IndexError):
        return ()


def _read_stat(fields: list[str], open_files: int) -> tuple[float, ...]:
    """Return the measures of the fields of ``/proc/PID/stat`` from its third on; see proc_pid_stat(5)."""
    ticks = os.sysconf("SC_CLK_TCK")
    cpu, started, pages = int(fields[11]) + int(fields[12]), int(fields[19]), int(fields[21])
    return cpu / ticks, float(pages * os.sysconf("SC_PAGE_SIZE")), float(open_files), _boot_seconds() + started / ticks


def _boot_seconds() -> float:
    """Return when the machine began, since the epoch."""
    lines = Path("/proc/stat").read_text().splitlines()
    return float(next(line.split()[1] for line in lines if line.startswith("btime ")))
