"""Rows of VW's decision logs (dsjson) as observations: CB, CCB and slates. Errors name the place in the row."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from topk_bandit.client.imports import PastObservation
from topk_bandit.commands.imports.cells import check_there
from topk_bandit.commands.imports.namespaces import Namespaces, feature_error, find_all, with_texts
from topk_bandit.compat.personalizer.features import fit_features, flatten
from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.domain.values import read_boolean, read_number, read_text, read_time, shorten
from topk_bandit.tables.rows import read_value, require_value

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from topk_bandit.commands.imports.cells import Named
    from topk_bandit.domain.features import FeatureSchema
    from topk_bandit.tables.rows import FileRow

__all__ = ["DecisionLog"]

_ITEM = "_tag"
_ROUNDING = 1e-6
"""Probabilities are written as single floats: those that add up to 1 may be a little more."""


@dataclass(frozen=True, slots=True)
class _Choice:
    """What one slot showed: an action of the row, with what probability, at what cost.

    `is_own_cost` says whether that is the slot's alone.
    """

    action: Mapping[str, Any]
    probability: float
    cost: float
    is_own_cost: bool = False


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

    @staticmethod
    def once(rows: Iterator[FileRow]) -> Iterator[FileRow]:
        """Return the rows; one whose ``EventId`` was there before stands for an error, since logs repeat rows."""
        seen = set[str]()
        for row in rows:
            event_id = None if isinstance(row.values, InvalidArgumentError) else row.values.get("EventId")
            if isinstance(event_id, str) and event_id in seen:
                problem = f"{event_id!r:.60} was there before; --skip-bad-rows leaves such rows out"
                yield replace(row, values=InvalidArgumentError("EventId", problem))
                continue
            seen |= {event_id} if isinstance(event_id, str) and event_id else set()
            yield row

    def columns_of(self, values: Mapping[str, Any]) -> Iterable[str]:
        """Return the features of a row's context."""
        return self._read_features(values)

    def check_columns(self, columns: Collection[str]) -> list[str]:
        """Return the features that the bandit does not have; one that is passed over has to be there."""
        check_there("--ignore", sorted(self.ignored), columns)
        return sorted(set(columns) - {feature.name for feature in self.schema} - self.ignored)

    def read_row(self, values: Mapping[str, Any]) -> PastObservation:
        """Return the observation in a row: the reward is what the slots' costs come to, with the other sign.

        So are the values of the items where each slot has a cost.
        """
        try:
            choices = _choices(values)
        except InvalidArgumentError as error:
            raise InvalidArgumentError(error.field, f"{error.problem}; --skip-bad-rows leaves such rows out") from None
        items = tuple(self._id(choice.action) for choice in choices)
        of_items = {item: 0.0 - one.cost for item, one in zip(items, choices, strict=True) if one.is_own_cost}
        return PastObservation(
            items=items,
            reward=0.0 - math.fsum(choice.cost for choice in choices),
            features=self._features(values),
            time=read_value("Timestamp", values.get("Timestamp"), read_time),
            propensity=math.prod(choice.probability for choice in choices),
            item_values=of_items or None,
        )

    @property
    def _wanted(self) -> FeatureSchema:
        return tuple(feature for feature in self.schema if feature.name not in self.ignored)

    def _features(self, values: Mapping[str, Any]) -> dict[str, Any]:
        lost = dict[str, str]()
        read = {name: value for name, value in self._read_features(values, lost).items() if name not in self.ignored}
        found = fit_features(read, self._wanted, lost=lost)
        for feature in self._wanted:
            name = next((one for one in lost if one == feature.name or feature.name.startswith(f"{one}.")), None)
            if name is not None:
                raise feature_error(feature.name, lost[name], at=name)
        return found

    def _read_features(self, values: Mapping[str, Any], lost: dict[str, str] | None = None) -> dict[str, Any]:
        shared = values.get("c")
        if not isinstance(shared, dict):
            return {}
        named = {name: value for name, value in shared.items() if not name.startswith("_")}
        return flatten([Namespaces(self._wanted).read(with_texts("c", named))], lost=lost)

    def _id(self, action: Mapping[str, Any]) -> str:
        place = f"c._multi, {self.item}"
        found = list(find_all(with_texts("c._multi", action), self.item.split(".")))
        try:
            ids = [text for text in map(read_text, found) if text is not None]
        except ValueError as error:
            raise InvalidArgumentError(place, f"{error}: name the path to an id by --column item=") from None
        if len(ids) != 1:
            problem = f"has several there, {shorten(ids)}" if ids else "has no id there"
            raise InvalidArgumentError(place, f"an action {problem}: name it by --column item=, got {shorten(action)}")
        return ids[0]


def _choices(values: Mapping[str, Any]) -> list[_Choice]:
    if read_value("_skipLearn", values.get("_skipLearn"), read_boolean):
        raise InvalidArgumentError("_skipLearn", "is true: the slate was never shown")
    context = values.get("c")
    actions = context.get("_multi") if isinstance(context, dict) else None
    if not isinstance(actions, list) or not all(isinstance(one, dict) for one in actions):
        got = "is missing" if actions is None else f"expected a list of objects, got {shorten(actions)}"
        raise InvalidArgumentError("c._multi", f"{got}: the row is no decision")
    outcomes = values.get("_outcomes")
    if outcomes is None:
        return [_of_one_slot(values, actions)]
    if not isinstance(outcomes, list) or not outcomes or not all(isinstance(one, dict) for one in outcomes):
        raise InvalidArgumentError("_outcomes", f"expected a list of objects, got {shorten(outcomes)}")
    if any("_slot_id" in one for one in actions):
        return _of_slates(values, actions, outcomes)
    choices = [_of_slot(f"_outcomes[{slot}]", one, actions) for slot, one in enumerate(outcomes)]
    return [replace(one, is_own_cost=True) for one in choices]


def _of_one_slot(values: Mapping[str, Any], actions: Sequence[Mapping[str, Any]]) -> _Choice:
    """Return what a row of a contextual bandit has; its actions are numbered from 1."""
    action = _action("_label_Action", values.get("_label_Action"), actions, first=1)
    index = values.get("_labelIndex")
    if index is not None and _action("_labelIndex", index, actions) is not action:
        problem = f"says that action {shorten(index)} was shown, from 0 on, and _label_Action {values['_label_Action']}"
        raise InvalidArgumentError("_labelIndex", f"{problem}, from 1 on")
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


def _action(path: str, index: object, actions: Sequence[Mapping[str, Any]], *, first: int = 0) -> Mapping[str, Any]:
    if type(index) is not int or not first <= index < len(actions) + first:
        raise InvalidArgumentError(path, f"names none of the {len(actions)} actions, got {shorten(index)}")
    return actions[index - first]


def _cost(path: str, values: Mapping[str, Any]) -> float:
    return require_value(f"{path}_label_cost", values.get("_label_cost"), read_number)


def _probability(path: str, value: object) -> float:
    probability = require_value(path, value, read_number)
    if not 0.0 < probability <= 1.0 + _ROUNDING:
        raise InvalidArgumentError(path, f"expected a probability above 0 and at most 1, got {shorten(value)}")
    return min(1.0, probability)
