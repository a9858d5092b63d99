"""Rules of a slate on the wire, where positions are from 1, and why a slate does not show an item."""

from __future__ import annotations

from typing import Any

from topk_bandit.domain.rules import (
    Absence,
    AbsenceReason,
    Apart,
    Count,
    Exclude,
    Exposure,
    Filter,
    Frequency,
    Group,
    Pin,
    SlateRule,
)
from topk_bandit.v1 import recommender_service_pb2 as recommender_pb
from topk_bandit.v1 import rules_pb2 as pb
from topk_bandit.wire.forms import Enumeration, Form, Pair

__all__ = ["ABSENCE", "ABSENCE_REASONS", "RULE"]

ABSENCE_REASONS = Enumeration(AbsenceReason, recommender_pb.AbsenceReason)
ABSENCE = Form(Absence, recommender_pb.AbsentItem, parts={"reason": ABSENCE_REASONS})

_GROUP = Form(Group, pb.ItemGroup, parts={"value": Pair(read=lambda value: value or None)})
_KINDS: dict[str, tuple[type[Any], Pair | Form[Any, Any]]] = {
    "exclude": (Exclude, Form(Exclude, pb.ExcludedItems)),
    "filter": (Filter, Pair(lambda rule: rule.text, Filter)),
    "pin": (
        Pin,
        Form(
            Pin, pb.PinnedItems, parts={"position": Pair(lambda position: position + 1, lambda position: position - 1)}
        ),
    ),
    "count": (
        Count,
        Form(Count, pb.ItemCount, names={"least": "at_least", "most": "at_most"}, parts={"group": _GROUP}),
    ),
    "apart": (Apart, Pair(lambda rule: _GROUP.write(rule.group), lambda group: Apart(_GROUP.read(group)))),
    "exposure": (Exposure, Form(Exposure, pb.ItemExposure, parts={"group": _GROUP})),
    "frequency": (Frequency, Form(Frequency, pb.ItemFrequency, names={"most": "at_most"}, parts={"group": _GROUP})),
}
_FIELDS = {kind: name for name, (kind, _) in _KINDS.items()}


def _write(declared: SlateRule) -> pb.SlateRule:
    name = _FIELDS[type(declared.rule)]
    return pb.SlateRule(may_relax=declared.may_relax, **{name: _KINDS[name][1].write(declared.rule)})


def _read(message: pb.SlateRule) -> SlateRule:
    """Return the rule in a message, or raise `KeyError` if there is none."""
    name = message.WhichOneof("rule") or ""
    return SlateRule(_KINDS[name][1].read(getattr(message, name)), message.may_relax)


RULE = Pair(_write, _read)
"""A rule, and whether it may be relaxed. Nothing is checked: a rule that is read may be none of the bandit's items."""
