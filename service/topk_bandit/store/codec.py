"""Encode a bandit's values as bytes, and decode them: JSON with a data version, and snapshots with a checksum.

Every number is decoded exactly, because a float is written as its shortest ``repr``. Bytes that no encoder here could
have written raise `CorruptDataError`; nothing is ever guessed or repaired. The events about items and rewards
are written by the Lua scripts, because only the store knows their contents, and are decoded here like all others. A
`version` is the data version to write.
"""

from __future__ import annotations

import math
import struct
from functools import lru_cache, partial
from hashlib import blake2b
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from topk_bandit.domain.bandits import (
    DEFAULT_LEARNED_PER_SECOND,
    Aggregation,
    BanditSettings,
    ConstantBeta,
    Exploration,
    Item,
    ItemUtility,
    Kernel,
    PaperBeta,
    Prior,
    RewardRange,
)
from topk_bandit.domain.durability import Durability
from topk_bandit.domain.errors import CorruptDataError
from topk_bandit.domain.features import NO_FEATURES, Features
from topk_bandit.domain.replacing import replace
from topk_bandit.domain.rules import Absence, Exclude
from topk_bandit.domain.slates import ItemValues, Recommendation, RecommendationRequest
from topk_bandit.domain.stages import MAX_CONTROL_SHARE, Group, Shadow, Stage
from topk_bandit.store.data_versions import FIRST, OLDEST
from topk_bandit.store.documents import (
    DataVersion,
    EventLayout,
    Layout,
    Stamped,
    any_of,
    decoder,
    derive,
    find_unknown,
    pack,
    plain,
    read,
    read_optional,
    refuse,
    refuse_newer,
    stamp,
    text_of,
)
from topk_bandit.store.events import (
    Activated,
    BanditCreated,
    BanditReset,
    EventSkipped,
    Expired,
    Imported,
    ItemsChanged,
    Lapsed,
    PastSlate,
    Recommended,
    RewardAmended,
    RewardCollected,
    Rewarded,
    RewardRevised,
    SettingsChanged,
    Shown,
)
from topk_bandit.store.feature_codec import (
    ContextLayout,
    FeaturesLayout,
    SchemaLayout,
    context_document,
    features_document,
    read_context,
    read_features,
    schema_document,
)
from topk_bandit.store.log import Snapshot
from topk_bandit.store.rule_codec import RuleLayout, rules_document

if TYPE_CHECKING:
    from collections.abc import Callable

    from topk_bandit.domain.features import Context
    from topk_bandit.store.documents import Decoder, Document
    from topk_bandit.store.events import Event

__all__ = [
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
    "written_event",
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
    """Return a digest of all that a request asks but its id: equal for equal ones.

    Excluded items are left out: a slate without them answers a request that excludes others as well.
    """
    context = request.context
    rules = tuple(one for one in request.rules if not isinstance(one.rule, Exclude))
    document = context_document(context) if isinstance(context, Features) else [canonical(one) for one in context]
    asked = b"[%b,%b%b]" % (pack(document), text_of(request.candidates), _asked_beside(replace(request, rules=rules)))
    return blake2b(asked, digest_size=16).hexdigest()


def prior_digest(prior: Prior) -> str:
    """Return a digest of a prior: equal for equal ones."""
    return blake2b(stamp(_prior_document(prior), version=FIRST), digest_size=16).hexdigest()


def encode_settings(settings: BanditSettings, version: int = OLDEST) -> bytes:
    """Return settings as bytes: equal settings have equal bytes."""
    return stamp(_settings_document(settings), version=version)


def decode_settings(data: bytes, *, wholly: bool = False) -> BanditSettings:
    """Return the settings in `data`, or raise `CorruptDataError`."""
    return _decode_settings(data, wholly=wholly)


def decode_recommendation(data: bytes, *, wholly: bool = False) -> Recommendation:
    """Return the recommendation in `data`, or raise `CorruptDataError`."""
    return _decode_recorded(data, wholly=wholly)


def encode_context(context: Context) -> bytes:
    """Return a context as it stands in events: JSON without a space, also inside of texts."""
    return pack(context_document(context)).replace(b" ", b"\\u0020")


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
    return Item(
        item_id, _AVAILABLE[availability], read_features(_decode_features(features)) if features else NO_FEATURES
    )


_AVAILABLE = {b"available": True, b"unavailable": False}


def encode_recommended(event: Recommended, version: int = OLDEST) -> tuple[bytes, bytes]:
    """Return an event's recommendation as bytes, and the event."""
    asked, recommendation = event.request, _pack_recommendation(event.recommendation)
    # Of a request only the context has numbers: no other part needs to be searched for what is not finite.
    parts = (text_of(asked.request_id), pack(context_document(asked.context)), text_of(asked.candidates))
    reached = b',"reached":%b' % text_of(asked.reached) if asked.reached else b""
    request = b'{"request_id":%b,"context":%b,"candidates":%b%b%b}' % (*parts, _asked_beside(asked), reached)
    aside = b',"aside":true' if event.aside else b""
    return _RECORDED % (version, recommendation[1:]), _RECOMMENDED % (version, request, recommendation, aside)


def _asked_beside(asked: RecommendationRequest) -> bytes:
    """Return what most requests leave out, each part behind a comma."""
    baseline = b',"baseline_item_ids":%b' % text_of(asked.baseline_item_ids) if asked.baseline_item_ids else b""
    group_key = b',"group_key":%b' % text_of(asked.group_key) if asked.group_key else b""
    return baseline + group_key + (b',"rules":%b' % text_of(rules_document(asked.rules)) if asked.rules else b"")


def _pack_recommendation(given: Recommendation) -> bytes:
    """Return a recommendation as bytes, without what most of them don't have: a shadow, another stage, a group.

    What is absent from it is answered and never recorded.
    """
    if given.absent or given.relaxed or given.paid:
        recorded = _pack_recommendation(replace(given, absent=(), relaxed=(), paid=()))
        relaxed = b',"relaxed":%b' % text_of(given.relaxed) if given.relaxed else b""
        paid = b',"paid":%b' % text_of(given.paid) if given.paid else b""
        return b"%b%b%b}" % (recorded[:-1], relaxed, paid)
    if given.shadow is not None:
        return pack(given, without=[_NO_RULES])
    is_usual = given.stage is Stage.LIVE and given.group is Group.NONE
    return pack(given, without=[_NO_SHADOW, _USUAL_STAGE] if is_usual else [_NO_SHADOW])


_NO_RULES, _USUAL_STAGE = b',"relaxed":[],"paid":[],"absent":[]', b',"stage":"live","group":""'
_NO_SHADOW = b',"shadow":null' + _NO_RULES
_RECORDED = b'{"v":%d,%b'
_RECOMMENDED = b'{"v":%d,"type":"recommended","request":%b,"recommendation":%b%b}'


def encode_event(event: Event, version: int = OLDEST) -> bytes:
    """Return an event as bytes."""
    return (
        encode_recommended(event, version)[1]
        if isinstance(event, Recommended)
        else stamp(_event_document(event), _TAGS[type(event)], version=version)
    )


@lru_cache(maxsize=1)  # a part of an import is long, and is the log's end for several readings after it was written
def decode_event(data: bytes, *, wholly: bool = False) -> Event:
    """Return the event in `data`, or raise `CorruptDataError`; `wholly` is as for `Decoder`."""
    return _decode_event(data, wholly=wholly)


def written_event(data: bytes, version: int = OLDEST, *, deadline_ms: int | None = None) -> bytes:
    """Return what `encode_event` writes for the event in `data`, or raise `CorruptDataError`.

    Fields that this program does not know stay in it.

    Parameters
    ----------
    deadline_ms
        What a `Recommended` has as its deadline, in place of its own.
    """
    layout, stored = _read_layout(data), msgspec.json.decode(data)
    kind = type(layout)
    layout.v = stored["v"] = version
    if deadline_ms is not None and kind is _LAYOUTS[Recommended]:
        layout.recommendation.deadline_ms = stored["recommendation"]["deadline_ms"] = deadline_ms
    if find_unknown(layout, stored):
        return text_of(stored)
    if kind not in _HEADS:
        return encode_event(decode_event(data), version)
    head = _HEADS[kind] % version
    return head + text_of(layout)[len(head) :]


def encode_snapshot(snapshot: Snapshot, version: int = OLDEST) -> bytes:
    """Return a snapshot with the data version, its position and a checksum of all of it in front."""
    header = _SNAPSHOT_HEADER.pack(_SNAPSHOT_MAGIC, version, snapshot.position)
    return header + _checksum(header, snapshot.payload) + snapshot.payload


def decode_snapshot(data: bytes) -> Snapshot:
    """Return the snapshot in `data`, or raise `CorruptDataError` when it does not verify, or `NewerDataError`."""
    start = _SNAPSHOT_HEADER.size + _DIGEST_SIZE
    if len(data) < start:
        raise CorruptDataError("a snapshot is cut short")
    header, digest, payload = data[: _SNAPSHOT_HEADER.size], data[_SNAPSHOT_HEADER.size : start], data[start:]
    magic, version, position = _SNAPSHOT_HEADER.unpack(header)
    if magic != _SNAPSHOT_MAGIC or version < FIRST:
        raise CorruptDataError("these bytes are no snapshot")
    if digest != _checksum(header, payload):
        raise CorruptDataError(f"the snapshot at position {position} does not match its checksum")
    refuse_newer(version)
    return Snapshot(position=position, payload=payload)


def _checksum(header: bytes, payload: bytes) -> bytes:
    digest = blake2b(header, digest_size=_DIGEST_SIZE)
    digest.update(payload)
    return digest.digest()


def _settings_document(settings: BanditSettings) -> Document:
    beta, default, taken = settings.exploration.beta, settings.default_reward, settings.reward_range
    schedule, width = ("constant", beta.value) if isinstance(beta, ConstantBeta) else ("paper", beta.scale)
    several, contexts, items = settings.reward_aggregation, settings.context_schema, settings.item_schema
    # What is left as it is in most bandits is left out, and refused where it is given: equal settings have equal bytes.
    beside = {
        "shares_fall_after": settings.exploration.shares_fall_after or None,
        "prior_study": settings.prior_study or None,
        "prior_digest": settings.prior_digest if settings.prior_study else None,
        "reward_range": None
        if taken is None
        else _RewardRange(plain(taken.low), plain(taken.high), taken.clamp, taken.trusted or UNSET),
        "reward_aggregation": None if several is Aggregation.FIRST else several,
        "requires_activation": settings.requires_activation or None,
        "baseline_item_ids": settings.baseline_item_ids or None,
        "context_schema": None if contexts is None else schema_document(contexts),
        "item_schema": None if items is None else schema_document(items),
        "durability": None if settings.durability is None else str(settings.durability),
        "provisional_after_ms": settings.provisional_after_ms,
        "stage": None if settings.stage is Stage.LIVE else settings.stage,
        "control_share": plain(settings.control_share) or None,
        "guardrail_margin": None if settings.guardrail_margin is None else plain(settings.guardrail_margin),
        "conservative_share": plain(settings.conservative_share) or None,
        "default_item_value": None if settings.default_item_value is None else plain(settings.default_item_value),
        "learned_per_second": None
        if settings.learned_per_second == DEFAULT_LEARNED_PER_SECOND
        else settings.learned_per_second,
        "rules": rules_document(settings.rules) or None,
    }
    return {
        "item_capacity": settings.item_capacity,
        "slate_size": settings.slate_size,
        "context_dim": settings.context_dim,
        "kernel": settings.kernel,
        "beta_schedule": schedule,
        "beta": plain(width),
        "uniform_share": plain(settings.exploration.uniform_share),
        "near_share": plain(settings.exploration.near_share),
        "reward_wait_ms": settings.reward_wait_ms,
        "default_reward": None if default is None else plain(default),
        "half_life_ms": settings.half_life_ms,
        **_drop_nulls(beside),
    }


def _drop_nulls(document: Document) -> Document:
    return {name: value for name, value in document.items() if value is not None}


class _RewardRange(Layout):
    low: float
    high: float
    clamp: bool
    trusted: Literal[True] | UnsetType = UNSET

    def read(self) -> RewardRange:
        return RewardRange(self.low, self.high, self.clamp, self.trusted is True)


class _Settings(Layout):
    item_capacity: int
    slate_size: int
    context_dim: int
    kernel: Kernel
    beta_schedule: Literal["constant", "paper"]
    beta: float
    uniform_share: float
    near_share: float
    reward_wait_ms: int
    default_reward: float | None
    half_life_ms: int
    shares_fall_after: Annotated[int, Meta(gt=0)] | UnsetType = UNSET
    prior_study: Annotated[str, Meta(min_length=1)] | UnsetType = UNSET
    prior_digest: str | UnsetType = UNSET
    reward_range: _RewardRange | UnsetType = UNSET
    reward_aggregation: Aggregation | UnsetType = UNSET
    requires_activation: Literal[True] | UnsetType = UNSET
    baseline_item_ids: Annotated[tuple[str, ...], Meta(min_length=1)] | UnsetType = UNSET
    context_schema: SchemaLayout | UnsetType = UNSET
    item_schema: SchemaLayout | UnsetType = UNSET
    durability: Annotated[str, Meta(pattern=r"^(memory|fsync|replicated:[1-9])$")] | UnsetType = UNSET
    learned_per_second: Annotated[int, Meta(gt=0)] | UnsetType = UNSET
    provisional_after_ms: Annotated[int, Meta(ge=0)] | UnsetType = UNSET
    default_item_value: float | UnsetType = UNSET
    stage: Stage | UnsetType = UNSET
    control_share: Annotated[float, Meta(gt=0, le=MAX_CONTROL_SHARE)] | UnsetType = UNSET
    guardrail_margin: Annotated[float, Meta(ge=0, le=1)] | UnsetType = UNSET
    conservative_share: Annotated[float, Meta(gt=0, lt=1)] | UnsetType = UNSET
    rules: Annotated[tuple[RuleLayout, ...], Meta(min_length=1)] | UnsetType = UNSET

    def read(self) -> BanditSettings:
        if (self.prior_study is UNSET) != (self.prior_digest is UNSET):
            refuse("prior_digest", read_optional(self.prior_digest))
        if self.reward_aggregation is Aggregation.FIRST:
            refuse("reward_aggregation", self.reward_aggregation.value)
        if self.learned_per_second == DEFAULT_LEARNED_PER_SECOND:
            refuse("learned_per_second", self.learned_per_second)
        if self.stage is Stage.LIVE:
            refuse("stage", self.stage.value)
        beta = ConstantBeta(self.beta) if self.beta_schedule == "constant" else PaperBeta(self.beta)
        return BanditSettings(
            item_capacity=self.item_capacity,
            slate_size=self.slate_size,
            context_dim=self.context_dim,
            kernel=self.kernel,
            exploration=Exploration(
                beta, self.uniform_share, self.near_share, read_optional(self.shares_fall_after) or 0
            ),
            reward_wait_ms=self.reward_wait_ms,
            default_reward=self.default_reward,
            prior_study=read_optional(self.prior_study) or "",
            prior_digest=read_optional(self.prior_digest) or "",
            half_life_ms=self.half_life_ms,
            reward_range=read(self.reward_range),
            reward_aggregation=read_optional(self.reward_aggregation) or Aggregation.FIRST,
            requires_activation=bool(self.requires_activation),
            baseline_item_ids=read_optional(self.baseline_item_ids) or (),
            context_schema=read(self.context_schema),
            item_schema=read(self.item_schema),
            durability=None if self.durability is UNSET else Durability.parse(self.durability),
            learned_per_second=read_optional(self.learned_per_second) or DEFAULT_LEARNED_PER_SECOND,
            provisional_after_ms=read_optional(self.provisional_after_ms),
            default_item_value=read_optional(self.default_item_value),
            stage=read_optional(self.stage) or Stage.LIVE,
            control_share=read_optional(self.control_share) or 0.0,
            guardrail_margin=read_optional(self.guardrail_margin),
            conservative_share=read_optional(self.conservative_share) or 0.0,
            rules=read(self.rules) or (),
        )


class _StampedSettings(_Settings, kw_only=True):
    v: DataVersion


def _prior_document(prior: Prior) -> Document:
    return {
        "study": prior.study,
        "answers": prior.answers,
        "items": [utility.item_id for utility in prior.utilities],
        "constants": [plain(utility.constant) for utility in prior.utilities],
        "slopes": [[plain(slope) for slope in utility.slopes] for utility in prior.utilities],
    }


class _Prior(Layout):
    study: str
    answers: int
    items: tuple[str, ...]
    constants: tuple[float, ...]
    slopes: tuple[tuple[float, ...], ...]

    def read(self) -> Prior:
        if not len(self.items) == len(self.constants) == len(self.slopes):
            refuse("slopes", f"{len(self.items)}, {len(self.constants)} and {len(self.slopes)} entries")
        return Prior(self.study, self.answers, tuple(map(ItemUtility, self.items, self.constants, self.slopes)))


class _Item(Layout, array_like=True):
    item_id: str
    available: bool
    features: Annotated[FeaturesLayout, Meta(min_length=1)] | UnsetType = UNSET

    def read(self) -> Item:
        features = NO_FEATURES if self.features is UNSET else read_features(self.features)
        return Item(self.item_id, self.available, features)


def _request(request_id: str, context: ContextLayout, *beside: Any) -> RecommendationRequest:  # noqa: ANN401, what may be left out
    candidates, baseline, group_key, rules, reached = map(read, beside)
    asked = (candidates, baseline or (), group_key or "", rules or (), reached or ())
    return RecommendationRequest(request_id, read_context(context), *asked)


def _recommendation(*values: Any) -> Recommendation:  # noqa: ANN401, what may be left out
    *known, stage, group, shadow, relaxed, paid = values
    placed = (read_optional(stage) or Stage.LIVE, read_optional(group) or Group.NONE, read(read_optional(shadow)))
    return Recommendation(*[*known, *placed, read_optional(relaxed) or (), read_optional(paid) or ()])


def _make_shown(context: ContextLayout, slate: tuple[str, ...], at_ms: int) -> Shown:
    return Shown(read_context(context), slate, at_ms)


def _past_slate(context: ContextLayout, slate: tuple[str, ...], reward: float, *beside: Any) -> PastSlate:  # noqa: ANN401, what may be left out
    return PastSlate(read_context(context), slate, reward, *map(read_optional, beside))


def _maker(kind: type[Any]) -> Callable[..., Any]:
    """Return what makes an event of its fields: None stands for not set aside, and for no group or reason."""
    usual = [
        {"aside": False, "group": Group.NONE, "given_position": 0, "guarded": ""}.get(name)
        for name in kind.__dataclass_fields__
    ]

    def make(*values: object) -> Any:  # noqa: ANN401, as kinds are
        return kind(*(known if value is None else value for value, known in zip(values, usual, strict=True)))

    return make


def _make_expired(*values: Any) -> Expired:  # noqa: ANN401, what may be left out
    expired: Expired = _maker(Expired)(*values)
    if (expired.shown is None) != (expired.default_reward is None):
        raise CorruptDataError("of the stored fields default_reward and shown one is null")
    return expired


_PARTS = {
    "Context": ContextLayout,
    "BanditSettings": _Settings,
    "Prior": _Prior,
    "Item": _Item,
    "Shadow": derive(Shadow),
    "SlateRule": RuleLayout,
    "Absence": Absence,
    "ItemValues": ItemValues,
}
_derive_recommendation = partial(
    derive,
    Recommendation,
    of=_recommendation,
    parts=_PARTS,
    left_out=("stage", "group", "shadow", "relaxed", "paid"),
    beside=("absent",),
)
_PARTS |= {
    "Recommendation": _derive_recommendation(),
    "RecommendationRequest": derive(
        RecommendationRequest,
        of=_request,
        parts=_PARTS,
        left_out=("baseline_item_ids", "group_key", "rules", "reached"),
        beside=("explain", "known_features_only", "frequency_key"),
    ),
    "Shown": derive(Shown, of=_make_shown, parts=_PARTS),
    "PastSlate": derive(PastSlate, of=_past_slate, parts=_PARTS, left_out=("at_ms", "propensity", "item_values")),
}
_TAGS: dict[type[Event], str] = {
    BanditCreated: "bandit_created",
    SettingsChanged: "settings_changed",
    BanditReset: "bandit_reset",
    ItemsChanged: "items_changed",
    Recommended: "recommended",
    Activated: "activated",
    Lapsed: "lapsed",
    RewardCollected: "reward_collected",
    RewardAmended: "reward_amended",
    RewardRevised: "reward_revised",
    Rewarded: "rewarded",
    Expired: "expired",
    Imported: "imported",
    EventSkipped: "event_skipped",
}
_LEFT_OUT = (
    "prior",
    "aside",
    "before",
    "item_values",
    "item_values_before",
    "group",
    "replaced",
    "given_position",
    "guarded",
)
_MAKERS: dict[type[Event], Callable[..., Any]] = {
    kind: _maker(kind)
    for kind in (
        SettingsChanged,
        Recommended,
        Activated,
        RewardCollected,
        Rewarded,
        RewardAmended,
        RewardRevised,
        Lapsed,
    )
}
_MAKERS[Expired] = _make_expired
_LAYOUTS = {
    kind: derive(kind, EventLayout, tag=tag, parts=_PARTS, left_out=_LEFT_OUT, of=_MAKERS.get(kind, kind))
    for kind, tag in _TAGS.items()
}
_decode_event: Decoder[Event] = decoder(any_of(_LAYOUTS.values()))
_read_layout: Decoder[Any] = decoder(any_of(_LAYOUTS.values()), made=lambda layout: layout)
# Of most events the layout is written as the event is, but for the order of its first two fields: no event needs to be
# made of it.
_HEADS = {
    _LAYOUTS[kind]: b'{"v":%d,"type":"' + f'{_TAGS[kind]}",'.encode()
    for kind in (Recommended, Activated, Lapsed, RewardCollected, RewardAmended, RewardRevised, Rewarded)
}
_decode_settings: Decoder[BanditSettings] = decoder(_StampedSettings)
_decode_recorded: Decoder[Recommendation] = decoder(_derive_recommendation(Stamped))
_decode_features: Decoder[FeaturesLayout] = decoder(Annotated[FeaturesLayout, Meta(min_length=1)])


def _event_document(event: Event) -> Document:
    values = ((name, getattr(event, name)) for name in event.__dataclass_fields__)
    kept = {name: value for name, value in values if name not in _LEFT_OUT or value or isinstance(value, float)}
    return {name: _write_value(value) for name, value in kept.items()}


def _write_value(value: Any) -> Any:  # noqa: ANN401, what events have
    if isinstance(value, tuple):
        return [*map(_write_value, value)]
    write = _WRITERS.get(type(value))
    return write(value) if write else value


def _item_entry(item: Item) -> list[Any]:
    """Return an item as it stands in an event: with features only if it has any."""
    features = [features_document(item.features)] if item.features.values else []
    return [item.item_id, item.available, *features]


def _shown_document(shown: Shown) -> Document:
    return {"context": context_document(shown.context), "slate": shown.slate, "at_ms": shown.at_ms}


def _past_document(slate: PastSlate) -> Document:
    # What is not known of a row is left out: there are many of them.
    propensity = None if slate.propensity is None else plain(slate.propensity)
    beside = _drop_nulls({"at_ms": slate.at_ms, "propensity": propensity, "item_values": slate.item_values})
    return {"context": context_document(slate.context), "slate": slate.slate, "reward": plain(slate.reward), **beside}


_WRITERS: dict[type, Callable[[Any], object]] = {
    BanditSettings: _settings_document,
    Prior: _prior_document,
    Item: _item_entry,
    Shown: _shown_document,
    PastSlate: _past_document,
}
