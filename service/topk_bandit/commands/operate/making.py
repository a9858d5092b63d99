"""The commands that make a bandit, change it, add its items and retire some."""

from __future__ import annotations

from dataclasses import asdict
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from topk_bandit.client.rules import in_words, rule_of
from topk_bandit.commands.connection import connect
from topk_bandit.commands.names import bandit_named
from topk_bandit.commands.tables import facts, flatten
from topk_bandit.domain.bandits import Aggregation, RewardRange
from topk_bandit.domain.durability import Durability
from topk_bandit.domain.errors import ConfigurationError, InvalidArgumentError
from topk_bandit.domain.json_text import JsonError, parse_json
from topk_bandit.domain.stages import Stage
from topk_bandit.domain.values import read_label, read_number, shorten
from topk_bandit.rpc.features import schema_from_json
from topk_bandit.rpc.rules import rules_from_json
from topk_bandit.tables.rows import require_value

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from topk_bandit.client.rules import Rule
    from topk_bandit.client.values import Bandit
    from topk_bandit.domain.features import Feature

__all__ = ["create_bandit", "create_items", "delete_items", "settings_of", "show_settings", "update_bandit"]


def create_bandit(given: argparse.Namespace) -> Iterable[str]:
    """Make a bandit of the settings that the flags name, or find the equal one that is there; show its settings."""
    name = bandit_named(given.bandit)
    with connect(given, name.tenant) as client:
        made = client.create_bandit(name.bandit, **settings_of(given))
    return list(show_settings(made))


def update_bandit(given: argparse.Namespace) -> Iterable[str]:
    """Change the settings that the flags name, and show all."""
    name, changes = bandit_named(given.bandit), settings_of(given)
    if not changes:
        raise InvalidArgumentError("flags", "name no setting to change: see --help")
    with connect(given, name.tenant) as client:
        changed = client.update_bandit(name.bandit, **changes)
    return list(show_settings(changed))


def show_settings(bandit: Bandit) -> Iterable[str]:
    """Return a bandit's settings, a line each; rules in words."""
    rules = {str(number): in_words(rule) for number, rule in enumerate(bandit.rules, 1)}
    return facts(flatten(asdict(bandit) | {"rules": rules or None}))


def settings_of(given: argparse.Namespace) -> dict[str, Any]:
    """Return the settings that flags name, as the client takes them."""
    named = {setting: read for setting, read in _SETTINGS.items() if getattr(given, setting, None) is not None}
    return {setting: read(given) for setting, read in named.items()}


def create_items(given: argparse.Namespace) -> Iterable[str]:
    """Add items without features, or put them in the place of those of their ids."""
    name = bandit_named(given.bandit)
    for item_id in given.items:  # files of slates could not name others
        require_value("ITEM", item_id, read_label)
    with connect(given, name.tenant) as client:
        count = client.upsert_items(name.bandit, given.items)
    return [f"{given.bandit} has {count} items"]


def delete_items(given: argparse.Namespace) -> Iterable[str]:
    """Retire items."""
    name = bandit_named(given.bandit)
    if not given.yes:
        raise InvalidArgumentError("--yes", f"these items are in no slate of {given.bandit} any more then, for good")
    with connect(given, name.tenant) as client:
        count = client.retire_items(name.bandit, given.items)
    return [f"{given.bandit} has {count} items left"]


def _object(flag: str, path: Path, what: str) -> dict[str, Any]:
    try:
        found = parse_json(path.read_bytes())
    except OSError as error:
        raise ConfigurationError(f"{path} can't be read: {error.strerror}") from error
    except JsonError as error:
        raise InvalidArgumentError(flag, f"{path} {error}") from None
    if not isinstance(found, dict):
        raise InvalidArgumentError(flag, f"{path} must be a JSON object {what}, not {shorten(found)}")
    return found


def _rules(given: argparse.Namespace) -> list[Rule]:
    content = _object("--rules", given.rules, 'such as {"rules": [{"filter": "price < 20"}]}')
    try:
        return [*map(rule_of, rules_from_json(content))]
    except InvalidArgumentError as error:
        place = ", ".join(filter(None, ("--rules", str(given.rules), error.field)))
        raise InvalidArgumentError(place, error.problem) from None


def _schema(setting: str) -> Callable[[argparse.Namespace], tuple[Feature, ...]]:
    def read(given: argparse.Namespace) -> tuple[Feature, ...]:
        path = getattr(given, setting)
        features = _object(_flag(setting), path, 'such as {"features": [{"name": "price", "numeric": {}}]}')
        try:
            return schema_from_json(features)
        except InvalidArgumentError as error:
            place = ", ".join(filter(None, (_flag(setting), str(path), error.field)))
            raise InvalidArgumentError(place, error.problem) from None

    return read


def _reward_range(given: argparse.Namespace) -> RewardRange:
    ends, *words = given.reward_range.split(",")
    try:
        low, high = (read_number(text) for text in ends.split(":"))
    except ValueError:
        low = high = None
    if low is None or high is None or not {"clamp", "trusted"}.issuperset(words):
        problem = f"must be LOW:HIGH, and then maybe ,clamp or ,trusted, not {given.reward_range!r}"
        raise InvalidArgumentError("--reward-range", problem)
    return RewardRange(low, high, clamp="clamp" in words, trusted="trusted" in words)


def _durability(given: argparse.Namespace) -> Durability:
    try:
        return Durability.parse(given.durability)
    except ValueError as error:
        raise InvalidArgumentError("--durability", str(error)) from None


def _seconds(setting: str) -> Callable[[argparse.Namespace], timedelta]:
    def read(given: argparse.Namespace) -> timedelta:
        try:
            return timedelta(seconds=getattr(given, setting))
        except (OverflowError, ValueError):
            raise InvalidArgumentError(_flag(setting), f"must be seconds, not {getattr(given, setting)}") from None

    return read


def _flag(setting: str) -> str:
    return f"--{setting.replace('_', '-')}"


def _as_it_is(setting: str) -> Callable[[argparse.Namespace], Any]:
    return lambda given: getattr(given, setting)


_SETTINGS: Mapping[str, Callable[[argparse.Namespace], Any]] = {
    **{
        setting: _as_it_is(setting)
        for setting in (
            "slate_size",
            "item_capacity",
            "context_dimension",
            "uniform_share",
            "near_share",
            "shares_fall_after",
            "learned_per_second",
            "default_reward",
            "default_item_value",
            "requires_activation",
            "prior_study",
            "control_share",
            "guardrail_margin",
            "conservative_share",
        )
    },
    "reward_wait": _seconds("reward_wait"),
    "half_life": _seconds("half_life"),
    "provisional_after": _seconds("provisional_after"),
    "reward_range": _reward_range,
    "reward_aggregation": lambda given: Aggregation(given.reward_aggregation),
    "context_schema": _schema("context_schema"),
    "item_schema": _schema("item_schema"),
    "rules": _rules,
    "durability": _durability,
    "stage": lambda given: Stage(given.stage),
}
"""What each flag is to the client; a flag that is not given leaves its setting to the service."""
