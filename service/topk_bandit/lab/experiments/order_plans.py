"""Where the paper's order, WCK <= CK <= WK <= no kernel in regret, holds with more trials, where not, and why."""

from __future__ import annotations

from functools import partial
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from topk_bandit.domain.bandits import Kernel
from topk_bandit.lab.experiments import lineups
from topk_bandit.lab.experiments.factors_file import factors_of
from topk_bandit.lab.experiments.plan import Axis, Job, Panel, Plan, Target
from topk_bandit.lab.experiments.regret_targets import paired_difference
from topk_bandit.lab.experiments.shops import BATCH, FIGURE_2, Setting, cumulative, episodes
from topk_bandit.lab.simulation.explained_variance import explained_variance, order_free_share, order_free_variance
from topk_bandit.lab.simulation.paper_gp import BETA_SCALES
from topk_bandit.learning.environments import NOISE, Objective
from topk_bandit.learning.policy import kernel_of

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Mapping, Sequence

    from topk_bandit.lab.experiments.plan import Results
    from topk_bandit.learning.environments import Factors

__all__ = ["order"]

FloatArray = NDArray[np.float64]


class _Reward(NamedTuple):
    """An objective, and what it is called in the CSV, in titles and under bars."""

    objective: Objective
    key: str
    title: str
    short: str


class _Size(NamedTuple):
    n_items: int
    slate_size: int

    @property
    def title(self) -> str:
        """What figures call it."""
        return f"n = {self.n_items}, k = {self.slate_size}"


_DCG = _Reward(Objective.DCG, "dcg", "DCG", "DCG")
_PLAYED = (
    _Reward(Objective.NDCG, "ndcg", "nDCG", "nDCG"),
    _Reward(Objective.MOSTLY_NDCG, "mostly_ndcg", "0.75 nDCG + 0.25 diversity", "3 : 1"),
    _Reward(Objective.NDCG_DIVERSITY, "ndcg_diversity", "0.25 nDCG + 0.75 diversity", "1 : 3"),
    _Reward(Objective.DIVERSITY, "diversity", "diversity", "diversity"),
)
_REWARDS = (_DCG, *_PLAYED)
_USERS = {5: "five users", 1: "one user"}
_SIZES = _SMALL, _ = _Size(20, 3), _Size(50, 6)
_KERNELS = {"WCK": Kernel.WEIGHTED_CONVOLUTIONAL, "CK": Kernel.CONVOLUTIONAL, "WK": Kernel.WEIGHTED}

_BETTER = {"WCK - CK": "WCK <= CK", "CK - WK": "CK <= WK", "WK - no kernel": "WK <= no kernel"}
"""Differences of regret, and which part of the paper's order each decides."""

_METHODS = (*_KERNELS, *_BETTER, *(size.title for size in _SIZES))

_DIFFERENCE, _EXPLAINED = "difference_of_cumulative_regret", "r_squared"

_STREAM = 11
"""Random draws of this experiment; the others have others."""

_CLEAR = 2.0
"""A difference of fewer standard errors decides nothing."""


def order(given: argparse.Namespace) -> Plan:
    """Return paired differences of regret, and what share of a reward's variance each kernel can explain."""
    factors, source = factors_of(given.factors, given.ratings, given.seed)
    settings = [
        Setting(_STREAM, *_SMALL, n_customers, reward.objective, given.rounds)
        for reward, n_customers in product(_PLAYED, _USERS)
    ]
    kernels = [policy for policy in lineups.the_nine() if policy.name.endswith(f" {BETA_SCALES[0]:g}")]
    policies = [*kernels, *lineups.without_kernels()]
    reasons = (
        Job(partial(_reasons, size, factors, seed=given.seed, trial=trial), cost=_COST_OF_REASONS)
        for size, trial in product(_SIZES, range(given.trials))
    )
    return Plan(
        name=given.experiment,
        title="Where the paper's order of the kernels holds, and why; (a) to (h): 20 items, slates of 3",
        panels=(*_differences_panels(given.rounds), *_reasons_panels()),
        methods=_METHODS,
        jobs=(*episodes(settings, policies, factors, trials=given.trials, seed=given.seed), *reasons),
        gathered=partial(_gather_panels, n_settings=len(settings), n_policies=len(policies), trials=given.trials),
        settings={
            "seed": given.seed,
            "trials": given.trials,
            "rounds": given.rounds,
            "items": _SMALL.n_items,
            "slate_size": _SMALL.slate_size,
            "beta_gp": BETA_SCALES[0],
            "update_every": BATCH,
            "noise": NOISE,
            **source,
            "settings": [setting.settings() for setting in settings],
        },
        targets=_findings,
        across=2,
        notes=(_PAIRED, _WEIGHTS, _SHARES),
    )


_COST_OF_REASONS = 8000.0
_PAIRED = (
    "Differences are of the same trial: the same items, users, arrivals and noise. Below zero the paper's order holds; "
    f"a difference of fewer than {_CLEAR:g} standard errors is undecided. No kernel is the epsilon-greedy or MAB-UCB "
    "policy with the least regret in the mean of its panel."
)
_WEIGHTS = (
    "In the paper's formula lambda = 0.25 is nDCG's weight; to emphasize relevance over diversity, as it says, takes "
    "more than 0.5, such as 0.75. In bars and tables 1 : 3 is the paper's 0.25 nDCG + 0.75 diversity, 3 : 1 the other."
)
_SHARES = (
    "r^2 is of Gaussian-process regression from 250 random slates of five users, on 500 others. The order-free share "
    "is the variance of the means over all orders of the items shown, over all variance; of a kernel, its prior's."
)


def _differences_panels(rounds: int) -> list[Panel]:
    axis = Axis.of_rounds(rounds)
    places = enumerate(product(_PLAYED, _USERS))
    return [
        Panel(
            f"{reward.key}_{_USERS[n_customers].replace(' ', '_')}",
            f"({chr(ord('a') + place)}) {reward.title}, {_USERS[n_customers]}",
            _DIFFERENCE,
            "difference of cumulative regret",
            axis,
            lower_is_better=None,
        )
        for place, (reward, n_customers) in places
    ]


def _reasons_panels() -> list[Panel]:
    rewards = Axis.of_categories("of", "reward, nDCG : diversity", [reward.short for reward in _REWARDS])
    explained = [
        Panel(
            f"explained_n{size.n_items}_k{size.slate_size}",
            f"r² of a kernel, {size.title}",
            _EXPLAINED,
            "share of variance explained, held out",
            rewards,
            lower_is_better=False,
        )
        for size in _SIZES
    ]
    whatever = partial(Panel, metric="order_free_share", label="share of variance", lower_is_better=None)
    return [
        *explained,
        whatever("order_free_rewards", "Rewards: order-free share of variance", axis=rewards),
        whatever(
            "order_free_kernels",
            "Kernels: order-free share of prior variance",
            axis=Axis.of_categories("of", "kernel", tuple(_KERNELS)),
        ),
    ]


def _reasons(size: _Size, factors: Factors, *, seed: int, trial: int) -> FloatArray:
    """Return of each reward r^2 by kernel and the order-free share, and of each kernel its share, all in one row."""
    drawn = [seed, _STREAM, trial]
    kinds = tuple(_KERNELS.values())
    shops = [Setting(_STREAM, *size, max(_USERS), reward.objective, 1).shop(factors, drawn) for reward in _REWARDS]
    explained = explained_variance(shops, kinds, np.random.default_rng([*drawn, 3]))
    of_rewards = [order_free_variance(shop, np.random.default_rng([*drawn, 4])) for shop in shops]
    of_kernels = [order_free_share(kernel_of(kind, *size)) for kind in kinds]
    return np.concatenate([explained.ravel(), of_rewards, of_kernels])


def _gather_panels(
    measured: Sequence[FloatArray], *, n_settings: int, n_policies: int, trials: int
) -> tuple[FloatArray, ...]:
    n_kernels, n_rewards = len(_KERNELS), len(_REWARDS)
    n_episodes = n_settings * n_policies * trials
    panels = []
    for regret, _ in cumulative(measured[:n_episodes], n_policies=n_policies, trials=trials):
        wck, ck, wk, *others = regret.transpose(1, 0, 2)
        least = min(others, key=lambda other: float(other[:, -1].mean()))
        panels.append(_place_methods(_BETTER, (wck - ck, ck - wk, wk - least)))
    reasons = np.stack(measured[n_episodes:]).reshape(len(_SIZES), trials, -1)
    explained, of_rewards, of_kernels = np.split(reasons, [n_kernels * n_rewards, -n_kernels], axis=2)
    by_size = explained.reshape(len(_SIZES), trials, n_kernels, n_rewards)
    panels += [_place_methods(_KERNELS, one.transpose(1, 0, 2)) for one in by_size]
    titles = [size.title for size in _SIZES]
    return (*panels, _place_methods(titles, of_rewards), _place_methods(titles, of_kernels))


def _place_methods(methods: Iterable[str], values: Iterable[FloatArray]) -> FloatArray:
    """Return values (trials, points) of some methods at the places of all: (trials, methods, points)."""
    there = dict(zip(methods, values, strict=True))
    nothing = np.full_like(next(iter(there.values())), np.nan)
    return np.stack([there.get(name, nothing) for name in _METHODS], axis=1)


def _findings(results: Results) -> list[Target]:
    """Return for each panel of differences which part of the order holds; then which kernel explains more."""
    found, plan = [], results.plan
    for panel, values in zip(plan.panels, results.values, strict=True):
        by_method = dict(zip(plan.methods, values.transpose(1, 0, 2), strict=True))
        if panel.metric == _DIFFERENCE:
            for name, claim in _BETTER.items():
                found.append(_finding(f"{panel.title}: {claim} in the mean, at the end", _at_times(by_method[name])))
        elif panel.metric == _EXPLAINED:
            for x, reward in enumerate(panel.axis.texts):
                less = by_method["CK"][:, x] - by_method["WCK"][:, x]
                claim = f"{panel.title}, {reward}: WCK >= CK in the mean"
                found.append(_finding(claim, {"": less}, sign=-1.0, places=3))
    return found


def _at_times(regret: FloatArray) -> dict[str, FloatArray]:
    """Return what differences (trials, rounds) are after as many rounds as the paper's figure has, and at the end."""
    rounds = regret.shape[1]
    counts = [count for count in (FIGURE_2[0].rounds, rounds) if count <= rounds]
    return {f"after {count} rounds ": regret[:, count - 1] for count in counts}


def _finding(claim: str, behind: Mapping[str, FloatArray], *, sign: float = 1.0, places: int = 2) -> Target:
    """Return whether a claim holds: whether what it is behind by, of each trial, has a mean of at most zero.

    Parameters
    ----------
    behind
        By the time of it, shapes (trials,); the last one decides.
    sign
        The sign of the differences as reported: -1 where more is better.
    """
    differences = [f"{when}{_describe(values, sign=sign, places=places)}" for when, values in behind.items()]
    *_, last = behind.values()
    return Target(claim, bool(last.mean() <= 0.0), "; ".join(differences))


def _describe(behind: FloatArray, *, sign: float, places: int) -> str:
    mean, error = paired_difference(behind, np.zeros_like(behind))
    text = f"{sign * mean:+.{places}f}"
    if not error > 0.0:
        return text
    word = "undecided" if abs(mean) < _CLEAR * error else "holds" if mean < 0.0 else "does not hold"
    so_many = f"so in {np.count_nonzero(behind <= 0.0)} of {len(behind)} trials"
    return f"{text} ± {error:.{places}f}: {word} ({abs(mean) / error:.1f} standard errors, {so_many})"
