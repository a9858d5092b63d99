"""Scenarios that find the knee, and those that go beyond it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from figures import Chart, Curve, Figure
from traffic.calls import RECOMMEND, REWARD, End
from traffic.found import Found, answered, milliseconds, timeline
from traffic.knee import find_knee
from traffic.plans import Stream
from traffic.scenario import Scenario
from traffic.stage import BANDIT, REWARDS, TENANT, shop_of

if TYPE_CHECKING:
    from traffic.calls import Calls
    from traffic.knee import Knee
    from traffic.stage import Stage

__all__ = ["BURST", "LOUD_TENANT", "SWEEP", "of_burst"]

TIMES_THE_KNEE, NORMAL_SHARE, QUIET_SHARE = 3.0, 0.5, 0.2
SETTLING = 12.0
NO_KNEE = "no rate was answered in time, so there is no knee"


def sweep(stage: Stage, seconds: float) -> Found:
    """Raise the rate until the service bends."""
    shop = shop_of(2)
    stage.open(shop, rewards=REWARDS)
    knee = find_knee(stage, shop, seconds)
    if knee.best is None:
        return Found(_of_knee(knee), problem=NO_KNEE)
    times = answered(knee.best.calls).latency
    figures = [*_of_knee(knee), *milliseconds("recommend", "Recommend at the knee", times)]
    return Found(figures, [*_by_rate(knee)], {"recommend": times})


def burst(stage: Stage, seconds: float) -> Found:
    """Let half of the knee come, then three times the knee, then half of it again."""
    shop = shop_of(3)
    stage.open(shop, rewards=REWARDS)
    knee = find_knee(stage, shop, max(seconds / 4.0, 2.0))
    if knee.best is None:
        return Found(_of_knee(knee), problem=NO_KNEE)
    normal, phases = NORMAL_SHARE * knee.best.rate, (max(seconds / 2.0, 4.0), seconds, SETTLING)
    rates = (normal, TIMES_THE_KNEE * knee.best.rate, normal)
    calls = stage.load(phases, Stream(TENANT, (BANDIT,), shop, rates, reward_after=0.5), seed=3)
    found = of_burst(calls, phases, knee.best.goodput)
    found.figures[:0] = _of_knee(knee)
    return found


def loud_tenant(stage: Stage, seconds: float) -> Found:
    """Let customers of a quiet tenant come alone, and then beside a tenant that calls with three times the knee."""
    shop = shop_of(4)
    stage.open(shop, rewards=REWARDS)
    stage.open(shop, tenant="quiet", rewards=REWARDS)
    knee = find_knee(stage, shop, 2.0)
    if knee.best is None:
        return Found(_of_knee(knee), problem=NO_KNEE)
    rate = knee.best.rate
    quiet = Stream("quiet", (BANDIT,), shop, (QUIET_SHARE * rate, QUIET_SHARE * rate))
    loud = Stream(TENANT, (BANDIT,), shop, (0.0, TIMES_THE_KNEE * rate))
    calls = stage.load((seconds, seconds), quiet, loud, seed=4)
    found = _of_two(calls, seconds)
    found.figures[:0] = _of_knee(knee)
    return found


def _of_knee(knee: Knee) -> list[Figure]:
    best = knee.best
    return [
        Figure("knee", "knee: highest rate that is answered in time", best.rate if best else math.nan, "/s"),
        Figure("knee_goodput", "knee: answered", best.goodput if best else math.nan, "/s"),
    ]


def _by_rate(knee: Knee) -> list[Chart]:
    steps = sorted(knee.steps, key=lambda step: step.rate)
    rates = [step.rate for step in steps]
    times = [answered(step.calls).latency for step in steps]
    latency = [Curve(f"p{rank}", rates, [one.percentile(rank) * 1e3 for one in times]) for rank in (50, 99)]
    refused = [step.calls.of_kind(RECOMMEND).share(End.REFUSED, End.TOO_LATE) * step.rate for step in steps]
    goodput = [Curve("answered in time", rates, [step.goodput for step in steps]), Curve("refused", rates, refused)]
    return [
        Chart("Recommend by rate", "calls a second", "ms", latency, log=True),
        Chart("what is answered", "calls a second", "calls a second", goodput),
    ]


def of_burst(calls: Calls, phases: tuple[float, float, float], knee_goodput: float) -> Found:
    """Return what became of calls that came as usual, then as a burst, then as usual, in phases of so many seconds."""
    before, end = phases[0], phases[0] + phases[1]
    slates = calls.of_kind(RECOMMEND)
    quiet, loud, rewards = slates.between(0.0, before), slates.between(before, end), calls.of_kind(REWARD)
    refused, goodput = loud.ended(End.REFUSED), len(answered(loud)) / phases[1]
    figures = [
        *milliseconds("before", "before: Recommend", answered(quiet).latency, (50, 99)),
        Figure("offered", "burst: sent", len(loud) / phases[1], "/s"),
        Figure("goodput", "burst: answered in time", goodput, "/s"),
        Figure("goodput_ratio", "burst: answered / answered at the knee", goodput / knee_goodput, "x"),
        *milliseconds("accepted", "burst: what is answered", answered(loud).latency, (50, 99)),
        Figure("refused", "burst: refused", loud.share(End.REFUSED), "share"),
        *_of_refusals(refused),
        Figure("too_late", "burst: not answered in time", loud.share(End.TOO_LATE), "share"),
        Figure("errors", "other errors and degraded answers", len(slates.ended(End.FAILED, End.DEGRADED))),
        Figure("reward_refused", "Reward: refused", len(rewards.ended(End.REFUSED))),
        Figure(
            "reward_errors", "Reward: not answered in time, or failed", len(rewards.ended(End.TOO_LATE, End.FAILED))
        ),
        Figure(
            "normal_after", "seconds from the burst's end until all is as before", _normal_after(slates, phases), "s"
        ),
    ]
    histograms = {"accepted": answered(loud).latency, "refused": refused.latency}
    return Found(figures, timeline(calls, sum(phases)), histograms)


def _of_refusals(refused: Calls) -> list[Figure]:
    """Return how soon calls are refused, and how many are told when to try again; without any all is well."""
    if not len(refused):
        return [
            Figure("refusal_p99", "refusals, p99", 0.0, "ms"),
            Figure("told", "refusals with RetryInfo", 1.0, "share"),
        ]
    told = refused.told_to_wait / len(refused)
    return [
        *milliseconds("refusal", "refusals", refused.latency, (50, 99)),
        Figure("told", "refusals with RetryInfo", told, "share"),
    ]


def _normal_after(slates: Calls, phases: tuple[float, float, float]) -> float:
    """Return after how many seconds each second is usual: nothing refused, and its median within p99 of before."""
    bound = answered(slates.between(0.0, phases[0])).latency.percentile(99)
    over, last = phases[0] + phases[1], 0.0
    for second in range(int(phases[2])):
        part = slates.between(over + second, over + second + 1.0)
        if len(part) and (part.share(End.OK) < 1.0 or part.latency.percentile(50) > bound):
            last = second + 1.0
    return last


def _of_two(calls: Calls, seconds: float) -> Found:
    quiet, loud = calls.of_stream(0).of_kind(RECOMMEND), calls.of_stream(1).of_kind(RECOMMEND)
    alone, beside = quiet.between(0.0, seconds), quiet.between(seconds, 2.0 * seconds)
    times = [answered(part).latency for part in (alone, beside)]
    rewards = calls.of_stream(0).of_kind(REWARD)
    figures = [
        *milliseconds("alone", "quiet tenant alone", times[0], (50, 99)),
        *milliseconds("beside", "quiet tenant beside the loud one", times[1], (50, 99)),
        Figure("refused", "quiet tenant beside the loud one: refused", beside.share(End.REFUSED), "share"),
        Figure("too_late", "quiet tenant: not answered in time", beside.share(End.TOO_LATE), "share"),
        Figure("reward_errors", "quiet tenant: rewards refused or failed", len(rewards) - len(rewards.ended(End.OK))),
        Figure("loud_offered", "loud tenant: sent", len(loud) / seconds, "/s"),
        Figure("loud_goodput", "loud tenant: answered in time", len(answered(loud)) / seconds, "/s"),
        Figure("loud_refused", "loud tenant: refused", loud.share(End.REFUSED), "share"),
    ]
    charts = timeline(calls.of_stream(0), 2.0 * seconds)
    return Found(figures, charts, {"alone": times[0], "beside": times[1]})


SWEEP = Scenario("sweep", "the rate is raised to the knee", 2.5, 15.0, sweep)
BURST = Scenario("burst", "three times the knee, and usual load before and after", 8.0, 60.0, burst)
LOUD_TENANT = Scenario(
    "loud-tenant", "a tenant beside one that calls with three times the knee", 6.0, 60.0, loud_tenant
)
