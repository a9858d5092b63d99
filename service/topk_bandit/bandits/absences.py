"""Why a slate does not show items: a function of a model, a request, what could be shown to it, and the slate."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from topk_bandit.bandits.showable import place_among
from topk_bandit.domain.errors import ExhaustedError
from topk_bandit.domain.features import NO_FEATURES
from topk_bandit.domain.filters import accepts
from topk_bandit.domain.rules import Absence, AbsenceReason, Exclude, Filter, Frequency, describe_rule
from topk_bandit.learning.id_index import NOWHERE
from topk_bandit.learning.slate_rules import Effort, compile_rules, find_slate, places_reached

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topk_bandit.bandits.model import Model
    from topk_bandit.bandits.showable import Showable
    from topk_bandit.domain.features import Features
    from topk_bandit.domain.rules import Rule
    from topk_bandit.domain.slates import RecommendationRequest
    from topk_bandit.learning.slate_rules import SlateRules

__all__ = ["explain_absences"]


def explain_absences(
    model: Model, request: RecommendationRequest, showable: Showable, slate: Sequence[str]
) -> tuple[Absence, ...]:
    """Return those items that a request asks about and its slate does not show, with the first reason that holds.

    A rule that was given up is no reason.
    """
    possible = _Possible(showable, model.settings.slate_size)
    return tuple(_explain(model, request, possible, item_id) for item_id in request.explain if item_id not in slate)


def _explain(model: Model, request: RecommendationRequest, possible: _Possible, item_id: str) -> Absence:
    items = model.items
    if not items.knows(item_id):
        return Absence(item_id, AbsenceReason.UNKNOWN)
    if items.find_hidden((item_id,)):
        return Absence(item_id, AbsenceReason.UNAVAILABLE)
    if request.candidates is not None and item_id not in request.candidates:
        return Absence(item_id, AbsenceReason.NO_CANDIDATE)
    place = int(items.find_indices([item_id])[0])
    features = items.features_of(item_id) if possible.kept else NO_FEATURES
    for rule in possible.kept:
        reason = _reason_of(rule, item_id, features)
        if possible.is_frequent(rule, place):
            reason = AbsenceReason.FREQUENT
        if reason is not None:
            return Absence(item_id, reason, describe_rule(rule))
    return possible.explain(item_id, place)


def _reason_of(rule: Rule, item_id: str, features: Features) -> AbsenceReason | None:
    """Return why a rule keeps an item out of each slate, None if it does not do so by itself."""
    if isinstance(rule, Exclude) and item_id in rule.item_ids:
        return AbsenceReason.EXCLUDED
    if isinstance(rule, Filter) and not accepts(rule.condition, features):
        return AbsenceReason.FILTERED
    return None


class _Possible:
    """Which items some allowed slate shows; items that rules do not tell apart are asked for once."""

    def __init__(self, showable: Showable, slate_size: int) -> None:
        self.kept = showable.kept
        self._showable, self._slate_size = showable, slate_size
        self._known: dict[bytes, tuple[AbsenceReason, str]] = {}
        self._frequent: dict[Frequency, set[int]] = {}
        self._effort = Effort()

    def is_frequent(self, rule: Rule, place: int) -> bool:
        """Return whether a rule keeps an item out because the visitor has seen it often enough."""
        candidates = self._showable.candidates
        if candidates is None or not isinstance(rule, Frequency):
            return False
        if rule not in self._frequent:
            self._frequent[rule] = {*places_reached(rule, candidates).tolist()}
        return place in self._frequent[rule]

    def explain(self, item_id: str, place: int) -> Absence:
        """Return whether an item could be shown, and if not by which rule."""
        rules = self._showable.rules
        if rules is None:
            return Absence(item_id, AbsenceReason.NOT_CHOSEN)
        at = place_among(self._showable.places, place)
        if at == NOWHERE:
            return Absence(item_id, AbsenceReason.RULE, self._find_rule(place))
        kind = _kind_of(rules, at)
        if kind not in self._known:
            is_possible = _can_show(rules, at, self._effort)
            self._known[kind] = (
                (AbsenceReason.NOT_CHOSEN, "") if is_possible else (AbsenceReason.RULE, self._find_rule(place))
            )
        return Absence(item_id, *self._known[kind])

    def _find_rule(self, place: int) -> str:
        """Return the last rule without which an item could be shown, in words; empty if no rule keeps it out alone."""
        if self._showable.candidates is None:
            return ""
        for number in reversed(range(len(self.kept))):
            others = self.kept[:number] + self.kept[number + 1 :]
            try:
                self._effort.spend_on_items(others, self._showable.candidates)
            except ExhaustedError:
                return ""
            compiled = compile_rules(others, self._showable.candidates, self._slate_size)
            at = NOWHERE if compiled is None else place_among(compiled.places, place)
            if compiled is not None and at != NOWHERE and _can_show(compiled.rules, at, self._effort):
                return describe_rule(self.kept[number])
        return ""


def _kind_of(rules: SlateRules, place: int) -> bytes:
    """Return what rules know of an item."""
    return b"".join(part.tobytes() for part in (rules.admits[:, place], rules.groups[place], rules.kinds[place]))


def _can_show(rules: SlateRules, item: int, effort: Effort) -> bool:
    """Return whether a slate that keeps rules shows an item; it is taken to be so where that takes too long to find."""
    alone = np.full((len(rules.groups), 1), -1)
    alone[item] = len(rules.least)
    with_it = rules._replace(
        groups=np.concatenate([rules.groups, alone], axis=1),
        least=np.append(rules.least, 1),
        most=np.append(rules.most, 1),
    )
    try:
        effort.spend(len(rules.groups) // 8)
        return find_slate(with_it, effort) is not None
    except ExhaustedError:
        return True
