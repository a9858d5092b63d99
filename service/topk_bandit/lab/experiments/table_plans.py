"""The paper's tables of kernels and bounds, and its figure of local search."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from topk_bandit.domain.bandits import Kernel
from topk_bandit.lab.experiments.plan import Axis, Job, Panel, Plan, Target, stack_trials
from topk_bandit.lab.simulation.kernel_tables import kernel_similarities
from topk_bandit.lab.simulation.search_trials import (
    N_ITEMS,
    SLATE_SIZE,
    search_of_paper,
    search_of_service,
    search_trial,
)

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from topk_bandit.lab.experiments.plan import Results
    from topk_bandit.lab.simulation.search_trials import Searcher, SearchTrial

__all__ = ["figure_4", "table_2"]

FloatArray = NDArray[np.float64]

_KERNELS = {"WCK": Kernel.WEIGHTED_CONVOLUTIONAL, "CK": Kernel.CONVOLUTIONAL, "WK": Kernel.WEIGHTED}

_PLACES = 2
"""Decimals that the paper prints."""

_SEARCHES: dict[str, Searcher] = {"the paper's search": search_of_paper, "this service's": search_of_service}
_EVALUATIONS = tuple(range(1000, 30_001, 500))
_SURE = ("CK", "WCK")


def table_2(given: argparse.Namespace) -> Plan:
    """Return how alike the kernels find [1, 2, 3] and four other rankings."""
    cells = kernel_similarities()
    rankings = list(dict.fromkeys(cell.ranking for cell in cells))
    axis = Axis.of_categories("ranking", "compared with [1, 2, 3]", [str(list(ranking)) for ranking in rankings])
    titles = {"kernel": "This service's kernels", "definition": "By definition, term by term", "paper": "In the paper"}
    return Plan(
        name=given.experiment,
        title="Table 2: similarity of top-3 rankings of 7 items",
        panels=tuple(
            Panel(key, title, "similarity", "unit-normalised similarity", axis, lower_is_better=None)
            for key, title in titles.items()
        ),
        methods=tuple(_KERNELS),
        jobs=(Job(_similarities),),
        gathered=stack_trials,
        settings={"items": 7, "slate_size": 3, "weights_of_WCK": "DCG", "weights_of_WK_and_CK": "all the same"},
        targets=_to_two_decimals,
    )


def _similarities() -> FloatArray:
    """Return what the kernels give, what their definitions give, and what the paper prints: (3, kernels, rankings)."""
    by_kernel: dict[str, list[tuple[float, float, float]]] = {name: [] for name in _KERNELS}
    for cell in kernel_similarities():
        by_kernel[cell.kernel].append((cell.value, cell.by_definition, cell.paper))
    return np.array(list(by_kernel.values())).transpose(2, 0, 1)


def _to_two_decimals(results: Results) -> list[Target]:
    ours, defined, paper = results.mean
    targets = []
    for m, name in enumerate(results.plan.methods):
        rounded = ours[m].round(_PLACES)
        equal = bool((rounded == paper[m]).all() and (defined[m].round(_PLACES) == paper[m]).all())
        figure = ", ".join(f"{value:.{_PLACES}f}" for value in rounded)
        targets.append(Target(f"{name}: equal to the paper's to two decimals, by definition too", equal, figure))
    return targets


def figure_4(given: argparse.Namespace) -> Plan:
    """Return how often local search finds the ranking that is most similar to a hidden one."""
    found = Axis.of_categories("search", "search", list(_SEARCHES))
    evaluated = Axis("evaluations", "rankings evaluated", _EVALUATIONS, marked=False)
    return Plan(
        name=given.experiment,
        title=f"Figure 4: local search for one of 1.1 x 10^10 rankings, n = {N_ITEMS}, k = {SLATE_SIZE}",
        panels=(
            Panel("found", "Hidden ranking found", "share_found", "share of trials", found, lower_is_better=False),
            Panel(
                "value", "The paper's search on its way", "similarity", "similarity of the best so far", evaluated,
                lower_is_better=False,
            ),
        ),
        methods=tuple(_KERNELS),
        jobs=tuple(
            Job(partial(_searches, kernel, search, seed=given.seed, trials=given.trials))
            for kernel in _KERNELS.values()
            for search in _SEARCHES.values()
        ),
        gathered=_found_and_values,
        settings={
            "seed": given.seed,
            "trials": given.trials,
            "items": N_ITEMS,
            "slate_size": SLATE_SIZE,
            "paper_s_search": "1,000 candidates, the best 10 climb, 5 steps a direction",
        },
        targets=_all_found,
        across=2,
        notes=("What is maximised is the similarity to a hidden ranking, which is 1 for that one only.",),
    )  # fmt: skip


def _searches(kernel: Kernel, search: Searcher, *, seed: int, trials: int) -> FloatArray:
    """Return whether each trial found it, and its best similarity so far by evaluations: (trials, 1 + evaluations)."""
    measured = []
    for number in range(trials):
        trial = search_trial(kernel, search, np.random.default_rng([seed, number]))
        measured.append([float(trial.found), *_best_so_far(trial)])
    return np.array(measured)


def _best_so_far(trial: SearchTrial) -> FloatArray:
    """Return the best similarity at each of the evaluations, NaN before the search tells one."""
    tried, reached = np.array(trial.steps).T
    last = np.searchsorted(tried, _EVALUATIONS, side="right") - 1
    return np.where(last < 0, np.nan, reached[last])


def _found_and_values(measured: Sequence[FloatArray]) -> tuple[FloatArray, ...]:
    values = np.stack(measured).reshape(len(_KERNELS), len(_SEARCHES), *measured[0].shape)
    return values[:, :, :, 0].transpose(2, 0, 1), values[:, 0, :, 1:].transpose(1, 0, 2)


def _all_found(results: Results) -> list[Target]:
    targets = []
    for name in _SURE:
        found = results.values[0][:, results.plan.methods.index(name)].sum(axis=0)
        for search, count in zip(_SEARCHES, found, strict=True):
            claim = f"{name}: {search} finds the hidden ranking in all trials"
            targets.append(Target(claim, bool(count == results.trials), f"{count:.0f} of {results.trials}"))
    return targets
