"""What bandits' results should show: the paper's order, regret that grows less than linearly, ours below others."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from topk_bandit.lab.experiments.plan import Target
from topk_bandit.lab.simulation.regret_bounds import fitted_exponent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topk_bandit.lab.experiments.plan import Results

__all__ = ["first_fitted", "lower_than", "lower_than_each", "order", "paired_difference", "sublinear"]

FloatArray = NDArray[np.float64]

_KERNELS = ("WCK", "CK", "WK")
_MOST_EXPONENT = 0.9
_LEAST_ROUNDS = 10


def order(results: Results) -> list[Target]:
    """Return for each panel whether the kernels' best last means, and the best of the others', come as in the paper."""
    return [_order(results, p) for p in range(len(results.plan.panels))]


def _order(results: Results, p: int) -> Target:
    panel, last = results.plan.panels[p], results.values[p][:, :, -1]
    ranks = _choose_methods(results, p)
    sign = 1.0 if panel.lower_is_better else -1.0
    word = "<=" if panel.lower_is_better else ">="
    problems = []
    for (name, one), (other_name, other) in pairwise(ranks):
        difference, error = paired_difference(sign * last[:, one], sign * last[:, other])
        if difference > 0.0:
            behind = "" if np.isnan(error) else f" = {difference / error:.1f} standard errors"
            problems.append(f"{name} is behind {other_name} by {difference:.2f}{behind}")
    means = last.mean(axis=0)
    figure = f" {word} ".join(f"{means[m]:.2f}" for _, m in ranks)
    if problems:
        figure += "; " + ", ".join(problems) + (" of the paired difference" if results.trials > 1 else "")
    claim = f"{panel.title}: {f' {word} '.join((*_KERNELS, 'the others'))} at the end"
    return Target(claim, not problems, figure)


def _choose_methods(results: Results, p: int) -> list[tuple[str, int]]:
    """Return name and method of the best of each kernel, and of the best of all others."""
    families, best = results.plan.family_names, results.best_of_families(p)
    by_family = {families[m]: m for m in best}
    last = results.mean[p][:, -1]
    others = [m for m in best if families[m] not in _KERNELS]
    chosen = min if results.plan.panels[p].lower_is_better else max
    other = chosen(others, key=lambda m: float(last[m]))
    return [*((name, by_family[name]) for name in _KERNELS), (families[other], other)]


def paired_difference(one: FloatArray, other: FloatArray) -> tuple[float, float]:
    """Return the mean of one - other over trials (T,) and its standard error, NaN for one trial."""
    difference = one - other
    if len(difference) < 2:
        return float(difference.mean()), float("nan")
    return float(difference.mean()), float(difference.std(ddof=1) / np.sqrt(len(difference)))


def sublinear(titles_and_regrets: Sequence[tuple[str, FloatArray]]) -> list[Target]:
    """Return whether regret grows less than linearly.

    Parameters
    ----------
    titles_and_regrets
        For each setting its name and the cumulative regret (trials, rounds) of the policy in question.
    """
    return [_sublinear(title, regret) for title, regret in titles_and_regrets if regret.shape[1] >= _LEAST_ROUNDS]


def _sublinear(title: str, regret: FloatArray) -> Target:
    start = first_fitted(regret.shape[1])
    fit = fitted_exponent(regret.mean(axis=0), from_round=start)
    figure = f"{fit.exponent:.2f}"
    if len(regret) > 1:
        single = [fitted_exponent(one, from_round=start).exponent for one in regret]
        figure += f" (single trials {min(single):.2f} to {max(single):.2f})"
    figure += f", fitted from round {start}, R^2 {fit.r_squared:.3f}"
    claim = f"{title}: regret of WCK grows as T to a power < {_MOST_EXPONENT:g}"
    return Target(claim, fit.exponent < _MOST_EXPONENT, figure)


def first_fitted(rounds: int) -> int:
    """Return the round from which a power of T is fitted: the first fifth is left out."""
    return rounds // 5 + 1


def lower_than_each(results: Results, *, ours: str) -> list[Target]:
    """Return for each panel and the best method of each other family whether ours has less at the end."""
    names = results.plan.methods
    return [
        lower_than(results, p, ours=ours, other=names[m])
        for p in range(len(results.plan.panels))
        for m in results.best_of_families(p)
        if names[m] != ours
    ]


def lower_than(results: Results, p: int, *, ours: str, other: str) -> Target:
    """Return whether one method has less at the end of a panel than another."""
    plan = results.plan
    one, than = (results.values[p][:, plan.methods.index(name), -1] for name in (ours, other))
    difference, error = paired_difference(one, than)
    spread = "" if np.isnan(error) else f", difference {difference:.2f} ± {error:.2f}"
    figure = f"{one.mean():.2f} and {than.mean():.2f}{spread}"
    return Target(f"{plan.panels[p].title}: {ours} lower than {other}", difference < 0.0, figure)
