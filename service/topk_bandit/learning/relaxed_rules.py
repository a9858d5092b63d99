"""What is done where rules are broken: some are given up if no slate keeps all; a slate that breaks some is mended."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from topk_bandit.learning.allowed_slates import AllowedSlates
from topk_bandit.learning.slate_rules import Effort, compile_rules, find_clash, find_slate, refuse_clash

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from topk_bandit.domain.rules import SlateRule
    from topk_bandit.learning.slate_rules import Candidates, SlateRules

__all__ = ["Relaxed", "complete_slate", "relax_rules"]


class Relaxed(NamedTuple):
    """Rules that some slate keeps.

    Attributes
    ----------
    kept, given_up
        Places of the rules among those that were declared, ascending.
    places
        The items that are left by those that are kept, as places among all items, shape (E,), ascending.
    allowed
        The slates that these rules allow, as places of `places`: there is one.
    """

    kept: tuple[int, ...]
    given_up: tuple[int, ...]
    places: NDArray[np.int64]
    allowed: AllowedSlates


def relax_rules(rules: Sequence[SlateRule], candidates: Candidates, slate_size: int, *, own: int = 0) -> Relaxed:
    """Give up rules that may be relaxed, from the last one on, until a slate keeps the others.

    Parameters
    ----------
    rules
        Those of the bandit and then those of the request; checked by `topk_bandit.domain.rules.check_rules`.
    candidates
        At least as many as a slate has items.
    own
        As of `topk_bandit.learning.slate_rules.refuse_clash`.

    Raises
    ------
    NotReadyError
        RULES_CLASH: no slate keeps those that may not be relaxed. The error names some that clash.
    ExhaustedError
        As of `topk_bandit.learning.slate_rules.find_slate`.
    """
    every = [declared.rule for declared in rules]
    may_relax = [place for place, declared in enumerate(rules) if declared.may_relax]
    effort = Effort()
    for count in range(len(may_relax) + 1):
        given_up = may_relax[len(may_relax) - count :]
        kept = [place for place in range(len(rules)) if place not in given_up]
        effort.spend_on_items(kept_rules := [every[place] for place in kept], candidates)
        compiled = compile_rules(kept_rules, candidates, slate_size)
        allowed = None if compiled is None else AllowedSlates(compiled.rules, effort)
        if compiled is not None and allowed is not None and allowed.first is not None:
            return Relaxed(tuple(kept), tuple(given_up), compiled.places, allowed)
    clash = find_clash(kept_rules, candidates, slate_size, effort)
    refuse_clash(every, [kept[place] for place in clash], own=own)
    raise AssertionError("rules that no slate keeps do not clash")


def complete_slate(rules: SlateRules, slate: NDArray[np.integer]) -> NDArray[np.int64] | None:
    """Return the allowed slate that keeps the most items of one slate at their positions; None if none is allowed.

    Among slates that keep as many it keeps the items of the earliest positions,
    and `find_slate` says which items come in the places of others. So it is a function of the rules and the slate, and
    a slate that keeps the rules is returned as it is.

    Parameters
    ----------
    slate
        Places of the rules' items, distinct; -1 where the item is none of these, shape (k,).

    Raises
    ------
    ExhaustedError
        As of `find_slate`.
    """
    may_stay = [p for p, item in enumerate(slate.tolist()) if item >= 0 and rules.admits[p, item]]
    known: dict[tuple[int, ...], NDArray[np.int64] | None] = {}
    effort = Effort()

    def complete(kept: tuple[int, ...]) -> NDArray[np.int64] | None:
        if kept not in known:
            known[kept] = find_slate(_with(rules, slate, kept), effort)
        return known[kept]

    def keep_most(kept: tuple[int, ...], next_place: int, most_given_up: int) -> NDArray[np.int64] | None:
        if complete(kept) is None:
            return None
        if next_place == len(may_stay):
            return complete(kept)
        found = keep_most((*kept, may_stay[next_place]), next_place + 1, most_given_up)
        if found is None and most_given_up:
            return keep_most(kept, next_place + 1, most_given_up - 1)
        return found

    return next((one for n in range(len(may_stay) + 1) if (one := keep_most((), 0, n)) is not None), None)


def _with(rules: SlateRules, slate: NDArray[np.integer], kept: Sequence[int]) -> SlateRules:
    """Return the rules that have some items of a slate at their positions."""
    admits, positions = rules.admits.copy(), list(kept)
    items = slate[positions]
    admits[positions], admits[:, items] = False, False
    admits[positions, items] = True
    return rules._replace(admits=admits)
