"""What the battery's results come to: targets, a table of regrets, and one of how often the figures hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from topk_bandit.lab.experiments.plan import Summary, Target
from topk_bandit.lab.experiments.tables import BEST, number_text
from topk_bandit.lab.simulation.policies import SERVICE

if TYPE_CHECKING:
    from topk_bandit.lab.experiments.plan import Results

__all__ = ["COVERAGE", "PRICES", "Layout", "Rivalry", "rivalry", "summaries", "targets"]

FloatArray = NDArray[np.float64]

COVERAGE = ("within_1_sd", "within_2_sd", "bound_holds", "estimated_by_true_regret")
"""Shares of the rounds in which the slate's expected reward is within one and two standard deviations of the mean, in
which the true regret is within the bound; and the mean estimated regret by the mean true one."""

PRICES = ("of_bound", "of_draw", "of_near", "of_uniform")
"""What exploration gives up in the last half of the rounds, as shares of the gain: see `Prices`."""

_WANTED = ((0.60, 0.76), (0.91, 0.99), (0.88, 1.0))
"""What the shares should be."""

_AHEAD = 0.2
"""So much less regret than the best rivals in hindsight, over all shops."""


class Layout(NamedTuple):
    """Which shops the panels are of, and after how many rounds they look back."""

    shops: tuple[str, ...]
    horizons: tuple[int, ...]

    def so_far(self, results: Results, s: int) -> FloatArray:
        """Return the regrets so far in a shop, shape (trials, methods, horizons)."""
        return results.values[len(self.shops) + s]

    def best_fixed(self, results: Results, s: int) -> FloatArray:
        """Return the regret of the best fixed slate in a shop, shape (trials,)."""
        return np.asarray(np.nanmax(results.values[2 * len(self.shops) + s], axis=(1, 2)))

    def coverage(self, results: Results, s: int) -> FloatArray:
        """Return the numbers of `COVERAGE` for our policy in a shop, shape (trials, COVERAGE, horizons)."""
        return self._of_service(results, s)[:, : len(COVERAGE)]

    def prices(self, results: Results, s: int) -> FloatArray:
        """Return the numbers of `PRICES` for our policy in a shop, shape (trials, PRICES, horizons)."""
        return self._of_service(results, s)[:, len(COVERAGE) :]

    def _of_service(self, results: Results, s: int) -> FloatArray:
        count = len(COVERAGE) + len(PRICES)
        first = 3 * len(self.shops) + s * count
        ours = results.plan.methods.index(SERVICE)
        return np.stack([results.values[first + c][:, ours] for c in range(count)], axis=1)


class Rivalry(NamedTuple):
    """Our policy beside the best rival in hindsight, in one shop after some rounds.

    Attributes
    ----------
    rival
        The method's number.
    behind
        Our regret minus the rival's, mean over paired trials.
    error
        Standard error of that; NaN for one trial.
    ratio
        Our mean regret by the rival's.
    """

    rival: int
    behind: float
    error: float
    ratio: float

    @property
    def is_lost(self) -> bool:
        """Whether we are behind by more than one standard error."""
        return self.behind > (0.0 if np.isnan(self.error) else self.error)


def rivalry(results: Results, regrets: FloatArray) -> Rivalry:
    """Return how our policy does beside the best of the others, chosen by its mean.

    Parameters
    ----------
    regrets
        Shape (trials, methods); NaN for methods that did not play.
    """
    ours, means = results.plan.methods.index(SERVICE), regrets.mean(axis=0)
    others = np.where(np.isnan(means), np.inf, means)
    others[ours] = np.inf
    rival = int(np.argmin(others))
    behind = regrets[:, ours] - regrets[:, rival]
    error = float(behind.std(ddof=1) / np.sqrt(len(behind))) if len(behind) > 1 else np.nan
    return Rivalry(rival, float(behind.mean()), error, float(means[ours] / means[rival]))


def targets(layout: Layout, results: Results) -> list[Target]:
    """Return whether our policy is nowhere behind, ahead over all shops, and whether its figures hold."""
    if SERVICE not in results.plan.methods:
        return []
    heard = (s for s in range(len(layout.shops)) if np.isfinite(layout.coverage(results, s)[:, :3, -1]).all())
    of_figures = [_figures_target(layout, results, s) for s in heard]
    if len(results.plan.methods) < 2:
        return of_figures
    of_shops = [_shop_target(layout, results, s) for s in range(len(layout.shops))]
    of_sums = [_sum_target(layout, results, h) for h in range(len(layout.horizons))]
    return [*of_sums, *of_shops, *of_figures]


def _rivalries(layout: Layout, results: Results, s: int) -> list[Rivalry]:
    so_far = layout.so_far(results, s)
    return [rivalry(results, so_far[:, :, h]) for h in range(len(layout.horizons))]


def _shop_target(layout: Layout, results: Results, s: int) -> Target:
    rivalries = _rivalries(layout, results, s)
    figure = ", ".join(
        f"{_with_error(one.behind, one.error)} in {rounds:,}"
        for one, rounds in zip(rivalries, layout.horizons, strict=True)
    )
    claim = f"{layout.shops[s]}: behind the best rival in hindsight by no more than one standard error"
    return Target(claim, not any(one.is_lost for one in rivalries), figure)


def _sum_target(layout: Layout, results: Results, h: int) -> Target:
    ours = others = 0.0
    for s in range(len(layout.shops)):
        means = layout.so_far(results, s)[:, :, h].mean(axis=0)
        ours += means[results.plan.methods.index(SERVICE)]
        others += means[_rivalries(layout, results, s)[h].rival]
    claim = f"all shops, {layout.horizons[h]:,} rounds: >= {_AHEAD:.0%} less regret than the best rivals in hindsight"
    figure = f"{abs(1.0 - ours / others):.1%} {'less' if ours < others else 'more'}"
    return Target(claim, bool(ours <= (1.0 - _AHEAD) * others), figure)


def _figures_target(layout: Layout, results: Results, s: int) -> Target:
    shares = layout.coverage(results, s)[:, :, -1].mean(axis=0)
    met = all(low <= share <= high for share, (low, high) in zip(shares, _WANTED, strict=False))
    figure = ", ".join(f"{share:.0%}" for share in shares[: len(_WANTED)])
    (low, high), (low_2, high_2), (least, _) = _WANTED
    claim = (
        f"{layout.shops[s]}: within 1 sd in {low:.0%} to {high:.0%} of the rounds, within 2 sd in {low_2:.0%} to "
        f"{high_2:.0%}, below the bound in >= {least:.0%}"
    )
    return Target(claim, met, figure)


def summaries(layout: Layout, results: Results) -> tuple[Summary, ...]:
    """Return the table of regrets, and that of coverage."""
    heads = tuple(f"{rounds:,}" for rounds in layout.horizons)
    rows = [row for s in range(len(layout.shops)) for row in _regret_rows(layout, results, s)]
    regret = Summary("Regret of a round so far, as a share of the gain", ("shop, policy", *heads), tuple(rows))
    if SERVICE not in results.plan.methods:
        return (regret,)
    rows = [_coverage_row(layout, results, s) for s in range(len(layout.shops))]
    title = f"How often {SERVICE}'s figures hold, {layout.horizons[-1]:,} rounds"
    words = ("shop", "within 1 sd", "within 2 sd", "true regret <= bound", "estimated / true regret")
    coverage = Summary(title, words, tuple(rows))
    rows = [_price_row(layout, results, s) for s in range(len(layout.shops))]
    title = f"What exploration gives up, as a share of the gain, last half of {layout.horizons[-1]:,} rounds"
    return regret, coverage, Summary(title, ("shop", "bound", "draw", "near", "uniform", "all"), tuple(rows))


def _regret_rows(layout: Layout, results: Results, s: int) -> list[tuple[str, ...]]:
    """Return a row for the best of each family, for the best fixed slate, and for ours beside the best of all."""
    methods, name, so_far = results.plan.methods, layout.shops[s], layout.so_far(results, s)
    families = results.plan.family_names
    rows = []
    for m in results.best_of_families(len(layout.shops) + s):
        mark = f" {BEST}" if families.count(families[m]) > 1 else ""
        rows.append((f"{name}, {methods[m]}{mark}", *_mean_texts(so_far[:, m])))
    of_fixed = np.repeat(layout.best_fixed(results, s)[:, None], len(layout.horizons), axis=1)
    rows.append((f"{name}, best fixed slate", *_mean_texts(of_fixed)))
    if SERVICE in methods and len(methods) > 1:
        rivalries = _rivalries(layout, results, s)
        rows.append((f"{name}, best rival in hindsight", *(methods[one.rival] for one in rivalries)))
        rows.append((f"{name}, ours - its regret", *(_with_error(one.behind, one.error) for one in rivalries)))
    return rows


def _mean_texts(values: FloatArray) -> list[str]:
    """Return means over trials with standard errors, one for each column of values (trials, points)."""
    errors = values.std(axis=0, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.full(values.shape[1], np.nan)
    return [
        number_text(mean) if np.isnan(error) else f"{number_text(mean)} ± {number_text(error)}"
        for mean, error in zip(values.mean(axis=0), errors, strict=True)
    ]


def _coverage_row(layout: Layout, results: Results, s: int) -> tuple[str, ...]:
    return layout.shops[s], *_mean_texts(layout.coverage(results, s)[:, :, -1])


def _price_row(layout: Layout, results: Results, s: int) -> tuple[str, ...]:
    prices = layout.prices(results, s)[:, :, -1]
    return layout.shops[s], *_mean_texts(np.column_stack([prices, prices.sum(axis=1)]))


def _with_error(value: float, error: float) -> str:
    return f"{value:+.3f}" if np.isnan(error) else f"{value:+.3f} ± {error:.3f}"
