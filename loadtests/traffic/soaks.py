"""The scenario that lasts, and tells what grows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from figures import Chart, Curve, Figure
from traffic.calls import REWARD, End
from traffic.found import usual
from traffic.plans import Stream
from traffic.scenario import Scenario
from traffic.stage import BANDIT, OWN_CONTEXTS, REWARDS_TO_THE_LIMIT, TENANT, shop_of
from traffic.watch import Watch, slope, troughs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from traffic.calls import Calls
    from traffic.found import Found
    from traffic.stage import Stage
    from traffic.watch import Sample

__all__ = ["SOAK", "growth"]

RATE, RETENTION, TEN_MINUTES = 15.0, 10.0, 600.0


def soak(stage: Stage, seconds: float) -> Found:
    """Let customers of a bandit at its row limit come for long, and watch the service."""
    shop = shop_of(5, customers=OWN_CONTEXTS)
    stage.open(shop, rewards=REWARDS_TO_THE_LIMIT)
    stream = Stream(TENANT, (BANDIT,), shop, (RATE,))
    with Watch(stage.service, retention_seconds=RETENTION, every=max(seconds / 200.0, 0.25)) as watch:
        calls = stage.load((seconds,), stream, seed=5)
    found, samples = usual(calls, seconds, cpu=stage.cpu), watch.samples
    warm = [one for one in samples if one.seconds >= _warm_after(seconds)]
    found.figures += growth(warm, calls)
    found.charts += _of_samples(samples)
    return found


def _warm_after(seconds: float) -> float:
    """Return after how many seconds records should be forgotten as they are closed, and caches be full."""
    return max(seconds / 3.0, min(2.0 * RETENTION, seconds / 2.0))


def growth(warm: Sequence[Sample], calls: Calls) -> list[Figure]:
    """Return what still grows after warming: in ten minutes, and records by what was closed meanwhile."""
    if len(warm) < 3:
        raise ValueError("a soak that short is over before the service is warm")
    passed = warm[-1].seconds - warm[0].seconds
    rewarded = len(calls.of_kind(REWARD).ended(End.OK).between(warm[0].seconds, warm[-1].seconds))
    more = warm[-1].remembered - warm[0].remembered

    return [
        _grown("memory_growth", "worker memory, its troughs", troughs(warm, "worker_mb"), "worker_mb", "MB"),
        _grown("store_growth", "store memory, its troughs", troughs(warm, "store_mb"), "store_mb", "MB"),
        _grown("descriptors_growth", "descriptors", warm, "descriptors"),
        _grown("threads_growth", "threads", warm, "threads"),
        _grown("tasks_growth", "tasks of the event loop", warm, "tasks"),
        Figure("forgotten_ratio", "records forgotten / closed", (rewarded - more) / max(rewarded, 1), "x"),
        Figure("overdue", "records remembered for too long, at most", max(one.overdue for one in warm)),
        Figure("watched", "watched after warming", passed, "s"),
    ]


def _grown(key: str, label: str, looks: Sequence[Sample], name: str, unit: str = "") -> Figure:
    a_second, error = slope(looks, name)
    return Figure(key, f"{label}, in ten minutes", TEN_MINUTES * a_second, unit, TEN_MINUTES * error)


def _of_samples(samples: Sequence[Sample]) -> list[Chart]:
    seconds = [one.seconds for one in samples]

    def curves(*names: str) -> list[Curve]:
        return [Curve(name.replace("_mb", ""), seconds, [getattr(one, name) for one in samples]) for name in names]

    return [
        Chart("resident memory", "seconds", "MB", curves("worker_mb", "store_mb")),
        Chart(
            "open in the worker, and in the store",
            "seconds",
            "",
            curves("descriptors", "threads", "tasks", "remembered"),
        ),
    ]


SOAK = Scenario(
    "soak",
    "one bandit at its row limit, watched",
    24.0,
    900.0,
    soak,
    (f"--record-retention-seconds={RETENTION:g}", "--metrics-listen=127.0.0.1:0"),
)
