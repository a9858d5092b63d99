"""Places for new items: where the kernel's universe has space, and how it gets some.

A place can be taken back once its item is retired and every deadline of a slate that showed it has passed. When new
items find too few free ones, those whose slates ended first are: the rows that show their items are projected onto the
others. Where slates are open still the universe grows instead, up to `MOST_RETIRED` places beyond the bandit's
capacity. All of it is a function of the log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from topk_bandit.learning.policy import kernel_of
from topk_bandit.learning.state_changes import change_kernel, vacate

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from topk_bandit.bandits.items import Items
    from topk_bandit.domain.bandits import BanditSettings
    from topk_bandit.learning.policy import State

__all__ = ["MOST_RETIRED", "make_space"]

MOST_RETIRED = 10_000
"""Places beyond a bandit's capacity that retired items may have. Beyond that those whose slates end first lose theirs,
and with it what their open slates would have taught."""

_GROWTH = 8
"""The universe grows by this part of the capacity at least, since each time costs a refit."""


_BATCH = 64
"""So many times at most places are taken back until there are as many as the capacity: no more at once than are wanted,
since rows that show what has gone teach about other items, but each time costs a refit."""


class _Plan(NamedTuple):
    """Which places are taken back, and how many the universe has then."""

    vacated: NDArray[np.int32]
    n_places: int


def make_space(items: Items, state: State, wanted: int, *, settings: BanditSettings, at_ms: int) -> tuple[Items, State]:
    """Return the items and the state with so many free places; the state was refit if it had too few.

    Parameters
    ----------
    items, state
        Of one model.
    wanted
        How many items are new; with those that are not retired there are no more than the capacity.
    settings
        The bandit's.
    at_ms
        The store's clock.
    """
    n_places = state.posterior.kernel.n_items
    if n_places - items.places_in_use >= wanted:
        return items, state
    plan = _plan(items, state, wanted, settings=settings, at_ms=at_ms)
    state = vacate(state, plan.vacated, at_ms)
    if plan.n_places > n_places:
        state = change_kernel(state, kernel_of(settings.kernel, plan.n_places, settings.slate_size), at_ms)
    return items.vacate(plan.vacated), state


def _plan(items: Items, state: State, wanted: int, *, settings: BanditSettings, at_ms: int) -> _Plan:
    n_places, retired = state.posterior.kernel.n_items, items.retired_places
    # A pending row may be of a slate whose deadline has passed and whose default reward is still to come.
    is_open = (items.open_until_ms[retired] > at_ms) | np.isin(retired, state.posterior.pending.rankings)
    by_end = retired[np.argsort(items.open_until_ms[retired], kind="stable")]
    ended, still_open = by_end[~np.isin(by_end, retired[is_open])], by_end[np.isin(by_end, retired[is_open])]
    short = wanted - (n_places - items.places_in_use)
    if short <= len(ended):
        return _Plan(np.sort(ended[: max(short, settings.item_capacity // _BATCH)]), n_places)
    short -= len(ended)
    grown = max(n_places, min(n_places + max(short, settings.item_capacity // _GROWTH), _most_places(settings)))
    return _Plan(np.sort(np.concatenate([ended, still_open[: max(short - (grown - n_places), 0)]])), grown)


def _most_places(settings: BanditSettings) -> int:
    return settings.item_capacity + MOST_RETIRED
