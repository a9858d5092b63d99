"""The battery: the service's policy and others in shops of many kinds, and whether its figures hold there."""

from __future__ import annotations

from functools import partial
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.lab.experiments import lineups
from topk_bandit.lab.experiments.battery_results import COVERAGE, PRICES, Layout, summaries, targets
from topk_bandit.lab.experiments.factors_file import factors_of
from topk_bandit.lab.experiments.plan import Axis, Job, Panel, Plan
from topk_bandit.lab.simulation.battery.catalogue import SHOPS
from topk_bandit.lab.simulation.battery.playing import make_player, open_shop, play_in
from topk_bandit.lab.simulation.policies import SERVICE

if TYPE_CHECKING:
    import argparse
    from collections.abc import Collection, Sequence

    from topk_bandit.lab.simulation.battery.playing import Rounds
    from topk_bandit.lab.simulation.battery.shop import Values
    from topk_bandit.lab.simulation.policies import Policy
    from topk_bandit.learning.environments import Factors

__all__ = ["choose_shops", "measure", "regret_so_far", "round_cost", "shops"]

FloatArray = NDArray[np.float64]

_FIGURES = (*COVERAGE, *PRICES)

_PARTS = 8
_MOST_ITEMS_OF_VW_SLATES = 500

_COSTS = {SERVICE: 10.0, "linear Thompson": 2.0, "VW CCB": 3.0, "VW slates": 8.0}
"""Milliseconds of a round with few items, about; of others less than one."""

_NOTE = (
    "Regret is a share of what there is to gain in a shop: what the best slate of each request earns more than random "
    "slates. The best rival in hindsight is chosen anew for each shop and number of rounds, by its mean."
)
_WITHOUT_VW_SLATES = f"VW slates is left out of shops with more than {_MOST_ITEMS_OF_VW_SLATES} items: minutes a trial."


class _Episode(NamedTuple):
    """A trial of a policy in a shop."""

    shop: int
    policy: int
    trial: int


def shops(given: argparse.Namespace) -> Plan:
    """Return the battery."""
    names = choose_shops(given.shops)
    policies, notes = lineups.of_battery(given.policies or lineups.OF_BATTERY)
    factors: Factors | None = None
    source: dict[str, object] = {"factors": "synthetic, anew for each seed"}
    if given.factors or given.ratings:
        factors, source = factors_of(given.factors, given.ratings, given.seed)
    episodes = [
        _Episode(s, p, trial)
        for s, p, trial in product(range(len(names)), range(len(policies)), range(given.seeds))
        if _is_feasible(names[s], policies[p])
    ]
    if len(episodes) < len(names) * len(policies) * given.seeds:
        notes = (*notes, _WITHOUT_VW_SLATES)
    layout = Layout(names, given.rounds)
    return Plan(
        name="shops",
        title=f"{len(names)} kinds of shops",
        panels=_panels(names, given.rounds),
        methods=tuple(policy.name for policy in policies),
        families=tuple(policy.family for policy in policies),
        jobs=tuple(_job(names[one.shop], policies[one.policy], given, one.trial, factors) for one in episodes),
        gathered=partial(_gather_panels, episodes, (given.seeds, len(policies), len(names)), given.rounds),
        settings={
            "seed": given.seed,
            "seeds": given.seeds,
            "rounds": list(given.rounds),
            "shops": {name: SHOPS[name].title for name in names},
            **source,
        },
        targets=partial(targets, layout),
        summaries=partial(summaries, layout),
        across=4,
        notes=(_NOTE, *notes),
    )


def choose_shops(names: tuple[str, ...] | None, *, without: Collection[str] = ()) -> tuple[str, ...]:
    """Return the shops of these names, None for all, in the order of the catalogue; but for some.

    Raises
    ------
    InvalidArgumentError
        Naming ``--shops``: there is no such shop.
    """
    known = tuple(name for name in SHOPS if name not in without)
    for name in names or ():
        if name not in known:
            raise InvalidArgumentError("--shops", f"expected some of {', '.join(known)}, got {name!r}")
    return tuple(name for name in known if names is None or name in names)


def round_cost(shop: str, *, milliseconds: float = _COSTS[SERVICE]) -> float:
    """Return how long a round takes in a shop, about, given how long it takes with few items."""
    return milliseconds * max(SHOPS[shop].n_items / 100.0, 1.0)


def measure(played: Rounds, horizons: Sequence[int], *, values: Values) -> FloatArray:
    """Return the measurements of an episode, in one row: see `_gather_panels`.

    Parameters
    ----------
    values
        What can be reached: regrets are returned as a share of what there is to gain beside random slates.
    """
    gain = values.contextual - values.random
    regret = played.regret / gain
    so_far = regret_so_far(played, horizons, values=values)
    parts = [part.mean() for part in np.array_split(regret, _n_parts(len(regret)))]
    of_fixed = [(values.contextual - values.fixed) / gain]
    figures = [np.append(_coverage(played, horizon), _prices(played, horizon) / gain) for horizon in horizons]
    return np.concatenate([parts, so_far, of_fixed, *figures])


def regret_so_far(played: Rounds, horizons: Sequence[int], *, values: Values) -> FloatArray:
    """Return the mean regret over the first rounds, as a share of what there is to gain, shape (horizons,)."""
    regret = played.regret / (values.contextual - values.random)
    return np.array([regret[:horizon].mean() for horizon in horizons])


def _coverage(played: Rounds, horizon: int) -> FloatArray:
    """Return the numbers of `COVERAGE` over the first rounds, but for those before any reward was heard of.

    NaN for policies that give out no figures, and where nothing was heard of: rewards' unit is not known then.
    """
    informed = (played.heard[:horizon] > 0.0) & ~np.isnan(played.mean[:horizon])
    first = type(played)(*(values[:horizon][informed] for values in played))
    if not informed.any():
        return np.full(len(COVERAGE), np.nan)
    off = np.abs(first.expected - first.mean)
    regret = first.regret.mean()
    return np.array(
        [
            (off <= first.deviation).mean(),
            (off <= 2.0 * first.deviation).mean(),
            (first.regret <= first.regret_bound).mean(),
            first.estimated_regret.mean() / regret if regret > 0.0 else np.nan,
        ]
    )


def _prices(played: Rounds, horizon: int) -> FloatArray:
    """Return the numbers of `PRICES` before a horizon, in the unit of the rewards; NaN for policies without any."""
    prices = np.stack([getattr(played, name)[horizon // 2 : horizon] for name in PRICES])
    known = prices[:, np.isfinite(prices[0])]
    return known.mean(axis=1) if known.shape[1] else np.full(len(PRICES), np.nan)


def _n_parts(rounds: int) -> int:
    return min(_PARTS, rounds)


def _is_feasible(shop: str, policy: Policy) -> bool:
    return policy.family != "VW slates" or SHOPS[shop].n_items <= _MOST_ITEMS_OF_VW_SLATES


def _job(shop: str, policy: Policy, given: argparse.Namespace, trial: int, factors: Factors | None) -> Job:
    run = partial(_play, shop, policy, given.rounds, given.seed + trial, factors)
    return Job(run, cost=given.rounds[-1] * round_cost(shop, milliseconds=_COSTS.get(policy.family, 0.5)))


def _play(shop: str, policy: Policy, horizons: tuple[int, ...], seed: int, factors: Factors | None) -> FloatArray:
    opened = open_shop(shop, seed=seed, rounds=horizons[-1], factors=factors)
    played = play_in(opened, make_player(policy, opened, seed=seed), rounds=horizons[-1], seed=seed)
    return measure(played, horizons, values=opened.values)


def _panels(names: Sequence[str], horizons: tuple[int, ...]) -> tuple[Panel, ...]:
    ends = np.cumsum([len(part) for part in np.array_split(np.arange(horizons[-1]), _n_parts(horizons[-1]))])
    parts = Axis("round", "round T, parts as long", tuple(ends.tolist()))
    so_far = Axis("round", "rounds", horizons)
    label, metric = "regret of a round (share of the gain)", "regret_share"
    of_parts = (Panel(name, f"{name}: {SHOPS[name].title}", metric, label, parts, from_zero=True) for name in names)
    of_all = (Panel(f"{name}_so_far", name, metric, label, so_far, from_zero=True, drawn=False) for name in names)
    last = Axis("round", "rounds", horizons[-1:])
    of_fixed = (Panel(f"{name}_best_fixed_slate", name, metric, label, last, None, drawn=False) for name in names)
    of_figures = (
        Panel(f"{name}_{key}", name, key, key.replace("_", " "), so_far, None, drawn=False)
        for name, key in product(names, _FIGURES)
    )
    return (*of_parts, *of_all, *of_fixed, *of_figures)


def _gather_panels(
    episodes: Sequence[_Episode], shape: tuple[int, int, int], horizons: tuple[int, ...], measured: Sequence[FloatArray]
) -> tuple[FloatArray, ...]:
    """Return the values of `_panels`: all shops' regrets by parts, so far, of the best fixed slate, and `_FIGURES`."""
    values = np.full((*shape, len(measured[0])), np.nan)
    for one, row in zip(episodes, measured, strict=True):
        values[one.trial, one.policy, one.shop] = row
    ends = np.cumsum([_n_parts(horizons[-1]), len(horizons), 1])
    parts, so_far, of_fixed, figures = np.split(values, ends, axis=3)
    figures = figures.reshape(*shape, len(horizons), len(_FIGURES))
    n_shops = shape[2]
    return (
        *(parts[:, :, s] for s in range(n_shops)),
        *(so_far[:, :, s] for s in range(n_shops)),
        *(of_fixed[:, :, s] for s in range(n_shops)),
        *(figures[:, :, s, :, c] for s, c in product(range(n_shops), range(len(_FIGURES)))),
    )
