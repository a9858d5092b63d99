"""Load that does not wait: its arrivals, its honesty about itself, and its figures."""

from __future__ import annotations

import json
import math
import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

import grpc
import numpy as np
import pytest
from grpc_status import rpc_status
from scipy.stats import chi2, kstest
from tests.waiting import PATIENCE, until

from runner import BUDGETS, run_all
from targets import read_targets
from topk_bandit.rpc import failures
from topk_bandit.v1.recommender_service_pb2 import RecommendRequest, RecommendResponse, RewardRequest, RewardResponse
from topk_bandit.v1.recommender_service_pb2_grpc import (
    RecommenderServiceServicer,
    add_RecommenderServiceServicer_to_server,
)
from traffic.beyond import of_burst
from traffic.calls import RECOMMEND, REWARD, Calls, End
from traffic.checkouts import HERE, serving
from traffic.found import usual
from traffic.generator import Generator
from traffic.histogram import Histogram
from traffic.knee import find_knee
from traffic.plans import Plan, Stream, arrivals, visits
from traffic.plays import LATEST_P99, How, flaw, play
from traffic.scenario import Scenario
from traffic.soaks import growth
from traffic.stage import BANDIT, TENANT, shop_of
from traffic.watch import Sample, Watch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from topk_bandit.learning.environments import Shop
    from traffic.found import Found
    from traffic.stage import Stage


CERTAIN = 1e-4
"""A test of chance fails for so few of all seeds, and for none of those that are fixed here."""


def test_arrivals_are_poisson_in_each_phase() -> None:
    rates, seconds, seeds = (30.0, 0.0, 5.0), (2.0, 1.0, 4.0), 400
    drawn = [arrivals(rates, seconds, np.random.default_rng(seed)) for seed in range(seeds)]
    starts = np.cumsum([0.0, *seconds])
    for rate, start, end in zip(rates, starts, starts[1:], strict=False):
        inside = [times[(times >= start) & (times < end)] for times in drawn]
        counts, expected = np.array([len(times) for times in inside]), rate * (end - start)
        if not expected:
            assert not counts.any()
            continue
        assert abs(counts.mean() - expected) < 4.0 * np.sqrt(expected / seeds)
        spread = float(((counts - expected) ** 2).sum() / expected)  # of Poisson counts: chi squared
        assert CERTAIN < chi2.cdf(spread, seeds) < 1.0 - CERTAIN
        assert kstest(np.concatenate(inside), "uniform", (start, end - start)).pvalue > CERTAIN
    gaps = np.diff(arrivals((50.0,), (200.0,), np.random.default_rng(1)))
    assert kstest(gaps, "expon", (0.0, 1.0 / 50.0)).pvalue > CERTAIN
    assert abs(np.corrcoef(gaps[:-1], gaps[1:])[0, 1]) < 4.0 / np.sqrt(len(gaps))


def plan_of(address: str, *streams: Stream, seconds: float = 2.0, seed: int = 1) -> Plan:
    return Plan(address, (seconds,), streams, seed, deadline=PATIENCE)


def test_a_plan_draws_the_same_customers_again_and_each_once_before_any_twice() -> None:
    shop = shop_of(1, customers=60)
    plan = plan_of("", Stream("a", ("x", "y"), shop, (40.0,)), Stream("b", ("z",), shop, (40.0,)))
    agenda = visits(plan)
    assert agenda == visits(plan)
    assert agenda != visits(plan_of("", *plan.streams, seed=2))
    assert [one.due for one in agenda] == sorted(one.due for one in agenda)
    assert {one.bandit for one in agenda} == {
        f"tenants/{name}" for name in ("a/bandits/x", "a/bandits/y", "b/bandits/z")
    }
    first = [one.customer for one in agenda if one.stream == 0]
    assert len(first) > 60
    assert sorted(first[:60]) == list(range(60))


def test_percentiles_are_those_of_the_sample_to_three_digits() -> None:
    seconds = np.random.default_rng(3).lognormal(-5.0, 3.0, size=20_011)
    assert seconds.min() < 1e-6
    assert seconds.max() > 100.0
    histogram = Histogram.of(seconds)
    assert histogram.total == len(seconds)
    for rank in (1.0, 50.0, 90.0, 99.0, 99.9, 100.0):
        exact = float(np.percentile(seconds, rank, method="inverted_cdf"))
        assert exact - 1e-6 <= histogram.percentile(rank) <= exact * (1.0 + 1.0 / 1024.0) + 1e-6
    halves = Histogram.of(seconds[:7000]) + Histogram.of(seconds[7000:])
    assert halves == histogram
    assert np.isnan(Histogram.of([]).percentile(99))
    assert Histogram.of([-1.0]).percentile(50) == 0.0


def test_every_duration_is_in_the_bucket_that_is_written() -> None:
    whole = [*range(5000), *(2**power + more for power in range(12, 35) for more in (-1, 0, 1))]
    for one in whole:
        ((upper, count),) = Histogram.of([one / 1e6]).written()
        width = max(1, 2 ** (one.bit_length() - 11))
        assert count == 1
        assert upper == one // width * width + width - 1


class Shopkeeper(RecommenderServiceServicer):
    """Answers at once, late, or not at all, by the bandit that is asked."""

    called = threading.Event()

    def Recommend(  # noqa: N802 - named as on the wire
        self, request: RecommendRequest, context: grpc.ServicerContext
    ) -> RecommendResponse:
        self.called.set()
        bandit = request.bandit.rpartition("/")[2]
        if bandit == "slow":
            time.sleep(0.5)
        if bandit.startswith("full"):
            failure = failures.Failure(
                grpc.StatusCode.RESOURCE_EXHAUSTED, "full", retry_after=1.0 if bandit == "full" else None
            )
            context.abort_with_status(rpc_status.to_status(failures.status(failure)))
        return RecommendResponse(recommendation_id="one", item_ids=[f"item-{number}" for number in range(6)])

    def Reward(  # noqa: N802
        self, _request: RewardRequest, _context: grpc.ServicerContext
    ) -> RewardResponse:
        return RewardResponse()


@pytest.fixture(scope="module")
def shopkeeper() -> Iterator[str]:
    server = grpc.server(ThreadPoolExecutor(200))
    add_RecommenderServiceServicer_to_server(Shopkeeper(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop(None).wait()


@pytest.fixture(scope="module")
def generator() -> Iterator[Generator]:
    with Generator() as one:
        yield one


@contextmanager
def stopped(pid: int, begun: Callable[[], object]) -> Iterator[None]:
    """Stop a process for a while within the block, once something has begun."""

    def stop() -> None:
        begun()
        os.kill(pid, signal.SIGSTOP)
        time.sleep(0.6)
        os.kill(pid, signal.SIGCONT)

    thread = threading.Thread(target=stop)
    thread.start()
    try:
        yield
    finally:
        thread.join()


def test_calls_are_sent_though_others_are_not_answered(shopkeeper: str, generator: Generator) -> None:
    names = ("slow", "full", "full-and-silent", "well")
    shop = shop_of(1)
    calls = generator.run(plan_of(shopkeeper, *(Stream("t", (name,), shop, (40.0,), 0.1) for name in names)))
    slates = calls.of_kind(RECOMMEND)
    agenda = visits(plan_of("", *(Stream("t", (name,), shop, (40.0,), 0.1) for name in names)))
    assert sorted(slates.due) == [one.due for one in agenda]
    slow, full, silent, well = (slates.of_stream(number) for number in range(4))
    assert slow.latency.percentile(0) >= 0.5
    assert len(slow) > 2.0 / 0.5, "one after the other there would be so many"
    assert full.share(End.REFUSED) == silent.share(End.REFUSED) == 1.0
    assert (full.told_to_wait, silent.told_to_wait) == (len(full), 0)
    assert well.share(End.OK) == slow.share(End.OK) == 1.0
    rewards = calls.of_kind(REWARD)
    assert len(rewards) == len(well) + len(slow)
    assert rewards.share(End.OK) == 1.0


def test_a_generator_that_stalls_is_noticed(shopkeeper: str, generator: Generator) -> None:
    runs: list[Calls] = []

    def was_late() -> bool:
        Shopkeeper.called.clear()
        with stopped(generator.pid, lambda: Shopkeeper.called.wait(PATIENCE)):
            runs.append(generator.run(plan_of(shopkeeper, Stream("t", ("well",), shop_of(1), (50.0,), 0.1))))
        return runs[-1].lateness.percentile(99) > 0.3

    until(was_late, what="a stop that came before the last call was due")
    assert "ms behind its schedule" in flaw([], runs[-1].lateness.percentile(99))
    late = runs[-1].of_kind(RECOMMEND)
    assert late.latency.percentile(99) > 0.3, "a call that was held up counts from when it was meant to be sent"
    assert flaw([], LATEST_P99) == ""
    assert flaw([], math.nan)


def test_a_generator_that_dies_is_no_result(shopkeeper: str) -> None:
    with Generator() as one:
        Shopkeeper.called.clear()
        killing = threading.Thread(target=lambda: (Shopkeeper.called.wait(PATIENCE), os.kill(one.pid, signal.SIGKILL)))
        killing.start()
        with pytest.raises(RuntimeError, match="died"):
            one.run(plan_of(shopkeeper, Stream("t", ("well",), shop_of(1), (5.0,)), seconds=PATIENCE))
        killing.join()


def tiny(stage: Stage, seconds: float) -> Found:
    """Load a bandit of the real service a little, with a generator that is stopped meanwhile."""
    shop, loads = shop_of(1), list[Calls]()
    stage.open(shop, rewards=30)
    with Watch(stage.service, retention_seconds=600.0, every=0.25) as watch:
        until(
            lambda: load_behind_schedule(stage, shop, seconds, loads),
            what="a stop that came before the last call was due",
        )
        until(lambda: watch.samples and has_all(watch.samples[-1]), what="a look at what the load left")
    assert watch.samples[-1].remembered <= stage.stats().observation_count - 30
    assert watch.samples[-1].overdue == 0.0
    return usual(loads[-1], seconds, cpu=stage.cpu)


def load_behind_schedule(stage: Stage, shop: Shop, seconds: float, loads: list[Calls]) -> bool:
    """Load a bandit once more, whose generator is stopped meanwhile; return whether calls were due then."""
    before = stage.stats()

    def begun() -> None:
        until(lambda: stage.stats().recommendation_count >= before.recommendation_count + 3, what="three slates")

    with stopped(stage.generator.pid, begun):
        loads.append(stage.load((seconds,), Stream(TENANT, (BANDIT,), shop, (15.0,), reward_after=0.3), seed=1))
    rewards = loads[-1].of_kind(REWARD)
    learned, posted = stage.stats().observation_count - before.observation_count, len(rewards.ended(End.OK))
    # Whether a reward arrived that nobody waits for any more, only the service knows.
    assert posted <= learned <= posted + len(rewards.ended(End.TOO_LATE, End.FAILED))
    return posted > 0 and loads[-1].lateness.percentile(99) > 0.1


def has_all(sample: Sample) -> bool:
    """Return whether a look found a service that runs, and records of slates."""
    sizes = sample.worker_mb > 50.0 and sample.store_mb > 1.0 and sample.descriptors > 5.0
    return sizes and sample.threads > 1.0 and sample.tasks > 1.0 and sample.remembered > 0


@pytest.mark.slow
def test_a_scenario_on_the_real_service_says_wherever_it_is_told_that_its_generator_was_late(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scenario = Scenario(
        "tiny", "a little", 2.0, 4.0, tiny, ("--metrics-listen=127.0.0.1:0", "--store-timeout-seconds=60")
    )
    failed = run_all({"steady": partial(play, scenario, How())}, quick=True, folder=tmp_path)
    assert len(failed) == 1
    assert "INVALID" in failed[0]
    (path,) = tmp_path.glob("*.json")
    found = json.loads(path.read_text(encoding="utf-8"))["results"]["steady"]
    figures = {figure["key"]: figure for figure in found["figures"]}
    assert "behind its schedule" in found["invalid"]
    assert figures["lateness_p99"]["value"] > LATEST_P99 * 1e3
    assert {figure["target"]["met"] for figure in figures.values() if "target" in figure} == {None}
    answered = sum(count for _, count in found["histograms"]["recommend"])
    assert answered == round(figures["goodput"]["value"] * 2.0) > 0
    sent = figures["offered"]["value"] * 2.0
    unanswered = sent * sum(figures[one]["value"] for one in ("refused", "too_late")) + figures["errors"]["value"]
    assert answered + unanswered == pytest.approx(sent)
    rewarded = sum(count for _, count in found["histograms"]["reward"])
    assert rewarded + figures["reward_refused"]["value"] + figures["reward_errors"]["value"] == answered
    assert 0.0 < figures["cpu"]["value"] < 1000.0
    assert figures["recommend_p99"]["value"] > 50.0
    shown, written = capsys.readouterr().out, path.with_suffix(".md").read_text(encoding="utf-8")
    for text in (shown, written):
        assert "INVALID: the generator was" in text
        assert "| met |" not in text.replace("│", "|")
    assert (tmp_path / f"{path.stem}-steady.png").read_bytes().startswith(b"\x89PNG")


class Bending:
    """Answers up to a rate at once, and refuses what is more."""

    def __init__(self, capacity: float) -> None:
        self.capacity = capacity
        self.rates: list[float] = []

    def load(self, seconds: tuple[float, ...], stream: Stream, *, seed: int) -> Calls:
        (rate,) = stream.rates
        self.rates.append(rate)
        times = arrivals(stream.rates, seconds, np.random.default_rng(seed))
        share = min(self.capacity / rate, 1.0)
        ends = [End.OK if int((n + 1) * share) > int(n * share) else End.REFUSED for n in range(len(times))]
        return Calls.of((0, RECOMMEND, end, at, at, at + 0.01, False) for at, end in zip(times, ends, strict=True))

    def stats(self) -> None:
        pass


@pytest.mark.parametrize("capacity", [3.0, 19.0, 47.0, 700.0])
def test_the_knee_is_found_to_a_fifth(capacity: float) -> None:
    bending = Bending(capacity)
    knee = find_knee(bending, shop_of(1), 30.0)  # type: ignore[arg-type]
    assert knee.best is not None
    assert capacity / 1.25 < knee.best.rate <= capacity * 1.01
    assert knee.best.goodput == pytest.approx(knee.best.rate, rel=0.3)


def test_a_service_that_answers_nothing_has_no_knee() -> None:
    assert find_knee(Bending(0.0), shop_of(1), 10.0).best is None  # type: ignore[arg-type]


def test_growth_is_what_a_leak_would_be_and_jumps_are_none() -> None:
    def figures(leak: float, kept: float) -> dict[str, float]:
        jump = np.random.default_rng(1).choice([0.0, 30.0], p=[0.95, 0.05], size=400)
        samples = [
            Sample(
                at, 300.0 + leak * at + jump[at], 40.0, 20.0 + (at > 120), 9.0, 30.0 + leak * at, 100.0 + kept * at, 0.0
            )
            for at in range(400)
        ]
        rewards = Calls.of((0, REWARD, End.OK, at / 10.0, at / 10.0, at / 10.0, False) for at in range(4000))
        return {one.key: one.value for one in growth(samples, rewards)}

    steady, leaking = figures(0.0, 0.0), figures(0.01, 5.0)
    assert steady["memory_growth"] == pytest.approx(0.0, abs=1e-9)
    assert leaking["memory_growth"] == pytest.approx(6.0, rel=1e-3)
    assert steady["store_growth"] == steady["threads_growth"] == steady["tasks_growth"] == 0.0
    assert steady["descriptors_growth"] == 0.0, "a step is none"
    assert leaking["tasks_growth"] == pytest.approx(6.0, rel=1e-3)
    assert steady["forgotten_ratio"] == pytest.approx(1.0, abs=0.01)
    assert leaking["forgotten_ratio"] == pytest.approx(0.5, abs=0.01)
    assert set(read_targets(BUDGETS)["soak"]) <= steady.keys() | {
        one.key for one in usual(rewards_alone(), 1.0, cpu=0.1).figures
    }


def rewards_alone() -> Calls:
    return Calls.of([(0, REWARD, End.OK, 0.1, 0.1, 0.2, False)])


def test_a_burst_is_judged_by_what_came_before_it() -> None:
    def call(
        at: float, end: End, seconds: float, *, kind: int = RECOMMEND
    ) -> tuple[int, int, End, float, float, float, bool]:
        return 0, kind, end, at, at, at + seconds, end is End.REFUSED and at < 6.0

    before = [call(n / 10, End.OK, 0.02) for n in range(40)]
    during = [call(4.0 + n / 100, End.OK if n % 3 else End.REFUSED, 0.5 if n % 3 else 0.004) for n in range(400)]
    after = [call(8.0 + n / 10, End.OK, 0.3 if n < 28 else 0.02) for n in range(150)]
    rewards = [call(5.0, End.REFUSED, 0.1, kind=REWARD), call(6.0, End.OK, 0.1, kind=REWARD)]
    found = of_burst(Calls.of([*before, *during, *after, *rewards]), (4.0, 4.0, 15.0), knee_goodput=100.0)
    figures = {one.key: one.value for one in found.figures}
    assert set(read_targets(BUDGETS)["burst"]) <= figures.keys()
    assert figures["goodput_ratio"] == pytest.approx(266 / 4 / 100.0)
    assert figures["refusal_p99"] == pytest.approx(4.0, rel=1e-3)
    assert figures["told"] == pytest.approx(0.5, abs=0.01)
    assert figures["normal_after"] == 3.0
    assert (figures["reward_refused"], figures["reward_errors"], figures["too_late"]) == (1, 0, 0)
    quiet = of_burst(Calls.of([*before, *after]), (4.0, 4.0, 15.0), knee_goodput=100.0)
    assert {one.key: one.value for one in quiet.figures}["refusal_p99"] == 0.0, "none was refused"


def test_a_service_that_does_not_start_says_why(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"ended before it served.*workers"), serving(HERE, ("--workers=0",)):
        pass
    with pytest.raises(FileNotFoundError, match=r"make \.venv/dev\.stamp"), serving(tmp_path):
        pass
