"""The simulation beside theory: one server or several, any or equal work, groups of writes, workers that follow.

Each is simulated many times from different seeds. What theory says must lie where the mean of these replications puts
it with a confidence of 99.9 %, and that interval must be narrow enough to exclude what is off by a few per cent.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest
from scipy.stats import t as student

from topk_bandit.lab.fleet.costs import Costs
from topk_bandit.lab.fleet.scenario import Chance, Fleet, Traffic
from topk_bandit.lab.fleet.simulation import simulate

if TYPE_CHECKING:
    from collections.abc import Callable

    from topk_bandit.lab.fleet.results import Results

CONFIDENCE, REPLICATIONS, CALLS = 0.999, 16, 12_000
MANY, LONG = 10**6, 1e9

NOTHING = Costs(
    recommend=0.0, reward=0.0, answer=0.0, refuse=0.0, look=0.0, shown=0.0, rewarded=0.0, refit=0.0,
    rewards_between=100, load=0.0, store_call=0.0, sync=0.0,
)  # fmt: skip


def changed(**costs: float) -> Costs:
    return Costs(**{name: costs.get(name, getattr(NOTHING, name)) for name in Costs.__slots__})


def fleet(costs: Costs, *, workers: int = 1, **more: object) -> Fleet:
    """Return a fleet in which nothing but what is looked at takes time."""
    free = {"network": 0.0, "quantum": math.inf, "most_calls": MANY, "idle": 10.0, "gather": LONG}
    return Fleet(costs=costs, workers=workers, **{**free, **more})  # type: ignore[arg-type]


def traffic(rate: float, *, calls: int, **more: object) -> Traffic:
    """Return requests for one bandit without rewards; the first tenth, while queues build up, is not measured."""
    seconds = calls / rate
    asked = {"bandits": 1, "reward_seconds": math.inf, "settling": seconds / 10, "seconds": seconds}
    return Traffic(pairs=rate, **{**asked, **more})  # type: ignore[arg-type]


def mean_wait(results: Results) -> float:
    return float(results.waits.mean())


def check(expected: float, one: Callable[[int], float], *, within: float, replications: int = REPLICATIONS) -> None:
    """Check that the mean of replications agrees with `expected`, and would not with what is off by `within` of it."""
    found = np.array([one(seed) for seed in range(replications)])
    half = student.ppf(0.5 + CONFIDENCE / 2, replications - 1) * found.std(ddof=1) / math.sqrt(replications)
    assert half < within * expected / 2
    assert abs(found.mean() - expected) < half


def erlang_c(servers: int, offered: float) -> float:
    """Return the probability to wait, of `offered` Erlangs at so many servers."""
    terms = [offered**n / math.factorial(n) for n in range(servers)]
    last = offered**servers / math.factorial(servers) / (1.0 - offered / servers)
    return last / (sum(terms) + last)


@pytest.mark.parametrize(("cores", "load"), [(1, 0.5), (8, 0.8)])
def test_a_worker_of_exponential_work_waits_by_erlang_s_formula(cores: int, load: float) -> None:
    mean = 0.01
    rate = cores * load / mean
    wait = erlang_c(cores, cores * load) * mean / (cores * (1.0 - load))
    asked = traffic(rate, calls=CALLS, chance=Chance.EXPONENTIAL)
    of_cores = fleet(changed(recommend=mean), cores=cores)
    check(mean + wait, lambda seed: mean_wait(simulate(of_cores, asked, seed=seed)), within=0.12)


def test_a_worker_of_equal_work_waits_by_pollaczek_and_khinchine() -> None:
    work, load = 0.01, 0.7
    wait = load * work / (2.0 * (1.0 - load))
    one = fleet(changed(recommend=work))
    asked = traffic(load / work, calls=CALLS)
    check(work + wait, lambda seed: mean_wait(simulate(one, asked, seed=seed)), within=0.06)


def test_a_worker_that_shares_its_core_in_small_turns_keeps_each_as_long_as_any_work_would() -> None:
    """M/G/1 with processor sharing: the mean is that of exponential work, whatever work is."""
    work, load = 0.01, 0.5
    one = fleet(changed(recommend=work), quantum=work / 16)
    asked = traffic(load / work, calls=CALLS // 3)
    check(work / (1.0 - load), lambda seed: mean_wait(simulate(one, asked, seed=seed)), within=0.2)


def test_a_shard_that_answers_one_by_one_waits_by_pollaczek_and_khinchine() -> None:
    sync, call, load = 0.008, 0.002, 0.6
    work = sync + call
    one = fleet(changed(sync=sync, store_call=call), most_in_group=1)
    asked = traffic(load / work, calls=CALLS)
    wait = load * work / (2.0 * (1.0 - load))
    check(work + wait, lambda seed: mean_wait(simulate(one, asked, seed=seed)), within=0.06)


@pytest.mark.parametrize("load", [0.5, 3.0])
def test_a_shard_that_answers_in_groups_never_has_a_queue(load: float) -> None:
    """A call that comes during a sync waits for half of it on average, then for its own; busy periods are geometric."""
    sync = 0.01
    busy = sync * math.exp(load)
    share = busy / (busy + sync / load)
    one = fleet(changed(sync=sync))
    asked = traffic(load / sync, calls=CALLS // 4)
    check(sync * (1.0 + share / 2.0), lambda seed: mean_wait(simulate(one, asked, seed=seed)), within=0.02)


PAIR = changed(recommend=0.007, reward=0.005, shown=0.001, rewarded=0.004, refit=0.13, rewards_between=100)


@pytest.mark.parametrize("workers", [1, 4])
def test_workers_that_all_follow_a_bandit_are_as_busy_as_the_formula_says(workers: int) -> None:
    most = PAIR.most_pairs(workers)
    assert most == pytest.approx(1.0 / (0.0063 + 0.012 / workers))
    many = fleet(PAIR, workers=workers, most_calls=32, quantum=0.005, gather=0.025)
    asked = Traffic(pairs=0.8 * most, bandits=1, reward_seconds=0.5, seconds=60.0, settling=10.0)

    def busy(seed: int) -> float:
        results = simulate(many, asked, seed=seed)
        return results.cores_used / workers / (results.pairs / most)

    check(1.0, busy, within=0.05, replications=8)


@pytest.mark.parametrize(("share", "keeps_up"), [(0.9, True), (1.15, False)])
def test_beyond_what_the_formula_says_models_lag_or_calls_are_refused(share: float, keeps_up: bool) -> None:  # noqa: FBT001
    many = fleet(PAIR, workers=2, most_calls=32, quantum=0.005, gather=0.025)
    asked = Traffic(pairs=share * PAIR.most_pairs(2), bandits=1, reward_seconds=0.5, seconds=120.0, settling=10.0)
    results = simulate(many, asked, seed=0)
    assert (results.refused < 0.01) == keeps_up
