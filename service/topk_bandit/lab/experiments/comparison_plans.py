"""Two policies beside each other in the battery's shops, played until their difference is known well enough.

Both play in the same shops, with the same requests, luck and waits: a pair for each shop and seed. Shops are given, and
seeds are drawn. With differences d_si of shop s and seed i, n seeds, and S shops, the mean difference has the variance

    sum_s var_i(d_si) / n / S^2

which the first seeds tell: so it is known how many are needed. More are played as long as its root is above what is
asked. Nothing but that variance says when to stop, never the difference itself, which would favour large ones.
"""

from __future__ import annotations

import math
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.lab.experiments.battery_plans import choose_shops, regret_so_far, round_cost
from topk_bandit.lab.experiments.plan import Axis, Job, Panel, Plan, Summary, Target
from topk_bandit.lab.experiments.policy_names import read_policy
from topk_bandit.lab.simulation.battery.playing import open_shop, play

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from topk_bandit.lab.experiments.plan import Results
    from topk_bandit.lab.simulation.policies import Policy

__all__ = ["Difference", "compare", "find_differences", "seeds_needed"]

FloatArray = NDArray[np.float64]

_FIRST_SEEDS = 4
"""So many tell how much seeds differ, a little."""

_MOST_TIMES = 2
"""At most so many times as many seeds as were played: what few tell of their variance is not much."""

_NOTE = (
    "A difference is that of the mean regret over the shops, as a part of the first policy's. Its standard error is of "
    "the seeds: the shops are these."
)

_CERTAIN = 2.0
"""So many standard errors are a difference."""


class Difference(NamedTuple):
    """How much more regret the second policy has, as a part of the first one's; and its standard error."""

    mean: float
    error: float

    @property
    def is_known(self) -> bool:
        """Whether it is no chance."""
        return abs(self.mean) > _CERTAIN * self.error


def compare(given: argparse.Namespace) -> Plan:
    """Return a comparison of two policies, with as many seeds as it takes."""
    names = choose_shops(given.shops)
    pair = tuple(read_policy(text) for text in given.pair)
    if pair[0].name == pair[1].name:
        raise InvalidArgumentError("POLICY", f"expected two that differ, got {' and '.join(given.pair)}")
    if given.most_seeds < _FIRST_SEEDS:
        raise InvalidArgumentError("--most-seeds", f"expected at least {_FIRST_SEEDS}, got {given.most_seeds}")
    trials = range(given.seed, given.seed + given.most_seeds)
    axis = Axis("round", "rounds", given.rounds)
    label = "regret of a round (share of the gain)"
    shape = (len(names), len(pair), len(given.rounds))
    return Plan(
        name="compare",
        title=f"{pair[0].name} and {pair[1].name}, in {len(names)} shops",
        panels=tuple(Panel(name, name, "regret_share", label, axis, from_zero=True) for name in names),
        methods=tuple(policy.name for policy in pair),
        jobs=tuple(_job(shop, policy, given.rounds, seed) for seed, shop, policy in product(trials, names, pair)),
        gathered=partial(_gather, shape),
        settings={
            "seed": given.seed,
            "rounds": list(given.rounds),
            "shops": list(names),
            "policies": list(given.pair),
        },
        targets=partial(_targets, given.precision, given.most_seeds),
        across=4,
        notes=(_NOTE,),
        summaries=_summaries,
        jobs_needed=partial(_jobs_needed, shape, given.precision, given.most_seeds),
    )


def find_differences(regrets: FloatArray) -> list[Difference]:
    """Return the difference after each number of rounds.

    Parameters
    ----------
    regrets
        Mean regret of the first policy and of the second one, shape (seeds, shops, 2, horizons).
    """
    n_seeds, n_shops = regrets.shape[:2]
    first = regrets[:, :, 0].mean(axis=(0, 1))
    paired = regrets[:, :, 1] - regrets[:, :, 0]
    errors = np.sqrt(paired.var(axis=0, ddof=1).sum(axis=0) / n_seeds) / n_shops
    return [Difference(*map(float, one)) for one in zip(paired.mean(axis=(0, 1)) / first, errors / first, strict=True)]


def seeds_needed(regrets: FloatArray, precision: float, most: int) -> int:
    """Return with how many seeds in all each difference's standard error is about as small as asked; `most` at most.

    Parameters
    ----------
    regrets
        As of `find_differences`.
    """
    n_seeds = len(regrets)
    worst = max(difference.error for difference in find_differences(regrets))
    if worst <= precision:
        return n_seeds
    wanted = math.ceil(n_seeds * (worst / precision) ** 2)
    return min(wanted, _MOST_TIMES * n_seeds, most)


def _job(shop: str, policy: Policy, horizons: tuple[int, ...], seed: int) -> Job:
    return Job(partial(_play, shop, policy, horizons, seed), cost=horizons[-1] * round_cost(shop))


def _play(shop: str, policy: Policy, horizons: tuple[int, ...], seed: int) -> FloatArray:
    """Return the mean regret over the first rounds, as a share of the gain, shape (horizons,)."""
    played = play(shop, policy, horizons[-1], seed)
    return regret_so_far(played, horizons, values=open_shop(shop, seed=seed, rounds=horizons[-1]).values)


def _stack(shape: tuple[int, int, int], measured: Sequence[FloatArray]) -> FloatArray:
    """Return the regrets of `find_differences`."""
    return np.stack(measured).reshape(-1, *shape)


def _jobs_needed(shape: tuple[int, int, int], precision: float, most_seeds: int, measured: Sequence[FloatArray]) -> int:
    seeds = seeds_needed(_stack(shape, measured), precision, most_seeds) if measured else _FIRST_SEEDS
    return seeds * shape[0] * shape[1]


def _gather(shape: tuple[int, int, int], measured: Sequence[FloatArray]) -> tuple[FloatArray, ...]:
    regrets = _stack(shape, measured)
    return tuple(regrets[:, shop] for shop in range(shape[0]))


def _regrets_of(results: Results) -> FloatArray:
    return np.stack(results.values, axis=1)


def _summaries(results: Results) -> tuple[Summary, ...]:
    """Return the differences over all shops and in each, after each number of rounds."""
    regrets, plan = _regrets_of(results), results.plan
    of_all = [_row("all shops", regrets)]
    of_each = [_row(panel.title, regrets[:, [shop]]) for shop, panel in enumerate(plan.panels)]
    heads = ("shop", *(f"{rounds:g} rounds" for rounds in plan.panels[0].axis.values))
    first, second = plan.methods
    title = f"Regret of {second} beside that of {first}, {results.trials} seeds"
    return (Summary(title, heads, (*of_all, *of_each)),)


def _row(name: str, regrets: FloatArray) -> tuple[str, ...]:
    return (name, *(f"{one.mean:+.1%} ± {one.error:.1%}" for one in find_differences(regrets)))


def _targets(precision: float, most_seeds: int, results: Results) -> list[Target]:
    """Return whether each difference is known as well as asked, and what it is."""
    regrets = _regrets_of(results)
    found = zip(results.plan.panels[0].axis.values, find_differences(regrets), strict=True)
    return [
        Target(
            f"{rounds:g} rounds: standard error <= {precision:.1%}",
            one.error <= precision,
            _verdict(one, results, precision, most_seeds),
        )
        for rounds, one in found
    ]


def _verdict(one: Difference, results: Results, precision: float, most_seeds: int) -> str:
    first, second = results.plan.methods
    figure = f"{one.mean:+.1%} ± {one.error:.1%}"
    if one.is_known:
        word = "more" if one.mean > 0.0 else "less"
        return f"{second} has {word} regret than {first}: {figure}"
    if one.error <= precision:
        return f"no difference above {_CERTAIN * one.error:.1%} is seen: {figure}"
    wanted = math.ceil(results.trials * (one.error / precision) ** 2)
    return f"can't tell: {figure} with {results.trials} seeds of at most {most_seeds}; some {wanted} would be needed"
