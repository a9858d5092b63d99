"""What may be shown to a request: the items, and the slates of them that rules allow.

The rules are the bandit's, then the request's. What the bandit's own leave of all items is worked out once for a change
of items, or of what is new among them; see decision 86.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from topk_bandit.domain.errors import CorruptDataError, InvalidArgumentError
from topk_bandit.domain.rules import (
    MAX_RULES,
    Apart,
    Count,
    Exclude,
    Exposure,
    Filter,
    Frequency,
    check_rules,
    describe_rule,
    is_about_new,
)
from topk_bandit.domain.slates import rules_of
from topk_bandit.learning.id_index import NOWHERE
from topk_bandit.learning.relaxed_rules import complete_slate, relax_rules
from topk_bandit.learning.slate_rules import Candidates, compile_rules, keep_rules
from topk_bandit.learning.warm_up import are_rules_compiled
from topk_bandit.store.visits import frequencies_of

if TYPE_CHECKING:
    from collections.abc import Hashable

    from numpy.typing import NDArray

    from topk_bandit.bandits.catalogue import Catalogue
    from topk_bandit.bandits.model import Model
    from topk_bandit.domain.rules import Rule, SlateRule
    from topk_bandit.domain.slates import Recommendation, RecommendationRequest
    from topk_bandit.learning.allowed_slates import AllowedSlates
    from topk_bandit.learning.slate_rules import SlateRules

__all__ = [
    "Showable",
    "check_request_rules",
    "complete_baseline",
    "find_broken_rule",
    "find_showable",
    "is_quickly_checked",
    "is_quickly_found",
    "place_among",
]

SIZE_AT_ONCE, ITEMS_AT_ONCE = 1000, 512
"""So many excluded ids and characters of filters are asked of so many items on the event loop: half a millisecond.
What slates may be shown takes up to a second to find."""

SIZE_OF_CHECK = 250
"""As many characters of a filter take as long as the check of one slate by another rule."""


@dataclass(frozen=True, slots=True, eq=False)
class Showable:
    """Items, and the slates of them that may be shown.

    Attributes
    ----------
    places
        Of the items, ascending, shape (E,).
    allowed
        The slates, as places of these items; None for all of them.
    kept
        The rules that they keep.
    relaxed
        Those that were given up, in words.
    rules, candidates
        The rules over these items, and the items that could be shown but for the rules; None without rules.
    """

    places: NDArray[np.int32]
    allowed: AllowedSlates | None = None
    rules: SlateRules | None = None
    kept: tuple[Rule, ...] = ()
    relaxed: tuple[str, ...] = ()
    candidates: Candidates | None = None

    def rules_among(self, items: NDArray[np.int32]) -> SlateRules | None:
        """Return the rules over some of the items, by their places; None where all slates of them are allowed."""
        if self.allowed is None:
            return None
        return self.allowed.rules.among(np.searchsorted(self.places, items))


def find_showable(
    model: Model, request: RecommendationRequest, eligible: NDArray[np.int32], also: tuple[SlateRule, ...] = ()
) -> Showable:
    """Return what may be shown to a request.

    Parameters
    ----------
    eligible
        Places of the items that may be shown but for the rules, ascending: at least as many as a slate has.
    also
        Rules that the slate keeps besides.

    Raises
    ------
    NotReadyError
        RULES_CLASH: no slate keeps the rules that may not be given up.
    ExhaustedError
        RULES_TOO_ENTANGLED: whether one does takes too long to find.
    """
    if not (rules_of(model.settings, request) or also):
        return Showable(eligible)
    if not _is_of_all(request):
        return _work_out(model, request, eligible, also)
    return _catalogue_of(model).keep(_key_of(model, also), lambda: _work_out(model, request, eligible, also))


def check_request_rules(model: Model, request: RecommendationRequest) -> None:
    """Raise `InvalidArgumentError` for rules of a request that are none of the bandit's slates and items."""
    settings, n_rules = model.settings, len(rules_of(model.settings, request))
    if n_rules > MAX_RULES:
        raise InvalidArgumentError("rules", f"are {n_rules} with the bandit's own, more than {MAX_RULES}")
    check_rules([one.rule for one in request.rules], settings.item_schema or (), settings.slate_size)
    for place, one in enumerate(request.rules):
        if isinstance(one.rule, Exposure):
            raise InvalidArgumentError(f"rules[{place}].exposure", "is a rule of a bandit, and no request has one")


def is_quickly_found(model: Model, request: RecommendationRequest) -> bool:
    """Return whether what may be shown is found in no time: it is known, or few items are asked for their features."""
    rules = rules_of(model.settings, request)
    if not rules:
        return True
    if request.explain or model.exposures.is_anything_owed:
        return False
    if _is_of_all(request) and _catalogue_of(model).has(_key_of(model)):
        return are_rules_compiled()
    size = sum(_size_of(one.rule) for one in rules)
    return size <= SIZE_AT_ONCE and model.items.index.n_places <= ITEMS_AT_ONCE


def is_quickly_checked(model: Model, request: RecommendationRequest) -> bool:
    """Return whether `find_broken_rule` takes about as long as it would take to hand it to a thread."""
    return sum(_size_of(one.rule, of_slates=SIZE_OF_CHECK) for one in rules_of(model.settings, request)) <= SIZE_AT_ONCE


def _size_of(rule: Rule, *, of_slates: float = math.inf) -> float:
    """Return how much there is to ask of items; of the slates that there are it may be anything."""
    match rule:
        case Exclude(item_ids):
            return len(item_ids)
        case Filter(text):
            return len(text)
        case Exposure() | Frequency():  # what a visitor has seen is few items or values
            return 0
        case _:
            return of_slates


def complete_baseline(
    model: Model, request: RecommendationRequest, slate: tuple[str, ...], eligible: NDArray[np.int32]
) -> tuple[Showable, tuple[str, ...]]:
    """Return what can be shown, and of that the slate that has most items of a baseline slate at their places.

    Its own items may be shown besides those that are eligible. The errors are those of `find_showable`.
    """
    if not rules_of(model.settings, request):
        return Showable(eligible), slate
    own = model.items.find_indices(slate)
    showable = _work_out(model, request, np.union1d(eligible, own).astype(np.int32))
    places = np.array([place_among(showable.places, place) for place in own.tolist()], dtype=np.int64)
    completed = None if showable.rules is None else complete_slate(showable.rules, places)
    if completed is None:
        raise AssertionError("rules that some slate keeps allow none")
    return showable, model.items.find_ids(showable.places[completed])


def find_broken_rule(model: Model, request: RecommendationRequest, given: Recommendation) -> Rule | None:
    """Return the first rule that a slate breaks which was given out before, by the bandit's rules and the items of now.

    What was given up then may be broken; and what was new then need not be new any more.
    """
    rules = [one.rule for one in rules_of(model.settings, request)]
    if not rules:
        return None
    # Only its own items are asked, however many the bandit has: they are a table in the order of the slate.
    shown = Candidates(_catalogue_of(model).table.select(model.items.find_indices(given.slate)))
    for rule in rules:
        is_excused = describe_rule(rule) in given.relaxed or is_about_new(rule)
        if not (is_excused or _keeps(rule, shown)):
            return rule
    return None


def _keeps(rule: Rule, shown: Candidates) -> bool:
    """Return whether the slate of all items of a table, in their order, keeps a rule."""
    size = len(shown.items)
    compiled = compile_rules([rule], shown, size)
    if compiled is None or len(compiled.places) < size:
        return False
    return bool(keep_rules(compiled.rules, np.arange(size)[None])[0])


def _work_out(
    model: Model, request: RecommendationRequest, eligible: NDArray[np.int32], also: tuple[SlateRule, ...] = ()
) -> Showable:
    settings, rules = model.settings, (*rules_of(model.settings, request), *also)
    reached = dict(zip(frequencies_of(settings, request), request.reached, strict=False))
    candidates = Candidates(_catalogue_of(model).table, eligible, model.items.learned_counts, reached)
    found = relax_rules(rules, candidates, settings.slate_size, own=len(settings.rules))
    binds = _binds(found.allowed.rules)
    if binds and settings.exploration.uniform_share:
        _ = found.allowed.count  # by one thread, and once for all that ask
    return Showable(
        found.places.astype(np.int32),
        found.allowed if binds else None,
        found.allowed.rules,
        tuple(rules[place].rule for place in found.kept),
        tuple(describe_rule(rules[place].rule) for place in found.given_up),
        candidates,
    )


def _binds(rules: SlateRules) -> bool:
    """Return whether some slate of the items that rules leave breaks them."""
    return bool(len(rules.least) or rules.kinds.shape[1] or not rules.admits.all())


def _is_of_all(request: RecommendationRequest) -> bool:
    """Return whether what may be shown is the same for all requests that ask for no more than this one."""
    return request.candidates is None and not (request.rules or request.reached)


def _key_of(model: Model, also: tuple[SlateRule, ...] = ()) -> Hashable:
    rules = (*model.settings.rules, *also)
    most = max((_novelty_of(one.rule) for one in rules), default=0)
    new = np.minimum(model.items.learned_counts, most).tobytes() if most else b""
    return rules, bool(model.settings.exploration.uniform_share), new


def _novelty_of(rule: Rule) -> int:
    """Return up to how many slates an item is new to a rule that asks for new ones, else 0."""
    return rule.group.shown_fewer_than if isinstance(rule, Count | Apart) else 0


def _catalogue_of(model: Model) -> Catalogue:
    if model.items.catalogue is None:
        raise CorruptDataError("a snapshot of the first data version has no features of items, which rules ask for")
    return model.items.catalogue


def place_among(places: NDArray[np.integer], place: int) -> int:
    """Return where a place stands among others, which ascend; `NOWHERE` if it is none of them."""
    at = int(np.searchsorted(places, place))
    return at if at < len(places) and places[at] == place else NOWHERE
