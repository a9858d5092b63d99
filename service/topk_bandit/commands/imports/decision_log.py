"""Rows of VW's decision logs (dsjson) as observations: CB, CCB and slates. Errors name the place in the row."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from topk_bandit.client.imports import PastObservation
from topk_bandit.commands.imports.cells import check_there
from topk_bandit.commands.imports.rows import read_value, require_value
from topk_bandit.compat.personalizer.features import fit_features, flatten
from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.domain.values import read_number, read_text, read_time

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from topk_bandit.commands.imports.cells import Named
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
        For the bandit's contexts.
    ignored
        Features that are passed over.
    """

    item: str
    schema: FeatureSchema
    ignored: frozenset[str] = frozenset()

    @classmethod
    def of(cls, flags: Named, *, schema: FeatureSchema | None) -> DecisionLog:
        """Return what flags such as ``item=TAction.topic`` say.

        Raises
        ------
        InvalidArgumentError
            The flags name more than ``item``, or the bandit has no schema.
        """
        named = flags.columns
        if others := sorted(named.keys() - {"item"}):
            raise InvalidArgumentError("--column", f"a decision log has no {others[0]!r}: only item can be named")
        if schema is None:
            raise InvalidArgumentError("bandit", "has no context schema, which names the log's features")
        return cls(named.get("item", _ITEM), schema, flags.ignored)

    def columns_of(self, values: Mapping[str, Any]) -> Iterable[str]:
        """Return the features of a row's context."""
        return self._read_features(values)

    def check_columns(self, columns: Collection[str]) -> list[str]:
        """Return the features that the bandit does not have; one that is passed over has to be there."""
        check_there("--ignore", sorted(self.ignored), columns)
        return sorted(set(columns) - {feature.name for feature in self.schema} - self.ignored)

    def read_row(self, values: Mapping[str, Any]) -> PastObservation:
        """Return the observation in a row: the reward is what the slots' costs come to, with the other sign."""
        if values.get("_skipLearn") is True:
            raise InvalidArgumentError("_skipLearn", "the slate was never shown")
        choices = _choices(values)
        return PastObservation(
            items=tuple(self._id(choice.action) for choice in choices),
            reward=0.0 - math.fsum(choice.cost for choice in choices),
            features=self._features(values),
            time=read_value("Timestamp", values.get("Timestamp"), read_time),
            propensity=math.prod(choice.probability for choice in choices),
        )

    def _features(self, values: Mapping[str, Any]) -> dict[str, Any]:
        lost = set[str]()
        read = {name: value for name, value in self._read_features(values, lost).items() if name not in self.ignored}
        found = fit_features(read, self.schema, lost=lost)
        for feature in [one for one in self.schema if one.name not in self.ignored]:
            if any(feature.name == name or feature.name.startswith(f"{name}.") for name in lost):
                raise InvalidArgumentError(f"c, {feature.name}", "is nothing that this feature of the bandit takes")
        return found

    @staticmethod
    def _read_features(values: Mapping[str, Any], lost: set[str] | None = None) -> dict[str, Any]:
        shared = values.get("c")
        if not isinstance(shared, dict):
            return {}
        named = {name: value for name, value in shared.items() if not name.startswith("_")}
        return flatten([_with_texts(named)], lost=lost)

    def _id(self, action: Mapping[str, Any]) -> str:
        found = list(_find_all(_with_texts(action), self.item.split(".")))
        try:
            ids = [text for text in map(read_text, found) if text is not None]
        except ValueError as error:
            raise InvalidArgumentError(f"c._multi, {self.item}", str(error)) from None
        if len(ids) != 1:
            problem = "has several there" if ids else "has no id there: name it by --column item="
            raise InvalidArgumentError(f"c._multi, {self.item}", f"an action {problem}")
        return ids[0]


def _find_all(value: object, path: Sequence[str]) -> Iterator[object]:
    """Yield what stands at a path, going through lists; a name may itself have dots."""
    if isinstance(value, list):
        for one in value:
            yield from _find_all(one, path)
    elif not path:
        yield value
    elif isinstance(value, dict):
        for end in range(1, len(path) + 1):
            yield from _find_all(value.get(".".join(path[:end])), path[end:])


def _with_texts(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object in which VW's ``"city=Paris": 1`` is the text Paris of city, and several are a list of texts.

    Raises
    ------
    InvalidArgumentError
        A name has a value beside such texts.
    """
    there = {name: value for name, value in values.items() if value is not None}
    found: dict[str, Any] = {name: _inner(value) for name, value in there.items() if not _is_text(name, value)}
    texts: dict[str, list[str]] = {}
    for name, value in there.items():
        if _is_text(name, value):
            feature, _, text = name.partition("=")
            texts.setdefault(feature, []).append(text)
    for feature, several in texts.items():
        if feature in found:
            raise InvalidArgumentError(f"c, {feature}", "is there twice")
        found[feature] = several[0] if len(several) == 1 else several
    return found


def _is_text(name: str, value: object) -> bool:
    feature, equals, _ = name.partition("=")
    return bool(equals and feature) and value == 1


def _inner(value: Any) -> Any:  # noqa: ANN401, whatever a log has
    if isinstance(value, dict):
        return _with_texts(value)
    return [_inner(one) for one in value] if isinstance(value, list) else value


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
    return [_of_slot(f"_outcomes[{slot}]", one, actions) for slot, one in enumerate(outcomes)]


def _of_one_slot(values: Mapping[str, Any], actions: Sequence[Mapping[str, Any]]) -> _Choice:
    """Return what a row of a contextual bandit has; its actions are numbered from 1."""
    number = values.get("_label_Action")
    index = number - 1 if type(number) is int else None
    action = _action("_label_Action", index, actions)
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
    for slot, outcome in enumerate(outcomes):
        own = [one for one in actions if one.get("_slot_id") == slot]
        cost = 0.0 if slot else _cost("", values)
        choices.append(_of_slot(f"_outcomes[{slot}]", {**outcome, "_label_cost": cost}, own))
    return choices


def _first(value: object) -> object:
    """Return the chosen one of a list, or the only one there is."""
    if isinstance(value, list):
        return value[0] if value else None
    return value


def _action(path: str, index: object, actions: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    if type(index) is not int or not 0 <= index < len(actions):
        raise InvalidArgumentError(path, f"names none of the {len(actions)} actions")
    return actions[index]


def _cost(path: str, values: Mapping[str, Any]) -> float:
    return require_value(f"{path}_label_cost", values.get("_label_cost"), read_number)


def _probability(path: str, value: object) -> float:
    probability = require_value(path, value, read_number)
    if not 0.0 < probability <= 1.0 + _ROUNDING:
        raise InvalidArgumentError(path, f"expected a probability above 0, got {value!r:.60}")
    return min(1.0, probability)
