"""What mistakes of clients cost: the service's policy in the battery's shops, beside its life without the mistake."""

from __future__ import annotations

from functools import partial
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.lab.experiments.battery_plans import choose_shops, round_cost
from topk_bandit.lab.experiments.plan import Axis, Job, Panel, Plan, Target
from topk_bandit.lab.simulation.battery.playing import make_player, open_shop, play_in
from topk_bandit.lab.simulation.mishaps import MISHAPS, ErringClient
from topk_bandit.lab.simulation.policies import shipped_service

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from topk_bandit.lab.experiments.plan import Results
    from topk_bandit.lab.simulation.battery.playing import Rounds
    from topk_bandit.lab.simulation.battery.shop import Shop
    from topk_bandit.lab.simulation.mishaps import Mishap

__all__ = ["Window", "mishaps", "window_after"]

FloatArray = NDArray[np.float64]

WITHOUT, WITH = "without the mistake", "with it"

_GRACE, _LENGTH = 100, 300
"""After a mistake as many honest rounds and so many more are not looked at; then come so many that are."""

_OF_NEW = 500
"""Where the mistake goes on for good, so many rounds are looked at, beside as many of a new bandit."""

_CLOSE, _HELD, _SLOWER = 0.03, 0.88, 1.2
"""What is wanted: regret so close, as a share of the gain; coverage; so many times a new bandit's regret."""

_NEVER_HEARD = ("next-day",)
"""Shops in which no reward comes within the rounds that are played."""

_MEASURES = ("regret_share", "within_2_sd", "bound_holds")


class Window(NamedTuple):
    """The rounds of a life that are compared: of the one with the mistake, and of the one without."""

    erring: slice
    honest: slice


class _Life(NamedTuple):
    """A life of one bandit."""

    shop: str
    seed: int
    mishap: str | None


def mishaps(given: argparse.Namespace) -> Plan:
    """Return what mistakes of clients cost, and how soon they are got over."""
    names = choose_shops(given.shops, without=_NEVER_HEARD)
    errors = _choose_mishaps(given.mishaps)
    lives = [
        _Life(name, given.seed + number, error)
        for name, number in product(names, range(given.seeds))
        for error in (None, *errors)
    ]
    axis = Axis.of_categories("mistake", "", errors)
    return Plan(
        name="mishaps",
        title=f"Mistakes of clients, in {len(names)} shops: when as many honest rounds and {_GRACE} are over",
        panels=(
            Panel(_MEASURES[0], "Regret (share of the gain)", _MEASURES[0], "regret of a round", axis, from_zero=True),
            Panel(_MEASURES[1], "Within 2 sd", _MEASURES[1], "share of the rounds", axis, lower_is_better=False),
            Panel(_MEASURES[2], "Regret <= bound", _MEASURES[2], "share of the rounds", axis, lower_is_better=False),
        ),
        methods=(WITH, WITHOUT),
        jobs=tuple(Job(partial(_live, life, errors), cost=_cost(life, errors)) for life in lives),
        gathered=partial(_gather, lives, errors),
        settings={
            "seed": given.seed,
            "seeds": given.seeds,
            "shops": list(names),
            "mistakes": {name: MISHAPS[name].title for name in errors},
        },
        targets=partial(_targets, errors),
    )


def window_after(mishap: Mishap) -> Window:
    """Return which rounds show whether a mistake is got over, and what they are compared with."""
    if mishap.is_for_good:
        return Window(slice(mishap.rounds.start, mishap.rounds.start + _OF_NEW), slice(0, _OF_NEW))
    wild = mishap.last + 1 - mishap.rounds.start
    begin = mishap.last + 1 + wild + _GRACE
    return Window(slice(begin, begin + _LENGTH), slice(begin, begin + _LENGTH))


def _choose_mishaps(names: tuple[str, ...] | None) -> tuple[str, ...]:
    for name in names or ():
        if name not in MISHAPS:
            raise InvalidArgumentError("--mishaps", f"expected some of {', '.join(MISHAPS)}, got {name!r}")
    return tuple(name for name in MISHAPS if names is None or name in names)


def _n_rounds(life: _Life, errors: Sequence[str]) -> int:
    if life.mishap is not None:
        return int(window_after(MISHAPS[life.mishap]).erring.stop)
    return max(int(window_after(MISHAPS[error]).honest.stop) for error in errors)


def _cost(life: _Life, errors: Sequence[str]) -> float:
    return _n_rounds(life, errors) * round_cost(life.shop)


def _live(life: _Life, errors: Sequence[str]) -> FloatArray:
    """Play a life; return the measures of its window, or of all windows without a mistake: (windows, measures)."""
    # A shop's preferences may change over its life, which is the same for all.
    longest = max(window_after(MISHAPS[error]).erring.stop for error in errors)
    opened = open_shop(life.shop, seed=life.seed, rounds=longest)
    player = make_player(shipped_service(), opened, seed=life.seed)
    windows = [window_after(MISHAPS[error]).honest for error in errors]
    if life.mishap is not None:
        player = ErringClient(player, MISHAPS[life.mishap])
        windows = [window_after(MISHAPS[life.mishap]).erring]
    played = play_in(opened, player, rounds=_n_rounds(life, errors), seed=life.seed)
    return np.stack([_measure(played, opened, window) for window in windows])


def _measure(played: Rounds, shop: Shop, window: slice) -> FloatArray:
    """Return the measures of some rounds, in the order of the panels."""
    part = type(played)(*(values[window] for values in played))
    gain = shop.values.contextual - shop.values.random
    within = np.abs(part.expected - part.mean) <= 2.0 * part.deviation
    return np.array([part.regret.mean() / gain, within.mean(), (part.regret <= part.regret_bound).mean()])


def _gather(lives: Sequence[_Life], errors: Sequence[str], measured: Sequence[FloatArray]) -> tuple[FloatArray, ...]:
    """Return the values of the panels, each of shape (shops x seeds, 2, mistakes)."""
    found = dict(zip(lives, measured, strict=True))
    places = list(dict.fromkeys((life.shop, life.seed) for life in lives))
    values = np.empty((len(places), 2, len(errors), len(_MEASURES)))
    for index, (shop, seed) in enumerate(places):
        values[index, 0] = np.concatenate([found[_Life(shop, seed, error)] for error in errors])
        values[index, 1] = found[_Life(shop, seed, None)]
    return tuple(values[..., number] for number in range(len(_MEASURES)))


def _targets(errors: Sequence[str], results: Results) -> list[Target]:
    return [target for number in range(len(errors)) for target in _targets_of(errors[number], number, results)]


def _targets_of(name: str, number: int, results: Results) -> list[Target]:
    """Return whether a mistake is got over, with the standard error of the paired difference."""
    regrets, within, bounds = (values[:, 0, number] for values in results.values)
    honest = results.values[0][:, 1, number]
    behind = regrets - honest
    error = float(behind.std(ddof=1) / np.sqrt(len(behind))) if len(behind) > 1 else np.nan
    if MISHAPS[name].is_for_good:
        ratio = float(regrets.mean() / honest.mean())
        claim = f"{name}: regret <= {_SLOWER:g} x a new bandit's, {_OF_NEW} rounds"
        return [Target(claim, bool(ratio <= _SLOWER), f"{ratio:.2f} x ± {error / honest.mean():.2f}")]
    held = f"{within.mean():.0%}, {bounds.mean():.0%}"
    return [
        Target(
            f"{name}: regret within {_CLOSE:.0%} of the gain",
            bool(behind.mean() <= _CLOSE),
            f"{behind.mean():+.3f} ± {error:.3f}, worst {behind.max():+.2f}",
        ),
        Target(f"{name}: 2 sd, bound hold >= {_HELD:.0%}", bool(min(within.mean(), bounds.mean()) >= _HELD), held),
    ]
