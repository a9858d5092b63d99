"""Exemplars of several workers, as OpenMetrics' own parser reads them from what the supervisor shows."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest
from prometheus_client.openmetrics.exposition import generate_latest
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from prometheus_client.samples import Exemplar
from tests.process.test_metrics import Worker, rendered, samples

from topk_bandit.process.exemplars import FILE_BYTES, ExemplarFile, read_exemplars
from topk_bandit.process.fleet_metrics import Fleet, render

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PREPARE = (
    "from topk_bandit.domain.slates import Recommendation",
    "from topk_bandit.domain.calls import CURRENT_CALL, Call, SpanIds",
    f"call = lambda sampled: CURRENT_CALL.set(Call('r', SpanIds('{TRACE}', '0' * 15 + '1', sampled)))",
    "shown = (('a', 'b'), 0.5, 1.0, 0.1, 2.0, 0.5, False, 3, 2)",
    "slate = lambda one: metrics.recommended(Recommendation(one, *shown), in_reward_units=True)",
    "handled = lambda seconds: metrics.rpc_handled('service', 'Method', 'OK', seconds)",
)
LATENCY, DELAY = "grpc_server_handling_seconds_bucket", "topk_bandit_reward_delay_seconds_bucket"


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Callable[[int], Worker]]:
    """Begins a worker with a number."""
    begun = []

    def begin(number: int) -> Worker:
        begun.append(Worker(tmp_path, number))
        begun[-1].run(*PREPARE)
        return begun[-1]

    yield begin
    for worker in begun:
        worker.kill()


def shown(folder: Path, name: str) -> dict[str, Exemplar]:
    """Return the exemplars of a histogram's buckets, by their bounds."""
    text = render(folder, lambda: Fleet(workers=2, ready=2), generate_latest).decode()
    everything = [one for family in text_string_to_metric_families(text) for one in family.samples]
    return {one.labels["le"]: one.exemplar for one in everything if one.name == name and one.exemplar is not None}


def test_a_bucket_has_the_newest_call_of_any_worker(begin: Callable[[int], Worker], tmp_path: Path) -> None:
    first, second = begin(0), begin(1)
    for worker, slate in ((first, "a"), (second, "b")):
        worker.run("_ = call(True)", f"slate('{slate}')", "handled(0.004)")
    first.run("_ = call(False)", "slate('c')", "handled(0.2)")
    assert {bound: one.labels for bound, one in shown(tmp_path, LATENCY).items()} == {
        "0.005": {"recommendation_id": "b", "trace_id": TRACE},
        "0.25": {"recommendation_id": "c"},
    }
    assert shown(tmp_path, LATENCY)["0.005"].value == 0.004


def test_a_killed_worker_keeps_its_exemplars_and_the_next_goes_on(
    begin: Callable[[int], Worker], tmp_path: Path
) -> None:
    killed = begin(0)
    killed.run("metrics.learned('a', 1.0, 3.0)", "metrics.learned('b', 1.0, 30.0)")
    killed.process.send_signal(signal.SIGKILL)
    killed.process.wait()
    assert {bound: one.labels["recommendation_id"] for bound, one in shown(tmp_path, DELAY).items()} == {
        "5.0": "a",
        "60.0": "b",
    }
    begin(0).run("metrics.learned('c', 1.0, 31.0)")
    assert shown(tmp_path, DELAY)["60.0"].labels == {"recommendation_id": "c"}


def test_calls_without_a_slate_and_ids_that_are_too_long_have_none(
    begin: Callable[[int], Worker], tmp_path: Path
) -> None:
    worker = begin(0)
    worker.run("handled(0.004)", "_ = call(True)", "handled(0.004)", "slate('')", "handled(0.004)")
    worker.run("metrics.learned('x' * 65, 1.0, 3.0)", "metrics.learned('', 1.0, 3.0)")
    assert shown(tmp_path, LATENCY) == shown(tmp_path, DELAY) == {}
    assert samples(tmp_path)["topk_bandit_reward_delay_seconds_count"] == 2


def test_both_formats_show_the_same_numbers(begin: Callable[[int], Worker], tmp_path: Path) -> None:
    begin(0).run("_ = call(True)", "slate('a')", "handled(0.004)", "metrics.rewarded('accepted', 2.0)")
    plain = [line for line in rendered(tmp_path).decode().splitlines() if not line.startswith("#")]
    text = render(tmp_path, lambda: Fleet(workers=2, ready=2), generate_latest).decode()
    open_metrics = [line.partition(" # ")[0] for line in text.splitlines() if not line.startswith("#")]
    assert "recommendation_id" in text
    assert sorted(plain) == sorted(open_metrics)
    assert text.endswith("# EOF\n")


def test_a_slot_that_is_read_while_it_is_written_counts_as_empty(tmp_path: Path) -> None:
    path = tmp_path / "exemplars_0"
    file = ExemplarFile(path)
    file.put("a_bucket", {"le": "1.0"}, Exemplar({"recommendation_id": "aaaa"}, 0.5, 1000.0))
    file.put("a_bucket", {"le": "2.0"}, Exemplar({"recommendation_id": "bbbb"}, 1.5, 1001.0))
    assert len(read_exemplars([path])) == 2
    torn = path.read_bytes().replace(b"aaaa", b"aacc")
    path.write_bytes(torn)
    assert {one.labels["recommendation_id"] for one in read_exemplars([path]).values()} == {"bbbb"}


def test_a_shorter_record_leaves_nothing_of_a_longer_one(tmp_path: Path) -> None:
    path = tmp_path / "exemplars_0"
    file = ExemplarFile(path)
    for slate in ("a" * 64, "b"):
        file.put("a_bucket", {"le": "1.0"}, Exemplar({"recommendation_id": slate}, 0.5, 1000.0))
    (kept,) = read_exemplars([path]).values()
    assert kept == Exemplar({"recommendation_id": "b"}, 0.5, 1000.0)


def test_series_beyond_the_slots_and_records_beyond_a_slot_have_none(tmp_path: Path) -> None:
    path = tmp_path / "exemplars_0"
    file = ExemplarFile(path)
    for number in range(200):
        file.put("a_bucket", {"le": f"{number}.0"}, Exemplar({"recommendation_id": "a"}, 0.5, 1000.0))
    file.put("a_bucket", {"le": "0.0"}, Exemplar({"recommendation_id": "a" * 600}, 0.5, 1001.0))
    found = read_exemplars([path])
    assert len(found) == 128
    assert {one.timestamp for one in found.values()} == {1000.0}
    assert path.stat().st_size == FILE_BYTES
