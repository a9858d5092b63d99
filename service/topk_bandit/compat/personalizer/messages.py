"""Bodies of requests as values; what can't be read names its field. No I/O here."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from topk_bandit.compat.personalizer.errors import bad_request
from topk_bandit.compat.personalizer.features import flatten
from topk_bandit.domain.json_text import JsonError, parse_json
from topk_bandit.domain.nearest import find_nearest
from topk_bandit.domain.values import read_number, shorten

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from topk_bandit.compat.personalizer.features import FlatFeatures

__all__ = ["Action", "RankCall", "Slot", "multi_slot_call", "rank_call", "reward_value", "slot_rewards"]

MOST_CHARACTERS = 256
_RANK, _REWARD = "InvalidRankRequest", "InvalidRewardRequest"
_OF_RANK = frozenset({"contextFeatures", "actions", "excludedActions", "eventId", "deferActivation", "slots"})
_OF_ACTION = frozenset({"id", "features"})
_OF_SLOT = frozenset({"id", "features", "excludedActions", "baselineAction", "positionFeatures"})
_OF_REWARD = frozenset({"slotId", "value"})
_NEAR = 0.65
"""A name of another field that is so near is a slip; others are passed over, as there."""


@dataclass(frozen=True, slots=True)
class Action:
    """Something that can be chosen, with its features."""

    id: str
    features: FlatFeatures = field(hash=False)


@dataclass(frozen=True, slots=True)
class Slot:
    """A place on the page; `baseline` is the action that the shop would show there, None if it does not say."""

    id: str
    excluded: frozenset[str]
    baseline: str | None = None


@dataclass(frozen=True, slots=True)
class RankCall:
    """A Rank of either kind: a single-slot one has one slot, without an id.

    Attributes
    ----------
    features
        The context's.
    event_id
        Empty for one that is still to be made.
    deferred
        Whether what is chosen may never be shown.
    """

    features: FlatFeatures = field(hash=False)
    actions: tuple[Action, ...]
    slots: tuple[Slot, ...]
    event_id: str
    deferred: bool

    @property
    def is_single(self) -> bool:
        """Whether it is a single-slot one."""
        return not self.slots[0].id


def rank_call(body: bytes) -> RankCall:
    """Read a single-slot Rank."""
    values = _object(body, _RANK)
    return _call(values, (Slot("", _ids(values, "excludedActions")),))


def multi_slot_call(body: bytes) -> RankCall:
    """Read a multi-slot Rank."""
    values = _object(body, _RANK)
    slots = tuple(_slot(f"slots[{place}]", one) for place, one in enumerate(_objects(values, "slots")))
    _check_ids("slots", [slot.id for slot in slots])
    return _call(values, slots)


def reward_value(body: bytes) -> float:
    """Read a single-slot Reward."""
    values = _object(body, _REWARD)
    _check_names("", values, frozenset({"value"}), code=_REWARD)
    return _number(values, "value", "value")


def slot_rewards(body: bytes) -> dict[str, float]:
    """Read a multi-slot Reward: values by the ids of slots."""
    rewards = _objects(_object(body, _REWARD), "reward", code=_REWARD)
    for place, one in enumerate(rewards):
        _check_names(f"reward[{place}].", one, _OF_REWARD, code=_REWARD)
    ids = [_text(one, "slotId", f"reward[{place}].slotId") for place, one in enumerate(rewards)]
    _check_ids("reward", ids, code=_REWARD)
    values = (_number(one, "value", f"reward[{place}].value") for place, one in enumerate(rewards))
    return dict(zip(ids, values, strict=True))


def _call(values: Mapping[str, Any], slots: tuple[Slot, ...]) -> RankCall:
    _check_names("", values, _OF_RANK)
    actions = tuple(_action(f"actions[{place}]", one) for place, one in enumerate(_objects(values, "actions")))
    _check_ids("actions", [action.id for action in actions])
    deferred = values.get("deferActivation")
    if not isinstance(deferred, bool | None):
        raise bad_request("deferActivation", f"expected true or false, got {shorten(deferred)}", code=_RANK)
    event_id = "" if values.get("eventId") is None else _text(values, "eventId", "eventId")
    return RankCall(_features(values, "contextFeatures", ""), actions, slots, event_id, deferred or False)


def _action(path: str, values: Mapping[str, Any]) -> Action:
    _check_names(f"{path}.", values, _OF_ACTION)
    return Action(_text(values, "id", f"{path}.id"), _features(values, "features", f"{path}."))


def _slot(path: str, values: Mapping[str, Any]) -> Slot:
    _check_names(f"{path}.", values, _OF_SLOT)
    baseline = (
        None if values.get("baselineAction") is None else _text(values, "baselineAction", f"{path}.baselineAction")
    )
    return Slot(_text(values, "id", f"{path}.id"), _ids(values, "excludedActions", path=f"{path}."), baseline)


def _object(body: bytes, code: str) -> Mapping[str, Any]:
    try:
        values = parse_json(body)
    except JsonError as error:
        raise bad_request("body", str(error), code=code) from None
    if not isinstance(values, dict):
        raise bad_request("body", f"expected a JSON object, got {shorten(values)}", code=code)
    return values


def _objects(values: Mapping[str, Any], name: str, *, code: str = _RANK) -> Sequence[Mapping[str, Any]]:
    found = values.get(name)
    if not isinstance(found, list) or not found or not all(isinstance(one, dict) for one in found):
        problem = (
            "is missing" if found is None else f"expected a list of objects that is not empty, got {shorten(found)}"
        )
        raise bad_request(name, problem, code=code)
    return found


def _features(values: Mapping[str, Any], name: str, path: str) -> FlatFeatures:
    found = values.get(name)
    if found is None:
        return {}
    objects = [found] if isinstance(found, dict) else found
    if not isinstance(objects, list) or not all(isinstance(one, dict) for one in objects):
        raise bad_request(f"{path}{name}", f"expected a list of objects, got {shorten(found)}", code=_RANK)
    return flatten(objects)


def _ids(values: Mapping[str, Any], name: str, *, path: str = "") -> frozenset[str]:
    found = values.get(name)
    if found is None:
        return frozenset()
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise bad_request(f"{path}{name}", f"expected a list of ids, which are texts, got {shorten(found)}", code=_RANK)
    return frozenset(found)


def _text(values: Mapping[str, Any], name: str, path: str) -> str:
    found = values.get(name)
    if not isinstance(found, str) or not 0 < len(found) <= MOST_CHARACTERS:
        hint = f': write it in quotation marks, "{found}"' if type(found) in {int, float} else ""
        got = (
            "is missing"
            if found is None
            else f"expected a text of 1 to {MOST_CHARACTERS} characters, got {shorten(found)}"
        )
        raise bad_request(path, f"{got}{hint}")
    return found


def _number(values: Mapping[str, Any], name: str, path: str) -> float:
    try:
        found = read_number(values.get(name))
    except ValueError as error:
        raise bad_request(path, str(error), code=_REWARD) from None
    if found is None:
        raise bad_request(path, "is missing: 0 has to be written like any other number", code=_REWARD)
    return found


def _check_names(path: str, values: Mapping[str, Any], names: frozenset[str], *, code: str = _RANK) -> None:
    """Refuse a name that is nearly one of a field that is not there."""
    for name in values.keys() - names:
        if near := find_nearest(name, names - values.keys(), cutoff=_NEAR):
            raise bad_request(f"{path}{name}", f"is no field: is it {near}?", code=code)


def _check_ids(path: str, ids: Sequence[str], *, code: str = _RANK) -> None:
    if len(set(ids)) < len(ids):
        twice = next(one for one in ids if ids.count(one) > 1)
        raise bad_request(path, f"has the id {shorten(twice)} twice", code=code)
