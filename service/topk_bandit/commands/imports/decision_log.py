"""Rows of VW's decision logs (dsjson) as observations: CB, CCB and slates. Errors name the place in the row."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from topk_bandit.client.imports import PastObservation
from topk_bandit.commands.imports.cells import columns_named
from topk_bandit.compat.personalizer.features import fit_features, flatten
from topk_bandit.domain.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from topk_bandit.domain.features import FeatureSchema

__all__ = ["DecisionLog"]

_ITEM = "_tag"
_ROUNDING = 1e-6
"""Probabilities are written as single floats: those that add up to 1 may be a little more."""


@dataclass(frozen=True, slots=True)
class _Choice:
    """What one slot showed: an action of the row, with what probability, at what cost."""

    action: Mapping[str, Any]
    probability: float
    cost: float


@dataclass(frozen=True, slots=True)
class DecisionLog:
    """How to read a log.

    Attributes
    ----------
    item
        Path to the id in an action, with dots, such as ``TAction.topic``.
    schema
        Of the bandit's contexts.
    """

    item: str
    schema: FeatureSchema

    @classmethod
    def of(cls, told: Sequence[str], *, schema: FeatureSchema | None) -> DecisionLog:
        """Return what texts such as ``item=TAction.topic`` say.

        Raises
        ------
        InvalidArgumentError
            Another name than ``item`` is told, or the bandit has no schema.
        """
        named = columns_named(told)
        if others := sorted(named.keys() - {"item"}):
            raise InvalidArgumentError("--column", f"a decision log has no {others[0]!r}: only item can be named")
        if schema is None:
            raise InvalidArgumentError("bandit", "has no context schema, which names the log's features")
        return cls(named.get("item", _ITEM), schema)

    def passed_over(self, values: Mapping[str, Any]) -> list[str]:
        """Return the features of a row's context that the bandit does not have."""
        known = {feature.name for feature in self.schema}
        return sorted(self._read_features(values).keys() - known)

    def read(self, values: Mapping[str, Any]) -> PastObservation:
        """Return the observation in a row: the reward is what the slots' costs come to, with the other sign."""
        if values.get("_skipLearn") is True:
            raise InvalidArgumentError("_skipLearn", "the slate was never shown")
        choices = _choices(values)
        time = values.get("Timestamp")
        return PastObservation(
            items=tuple(self._id(choice.action) for choice in choices),
            reward=0.0 - math.fsum(choice.cost for choice in choices),
            features=fit_features(self._read_features(values), self.schema),
            time=None if time is None else _time(time),
            propensity=math.prod(choice.probability for choice in choices),
        )

    def _read_features(self, values: Mapping[str, Any]) -> dict[str, Any]:
        shared = values.get("c")
        return flatten([_with_texts(shared)]) if isinstance(shared, dict) else {}

    def _id(self, action: Mapping[str, Any]) -> str:
        found: Any = action
        for part in self.item.split("."):
            found = found.get(part) if isinstance(found, dict) else None
        if not isinstance(found, str | int) or isinstance(found, bool) or found == "":
            raise InvalidArgumentError(f"c._multi, {self.item}", "an action has no id there: name it by --column item=")
        return str(found)


def _with_texts(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object in which VW's ``"city=Paris": 1`` is the text Paris of city."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        feature, equals, text = name.partition("=")
        if isinstance(value, dict):
            found[name] = _with_texts(value)
        elif equals and feature and value == 1:
            found[feature] = text
        else:
            found[name] = value
    return found


def _choices(values: Mapping[str, Any]) -> list[_Choice]:
    context = values.get("c")
    actions = context.get("_multi") if isinstance(context, dict) else None
    if not isinstance(actions, list) or not all(isinstance(one, dict) for one in actions):
        raise InvalidArgumentError("c._multi", "is missing: the row is no decision")
    outcomes = values.get("_outcomes")
    if outcomes is None:
        return [_of_one_slot(values, actions)]
    if not isinstance(outcomes, list) or not outcomes or not all(isinstance(one, dict) for one in outcomes):
        raise InvalidArgumentError("_outcomes", "must be a list of objects")
    if any("_slot_id" in one for one in actions):
        return _of_slates(values, actions, outcomes)
    return [_of_slot(f"_outcomes[{place}]", one, actions) for place, one in enumerate(outcomes)]


def _of_one_slot(values: Mapping[str, Any], actions: Sequence[Mapping[str, Any]]) -> _Choice:
    """Return what a row of a contextual bandit has; its actions are numbered from 1."""
    number = values.get("_label_Action")
    place = number - 1 if type(number) is int else None
    action = _action("_label_Action", place, actions)
    probability = _probability("_label_probability", values.get("_label_probability"))
    return _Choice(action, probability, _cost("", values))


def _of_slot(path: str, outcome: Mapping[str, Any], actions: Sequence[Mapping[str, Any]]) -> _Choice:
    action = _action(f"{path}._a", _first(outcome.get("_a")), actions)
    return _Choice(action, _probability(f"{path}._p", _first(outcome.get("_p"))), _cost(f"{path}.", outcome))


def _of_slates(
    values: Mapping[str, Any], actions: Sequence[Mapping[str, Any]], outcomes: Sequence[Mapping[str, Any]]
) -> list[_Choice]:
    """Return what a row of slates has: each slot has actions of its own, and one cost is for all."""
    choices = []
    for place, outcome in enumerate(outcomes):
        own = [one for one in actions if one.get("_slot_id") == place]
        cost = 0.0 if place else _cost("", values)
        choices.append(_of_slot(f"_outcomes[{place}]", {**outcome, "_label_cost": cost}, own))
    return choices


def _first(value: object) -> object:
    """Return the chosen one of a list, or the only one there is."""
    if isinstance(value, list):
        return value[0] if value else None
    return value


def _action(path: str, place: object, actions: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    if type(place) is not int or not 0 <= place < len(actions):
        raise InvalidArgumentError(path, f"names none of the {len(actions)} actions")
    return actions[place]


def _cost(path: str, values: Mapping[str, Any]) -> float:
    cost = values.get("_label_cost")
    if not isinstance(cost, int | float) or isinstance(cost, bool) or not math.isfinite(cost):
        raise InvalidArgumentError(f"{path}_label_cost", f"expected a finite number, got {cost!r:.60}")
    return float(cost)


def _probability(path: str, value: object) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0.0 < value <= 1.0 + _ROUNDING:
        raise InvalidArgumentError(path, f"expected a probability above 0, got {value!r:.60}")
    return min(1.0, float(value))


def _time(value: object) -> datetime:
    try:
        time = datetime.fromisoformat(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise InvalidArgumentError("Timestamp", f"expected a time of ISO 8601, got {value!r:.60}") from None
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)
