"""What results should show, and whether they do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from topk_bandit.lab.experiments.plan import Target

if TYPE_CHECKING:
    from topk_bandit.lab.experiments.plan import Results

__all__ = ["best_everywhere", "first_reaching", "growth", "questions_saved", "regret_saved"]

FloatArray = NDArray[np.float64]

_ENOUGH = 65
_EARLY = 50
_LITTLE, _MUCH = 0.6, 1.2


def best_everywhere(results: Results) -> list[Target]:
    """Return for each panel whether ours is the best at every point."""
    return [_best(results, p) for p in range(len(results.plan.panels))]


def _best(results: Results, p: int) -> Target:
    panel, values = results.plan.panels[p], results.values[p]
    behind = values[:, :1] - values[:, 1:] if panel.lower_is_better else values[:, 1:] - values[:, :1]
    mean = behind.mean(axis=0)
    points = mean.shape[1]
    won = int(np.count_nonzero(mean.max(axis=0) < 0.0))
    figure = f"at {won} of {points}"
    if won < points and results.trials > 1:
        error = np.maximum(behind.std(axis=0, ddof=1) / np.sqrt(results.trials), np.finfo(np.float64).tiny)
        figure += f", elsewhere behind by up to {(mean / error).max():.1f} standard errors of the difference"
    word = "lowest" if panel.lower_is_better else "highest"
    return Target(f"{panel.title}: ours {word} at every point", won == points, figure)


def questions_saved(results: Results, p: int, *, beside: int) -> Target:
    """Return with how many questions ours, in panel `p`, reaches what uniform, in `beside`, reaches with the most."""
    plan = results.plan
    axis, bar = plan.panels[p].axis, results.mean[beside][plan.methods.index("uniform"), -1]
    most = axis.values[-1]
    reached = first_reaching(np.array(axis.values), results.mean[p][0], bar)
    other = "" if beside == p else f" ({plan.panels[beside].title.lower()})"
    claim = f"{plan.panels[p].title}: ours reaches with <= {_ENOUGH} % what uniform reaches with {most:g}{other}"
    figure = "not reached" if reached is None else f"with {reached:.0f} ({reached / most:.0%}), by interpolation"
    return Target(claim, reached is not None and 100.0 * reached / most <= _ENOUGH, figure)


def first_reaching(x: FloatArray, y: FloatArray, bar: float) -> float | None:
    """Return where a piecewise linear curve first comes down to `bar`; None if it never does."""
    below = np.flatnonzero(y <= bar)
    if not len(below):
        return None
    at = int(below[0])
    if at == 0:
        return float(x[0])
    return float(x[at - 1] + (x[at] - x[at - 1]) * (y[at - 1] - bar) / (y[at - 1] - y[at]))


def growth(results: Results) -> list[Target]:
    """Return whether distances grow by more than two standard errors without features, and only there."""
    targets = []
    for p, panel in enumerate(results.plan.panels):
        for m, method in enumerate(results.plan.methods):
            first, last = results.mean[p][m, 0], results.mean[p][m, -1]
            grows = bool(last - first > 2.0 * np.hypot(*results.standard_error[p][m, [0, -1]]))
            should = "no features" in method
            claim = f"{panel.title}: {method}, {'grows' if should else 'does not grow'} with n"
            targets.append(Target(claim, grows == should, f"{first:.3f} to {last:.3f}"))
    return targets


def regret_saved(results: Results) -> list[Target]:
    """Return what warm saves at first, and what shuffled utilities cost in the end, beside cold."""
    warm, cold, shuffled = results.mean[0]
    early = min(_EARLY, len(cold)) - 1
    saved, lost = warm[early] / cold[early], shuffled[-1] / cold[-1]
    return [
        Target(f"warm <= {_LITTLE} x cold after {early + 1} rounds", bool(saved <= _LITTLE), f"{saved:.2f} x"),
        Target(f"shuffled <= {_MUCH} x cold after {len(cold)} rounds", bool(lost <= _MUCH), f"{lost:.2f} x"),
    ]
