"""Encode a bandit's values as bytes, and decode them: JSON with a schema number, and snapshots with a checksum.

Every number is decoded exactly, because a float is written as its shortest ``repr``. Bytes that no encoder here could
have written raise `CorruptDataError`; nothing is ever guessed or repaired. The events about items and rewards
are written by the Lua scripts, because only the store knows their contents, and are decoded here like all others.
"""

from __future__ import annotations

import json
import math
import struct
from dataclasses import replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from topk_bandit.domain.bandits import (
    Activated,
    Aggregation,
    BanditCreated,
    BanditSettings,
    ConstantBeta,
    Expired,
    Exploration,
    Imported,
    Item,
    ItemsChanged,
    ItemUtility,
    Kernel,
    Lapsed,
    PaperBeta,
    PastSlate,
    Prior,
    Recommendation,
    RecommendationRequest,
    Recommended,
    RewardAmended,
    RewardCollected,
    Rewarded,
    RewardRange,
    SettingsChanged,
    Shown,
)
from topk_bandit.domain.errors import CorruptDataError
from topk_bandit.domain.features import NO_FEATURES, Features
from topk_bandit.store.documents import SCHEMA, Document, Fields, decode, pack, refuse, text_of
from topk_bandit.store.feature_codec import features_document, read_features, read_schema, schema_document
from topk_bandit.store.log import Snapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from topk_bandit.domain.bandits import Event
    from topk_bandit.domain.features import Context

__all__ = [
    "SCHEMA",
    "canonical",
    "decode_event",
    "decode_item",
    "decode_recommendation",
    "decode_settings",
    "decode_snapshot",
    "encode_context",
    "encode_event",
    "encode_item_state",
    "encode_past_slate",
    "encode_recommended",
    "encode_settings",
    "encode_snapshot",
    "fingerprint",
    "prior_digest",
]

_SNAPSHOT_MAGIC = b"tkbs"
_SNAPSHOT_HEADER = struct.Struct(">4sHQ")
_DIGEST_SIZE = 32


def canonical(value: float) -> str:
    """Return the one text of a number: equal numbers have equal texts, and ``float`` gives the number back.

    Raises
    ------
    ValueError
        The number is not finite.
    """
    if not math.isfinite(value):
        message = f"{value} is not finite"
        raise ValueError(message)
    return repr(float(value) + 0.0)


def fingerprint(request: RecommendationRequest) -> str:
    """Return a digest of a request's context and candidates: equal for equal ones, whatever the request's id."""
    candidates = None if request.candidates is None else list(request.candidates)
    context = request.context
    document = _context_document(context) if isinstance(context, Features) else [canonical(one) for one in context]
    asked = [document, candidates]
    return blake2b(pack(asked), digest_size=16).hexdigest()


def prior_digest(prior: Prior) -> str:
    """Return a digest of a prior: equal for equal ones."""
    return blake2b(pack({"v": SCHEMA, **_prior_document(prior)}), digest_size=16).hexdigest()


def encode_settings(settings: BanditSettings) -> bytes:
    """Return settings as bytes: equal settings have equal bytes."""
    return pack({"v": SCHEMA, **_settings_document(settings)})


def decode_settings(data: bytes) -> BanditSettings:
    """Return the settings in `data`, or raise `CorruptDataError`."""
    return decode(data, _settings)


def decode_recommendation(data: bytes) -> Recommendation:
    """Return the recommendation in `data`, or raise `CorruptDataError`."""
    return decode(data, _recommendation)


def encode_context(context: Context) -> bytes:
    """Return a context as it stands in events: JSON without a space, also inside of texts."""
    return pack(_context_document(context)).replace(b" ", b"\\u0020")


def encode_past_slate(slate: PastSlate) -> bytes:
    """Return a slate of an import as it stands in its event: equal ones have equal bytes."""
    return pack(_past_document(slate))


def encode_item_state(item: Item) -> bytes:
    """Return what can change of an item: whether it is available, and its features as they stand in events, if any.

    Equal ones have equal bytes.
    """
    state = b"available" if item.available else b"unavailable"
    return state + (b" " + pack(features_document(item.features)) if item.features.values else b"")


def decode_item(item_id: str, state: bytes) -> Item:
    """Return the item with what `encode_item_state` encoded, or raise `CorruptDataError`."""
    availability, _, features = state.partition(b" ")
    if availability not in _AVAILABLE:
        refuse("available", availability)
    try:
        told = [json.loads(features)] if features else []
    except ValueError as error:
        raise CorruptDataError(f"the features of an item are not JSON: {error}") from error
    return _item([item_id, _AVAILABLE[availability], *told])


_AVAILABLE = {b"available": True, b"unavailable": False}


def encode_recommended(event: Recommended) -> tuple[bytes, bytes]:
    """Return an event's recommendation as bytes, and the event."""
    recommendation = text_of(_recommendation_document(event.recommendation))
    request = text_of(_request_document(event.request))
    logged = f'{{"v":{SCHEMA},"type":"recommended","request":{request},"recommendation":{recommendation}}}'
    return f'{{"v":{SCHEMA},{recommendation[1:]}'.encode(), logged.encode()


def encode_event(event: Event) -> bytes:
    """Return an event as bytes."""
    return pack({"v": SCHEMA, **_event_document(event)})


def decode_event(data: bytes) -> Event:
    """Return the event in `data`, or raise `CorruptDataError`."""
    return decode(data, _event)


def encode_snapshot(snapshot: Snapshot) -> bytes:
    """Return a snapshot with its schema number, its position and a checksum of all of it in front."""
    header = _SNAPSHOT_HEADER.pack(_SNAPSHOT_MAGIC, SCHEMA, snapshot.position)
    return header + _checksum(header, snapshot.payload) + snapshot.payload


def decode_snapshot(data: bytes) -> Snapshot:
    """Return the snapshot in `data`, or raise `CorruptDataError` when it does not verify."""
    start = _SNAPSHOT_HEADER.size + _DIGEST_SIZE
    if len(data) < start:
        raise CorruptDataError("a snapshot is cut short")
    header, digest, payload = data[: _SNAPSHOT_HEADER.size], data[_SNAPSHOT_HEADER.size : start], data[start:]
    magic, schema, position = _SNAPSHOT_HEADER.unpack(header)
    if magic != _SNAPSHOT_MAGIC or schema != SCHEMA:
        raise CorruptDataError(f"a snapshot has the unknown schema {schema}")
    if digest != _checksum(header, payload):
        raise CorruptDataError(f"the snapshot at position {position} does not match its checksum")
    return Snapshot(position=position, payload=payload)


def _checksum(header: bytes, payload: bytes) -> bytes:
    digest = blake2b(header, digest_size=_DIGEST_SIZE)
    digest.update(payload)
    return digest.digest()


def _settings_document(settings: BanditSettings) -> Document:
    beta, default = settings.exploration.beta, settings.default_reward
    schedule, width = ("constant", beta.value) if isinstance(beta, ConstantBeta) else ("paper", beta.scale)
    # A bandit without a prior has neither field, and an empty text is refused: equal settings have equal bytes. So it
    # is with what else is left as it is in most.
    prior = {"prior_study": settings.prior_study, "prior_digest": settings.prior_digest}
    taken, several = settings.reward_range, settings.reward_aggregation
    falling = settings.exploration.shares_fall_after
    return {
        "item_capacity": settings.item_capacity,
        "slate_size": settings.slate_size,
        "context_dim": settings.context_dim,
        "kernel": settings.kernel.value,
        "beta_schedule": schedule,
        "beta": float(width) + 0.0,
        "uniform_share": float(settings.exploration.uniform_share) + 0.0,
        "near_share": float(settings.exploration.near_share) + 0.0,
        "reward_wait_ms": settings.reward_wait_ms,
        "default_reward": None if default is None else float(default) + 0.0,
        "half_life_ms": settings.half_life_ms,
        **({"shares_fall_after": falling} if falling else {}),
        **(prior if settings.prior_study else {}),
        **({} if taken is None else {"reward_range": _range_document(taken)}),
        **({} if several is Aggregation.FIRST else {"reward_aggregation": several.value}),
        **({"requires_activation": True} if settings.requires_activation else {}),
        **({"baseline_item_ids": list(settings.baseline_item_ids)} if settings.baseline_item_ids else {}),
        **({} if settings.context_schema is None else {"context_schema": schema_document(settings.context_schema)}),
        **({} if settings.item_schema is None else {"item_schema": schema_document(settings.item_schema)}),
    }


def _range_document(taken: RewardRange) -> Document:
    return {"low": float(taken.low) + 0.0, "high": float(taken.high) + 0.0, "clamp": bool(taken.clamp)}


def _aggregation(fields: Fields) -> Aggregation:
    if "reward_aggregation" not in fields.document:
        return Aggregation.FIRST
    return fields.choice("reward_aggregation", {one.value: one for one in Aggregation if one is not Aggregation.FIRST})


def _settings(fields: Fields) -> BanditSettings:
    study = fields.text("prior_study") if "prior_study" in fields.document else None
    if study == "":
        refuse("prior_study", study)
    baseline = fields.texts("baseline_item_ids") if "baseline_item_ids" in fields.document else None
    if baseline == ():
        refuse("baseline_item_ids", baseline)
    return BanditSettings(
        item_capacity=fields.integer("item_capacity"),
        slate_size=fields.integer("slate_size"),
        context_dim=fields.integer("context_dim"),
        kernel=fields.choice("kernel", {kernel.value: kernel for kernel in Kernel}),
        exploration=Exploration(
            beta=fields.choice("beta_schedule", _BETA_SCHEDULES)(fields.number("beta")),
            uniform_share=fields.number("uniform_share"),
            near_share=fields.number("near_share"),
            shares_fall_after=fields.integer("shares_fall_after") if "shares_fall_after" in fields.document else 0,
        ),
        reward_wait_ms=fields.integer("reward_wait_ms"),
        default_reward=fields.optional_number("default_reward"),
        prior_study=study or "",
        prior_digest=fields.text("prior_digest") if study else "",
        half_life_ms=fields.integer("half_life_ms"),
        reward_range=_reward_range(fields.child("reward_range")) if "reward_range" in fields.document else None,
        reward_aggregation=_aggregation(fields),
        requires_activation="requires_activation" in fields.document and fields.flag("requires_activation"),
        baseline_item_ids=baseline or (),
        context_schema=read_schema(fields, "context_schema") if "context_schema" in fields.document else None,
        item_schema=read_schema(fields, "item_schema") if "item_schema" in fields.document else None,
    )


def _reward_range(fields: Fields) -> RewardRange:
    return RewardRange(fields.number("low"), fields.number("high"), clamp=fields.flag("clamp"))


_BETA_SCHEDULES: Mapping[str, Callable[[float], ConstantBeta | PaperBeta]] = {
    "constant": ConstantBeta,
    "paper": PaperBeta,
}


def _prior_document(prior: Prior) -> Document:
    return {
        "study": prior.study,
        "answers": prior.answers,
        "items": [utility.item_id for utility in prior.utilities],
        "constants": [float(utility.constant) + 0.0 for utility in prior.utilities],
        "slopes": [[float(slope) + 0.0 for slope in utility.slopes] for utility in prior.utilities],
    }


def _prior(fields: Fields) -> Prior:
    items, constants, slopes = fields.texts("items"), fields.numbers("constants"), fields.sequence("slopes")
    if not len(items) == len(constants) == len(slopes):
        refuse("slopes", f"{len(items)}, {len(constants)} and {len(slopes)} entries")
    rows = [Fields({"slopes": row}).numbers("slopes") for row in slopes]
    utilities = tuple(map(ItemUtility, items, constants, rows))
    return Prior(study=fields.text("study"), answers=fields.integer("answers"), utilities=utilities)


def _with_prior(document: Document, prior: Prior | None) -> Document:
    return document if prior is None else {**document, "prior": _prior_document(prior)}


def _prior_of(fields: Fields) -> Prior | None:
    return _prior(fields.child("prior")) if "prior" in fields.document else None


def _recommendation_document(recommendation: Recommendation) -> Document:
    return {
        "recommendation_id": recommendation.recommendation_id,
        "slate": list(recommendation.slate),
        "propensity": float(recommendation.propensity),
        "mean": float(recommendation.mean),
        "standard_deviation": float(recommendation.standard_deviation),
        "regret_bound": float(recommendation.regret_bound),
        "estimated_regret": float(recommendation.estimated_regret),
        "explored": bool(recommendation.explored),
        "model_version": recommendation.model_version,
        "observations": recommendation.observations,
        "deadline_ms": recommendation.deadline_ms,
        "degraded": bool(recommendation.degraded),
        "position_propensities": [float(one) for one in recommendation.position_propensities],
        "best_slate": list(recommendation.best_slate),
        "passed_over": recommendation.passed_over,
        "baseline": bool(recommendation.baseline),
    }


def _recommendation(fields: Fields) -> Recommendation:
    recommendation_id, *others, passed_over, baseline = fields.several(_RECOMMENDATION)
    recommendation = Recommendation(recommendation_id, fields.texts("slate"), *others)
    by_position, best_slate = fields.numbers("position_propensities"), fields.texts("best_slate")
    return replace(
        recommendation,
        position_propensities=by_position,
        best_slate=best_slate,
        passed_over=passed_over,
        baseline=baseline,
    )


# In the order of `Recommendation`, whose slate stands second and whose other lists stand before the last two.
_RECOMMENDATION: Mapping[str, Any] = {
    "recommendation_id": str,
    "propensity": float,
    "mean": float,
    "standard_deviation": float,
    "regret_bound": float,
    "estimated_regret": float,
    "explored": bool,
    "model_version": int,
    "observations": int,
    "deadline_ms": int,
    "degraded": bool,
    "passed_over": int,
    "baseline": bool,
}


def _context_document(context: Context) -> Document | list[float]:
    return features_document(context) if isinstance(context, Features) else [float(number) for number in context]


def _context(fields: Fields) -> Context:
    if isinstance(fields.document.get("context"), dict):
        return read_features(fields.child("context"))
    return fields.numbers("context")


def _request_document(request: RecommendationRequest) -> Document:
    return {
        "request_id": request.request_id,
        "context": _context_document(request.context),
        "candidates": None if request.candidates is None else list(request.candidates),
    }


def _request(fields: Fields) -> RecommendationRequest:
    return RecommendationRequest(
        request_id=fields.text("request_id"),
        context=_context(fields),
        candidates=None if fields.is_null("candidates") else fields.texts("candidates"),
    )


def _event_document(event: Event) -> Document:
    match event:
        case BanditCreated(settings, prior):
            return _with_prior({"type": "bandit_created", "settings": _settings_document(settings)}, prior)
        case SettingsChanged(settings, prior):
            return _with_prior({"type": "settings_changed", "settings": _settings_document(settings)}, prior)
        case ItemsChanged(upserted, retired):
            return {"type": "items_changed", "upserted": [*map(_item_entry, upserted)], "retired": list(retired)}
        case Recommended(request, recommendation):
            recorded = _recommendation_document(recommendation)
            return {"type": "recommended", "request": _request_document(request), "recommendation": recorded}
        case Imported(import_id, first_row, slates):
            rows = [*map(_past_document, slates)]
            return {"type": "imported", "import_id": import_id, "first_row": first_row, "slates": rows}
        case Activated() | Lapsed() | RewardCollected() | Rewarded() | RewardAmended() | Expired():
            return _later_document(event)


def _later_document(
    event: Activated | Lapsed | RewardCollected | Rewarded | RewardAmended | Expired,
) -> Document:
    """Return what happened to a recommendation after it was given out."""
    of_one: Document = {"recommendation_id": event.recommendation_id}
    match event:
        case Activated(_, shown, instead):
            return {"type": "activated", **of_one, "shown": _shown_document(shown), "instead": bool(instead)}
        case Lapsed():
            return {"type": "lapsed", **of_one}
        case RewardCollected(_, reward_id, value):
            return {"type": "reward_collected", **of_one, "reward_id": reward_id, "value": _written(value)}
        case RewardAmended(_, value):
            return {"type": "reward_amended", **of_one, "value": _written(value)}
        case Rewarded(_, value, shown):
            return {"type": "rewarded", **of_one, "value": float(value) + 0.0, "shown": _shown_document(shown)}
        case Expired(_, default, shown):
            then = None if shown is None else _shown_document(shown)
            return {"type": "expired", **of_one, "default_reward": _written(default), "shown": then}


def _written(value: float | None) -> float | None:
    return None if value is None else float(value) + 0.0


def _shown_document(shown: Shown) -> Document:
    return {
        "context": _context_document(shown.context),
        "slate": list(shown.slate),
        "at_ms": shown.at_ms,
    }


def _shown(fields: Fields) -> Shown:
    return Shown(context=_context(fields), slate=fields.texts("slate"), at_ms=fields.integer("at_ms"))


def _past_document(slate: PastSlate) -> Document:
    # What is not known of a row is left out: there are many of them.
    beside = {"at_ms": slate.at_ms, "propensity": _written(slate.propensity)}
    return {
        "context": _context_document(slate.context),
        "slate": list(slate.slate),
        "reward": float(slate.reward) + 0.0,
        **{name: value for name, value in beside.items() if value is not None},
    }


def _past_slate(row: Any) -> PastSlate:  # noqa: ANN401, what JSON has
    if not isinstance(row, dict):
        refuse("slates", row)
    fields, told = Fields(row), row
    return PastSlate(
        _context(fields),
        fields.texts("slate"),
        fields.number("reward"),
        fields.integer("at_ms") if "at_ms" in told else None,
        fields.number("propensity") if "propensity" in told else None,
    )


def _imported(fields: Fields) -> Imported:
    slates = tuple(map(_past_slate, fields.sequence("slates")))
    return Imported(fields.text("import_id"), fields.integer("first_row"), slates)


def _expired(fields: Fields) -> Expired:
    default = fields.optional_number("default_reward")
    if fields.is_null("shown") != (default is None):
        refuse("shown", fields.document["shown"])
    shown = None if default is None else _shown(fields.child("shown"))
    return Expired(fields.text("recommendation_id"), default, shown)


def _items_changed(fields: Fields) -> ItemsChanged:
    items = tuple(map(_item, fields.sequence("upserted")))
    return ItemsChanged(upserted=items, retired=fields.texts("retired"))


def _item_entry(item: Item) -> list[Any]:
    """Return an item as it stands in an event: with features only if it has any."""
    told = [features_document(item.features)] if item.features.values else []
    return [item.item_id, bool(item.available), *told]


def _item(entry: Any) -> Item:  # noqa: ANN401, what JSON has
    if not (isinstance(entry, list) and 2 <= len(entry) <= 3):
        refuse("upserted", entry)
    of_item = Fields(dict(zip(("item_id", "available", "features"), entry, strict=False)))
    features = read_features(of_item.child("features")) if len(entry) > 2 else NO_FEATURES
    if len(entry) > 2 and not features.values:
        refuse("upserted", entry)
    return Item(of_item.text("item_id"), of_item.flag("available"), features)


_EVENTS: Mapping[str, Callable[[Fields], Event]] = {
    "bandit_created": lambda fields: BanditCreated(_settings(fields.child("settings")), _prior_of(fields)),
    "settings_changed": lambda fields: SettingsChanged(_settings(fields.child("settings")), _prior_of(fields)),
    "items_changed": _items_changed,
    "recommended": lambda fields: Recommended(
        request=_request(fields.child("request")), recommendation=_recommendation(fields.child("recommendation"))
    ),
    "activated": lambda fields: Activated(
        fields.text("recommendation_id"), _shown(fields.child("shown")), fields.flag("instead")
    ),
    "lapsed": lambda fields: Lapsed(fields.text("recommendation_id")),
    "reward_collected": lambda fields: RewardCollected(
        fields.text("recommendation_id"), fields.text("reward_id"), fields.optional_number("value")
    ),
    "reward_amended": lambda fields: RewardAmended(fields.text("recommendation_id"), fields.optional_number("value")),
    "rewarded": lambda fields: Rewarded(
        fields.text("recommendation_id"), fields.number("value"), _shown(fields.child("shown"))
    ),
    "expired": _expired,
    "imported": _imported,
}


def _event(fields: Fields) -> Event:
    return fields.choice("type", _EVENTS)(fields)
