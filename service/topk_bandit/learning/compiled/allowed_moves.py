"""Moves that the rules of a slate allow, and allowed slates to begin from.

`rules` is None where there are none: a function that has it is then compiled without all that is about them. Else it is
`_Moves`, which `prepare` makes of `topk_bandit.learning.slate_rules.SlateRules`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numba import njit

from topk_bandit.learning.compiled.arrays import (
    NOWHERE,
    ONE,
    ZERO,
    copy,
    count_up,
    fill,
    integers,
    zero_counts,
)
from topk_bandit.learning.compiled.moves import draw_slate, shows
from topk_bandit.learning.compiled.options import FOR_LOOPS, WITHOUT_LOCK

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "begin_at",
    "begin_early",
    "begin_somewhere",
    "exchange_is_allowed",
    "exchanges_of",
    "find_fitting",
    "free_positions",
    "list_near",
    "mark_down",
    "others_are_allowed",
    "prepare",
    "take_those_that_fit",
]

_MOST_TRIES = 2_000
"""A slate that is not completed after so many is the one that is known to keep the rules."""


class _Moves(NamedTuple):
    """Rules, what follows from them, and scratch.

    Attributes
    ----------
    admits, groups, least, most, kinds
        As of the rules.
    anchor
        A slate that keeps them, (k,).
    alone
        The item that alone may be at each position, -1 where several may, (k,).
    fits, counts
        Scratch, (E,) and (G,): which items fit at the position that was asked for last.
    """

    admits: NDArray[np.bool_]
    groups: NDArray[np.int64]
    least: NDArray[np.int64]
    most: NDArray[np.int64]
    kinds: NDArray[np.int64]
    anchor: NDArray[np.int64]
    alone: NDArray[np.int64]
    fits: NDArray[np.bool_]
    counts: NDArray[np.int64]


@njit(**FOR_LOOPS)
def prepare(rules, anchor):
    """Return rules and what searches need of them; None if there are none."""
    if rules is None:
        return None
    alone = integers(rules.admits.shape[0])
    for position in range(alone.shape[0]):
        alone[position] = _find_alone(rules, position)
    fits, counts = np.empty(rules.admits.shape[1], np.bool_), zero_counts(rules.least.shape[0])
    return _Moves(rules.admits, rules.groups, rules.least, rules.most, rules.kinds, anchor, alone, fits, counts)


@njit(**FOR_LOOPS)
def free_positions(rules, slate_size):
    """Return the positions where several items may be."""
    if rules is None:
        return count_up(slate_size)
    free, count = integers(slate_size), 0
    for a in range(slate_size):
        if rules.alone[a] < 0:
            free[count] = a
            count += 1
    return free[:count]


@njit(**FOR_LOOPS)
def _are_apart(kinds, item, other):
    for a in range(kinds.shape[1]):
        if kinds[item, a] < 0:
            break
        for b in range(kinds.shape[1]):
            if kinds[item, a] == kinds[other, b]:
                return False
    return True


@njit(**FOR_LOOPS)
def _fits_beside(kinds, slate, position, item):
    """Return whether an item is unlike those beside a position; -1 stands for one that is not known."""
    before, after = position - 1, position + 1
    if before >= 0 and slate[before] >= 0 and not _are_apart(kinds, item, slate[before]):
        return False
    return not (after < slate.shape[0] and slate[after] >= 0 and not _are_apart(kinds, item, slate[after]))


@njit(**FOR_LOOPS)
def _count(groups, item, counts, sign):
    for n in range(groups.shape[1]):
        if groups[item, n] >= 0:
            counts[groups[item, n]] += sign


@njit(**FOR_LOOPS)
def _has_room(rules, item, counts):
    for n in range(rules.groups.shape[1]):
        group = rules.groups[item, n]
        if group >= 0 and counts[group] >= rules.most[group]:
            return False
    return True


@njit(**FOR_LOOPS)
def _can_be_filled(rules, counts, free):
    for group in range(counts.shape[0]):  # noqa: SIM110 - compiled
        if rules.least[group] - counts[group] > free:
            return False
    return True


@njit(**FOR_LOOPS)
def _find_alone(rules, position):
    """Return the item that alone may be at a position; -1 if several may."""
    alone = -1
    for item in range(rules.admits.shape[1]):
        if rules.admits[position, item]:
            if alone >= 0:
                return -1
            alone = item
    return alone


@njit(**FOR_LOOPS)
def _count_short(rules, slate, position, counts):
    """Set `counts` to those of a slate without one position; return how many groups need just one item more.

    Returns -1 if no one item there makes the slate keep its bounds.
    """
    fill(counts, ZERO)
    for a in range(slate.shape[0]):
        if a != position:
            _count(rules.groups, slate[a], counts, 1)
    short = ZERO
    for group in range(counts.shape[0]):
        if counts[group] > rules.most[group] or rules.least[group] - counts[group] > 1:
            return NOWHERE
        if counts[group] < rules.least[group]:
            short += ONE
    return short


@njit(**FOR_LOOPS)
def _mark_fitting(admitted, groups, least, most, kinds, counts, short, before, after, fits):
    """Set `fits` to whether each item is admitted, keeps the bounds and is unlike the items before and after it.

    A tuple of arrays in a call costs a count of references for each of them: here are the arrays alone.
    """
    for item in range(fits.shape[0]):
        fit, needs = short >= 0 and admitted[item], ZERO
        for n in range(groups.shape[1]):
            group = groups[item, n]
            if group < 0 or not fit:
                break
            fit = counts[group] < most[group]
            if counts[group] < least[group]:
                needs += ONE
        fit = fit and needs == short
        for n in range(kinds.shape[1]):
            kind = kinds[item, n]
            if kind < 0 or not fit:
                break
            for other in range(kinds.shape[1]):
                if (before >= 0 and kinds[before, other] == kind) or (after >= 0 and kinds[after, other] == kind):
                    fit = False
        fits[item] = fit


@njit(**FOR_LOOPS)
def find_fitting(rules, slate, position):
    """Set `rules.fits` to whether the slate with each item at `position` keeps the rules, its own there among them.

    The other positions keep those rules that are about them alone.
    """
    short = _count_short(rules, slate, position, rules.counts)
    before = slate[position - 1] if position > 0 else NOWHERE
    after = slate[position + 1] if position + 1 < slate.shape[0] else NOWHERE
    _mark_fitting(
        rules.admits[position], rules.groups, rules.least, rules.most, rules.kinds, rules.counts, short, before, after,
        rules.fits,
    )  # fmt: skip
    for a in range(slate.shape[0]):
        if a != position:
            rules.fits[slate[a]] = False


@njit(**FOR_LOOPS)
def mark_down(rules, slate, position, scores, by):
    """Take `by` from the score of each item that may not be at a position of an allowed slate."""
    if rules is not None:
        find_fitting(rules, slate, position)
        for item in range(scores.shape[0]):
            if not rules.fits[item]:
                scores[item] -= by


@njit(**FOR_LOOPS)
def take_those_that_fit(rules, slate, position, among):
    """Return those of some items that may be at a position of an allowed slate."""
    if rules is None:
        return among
    find_fitting(rules, slate, position)
    fitting, count = integers(among.shape[0]), 0
    for item in among:
        if rules.fits[item]:
            fitting[count] = item
            count += 1
    return fitting[:count]


@njit(**FOR_LOOPS)
def _place_next(rules, order, first, free_after, counts, slate, position):
    """Put the first item of `order` that can be there, from the `first` on, at a position; return the place after it.

    Returns -1 if there is none.
    """
    for n in range(first, order.shape[0]):
        item = order[n]
        if not rules.admits[position, item] or shows(slate, item) or not _has_room(rules, item, counts):
            continue
        if not _fits_beside(rules.kinds, slate, position, item):
            continue
        _count(rules.groups, item, counts, 1)
        if _can_be_filled(rules, counts, free_after):
            slate[position] = item
            return n + 1
        _count(rules.groups, item, counts, -1)
    return -1


@njit(**FOR_LOOPS)
def begin_early(rules, order, slate):
    """Set `slate` to the first allowed one whose items come early in `order`; to the anchor if that takes too long."""
    free, cursors, counts = free_positions(rules, slate.shape[0]), zero_counts(slate.shape[0] + 1), rules.counts
    fill(counts, ZERO)
    for a in range(slate.shape[0]):
        slate[a] = rules.alone[a]
        if slate[a] >= 0:
            _count(rules.groups, slate[a], counts, 1)
    depth, tries = 0, 0
    while 0 <= depth < free.shape[0] and tries < _MOST_TRIES:
        a = free[depth]
        if slate[a] >= 0:
            _count(rules.groups, slate[a], counts, -1)
            slate[a] = NOWHERE
        after = _place_next(rules, order, cursors[depth], free.shape[0] - depth - 1, counts, slate, a)
        tries += order.shape[0] - cursors[depth] if after < 0 else after - cursors[depth]
        cursors[depth] = max(after, 0)
        depth += 1 if after >= 0 else -1
        if after >= 0:
            cursors[depth] = 0
    if depth < free.shape[0]:
        copy(slate, rules.anchor)


@njit(**FOR_LOOPS)
def _shuffle(order, uniform):
    """Set `order` to an order of 0 .. len(order) - 1 that a uniform number decides."""
    state = np.uint64(uniform * 2.0**53)
    for i in range(order.shape[0]):
        order[i] = i
    for i in range(order.shape[0] - 1):
        state = state * np.uint64(6364136223846793005) + np.uint64(1442695040888963407)
        j = i + np.int64((state >> np.uint64(33)) % np.uint64(order.shape[0] - i))
        order[i], order[j] = order[j], order[i]


@njit(**FOR_LOOPS)
def _put_first(order, slate):
    """Set `order` to the items of a slate, and then the others."""
    count = 0
    for a in range(slate.shape[0]):
        order[count] = slate[a]
        count += 1
    for item in range(order.shape[0]):
        if not shows(slate, item):
            order[count] = item
            count += 1


@njit(**FOR_LOOPS)
def begin_somewhere(rules, order, uniforms, slate):
    """Set `slate` to a random one that is allowed; `order` is scratch, and has as many items as there are."""
    if rules is None:
        draw_slate(order, uniforms, slate)
    else:
        _shuffle(order, uniforms[0])
        begin_early(rules, order, slate)


@njit(**FOR_LOOPS)
def begin_at(rules, order, start, slate):
    """Set `slate` to one that is allowed and has the items of `start`, as far as it can; `order` is scratch."""
    if rules is None:
        copy(slate, start)
    else:
        _put_first(order, start)
        begin_early(rules, order, slate)


@njit(**FOR_LOOPS)
def exchange_is_allowed(rules, slate, a, b):
    """Return whether two items of an allowed slate may change places."""
    if rules is None:
        return True
    if not rules.admits[a, slate[b]] or not rules.admits[b, slate[a]]:
        return False
    slate[a], slate[b] = slate[b], slate[a]
    allowed = _fits_beside(rules.kinds, slate, a, slate[a]) and _fits_beside(rules.kinds, slate, b, slate[b])
    slate[a], slate[b] = slate[b], slate[a]
    return allowed


@njit(**FOR_LOOPS)
def others_are_allowed(rules, slate, gap):
    """Return whether the items at all positions but one may be there and beside each other."""
    if rules is None:
        return True
    for a in range(slate.shape[0]):
        if a != gap and not rules.admits[a, slate[a]]:
            return False
        if a > 0 and gap not in (a, a - 1) and not _are_apart(rules.kinds, slate[a - 1], slate[a]):
            return False
    return True


@njit(**FOR_LOOPS)
def exchanges_of(rules, slate):
    """Return the slate and then each that is allowed and has two of its positions exchanged."""
    k = slate.shape[0]
    out, row = integers((1 + k * (k - 1) // 2, k)), 1
    copy(out[0], slate)
    for a in range(k):
        for b in range(a + 1, k):
            if exchange_is_allowed(rules, slate, a, b):
                copy(out[row], slate)
                out[row, a] = slate[b]
                out[row, b] = slate[a]
                row += 1
    return out[:row]


@njit(**WITHOUT_LOCK)
def list_near(rules, slate):
    """Return which items may take the place of each of an allowed slate's, (k, E), and which exchanges are allowed."""
    k = slate.shape[0]
    moves = prepare(rules, slate)
    fits, exchanges, count = np.empty(rules.admits.shape, np.bool_), integers((k * (k - 1) // 2, 2)), 0
    for position in range(k):
        find_fitting(moves, slate, position)
        for item in range(fits.shape[1]):
            fits[position, item] = moves.fits[item]
        fits[position, slate[position]] = False
    for a in range(k):
        for b in range(a + 1, k):
            if exchange_is_allowed(moves, slate, a, b):
                exchanges[count, 0] = a
                exchanges[count, 1] = b
                count += 1
    return fits, exchanges[:count]
