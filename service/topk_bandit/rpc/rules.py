"""Rules of a slate from the wire: their form. What takes a bandit's schema and slate size is left to the use cases."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.domain.rules import MAX_EXCLUDED, MAX_GROUPED, MAX_PINNED, MAX_RULES, Exclude, Exposure
from topk_bandit.rpc import fields
from topk_bandit.rpc.json_reading import message_of
from topk_bandit.v1 import bandit_service_pb2 as bandit_pb
from topk_bandit.v1 import rules_pb2 as pb
from topk_bandit.wire.rules import RULE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topk_bandit.domain.rules import SlateRule

__all__ = ["rules_from_json", "rules_from_proto"]

_KINDS = [field.name for field in pb.SlateRule.DESCRIPTOR.oneofs_by_name["rule"].fields]


def rules_from_proto(path: str, messages: Sequence[pb.SlateRule]) -> tuple[SlateRule, ...]:
    """Return the rules of a bandit or a request, which exclude no more items together than one may."""
    if len(messages) > MAX_RULES:
        raise InvalidArgumentError(path, f"has {len(messages)} rules; at most {MAX_RULES} are allowed")
    rules = tuple(_rule(f"{path}[{place}]", message) for place, message in enumerate(messages))
    excluded = sum(len(one.rule.item_ids) for one in rules if isinstance(one.rule, Exclude))
    if excluded > MAX_EXCLUDED:
        raise InvalidArgumentError(path, f"exclude {excluded} items together; at most {MAX_EXCLUDED} are allowed")
    return rules


def rules_from_json(content: Any) -> tuple[SlateRule, ...]:  # noqa: ANN401, whatever JSON holds
    """Return the rules in the JSON of a bandit, read as over HTTP; errors name fields of it, and what is no rule."""
    others = sorted(set(content) - {"rules"})
    if others:
        raise InvalidArgumentError(others[0], "is no field of rules: name rules alone")
    return rules_from_proto("rules", message_of(content, bandit_pb.Bandit()).rules)


def _rule(path: str, message: pb.SlateRule) -> SlateRule:
    match message.WhichOneof("rule"):
        case None:
            raise InvalidArgumentError(path, f"needs one of {', '.join(_KINDS)}")
        case "exclude":
            _check_ids(f"{path}.exclude.item_ids", message.exclude.item_ids, most=MAX_EXCLUDED)
        case "pin":
            _check_ids(f"{path}.pin.item_ids", message.pin.item_ids, most=MAX_PINNED)
        case "count" if not message.count.HasField("group"):
            raise InvalidArgumentError(f"{path}.count.group", "is required")
        case "frequency":
            _check_group(f"{path}.frequency.group", message.frequency.group)
        case "exposure" if not message.exposure.HasField("group"):
            raise InvalidArgumentError(f"{path}.exposure.group", "is required")
        case "count":
            _check_group(f"{path}.count.group", message.count.group)
        case "exposure":
            _check_group(f"{path}.exposure.group", message.exposure.group)
    rule: SlateRule = RULE.read(message)
    if rule.may_relax and isinstance(rule.rule, Exposure):
        raise InvalidArgumentError(f"{path}.may_relax", "can't be used with exposure, which no slate breaks")
    return rule


def _check_group(path: str, group: pb.ItemGroup) -> None:
    if group.item_ids:
        _check_ids(f"{path}.item_ids", group.item_ids, most=MAX_GROUPED)


def _check_ids(path: str, values: Sequence[str], *, most: int) -> None:
    fields.size(path, len(values), most=most)
    fields.item_ids(path, values)
